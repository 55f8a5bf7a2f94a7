//! What the scripts answer, as types. Each script's header says what its answers look like; here alone they are read.

use super::token;
use crate::redis::{FromReply, Reply};
use serde::{Serialize, Serializer};
use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

/// Which run of a server has answered: told apart by its run_id from the same server restarted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// How long it has been up, to the second; none where INFO is refused.
    pub(crate) uptime: Option<Duration>,
    /// None where INFO is refused.
    pub(crate) run_id: Option<String>,
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

/// What keeps a lock from being taken.
#[derive(Clone, Debug, Default)]
pub(crate) enum Blocker {
    Lease(Box<Holder>),
    /// A key of a type that no lock has, and what is left of its life.
    OtherType(Option<Duration>),
    /// It is free, but promised for so long to the next in line, or to its holder of before a restart.
    Reserved(Option<Duration>),
    #[default]
    Unknown,
}

/// Where a waiter stands on one node.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// How many are before it; none when it is not in line.
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
        by: Blocker,
        from: Identity,
        standing: Standing,
    },
    /// The node is in quarantine, and does not know the lock.
    Young {
        from: Identity,
    },
}

/// What a script answers that is asked about one lease.
#[derive(Clone, Debug)]
pub(super) enum OfLease<A> {
    /// The lease is there, and this has come of it.
    Known(A),
    /// The lock is free.
    Gone(Identity),
    /// Another has the lock.
    Other(Blocker),
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
    /// The hold that was named has been given up.
    NoHold,
    /// Re-creation only: the server was restarted since it was asked.
    Restarted,
    /// Re-creation only: the lock has had a later holder.
    Higher,
}

/// What `enter.lua` answers.
#[derive(Clone, Debug)]
pub(super) struct Entered {
    pub(super) fencing_token: u64,
    pub(super) holds: u64,
    pub(super) lasts: Option<Duration>,
    pub(super) ttl: Option<Duration>,
    pub(super) from: Identity,
}

/// What `release.lua` answers: how many holds are left. With none, the lock is free, or kept for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoldsLeft(pub(super) u64);

/// What `revoke.lua` answers.
#[derive(Clone, Debug)]
pub(super) enum Revoke {
    Revoked(Holder),
    Released(Holder),
    /// What has the lock cannot be told to stop.
    Foreign(Blocker),
}

/// What `holds.lua` answers.
#[derive(Clone, Debug)]
pub(super) struct Newest {
    pub(super) hold: String,
    pub(super) entered: u64,
}

/// What `fence.lua` answers: whether the node stands at the fencing token of the lease now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raised(pub(super) bool);

/// What `leave.lua` and `rollback.lua` answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left;

/// What `inspect.lua` answers.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// None when the lock is free.
    pub(super) by: Option<Blocker>,
    /// Not known of a key of another type.
    pub(super) waiting: Option<u64>,
    /// Told by a node where it is free or reserved.
    from: Option<Identity>,
}

impl Identity {
    fn read(reply: &Reply) -> Identity {
        let uptime = reply.text(0).parse().ok().map(Duration::from_secs);
        Identity { uptime, run_id: Some(reply.text(1).to_owned()).filter(|run_id| !run_id.is_empty()) }
    }
}

impl Blocker {
    fn lease(reply: &Reply) -> Blocker {
        Blocker::Lease(Box::new(Holder::read(reply)))
    }

    pub(crate) fn holder(&self) -> Option<&Holder> {
        match self {
            Blocker::Lease(holder) => Some(holder),
            _ => None,
        }
    }

    /// Whether waiting for its end is in vain: another library's, or another key, without an expiry.
    pub(crate) fn never_ends(&self) -> bool {
        matches!(self, Blocker::Lease(holder) if holder.lease.is_none()) || matches!(self, Blocker::OtherType(None))
    }

    /// How long it lasts unless it is extended; none when that is for ever, or not known.
    pub(crate) fn left(&self) -> Option<Duration> {
        match self {
            Blocker::Lease(holder) => holder.lease,
            Blocker::OtherType(left) | Blocker::Reserved(left) => *left,
            Blocker::Unknown => None,
        }
    }
}

