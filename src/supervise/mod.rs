//! redlock's side of a running job: the lease, the signals, what the keeper reports. Owns the lease while the job runs.

mod ending;
mod inbox;
mod messages;
mod renewer;
pub(crate) mod timeline;

use crate::error::{Error, human};
use crate::exit::Exit;
use crate::keeper::{self, Cause, Keeper, Order, Report, Task, To};
use crate::lock::{Alarm, Locker, Request, Settings};
use crate::sys::clock::Boot;
use crate::sys::host;
use crate::sys::inherited::Inherited;
use crate::sys::process;
use crate::sys::signals::{self, Arrivals, Arrived, Signals};
use crate::sys::stdio;
use crate::waiting::Line;
use ending::Ended;
use inbox::{Inbox, News};
use messages::{Loss, Talk};
use nix::errno::Errno;
use nix::libc;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::Signal;
use renewer::{Assignment, Confirmed, Event, Grant};
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use timeline::Timeline;

/// What `run` is to do; every combination in it is a safe one.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    pub(crate) name: String,
    pub(crate) request: Request,
    /// COMMAND and its arguments; never empty.
    pub(crate) command: Vec<OsString>,
    /// What the job's environment gets besides NAME, TOKEN and FENCING_TOKEN: the *where* and REDLOCK_HELD's past.
    pub(crate) environment: Vec<(String, String)>,
    /// Between SIGTERM and SIGKILL on lease loss and `--max-run`; the default depends on the ttl.
    pub(crate) grace: Option<Duration>,
    pub(crate) kill_after: Option<Duration>,
    pub(crate) continue_when_lost: bool,
    pub(crate) hold_at_least: Option<Duration>,
    pub(crate) max_run: Option<Duration>,
    /// The job lasts until its last descendant has ended.
    pub(crate) whole: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
}

/// Signals that go to all of the job.
const TO_JOB: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT];

/// Signals that go to the command alone.
const TO_COMMAND: [Signal; 5] = [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH, Signal::SIGCONT];

/// Acquires the lock, runs the command under it and releases.
///
/// # Errors
/// Everything that kept the command from being started. What happened after its start is the [`Exit`].
pub(crate) fn run(plan: Plan) -> Result<Exit, Error> {
    let mut mask = signals::not_ignored(&[&TO_JOB[..], &TO_COMMAND[..]].concat());
    mask.add(Signal::SIGCHLD);
    let inherited = Inherited::take_over(&mask).map_err(cannot_supervise)?;
    process::adopt_orphans();
    // Where there is a terminal, the job must be in the group that the shell has made its foreground job,
    // or that Ctrl-Z and Ctrl-C would not reach.
    let terminal = stdio::has_terminal();
    let ttl = plan.request.ttl;
    let environment = plan.environment.iter().map(|(name, value)| (name.into(), value.into()));
    let keeper = keeper::start(Task {
        command: plan.command.clone(),
        environment: environment.collect(),
        inherited,
        terminal,
        grace: plan.grace.unwrap_or_else(|| timeline::default_grace(ttl)),
        max_run: plan.max_run,
        kill_after: plan.kill_after,
        whole: plan.whole,
    });
    let keeper = Arc::new(keeper.map_err(cannot_supervise)?);
    let signals = Signals::open(&mask).map_err(cannot_supervise)?;
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let bell = Arc::new(EventFd::from_flags(flags).map_err(cannot_supervise)?);

    let locker = Locker::new(&plan.settings, &plan.name, ttl)?;
    let talk = Talk::new(&plan.name, ttl, plan.quiet, plan.verbose);
    let signals = Arc::new(Arrivals::of(signals));
    let alarm = alarm(&signals, &keeper).map_err(cannot_supervise)?;
    let (renewer, events) = renewer::prepare(Assignment {
        timeline: Timeline::new(ttl, plan.grace, locker.node_timeout()),
        locker,
        request: plan.request.clone(),
        keeper: Arc::clone(&keeper),
        continue_when_lost: plan.continue_when_lost,
        line: Some(Line::new(&plan.name, plan.quiet, plan.verbose)),
        bell: Arc::clone(&bell),
    });
    let mut supervisor = Supervisor {
        inbox: Inbox::new(signals, Arc::clone(&keeper), events, bell),
        plan,
        talk,
        terminal,
        keeper,
        renewer,
        alarm,
        interrupted: None,
        confirmed: None,
        outage: None,
        loss: None,
        renewer_failed: false,
        keeper_gone: false,
        killing: false,
        overdue: false,
    };
    let result = supervisor.run();
    supervisor.keeper.finish();
    result
}

