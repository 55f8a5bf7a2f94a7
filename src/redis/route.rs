//! The way to a node: straight, or to the one of several servers that Sentinels or a Cluster name, which changes.

use super::address::{Address, Host, Place};
use super::connect::{self, Socket};
use super::fault::Fault;
use super::{cluster, sentinel};
use crate::sys::clock::Boot;
use redis::RedisError;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// How long the word of the Sentinels is good for: shorter than a third of any lease that is renewed.
const NAMED_FOR: Duration = Duration::from_millis(100);

/// The way to one node. Its clones share what is learnt on the way: those of the node's requests and its subscriptions.
#[derive(Clone, Debug)]
pub(super) struct Route {
    address: Address,
    /// Behind Sentinels or in a Cluster: the server that was last named.
    server: Rc<RefCell<Option<Host>>>,
    named_at: Rc<Cell<Boot>>,
}

impl Route {
    pub(super) fn new(address: Address) -> Route {
        Route { address, server: Rc::default(), named_at: Rc::new(Cell::new(Boot::at(Duration::ZERO))) }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Connects and logs in. Returns which server it is, where there are several.
    ///
    /// # Errors
    /// Why it cannot be reached, or what it answered to the login.
    pub(super) async fn open(&self) -> Result<(Option<Host>, Box<dyn Socket>), Fault> {
        let known = self.server();
        let opened = match self.address.place() {
            Place::Sentinel { .. } => sentinel::open(&self.address).await,
            Place::Cluster(seeds) => cluster::open(&self.address, seeds, known).await,
            _ => return Ok((None, connect::open(&self.address).await?)),
        };
        let (server, socket) = opened?;
        self.turn_to(Some(server.clone()));
        self.named_at.set(Boot::now());
        Ok((Some(server), socket))
    }

    /// The server that was last named; none where there is only one, or none is known.
    pub(super) fn server(&self) -> Option<Host> {
        self.server.borrow().clone()
    }

    /// The next request goes to this server; with none, to one that is found anew.
    pub(super) fn turn_to(&self, server: Option<Host>) {
        self.server.replace(server);
    }

    /// Whether another server than this has been named since.
    pub(super) fn has_left(&self, server: Option<&Host>) -> bool {
        self.server.borrow().as_ref().is_some_and(|named| Some(named) != server)
    }

    /// Fails when the Sentinels name another primary than the one that is connected to: a primary of yesterday may still
    /// answer. Sentinels that say nothing by half of the time change nothing.
    pub(super) async fn is_current(&self, deadline: Boot) -> Result<(), Fault> {
        let (Place::Sentinel { .. }, Some(server)) = (self.address.place(), self.server()) else { return Ok(()) };
        if self.named_at.get().elapsed() < NAMED_FOR {
            return Ok(());
        }
        sentinel::still_names(&self.address, &server, Boot::now() + deadline.left() / 2).await?;
        self.named_at.set(Boot::now());
        Ok(())
    }

    /// Follows a Cluster that has not executed a request, and says where or when it would be. False for every other error,
    /// and where the address names one server: that it is part of a Cluster is then for the user to know.
    pub(super) async fn follow(&self, error: &RedisError, tries: u32) -> bool {
        let (Place::Cluster(_), Some(server)) = (self.address.place(), self.server()) else { return false };
        if let Some(moved) = cluster::moved_to(error, &server) {
            self.turn_to(Some(moved));
        }
        cluster::pause(error, tries).await
    }

    /// All servers that have a part of the node's keys.
    pub(super) async fn masters(&self) -> Result<Vec<Option<Host>>, Fault> {
        match self.address.place() {
            Place::Cluster(_) => {
                let (Some(server), mut socket) = self.open().await? else { return Ok(Vec::new()) };
                Ok(cluster::masters(&server, &mut socket).await?.into_iter().map(Some).collect())
            }
            _ => Ok(vec![None]),
        }
    }
}
