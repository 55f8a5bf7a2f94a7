//! A job under its leases: they are renewed while it runs, and the first that is lost stops it; then all are released.

use super::ending::{Circumstances, JobOutcome, ReleaseOutcome, ending_of_all, told};
use super::messages::Talk;
use super::renewal::{LeaseUser, Loss, Renewer, Trouble};
use super::timeline::Timeline;
use super::watchdog::Watchdog;
use super::{Grant, Supervisor, ends, next_signal};
use crate::error::Error;
use crate::exit::Exit;
use crate::keeper::{Cause, Order, Progress, Report};
use crate::lock::FAREWELL;
use crate::sys::clock::Boot;
use crate::sys::signals::SignalEvent;
use crate::sys::wait::{sleep_until, within};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use nix::errno::Errno;
use std::pin::pin;

/// The renewals of all leases, side by side.
type Renewals<T> = FuturesUnordered<T>;

/// A job under its leases.
pub(super) struct Supervision<'a> {
    supervisor: &'a Supervisor,
    watches: Vec<Watch>,
    watchdog: Watchdog,
}

/// The renewal of one lease.
struct Watch {
    renewer: Renewer,
    talk: Talk,
}

/// The renewal of one lease, beside the others that the job needs.
struct Watcher<'a> {
    supervision: &'a Supervision<'a>,
    talk: &'a Talk,
}

impl LeaseUser for Watcher<'_> {
    fn on_moved(&self, _: Boot) {
        self.supervision.tell_deadline();
    }

    fn on_trouble(&self, trouble: &Trouble) {
        self.talk.trouble(trouble, self.supervision.supervisor.job.continue_when_lost);
    }
}

