//! The answers of the scripts, as types. Each script's header names the fields.

use super::fields::Fields;
use super::holder::{Blocker, Holder, Leases};
use super::log::Run;
use super::waiter::Waiter;
use crate::redis::{FromReply, Reply};
use std::time::Duration;

/// The identity of a node: its run_id differs after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// The time since its start, to the second; none where INFO is refused.
    pub(super) uptime: Option<Duration>,
    /// None where INFO is refused.
    pub(super) run_id: Option<String>,
    /// The longest ttl of the leases that it has on the lock, if several can hold it.
    pub(super) longest: Option<Duration>,
}

/// The place of a waiter on one node.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The number of waiters ahead of it; none when it is not in line.
    pub(super) rank: Option<u64>,
    pub(super) ticket: Option<String>,
    /// It was not in line before this request.
    pub(super) just_queued: bool,
}

/// The answer of one script.
pub(super) trait Answer: Sized {
    /// None when the script never answers so.
    fn read(outcome: &str, fields: Fields<'_>) -> Option<Self>;

    /// True if a lease rests on it, so that `--replicas` applies.
    fn is_confirmation(&self) -> bool {
        false
    }

    /// `Ok` with what else has the lock, if anything, when the node knew the lock before it was asked; `Err` with the node's
    /// identity when it did not.
    fn blocker(&self) -> Result<Option<&Blocker>, &Identity> {
        Ok(None)
    }
}

impl<A: Answer> FromReply for A {
    fn from_reply(reply: &Reply) -> Option<A> {
        let fields = Fields::of(reply);
        A::read(fields.text("outcome")?, fields)
    }

    fn is_confirmation(&self) -> bool {
        Answer::is_confirmation(self)
    }
}

impl Identity {
    fn read(fields: Fields<'_>) -> Identity {
        let node = fields.inner("node");
        let run_id = node.text("run").filter(|run| !run.is_empty()).map(str::to_owned);
        Identity { uptime: node.count("uptime").map(Duration::from_secs), run_id, longest: fields.time("longest") }
    }
}

impl Blocker {
    /// The holders of a lock that is not free; a key of another type is told in the place of one.
    fn read(fields: Fields<'_>) -> Blocker {
        match fields.each("holders").find(|holder| holder.has("type")) {
            Some(other) => Blocker::OtherType(other.time("left")),
            None => {
                let holders = holders(fields);
                let count = fields.count("members").unwrap_or(0).max(holders.len() as u64);
                let (next, longest) = (fields.time("next"), fields.time("longest"));
                Blocker::Leases(Leases { holders, count, next, longest })
            }
        }
    }
}

fn place(fields: Fields<'_>) -> Option<u32> {
    fields.count("place").and_then(|place| u32::try_from(place).ok())
}

fn holders(fields: Fields<'_>) -> Vec<Holder> {
    fields.each("holders").map(Holder::read).collect()
}

/// The answer of `take.lua`.
#[derive(Clone, Debug)]
pub(super) struct TakeAnswer {
    pub(super) node: Identity,
    pub(super) outcome: TakeOutcome,
    /// Places that are free there, of a lock with slots.
    pub(super) free: Vec<u32>,
}

#[derive(Clone, Debug)]
pub(super) enum TakeOutcome {
    /// With this fencing token, at this place if the lock has slots.
    Granted(u64, Option<u32>),
    Held(Blocker, Place),
    /// Others hold it in another way, or with another number of slots.
    OtherShape(Blocker),
    /// The node is in quarantine, and does not know the lock.
    Young,
    /// With `once_per`: this run has succeeded.
    Ran(Box<Run>),
}

impl TakeAnswer {
    pub(super) fn is_granted(&self) -> bool {
        matches!(self.outcome, TakeOutcome::Granted(..))
    }

    /// True if it has granted the lock at this place; none: a lock without places.
    pub(super) fn is_granted_at(&self, place: Option<u32>) -> bool {
        matches!(self.outcome, TakeOutcome::Granted(_, at) if at == place)
    }

    /// True if others stand in the way.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.outcome, TakeOutcome::Held(..) | TakeOutcome::OtherShape(_))
    }
}

