//! Looking after the lease of a running job: when to renew it, what the keeper and the user are told.

use super::Supervisor;
use super::messages::Loss;
use crate::keeper::Order;
use crate::lock::{Lease, Lock, Renewal, Try};
use crate::sys::clock::Boot;
use crate::sys::wait::sleep_until;
use std::cell::{Cell, RefCell};
use std::time::Duration;
use tokio::sync::Notify;

/// How soon a node is tried again that was gone and is perhaps coming back.
const SOON: Duration = Duration::from_millis(100);

/// How far the lease carries, as the rest of `run` sees it.
pub(super) struct Confirmed {
    confirmed_at: Cell<Boot>,
    valid_until: Cell<Boot>,
    /// When a keeper that has not begun to kill the job must be dead or stuck.
    overdue_at: Cell<Boot>,
    /// Told when `overdue_at` comes earlier than it did.
    sooner: Notify,
    /// What the nodes did to the tries since the last confirmed one, and since when.
    outage: RefCell<Option<(String, Boot)>>,
}

impl Confirmed {
    pub(super) fn new(lease: &Lease) -> Confirmed {
        Confirmed {
            confirmed_at: Cell::new(lease.confirmed_at()),
            valid_until: Cell::new(lease.valid_until()),
            overdue_at: Cell::new(Boot::NEVER),
            sooner: Notify::new(),
            outage: RefCell::new(None),
        }
    }

    /// The end of validity as it was last confirmed: a loss does not take it back.
    pub(super) fn valid_until(&self) -> Boot {
        self.valid_until.get()
    }

    /// Comes back when the keeper has let the deadline of the lease pass, which is moved meanwhile.
    pub(super) async fn keeper_is_overdue(&self) {
        while !self.overdue_at.get().passed() {
            tokio::select! {
                () = sleep_until(self.overdue_at.get()) => {}
                () = self.sooner.notified() => {}
            }
        }
    }

    fn set_overdue_at(&self, at: Boot) {
        if at < self.overdue_at.replace(at) {
            self.sooner.notify_one();
        }
    }

    /// Why the lease was not renewed in time.
    pub(super) fn why_not_renewed(&self) -> Loss {
        match &*self.outage.borrow() {
            Some((faults, since)) => Loss::Unconfirmed { faults: faults.clone(), outage: since.elapsed() },
            None => Loss::Asleep(self.confirmed_at.get().elapsed()),
        }
    }
}

impl Supervisor {
    /// Renews the lease until it is lost. Dropped when the job has ended.
    pub(super) async fn keep_renewed(&self, lock: &mut Lock, lease: &mut Lease, confirmed: &Confirmed) -> Loss {
        let mut next = self.timeline.renew_at(lease.confirmed_at());
        let mut not_before = Boot::now();
        loop {
            let end = self.end(lease);
            tokio::select! {
                () = sleep_until(next.min(end)) => {}
                // At once, so that a server that has forgotten the lease gets it again before another does; but not over and
                // over with one that closes each connection.
                () = async { sleep_until(not_before).await; lock.reconnected().await } => {}
            }
            if end.passed() {
                if self.job.continue_when_lost {
                    return confirmed.why_not_renewed();
                }
                // The keeper has stopped the job by now, and reports it.
                std::future::pending::<()>().await;
            }
            let start = Boot::now();
            not_before = start + SOON;
            let (confirmed_at, valid_until) = (lease.confirmed_at(), lease.valid_until());
            let give_up = self.timeline.give_up_at(start, confirmed_at, valid_until);
            let retry = self.timeline.retry_at(start, confirmed_at, valid_until);
            let try_of = Try { give_up, last: retry >= end };
            let renewal = lock.renew(lease, try_of, &mut |lease| self.note(lease, confirmed)).await;
            match renewal {
                Renewal::Confirmed => {
                    if let Some((_, since)) = confirmed.outage.take() {
                        self.talk.renewed_again(since.elapsed());
                    }
                    // Where few votes are old the end may not have moved: do not ask without a pause.
                    next = self.timeline.renew_at(lease.confirmed_at()).max(retry);
                }
                Renewal::Unconfirmed { faults, soon } => {
                    let since = confirmed.outage.take().map(|(_, since)| since);
                    self.talk.not_renewed(&faults, since.is_none(), self.job.continue_when_lost, end);
                    confirmed.outage.replace(Some((faults.join(", "), since.unwrap_or(start))));
                    next = if soon { retry.min(start + SOON) } else { retry };
                }
                Renewal::Lost(what) => {
                    if !self.job.continue_when_lost {
                        let kill_at = self.timeline.kill_after_loss(Boot::now(), valid_until);
                        confirmed.set_overdue_at(self.timeline.overdue_at(kill_at));
                        let _ = self.keeper.get().send(&Order::Stop { kill_at });
                    }
                    return Loss::Proven(what);
                }
            }
        }
    }

    /// The end of validity has moved.
    pub(super) fn note(&self, lease: &Lease, confirmed: &Confirmed) {
        confirmed.confirmed_at.set(lease.confirmed_at());
        confirmed.valid_until.set(lease.valid_until());
        if !self.job.continue_when_lost {
            let (_, kill_at) = self.timeline.deadlines(lease.valid_until());
            confirmed.set_overdue_at(self.timeline.overdue_at(kill_at));
        }
        self.tell_deadline(lease);
    }

    /// When there is nothing left to renew: the job is being stopped.
    fn end(&self, lease: &Lease) -> Boot {
        match self.job.continue_when_lost {
            true => lease.valid_until(),
            false => self.timeline.deadlines(lease.valid_until()).0,
        }
    }
}
