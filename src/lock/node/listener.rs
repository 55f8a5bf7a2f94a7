//! A subscription to one channel of a node, on a connection of its own.

use super::address::Address;
use super::fault::Fault;
use super::wire::{NoAnswer, Patience, Wire};
use super::{Event, bell};
use crate::sys::clock::Boot;
use nix::sys::eventfd::EventFd;
use redis::Value;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

/// Keeps one subscription going; dropping it ends it. Tells what it hears as [`Event::Heard`], between
/// [`Event::Listening`] and, if it fails, [`Event::Deaf`].
pub(super) enum Listener {
    /// One with a thread of its own, which ends when this bell rings.
    Thread(Option<Arc<EventFd>>),
    /// One that hears while somebody listens.
    Asker(Ear),
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Thread(Some(stop)) = self {
            let _ = stop.write(1);
        }
    }
}

impl Listener {
    /// Starts a thread that listens.
    pub(super) fn start(
        node: usize,
        listener: u64,
        address: &Address,
        channel: &str,
        deadline: Boot,
        events: &Sender<Event>,
    ) -> Listener {
        let stop = bell();
        let (address, channel, events) = (address.clone(), channel.to_owned(), events.clone());
        let stopped = stop.clone();
        let deaf = events.clone();
        let started = thread::Builder::new().spawn(move || {
            let mut patience =
                Patience { deadline, bells: [stopped.as_ref().map(AsFd::as_fd), None], has_to_go_on: &mut || true };
            let ear = Ear::open(node, listener, &address, &channel, &events, &mut patience);
            patience.deadline = Boot::NEVER;
            if let Ok(mut ear) = ear {
                while ear.listen(&events, &mut patience) && !ear.stopped {}
            }
        });
        if started.is_err() {
            let _ = deaf.send(Event::Deaf { node, listener });
        }
        Listener::Thread(stop)
    }
}

/// A subscription, and whom it is for.
pub(super) struct Ear {
    node: usize,
    listener: u64,
    wire: Wire,
    /// Somebody did not want to wait any longer.
    stopped: bool,
}

impl Ear {
    /// Subscribes. That it failed is told too, unless somebody did not want to wait.
    pub(super) fn open(
        node: usize,
        listener: u64,
        address: &Address,
        channel: &str,
        events: &Sender<Event>,
        patience: &mut Patience<'_>,
    ) -> Result<Ear, NoAnswer> {
        let subscribed = subscribe(address, channel, patience);
        // Nobody wants to know any more when the process is about to end.
        let _ = match &subscribed {
            Ok(_) => events.send(Event::Listening { node, listener }),
            Err(NoAnswer::Woken) => Ok(()),
            // Why it failed is said by the next request to the node, which meets the same.
            Err(_) => events.send(Event::Deaf { node, listener }),
        };
        Ok(Ear { node, listener, wire: subscribed?, stopped: false })
    }

    /// Waits for something to hear. Returns whether it still hears.
    pub(super) fn listen(&mut self, events: &Sender<Event>, patience: &mut Patience<'_>) -> bool {
        let Ear { node, listener, .. } = *self;
        match self.wire.receive(patience) {
            Ok(value) => {
                if let Some(text) = message(&value) {
                    self.stopped = events.send(Event::Heard { node, text }).is_err();
                }
            }
            Err(NoAnswer::TimedOut) => {}
            Err(NoAnswer::Woken) => self.stopped = true,
            Err(NoAnswer::Broken(_) | NoAnswer::Error(_)) => {
                let _ = events.send(Event::Deaf { node, listener });
                return false;
            }
        }
        true
    }
}

/// Subscribes, and reads the confirmation: what is published from then on is heard.
fn subscribe(address: &Address, channel: &str, patience: &mut Patience<'_>) -> Result<Wire, NoAnswer> {
    let mut wire = Wire::open(address, patience)?;
    let mut subscribe = redis::cmd("SUBSCRIBE");
    subscribe.arg(channel);
    wire.send(&subscribe.get_packed_command(), patience)?;
    match wire.receive(patience)? {
        Value::Array(items) if is(items.first(), b"subscribe") => Ok(wire),
        _ => Err(NoAnswer::Broken(Fault::garbage("an answer to something else"))),
    }
}

/// What was published, if this tells of that.
fn message(value: &Value) -> Option<String> {
    match value {
        Value::Array(items) if is(items.first(), b"message") => match items.get(2) {
            Some(Value::BulkString(text)) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        },
        _ => None,
    }
}

fn is(value: Option<&Value>, text: &[u8]) -> bool {
    matches!(value, Some(Value::BulkString(bytes)) if bytes == text)
}
