//! Who has a lease: what we write about ourselves, and what we read about others.

use super::node::Reply;
use crate::sys;
use std::time::Duration;

/// Who has a lease, as its owner record says; all but the token is unknown of a lock that another library wrote.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holder {
    pub(crate) token: String,
    pub(crate) record: Option<Record>,
}

/// What the holder has written into Redis, together with the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) user: String,
    pub(crate) label: String,
    pub(crate) fencing_token: u64,
    pub(crate) ttl: Duration,
    /// When it got the lock, by the server's clock: time since 1970.
    pub(crate) since: Duration,
    /// How long it has had the lock.
    pub(crate) held: Duration,
    /// How long ago its job ended, for a lock that is kept for a while (`--hold-at-least`).
    pub(crate) kept: Option<Duration>,
    /// Who has revoked it.
    pub(crate) revoked: Option<String>,
}

impl Holder {
    /// Of the holder `token` with what HGETALL answered for its record.
    pub(super) fn of(token: &str, record: &Reply) -> Holder {
        let field = |name: &str| {
            let mut pairs = record.items().chunks_exact(2);
            pairs.find_map(|pair| match pair {
                [Reply::Text(key), Reply::Text(value)] if key == name => Some(value.clone()),
                _ => None,
            })
        };
        let number = |name: &str| field(name).and_then(|text| text.parse::<u64>().ok());
        let micros = |name: &str| number(name).map(Duration::from_micros);
        let now = micros("now").unwrap_or_default();
        let since = micros("since").unwrap_or_default();
        let record = field("token").map(|_| Record {
            host: field("host").unwrap_or_default(),
            pid: number("pid").and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default(),
            user: field("user").unwrap_or_default(),
            label: field("label").unwrap_or_default(),
            fencing_token: number("fence").unwrap_or_default(),
            ttl: Duration::from_millis(number("ttl").unwrap_or_default()),
            since,
            held: now.saturating_sub(since),
            kept: micros("kept").map(|kept| now.saturating_sub(kept)),
            revoked: field("revoked"),
        });
        Holder { token: token.to_owned(), record }
    }
}

/// What we write about ourselves, or whoever we act for: host, pid, user, label. Never the job's arguments, which may hold
/// secrets.
pub(super) fn owner(pid: u32, label: &str) -> [String; 4] {
    [sys::host::name(), pid.to_string(), sys::host::user(), label.to_owned()]
}

/// How we sign a revocation.
pub(super) fn signature() -> String {
    format!("{}@{}", sys::host::user(), sys::host::name())
}
