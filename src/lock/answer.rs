//! What the scripts answer, as types. Each script's header says what its answers look like; here alone they are read.

use super::token;
use crate::redis::{FromReply, Reply};
use serde::{Serialize, Serializer};
use std::time::{Duration, UNIX_EPOCH};

/// Which run of a server has answered: told apart by its run_id from the same server restarted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// How long it has been up, to the second; none where INFO is refused.
    pub(crate) uptime: Option<Duration>,
    /// Empty where INFO is refused.
    pub(crate) run_id: String,
}

/// Who has a lock, as its key and its owner record say. All but the token is unknown of a lock of another library.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Holder {
    #[serde(rename = "token_prefix", serialize_with = "shown")]
    pub(crate) token: String,
    pub(crate) host: Option<String>,
    pub(crate) pid: Option<u64>,
    pub(crate) user: Option<String>,
    pub(crate) label: Option<String>,
    /// By the server's clock: time since 1970.
    #[serde(serialize_with = "date")]
    pub(crate) acquired_at: Option<Duration>,
    #[serde(rename = "held_ms", serialize_with = "ms")]
    pub(crate) held: Option<Duration>,
    pub(crate) fencing_token: Option<u64>,
    pub(crate) holds: Option<u64>,
    /// The ttl that the lease was taken with.
    #[serde(rename = "ttl_ms", serialize_with = "ms")]
    pub(crate) ttl: Option<Duration>,
    /// What is left of the lease; none when it never expires or is not known.
    #[serde(rename = "lease_ms", serialize_with = "ms")]
    pub(crate) lease: Option<Duration>,
    /// How long ago its job ended, for a lock that is kept for a while (`--hold-at-least`).
    #[serde(skip)]
    pub(crate) kept: Option<Duration>,
    /// Who has revoked it.
    #[serde(skip)]
    pub(crate) revoked: Option<String>,
}

/// What has the lock on one node.
#[derive(Clone, Debug)]
pub(crate) enum Holding {
    Lease(Box<Holder>),
    /// A key of a type that no lock has, and what is left of its life.
    OtherType(Option<Duration>),
}

/// Where a waiter stands on one node; none is not in line.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// How many are before it.
    pub(super) rank: Option<u64>,
    pub(super) ticket: String,
    /// It was not in line before this request.
    pub(super) just_queued: bool,
}

/// What `take.lua` answers.
#[derive(Clone, Debug)]
pub(super) enum Take {
    Granted {
        counter: u64,
        from: Identity,
    },
    Held {
        by: Holding,
        from: Identity,
        standing: Standing,
    },
    /// Free, and kept for the next in line, or for the holder of before a restart, for this long.
    Reserved {
        left: Option<Duration>,
        from: Identity,
        standing: Standing,
    },
    /// The node is in quarantine for this long still, and does not know the lock.
    Young {
        left: Duration,
        from: Identity,
        standing: Standing,
    },
}

/// What `extend.lua` and `recreate.lua` answer.
#[derive(Clone, Debug)]
pub(super) enum Extend {
    /// It lasts this long from now, for ever if none.
    Extended {
        lasts: Option<Duration>,
        holds: u64,
        from: Identity,
    },
    Revoked {
        by: String,
    },
    Gone {
        from: Identity,
    },
    /// The lease is there; the hold that was named has been given up.
    NoHold,
    Other(Holding),
    /// Re-creation only: the server was restarted since it was asked.
    Restarted,
    /// Re-creation only: the lock has had a later holder.
    Higher,
}

/// What `enter.lua` answers.
#[derive(Clone, Debug)]
pub(super) enum Enter {
    Granted { fencing_token: u64, holds: u64, lasts: Option<Duration>, ttl: Option<Duration>, from: Identity },
    Gone { from: Identity },
    Other,
}

/// What `release.lua` answers.
#[derive(Clone, Debug)]
pub(super) enum Release {
    Released,
    StillHeld { holds: u64 },
    Gone { from: Identity },
    Other(Holding),
}