struct Supervisor {
    plan: Plan,
    talk: Talk,
    /// The job shares our process group, and with it what the terminal sends.
    terminal: bool,
    keeper: Arc<Keeper>,
    inbox: Inbox,
    renewer: renewer::Handle,
    /// Ends the wait for the lock.
    alarm: Alarm,
    /// The signal that came before the command was started.
    interrupted: Option<i32>,
    confirmed: Option<Confirmed>,
    /// What the nodes did to the tries since the last confirmed one, and since when.
    outage: Option<(String, Boot)>,
    loss: Option<Loss>,
    renewer_failed: bool,
    keeper_gone: bool,
    /// The keeper has begun to kill the job.
    killing: bool,
    /// The keeper has not done so in time.
    overdue: bool,
}

impl Supervisor {
    fn run(&mut self) -> Result<Exit, Error> {
        let grant = self.acquire()?;
        self.talk.acquired(&grant);
        if let Some(exit) = self.start(&grant)? {
            return Ok(exit);
        }
        let ended = self.supervise();
        Ok(self.conclude(&ended, &grant))
    }

    /// Waits for the lock.
    fn acquire(&mut self) -> Result<Grant, Error> {
        self.renewer.acquire(&self.alarm);
        loop {
            match self.inbox.next() {
                News::Lease(Event::Acquired(grant)) => return Ok(grant),
                News::Lease(Event::NotAcquired(error)) => {
                    // Perhaps it says what the alarm was about.
                    while let Some(news) = self.inbox.ready() {
                        self.before_start(news);
                    }
                    return Err(match (error, self.interrupted) {
                        _ if self.keeper_gone => keeper_gone(),
                        (Error::Interrupted(0), Some(signal)) => Error::Interrupted(signal),
                        (error, _) => error,
                    });
                }
                News::Lease(Event::Failed) => {
                    return Err(Error::Internal("the thread of the lease has failed".to_owned()));
                }
                news => self.before_start(news),
            }
        }
    }

    /// Takes in what comes while there is no job yet.
    fn before_start(&mut self, news: News) {
        match news {
            News::Signal(Arrived { signal, .. }) => {
                if ends(signal) && self.interrupted.replace(signal).is_none() {
                    self.renewer.interrupt(signal);
                }
            }
            News::KeeperGone => {
                self.keeper_gone = true;
                self.renewer.interrupt(libc::SIGTERM);
            }
            News::Lease(event) => self.note(event),
            News::Keeper(_) => {}
        }
    }

