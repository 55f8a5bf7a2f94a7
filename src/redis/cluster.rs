//! A Cluster: the server that has the slot of a lock, and what the others say to a request that is not theirs.
//!
//! All keys of a lock are in one slot, and at least one of them never exists (a lock is not held and promised at the same
//! time). So a server that imports the slot has no use for ASKING: to a request with several keys, some of them missing, it
//! says TRYAGAIN until the whole slot is there. ASK is answered by trying again too.

use super::address::{Address, Host};
use super::connect::{self, Socket, exchange};
use super::fault::Fault;
use futures_util::future::select_ok;
use redis::RedisError;
use std::time::Duration;
use tokio::time::sleep;

/// How often a request that was not executed is sent again, and the pause before the first time; it grows by as much.
const TRIES: u32 = 12;
const PAUSE: Duration = Duration::from_millis(8);

/// Connects to the server that is known, else to the first of the seeds that answers, and logs in.
///
/// # Errors
/// Why it, or none of them, can be reached.
pub(super) async fn open(
    address: &Address,
    seeds: &[Host],
    known: Option<Host>,
) -> Result<(Host, Box<dyn Socket>), Fault> {
    if let Some(server) = known {
        let socket = connect::open(&address.at(&server)).await.map_err(|fault| fault.of_server(&server))?;
        return Ok((server, socket));
    }
    let (entered, _) = select_ok(seeds.iter().map(|seed| Box::pin(enter(address, seed)))).await?;
    Ok(entered)
}

/// A server that is stopped accepts, but does not answer; one that does not permit PING does.
async fn enter(address: &Address, seed: &Host) -> Result<(Host, Box<dyn Socket>), Fault> {
    let answer = async {
        let mut socket = connect::open(&address.at(seed)).await?;
        match exchange(&mut socket, &[redis::cmd("PING")]).await {
            Ok(_) | Err(Fault::Refused(..)) => Ok((seed.clone(), socket)),
            Err(fault) => Err(fault),
        }
    };
    answer.await.map_err(|fault| fault.of_server(seed))
}

/// The server that has the slot, when `from` answers that it has not.
pub(super) fn moved_to(error: &RedisError, from: &Host) -> Option<Host> {
    let (address, _slot) = error.redirect_node().filter(|_| error.code() == Some("MOVED"))?;
    let (name, port) = address.rsplit_once(':')?;
    Some(host(name, port.parse().ok()?, from))
}

/// Waits a little before a request is sent again: its slot is on its way to another server, or to another master. At the
/// first redirection there is nothing to wait for; later ones may point at each other. False for every other error, and when
/// that has been going on for long enough to be told.
pub(super) async fn pause(error: &RedisError, tries: u32) -> bool {
    match error.code() {
        Some("MOVED") if tries == 0 => {}
        Some("MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN") if tries < TRIES => sleep(PAUSE * (tries + 1)).await,
        _ => return false,
    }
    true
}

/// All masters that have slots, as `server` knows them.
pub(super) async fn masters(server: &Host, socket: &mut Box<dyn Socket>) -> Result<Vec<Host>, Fault> {
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let slots = exchange(socket, &[slots]).await?;
    let mut masters = Vec::new();
    for range in slots[0].items() {
        // {first slot, last slot, master, replicas …}
        let master = range.at(2);
        let port = master.count(1).and_then(|port| u16::try_from(port).ok());
        let master = host(master.text(0), port.ok_or(Fault::Garbage("in answer to CLUSTER SLOTS"))?, server);
        if !masters.contains(&master) {
            masters.push(master);
        }
    }
    Ok(masters)
}

/// A server that `from` names; one without a name is where `from` is.
fn host(name: &str, port: u16, from: &Host) -> Host {
    let name = if name.is_empty() { &from.name } else { name };
    Host { name: name.to_owned(), port }
}
