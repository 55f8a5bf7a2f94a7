//! `redlock run`, from top to bottom: acquire, start, the first of {job ended, lease lost}, release.
//!
//! Every wait is one `select!`, and a signal is its first arm. Before the command is started a signal ends the wait; what is
//! under way is dropped, and `Lock::withdraw` takes back what it may have left on the nodes. Afterwards a signal is the
//! job's, and the job's end ends the wait. Only the release is not interrupted; it has a deadline of its own.

mod messages;
mod renewal;
pub(crate) mod timeline;

use crate::error::Error;
use crate::exit::Exit;
use crate::keeper::{self, Cause, Keeper, Killing, Order, Progress, Report, Task, To};
use crate::lock::{FAREWELL, Lease, Lock, Request, Waiting};
use crate::progress::ProgressLine;
use crate::redis::within;
use crate::sys::clock::Boot;
use crate::sys::host;
use crate::sys::inherited::Inherited;
use crate::sys::packets::Received;
use crate::sys::process::{self, Reaped};
use crate::sys::signals::{self, Arrived, Signals};
use crate::sys::stdio;
use crate::sys::wait::{self, Readable, sleep_until};
use messages::{Loss, Talk};
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;
use renewal::Confirmed;
use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt;
use std::pin::{Pin, pin};
use std::process::ExitStatus;
use std::time::Duration;
use timeline::Timeline;

/// What `run` is to do; every combination in it is a safe one.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) task: Task,
    /// Between SIGTERM and SIGKILL on lease loss; the default depends on the ttl.
    pub(crate) grace: Option<Duration>,
    pub(crate) continue_when_lost: bool,
    pub(crate) hold_at_least: Option<Duration>,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
}

/// Signals that go to all of the job.
const TO_JOB: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT];

/// Signals that go to the command alone.
const TO_COMMAND: [Signal; 5] = [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH, Signal::SIGCONT];

/// Acquires the lock, runs the command under it and releases. The `line` shows the wait for the lock.
///
/// # Errors
/// Everything that kept the command from being started. What happened after its start is the [`Exit`].
pub(crate) fn run(job: Job, lock: Lock, line: ProgressLine) -> Result<Exit, Error> {
    let mut mask = signals::not_ignored(&[&TO_JOB[..], &TO_COMMAND[..]].concat());
    mask.add(Signal::SIGCHLD);
    let inherited = Inherited::take_over(&mask).map_err(cannot_supervise)?;
    process::adopt_orphans();
    let terminal = stdio::has_terminal();
    // Before there is a runtime: the keeper must not share its descriptors, and a fork of one thread is a whole process.
    let keeper = keeper::start(&job.task, inherited, terminal).map_err(cannot_supervise)?;
    let signals = Signals::open(&mask).map_err(cannot_supervise)?;
    wait::block_on(async {
        let mut supervisor = Supervisor {
            talk: Talk::new(&lock.name, job.quiet, job.verbose),
            signals: Readable::new(signals).map_err(Error::cannot_wait)?,
            keeper: Readable::new(keeper).map_err(Error::cannot_wait)?,
            timeline: Timeline::new(job.request.ttl, job.grace, lock.node_timeout()),
            terminal,
            job,
        };
        supervisor.run(lock, line).await
    })
    .map_err(Error::cannot_wait)?
}

struct Supervisor {
    job: Job,
    talk: Talk,
    signals: Readable<Signals>,
    keeper: Readable<Keeper>,
    timeline: Timeline,
    /// The job shares our process group, and with it what the terminal sends.
    terminal: bool,
}

/// What the job has come to.
enum Outcome {
    /// It has ended, by itself or because it was stopped.
    Ended { status: Option<i32>, cause: Cause, at: Boot },
    /// The command could not be executed. This signal came meanwhile, and would have ended it.
    NotStarted { errno: Errno, signal: Option<i32> },
    /// The keeper was told to start it too late for the lease.
    TooLate,
    /// The keeper was killed, and this process has killed the job in its place; or it let the deadline of the lease pass.
    KeeperGone { overdue: bool },
}

