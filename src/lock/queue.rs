//! Waiting in line: first come, first served, at a cost for each hand-over that does not depend on how many wait.
//!
//! Freeing the lock pops the first in line and calls it on a channel of its own, so that being called is being next, and
//! no other waiter wakes up. PUBLISH tells how many heard it: a dead waiter shows itself by that, and is dropped once. A frozen
//! one loses the reservation after a second, and comes back with its old ticket. No waiter is dropped for a clock. In case a
//! call is lost, each waiter looks by itself now and then, the first one often.
//!
//! Every wait here may be dropped at any await; see `attempt.rs` for what its caller does then.

use super::answer::{Blocker, Left};
use super::attempt::{Attempt, Busy, Remembered, can_heal};
use super::lease::Lease;
use super::status::State;
use super::{Claim, Lock, Reenter, Request, scripts, token};
use crate::error::{Error, Held};
use crate::redis::{Answers, Heard, Listeners};
use crate::sys::clock::{Boot, unix_time};
use crate::sys::random::{full_jitter, jitter};
use crate::sys::wait::sleep_until;
use std::time::Duration;

/// How often the first in line looks by itself: another library frees its lock without calling anybody.
const FIRST_LOOKS: Duration = Duration::from_millis(400);
/// How soon the new first one looks: the new lease may run out before it would look otherwise.
const NEW_HEAD_LOOKS: Duration = Duration::from_millis(50);
/// The others look the more rarely the farther back they are, this rarely at most.
const OTHERS_LOOK: Duration = Duration::from_secs(60);
/// An expiry is looked at this much after it is due, by the first one, and up to this much by the others: holder and first
/// waiters may have died together, and one look of any waiter drops all dead ones before it. But not more often than this
/// much for each place in line.
const AFTER_EXPIRY: Duration = Duration::from_millis(2);
const OTHERS_AFTER_EXPIRY: Duration = Duration::from_millis(100);
const OTHERS_PER_PLACE: Duration = Duration::from_millis(100);
/// What the last look may take, even if the wait is over then.
const LAST_LOOK: Duration = Duration::from_millis(100);
/// After losing part of a lock to a rival in line, wait up to this long before the next try.
const RIVALRY: Duration = Duration::from_millis(100);
/// The same before there is a line: up to these times, before each further try.
const RIVALRY_MS: [u64; 6] = [20, 40, 80, 160, 320, 640];
const RIVALRY_AT_MOST: Duration = Duration::from_secs(1);
/// After a failure of nodes: at first, and at most.
const FAILURE: Duration = Duration::from_millis(100);
const FAILURE_AT_MOST: Duration = Duration::from_secs(1);
/// How often `redlock wait` looks by itself.
const WAIT_LOOKS: Duration = Duration::from_millis(500);

/// What a waiter can say about what it waits for.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) held: Held,
    /// How many stand before this waiter, once it stands in line.
    pub(crate) rank: Option<u64>,
    /// Why the nodes cannot be asked at present. Does not name the lock.
    pub(crate) trouble: Option<String>,
    /// This happened just now; for `--verbose`.
    pub(crate) news: Option<String>,
}

/// A place in line, and what is known of the lock.
struct InLine<'a> {
    request: &'a Request,
    notify: &'a mut dyn FnMut(&Waiting),
    start: Boot,
    /// When the wait is over.
    end: Boot,
    busy: Busy,
    /// The nodes know that we wait.
    queued: bool,
    /// When to look whether it is our turn.
    look: Boot,
    /// Which nodes have called us since the last look.
    called: Vec<bool>,
    /// Why the nodes could not be asked the last time, and how often in a row.
    trouble: Option<Error>,
    failures: u32,
    /// A node could not be asked, or could not have called us; that it works again is news.
    away: bool,
    /// The lease that a single server had when we last saw it.
    remembered: Option<Remembered>,
}

impl Lock {
    /// Takes the lock, shares a lease that an enclosing job holds, or waits in line for as long as the request says. `notify`
    /// is called when the wait begins and whenever something about it has changed. `interrupted` ends it at any moment.
    /// Unless it succeeds, nothing stays on a node that answers.
    ///
    /// # Errors
    /// What `interrupted` comes back with.
    /// [`Error::Held`], [`Error::NoQuorum`] and [`Error::Young`]; [`Error::NothingToEnter`] when a lease had to be entered
    /// that has ended; [`Error::SameNode`] when two addresses lead to the same node.
    pub(crate) async fn acquire(
        &mut self,
        request: &Request,
        notify: &mut dyn FnMut(&Waiting),
        interrupted: impl Future<Output = Error>,
    ) -> Result<Lease, Error> {
        let mut claim = Claim::default();
        let acquired = tokio::select! {
            biased;
            error = interrupted => Err(error),
            acquired = self.claim(&mut claim, request, notify) => acquired,
        };
        if acquired.is_err() {
            self.withdraw(&claim).await;
        }
        acquired
    }

