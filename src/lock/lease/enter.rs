//! Re-enters a lease: adds one more hold, with a token of its own.
//!
//! Holds are a set of ids, not a count, so a repeated request changes nothing. The token of a hold is the lease's
//! token, a dot, the hold's id. An extension by a hold outlives the hold. A renewal enters no hold, since it may be
//! executed after the release. A node that has forgotten the hold says so, and `renew.rs::restore` enters the hold
//! again, in order.

use crate::error::{Error, NotOurs};
use crate::lock::lease::traces::{Traces, UNDO_TIMEOUT};
use crate::lock::lease::{DEFAULT_TTL, Lease};
use crate::lock::terms::token;
use crate::lock::votes::quorum::{Verdict, middle};
use crate::lock::wire::answer::{Answer, Outcome};
use crate::lock::wire::fields::Args;
use crate::lock::{Lock, Reenter, Request, scripts};
use crate::redis::Answers;
use crate::sys::clock::Boot;
use std::time::Duration;

impl Lock {
    /// Re-enters a lease if the request asks for that. [`Reenter::IfHeld`] asks for the lease of the innermost ancestor
    /// that still holds the lock. Returns None if the request asks for no re-entry, or if no ancestor holds the lock.
    ///
    /// # Errors
    /// [`Error::NotOurs`] if the token of [`Reenter::Must`] has no lease; [`Error::NoQuorum`].
    pub(super) async fn reenter(&mut self, traces: &mut Traces, request: &Request) -> Result<Option<Lease>, Error> {
        match &request.reenter {
            Reenter::No | Reenter::Excluded => {}
            Reenter::IfHeld => {
                for ancestor in request.ancestors.iter().rev() {
                    if let Some(lease) = self.enter(traces, ancestor, request, None).await? {
                        return Ok(Some(lease));
                    }
                }
            }
            // The lease of `--token` gets the ttl of this call. (The lease of an ancestor keeps its ttl.)
            Reenter::Must(token) => {
                let entered = self.enter(traces, token, request, Some(request.ttl)).await?;
                return entered.map(Some).ok_or_else(|| self.not_ours(token, NotOurs::NoneToReenter));
            }
        }
        Ok(None)
    }

    /// Re-enters the lease of the token `ancestor`, and extends it for `ttl`, or if that is None for its own ttl.
    /// Returns None if it has ended.
    async fn enter(
        &mut self,
        traces: &mut Traces,
        ancestor: &str,
        request: &Request,
        ttl: Option<Duration>,
    ) -> Result<Option<Lease>, Error> {
        let (stem, hold) = (token::split(ancestor).0.to_owned(), token::new_hold());
        traces.hold = Some((stem.clone(), hold.clone()));
        let args = Args::default().with("token", &stem).with("hold", &hold);
        let call = self.call(&scripts::ENTER, args.time("ttl", ttl).time("default", DEFAULT_TTL));
        let is_entered = |answer: &Answer| answer.outcome == Outcome::Extended;
        let counters = |answers: &Answers<Answer>| -> Vec<u64> {
            answers.replies().filter(|answer| is_entered(answer)).map(Answer::fence).collect()
        };
        // The nodes may report different fencing tokens: one may have granted the lease late, or the counter of one may
        // not have been raised. If they differ, all answers are needed to find the lease's own.
        let decided = |answers: &Answers<Answer>| match answers.verdict(is_entered) {
            Verdict::Yes => counters(answers).windows(2).all(|pair| pair[0] == pair[1]),
            verdict => verdict == Verdict::No,
        };
        let answers = self.locks.ask_each(&call, decided).await;
        if answers.verdict(is_entered) != Verdict::Yes {
            if answers.count(is_entered) > 0 || answers.faults().next().is_some() {
                // The id of this hold is new, so its release ends no other hold.
                self.withdraw(traces, Boot::now() + UNDO_TIMEOUT).await;
            }
            traces.hold = None;
            return if answers.is_denied(is_entered) { Ok(None) } else { Err(self.no_quorum(&answers)) };
        }
        let mut lease = Lease::new(token::of_hold(&stem, &hold), hold, request, self.locks.nodes.len());
        // The middle counter is the lease's fencing token: q counters are equal to it, fewer than q are smaller, and
        // fewer than q are larger.
        lease.fencing_token = middle(counters(&answers), self.locks.nodes.len()).unwrap_or_default();
        let entered = answers.iter().filter(|(_, _, answer)| is_entered(answer));
        for (_, _, by) in entered.clone() {
            lease.holds = lease.holds.max(by.count("holds"));
            // Renewals ask for this ttl: the caller's, or else the lease's own.
            lease.ttl = ttl.or(by.get("ttl").as_time()).unwrap_or(lease.ttl);
        }
        for (node, sent, by) in entered {
            lease.granted(node, sent, by.get("left").as_time().unwrap_or(lease.ttl).min(lease.ttl), by);
        }
        Ok(Some(lease))
    }
}
