//! The holders of a lock: the answer of each node, and the agreement of the majority.

use crate::lock::terms::claim::Claim;
use crate::lock::terms::owner::Owner;
use crate::lock::terms::token;
use crate::lock::votes::quorum::reached;
use crate::redis::Reply;
use crate::text::{SHOWN_OF_TOKEN, escaped, rfc3339};
use serde::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// Read from the lock's key and the owner record. Of another library's lock only the token and the lease are known.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Holder {
    /// Another library's token may be any bytes, of any length: this has the first 128, or for a revocation all.
    #[serde(rename = "token_prefix", serialize_with = "shown")]
    pub(crate) token: Vec<u8>,
    #[serde(skip)]
    pub(crate) claim: Claim,
    pub(crate) slot: Option<u32>,
    #[serde(flatten)]
    pub(crate) owner: Owner,
    /// Time since 1970 by the server's clock.
    #[serde(serialize_with = "date")]
    pub(crate) acquired_at: Option<Duration>,
    #[serde(rename = "held_ms", serialize_with = "ms")]
    pub(crate) held: Option<Duration>,
    pub(crate) fencing_token: Option<u64>,
    pub(crate) holds: Option<u64>,
    /// The ttl with which the lease was taken.
    #[serde(rename = "ttl_ms", serialize_with = "ms")]
    pub(crate) ttl: Option<Duration>,
    /// None if the lease never expires, or if the time that is left is not known.
    #[serde(rename = "lease_ms", serialize_with = "ms")]
    pub(crate) lease: Option<Duration>,
    /// The ttl that renewals ask for; zero if nothing renews the lease, none if that is not known.
    #[serde(rename = "renewal_ms", serialize_with = "ms")]
    pub(crate) renewal: Option<Duration>,
    /// Who revoked the lease: `deploy@web-3`.
    #[serde(skip)]
    pub(crate) revoked: Option<String>,
    /// True if the run has `--once-per`.
    #[serde(skip)]
    pub(in crate::lock) is_once: bool,
    /// True if its call named its label.
    #[serde(skip)]
    pub(in crate::lock) has_label: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) enum Obstacle {
    Leases(Leases),
    /// The key has a type that no lock has, and expires after this time; none if it never expires.
    OtherType(Option<Duration>),
    /// The lock has room, but is reserved for this time (none: not known): for a waiter, or for the holder that held it
    /// before a restart.
    Reserved(Option<Duration>),
    /// Nobody gets the lock: this user (`root@ops`) has closed it, for this long.
    Closed(String, Duration),
    #[default]
    Unknown,
}

/// The leases on a lock, at least one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leases {
    /// Those that the nodes named: all, or some of many.
    pub(crate) holders: Vec<Holder>,
    pub(crate) count: u64,
    /// The time until the first of all leases runs out, unless it is extended. None if the node did not report it: then
    /// only the ends of the leases in `holders` are known.
    pub(in crate::lock) next: Option<Duration>,
}

/// Continues "held by …": "deploy@web-3, pid 4121 (nightly)".
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.owner.who(true), self.short_token().as_str()) {
            (Some(who), _) => f.write_str(&who),
            (None, "") => f.write_str("another program"),
            (None, token) => write!(f, "another program (the key's value begins with \"{token}\")"),
        }
    }
}

