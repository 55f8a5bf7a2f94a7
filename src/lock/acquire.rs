//! Getting a lock: one attempt on all nodes, what has to be true for it to count, and how a failed one is undone.

use super::ask::Answers;
use super::lease::{Lease, SEE_OFF};
use super::node::{Call, Node, Order, Reply};
use super::owner::owner;
use super::queue::full_jitter;
use super::quorum::Verdict;
use super::refusal::{Busy, young_for};
use super::{Locker, Reenter, Request, Wait, fencing, scripts};
use crate::error::{Error, Held};
use crate::sys::clock::{Boot, unix_time};
use crate::sys::random::uuid;
use std::time::Duration;

/// What clean-up may take when a signal waits: the end comes within 100 ms.
pub(super) const HURRY: Duration = Duration::from_millis(80);

/// How long to wait, up to these times, before each further try after a lost race among several.
const RIVALRY_MS: [u64; 6] = [20, 40, 80, 160, 320, 640];
const RIVALRY_AT_MOST: Duration = Duration::from_secs(1);

/// Whoever tries to get the lock, and as what.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidate {
    /// Its name in the queue; empty when it takes the lock or leaves it.
    pub(super) waiter: String,
    /// Its place in the queue; empty until it has one.
    pub(super) ticket: String,
}

/// How one attempt went.
pub(super) enum Attempt {
    Granted(Lease),
    /// Others have it, or part of it.
    Busy(Box<Busy>),
    /// Too few nodes can answer. Nothing is left behind on those that do.
    Faulty(Error),
    /// This signal came. Nothing is left behind.
    Interrupted(i32),
}

impl Locker {
    /// Takes the lock, or queues for it as long as `request.wait` says. `on_wait` is called when the wait begins and
    /// whenever something about it has changed. On failure nothing is left on any node that answers.
    ///
    /// # Errors
    /// [`Error::Held`], [`Error::Unavailable`], [`Error::Refused`], [`Error::Interrupted`]; [`Error::NotHeld`] when a
    /// lease had to be entered that has ended; [`Error::Usage`] when two addresses lead to the same node.
    pub(crate) fn acquire(
        &mut self,
        request: &Request,
        on_wait: &mut dyn FnMut(&super::Waiting),
    ) -> Result<Lease, Error> {
        let start = Boot::now();
        if request.reenter != Reenter::No {
            for token in &request.ancestors {
                if let Some(lease) = self.enter(token, request)? {
                    return Ok(lease);
                }
            }
            if request.reenter == Reenter::Must {
                return Err(Error::NotHeld(format!(
                    "the token does not hold {:?}: its lease has ended, so there is nothing to enter",
                    self.name
                )));
            }
        }
        let mut attempt = self.attempt(&Candidate::default(), request, Boot::NEVER);
        // Of rivals that come at the same time each may get a part, and then one of them should get all.
        for base in RIVALRY_MS {
            let is_over = matches!(request.wait, Wait::For(_)) && request.wait.end(start).passed();
            if is_over || !matches!(&attempt, Attempt::Busy(busy) if busy.split) {
                break;
            }
            let pause = Duration::from_millis(base).max(Boot::now().since(start) * 3).min(RIVALRY_AT_MOST);
            if let Some(signal) = self.pause(full_jitter(pause)) {
                return Err(Error::Interrupted(signal));
            }
            attempt = self.attempt(&Candidate::default(), request, Boot::NEVER);
        }
        match attempt {
            Attempt::Granted(lease) => Ok(Lease { waited: Boot::now().since(start), ..lease }),
            Attempt::Faulty(error) => Err(error),
            Attempt::Interrupted(signal) => Err(Error::Interrupted(signal)),
            Attempt::Busy(busy) if request.wait == Wait::No => Err(self.is_held(&busy, request, None)),
            Attempt::Busy(busy) => self.queue(request, *busy, start, on_wait),
        }
    }

