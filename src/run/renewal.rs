//! Keeps a lease, for `run` and for a guard: renews it in time, and reports failures.

use super::loss::{Loss, Outage};
use super::messages::Messages;
use super::timeline::Timeline;
use crate::keeper::Deadline;
use crate::lock::{Lease, Lock, Renewal, Try};
use crate::sys::clock::Boot;
use crate::sys::wait::{look_again, sleep_until};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// The pause before another try to reach a node that may be coming back.
const SOON: Duration = Duration::from_millis(100);

/// Renews one lease by its timeline. Its state can be read meanwhile.
#[derive(Debug)]
pub(crate) struct Renewer {
    pub(super) messages: Messages,
    pub(super) timeline: Timeline,
    /// True if renewals go on until the lease expires; false if they end when the job has to be stopped.
    to_expiry: bool,
    valid_until: Cell<Boot>,
    outage: RefCell<Option<Outage>>,
}

impl Renewer {
    pub(super) fn new(messages: Messages, timeline: Timeline, to_expiry: bool, lease: &Lease) -> Renewer {
        let valid_until = Cell::new(lease.valid_until());
        Renewer { messages, timeline, to_expiry, valid_until, outage: RefCell::new(None) }
    }

    /// The end of validity, by the nodes' answers so far; answers that prove a loss do not move the end.
    pub(super) fn valid_until(&self) -> Boot {
        self.valid_until.get()
    }

    pub(super) fn deadline(&self) -> Deadline {
        self.timeline.deadline(self.valid_until())
    }

    pub(super) fn why_not_renewed(&self) -> Loss {
        match &*self.outage.borrow() {
            Some(outage) => Loss::Outage(outage.clone()),
            None => Loss::Sleep(self.timeline.confirmed_at(self.valid_until()).elapsed()),
        }
    }

    /// Notes a failed try, which began at `start`. Reports it if the outage has lasted for `patience`, and the renewals
    /// have not ended (at `end`).
    fn note_failure(
        &self,
        faults: &[String],
        advice: Option<Cow<'static, str>>,
        start: Boot,
        end: Boot,
        patience: Duration,
    ) {
        let (since, first) = self.outage.take().map_or((start, None), |outage| (outage.since, outage.first));
        let mut outage = Outage { since, first, faults: faults.join(", "), advice };
        if since.elapsed() >= patience && !end.passed() {
            self.messages.failure(faults, outage.first.is_none(), end, self.to_expiry);
            outage.first.get_or_insert_with(|| outage.faults.clone());
        }
        self.outage.replace(Some(outage));
    }

    /// Renews the lease until it is lost, or the caller drops the future. Calls `moved` when the end of validity has
    /// moved. If no renewal succeeds before the job has to be stopped, makes no further try, and does not return: the
    /// caller looks at the clock itself.
    pub(super) async fn renew(&self, lock: &mut Lock, lease: &mut Lease, moved: &dyn Fn()) -> Loss {
        let mut next = self.timeline.renew_at(lease.valid_until());
        let mut not_before = Boot::now();
        loop {
            let valid_until = lease.valid_until();
            let end = if self.to_expiry { valid_until } else { self.timeline.deadline(valid_until).term_at };
            tokio::select! {
                () = sleep_until(next.min(end)) => {}
                // After a reconnection the renewal comes at once, to re-create the lease on a server that has forgotten
                // it, before another holder comes. `not_before` limits the rate if the server closes each connection.
                () = async { sleep_until(not_before).await; lock.reconnected().await } => {}
            }
            if end.passed() {
                if self.to_expiry {
                    look_again().await;
                    return self.why_not_renewed();
                }
                std::future::pending::<()>().await;
            }
            let (start, pause) = (Boot::now(), self.timeline.pause());
            not_before = start + pause.min(SOON);
            let (give_up, retry) = (self.timeline.give_up_at(start), self.timeline.retry_at(start));
            let mut on_vote = |lease: &Lease| {
                self.valid_until.set(lease.valid_until());
                moved();
            };
            match lock.renew(lease, Try { give_up, pause }, &mut on_vote).await {
                Renewal::Confirmed => {
                    if let Some(Outage { since, first: Some(_), .. }) = self.outage.take() {
                        self.messages.recovery(since.elapsed());
                    }
                    // The end of validity may still depend on an older confirmation by another node, and so may not
                    // have moved. Then `retry` keeps the loop from asking at once.
                    next = self.timeline.renew_at(lease.valid_until()).max(retry);
                }
                Renewal::Unconfirmed { faults, advice, silent, soon } => {
                    // A node that is silent may still answer within its timeout.
                    let patience = if silent { lock.node_timeout() } else { Duration::ZERO };
                    self.note_failure(&faults, advice, start, end, patience);
                    let pause = if soon { pause.min(SOON) } else { pause };
                    next = if give_up.passed() { retry } else { retry.min(start + pause) };
                }
                // The lease has run out, as the loop finds out by the clock.
                Renewal::TooLate => {}
                Renewal::Lost(what) => return Loss::Proof(what),
                Renewal::Released => return Loss::Release,
            }
        }
    }
}
