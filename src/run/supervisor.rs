//! The parts of a run that all its phases use: the call, the signals, and the keeper.

use super::messages::Messages;
use super::renewal::Renewer;
use super::timeline::Timeline;
use crate::error::Error;
use crate::keeper::{Keeper, Order, Recipient, Report, Task};
use crate::lock::{Lease, Lock, Request};
use crate::sys::process::{self, Reap};
use crate::sys::signals::{self, SignalEvent, Signals};
use crate::sys::tree;
use crate::sys::wait::Readable;
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::path::PathBuf;

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) task: Task,
    /// The file of `--keep-errors`.
    pub(crate) errors: Option<PathBuf>,
    pub(crate) continue_when_lost: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
}

/// Signals that go to the command alone, except SIGHUP when the terminal goes away: see [`Supervisor::forward`]. All
/// others go to the whole job.
const TO_COMMAND: [i32; 5] = [libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH, libc::SIGCONT];

/// Signals that the kernel sends to the whole group in the foreground of a terminal.
const OF_TERMINAL: [i32; 5] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGWINCH, libc::SIGCONT];

pub(super) struct Supervisor {
    pub(super) job: Job,
    /// The messages about the job and all its locks.
    pub(super) messages: Messages,
    pub(super) signals: Readable<Signals>,
    pub(super) keeper: Readable<Keeper>,
    /// True if the job is in redlock's process group, and so gets the terminal's signals.
    pub(super) terminal: bool,
}

impl Supervisor {
    pub(super) fn handled_signals() -> SigSet {
        let mut mask = signals::not_ignored(signals::for_others());
        mask.add(Signal::SIGCHLD);
        mask
    }

    pub(super) fn messages_of(&self, lock: &Lock) -> Messages {
        Messages::new([lock.name.as_str()], self.job.quiet, self.job.verbose)
    }

    pub(super) fn renewer(&self, lock: &Lock, lease: &Lease, to_expiry: bool) -> Renewer {
        let timeline = Timeline::new(lease.ttl, self.job.task.kill_after, lock.node_timeout());
        Renewer::new(self.messages_of(lock), timeline, to_expiry, lease)
    }

    /// Sends the keeper an order. Ignores a failure, because the keeper's end is reported anyway.
    pub(super) fn order(&self, order: &Order) {
        let _ = self.keeper.get().send(order);
    }

    /// The keeper's next report; none if the keeper has ended.
    pub(super) async fn next_report(&self) -> Option<Report> {
        self.keeper.next(|keeper| keeper.receive().arrived()).await
    }

    /// Tells the keeper of a signal. The keeper passes it on to the job, or to the command alone, unless the terminal
    /// has already sent it to the job.
    pub(super) fn forward(&self, SignalEvent { signal, from_kernel }: SignalEvent) {
        // When the terminal goes away, the kernel sends SIGHUP to the leader of the session only.
        let hangs_up = from_kernel && signal == libc::SIGHUP && process::leads_session();
        let to_job = hangs_up || !TO_COMMAND.contains(&signal);
        let of_terminal = from_kernel && self.terminal && OF_TERMINAL.contains(&signal);
        let to = match (of_terminal && !hangs_up, to_job) {
            // The terminal has sent the signal to the whole group, the job included.
            (true, _) => Recipient::KeeperOnly,
            (false, true) => Recipient::Job,
            (false, false) => Recipient::Command,
        };
        self.order(&Order::Signal { signal, to });
    }

    pub(super) async fn next_signal(&self) -> SignalEvent {
        self.signals.next(next_signal).await
    }

    /// The error for a pending signal that ends redlock while there is no job. None if no such signal is pending.
    pub(super) fn pending_interruption(&self) -> Option<Error> {
        next_interruption(self.signals.get()).map(Error::Interrupted)
    }

    /// Waits for an event that ends a run before it has a job: a signal, or the end of the keeper.
    pub(super) async fn interrupted(&self) -> Error {
        tokio::select! {
            biased;
            signal = self.signals.next(next_interruption) => Error::Interrupted(signal),
            report = self.next_report() => match report {
                Some(Report::SetUpFailure { errno }) => cannot_supervise(Errno::from_raw(errno)),
                _ => keeper_gone(),
            },
        }
    }
}

/// The next pending signal, except SIGCHLD. Reaps children on the way: a killed keeper, and orphans, because this
/// process adopts them.
fn next_signal(signals: &Signals) -> Option<SignalEvent> {
    loop {
        let event = signals.next()?;
        if event.signal != libc::SIGCHLD {
            return Some(event);
        }
        while let Reap::Child(..) = process::reap() {}
    }
}

/// The next pending signal that ends redlock while there is no job.
fn next_interruption(signals: &Signals) -> Option<i32> {
    std::iter::from_fn(|| next_signal(signals)).map(|event| event.signal).find(|&signal| signals::ends(signal))
}

pub(super) fn cannot_supervise(errno: Errno) -> Error {
    Error::of_system(CANNOT_SUPERVISE, &errno.into())
}

const CANNOT_SUPERVISE: &str = "cannot supervise the job";

/// Fails if redlock cannot find a process's descendants, to kill them in time.
pub(super) fn can_see_processes() -> Result<(), Error> {
    tree::can_see().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let why = "/proc is not mounted, or belongs to another pid namespace (unshare --mount-proc)";
            Error::Refused(format!("{CANNOT_SUPERVISE}: {why}"))
        }
        _ => Error::of_system(&format!("{CANNOT_SUPERVISE}: /proc cannot be read"), &error),
    })
}

pub(super) fn keeper_gone() -> Error {
    Error::Unavailable("the keeper was killed before it could start the command".to_owned())
}
