//! A lease that is held: how long it is surely ours, lengthening it, giving it up.

use super::ask::Answers;
use super::holds::split_token;
use super::node::{Event, FaultKind, Order, Reply};
use super::owner::{Holder, owner};
use super::quorum::{Verdict, surely, validity};
use super::{Locker, scripts};
use crate::error::{Error, Held};
use crate::sys::clock::Boot;
use std::time::Duration;

/// How long is waited until a release has been sent to a node that others need not wait for.
pub(super) const SEE_OFF: Duration = Duration::from_millis(250);

/// One grant of a lock, limited in time.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    /// The random identity of the lease, with the suffix of our hold if we entered somebody's.
    pub(crate) token: String,
    /// Larger than that of every earlier lease on this lock.
    pub(crate) fencing_token: u64,
    pub(crate) ttl: Duration,
    /// How many holds the lease has, ours included.
    pub(crate) holds: u64,
    /// How long we queued for it.
    pub(crate) waited: Duration,
    pub(super) pid: u32,
    pub(super) label: String,
    /// Answers to earlier questions than this are not about this lease.
    pub(super) first_round: u64,
    /// For each node, until when it surely keeps our key.
    pub(super) deadlines: Vec<Option<Boot>>,
}

impl Lease {
    /// The end of validity: before this moment a quorum of nodes surely has our key. Long past when there is none left.
    pub(crate) fn valid_until(&self) -> Boot {
        validity(&self.deadlines).unwrap_or(Boot::at(Duration::ZERO))
    }

    /// When the request that the validity counts from was sent: the last confirmed one.
    pub(crate) fn confirmed_at(&self) -> Boot {
        self.valid_until() - surely(self.ttl)
    }

    /// The token and the id of the hold, if it has one.
    fn parts(&self) -> (&str, Option<&str>) {
        split_token(&self.token)
    }

    /// What a node's answer means for the time that it surely keeps our key.
    pub(super) fn take_in(&mut self, node: usize, sent: Boot, reply: &Reply) {
        match reply.text(0) {
            "granted" | "extended" => {
                let until = sent + surely(self.ttl);
                let deadline = &mut self.deadlines[node];
                *deadline = Some(deadline.map_or(until, |known| known.max(until)));
            }
            "gone" | "other" | "revoked" => self.deadlines[node] = None,
            _ => {}
        }
    }
}

/// The answer to one renewal.
#[derive(Debug)]
pub(crate) enum Renewal {
    /// A quorum has extended the lease.
    Confirmed,
    /// No quorum answered in time; the lease is what it was. `faults` says what each failing node did ("10.0.0.1:6379
    /// timed out"); with `reconnect` the next try may start at once: a connection was found closed.
    Unconfirmed { faults: String, reconnect: bool },
    /// So many nodes do not have our lease that no quorum can be left. Continues "lost "backup": it …".
    Lost(String),
    /// Somebody wants something else; nothing was decided.
    Interrupted,
}

/// Why [`Locker::idle`] came back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// The time is up.
    Due,
    /// [`super::Interrupter::interrupt`] was called.
    Interrupted,
    /// A late answer has changed the validity of the lease.
    Changed,
}

/// What became of a lease that was to be extended or given up.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// It lasts this much longer, surely; so many holds.
    Extended {
        validity: Duration,
        holds: u64,
    },
    Released,
    /// One hold less, so many left.
    StillHeld(u64),
    /// The lease has ended, and nobody has the lock.
    NotHeld,
    /// Somebody else has it.
    HeldByOther(Box<Held>),
    /// Somebody has ended it; it cannot be extended.
    Revoked(String),
}

impl Locker {
    /// Asks all nodes to extend the lease; comes back at `give_up` at the latest. A node that has lost its memory is
    /// given the lease anew after a quorum of the others has confirmed it.
    pub(crate) fn renew(&mut self, lease: &mut Lease, give_up: Boot) -> Renewal {
        let (stem, _) = lease.parts();
        let ttl = lease.ttl.as_millis().to_string();
        let call = self.script(&scripts::EXTEND, &[stem, stem, &ttl, &ttl]);
        let answers = self.ask_all(&call, give_up, |answers| answers.decided("extended"));
        self.take_in_late(lease);
        // What is gone comes last: only a lease that is confirmed is given to others anew.
        let (gone, others): (Vec<_>, Vec<_>) = answers.replies().partition(|(_, _, reply)| reply.text(0) == "gone");
        for (node, sent, reply) in others.into_iter().chain(gone) {
            self.take_in(lease, node, sent, reply);
        }
        if answers.tally(|reply| reply.text(0) == "extended").verdict() == Verdict::Yes {
            return Renewal::Confirmed;
        }
        if validity(&lease.deadlines).is_none() {
            return Renewal::Lost(self.what_became(&answers));
        }
        if answers.interrupted.is_some() {
            return Renewal::Interrupted;
        }
        let reconnect = answers.faults().any(|(_, fault)| fault.kind == FaultKind::Closed);
        Renewal::Unconfirmed { faults: self.describe_faults(&answers), reconnect }
    }