/// What `revoke.lua` answers.
#[derive(Clone, Debug)]
pub(super) enum Revoke {
    Revoked(Holder),
    Released(Holder),
    Gone { from: Identity },
    Other(Holder),
    Foreign(Holding),
}

/// What `holds.lua` answers.
#[derive(Clone, Debug)]
pub(super) enum Holds {
    Newest { hold: String, entered: u64 },
    Gone { from: Identity },
}

/// What `fence.lua` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fence {
    Granted,
    Higher,
    Gone,
}

/// What `leave.lua` and `rollback.lua` answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left;

/// What `inspect.lua` answers.
#[derive(Clone, Debug)]
pub(super) enum Inspect {
    /// `reserved` is how long it is still kept for the next in line, if it is.
    Free {
        reserved: Option<Duration>,
        waiting: u64,
        from: Identity,
    },
    Held {
        holder: Holder,
        waiting: u64,
    },
    OtherType {
        lease: Option<Duration>,
    },
}

impl Identity {
    fn read(reply: &Reply) -> Identity {
        let seconds = reply.text(0).parse().ok();
        Identity { uptime: seconds.map(Duration::from_secs), run_id: reply.text(1).to_owned() }
    }
}

impl Holding {
    /// `{word, value, PTTL, owner record}`; an empty value without a record stands for a key of another type.
    fn read(reply: &Reply) -> Holding {
        match reply.text(1) {
            "" => Holding::OtherType(millis(reply, 2)),
            _ => Holding::Lease(Box::new(Holder::read(reply))),
        }
    }

    pub(super) fn lease(&self) -> Option<Duration> {
        match self {
            Holding::Lease(holder) => holder.lease,
            Holding::OtherType(lease) => *lease,
        }
    }
}

impl Holder {
    /// `{word, value, PTTL, owner record}`
    fn read(reply: &Reply) -> Holder {
        let bare = Holder { token: reply.text(1).to_owned(), lease: millis(reply, 2), ..Holder::default() };
        let record = reply.at(3);
        let field = |name: &str| {
            let mut pairs = record.items().chunks_exact(2);
            pairs.find_map(|pair| match pair {
                [Reply::Text(key), Reply::Text(value)] if key == name => Some(value.clone()),
                _ => None,
            })
        };
        if field("token").is_none() {
            return bare;
        }
        let number = |name: &str| field(name).and_then(|text| text.parse::<u64>().ok());
        // Zero is a server that refuses TIME.
        let micros = |name: &str| number(name).filter(|&micros| micros > 0).map(Duration::from_micros);
        let ago = |name: &str| Some(micros("now")?.saturating_sub(micros(name)?));
        let text = |name: &str| field(name).map(|text| text.chars().take(256).collect::<String>());
        Holder {
            host: Some(text("host").unwrap_or_default()),
            pid: number("pid"),
            user: Some(text("user").unwrap_or_default()),
            label: text("label").filter(|label| !label.is_empty()),
            acquired_at: micros("since"),
            held: ago("since"),
            fencing_token: number("fence"),
            ttl: number("ttl").map(Duration::from_millis),
            kept: field("kept").map(|_| ago("kept").unwrap_or_default()),
            revoked: text("revoked"),
            ..bare
        }
    }

    /// Whether redlock wrote it, and not another library.
    pub(crate) fn has_record(&self) -> bool {
        self.host.is_some()
    }

    /// The part of the token that may be shown.
    pub(crate) fn short_token(&self) -> String {
        token::shown(&self.token)
    }

    /// The longest that this lease can have been good for, as far as it is known.
    pub(crate) fn longest(&self) -> Duration {
        self.ttl.max(self.lease).unwrap_or_default()
    }
}

