//! The way to a node: to the server in the address, or to the one that Sentinels or a Cluster name at the moment.

use super::address::Address;
use super::connect;
use super::fault::Fault;
use super::stream::ServerStream;
use super::url::{Deployment, Host};
use super::{cluster, sentinel};
use crate::sys::clock::Boot;
use redis::RedisError;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

/// The time for which an answer of the Sentinels is trusted: shorter than a third of any lease that redlock renews.
const NAMED_FOR: Duration = Duration::from_millis(100);

/// The way to one node. Requests and subscriptions use clones of one route, which share what they learn.
#[derive(Clone, Debug)]
pub(super) struct Route {
    address: Address,
    /// The server that Sentinels or a Cluster last named.
    server: Rc<RefCell<Option<Host>>>,
    named_at: Rc<Cell<Boot>>,
    /// Servers of a Cluster that are tried last: masters that another server named, and servers, in the URL or not,
    /// that reported the Cluster as down or incomplete.
    later: Rc<RefCell<Vec<Host>>>,
    /// The number of times that a server has said that it is no longer a primary.
    demotions: Rc<Cell<u32>>,
}

impl Route {
    pub(super) fn new(address: Address) -> Route {
        Route {
            address,
            server: Rc::default(),
            named_at: Rc::new(Cell::new(Boot::at(Duration::ZERO))),
            later: Rc::default(),
            demotions: Rc::default(),
        }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Connects and logs in. Returns the name of the server, too; none if the address leads to a single server.
    pub(super) async fn open(&self) -> Result<(Option<Host>, ServerStream), Fault> {
        let (server, socket) = match (self.address.deployment(), self.server()) {
            (Deployment::Sentinel { .. }, _) => sentinel::open(&self.address).await?,
            (Deployment::Cluster(_), Some(server)) => {
                let opened = connect::open(&self.address.at(&server)).await;
                (server.clone(), opened.map_err(|fault| fault.of_server(&server))?)
            }
            (Deployment::Cluster(seeds), None) => self.enter(seeds).await?,
            _ => return Ok((None, connect::open(&self.address).await?)),
        };
        self.turn_to(Some(server.clone()));
        self.named_at.set(Boot::now());
        Ok((Some(server), socket))
    }

    async fn enter(&self, seeds: &[Host]) -> Result<(Host, ServerStream), Fault> {
        let later = self.later.borrow().clone();
        let entrance = cluster::enter(&self.address, seeds, &later).await?;
        let mut later = self.later.borrow_mut();
        later.retain(|server| seeds.contains(server));
        later.extend(entrance.masters.into_iter().filter(|master| !seeds.contains(master)));
        Ok((entrance.server, entrance.socket))
    }

    /// The server that Sentinels or a Cluster last named; none for any other address, or if no server is known.
    pub(super) fn server(&self) -> Option<Host> {
        self.server.borrow().clone()
    }

    /// Sends the next request to this server. If `server` is none, the next connection looks the server up again.
    pub(super) fn turn_to(&self, server: Option<Host>) {
        self.server.replace(server);
    }

    /// True if Sentinels or a Cluster last named a server other than `server`; false if no server is named at present.
    pub(super) fn has_left(&self, server: Option<&Host>) -> bool {
        self.server.borrow().as_ref().is_some_and(|named| Some(named) != server)
    }

    /// For a Cluster, forgets the server that was last named: the next connection looks the server up again.
    pub(super) fn forget(&self) {
        // With Sentinels nothing is forgotten: each connection asks them anyway, and the next answer is compared with
        // the last one.
        if let Deployment::Cluster(_) = self.address.deployment() {
            self.turn_to(None);
        }
    }

    /// Leaves a server that is no longer a primary: all clones of this route look up the new primary.
    pub(super) fn leave(&self) {
        self.turn_to(None);
        self.demotions.set(self.demotions.get() + 1);
    }

    pub(super) fn demotions(&self) -> u32 {
        self.demotions.get()
    }

    /// Fails if the Sentinels name another primary, because a former primary may still answer. Asks them at most once
    /// in [`NAMED_FOR`], and ignores those that have not answered in half of the time to the deadline.
    pub(super) async fn is_current(&self, deadline: Boot) -> Result<(), Fault> {
        let (Deployment::Sentinel { .. }, Some(server)) = (self.address.deployment(), self.server()) else {
            return Ok(());
        };
        if self.named_at.get().elapsed() < NAMED_FOR {
            return Ok(());
        }
        sentinel::still_names(&self.address, &server, Boot::now() + deadline.left() / 2).await?;
        self.named_at.set(Boot::now());
        Ok(())
    }

    /// Handles the error of a request that a Cluster has not executed: follows a redirection, avoids a server that
    /// reports the Cluster as down, or waits. `tries`: how often the request was repeated so far. Returns true if the
    /// request is to be sent again, and false for any other error, after the last repetition, or if no server of a
    /// Cluster is known.
    ///
    /// # Errors
    /// [`Fault::Garbage`] if the redirection names no server.
    pub(super) async fn follow(&self, error: &RedisError, tries: u32) -> Result<bool, Fault> {
        let (Deployment::Cluster(seeds), Some(server)) = (self.address.deployment(), self.server()) else {
            return Ok(false);
        };
        match error.code() {
            _ if tries == cluster::TRIES => return Ok(false),
            Some("MOVED") => self.turn_to(Some(cluster::moved_to(error, &server)?)),
            Some("CLUSTERDOWN") => self.avoid(server, seeds),
            Some("ASK" | "TRYAGAIN") => {}
            _ => return Ok(false),
        }
        // A MOVED after the first try needs no pause. A later MOVED may be part of a loop, and after other errors the
        // Cluster needs time.
        if tries > 0 || error.code() != Some("MOVED") {
            sleep(cluster::PAUSE * (tries + 1)).await;
        }
        Ok(true)
    }

    /// Avoids this server at the next entry to the Cluster: it may be cut off, or may have left.
    fn avoid(&self, server: Host, seeds: &[Host]) {
        let mut later = self.later.borrow_mut();
        later.retain(|one| *one != server);
        later.push(server);
        if seeds.iter().all(|seed| later.contains(seed)) {
            later.retain(|one| !seeds.contains(one));
        }
        self.turn_to(None);
    }

    /// The masters of a Cluster, each with a part of the node's keys; a single `None` for any other node.
    pub(super) async fn masters(&self) -> Result<Vec<Option<Host>>, Fault> {
        let Deployment::Cluster(seeds) = self.address.deployment() else { return Ok(vec![None]) };
        let mut known = Err(Fault::TimedOut);
        for _ in seeds {
            let (Some(server), mut socket) = self.open().await? else { break };
            known = cluster::masters(&server, &mut socket).await;
            if !matches!(known, Err(Fault::Unreachable(_))) {
                break;
            }
            self.avoid(server, seeds);
        }
        Ok(known?.into_iter().map(Some).collect())
    }
}