    /// Starts the command. Some exit when it could not be executed.
    fn start(&mut self, grant: &Grant) -> Result<Option<Exit>, Error> {
        while let Some(news) = self.inbox.ready() {
            self.before_start(news);
        }
        if let Some(signal) = self.interrupted {
            self.give_back();
            return Err(Error::Interrupted(signal));
        }
        if self.keeper_gone {
            // That is said only once; nobody would answer.
            self.kill_job();
            self.give_back();
            return Err(keeper_gone());
        }
        let not_after = self.confirmed.map_or(Boot::NEVER, |confirmed| confirmed.renew_at);
        let environment = self.environment(grant);
        // A keeper that cannot be told is gone, and that is news.
        let _ = self.keeper.send(&Order::Go { environment, not_after });
        // What came before the command was born: of each kind one.
        let mut early: Vec<Arrived> = Vec::new();
        loop {
            match self.next() {
                News::Signal(arrived) if early.contains(&arrived) => {}
                News::Signal(arrived) => early.push(arrived),
                News::Keeper(Report::Started) => break,
                News::Keeper(Report::NotStarted { errno }) => {
                    self.give_back();
                    let errno = Errno::from_raw(errno);
                    return match (host::shortage(&errno.into()), early.iter().find(|early| ends(early.signal))) {
                        (Some(_), _) => Err(cannot_supervise(errno)),
                        // Ctrl-C is for the command that was not found, too.
                        (None, Some(arrived)) => Err(Error::Interrupted(arrived.signal)),
                        (None, None) => Ok(Some(self.not_started(errno))),
                    };
                }
                News::Keeper(Report::TooLate) => {
                    self.give_back();
                    return Err(self.too_late(grant));
                }
                News::KeeperGone => {
                    self.kill_job();
                    if self.overdue {
                        return Ok(Some(self.conclude(&Ended::lost(), grant)));
                    }
                    self.give_back();
                    return Err(keeper_gone());
                }
                news => self.before_start(news),
            }
        }
        early.into_iter().for_each(|arrived| self.forward(arrived));
        Ok(None)
    }