impl Answer for TakeAnswer {
    fn read(outcome: &str, fields: Fields<'_>) -> Option<TakeAnswer> {
        let place = || Place {
            rank: fields.count("rank"),
            ticket: fields.text("ticket").map(str::to_owned),
            just_queued: fields.has("queued"),
        };
        let outcome = match outcome {
            "granted" => TakeOutcome::Granted(fields.count("fence")?, self::place(fields)),
            "other-shape" => TakeOutcome::OtherShape(Blocker::read(fields)),
            "held" => TakeOutcome::Held(Blocker::read(fields), place()),
            "reserved" => TakeOutcome::Held(Blocker::Reserved(fields.time("left")), place()),
            "young" => TakeOutcome::Young,
            "ran" => TakeOutcome::Ran(Box::new(Run::read_all(fields).pop()?)),
            _ => return None,
        };
        Some(TakeAnswer { node: Identity::read(fields), outcome, free: fields.numbers("free") })
    }

    fn is_confirmation(&self) -> bool {
        self.is_granted()
    }

    fn blocker(&self) -> Result<Option<&Blocker>, &Identity> {
        match &self.outcome {
            TakeOutcome::Held(by, _) | TakeOutcome::OtherShape(by) => Ok(Some(by)),
            TakeOutcome::Ran(_) => Ok(None),
            TakeOutcome::Granted(..) | TakeOutcome::Young => Err(&self.node),
        }
    }
}

/// The answer of a script that is asked about one lease.
#[derive(Clone, Debug)]
pub(super) enum LeaseAnswer<A> {
    /// The lease is there, and this has come of it.
    Known(A),
    /// The lock is free.
    Gone(Identity),
    /// Others have the lock.
    Other(Blocker),
}

impl<A> LeaseAnswer<A> {
    pub(super) fn known(&self) -> Option<&A> {
        match self {
            LeaseAnswer::Known(answer) => Some(answer),
            _ => None,
        }
    }
}

impl<A: Answer> Answer for LeaseAnswer<A> {
    fn read(outcome: &str, fields: Fields<'_>) -> Option<LeaseAnswer<A>> {
        Some(match outcome {
            "gone" => LeaseAnswer::Gone(Identity::read(fields)),
            "other" => LeaseAnswer::Other(Blocker::read(fields)),
            _ => LeaseAnswer::Known(A::read(outcome, fields)?),
        })
    }

    fn is_confirmation(&self) -> bool {
        self.known().is_some_and(Answer::is_confirmation)
    }

    fn blocker(&self) -> Result<Option<&Blocker>, &Identity> {
        match self {
            LeaseAnswer::Known(_) => Ok(None),
            LeaseAnswer::Gone(node) => Err(node),
            LeaseAnswer::Other(by) => Ok(Some(by)),
        }
    }
}

/// A lease as a node has it now.
#[derive(Clone, Debug)]
pub(super) struct Confirmation {
    /// It lasts this long from now, forever if none.
    pub(super) left: Option<Duration>,
    pub(super) holds: u64,
    /// Its place, of a lock with slots.
    pub(super) place: Option<u32>,
    /// The hold for which it was renewed is not known there.
    pub(super) forgotten: bool,
    pub(super) node: Identity,
    /// When a hold enters: its fencing token, and the ttl that it was taken with; none of another library's.
    pub(super) fence: Option<u64>,
    pub(super) ttl: Option<Duration>,
}

/// The answer of `extend.lua`, `enter.lua` and `recreate.lua`.
#[derive(Clone, Debug)]
pub(super) enum ExtendAnswer {
    Extended(Confirmation),
    Revoked {
        by: String,
    },
    /// The hold that was named has been released.
    NoHold,
    /// Re-creation only: the server was restarted since it was asked.
    Restarted,
    /// Re-creation only: the lock has had a later holder.
    Higher,
    /// Renewal only: the lease was released by its token, and has left a note.
    Released,
}

impl LeaseAnswer<ExtendAnswer> {
    pub(super) fn extended(&self) -> Option<&Confirmation> {
        match self {
            LeaseAnswer::Known(ExtendAnswer::Extended(extended)) => Some(extended),
            _ => None,
        }
    }
}

