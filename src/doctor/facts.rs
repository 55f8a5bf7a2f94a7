//! Facts about a node, as its servers report them.

use super::{Problem, permissions};
use crate::redis::{self, Address, Fault, Reply, SentinelView, sentinel_views};
use crate::sys::clock::Boot;
use crate::sys::wait::within;
use futures_util::future::join;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The number of measured round trips, and the time after which no more begin.
const TRIES: usize = 20;
const TRY_FOR: Duration = Duration::from_secs(5);

/// The settings that INFO does not report.
const CONFIG: [&str; 4] = ["appendfsync", "save", "stop-writes-on-bgsave-error", "min-replicas-to-write"];

/// The facts about a configured node.
#[derive(Debug)]
pub(super) struct NodeFacts {
    pub(super) servers: Vec<(String, Result<Facts, Fault>)>,
    /// Its Sentinels, if it has any.
    pub(super) sentinels: Vec<(String, Result<SentinelView, Fault>)>,
}

impl NodeFacts {
    pub(super) fn reached(&self) -> impl Iterator<Item = &Facts> {
        self.servers.iter().filter_map(|(_, facts)| facts.as_ref().ok())
    }
}

/// The facts about one server.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) address: Address,
    /// The measured round trips, shortest first; never empty.
    pub(super) round_trips: Vec<Duration>,
    pub(super) info: InfoFields,
    pub(super) config: InfoFields,
    pub(super) cluster: InfoFields,
    /// The slots of a Cluster that are moving to or from this server.
    pub(super) moving: Result<Vec<String>, Problem>,
    /// The commands that the user may not run on locks; none if the server cannot be asked.
    pub(super) denied: Result<Option<Vec<String>>, Problem>,
}

impl Facts {
    /// True for a Sentinel, which keeps no locks.
    pub(super) fn is_sentinel(&self) -> bool {
        self.info.get("sentinel_masters").is_ok()
    }
}

/// Names and values, as a command reports them.
#[derive(Debug)]
pub(super) struct InfoFields {
    command: &'static str,
    values: Result<BTreeMap<String, String>, Problem>,
}

impl InfoFields {
    #[cfg(test)]
    pub(super) fn of(command: &'static str, values: &[(&str, &str)]) -> InfoFields {
        let values = values.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        InfoFields { command, values: Ok(values.collect()) }
    }

    pub(super) fn get(&self, name: &str) -> Result<&str, Problem> {
        let values = self.values.as_ref().map_err(Clone::clone)?;
        let missing = || untold(self.command, format!("does not report {name}"));
        values.get(name).map(String::as_str).ok_or_else(missing)
    }

    pub(super) fn number(&self, name: &str) -> Result<u64, Problem> {
        let value = self.get(name)?;
        value.parse().map_err(|_| untold(self.command, format!("reports {name}:{value}, which is not a number")))
    }
}

/// The finding for something that the server does not reveal.
fn untold(command: &str, answer: impl fmt::Display) -> Problem {
    let advice = format!("let this user run {command}, or look it up in the console of the service");
    Problem::unknown(format!("unknown: {command} {answer}"), advice)
}

/// Gathers the facts about each server of a node: one server, or every master of a Cluster. Each request may take `patience`. A
/// server of `local:` that never ran is not started.
pub(super) async fn gather(address: &Address, prefix: &str, patience: Duration) -> NodeFacts {
    let servers = async {
        if address.local().is_some_and(|local| local.is_unused()) {
            Vec::new()
        } else {
            servers(address, prefix, patience).await
        }
    };
    let (servers, sentinels) = join(servers, sentinel_views(address, patience)).await;
    NodeFacts { servers, sentinels }
}

async fn servers(address: &Address, prefix: &str, patience: Duration) -> Vec<(String, Result<Facts, Fault>)> {
    let mut asked = Session { node: redis::Node::new(address.clone(), patience), patience };
    let servers = within(Boot::now() + patience, asked.node.masters()).await.unwrap_or(Err(Fault::TimedOut));
    let servers = match servers {
        Ok(servers) => servers,
        Err(fault) => return vec![(address.to_string(), Err(fault))],
    };
    let mut gathered = Vec::new();
    for server in servers {
        let name = server.as_ref().map_or_else(|| address.to_string(), |host| host.to_string());
        asked.node.turn_to(server);
        gathered.push((name, asked.facts(prefix).await));
    }
    gathered
}

