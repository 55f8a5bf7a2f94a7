//! All locks on the same nodes, and questions about many of these locks at once.

use crate::error::Error;
use crate::lock::wire::keys::Keys;
use crate::lock::{Lock, Quarantine, Unwritten};
use crate::redis::{Address, Answers, Call, Fault, FromReply, Nodes};
use crate::text::first_of;
use std::collections::BTreeMap;
use std::iter::once;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Locks {
    pub(in crate::lock) nodes: Nodes,
    pub(crate) quarantine: Quarantine,
}

/// Each node's answer about a lock (None: the node has not answered), or an error if too few nodes can answer.
pub(in crate::lock) type ByNode<A> = Result<Vec<Option<A>>, Error>;

impl Locks {
    /// Contacts no node yet. Without a `node_timeout`, it is derived from `ttl`. It is half the ttl at most. For
    /// `quarantine` see [`Quarantine::new`].
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

    pub(crate) fn lock(self, name: &str, key: &str) -> Lock {
        Lock { name: name.to_owned(), keys: Keys::of(key), claim: None, locks: self, unwritten: Unwritten::default() }
    }

    /// The longest time that one node may take for one request.
    pub(crate) fn node_timeout(&self) -> Duration {
        self.nodes.timeout
    }

    /// The nodes' names for messages: `10.0.0.1:6379`, `10.0.0.1:6379 and 4 more`.
    pub(crate) fn where_they_are(&self) -> String {
        first_of([self.nodes.name(0)], 1, self.nodes.len() as u64)
    }
}

/// Questions about many locks, asked page by page.
#[derive(Debug)]
pub(in crate::lock) struct BatchQuery<'a> {
    pub(in crate::lock) locks: &'a mut Locks,
    /// The nodes that have failed so far. A node that hangs costs one timeout, and is not asked again.
    pub(in crate::lock) faults: BTreeMap<usize, Fault>,
}

impl BatchQuery<'_> {
    pub(in crate::lock) fn of(locks: &mut Locks) -> BatchQuery<'_> {
        BatchQuery { locks, faults: BTreeMap::new() }
    }

    pub(in crate::lock) fn no_quorum(&self, reached: usize) -> Error {
        self.locks.unanswered(None, self.faults.iter().map(|(&node, fault)| (node, fault)), reached)
    }

    /// Asks the nodes about several locks. Returns for each lock the nodes' answers, or if too few nodes can answer, an
    /// error that does not name the lock.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] if too few nodes answer at all.
    pub(in crate::lock) async fn ask_page<A: FromReply + Clone>(
        &mut self,
        calls: &[Call],
    ) -> Result<Vec<ByNode<A>>, Error> {
        let is_asked = |node| !self.faults.get(&node).is_some_and(Fault::is_timeout);
        let deadline = self.locks.nodes.deadline();
        let answers: Answers<Vec<Result<A, Fault>>> = self.locks.nodes.ask_many(calls, is_asked, deadline).await;
        self.faults.extend(answers.faults().map(|(node, fault)| (node, fault.clone())));
        let (nodes, needed, reached) = (answers.nodes(), self.locks.quorum(), answers.replies().count());
        if reached < needed {
            return Err(self.no_quorum(reached));
        }
        let mut by_node: Vec<_> = answers.into_answers().map(|(node, answers)| (node, answers.into_iter())).collect();
        let of_one = |_| {
            let (mut known, mut unread) = (vec![None; nodes], None);
            for (node, answers) in &mut by_node {
                match answers.next() {
                    Some(Err(fault)) => unread = Some((*node, fault)),
                    answer => known[*node] = answer.and_then(Result::ok),
                }
            }
            match unread {
                Some((node, fault)) if known.iter().flatten().count() < needed => {
                    Err(self.locks.unanswered(None, once((node, &fault)), nodes - 1))
                }
                _ => Ok(known),
            }
        };
        Ok(calls.iter().map(of_one).collect())
    }
}
