//! The guard of `acquire --while-pid`: a process that renews the lease as long as another process, the ward, lives, and then
//! releases it. When the lease is lost, it stops the ward and its descendants by the timeline of `run`.
//!
//! The guard is forked before there is a runtime or a connection, and gets the lease over a socket once the token is printed. It
//! can do less than the keeper of a job: it is not the ward's parent, and nothing watches over the guard itself.

use super::cannot_supervise;
use super::messages::Talk;
use super::renewal::{LeaseUser, Loss, Renewer, Trouble};
use super::timeline::Timeline;
use super::watchdog::Watchdog;
use crate::error::Error;
use crate::lock::{End, Lease, Lock};
use crate::sys::clock::Boot;
use crate::sys::packets::{Packet, Packets};
use crate::sys::process::{self, Handle};
use crate::sys::stdio;
use crate::sys::tree::Family;
use crate::sys::wait::{self, Readable, sleep_until};
use nix::errno::Errno;
use nix::libc;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// The interval at which the ends of processes are looked for that are not children.
const LOOK: Duration = Duration::from_millis(5);
/// The time after which processes that SIGKILL has not ended are given up.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time for a guard without a lease to end.
const LAST_STEPS: Duration = Duration::from_millis(20);

/// The process that the lease is for, and what is to be done for it.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) ward: Handle,
    pub(crate) continue_when_lost: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
}

/// redlock's side of the guard. Dropping it ends a guard that has no lease yet.
#[derive(Debug)]
pub(crate) struct Guard {
    socket: Packets,
    task: Task,
    /// None once it has the lease.
    without_lease: Option<Handle>,
}

/// The process `--while-pid` names.
///
/// # Errors
/// [`Error::Usage`] if it is gone or another user's.
pub(crate) fn ward(pid: i32) -> Result<Handle, Error> {
    match Handle::open(pid) {
        Ok(ward) if ward.has_ended() => Err(gone(pid)),
        Ok(ward) if !ward.is_of_this_user() => {
            Err(Error::Usage(format!("--while-pid: process {pid} belongs to another user")))
        }
        Ok(ward) => Ok(ward),
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
pub(crate) fn start(task: Task, lock: &mut Lock) -> Result<Guard, Error> {
    let (socket, theirs) = Packets::pair().map_err(cannot_supervise)?;
    let pid = process::fork_helper(c"redlock-guard", || {
        process::leave_caller([theirs.as_fd(), task.ward.as_fd()]);
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
    pub(crate) fn hand_over(mut self, lease: &Lease) -> Result<(), Error> {
        self.without_lease = None;
        let gone = |_| Error::Internal("the process that was to renew the lease was killed".to_owned());
        self.socket.send(lease).map_err(gone)
    }

    /// Waits until the ward has ended; returns that as an error.
    pub(crate) async fn ward_ends(&self) -> Error {
        match Readable::new(&self.task.ward) {
            Ok(ward) => ward.next(|ward| ward.has_ended().then(|| gone(ward.pid()))).await,
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
async fn guard(task: &Task, socket: &Packets, lock: &mut Lock) -> io::Result<()> {
    let socket = Readable::new(socket)?;
    let received = socket.next(|socket| match socket.receive::<Lease>() {
        Packet::Message(lease) => Some(Some(lease)),
        Packet::Nothing => None,
        Packet::End => Some(None),
    });
    let Some(mut lease) = received.await else { return Ok(()) };
    let timeline = Timeline::new(lease.ttl, None, lock.node_timeout());
    let vigil = Vigil {
        task,
        talk: Talk::new([lock.name.as_str()], task.quiet, task.verbose),
        renewer: Renewer::new(timeline, task.continue_when_lost, &lease),
        overdue: Watchdog::new(),
    };
    let loss = vigil.keep(lock, &mut lease).await?;
    if let Some(loss) = &loss {
        vigil.on_loss(loss).await;
    }
    // Also what is left of a lost one, and what the release did not reach.
    let _ = lock.release(&lease, None, if loss.is_some() { End::LOST } else { End::RELEASED }).await;
    Ok(())
}

/// The watch over a ward.
struct Vigil<'a> {
    task: &'a Task,
    talk: Talk,
    renewer: Renewer,
    /// When SIGTERM is due.
    overdue: Watchdog,
}

impl LeaseUser for Vigil<'_> {
    fn on_moved(&self, valid_until: Boot) {
        let term_at = self.renewer.timeline().deadlines(valid_until).0;
        self.overdue.set(if self.task.continue_when_lost { Boot::NEVER } else { term_at });
    }

    fn on_trouble(&self, trouble: &Trouble) {
        self.task.ward.share_errors();
        self.talk.trouble(trouble, self.task.continue_when_lost);
        stdio::let_go_of_everything();
    }
}

impl Vigil<'_> {
    /// Renews the lease until the ward has ended or the lease was released, or is lost; returns the loss.
    async fn keep(&self, lock: &mut Lock, lease: &mut Lease) -> io::Result<Option<Loss>> {
        self.on_moved(lease.valid_until());
        let ward = Readable::new(&self.task.ward)?;
        let loss = tokio::select! {
            biased;
            () = ward.next(|ward| ward.has_ended().then_some(())) => None,
            () = self.overdue.goes_off() => Some(self.renewer.why_not_renewed()),
            loss = self.renewer.renew(lock, lease, self) => Some(loss),
        };
        Ok(loss.filter(|loss| *loss != Loss::Release))
    }

    async fn on_loss(&self, loss: &Loss) {
        // Until the last word: the ward's own descriptors go with it.
        self.task.ward.share_errors();
        if self.task.continue_when_lost {
            return self.talk.lost_but_going_on(loss);
        }
        let (valid_until, timeline) = (self.renewer.valid_until(), self.renewer.timeline());
        let kill_at = match loss {
            Loss::Proof(_) => timeline.kill_after_loss(Boot::now(), valid_until),
            _ => timeline.deadlines(valid_until).1,
        };
        let mut job = Family::of(&self.task.ward);
        job.signal(libc::SIGTERM);
        self.talk.stopping(loss, kill_at);
        while !(job.has_ended() || kill_at.passed()) {
            sleep_until(kill_at.min(Boot::now() + LOOK)).await;
        }
        let give_up_at = Boot::now() + PATIENCE;
        let left = loop {
            let round = job.signal(libc::SIGKILL);
            if round.signalled.is_empty() || give_up_at.passed() {
                break [round.signalled, round.refused].concat();
            }
            sleep_until(Boot::now() + LOOK).await;
        };
        if !left.is_empty() {
            self.talk.out_of_reach(&left);
        }
        self.talk.loss(loss, Boot::now(), valid_until);
    }
}
