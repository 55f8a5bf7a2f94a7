//! The guard of `acquire --while-pid PID`: a process that renews the lease as long as the watched process (PID) lives,
//! and then releases it. When the lease is lost, the guard stops the watched process and its descendants, at the times
//! of `run` (timeline.rs). With `--on-lost continue`, it stops no process.
//!
//! redlock forks the guard before redlock has a runtime or a connection. The guard tells redlock by a socket when it is
//! ready, and gets the lease once redlock has printed the token. It can do less than the keeper of a job: it is not the
//! parent of the watched process, and nothing watches over it.

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
use std::panic;
use std::sync::Arc;
use std::time::Duration;

/// How often the guard checks whether processes that are not its children have ended.
const LOOK: Duration = Duration::from_millis(5);
/// The time after which the guard gives up on processes that SIGKILL has not ended.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time between SIGTERM and SIGKILL to the watched process if the guard panics.
const LAST_CHANCE: Duration = Duration::from_millis(100);
/// The time that a killed guard has to end.
const LAST_STEPS: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct GuardTask {
    pub(crate) watched: Arc<Handle>,
    pub(crate) continue_when_lost: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
}

/// The guard's message. The first `Ok`: the guard is ready for a lease. The second `Ok`: the guard has the lease that
/// redlock sent. `Err`: the guard failed with this errno.
type Readiness = Result<(), i32>;

/// redlock's side of the guard. Dropping this kills the guard, unless [`Guard::detach`] has let the guard go.
#[derive(Debug)]
pub(crate) struct Guard {
    socket: Packets,
    task: GuardTask,
    /// The guard, until it is detached.
    process: Option<Handle>,
}

/// The process that `--while-pid` names.
///
/// # Errors
/// [`Error::Usage`] if the process has ended, is another user's, or is the machine's init.
pub(crate) fn watched(pid: i32) -> Result<Arc<Handle>, Error> {
    can_see_processes()?;
    // Every process descends from init: after a loss the guard would stop them all. (In a container the script may be
    // process 1, which is fine.)
    if pid == 1 && process::is_in_initial_namespace() {
        let why = "process 1 is the init of this machine, not a script; $PPID is 1 once the parent has ended";
        return Err(Error::Usage(format!("--while-pid: {why}")));
    }
    match Handle::open(pid).and_then(|watched| Ok((watched.is_of_this_user()?, watched))) {
        Ok((true, watched)) => Ok(Arc::new(watched)),
        Ok((false, _)) => Err(Error::Usage(format!("--while-pid: process {pid} belongs to another user"))),
        // EINVAL, or ENOENT from newer kernels: the pid is a thread's.
        Err(Errno::ESRCH | Errno::EINVAL | Errno::ENOENT) => Err(gone(pid)),
        Err(errno) => Err(cannot_supervise(errno)),
    }
}

fn gone(pid: i32) -> Error {
    Error::Usage(format!("--while-pid: there is no process {pid}"))
}

/// Forks the guard of a lease on this lock. This process must have a single thread.
pub(crate) fn fork(task: GuardTask, lock: &mut Lock) -> Result<Guard, Error> {
    let (socket, theirs) = Packets::pair().map_err(cannot_supervise)?;
    let pid = process::fork_helper(c"redlock-guard", || {
        let served = process::leave_caller([theirs.as_fd(), task.watched.as_fd()])
            .and_then(|()| wait::block_on(guard(&task, &theirs, lock))?);
        if let Err(error) = served {
            let _ = theirs.send(&Readiness::Err(error.raw_os_error().unwrap_or_default()));
        }
    });
    let process = pid.and_then(Handle::open).map_err(cannot_supervise)?;
    Ok(Guard { socket, task, process: Some(process) })
}

impl Guard {
    /// Waits until the guard can renew a lease. Fails if the guard has ended.
    pub(crate) async fn ready(&self) -> Result<(), Error> {
        let socket = Readable::new(&self.socket).map_err(Error::cannot_wait)?;
        match socket.next(|socket| socket.receive::<Readiness>().arrived()).await {
            Some(Ok(())) => Ok(()),
            Some(Err(errno)) => Err(cannot_supervise(Errno::from_raw(errno))),
            None => Err(guard_gone()),
        }
    }

    /// Waits until the watched process or the guard has ended, and returns that as an error. The guard must be ready.
    pub(crate) async fn ends(&self) -> Error {
        let watch = || Ok((Readable::new(&*self.task.watched)?, Readable::new(&self.socket)?));
        let (watched, socket) = match watch() {
            Ok(both) => both,
            Err(error) => return Error::cannot_wait(error),
        };
        tokio::select! {
            error = watched.next(|watched| watched.has_ended().then(|| gone(watched.pid()))) => error,
            _ = socket.next(|socket| socket.receive::<Readiness>().arrived()) => guard_gone(),
        }
    }

