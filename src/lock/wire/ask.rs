//! One question to all nodes, and the judgement of their answers: quorum, patience, quarantine, the error for too few.

use crate::error::{Error, NamedObstacle, NotOurs, Reason};
use crate::lock::terms::claim::Claim;
use crate::lock::terms::holder::Obstacle;
use crate::lock::votes::quorum::{Tally, Verdict, quorum};
use crate::lock::wire::answer::{Answer, Outcome};
use crate::lock::wire::locks::Locks;
use crate::lock::{Lock, Reenter, Request};
use crate::redis::{Answers, Call, Fault};
use crate::sys::clock::Boot;
use std::time::Duration;

impl Locks {
    pub(in crate::lock) fn quorum(&self) -> usize {
        quorum(self.nodes.len())
    }

    /// Asks all nodes, and waits until `decided` is true of the answers, then a while longer for the slower nodes
    /// ([`straggler_wait`]), because every node should carry out the call. Drops the answers of nodes that may have
    /// forgotten the lock (quarantine).
    pub(in crate::lock) async fn ask_each(
        &mut self,
        call: &Call,
        decided: impl Fn(&Answers<Answer>) -> bool,
    ) -> Answers<Answer> {
        let start = Boot::now();
        // The first request to a node has to wait until the connection is open.
        let cold = (0..self.nodes.len()).any(|node| !self.nodes.may_have_been_sent(node));
        let mut until = None;
        let patience = |answers: &Answers<Answer>| {
            if !decided(answers) {
                return Boot::NEVER;
            }
            *until.get_or_insert_with(|| Boot::now() + straggler_wait(start, cold || answers.faults().next().is_some()))
        };
        let answers = self.nodes.ask(call, self.nodes.deadline(), patience).await;
        self.without_quarantined(answers)
    }

    pub(in crate::lock) fn cover(&mut self, answers: &Answers<Answer>) {
        answers.replies().for_each(|answer| self.quarantine.cover(answer.longest));
    }

    pub(in crate::lock) fn without_quarantined(&mut self, answers: Answers<Answer>) -> Answers<Answer> {
        self.cover(&answers);
        answers.discard(|answer| self.may_have_forgotten(answer))
    }

    /// The fault of a node in quarantine that shows no lease: it has started too recently, or does not say when it
    /// started. None for any other node.
    pub(in crate::lock) fn may_have_forgotten(&self, answer: &Answer) -> Option<Fault> {
        if !answer.knows_no_lease() {
            return None;
        }
        let Some(uptime) = answer.uptime else {
            return (!self.quarantine.is_off()).then(Fault::without_uptime);
        };
        let left = self.quarantine.left(Some(uptime));
        (!left.is_zero()).then_some(Fault::Quarantined { uptime, left })
    }

    /// The error when no quorum has answered a question. `name`: the lock in question; None: all locks. `reached`: the
    /// number of nodes that answered.
    pub(in crate::lock) fn unanswered<'a>(
        &self,
        name: Option<&str>,
        faults: impl Iterator<Item = (usize, &'a Fault)>,
        reached: usize,
    ) -> Error {
        let faults = faults.map(|(node, fault)| (self.nodes.asked(node), fault.clone())).collect();
        Error::NoQuorum {
            name: name.map(str::to_owned),
            nodes: self.nodes.len(),
            reached,
            faults,
            is_default: self.nodes.are_default(),
        }
    }
}

impl Lock {
    pub(in crate::lock) fn no_quorum<A>(&self, answers: &Answers<A>) -> Error {
        self.locks.unanswered(Some(&self.name), answers.faults(), answers.replies().count())
    }

    pub(in crate::lock) fn held_by(&self, by: Obstacle) -> NamedObstacle {
        NamedObstacle::of(&self.name, by)
    }

    /// The error for a lock that the request cannot take because of `by`. `waited`: the time in line, none if the
    /// request did not wait.
    pub(in crate::lock) fn held_error(&self, by: &Obstacle, request: &Request, waited: Option<Duration>) -> Error {
        Error::Held(Box::new(NamedObstacle { waited, ..self.held(by, request) }))
    }

    /// The error for a call that gives up. With `--once-per` it has nothing to do if a run of its period goes on, or
    /// the lock is closed. `is_first`: nobody stood in line before this call, so this call reports the holder.
    pub(in crate::lock) fn gives_up(
        &self,
        by: &Obstacle,
        request: &Request,
        waited: Option<Duration>,
        is_first: bool,
    ) -> Error {
        if let (Obstacle::Closed(..), Some(_)) = (by, request.once_per) {
            let by = Box::new(Reason::Closed(self.held_by(by.clone())));
            return Error::NotNeeded { name: self.name.clone(), by, unlike: None };
        }
        if let Some(holder) = request.same_period(by) {
            let unlike = request.unlike(&holder.owner.label, holder.has_label);
            let by = Box::new(Reason::Runs(holder.clone()));
            return Error::NotNeeded { name: self.name.clone(), by, unlike };
        }
        let is_reported = request.once_per.is_some() && !is_first;
        Error::Held(Box::new(NamedObstacle { waited, is_reported, ..self.held(by, request) }))
    }

    pub(in crate::lock) fn held(&self, by: &Obstacle, request: &Request) -> NamedObstacle {
        NamedObstacle {
            by_this_job: by.is_held_by(&request.ancestors),
            can_reenter: by.claim() == Claim::Exclusive && request.reenter == Reenter::No,
            is_promised: by.claim() == Claim::Shared && self.claim() == Claim::Shared,
            ..self.held_by(by.clone())
        }
    }

    pub(in crate::lock) fn not_ours(&self, token: &str, found: NotOurs) -> Error {
        Error::NotOurs { name: self.name.clone(), token: token.to_owned(), found: Box::new(found) }
    }

    /// The error when no quorum has carried out a request about the lease of this token: too few nodes answered, or the
    /// lease is lost. `is_done`: true for the answer of a node that has carried it out.
    pub(in crate::lock) fn not_done(
        &self,
        token: &str,
        answers: &Answers<Answer>,
        is_done: impl Fn(&Answer) -> bool,
    ) -> Error {
        if !answers.is_denied(is_done) {
            return self.no_quorum(answers);
        }
        let other =
            answers.replies().find(|answer| answer.outcome == Outcome::Other).and_then(|answer| answer.by.clone());
        self.not_ours(token, other.map_or(NotOurs::Free, |by| NotOurs::Other(self.held_by(by))))
    }
}

/// The verdict of a quorum. The methods are here because `redis/` knows nothing of a quorum.
impl<A> Answers<A> {
    /// True if so many answers are not `yes` that no quorum can be. A node that failed does not count as a no.
    pub(in crate::lock) fn is_denied(&self, yes: impl Fn(&A) -> bool) -> bool {
        let no = self.count(|answer| !yes(answer));
        Tally { nodes: self.nodes(), yes: 0, no }.verdict() == Verdict::No
    }

    /// Any answer that is not `yes` counts as a no, and so does a node that failed.
    pub(in crate::lock) fn verdict(&self, yes: impl Fn(&A) -> bool) -> Verdict {
        let yes = self.count(yes);
        Tally { nodes: self.nodes(), yes, no: self.finished() - yes }.verdict()
    }
}

/// How long to wait for slower nodes once the answers of the others are enough. `unhurried`: a node has failed, or a
/// connection had to be opened. Then the wait is longer, because a message about a failed node should not blame nodes
/// that are merely slow.
pub(in crate::lock) fn straggler_wait(start: Boot, unhurried: bool) -> Duration {
    start.elapsed() * 2 + Duration::from_millis(if unhurried { 200 } else { 20 })
}
