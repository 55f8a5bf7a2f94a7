//! All locks on the same nodes, and a list of them.

use super::answer::Answer;
use super::fields::Args;
use super::keys::{Keys, LOG, SEPARATOR, logged};
use super::log::LogPart;
use super::status::{State, Status, combine};
use super::{Lock, Quarantine, scripts};
use crate::error::Error;
use crate::redis::{Address, Answers, Fault, Nodes};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The number of locks that one request asks for, and of the bytes of each value: with an empty prefix it may be anything.
const PAGE: usize = 500;
const BYTES: u64 = 128;
/// The number of holders of each lock that are asked for.
const HOLDERS: u32 = 50;

/// The nodes that keep locks, and their quarantine.
#[derive(Debug)]
pub(crate) struct Locks {
    pub(super) nodes: Nodes,
    pub(super) quarantine: Quarantine,
}

/// The locks of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection<'a> {
    /// A `*` in a name stands for anything. Without a name: all that there are.
    pub(crate) names: &'a [String],
    /// Also those that are free and have a log.
    pub(crate) free: bool,
    pub(crate) log: LogPart,
}

/// Locks as a quorum shows them, and the faults of the nodes that did not answer.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) locks: Vec<Status>,
    pub(crate) faults: Vec<(String, Fault)>,
}

impl Locks {
    /// No node is contacted yet. Timeouts that are not given are derived from `ttl`.
    pub(crate) fn new(
        nodes: &[Address],
        node_timeout: Option<Duration>,
        quarantine: Option<Duration>,
        ttl: Duration,
    ) -> Locks {
        let default = match nodes.len() > 1 {
            true => (ttl / 20).clamp(Duration::from_millis(100), Duration::from_secs(1)),
            false => (ttl / 10).clamp(Duration::from_millis(250), Duration::from_secs(3)),
        };
        let node_timeout = node_timeout.unwrap_or(default).min(ttl / 2);
        let quarantine = Quarantine::new(quarantine, ttl, nodes.len());
        Locks { nodes: Nodes::new(nodes, node_timeout), quarantine }
    }

    /// The lock of this name and key.
    pub(crate) fn lock(self, name: &str, key: &str) -> Lock {
        Lock { name: name.to_owned(), keys: Keys::of(key), claim: None, locks: self, unlogged: BTreeMap::new() }
    }

    /// The longest time that one node may take for one request.
    pub(crate) fn node_timeout(&self) -> Duration {
        self.nodes.timeout
    }

    pub(crate) fn quarantine(&self) -> Quarantine {
        self.quarantine
    }

    /// The nodes' names for messages: `10.0.0.1:6379`, `10.0.0.1:6379 and 4 more`.
    pub(crate) fn where_they_are(&self) -> String {
        match self.nodes.len() {
            1 => self.nodes.name(0),
            n => format!("{} and {} more", self.nodes.name(0), n - 1),
        }
    }

    /// The selected locks under `prefix`. With an empty prefix a name with a `*` finds only those with an owner record of
    /// redlock's: everything else in the database is other data.
    ///
    /// # Errors
    /// [`Error::NoQuorum`].
    pub(crate) async fn list(&mut self, prefix: &str, selection: Selection<'_>) -> Result<Listing, Error> {
        let everything = [String::from("*")];
        let names = if selection.names.is_empty() { &everything } else { selection.names };
        let (patterns, exact): (Vec<&String>, Vec<&String>) = names.iter().partition(|name| name.contains('*'));
        if self.nodes.are_unused() {
            let unused = exact.iter().map(|name| Status::unused(name, &format!("{prefix}{name}")));
            return Ok(Listing { locks: unused.collect(), faults: Vec::new() });
        }
        let mut keys: BTreeSet<String> = exact.iter().map(|name| format!("{prefix}{name}")).collect();
        for pattern in &patterns {
            let pattern: Vec<String> = pattern.split('*').map(glob_escaped).collect();
            let found = self.matching(&format!("{}{}", glob_escaped(prefix), pattern.join("*"))).await?;
            keys.extend(found.into_iter().filter(|key| !key.contains(SEPARATOR)));
        }
        if selection.free && !patterns.is_empty() {
            let logs = self.matching(&format!("{{*{SEPARATOR}{LOG}*")).await?;
            let is_meant = |key: &String| {
                let name = key.strip_prefix(prefix);
                name.is_some_and(|name| patterns.iter().any(|pattern| stands_for(pattern, name)))
            };
            keys.extend(logs.iter().filter_map(|key| logged(key)).filter(is_meant));
        }
        if keys.is_empty() {
            // A replica answers SCAN, too: its answer about one lock tells that it is one.
            keys.insert(prefix.to_owned());
        }
        let keys: Vec<String> = keys.into_iter().collect();
        let (mut all, mut unanswered, mut faults) = (Vec::new(), None, BTreeMap::new());
        for page in keys.chunks(PAGE) {
            let (page, error) = self.inspect_page(prefix, page, selection.log, &mut faults).await?;
            all.extend(page);
            unanswered = unanswered.or(error);
        }
        // The probe, where there is no lock, counts as well.
        if let Some(error) = unanswered.filter(|_| all.iter().all(|status| status.state == State::Unknown)) {
            return Err(error);
        }
        all.retain(|status| match status.state {
            _ if exact.contains(&&status.name) => true,
            State::Free => selection.free && !status.runs.is_empty(), // or gone in the meantime
            State::Foreign => !prefix.is_empty(),
            _ => true,
        });
        let faults = faults.into_iter().map(|(node, fault)| (self.nodes.asked(node), fault)).collect();
        Ok(Listing { locks: all, faults })
    }