    /// Sends the guard the lease to renew, and waits until the guard confirms that it holds the lease.
    pub(crate) async fn hand_over(&self, lease: &Lease) -> Result<(), Error> {
        self.socket.send(lease).map_err(|_| guard_gone())?;
        self.ready().await
    }

    /// Lets the guard outlive this process.
    pub(crate) fn detach(mut self) {
        self.process = None;
    }
}

fn guard_gone() -> Error {
    Error::Unavailable("the process that was to renew the lease was killed".to_owned())
}

impl Drop for Guard {
    /// Kills and reaps the guard. Otherwise the dead guard would be left to the first process of a container, which
    /// might never reap it.
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            let _ = process.signal(libc::SIGKILL);
            process.reap_within(LAST_STEPS);
        }
    }
}

/// The guard, from its start to the end of its lease. It ends if redlock ends without having sent a lease. There are no
/// errors after the guard has confirmed the lease.
async fn guard(task: &GuardTask, socket: &Packets, lock: &mut Lock) -> io::Result<()> {
    let (socket, watched) = (Readable::new(socket)?, Readable::new(&*task.watched)?);
    socket.get().send(&Readiness::Ok(()))?;
    let Some(mut lease) = socket.next(|socket| socket.receive::<Lease>().arrived()).await else { return Ok(()) };
    // redlock reports success after the next message. From then on, a panic of the guard must stop the watched process,
    // so the hook for panics is set before that message.
    task.stop_on_panic();
    socket.get().send(&Readiness::Ok(()))?;
    let timeline = Timeline::new(lease.ttl, None, lock.node_timeout());
    let messages = Messages::new([lock.name.as_str()], task.quiet, task.verbose).to(task.watched.clone());
    let renewer = Renewer::new(messages, timeline, task.continue_when_lost, &lease);
    let loss = task.renew_lease(&watched, &renewer, lock, &mut lease).await;
    if let Some(loss) = &loss {
        task.on_loss(&renewer, loss).await;
    }
    // A lost lease is released too, because some nodes may still hold it.
    let _ = lock.release(&lease, End::now(if loss.is_some() { RunOutcome::Lost } else { RunOutcome::Released })).await;
    Ok(())
}

impl GuardTask {
    /// A panic ends the renewal. So this hook first stops the watched process, unless that may go on without the lease,
    /// and then reports the panic.
    fn stop_on_panic(&self) {
        let (watched, goes_on, report) = (Arc::clone(&self.watched), self.continue_when_lost, panic::take_hook());
        panic::set_hook(Box::new(move |panic| {
            let errno = Errno::last();
            watched.share_errors();
            if !goes_on {
                let mut job = Descendants::of(&watched);
                job.signal(libc::SIGTERM);
                let kill_at = Boot::now() + LAST_CHANCE;
                while !(job.has_ended() || kill_at.passed()) {
                    std::thread::sleep(LOOK);
                }
                job.kill();
            }
            errno.set();
            report(panic);
        }));
    }

    /// Renews the lease until the watched process ends, or until the lease is released or lost. Returns the loss, if
    /// any.
    async fn renew_lease(
        &self,
        watched: &Readable<&Handle>,
        renewer: &Renewer,
        lock: &mut Lock,
        lease: &mut Lease,
    ) -> Option<Loss> {
        // The watchdog goes off when SIGTERM is due.
        let overdue = Watchdog::new();
        let moved = || {
            overdue.set(if self.continue_when_lost { Boot::NEVER } else { renewer.deadline().term_at });
            // Messages go to a copy of the watched process's stderr. If there is such a copy, this closes it.
            let _ = stdio::redirect_to_null(2..=2);
        };
        moved();
        let loss = tokio::select! {
            biased;
            () = watched.next(|watched| watched.has_ended().then_some(())) => None,
            () = overdue.goes_off() => Some(renewer.why_not_renewed()),
            loss = renewer.renew(lock, lease, &moved) => Some(loss),
        };
        loss.filter(|loss| *loss != Loss::Release)
    }

    async fn on_loss(&self, renewer: &Renewer, loss: &Loss) {
        let Renewer { messages, timeline, .. } = renewer;
        if self.continue_when_lost {
            return messages.lost_but_going_on(loss);
        }
        let kill_at = match loss {
            Loss::Proof(_) => timeline.kill_after_loss(Boot::now(), renewer.valid_until()),
            _ => renewer.deadline().kill_at,
        };
        let mut job = Descendants::of(&self.watched);
        // Messages go to the watched process's stderr, which the guard copies now, because a dead process has none.
        self.watched.share_errors();
        job.signal(libc::SIGTERM);
        messages.stopping(loss, libc::SIGTERM, kill_at);
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
