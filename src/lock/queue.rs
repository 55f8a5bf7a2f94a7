//! Waiting in line: first come, first served, at a cost for each hand-over that does not depend on how many wait.
//!
//! Whoever frees the lock pops the first in line and calls it on a channel of its own, so that being called is being
//! next, and nobody else wakes up. PUBLISH tells how many heard it: a dead waiter shows itself by that, and is dropped
//! once. A frozen one loses the reservation after a second, and comes back with its old ticket. Nobody is dropped for a
//! clock. In case a call is lost, each waiter looks by itself now and then, the first one often.

use super::acquire::{Attempt, Busy, Candidate, HURRY};
use super::inspect::State;
use super::lease::Lease;
use super::node::{Event, Listener, Order};
use super::{Holder, Locker, Request, Wait, scripts};
use crate::error::Error;
use crate::sys::clock::{Boot, unix_time};
use std::time::Duration;
use uuid::Uuid;

/// How often the first in line looks by itself: another library frees its lock without calling anybody.
const FIRST_LOOKS: Duration = Duration::from_millis(400);
/// How soon who has just become the first looks: the new lease may be one that runs out before it would look otherwise.
const NEW_HEAD_LOOKS: Duration = Duration::from_millis(50);
/// The others look the more rarely the farther back they are, this rarely at most.
const OTHERS_LOOK: Duration = Duration::from_secs(60);
/// An expiry is looked at this much after it is due.
const AFTER_EXPIRY: Duration = Duration::from_millis(2);
/// After losing part of a lock to a rival, wait up to this long before the next try.
const RIVALRY: Duration = Duration::from_millis(100);
/// The same after a failure of nodes: at first, and at most.
const FAILURE: Duration = Duration::from_millis(100);
const FAILURE_AT_MOST: Duration = Duration::from_secs(1);
/// How much longer than for most nodes is waited for the rest of them when the line is left.
const SLOWER: Duration = Duration::from_millis(20);
/// How often `redlock wait` looks by itself.
const WAIT_LOOKS: Duration = Duration::from_millis(500);

/// What a waiter can say about what it waits for.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) holder: Option<Holder>,
    /// What is left of the holder's lease; none when it never expires or is not known.
    pub(crate) lease: Option<Duration>,
    /// How many are before us.
    pub(crate) rank: u64,
    /// Why the nodes cannot be asked at present.
    pub(crate) trouble: Option<String>,
    /// This happened just now, and is told only to who wants to know everything.
    pub(crate) news: Option<String>,
}

/// Our ears: one subscription on each node.
struct Ears {
    channel: String,
    listeners: Vec<Option<(u64, Listener)>>,
    hearing: Vec<bool>,
    /// When a listener that ended may be replaced.
    again: Vec<Boot>,
    next: u64,
}

impl Ears {
    fn new(channel: String, nodes: usize) -> Ears {
        let listeners = (0..nodes).map(|_| None).collect();
        Ears {
            channel,
            listeners,
            hearing: vec![false; nodes],
            again: vec![Boot::at(Duration::ZERO); nodes],
            next: 1,
        }
    }

    /// Starts to listen wherever nobody does.
    fn open(&mut self, locker: &Locker) {
        for (at, node) in locker.nodes.iter().enumerate() {
            if self.listeners[at].is_none() && self.again[at].passed() {
                let listener = node.listen(self.next, &self.channel, locker.deadline());
                self.listeners[at] = Some((self.next, listener));
                self.next += 1;
            }
        }
    }

    /// Listens anew on this node, after a pause.
    fn close(&mut self, node: usize, pause: Duration) {
        self.listeners[node] = None;
        self.hearing[node] = false;
        self.again[node] = Boot::now() + pause;
    }

    /// On how many nodes we would hear a call.
    fn hear(&self) -> usize {
        self.hearing.iter().filter(|&&hearing| hearing).count()
    }

    fn is(&self, node: usize, listener: u64) -> bool {
        self.listeners[node]
            .as_ref()
            .is_some_and(|(known, _)| *known == listener)
    }

    /// When something is to be done about a deaf node.
    fn due(&self) -> Boot {
        let deaf = self
            .listeners
            .iter()
            .zip(&self.again)
            .filter(|(listener, _)| listener.is_none());
        deaf.map(|(_, &again)| again).min().unwrap_or(Boot::NEVER)
    }
}

