//! Entering a lease that is held once more: one more hold, with a token of its own.

use super::answer::{Entered, OfLease};
use super::attempt::Claim;
use super::lease::{Lease, UNKNOWN_TTL_MS};
use super::quorum::Verdict;
use super::{Lock, Reenter, Request, scripts, token};
use crate::error::Error;

impl Lock {
    /// Enters a lease that an ancestor holds once more; none when it does not hold it any more.
    pub(super) async fn enter(
        &mut self,
        claim: &mut Claim,
        ancestor: &str,
        request: &Request,
    ) -> Result<Option<Lease>, Error> {
        let (stem, hold) = (token::split(ancestor).0.to_owned(), token::new_hold());
        claim.hold = Some((stem.clone(), hold.clone()));
        // A job keeps the length of the lease that it shares; a token that is asked for is to last.
        let ttl = match request.reenter {
            Reenter::Must => request.ttl.as_millis().to_string(),
            _ => "0".to_owned(),
        };
        let call = self.call(&scripts::ENTER, &[&stem, &hold, &ttl, UNKNOWN_TTL_MS]);
        let done = |answer: &OfLease<Entered>| matches!(answer, OfLease::Known(_));
        let answers = self.ask_each(&call, |answers| answers.verdict(done) != Verdict::Open).await;
        let entered = answers.count(done);
        if entered < self.quorum() {
            if entered > 0 || answers.faults().next().is_some() {
                // The id of the hold is new, so that taking it back can hurt no other.
                self.withdraw(claim).await;
            }
            claim.hold = None;
            let not_held = answers.count(|answer| !done(answer)) > self.minority();
            return if not_held { Ok(None) } else { Err(self.no_quorum(&answers)) };
        }
        let mut lease = Lease::new(token::of_hold(&stem, &hold), hold, request, self.nodes.len());
        for answer in answers.said() {
            if let OfLease::Known(entered) = answer {
                lease.fencing_token = lease.fencing_token.max(entered.fencing_token);
                lease.holds = lease.holds.max(entered.holds);
                // Renewal works with the ttl that the lease has.
                lease.ttl = entered.ttl.filter(|_| request.reenter != Reenter::Must).unwrap_or(lease.ttl);
            }
        }
        for (node, sent, answer) in answers.iter() {
            if let OfLease::Known(Entered { lasts, from, .. }) = answer {
                lease.granted(node, sent, lasts.unwrap_or(lease.ttl).min(lease.ttl), from);
            }
        }
        Ok(Some(lease))
    }
}
