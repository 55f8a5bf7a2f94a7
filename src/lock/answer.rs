//! The answer of a script. Each script's header names the fields.

use super::holder::{Holder, Obstacle};
use crate::redis::{FromReply, Reply};
use serde::Deserialize;
use serde::de::value::{Error as NotAWord, StrDeserializer};
use std::time::Duration;

/// The outcome of a script, in the word of its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    #[default]
    Free,
    Held,
    /// Free, but promised to the next in line.
    Reserved,
    Granted,
    /// The slot that was asked for is not free, but others are.
    Taken,
    /// Others hold it in another way, or with another number of slots.
    OtherClaim,
    /// The node is in quarantine, and does not know the lock.
    Quarantined,
    /// With `once_per`: this run has succeeded.
    Ran,
    /// With `newest`: a larger number has come.
    Superseded,
    /// The lease that was named is not there: the lock is free.
    Gone,
    /// The lease that was named is not there: others have the lock.
    Other,
    /// The lease is there: it was extended or entered.
    Extended,
    Revoked,
    /// The hold that was named has been released.
    NoHold,
    /// Re-creation only: the server was restarted since it was asked.
    Restarted,
    /// The lock has had a later holder.
    Higher,
    /// The node stands at the fencing token of the lease now.
    Raised,
    Released,
    StillHeld,
    /// The newest hold.
    Newest,
    /// Those whose tokens begin in a certain way.
    Found,
    /// The holder cannot be told to stop.
    Foreign,
    /// The lock is free, and has no register of `newest` any more.
    Forgot,
    Done,
}

/// The answer of a script; by default that of a lock that is free. A field that one script alone gives is read by its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    pub(super) outcome: Outcome,
    /// What has the lock, where the outcome is that others do, or did.
    pub(super) by: Option<Obstacle>,
    /// The longest ttl of the leases that the node shows.
    pub(super) longest: Duration,
    /// The time since the start of the server, to the second; none where INFO is refused.
    pub(super) uptime: Option<Duration>,
    /// It differs after a restart of the server; none where INFO is refused.
    pub(super) run_id: Option<String>,
    pub(super) fields: Reply,
}

impl Answer {
    /// True if the node shows no lease on the lock, other than one that it has just granted.
    pub(super) fn knows_no_lease(&self) -> bool {
        matches!(
            self.outcome,
            Outcome::Free | Outcome::Reserved | Outcome::Granted | Outcome::Quarantined | Outcome::Gone
        )
    }

    /// The field of this name; nil if there is none.
    pub(super) fn get(&self, name: &str) -> &Reply {
        self.fields.get(name)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).as_text()
    }

    /// A number; zero if there is none.
    pub(super) fn count(&self, name: &str) -> u64 {
        self.get(name).as_count().unwrap_or(0)
    }

    /// The fencing token of the lease; zero for another library's.
    pub(super) fn fence(&self) -> u64 {
        self.count("fence")
    }
}

impl FromReply for Answer {
    fn from_reply(reply: &Reply) -> Option<Answer> {
        let outcome = StrDeserializer::<NotAWord>::new(reply.get("outcome").as_text()?);
        let outcome = Outcome::deserialize(outcome).ok()?;
        let node = reply.get("node");
        let uptime = node.get("uptime").as_text().and_then(|seconds| seconds.parse::<i64>().ok());
        let by = match outcome {
            Outcome::Reserved => Some(Obstacle::Reserved(reply.get("left").as_time())),
            _ => reply.has("holders").then(|| Obstacle::read(reply)),
        };
        let longest = by.as_ref().and_then(|by| by.holders().iter().map(Holder::longest).max());
        Some(Answer {
            outcome,
            by,
            longest: longest.max(reply.get("longest").as_time()).unwrap_or_default(),
            uptime: uptime.map(|seconds| Duration::from_secs(seconds.try_into().unwrap_or(0))),
            run_id: node.get("run_id").as_text().filter(|run_id| !run_id.is_empty()).map(str::to_owned),
            fields: reply.clone(),
        })
    }

    fn is_confirmation(&self) -> bool {
        matches!(self.outcome, Outcome::Granted | Outcome::Extended | Outcome::Raised)
    }
}