impl Supervisor {
    async fn run(&mut self, mut lock: Lock, line: ProgressLine) -> Result<Exit, Error> {
        let mut lease = self.acquire(&mut lock, line).await?;
        let acquired_at = Boot::now();
        // The lease of an enclosing job may be shorter than what was asked for.
        self.timeline = Timeline::new(lease.ttl.min(self.job.request.ttl), self.job.grace, lock.node_timeout());
        self.talk.acquired(&lease, &lock.where_it_is());
        if let Some(signal) = next_end(self.signals.get()) {
            let _ = lock.release(&lease, None).await;
            return Err(Error::Interrupted(signal));
        }
        let confirmed = Confirmed::new(&lease);
        self.note(&lease, &confirmed);
        let not_after = self.timeline.renew_at(lease.confirmed_at());
        let go = Order::Go { environment: self.environment(&lock.name, &lease), not_after };
        if self.keeper.get().send(&go).is_err() {
            let _ = lock.release(&lease, None).await;
            return Err(keeper_gone());
        }
        let (outcome, loss) = self.supervise(&mut lock, &mut lease, &confirmed).await;
        self.conclude(&mut lock, &lease, acquired_at, confirmed.valid_until(), outcome, loss).await
    }

    /// Waits for the lock.
    async fn acquire(&self, lock: &mut Lock, line: ProgressLine) -> Result<Lease, Error> {
        let line = RefCell::new(line);
        let mut show = |waiting: &Waiting| line.borrow_mut().show(waiting);
        let interrupted = async {
            tokio::select! {
                biased;
                signal = self.signals.next(next_end) => Error::Interrupted(signal),
                error = self.keeper_ends() => error,
                () = ProgressLine::tick_on(&line) => unreachable!("it has no end"),
            }
        };
        lock.acquire(&self.job.request, &mut show, interrupted).await
    }

    /// Waits for the end of the job, and looks after the lease meanwhile. Tells what became of both.
    async fn supervise(&self, lock: &mut Lock, lease: &mut Lease, confirmed: &Confirmed) -> (Outcome, Option<Loss>) {
        let mut renewal = pin!(self.keep_renewed(lock, lease, confirmed));
        let mut overdue = pin!(confirmed.keeper_is_overdue());
        let mut started = false;
        // What came before the command was started, once each. What the terminal sent, the command gets from the keeper.
        let mut early: Vec<Arrived> = Vec::new();
        let mut ending = None;
        let mut killing = false;
        let mut loss = None;
        loop {
            tokio::select! {
                biased;
                arrived = self.signals.next(next_signal) => {
                    if started {
                        self.forward(arrived);
                    } else if !early.contains(&arrived) {
                        ending = ending.or(ends(arrived.signal).then_some(arrived.signal));
                        early.push(arrived);
                    }
                }
                report = self.report() => match report {
                    Some(Report::Started) => {
                        started = true;
                        early.drain(..).for_each(|arrived| self.forward(arrived));
                    }
                    Some(Report::Lapsed) => loss = loss.or_else(|| Some(self.told(confirmed.why_not_renewed(), confirmed))),
                    Some(Report::Killing) => killing = true,
                    Some(Report::Unkillable { pids }) => self.talk.unkillable(&pids),
                    Some(Report::Ended { status, cause, at, out_of_reach }) => {
                        if let Some(pids) = out_of_reach {
                            self.talk.out_of_reach(&pids);
                        }
                        if cause == Cause::Lost {
                            loss = loss.or(Some(confirmed.why_not_renewed()));
                        }
                        return (Outcome::Ended { status, cause, at }, loss);
                    }
                    Some(Report::NotStarted { errno }) => {
                        let errno = Errno::from_raw(errno);
                        return (Outcome::NotStarted { errno, signal: ending }, loss);
                    }
                    Some(Report::TooLate) => return (Outcome::TooLate, loss),
                    None => {
                        self.kill_job(renewal, &mut loss).await;
                        return (Outcome::KeeperGone { overdue: false }, loss);
                    }
                },
                () = &mut overdue, if !killing => {
                    let why = confirmed.why_not_renewed();
                    self.kill_job(renewal, &mut loss).await;
                    return (Outcome::KeeperGone { overdue: true }, loss.or(Some(why)));
                }
                lost = &mut renewal, if loss.is_none() => loss = Some(self.told(lost, confirmed)),
            }
        }
    }