    /// Takes in one node's answer. A node that has lost its memory is given the lease anew, as long as a quorum has it;
    /// what it answers is taken in when it comes.
    fn take_in(&mut self, lease: &mut Lease, node: usize, sent: Boot, reply: &Reply) {
        lease.take_in(node, sent, reply);
        if reply.text(0) != "gone" || lease.valid_until().passed() {
            return;
        }
        let (stem, _) = lease.parts();
        let ttl = lease.ttl.as_millis().to_string();
        let fence = lease.fencing_token.to_string();
        let [host, pid, user, label] = owner(lease.pid, &lease.label);
        let call = self.script(&scripts::REJOIN, &[stem, &ttl, &fence, &host, &pid, &user, &label]);
        let deadline = self.deadline();
        self.round += 1;
        self.nodes[node].ask(self.round, call, deadline, Order::InTurn, None);
    }

    /// In whose hands a lost lease is now: what the node says that knows most.
    fn what_became(&self, answers: &Answers) -> String {
        let of = |word| answers.replies().find(|(_, _, reply)| reply.text(0) == word);
        if let Some((node, _, reply)) = of("revoked") {
            let by = super::escaped(reply.text(1), 80);
            return format!("it was revoked by {by} ({})", self.nodes[node].address());
        }
        match (of("other"), of("gone")) {
            (Some((node, _, reply)), _) => {
                let holder = Holder::of(reply.text(1), reply.at(3));
                format!("{} now has it ({})", holder, self.nodes[node].address())
            }
            (None, Some((node, _, _))) => format!("it was released or deleted on {}", self.nodes[node].address()),
            (None, None) => "too few nodes have it".to_owned(),
        }
    }

    /// Takes in the answers that came late.
    fn take_in_late(&mut self, lease: &mut Lease) {
        for event in std::mem::take(&mut self.pending) {
            match event {
                Event::Answer { node, round, sent, result: Ok(reply) } if round >= lease.first_round => {
                    self.take_in(lease, node, sent, &reply);
                }
                Event::Interrupt(signal) => self.pending.push_back(Event::Interrupt(signal)),
                _ => {}
            }
        }
    }

    /// Waits until `until`, taking in late answers.
    pub(crate) fn idle(&mut self, lease: &mut Lease, until: Boot) -> Idle {
        let before = lease.valid_until();
        while let Some(event) = self.next_event(until) {
            match event {
                Event::Interrupt(_) => return Idle::Interrupted,
                Event::Answer { node, round, sent, result: Ok(reply) } if round >= lease.first_round => {
                    self.take_in(lease, node, sent, &reply);
                    if lease.valid_until() != before {
                        return Idle::Changed;
                    }
                }
                _ => {}
            }
        }
        Idle::Due
    }

    /// Gives our hold of the lease up; with `keep`, the lock stays taken for that long. Returns how many holds are left.
    ///
    /// # Errors
    /// [`Error::NotHeld`] when no quorum can have had the lease, [`Error::Unavailable`] when too few nodes answered.
    /// Has a deadline of its own.
    pub(crate) fn release(&mut self, lease: &Lease, keep: Option<Duration>) -> Result<u64, Error> {
        let (stem, hold) = lease.parts();
        let ended = match hold {
            None => self.give_up_hold(stem, stem, "base", keep)?,
            Some(id) => self.give_up_hold(&lease.token, stem, id, keep)?,
        };
        match ended {
            Ended::Released => Ok(0),
            Ended::StillHeld(left) => Ok(left),
            Ended::HeldByOther(held) => {
                let by = held.holder.map_or_else(|| "another".to_owned(), |holder| holder.to_string());
                Err(Error::NotHeld(format!("lost {:?}: {by} now has it", self.name)))
            }
            _ => Err(Error::NotHeld("it was released or deleted while in use".to_owned())),
        }
    }

