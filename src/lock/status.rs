//! Looking at locks, and ending other people's leases: all by quorum.

use super::answer::{Absence, Holder, Holding, Inspect, Revoke};
use super::keys::{Keys, SEPARATOR};
use super::owner::signature;
use super::quorum::{Verdict, quorum};
use super::{Lock, call, scripts};
use crate::error::{Blocker, Error, Held};
use crate::redis::{Answers, Call, FromReply};
use crate::sys::clock::Boot;
use serde::Serialize;
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
    pub(crate) answer: Word,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
}

/// One node's answer in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Word {
    Free,
    Held,
    Foreign,
    /// It was started too recently to know.
    Unknown,
    Error,
}

impl Word {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Word::Free => "free",
            Word::Held => "held",
            Word::Foreign => "foreign",
            Word::Unknown => "unknown",
            Word::Error => "error",
        }
    }
}

/// All that is known of one lock.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) state: State,
    pub(crate) mode: Option<&'static str>,
    /// One at most.
    pub(crate) holders: Vec<Holder>,
    /// How many wait in line for it.
    pub(crate) waiting: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<NodeAnswer>,
    /// What is left of a lease or reservation that no holder is known of.
    #[serde(skip)]
    left: Option<Duration>,
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
        self.holders.first().map_or(self.left, |holder| holder.lease)
    }

    pub(crate) fn holder(&self) -> Option<&Holder> {
        self.holders.first()
    }

    pub(super) fn held(&self) -> Held {
        let by = match (&self.state, self.holder()) {
            (_, Some(holder)) => Blocker::Holding(Holding::Lease(Box::new(holder.clone()))),
            (State::Foreign, None) => Blocker::Holding(Holding::OtherType(self.left)),
            (State::Reserved | State::Free, None) => Blocker::Reserved,
            _ => Blocker::Unknown,
        };
        Held { name: self.name.clone(), by, waited: None, by_this_job: false }
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
        let answers: Answers<Inspect> =
            self.ask_each(&call, |answers| combine(&name, &key, &said(answers)).state != State::Unknown).await;
        let known: Vec<Option<&Inspect>> = self.with_memory(&answers);
        let mut status = combine(&self.name, &self.keys.lock, &known);
        if status.state == State::Unknown {
            let error = self.unanswered_by(&answers);
            if !super::attempt::can_heal(&error) {
                return Err(error);
            }
            status.unanswered = Some(error);
        }
        let word = |node: usize| match (&answers.0[node].as_ref().map(|got| &got.answer), known[node]) {
            (_, Some(Inspect::Free { .. })) => (Word::Free, None),
            (_, Some(Inspect::Held { holder, .. })) if holder.has_record() => (Word::Held, None),
            (_, Some(_)) => (Word::Foreign, None),
            (Some(Ok(Inspect::Free { from, .. })), None) => {
                (Word::Unknown, Some(crate::error::restarted(from.uptime, self.quarantine.left(from.uptime))))
            }
            (Some(Err(fault)), None) => (Word::Error, Some(fault.to_string())),
            _ => (Word::Error, None),
        };
        status.nodes = (0..self.nodes.len())
            .map(|node| {
                let (answer, detail) = word(node);
                NodeAnswer { node: self.nodes.name(node), answer, detail }
            })
            .collect();
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
        let answers: Answers<Vec<Inspect>> = self.nodes.ask_many(&calls, self.nodes.deadline()).await;
        if answers.said().count() < self.quorum() {
            return Err(self.no_quorum(&answers));
        }
        let status = |(at, key): (usize, &String)| {
            let mut known = vec![None; self.nodes.len()];
            for (node, _, all) in answers.iter() {
                known[node] = all.get(at).filter(|seen| !self.may_have_forgotten(seen));
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
        let done = |answer: &Revoke| matches!(answer, Revoke::Revoked(_) | Revoke::Released(_));
        let answers: Answers<Revoke> = self.ask_each(&call, |answers| answers.verdict(done) != Verdict::Open).await;
        if answers.said().count() < self.quorum() {
            return Err(self.no_quorum(&answers));
        }
        let first = |is: fn(&Revoke) -> bool| answers.said().find(|answer| is(answer)).cloned();
        let ended = first(|answer| matches!(answer, Revoke::Revoked(_)))
            .or_else(|| first(|answer| matches!(answer, Revoke::Released(_))))
            .or_else(|| first(|answer| matches!(answer, Revoke::Other(_))))
            .or_else(|| first(|answer| matches!(answer, Revoke::Foreign(_))));
        let held = |by| Held { name: self.name.clone(), by: Blocker::Holding(by), waited: None, by_this_job: false };
        Ok(match ended {
            Some(Revoke::Revoked(holder)) => Ended::Revoked(holder),
            Some(Revoke::Released(holder)) => Ended::Released {
                holder,
                missed: answers.faults().map(|(node, fault)| format!("{} {fault}", self.nodes.name(node))).collect(),
            },
            Some(Revoke::Other(holder)) => Ended::HeldByOther(held(Holding::Lease(Box::new(holder)))),
            Some(Revoke::Foreign(holding)) => Ended::Foreign(held(holding)),
            _ => Ended::NotHeld,
        })
    }

    /// Asks all nodes something that each of them should do or say after the decision too: once the answers have `decided`,
    /// waits for the slower nodes as well, but not much longer than that has taken.
    pub(super) async fn ask_each<A: FromReply>(
        &mut self,
        call: &Call,
        decided: impl Fn(&Answers<A>) -> bool,
    ) -> Answers<A> {
        let start = Boot::now();
        // A node that is still being connected to has not even been told.
        let cold = (0..self.nodes.len()).any(|node| !self.nodes.is_touched(node));
        let mut until = None;
        self.nodes
            .ask(
                call,
                |_| true,
                self.nodes.deadline(),
                |answers: &Answers<A>| {
                    if !decided(answers) {
                        return Boot::NEVER;
                    }
                    let least = if cold || answers.faults().next().is_some() { 200 } else { 20 };
                    let settle = start.elapsed() * 2 + Duration::from_millis(least);
                    *until.get_or_insert_with(|| Boot::now() + settle)
                },
            )
            .await
    }

    /// The answers, without those of nodes that do not know the lock and may have forgotten it in a restart.
    fn with_memory<'a>(&mut self, answers: &'a Answers<Inspect>) -> Vec<Option<&'a Inspect>> {
        for seen in answers.said() {
            if let Inspect::Held { holder, .. } = seen {
                self.quarantine.cover(holder.longest());
            }
        }
        let mut known = vec![None; answers.0.len()];
        for (node, _, seen) in answers.iter() {
            known[node] = Some(seen).filter(|seen| !self.may_have_forgotten(seen));
        }
        known
    }

    fn may_have_forgotten(&self, seen: &Inspect) -> bool {
        matches!(seen, Inspect::Free { from, .. } if !self.quarantine.left(from.uptime).is_zero())
    }

    /// Too few nodes could tell: they failed, or may have forgotten.
    pub(super) fn unanswered_by<A: Absence>(&self, answers: &Answers<A>) -> Error {
        let young: Vec<(String, Duration)> = answers
            .iter()
            .filter_map(|(node, _, answer)| Some((node, self.quarantine.left(answer.absent()?.uptime))))
            .filter(|(_, left)| !left.is_zero())
            .map(|(node, left)| (self.nodes.name(node), left))
            .collect();
        if young.is_empty() {
            return self.no_quorum(answers);
        }
        let faults = answers.faults().map(|(node, fault)| (self.nodes.name(node), fault.clone())).collect();
        Error::Young { name: self.name.clone(), nodes: young, faults }
    }
}

