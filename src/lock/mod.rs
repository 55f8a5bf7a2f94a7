//! The lease: acquire, extend, release, inspect, over N nodes. No clap, no printing.

mod acquire;
mod ask;
mod ears;
mod fencing;
mod free;
mod holds;
mod inspect;
mod keys;
mod lease;
mod node;
mod owner;
mod queue;
mod quorum;
mod refusal;
mod scripts;

pub(crate) use holds::same_lease;
pub(crate) use inspect::{Freed, State, Status};
pub(crate) use keys::fits_one_slot;
pub(crate) use lease::{Ended, Idle, Lease, Renewal};
pub(crate) use node::{Address, Alarm, escaped, unprintable};
pub(crate) use owner::{Holder, Record};
pub(crate) use queue::Waiting;

use crate::error::Error;
use crate::sys::clock::Boot;
use keys::Keys;
use node::{Calls, Event, Node};
use std::collections::VecDeque;
use std::fmt;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// Where the lock lives and how patient we are with it.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) urls: Vec<String>,
    pub(crate) prefix: String,
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) quarantine: Option<Duration>,
    pub(crate) password: Option<String>,
}

/// How long to queue for a lock that another one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// One try.
    No,
    /// Until it is ours.
    Forever,
    /// At most this long.
    For(Duration),
}

impl Wait {
    /// The end of a wait that began at `start`.
    fn end(self, start: Boot) -> Boot {
        match self {
            Wait::No => start,
            Wait::Forever => Boot::NEVER,
            Wait::For(patience) => start + patience,
        }
    }
}

/// Whether to enter a lease that an ancestor holds once more, instead of waiting for ourselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reenter {
    /// Not at all.
    No,
    /// If one of them still holds it; otherwise take the lock like anybody else.
    IfHeld,
    /// That, or nothing.
    Must,
}

/// What is asked for when a lock is to be acquired.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) ttl: Duration,
    pub(crate) wait: Wait,
    /// Who will have it: this process, or the one that wants its token.
    pub(crate) pid: u32,
    pub(crate) label: String,
    /// Tokens of the leases on this lock that the jobs around us have, the innermost first.
    pub(crate) ancestors: Vec<String>,
    pub(crate) reenter: Reenter,
}

/// One lock on its nodes.
pub(crate) struct Locker {
    name: String,
    keys: Keys,
    nodes: Vec<Node>,
    events: Receiver<Event>,
    sender: Sender<Event>,
    /// What came while something else was waited for.
    pending: VecDeque<Event>,
    round: u64,
    node_timeout: Duration,
    quarantine: Duration,
    /// What has been done is being undone; nobody interrupts that.
    cleaning_up: bool,
    calls: Calls,
    /// How many interruptions have been taken note of.
    heard_calls: u64,
}

/// Wakes a [`Locker`] from another thread.
#[derive(Clone, Debug)]
pub(crate) struct Interrupter {
    events: Sender<Event>,
    calls: Calls,
}

impl Interrupter {
    /// Ends a wait for a lock with [`Error::Interrupted`], or an idle time with [`Idle::Interrupted`].
    pub(crate) fn interrupt(&self, signal: i32) {
        self.calls.call(|| {
            // Without a receiver there is nobody to wake.
            let _ = self.events.send(Event::Interrupt(signal));
        });
    }
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on {}", self.name, self.nodes())
    }
}

impl Locker {
    /// Checks the settings. The nodes are contacted, and threads for them started, when they are first asked something. The
    /// default time-outs are derived from `ttl`.
    ///
    /// # Errors
    /// [`Error::Usage`] when a URL is wrong or a node is named twice.
    pub(crate) fn new(settings: &Settings, name: &str, ttl: Duration) -> Result<Locker, Error> {
        let mut addresses: Vec<Address> = Vec::new();
        for url in &settings.urls {
            let address = Address::parse(url, settings.password.as_deref())
                .map_err(|reason| Error::Usage(format!("bad address {:?}: {reason}", without_password(url))))?;
            if addresses.iter().any(|other| other.to_string() == address.to_string()) {
                return Err(Error::Usage(format!("node {address} is given twice: each needs a Redis of its own")));
            }
            addresses.push(address);
        }
        let several = addresses.len() > 1;
        let patience = match several {
            true => (ttl / 20).clamp(Duration::from_millis(100), Duration::from_secs(1)),
            false => (ttl / 10).clamp(Duration::from_millis(250), Duration::from_secs(3)),
        };
        let (sender, events) = mpsc::channel();
        let calls = Calls::new();
        Ok(Locker {
            name: name.to_owned(),
            keys: Keys::of(&format!("{}{name}", settings.prefix)),
            nodes: addresses
                .into_iter()
                .enumerate()
                .map(|(index, address)| Node::new(index, address, sender.clone(), !several, &calls))
                .collect(),
            events,
            sender,
            pending: VecDeque::new(),
            round: 0,
            node_timeout: settings.node_timeout.unwrap_or(patience).min(ttl / 2),
            // A single node has nobody to outvote it with, and is trusted unless told otherwise.
            quarantine: settings.quarantine.unwrap_or(if several { ttl } else { Duration::ZERO }),
            cleaning_up: false,
            calls,
            heard_calls: 0,
        })
    }

    /// A handle by which another thread, a signal handler's say, can wake this one.
    pub(crate) fn interrupter(&self) -> Interrupter {
        Interrupter { events: self.sender.clone(), calls: self.calls.clone() }
    }

    /// [`Locker::acquire`] for one that [`Locker::asks_by_itself`]. The `alarm` ends it with [`Error::Interrupted`] of signal 0.
    pub(crate) fn acquire_here(
        &mut self,
        request: &Request,
        alarm: &Alarm,
        on_wait: &mut dyn FnMut(&Waiting),
    ) -> Result<Lease, Error> {
        let set_alarm = |node: &mut Node| node.set_alarm(Some(alarm.clone()));
        self.nodes.iter_mut().for_each(set_alarm);
        let acquired = self.acquire(request, on_wait);
        self.nodes.iter_mut().for_each(|node| node.set_alarm(None));
        acquired
    }

    /// Whether it asks its node, and waits for it, without a thread.
    pub(crate) fn asks_by_itself(&self) -> bool {
        self.nodes.iter().all(Node::is_served_by_asker)
    }

    /// Calls this when the next request has been sent, before its answer is waited for. For a lock that was acquired with
    /// [`Locker::acquire_here`]; where threads ask, whoever waits for them can do what it likes meanwhile.
    pub(crate) fn meanwhile(&mut self, deed: Box<dyn FnOnce() + Send>) {
        if let [node] = self.nodes.as_mut_slice() {
            node.set_meanwhile(deed);
        }
    }

    /// How long one node may take for one request.
    pub(crate) fn node_timeout(&self) -> Duration {
        self.node_timeout
    }

    /// The Redis key of the lock.
    pub(crate) fn key(&self) -> &str {
        &self.keys.lock
    }

    /// The nodes' names for messages: `10.0.0.1:6379`, `10.0.0.1:6379 and 4 more`.
    pub(crate) fn nodes(&self) -> String {
        match self.nodes.as_slice() {
            [only] => only.address().to_string(),
            [first, others @ ..] => format!("{} and {} more", first.address(), others.len()),
            [] => String::new(),
        }
    }
}

/// A URL as it may be shown.
fn without_password(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}…{}", &url[..scheme + 3], &url[at..]),
        _ => url.to_owned(),
    }
}
