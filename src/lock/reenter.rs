//! Entering a lease that is held once more: one more hold, with a token of its own.

use super::answer::{Absence, Enter};
use super::attempt::Claim;
use super::lease::{Backing, Lease, UNKNOWN_TTL_MS, run_of};
use super::quorum::{Verdict, surely};
use super::{Lock, Reenter, Request, scripts, token};
use crate::error::Error;
use crate::redis::Answers;

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
        let done = |answer: &Enter| matches!(answer, Enter::Granted { .. });
        let answers: Answers<Enter> = self.ask_each(&call, |answers| answers.verdict(done) != Verdict::Open).await;
        let granted = answers.count(done);
        if granted < self.quorum() {
            let others = answers.count(|answer| matches!(answer, Enter::Other));
            let no = others + self.count_gone(answers.said().filter_map(Absence::absent));
            if granted > 0 || answers.faults().next().is_some() {
                // The id of the hold is new, so that taking it back can hurt no other.
                self.withdraw(claim).await;
            }
            claim.hold = None;
            return if no > self.minority() { Ok(None) } else { Err(self.unanswered_by(&answers)) };
        }
        let mut lease = Lease {
            token: token::of_hold(&stem, &hold),
            hold,
            fencing_token: 0,
            ttl: request.ttl,
            holds: 1,
            owner: request.owner.clone(),
            backing: vec![Backing::default(); self.nodes.len()],
            recreating: vec![false; self.nodes.len()],
        };
        for answer in answers.said() {
            if let Enter::Granted { fencing_token, holds, ttl, .. } = answer {
                lease.fencing_token = lease.fencing_token.max(*fencing_token);
                lease.holds = lease.holds.max(*holds);
                // Renewal works with the ttl that the lease has.
                lease.ttl = ttl.map_or(lease.ttl, |ttl| if request.reenter == Reenter::Must { lease.ttl } else { ttl });
            }
        }
        for (node, sent, answer) in answers.iter() {
            if let Enter::Granted { lasts, from, .. } = answer {
                let until = sent + surely(lasts.unwrap_or(lease.ttl).min(lease.ttl));
                lease.backing[node] = Backing { until: Some(until), run: run_of(from), removed: false };
            }
        }
        Ok(Some(lease))
    }
}