    /// What tells the job of its lease. REDLOCK_HELD has the tokens of all leases around the job, outermost first.
    fn environment(&self, grant: &Grant) -> Vec<(String, String)> {
        let past = self.plan.environment.iter().find(|(name, _)| name == "REDLOCK_HELD");
        let past = past.map_or("", |(_, held)| held.as_str());
        let held = format!("{past} {}", grant.token).trim_start().to_owned();
        [
            ("REDLOCK_NAME", self.plan.name.clone()),
            ("REDLOCK_TOKEN", grant.token.clone()),
            ("REDLOCK_FENCING_TOKEN", grant.fencing_token.to_string()),
            ("REDLOCK_HELD", held),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn not_started(&self, errno: Errno) -> Exit {
        let command = &self.plan.command[0];
        let with_path = command.to_string_lossy().contains('/');
        let reason = match errno {
            Errno::ENOENT if with_path && std::fs::exists(command).unwrap_or(false) => {
                "its interpreter was not found".to_owned()
            }
            Errno::ENOENT => "not found".to_owned(),
            errno => errno.desc().to_lowercase(),
        };
        self.talk.cannot_start(&quoted(command), &reason);
        if errno == Errno::ENOENT { Exit::NotFound } else { Exit::CannotExecute }
    }

    fn too_late(&self, grant: &Grant) -> Error {
        let name = &self.plan.name;
        Error::Unavailable(match &self.loss {
            Some(Loss::Proven(text)) => {
                format!("lost {name:?} before the command was started: {text}")
            }
            _ => format!(
                "{name:?} came too late to start the command: {} took {} of {} to answer; a longer --ttl helps",
                grant.nodes,
                human(self.confirmed.map_or(Duration::ZERO, |one| { grant.acquired_at.since(one.confirmed_at) })),
                humantime::format_duration(grant.ttl),
            ),
        })
    }

    /// Waits for the end of the job.
    fn supervise(&mut self) -> Ended {
        loop {
            match self.next() {
                News::Signal(arrived) => self.forward(arrived),
                News::Keeper(Report::Lapsed) => {
                    let loss = self.unconfirmed();
                    self.loss.get_or_insert(loss);
                }
                News::Keeper(Report::Killing) => self.killing = true,
                News::Keeper(Report::Unkillable { pids }) => self.talk.unkillable(&pids),
                News::Keeper(Report::Ended { status, cause, at, out_of_reach }) => {
                    if let Some(pids) = out_of_reach {
                        self.talk.out_of_reach(&pids);
                    }
                    return Ended { status, cause, at };
                }
                News::Keeper(_) => {}
                News::KeeperGone => {
                    self.kill_job();
                    if self.overdue {
                        return Ended::lost();
                    }
                    self.keeper_gone = true;
                    return Ended { status: None, cause: Cause::Itself, at: Boot::now() };
                }
                News::Lease(event) => self.note(event),
            }
        }
    }

    /// The next news of the job or its lease. A keeper that lets the time for SIGKILL pass without a word counts as gone.
    fn next(&mut self) -> News {
        loop {
            let needs_thread_at = self.renewer.needs_thread_at();
            let silent_at = self.silent_at();
            if let Some(news) = self.inbox.next_until(needs_thread_at.min(silent_at)) {
                return news;
            }
            if silent_at.passed() {
                self.overdue = true;
                return News::KeeperGone;
            }
            self.renewer.start_thread();
        }
    }

    /// When a keeper that has not begun to kill the job is stopped, or stuck.
    fn silent_at(&self) -> Boot {
        match self.confirmed {
            Some(Confirmed { silent_at, .. }) if !self.plan.continue_when_lost && !self.killing => silent_at,
            _ => Boot::NEVER,
        }
    }

    /// Passes a signal on to whom it is for.
    fn forward(&self, Arrived { signal, from_kernel }: Arrived) {
        let to_job = TO_JOB.iter().any(|&one| one as i32 == signal);
        let to = match (from_kernel && self.terminal, to_job) {
            // The terminal has sent it to the whole group, so the job has it.
            (true, _) => To::Nobody,
            (false, true) => To::Job,
            (false, false) => To::Command,
        };
        let _ = self.keeper.send(&Order::Signal { signal, to });
    }

    /// Takes in what happened to the lease of a running job.
    fn note(&mut self, event: Event) {
        let loss = match event {
            Event::Confirmed(confirmed) => {
                self.confirmed = Some(confirmed);
                self.outage = None;
                return;
            }
            Event::Unconfirmed { faults, since } => {
                self.talk.unconfirmed(&faults);
                self.outage = Some((faults, since));
                return;
            }
            Event::Lost(text) => Loss::Proven(text),
            Event::Expired => self.unconfirmed(),
            Event::Failed => {
                self.renewer_failed = true;
                Loss::Fault
            }
            Event::Acquired(_) | Event::NotAcquired(_) | Event::Released(_) => return,
        };
        if self.loss.is_none() && self.plan.continue_when_lost {
            self.talk.lost_but_going_on(&loss);
        }
        self.loss.get_or_insert(loss);
    }

    /// Why the lease was not confirmed in time.
    fn unconfirmed(&self) -> Loss {
        match (&self.outage, self.confirmed) {
            (Some((faults, since)), _) => {
                Loss::Unconfirmed { faults: faults.clone(), outage: Boot::now().since(*since) }
            }
            (None, Some(Confirmed { confirmed_at, .. })) => Loss::Asleep(Boot::now().since(confirmed_at)),
            (None, None) => Loss::Fault,
        }
    }
}

/// Whether this signal ends us as long as there is no job: as if nobody handled it.
fn ends(signal: i32) -> bool {
    signal != libc::SIGWINCH && signal != libc::SIGCONT
}

/// What ends the wait for the lock: a signal, or the end of the keeper. Children that we have been given are reaped meanwhile.
fn alarm(signals: &Arc<Arrivals>, keeper: &Arc<Keeper>) -> nix::Result<Alarm> {
    let descriptor = signals.as_fd().try_clone_to_owned();
    let descriptor = descriptor.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)));
    let (signals, keeper) = (Arc::clone(signals), Arc::clone(keeper));
    Ok(Alarm::new(descriptor?, move || {
        let reap = || while let process::Reaped::One(..) = process::reap() {};
        signals.any(ends, reap) || keeper.is_gone()
    }))
}

/// There was no room for what supervising takes.
fn cannot_supervise(errno: Errno) -> Error {
    match host::shortage(&errno.into()) {
        // Trying again may help.
        Some(shortage) => Error::Unavailable(format!("cannot supervise: {shortage}")),
        None => Error::Internal(format!("cannot supervise: {}", errno.desc().to_lowercase())),
    }
}

fn keeper_gone() -> Error {
    Error::Internal("the process that was to keep the job is gone".to_owned())
}

fn quoted(word: &OsStr) -> String {
    format!("{:?}", word.to_string_lossy())
}
