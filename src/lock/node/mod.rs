//! One Redis: connection, time-outs, scripts, error mapping. The only folder that names `redis`.
//!
//! Each of several nodes has a thread of its own for its I/O, and whoever waits for an answer enforces the deadline too:
//! looking up a name has none. A single node that needs no look-up is served without a thread.

mod address;
mod fault;
mod line;
mod listener;
mod reply;
mod wire;

pub(crate) use address::Address;
pub(super) use fault::{Fault, FaultKind};
pub(crate) use fault::{escaped, unprintable};
pub(crate) use reply::Reply;

use super::scripts::Script;
use crate::sys::clock::Boot;
use line::{Line, start};
use listener::{Ear, Listener};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;
use wire::NoAnswer;

/// How much later than its deadline a thread may be heard of before it counts as stuck.
const STUCK_AFTER: Duration = Duration::from_millis(50);

/// The name by which a server knows a script that it has seen.
pub(super) fn script_name(body: &str) -> String {
    redis::Script::new(body).get_hash().to_owned()
}

/// What a node is asked.
#[derive(Clone, Debug)]
pub(super) enum Call {
    /// A script with its keys and arguments.
    Script(&'static Script, Vec<String>, Vec<String>),
    /// One page of the keys that match a pattern, from a cursor.
    Scan { cursor: String, pattern: String },
    /// The same script for many locks: one list of keys and arguments each.
    Many(&'static Script, Vec<(Vec<String>, Vec<String>)>),
}

/// What happened on a node, or to us.
#[derive(Debug)]
pub(super) enum Event {
    Answer {
        node: usize,
        round: u64,
        sent: Boot,
        result: Result<Reply, Fault>,
    },
    /// The listener of this node hears from now on.
    Listening {
        node: usize,
        listener: u64,
    },
    /// Something was published on our channel.
    Heard {
        node: usize,
        text: String,
    },
    /// The listener of this node has ended.
    Deaf {
        node: usize,
        listener: u64,
    },
    /// Somebody wants us to stop waiting; a signal, or 0.
    Interrupt(i32),
    /// The alarm goes.
    Alarm,
}

/// A bell that wakes whoever polls it.
fn bell() -> Option<Arc<EventFd>> {
    // None when the process has no descriptor left: then nobody is woken early, and deadlines still hold.
    EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).ok().map(Arc::new)
}

#[derive(Clone)]
struct Job {
    round: u64,
    call: Call,
    deadline: Boot,
    order: Order,
    /// How many interruptions are known; a further one ends the wait for the answer. None: nothing does.
    heed: Option<u64>,
}

/// How a request stands to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// It is sent when they have been answered, over a new connection if one has not been in time.
    InTurn,
    /// It is sent at once, and arrives behind them: over the same connection, while they have not been answered. What is
    /// still waited for is given up.
    AtOnce,
    /// The same, and only if anything has been sent at all.
    Undo,
}

/// What ends the wait of somebody who waits without a thread.
#[derive(Clone)]
pub(crate) struct Alarm {
    /// Can be read when there is something to look at.
    descriptor: Arc<OwnedFd>,
    /// Looks, and says whether the wait has to end; from then on it says so always.
    goes: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Alarm {
    pub(crate) fn new(descriptor: OwnedFd, goes: impl Fn() -> bool + Send + Sync + 'static) -> Alarm {
        Alarm { descriptor: Arc::new(descriptor), goes: Arc::new(goes) }
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.descriptor.fmt(f)
    }
}

/// Interruptions of a whole [`super::Locker`], as far as they reach into the wait for a single node's answer.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    count: Arc<AtomicU64>,
    bell: Option<Arc<EventFd>>,
    alarm: Option<Alarm>,
}

impl Calls {
    pub(super) fn new() -> Calls {
        Calls { count: Arc::default(), bell: bell(), alarm: None }
    }

    /// Counts one more, before it is told, and wakes whoever waits for an answer after it was.
    pub(super) fn call(&self, tell: impl FnOnce()) {
        self.count.fetch_add(1, Ordering::SeqCst);
        tell();
        if let Some(bell) = &self.bell {
            let _ = bell.write(1);
        }
    }

    /// Whether the alarm goes.
    pub(super) fn alarmed(&self) -> bool {
        self.alarm.as_ref().is_some_and(|alarm| (alarm.goes)())
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
}

/// What a node's thread shows of itself while it works.
#[derive(Debug, Default)]
struct Shown {
    /// The request that it works on or has worked on last, and the one that it is done with.
    begun: AtomicU64,
    done: AtomicU64,
    /// The last request that has been written.
    written: AtomicU64,
    /// Requests before this one are not to be sent any more if they have not been yet.
    given_up: AtomicU64,
    /// The server did not know a script, which has to be sent in full.
    unknown: AtomicBool,
}

/// One node and whoever talks to it.
pub(super) struct Node {
    index: usize,
    address: Address,
    talker: Talker,
    shown: Arc<Shown>,
    events: Sender<Event>,
    listener: Option<Listener>,
    /// The deadline of the oldest request that the thread has not said anything about.
    silent_since: Option<Boot>,
}

enum Talker {
    /// Yet, or for want of a thread.
    Nobody,
    /// Whoever asks, and waits for the answer at once.
    Asker(Box<Line>),
    Thread(Sender<Job>, Option<Arc<EventFd>>),
}

impl Node {
    /// `alone`: there is no other node that would have to be asked at the same time.
    pub(super) fn new(index: usize, address: Address, events: Sender<Event>, alone: bool, calls: &Calls) -> Node {
        let shown = Arc::new(Shown::default());
        let talker = if alone && !address.needs_look_up() {
            Talker::Asker(Box::new(Line::new(&address, calls.bell.clone(), &shown, Some(calls.clone()))))
        } else {
            Talker::Nobody
        };
        Node { index, address, talker, shown, events, listener: None, silent_since: None }
    }

