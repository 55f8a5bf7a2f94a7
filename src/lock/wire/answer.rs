//! The answer of a script. Each script's header names the fields.

use crate::lock::terms::holder::{Holder, Obstacle};
use crate::redis::{FromReply, Reply};
use serde::Deserialize;
use serde::de::value::{Error as NotAWord, StrDeserializer};
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::lock) enum Outcome {
    #[default]
    Free,
    Held,
    /// The lock has room, but is promised to a waiter, or to a holder that the server has forgotten in a restart.
    Reserved,
    Granted,
    /// The slot that was asked for is taken, but other slots are free.
    Taken,
    /// The request and the holders differ about slots: only one side has slots, or the numbers of slots differ.
    OtherClaim,
    /// The node is in quarantine: it may have forgotten a lease. It shows no lease, or only members beside which the
    /// request's claim fits.
    Quarantined,
    Closed,
    /// With `once_per`: a recent run has succeeded.
    Ran,
    /// With `tries`: as many runs have begun.
    Tried,
    Counted,
    /// With `newest`: a larger number has come.
    Superseded,
    /// The named lease is lost, and no other lease is in its way.
    Gone,
    /// The named lease is lost, and others hold the lock. To a re-entry this may mean instead that the lease was
    /// revoked, and to a deletion of the number of `--newest` that the lock is not free.
    Other,
    /// The lease exists, and was extended, entered or re-created.
    Extended,
    Revoked,
    /// The named hold was released, or the node has forgotten it.
    NoHold,
    /// Re-creation only: the server has restarted since it said that the lease is lost.
    Restarted,
    /// The node's counter is larger than the fencing token of the lease.
    Higher,
    /// The node's counter has now reached the fencing token of the lease.
    Raised,
    Released,
    StillHeld,
    Newest,
    /// The answer lists the members' tokens that begin with the text in the request.
    Found,
    /// Revocation only: the key is of another type, or the lease's holder cannot be told to stop.
    Foreign,
    /// The lock is free, and the script has deleted its number of `--newest`, or its whole history.
    Forgot,
    Done,
}

/// By default, the answer for a free lock. `fields` has the whole answer, to be read by name.
#[derive(Clone, Debug, Default)]
pub(in crate::lock) struct Answer {
    pub(in crate::lock) outcome: Outcome,
    /// The obstacle that the answer names.
    pub(in crate::lock) by: Option<Obstacle>,
    /// The longest ttl or remaining time of any lease that the node shows; zero without a lease.
    pub(super) longest: Duration,
    /// The time since the start of the server, in whole seconds. None without the field `node`, or if INFO is refused.
    pub(in crate::lock) uptime: Option<Duration>,
    /// Changes with each restart of the server. None in the same cases as `uptime`.
    pub(in crate::lock) run_id: Option<String>,
    pub(in crate::lock) fields: Reply,
}

impl Answer {
    /// True if the node shows no lease on the lock, apart from one that it has just granted, and from members beside
    /// which the request's claim fits.
    pub(super) fn knows_no_lease(&self) -> bool {
        matches!(
            self.outcome,
            Outcome::Free | Outcome::Reserved | Outcome::Granted | Outcome::Quarantined | Outcome::Gone
        )
    }

    pub(in crate::lock) fn get(&self, name: &str) -> &Reply {
        self.fields.get(name)
    }

    pub(in crate::lock) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).as_text()
    }

    /// Zero if the field is missing, or has no number.
    pub(in crate::lock) fn count(&self, name: &str) -> u64 {
        self.get(name).as_count().unwrap_or(0)
    }

    /// The lease's fencing token. Zero for another library's lease, and for a shared one if the node has no counter.
    pub(in crate::lock) fn fence(&self) -> u64 {
        self.count("fence")
    }
}

impl FromReply for Answer {
    fn from_reply(reply: &Reply) -> Option<Answer> {
        let outcome = StrDeserializer::<NotAWord>::new(reply.get("outcome").as_text()?);
        let outcome = Outcome::deserialize(outcome).ok()?;
        let (uptime, run_id) = reply.node();
        let by = match outcome {
            Outcome::Reserved => Some(Obstacle::Reserved(reply.get("left").as_time())),
            Outcome::Closed => Obstacle::closed(reply, "left"),
            _ => reply.has("holders").then(|| Obstacle::read(reply)),
        };
        let longest = by.as_ref().and_then(|by| by.holders().iter().map(Holder::longest).max());
        Some(Answer {
            outcome,
            by,
            longest: longest.max(reply.get("longest").as_time()).unwrap_or_default(),
            uptime: uptime.parse::<i64>().ok().map(|seconds| Duration::from_secs(seconds.try_into().unwrap_or(0))),
            run_id: Some(run_id).filter(|run_id| !run_id.is_empty()).map(str::to_owned),
            fields: reply.clone(),
        })
    }

    fn is_confirmation(&self) -> bool {
        matches!(self.outcome, Outcome::Granted | Outcome::Extended | Outcome::Raised)
    }
}
