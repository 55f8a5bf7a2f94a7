//! `redlock run`, from top to bottom: acquire, start, wait for the first of {job ended, lease lost}, release.
//!
//! Every wait is one `select!`, whose first arm is a signal. Before the command is started, a signal ends the wait: the
//! request under way is dropped, and `Lock::withdraw` undoes its traces on the nodes. Afterwards signals go to the job, and
//! the job's end ends the wait. Only the release is not interrupted; it has a deadline of its own.

mod ending;
mod messages;
mod renewal;
pub(crate) mod timeline;
mod watchdog;

use crate::error::Error;
use crate::exit::Exit;
use crate::keeper::{self, Cause, Keeper, Order, Progress, Recipient, Report, Task};
use crate::lock::{FAREWELL, Lease, Lock, Request, WaitReport};
use crate::progress::ProgressLine;
use crate::sys::clock::Boot;
use crate::sys::host;
use crate::sys::inherited::Inheritance;
use crate::sys::packets::Packet;
use crate::sys::process::{self, Reap};
use crate::sys::signals::{self, SignalEvent, Signals};
use crate::sys::stdio;
use crate::sys::trial;
use crate::sys::wait::{self, Readable, sleep_until, within};
use ending::{Circumstances, JobOutcome, ReleaseOutcome, ending};
use messages::Talk;
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;
use renewal::{LeaseUser, Loss, Renewer, Trouble};
use std::cell::RefCell;
use std::pin::{Pin, pin};
use std::time::Duration;
use timeline::Timeline;
use watchdog::Watchdog;

/// A call of `run`; every combination of these fields is safe.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) task: Task,
    /// The time between SIGTERM and SIGKILL on lease loss; the default depends on the ttl.
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

