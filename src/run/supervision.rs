//! A job under its leases: renews them while the job runs, stops the job when a lease is lost, then releases all.

use super::ending::{JobEnd, KEPT, end_for_log, last_lines};
use super::grants::{Grant, lost_before_start};
use super::loss::Loss;
use super::renewal::Renewer;
use super::supervisor::{Supervisor, cannot_supervise};
use super::watchdog::Watchdog;
use crate::error::Error;
use crate::exit::Exit;
use crate::keeper::{Cause, Deadline, Order, Progress, Report};
use crate::lock::{End, Lease, RunOutcome, UNDO_TIMEOUT};
use crate::sys::clock::Boot;
use crate::sys::files;
use crate::sys::signals::{self, SignalEvent};
use crate::sys::wait::{sleep_until, within};
use futures_util::future::join_all;
use nix::errno::Errno;
use std::cell::OnceCell;
use std::pin::pin;

pub(super) struct Supervision<'a> {
    supervisor: &'a Supervisor,
    /// The names of the locks, in the order of the leases.
    names: Vec<String>,
    renewers: Vec<Renewer>,
    watchdog: Watchdog,
    /// The first loss, and the index of its lease.
    loss: OnceCell<(usize, Loss)>,
    /// The length of the job's error file before the job began.
    written_before: u64,
}

