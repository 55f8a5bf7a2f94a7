//! Waiting in line: first come, first served. A handover costs the same in a line of any length.
//!
//! A release takes the first waiter out of the line, and calls it on its own channel. The waiter that is first now gets
//! a message, too, and looks often from then on; the others sleep on. PUBLISH returns how many clients got the call: a
//! waiter that did not get it is dead, and is dropped. A frozen waiter loses its reservation after a second, and comes
//! back with its old ticket. No waiter is dropped because of a clock. Because a call may be lost, each waiter *looks*
//! by itself now and then: it tries to take the lock.
//!
//! Every wait here may be dropped at any await; `attempt.rs` says how the caller then cleans up.

use crate::error::{Error, NamedObstacle};
use crate::lock::lease::Lease;
use crate::lock::lease::attempt::{Attempt, Denial, LastSeenLease};
use crate::lock::lease::traces::{Traces, UNDO_TIMEOUT};
use crate::lock::terms::holder::Obstacle;
use crate::lock::terms::waiter;
use crate::lock::{Lock, Request};
use crate::redis::{Listeners, SubscriptionEvent};
use crate::sys::clock::{Boot, unix_time};
use crate::sys::random::{full_jitter, jitter};
use crate::sys::wait::{sleep_until, within};
use futures_util::FutureExt;
use std::time::Duration;

/// The pause between looks of the first in line. (Another library calls no waiter when it frees the lock.)
const FIRST_LOOKS: Duration = Duration::from_millis(400);
/// The pause before the look of a waiter that has just become the first in line, because the new lease may run out
/// before its next usual look.
const NEW_HEAD_LOOKS: Duration = Duration::from_millis(50);
/// The longest pause between two looks of a waiter that is not the first in line (± 10 %). Waiters farther back look
/// more rarely.
const OTHERS_LOOK: Duration = Duration::from_secs(60);
/// The pause between two looks of each waiter if the lock's key has a type that no lock has: such a lock has no line.
const NO_LINE_LOOKS: Duration = Duration::from_secs(5);
/// The pause from the end of a lease to the next look of the first in line, or of `redlock wait`.
pub(super) const AFTER_EXPIRY: Duration = Duration::from_millis(2);
/// After the end of a lease, the waiters behind the first look, too, because the holder and the first waiters may have
/// died together. Each looks at a random moment within this time, or later because of [`OTHERS_PER_RANK`].
const OTHERS_AFTER_EXPIRY: Duration = Duration::from_millis(100);
/// The end of a lease makes the Nth waiter (N > 1) look, but not within N times this after the waiter's last look. For
/// the fourth waiter this is 400 ms.
const OTHERS_PER_RANK: Duration = Duration::from_millis(100);
/// A look may always take this long, even past the end of the wait, so that even over slow connections the wait ends
/// with the message "held", not with "timed out".
pub(in crate::lock) const LAST_LOOK: Duration = Duration::from_secs(1);
/// The longest pause before the next try after a tie (each rival has got some nodes, but none has a quorum), or after a
/// call from fewer than q nodes.
const RIVALRY: Duration = Duration::from_millis(100);
/// The pause after a look that failed. Each further failure in a row doubles it, up to `FAILURE_AT_MOST`.
const FAILURE: Duration = Duration::from_millis(100);
const FAILURE_AT_MOST: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(crate) struct WaitReport {
    pub(crate) held: NamedObstacle,
    /// The waiter's number of `--newest`.
    pub(crate) number: Option<u64>,
    /// The number of waiters ahead, once this waiter stands in line.
    pub(crate) rank: Option<u64>,
    /// Why the nodes cannot be asked at present, without the lock's name.
    pub(crate) trouble: Option<String>,
    /// An event that has just happened, for `--verbose`.
    pub(crate) news: Option<String>,
}

/// A position in line, and the state of the lock as far as it is known.
struct InLine<'a> {
    request: &'a Request,
    notify: &'a mut dyn FnMut(&WaitReport),
    start: Boot,
    /// The end of the wait. With `--once-per` it depends on the holder.
    end: Boot,
    looked: Boot,
    /// True if nobody stood before this waiter when it joined the line; None: it has not joined yet.
    is_first: Option<bool>,
    denial: Denial,
    /// True once a look was denied, which usually puts this waiter into the line.
    queued: bool,
    /// The time of the next look.
    look: Boot,
    /// The nodes that have called this waiter since the last look that was denied.
    called: Vec<bool>,
    /// The nodes on which this waiter has subscribed since the last look that was denied.
    subscribed: Vec<bool>,
    /// The error of the last failed look, and the number of failed looks in a row.
    trouble: Option<Error>,
    failures: u32,
    /// True after a failed look or a lost subscription, until this waiter has reported that it is in line again.
    away: bool,
    /// With a single node: the last lease that the node showed.
    seen: Option<LastSeenLease>,
}

