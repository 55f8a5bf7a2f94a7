//! Looking at locks, and ending other people's leases: all by quorum.

use super::answer::{Blocker, Holder, OfLease, Revoke, ScriptAnswer, Seen};
use super::keys::{Keys, SEPARATOR};
use super::owner::signature;
use super::quorum::{Verdict, quorum};
use super::{Lock, call, scripts};
use crate::error::{Error, Held};
use crate::redis::{Answers, Call, Fault, Got};
use crate::sys::clock::Boot;
use serde::{Serialize, Serializer};
use std::collections::BTreeSet;
use std::time::Duration;

/// How many locks one request asks for.
const PAGE: usize = 500;

/// What can be said of a lock as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Free,
    Held,
    /// Its job has ended; the lock stays taken for a while (`--hold-at-least`).
    Kept,
    /// Free, and promised to the next in line.
    Reserved,
    /// Its holder cannot extend it any more.
    Revoked,
    /// Written by another library.
    Foreign,
    /// No quorum answered.
    Unknown,
}

/// What one node says of a lock.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeAnswer {
    pub(crate) node: String,
    /// In a word: free, held, foreign, error, or unknown, when it was started too recently to know.
    pub(crate) answer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
}

/// All that is known of one lock.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) state: State,
    pub(crate) mode: Option<&'static str>,
    /// Who has it; in JSON a list.
    #[serde(rename = "holders", serialize_with = "holders")]
    by: Blocker,
    /// How many wait in line for it.
    pub(crate) waiting: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<NodeAnswer>,
    /// Why the state is unknown, if it is.
    #[serde(skip)]
    pub(crate) unanswered: Option<Error>,
}

/// What became of another's lease that was to be ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It cannot be extended any more; its job is stopped by its own redlock, at the latest when the lease runs out.
    Revoked(Holder),
    /// It is free. A node that `missed` it, and why, may still have the lease until it runs out.
    Released {
        holder: Holder,
        missed: Vec<String>,
    },
    NotHeld,
    /// The holder is another one than the one that was named.
    HeldByOther(Held),
    /// Another type of key, or a lease of another library.
    Foreign(Held),
}

impl Status {
    /// What is left of the lease, or of the promise to the next in line.
    pub(crate) fn lease(&self) -> Option<Duration> {
        self.by.left()
    }

    pub(crate) fn holder(&self) -> Option<&Holder> {
        self.by.holder()
    }

    pub(super) fn held(&self) -> Held {
        Held { name: self.name.clone(), by: self.by.clone(), waited: None, by_this_job: false }
    }
}

impl Lock {
    /// Looks at the lock on all nodes, and changes nothing. Nodes that fail are part of the answer.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] when so many nodes refuse us for good.
    pub(crate) async fn inspect(&mut self) -> Result<Status, Error> {
        let call = self.call(&scripts::INSPECT, &[]);
        let (name, key) = (self.name.clone(), self.keys.lock.clone());
        let answers: Answers<Seen> =
            self.ask_each(&call, |answers| combine(&name, &key, &seen(answers)).state != State::Unknown).await;
        let mut status = combine(&name, &key, &seen(&answers));
        if status.state == State::Unknown {
            let error = self.no_quorum(&answers);
            if !super::attempt::can_heal(&error) {
                return Err(error);
            }
            status.unanswered = Some(error);
        }
        let said = |(node, got): (usize, &Option<Got<Seen>>)| {
            let (answer, detail) = match &got.as_ref()?.answer {
                Ok(Seen { by: None | Some(Blocker::Reserved(_)), .. }) => ("free", None),
                Ok(Seen { by: Some(Blocker::Lease(holder)), .. }) if holder.has_record() => ("held", None),
                Ok(_) => ("foreign", None),
                Err(fault @ Fault::Young { .. }) => ("unknown", Some(fault.to_string())),
                Err(fault) => ("error", Some(fault.to_string())),
            };
            Some(NodeAnswer { node: self.nodes.name(node), answer, detail })
        };
        status.nodes = answers.0.iter().enumerate().filter_map(said).collect();
        Ok(status)
    }