    /// One try on all nodes, with a token of its own, and not after `until`.
    pub(super) fn attempt(&mut self, candidate: &Candidate, request: &Request, until: Boot) -> Attempt {
        let token = uuid().simple().to_string();
        let ttl = request.ttl.as_millis().to_string();
        // The same number on all nodes, so that they agree on the fencing token at once.
        let now = unix_time().as_millis().to_string();
        let identify = if self.nodes.len() > 1 || !self.quarantine.is_zero() { "1" } else { "0" };
        let [host, pid, user, label] = owner(request.pid, &request.label);
        let call = self.script(
            &scripts::TAKE,
            &[&candidate.waiter, &token, &ttl, &candidate.ticket, &now, identify, &host, &pid, &user, &label],
        );
        let give_up = self.deadline().min(until);
        let quarantine = self.quarantine;
        let counts = move |reply: &Reply| reply.text(0) == "granted" && young_for(reply, quarantine).is_zero();
        let start = Boot::now();
        let mut answers = self.ask_all(&call, give_up, |answers| answers.tally(counts).verdict() != Verdict::Open);
        if answers.tally(counts).verdict() == Verdict::Yes {
            self.linger(&mut answers, start);
        } else if !self.told_why(&answers) {
            // It is decided, but not whether it is held or cannot be had.
            self.take_more(&mut answers, give_up, |locker, answers| !locker.told_why(answers));
        } else {
            self.settle(&mut answers, start);
        }
        if answers.interrupted.is_none() {
            answers.interrupted = self.take_interrupt();
        }
        let mut failed = None;
        if let Some(signal) = answers.interrupted {
            failed = Some(Attempt::Interrupted(signal));
        } else if let Some(error) = self.same_node_twice(&answers) {
            failed = Some(Attempt::Faulty(error));
        } else if answers.tally(counts).verdict() == Verdict::Yes {
            match self.confirm(&token, &answers, counts, request) {
                Attempt::Granted(lease) => return Attempt::Granted(lease),
                attempt => failed = Some(attempt),
            }
        }
        let failed = failed.unwrap_or_else(|| self.why_not(&answers, quarantine));
        match &failed {
            // Back in line, and nobody is woken: they would only do the same.
            Attempt::Busy(busy) if !candidate.waiter.is_empty() => {
                if busy.partial {
                    let undo = self.script(&scripts::ROLLBACK, &[&candidate.waiter, &token, &candidate.ticket]);
                    self.undo(&undo, &answers, false);
                }
            }
            Attempt::Interrupted(_) => {
                let undo = self.script(&scripts::LEAVE, &[&candidate.waiter, &token]);
                self.undo(&undo, &answers, true);
            }
            _ => {
                let undo = self.script(&scripts::LEAVE, &["", &token]);
                self.undo(&undo, &answers, false);
            }
        }
        failed
    }

    /// A quorum has granted the lock. The others should have it too, in case one of the quorum is lost: gives them the
    /// moment that their request needs to be written, a part of what the quorum has taken.
    fn linger(&mut self, answers: &mut Answers, start: Boot) {
        let decided = Boot::now();
        let took = decided.since(start);
        let until = decided + (took / 4).max(Duration::from_millis(20));
        let moment = (took / 16).max(Duration::from_millis(1));
        let round = answers.round;
        while !answers.all() && !(decided + SEE_OFF).passed() {
            // Not before the script has been sent in full, where it is not known.
            let on_its_way = |locker: &Locker, node: usize| {
                locker.nodes[node].has_written(round) && !locker.nodes.iter().any(Node::did_not_know)
            };
            let silent = (0..self.nodes.len()).filter(|&node| answers.got[node].is_none());
            let moment_over = Boot::now().since(decided) >= moment;
            let is_enough = |node| {
                moment_over && on_its_way(self, node) || until.passed() && !self.nodes[node].is_about_to_begin(round)
            };
            if silent.clone().all(is_enough) {
                break;
            }
            self.take_more(answers, Boot::now() + moment, |_, _| true);
        }
    }

