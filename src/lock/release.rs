//! Releasing a lease, or one hold of it.

use super::answer::{Answer, Word};
use super::fields::Args;
use super::lease::Lease;
use super::line::unmoved;
use super::quorum::Verdict;
use super::run::End;
use super::token::{self, BASE};
use super::{Lock, scripts};
use crate::error::{Error, Purpose};
use crate::redis::Call;
use std::time::Duration;

impl Lock {
    /// Releases this process's hold of the lease, and tells how its run ended; with `keep`, the lock stays taken for that long.
    /// Returns how many holds are left. Has a deadline of its own.
    ///
    /// # Errors
    /// [`Error::NotOurs`] when no quorum can have had the lease, [`Error::NoQuorum`] when too few nodes
    /// answered.
    pub(crate) async fn release(&mut self, lease: &Lease, keep: Option<Duration>, end: End) -> Result<u64, Error> {
        // Holds leave nothing in the log.
        let end = Some(end).filter(|_| lease.is_outermost());
        let call = self.release_call(lease.stem(), &lease.hold, keep, end);
        self.release_by(call, &lease.token).await
    }

    /// Releases one hold of the lease that `token` names: the hold whose token it is, else the newest. Returns how many are
    /// left. `status` is that of what was done under the lease, for the memory.
    ///
    /// # Errors
    /// [`Error::NotOurs`] and [`Error::NoQuorum`].
    pub(crate) async fn release_token(&mut self, token: &str, status: Option<u8>) -> Result<u64, Error> {
        let (stem, hold) = token::split(token);
        let newest = match hold {
            // A node that missed a hold would release an older one: all have to be asked for the same.
            None if self.locks.nodes.len() > 1 => Some(self.newest_hold(token).await?),
            _ => None,
        };
        let args = Args::default().with("token", stem).given("hold", hold.or(newest.as_deref()));
        let args = args.given("outcome", status.map(|_| "exited")).given("code", status);
        self.release_by(self.call_noted(&scripts::RELEASE, stem, args), token).await
    }

    /// The request to release a hold of a lease, and to note in the log how its run ended.
    pub(super) fn release_call(&self, stem: &str, hold: &str, keep: Option<Duration>, end: Option<End>) -> Call {
        let keep = keep.filter(|keep| keep.as_millis() > 0);
        let args = Args::default().with("token", stem).with("hold", hold).time("keep", keep);
        let args = args.given("outcome", end.map(End::word)).given("code", end.and_then(|end| end.code));
        let args = args.time("ended", end.map(|end| end.at.elapsed()));
        self.call(&scripts::RELEASE, args.given("gone", end.map(End::word_if_gone)))
    }

    async fn release_by(&mut self, call: Call, token: &str) -> Result<u64, Error> {
        let is_done = |answer: &Answer| matches!(answer.word, Word::Released | Word::StillHeld);
        let answers = self.locks.ask_each(&call, |answers| answers.verdict(is_done) != Verdict::Open).await;
        self.move_line(unmoved(&answers), self.locks.nodes.deadline()).await;
        if answers.verdict(is_done) != Verdict::Yes {
            return Err(self.not_done(Purpose::Use, token, &answers, is_done));
        }
        // A hold counts where a quorum knows of it; the nodes that missed it have fewer.
        if answers.verdict(|answer| answer.word == Word::Released) == Verdict::Yes {
            return Ok(0);
        }
        Ok(answers.said().map(|answer| answer.holds).max().unwrap_or(0))
    }

    /// The newest hold that any node knows of the lease.
    async fn newest_hold(&mut self, token: &str) -> Result<String, Error> {
        let call = self.call(&scripts::HOLDS, Args::default().with("token", token));
        let answers = self.locks.ask_each(&call, |answers| answers.verdict(|_| true) == Verdict::Yes).await;
        if answers.verdict(|_| true) != Verdict::Yes {
            return Err(self.no_quorum(&answers));
        }
        // The hold that most nodes name, as a hold is entered on a quorum; `entered` is by each server's own clock.
        let named = answers.said().filter(|answer| answer.word == Word::Newest);
        let votes = |hold: &Option<String>| answers.count(|other| other.hold == *hold);
        let newest = named.max_by_key(|newest| (votes(&newest.hold), newest.entered));
        Ok(newest.and_then(|newest| newest.hold.clone()).unwrap_or_else(|| BASE.to_owned()))
    }
}