impl Locker {
    /// Queues until the lock is ours, the wait is over, or a signal comes.
    pub(super) fn queue(
        &mut self,
        request: &Request,
        first: Busy,
        on_wait: &mut dyn FnMut(&Waiting),
    ) -> Result<Lease, Error> {
        let start = Boot::now();
        let end = match request.wait {
            Wait::No => start,
            Wait::Forever => Boot::NEVER,
            Wait::For(patience) => start + patience,
        };
        let several = self.nodes.len() > 1;
        let mut me = Candidate {
            waiter: Uuid::new_v4().simple().to_string(),
            ticket: String::new(),
        };
        if several {
            // With numbers given by each node, two waiters could each be first on some of them, for good.
            me.ticket = unix_time().as_micros().to_string();
        }
        on_wait(&waiting(&first, None));
        let mut ears = Ears::new(self.keys.waiter(&me.waiter), self.nodes.len());
        let mut busy = first;
        let mut in_line = false;
        let mut look = Boot::now();
        let mut called = vec![false; self.nodes.len()];
        let mut failures = 0;
        // A node could not be asked, or could not have called us; that is to be told of.
        let mut away = false;
        self.hear(&mut ears, (Boot::now() + self.node_timeout).min(end))?;
        loop {
            if look.passed() && !end.passed() {
                let was_called = std::mem::replace(&mut called, vec![false; self.nodes.len()]);
                match self.attempt(&me, request) {
                    Attempt::Granted(lease) => {
                        self.step_out(&me, several);
                        return Ok(lease);
                    }
                    Attempt::Interrupted(signal) => return Err(Error::Interrupted(signal)),
                    Attempt::Faulty(error @ (Error::Refused(_) | Error::Usage(_))) => {
                        self.leave(&me, false);
                        return Err(error);
                    }
                    Attempt::Faulty(error) => {
                        let mut told = waiting(&busy, Some(error.to_string()));
                        if failures == 0 {
                            told.news.clone_from(&told.trouble);
                        }
                        away = true;
                        failures += 1;
                        let pause = (FAILURE * 2u32.saturating_pow(failures)).min(FAILURE_AT_MOST);
                        look = Boot::now() + jitter(pause);
                        on_wait(&told);
                    }
                    Attempt::Busy(now) => {
                        failures = 0;
                        let dropped: Vec<usize> = now
                            .queued
                            .iter()
                            .copied()
                            .filter(|&node| in_line && !was_called[node])
                            .collect();
                        let mut told = waiting(&now, None);
                        if away && in_line && ears.hear() >= self.quorum() {
                            away = false;
                            told.news = Some("in line again".to_owned());
                        }
                        if !dropped.is_empty() {
                            away = false;
                            // Whoever called us did not find us: the subscription is dead, or the node forgot us.
                            for &node in &dropped {
                                ears.close(node, Duration::ZERO);
                            }
                            told.news = Some(format!(
                                "queued anew on {} of {} nodes",
                                dropped.len(),
                                self.nodes.len()
                            ));
                        }
                        in_line = true;
                        if !now.ticket.is_empty() && !several {
                            me.ticket.clone_from(&now.ticket);
                        }
                        look = Boot::now()
                            + if now.split && now.rank == 0 {
                                full_jitter(RIVALRY)
                            } else {
                                next_look(&now)
                            };
                        on_wait(&told);
                        busy = *now;
                    }
                }
            }
            if end.passed() {
                self.leave(&me, false);
                if let Some(trouble) = (failures > 0).then(|| self.last_trouble()).flatten() {
                    return Err(trouble);
                }
                return Err(self.is_held(busy, request, Some(Boot::now().since(start))));
            }
            ears.open(self);
            let Some(event) = self.next_event(look.min(end).min(ears.due())) else {
                continue;
            };
            match event {
                Event::Interrupt(signal) => {
                    self.leave(&me, true);
                    return Err(Error::Interrupted(signal));
                }
                Event::Heard { node, text } if text == "go" => {
                    called[node] = true;
                    let soon = if called.iter().filter(|&&called| called).count() >= self.quorum() {
                        Boot::now()
                    } else {
                        Boot::now() + full_jitter(RIVALRY)
                    };
                    look = look.min(soon);
                }
                Event::Heard { .. } => {
                    // We are first now, and keep watch.
                    busy.rank = 0;
                    look = look.min(Boot::now() + jitter(NEW_HEAD_LOOKS));
                    on_wait(&waiting(&busy, None));
                }
                Event::Listening { node, listener } if ears.is(node, listener) => {
                    ears.hearing[node] = true;
                    look = Boot::now(); // a call may have been missed
                }
                Event::Deaf { node, listener, .. } if ears.is(node, listener) => {
                    // Whoever heard may hear again at once; whoever did not has a node that is down.
                    away |= ears.hearing[node];
                    let pause = if ears.hearing[node] {
                        FAILURE
                    } else {
                        FAILURE_AT_MOST
                    };
                    ears.close(node, jitter(pause));
                }
                _ => {}
            }
        }
    }

