//! The keeper, the job's parent process: starts the command, enforces the deadlines of the lease, passes signals on,
//! and reaps the dead. The keeper knows nothing of Redis, and outlives a redlock that crashes or hangs.
//!
//! The keeper is forked before redlock has threads, a runtime or a connection, and stays single-threaded. The keeper
//! is the job's parent from the first moment, and the kernel makes each orphan of the job the keeper's child. The
//! socket to redlock closes when redlock dies.

mod killing;
mod messages;

pub(crate) use killing::{Progress, Takeover};
pub(crate) use messages::{Cause, Deadline, Order, Recipient, Report};

use crate::sys::change_mask;
use crate::sys::clock::Boot;
use crate::sys::inherited::Inheritance;
use crate::sys::packets::{Packet, Packets};
use crate::sys::process::{self, Handle, NotStarted, Program, Reap};
use crate::sys::signals::Signals;
use crate::sys::stdio;
use crate::sys::timer::Timer;
use crate::sys::tree::{self, Root};
use killing::KillLoop;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

/// After a loss, SIGKILL comes earlier by this time for each process of the job. Measured on two busy cores:
/// 1,000 sibling processes are dead after 78 ms. A chain of 400 processes (parent, child, …) is dead after 140 ms.
const EACH_DEATH: Duration = Duration::from_micros(250);

/// The time that a keeper with no job may take to exit.
const LAST_STEPS: Duration = Duration::from_millis(20);

const MILLISECOND: Duration = Duration::from_millis(1);

/// What is known of the job before there is a lease.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) file: PathBuf,
    /// COMMAND and its arguments; never empty.
    pub(crate) command: Vec<OsString>,
    /// Variables for the job, besides the caller's variables and the variables of the lease.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// The job's standard error, if it is not the caller's.
    pub(crate) errors: Option<File>,
    /// The signal that asks the job to stop.
    pub(crate) signal: i32,
    /// The time between this signal and SIGKILL after `max_run`.
    pub(crate) grace: Duration,
    pub(crate) max_run: Option<Duration>,
    /// The time between a signal of the user that asks the job to stop and SIGKILL; None: no SIGKILL follows.
    pub(crate) kill_after: Option<Duration>,
    /// True if the job is over once all its processes have ended; false if the end of the command is enough.
    pub(crate) whole: bool,
}

/// redlock's side of the keeper. Dropping this ends the keeper and the job.
#[derive(Debug)]
pub(crate) struct Keeper {
    socket: Packets,
    process: Handle,
    /// Children from before redlock was executed: `sh -c 'work & exec redlock run …'`.
    strangers: Vec<Handle>,
}

/// Forks the keeper. Puts /dev/null in place of this process's standard input and output, which belong to the job. This
/// process must have a single thread and be a subreaper. With a `terminal` the job stays in redlock's process group.
/// The keeper and the job inherit every descriptor that redlock's caller left open.
pub(crate) fn fork(task: &Task, inherited: Inheritance, terminal: bool) -> nix::Result<Keeper> {
    let (socket, theirs) = Packets::pair()?;
    let strangers = if process::has_children() { tree::children() } else { None };
    let strangers = strangers.unwrap_or_default().into_iter().map(Handle::open).collect::<Result<_, _>>()?;
    let pid = process::fork_helper(c"redlock-keeper", || {
        socket.close_copy();
        match KeeperProcess::new(task, inherited, terminal, &theirs) {
            Ok(mut keeper) => keeper.keep(),
            Err(errno) => {
                let _ = theirs.send(&Report::SetUpFailure { errno: errno as i32 });
            }
        }
    })?;
    let _ = stdio::redirect_to_null(0..=1);
    Ok(Keeper { socket, process: Handle::open(pid)?, strangers })
}

impl Keeper {
    /// Sends an order without waiting. Fails if the keeper has left too much unread, or has ended, which
    /// [`Keeper::receive`] also reports.
    pub(crate) fn send(&self, order: &Order) -> io::Result<()> {
        self.socket.send(order)
    }

    /// The next report, without waiting. [`Packet::End`] before a report that there is no job, or no more, means that
    /// the keeper was killed: see [`Keeper::kill_job`].
    pub(crate) fn receive(&self) -> Packet<Report> {
        self.socket.receive()
    }

    /// Tells the keeper to exit; the keeper first kills a job that is not over.
    pub(crate) fn hang_up(&self) {
        self.socket.hang_up();
    }

