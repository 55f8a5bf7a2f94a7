//! Looking at locks, and ending other people's leases.

use super::ask::Answers;
use super::keys::Keys;
use super::node::{Call, Order, Reply};
use super::owner::{Holder, signature};
use super::quorum::{Verdict, quorum};
use super::{Locker, Waiting, scripts};
use crate::error::{Error, Held};
use crate::sys::clock::Boot;
use std::collections::BTreeSet;
use std::time::Duration;

/// How many locks one request asks for.
const PAGE: usize = 500;

/// What can be said of a lock as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Held,
    /// Its job has ended; the lock stays taken for a while (`--hold-at-least`).
    Kept,
    /// Free, and promised to the next in line.
    Reserved,
    /// Its holder may not lengthen it any more.
    Revoked,
    /// Written by another library.
    Foreign,
    /// No quorum answered.
    Unknown,
}

/// What one node says of a lock.
#[derive(Clone, Debug)]
pub(crate) struct NodeAnswer {
    pub(crate) node: String,
    /// `held`, `free`, `foreign` or `error`.
    pub(crate) answer: &'static str,
    pub(crate) detail: Option<String>,
}

/// All that is known of one lock.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) state: State,
    pub(crate) holder: Option<Holder>,
    /// What is left of the lease; none when it never expires or is not known.
    pub(crate) lease: Option<Duration>,
    pub(crate) holds: Option<u64>,
    /// How many queue for it.
    pub(crate) waiting: Option<u64>,
    pub(crate) nodes: Vec<NodeAnswer>,
    /// Why no quorum answered, if it is that.
    unanswered: Option<String>,
}

impl Status {
    /// Why nothing can be said, node by node.
    pub(crate) fn trouble(&self) -> String {
        if let Some(why) = &self.unanswered {
            return why.clone();
        }
        let faults: Vec<String> = self
            .nodes
            .iter()
            .filter_map(|node| node.detail.as_ref().map(|detail| format!("{} {detail}", node.node)))
            .collect();
        let reached = self.nodes.iter().filter(|node| node.detail.is_none()).count();
        let nodes = self.nodes.len();
        let faults = match faults.join(", ") {
            none if none.is_empty() => String::new(),
            some => format!(" ({some})"),
        };
        format!("{:?}: {reached} of {nodes} nodes answered, and do not agree{faults}; try again", self.name)
    }

    /// For somebody who waits until it is free.
    pub(super) fn told(&self) -> Waiting {
        Waiting {
            held: self.held(),
            rank: self.waiting.unwrap_or(0),
            trouble: (self.state == State::Unknown).then(|| self.trouble()),
            news: None,
        }
    }

    pub(super) fn held(&self) -> Held {
        Held {
            name: self.name.clone(),
            reserved: matches!(self.state, State::Reserved | State::Free),
            other_type: self.state == State::Foreign && self.holder.is_none(),
            holder: self.holder.clone(),
            lease: self.lease,
            ..Held::default()
        }
    }
}

/// What became of somebody's lease that was to be ended.
#[derive(Clone, Debug)]
pub(crate) enum Freed {
    /// It cannot be extended any more; its job is stopped by its own redlock, at the latest when the lease runs out.
    Revoked(Held),
    /// It is free.
    Released(Held),
    /// Nobody had it.
    NotHeld,
    /// The holder is another one than the one that was named.
    HeldByOther(Held),
    /// Not ours to end: another type of key, or a lease of another library that cannot be told.
    Foreign(Held),
}

