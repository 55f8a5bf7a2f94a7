//! The answer of a script, as a type. Each script's header names the fields.

use super::holder::{Holder, Obstacle};
use super::run::{Run, RunOutcome};
use super::waiter::Waiter;
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
    OtherShape,
    /// The node is in quarantine, and does not know the lock.
    #[serde(rename = "young")]
    Quarantined,
    /// With `once_per`: this run has succeeded.
    Ran,
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
    Done,
}

/// The answer of a script; by default that of a lock that is free.
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
    /// The fencing token of the lease; zero for another library's.
    pub(super) fence: u64,
    /// The slot of the lease, of a lock with slots.
    pub(super) slot: Option<u32>,
    /// Places that are free there, where the one that was asked for is taken.
    pub(super) free: Vec<u32>,
    /// The lease lasts this long from now, forever if none.
    pub(super) left: Option<Duration>,
    /// The ttl that the lease was taken with; none of another library's.
    pub(super) ttl: Option<Duration>,
    /// The number of holds of the lease.
    pub(super) holds: u64,
    /// The newest hold, and when it entered: the larger, the later.
    pub(super) hold: Option<String>,
    pub(super) entered: u64,
    /// The hold for which the lease was renewed is not known there.
    pub(super) forgotten: bool,
    /// Who has revoked the lease: `deploy@web-3`.
    pub(super) revoked_by: String,
    /// The number of waiters ahead of this one; none when it is not in line.
    pub(super) rank: Option<u64>,
    pub(super) ticket: Option<String>,
    /// The waiter was not in line before this request.
    pub(super) just_queued: bool,
    /// The number of waiters.
    pub(super) waiting: u64,
    /// The first in line, if they were asked for.
    pub(super) waiters: Option<Vec<Waiter>>,
    /// The success that forbids another run.
    pub(super) ran: Option<Run>,
    /// Tokens that were looked for.
    pub(super) tokens: Vec<Vec<u8>>,
    /// The log knows of the run of a lease that is not there, and that a release has told its end.
    pub(super) knows_run: bool,
    pub(super) knows_end: bool,
    /// The server's words: the node could not note a success for `--once-per`, or could not write the rest of the run's end.
    pub(super) unnoted: Option<String>,
    pub(super) unwritten: Option<String>,
    /// The log was cut since: it may have known of that run.
    pub(super) may_have_forgotten: bool,
}

impl Answer {
    /// True if the node shows no lease on the lock, other than one that it has just granted.
    pub(super) fn knows_no_lease(&self) -> bool {
        matches!(
            self.outcome,
            Outcome::Free | Outcome::Reserved | Outcome::Granted | Outcome::Quarantined | Outcome::Gone
        )
    }
}

impl FromReply for Answer {
    fn from_reply(reply: &Reply) -> Option<Answer> {
        let outcome = StrDeserializer::<NotAWord>::new(reply.get("outcome").as_text()?);
        let outcome = Outcome::deserialize(outcome).ok()?;
        let text = |name: &str| reply.get(name).as_text().map(str::to_owned);
        let count = |name: &str| reply.get(name).as_count();
        let (node, clock) = (reply.get("node"), reply.get("clock").as_time());
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
            fence: count("fence").unwrap_or(0),
            slot: reply.get("slot").as_small_count(),
            free: reply.get("free").items().iter().filter_map(Reply::as_small_count).collect(),
            left: reply.get("left").as_time(),
            ttl: reply.get("ttl").as_time(),
            holds: count("holds").unwrap_or(0),
            hold: text("hold"),
            entered: count("entered").unwrap_or(0),
            forgotten: reply.has("forgotten"),
            revoked_by: text("by").unwrap_or_default(),
            rank: count("rank"),
            ticket: text("ticket"),
            just_queued: reply.has("queued"),
            waiting: count("waiting").unwrap_or(0),
            waiters: Waiter::read_all(reply),
            ran: reply.get("success").as_text().map(|run| Run::read(run, RunOutcome::Unreadable, clock)),
            tokens: reply.get("tokens").items().iter().filter_map(Reply::as_bytes).map(<[u8]>::to_vec).collect(),
            knows_run: matches!(reply.get("known").as_text(), Some("known" | "ended")),
            knows_end: reply.get("known").as_text() == Some("ended"),
            unnoted: text("unnoted"),
            unwritten: text("unwritten"),
            may_have_forgotten: reply.get("known").as_text() == Some("unsure"),
        })
    }

    fn is_confirmation(&self) -> bool {
        matches!(self.outcome, Outcome::Granted | Outcome::Extended | Outcome::Raised)
    }
}
