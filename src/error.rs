//! The typed error of everything below the commands: data, worded in Display alone. No status numbers, no printing.

use crate::lock::answer::Holder;
use crate::redis::Fault;
use crate::sys::{host, signals};
use crate::text::{escaped, human};
use std::fmt;
use std::io;
use std::time::Duration;

/// How much of a host, user or label that others wrote is shown.
const SHOWN: usize = 60;

/// What went wrong, in one line that says what happened to which lock on which node and what to do next.
#[derive(Debug)]
pub(crate) enum Error {
    /// Bad flag, name, duration or URL, or a combination that cannot be safe.
    Usage(String),
    /// Two addresses that lead to the same server.
    SameNode(String, String),
    /// The lock is held by another, and the wait is over.
    Held(Box<Held>),
    /// A lock of something that cannot be told to stop, or is not redlock's at all.
    CannotEnd(Box<Held>),
    /// No quorum of nodes has answered. Without a name it is about all locks under the prefix.
    NoQuorum { name: String, prefix: String, nodes: usize, reached: usize, faults: Vec<(String, Fault)> },
    /// No quorum can tell: these nodes were started too recently, and may have forgotten a lease.
    Young { name: String, nodes: Vec<(String, Duration)>, faults: Vec<(String, Fault)> },
    /// The nodes answer, and do not agree.
    Disagree(String),
    /// The nodes took so long to grant a lease that it was of no use any more.
    GrantedTooLate { name: String, took: Duration, ttl: Duration },
    /// The lease was lost before the command was started.
    LostBeforeStart { name: String, what: String },
    /// This machine lacks something that a job needs.
    Shortage(String),
    /// There is no lease to enter once more.
    NothingToEnter(String),
    /// The token does not hold the lock.
    NotHeld(String),
    /// The token does not hold the lock; this one does.
    HeldByOther(String, Box<Held>),
    /// The lease of this token was ended, and is only good for being released.
    Revoked(String),
    /// The result could not be written.
    Output(String),
    /// The reader of what is shown has seen enough.
    Unread,
    /// This signal ended the waiting.
    Interrupted(i32),
    /// A fault in redlock itself.
    Internal(String),
}

/// A lock that another one has.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) name: String,
    pub(crate) by: Blocker,
    /// How long we waited in line, when we did.
    pub(crate) waited: Option<Duration>,
    /// The holder is the job that this redlock was started by.
    pub(crate) by_this_job: bool,
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

impl Blocker {
    pub(crate) fn holder(&self) -> Option<&Holder> {
        match self {
            Blocker::Lease(holder) => Some(holder),
            _ => None,
        }
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(text)
            | Error::Shortage(text)
            | Error::NotHeld(text)
            | Error::HeldByOther(text, _)
            | Error::Revoked(text)
            | Error::Output(text)
            | Error::Internal(text) => f.write_str(text),
            Error::SameNode(one, other) => {
                write!(f, "{one} and {other} are the same Redis given twice: each node needs one of its own")
            }
            Error::Held(held) => held.fmt(f),
            Error::CannotEnd(held) => {
                write!(f, "{:?} {}", held.name, held.situation(Duration::ZERO))?;
                f.write_str(match held.by {
                    Blocker::OtherType(_) => "; it is not redlock's to free",
                    _ => "; it cannot be told to stop, and --force frees it while its job may still run",
                })
            }
            Error::NoQuorum { name, prefix, nodes, reached, faults } => {
                match name.as_str() {
                    "" => write!(f, "all locks under {prefix:?}")?,
                    name => write!(f, "{name:?}")?,
                }
                let needed = nodes / 2 + 1;
                match (*nodes > 1, *reached < needed) {
                    (true, true) => write!(f, ": {reached} of {nodes} nodes answered, {needed} are needed")?,
                    (true, false) => write!(f, ": the {reached} of {nodes} nodes that answered do not agree")?,
                    (false, _) => {}
                }
                match faults.as_slice() {
                    [] => f.write_str("; try again"),
                    faults => write!(f, ": {}; {}", listed(faults), advice(faults)),
                }
            }
            Error::Young { name, nodes, faults } => {
                let restarted: Vec<String> = nodes
                    .iter()
                    .map(|(node, left)| format!("{node} has restarted and cannot tell for {} yet", human(*left)))
                    .collect();
                write!(f, "{name:?}: {}", restarted.join(", "))?;
                if !faults.is_empty() {
                    write!(f, " ({})", listed(faults))?;
                }
                f.write_str("; wait, or lower --quarantine if no lease can have been lost")
            }
            Error::Disagree(name) => write!(f, "{name:?}: the nodes do not agree on who holds it; try again"),
            Error::GrantedTooLate { name, took, ttl } => write!(
                f,
                "{name:?} came too late to be used: the nodes took {} of {} to grant it; a longer --ttl helps",
                human(*took),
                humantime::format_duration(*ttl)
            ),
            Error::LostBeforeStart { name, what } => {
                write!(f, "lost {name:?} before the command was started: {what}")
            }
            Error::NothingToEnter(name) => {
                write!(f, "the token does not hold {name:?}: its lease has ended, so there is nothing to enter")
            }
            Error::Unread => f.write_str("standard output has no reader any more"),
            Error::Interrupted(signal) => write!(f, "interrupted by {}", signals::name(*signal)),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// There are no descriptors, or no memory, for what waiting takes. Trying again may help.
    pub(crate) fn cannot_wait(error: io::Error) -> Error {
        match host::shortage(&error) {
            Some(shortage) => Error::Shortage(format!("no node can be asked: {shortage}")),
            None => Error::Internal(format!("cannot wait: {error}")),
        }
    }

    /// The error without what to do about it.
    pub(crate) fn bare(&self) -> String {
        match self {
            Error::NoQuorum { .. } => {
                let text = self.to_string();
                text.rsplit_once("; ").map_or(text.clone(), |(what, _)| what.to_owned())
            }
            error => error.to_string(),
        }
    }
}

fn listed(faults: &[(String, Fault)]) -> String {
    faults.iter().map(|(node, fault)| format!("{node} {fault}")).collect::<Vec<_>>().join(", ")
}

/// What to do about nodes that fail.
fn advice(faults: &[(String, Fault)]) -> &'static str {
    let any = |is: fn(&Fault) -> bool| faults.iter().any(|(_, fault)| is(fault));
    if any(|fault| matches!(fault, Fault::Misconfigured(..))) {
        "check --redis"
    } else if any(|fault| matches!(fault, Fault::Refused(..))) {
        "check the user, its password and its permissions"
    } else if any(|fault| matches!(fault, Fault::CannotServe(..) | Fault::Shortage(_))) {
        "try again when it can"
    } else {
        "is --redis right, and Redis running there?"
    }
}