impl<'a> Supervision<'a> {
    pub(super) fn new(supervisor: &'a Supervisor, grants: &[Grant]) -> Supervision<'a> {
        let renewer =
            |Grant { lock, lease }: &Grant| supervisor.renewer(lock, lease, supervisor.job.continue_when_lost);
        Supervision {
            supervisor,
            names: grants.iter().map(|grant| grant.lock.name.clone()).collect(),
            renewers: grants.iter().map(renewer).collect(),
            watchdog: Watchdog::new(),
            loss: OnceCell::new(),
            written_before: supervisor.job.task.errors.as_ref().map_or(0, files::length),
        }
    }

    pub(super) fn renew_at(&self, lease: &Lease) -> Boot {
        self.renewers[0].timeline.renew_at(lease.valid_until())
    }

    /// Sends the keeper the deadline of the job, and sets the watchdog. With `--on-lost continue`, the deadline never
    /// comes. Does nothing once a lease is known to be lost.
    pub(super) fn send_deadline(&self) {
        if self.loss.get().is_some() {
            return;
        }
        let first = &self.renewers[self.first_to_end()];
        let deadline = match self.supervisor.job.continue_when_lost {
            true => Deadline { term_at: Boot::NEVER, kill_at: Boot::NEVER },
            false => first.deadline(),
        };
        self.watchdog.set(first.timeline.overdue_at(deadline.kill_at));
        // If this order does not arrive, the keeper keeps the deadline of the last order that arrived.
        self.supervisor.order(&Order::Deadline(deadline));
    }

    fn first_to_end(&self) -> usize {
        (0..self.renewers.len()).min_by_key(|&at| self.renewers[at].valid_until()).unwrap_or_default()
    }

    /// The index of the lease that ends first, and why that lease was not renewed in time.
    fn lapse(&self) -> (usize, Loss) {
        let first = self.first_to_end();
        (first, self.renewers[first].why_not_renewed())
    }

    /// Renews the leases and watches over the job until the job has ended. Fails if the command was not started.
    pub(super) async fn supervise(&self, grants: &mut [Grant<'_>]) -> Result<JobEnd, Error> {
        let renew = async |(at, Grant { lock, lease }): (usize, &mut Grant<'_>)| {
            let loss = self.renewers[at].renew(lock, lease, &|| self.send_deadline()).await;
            self.on_loss((at, loss));
        };
        let renewals = join_all(grants.iter_mut().enumerate().map(renew));
        tokio::select! {
            biased;
            end = self.watch() => end,
            () = async { renewals.await; std::future::pending().await } => unreachable!("it has no end"),
        }
    }

    async fn watch(&self) -> Result<JobEnd, Error> {
        let Supervisor { messages, job, .. } = self.supervisor;
        let mut overdue = pin!(self.watchdog.goes_off());
        let mut started = false;
        // Signals that came before the start of the command, each kind once. They are forwarded after it.
        let mut early: Vec<SignalEvent> = Vec::new();
        let mut killed = None;
        loop {
            tokio::select! {
                biased;
                event = self.supervisor.next_signal() => {
                    if started {
                        self.supervisor.forward(event);
                    } else if !early.contains(&event) {
                        early.push(event);
                    }
                }
                report = self.supervisor.next_report() => match report {
                    Some(Report::Start) => {
                        started = true;
                        early.drain(..).for_each(|event| self.supervisor.forward(event));
                    }
                    Some(Report::Lapse) => self.on_loss(self.lapse()),
                    Some(Report::Kill) => {
                        self.watchdog.put_off(self.renewers[0].timeline.overdue_at(Boot::now()));
                    }
                    Some(Report::Survivors { pids }) => messages.survivors(&pids),
                    Some(Report::End { status, cause, at, out_of_reach }) => {
                        out_of_reach.iter().for_each(|pids| messages.out_of_reach(pids));
                        if cause == Cause::Loss {
                            self.loss.get_or_init(|| self.lapse());
                        }
                        if let (Cause::TimeLimit, Some(limit)) = (cause, job.task.max_run) {
                            messages.time_limit(limit);
                        }
                        return Ok(JobEnd::of(status, cause, at));
                    }
                    Some(Report::SetUpFailure { errno }) => {
                        let error = cannot_supervise(Errno::from_raw(errno));
                        return Err(early_interruption(&early).unwrap_or(error));
                    }
                    Some(Report::StartFailure { errno }) => {
                        let error = Error::no_command(&job.task.command[0], Errno::from_raw(errno));
                        return Err(early_interruption(&early).unwrap_or(error));
                    }
                    Some(Report::TooLate) => return Err(early_interruption(&early).unwrap_or(self.too_late())),
                    None => break,
                },
                () = &mut overdue, if killed.is_none() => killed = Some((self.lapse(), self.kill_job().await)),
                // This arm is the last: the reports that the keeper sent before its end are handled first.
                () = std::future::ready(()), if killed.is_some() => break,
            }
        }
        Ok(self.end_without_keeper(killed, started).await)
    }

    /// The end of a job whose keeper reports nothing more. `killed`: if redlock has killed a late keeper and the job,
    /// the loss, and when the job was dead; none if the keeper has ended by itself. `started`: the keeper has reported
    /// the start of the command.
    async fn end_without_keeper(&self, killed: Option<((usize, Loss), Boot)>, started: bool) -> JobEnd {
        let was_late = killed.is_some();
        let (why, at) = match killed {
            Some(killed) => killed,
            None => (self.lapse(), self.kill_job().await),
        };
        // A job outlives its lease only if redlock stood still for a while, and the keeper stood still or was dead.
        if was_late || at > self.renewers[why.0].valid_until() {
            self.loss.get_or_init(|| why);
        } else {
            self.supervisor.messages.keeper_failure(started);
        }
        JobEnd { exit: Exit::UNAVAILABLE, at }
    }

    /// Reports the loss. If the nodes' answers prove it, orders the keeper to stop the job; otherwise the keeper is
    /// already stopping it. With `--on-lost continue`, the job goes on. Does nothing if the job is being stopped for an
    /// earlier loss.
    fn on_loss(&self, (at, loss): (usize, Loss)) {
        let job = &self.supervisor.job;
        let Renewer { messages, timeline, .. } = &self.renewers[at];
        if job.continue_when_lost {
            messages.lost_but_going_on(&loss);
        } else if self.loss.get().is_none() {
            let first = &self.renewers[self.first_to_end()];
            let mut kill_at = first.deadline().kill_at;
            if matches!(loss, Loss::Proof(_)) {
                kill_at = timeline.kill_after_loss(Boot::now(), first.valid_until());
                self.watchdog.set(timeline.overdue_at(kill_at));
                self.supervisor.order(&Order::Stop { kill_at });
            }
            messages.stopping(&loss, job.task.signal, kill_at);
        }
        self.loss.get_or_init(|| (at, loss));
    }

    pub(super) fn too_late(&self) -> Error {
        let (first, ttl) = (self.first_to_end(), self.supervisor.job.request.ttl);
        match self.loss.get() {
            Some((at, loss)) => lost_before_start(&self.names[*at], loss),
            None => Error::GrantedTooLate { name: self.names[first].clone(), ttl },
        }
    }

    /// Kills the job in the keeper's place. Returns the time at which no process was left that redlock may kill.
    async fn kill_job(&self) -> Boot {
        let Supervisor { messages, keeper, .. } = self.supervisor;
        let mut takeover = keeper.get().kill_job();
        loop {
            match takeover.step() {
                Progress::Complete => return Boot::now(),
                Progress::Wait(again_at) => sleep_until(again_at).await,
                Progress::Survivors(pids) => messages.survivors(&pids),
                Progress::OutOfReach(pids) => {
                    messages.out_of_reach(&pids);
                    return Boot::now();
                }
            }
        }
    }

    /// The last lines that the job wrote to its error file: as many as the log keeps. None if the job wrote nothing, or
    /// if the file cannot be read.
    fn last_errors(&self) -> Option<String> {
        let file = self.supervisor.job.task.errors.as_ref()?;
        match files::end_of(file, self.written_before, KEPT + 1) {
            Ok(written) => last_lines(&written),
            Err(error) => {
                self.supervisor.messages.unread_errors(&error);
                None
            }
        }
    }

    /// Releases the lease with the index `at`. Returns the number of holds that are left, or the error of the release;
    /// None if the lease was lost.
    async fn release(
        &self,
        at: usize,
        Grant { lock, lease }: &mut Grant<'_>,
        end: JobEnd,
        errors: Option<&str>,
    ) -> Option<Result<u64, Error>> {
        if self.loss.get().is_some_and(|(lost, _)| *lost == at) {
            let end = End { at: end.at, errors, ..End::now(RunOutcome::Lost) };
            // Some nodes may still hold the lost lease, but redlock does not wait long for them.
            within(Boot::now() + UNDO_TIMEOUT, lock.release(lease, end)).await;
            return None;
        }
        let has_run_out = end.is_before(self.renewers[at].valid_until());
        Some(lock.release(lease, end_for_log(end, has_run_out, errors)).await)
    }

    /// Releases the leases, and reports how the run ended.
    pub(super) async fn conclude(&self, mut grants: Vec<Grant<'_>>, acquired_at: Boot, end: JobEnd) -> Exit {
        let Supervisor { job, keeper, .. } = self.supervisor;
        // The keeper has nothing left to do, and ends while the leases are being released.
        keeper.get().hang_up();
        let errors = self.last_errors();
        let is_lost = self.loss.get().is_some();
        if let Some((at, loss)) = self.loss.get()
            && !job.continue_when_lost
        {
            self.renewers[*at].messages.loss(loss, end.at, self.renewers[*at].valid_until());
        }
        let release = |(at, grant)| self.release(at, grant, end, errors.as_deref());
        let releases = join_all(grants.iter_mut().enumerate().map(release)).await;
        let mut exit = if is_lost { Exit::LOST } else { end.exit };
        for ((renewer, Grant { lease, lock }), release) in self.renewers.iter().zip(&grants).zip(releases) {
            let (messages, valid_until) = (&renewer.messages, renewer.valid_until());
            messages.unwritten(&lock.unwritten);
            match release {
                Some(Ok(holds)) if holds > 0 && lease.is_outermost() => messages.inner_hold(valid_until),
                Some(Ok(_)) => messages.released(acquired_at.elapsed(), end.exit),
                // The job was protected, even if another process holds the lock now.
                Some(Err(Error::NotOurs { .. })) if end.is_before(valid_until) => messages.late_release(),
                Some(Err(Error::NotOurs { found, .. })) => {
                    messages.lost_at_release(&found);
                    exit = Exit::LOST;
                }
                Some(Err(error)) => {
                    let is_once = lease.is_once && end.exit == Exit::Command(0);
                    messages.cannot_release(&error, valid_until, is_once);
                }
                None => {}
            }
        }
        if let (Some(path), Some(file), false) = (&job.errors, &job.task.errors, exit == Exit::Command(0)) {
            let host = job.request.owner.host.as_deref();
            self.supervisor.messages.failed(exit, host, (path, file), errors.as_deref());
        }
        exit
    }
}

/// The error for the first signal of `early` that ends redlock while there is no job. None without such a signal.
fn early_interruption(early: &[SignalEvent]) -> Option<Error> {
    early.iter().map(|event| event.signal).find(|&signal| signals::ends(signal)).map(Error::Interrupted)
}