    /// The locks of these names under `prefix`, in which a `*` stands for anything; without a name, all that there are. With an
    /// empty prefix a name with a `*` finds only those with an owner record of ours: everything else in the database is other
    /// data.
    ///
    /// # Errors
    /// [`Error::NoQuorum`].
    pub(crate) async fn list(&mut self, prefix: &str, names: &[String]) -> Result<Vec<Status>, Error> {
        let everything = [String::from("*")];
        let names = if names.is_empty() { &everything } else { names };
        let (patterns, exact): (Vec<&String>, Vec<&String>) = names.iter().partition(|name| name.contains('*'));
        let mut keys: BTreeSet<String> = exact.iter().map(|name| format!("{prefix}{name}")).collect();
        for pattern in patterns {
            let pattern: Vec<String> = pattern.split('*').map(glob_escaped).collect();
            keys.extend(self.matching(&format!("{}{}", glob_escaped(prefix), pattern.join("*"))).await?);
        }
        let keys: Vec<String> = keys.into_iter().collect();
        let mut all = Vec::new();
        for page in keys.chunks(PAGE) {
            all.extend(self.inspect_many(prefix, page).await?);
        }
        all.retain(|status| match status.state {
            _ if exact.contains(&&status.name) => true,
            State::Free => false, // gone in the meantime
            State::Foreign => !prefix.is_empty(),
            _ => true,
        });
        Ok(all)
    }

    /// The keys of locks that match the pattern.
    async fn matching(&mut self, pattern: &str) -> Result<impl Iterator<Item = String>, Error> {
        let found = self.nodes.scan(pattern).await;
        let reached = found.iter().flatten().count();
        // What no quorum has been looked through for cannot be said to be free.
        if reached < self.quorum() {
            let faults = found.iter().enumerate().filter_map(|(node, found)| Some((node, found.as_ref().err()?)));
            return Err(self.unanswered(faults, reached));
        }
        Ok(found.into_iter().flatten().flatten().filter(|key| !key.contains(SEPARATOR)))
    }

    async fn inspect_many(&mut self, prefix: &str, page: &[String]) -> Result<Vec<Status>, Error> {
        let calls: Vec<_> = page.iter().map(|lock| call(&scripts::INSPECT, &Keys::of(lock), &[])).collect();
        let answers: Answers<Vec<Seen>> = self.nodes.ask_many(&calls, self.nodes.deadline()).await;
        if answers.said().count() < self.quorum() {
            return Err(self.no_quorum(&answers));
        }
        let status = |(at, key): (usize, &String)| {
            let mut known = vec![None; self.nodes.len()];
            for (node, _, all) in answers.iter() {
                known[node] = all.get(at).filter(|seen| self.may_have_forgotten(*seen).is_none());
            }
            combine(&key[prefix.len()..], key, &known)
        };
        Ok(page.iter().enumerate().map(status).collect())
    }

    /// Ends another's lease: safely, or with `force` at once. With `token_prefix` only if its token begins so. A lease that
    /// only a minority of nodes has is not in force.
    ///
    /// # Errors
    /// [`Error::NoQuorum`].
    pub(crate) async fn end_lease(&mut self, token_prefix: &str, force: bool) -> Result<Ended, Error> {
        // By quorum: what a minority has left over must not be taken for the lease that is in force.
        let mut status = self.inspect().await?;
        if let Some(error) = status.unanswered.take() {
            return Err(error);
        }
        let whose = match (status.state, status.holder()) {
            (State::Free | State::Reserved, _) => return Ok(Ended::NotHeld),
            (_, Some(holder)) if holder.token.starts_with(token_prefix) => holder.token.clone(),
            (_, Some(_)) => return Ok(Ended::HeldByOther(status.held())),
            (_, None) if !token_prefix.is_empty() => return Ok(Ended::HeldByOther(status.held())),
            (_, None) => String::new(),
        };
        let mode = if force { "force" } else { "revoke" };
        let call = self.call(&scripts::REVOKE, &[&whose, mode, &signature()]);
        let done =
            |answer: &OfLease<Revoke>| matches!(answer, OfLease::Known(Revoke::Revoked(_) | Revoke::Released(_)));
        let answers = self.ask_each(&call, |answers| answers.verdict(done) != Verdict::Open).await;
        if answers.said().count() < self.quorum() {
            return Err(self.no_quorum(&answers));
        }
        // What counts most, of what the nodes say.
        let rank = |answer: &&OfLease<Revoke>| match answer {
            OfLease::Known(Revoke::Revoked(_)) => 0,
            OfLease::Known(Revoke::Released(_)) => 1,
            OfLease::Other(_) => 2,
            OfLease::Known(Revoke::Foreign(_)) => 3,
            OfLease::Gone(_) => 4,
        };
        Ok(match answers.said().min_by_key(rank).cloned() {
            Some(OfLease::Known(Revoke::Revoked(holder))) => Ended::Revoked(holder),
            Some(OfLease::Known(Revoke::Released(holder))) => Ended::Released {
                holder,
                missed: answers.faults().map(|(node, fault)| format!("{} {fault}", self.nodes.name(node))).collect(),
            },
            Some(OfLease::Other(by)) => Ended::HeldByOther(self.held_by(by)),
            Some(OfLease::Known(Revoke::Foreign(by))) => Ended::Foreign(self.held_by(by)),
            Some(OfLease::Gone(_)) | None => Ended::NotHeld,
        })
    }