impl Holder {
    /// `{word, value, PTTL, owner record}`
    fn read(reply: &Reply) -> Holder {
        let bare = Holder { token: reply.text(1).to_owned(), lease: millis(reply, 2), ..Holder::default() };
        let fields = reply.at(3).items().chunks_exact(2);
        let record: HashMap<_, _> =
            fields.filter_map(|field| Some((field[0].as_text()?, field[1].as_text()?))).collect();
        if !record.contains_key("token") {
            return bare;
        }
        let number = |name: &str| record.get(name).and_then(|text| text.parse::<u64>().ok());
        // Zero is a server that refuses TIME.
        let micros = |name: &str| number(name).filter(|&micros| micros > 0).map(Duration::from_micros);
        let ago = |name: &str| Some(micros("now")?.saturating_sub(micros(name)?));
        let text = |name: &str| record.get(name).map(|text| text.chars().take(256).collect::<String>());
        Holder {
            host: Some(text("host").unwrap_or_default()),
            pid: number("pid"),
            user: Some(text("user").unwrap_or_default()),
            label: text("label").filter(|label| !label.is_empty()),
            acquired_at: micros("since"),
            held: ago("since"),
            fencing_token: number("fence"),
            ttl: number("ttl").map(Duration::from_millis),
            kept: record.get("kept").map(|_| ago("kept").unwrap_or_default()),
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

/// What the answers of different scripts have in common.
pub(super) trait ScriptAnswer: FromReply {
    /// What else has the lock there, if anything; an error when the node did not know the lock before it was asked: which
    /// run of the server that is.
    fn blocker(&self) -> Result<Option<&Blocker>, &Identity>;
}

impl ScriptAnswer for Take {
    fn blocker(&self) -> Result<Option<&Blocker>, &Identity> {
        match self {
            Take::Granted { from, .. } | Take::Young { from } => Err(from),
            Take::Held { by, .. } => Ok(Some(by)),
        }
    }
}

impl<A: FromReply> ScriptAnswer for OfLease<A> {
    fn blocker(&self) -> Result<Option<&Blocker>, &Identity> {
        match self {
            OfLease::Known(_) => Ok(None),
            OfLease::Gone(from) => Err(from),
            OfLease::Other(by) => Ok(Some(by)),
        }
    }
}

impl ScriptAnswer for Seen {
    fn blocker(&self) -> Result<Option<&Blocker>, &Identity> {
        self.from.as_ref().map_or(Ok(self.by.as_ref()), Err)
    }
}

impl<A> OfLease<A> {
    pub(super) fn known(&self) -> Option<&A> {
        match self {
            OfLease::Known(answer) => Some(answer),
            _ => None,
        }
    }
}

impl Take {
    pub(super) fn from(&self) -> &Identity {
        match self {
            Take::Granted { from, .. } | Take::Held { from, .. } | Take::Young { from } => from,
        }
    }
}

impl FromReply for Take {
    fn is_confirmation(&self) -> bool {
        matches!(self, Take::Granted { .. })
    }

    fn from_reply(reply: &Reply) -> Option<Take> {
        // A key of another type is told without a place in line.
        let held = |by, at| {
            let standing = Standing {
                rank: reply.count(at + 1),
                ticket: reply.text(at + 2).to_owned(),
                just_queued: reply.int(at + 3) == Some(1),
            };
            Take::Held { by, from: Identity::read(reply.at(at)), standing }
        };
        Some(match reply.text(0) {
            "granted" => Take::Granted { counter: reply.count(1)?, from: Identity::read(reply.at(2)) },
            // Not by its value: that of another library may be empty.
            "held" if reply.int(8) == Some(1) => held(Blocker::Reserved(millis(reply, 2)), 4),
            "held" => held(Blocker::lease(reply), 4),
            "foreign" => held(Blocker::OtherType(millis(reply, 2)), 3),
            "young" => Take::Young { from: Identity::read(reply.at(2)) },
            _ => return None,
        })
    }
}

impl<A: FromReply> FromReply for OfLease<A> {
    fn is_confirmation(&self) -> bool {
        self.known().is_some_and(A::is_confirmation)
    }

    fn from_reply(reply: &Reply) -> Option<OfLease<A>> {
        Some(match (reply.text(0), reply.text(1)) {
            ("gone", _) => OfLease::Gone(Identity::read(reply.at(1))),
            // An empty value stands for a key of another type.
            ("other", "") => OfLease::Other(Blocker::OtherType(millis(reply, 2))),
            ("other", _) => OfLease::Other(Blocker::lease(reply)),
            _ => OfLease::Known(A::from_reply(reply)?),
        })
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
            "no-hold" => Extend::NoHold,
            "restarted" => Extend::Restarted,
            "higher" => Extend::Higher,
            _ => return None,
        })
    }
}

impl FromReply for Entered {
    fn is_confirmation(&self) -> bool {
        true
    }

