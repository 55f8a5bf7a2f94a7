//! Ending another's lease: safely, or at once.

use super::answer::{Answer, Word};
use super::fields::Args;
use super::holder::Holder;
use super::log::LogPart;
use super::owner::signature;
use super::quorum::Verdict;
use super::status::State;
use super::{Lock, scripts};
use crate::error::{Error, NotOurs, Purpose};

/// The result of ending others' leases.
#[derive(Debug)]
pub(crate) struct Revocation {
    pub(crate) holders: Vec<Holder>,
    /// The lock is free. Otherwise the leases cannot be extended any more; their jobs are stopped by their own redlocks, at
    /// the latest when the leases run out.
    pub(crate) is_free: bool,
    /// The nodes that have not heard of it, and why: they may still have the leases until those run out.
    pub(crate) missed: Vec<String>,
}

impl Lock {
    /// Ends another's lease: safely, or with `force` at once. With `token_prefix` only if its token begins so. A lease that
    /// only a minority of nodes has is not in force.
    ///
    /// # Errors
    /// [`Error::NotOurs`], [`Error::CannotEnd`] and [`Error::NoQuorum`].
    pub(crate) async fn revoke(&mut self, token_prefix: &str, force: bool) -> Result<Revocation, Error> {
        // By quorum: what a minority has left over must not be taken for the lease that is in force.
        let mut status = self.inspect(LogPart::None).await?;
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
        let mut args = Args::default().with("by", signature()).flag("force", force);
        if let Some(holder) = named {
            args = args.with_bytes("prefix", &holder.token);
        }
        let call = self.call(&scripts::REVOKE, args);
        let is_done = |answer: &Answer| matches!(answer.word, Word::Revoked | Word::Released);
        let answers = self.locks.ask_each(&call, |answers| answers.verdict(is_done) != Verdict::Open).await;
        if answers.verdict(|_| true) != Verdict::Yes {
            return Err(self.no_quorum(&answers));
        }
        // The most telling answer first.
        let telling = [Word::Revoked, Word::Released, Word::Other, Word::Foreign];
        let found = telling.iter().find_map(|word| answers.said().find(|answer| answer.word == *word));
        let Some((word, by)) = found.and_then(|answer| Some((answer.word, answer.by.clone()?))) else {
            return Err(self.not_ours(Purpose::Revoke, token_prefix, NotOurs::Free));
        };
        match word {
            Word::Revoked | Word::Released => {
                let missed = answers.faults().map(|(node, fault)| format!("{} {fault}", self.locks.nodes.name(node)));
                let (holders, is_free) = (by.holders().to_vec(), word == Word::Released);
                Ok(Revocation { holders, is_free, missed: missed.collect() })
            }
            Word::Other => Err(self.not_ours(Purpose::Revoke, token_prefix, NotOurs::Other(self.held_by(by)))),
            _ => Err(Error::CannotEnd(Box::new(self.held_by(by)))),
        }
    }
}
