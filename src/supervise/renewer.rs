//! Owns the lease: acquires it, renews it, releases it.
//!
//! A single node is asked and waited for with the main thread, which has nothing else to do then. Several nodes, and
//! every lease that has to be renewed, get a thread. It tells the keeper each new deadline itself: the main thread may be
//! kept waiting by a full standard error; the lease is not.

use super::timeline::Timeline;
use crate::error::Error;
use crate::keeper::{Keeper, Order};
use crate::lock::{Alarm, Idle, Interrupter, Lease, Locker, Renewal, Request};
use crate::sys::clock::Boot;
use crate::waiting::Line;
use nix::sys::eventfd::EventFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How soon it is tried again to start a thread.
const AGAIN: Duration = Duration::from_millis(100);

/// What the main thread has to know of a lease that was granted.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) token: String,
    pub(crate) fencing_token: u64,
    pub(crate) ttl: Duration,
    /// The nodes' names, for people.
    pub(crate) nodes: String,
    /// The moment at which we knew that it was granted.
    pub(crate) acquired_at: Boot,
}

/// How far the last confirmed request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Confirmed {
    pub(super) confirmed_at: Boot,
    pub(super) valid_until: Boot,
    /// When the first try to renew is due.
    pub(super) renew_at: Boot,
    /// When a keeper that has not begun to kill the job does not do so any more.
    pub(super) silent_at: Boot,
}

/// What happened to the lease.
#[derive(Debug)]
pub(super) enum Event {
    Acquired(Grant),
    NotAcquired(Error),
    Confirmed(Confirmed),
    /// A try failed, the first of these at `since`.
    Unconfirmed {
        faults: String,
        since: Boot,
    },
    /// The nodes say that it is not ours any more, and what became of it.
    Lost(String),
    /// Its validity has ended, and `--on-lost continue` keeps the keeper from acting on that.
    Expired,
    Released(Result<u64, Error>),
    /// The thread has panicked; the keeper's deadline will not be moved any more.
    Failed,
}

/// Gives the lease up; with `keep` the lock stays taken for that long.
#[derive(Debug)]
struct Release {
    keep: Option<Duration>,
}

/// The main thread's end of it.
pub(super) struct Handle {
    orders: Sender<Release>,
    interrupter: Interrupter,
    /// What the thread will get. A lease that is taken at once, and given up before it has to be renewed, needs none.
    at_hand: Option<(Renewer, Option<Care>)>,
    /// When to try again to start the thread.
    again_at: Boot,
}

impl Handle {
    /// Acquires the lock, with this thread if that is all it takes, until the `alarm` goes; there is, or will be, news of it.
    pub(super) fn acquire(&mut self, alarm: &Alarm) {
        let Some((renewer, care)) = &mut self.at_hand else {
            return;
        };
        let Assignment { locker, request, line, .. } = &mut renewer.assignment;
        if !locker.asks_by_itself() {
            self.start_thread();
            if let Some((renewer, _)) = &self.at_hand {
                let text = "cannot supervise: this user has too many processes (ulimit -u)";
                let error = Error::Unavailable(text.to_owned());
                renewer.post.send(Event::NotAcquired(error));
            }
            return;
        }
        let acquired = locker.acquire_here(request, alarm, &mut |waiting| {
            if let Some(line) = line {
                line.show(waiting);
            }
        });
        // Takes it off the terminal.
        *line = None;
        match acquired {
            Ok(lease) => *care = Some(renewer.take_over(lease)),
            Err(error) => renewer.post.send(Event::NotAcquired(error)),
        }
    }

    /// When the lease needs a thread, if it has none yet: in good time before it has to be renewed.
    pub(super) fn needs_thread_at(&self) -> Boot {
        match &self.at_hand {
            Some((_, Some(Care { confirmed, .. }))) => {
                let half = confirmed.renew_at.since(confirmed.confirmed_at) / 2;
                (confirmed.renew_at - half).max(self.again_at)
            }
            _ => Boot::NEVER,
        }
    }

