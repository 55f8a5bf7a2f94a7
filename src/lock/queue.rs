//! Waiting in line: first come, first served, at a cost for each hand-over that does not depend on how many wait.
//!
//! Whoever frees the lock pops the first in line and calls it on a channel of its own, so that being called is being
//! next, and nobody else wakes up. PUBLISH tells how many heard it: a dead waiter shows itself by that, and is dropped
//! once. A frozen one loses the reservation after a second, and comes back with its old ticket. Nobody is dropped for a
//! clock. In case a call is lost, each waiter looks by itself now and then, the first one often.

use super::acquire::{Attempt, Candidate, HURRY};
use super::ears::Ears;
use super::lease::Lease;
use super::node::{Event, Node, Order};
use super::refusal::Busy;
use super::{Locker, Request, scripts};
use crate::error::{Error, Held};
use crate::sys::clock::{Boot, unix_time};
use crate::sys::random::uuid;
use std::time::Duration;

/// How often the first in line looks by itself: another library frees its lock without calling anybody.
const FIRST_LOOKS: Duration = Duration::from_millis(400);
/// How soon who has just become the first looks: the new lease may be one that runs out before it would look otherwise.
const NEW_HEAD_LOOKS: Duration = Duration::from_millis(50);
/// The others look the more rarely the farther back they are, this rarely at most.
const OTHERS_LOOK: Duration = Duration::from_secs(60);
/// An expiry is looked at this much after it is due.
pub(super) const AFTER_EXPIRY: Duration = Duration::from_millis(2);
/// What the last look may take, even if the wait is over then.
const LAST_LOOK: Duration = Duration::from_millis(100);
/// After losing part of a lock to a rival, wait up to this long before the next try.
const RIVALRY: Duration = Duration::from_millis(100);
/// The same after a failure of nodes: at first, and at most.
const FAILURE: Duration = Duration::from_millis(100);
pub(super) const FAILURE_AT_MOST: Duration = Duration::from_secs(1);
/// How much longer than for most nodes is waited for the rest of them when the line is left.
const SLOWER: Duration = Duration::from_millis(20);
/// What a waiter can say about what it waits for.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) held: Held,
    /// How many are before us.
    pub(crate) rank: u64,
    /// Why the nodes cannot be asked at present.
    pub(crate) trouble: Option<String>,
    /// This happened just now, and is told only to who wants to know everything.
    pub(crate) news: Option<String>,
}

/// A place in line, and what is known of the lock.
struct Place {
    me: Candidate,
    start: Boot,
    /// When the wait is over.
    end: Boot,
    ears: Ears,
    busy: Busy,
    /// The nodes know that we wait.
    in_line: bool,
    /// When to look whether it is our turn.
    look: Boot,
    /// Who has called us since the last look.
    called: Vec<bool>,
    /// Why the nodes could not be asked the last time.
    trouble: Option<Error>,
    /// How often in a row they could not.
    failures: u32,
    /// A node could not be asked, or could not have called us; that is to be told of.
    away: bool,
}

impl Locker {
    /// Queues until the lock is ours, the wait that began at `start` is over, or a signal comes.
    pub(super) fn queue(
        &mut self,
        request: &Request,
        busy: Busy,
        start: Boot,
        on_wait: &mut dyn FnMut(&Waiting),
    ) -> Result<Lease, Error> {
        let mut me = Candidate { waiter: uuid().simple().to_string(), ticket: String::new() };
        if self.nodes.len() > 1 {
            // With numbers given by each node, two waiters could each be first on some of them, for good.
            me.ticket = unix_time().as_micros().to_string();
        }
        on_wait(&waiting(&busy, request, None));
        let mut place = Place {
            start,
            end: request.wait.end(start),
            ears: Ears::new(self.keys.waiter(&me.waiter), self.nodes.len()),
            me,
            busy,
            in_line: false,
            look: Boot::now(),
            called: vec![false; self.nodes.len()],
            trouble: None,
            failures: 0,
            away: false,
        };
        let waited = self.wait_in_line(&mut place, request, on_wait);
        self.stop_listening();
        waited
    }

    pub(super) fn stop_listening(&mut self) {
        self.nodes.iter_mut().for_each(Node::stop_listening);
    }