    pub(super) fn give_up_hold(
        &mut self,
        token: &str,
        stem: &str,
        hold: &str,
        keep: Option<Duration>,
    ) -> Result<Ended, Error> {
        let keep = keep.unwrap_or_default().as_millis().to_string();
        let call = self.script(&scripts::RELEASE, &[token, stem, hold, &keep]);
        let done = |reply: &Reply| matches!(reply.text(0), "released" | "still-held");
        self.cleaning_up = true;
        let answers = self.tell_all(&call, Order::AtOnce, |answers| answers.tally(done).verdict() != Verdict::Open);
        self.see_it_off(&answers, SEE_OFF);
        self.cleaning_up = false;
        if answers.tally(done).verdict() == Verdict::Yes {
            let still = answers.replies().filter(|(_, _, reply)| reply.text(0) == "still-held");
            let left = still.map(|(_, _, reply)| reply.int(1).and_then(|n| u64::try_from(n).ok()).unwrap_or(1));
            // A hold counts where a quorum knows of it; the nodes that missed it have fewer.
            return Ok(match left.max() {
                Some(left) if answers.count("released") < self.quorum() => Ended::StillHeld(left),
                _ => Ended::Released,
            });
        }
        self.not_ours(&answers)
    }

    /// Waits until a request is on its way to every node that has been asked anything before, or has had no time to begin
    /// with it: we may end after it, and where it has not been sent the lock would stay taken for as long as its lease.
    pub(super) fn see_it_off(&mut self, answers: &Answers, patience: Duration) {
        let until = Boot::now() + patience;
        let due = |locker: &Locker| {
            let nodes = locker.nodes.iter().zip(&answers.got);
            let mut late = nodes.filter(|(node, got)| {
                got.is_none()
                    && (node.has_written(1) && !node.has_written(answers.round)
                        || node.is_about_to_begin(answers.round))
            });
            late.next().is_some()
        };
        while due(self) && !until.passed() {
            let moment = Boot::now() + Duration::from_millis(1);
            if let Some(event) = self.receive(moment) {
                self.pending.push_back(event);
            }
        }
    }

    /// Extends the lease that `token` names to at least `ttl` from now; none: the ttl it was taken with.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Refused`] when too few nodes answered.
    pub(crate) fn extend_token(&mut self, token: &str, ttl: Option<Duration>) -> Result<Ended, Error> {
        const UNKNOWN_TTL_MS: &str = "30000";
        let (stem, _) = split_token(token);
        let ttl = ttl.map_or(0, |ttl| ttl.as_millis()).to_string();
        let call = self.script(&scripts::EXTEND, &[token, stem, &ttl, UNKNOWN_TTL_MS]);
        let answers = self.tell_all(&call, Order::InTurn, |answers| answers.decided("extended"));
        self.see_it_off(&answers, SEE_OFF);
        if answers.tally(|reply| reply.text(0) == "extended").verdict() == Verdict::Yes {
            let mut deadlines = vec![None; self.nodes.len()];
            let mut holds = 1;
            for (node, sent, reply) in answers.replies().filter(|(_, _, reply)| reply.text(0) == "extended") {
                // Without an expiry it lasts for ever, or as long as JSON can say.
                let lasts = u64::try_from(reply.int(1).unwrap_or(0)).unwrap_or(u64::from(u32::MAX));
                deadlines[node] = Some(sent + surely(Duration::from_millis(lasts)));
                holds = holds.max(u64::try_from(reply.int(2).unwrap_or(1)).unwrap_or(1));
            }
            let validity = validity(&deadlines).map_or(Duration::ZERO, Boot::left);
            return Ok(Ended::Extended { validity, holds });
        }
        self.not_ours(&answers)
    }

    /// What it means that no quorum did what was asked.
    fn not_ours(&self, answers: &Answers) -> Result<Ended, Error> {
        let no = |reply: &Reply| matches!(reply.text(0), "gone" | "other" | "revoked");
        if answers.tally(no).yes <= self.nodes.len() - self.quorum() {
            return Err(match answers.interrupted {
                Some(signal) => Error::Interrupted(signal),
                None => self.no_quorum(answers),
            });
        }
        let of = |word| answers.replies().map(|(_, _, reply)| reply).find(|reply| reply.text(0) == word);
        Ok(match (of("revoked"), of("other")) {
            (Some(reply), _) => Ended::Revoked(reply.text(1).to_owned()),
            (None, Some(reply)) => Ended::HeldByOther(Box::new(self.held(reply))),
            (None, None) => Ended::NotHeld,
        })
    }

    /// Reads `{'held' or 'other', value, PTTL, owner record, …}` and `{'foreign', type, PTTL}`.
    pub(super) fn held(&self, reply: &Reply) -> Held {
        let foreign = reply.text(0) == "foreign";
        let value = if foreign { "" } else { reply.text(1) };
        // Another library's value may be empty; in an answer "other" that stands for a key of another type too.
        let other_type = foreign || value.is_empty() && reply.text(0) == "other";
        Held {
            name: self.name.clone(),
            holder: (!other_type).then(|| Holder::of(value, reply.at(3))),
            lease: reply.int(2).and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis),
            other_type,
            ..Held::default()
        }
    }
}