    /// May be dropped at any await; then, and after an error, the claim says what has to be withdrawn.
    async fn claim(
        &mut self,
        claim: &mut Claim,
        request: &Request,
        notify: &mut dyn FnMut(&Waiting),
    ) -> Result<Lease, Error> {
        let start = Boot::now();
        if request.reenter != Reenter::No {
            for ancestor in &request.ancestors {
                if let Some(lease) = self.enter(claim, ancestor, request).await? {
                    return Ok(lease);
                }
            }
            if request.reenter == Reenter::Must {
                return Err(Error::NothingToEnter(self.name.clone()));
            }
        }
        let end = start + request.wait;
        let until = if request.wait.is_zero() { Boot::NEVER } else { end.max(start + LAST_LOOK) };
        let mut attempt = self.attempt(claim, request, None, until).await;
        // Of rivals that come at the same time each may get a part, and then one of them should get all.
        for base in RIVALRY_MS {
            let is_over = !request.wait.is_zero() && end.passed();
            if is_over || !matches!(&attempt, Attempt::Busy(busy) if busy.split) {
                break;
            }
            self.withdraw(claim).await;
            let pause = Duration::from_millis(base).max(start.elapsed() * 3).min(RIVALRY_AT_MOST);
            sleep_until((Boot::now() + full_jitter(pause)).min(until)).await;
            attempt = self.attempt(claim, request, None, until).await;
        }
        let (busy, trouble) = match attempt {
            Attempt::Granted(lease) => return Ok(lease),
            Attempt::Busy(busy) if request.wait.is_zero() => return Err(self.is_held(&busy.by, request, None)),
            Attempt::Faulty(error) if request.wait.is_zero() || !can_heal(&error) => return Err(error),
            Attempt::Busy(busy) => (*busy, None),
            Attempt::Faulty(error) => (Busy::default(), Some(error)),
        };
        let mut line = InLine {
            request,
            notify,
            start,
            end,
            busy,
            queued: false,
            look: start,
            called: vec![false; self.nodes.len()],
            trouble,
            failures: 0,
            away: false,
            remembered: None,
        };
        line.remember();
        self.wait_in_line(claim, line).await
    }

    async fn wait_in_line(&mut self, claim: &mut Claim, mut line: InLine<'_>) -> Result<Lease, Error> {
        // What the tries before may have left has no name in the queue.
        self.withdraw(claim).await;
        claim.waiter = token::new_token();
        if self.nodes.len() > 1 {
            // With numbers given by each node, two waiters could each be first on some of them, for good.
            claim.ticket = unix_time().as_micros().to_string();
        }
        // Of a lock that another has, the first look tells, with the place in line.
        if line.trouble.is_some() {
            line.tell(self, None);
        }
        let mut listeners = self.nodes.listen(&self.keys.waiter(&claim.waiter));
        self.until_heard(&mut listeners, line.end).await?;
        line.look = line.look.min(Boot::now());
        loop {
            if line.look.passed()
                && !line.end.passed()
                && let Some(lease) = self.look(claim, &mut line, &mut listeners).await?
            {
                return Ok(lease);
            }
            if line.end.passed() {
                let waited = Some(line.start.elapsed());
                return Err(line.trouble.take().unwrap_or_else(|| self.is_held(&line.busy.by, line.request, waited)));
            }
            tokio::select! {
                (node, heard) = listeners.next() => line.hear(self, node, heard),
                () = sleep_until(line.look.min(line.end)) => {}
            }
        }
    }

    /// Waits until a quorum of nodes would be heard: a waiter that queues before it hears misses its call.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] when so many refuse to let it listen that no quorum is left.
    async fn until_heard(&mut self, listeners: &mut Listeners, end: Boot) -> Result<(), Error> {
        let mut deaf = vec![None; self.nodes.len()];
        let quorum = self.quorum();
        let hear = async {
            while listeners.hearing() < quorum && deaf.iter().flatten().count() <= deaf.len() - quorum {
                let (node, heard) = listeners.next().await;
                deaf[node] = match heard {
                    Heard::Deaf => Some(None),
                    Heard::Refused(fault) => Some(Some(fault)),
                    Heard::Listening | Heard::Message(_) => None,
                };
            }
        };
        crate::redis::within(self.nodes.deadline().min(end), hear).await;
        let refusals = || deaf.iter().enumerate().filter_map(|(node, deaf)| Some((node, deaf.as_ref()?.as_ref()?)));
        match refusals().count() > self.minority() {
            true => Err(self.unanswered(refusals(), self.nodes.len() - refusals().count())),
            false => Ok(()),
        }
    }

