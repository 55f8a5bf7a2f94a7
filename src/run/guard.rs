//! The guard of `acquire --while-pid`: a process that renews the lease as long as another process, the watched one, lives, and then
//! releases it. When the lease is lost, it stops that process and its descendants by the timeline of `run`.
//!
//! The guard is forked before there is a runtime or a connection, and gets the lease over a socket once the token is printed. It
//! can do less than the keeper of a job: it is not the parent of that process, and nothing watches over the guard itself.

use super::loss::Loss;
use super::messages::Messages;
use super::renewal::Renewer;
use super::supervisor::{can_see_processes, cannot_supervise};
use super::timeline::Timeline;
use super::watchdog::Watchdog;
use crate::error::Error;
use crate::lock::{End, Lease, Lock, RunOutcome};
use crate::sys::clock::Boot;
use crate::sys::packets::Packets;
use crate::sys::process::{self, Handle};
use crate::sys::stdio;
use crate::sys::tree::Descendants;
use crate::sys::wait::{self, Readable, sleep_until};
use nix::errno::Errno;
use nix::libc;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

/// The interval at which the ends of processes are looked for that are not children.
const LOOK: Duration = Duration::from_millis(5);
/// The time after which processes that SIGKILL has not ended are given up.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time for a guard without a lease to end.
const LAST_STEPS: Duration = Duration::from_millis(20);

/// The process that the lease is for, and what is to be done for it.
#[derive(Debug)]
pub(crate) struct GuardTask {
    pub(crate) watched: Rc<Handle>,
    pub(crate) continue_when_lost: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
}

/// redlock's side of the guard. Dropping it ends a guard that has no lease yet.
#[derive(Debug)]
pub(crate) struct Guard {
    socket: Packets,
    task: GuardTask,
    /// None once it has the lease.
    without_lease: Option<Handle>,
}

/// The process `--while-pid` names.
///
/// # Errors
/// [`Error::Usage`] if it is gone or another user's, and those of [`can_see_processes`].
pub(crate) fn watched(pid: i32) -> Result<Rc<Handle>, Error> {
    can_see_processes()?;
    match Handle::open(pid) {
        Ok(watched) if watched.has_ended() => Err(gone(pid)),
        Ok(watched) if !watched.is_of_this_user() => {
            Err(Error::Usage(format!("--while-pid: process {pid} belongs to another user")))
        }
        Ok(watched) => Ok(Rc::new(watched)),
        // The second for a thread.
        Err(Errno::ESRCH | Errno::EINVAL | Errno::ENOENT) => Err(gone(pid)),
        Err(errno) => Err(cannot_supervise(errno)),
    }
}

fn gone(pid: i32) -> Error {
    Error::Usage(format!("--while-pid: there is no process {pid}"))
}

/// Forks the guard of a lease on this lock. This process must have a single thread.
///
/// # Errors
/// The kernel's, without room for a descriptor or a process.
pub(crate) fn start(task: GuardTask, lock: &mut Lock) -> Result<Guard, Error> {
    let (socket, theirs) = Packets::pair().map_err(cannot_supervise)?;
    let pid = process::fork_helper(c"redlock-guard", || {
        process::leave_caller([theirs.as_fd(), task.watched.as_fd()]);
        let _ = wait::block_on(guard(&task, &theirs, lock));
    });
    let process = pid.and_then(Handle::open).map_err(cannot_supervise)?;
    Ok(Guard { socket, task, without_lease: Some(process) })
}

impl Guard {
    /// Lets the guard renew the lease from now on.
    ///
    /// # Errors
    /// [`Error::Internal`] when the guard is gone.
    pub(crate) fn send_lease(mut self, lease: &Lease) -> Result<(), Error> {
        self.without_lease = None;
        let gone = |_| Error::Internal("the process that was to renew the lease was killed".to_owned());
        self.socket.send(lease).map_err(gone)
    }

    /// Waits until the watched process has ended; returns that as an error.
    pub(crate) async fn watched_ends(&self) -> Error {
        match Readable::new(&*self.task.watched) {
            Ok(watched) => watched.next(|watched| watched.has_ended().then(|| gone(watched.pid()))).await,
            Err(error) => Error::cannot_wait(error),
        }
    }
}

impl Drop for Guard {
    /// A container's first process may reap no orphans.
    fn drop(&mut self) {
        if let Some(process) = self.without_lease.take() {
            self.socket.hang_up();
            process.reap_within(LAST_STEPS);
        }
    }
}

/// The guard, from its lease to the end of that. Ends without one if redlock does.
async fn guard(task: &GuardTask, socket: &Packets, lock: &mut Lock) -> io::Result<()> {
    let socket = Readable::new(socket)?;
    let Some(mut lease) = socket.next(|socket| socket.receive::<Lease>().arrived()).await else { return Ok(()) };
    let timeline = Timeline::new(lease.ttl, None, lock.node_timeout());
    let messages = Messages::new([lock.name.as_str()], task.quiet, task.verbose).to(task.watched.clone());
    let renewer = Renewer::new(messages, timeline, task.continue_when_lost, &lease);
    let loss = task.renew_lease(&renewer, lock, &mut lease).await?;
    if let Some(loss) = &loss {
        task.on_loss(&renewer, loss).await;
    }
    // Of a lost lease too: some nodes may still have it.
    let _ = lock
        .release(&lease, None, End::now(if loss.is_some() { RunOutcome::Lost } else { RunOutcome::Released }))
        .await;
    Ok(())
}

impl GuardTask {
    /// Renews the lease until the watched process has ended or the lease was released, or is lost; returns the loss.
    async fn renew_lease(&self, renewer: &Renewer, lock: &mut Lock, lease: &mut Lease) -> io::Result<Option<Loss>> {
        // Goes off when SIGTERM is due.
        let overdue = Watchdog::new();
        let moved = || {
            overdue.set(if self.continue_when_lost { Boot::NEVER } else { renewer.deadlines().0 });
            // The watched process' standard error, after a message.
            stdio::redirect_to_null(2..=2);
        };
        moved();
        let watched = Readable::new(&*self.watched)?;
        let loss = tokio::select! {
            biased;
            () = watched.next(|watched| watched.has_ended().then_some(())) => None,
            () = overdue.goes_off() => Some(renewer.why_not_renewed()),
            loss = renewer.renew(lock, lease, &moved) => Some(loss),
        };
        Ok(loss.filter(|loss| *loss != Loss::Release))
    }

    async fn on_loss(&self, renewer: &Renewer, loss: &Loss) {
        let Renewer { messages, timeline, .. } = renewer;
        if self.continue_when_lost {
            return messages.lost_but_going_on(loss);
        }
        let kill_at = match loss {
            Loss::Proof(_) => timeline.kill_after_loss(Boot::now(), renewer.valid_until()),
            _ => renewer.deadlines().1,
        };
        let mut job = Descendants::of(&self.watched);
        // Before the first signal, as that process' descriptors go with it.
        self.watched.share_errors();
        job.signal(libc::SIGTERM);
        messages.stopping(loss, kill_at);
        while !(job.has_ended() || kill_at.passed()) {
            sleep_until(kill_at.min(Boot::now() + LOOK)).await;
        }
        let give_up_at = Boot::now() + PATIENCE;
        let left = loop {
            let round = job.kill();
            if round.signalled.is_empty() || give_up_at.passed() {
                break [round.signalled, round.refused].concat();
            }
            sleep_until(Boot::now() + LOOK).await;
        };
        if !left.is_empty() {
            messages.out_of_reach(&left);
        }
        messages.loss(loss, Boot::now(), renewer.valid_until());
    }
}