    /// Enough nodes have granted the lock. Makes sure that q of them stand at the lease's fencing token, and that the
    /// lease is still worth something.
    fn confirm(
        &mut self,
        token: &str,
        answers: &Answers,
        counts: impl Fn(&Reply) -> bool,
        request: &Request,
    ) -> Attempt {
        let granted: Vec<(usize, u64)> = answers
            .replies()
            .filter(|(_, _, reply)| counts(reply))
            .map(|(node, _, reply)| (node, reply.int(1).and_then(|fence| u64::try_from(fence).ok()).unwrap_or(0)))
            .collect();
        let fence = fencing::settle(&granted, self.nodes.len());
        if fence.needed > 0 {
            let call = self.script(&scripts::FENCE, &[token, &fence.token.to_string()]);
            let behind = (0..self.nodes.len()).map(|node| fence.behind.contains(&node)).collect();
            let deadline = self.deadline();
            let raised =
                self.ask(&call, behind, deadline, Order::InTurn, |raised| raised.count("granted") >= fence.needed);
            if let Some(signal) = raised.interrupted {
                return Attempt::Interrupted(signal);
            }
            if raised.count("granted") < fence.needed {
                // One is ahead, because somebody else has had the lock there meanwhile: try again.
                return match raised.count("higher") + raised.count("gone") {
                    0 => Attempt::Faulty(self.no_quorum(&raised)),
                    _ => Attempt::Busy(Box::new(Busy {
                        held: Held { name: self.name.clone(), ..Held::default() },
                        left: None,
                        rank: 0,
                        ticket: String::new(),
                        queued: Vec::new(),
                        partial: true,
                        split: true,
                    })),
                };
            }
        }
        let mut lease = Lease {
            token: token.to_owned(),
            fencing_token: fence.token,
            ttl: request.ttl,
            holds: 1,
            waited: Duration::ZERO,
            pid: request.pid,
            label: request.label.clone(),
            first_round: answers.round,
            deadlines: vec![None; self.nodes.len()],
        };
        for (node, sent, reply) in answers.replies().filter(|(_, _, reply)| counts(reply)) {
            lease.take_in(node, sent, reply);
        }
        if lease.valid_until().passed() {
            let ttl = humantime::format_duration(request.ttl);
            return Attempt::Faulty(Error::Unavailable(format!(
                "{:?}: the nodes took longer to grant it than it would have lasted ({ttl}); a longer --ttl helps",
                self.name
            )));
        }
        Attempt::Granted(lease)
    }

    /// Undoes what an attempt may have done on every node that has not said that it did nothing: over the same
    /// connection, so that it arrives behind a late request, and with a deadline of its own. A node that has not
    /// answered the attempt is not waited for as long again: a moment, since a server that is about to answer when we
    /// have gone would not read what else we have sent.
    pub(super) fn undo(&mut self, call: &Call, answers: &Answers, hurry: bool) {
        let did_nothing = |node: usize| matches!(&answers.got[node], Some((_, Ok(reply))) if matches!(reply.text(0), "held" | "foreign"));
        let silent = |node: usize| !matches!(&answers.got[node], Some((_, Ok(_))));
        // In a hurry there may be a place in line to give up too.
        let asked: Vec<bool> = (0..self.nodes.len()).map(|node| hurry || !did_nothing(node)).collect();
        if !asked.contains(&true) {
            return;
        }
        self.cleaning_up = true;
        let deadline = Boot::now() + if hurry { HURRY } else { self.node_timeout.max(HURRY) };
        let mut undone = self.ask(call, asked.clone(), deadline, Order::Undo, |_| true);
        let start = Boot::now();
        for node in &self.nodes {
            node.give_up_before(undone.round);
        }
        let done = |locker: &Locker, undone: &Answers, node: usize| {
            let sent = locker.nodes[node].has_written(undone.round) && Boot::now().since(start) >= HURRY;
            let nothing_to_undo = !locker.nodes[node].has_written(1);
            !asked[node] || undone.got[node].is_some() || silent(node) && (sent || nothing_to_undo)
        };
        while !deadline.passed() && !(0..self.nodes.len()).all(|node| done(self, &undone, node)) {
            self.take_more(&mut undone, Boot::now() + Duration::from_millis(1), |_, _| true);
        }
        self.cleaning_up = false;
    }
}
