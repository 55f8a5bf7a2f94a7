//! The job's parent process: starts the command, enforces the deadlines of its lease, passes on
//! signals, reaps. Knows nothing of Redis, and survives whatever happens to redlock.
//!
//! It is forked while redlock has no threads, and stays single-threaded. Being the parent leaves no
//! moment at which a job exists that nobody watches: whoever loses a parent becomes the keeper's child, and when
//! redlock dies, the socket between the two says so.

mod messages;

pub(crate) use messages::{Cause, Order, Report, To};

use crate::sys::clock::Boot;
use crate::sys::inherited::Inherited;
use crate::sys::packets::{Packets, Received};
use crate::sys::process::{self, Program, Reaped, Urgency};
use crate::sys::signals::Signals;
use crate::sys::stdio;
use crate::sys::timer::Timer;
use crate::sys::tree::{self, Known};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// How long processes that may not be killed (another user's) keep a stop from being called done.
const OUT_OF_REACH_AFTER: Duration = Duration::from_secs(1);

/// What is known of the job before its lock is ours.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) command: Vec<OsString>,
    /// Variables that the job gets besides our own.
    pub(crate) environment: Vec<(String, String)>,
    /// Variables of ours that the job must not see.
    pub(crate) hidden: Vec<String>,
    pub(crate) inherited: Inherited,
    /// The process group to put the command into; 0 for one of its own.
    pub(crate) group: i32,
    /// Between SIGTERM and SIGKILL when `max_run` is over.
    pub(crate) grace: Duration,
    pub(crate) max_run: Option<Duration>,
    pub(crate) kill_after: Option<Duration>,
    pub(crate) whole: bool,
}

/// redlock's end of it. Dropping all copies of the socket ends the keeper and the job.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) socket: Arc<Packets>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// It will find what it is told meanwhile at its end of the socket.
    NotStarted(Box<Task>, Packets),
    Started {
        pid: i32,
    },
}

impl Handle {
    /// A keeper of `task`, to be started.
    ///
    /// # Errors
    /// The kernel's, when it has no room for a descriptor.
    pub(crate) fn new(task: Task) -> nix::Result<Handle> {
        let (ours, theirs) = Packets::pair()?;
        Ok(Handle { socket: Arc::new(ours), state: State::NotStarted(Box::new(task), theirs) })
    }

    /// Forks the keeper, unless that has been done; the job's input and output are in its hands from then on. Call it before
    /// there are threads: only then the copy of this process may do anything.
    ///
    /// # Errors
    /// The kernel's, when it has no room for a process.
    pub(crate) fn start(&mut self) -> nix::Result<()> {
        let State::NotStarted(task, theirs) = &self.state else {
            return Ok(());
        };
        let ours = &self.socket;
        let pid = process::fork_helper(c"redlock-keeper", || {
            ours.close_copy();
            match Keeper::new(task, theirs) {
                Ok(mut keeper) => keeper.keep(),
                Err(errno) => {
                    let errno = errno as i32;
                    let _ = theirs.send(&Report::NotStarted { errno });
                }
            }
        })?;
        self.state = State::Started { pid };
        stdio::let_go_of_input_and_output();
        Ok(())
    }

    /// What has a keeper end that has nothing left to do, and waits for that, for a moment at most.
    pub(crate) fn farewell(&self) -> Box<dyn FnOnce() + Send> {
        let State::Started { pid } = self.state else {
            return Box::new(|| {});
        };
        let socket = Arc::clone(&self.socket);
        Box::new(move || finish(pid, &socket, PollTimeout::from(100_u8)))
    }

    /// Has it end if it has not yet, and waits for that, a second at most.
    pub(crate) fn finish(self) {
        if let State::Started { pid } = self.state {
            finish(pid, &self.socket, PollTimeout::from(1000_u16));
        }
    }
}

fn finish(pid: i32, socket: &Packets, patience: PollTimeout) {
    // Others may still have a copy.
    socket.hang_up();
    // Its end of the socket is closed a moment before it can be waited for.
    let mut end = [PollFd::new(socket.as_fd(), PollFlags::empty())];
    if poll(&mut end, patience) == Ok(1) {
        process::wait_for(pid);
    }
}

/// What the job is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    NotStarted,
    Running,
    /// Everything is being killed until there are no children left.
    Killing {
        rounds: u16,
        /// When to look for survivors.
        again_at: Boot,
        refused_since: Option<Boot>,
    },
    Over,
}