    /// Tries to take the lock, and if it is not our turn decides when to try again.
    async fn look(
        &mut self,
        claim: &mut Claim,
        line: &mut InLine<'_>,
        listeners: &mut Listeners,
    ) -> Result<Option<Lease>, Error> {
        let was_called = std::mem::replace(&mut line.called, vec![false; self.nodes.len()]);
        // A server that hangs is not waited for much longer than was asked for.
        let until = line.end.max(Boot::now() + LAST_LOOK);
        match self.attempt(claim, line.request, line.remembered.as_ref(), until).await {
            Attempt::Granted(lease) => {
                self.step_out(claim).await;
                return Ok(Some(lease));
            }
            Attempt::Faulty(error) if !can_heal(&error) => return Err(error),
            Attempt::Faulty(error) => {
                line.server_is_gone();
                line.away = true;
                line.failures += 1;
                let pause = (FAILURE * 2u32.saturating_pow(line.failures)).min(FAILURE_AT_MOST);
                line.look = Boot::now() + jitter(pause);
                line.trouble = Some(error);
                line.tell(self, None);
            }
            Attempt::Busy(busy) => {
                line.failures = 0;
                line.trouble = None;
                let dropped: Vec<usize> =
                    busy.queued.iter().copied().filter(|&node| line.queued && !was_called[node]).collect();
                if !busy.ticket.is_empty() && self.nodes.len() == 1 {
                    claim.ticket.clone_from(&busy.ticket);
                }
                let back = line.away && line.queued && listeners.hearing() >= self.quorum();
                line.take_in(*busy);
                let mut news = None;
                if back {
                    line.away = false;
                    news = Some("back in line".to_owned());
                }
                if !dropped.is_empty() {
                    line.away = false;
                    news = Some(format!("queued again on {} of {} nodes", dropped.len(), self.nodes.len()));
                }
                // A node that called us did not find us: the subscription is dead, or the node forgot us.
                dropped.into_iter().for_each(|node| listeners.reopen(node));
                line.tell(self, news);
            }
        }
        Ok(None)
    }

    /// Granted by a quorum: gives up the place in line on the nodes that did not grant.
    async fn step_out(&mut self, claim: &Claim) {
        if self.nodes.len() > 1 {
            let call = self.call(&scripts::LEAVE, &[&claim.waiter, ""]).in_full();
            let deadline = self.nodes.deadline();
            let quorum = self.quorum();
            let soon = Boot::now() + Duration::from_millis(20);
            let patience = |left: &Answers<Left>| if left.said().count() >= quorum { soon } else { Boot::NEVER };
            self.nodes.ask(&call, |_| true, deadline, patience).await;
        }
    }

    /// Waits until the lock is free and no waiter is in line for it, and takes nothing.
    ///
    /// # Errors
    /// [`Error::Held`] when the time is over, [`Error::NoQuorum`] when waiting cannot help or was in vain.
    pub(crate) async fn wait_until_free(
        &mut self,
        timeout: Duration,
        notify: &mut dyn FnMut(&Waiting),
    ) -> Result<(), Error> {
        let start = Boot::now();
        let end = start + timeout;
        let mut listeners = self.nodes.listen(&self.keys.free());
        loop {
            let status = self.inspect().await?;
            if status.state == State::Free && status.waiting.unwrap_or(0) == 0 {
                return Ok(());
            }
            if status.state == State::Free {
                // Free, and promised to no waiter, though there is a line: its first are dead, or do not know yet.
                let call = self.call(&scripts::LEAVE, &["", ""]);
                let _: Answers<Left> = self.nodes.ask_all(&call, self.nodes.deadline()).await;
            }
            if end.passed() {
                return Err(match status.unanswered {
                    Some(error) => error,
                    None => Error::Held(Box::new(Held { waited: Some(start.elapsed()), ..status.held() })),
                });
            }
            notify(&Waiting {
                held: status.held(),
                rank: None,
                trouble: status.unanswered.as_ref().map(Error::trouble),
                news: None,
            });
            let look = status.lease().map_or(WAIT_LOOKS, |left| WAIT_LOOKS.min(left + AFTER_EXPIRY));
            let look = (Boot::now() + look).min(end);
            loop {
                tokio::select! {
                    (_, heard) = listeners.next() => if !matches!(heard, Heard::Deaf | Heard::Refused(_)) { break },
                    () = sleep_until(look) => break,
                }
            }
        }
    }
}