impl Locker {
    /// Looks at the lock on all nodes, and changes nothing. Nodes that fail are part of the answer.
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::Usage`] when so many nodes refuse us for good, [`Error::Interrupted`].
    pub(crate) fn inspect(&mut self) -> Result<Status, Error> {
        let call = self.script(&scripts::INSPECT, &[]);
        let needed = self.quorum();
        let answers = self.tell_all(&call, Order::InTurn, |answers| answers.replies().count() >= needed);
        if let Some(signal) = answers.interrupted {
            return Err(Error::Interrupted(signal));
        }
        let mut unanswered = None;
        if answers.replies().count() < self.quorum() {
            match self.no_quorum(&answers) {
                Error::Unavailable(why) => unanswered = Some(why),
                refused => return Err(refused),
            }
        }
        let replies: Vec<Option<&Reply>> = answers
            .got
            .iter()
            .map(|got| match got {
                Some((_, Ok(reply))) => Some(reply),
                _ => None,
            })
            .collect();
        let mut status = combine(&self.name, &self.keys.lock, &replies);
        status.unanswered = unanswered;
        status.nodes = self
            .nodes
            .iter()
            .zip(&answers.got)
            .map(|(node, got)| {
                let (answer, detail) = match got {
                    Some((_, Ok(reply))) => (word(reply), None),
                    Some((_, Err(fault))) => ("error", Some(fault.text.clone())),
                    None => ("error", Some(answers.silence().to_owned())),
                };
                NodeAnswer { node: node.address().to_string(), answer, detail }
            })
            .collect();
        Ok(status)
    }

    /// All locks whose key begins with `prefix`, by name. With an empty prefix only those with an owner record of ours:
    /// everything else in the database is somebody's data.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Refused`] when too few nodes answered.
    pub(crate) fn list(&mut self, prefix: &str) -> Result<Vec<Status>, Error> {
        let pattern = format!("{}*", glob_escaped(prefix));
        let mut cursors: Vec<Option<String>> = vec![Some("0".to_owned()); self.nodes.len()];
        let mut keys = BTreeSet::new();
        let mut last = self.no_answers();
        while cursors.iter().any(Option::is_some) {
            // The nodes' cursors differ, so that each is asked by itself; they are in step.
            for node in 0..self.nodes.len() {
                let Some(cursor) = cursors[node].take() else {
                    continue;
                };
                let mut only = vec![false; self.nodes.len()];
                only[node] = true;
                let deadline = self.deadline();
                let call = Call::Scan { cursor, pattern: pattern.clone() };
                let mut answers = self.ask(&call, only, deadline, Order::InTurn, |_| false);
                let answer = answers.got[node].take();
                if let Some((_, Ok(page))) = &answer {
                    keys.extend(page.at(1).items().iter().filter_map(|key| match key {
                        Reply::Text(key) if !key.contains(super::keys::SEPARATOR) => Some(key.clone()),
                        _ => None,
                    }));
                    let cursor = page.text(0);
                    cursors[node] = (cursor != "0").then(|| cursor.to_owned());
                }
                last.asked[node] = true;
                last.got[node] = answer;
            }
        }
        // What no quorum has been looked through for cannot be said to be free.
        if last.replies().count() < self.quorum() {
            return Err(self.no_quorum(&last));
        }
        let keys: Vec<String> = keys.into_iter().collect();
        let mut all = Vec::new();
        for page in keys.chunks(PAGE) {
            all.extend(self.inspect_many(prefix, page)?);
        }
        Ok(all)
    }

    fn no_answers(&self) -> Answers {
        Answers {
            round: 0,
            give_up: Boot::now(),
            asked: vec![false; self.nodes.len()],
            got: self.nodes.iter().map(|_| None).collect(),
            interrupted: None,
        }
    }

    fn inspect_many(&mut self, prefix: &str, page: &[String]) -> Result<Vec<Status>, Error> {
        let asked = page.iter().map(|lock| {
            let keys = Keys::of(lock);
            (keys.all().map(str::to_owned).to_vec(), vec![keys.channels])
        });
        let call = Call::Many(&scripts::INSPECT, asked.collect());
        let needed = self.quorum();
        let answers: Answers = self.tell_all(&call, Order::InTurn, |answers| answers.replies().count() >= needed);
        if answers.replies().count() < self.quorum() {
            return Err(self.no_quorum(&answers));
        }
        let status = |at: usize, key: &String| {
            let replies: Vec<Option<&Reply>> = answers
                .got
                .iter()
                .map(|got| match got {
                    Some((_, Ok(all))) => Some(all.at(at)),
                    _ => None,
                })
                .collect();
            combine(&key[prefix.len()..], key, &replies)
        };
        let wanted = |status: &Status| match status.state {
            State::Free => false, // gone in the meantime
            State::Foreign => !prefix.is_empty(),
            _ => true,
        };
        Ok(page.iter().enumerate().map(|(at, key)| status(at, key)).filter(wanted).collect())
    }

    /// Ends somebody's lease: safely, or with `force` at once. With `token_prefix` only if its token begins so.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Refused`] when too few nodes answered.
    pub(crate) fn end_lease(&mut self, token_prefix: &str, force: bool) -> Result<Freed, Error> {
        let mode = if force { "force" } else { "revoke" };
        let call = self.script(&scripts::REVOKE, &[token_prefix, mode, &signature()]);
        let done = |reply: &Reply| matches!(reply.text(0), "revoked" | "released" | "gone");
        let answers = self.tell_all(&call, Order::InTurn, |answers| answers.tally(done).verdict() != Verdict::Open);
        let of = |word| answers.replies().map(|(_, _, reply)| reply).find(|reply| reply.text(0) == word);
        let replies = answers.replies().count();
        if replies < self.quorum() {
            return Err(self.no_quorum(&answers));
        }
        Ok(match (of("revoked"), of("released"), of("other"), of("foreign")) {
            (Some(reply), ..) => Freed::Revoked(self.held(reply)),
            (None, Some(reply), ..) => Freed::Released(self.held(reply)),
            (None, None, Some(reply), _) => Freed::HeldByOther(self.held(reply)),
            // Whoever names a holder does not mean something that has no token.
            (None, None, None, Some(reply)) if !token_prefix.is_empty() && reply.text(1) != "string" => {
                Freed::HeldByOther(self.held(reply))
            }
            (None, None, None, Some(reply)) if reply.text(1) == "string" => {
                Freed::Foreign(Held { other_type: false, holder: Some(Holder::default()), ..self.held(reply) })
            }
            (None, None, None, Some(reply)) => Freed::Foreign(self.held(reply)),
            (None, None, None, None) => Freed::NotHeld,
        })
    }
}