/// What each node has said so far.
fn said(answers: &Answers<Inspect>) -> Vec<Option<&Inspect>> {
    answers.0.iter().map(|got| got.as_ref().and_then(|got| got.answer.as_ref().ok())).collect()
}

/// What the nodes say together: who has the lock on a quorum of them has it.
fn combine(name: &str, key: &str, answers: &[Option<&Inspect>]) -> Status {
    let needed = quorum(answers.len());
    let known: Vec<&Inspect> = answers.iter().copied().flatten().collect();
    let silent = answers.len() - known.len();
    let holders: Vec<&Holder> = known
        .iter()
        .filter_map(|seen| match seen {
            Inspect::Held { holder, .. } => Some(holder),
            _ => None,
        })
        .collect();
    let other_types = known.iter().filter(|seen| matches!(seen, Inspect::OtherType { .. })).count();
    let same = |token: &str| holders.iter().copied().filter(|holder| holder.token == token).collect::<Vec<_>>();
    let most = holders.iter().map(|holder| same(&holder.token)).max_by_key(Vec::len).unwrap_or_default();
    let mut status = Status {
        name: name.to_owned(),
        key: key.to_owned(),
        state: State::Unknown,
        mode: None,
        holders: Vec::new(),
        waiting: known.iter().filter_map(|seen| seen.waiting()).max(),
        nodes: Vec::new(),
        left: None,
        unanswered: None,
    };
    if most.len() >= needed {
        let holder = agreed(&most, needed);
        status.state = match () {
            () if !holder.has_record() => State::Foreign,
            () if holder.kept.is_some() => State::Kept,
            () if holder.revoked.is_some() => State::Revoked,
            () => State::Held,
        };
        status.mode = holder.has_record().then_some("exclusive");
        status.holders.push(holder);
    } else if other_types >= needed {
        status.state = State::Foreign;
        status.left = known.iter().filter_map(|seen| seen.left()).max();
    } else if most.len().max(other_types) + silent < needed && known.len() >= needed {
        // Even with every silent node no holder reaches a quorum.
        let reserved: Vec<Duration> = known.iter().filter_map(|seen| seen.reserved()).collect();
        status.state = if reserved.len() >= needed { State::Reserved } else { State::Free };
        status.left = reserved.into_iter().max().filter(|_| status.state == State::Reserved);
    }
    status
}

/// One holder from what several nodes say of it.
fn agreed(same: &[&Holder], needed: usize) -> Holder {
    // A node that has been told less, by a write-back of a fencing token say, is outdone by one that knows.
    let Some(best) = same.iter().max_by_key(|holder| holder.fencing_token) else {
        return Holder::default();
    };
    // A quorum has it as long as the q-th largest of the nodes' times; a node where it never expires takes part.
    let mut left: Vec<Duration> = same.iter().filter_map(|holder| holder.lease).collect();
    left.sort_unstable_by(|a, b| b.cmp(a));
    let endless = same.len() - left.len();
    let lease = if endless >= needed { None } else { left.get(needed - 1 - endless).copied() };
    Holder { lease, holds: same.iter().filter_map(|holder| holder.holds).max(), ..(*best).clone() }
}

impl Inspect {
    fn waiting(&self) -> Option<u64> {
        match self {
            Inspect::Free { waiting, .. } | Inspect::Held { waiting, .. } => Some(*waiting),
            Inspect::OtherType { .. } => None,
        }
    }

    fn reserved(&self) -> Option<Duration> {
        match self {
            Inspect::Free { reserved, .. } => *reserved,
            _ => None,
        }
    }

    /// What is left of a key of another type.
    fn left(&self) -> Option<Duration> {
        match self {
            Inspect::OtherType { lease } => *lease,
            _ => None,
        }
    }
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
