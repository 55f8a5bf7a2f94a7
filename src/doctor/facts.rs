//! Facts about a node, as its servers report them.

use super::finding::{Harm, Problem};
use super::permissions;
use crate::redis::{Address, Fault, Node, Reply, SentinelView, sentinel_views};
use crate::sys::clock::{Boot, unix_time};
use futures_util::future::join;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// At most this many round trips are measured, and none begins after `TRY_FOR`.
const TRIES: usize = 20;
const TRY_FOR: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct NodeFacts {
    pub(super) servers: Vec<(String, Result<Facts, Fault>)>,
    /// The node's Sentinels, if there are any.
    pub(super) sentinels: Vec<(String, Result<SentinelView, Fault>)>,
}

impl NodeFacts {
    pub(super) fn reached(&self) -> impl Iterator<Item = &Facts> {
        self.servers.iter().filter_map(|(_, facts)| facts.as_ref().ok())
    }
}

#[derive(Debug)]
pub(super) struct Facts {
    pub(super) address: Address,
    /// The measured round trips, shortest first; never empty.
    pub(super) round_trips: Vec<Duration>,
    /// How far the server's clock is ahead of this machine's, in ms; none if TIME is refused.
    pub(super) ahead_ms: Option<i64>,
    /// The `run_id`s of the servers that several connections to this address have reached: several behind a balancer.
    pub(super) run_ids: BTreeSet<String>,
    pub(super) info: Lines,
    /// Two settings that INFO does not report: appendfsync, and no-appendfsync-on-rewrite.
    pub(super) appendfsync: Result<String, Problem>,
    pub(super) unsynced_rewrite: Result<String, Problem>,
    /// The answer to CLUSTER INFO; empty unless the server is a node of a Cluster.
    pub(super) cluster: Lines,
    /// The slots of a Cluster that are moving to or from this server.
    pub(super) moving: Result<Vec<String>, Problem>,
    /// The commands that the user may not run on locks.
    pub(super) denied: Result<Vec<String>, Problem>,
}

impl Facts {
    pub(super) fn is_sentinel(&self) -> bool {
        self.info.get("sentinel_masters").is_ok()
    }
}

/// The lines `name:value` that a command reports.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) command: &'static str,
    pub(super) lines: Result<String, Problem>,
}

impl Lines {
    pub(super) fn get(&self, name: &str) -> Result<&str, Problem> {
        let lines = self.lines.as_ref().map_err(Clone::clone)?;
        let value = lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.ok_or_else(|| unreported(self.command, format!("does not report {name}")))
    }

    /// The number behind `name:`. A negative number counts as 0: the uptime is negative if the clock was set back to a
    /// time before the server's start.
    pub(super) fn number(&self, name: &str) -> Result<u64, Problem> {
        let value = self.get(name)?;
        let number = value.parse::<i64>();
        let number =
            number.map_err(|_| unreported(self.command, format!("reports {name}:{value}, which is not a number")))?;
        Ok(number.try_into().unwrap_or(0))
    }
}

fn unreported(command: &str, answer: impl fmt::Display) -> Problem {
    let advice = format!("let this user run {command}, or look in the console of the service");
    Harm::Unknown.problem(&format!("unknown: {command} {answer}"), &advice)
}

/// Gathers the facts about each server of a node (one server, or every master of a Cluster), and about its Sentinels.
/// Each request may take `patience`. A server of `local:` that never ran is not started.
pub(super) async fn gather(address: &Address, prefix: &str, patience: Duration) -> NodeFacts {
    let (servers, sentinels) = join(servers(address, prefix, patience), sentinel_views(address, patience)).await;
    NodeFacts { servers, sentinels }
}

async fn servers(address: &Address, prefix: &str, patience: Duration) -> Vec<(String, Result<Facts, Fault>)> {
    if address.local().is_some_and(|local| local.is_unused()) {
        return Vec::new();
    }
    let mut node = Node::new(address.clone(), patience);
    let servers = match node.masters().await {
        Ok(servers) => servers,
        Err(fault) => return vec![(address.to_string(), Err(fault))],
    };
    let mut gathered = Vec::new();
    for server in servers {
        let name = server.as_ref().map_or_else(|| address.to_string(), |host| host.to_string());
        node.turn_to(server);
        gathered.push((name, facts(&mut node, prefix).await));
    }
    gathered
}