    fn wait_in_line(
        &mut self,
        place: &mut Place,
        request: &Request,
        on_wait: &mut dyn FnMut(&Waiting),
    ) -> Result<Lease, Error> {
        self.hear(&mut place.ears, self.deadline().min(place.end))?;
        loop {
            if place.look.passed()
                && !place.end.passed()
                && let Some(lease) = self.look(place, request, on_wait)?
            {
                return Ok(lease);
            }
            if place.end.passed() {
                self.leave(&place.me, true);
                if let Some(trouble) = place.trouble.take() {
                    return Err(trouble);
                }
                let waited = Some(Boot::now().since(place.start));
                return Err(self.is_held(&place.busy, request, waited));
            }
            place.ears.open(self);
            let until = place.look.min(place.end).min(place.ears.due());
            let Some(event) = self.next_event(until) else {
                continue;
            };
            match event {
                Event::Alarm => {
                    self.leave(&place.me, true);
                    return Err(Error::Interrupted(0));
                }
                Event::Interrupt(signal) => {
                    self.leave(&place.me, true);
                    return Err(Error::Interrupted(signal));
                }
                Event::Heard { node, text } if text == "go" => {
                    place.called[node] = true;
                    let callers = place.called.iter().filter(|&&called| called).count();
                    let soon = if callers >= self.quorum() { Boot::now() } else { Boot::now() + full_jitter(RIVALRY) };
                    place.look = place.look.min(soon);
                }
                Event::Heard { .. } => {
                    // We are first now, and keep watch.
                    place.busy.rank = 0;
                    place.look = place.look.min(Boot::now() + jitter(NEW_HEAD_LOOKS));
                    on_wait(&waiting(&place.busy, request, None));
                }
                Event::Listening { node, listener } if place.ears.is(node, listener) => {
                    place.ears.hearing[node] = true;
                    place.look = Boot::now(); // a call may have been missed
                }
                Event::Deaf { node, listener, .. } if place.ears.is(node, listener) => {
                    // Whoever heard may hear again at once; whoever did not has a node that is down.
                    place.away |= place.ears.hearing[node];
                    let pause = if place.ears.hearing[node] { FAILURE } else { FAILURE_AT_MOST };
                    place.ears.close(node, jitter(pause));
                }
                _ => {}
            }
        }
    }

    /// Tries to take the lock, and if it is not our turn decides when to try again.
    fn look(
        &mut self,
        place: &mut Place,
        request: &Request,
        on_wait: &mut dyn FnMut(&Waiting),
    ) -> Result<Option<Lease>, Error> {
        let was_called = std::mem::replace(&mut place.called, vec![false; self.nodes.len()]);
        // A server that hangs is not waited for much longer than was asked for.
        let until = place.end.max(Boot::now() + LAST_LOOK);
        match self.attempt(&place.me, request, until) {
            Attempt::Granted(lease) => {
                self.step_out(&place.me);
                let waited = Boot::now().since(place.start);
                return Ok(Some(Lease { waited, ..lease }));
            }
            // It has left the line.
            Attempt::Interrupted(signal) => return Err(Error::Interrupted(signal)),
            Attempt::Faulty(error @ (Error::Refused(_) | Error::Usage(_))) => {
                self.leave(&place.me, false);
                return Err(error);
            }
            Attempt::Faulty(error) => {
                let mut told = waiting(&place.busy, request, Some(error.to_string()));
                if place.failures == 0 {
                    told.news.clone_from(&told.trouble);
                }
                place.away = true;
                place.failures += 1;
                let pause = (FAILURE * 2u32.saturating_pow(place.failures)).min(FAILURE_AT_MOST);
                place.look = Boot::now() + jitter(pause);
                place.trouble = Some(error);
                on_wait(&told);
            }
            Attempt::Busy(now) => {
                place.failures = 0;
                place.trouble = None;
                let in_line = std::mem::replace(&mut place.in_line, true);
                let dropped: Vec<usize> =
                    now.queued.iter().copied().filter(|&node| in_line && !was_called[node]).collect();
                let mut told = waiting(&now, request, None);
                if place.away && in_line && place.ears.hear() >= self.quorum() {
                    place.away = false;
                    told.news = Some("in line again".to_owned());
                }
                if !dropped.is_empty() {
                    place.away = false;
                    // Whoever called us did not find us: the subscription is dead, or the node forgot us.
                    for &node in &dropped {
                        place.ears.close(node, Duration::ZERO);
                    }
                    told.news = Some(format!("queued anew on {} of {} nodes", dropped.len(), self.nodes.len()));
                }
                if !now.ticket.is_empty() && self.nodes.len() == 1 {
                    place.me.ticket.clone_from(&now.ticket);
                }
                place.look =
                    Boot::now() + if now.split && now.rank == 0 { full_jitter(RIVALRY) } else { next_look(&now) };
                on_wait(&told);
                place.busy = *now;
            }
        }
        Ok(None)
    }

