//! The job's parent process: starts the command, enforces the deadlines of its lease, passes on
//! signals, reaps. Knows nothing of Redis, and survives whatever happens to redlock.
//!
//! It is forked before redlock has threads, a runtime or a connection, and stays single-threaded. Being the parent leaves no
//! moment at which a job exists unwatched: a process that loses its parent becomes the keeper's child, and when
//! redlock dies, the socket between the two says so.

mod killing;
mod messages;

pub(crate) use killing::{Killing, Progress};
pub(crate) use messages::{Cause, Order, Report, To};

use crate::sys::clock::Boot;
use crate::sys::inherited::Inherited;
use crate::sys::packets::{Packets, Received};
use crate::sys::process::{self, Program, Reaped};
use crate::sys::signals::Signals;
use crate::sys::stdio;
use crate::sys::timer::Timer;
use crate::sys::tree::{self, Known};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// How much earlier a lost job is killed for each of its processes: with both of two cores busy it took 78 ms until the last of
/// 1,000 was dead, which is more than the margin of a short lease.
const EACH_DEATH: Duration = Duration::from_micros(150);

/// What is known of the job before it has a lock.
#[derive(Debug)]
pub(crate) struct Task {
    /// COMMAND and its arguments; never empty.
    pub(crate) command: Vec<OsString>,
    /// What the job's environment gets besides the caller's, and what tells it of its lease.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Between SIGTERM and SIGKILL when `max_run` is over.
    pub(crate) grace: Duration,
    pub(crate) max_run: Option<Duration>,
    pub(crate) kill_after: Option<Duration>,
    /// The job lasts until its last descendant has ended.
    pub(crate) whole: bool,
}

/// redlock's end of it. Dropping it ends the keeper and the job; the keeper's end is not waited for, which would take 0.2 ms.
#[derive(Debug)]
pub(crate) struct Keeper {
    socket: Packets,
    pid: i32,
}

/// Forks the keeper. This process, which must have a single thread and be a subreaper, lets go of standard input and
/// output: they are the job's. With a `terminal` the job stays in redlock's own process group.
///
/// # Errors
/// The kernel's, when it has no room for a descriptor or a process.
pub(crate) fn start(task: &Task, inherited: Inherited, terminal: bool) -> nix::Result<Keeper> {
    let (socket, theirs) = Packets::pair()?;
    let pid = process::fork_helper(c"redlock-keeper", || {
        socket.close_copy();
        match Parent::new(task, inherited, terminal, &theirs) {
            Ok(mut parent) => parent.keep(),
            Err(errno) => {
                let _ = theirs.send(&Report::NotStarted { errno: errno as i32 });
            }
        }
    })?;
    stdio::let_go_of_input_and_output();
    Ok(Keeper { socket, pid })
}

impl Keeper {
    /// Never waits. Fails when the keeper is gone, which [`Keeper::receive`] says too, or has left too much unread.
    pub(crate) fn send(&self, order: &Order) -> io::Result<()> {
        self.socket.send(order)
    }

    /// The next report, without waiting. [`Received::Closed`] before [`Report::Ended`], [`Report::NotStarted`] or
    /// [`Report::TooLate`] means that the keeper was killed: see [`Keeper::kill_job`].
    pub(crate) fn receive(&self) -> Received<Report> {
        self.socket.receive()
    }

    /// Lets a keeper whose job is over end. One whose job is not over kills it.
    pub(crate) fn hang_up(&self) {
        self.socket.hang_up();
    }

    /// Kills the keeper if it still lives, and becomes the job's parent in its place: for one that was killed, or is
    /// stopped or stuck and lets `kill_at` pass. Take steps until the job is over.
    pub(crate) fn kill_job(&self) -> Killing {
        process::signal_child(self.pid, libc::SIGKILL);
        Killing::begin()
    }
}

impl AsFd for Keeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What the job is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    NotStarted,
    Running,
    Killing(Killing),
    Over,
}

/// The forked process.
struct Parent<'a> {
    task: &'a Task,
    terminal: bool,
    socket: &'a Packets,
    /// SIGCHLD.
    children: Signals,
    timer: Timer,
    program: Program,
    phase: Phase,
    /// The command, until it has been reaped, and the job's group.
    known: Known,
    status: Option<i32>,
    childless: bool,
    cause: Cause,
    /// When the lease wants SIGTERM and SIGKILL sent; none before the first order, and when that is under way.
    deadline: Option<(Boot, Boot)>,
    max_run_at: Boot,
    /// Where a stop or `kill_after` ends.
    kill_at: Boot,
    /// What is to be passed on: of each kind one.
    signals: Vec<(i32, To)>,
    /// There is no redlock left to report to.
    orphaned: bool,
}

