//! Sentinel: finds the primary of a service. Any Sentinel may be down, hang, or know less than the others.

use super::address::Address;
use super::connect::{self, exchange};
use super::fault::{Fault, NOT_A_SENTINEL};
use super::stream::ServerStream;
use super::url::{Deployment, Host};
use crate::sys::clock::Boot;
use crate::sys::wait::within;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use std::time::Duration;

/// The time to wait for the other Sentinels after the first answer, unless a majority agrees sooner.
const OTHERS: Duration = Duration::from_millis(100);

/// The vote of a Sentinel: the epoch of the last failover, and the primary. The highest epoch wins.
type Vote = (u64, Host);

/// Connects to the primary and logs in.
///
/// # Errors
/// [`Fault::Unreachable`] if the server that the Sentinels name is not a primary.
pub(super) async fn open(address: &Address) -> Result<(Host, ServerStream), Fault> {
    let primary = primary(address).await?;
    let mut socket = connect::open(&address.at(&primary)).await.map_err(|fault| fault.of_server(&primary))?;
    let role = exchange(&mut socket, &[redis::cmd("ROLE")]).await?;
    match role[0].text(0) {
        "master" => Ok((primary, socket)),
        _ => Err(Fault::Unreachable(format!("Sentinel names {primary}, which is not a primary yet"))),
    }
}

/// Fails with [`Fault::Unreachable`] if the Sentinels name another primary before the deadline. Sentinels that cannot
/// tell are ignored.
pub(super) async fn still_names(address: &Address, server: &Host, deadline: Boot) -> Result<(), Fault> {
    match within(deadline, primary(address)).await {
        Some(Ok(primary)) if primary != *server => {
            Err(Fault::Unreachable(format!("{server} is no longer the primary, Sentinel names {primary}")))
        }
        _ => Ok(()),
    }
}

/// The service as a Sentinel sees it.
#[derive(Debug)]
pub(crate) struct SentinelView {
    pub(crate) primary: Host,
    /// Why the Sentinels could not agree on a failover now. None if they could agree, or if this is not known.
    pub(crate) no_quorum: Option<String>,
}

/// The name of each Sentinel, and its view or the fault. Waits for at most `patience`. Empty if the address names no
/// Sentinels.
pub(crate) async fn views(address: &Address, patience: Duration) -> Vec<(String, Result<SentinelView, Fault>)> {
    let Deployment::Sentinel { sentinels, service, .. } = address.deployment() else { return Vec::new() };
    let asked = sentinels.iter().map(|sentinel| async move {
        let view = within(Boot::now() + patience, view(address, sentinel, service)).await;
        (sentinel.to_string(), view.unwrap_or(Err(Fault::TimedOut)))
    });
    join_all(asked).await
}

async fn view(address: &Address, sentinel: &Host, service: &str) -> Result<SentinelView, Fault> {
    let (_, primary) = ask(address, sentinel, service).await?;
    let mut socket = connect::open(&address.of_sentinel(sentinel)).await?;
    let mut check = redis::cmd("SENTINEL");
    check.arg("CKQUORUM").arg(service);
    let no_quorum = match exchange(&mut socket, &[check]).await {
        Err(Fault::Refused(code, detail) | Fault::CannotServe(code, detail)) if code == "NOQUORUM" => Some(detail),
        // The Sentinels have a quorum, or the answer says nothing: the user may lack the right to ask.
        _ => None,
    };
    Ok(SentinelView { primary, no_quorum })
}

/// Asks all Sentinels in parallel, until a majority agrees, all have answered, or [`OTHERS`] has passed since the first
/// answer.
async fn primary(address: &Address) -> Result<Host, Fault> {
    let Deployment::Sentinel { sentinels, service, .. } = address.deployment() else {
        return Err(Fault::Garbage("not behind Sentinels"));
    };
    let mut asked: FuturesUnordered<_> = sentinels.iter().map(|sentinel| ask(address, sentinel, service)).collect();
    let (mut votes, mut faults, mut until) = (Vec::<Vote>::new(), Vec::new(), Boot::NEVER);
    while let Some(Some(answer)) = within(until, asked.next()).await {
        // A refusal is an answer, too.
        if answer.as_ref().map_or_else(Fault::is_final, |_| true) {
            until = until.min(Boot::now() + OTHERS);
        }
        match answer {
            Ok(answer) => {
                votes.push(answer);
                let latest = votes.iter().max_by_key(|(epoch, _)| epoch);
                if votes.iter().filter(|vote| Some(*vote) == latest).count() > sentinels.len() / 2 {
                    break;
                }
            }
            Err(fault) => faults.push(fault),
        }
    }
    if let Some((_, primary)) = votes.into_iter().max_by_key(|(epoch, _)| *epoch) {
        return Ok(primary);
    }
    // If most Sentinels refuse for good, a refusal is reported; else the fault of a Sentinel that may recover.
    let refused = faults.iter().filter(|fault| fault.is_final()).count() > sentinels.len() / 2;
    let reported = faults.into_iter().find(|fault| fault.is_final() == refused);
    Err(reported.unwrap_or(Fault::TimedOut))
}

async fn ask(address: &Address, sentinel: &Host, service: &str) -> Result<Vote, Fault> {
    let answer = async {
        let mut socket = connect::open(&address.of_sentinel(sentinel)).await?;
        // During a failover, the first command names the new primary sooner than the second command does. The second
        // command tells the epoch.
        let [mut name, mut details] = [redis::cmd("SENTINEL"), redis::cmd("SENTINEL")];
        name.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
        details.arg("MASTER").arg(service);
        let answers = exchange(&mut socket, &[name, details]).await?;
        let epoch = answers[1].items().chunks_exact(2).find(|pair| pair[0].as_text() == Some("config-epoch"));
        let epoch = epoch.and_then(|pair| pair[1].as_text()?.parse().ok());
        let port = answers[0].count(1).and_then(|port| u16::try_from(port).ok());
        match (epoch, port.and_then(|port| Host::named(answers[0].text(0), port))) {
            (Some(epoch), Some(primary)) => Ok((epoch, primary)),
            _ => Err(Fault::Garbage("in answer to SENTINEL")),
        }
    };
    answer.await.map_err(|fault| match fault {
        fault if fault.is_unknown_command() => Fault::Misconfigured(NOT_A_SENTINEL.to_owned(), String::new()),
        fault => fault.of_server(sentinel),
    })
}