    /// Leaves the lease to a thread. Where there is no room for one, that is tried again.
    pub(super) fn start_thread(&mut self) {
        let Some(at_hand) = self.at_hand.take() else {
            return;
        };
        // A thread that cannot be started does not give back what it was given.
        let given = Arc::new(Mutex::new(Some(at_hand)));
        let taken = Arc::clone(&given);
        let take = |from: &Mutex<Option<_>>| from.lock().ok().and_then(|mut at_hand| at_hand.take());
        let body = move || {
            let Some((renewer, care)) = take(&taken) else {
                return;
            };
            let last_words = renewer.post.clone();
            if catch_unwind(AssertUnwindSafe(|| renewer.run(care))).is_err() {
                last_words.send(Event::Failed);
            }
        };
        let started = thread::Builder::new().name("lease".to_owned()).spawn(body);
        if started.is_err() {
            self.at_hand = take(&given);
            self.again_at = Boot::now() + AGAIN;
        }
    }

    /// Ends the wait for the lock.
    pub(super) fn interrupt(&self, signal: i32) {
        self.interrupter.interrupt(signal);
    }

    /// Has the lease released, after the renewal in flight; answered by [`Event::Released`]. Calls `meanwhile` when that is on its way.
    pub(super) fn release(&mut self, keep: Option<Duration>, meanwhile: Box<dyn FnOnce() + Send>) {
        if let Some((renewer, Some(care))) = &mut self.at_hand {
            renewer.assignment.locker.meanwhile(meanwhile);
            let released = renewer.assignment.locker.release(&care.lease, keep);
            renewer.post.send(Event::Released(released));
            return;
        }
        // Fails when the thread is gone, which it has told.
        let _ = self.orders.send(Release { keep });
        self.interrupter.interrupt(0);
        meanwhile();
    }
}

/// What the thread is given.
pub(super) struct Assignment {
    pub(super) locker: Locker,
    pub(super) request: Request,
    pub(super) timeline: Timeline,
    pub(super) keeper: Arc<Keeper>,
    pub(super) continue_when_lost: bool,
    /// Where the wait is told of; taken when it is over.
    pub(super) line: Option<Line>,
    /// Rung after each event.
    pub(super) bell: Arc<EventFd>,
}

/// Gets ready to acquire the lock.
pub(super) fn prepare(assignment: Assignment) -> (Handle, Receiver<Event>) {
    let (orders, to_obey) = channel();
    let (events, to_read) = channel();
    let interrupter = assignment.locker.interrupter();
    let post = Post { events, bell: Arc::clone(&assignment.bell) };
    let renewer = Renewer { assignment, post, orders: to_obey };
    let handle = Handle { orders, interrupter, at_hand: Some((renewer, None)), again_at: Boot::at(Duration::ZERO) };
    (handle, to_read)
}

#[derive(Clone)]
struct Post {
    events: Sender<Event>,
    bell: Arc<EventFd>,
}

impl Post {
    fn send(&self, event: Event) {
        // Nobody reads any more only when the process is about to end.
        let _ = self.events.send(event);
        let _ = self.bell.write(1);
    }
}

struct Renewer {
    assignment: Assignment,
    post: Post,
    orders: Receiver<Release>,
}

/// A lease in the hands of its thread.
struct Care {
    lease: Lease,
    confirmed: Confirmed,
    /// When to try to renew it.
    next: Boot,
    failing_since: Option<Boot>,
    tried_at_once: bool,
    /// There is nothing left to renew: the job has been told to stop, or goes on without the lock.
    over: bool,
}

impl Renewer {
    /// The thread's life: acquires the lock, unless that has been done, and takes care of the lease until its release.
    fn run(mut self, care: Option<Care>) {
        let care = care.or_else(|| self.acquire());
        let Some(mut care) = care else { return };
        let order = loop {
            match self.orders.try_recv() {
                Ok(order) => break order,
                Err(TryRecvError::Empty) => self.keep(&mut care),
                // Nobody is left to say that the job has ended.
                Err(TryRecvError::Disconnected) => return,
            }
        };
        let released = self.assignment.locker.release(&care.lease, order.keep);
        self.post.send(Event::Released(released));
    }

    fn acquire(&mut self) -> Option<Care> {
        let Assignment { locker, request, line, .. } = &mut self.assignment;
        let mut line = line.take();
        let acquired = locker.acquire(request, &mut |waiting| {
            if let Some(line) = &mut line {
                line.show(waiting);
            }
        });
        // Takes it off the terminal.
        drop(line);
        match acquired {
            Ok(lease) => Some(self.take_over(lease)),
            Err(error) => {
                self.post.send(Event::NotAcquired(error));
                None
            }
        }
    }