/// Makes the command ready; none when there is a NUL in it.
fn prepare(task: &Task) -> Option<Program> {
    let visible = std::env::vars_os().filter(|(name, _)| !task.hidden.iter().any(|hidden| name == &**hidden));
    let mut program = Program::new(&task.command, visible, task.inherited)?;
    for (name, value) in &task.environment {
        program.set(OsStr::new(name), OsStr::new(value))?;
    }
    program.pass_on_sockets_of(std::os::unix::process::parent_id());
    Some(program)
}

struct Keeper<'a> {
    task: &'a Task,
    socket: &'a Packets,
    /// SIGCHLD.
    children: Signals,
    timer: Timer,
    program: Option<Program>,
    urgency: Urgency,
    phase: Phase,
    /// The command, until it has been reaped.
    command: Option<i32>,
    group: Option<i32>,
    status: Option<i32>,
    childless: bool,
    cause: Cause,
    /// From the lease; none before the first order.
    deadline: Option<(Boot, Boot)>,
    max_run_at: Boot,
    /// Where a stop or `kill_after` ends.
    kill_at: Boot,
    /// Nobody is left to report to.
    orphaned: bool,
}

impl<'a> Keeper<'a> {
    fn new(task: &'a Task, socket: &'a Packets) -> nix::Result<Keeper<'a>> {
        // systemd and Kubernetes send their stop to every process, and we must outlive the job.
        SigSet::all().thread_set_mask()?;
        process::adopt_orphans();
        Ok(Keeper {
            task,
            socket,
            children: Signals::open(&SigSet::from_iter([Signal::SIGCHLD]))?,
            timer: Timer::new()?,
            program: prepare(task),
            urgency: Urgency::default(),
            phase: Phase::NotStarted,
            command: None,
            group: None,
            status: None,
            childless: true,
            cause: Cause::Itself,
            deadline: None,
            max_run_at: Boot::NEVER,
            kill_at: Boot::NEVER,
            orphaned: false,
        })
    }

    fn keep(&mut self) {
        self.take_orders();
        // Its connections are redlock's alone. (Without /proc they stay open as long as we live.)
        let ours = [self.socket.as_fd(), self.children.as_fd(), self.timer.as_fd()];
        process::keep_only(&ours);
        loop {
            // A job that has ended is not stopped for the time it takes us to notice.
            self.reap();
            self.take_orders();
            self.look_at_clock();
            self.reap();
            self.kill_on();
            if self.is_over() {
                break;
            }
            self.wait();
        }
        self.linger();
    }

    /// Waits until redlock hangs up. Our end takes some time, and the processor would be ours when redlock is to learn that
    /// the job has ended.
    fn linger(&self) {
        self.urgency.restore();
        while !self.orphaned && !matches!(self.socket.receive::<Order>(), Received::Closed) {
            let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut ready, PollTimeout::NONE);
        }
    }

    fn take_orders(&mut self) {
        while !self.orphaned {
            match self.socket.receive() {
                Received::Message(order) => self.obey(order),
                Received::Nothing => return,
                Received::Closed => self.orphaned = true,
            }
        }
        match self.phase {
            Phase::NotStarted => self.phase = Phase::Over,
            Phase::Running => self.start_killing(),
            Phase::Killing { .. } | Phase::Over => {}
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            // Once the job has been told to stop, it stays so: redlock says that the lease was lost.
            Order::Deadline { .. } if self.cause == Cause::Lost => {}
            Order::Deadline { term_at, kill_at } => self.deadline = Some((term_at, kill_at)),
            Order::Go { environment, not_after } => self.go(&environment, not_after),
            Order::Stop { kill_at } => {
                self.deadline = None;
                // Also before there is a job: it must not be started any more.
                self.cause = Cause::Lost;
                if self.phase == Phase::Running {
                    self.stop(Cause::Lost, kill_at);
                }
            }
            Order::Signal { .. } if self.phase != Phase::Running => {}
            Order::Signal { signal, to } => {
                match to {
                    To::Job => tree::signal_all(signal, self.known()),
                    To::Command => self.signal_command(signal),
                    To::Nobody => {}
                }
                let stops = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT].contains(&signal);
                if let (true, Some(kill_after)) = (stops, self.task.kill_after) {
                    self.kill_at = self.kill_at.min(Boot::now() + kill_after);
                }
            }
        }
    }

    fn go(&mut self, environment: &[(String, String)], not_after: Boot) {
        let Some(mut program) = self.program.take().filter(|_| self.phase == Phase::NotStarted) else {
            self.finish(Report::NotStarted { errno: libc::EINVAL });
            return;
        };
        let complete =
            environment.iter().all(|(name, value)| program.set(OsStr::new(name), OsStr::new(value)).is_some());
        let in_time = self.deadline.is_some_and(|(term_at, _)| !not_after.min(term_at).passed());
        if !complete || !in_time {
            self.finish(if complete { Report::TooLate } else { Report::NotStarted { errno: libc::EINVAL } });
            return;
        }
        match program.start(self.task.group) {
            Ok(pid) => {
                // On a busy machine it decides how late a job is killed. We sleep nearly always from now on.
                self.urgency = process::hurry();
                self.phase = Phase::Running;
                self.command = Some(pid);
                self.childless = false;
                self.group = (self.task.group == 0).then_some(pid);
                self.max_run_at = self.task.max_run.map_or(Boot::NEVER, |time| Boot::now() + time);
                self.report(&Report::Started);
                stdio::let_go_of_everything();
            }
            Err(errno) => self.finish(Report::NotStarted { errno: errno as i32 }),
        }
    }

    fn known(&self) -> Known {
        Known { child: self.command, group: self.group }
    }

    fn signal_command(&self, signal: i32) {
        if let Some(command) = self.command {
            process::signal_child(command, signal);
        }
    }

    /// Stops the job: SIGTERM now, SIGKILL at `kill_at`.
    fn stop(&mut self, cause: Cause, kill_at: Boot) {
        self.cause = cause;
        self.kill_at = self.kill_at.min(kill_at);
        tree::signal_all(libc::SIGTERM, self.known());
        tree::continue_all();
    }

    fn start_killing(&mut self) {
        self.phase = Phase::Killing { rounds: 0, again_at: Boot::now(), refused_since: None };
    }

    /// Does what is due by now.
    fn look_at_clock(&mut self) {
        if self.phase != Phase::Running || self.job_is_over() {
            return;
        }
        let now = Boot::now();
        let (term_at, kill_at) = self.deadline.unwrap_or((Boot::NEVER, Boot::NEVER));
        if now >= term_at {
            self.deadline = None;
            self.report(&Report::Lapsed);
            if now < kill_at {
                self.stop(Cause::Lost, kill_at);
            } else {
                // We have slept through it, with the machine probably.
                self.cause = Cause::Lost;
                self.kill_at = kill_at;
            }
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

    fn reap(&mut self) {
        while self.phase != Phase::NotStarted {
            match process::reap() {
                Reaped::One(pid, status) if Some(pid) == self.command => {
                    self.command = None;
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

    /// Kills whoever is left. Each death hands its children to us, so that no children means that nobody is left.
    fn kill_on(&mut self) {
        let Phase::Killing { rounds, refused_since, again_at } = &mut self.phase else {
            return;
        };
        // All that there were have been hit; only who was being forked at that moment is left to be found.
        if self.childless || !again_at.passed() {
            return;
        }
        let known = Known { child: self.command, group: self.group };
        let killed = tree::kill_all(known, *rounds == 0, &[]);
        *rounds = rounds.saturating_add(1);
        *again_at = Boot::now() + Duration::from_millis(u64::from(*rounds).min(20));
        *refused_since = match *refused_since {
            _ if killed.signalled > 0 || killed.refused.is_empty() => None,
            None => Some(Boot::now()),
            since => since,
        };
        if refused_since.is_some_and(|since| (since + OUT_OF_REACH_AFTER).passed()) {
            self.end(killed.refused);
        }
    }

    /// Whether what the lock is for has ended: the command, or when it was stopped or `--whole`, everybody.
    fn job_is_over(&self) -> bool {
        let everybody = self.task.whole || self.cause != Cause::Itself || matches!(self.phase, Phase::Killing { .. });
        self.command.is_none() && (self.childless || !everybody)
    }

    fn is_over(&mut self) -> bool {
        if matches!(self.phase, Phase::Running | Phase::Killing { .. }) && self.job_is_over() {
            self.end(Vec::new());
        }
        self.phase == Phase::Over
    }

    fn end(&mut self, out_of_reach: Vec<i32>) {
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
            Phase::Running => {
                let lease = self.deadline.map_or(Boot::NEVER, |(term_at, _)| term_at);
                lease.min(self.max_run_at).min(self.kill_at)
            }
            // Who was killed but is not our child tells nobody here.
            Phase::Killing { again_at, .. } => again_at,
            Phase::NotStarted | Phase::Over => Boot::NEVER,
        };
        // Without a timer: look often.
        let patience = match self.timer.set(next) {
            Ok(()) => PollTimeout::NONE,
            Err(_) => PollTimeout::from(5_u8),
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