impl Holder {
    pub(super) fn read(fields: &Reply) -> Holder {
        let token = fields.get("value").as_bytes().unwrap_or_default().to_vec();
        let lease = fields.get("left").as_time();
        let claim = fields.get("claim").as_text().and_then(Claim::of).unwrap_or_default();
        let slot = fields.get("slot").as_small_count();
        if !fields.has("token") {
            return Holder { token, claim, slot, lease, ..Holder::default() };
        }
        let micros = |name: &str| fields.get(name).as_count().map(Duration::from_micros);
        let ago = |name: &str| Some(micros("now")?.saturating_sub(micros(name)?));
        let ttl = fields.get("ttl").as_time();
        let holds = fields.get("holds").as_count();
        let renewal = match fields.get("renewal").as_time().or(ttl) {
            // A job has re-entered this lease of acquire, and renews it. The record does not have the job's ttl.
            Some(Duration::ZERO) if holds.is_some_and(|holds| holds > 1) => None,
            renewal => renewal,
        };
        let text = |name: &str| fields.get(name).as_text().map(|text| text.chars().take(256).collect::<String>());
        Holder {
            token,
            claim,
            slot,
            owner: Owner {
                host: Some(text("host").unwrap_or_default()),
                pid: fields.get("pid").as_count(),
                user: text("user"),
                label: text("label").filter(|label| !label.is_empty()),
            },
            acquired_at: micros("since"),
            held: ago("since"),
            fencing_token: fields.get("fence").as_count(),
            holds,
            ttl,
            lease,
            renewal,
            revoked: text("revoked"),
            is_once: fields.has("once"),
            has_label: fields.get("once").as_text() == Some("labelled"),
        }
    }

    /// True if redlock took the lock, and not another library.
    pub(crate) fn has_record(&self) -> bool {
        self.owner.host.is_some()
    }

    /// True if nothing that could stop a job renews the lease: it is another library's, or of a plain `acquire`.
    pub(crate) fn cannot_be_stopped(&self) -> bool {
        !self.has_record() || self.renewal == Some(Duration::ZERO)
    }

    /// The part of the token that may be shown, safe for a terminal.
    pub(crate) fn short_token(&self) -> String {
        escaped(&token::shown(&String::from_utf8_lossy(&self.token)), SHOWN_OF_TOKEN)
    }

    /// The owner without the pid: "deploy@web-3 (nightly)"; for an unknown owner, the same words as Display.
    pub(crate) fn in_short(&self) -> String {
        self.owner.who(false).unwrap_or_else(|| self.to_string())
    }

    pub(crate) fn begins_with(&self, text: &str) -> bool {
        self.token.starts_with(text.as_bytes())
    }

    /// True if the token names this holder's lease, or a hold of that lease.
    pub(crate) fn has(&self, token: &str) -> bool {
        let stem = |token| token::split(token).0.to_owned();
        std::str::from_utf8(&self.token).is_ok_and(|own| stem(own) == stem(token))
    }

    pub(crate) fn longest(&self) -> Duration {
        self.ttl.max(self.lease).unwrap_or_default()
    }

    /// One holder from `same`, what several nodes say about its lease, which lasts as long as `needed` nodes have it.
    pub(in crate::lock) fn agreed(same: &[&Holder], needed: usize) -> Holder {
        // The record with the highest fencing token is the newest.
        let best =
            same.iter().max_by_key(|holder| holder.fencing_token).map_or_else(Holder::default, |&best| best.clone());
        // A lease without a known end counts as the longest.
        let left = same.iter().map(|holder| holder.lease.unwrap_or(Duration::MAX)).collect();
        let lease = reached(left, needed).filter(|&left| left < Duration::MAX);
        Holder { lease, holds: same.iter().filter_map(|holder| holder.holds).max(), ..best }
    }
}

impl Obstacle {
    /// The holders of a lock that is not free, or a key of another type.
    pub(in crate::lock) fn read(answer: &Reply) -> Obstacle {
        let listed = answer.get("holders").items();
        if let Some(other) = listed.iter().find(|holder| holder.has("type")) {
            return Obstacle::OtherType(other.get("left").as_time());
        }
        let mut holders: Vec<Holder> = Vec::new();
        for holder in listed.iter().map(Holder::read) {
            // A holder may be in the answer twice: as one of the first, and as the one named in the request.
            if holders.iter().all(|known| known.token != holder.token) {
                holders.push(holder);
            }
        }
        let count = answer.get("members").as_count().unwrap_or(0).max(holders.len() as u64);
        Obstacle::Leases(Leases { holders, count, next: answer.get("next").as_time() })
    }