    /// Takes over from a keeper that is dead, or has missed `kill_at` because it is stopped or stuck. Kills the keeper
    /// if it is alive, and makes this process the job's parent. The caller then calls [`Takeover::step`] until the job
    /// is over.
    pub(crate) fn kill_job(&self) -> Takeover<'_> {
        Takeover::begin(&self.process, &self.strangers)
    }
}

impl Drop for Keeper {
    /// Tells the keeper to exit, and reaps it, because in a container whose first process does not reap orphans it
    /// would stay as a zombie. Usually the keeper has already ended while the lease was being released.
    fn drop(&mut self) {
        self.hang_up();
        self.process.reap_within(LAST_STEPS);
    }
}

impl AsFd for Keeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Ready,
    Run,
    Kill(KillLoop),
    Over,
}

/// The keeper itself, in the forked process.
struct KeeperProcess<'a> {
    task: &'a Task,
    terminal: bool,
    socket: &'a Packets,
    /// The source of SIGCHLD.
    children: Signals,
    timer: Timer,
    program: Program,
    phase: Phase,
    /// `child`: the command, until the command is reaped. `group`: the job's own process group, if the job has one.
    root: Root,
    status: Option<i32>,
    childless: bool,
    cause: Cause,
    /// The deadline of the lease. None until an order sets one, and again once the job is being stopped.
    deadline: Option<Deadline>,
    /// The time at which the keeper counts the job's processes. The more there are, the earlier the job is killed.
    count_at: Boot,
    max_run_at: Boot,
    /// The time of SIGKILL. `Boot::NEVER` until the job is being stopped, or until a signal starts `kill_after`.
    kill_at: Boot,
    /// Signals to pass on, each pair of signal and recipient once.
    signals: Vec<(i32, Recipient)>,
    /// True once redlock has ended, or has hung up.
    orphaned: bool,
    /// The final report, kept until the socket has taken it.
    final_report: Option<Report>,
}