impl InLine<'_> {
    /// The nodes have told who has the lock, and how far we are in line.
    fn take_in(&mut self, busy: Busy) {
        self.queued = true;
        self.look = Boot::now() + if busy.split && busy.rank == 0 { full_jitter(RIVALRY) } else { next_look(&busy) };
        self.busy = busy;
        self.remember();
    }

    /// Keeps in mind which lease a single server has, for the case that it forgets it.
    fn remember(&mut self) {
        if let (1, Blocker::Lease(holder)) = (self.called.len(), &self.busy.by)
            && holder.lease.is_some()
            && let Some(fencing_token) = holder.fencing_token
        {
            self.remembered = Some(Remembered {
                token: holder.token.clone(),
                run_id: self.busy.from.run_id.clone().unwrap_or_default(),
                fencing_token,
                until: Boot::now() + holder.longest(),
                longest: Some(holder.longest()),
            });
        }
    }

    /// The single server cannot be asked any more: what it had may last for its whole length from now.
    fn server_is_gone(&mut self) {
        if let Some(seen) = &mut self.remembered
            && let Some(longest) = seen.longest.take()
        {
            seen.until = Boot::now() + longest;
        }
    }

    fn hear(&mut self, lock: &Lock, node: usize, heard: Heard) {
        match heard {
            Heard::Message(text) if text == "go" => {
                self.called[node] = true;
                let callers = self.called.iter().filter(|&&called| called).count();
                let soon = if callers >= lock.quorum() { Boot::now() } else { Boot::now() + full_jitter(RIVALRY) };
                self.look = self.look.min(soon);
            }
            Heard::Message(_) => {
                // We are first now, and keep watch.
                self.busy.rank = 0;
                self.look = self.look.min(Boot::now() + jitter(NEW_HEAD_LOOKS));
                self.tell(lock, None);
            }
            // A call may have been missed.
            Heard::Listening => self.look = Boot::now(),
            Heard::Deaf | Heard::Refused(_) => {
                self.server_is_gone();
                self.away = true;
            }
        }
    }

    fn tell(&mut self, lock: &Lock, news: Option<String>) {
        let held = lock.held(&self.busy.by, self.request);
        let trouble = self.trouble.as_ref().map(Error::trouble);
        (self.notify)(&Waiting { held, rank: self.queued.then_some(self.busy.rank), trouble, news });
    }
}

/// When a waiter looks by itself. The first often, the one at rank r every r + 1 seconds, so that W waiters look about
/// ln W times a second; and when the lease runs out.
fn next_look(busy: &Busy) -> Duration {
    let places = u32::try_from(busy.rank).unwrap_or(u32::MAX).saturating_add(1);
    let regular = match busy.rank {
        0 => FIRST_LOOKS,
        rank => Duration::from_secs(rank.saturating_add(1)).min(OTHERS_LOOK),
    };
    let regular = jitter(regular);
    match (busy.left, &busy.by) {
        (Some(left), Blocker::Reserved(_)) => regular.min(left + AFTER_EXPIRY),
        (Some(left), _) if busy.rank == 0 => regular.min(left + AFTER_EXPIRY),
        (Some(left), _) => {
            let after = left + OTHERS_AFTER_EXPIRY / 10 + full_jitter(OTHERS_AFTER_EXPIRY * 9 / 10);
            regular.min(after.max(OTHERS_PER_PLACE.saturating_mul(places)))
        }
        (None, _) => regular,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(rank: u64, left_ms: u64, by: Blocker) -> Busy {
        Busy { by, left: Some(Duration::from_millis(left_ms)), rank, ..Busy::default() }
    }

    #[test]
    fn a_thousand_waiters_look_less_than_fifty_times_a_second() {
        let looks = |left| -> f64 {
            (0..1000).map(|rank| 1.0 / next_look(&busy(rank, left, Blocker::Unknown)).as_secs_f64()).sum()
        };
        assert!(looks(1_000_000) < 50.0, "{}", looks(1_000_000));
        // With leases that are always about to run out: 10 ln W.
        assert!(looks(400) < 80.0, "{}", looks(400));
    }

    #[test]
    fn the_first_in_line_looks_when_the_lease_runs_out() {
        let next = |rank, left, by| next_look(&busy(rank, left, by));
        assert_eq!(next(0, 100, Blocker::Unknown), Duration::from_millis(102));
        assert!(next(0, 5000, Blocker::Unknown) <= FIRST_LOOKS * 11 / 10);
        assert_eq!(next(3, 100, Blocker::Reserved(None)), Duration::from_millis(102));
        let others = next(3, 1000, Blocker::Unknown);
        assert!(others >= Duration::from_millis(1010) && others <= Duration::from_millis(1100), "{others:?}");
        assert!(next(3, 10, Blocker::Unknown) >= Duration::from_millis(400));
    }
}