    /// Whether it is served without a thread, and so must be asked where nobody minds to wait.
    pub(super) fn is_served_by_asker(&self) -> bool {
        matches!(self.talker, Talker::Asker(_))
    }

    /// Lets an alarm interrupt whoever asks; none: nothing but [`Calls::call`] does.
    pub(super) fn set_alarm(&mut self, alarm: Option<Alarm>) {
        if let Talker::Asker(line) = &mut self.talker
            && let Some(calls) = &mut line.calls
        {
            calls.alarm = alarm;
        }
    }

    /// Has the asker do something when the next request has been sent.
    pub(super) fn set_meanwhile(&mut self, deed: Box<dyn FnOnce() + Send>) {
        if let Talker::Asker(line) = &mut self.talker {
            line.meanwhile = Some(deed);
        }
    }

    /// Whether the alarm goes.
    pub(super) fn alarmed(&self) -> bool {
        matches!(&self.talker, Talker::Asker(line) if line.calls.as_ref().is_some_and(Calls::alarmed))
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Sends a request; the answer comes as an [`Event::Answer`], or not at all when the thread is stuck.
    pub(super) fn ask(&mut self, round: u64, call: Call, deadline: Boot, order: Order, heed: Option<u64>) {
        // One that is stuck hangs in looking up a name, and is left to itself.
        if matches!(self.talker, Talker::Nobody) || self.stuck() {
            self.talker = start(self.index, &self.address, &self.events, &self.shown);
            self.silent_since = None;
        }
        let job = Job { round, call, deadline, order, heed };
        match &mut self.talker {
            Talker::Asker(line) => line.answer(self.index, &job, &self.events),
            Talker::Nobody => {
                // Like an answer that came at once. Nobody listens any more when the process is about to end.
                let _ = self.events.send(Event::Answer {
                    node: self.index,
                    round,
                    sent: Boot::now(),
                    result: Err(Fault::no_thread()),
                });
            }
            Talker::Thread(jobs, bell) => {
                self.silent_since.get_or_insert(deadline);
                // The thread ends only when this end is dropped.
                let _ = jobs.send(job);
                if let Some(bell) = bell.as_ref().filter(|_| order != Order::InTurn) {
                    let _ = bell.write(1);
                }
            }
        }
    }

    /// Keeps requests before this one from being sent late. Either [`Node::has_written`] knows of them from now on, or they never are.
    pub(super) fn give_up_before(&self, round: u64) {
        self.shown.given_up.fetch_max(round, Ordering::SeqCst);
    }

    /// Whether this request is on its way, whatever becomes of this process.
    pub(super) fn has_written(&self, round: u64) -> bool {
        self.shown.written.load(Ordering::SeqCst) >= round
    }

    /// Whether nothing but a busy machine keeps the thread from this request.
    pub(super) fn is_about_to_begin(&self, round: u64) -> bool {
        let (done, begun) = (&self.shown.done, &self.shown.begun);
        let done = done.load(Ordering::SeqCst);
        begun.load(Ordering::SeqCst) == done && done < round
    }

    /// Whether the server has had to be sent a script in full.
    pub(super) fn did_not_know(&self) -> bool {
        self.shown.unknown.load(Ordering::Acquire)
    }

    /// Whether the thread is long past a deadline without a word.
    pub(super) fn stuck(&self) -> bool {
        self.silent_since.is_some_and(|deadline| Boot::now() > deadline + STUCK_AFTER)
    }

    /// The thread has said something.
    pub(super) fn heard_of(&mut self) {
        self.silent_since = None;
    }

    /// Starts to listen on a channel. Returns whether what becomes of it will be told; not when `heed`, as for a request, kept us
    /// from waiting for it.
    pub(super) fn listen(&mut self, listener: u64, channel: &str, deadline: Boot, heed: Option<u64>) -> bool {
        let (node, address, events) = (self.index, &self.address, &self.events);
        self.listener = match &mut self.talker {
            Talker::Nobody | Talker::Thread(..) => {
                Some(Listener::start(node, listener, address, channel, deadline, events))
            }
            Talker::Asker(line) => {
                let opened = line.patiently(deadline, heed, |_, patience| {
                    Ear::open(node, listener, address, channel, events, patience)
                });
                if matches!(opened, Err(NoAnswer::Woken)) {
                    return false;
                }
                opened.ok().map(Listener::Asker)
            }
        };
        true
    }

    pub(super) fn stop_listening(&mut self) {
        self.listener = None;
    }

    /// Whether somebody has to [`Node::rest`] in order to notice what comes from elsewhere than the channel of events.
    pub(super) fn needs_rest(&self) -> bool {
        match &self.talker {
            Talker::Asker(line) => {
                self.listener.is_some() || line.calls.as_ref().is_some_and(|calls| calls.alarm.is_some())
            }
            Talker::Nobody | Talker::Thread(..) => false,
        }
    }

    /// Waits, until `until` at the latest, for something to hear, or for somebody to call.
    pub(super) fn rest(&mut self, until: Boot, heed: Option<u64>) {
        if heed.is_some() && self.alarmed() {
            return; // it has been looked at, and cannot be read any more
        }
        let (events, listener) = (&self.events, &mut self.listener);
        let Talker::Asker(line) = &mut self.talker else {
            return;
        };
        let hears = line.patiently(until, heed, |_, patience| match listener {
            Some(Listener::Asker(ear)) => ear.listen(events, patience),
            _ => {
                patience.rest();
                true
            }
        });
        if !hears {
            *listener = None;
        }
    }
}