impl<'a> KeeperProcess<'a> {
    fn new(
        task: &'a Task,
        inherited: Inheritance,
        terminal: bool,
        socket: &'a Packets,
    ) -> nix::Result<KeeperProcess<'a>> {
        // The keeper must outlive the job, even when systemd stops a unit and signals every process in it.
        change_mask(SigmaskHow::SIG_SETMASK, &SigSet::all())?;
        prctl::set_child_subreaper(true)?;
        let mut program = Program::new(&task.file, &task.command, std::env::vars_os(), inherited);
        task.environment.iter().for_each(|(name, value)| program.set(name, Some(value)));
        Ok(KeeperProcess {
            task,
            terminal,
            socket,
            children: Signals::open(&SigSet::from_iter([Signal::SIGCHLD]))?,
            timer: Timer::new()?,
            program,
            phase: Phase::Ready,
            root: Root::default(),
            status: None,
            childless: true,
            cause: Cause::OwnEnd,
            deadline: None,
            count_at: Boot::NEVER,
            max_run_at: Boot::NEVER,
            kill_at: Boot::NEVER,
            signals: Vec::new(),
            orphaned: false,
            final_report: None,
        })
    }

    fn keep(&mut self) {
        loop {
            // Reaping comes first, so that a deadline does not stop a job that has just ended.
            self.reap();
            self.take_orders();
            self.look_at_clock();
            self.look_for_redlock();
            self.kill_on();
            self.pass_on_signal();
            self.reap();
            if self.end_if_over() {
                break;
            }
            self.wait();
        }
        self.await_hang_up();
    }

    /// Waits until redlock hangs up, because an earlier exit would take processor time from redlock, which still has to
    /// learn of the job's end. Sends the final report once the socket has room: if redlock is stopped, the socket may
    /// be full.
    fn await_hang_up(&mut self) {
        while !self.orphaned && !matches!(self.socket.receive::<Order>(), Packet::End) {
            self.final_report.take_if(|report| self.socket.send(report).is_ok());
            let room = if self.final_report.is_some() { PollFlags::POLLOUT } else { PollFlags::empty() };
            let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN | room)];
            let _ = poll(&mut ready, PollTimeout::NONE);
        }
    }

    /// Reads redlock's orders. Only the order to start is carried out at once. `keep` carries out the others: deadlines
    /// first, then signals.
    fn take_orders(&mut self) {
        while !self.orphaned {
            match self.socket.receive() {
                Packet::Message(order) => self.take(order),
                Packet::Nothing => return,
                Packet::End => self.orphaned = true,
            }
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            // A stop after a lost lease is final: the loss has been reported.
            Order::Deadline(_) | Order::Stop { .. } if self.cause == Cause::Loss => {}
            Order::Deadline(deadline) => {
                self.deadline = Some(deadline);
                // The keeper counts the job's processes halfway to `kill_at`. Usually a renewal comes before that, and
                // nothing is counted. Without a renewal, the other half of the time is left to kill a large job.
                self.count_at = deadline.kill_at - deadline.kill_at.left() / 2;
            }
            Order::Stop { kill_at } => {
                // Before the start, a stop only sets a deadline that has passed: the job cannot start until another
                // order moves the deadline.
                if self.phase != Phase::Ready {
                    self.cause = Cause::Loss;
                }
                self.deadline = Some(Deadline { term_at: Boot::now(), kill_at });
            }
            Order::Start { environment, not_after } if self.phase == Phase::Ready => {
                self.start_command(&environment, not_after);
            }
            Order::Signal { signal, to } if self.phase == Phase::Run => {
                let stops = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, self.task.signal].contains(&signal);
                if let (true, Some(kill_after)) = (stops, self.task.kill_after) {
                    self.kill_at = self.kill_at.min(Boot::now() + kill_after);
                }
                if !self.signals.contains(&(signal, to)) {
                    self.signals.push((signal, to));
                }
            }
            Order::Start { .. } | Order::Signal { .. } => {}
        }
    }

    fn start_command(&mut self, environment: &[(String, Option<String>)], not_after: Boot) {
        let in_time = self.deadline.is_some_and(|deadline| !not_after.min(deadline.term_at).passed());
        if !in_time {
            return self.report(&Report::TooLate);
        }
        for (name, value) in environment {
            self.program.set(OsStr::new(name), value.as_deref().map(OsStr::new));
        }
        // A slow exec (a cold binary on NFS) holds the keeper up here. Afterwards the keeper enforces the deadlines
        // that have passed; redlock kills a keeper that comes back too late.
        match self.program.start(!self.terminal, self.task.errors.as_ref().map(File::as_fd)) {
            Ok(pid) => {
                self.phase = Phase::Run;
                self.root = Root { child: Some(pid), group: (!self.terminal).then_some(pid) };
                self.childless = false;
                self.max_run_at = self.task.max_run.map_or(Boot::NEVER, |time| Boot::now() + time);
                self.report(&Report::Start);
                let _ = stdio::redirect_to_null(0..=2);
            }
            Err(NotStarted::SetUp(errno)) => self.end_with(Report::SetUpFailure { errno: errno as i32 }),
            Err(NotStarted::Exec(errno)) => self.end_with(Report::StartFailure { errno: errno as i32 }),
        }
    }

    fn look_at_clock(&mut self) {
        if self.phase != Phase::Run || self.job_is_over() {
            return;
        }
        if self.count_at.passed() {
            self.count_at = Boot::NEVER;
            let size = tree::size(&mut |_| self.has_more_urgent());
            // `stop` kills a job of this size sooner than at `kill_at`, and SIGTERM must not come later than SIGKILL.
            if let (Some(size), Some(deadline)) = (size, &mut self.deadline) {
                deadline.term_at = deadline.term_at.min(deadline.kill_at - time_to_die(size));
            }
        }
        let now = Boot::now();
        if let Some(deadline) = self.deadline.take_if(|deadline| now >= deadline.term_at) {
            if self.cause != Cause::Loss {
                self.report(&Report::Lapse);
            }
            self.stop(Cause::Loss, deadline.kill_at);
        } else if now >= self.max_run_at {
            self.max_run_at = Boot::NEVER;
            if self.cause == Cause::OwnEnd {
                self.stop(Cause::TimeLimit, now + self.task.grace);
            }
        }
        if self.kill_at.passed() {
            self.phase = Phase::Kill(KillLoop::begin());
        }
    }

    /// Stops the job: the task's signal now, SIGKILL at `kill_at`, or earlier if that is already planned. After a loss,
    /// a large job gets SIGKILL earlier.
    fn stop(&mut self, cause: Cause, kill_at: Boot) {
        self.cause = cause;
        self.kill_at = self.kill_at.min(kill_at);
        tree::signal_all(self.task.signal, self.root, true, &mut |size| {
            if cause == Cause::Loss {
                self.kill_at = self.kill_at.min(kill_at - time_to_die(size));
            }
            self.has_more_urgent()
        });
    }

    fn look_for_redlock(&mut self) {
        if !self.orphaned {
            return;
        }
        match self.phase {
            Phase::Ready => self.phase = Phase::Over,
            Phase::Run => self.phase = Phase::Kill(KillLoop::begin()),
            Phase::Kill(_) | Phase::Over => {}
        }
    }

    fn pass_on_signal(&mut self) {
        if self.phase != Phase::Run || self.signals.is_empty() {
            return;
        }
        let (signal, to) = self.signals.remove(0);
        match (to, self.root.child) {
            (Recipient::Job, _) => {
                // A stopped process would not notice that its terminal is gone.
                let wake = signal == libc::SIGHUP;
                tree::signal_all(signal, self.root, wake, &mut |_| self.has_more_urgent());
            }
            (Recipient::Command, Some(command)) => process::signal_child(command, signal),
            (Recipient::Command | Recipient::KeeperOnly, _) => {}
        }
    }

    /// Takes new orders. True if redlock has ended or a deadline has passed: the keeper handles this before it signals
    /// (or counts) the rest of a large job.
    fn has_more_urgent(&mut self) -> bool {
        self.take_orders();
        self.orphaned || self.due_at().passed()
    }

    /// The next time at which the running job has to be stopped or killed.
    fn due_at(&self) -> Boot {
        let lease = self.deadline.map_or(Boot::NEVER, |deadline| deadline.term_at);
        lease.min(self.max_run_at).min(self.kill_at)
    }

    fn reap(&mut self) {
        while self.phase != Phase::Ready {
            match process::reap() {
                Reap::Child(pid, status) if Some(pid) == self.root.child => {
                    self.root.child = None;
                    self.status = Some(status);
                }
                Reap::Child(..) => {}
                Reap::NoneEnded => return,
                Reap::NoChildren => {
                    self.childless = true;
                    return;
                }
            }
        }
    }

    fn kill_on(&mut self) {
        let Phase::Kill(killing) = &mut self.phase else { return };
        if self.childless {
            return;
        }
        let socket = self.socket;
        match killing.round(self.root, &[], &mut || _ = socket.send(&Report::Kill)) {
            Progress::Complete | Progress::Wait(_) => {}
            Progress::Survivors(pids) => self.report(&Report::Survivors { pids }),
            Progress::OutOfReach(pids) => self.end_job(Some(pids)),
        }
    }

    /// True once the command has ended and, with `--whole` or when the job is being stopped, all its other processes,
    /// too.
    fn job_is_over(&self) -> bool {
        let everything = self.task.whole || self.cause != Cause::OwnEnd || matches!(self.phase, Phase::Kill(_));
        self.root.child.is_none()
            && (!everything || self.childless || tree::children().is_some_and(|all| all.is_empty()))
    }

    /// Notes the end of a job that is over. True if the keeper is done.
    fn end_if_over(&mut self) -> bool {
        if matches!(self.phase, Phase::Run | Phase::Kill(_)) && self.job_is_over() {
            self.end_job(None);
        }
        self.phase == Phase::Over
    }

    fn end_job(&mut self, out_of_reach: Option<Vec<i32>>) {
        let (status, cause) = (self.status, self.cause);
        self.end_with(Report::End { status, cause, at: Boot::now(), out_of_reach });
    }

    fn end_with(&mut self, report: Report) {
        self.final_report = Some(report);
        self.phase = Phase::Over;
    }

    fn report(&self, report: &Report) {
        // If this fails, redlock has ended, as the next read of the socket shows, or it is stopped and misses the
        // report.
        let _ = self.socket.send(report);
    }

    fn wait(&mut self) {
        let next = match &self.phase {
            Phase::Run => self.due_at().min(self.count_at),
            // If a descendant dies that is not the keeper's own child, the keeper gets its children, but no SIGCHLD, so
            // it looks again when the next round is due.
            Phase::Kill(killing) => killing.again_at(),
            Phase::Ready | Phase::Over => Boot::NEVER,
        };
        let patience = match self.phase {
            // The keeper must not wait: redlock has ended, or the job still has to get signals.
            Phase::Run if self.orphaned || !self.signals.is_empty() => PollTimeout::ZERO,
            // The timer ends this wait. The timeout is only a fallback: it stands still while the machine sleeps.
            _ => PollTimeout::try_from(next.left() + MILLISECOND).unwrap_or(PollTimeout::MAX),
        };
        let _ = self.timer.set(next);
        let mut ready = vec![
            PollFd::new(self.children.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.timer.as_fd(), PollFlags::POLLIN),
        ];
        if !self.orphaned {
            ready.push(PollFd::new(self.socket.as_fd(), PollFlags::POLLIN));
        }
        let _ = poll(&mut ready, patience);
        while self.children.next().is_some() {}
    }
}

/// How much earlier SIGKILL comes if the job of a lost lease has this many processes.
fn time_to_die(size: usize) -> Duration {
    EACH_DEATH * u32::try_from(size).unwrap_or(u32::MAX)
}