impl<'a> Parent<'a> {
    fn new(task: &'a Task, inherited: Inherited, terminal: bool, socket: &'a Packets) -> nix::Result<Parent<'a>> {
        // systemd and Kubernetes send their stop to every process, and the keeper must outlive the job.
        SigSet::all().thread_set_mask()?;
        process::adopt_orphans();
        let mut program = Program::new(&task.command, std::env::vars_os(), inherited);
        task.environment.iter().for_each(|(name, value)| program.set(name, value));
        Ok(Parent {
            task,
            terminal,
            socket,
            children: Signals::open(&SigSet::from_iter([Signal::SIGCHLD]))?,
            timer: Timer::new()?,
            program,
            phase: Phase::NotStarted,
            known: Known::default(),
            status: None,
            childless: true,
            cause: Cause::Itself,
            deadline: None,
            max_run_at: Boot::NEVER,
            kill_at: Boot::NEVER,
            signals: Vec::new(),
            orphaned: false,
        })
    }

    fn keep(&mut self) {
        loop {
            // A job that has ended is not stopped for the time it takes to notice.
            self.reap();
            self.take_orders();
            self.look_at_clock();
            self.look_for_redlock();
            self.kill_on();
            self.pass_on_signal();
            self.reap();
            if self.is_over() {
                break;
            }
            self.wait();
        }
        self.linger();
    }

    /// Waits until redlock hangs up: the end of a process takes time, and the processor is redlock's when it is to learn that the
    /// job has ended.
    fn linger(&self) {
        while !self.orphaned && !matches!(self.socket.receive::<Order>(), Received::Closed) {
            let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut ready, PollTimeout::NONE);
        }
    }

    /// Takes in what redlock has said. Acts on nothing but the order to start, so that a deadline is never behind something
    /// that takes time.
    fn take_orders(&mut self) {
        while !self.orphaned {
            match self.socket.receive() {
                Received::Message(order) => self.take(order),
                Received::Nothing => return,
                Received::Closed => self.orphaned = true,
            }
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            // Once the job has been told to stop, it stays so: redlock says that the lease was lost.
            Order::Deadline { .. } | Order::Stop { .. } if self.cause == Cause::Lost => {}
            Order::Deadline { term_at, kill_at } => self.deadline = Some((term_at, kill_at)),
            Order::Stop { kill_at } => {
                // Also before there is a job: it must not be started any more.
                self.cause = Cause::Lost;
                self.deadline = Some((Boot::now(), kill_at));
            }
            Order::Go { environment, not_after } if self.phase == Phase::NotStarted => self.go(&environment, not_after),
            Order::Signal { signal, to } if self.phase == Phase::Running => {
                let stops = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT].contains(&signal);
                if let (true, Some(kill_after)) = (stops, self.task.kill_after) {
                    self.kill_at = self.kill_at.min(Boot::now() + kill_after);
                }
                if !self.signals.contains(&(signal, to)) {
                    self.signals.push((signal, to));
                }
            }
            Order::Go { .. } | Order::Signal { .. } => {}
        }
    }

    fn go(&mut self, environment: &[(String, String)], not_after: Boot) {
        let in_time = self.deadline.is_some_and(|(term_at, _)| !not_after.min(term_at).passed());
        if !in_time {
            return self.finish(Report::TooLate);
        }
        for (name, value) in environment {
            self.program.set(OsStr::new(name), OsStr::new(value));
        }
        // A slow exec (a cold binary on NFS) keeps the keeper here: deadlines that come meanwhile are acted on right after it,
        // and redlock kills a keeper that comes back too late.
        match self.program.start(!self.terminal) {
            Ok(pid) => {
                self.phase = Phase::Running;
                self.known = Known { child: Some(pid), group: (!self.terminal).then_some(pid) };
                self.childless = false;
                self.max_run_at = self.task.max_run.map_or(Boot::NEVER, |time| Boot::now() + time);
                self.report(&Report::Started);
                stdio::let_go_of_everything();
            }
            Err(errno) => self.finish(Report::NotStarted { errno: errno as i32 }),
        }
    }

    /// Does what is due by now.
    fn look_at_clock(&mut self) {
        if self.phase != Phase::Running || self.job_is_over() {
            return;
        }
        let now = Boot::now();
        if let Some((_, kill_at)) = self.deadline.take_if(|(term_at, _)| now >= *term_at) {
            if self.cause != Cause::Lost {
                self.report(&Report::Lapsed);
            }
            self.stop(Cause::Lost, kill_at);
        } else if now >= self.max_run_at {
            self.max_run_at = Boot::NEVER;
            if self.cause == Cause::Itself {
                self.stop(Cause::TooLong, now + self.task.grace);
            }
        }
        if self.kill_at.passed() {
            self.start_killing();
        }
    }

    /// Stops the job: SIGTERM now, unless the machine has slept through it, SIGKILL at `kill_at`.
    fn stop(&mut self, cause: Cause, kill_at: Boot) {
        self.cause = cause;
        self.kill_at = self.kill_at.min(kill_at);
        tree::signal_all(libc::SIGTERM, self.known, true, &mut |size| {
            if cause == Cause::Lost {
                let takes = EACH_DEATH * u32::try_from(size).unwrap_or(u32::MAX);
                self.kill_at = self.kill_at.min(kill_at - takes);
            }
            self.has_more_urgent()
        });
    }

    fn look_for_redlock(&mut self) {
        match self.phase {
            _ if !self.orphaned => {}
            Phase::NotStarted => self.phase = Phase::Over,
            Phase::Running => self.start_killing(),
            Phase::Killing(_) | Phase::Over => {}
        }
    }

    fn start_killing(&mut self) {
        self.phase = Phase::Killing(Killing::begin());
        self.report(&Report::Killing);
    }

    /// Passes on one of the signals that wait for that.
    fn pass_on_signal(&mut self) {
        if self.phase != Phase::Running || self.signals.is_empty() {
            return;
        }
        let (signal, to) = self.signals.remove(0);
        match (to, self.known.child) {
            (To::Job, _) => tree::signal_all(signal, self.known, false, &mut |_| self.has_more_urgent()),
            (To::Command, Some(command)) => process::signal_child(command, signal),
            (To::Command | To::Nobody, _) => {}
        }
    }

    /// Whether something has come or become due that must not wait until a large job has been signalled.
    fn has_more_urgent(&mut self) -> bool {
        self.take_orders();
        self.orphaned || self.due_at().passed()
    }

    /// When the clock has to be looked at next, while the job runs.
    fn due_at(&self) -> Boot {
        let lease = self.deadline.map_or(Boot::NEVER, |(term_at, _)| term_at);
        lease.min(self.max_run_at).min(self.kill_at)
    }

    fn reap(&mut self) {
        while self.phase != Phase::NotStarted {
            match process::reap() {
                Reaped::One(pid, status) if Some(pid) == self.known.child => {
                    self.known.child = None;
                    self.status = Some(status);
                }
                Reaped::One(..) => {}
                Reaped::Nobody => return,
                Reaped::Childless => {
                    self.childless = true;
                    return;
                }
            }
        }
    }

    fn kill_on(&mut self) {
        let Phase::Killing(killing) = &mut self.phase else { return };
        if self.childless {
            return;
        }
        match killing.round(self.known) {
            Progress::Done | Progress::GoesOn(_) => {}
            Progress::Unkillable(pids) => self.report(&Report::Unkillable { pids }),
            Progress::OutOfReach(pids) => self.end(Some(pids)),
        }
    }

    /// Whether what the lock is for has ended: the command, or when it was stopped or `--whole`, everything.
    fn job_is_over(&self) -> bool {
        let everything = self.task.whole || self.cause != Cause::Itself || matches!(self.phase, Phase::Killing(_));
        self.known.child.is_none() && (self.childless || !everything)
    }

    fn is_over(&mut self) -> bool {
        if matches!(self.phase, Phase::Running | Phase::Killing(_)) && self.job_is_over() {
            self.end(None);
        }
        self.phase == Phase::Over
    }

    fn end(&mut self, out_of_reach: Option<Vec<i32>>) {
        let (status, cause) = (self.status, self.cause);
        self.finish(Report::Ended { status, cause, at: Boot::now(), out_of_reach });
    }

    fn finish(&mut self, report: Report) {
        self.report(&report);
        self.phase = Phase::Over;
    }

    fn report(&self, report: &Report) {
        // When redlock is gone, the next look at the socket says so.
        let _ = self.socket.send(report);
    }

    fn wait(&mut self) {
        let next = match self.phase {
            Phase::Running => self.due_at(),
            // A process that was killed but is not a child tells nothing here.
            Phase::Killing(killing) => killing.again_at(),
            Phase::NotStarted | Phase::Over => Boot::NEVER,
        };
        self.timer.set(next);
        let patience = match self.phase {
            // Signalling a large job stops when redlock turns out to be gone: that is not behind a wait.
            Phase::Running if self.orphaned || !self.signals.is_empty() => PollTimeout::ZERO,
            _ => PollTimeout::NONE,
        };
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
