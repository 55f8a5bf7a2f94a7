//! Cluster: the way in, the server that a redirection names, and all masters. route.rs follows the redirections.
//!
//! All keys of a lock are in one hash slot. At least one of them is always missing, because a lock never has both
//! `holds` and `members`. While a hash slot moves, a server answers TRYAGAIN if some of a request's keys are missing.
//! ASKING would only bring TRYAGAIN, so after ASK, too, redlock repeats the request a little later.

use super::address::Address;
use super::connect::{self, exchange};
use super::fault::Fault;
use super::stream::ServerStream;
use super::url::Host;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::RedisError;
use std::time::Duration;
use tokio::time::sleep;

/// How often redlock repeats a request that the Cluster has not executed. The n-th repetition comes after n times
/// `PAUSE`, but the first repetition after a MOVED comes at once.
pub(super) const TRIES: u32 = 12;
pub(super) const PAUSE: Duration = Duration::from_millis(8);
const SLOTS: u64 = 16_384;
/// The delay before redlock tries a server that the user has not named, or that has reported the Cluster as down or
/// incomplete.
const DETOUR: Duration = Duration::from_millis(50);
/// redlock remembers at most this many of the masters that a server names.
const REMEMBERED: usize = 8;

/// The way into a Cluster: a server, a connection that is logged in there, and masters that the server knows.
pub(super) struct ClusterSocket {
    pub(super) server: Host,
    pub(super) socket: ServerStream,
    pub(super) masters: Vec<Host>,
}

/// Tries to enter the Cluster in parallel at the `seeds`, the servers in the URL, and after a short delay at those in
/// `later`. The first server that proves to be in the Cluster wins.
///
/// # Errors
/// If no server can be used, the fault of one of them, preferably of one that may come back.
pub(super) async fn enter(address: &Address, seeds: &[Host], later: &[Host]) -> Result<ClusterSocket, Fault> {
    let now = seeds.iter().filter(|seed| !later.contains(seed));
    let enter = |seed, waits| async move {
        if waits {
            sleep(DETOUR).await;
        }
        enter_at(address, seed).await
    };
    let now = now.map(|seed| enter(seed, false));
    let mut tries: FuturesUnordered<_> = now.chain(later.iter().map(|seed| enter(seed, true))).collect();
    let mut faults = Vec::new();
    while let Some(entered) = tries.next().await {
        match entered {
            Ok(entrance) => return Ok(entrance),
            Err(fault) => faults.push(fault),
        }
    }
    Err(faults.into_iter().min_by_key(Fault::is_final).unwrap_or(Fault::TimedOut))
}

/// Connects, logs in, and asks for masters. A server that knows none has left the Cluster, and is not used. If an ACL
/// forbids the question, the server is trusted.
async fn enter_at(address: &Address, seed: &Host) -> Result<ClusterSocket, Fault> {
    let mut socket = connect::open(&address.at(seed)).await.map_err(|fault| fault.of_server(seed))?;
    let masters = match table(seed, &mut socket).await {
        Ok((masters, _)) => masters.into_iter().take(REMEMBERED).collect(),
        Err(fault) if fault.is_absence() => Vec::new(),
        Err(fault) => return Err(fault),
    };
    Ok(ClusterSocket { server: seed.clone(), socket, masters })
}

/// The server that `error` names, a MOVED in the answer of `from`.
///
/// # Errors
/// [`Fault::Garbage`] if the MOVED names no valid server.
pub(super) fn moved_to(error: &RedisError, from: &Host) -> Result<Host, Fault> {
    let named = || {
        let (name, port) = error.redirect_node()?.0.rsplit_once(':')?;
        host(name, port.parse().ok()?, from)
    };
    named().ok_or(Fault::Garbage("MOVED without a host"))
}

/// All masters, as `server` knows them.
///
/// # Errors
/// [`Fault::Unreachable`] if some slots have no master, because their locks cannot be listed.
pub(super) async fn masters(server: &Host, socket: &mut ServerStream) -> Result<Vec<Host>, Fault> {
    let (masters, slots) = table(server, socket).await?;
    if slots < SLOTS {
        return Err(Fault::Unreachable(format!("{server} knows the masters of {slots} of {SLOTS} slots")));
    }
    Ok(masters)
}

/// The masters that have slots, as `server` knows them, and the number of slots that they serve together.
///
/// # Errors
/// [`Fault::Unreachable`] if the server knows no masters, [`Fault::Garbage`] if the answer is no table.
async fn table(server: &Host, socket: &mut ServerStream) -> Result<(Vec<Host>, u64), Fault> {
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let ranges = exchange(socket, &[question]).await.map_err(|fault| fault.of_server(server))?;
    let (mut masters, mut slots) = (Vec::new(), 0);
    for range in ranges[0].items() {
        // {first slot, last slot, master, replicas …}
        let master = range.at(2);
        let port = master.count(1).and_then(|port| u16::try_from(port).ok());
        let master = port.and_then(|port| host(master.text(0), port, server));
        let (Some(first), Some(last), Some(master)) = (range.count(0), range.count(1), master) else {
            return Err(Fault::Garbage("in answer to CLUSTER SLOTS"));
        };
        slots += (last + 1).saturating_sub(first);
        if !masters.contains(&master) {
            masters.push(master);
        }
    }
    if masters.is_empty() {
        return Err(Fault::Unreachable(format!("{server} knows no masters, or is no longer in a Cluster")));
    }
    Ok((masters, slots))
}

/// The server with this name and port, as reported by `from`: an empty name means the host of `from`. None if the name
/// is not valid.
fn host(name: &str, port: u16, from: &Host) -> Option<Host> {
    Host::named(if name.is_empty() { &from.name } else { name }, port)
}