impl Standing {
    fn read(reply: &Reply, at: usize) -> Standing {
        Standing {
            rank: reply.count(at),
            ticket: reply.text(at + 1).to_owned(),
            just_queued: reply.int(at + 2) == Some(1),
        }
    }
}

/// An answer that may say that the node does not know the lease.
pub(super) trait Absence {
    /// Which run of the server does not know it; none when it does.
    fn absent(&self) -> Option<&Identity>;
}

macro_rules! absent_when_gone {
    ($($answer:ident),*) => {$(
        impl Absence for $answer {
            fn absent(&self) -> Option<&Identity> {
                match self {
                    $answer::Gone { from } => Some(from),
                    _ => None,
                }
            }
        }
    )*};
}

absent_when_gone!(Extend, Enter, Release, Revoke, Holds);

impl Absence for Inspect {
    fn absent(&self) -> Option<&Identity> {
        match self {
            Inspect::Free { from, .. } => Some(from),
            _ => None,
        }
    }
}

impl FromReply for Take {
    fn is_confirmation(&self) -> bool {
        matches!(self, Take::Granted { .. })
    }

    fn from_reply(reply: &Reply) -> Option<Take> {
        let nowhere = Standing { rank: None, ticket: String::new(), just_queued: false };
        Some(match reply.text(0) {
            "granted" => Take::Granted { counter: reply.count(1)?, from: Identity::read(reply.at(2)) },
            "held" => {
                let (from, standing) = (Identity::read(reply.at(4)), Standing::read(reply, 5));
                match reply.int(8) {
                    Some(1) => Take::Reserved { left: millis(reply, 2), from, standing },
                    // Not by its value: that of another library may be empty.
                    _ => Take::Held { by: Holding::Lease(Box::new(Holder::read(reply))), from, standing },
                }
            }
            "foreign" => Take::Held {
                by: Holding::OtherType(millis(reply, 2)),
                from: Identity::read(reply.at(3)),
                standing: nowhere,
            },
            "young" => Take::Young {
                left: Duration::from_secs(reply.count(1)?),
                from: Identity::read(reply.at(2)),
                standing: Standing::read(reply, 3),
            },
            _ => return None,
        })
    }
}

impl Take {
    pub(super) fn from(&self) -> &Identity {
        match self {
            Take::Granted { from, .. }
            | Take::Held { from, .. }
            | Take::Reserved { from, .. }
            | Take::Young { from, .. } => from,
        }
    }

    /// Where the waiter stands; none where it got the lock.
    pub(super) fn standing(&self) -> Option<&Standing> {
        match self {
            Take::Granted { .. } => None,
            Take::Held { standing, .. } | Take::Reserved { standing, .. } | Take::Young { standing, .. } => {
                Some(standing)
            }
        }
    }
}

impl FromReply for Extend {
    fn is_confirmation(&self) -> bool {
        matches!(self, Extend::Extended { .. })
    }

    fn from_reply(reply: &Reply) -> Option<Extend> {
        Some(match reply.text(0) {
            "extended" => {
                Extend::Extended { lasts: millis(reply, 1), holds: reply.count(2)?, from: Identity::read(reply.at(4)) }
            }
            "revoked" => Extend::Revoked { by: reply.text(1).to_owned() },
            "gone" => Extend::Gone { from: Identity::read(reply.at(1)) },
            "no-hold" => Extend::NoHold,
            "other" => Extend::Other(Holding::read(reply)),
            "restarted" => Extend::Restarted,
            "higher" => Extend::Higher,
            _ => return None,
        })
    }
}

impl FromReply for Enter {
    fn is_confirmation(&self) -> bool {
        matches!(self, Enter::Granted { .. })
    }

    fn from_reply(reply: &Reply) -> Option<Enter> {
        Some(match reply.text(0) {
            "granted" => Enter::Granted {
                fencing_token: reply.count(1)?,
                holds: reply.count(2)?,
                lasts: millis(reply, 3),
                ttl: reply.count(4).filter(|&ttl| ttl > 0).map(Duration::from_millis),
                from: Identity::read(reply.at(5)),
            },
            "gone" => Enter::Gone { from: Identity::read(reply.at(1)) },
            "other" => Enter::Other,
            _ => return None,
        })
    }
}