    /// Says what it means for the job that the lease is lost, or was not renewed in time.
    fn told(&self, loss: Loss, confirmed: &Confirmed) -> Loss {
        let valid_until = confirmed.valid_until();
        match loss {
            _ if self.job.continue_when_lost => self.talk.lost_but_going_on(&loss),
            Loss::Proven(_) => self.talk.stopping(&loss, self.timeline.kill_after_loss(Boot::now(), valid_until)),
            _ => self.talk.stopping(&loss, self.timeline.deadlines(valid_until).1),
        }
        loss
    }

    /// Releases the lease and says how we end.
    async fn conclude(
        &self,
        lock: &mut Lock,
        lease: &Lease,
        acquired_at: Boot,
        valid_until: Boot,
        outcome: Outcome,
        loss: Option<Loss>,
    ) -> Result<Exit, Error> {
        // It has nothing left to do, and ends while the lease is being released.
        self.keeper.get().hang_up();
        let keep = match (&outcome, &loss, self.job.hold_at_least) {
            (Outcome::Ended { .. }, None, Some(least)) => {
                Some((acquired_at + least).left()).filter(|left| !left.is_zero())
            }
            _ => None,
        };
        if let (Outcome::Ended { at, .. }, Some(loss), false) = (&outcome, &loss, self.job.continue_when_lost) {
            // Said before the release, which may take its time with a server that hangs.
            self.talk.lost(loss, *at, valid_until);
        }
        // A job that had ended before the lease did was protected, whoever has the lock by now.
        let ran_out = matches!(outcome, Outcome::Ended { at, .. } if at < valid_until && valid_until.passed());
        let released = match &loss {
            None => lock.release(lease, keep).await,
            // What a node still has of it is not waited for.
            Some(_) => within(Boot::now() + FAREWELL, lock.release(lease, None)).await.unwrap_or(Ok(0)),
        };
        let (status, cause) = match outcome {
            Outcome::Ended { status, cause, .. } => (status, cause),
            Outcome::NotStarted { errno, signal } => return self.not_started(errno, signal),
            Outcome::TooLate => return Err(self.too_late(lock, lease, acquired_at, loss)),
            Outcome::KeeperGone { overdue: false } => {
                self.talk.keeper_gone();
                return Ok(Exit::Internal);
            }
            Outcome::KeeperGone { overdue: true } => {
                loss.iter().for_each(|loss| self.talk.lost(loss, Boot::now(), valid_until));
                return Ok(Exit::Lost);
            }
        };
        if loss.is_some() {
            return Ok(Exit::Lost);
        }
        match released {
            Ok(_) => {}
            Err(Error::NotHeld(_) | Error::HeldByOther(..)) if ran_out => self.talk.ran_out(),
            Err(Error::NotHeld(what) | Error::HeldByOther(what, _)) => {
                self.talk.lost_at_release(&what);
                return Ok(Exit::Lost);
            }
            Err(error) => self.talk.not_released(&error, valid_until.left()),
        }
        if let (Cause::TooLong, Some(limit)) = (cause, self.job.task.max_run) {
            self.talk.too_long(limit);
            return Ok(Exit::TooLong);
        }
        let status = status.map(ExitStatus::from_raw).map(|status| (status.code(), status.signal()));
        Ok(match status {
            Some((Some(code), _)) => Exit::Command(u8::try_from(code).unwrap_or(u8::MAX)),
            Some((None, Some(signal))) => Exit::Signal(signal),
            _ => Exit::Internal,
        })
    }