async fn facts(node: &mut Node, prefix: &str) -> Result<Facts, Fault> {
    // Logs in first, so that a login error is not taken for the answer to a command.
    node.reach().await?;
    let question = permissions::question(prefix);
    let words: Vec<&str> = question.iter().map(String::as_str).collect();
    let (round_trips, ahead_ms) = round_trips(node).await?;
    let info = report(node, "INFO").await;
    let cluster = match info.number("cluster_enabled") {
        Ok(1..) => report(node, "CLUSTER INFO").await,
        _ => Lines { command: "CLUSTER INFO", lines: Ok(String::new()) },
    };
    // Only a server in a Cluster is asked for moving slots: a server that refuses makes an entry in its ACL LOG.
    let moving = match &cluster.lines {
        Ok(reported) if reported.is_empty() => Ok(Vec::new()),
        Ok(_) => moving(node).await,
        Err(unreported) => Err(unreported.clone()),
    };
    Ok(Facts {
        address: node.address().clone(),
        round_trips,
        ahead_ms,
        run_ids: node.run_ids().await,
        info,
        appendfsync: setting(node, "appendfsync").await,
        unsynced_rewrite: setting(node, "no-appendfsync-on-rewrite").await,
        cluster,
        moving,
        denied: denied(node.command(&words).await),
    })
}

/// Measures round trips. Returns their times, shortest first, and [`ahead_ms`] for the shortest; none if TIME is
/// refused.
async fn round_trips(node: &mut Node) -> Result<(Vec<Duration>, Option<i64>), Fault> {
    let (start, mut tries) = (Boot::now(), Vec::new());
    while tries.len() < TRIES && (tries.is_empty() || !(start + TRY_FOR).passed()) {
        let sent = Boot::now();
        // A refusal shows the round trip, too.
        match node.command(&["TIME"]).await {
            Err(fault) if !fault.is_absence() => return Err(fault),
            answer => tries.push((sent.elapsed(), answer.ok().and_then(|answer| ahead_ms(&answer, sent.elapsed())))),
        }
    }
    tries.sort_unstable();
    let ahead = tries[0].1;
    Ok((tries.into_iter().map(|(time, _)| time).collect(), ahead))
}

/// The slots that are moving to or from this server. CLUSTER NODES shows them as `[93->-ID]` or `[93-<-ID]`, and shows
/// no move between other servers.
async fn moving(node: &mut Node) -> Result<Vec<String>, Problem> {
    let nodes = report(node, "CLUSTER NODES").await.lines?;
    let slots = nodes.split_whitespace().filter_map(|word| word.strip_prefix('[')?.split_once('-'));
    Ok(slots.map(|(slot, _)| slot.to_owned()).collect())
}

async fn report(node: &mut Node, command: &'static str) -> Lines {
    let answer = node.command(&command.split(' ').collect::<Vec<_>>()).await;
    let lines = answer.map(|reply| reply.as_text().unwrap_or_default().to_owned());
    Lines { command, lines: lines.map_err(|fault| unreported(command, fault)) }
}

async fn setting(node: &mut Node, name: &str) -> Result<String, Problem> {
    let pair = node.command(&["CONFIG", "GET", name]).await.map_err(|fault| unreported("CONFIG", fault))?;
    // A managed service may return an empty list.
    pair.at(1).as_text().map(str::to_owned).ok_or_else(|| unreported("CONFIG", format!("does not report {name}")))
}

/// How far a server's clock is ahead of this machine's, in ms, by an answer to TIME that took `round_trip`.
fn ahead_ms(answer: &Reply, round_trip: Duration) -> Option<i64> {
    let theirs = Duration::from_secs(answer.count(0)?) + Duration::from_micros(answer.count(1)?);
    let ours = unix_time().saturating_sub(round_trip / 2);
    i64::try_from(theirs.as_millis()).ok()?.checked_sub(i64::try_from(ours.as_millis()).ok()?)
}

/// The commands that the user may not run, from the answer to [`permissions::question`]. The question itself is an EVAL,
/// so the result is `eval` if the user may not run that.
pub(super) fn denied(answer: Result<Reply, Fault>) -> Result<Vec<String>, Problem> {
    match answer {
        Ok(denied) => Ok(denied.items().iter().filter_map(Reply::as_text).map(str::to_owned).collect()),
        Err(fault @ Fault::Refused(..)) if fault.is_absence() => Ok(vec!["eval".to_owned()]),
        Err(Fault::CannotServe(_, detail)) if detail.contains("near '#'") => Err(Harm::Unknown.problem(
            "before Redis 7 a server cannot be asked what a user may do",
            "try it: redlock run doctor -- true",
        )),
        Err(fault) => {
            let advice = match fault {
                Fault::TimedOut => "look for a CLIENT PAUSE or a slow script".into(),
                _ => fault.advice().1,
            };
            Err(Harm::NoVote.problem(&format!("refuses writes ({fault}): no lock can be taken"), &advice))
        }
    }
}