fn word(reply: &Reply) -> &'static str {
    match reply.text(0) {
        "free" => "free",
        "held" if Holder::of(reply.text(1), reply.at(3)).record.is_some() => "held",
        _ => "foreign",
    }
}

/// What the nodes say together: who has the lock on a quorum of them has it.
fn combine(name: &str, key: &str, replies: &[Option<&Reply>]) -> Status {
    let nodes = replies.len();
    let needed = quorum(nodes);
    let known: Vec<&Reply> = replies.iter().copied().flatten().collect();
    let silent = nodes - known.len();
    let with = |value: &str| known.iter().filter(|reply| reply.text(0) == "held" && reply.text(1) == value).count();
    let first = known.iter().filter(|reply| reply.text(0) == "held").max_by_key(|reply| with(reply.text(1)));
    let number = |reply: &Reply, at| reply.int(at).and_then(|n| u64::try_from(n).ok());
    let waiting = known.iter().filter_map(|reply| match reply.text(0) {
        "held" => number(reply, 5),
        "free" => number(reply, 2),
        _ => None,
    });
    let mut status = Status {
        name: name.to_owned(),
        key: key.to_owned(),
        state: State::Unknown,
        holder: None,
        lease: None,
        holds: None,
        waiting: waiting.max(),
        nodes: Vec::new(),
        unanswered: None,
    };
    let votes = first.map_or(0, |reply| with(reply.text(1)));
    let other_type = known.iter().filter(|reply| reply.text(0) == "foreign").count();
    match first {
        Some(reply) if votes >= needed => {
            // A node that has been told less, by a write-back of a fencing token say, is outdone by one that knows.
            let same = known.iter().filter(|other| other.text(0) == "held" && other.text(1) == reply.text(1));
            let holders = same.clone().map(|reply| Holder::of(reply.text(1), reply.at(3)));
            let holder = holders.max_by_key(|holder| holder.record.as_ref().map(|record| record.fencing_token));
            let record = holder.as_ref().and_then(|holder| holder.record.as_ref());
            status.state = match record {
                None => State::Foreign,
                Some(record) if record.kept.is_some() => State::Kept,
                Some(record) if record.revoked.is_some() => State::Revoked,
                Some(_) => State::Held,
            };
            let mut left: Vec<u64> = same.clone().filter_map(|reply| number(reply, 2)).collect();
            left.sort_unstable_by(|a, b| b.cmp(a));
            // A quorum has it as long as the q-th largest of the nodes' times; without expiry on one it takes part.
            let endless = same.clone().count() - left.len();
            status.lease = if endless >= needed {
                None
            } else {
                left.get(needed - 1 - endless).copied().map(Duration::from_millis)
            };
            status.holds = same.filter_map(|reply| number(reply, 4)).max();
            status.holder = holder;
        }
        _ if other_type >= needed => {
            status.state = State::Foreign;
            let left = known.iter().filter(|reply| reply.text(0) == "foreign").filter_map(|reply| number(reply, 2));
            status.lease = left.max().map(Duration::from_millis);
        }
        // Whoever had it on all nodes that are silent too would still have no quorum.
        _ if votes.max(other_type) + silent < needed && known.len() >= needed => {
            let promised = known.iter().filter(|reply| reply.text(0) == "free" && reply.int(3) == Some(1));
            if promised.clone().count() >= needed {
                status.state = State::Reserved;
                status.lease = promised.filter_map(|reply| number(reply, 1)).max().map(Duration::from_millis);
            } else {
                status.state = State::Free;
            }
        }
        _ => {}
    }
    status
}

/// Without the meaning that KEYS and SCAN give to some characters.
fn glob_escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
