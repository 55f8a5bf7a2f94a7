//! The primary of a service, as its Sentinels name it. Any of them may be down, hang, or know less than the others.

use super::address::{Address, Host, Place};
use super::connect::{self, Socket, exchange};
use super::fault::{Fault, NOT_A_SENTINEL};
use super::within;
use crate::sys::clock::Boot;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::time::Duration;

/// How long the other Sentinels are waited for once one has answered, unless most of them agree before.
const OTHERS: Duration = Duration::from_millis(100);

/// What a Sentinel says: since which fail-over, and who is the primary. The latest is right.
type Named = (u64, Host);

/// Connects to the primary and logs in.
///
/// # Errors
/// Why no Sentinel, or not the primary, can be reached; [`Fault::Unreachable`] too for one that does not say it is primary.
pub(super) async fn open(address: &Address) -> Result<(Host, Box<dyn Socket>), Fault> {
    let primary = primary(address).await?;
    let mut socket = connect::open(&address.at(&primary)).await.map_err(|fault| fault.of_server(&primary))?;
    let role = exchange(&mut socket, &[redis::cmd("ROLE")]).await?;
    match role[0].text(0) {
        "master" => Ok((primary, socket)),
        _ => Err(Fault::Unreachable(format!("Sentinel names {primary}, which is not a primary yet"))),
    }
}

/// Fails when the Sentinels name another primary by the deadline.
///
/// # Errors
/// [`Fault::Unreachable`], with the one that they name.
pub(super) async fn still_names(address: &Address, server: &Host, deadline: Boot) -> Result<(), Fault> {
    match within(deadline, primary(address)).await {
        Some(Ok(primary)) if primary != *server => {
            Err(Fault::Unreachable(format!("{server} is no longer the primary, Sentinel names {primary}")))
        }
        _ => Ok(()),
    }
}

/// Asks all Sentinels side by side. Enough is known when most of them agree.
async fn primary(address: &Address) -> Result<Host, Fault> {
    let Place::Sentinel { sentinels, service, .. } = address.place() else {
        return Err(Fault::Garbage("not behind Sentinels"));
    };
    let mut asked: FuturesUnordered<_> = sentinels.iter().map(|sentinel| ask(address, sentinel, service)).collect();
    let (mut named, mut faults, mut until) = (Vec::<Named>::new(), Vec::new(), Boot::NEVER);
    while let Some(Some(answer)) = within(until, asked.next()).await {
        // One that refuses has answered too.
        if answer.as_ref().map_or_else(Fault::is_final, |_| true) {
            until = until.min(Boot::now() + OTHERS);
        }
        match answer {
            Ok(answer) => {
                named.push(answer);
                let latest = named.iter().max_by_key(|(since, _)| since);
                if named.iter().filter(|answer| Some(*answer) == latest).count() > sentinels.len() / 2 {
                    break;
                }
            }
            Err(fault) => faults.push(fault),
        }
    }
    if let Some((_, primary)) = named.into_iter().max_by_key(|(since, _)| *since) {
        return Ok(primary);
    }
    // Unless most of them refuse, those that may come back may know more.
    let refused = faults.iter().filter(|fault| fault.is_final()).count() > sentinels.len() / 2;
    let told = faults.into_iter().find(|fault| fault.is_final() == refused);
    Err(told.unwrap_or(Fault::TimedOut))
}

async fn ask(address: &Address, sentinel: &Host, service: &str) -> Result<Named, Fault> {
    let answer = async {
        let mut socket = connect::open(&address.of_sentinel(sentinel)).await?;
        // The first names the replica that is being promoted already, the second says by which fail-over.
        let [mut name, mut details] = [redis::cmd("SENTINEL"), redis::cmd("SENTINEL")];
        name.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
        details.arg("MASTER").arg(service);
        let answers = exchange(&mut socket, &[name, details]).await?;
        let epoch = answers[1].items().chunks_exact(2).find(|pair| pair[0].as_text() == Some("config-epoch"));
        let epoch = epoch.and_then(|pair| pair[1].as_text()?.parse().ok());
        let port = answers[0].count(1).and_then(|port| u16::try_from(port).ok());
        match (epoch, port) {
            (Some(epoch), Some(port)) => Ok((epoch, Host { name: answers[0].text(0).to_owned(), port })),
            _ => Err(Fault::Garbage("in answer to SENTINEL")),
        }
    };
    answer.await.map_err(|fault| match fault {
        Fault::Refused(code, _) if code == "unknown command" => {
            Fault::Misconfigured(NOT_A_SENTINEL.to_owned(), String::new())
        }
        fault => fault.of_server(sentinel),
    })
}
