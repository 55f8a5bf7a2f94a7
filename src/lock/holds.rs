//! Holds: entering a lease once more, and giving up one of several holds.

use super::lease::{Ended, Lease};
use super::node::{Order, Reply};
use super::quorum::Verdict;
use super::{Locker, Request, scripts};
use crate::error::Error;
use crate::sys::clock::Boot;
use crate::sys::random::uuid;
use std::time::Duration;

/// Behind the token of a hold stands its id, eight hexadecimal digits.
const HOLD_MARK: char = '.';
const HOLD_DIGITS: usize = 8;

/// Takes the suffix of a hold off a token.
pub(super) fn split_token(token: &str) -> (&str, Option<&str>) {
    match token.rsplit_once(HOLD_MARK) {
        Some((stem, id)) if id.len() == HOLD_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            (stem, Some(id))
        }
        _ => (token, None),
    }
}

/// Whether two tokens name the same lease, be it by different holds of it.
pub(crate) fn same_lease(one: &str, other: &str) -> bool {
    split_token(one).0 == split_token(other).0
}

/// The token of a hold.
pub(super) fn hold_token(stem: &str, id: &str) -> String {
    format!("{stem}{HOLD_MARK}{id}")
}

impl Locker {
    /// Enters a lease that an ancestor holds once more; none when it does not hold it any more.
    pub(super) fn enter(&mut self, token: &str, request: &Request) -> Result<Option<Lease>, Error> {
        let (stem, _) = split_token(token);
        let hold = &uuid().simple().to_string()[..8];
        let call = self.script(&scripts::ENTER, &[stem, hold, &request.ttl.as_millis().to_string()]);
        let deadline = self.deadline();
        let answers = self.ask_all(&call, deadline, |answers| answers.decided("granted"));
        let granted = answers.tally(|reply| reply.text(0) == "granted");
        if granted.verdict() == Verdict::Yes {
            let mut lease = Lease {
                token: hold_token(stem, hold),
                fencing_token: 0,
                ttl: request.ttl,
                holds: 1,
                waited: Duration::ZERO,
                pid: request.pid,
                label: request.label.clone(),
                first_round: answers.round,
                deadlines: vec![None; self.nodes.len()],
            };
            // What the others say is about somebody else's lease.
            let granted = |(_, _, reply): &(usize, Boot, &Reply)| reply.text(0) == "granted";
            for (node, sent, reply) in answers.replies().filter(granted) {
                lease.take_in(node, sent, reply);
                let number = |at| reply.int(at).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
                lease.fencing_token = lease.fencing_token.max(number(1));
                lease.holds = lease.holds.max(number(2));
            }
            return Ok(Some(lease));
        }
        // Undone hold by hold: the id is new, so this can hurt nobody.
        let undo = self.script(&scripts::RELEASE, &[&hold_token(stem, hold), stem, hold, "0"]);
        if granted.yes > 0 || answers.replies().count() < self.nodes.len() {
            self.undo(&undo, &answers, answers.interrupted.is_some());
        }
        if let Some(signal) = answers.interrupted {
            return Err(Error::Interrupted(signal));
        }
        let no = answers.count("gone") + answers.count("other");
        if no > self.nodes.len() - self.quorum() { Ok(None) } else { Err(self.no_quorum(&answers)) }
    }

    /// Gives up one hold of the lease that `token` names: the hold whose token it is, else the newest.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Refused`] when too few nodes answered.
    pub(crate) fn release_token(&mut self, token: &str) -> Result<Ended, Error> {
        if let (stem, Some(id)) = split_token(token) {
            return self.give_up_hold(token, stem, id, None);
        }
        if self.nodes.len() == 1 {
            return self.give_up_hold(token, token, "newest", None);
        }
        // A node that missed a hold would give up an older one: all have to be asked for the same.
        match self.newest_hold(token)?.as_str() {
            "base" => self.give_up_hold(token, token, "base", None),
            id => self.give_up_hold(&hold_token(token, id), token, id, None),
        }
    }

    /// The newest hold that any node knows of the lease.
    fn newest_hold(&mut self, token: &str) -> Result<String, Error> {
        let call = self.script(&scripts::HOLDS, &[token]);
        let needed = self.quorum();
        let answers = self.tell_all(&call, Order::InTurn, |answers| answers.replies().count() >= needed);
        if answers.replies().count() < self.quorum() {
            return Err(self.no_quorum(&answers));
        }
        let newest = answers.replies().filter(|(_, _, reply)| reply.text(0) == "holds");
        let newest = newest.max_by_key(|(_, _, reply)| reply.int(2)).map(|(_, _, reply)| reply.text(1).to_owned());
        Ok(newest.unwrap_or_else(|| "base".to_owned()))
    }
}