    /// Waits until a quorum of nodes hears us, or until `until`: who queues before hearing misses its call.
    fn hear(&mut self, ears: &mut Ears, until: Boot) -> Result<(), Error> {
        ears.open(self);
        while ears.hear() < self.quorum() {
            match self.next_event(until) {
                None => break,
                Some(Event::Interrupt(signal)) => return Err(Error::Interrupted(signal)),
                Some(Event::Alarm) => return Err(Error::Interrupted(0)),
                Some(Event::Listening { node, .. }) => ears.hearing[node] = true,
                Some(Event::Deaf { node, .. }) => {
                    ears.close(node, FAILURE_AT_MOST);
                    let listeners = ears.listeners.iter().flatten().count();
                    if listeners < self.quorum() {
                        break;
                    }
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Granted by a quorum: gives up the place in line on the nodes that did not grant. Nobody waits for their answer, only
    /// until it is on its way, since we may end at once.
    fn step_out(&mut self, me: &Candidate) {
        if self.nodes.len() > 1 {
            let call = self.script(&scripts::LEAVE, &[&me.waiter, ""]);
            let deadline = self.deadline();
            let all = vec![true; self.nodes.len()];
            let left = self.ask(&call, all, deadline, Order::Undo, |_| true);
            self.see_it_off(&left, SLOWER);
        }
    }

    /// Leaves the line on every node. Whether a node has done it is waited for, since one that does not is where the
    /// others would wait for us; but of those that are slow or do not answer only until the rest have.
    fn leave(&mut self, me: &Candidate, hurry: bool) {
        let call = self.script(&scripts::LEAVE, &[&me.waiter, ""]);
        self.cleaning_up = true;
        let start = Boot::now();
        let deadline = start + if hurry { HURRY } else { self.node_timeout.max(HURRY) };
        let all = vec![true; self.nodes.len()];
        let mut left = self.ask(&call, all, deadline, Order::Undo, |_| true);
        self.take_more(&mut left, deadline, |locker, left| left.got.iter().flatten().count() < locker.quorum());
        let until = Boot::now() + Boot::now().since(start) * 2 + SLOWER;
        self.take_more(&mut left, until.min(deadline), |_, _| true);
        self.cleaning_up = false;
    }
}

fn waiting(busy: &Busy, request: &Request, trouble: Option<String>) -> Waiting {
    Waiting { held: busy.of(request), rank: busy.rank, trouble, news: None }
}

/// When a waiter looks by itself. The first often, the one at rank r every r + 1 seconds, so that W waiters look about
/// ln W times a second; whoever could have the lock next also when it runs out.
fn next_look(busy: &Busy) -> Duration {
    let regular = match busy.rank {
        0 => FIRST_LOOKS,
        rank => Duration::from_secs(rank + 1).min(OTHERS_LOOK),
    };
    let regular = jitter(regular);
    match busy.left {
        Some(left) if busy.rank == 0 || busy.held.reserved => regular.min(left + AFTER_EXPIRY),
        _ => regular,
    }
}

/// This time, 10 % more or less, so that those who started together do not stay together.
fn jitter(time: Duration) -> Duration {
    time.mul_f64(0.9 + 0.2 * random())
}

/// Anything from nothing to this time.
pub(super) fn full_jitter(time: Duration) -> Duration {
    time.mul_f64(random())
}

/// A random number from 0 to 1.
fn random() -> f64 {
    let (bits, _) = uuid().as_u64_pair();
    // The version takes bits 12 to 15; the upper 32 bits are random.
    f64::from(u32::try_from(bits >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Held;

    fn busy(rank: u64, left_ms: u64, reserved: bool) -> Busy {
        Busy {
            held: Held { reserved, ..Held::default() },
            left: Some(Duration::from_millis(left_ms)),
            rank,
            ticket: String::new(),
            queued: Vec::new(),
            partial: false,
            split: false,
        }
    }

    #[test]
    fn a_thousand_waiters_look_less_than_fifty_times_a_second() {
        let looks: f64 = (0..1000).map(|rank| 1.0 / next_look(&busy(rank, 1_000_000, false)).as_secs_f64()).sum();
        assert!(looks < 50.0, "{looks}");
    }

    #[test]
    fn the_first_in_line_looks_when_the_lease_runs_out() {
        assert_eq!(next_look(&busy(0, 100, false)), Duration::from_millis(102));
        assert!(next_look(&busy(0, 5000, false)) <= FIRST_LOOKS * 11 / 10);
        assert!(next_look(&busy(3, 100, false)) >= Duration::from_secs(3));
        assert_eq!(next_look(&busy(3, 100, true)), Duration::from_millis(102));
    }

    #[test]
    fn chance_covers_its_whole_range() {
        let drawn: Vec<f64> = (0..1000).map(|_| random()).collect();
        assert!(drawn.iter().all(|x| (0.0..=1.0).contains(x)));
        assert!(drawn.iter().any(|&x| x < 0.1) && drawn.iter().any(|&x| x > 0.9));
    }
}
