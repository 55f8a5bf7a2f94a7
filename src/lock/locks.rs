//! All locks on the same nodes, and one question about several of them.

use super::keys::Keys;
use super::{Lock, Quarantine};
use crate::error::Error;
use crate::redis::{Address, Answers, Call, Fault, FromReply, Nodes};
use crate::text::first_of;
use std::collections::BTreeMap;
use std::time::Duration;

/// The nodes that keep locks, and their quarantine.
#[derive(Debug)]
pub(crate) struct Locks {
    pub(super) nodes: Nodes,
    pub(super) quarantine: Quarantine,
}

/// A node, and why its answer about a lock is missing.
pub(super) type NodeFault = (usize, Fault);
/// The answers to calls about several locks: of each, those that came, by their nodes.
pub(super) type Page<A> = Vec<Vec<(usize, Result<A, Fault>)>>;

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
        Lock { name: name.to_owned(), keys: Keys::of(key), claim: None, locks: self }
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
        first_of([self.nodes.name(0)], 1, self.nodes.len() as u64)
    }

    /// The error for a lock about which too few nodes have answered.
    pub(super) fn untold(&self, name: &str, (node, fault): &NodeFault) -> Error {
        self.unanswered(Some(name), std::iter::once((*node, fault)), self.nodes.len() - 1)
    }

    /// Asks the nodes about several locks; not those that hang, which cost one timeout. Adds to the faults.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] if too few nodes answer.
    pub(super) async fn ask_page<A: FromReply>(
        &mut self,
        calls: &[Call],
        faults: &mut BTreeMap<usize, Fault>,
    ) -> Result<Page<A>, Error> {
        let answers: Answers<Vec<Result<A, Fault>>> =
            self.nodes.ask_many(calls, |node| faults.get(&node) != Some(&Fault::TimedOut), self.nodes.deadline()).await;
        faults.extend(answers.faults().map(|(node, fault)| (node, fault.clone())));
        let reached = answers.said().count();
        if reached < self.quorum() {
            return Err(self.unanswered(None, faults.iter().map(|(&node, fault)| (node, fault)), reached));
        }
        let mut page: Page<A> = calls.iter().map(|_| Vec::new()).collect();
        for (node, told) in answers.into_answers() {
            page.iter_mut().zip(told).for_each(|(lock, answer)| lock.push((node, answer)));
        }
        Ok(page)
    }
}
