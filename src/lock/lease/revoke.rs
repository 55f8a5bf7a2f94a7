//! Ends the leases of others at once.

use crate::error::{Error, NotOurs};
use crate::lock::history::run::signature;
use crate::lock::terms::holder::Holder;
use crate::lock::terms::owner::user_at_host;
use crate::lock::view::status::{State, Status, View};
use crate::lock::votes::quorum::Verdict;
use crate::lock::wire::answer::{Answer, Outcome};
use crate::lock::wire::fields::Args;
use crate::lock::{Lock, scripts};
use crate::redis::{Answers, Reply};
use std::collections::BTreeSet;

#[derive(Debug)]
pub(crate) struct Revocation {
    pub(crate) holders: Vec<Holder>,
    /// The nodes that the revocation did not reach, and why: there the leases may last until they run out.
    pub(crate) missed: Vec<String>,
}

impl Lock {
    /// Ends the leases of others, though their jobs may still run. With an empty `token_prefix`, ends all leases; else
    /// the only lease whose token begins with the prefix. A lease does not count if only a minority of nodes has it.
    ///
    /// # Errors
    /// [`Error::NotOurs`] if there is no such lease; [`Error::Usage`] if several tokens begin
    /// with `token_prefix`; [`Error::CannotEnd`] and [`Error::NoQuorum`].
    pub(crate) async fn force(&mut self, token_prefix: &str) -> Result<Revocation, Error> {
        let status = self.look_at_holders(None).await?;
        if matches!(status.state, State::Free | State::Reserved | State::Closed) {
            return Err(self.not_ours(token_prefix, NotOurs::NoneToRevoke));
        }
        let token = self.token_to_revoke(token_prefix, &status).await?;
        let args = Args::default().flag("force", true);
        let answers = self.revoke(args, token.as_deref(), Outcome::Released).await?;
        let missed = answers.faults().map(|(node, fault)| format!("{} {fault}", self.locks.nodes.name(node)));
        let missed: Vec<String> = missed.collect();
        // In order of importance: the result is the first of these outcomes that any node has answered.
        let telling = [Outcome::Released, Outcome::Other, Outcome::Foreign];
        let found = telling.iter().find_map(|word| answers.replies().find(|answer| answer.outcome == *word));
        let Some((word, by)) = found.and_then(|answer| Some((answer.outcome, answer.by.clone()?))) else {
            return Err(self.not_ours(token_prefix, NotOurs::NoneToRevoke));
        };
        match word {
            Outcome::Released => Ok(Revocation { holders: by.holders().to_vec(), missed }),
            Outcome::Other => Err(self.not_ours(token_prefix, NotOurs::OtherToRevoke(self.held_by(by)))),
            _ => Err(Error::CannotEnd(Box::new(self.held_by(by)))),
        }
    }

    /// The lock with its holders, and their whole tokens.
    ///
    /// # Errors
    /// [`Error::NoQuorum`].
    pub(super) async fn look_at_holders(&mut self, named: Option<&[u8]>) -> Result<Status, Error> {
        let named = named.map(String::from_utf8_lossy);
        let mut status = self.inspect(View::STOP, named.as_deref()).await?;
        status.unanswered.take().map_or(Ok(status), Err)
    }

    /// Asks the nodes to revoke the lease of this token, or all leases. `done`: the outcome on a node that has done so.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] if too few nodes answer.
    pub(super) async fn revoke(
        &mut self,
        args: Args,
        token: Option<&[u8]>,
        done: Outcome,
    ) -> Result<Answers<Answer>, Error> {
        let mut args = args.with("by", signature(&user_at_host()));
        if let Some(token) = token {
            args = args.with_bytes("token", token);
        }
        let call = self.call(&scripts::REVOKE, args);
        let is_done = |answer: &Answer| answer.outcome == done;
        let answers = self.locks.ask_each(&call, |answers| answers.verdict(is_done) != Verdict::Open).await;
        if answers.verdict(|_| true) == Verdict::Yes { Ok(answers) } else { Err(self.no_quorum(&answers)) }
    }

    /// The token of the lease to end: the only token that begins with `prefix`. With an empty `prefix`, the only token;
    /// None if the lock has several leases, or no lease.
    ///
    /// # Errors
    /// [`Error::NotOurs`], [`Error::Usage`] if several tokens begin with `prefix`, and [`Error::NoQuorum`].
    pub(super) async fn token_to_revoke(&mut self, prefix: &str, status: &Status) -> Result<Option<Vec<u8>>, Error> {
        let holders = status.holders();
        let mut tokens = match holders {
            _ if !prefix.is_empty() && status.is_cut() => self.find(prefix).await?,
            _ => holders.iter().filter(|one| one.begins_with(prefix)).map(|one| one.token.clone()).collect(),
        };
        match tokens.len() {
            1 if !(prefix.is_empty() && status.is_cut()) => Ok(tokens.pop()),
            0 if !(holders.is_empty() && prefix.is_empty()) => {
                Err(self.not_ours(prefix, NotOurs::OtherToRevoke(status.held())))
            }
            _ if prefix.is_empty() => Ok(None),
            count => Err(Error::Usage(format!(
                "the tokens of {count} leases on {:?} begin with {prefix:?}; give more of the token",
                self.name
            ))),
        }
    }

    /// The tokens that begin with `prefix`, for a lock that has too many holders to list.
    ///
    /// # Errors
    /// [`Error::NoQuorum`].
    async fn find(&mut self, prefix: &str) -> Result<Vec<Vec<u8>>, Error> {
        let call = self.call(&scripts::FIND, Args::default().with("prefix", prefix));
        let answers = self.locks.ask_each(&call, |answers| answers.verdict(|_| true) != Verdict::Open).await;
        if answers.verdict(|_| true) != Verdict::Yes {
            return Err(self.no_quorum(&answers));
        }
        let found: BTreeSet<&[u8]> =
            answers.replies().flat_map(|answer| answer.get("tokens").items()).filter_map(Reply::as_bytes).collect();
        Ok(found.into_iter().map(<[u8]>::to_vec).collect())
    }
}
