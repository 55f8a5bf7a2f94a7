//! The typed error of everything below the commands: data, worded in Display alone. No status numbers, no printing.

use crate::lock::answer::{Blocker, Holder};
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
    NoQuorum { name: String, nodes: usize, reached: usize, faults: Vec<(String, Fault)> },
    /// No quorum can tell: these nodes were started too recently, and may have forgotten a lease.
    Young { name: String, nodes: Vec<(String, Duration)>, faults: Vec<(String, Fault)> },
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
                write!(f, "{one} and {other} are the same Redis, given twice: each node must be a server of its own")
            }
            Error::Held(held) => held.fmt(f),
            Error::CannotEnd(held) => {
                write!(f, "{:?} {}", held.name, held.situation(Duration::ZERO))?;
                f.write_str(match held.by {
                    Blocker::OtherType(_) => "; redlock does not delete it",
                    _ => {
                        "; its holder cannot be told to stop; --force frees it, though its holder may still be at work"
                    }
                })
            }
            Error::NoQuorum { name, faults, .. } => {
                // Without a name it is about all locks.
                let name = if name.is_empty() { String::new() } else { format!("{name:?}: ") };
                write!(f, "{name}{}; {}", self.trouble(), advice(faults))
            }
            Error::Young { name, .. } => {
                write!(f, "{name:?}: {}; wait, or lower --quarantine if no lease can have been lost", self.trouble())
            }
            Error::GrantedTooLate { name, .. } => write!(f, "{name:?}: {}; use a longer --ttl", self.trouble()),
            Error::LostBeforeStart { name, what } => {
                write!(f, "lost {name:?} before the command was started: {what}")
            }
            Error::NothingToEnter(name) => {
                write!(f, "the token does not hold {name:?} any more, so there is no lease to share")
            }
            Error::Unread => f.write_str("standard output was closed"),
            Error::Interrupted(signal) => write!(f, "interrupted by {}", signals::name(*signal)),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// There are no descriptors, or no memory, for what waiting takes. Trying again may help.
    pub(crate) fn cannot_wait(error: io::Error) -> Error {
        match host::shortage(&error) {
            Some(shortage) => Error::Shortage(format!("cannot ask any node: {shortage}")),
            None => Error::Internal(format!("cannot wait: {error}")),
        }
    }

    /// What went wrong, without the name of the lock where that comes first, and without what to do about it.
    pub(crate) fn trouble(&self) -> String {
        match self {
            Error::NoQuorum { nodes, reached, faults, .. } => {
                let needed = nodes / 2 + 1;
                let few = match *nodes > 1 {
                    true if *reached < needed => {
                        format!("{reached} of {nodes} nodes answered, and {needed} are needed")
                    }
                    true => format!("the {reached} of {nodes} nodes that answered do not agree"),
                    false => String::new(),
                };
                joined([few, listed(faults)], ": ")
            }
            Error::Young { nodes, faults, .. } => {
                let young = nodes
                    .iter()
                    .map(|(node, left)| format!("{node} was restarted and has no vote for {}", human(*left)));
                joined([young.collect::<Vec<_>>().join(", "), listed(faults)], ", ")
            }
            Error::GrantedTooLate { took, ttl, .. } => {
                let (took, ttl) = (human(*took), humantime::format_duration(*ttl));
                format!("the lease was granted too late to be used, after {took} of its {ttl}")
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
    faults.iter().map(|(_, fault)| fault.advice()).max().map_or("try again", |(_, advice)| advice)
}

/// The parts that say something.
fn joined(parts: [String; 2], between: &str) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(between)
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
                let text = "is held by something else: its key is not a string, as that of a lock is";
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
        let whose = if self.by_this_job { "the enclosing job, " } else { "" };
        let since = holder.held.map_or_else(String::new, |held| format!(", for {}", human(held + ago)));
        let revoked = holder.revoked.as_ref();
        let revoked = revoked.map_or_else(String::new, |by| format!(", revoked by {}", escaped(by, SHOWN)));
        format!("is held by {whose}{holder}{since}{revoked}{}", lease(holder.lease))
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.name, self.situation(Duration::ZERO))?;
        if let Some(waited) = self.waited {
            write!(f, "; gave up after {}", human(waited))?;
        }
        match (self.by_this_job, self.waited) {
            (true, _) => write!(f, "; {SHARES}"),
            (false, None) if self.by.never_ends() => f.write_str("; use another name or --prefix"),
            (false, None) => f.write_str("; use --wait to queue for it"),
            (false, Some(_)) => Ok(()),
        }
    }
}

/// What to do about a lock that the enclosing job has.
pub(crate) const SHARES: &str = "use --reentrant to share it";
