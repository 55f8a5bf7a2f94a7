//! Every exit status of `redlock` with its meaning. The help in cli/mod.rs has these numbers, too.

use crate::error::Error;
use crate::lock::quorum;
use crate::redis::Fault;
use nix::errno::Errno;
use nix::libc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// A status of redlock itself.
    Status(u8),
    /// `run`: the command's own status, 0 to 255.
    Command(u8),
    /// `run -E N` and `acquire -E N`: the user's status N, instead of [`Exit::HELD`].
    Conflict(u8),
    /// This signal killed the command of `run`, or ended the call.
    Signal(i32),
}

/// Statuses 64 to 78 have the meanings of BSD's sysexits(3), as far as these fit.
impl Exit {
    /// Done. (If the command of `run` exited with 0, the exit is [`Exit::Command`].)
    pub(crate) const DONE: Exit = Exit::Status(0);
    /// `check`: something is wrong, or there is nothing to check. With `--format nagios`: a warning.
    pub(crate) const NOT_IN_ORDER: Exit = Exit::Status(1);
    /// With `--format nagios`: a lock is overdue, or its last run has failed.
    pub(crate) const CRITICAL: Exit = Exit::Status(2);
    /// With `--format nagios`: the result is not known, or the call failed.
    pub(crate) const CANNOT_TELL: Exit = Exit::Status(3);
    /// A bad flag, name, duration or URL; a combination that cannot be safe; a claim other than that of the holders.
    pub(crate) const USAGE: Exit = Exit::Status(64);
    /// No quorum of nodes can be reached, or can serve now. Or a lease was granted too late, or was lost before use. Or
    /// this machine lacks memory or the like, or the keeper was killed. For `doctor`: a check has failed.
    pub(crate) const UNAVAILABLE: Exit = Exit::Status(69);
    /// redlock has a bug.
    pub(crate) const INTERNAL: Exit = Exit::Status(70);
    /// The result could not be written.
    pub(crate) const OUTPUT: Exit = Exit::Status(74);
    /// The lock is held, or was taken away before the start; or `--once-per` or `--newest` forbids the run.
    pub(crate) const HELD: Exit = Exit::Status(75);
    /// `run`: the lease was lost while the command ran.
    pub(crate) const LOST: Exit = Exit::Status(76);
    /// The token does not hold the lock, its lease was revoked, or there is no lease to revoke.
    pub(crate) const NOT_HELD: Exit = Exit::Status(77);
    /// No quorum is left, because too many nodes refuse for good (password, ACL, certificate). Or this machine refuses
    /// what redlock needs (a sandbox, a /proc of others), or the directory of `local:` is refused.
    pub(crate) const REFUSED: Exit = Exit::Status(78);
    /// `run --max-run`: the job ran too long and was stopped.
    pub(crate) const TOO_LONG: Exit = Exit::Status(124);
    /// `run`: the command cannot be executed.
    pub(crate) const CANNOT_EXECUTE: Exit = Exit::Status(126);
    /// `run`: the command was not found.
    pub(crate) const NOT_FOUND: Exit = Exit::Status(127);

    pub(crate) fn of(error: &anyhow::Error) -> Exit {
        error.downcast_ref().map_or(Exit::INTERNAL, Exit::of_error)
    }

    pub(crate) fn of_error(error: &Error) -> Exit {
        match error {
            Error::Usage(_) | Error::OtherClaim(..) => Exit::USAGE,
            Error::NotNeeded { .. } => Exit::Conflict(0),
            Error::Held(_) | Error::InUse(_) | Error::Superseded { .. } | Error::CannotEnd(_) => Exit::HELD,
            Error::LostBeforeStart { taken: true, .. } => Exit::HELD,
            Error::NoQuorum { nodes, faults, .. } => Exit::of_faults(*nodes, faults.iter().map(|(_, fault)| fault)),
            Error::GrantedTooLate { .. } | Error::LostBeforeStart { .. } | Error::Unavailable(_) => Exit::UNAVAILABLE,
            Error::Refused(_) => Exit::REFUSED,
            Error::NotOurs { .. } => Exit::NOT_HELD,
            Error::NoCommand { errno: Errno::ENOENT, .. } => Exit::NOT_FOUND,
            Error::NoCommand { .. } => Exit::CANNOT_EXECUTE,
            Error::Output(_) => Exit::OUTPUT,
            Error::Interrupted(signal) => Exit::Signal(*signal),
            Error::DidNotRun { why, .. } => Exit::of_error(why),
        }
    }

    /// The exit when no quorum of `nodes` has answered: [`Exit::USAGE`] if too many addresses are wrong,
    /// [`Exit::REFUSED`] if too many nodes refuse for good, else [`Exit::UNAVAILABLE`], because waiting may help.
    fn of_faults<'a>(nodes: usize, faults: impl Iterator<Item = &'a Fault> + Clone) -> Exit {
        let enough = |is: fn(&Fault) -> bool| faults.clone().filter(|fault| is(fault)).count() + quorum(nodes) > nodes;
        if enough(|fault| matches!(fault, Fault::Misconfigured(..))) {
            Exit::USAGE
        } else if enough(Fault::is_final) {
            Exit::REFUSED
        } else {
            Exit::UNAVAILABLE
        }
    }

    /// Replaces [`Exit::HELD`], and the 0 of a call that is not needed, by the status that `-E` gives, if any.
    pub(crate) fn or_conflict(self, chosen: Option<u8>) -> Exit {
        match (self, chosen) {
            (Exit::HELD | Exit::Conflict(_), Some(status)) => Exit::Conflict(status),
            _ => self,
        }
    }

    /// True for SIGPIPE: a program whose reader has closed the pipe prints nothing.
    pub(crate) fn is_silent(self) -> bool {
        self == Exit::Signal(libc::SIGPIPE)
    }

    /// True if `--quiet` may silence the message: the user expects a held lock (`-E`), or has sent the signal.
    pub(crate) fn is_talk(self) -> bool {
        matches!(self, Exit::Conflict(_) | Exit::Signal(_))
    }

    /// The status number; for [`Exit::Signal`] the number that a shell shows as `$?`.
    pub(crate) fn status(self) -> u8 {
        match self {
            Exit::Status(status) | Exit::Command(status) | Exit::Conflict(status) => status,
            Exit::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }
}
