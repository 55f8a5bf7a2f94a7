//! Extending a lease by its token.

use crate::error::{Error, NotOurs};
use crate::lock::lease::DEFAULT_TTL;
use crate::lock::terms::token;
use crate::lock::votes::quorum::{Verdict, less_drift, validity};
use crate::lock::wire::answer::{Answer, Outcome};
use crate::lock::wire::fields::Args;
use crate::lock::{Lock, scripts};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Extension {
    /// The time for which the lease is sure to last, from now.
    pub(crate) validity: Duration,
    pub(crate) holds: u64,
}

impl Lock {
    /// Extends the lease of `token`, so that it lasts for at least `ttl` from now; None: the ttl of its grant.
    ///
    /// # Errors
    /// [`Error::NotOurs`] and [`Error::NoQuorum`].
    pub(crate) async fn extend(&mut self, token: &str, ttl: Option<Duration>) -> Result<Extension, Error> {
        let (stem, hold) = token::split(token);
        let args = Args::default().with("token", stem).with_some("hold", hold).time("ttl", ttl);
        let call = self.call(&scripts::EXTEND, args.time("default", DEFAULT_TTL));
        let is_extended = |answer: &Answer| answer.outcome == Outcome::Extended;
        let answers = self.locks.ask_each(&call, |answers| answers.verdict(is_extended) != Verdict::Open).await;
        let mut deadlines = vec![None; answers.nodes()];
        let mut most_holds = 1;
        for (node, sent, by) in answers.iter().filter(|(_, _, by)| is_extended(by)) {
            // A lease that never expires counts as a lease of 49 days.
            let left = by.get("left").as_time().unwrap_or(Duration::from_millis(u64::from(u32::MAX)));
            deadlines[node] = Some(sent + less_drift(left));
            most_holds = most_holds.max(by.count("holds"));
        }
        if let Some(until) = validity(&deadlines) {
            return Ok(Extension { validity: until.left(), holds: most_holds });
        }
        Err(match answers.replies().find(|answer| answer.outcome == Outcome::Revoked) {
            Some(answer) => self.not_ours(token, NotOurs::Revoked(answer.text("by").unwrap_or_default().to_owned())),
            None => self.not_done(token, &answers, is_extended),
        })
    }
}