    /// A lease has been granted: tells everybody how far it carries.
    fn take_over(&mut self, lease: Lease) -> Care {
        let confirmed = self.confirmed(&lease);
        self.tell_keeper(confirmed);
        self.post.send(Event::Confirmed(confirmed));
        self.post.send(Event::Acquired(Grant {
            token: lease.token.clone(),
            fencing_token: lease.fencing_token,
            ttl: lease.ttl,
            nodes: self.assignment.locker.nodes(),
            acquired_at: Boot::now(),
        }));
        Care { lease, confirmed, next: confirmed.renew_at, failing_since: None, tried_at_once: false, over: false }
    }

    /// Waits for the next thing to do for the lease, and does it.
    fn keep(&mut self, care: &mut Care) {
        self.note_change(care);
        let end = self.end(care.confirmed);
        if !care.over && end.passed() {
            care.over = true;
            if self.assignment.continue_when_lost {
                self.post.send(Event::Expired);
            }
        }
        let until = if care.over { Boot::NEVER } else { care.next.min(end) };
        match self.assignment.locker.idle(&mut care.lease, until) {
            Idle::Due if !care.over && care.next.passed() && !end.passed() => self.renew(care),
            Idle::Due | Idle::Changed | Idle::Interrupted => {}
        }
    }

    /// Tells how far the lease carries, when that has changed.
    fn note_change(&mut self, care: &mut Care) {
        let now = self.confirmed(&care.lease);
        if care.over || now == care.confirmed {
            return;
        }
        if now.valid_until < care.confirmed.valid_until && now.valid_until.passed() {
            // A late answer was the last straw.
            self.lose(care, "too few nodes have it".to_owned());
            return;
        }
        if now.confirmed_at > care.confirmed.confirmed_at {
            care.next = now.renew_at;
            care.failing_since = None;
            care.tried_at_once = false;
        }
        care.confirmed = now;
        self.tell_keeper(now);
        self.post.send(Event::Confirmed(now));
    }

    fn renew(&mut self, care: &mut Care) {
        let Assignment { locker, timeline, .. } = &mut self.assignment;
        let Confirmed { confirmed_at, valid_until, .. } = care.confirmed;
        let start = Boot::now();
        let give_up = timeline.give_up_at(start, confirmed_at, valid_until);
        let retry = timeline.retry_at(start, confirmed_at, valid_until);
        match locker.renew(&mut care.lease, give_up) {
            // Whether it carries farther shows in the lease. If not, do not ask without a pause.
            Renewal::Confirmed => care.next = retry,
            Renewal::Unconfirmed { faults, reconnect } => {
                // At once on a new connection, but not over and over with a server that closes each.
                care.tried_at_once = reconnect && !care.tried_at_once;
                care.next = if care.tried_at_once { start } else { retry };
                let since = *care.failing_since.get_or_insert(start);
                self.post.send(Event::Unconfirmed { faults, since });
            }
            Renewal::Lost(text) => self.lose(care, text),
            Renewal::Interrupted => {}
        }
    }

    /// The nodes have said that the lease is lost.
    fn lose(&mut self, care: &mut Care, text: String) {
        care.over = true;
        // First, so that it is known before the keeper reports what came of it.
        self.post.send(Event::Lost(text));
        if !self.assignment.continue_when_lost {
            let valid_until = care.confirmed.valid_until;
            let kill_at = self.assignment.timeline.kill_after_loss(Boot::now(), valid_until);
            let _ = self.assignment.keeper.send(&Order::Stop { kill_at });
        }
    }

    fn confirmed(&self, lease: &Lease) -> Confirmed {
        let confirmed_at = lease.confirmed_at();
        Confirmed {
            confirmed_at,
            valid_until: lease.valid_until(),
            renew_at: self.assignment.timeline.renew_at(confirmed_at),
            silent_at: self.assignment.timeline.silent_at(lease.valid_until()),
        }
    }

    /// When there is nothing left to renew: the job has been told to stop.
    fn end(&self, confirmed: Confirmed) -> Boot {
        if self.assignment.continue_when_lost {
            confirmed.valid_until
        } else {
            self.assignment.timeline.deadlines(confirmed.valid_until).term_at
        }
    }

    fn tell_keeper(&self, confirmed: Confirmed) {
        let deadlines = self.assignment.timeline.deadlines(confirmed.valid_until);
        let order = if self.assignment.continue_when_lost {
            Order::Deadline { term_at: Boot::NEVER, kill_at: Boot::NEVER }
        } else {
            Order::Deadline { term_at: deadlines.term_at, kill_at: deadlines.kill_at }
        };
        // A keeper that cannot be told keeps to the earlier deadline.
        let _ = self.assignment.keeper.send(&order);
    }
}