impl Lock {
    /// Waits in line until this waiter gets the lock, until waiting cannot help, or until the request's wait is over.
    /// The call began at `start`. `denial`: the refusal of its last try, or `trouble`: its error.
    pub(in crate::lock) async fn wait_in_line(
        &mut self,
        traces: &mut Traces,
        request: &Request,
        start: Boot,
        denial: Denial,
        trouble: Option<Error>,
        notify: &mut dyn FnMut(&WaitReport),
    ) -> Result<Lease, Error> {
        let mut line = InLine {
            request,
            notify,
            start,
            end: start + request.wait,
            looked: start,
            is_first: None,
            denial,
            queued: false,
            look: start,
            called: vec![false; self.locks.nodes.len()],
            subscribed: vec![false; self.locks.nodes.len()],
            trouble,
            failures: 0,
            away: false,
            seen: None,
        };
        line.note_seen();
        // This call's earlier tries have put no waiter into the line.
        self.withdraw(traces, Boot::now() + UNDO_TIMEOUT).await;
        let waiter = waiter::new_name(self.claim(), &request.owner);
        let mut listeners = self.locks.nodes.listen(&self.keys.waiter(&waiter));
        traces.waiter = Some(waiter);
        if self.locks.nodes.len() > 1 {
            // If each node gave its own tickets, two waiters could block each other for ever, each the first on some
            // nodes.
            traces.ticket = Some(unix_time().as_micros().to_string());
        }
        // Reports trouble at once. A holder is reported after the first look, with the position in line.
        if line.trouble.is_some() {
            line.notify(self, None);
        }
        self.until_heard(&mut listeners, line.end).await?;
        line.look = line.look.min(Boot::now());
        loop {
            if (line.look.passed() && !line.end.passed() || line.needs_last_look())
                && let Some(lease) = self.look(traces, &mut line, &mut listeners).await?
            {
                return Ok(lease);
            }
            if line.end.passed() && !line.needs_last_look() {
                let (waited, is_first) = (Some(line.start.elapsed()), line.is_first != Some(false));
                return Err(line
                    .trouble
                    .take()
                    .unwrap_or_else(|| self.gives_up(&line.denial.by, line.request, waited, is_first)));
            }
            tokio::select! {
                (node, heard) = listeners.next() => line.hear(self, node, heard),
                () = sleep_until(line.look.min(line.end)) => {}
            }
        }
    }

    /// Waits until this waiter listens on a quorum of nodes, because one that queues before it listens may miss its
    /// call. Ends earlier at the node timeout, at `end`, or when too few nodes are left for a quorum.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] when so many nodes refuse SUBSCRIBE that no quorum is left.
    async fn until_heard(&mut self, listeners: &mut Listeners, end: Boot) -> Result<(), Error> {
        let mut deaf = vec![None; self.locks.nodes.len()];
        let quorum = self.locks.quorum();
        let hear = async {
            while listeners.hearing() < quorum && deaf.iter().flatten().count() <= deaf.len() - quorum {
                let (node, heard) = listeners.next().await;
                deaf[node] = match heard {
                    SubscriptionEvent::Deaf => Some(None),
                    SubscriptionEvent::Refused(fault) => Some(Some(fault)),
                    SubscriptionEvent::Listening | SubscriptionEvent::Message(_) => None,
                };
            }
        };
        within(self.locks.nodes.deadline().min(end), hear).await;
        let refusals = || deaf.iter().enumerate().filter_map(|(node, deaf)| Some((node, deaf.as_ref()?.as_ref()?)));
        let others = deaf.len() - refusals().count();
        if others < quorum {
            return Err(self.locks.unanswered(Some(&self.name), refusals(), others));
        }
        Ok(())
    }