    /// The closure that this answer reports; none if the lock is open. `left`: the field with the time until it opens.
    pub(in crate::lock) fn closed(answer: &Reply, left: &str) -> Option<Obstacle> {
        let by = answer.get("closed").as_text()?.chars().take(100).collect();
        Some(Obstacle::Closed(by, answer.get(left).as_time()?))
    }

    pub(crate) fn holders(&self) -> &[Holder] {
        match self {
            Obstacle::Leases(leases) => &leases.holders,
            _ => &[],
        }
    }

    /// True if leases of these tokens block a waiter: with slots if all leases are theirs, otherwise if one is.
    pub(in crate::lock) fn is_held_by(&self, tokens: &[String]) -> bool {
        let is_theirs = |holder: &Holder| tokens.iter().any(|token| holder.has(token));
        match self {
            Obstacle::Leases(leases) if matches!(self.claim(), Claim::Slots(_)) => {
                leases.holders.iter().filter(|holder| is_theirs(holder)).count() as u64 == leases.count
            }
            _ => self.holders().iter().any(is_theirs),
        }
    }

    /// The claim of all the leases; exclusive for any other obstacle.
    pub(crate) fn claim(&self) -> Claim {
        self.holders().first().map(|holder| holder.claim).unwrap_or_default()
    }

    /// True if the obstacle has no expiry, so that waiting is in vain: the key of another library, or of another type.
    pub(crate) fn never_ends(&self) -> bool {
        let lease_never_ends = self.holders().iter().any(|holder| holder.lease.is_none());
        lease_never_ends || matches!(self, Obstacle::OtherType(None))
    }

    /// The time until the obstacle may end, unless a lease is extended. None if it never ends, or if that is not known.
    pub(crate) fn left(&self) -> Option<Duration> {
        match self {
            Obstacle::Leases(Leases { holders, next, .. }) => {
                next.or_else(|| holders.iter().filter_map(|holder| holder.lease).min())
            }
            Obstacle::OtherType(left) | Obstacle::Reserved(left) => *left,
            Obstacle::Closed(_, left) => Some(*left),
            Obstacle::Unknown => None,
        }
    }

    /// True if two nodes show the same obstacle: a common lease, or the same kind of another obstacle.
    fn is(&self, other: &Obstacle) -> bool {
        match (self, other) {
            (Obstacle::Leases(ours), Obstacle::Leases(theirs)) => {
                ours.holders.iter().any(|holder| theirs.holders.iter().any(|their| their.token == holder.token))
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// The holders that the nodes name, grouped by lease; a token and a slot identify a lease.
pub(in crate::lock) fn leases<'a>(obstacles: &[&'a Obstacle]) -> Vec<Vec<&'a Holder>> {
    let mut leases: Vec<Vec<&Holder>> = Vec::new();
    for holder in obstacles.iter().flat_map(|by| by.holders()) {
        match leases.iter_mut().find(|same| same[0].token == holder.token && same[0].slot == holder.slot) {
            Some(same) => same.push(holder),
            None => leases.push(vec![holder]),
        }
    }
    leases
}

/// The index of the obstacle that most nodes name, and the number of those nodes; none without obstacles.
pub(in crate::lock) fn most_named(obstacles: &[&Obstacle]) -> Option<(usize, usize)> {
    let votes = |by: &Obstacle| obstacles.iter().filter(|other| by.is(other)).count();
    let weight = |by: &Obstacle| (votes(by), by.holders().iter().any(|holder| !holder.token.is_empty()));
    let most = obstacles.iter().enumerate().max_by_key(|(_, by)| weight(by))?;
    Some((most.0, votes(most.1)))
}

fn shown<S: Serializer>(token: &[u8], to: S) -> Result<S::Ok, S::Error> {
    token::shown(&String::from_utf8_lossy(token)).serialize(to)
}

pub(in crate::lock) fn ms<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).serialize(to)
}

/// A date in UTC; null without a time, or if it is too large for a date.
pub(in crate::lock) fn date<S: Serializer>(since: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    since.and_then(rfc3339).serialize(to)
}