struct Session {
    node: redis::Node,
    patience: Duration,
}

impl Session {
    async fn ask(&mut self, words: &[&str]) -> Result<Reply, Fault> {
        let answer = within(Boot::now() + self.patience, self.node.command(words)).await;
        answer.unwrap_or_else(|| Err(self.node.suspecting_tls(Fault::TimedOut)))
    }

    async fn facts(&mut self, prefix: &str) -> Result<Facts, Fault> {
        // An error of the login is not an answer to the commands that follow.
        let reached = within(Boot::now() + self.patience, self.node.reach()).await;
        reached.unwrap_or_else(|| Err(self.node.suspecting_tls(Fault::TimedOut)))?;
        Ok(Facts {
            address: self.node.address().clone(),
            round_trips: self.round_trips().await?,
            info: self.lines("INFO", &["INFO"]).await,
            config: self.config().await,
            cluster: self.lines("CLUSTER INFO", &["CLUSTER", "INFO"]).await,
            moving: self.moving().await,
            denied: self.denied(prefix).await,
        })
    }

    async fn round_trips(&mut self) -> Result<Vec<Duration>, Fault> {
        let (start, mut tries) = (Boot::now(), Vec::new());
        while tries.len() < TRIES && (tries.is_empty() || !(start + TRY_FOR).passed()) {
            let sent = Boot::now();
            // A refusal is an answer, too.
            match self.ask(&["TIME"]).await {
                Err(fault) if !is_untold(&fault) => return Err(fault),
                _ => tries.push(sent.elapsed()),
            }
        }
        tries.sort_unstable();
        Ok(tries)
    }

    /// The slots in `[93->-ID]` and `[93-<-ID]`; a server lists only its own.
    async fn moving(&mut self) -> Result<Vec<String>, Problem> {
        let nodes = self.ask(&["CLUSTER", "NODES"]).await.map_err(|fault| untold("CLUSTER NODES", fault))?;
        let words = nodes.as_text().unwrap_or_default().split_whitespace();
        let slots = words.filter_map(|word| word.strip_prefix('[')?.split_once('-'));
        Ok(slots.map(|(slot, _)| slot.to_owned()).collect())
    }

    /// The lines `name:value` of a command's reply.
    async fn lines(&mut self, command: &'static str, words: &[&str]) -> InfoFields {
        let pair = |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
        let answer = self.ask(words).await.map_err(|fault| untold(command, fault));
        let values = answer.map(|reply| reply.as_text().unwrap_or_default().lines().filter_map(pair).collect());
        InfoFields { command, values }
    }

    async fn config(&mut self) -> InfoFields {
        let (command, mut values) = ("CONFIG", BTreeMap::new());
        for name in CONFIG {
            match self.ask(&["CONFIG", "GET", name]).await {
                // A managed service may return an empty list.
                Ok(pair) => values.extend(pair.at(1).as_text().map(|value| (name.to_owned(), value.to_owned()))),
                Err(fault) => return InfoFields { command, values: Err(untold(command, fault)) },
            }
        }
        InfoFields { command, values: Ok(values) }
    }

    async fn denied(&mut self, prefix: &str) -> Result<Option<Vec<String>>, Problem> {
        let question = permissions::question(prefix);
        match self.ask(&question.iter().map(String::as_str).collect::<Vec<_>>()).await {
            Ok(Reply::Nil) => Ok(None),
            Ok(denied) => Ok(Some(denied.items().iter().filter_map(Reply::as_text).map(str::to_owned).collect())),
            Err(fault) if is_untold(&fault) => Ok(Some(vec!["eval".to_owned()])),
            Err(Fault::TimedOut) => Err(Problem::no_vote(
                "it answers, but its scripts time out: no lock can be taken",
                "look for a CLIENT PAUSE or a slow script",
            )),
            Err(fault) => Err(untold("EVAL", fault)),
        }
    }
}

/// True if the server answers, but lacks this command, or the user may not run it.
fn is_untold(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused(code, detail) if code == "NOPERM" || detail.contains("unknown command"))
}
