//! Every exit status of `redlock` with its sentence. The only file with status numbers.

use crate::error::Error;
use crate::lock::quorum;
use crate::redis::Fault;
use nix::errno::Errno;
use nix::libc;

/// The end of this process. Statuses 64 to 78 are those of BSD's sysexits(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done; for `run`, the command exited 0.
    Done,
    /// `run`: the command's own status, 0 to 255.
    Command(u8),
    /// `run -E N` and `acquire -E N`: the user's status for "held by another".
    Conflict(u8),
    /// `status --ran-within`: no run succeeded in that time.
    NotRecent,
    /// The same for a monitoring plugin: a problem, and what cannot be told.
    Critical,
    CannotTell,
    /// Bad flag, name, duration, URL, or a combination that cannot be safe.
    Usage,
    /// No quorum of nodes could be reached, or the server cannot serve now.
    Unavailable,
    /// A fault in redlock itself.
    Internal,
    /// The result could not be written.
    Output,
    /// The lock is held by another, and the wait is over.
    Held,
    /// `run`: the lease was lost while the command ran.
    Lost,
    /// The token does not hold the lock.
    NotHeld,
    /// Refused for good: password, ACL, certificate.
    Refused,
    /// `run --max-run`: the job ran too long and was stopped.
    TooLong,
    /// `run`: the command cannot be executed.
    CannotExecute,
    /// `run`: the command was not found.
    NotFound,
    /// The command was killed by this signal, or the wait was ended by it.
    Signal(i32),
}

impl Exit {
    /// The status that a failure ends with.
    pub(crate) fn of(error: &anyhow::Error) -> Exit {
        error.downcast_ref().map_or(Exit::Internal, Exit::of_error)
    }

    pub(crate) fn of_error(error: &Error) -> Exit {
        match error {
            Error::Usage(_) | Error::OtherShape(..) => Exit::Usage,
            Error::Held(_) | Error::Ran { .. } | Error::CannotEnd(_) => Exit::Held,
            Error::LostBeforeStart { taken: true, .. } => Exit::Held,
            Error::NoQuorum { nodes, faults, .. } => Exit::of_faults(*nodes, faults.iter().map(|(_, fault)| fault)),
            Error::GrantedTooLate { .. } | Error::LostBeforeStart { .. } | Error::Unavailable(_) => Exit::Unavailable,
            Error::NotOurs { .. } => Exit::NotHeld,
            Error::NoCommand { errno: Errno::ENOENT, .. } => Exit::NotFound,
            Error::NoCommand { .. } => Exit::CannotExecute,
            Error::Output(_) => Exit::Output,
            Error::Interrupted(signal) => Exit::Signal(*signal),
            Error::Internal(_) => Exit::Internal,
            Error::DidNotRun { why, .. } => Exit::of_error(why),
        }
    }

    /// The exit when no quorum of `nodes` has answered. It is permanent only if too many nodes refuse for good.
    fn of_faults<'a>(nodes: usize, faults: impl Iterator<Item = &'a Fault> + Clone) -> Exit {
        let enough = |is: fn(&Fault) -> bool| faults.clone().filter(|fault| is(fault)).count() + quorum(nodes) > nodes;
        if enough(|fault| matches!(fault, Fault::Misconfigured(..))) {
            Exit::Usage
        } else if enough(Fault::is_final) {
            Exit::Refused
        } else {
            Exit::Unavailable
        }
    }

    /// The status of `-E` instead of that of "held by another", if given.
    pub(crate) fn or_conflict(self, chosen: Option<u8>) -> Exit {
        match (self, chosen) {
            (Exit::Held, Some(status)) => Exit::Conflict(status),
            _ => self,
        }
    }

    /// True for SIGPIPE: a program whose reader is gone prints nothing.
    pub(crate) fn is_silent(self) -> bool {
        self == Exit::Signal(libc::SIGPIPE)
    }

    /// True if `--quiet` silences the message: `-E` has declared what a held lock means, and the user sent the signal.
    pub(crate) fn is_talk(self) -> bool {
        matches!(self, Exit::Conflict(_) | Exit::Signal(_))
    }

    /// The status number; for [`Exit::Signal`] what a shell would show as `$?`.
    pub(crate) fn status(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Command(status) | Exit::Conflict(status) => status,
            Exit::NotRecent => 1,
            Exit::Critical => 2,
            Exit::CannotTell => 3,
            Exit::Usage => 64,
            Exit::Unavailable => 69,
            Exit::Internal => 70,
            Exit::Output => 74,
            Exit::Held => 75,
            Exit::Lost => 76,
            Exit::NotHeld => 77,
            Exit::Refused => 78,
            Exit::TooLong => 124,
            Exit::CannotExecute => 126,
            Exit::NotFound => 127,
            Exit::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }
}
