//! `redlock run`, from top to bottom: acquire, start, wait for the first of {job ended, lease lost}, release.
//!
//! Several locks are taken one after the other, and those already taken are renewed meanwhile. There is one job and one keeper,
//! whose deadline is that of the lease that ends first.
//!
//! Every wait is one `select!`, whose first arm is a signal. Before the command is started, a signal ends the wait: the
//! request under way is dropped, and `Lock::withdraw` undoes its traces on the nodes. Afterwards signals go to the job, and
//! the job's end ends the wait. Only the release is not interrupted; it has a deadline of its own.

mod ending;
pub(crate) mod guard;
mod loss;
mod messages;
mod renewal;
mod supervision;
pub(crate) mod timeline;
mod watchdog;

use crate::error::Error;
use crate::exit::Exit;
use crate::keeper::{self, Keeper, Order, Recipient, Report, Task};
use crate::lock::{End, FAREWELL, Lease, Lock, Request, WaitReport};
use crate::progress::ProgressLine;
use crate::sys::clock::Boot;
use crate::sys::host;
use crate::sys::inherited::Inheritance;
use crate::sys::process::{self, Reap};
use crate::sys::signals::{self, SignalEvent, Signals};
use crate::sys::stdio;
use crate::sys::trial;
use crate::sys::wait::{self, Readable, within};
use ending::{JobEnd, end_for_log};
use futures_util::future::{join_all, try_join_all};
use loss::Loss;
use messages::Messages;
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;
use renewal::Renewer;
use std::cell::RefCell;
use std::convert::Infallible;
use std::time::Duration;
use supervision::Supervision;
use timeline::Timeline;

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

/// A lock and this run's lease on it.
struct Grant<'a> {
    lock: &'a mut Lock,
    lease: Lease,
}

/// Acquires the locks in this order, runs the command under all of them, and releases them.
///
/// # Errors
/// Everything that kept the command from being started. The [`Exit`] tells what happens later.
pub(crate) fn run(job: Job, locks: Vec<Lock>) -> Result<Exit, Error> {
    let mut mask = signals::not_ignored(&[&TO_JOB[..], &TO_COMMAND[..]].concat());
    mask.add(Signal::SIGCHLD);
    let inherited = Inheritance::take_over(&mask).map_err(cannot_supervise)?;
    trial::prepare_to_supervise().map_err(|(call, errno)| cannot_supervise_for(&format!("{call}: "), errno))?;
    let terminal = stdio::has_terminal();
    // The keeper is forked before there is a runtime: it must not share the runtime's descriptors, and fork copies only one
    // thread.
    let keeper = keeper::start(&job.task, inherited, terminal).map_err(cannot_supervise)?;
    let signals = Signals::open(&mask).map_err(cannot_supervise)?;
    wait::block_on(async {
        let supervisor = Supervisor {
            messages: Messages::new(locks.iter().map(|lock| lock.name.as_str()), job.quiet, job.verbose),
            signals: Readable::new(signals).map_err(Error::cannot_wait)?,
            keeper: Readable::new(keeper).map_err(Error::cannot_wait)?,
            terminal,
            job,
        };
        supervisor.run(locks).await
    })
    .map_err(Error::cannot_wait)?
}

struct Supervisor {
    job: Job,
    /// About the job, and all of its locks.
    messages: Messages,
    signals: Readable<Signals>,
    keeper: Readable<Keeper>,
    /// The job shares redlock's process group, and so gets the terminal's signals.
    terminal: bool,
}

impl Supervisor {
    /// What is lost or comes too late before the command is started is given back, and all is taken again within the wait.
    async fn run(&self, mut locks: Vec<Lock>) -> Result<Exit, Error> {
        let begin = Boot::now();
        loop {
            match self.run_once(&mut locks, begin).await {
                Err(error) if error.can_heal() && !(begin + self.job.request.wait).passed() => {
                    self.messages.again(&error)
                }
                ended => return ended,
            }
        }
    }

    /// Takes all locks, within the wait that began at `begin`, and runs the command under them.
    async fn run_once(&self, locks: &mut [Lock], begin: Boot) -> Result<Exit, Error> {
        let mut grants = Vec::new();
        let ended = async {
            self.acquire_all(locks, &mut grants, begin).await?;
            let acquired_at = Boot::now();
            let supervision = Supervision::new(self, &grants);
            self.start(&supervision, &grants)?;
            let end = supervision.supervise(&mut grants).await?;
            Ok((supervision, acquired_at, end))
        };
        match ended.await {
            Ok((supervision, acquired_at, end)) => Ok(supervision.conclude(grants, acquired_at, end).await),
            Err(error) => {
                release_all(&mut grants, &error).await;
                Err(error)
            }
        }
    }

    /// Lets the keeper start the command, unless a signal has come or the last lease is due for renewal before that.
    fn start(&self, supervision: &Supervision<'_>, grants: &[Grant]) -> Result<(), Error> {
        if let Some(signal) = next_end(self.signals.get()) {
            return Err(Error::Interrupted(signal));
        }
        supervision.send_deadline();
        let Grant { lease, .. } = &grants[grants.len() - 1];
        let not_after = supervision.renew_at(lease);
        let go = Order::Go { environment: self.environment(grants), not_after };
        self.keeper.get().send(&go).map_err(|_| keeper_gone())
    }