    /// Waits until a quorum of nodes hears us, or until `until`: who queues before hearing misses its call.
    fn hear(&mut self, ears: &mut Ears, until: Boot) -> Result<(), Error> {
        ears.open(self);
        while ears.hear() < self.quorum() {
            match self.next_event(until) {
                None => break,
                Some(Event::Interrupt(signal)) => return Err(Error::Interrupted(signal)),
                Some(Event::Listening { node, .. }) => ears.hearing[node] = true,
                Some(Event::Deaf { node, .. }) => {
                    ears.close(node, FAILURE_AT_MOST);
                    if ears
                        .listeners
                        .iter()
                        .filter(|listener| listener.is_some())
                        .count()
                        < self.quorum()
                    {
                        break;
                    }
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Granted by a quorum: gives up the place in line on the nodes that did not grant. Nobody waits for their answer.
    fn step_out(&mut self, me: &Candidate, several: bool) {
        if several {
            let call = self.script(&scripts::LEAVE, &[&me.waiter, ""]);
            let deadline = self.deadline();
            self.ask(
                &call,
                vec![true; self.nodes.len()],
                deadline,
                Order::InTurn,
                |_| true,
            );
        }
    }

    /// Leaves the line on every node. Whether a node has done it is waited for, since one that does not is where the
    /// others would wait for us; but of those that are slow or do not answer only until the rest have.
    fn leave(&mut self, me: &Candidate, hurry: bool) {
        let call = self.script(&scripts::LEAVE, &[&me.waiter, ""]);
        self.cleaning_up = true;
        let start = Boot::now();
        let deadline = start
            + if hurry {
                HURRY
            } else {
                self.node_timeout.max(HURRY)
            };
        let all = vec![true; self.nodes.len()];
        let mut left = self.ask(&call, all, deadline, Order::Undo, |_| true);
        self.take_more(&mut left, deadline, |locker, left| {
            left.got.iter().flatten().count() < locker.quorum()
        });
        let until = Boot::now() + Boot::now().since(start) * 2 + SLOWER;
        self.take_more(&mut left, until.min(deadline), |_, _| true);
        self.cleaning_up = false;
    }

    /// What kept us from asking at the end of the wait, if the nodes cannot be asked now either.
    fn last_trouble(&mut self) -> Option<Error> {
        match self.inspect() {
            Ok(status) if status.state != State::Unknown => None,
            Ok(status) => Some(Error::Unavailable(status.trouble())),
            Err(error) => Some(error),
        }
    }

    /// The lock is free, and promised to nobody, though there is a line: its first are dead, or do not know yet. Calls
    /// the first one that lives.
    fn call_the_first(&mut self) {
        let call = self.script(&scripts::LEAVE, &["", ""]);
        let deadline = self.deadline();
        let all = vec![true; self.nodes.len()];
        self.ask(&call, all, deadline, Order::InTurn, |_| true);
    }

    /// Waits until nobody has the lock, nor wants it, and takes nothing.
    ///
    /// # Errors
    /// [`Error::Held`] when `timeout` is over, [`Error::Unavailable`] when the nodes cannot be asked at the beginning,
    /// [`Error::Interrupted`].
    pub(crate) fn wait_until_free(
        &mut self,
        timeout: Wait,
        on_wait: &mut dyn FnMut(&Waiting),
    ) -> Result<(), Error> {
        let start = Boot::now();
        let end = match timeout {
            Wait::No => start,
            Wait::Forever => Boot::NEVER,
            Wait::For(patience) => start + patience,
        };
        let mut ears = Ears::new(self.keys.free(), self.nodes.len());
        let mut reached = false;
        loop {
            let status = self.inspect()?;
            match status.state {
                State::Free if status.waiting.unwrap_or(0) == 0 => return Ok(()),
                State::Free => {
                    reached = true;
                    self.call_the_first();
                }
                State::Unknown if !reached => return Err(Error::Unavailable(status.trouble())),
                State::Unknown => {}
                _ => reached = true,
            }
            let told = status.told();
            if end.passed() {
                return Err(Error::Held(Box::new(
                    status.into_held(Boot::now().since(start)),
                )));
            }
            on_wait(&told);
            ears.open(self);
            let look = match told.lease {
                Some(left) => WAIT_LOOKS.min(left + AFTER_EXPIRY),
                None => WAIT_LOOKS,
            };
            let look = (Boot::now() + look).min(end);
            while let Some(event) = self.next_event(look) {
                match event {
                    Event::Interrupt(signal) => return Err(Error::Interrupted(signal)),
                    Event::Heard { .. } => break,
                    Event::Listening { node, listener } if ears.is(node, listener) => break,
                    Event::Deaf { node, listener, .. } if ears.is(node, listener) => {
                        ears.close(node, FAILURE_AT_MOST)
                    }
                    _ => {}
                }
            }
        }
    }
}

fn waiting(busy: &Busy, trouble: Option<String>) -> Waiting {
    Waiting {
        holder: busy.held.holder.clone(),
        lease: busy.held.lease,
        rank: busy.rank,
        trouble,
        news: None,
    }
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
    let (bits, _) = Uuid::new_v4().as_u64_pair();
    // The version takes bits 12 to 15; the upper 32 bits are random.
    f64::from(u32::try_from(bits >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Held;

    fn busy(rank: u64, left_ms: u64, reserved: bool) -> Busy {
        Busy {
            held: Held {
                reserved,
                ..Held::default()
            },
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
        let looks: f64 = (0..1000)
            .map(|rank| 1.0 / next_look(&busy(rank, 1_000_000, false)).as_secs_f64())
            .sum();
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
