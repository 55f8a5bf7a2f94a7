//! The lock: acquire, renew, extend, release, look, over N nodes. No clap, no printing.

pub(crate) mod answer;
mod attempt;
mod fencing;
pub(crate) mod keys;
mod lease;
mod owner;
mod queue;
mod quorum;
mod recreate;
mod scripts;
mod status;
mod token;

pub(crate) use attempt::FAREWELL;
pub(crate) use lease::{Given, Lease, Renewal, Try};
pub(crate) use owner::Owner;
pub(crate) use queue::Waiting;
pub(crate) use quorum::surely;
pub(crate) use status::{Ended, State, Status};
pub(crate) use token::same_lease;

use crate::error::Error;
use crate::redis::{Address, Answers, Call, Fault, Nodes, Script};
use answer::ScriptAnswer;
use keys::Keys;
use quorum::{Tally, Verdict, quorum};
use std::time::Duration;

/// The shortest quarantine where none is given: leases of this length are what people use unless they say otherwise.
const QUARANTINE: Duration = Duration::from_secs(30);

/// One lock on its nodes.
#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) name: String,
    keys: Keys,
    nodes: Nodes,
    quarantine: Quarantine,
}

/// What is asked for when a lock is to be acquired.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) ttl: Duration,
    /// How long to wait in line: zero is one try, [`Duration::MAX`] for ever.
    pub(crate) wait: Duration,
    /// Who will have it.
    pub(crate) owner: Owner,
    /// Tokens of the leases that the jobs around this process hold, the innermost first.
    pub(crate) ancestors: Vec<String>,
    pub(crate) reenter: Reenter,
}

/// Whether to enter a lease that an ancestor holds once more, instead of waiting for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reenter {
    No,
    /// If one of them still holds it; otherwise the lock is taken as usual. The lease keeps its own ttl.
    IfHeld,
    /// That, or nothing; the lease lasts for the request's ttl at least.
    Must,
}

/// What a try to get a lock may have left on the nodes.
#[derive(Debug, Default)]
struct Claim {
    /// Of the latest try; each has its own, so that a late answer to one cannot be taken for another's.
    token: String,
    /// The name in the queue; empty for a caller that does not queue.
    waiter: String,
    /// The place in the queue; empty until there is one.
    ticket: String,
    /// The nodes that may have granted the latest try.
    may_have_it: Vec<bool>,
    /// The hold with which a lease was entered, as the token of the lease and the id of the hold.
    hold: Option<(String, String)>,
}

/// How long a node that was started has no say about leases that it may have forgotten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quarantine {
    length: Duration,
    /// It was given; otherwise it grows with the ttl of every lease that a node shows.
    fixed: bool,
}

impl Quarantine {
    pub(crate) fn length(self) -> Duration {
        self.length
    }

    /// Whether no longer lease that is met makes it longer.
    pub(crate) fn is_fixed(self) -> bool {
        self.fixed
    }

    /// Takes in the length of a lease that a node knows of.
    pub(crate) fn cover(&mut self, lease: Duration) {
        if !self.fixed {
            self.length = self.length.max(lease);
        }
    }

    /// For how long still a node that has been up for `uptime` cannot tell; its uptime has a grain of a second.
    pub(crate) fn left(self, uptime: Option<Duration>) -> Duration {
        match uptime {
            Some(uptime) if !self.length.is_zero() => (self.length + Duration::from_secs(1)).saturating_sub(uptime),
            _ => Duration::ZERO,
        }
    }
}

impl Lock {
    /// A lock with this key; no node is contacted yet. Time-outs that are not given are derived from `ttl`.
    pub(crate) fn new(
        name: &str,
        key: &str,
        nodes: &[Address],
        node_timeout: Option<Duration>,
        quarantine: Option<Duration>,
        ttl: Duration,
    ) -> Lock {
        let several = nodes.len() > 1;
        let patience = match several {
            true => (ttl / 20).clamp(Duration::from_millis(100), Duration::from_secs(1)),
            false => (ttl / 10).clamp(Duration::from_millis(250), Duration::from_secs(3)),
        };
        // A single node is trusted unless told otherwise: its quarantine would only keep its lock from everybody.
        let default = if several { ttl.max(QUARANTINE) } else { Duration::ZERO };
        Lock {
            name: name.to_owned(),
            keys: Keys::of(key),
            nodes: Nodes::new(nodes, node_timeout.unwrap_or(patience).min(ttl / 2)),
            quarantine: Quarantine { length: quarantine.unwrap_or(default), fixed: quarantine.is_some() || !several },
        }
    }