impl Answer for ExtendAnswer {
    fn read(outcome: &str, fields: Fields<'_>) -> Option<ExtendAnswer> {
        Some(match outcome {
            "extended" => ExtendAnswer::Extended(Confirmation {
                left: fields.time("left"),
                holds: fields.count("holds")?,
                place: place(fields),
                forgotten: fields.has("forgotten"),
                node: Identity::read(fields),
                fence: fields.count("fence"),
                ttl: fields.time("ttl"),
            }),
            "revoked" => ExtendAnswer::Revoked { by: fields.text("by")?.to_owned() },
            "no-hold" => ExtendAnswer::NoHold,
            "restarted" => ExtendAnswer::Restarted,
            "higher" => ExtendAnswer::Higher,
            "released" => ExtendAnswer::Released,
            _ => return None,
        })
    }

    fn is_confirmation(&self) -> bool {
        matches!(self, ExtendAnswer::Extended(_))
    }
}

/// The answer of `release.lua`: the number of holds left. With none, the lock is free, or kept for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReleaseAnswer(pub(super) u64);

impl Answer for ReleaseAnswer {
    fn read(outcome: &str, fields: Fields<'_>) -> Option<ReleaseAnswer> {
        match outcome {
            "released" => Some(ReleaseAnswer(0)),
            "still-held" => fields.count("holds").map(ReleaseAnswer),
            _ => None,
        }
    }
}

/// The answer of `revoke.lua`.
#[derive(Clone, Debug)]
pub(super) enum RevokeAnswer {
    Revoked(Vec<Holder>),
    Released(Vec<Holder>),
    /// The holder cannot be told to stop.
    Foreign(Blocker),
}

impl Answer for RevokeAnswer {
    fn read(outcome: &str, fields: Fields<'_>) -> Option<RevokeAnswer> {
        Some(match outcome {
            "revoked" => RevokeAnswer::Revoked(holders(fields)),
            "released" => RevokeAnswer::Released(holders(fields)),
            "foreign" => RevokeAnswer::Foreign(Blocker::read(fields)),
            _ => return None,
        })
    }
}

/// The answer of `holds.lua`: the larger `entered`, the later.
#[derive(Clone, Debug)]
pub(super) struct NewestHold {
    pub(super) hold: String,
    pub(super) entered: u64,
}

impl Answer for NewestHold {
    fn read(_: &str, fields: Fields<'_>) -> Option<NewestHold> {
        Some(NewestHold { hold: fields.text("hold")?.to_owned(), entered: fields.count("entered")? })
    }
}

/// The answer of `fence.lua`: true if the node stands at the fencing token of the lease now.
#[derive(Clone, Copy, Debug)]
pub(super) struct FenceAnswer(pub(super) bool);

impl Answer for FenceAnswer {
    fn read(outcome: &str, _: Fields<'_>) -> Option<FenceAnswer> {
        Some(FenceAnswer(outcome == "raised"))
    }

    fn is_confirmation(&self) -> bool {
        self.0
    }
}

/// The answer of `leave.lua` and `rollback.lua`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done;

impl Answer for Done {
    fn read(outcome: &str, _: Fields<'_>) -> Option<Done> {
        (outcome == "done").then_some(Done)
    }
}

/// The answer of `inspect.lua`; by default that of a lock that is free.
#[derive(Clone, Debug, Default)]
pub(super) struct StatusAnswer {
    /// None when the lock is free.
    pub(super) by: Option<Blocker>,
    pub(super) waiting: u64,
    /// The first in line, if they were asked for.
    pub(super) waiters: Option<Vec<Waiter>>,
    /// The last runs, if they were asked for.
    pub(super) runs: Vec<Run>,
    /// Told by a node where no lease is known.
    node: Option<Identity>,
}

impl Answer for StatusAnswer {
    fn read(outcome: &str, fields: Fields<'_>) -> Option<StatusAnswer> {
        let (by, node) = match outcome {
            "free" => (None, Some(Identity::read(fields))),
            "reserved" => (Some(Blocker::Reserved(fields.time("left"))), Some(Identity::read(fields))),
            "held" => (Some(Blocker::read(fields)), None),
            _ => return None,
        };
        Some(StatusAnswer {
            by,
            waiting: fields.count("waiting")?,
            waiters: Waiter::read_all(fields),
            runs: Run::read_all(fields),
            node,
        })
    }

    fn blocker(&self) -> Result<Option<&Blocker>, &Identity> {
        self.node.as_ref().map_or(Ok(self.by.as_ref()), Err)
    }
}