    /// Tries to take the lock; if it is not this waiter's turn, decides when to try again.
    async fn look(
        &mut self,
        traces: &mut Traces,
        line: &mut InLine<'_>,
        listeners: &mut Listeners,
    ) -> Result<Option<Lease>, Error> {
        line.looked = Boot::now();
        // A server that hangs prolongs the wait by LAST_LOOK at most.
        let until = line.end.max(Boot::now() + LAST_LOOK);
        match self.attempt(traces, line.request, line.seen.as_ref(), until).await {
            Attempt::Granted(lease) => {
                self.step_out(traces).await;
                return Ok(Some(*lease));
            }
            Attempt::Failure(error) if !error.can_heal() => return Err(error),
            Attempt::Failure(error) => {
                line.server_is_lost();
                line.away = true;
                let pause = (FAILURE * 2u32.saturating_pow(line.failures)).min(FAILURE_AT_MOST);
                line.failures += 1;
                line.look = Boot::now() + jitter(pause);
                line.trouble = Some(error);
                line.notify(self, None);
            }
            // The server was away when the wait began, so the lease of an enclosing job shows only now.
            Attempt::Denied(denial) if denial.by.is_held_by(&line.request.ancestors) => {
                return Err(self.held_error(&denial.by, line.request, Some(line.start.elapsed())));
            }
            Attempt::Denied(denial) => {
                line.failures = 0;
                line.trouble = None;
                let none = || vec![false; self.locks.nodes.len()];
                let was_called = std::mem::replace(&mut line.called, none());
                let was_subscribed = std::mem::replace(&mut line.subscribed, none());
                let (was_queued, queued) = (line.queued, denial.queued.clone());
                if denial.ticket.is_some() && self.locks.nodes.len() == 1 {
                    traces.ticket.clone_from(&denial.ticket);
                }
                let back = line.away && line.queued && listeners.hearing() >= self.locks.quorum();
                line.update(*denial);
                // Calls that came before this look may be unread, for example if this process was frozen.
                while let Some((node, heard)) = listeners.next().now_or_never() {
                    line.hear(self, node, heard);
                }
                let dropped: Vec<usize> =
                    queued.into_iter().filter(|&node| was_queued && !was_called[node] && !line.called[node]).collect();
                let news = match dropped.len() {
                    0 => back.then(|| "in line again".to_owned()),
                    count => Some(format!("queued again on {count} of {} nodes", self.locks.nodes.len())),
                };
                line.away &= news.is_none();
                // These nodes had dropped this waiter from the line, but it has heard no call from them. So its
                // subscription there is dead, unless it has subscribed after the last look.
                let deaf = dropped.into_iter().filter(|&node| !was_subscribed[node] && !line.subscribed[node]);
                deaf.for_each(|node| listeners.reopen(node));
                line.notify(self, news);
            }
        }
        Ok(None)
    }
}