    /// Asks all nodes something that each of them should do or say after the decision too: once the answers have `decided`,
    /// waits for the slower nodes as well, but not much longer than that has taken. What a node in quarantine may have forgotten
    /// counts as not answered.
    pub(super) async fn ask_each<A: ScriptAnswer>(
        &mut self,
        call: &Call,
        decided: impl Fn(&Answers<A>) -> bool,
    ) -> Answers<A> {
        let start = Boot::now();
        // A node that is still being connected to has not even been told.
        let cold = (0..self.nodes.len()).any(|node| !self.nodes.is_touched(node));
        let mut until = None;
        let patience = |answers: &Answers<A>| {
            if !decided(answers) {
                return Boot::NEVER;
            }
            let least = if cold || answers.faults().next().is_some() { 200 } else { 20 };
            let settle = start.elapsed() * 2 + Duration::from_millis(least);
            *until.get_or_insert_with(|| Boot::now() + settle)
        };
        let answers = self.nodes.ask(call, |_| true, self.nodes.deadline(), patience).await;
        self.without_young(answers)
    }
}

/// What each node has said so far.
fn seen(answers: &Answers<Seen>) -> Vec<Option<&Seen>> {
    answers.0.iter().map(|got| got.as_ref().and_then(|got| got.answer.as_ref().ok())).collect()
}

/// What the nodes say together: who has the lock on a quorum of them has it.
fn combine(name: &str, key: &str, answers: &[Option<&Seen>]) -> Status {
    let needed = quorum(answers.len());
    let known: Vec<&Seen> = answers.iter().copied().flatten().collect();
    let silent = answers.len() - known.len();
    let (mut holders, mut other_types, mut reserved) = (Vec::new(), Vec::new(), Vec::new());
    for by in known.iter().filter_map(|seen| seen.by.as_ref()) {
        match by {
            Blocker::Lease(holder) => holders.push(&**holder),
            Blocker::OtherType(left) => other_types.push(*left),
            Blocker::Reserved(left) => reserved.push(*left),
            Blocker::Unknown => {}
        }
    }
    let same = |token: &str| holders.iter().copied().filter(|holder| holder.token == token).collect::<Vec<_>>();
    let most = holders.iter().map(|holder| same(&holder.token)).max_by_key(Vec::len).unwrap_or_default();
    let (state, by) = if most.len() >= needed {
        let holder = agreed(&most, needed);
        let state = match () {
            () if !holder.has_record() => State::Foreign,
            () if holder.kept.is_some() => State::Kept,
            () if holder.revoked.is_some() => State::Revoked,
            () => State::Held,
        };
        (state, Blocker::Lease(Box::new(holder)))
    } else if other_types.len() >= needed {
        (State::Foreign, Blocker::OtherType(other_types.into_iter().flatten().max()))
    } else if most.len().max(other_types.len()) + silent >= needed || known.len() < needed {
        (State::Unknown, Blocker::Unknown)
    } else if reserved.len() >= needed {
        (State::Reserved, Blocker::Reserved(reserved.into_iter().flatten().max()))
    } else {
        // Even with every silent node no holder reaches a quorum. What keeps others from taking it can only be a line.
        (State::Free, Blocker::Reserved(None))
    };
    Status {
        name: name.to_owned(),
        key: key.to_owned(),
        state,
        mode: by.holder().filter(|holder| holder.has_record()).map(|_| "exclusive"),
        by,
        waiting: known.iter().filter_map(|seen| seen.waiting).max(),
        nodes: Vec::new(),
        unanswered: None,
    }
}

fn holders<S: Serializer>(by: &Blocker, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(by.holder())
}

/// One holder from what several nodes say of it.
fn agreed(same: &[&Holder], needed: usize) -> Holder {
    // A node that has been told less, by a write-back of a fencing token say, is outdone by one that knows.
    let Some(best) = same.iter().max_by_key(|holder| holder.fencing_token) else {
        return Holder::default();
    };
    // A quorum has it as long as the q-th largest of the nodes' times; a node where it never expires takes part.
    let mut left: Vec<Duration> = same.iter().map(|holder| holder.lease.unwrap_or(Duration::MAX)).collect();
    left.sort_unstable_by(|a, b| b.cmp(a));
    let lease = left.get(needed - 1).copied().filter(|&left| left < Duration::MAX);
    Holder { lease, holds: same.iter().filter_map(|holder| holder.holds).max(), ..(*best).clone() }
}

/// Without the meaning that SCAN gives to some characters.
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