    /// The keys that match the pattern.
    async fn matching(&mut self, pattern: &str) -> Result<BTreeSet<String>, Error> {
        let found = self.nodes.scan(pattern).await;
        let reached = found.iter().flatten().count();
        // Without a quorum of scans, a missing key proves nothing.
        if reached < self.quorum() {
            let faults = found.iter().enumerate().filter_map(|(node, found)| Some((node, found.as_ref().err()?)));
            return Err(self.unanswered(None, faults, reached));
        }
        Ok(found.into_iter().flatten().flatten().collect())
    }

    /// These locks, and the reason for unknown ones among them. Adds to the faults of the nodes.
    async fn inspect_page(
        &mut self,
        prefix: &str,
        page: &[String],
        log: LogPart,
        faults: &mut BTreeMap<usize, Fault>,
    ) -> Result<(Vec<Status>, Option<Error>), Error> {
        let args = log.add_to(Args::default().with("bytes", BYTES).with("most", HOLDERS));
        let calls: Vec<_> = page.iter().map(|key| Keys::of(key).call(&scripts::INSPECT, args.clone())).collect();
        let answers: Answers<Vec<Answer>> = self.nodes.ask_many(&calls, self.nodes.deadline()).await;
        if answers.said().count() < self.quorum() {
            return Err(self.no_quorum(None, &answers));
        }
        faults.extend(answers.faults().map(|(node, fault)| (node, fault.clone())));
        let status = |(at, key): (usize, &String)| {
            let known = |answer: &&Answer| self.may_have_forgotten(answer).is_none();
            let known = (0..answers.nodes()).map(|node| answers.of(node)?.ok()?.get(at).filter(known));
            combine(&key[prefix.len()..], key, &known.collect::<Vec<_>>())
        };
        let all: Vec<Status> = page.iter().enumerate().map(status).collect();
        let answers = answers.discard(|all| all.iter().find_map(|answer| self.may_have_forgotten(answer)));
        let is_unknown = all.iter().any(|status| status.state == State::Unknown);
        let unanswered = is_unknown.then(|| self.no_quorum(None, &answers));
        Ok((all, unanswered))
    }
}

/// The text without the meaning that SCAN gives to some characters.
fn glob_escaped(text: &str) -> String {
    let is_special = |c| matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-');
    text.chars().flat_map(|c| is_special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// True if the name is one that the pattern stands for.
fn stands_for(pattern: &str, name: &str) -> bool {
    let mut parts: Vec<&str> = pattern.split('*').collect();
    let first = parts.remove(0);
    let Some(last) = parts.pop() else { return name == first };
    let rest = name.strip_prefix(first);
    let rest = parts.iter().try_fold(rest.unwrap_or_default(), |rest, part| Some(rest.split_once(part)?.1));
    name.starts_with(first) && rest.is_some_and(|rest| rest.ends_with(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name) in [("*", "a"), ("a*", "a"), ("*a", "ba"), ("a*b*c", "a-b-b-c"), ("a", "a"), ("**", "")] {
            assert!(stands_for(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a*", "b"), ("*a", "ab"), ("a*a", "a"), ("a*b*c", "acb"), ("a", "ab")] {
            assert!(!stands_for(pattern, name), "{pattern} {name}");
        }
    }
}