/// Continues "held by …".
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &Option<String>| escaped(text.as_deref().unwrap_or_default(), SHOWN);
        if !self.has_record() {
            return match self.token.as_str() {
                "" => f.write_str("something that is not redlock"),
                token => write!(
                    f,
                    "something that is not redlock (its value begins with \"{}\")",
                    escaped(&token.chars().take(8).collect::<String>(), 8)
                ),
            };
        }
        write!(f, "{}@{}, pid {}", shown(&self.user), shown(&self.host), self.pid.unwrap_or(0))?;
        match &self.label {
            Some(label) => write!(f, " ({})", escaped(label, SHOWN)),
            None => Ok(()),
        }
    }
}

impl Held {
    /// What is known of who has it, as it was so long `ago`: "is held by …, for 4m 12s, lease 21s left".
    pub(crate) fn situation(&self, ago: Duration) -> String {
        let lease = |lease: Option<Duration>| match lease.map(|lease| lease.checked_sub(ago)) {
            Some(Some(left)) => format!(", lease {} left", human(left)),
            Some(None) => String::new(), // renewed meanwhile
            None => ", and never expires".to_owned(),
        };
        let holder = match &self.by {
            Blocker::Unknown => return "is held by another".to_owned(),
            Blocker::Reserved(_) => return "is free, but promised to the next in line".to_owned(),
            Blocker::OtherType(left) => {
                let text = "is held by something else: its key is of another type than redlock's locks";
                return format!("{text}{}", lease(*left));
            }
            Blocker::Lease(holder) => holder,
        };
        if let Some(kept) = holder.kept {
            let host = escaped(holder.host.as_deref().unwrap_or_default(), SHOWN);
            let left = holder.lease.and_then(|lease| lease.checked_sub(ago));
            let left = left.map_or_else(String::new, |left| format!(", kept for {} more", human(left)));
            return format!("finished on {host} {} ago{left}", human(kept + ago));
        }
        let whose = if self.by_this_job { "this very job: " } else { "" };
        let since = holder.held.map_or_else(String::new, |held| format!(", for {}", human(held + ago)));
        let revoked = holder.revoked.as_ref();
        let revoked = revoked.map_or_else(String::new, |by| format!(", revoked by {}", escaped(by, SHOWN)));
        format!("is held by {whose}{holder}{since}{revoked}{}", lease(holder.lease))
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.name, self.situation(Duration::ZERO))?;
        match self.waited {
            Some(waited) => write!(f, "; gave up after {}", human(waited)),
            None if self.by_this_job => write!(f, "; {ENTERS}"),
            None => f.write_str("; use --wait to queue for it"),
        }
    }
}

/// What to do about a lock that the job around us has.
pub(crate) const ENTERS: &str = "--reentrant shares it";