    /// What tells the job of its lease. REDLOCK_HELD has the tokens of all leases around the job, outermost first.
    fn environment(&self, name: &str, lease: &Lease) -> Vec<(String, String)> {
        let around = self.job.request.ancestors.iter().rev().map(String::as_str);
        let held = around.chain([lease.token.as_str()]).collect::<Vec<_>>().join(" ");
        [
            ("REDLOCK_NAME", name.to_owned()),
            ("REDLOCK_TOKEN", lease.token.clone()),
            ("REDLOCK_FENCING_TOKEN", lease.fencing_token.to_string()),
            ("REDLOCK_HELD", held),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Tells the keeper until when the job may live.
    fn tell_deadline(&self, lease: &Lease) {
        let (term_at, kill_at) = match self.job.continue_when_lost {
            true => (Boot::NEVER, Boot::NEVER),
            false => self.timeline.deadlines(lease.valid_until()),
        };
        // A keeper that cannot be told keeps to the earlier deadline.
        let _ = self.keeper.get().send(&Order::Deadline { term_at, kill_at });
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
        let _ = self.keeper.get().send(&Order::Signal { signal, to });
    }

    /// The keeper's next report; none when it is gone.
    async fn report(&self) -> Option<Report> {
        self.keeper
            .next(|keeper| match keeper.receive() {
                Received::Message(report) => Some(Some(report)),
                Received::Nothing => None,
                Received::Closed => Some(None),
            })
            .await
    }

    /// Why there is no keeper any more, though it was told nothing yet.
    async fn keeper_ends(&self) -> Error {
        match self.report().await {
            Some(Report::NotStarted { errno }) => cannot_supervise(Errno::from_raw(errno)),
            _ => keeper_gone(),
        }
    }

    /// Kills the job in the keeper's place. The lease is renewed until that is done, which takes as long as the kernel does.
    async fn kill_job(&self, mut renewal: Pin<&mut impl Future<Output = Loss>>, loss: &mut Option<Loss>) {
        let mut killed = pin!(async {
            let mut killing: Killing = self.keeper.get().kill_job();
            loop {
                match killing.step() {
                    Progress::Done => return,
                    Progress::GoesOn(again_at) => sleep_until(again_at).await,
                    Progress::Unkillable(pids) => self.talk.unkillable(&pids),
                    Progress::OutOfReach(pids) => return self.talk.out_of_reach(&pids),
                }
            }
        });
        loop {
            tokio::select! {
                biased;
                () = &mut killed => return,
                lost = &mut renewal, if loss.is_none() => *loss = Some(lost),
            }
        }
    }

    fn not_started(&self, errno: Errno, signal: Option<i32>) -> Result<Exit, Error> {
        if let Some(signal) = signal {
            return Ok(Exit::Signal(signal));
        }
        if host::shortage(&errno.into()).is_some() {
            return Err(cannot_supervise(errno));
        }
        let command = &self.job.task.command[0];
        let with_path = command.to_string_lossy().contains('/');
        let reason = match errno {
            Errno::ENOENT if with_path && std::fs::exists(command).unwrap_or(false) => {
                "its interpreter was not found".to_owned()
            }
            Errno::ENOENT => "not found".to_owned(),
            errno => errno.desc().to_lowercase(),
        };
        self.talk.cannot_start(&command.to_string_lossy(), &reason);
        Ok(if errno == Errno::ENOENT { Exit::NotFound } else { Exit::CannotExecute })
    }

    fn too_late(&self, lock: &Lock, lease: &Lease, acquired_at: Boot, loss: Option<Loss>) -> Error {
        let name = lock.name.clone();
        match loss {
            Some(Loss::Proven(what)) => Error::LostBeforeStart { name, what },
            _ => Error::GrantedTooLate { name, took: acquired_at.since(lease.confirmed_at()), ttl: lease.ttl },
        }
    }
}

/// The next signal that has come, SIGCHLD apart. Children that were inherited are taken in on the way: a killed keeper, or, as
/// process 1, any orphan.
fn next_signal(signals: &Signals) -> Option<Arrived> {
    loop {
        let arrived = signals.next()?;
        if arrived.signal != libc::SIGCHLD {
            return Some(arrived);
        }
        while let Reaped::One(..) = process::reap() {}
    }
}

/// The next signal that ends us as long as there is no job, if one has come.
fn next_end(signals: &Signals) -> Option<i32> {
    std::iter::from_fn(|| next_signal(signals)).map(|arrived| arrived.signal).find(|&signal| ends(signal))
}

/// Whether this signal ends us as long as there is no job: as if it had no handler.
fn ends(signal: i32) -> bool {
    signal != libc::SIGWINCH && signal != libc::SIGCONT
}

/// There was no room for what supervising takes.
fn cannot_supervise(errno: Errno) -> Error {
    match host::shortage(&errno.into()) {
        // Trying again may help.
        Some(shortage) => Error::Shortage(format!("cannot supervise the job: {shortage}")),
        None => Error::Internal(format!("cannot supervise the job: {}", errno.desc().to_lowercase())),
    }
}

fn keeper_gone() -> Error {
    Error::Internal("the keeper was killed before it could start the command".to_owned())
}