    fn from_reply(reply: &Reply) -> Option<Entered> {
        Some(match reply.text(0) {
            "granted" => Entered {
                fencing_token: reply.count(1)?,
                holds: reply.count(2)?,
                lasts: millis(reply, 3),
                ttl: reply.count(4).filter(|&ttl| ttl > 0).map(Duration::from_millis),
                from: Identity::read(reply.at(5)),
            },
            _ => return None,
        })
    }
}

impl FromReply for HoldsLeft {
    fn from_reply(reply: &Reply) -> Option<HoldsLeft> {
        Some(match reply.text(0) {
            "released" => HoldsLeft(0),
            "still-held" => HoldsLeft(reply.count(1)?),
            _ => return None,
        })
    }
}

impl FromReply for Revoke {
    fn from_reply(reply: &Reply) -> Option<Revoke> {
        Some(match (reply.text(0), reply.text(1)) {
            ("revoked", _) => Revoke::Revoked(Holder::read(reply)),
            ("released", _) => Revoke::Released(Holder::read(reply)),
            // Another library's lease: whose it is cannot be told.
            ("foreign", "string") => {
                Revoke::Foreign(Blocker::Lease(Box::new(Holder { lease: millis(reply, 2), ..Holder::default() })))
            }
            ("foreign", _) => Revoke::Foreign(Blocker::OtherType(millis(reply, 2))),
            _ => return None,
        })
    }
}

impl FromReply for Newest {
    fn from_reply(reply: &Reply) -> Option<Newest> {
        Some(match reply.text(0) {
            "holds" => Newest { hold: reply.text(1).to_owned(), entered: reply.count(2).unwrap_or(0) },
            _ => return None,
        })
    }
}

impl FromReply for Raised {
    fn is_confirmation(&self) -> bool {
        self.0
    }

    fn from_reply(reply: &Reply) -> Option<Raised> {
        Some(match reply.text(0) {
            "granted" => Raised(true),
            "higher" | "gone" => Raised(false),
            _ => return None,
        })
    }
}

impl FromReply for Left {
    fn from_reply(reply: &Reply) -> Option<Left> {
        (reply.text(0) == "left").then_some(Left)
    }
}

impl FromReply for Seen {
    fn from_reply(reply: &Reply) -> Option<Seen> {
        Some(match reply.text(0) {
            "free" => {
                let reserved = (reply.int(3) == Some(1)).then(|| Blocker::Reserved(millis(reply, 1)));
                Seen { by: reserved, waiting: Some(reply.count(2)?), from: Some(Identity::read(reply.at(5))) }
            }
            "held" => {
                let mut holder = Holder::read(reply);
                holder.holds = reply.count(4).filter(|_| holder.has_record());
                Seen { by: Some(Blocker::Lease(Box::new(holder))), waiting: Some(reply.count(5)?), from: None }
            }
            "foreign" => Seen { by: Some(Blocker::OtherType(millis(reply, 2))), waiting: None, from: None },
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
