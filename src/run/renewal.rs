//! Keeping a lease: when it is renewed, and what its holder is told. Knows nothing of jobs and keepers.

use super::timeline::Timeline;
use crate::lock::{Lease, Lock, Renewal, Try};
use crate::sys::clock::Boot;
use crate::sys::wait::sleep_until;
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// The pause before trying again a node that may be coming back.
const SOON: Duration = Duration::from_millis(100);

/// The user of the lease, which is told about it.
pub(crate) trait LeaseUser {
    /// The lease is now valid until then: it was renewed, or a node has lost it.
    fn on_moved(&self, valid_until: Boot);
    /// A try to renew the lease failed, or succeeded after others had failed.
    fn on_trouble(&self, trouble: &Trouble);
}

/// The progress of a renewal.
#[derive(Debug)]
pub(crate) enum Trouble<'a> {
    /// The faults of the nodes; `first` for the first failure in a row. The tries stop at `end`.
    Failure { faults: &'a [String], first: bool, end: Boot },
    /// The lease was renewed again, this long after the first failure.
    Recovery(Duration),
}

/// The reason for a lost lease, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The nodes' answer: "it was released by force".
    Proof(String),
    /// The faults of the nodes, and the time since the first.
    Outage { faults: String, lasted: Duration },
    /// No try to renew the lease was made for this long: redlock was stopped, or the machine was asleep.
    Sleep(Duration),
    /// It was released by its token, which `acquire --while-pid` has given to others.
    Release,
}

/// Renews one lease by its timeline. What is known of the lease can be read while that goes on.
#[derive(Debug)]
pub(crate) struct Renewer {
    timeline: Timeline,
    /// The holder needs the lease until it expires, rather than until its job has to be stopped.
    to_expiry: bool,
    confirmed_at: Cell<Boot>,
    valid_until: Cell<Boot>,
    outage: RefCell<Option<Outage>>,
}

/// The failures since the last success.
#[derive(Debug)]
struct Outage {
    faults: String,
    since: Boot,
    /// The holder does not know of it yet.
    is_news: bool,
}

impl Renewer {
    pub(crate) fn new(timeline: Timeline, to_expiry: bool, lease: &Lease) -> Renewer {
        Renewer {
            timeline,
            to_expiry,
            confirmed_at: Cell::new(lease.confirmed_at()),
            valid_until: Cell::new(lease.valid_until()),
            outage: RefCell::new(None),
        }
    }

    pub(crate) fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The end of validity as it was last confirmed. A loss does not change it.
    pub(crate) fn valid_until(&self) -> Boot {
        self.valid_until.get()
    }

    /// The reason why the lease was not renewed in time.
    pub(crate) fn why_not_renewed(&self) -> Loss {
        match &*self.outage.borrow() {
            Some(Outage { faults, since, .. }) => Loss::Outage { faults: faults.clone(), lasted: since.elapsed() },
            None => Loss::Sleep(self.confirmed_at.get().elapsed()),
        }
    }

    /// Renews the lease until it is lost. Does not return when the time for tries is over and the job has to be stopped: the
    /// holder knows that. To be dropped when the lease is no longer needed.
    pub(crate) async fn renew(&self, lock: &mut Lock, lease: &mut Lease, holder: &impl LeaseUser) -> Loss {
        let mut next = self.timeline.renew_at(lease.confirmed_at());
        let mut not_before = Boot::now();
        loop {
            let end = self.end(lease);
            tokio::select! {
                () = sleep_until(next.min(end)) => {}
                // The renewal comes at once, so that a server that has forgotten the lease gets it again before another
                // holder does; `not_before` is for a server that closes each connection.
                () = async { sleep_until(not_before).await; lock.reconnected().await } => {}
            }
            if end.passed() {
                if self.to_expiry {
                    return self.why_not_renewed();
                }
                std::future::pending::<()>().await;
            }
            let start = Boot::now();
            not_before = start + self.timeline.pause().min(SOON);
            let (confirmed_at, valid_until) = (lease.confirmed_at(), lease.valid_until());
            let give_up = self.timeline.give_up_at(start, confirmed_at, valid_until);
            let retry = self.timeline.retry_at(start, confirmed_at, valid_until);
            let try_of = Try { give_up, pause: self.timeline.pause() };
            match lock.renew(lease, try_of, &mut |lease| self.note(lease, holder)).await {
                Renewal::Confirmed => {
                    if let Some(Outage { since, is_news: false, .. }) = self.outage.take() {
                        holder.on_trouble(&Trouble::Recovery(since.elapsed()));
                    }
                    // The vote that V hangs on may be older, so that V has not moved: the pause keeps the loop from asking
                    // again at once.
                    next = self.timeline.renew_at(lease.confirmed_at()).max(retry);
                }
                Renewal::Unconfirmed { faults, silent, soon } => {
                    let outage = self.outage.take();
                    let (since, is_news) = outage.map_or((start, true), |outage| (outage.since, outage.is_news));
                    // An answer that takes longer than a try may still be in time.
                    let tell = !silent || since.elapsed() >= lock.node_timeout();
                    if tell {
                        holder.on_trouble(&Trouble::Failure { faults: &faults, first: is_news, end });
                    }
                    let outage = Outage { faults: faults.join(", "), since, is_news: is_news && !tell };
                    self.outage.replace(Some(outage));
                    let pause = if soon { self.timeline.pause().min(SOON) } else { self.timeline.pause() };
                    next = if give_up.passed() { retry } else { retry.min(start + pause) };
                }
                // The lease has run out: the loop ends by the clock.
                Renewal::TooLate => {}
                Renewal::Lost(what) => return Loss::Proof(what),
                Renewal::Released => return Loss::Release,
            }
        }
    }

    /// The end of validity has moved.
    fn note(&self, lease: &Lease, holder: &impl LeaseUser) {
        self.confirmed_at.set(lease.confirmed_at());
        self.valid_until.set(lease.valid_until());
        holder.on_moved(lease.valid_until());
    }

    /// The time at which nothing is left to renew.
    fn end(&self, lease: &Lease) -> Boot {
        match self.to_expiry {
            true => lease.valid_until(),
            false => self.timeline.deadlines(lease.valid_until()).0,
        }
    }
}