impl<'a> Supervision<'a> {
    pub(super) fn new(supervisor: &'a Supervisor, grants: &[Grant]) -> Supervision<'a> {
        let watch = |grant: &Grant| Watch {
            renewer: Renewer::new(supervisor.timeline(grant), supervisor.job.continue_when_lost, &grant.lease),
            talk: supervisor.talk_of(&grant.lock),
        };
        let watches = grants.iter().map(watch).collect();
        Supervision { supervisor, watches, watchdog: Watchdog::new() }
    }

    /// That of all leases.
    pub(super) fn timeline(&self) -> &Timeline {
        self.watches[0].renewer.timeline()
    }

    /// Sends the keeper the deadline of the job.
    pub(super) fn tell_deadline(&self) {
        let (term_at, kill_at) = match self.supervisor.job.continue_when_lost {
            true => (Boot::NEVER, Boot::NEVER),
            false => self.timeline().deadlines(self.valid_until()),
        };
        self.watchdog.set(self.timeline().overdue_at(kill_at));
        // A keeper that the order does not reach keeps the earlier deadline.
        let _ = self.supervisor.keeper.get().send(&Order::Deadline { term_at, kill_at });
    }

    /// The lease that ends first.
    fn first_to_end(&self) -> usize {
        let end = |&at: &usize| self.watches[at].renewer.valid_until();
        (0..self.watches.len()).min_by_key(end).unwrap_or_default()
    }

    fn valid_until(&self) -> Boot {
        self.watches[self.first_to_end()].renewer.valid_until()
    }

    /// The loss of the lease that ends first.
    fn lapse(&self) -> (usize, Loss) {
        let first = self.first_to_end();
        (first, self.watches[first].renewer.why_not_renewed())
    }

    /// Renews the leases until the job ends. Returns the outcome of the job, and the first loss of a lease if there is one.
    pub(super) async fn supervise(&self, grants: &mut [Grant]) -> (JobOutcome, Option<(usize, Loss)>) {
        let (supervisor, talk) = (self.supervisor, &self.supervisor.talk);
        let mut renewals: Renewals<_> =
            grants.iter_mut().enumerate().map(|(at, grant)| self.renew(at, grant)).collect();
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
                    Some(Report::Lapse) if loss.is_none() => loss = Some(self.on_loss(self.lapse())),
                    Some(Report::Lapse) => {}
                    Some(Report::Kill) => self.watchdog.put_off(self.timeline().overdue_at(Boot::now())),
                    Some(Report::Survivors { pids }) => talk.survivors(&pids),
                    Some(Report::End { status, cause, at, out_of_reach }) => {
                        out_of_reach.iter().for_each(|pids| talk.out_of_reach(pids));
                        if cause == Cause::Loss {
                            loss = loss.or(Some(self.lapse()));
                        }
                        return (JobOutcome::End { status, cause, at }, loss);
                    }
                    Some(Report::StartFailure { errno }) => {
                        let signal = early.iter().map(|event| event.signal).find(|&signal| ends(signal));
                        return (JobOutcome::StartFailure { errno: Errno::from_raw(errno), signal }, loss);
                    }
                    Some(Report::TooLate) => return (JobOutcome::TooLate, loss),
                    None => {
                        let why = self.lapse();
                        let at = self.kill_job(renewals, &mut loss).await;
                        return (JobOutcome::KeeperFailure { overdue: false, at }, loss.or(Some(why)));
                    }
                },
                () = &mut overdue => {
                    let why = self.lapse();
                    let at = self.kill_job(renewals, &mut loss).await;
                    return (JobOutcome::KeeperFailure { overdue: true, at }, loss.or(Some(why)));
                }
                Some(found) = renewals.next(), if loss.is_none() || supervisor.job.continue_when_lost => {
                    let found = self.on_loss(found);
                    loss.get_or_insert(found);
                }
            }
        }
    }

    /// Renews one lease until it is lost.
    async fn renew(&self, at: usize, Grant { lock, lease }: &mut Grant) -> (usize, Loss) {
        let Watch { renewer, talk } = &self.watches[at];
        (at, renewer.renew(lock, lease, &Watcher { supervision: self, talk }).await)
    }

    /// Reports the loss, and stops the job unless the keeper has already done so.
    fn on_loss(&self, (at, loss): (usize, Loss)) -> (usize, Loss) {
        let Supervisor { job, keeper, .. } = self.supervisor;
        let talk = &self.watches[at].talk;
        let valid_until = self.valid_until();
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
        (at, loss)
    }

    /// Kills the job in the keeper's place, and returns the time at which its last process was gone. The leases are renewed
    /// until then, however long the kernel takes.
    async fn kill_job(
        &self,
        mut renewals: Renewals<impl Future<Output = (usize, Loss)>>,
        loss: &mut Option<(usize, Loss)>,
    ) -> Boot {
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
                Some(found) = renewals.next(), if loss.is_none() => *loss = Some(found),
            }
        }
    }

    /// Releases the leases, and reports how the run ended.
    pub(super) async fn conclude(
        &self,
        mut grants: Vec<Grant>,
        acquired_at: Boot,
        outcome: JobOutcome,
        loss: Option<(usize, Loss)>,
    ) -> Result<Exit, Error> {
        let Supervisor { job, talk, keeper, .. } = self.supervisor;
        // The keeper has nothing left to do, and ends while the leases are being released.
        keeper.get().hang_up();
        let keep = match (&outcome, &loss, job.hold_at_least) {
            (JobOutcome::End { .. }, None, Some(least)) => {
                Some((acquired_at + least).left()).filter(|left| !left.is_zero())
            }
            _ => None,
        };
        let lost = loss.as_ref().map(|(at, _)| *at);
        let release = async |(at, Grant { lock, lease }): (usize, &mut Grant)| {
            let end = told(&outcome, lost == Some(at), self.watches[at].renewer.valid_until(), Boot::now());
            let result = match lost == Some(at) {
                // A lost lease is not worth a long wait for the nodes that may still have it.
                true => within(Boot::now() + FAREWELL, lock.release(lease, None, end)).await.unwrap_or(Ok(0)),
                false => lock.release(lease, keep, end).await,
            };
            ReleaseOutcome::of(result, lease.is_outermost())
        };
        let releases = join_all(grants.iter_mut().enumerate().map(release)).await;
        let free: Vec<bool> = releases.iter().map(|release| keep.is_none() && release.has_freed()).collect();
        let circumstances = grants.iter().zip(&self.watches).map(|(Grant { lock, lease }, watch)| Circumstances {
            name: &lock.name,
            ttl: lease.ttl,
            took: acquired_at.since(lease.confirmed_at()),
            valid_until: watch.renewer.valid_until(),
            now: Boot::now(),
            continues: job.continue_when_lost,
            max_run: job.task.max_run,
        });
        let (exit, words) = ending_of_all(&outcome, loss, releases.into_iter().zip(circumstances).collect())?;
        for (at, word) in words {
            let Watch { renewer, talk: of_lease } = &self.watches[at];
            let talk = if word.is_about_job() { talk } else { of_lease };
            talk.last_word(&word, &job.task.command[0], renewer.valid_until());
        }
        for (watch, _) in self.watches.iter().zip(free).filter(|(_, is_free)| *is_free) {
            watch.talk.released(acquired_at.elapsed(), exit);
        }
        Ok(exit)
    }
}