impl FromReply for Release {
    fn from_reply(reply: &Reply) -> Option<Release> {
        Some(match reply.text(0) {
            "released" => Release::Released,
            "still-held" => Release::StillHeld { holds: reply.count(1)? },
            "gone" => Release::Gone { from: Identity::read(reply.at(1)) },
            "other" => Release::Other(Holding::read(reply)),
            _ => return None,
        })
    }
}

impl FromReply for Revoke {
    fn from_reply(reply: &Reply) -> Option<Revoke> {
        Some(match reply.text(0) {
            "revoked" => Revoke::Revoked(Holder::read(reply)),
            "released" => Revoke::Released(Holder::read(reply)),
            "gone" => Revoke::Gone { from: Identity::read(reply.at(1)) },
            "other" => Revoke::Other(Holder::read(reply)),
            "foreign" => Revoke::Foreign(match reply.text(1) {
                // Another library's lease: whose it is cannot be told.
                "string" => Holding::Lease(Box::new(Holder { lease: millis(reply, 2), ..Holder::default() })),
                _ => Holding::OtherType(millis(reply, 2)),
            }),
            _ => return None,
        })
    }
}

impl FromReply for Holds {
    fn from_reply(reply: &Reply) -> Option<Holds> {
        Some(match reply.text(0) {
            "holds" => Holds::Newest { hold: reply.text(1).to_owned(), entered: reply.count(2).unwrap_or(0) },
            "gone" => Holds::Gone { from: Identity::read(reply.at(1)) },
            _ => return None,
        })
    }
}

impl FromReply for Fence {
    fn is_confirmation(&self) -> bool {
        matches!(self, Fence::Granted)
    }

    fn from_reply(reply: &Reply) -> Option<Fence> {
        Some(match reply.text(0) {
            "granted" => Fence::Granted,
            "higher" => Fence::Higher,
            "gone" => Fence::Gone,
            _ => return None,
        })
    }
}

impl FromReply for Left {
    fn from_reply(reply: &Reply) -> Option<Left> {
        (reply.text(0) == "left").then_some(Left)
    }
}

impl FromReply for Inspect {
    fn from_reply(reply: &Reply) -> Option<Inspect> {
        Some(match reply.text(0) {
            "free" => Inspect::Free {
                reserved: (reply.int(3) == Some(1)).then(|| millis(reply, 1).unwrap_or_default()),
                waiting: reply.count(2)?,
                from: Identity::read(reply.at(5)),
            },
            "held" => {
                let holder = Holder::read(reply);
                let holds = reply.count(4).filter(|_| holder.has_record());
                Inspect::Held { holder: Holder { holds, ..holder }, waiting: reply.count(5)? }
            }
            "foreign" => Inspect::OtherType { lease: millis(reply, 2) },
            _ => return None,
        })
    }
}

/// A PTTL; none when the key never expires.
fn millis(reply: &Reply, at: usize) -> Option<Duration> {
    reply.count(at).map(Duration::from_millis)
}

fn shown<S: Serializer>(token: &str, to: S) -> Result<S::Ok, S::Error> {
    token::shown(token).serialize(to)
}

fn ms<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).serialize(to)
}

/// To the second, in UTC; null when what was written is a time that no calendar has.
fn date<S: Serializer>(since: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    since.and_then(rfc3339).serialize(to)
}

/// A time since 1970 as a date, if there is one.
pub(crate) fn rfc3339(since: Duration) -> Option<String> {
    use std::fmt::Write;
    let mut text = String::new();
    write!(text, "{}", humantime::format_rfc3339_seconds(UNIX_EPOCH.checked_add(since)?)).ok()?;
    Some(text)
}
