//! The typed error of everything below the commands. No numbers, no printing, no redis types.

use crate::lock::{Holder, escaped};
use crate::sys::signals;
use std::fmt;
use std::time::Duration;

/// How much of a host, user or label that somebody wrote is shown.
const SHOWN: usize = 60;

/// What went wrong, in one line that says what happened to which lock on which node and what to do next.
#[derive(Debug)]
pub(crate) enum Error {
    /// Bad flag, name, duration or URL, or a combination that cannot be safe.
    Usage(String),
    /// The lock is held by another, and the wait is over.
    Held(Box<Held>),
    /// No quorum of nodes could be reached, or they cannot serve now.
    Unavailable(String),
    /// Refused for good: password, ACL, certificate.
    Refused(String),
    /// The token does not hold the lock.
    NotHeld(String),
    /// The token does not hold the lock; this one does.
    HeldByOther(String, Box<Held>),
    /// The lease of this token has been ended by somebody, and is only good for being released.
    Revoked(String),
    /// The result could not be written.
    Output(String),
    /// Whoever was looking at what we show has seen enough.
    Unread,
    /// This signal ended our waiting.
    Interrupted(i32),
    /// A fault in redlock itself.
    Internal(String),
}

/// A lock that another one has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    pub(crate) name: String,
    /// Who has it, as far as is known: nothing of a lock that another library wrote.
    pub(crate) holder: Option<Holder>,
    /// What is left of the lease; none when it never expires.
    pub(crate) lease: Option<Duration>,
    /// How long we queued, when we did.
    pub(crate) waited: Option<Duration>,
    /// The key is of a type that no lock of ours has.
    pub(crate) other_type: bool,
    /// Free, but promised to the next in line.
    pub(crate) reserved: bool,
    /// The holder is the job that this redlock was started by.
    pub(crate) by_this_job: bool,
    /// Nobody wants the lock: it was to be freed.
    pub(crate) unwanted: bool,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(text)
            | Error::Unavailable(text)
            | Error::Refused(text)
            | Error::NotHeld(text)
            | Error::HeldByOther(text, _)
            | Error::Revoked(text)
            | Error::Output(text)
            | Error::Internal(text) => f.write_str(text),
            Error::Held(held) => held.fmt(f),
            Error::Unread => f.write_str("nobody reads standard output any more"),
            Error::Interrupted(signal) => {
                write!(f, "interrupted by {}", signals::name(*signal))
            }
        }
    }
}

impl std::error::Error for Error {}

/// Continues "held by …".
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.record {
            Some(record) => {
                let (user, host) = (escaped(&record.user, SHOWN), escaped(&record.host, SHOWN));
                write!(f, "{user}@{host}, pid {}", record.pid)?;
                if !record.label.is_empty() {
                    write!(f, " ({})", escaped(&record.label, SHOWN))?;
                }
                Ok(())
            }
            None if self.token.is_empty() => f.write_str("something that is not redlock"),
            None => write!(f, "something that is not redlock (its value begins with \"{}\")", self.short_token()),
        }
    }
}

impl Holder {
    /// The part of the token that may be shown: whoever has all of it can release the lock.
    pub(crate) fn short_token(&self) -> String {
        escaped(&self.token.chars().take(8).collect::<String>(), 8)
    }
}

impl Held {
    /// Whether there is anything to say about who has it.
    pub(crate) fn is_known(&self) -> bool {
        self.holder.is_some() || self.other_type || self.reserved
    }

    /// What is known of who has it, as it was so long `ago`: "is held by …, for 4m 12s, lease 21s left".
    pub(crate) fn situation(&self, ago: Duration) -> String {
        let record = self.holder.as_ref().and_then(|holder| holder.record.as_ref());
        let left = self.lease.map(|lease| lease.checked_sub(ago));
        let lease = match left {
            Some(Some(left)) => format!(", lease {} left", human(left)),
            Some(None) => String::new(), // renewed meanwhile
            None => ", and never expires".to_owned(),
        };
        let (holder, record) = match (&self.holder, record) {
            _ if self.other_type => {
                let text = "is held by something else: its key is of another type than redlock's locks";
                return format!("{text}{lease}");
            }
            _ if self.reserved => return "is free, but promised to the next in line".to_owned(),
            (_, Some(record)) if let Some(kept) = record.kept => {
                let host = escaped(&record.host, SHOWN);
                let left = left.flatten().map(human);
                let left = left.map_or_else(String::new, |left| format!(", kept for {left} more"));
                return format!("finished on {host} {} ago{left}", human(kept + ago));
            }
            (None, _) => return "is held by another".to_owned(),
            (Some(holder), record) => (holder, record),
        };
        let whose = match self.by_this_job {
            true => "this very job: ",
            false => "",
        };
        let since = record.map_or_else(String::new, |record| format!(", for {}", human(record.held + ago)));
        let revoked = record.and_then(|record| record.revoked.as_ref());
        let revoked = revoked.map_or_else(String::new, |by| format!(", revoked by {}", escaped(by, SHOWN)));
        format!("is held by {whose}{holder}{since}{revoked}{lease}")
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.name, self.situation(Duration::ZERO))?;
        match self.waited {
            Some(waited) => write!(f, "; gave up after {}", human(waited)),
            None if self.unwanted && self.other_type => write!(f, "; it is not redlock's to free"),
            None if self.unwanted => {
                write!(f, "; it cannot be told to stop, and --force frees it while its job may still run")
            }
            None if self.by_this_job => write!(f, "; {ENTERS}"),
            None => write!(f, "; --wait queues"),
        }
    }
}

/// What to do about a lock that the job around us has.
pub(crate) const ENTERS: &str = "--reentrant enters it once more";

/// A time for people: to the second, or to the millisecond when it is shorter.
pub(crate) fn human(time: Duration) -> String {
    let rounded = match time {
        t if t < Duration::from_secs(1) => Duration::from_millis(u64::try_from(t.as_millis()).unwrap_or(0)),
        t => Duration::from_secs((t + Duration::from_millis(500)).as_secs()),
    };
    humantime::format_duration(rounded).to_string()
}