    /// How long one node may take for one request.
    pub(crate) fn node_timeout(&self) -> Duration {
        self.nodes.timeout
    }

    pub(crate) fn quarantine(&self) -> Quarantine {
        self.quarantine
    }

    /// The Redis key of the lock.
    pub(crate) fn key(&self) -> &str {
        &self.keys.lock
    }

    /// The nodes' names for messages: `10.0.0.1:6379`, `10.0.0.1:6379 and 4 more`.
    pub(crate) fn where_it_is(&self) -> String {
        match self.nodes.len() {
            1 => self.nodes.name(0),
            n => format!("{} and {} more", self.nodes.name(0), n - 1),
        }
    }

    /// Comes back once a node that had closed its connection can be reached again.
    pub(crate) async fn reconnected(&mut self) {
        self.nodes.reconnected().await;
    }

    fn quorum(&self) -> usize {
        quorum(self.nodes.len())
    }

    /// The most nodes that may be missing.
    fn minority(&self) -> usize {
        self.nodes.len() - self.quorum()
    }

    fn call(&self, script: &'static Script, args: &[&str]) -> Call {
        call(script, &self.keys, args)
    }

    /// The answers, without those of nodes that do not know the lock and may have forgotten it in a restart: such a node has not
    /// answered.
    fn without_young<A: ScriptAnswer>(&mut self, mut answers: Answers<A>) -> Answers<A> {
        for holder in answers.said().filter_map(|answer| answer.blocker().ok()??.holder()) {
            self.quarantine.cover(holder.longest());
        }
        for got in answers.0.iter_mut().flatten() {
            if let Some(young) = got.answer.as_ref().ok().and_then(|answer| self.may_have_forgotten(answer)) {
                got.answer = Err(young);
            }
        }
        answers
    }

    /// Why an answer that knows nothing of the lock is none, if its node was started too recently.
    fn may_have_forgotten(&self, answer: &impl ScriptAnswer) -> Option<Fault> {
        let uptime = answer.blocker().err()?.uptime;
        let left = self.quarantine.left(uptime);
        (!left.is_zero()).then_some(Fault::Young { uptime: uptime.unwrap_or_default(), left })
    }

    /// The error for a question that no quorum has answered.
    fn no_quorum<A>(&self, answers: &Answers<A>) -> Error {
        self.unanswered(answers.faults(), answers.said().count())
    }

    fn unanswered<'a>(&self, faults: impl Iterator<Item = (usize, &'a Fault)>, reached: usize) -> Error {
        let (mut young, mut others) = (Vec::new(), Vec::new());
        for (node, fault) in faults {
            match fault {
                Fault::Young { left, .. } => young.push((self.nodes.name(node), *left)),
                fault => others.push((self.nodes.name(node), fault.clone())),
            }
        }
        let name = self.name.clone();
        if !young.is_empty() {
            return Error::Young { name, nodes: young, faults: others };
        }
        Error::NoQuorum { name, nodes: self.nodes.len(), reached, faults: others }
    }
}

fn call(script: &'static Script, keys: &Keys, args: &[&str]) -> Call {
    let args = std::iter::once(keys.base.as_str()).chain(args.iter().copied());
    Call::new(script, keys.all(), args.map(str::to_owned).collect())
}

impl<A> Answers<A> {
    /// What follows when `yes` is what a quorum has to say; every other answer, and a node that failed, is a no.
    fn verdict(&self, yes: impl Fn(&A) -> bool) -> Verdict {
        let came = self.0.iter().flatten().count();
        let yes = self.count(yes);
        Tally { nodes: self.0.len(), yes, no: came - yes }.verdict()
    }
}
