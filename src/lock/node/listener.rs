//! A subscription to one channel of a node, on a connection and a thread of its own.

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

/// Keeps one subscription going; dropping it ends it.
pub(in crate::lock) struct Listener(Option<Arc<EventFd>>);

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(stop) = &self.0 {
            let _ = stop.write(1);
        }
    }
}

impl Listener {
    /// Tells what it hears as [`Event::Heard`], between [`Event::Listening`] and, if it fails, [`Event::Deaf`].
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
        thread::spawn(move || {
            let say = |event| events.send(event).is_ok();
            let bells = [stopped.as_ref().map(AsFd::as_fd), None];
            let mut patience = Patience {
                deadline,
                bells,
                has_to_go_on: &mut || true,
            };
            let heard = subscribe(&address, &channel, &mut patience).and_then(|mut wire| {
                let mut wanted = say(Event::Listening { node, listener });
                patience.deadline = Boot::NEVER;
                while wanted {
                    let value = wire.receive(&mut patience)?;
                    if let Some(text) = message(&value) {
                        wanted = say(Event::Heard { node, text });
                    }
                }
                Ok(())
            });
            // Why it failed is said by the next request to the node, which meets the same.
            if let Err(NoAnswer::TimedOut | NoAnswer::Broken(_) | NoAnswer::Error(_)) = heard {
                say(Event::Deaf { node, listener });
            }
        });
        Listener(stop)
    }
}

/// Subscribes, and reads the confirmation: what is published from then on is heard.
fn subscribe(
    address: &Address,
    channel: &str,
    patience: &mut Patience<'_>,
) -> Result<Wire, NoAnswer> {
    let mut wire = Wire::open(address, patience)?;
    let mut subscribe = redis::cmd("SUBSCRIBE");
    subscribe.arg(channel);
    wire.send(&subscribe.get_packed_command(), patience)?;
    match wire.receive(patience)? {
        Value::Array(items) if is(items.first(), b"subscribe") => Ok(wire),
        _ => Err(NoAnswer::Broken(Fault::garbage(
            "an answer to something else",
        ))),
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