    /// Takes the locks one after the other, within the time that the request has for them together.
    async fn acquire_all<'a>(
        &self,
        locks: &'a mut [Lock],
        grants: &mut Vec<Grant<'a>>,
        begin: Boot,
    ) -> Result<(), Error> {
        for lock in locks {
            let lease = self.acquire(lock, begin, grants).await.map_err(|mut error| {
                if let Error::Held(held) = &mut error {
                    held.waited = held.waited.map(|_| begin.elapsed());
                }
                error
            })?;
            grants.push(Grant { lock, lease });
        }
        Ok(())
    }

    /// Takes one more lock, waits for what is left of the time since `begin`, and says that it is acquired.
    async fn acquire(&self, lock: &mut Lock, begin: Boot, grants: &mut [Grant<'_>]) -> Result<Lease, Error> {
        let Job { request, quiet, verbose, .. } = &self.job;
        let line = RefCell::new(ProgressLine::new(&lock.name, *quiet, *verbose, request.wait, begin));
        let mut show = |waiting: &WaitReport| line.borrow_mut().show(waiting);
        let interrupted = async {
            tokio::select! {
                biased;
                signal = self.signals.next(next_end) => Error::Interrupted(signal),
                error = self.keeper_ends() => error,
                error = self.keep(grants) => error,
                () = ProgressLine::tick_on(&line) => unreachable!("it has no end"),
            }
        };
        let wait = match request.wait {
            wait @ (Duration::ZERO | Duration::MAX) => wait,
            // Not zero, which would be a single try.
            wait => wait.saturating_sub(begin.elapsed()).max(Duration::from_millis(1)),
        };
        let request = Request { wait, ..request.clone() };
        let lease = lock.acquire(&request, &mut show, interrupted).await?;
        self.talk_of(lock).acquired(lock, &lease, line.borrow().waited());
        Ok(lease)
    }

    /// Renews the leases that there are until one is lost.
    async fn keep(&self, grants: &mut [Grant<'_>]) -> Error {
        let keep = async |grant: &mut Grant<'_>| {
            let loss = self.renewer(grant, true).renew(grant.lock, &mut grant.lease, &|| {}).await;
            Err::<Infallible, Error>(lost_before_start(&grant.lock.name, &loss))
        };
        match try_join_all(grants.iter_mut().map(keep)).await {
            Err(error) => error,
            Ok(_) => std::future::pending().await,
        }
    }

    fn talk_of(&self, lock: &Lock) -> Messages {
        Messages::new([lock.name.as_str()], self.job.quiet, self.job.verbose)
    }

    /// `to_expiry`: it is renewed until it expires, rather than until its job has to be stopped.
    fn renewer(&self, Grant { lock, lease }: &Grant, to_expiry: bool) -> Renewer {
        let timeline = Timeline::new(lease.ttl, self.job.grace, lock.node_timeout());
        Renewer::new(self.talk_of(lock), timeline, to_expiry, lease)
    }

    /// The variables that tell the job about its leases; the last one has a name. REDLOCK_HELD has the tokens of all,
    /// enclosing ones included, outermost first.
    fn environment(&self, grants: &[Grant]) -> Vec<(String, Option<String>)> {
        let around = self.job.request.ancestors.iter().map(String::as_str);
        let held = around.chain(grants.iter().map(|grant| grant.lease.token.as_str())).collect::<Vec<_>>().join(" ");
        let Grant { lock, lease } = &grants[grants.len() - 1];
        [
            ("REDLOCK_NAME", Some(lock.name.clone())),
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
        self.keeper.next(|keeper| keeper.receive().arrived()).await
    }

    /// Waits for a keeper that ends before it gets an order, and returns the reason.
    async fn keeper_ends(&self) -> Error {
        match self.report().await {
            Some(Report::StartFailure { errno }) => cannot_supervise(Errno::from_raw(errno)),
            _ => keeper_gone(),
        }
    }
}

/// Releases leases without a job; a signal does not wait long for that.
async fn release_all(grants: &mut [Grant<'_>], error: &Error) {
    let end = match Exit::of_error(error) {
        exit @ (Exit::NotFound | Exit::CannotExecute) => end_for_log(JobEnd { exit, at: Boot::now() }, false),
        _ => End::UNUSED,
    };
    let releases = join_all(grants.iter_mut().map(|grant| grant.lock.release(&grant.lease, None, end)));
    match error {
        Error::Interrupted(_) => drop(within(Boot::now() + FAREWELL, releases).await),
        _ => drop(releases.await),
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
        Some(shortage) => Error::Unavailable(format!("cannot supervise the job: {shortage}")),
        None => Error::Internal(format!("cannot supervise the job: {call}{}", errno.desc().to_lowercase())),
    }
}

fn lost_before_start(name: &str, loss: &Loss) -> Error {
    Error::LostBeforeStart { name: name.to_owned(), why: messages::text(loss), taken: matches!(loss, Loss::Proof(_)) }
}

fn keeper_gone() -> Error {
    Error::Internal("the keeper was killed before it could start the command".to_owned())
}