impl InLine<'_> {
    /// True if a call with `--once-per` has not looked since the end of its wait: the holder decides how it ends.
    fn needs_last_look(&self) -> bool {
        self.request.once_per.is_some() && self.end.passed() && self.looked < self.end
    }

    /// The end of the wait, as far as the last look shows. Between two runs, what was known before still counts.
    fn end(&self) -> Boot {
        match (self.request.once_per, &self.denial.by) {
            (None, _) | (_, Obstacle::Reserved(_) | Obstacle::Unknown) => self.end,
            (Some(once), by) => self.request.called + once.waits(self.request.same_period(by).is_some()),
        }
    }

    /// Records who holds the lock, and this waiter's position in line. Decides when to look again.
    fn update(&mut self, denial: Denial) {
        self.queued = true;
        self.look = Boot::now()
            + if denial.split && denial.rank.is_none_or(|rank| rank == 0) {
                full_jitter(RIVALRY)
            } else {
                next_look(&denial)
            };
        self.denial = denial;
        self.is_first = self.is_first.or(self.denial.rank.map(|rank| rank == 0));
        self.end = self.end();
        self.note_seen();
    }

    /// With a single node: notes the present lease, in case the server restarts empty.
    fn note_seen(&mut self) {
        // If there are several leases, this is the lease that lasts longest.
        let last = self.denial.by.holders().iter().max_by_key(|holder| holder.lease);
        if let (1, Some(holder)) = (self.called.len(), last)
            && holder.lease.is_some()
            && holder.fencing_token.is_some()
        {
            self.seen = Some(LastSeenLease {
                run_id: self.denial.run_id.clone(),
                until: Boot::now() + holder.longest(),
                longest: Some(holder.longest()),
                holder: holder.clone(),
            });
        }
    }

    /// Prolongs the lease that was seen last if the only server cannot be reached any more. The holder may have renewed
    /// it just before, so it may last for its whole length from now.
    fn server_is_lost(&mut self) {
        if let Some(seen) = &mut self.seen
            && let Some(longest) = seen.longest.take()
        {
            seen.until = Boot::now() + longest;
        }
    }

    fn hear(&mut self, lock: &Lock, node: usize, heard: SubscriptionEvent) {
        match heard {
            SubscriptionEvent::Message(text) if text == "go" => {
                self.called[node] = true;
                let callers = self.called.iter().filter(|&&called| called).count();
                let soon =
                    if callers >= lock.locks.quorum() { Boot::now() } else { Boot::now() + full_jitter(RIVALRY) };
                self.look = self.look.min(soon);
            }
            SubscriptionEvent::Message(_) => {
                // This waiter is now the first in line, and looks often from now on.
                self.denial.rank = Some(0);
                self.look = self.look.min(Boot::now() + jitter(NEW_HEAD_LOOKS));
                self.notify(lock, None);
            }
            // A call may have come before this waiter listened.
            SubscriptionEvent::Listening => {
                self.subscribed[node] = true;
                self.look = Boot::now();
            }
            SubscriptionEvent::Deaf | SubscriptionEvent::Refused(_) => {
                self.server_is_lost();
                self.away = true;
            }
        }
    }

    fn notify(&mut self, lock: &Lock, news: Option<String>) {
        let held = lock.held(&self.denial.by, self.request);
        let trouble = self.trouble.as_ref().map(Error::trouble);
        let number = self.request.newest;
        (self.notify)(&WaitReport { held, number, rank: self.denial.rank, trouble, news });
    }
}

/// The time until a waiter looks by itself. The first in line looks often, the waiter at rank r every r + 1 seconds,
/// and at least once a minute: W waiters together look about ln W + W/60 times a second. After the lease has run out,
/// every waiter looks, those farther back later.
fn next_look(denial: &Denial) -> Duration {
    let places = denial.rank.map_or(1, |rank| u32::try_from(rank).unwrap_or(u32::MAX).saturating_add(1));
    let regular = match denial.rank {
        Some(0) => FIRST_LOOKS,
        Some(rank) => Duration::from_secs(rank.saturating_add(1)).min(OTHERS_LOOK),
        None => NO_LINE_LOOKS,
    };
    let regular = jitter(regular);
    match denial.left {
        Some(left) if denial.rank == Some(0) => regular.min(left + AFTER_EXPIRY),
        Some(left) => {
            let after = left + OTHERS_AFTER_EXPIRY / 10 + full_jitter(OTHERS_AFTER_EXPIRY * 9 / 10);
            regular.min(after.max(OTHERS_PER_RANK.saturating_mul(places)))
        }
        None => regular,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(rank: u64, left_ms: u64, by: Obstacle) -> Denial {
        Denial { by, left: Some(Duration::from_millis(left_ms)), rank: Some(rank), ..Denial::default() }
    }

    #[test]
    fn a_thousand_waiters_look_less_than_fifty_times_a_second() {
        let looks = |left| -> f64 {
            (0..1000).map(|rank| 1.0 / next_look(&denial(rank, left, Obstacle::Unknown)).as_secs_f64()).sum()
        };
        assert!(looks(1_000_000) < 50.0, "{}", looks(1_000_000));
        // If the leases are always about to run out, W waiters look 10 ln W times a second.
        assert!(looks(400) < 80.0, "{}", looks(400));
    }

    #[test]
    fn the_first_in_line_looks_when_the_lease_runs_out() {
        let next = |rank, left, by| next_look(&denial(rank, left, by));
        assert_eq!(next(0, 100, Obstacle::Unknown), Duration::from_millis(102));
        assert!(next(0, 5000, Obstacle::Unknown) <= FIRST_LOOKS * 11 / 10);
        let others = next(3, 1000, Obstacle::Unknown);
        assert!(others >= Duration::from_millis(1010) && others <= Duration::from_millis(1100), "{others:?}");
        assert!(next(3, 10, Obstacle::Unknown) >= Duration::from_millis(400));
    }
}