/// Acquires the lock, runs the command under it, and releases it. The `line` shows the wait for the lock.
///
/// # Errors
/// Everything that kept the command from being started. The [`Exit`] tells what happens later.
pub(crate) fn run(job: Job, lock: Lock, line: ProgressLine) -> Result<Exit, Error> {
    let mut mask = signals::not_ignored(&[&TO_JOB[..], &TO_COMMAND[..]].concat());
    mask.add(Signal::SIGCHLD);
    let inherited = Inheritance::take_over(&mask).map_err(cannot_supervise)?;
    trial::prepare_to_supervise()
        .map_err(|refusal| cannot_supervise_for(&format!("{}: ", refusal.call), refusal.errno))?;
    let terminal = stdio::has_terminal();
    // The keeper is forked before there is a runtime: it must not share the runtime's descriptors, and fork copies only one
    // thread.
    let keeper = keeper::start(&job.task, inherited, terminal).map_err(cannot_supervise)?;
    let signals = Signals::open(&mask).map_err(cannot_supervise)?;
    wait::block_on(async {
        let supervisor = Supervisor {
            talk: Talk::new(&lock.name, job.quiet, job.verbose),
            signals: Readable::new(signals).map_err(Error::cannot_wait)?,
            keeper: Readable::new(keeper).map_err(Error::cannot_wait)?,
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
    /// The job shares redlock's process group, and so gets the terminal's signals.
    terminal: bool,
}

impl Supervisor {
    async fn run(&self, mut lock: Lock, line: ProgressLine) -> Result<Exit, Error> {
        let (mut lease, waited) = self.acquire(&mut lock, line).await?;
        let acquired_at = Boot::now();
        self.talk.acquired(&lease, &lock.where_it_holds(&lease), waited);
        if let Some(signal) = next_end(self.signals.get()) {
            let _ = lock.release(&lease, None).await;
            return Err(Error::Interrupted(signal));
        }
        // A shared lease may be shorter than the requested one.
        let timeline = Timeline::new(lease.ttl.min(self.job.request.ttl), self.job.grace, lock.node_timeout());
        let renewer = Renewer::new(timeline, self.job.continue_when_lost, &lease);
        let supervision = Supervision { supervisor: self, renewer, watchdog: Watchdog::new() };
        supervision.on_moved(lease.valid_until());
        let not_after = timeline.renew_at(lease.confirmed_at());
        let go = Order::Go { environment: self.environment(&lock.name, &lease), not_after };
        if self.keeper.get().send(&go).is_err() {
            let _ = lock.release(&lease, None).await;
            return Err(keeper_gone());
        }
        let (outcome, loss) = supervision.supervise(&mut lock, &mut lease).await;
        let valid_until = supervision.renewer.valid_until();
        self.conclude(&mut lock, &lease, acquired_at, valid_until, outcome, loss).await
    }

    /// Waits for the lock. Also returns the time in line, if the lock was not free at once.
    async fn acquire(&self, lock: &mut Lock, line: ProgressLine) -> Result<(Lease, Option<Duration>), Error> {
        let line = RefCell::new(line);
        let mut show = |waiting: &WaitReport| line.borrow_mut().show(waiting);
        let interrupted = async {
            tokio::select! {
                biased;
                signal = self.signals.next(next_end) => Error::Interrupted(signal),
                error = self.keeper_ends() => error,
                () = ProgressLine::tick_on(&line) => unreachable!("it has no end"),
            }
        };
        let lease = lock.acquire(&self.job.request, &mut show, interrupted).await?;
        Ok((lease, line.borrow().waited()))
    }

    /// Releases the lease, and reports how the run ended.
    async fn conclude(
        &self,
        lock: &mut Lock,
        lease: &Lease,
        acquired_at: Boot,
        valid_until: Boot,
        outcome: JobOutcome,
        loss: Option<Loss>,
    ) -> Result<Exit, Error> {
        // The keeper has nothing left to do, and ends while the lease is being released.
        self.keeper.get().hang_up();
        let keep = match (&outcome, &loss, self.job.hold_at_least) {
            (JobOutcome::End { .. }, None, Some(least)) => {
                Some((acquired_at + least).left()).filter(|left| !left.is_zero())
            }
            _ => None,
        };
        let result = match &loss {
            None => lock.release(lease, keep).await,
            // A lost lease is not worth a long wait for the nodes that may still have it.
            Some(_) => within(Boot::now() + FAREWELL, lock.release(lease, None)).await.unwrap_or(Ok(0)),
        };
        let release = ReleaseOutcome::of(result, lease.is_outermost());
        let besides = Circumstances {
            name: &lock.name,
            ttl: lease.ttl,
            took: acquired_at.since(lease.confirmed_at()),
            valid_until,
            now: Boot::now(),
            continues: self.job.continue_when_lost,
            max_run: self.job.task.max_run,
        };
        let (exit, words) = ending(&outcome, loss, release, besides)?;
        words.iter().for_each(|word| self.talk.last_word(word, &self.job.task.command[0], valid_until));
        Ok(exit)
    }

    /// The variables that tell the job about its lease. REDLOCK_HELD has the tokens of all enclosing leases, outermost first.
    fn environment(&self, name: &str, lease: &Lease) -> Vec<(String, Option<String>)> {
        let around = self.job.request.ancestors.iter().rev().map(String::as_str);
        let held = around.chain([lease.token.as_str()]).collect::<Vec<_>>().join(" ");
        [
            ("REDLOCK_NAME", Some(name.to_owned())),
            ("REDLOCK_TOKEN", Some(lease.token.clone())),
            ("REDLOCK_FENCING_TOKEN", Some(lease.fencing_token.to_string())),
            // That of an enclosing job is not this job's.
            ("REDLOCK_SLOT", lease.place.map(|place| place.to_string())),
            ("REDLOCK_HELD", Some(held)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn forward(&self, SignalEvent { signal, from_kernel }: SignalEvent) {
        // When the terminal goes away, the kernel sends SIGHUP to the leader of the session only.
        let hangs_up = from_kernel && signal == libc::SIGHUP && process::leads_session();
        let to_job = hangs_up || TO_JOB.iter().any(|&one| one as i32 == signal);
        let to = match (from_kernel && self.terminal && !hangs_up, to_job) {
            // The terminal has sent the signal to the whole group, the job included.
            (true, _) => Recipient::KeeperOnly,
            (false, true) => Recipient::Job,
            (false, false) => Recipient::Command,
        };
        let _ = self.keeper.get().send(&Order::Signal { signal, to });
    }

    /// The keeper's next report; none if it is gone.
    async fn report(&self) -> Option<Report> {
        self.keeper
            .next(|keeper| match keeper.receive() {
                Packet::Message(report) => Some(Some(report)),
                Packet::Nothing => None,
                Packet::End => Some(None),
            })
            .await
    }

    /// Waits for a keeper that ends before it gets an order, and returns the reason.
    async fn keeper_ends(&self) -> Error {
        match self.report().await {
            Some(Report::StartFailure { errno }) => cannot_supervise(Errno::from_raw(errno)),
            _ => keeper_gone(),
        }
    }
}

/// A job under its lease.
struct Supervision<'a> {
    supervisor: &'a Supervisor,
    renewer: Renewer,
    watchdog: Watchdog,
}

impl LeaseUser for Supervision<'_> {
    /// Sends the keeper the new deadline of the job.
    fn on_moved(&self, valid_until: Boot) {
        let (term_at, kill_at) = match self.supervisor.job.continue_when_lost {
            true => (Boot::NEVER, Boot::NEVER),
            false => self.timeline().deadlines(valid_until),
        };
        self.watchdog.set(self.timeline().overdue_at(kill_at));
        // A keeper that the order does not reach keeps the earlier deadline.
        let _ = self.supervisor.keeper.get().send(&Order::Deadline { term_at, kill_at });
    }

    fn on_trouble(&self, trouble: &Trouble) {
        self.supervisor.talk.trouble(trouble, self.supervisor.job.continue_when_lost);
    }
}

impl Supervision<'_> {
    fn timeline(&self) -> &Timeline {
        self.renewer.timeline()
    }

    /// Renews the lease until the job ends. Returns the outcome of the job, and the loss of the lease if there is one.
    async fn supervise(&self, lock: &mut Lock, lease: &mut Lease) -> (JobOutcome, Option<Loss>) {
        let (supervisor, talk) = (self.supervisor, &self.supervisor.talk);
        let mut renewal = pin!(self.renewer.renew(lock, lease, self));
        let mut overdue = pin!(self.watchdog.goes_off());
        let mut started = false;
        // Signals from before the start of the command, once each. The keeper passes on those of the terminal.
        let mut early: Vec<SignalEvent> = Vec::new();
        let mut loss = None;
        loop {
            tokio::select! {
                biased;
                event = supervisor.signals.next(next_signal) => {
                    if started {
                        supervisor.forward(event);
                    } else if !early.contains(&event) {
                        early.push(event);
                    }
                }
                report = supervisor.report() => match report {
                    Some(Report::Start) => {
                        started = true;
                        early.drain(..).for_each(|event| supervisor.forward(event));
                    }
                    Some(Report::Lapse) if loss.is_none() => loss = Some(self.on_loss(self.renewer.why_not_renewed())),
                    Some(Report::Lapse) => {}
                    Some(Report::Kill) => self.watchdog.put_off(self.timeline().overdue_at(Boot::now())),
                    Some(Report::Survivors { pids }) => talk.survivors(&pids),
                    Some(Report::End { status, cause, at, out_of_reach }) => {
                        out_of_reach.iter().for_each(|pids| talk.out_of_reach(pids));
                        if cause == Cause::Loss {
                            loss = loss.or(Some(self.renewer.why_not_renewed()));
                        }
                        return (JobOutcome::End { status, cause, at }, loss);
                    }
                    Some(Report::StartFailure { errno }) => {
                        let signal = early.iter().map(|event| event.signal).find(|&signal| ends(signal));
                        return (JobOutcome::StartFailure { errno: Errno::from_raw(errno), signal }, loss);
                    }
                    Some(Report::TooLate) => return (JobOutcome::TooLate, loss),
                    None => {
                        let why = self.renewer.why_not_renewed();
                        let at = self.kill_job(renewal, &mut loss).await;
                        return (JobOutcome::KeeperFailure { overdue: false, at }, loss.or(Some(why)));
                    }
                },
                () = &mut overdue => {
                    let why = self.renewer.why_not_renewed();
                    let at = self.kill_job(renewal, &mut loss).await;
                    return (JobOutcome::KeeperFailure { overdue: true, at }, loss.or(Some(why)));
                }
                found = &mut renewal, if loss.is_none() => loss = Some(self.on_loss(found)),
            }
        }
    }

    /// Reports the loss, and stops the job unless the keeper has already done so.
    fn on_loss(&self, loss: Loss) -> Loss {
        let Supervisor { job, talk, keeper, .. } = self.supervisor;
        let valid_until = self.renewer.valid_until();
        match loss {
            _ if job.continue_when_lost => talk.lost_but_going_on(&loss),
            Loss::Proof(_) => {
                let kill_at = self.timeline().kill_after_loss(Boot::now(), valid_until);
                self.watchdog.set(self.timeline().overdue_at(kill_at));
                let _ = keeper.get().send(&Order::Stop { kill_at });
                talk.stopping(&loss, kill_at);
            }
            _ => talk.stopping(&loss, self.timeline().deadlines(valid_until).1),
        }
        loss
    }

    /// Kills the job in the keeper's place, and returns the time at which its last process was gone. The lease is renewed
    /// until then, however long the kernel takes.
    async fn kill_job(&self, mut renewal: Pin<&mut impl Future<Output = Loss>>, loss: &mut Option<Loss>) -> Boot {
        let Supervisor { talk, keeper, .. } = self.supervisor;
        let mut killed = pin!(async {
            let mut takeover = keeper.get().kill_job();
            loop {
                match takeover.step() {
                    Progress::Complete => return Boot::now(),
                    Progress::Wait(again_at) => sleep_until(again_at).await,
                    Progress::Survivors(pids) => talk.survivors(&pids),
                    Progress::OutOfReach(pids) => {
                        talk.out_of_reach(&pids);
                        return Boot::now();
                    }
                }
            }
        });
        loop {
            tokio::select! {
                biased;
                at = &mut killed => return at,
                found = &mut renewal, if loss.is_none() => *loss = Some(found),
            }
        }
    }
}

/// The next pending signal, except SIGCHLD. Reaps children on the way: a killed keeper, or any orphan if this is process 1.
fn next_signal(signals: &Signals) -> Option<SignalEvent> {
    loop {
        let event = signals.next()?;
        if event.signal != libc::SIGCHLD {
            return Some(event);
        }
        while let Reap::Child(..) = process::reap() {}
    }
}

/// The next pending signal that ends redlock as long as there is no job.
fn next_end(signals: &Signals) -> Option<i32> {
    std::iter::from_fn(|| next_signal(signals)).map(|event| event.signal).find(|&signal| ends(signal))
}

/// True for a signal that ends redlock while there is no job, as it would without a handler.
fn ends(signal: i32) -> bool {
    signal != libc::SIGWINCH && signal != libc::SIGCONT
}

/// The error for a call that failed by lack of descriptors, memory or processes, or was refused.
fn cannot_supervise(errno: Errno) -> Error {
    cannot_supervise_for("", errno)
}

/// The same error, with a prefix that names the call.
fn cannot_supervise_for(call: &str, errno: Errno) -> Error {
    match host::shortage(&errno.into()) {
        // A shortage may pass, so it has a status that tells to try again.
        Some(shortage) => Error::Shortage(format!("cannot supervise the job: {shortage}")),
        None => Error::Internal(format!("cannot supervise the job: {call}{}", errno.desc().to_lowercase())),
    }
}

fn keeper_gone() -> Error {
    Error::Internal("the keeper was killed before it could start the command".to_owned())
}
