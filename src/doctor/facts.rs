//! What one node tells of itself.

use super::{Trouble, permissions};
use crate::redis::{Address, Fault, Node, Reply, within};
use crate::sys::clock::{Boot, unix_time};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How often a node is asked for the time, and for how long about.
const TRIES: usize = 20;
const TRY_FOR: Duration = Duration::from_secs(5);

/// What INFO does not tell.
const CONFIG: [&str; 4] = ["appendfsync", "save", "stop-writes-on-bgsave-error", "min-replicas-to-write"];

/// All that a node tells of itself.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) address: Address,
    /// How long requests took, the shortest first; never empty.
    pub(super) round_trips: Vec<Duration>,
    /// By how many ms its clock is ahead of this machine's, give or take half a round trip.
    pub(super) clock_ahead: Result<i64, Trouble>,
    pub(super) info: Fields,
    pub(super) config: Fields,
    pub(super) cluster: Fields,
    /// The commands that the user may not run on locks; none where the server cannot be asked.
    pub(super) denied: Result<Option<Vec<String>>, Trouble>,
}

impl Facts {
    /// Whether it is a Sentinel, which keeps no locks itself.
    pub(super) fn is_sentinel(&self) -> bool {
        self.info.get("sentinel_masters").is_ok()
    }
}

/// Names and values, as one command tells them.
#[derive(Debug)]
pub(super) struct Fields {
    command: &'static str,
    values: Result<BTreeMap<String, String>, Trouble>,
}

impl Fields {
    #[cfg(test)]
    pub(super) fn of(command: &'static str, values: &[(&str, &str)]) -> Fields {
        let values = values.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        Fields { command, values: Ok(values.collect()) }
    }

    pub(super) fn get(&self, name: &str) -> Result<&str, Trouble> {
        let values = self.values.as_ref().map_err(Clone::clone)?;
        let missing = || untold(self.command, format!("does not report {name}"));
        values.get(name).map(String::as_str).ok_or_else(missing)
    }

    pub(super) fn number(&self, name: &str) -> Result<u64, Trouble> {
        self.get(name).map(|value| value.parse().unwrap_or_default())
    }
}

/// What a node does not tell, when it answers so to this command.
fn untold(command: &str, answer: impl fmt::Display) -> Trouble {
    let advice = format!("let this user run {command}, or look it up where the server is managed");
    Trouble::unknown(format!("unknown: {command} {answer}"), advice)
}

/// Asks each server of a node about itself: one, or every master of a Cluster, by its name. Each request has `patience` to be
/// answered; an error says why the server cannot be asked at all.
pub(super) async fn gather(address: &Address, prefix: &str, patience: Duration) -> Vec<(String, Result<Facts, Fault>)> {
    let mut asked = Asked { node: Node::new(address.clone()), patience };
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

struct Asked {
    node: Node,
    patience: Duration,
}

impl Asked {
    async fn ask(&mut self, words: &[&str]) -> Result<Reply, Fault> {
        let answer = within(Boot::now() + self.patience, self.node.command(words)).await;
        answer.unwrap_or_else(|| Err(self.node.suspecting_tls(Fault::TimedOut)))
    }

    async fn facts(&mut self, prefix: &str) -> Result<Facts, Fault> {
        // What is refused on the way there says nothing about the commands that are asked for afterwards.
        let reached = within(Boot::now() + self.patience, self.node.reach()).await;
        reached.unwrap_or_else(|| Err(self.node.suspecting_tls(Fault::TimedOut)))?;
        let (round_trips, clock_ahead) = self.time().await?;
        Ok(Facts {
            address: self.node.address().clone(),
            round_trips,
            clock_ahead,
            info: self.lines("INFO", &["INFO"]).await,
            config: self.config().await,
            cluster: self.lines("CLUSTER INFO", &["CLUSTER", "INFO"]).await,
            denied: self.denied(prefix).await,
        })
    }

    /// How long requests take, and by how many ms the clock is ahead: what the quickest one says is the most exact.
    async fn time(&mut self) -> Result<(Vec<Duration>, Result<i64, Trouble>), Fault> {
        let (start, mut tries) = (Boot::now(), Vec::new());
        while tries.len() < TRIES && (tries.is_empty() || !(start + TRY_FOR).passed()) {
            let (sent, here) = (Boot::now(), unix_time());
            let answer = self.ask(&["TIME"]).await;
            let took = sent.elapsed();
            match answer {
                Err(fault) if !is_untold(&fault) => return Err(fault),
                answer => tries.push((took, answer.map(|there| ahead(&there, here + took / 2)))),
            }
        }
        tries.sort_by_key(|(took, _)| *took);
        let clock = tries[0].1.clone().map_err(|fault| untold("TIME", fault));
        Ok((tries.iter().map(|(took, _)| *took).collect(), clock))
    }

    /// The lines `name:value` of this command's answer.
    async fn lines(&mut self, command: &'static str, words: &[&str]) -> Fields {
        let pair = |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
        let answer = self.ask(words).await.map_err(|fault| untold(command, fault));
        let values = answer.map(|reply| reply.as_text().unwrap_or_default().lines().filter_map(pair).collect());
        Fields { command, values }
    }

    async fn config(&mut self) -> Fields {
        let (command, mut values) = ("CONFIG", BTreeMap::new());
        for name in CONFIG {
            match self.ask(&["CONFIG", "GET", name]).await {
                // A managed service may answer nothing.
                Ok(pair) => values.extend(pair.at(1).as_text().map(|value| (name.to_owned(), value.to_owned()))),
                Err(fault) => return Fields { command, values: Err(untold(command, fault)) },
            }
        }
        Fields { command, values: Ok(values) }
    }

    async fn denied(&mut self, prefix: &str) -> Result<Option<Vec<String>>, Trouble> {
        let question = permissions::question(prefix);
        match self.ask(&question.iter().map(String::as_str).collect::<Vec<_>>()).await {
            Ok(Reply::Nil) => Ok(None),
            Ok(denied) => Ok(Some(denied.items().iter().filter_map(Reply::as_text).map(str::to_owned).collect())),
            Err(fault) if is_untold(&fault) => Ok(Some(vec!["eval".to_owned()])),
            Err(fault) => Err(untold("EVAL", fault)),
        }
    }
}

/// Whether the node answers, but this command it has not got, or the user may not run it.
fn is_untold(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused(code, detail) if code == "NOPERM" || detail.contains("unknown command"))
}

/// By how many ms the answer to TIME is ahead of this point in time since 1970.
fn ahead(there: &Reply, here: Duration) -> i64 {
    let there = there.int(0).unwrap_or_default() * 1000 + there.int(1).unwrap_or_default() / 1000;
    there - i64::try_from(here.as_millis()).unwrap_or_default()
}
