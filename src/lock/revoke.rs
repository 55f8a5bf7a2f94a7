//! Ending another's lease: safely, or at once.

use super::answer::{LeaseAnswer, RevokeAnswer};
use super::fields::Args;
use super::holder::Holder;
use super::owner::signature;
use super::quorum::Verdict;
use super::status::State;
use super::{Lock, scripts};
use crate::error::{Error, NotOurs, Purpose};

/// The result of ending another's lease.
#[derive(Debug)]
pub(crate) enum Revocation {
    /// It cannot be extended any more; its job is stopped by its own redlock, at the latest when the lease runs out.
    Revoked(Vec<Holder>),
    /// It is free. A node that `missed` it, and why, may still have the lease until it runs out.
    Released { holders: Vec<Holder>, missed: Vec<String> },
}

impl Revocation {
    /// The holders of the leases that were ended.
    pub(crate) fn holders(&self) -> &[Holder] {
        match self {
            Revocation::Revoked(holders) | Revocation::Released { holders, .. } => holders,
        }
    }
}

impl Lock {
    /// Ends another's lease: safely, or with `force` at once. With `token_prefix` only if its token begins so. A lease that
    /// only a minority of nodes has is not in force.
    ///
    /// # Errors
    /// [`Error::NotOurs`], [`Error::CannotEnd`], [`Error::NoQuorum`] and [`Error::Young`].
    pub(crate) async fn revoke(&mut self, token_prefix: &str, force: bool) -> Result<Revocation, Error> {
        // By quorum: what a minority has left over must not be taken for the lease that is in force.
        let mut status = self.inspect(0).await?;
        if let Some(error) = status.unanswered.take() {
            return Err(error);
        }
        let not_ours = |found| self.not_ours(Purpose::Revoke, token_prefix, found);
        if matches!(status.state, State::Free | State::Reserved) {
            return Err(not_ours(NotOurs::Free));
        }
        let named: Vec<&Holder> = status.holders().iter().filter(|holder| holder.begins_with(token_prefix)).collect();
        let named = match named.as_slice() {
            [holder] => Some(*holder),
            [] if !(status.holders().is_empty() && token_prefix.is_empty()) => {
                return Err(not_ours(NotOurs::Other(status.held())));
            }
            // All of them.
            _ if token_prefix.is_empty() => None,
            several => {
                let (count, name) = (several.len(), &self.name);
                return Err(Error::Usage(format!(
                    "the tokens of {count} leases on {name:?} begin with {token_prefix:?}; give more of one"
                )));
            }
        };
        let args = Args::default().with("by", signature().as_str()).with("force", force);
        let args = args.with("prefix", named.map(|holder| holder.token.as_slice()));
        let call = self.call(&scripts::REVOKE, args);
        let is_done = |answer: &LeaseAnswer<RevokeAnswer>| {
            matches!(answer, LeaseAnswer::Known(RevokeAnswer::Revoked(_) | RevokeAnswer::Released(_)))
        };
        let answers = self.locks.ask_each(&call, |answers| answers.verdict(is_done) != Verdict::Open).await;
        if answers.verdict(|_| true) != Verdict::Yes {
            return Err(self.no_quorum(&answers));
        }
        // The most telling answer.
        let rank = |answer: &&LeaseAnswer<RevokeAnswer>| match answer {
            LeaseAnswer::Known(RevokeAnswer::Revoked(_)) => 0,
            LeaseAnswer::Known(RevokeAnswer::Released(_)) => 1,
            LeaseAnswer::Other(_) => 2,
            LeaseAnswer::Known(RevokeAnswer::Foreign(_)) => 3,
            LeaseAnswer::Gone(_) => 4,
        };
        let found = match answers.said().min_by_key(rank).cloned() {
            Some(LeaseAnswer::Known(RevokeAnswer::Revoked(holders))) => return Ok(Revocation::Revoked(holders)),
            Some(LeaseAnswer::Known(RevokeAnswer::Released(holders))) => {
                let missed = answers.faults().map(|(node, fault)| format!("{} {fault}", self.locks.nodes.name(node)));
                return Ok(Revocation::Released { holders, missed: missed.collect() });
            }
            Some(LeaseAnswer::Known(RevokeAnswer::Foreign(by))) => {
                return Err(Error::CannotEnd(Box::new(self.held_by(by))));
            }
            Some(LeaseAnswer::Other(by)) => NotOurs::Other(self.held_by(by)),
            Some(LeaseAnswer::Gone(_)) | None => NotOurs::Free,
        };
        Err(self.not_ours(Purpose::Revoke, token_prefix, found))
    }
}
