//! Subscriptions: one channel on every node, each over a connection of its own that is opened again when it ends.

use super::address::Address;
use super::connect;
use super::fault::Fault;
use super::within;
use crate::sys::clock::Boot;
use crate::sys::random::jitter;
use futures_util::future::select_all;
use futures_util::stream::{Stream, StreamExt, unfold};
use redis::RedisConnectionInfo;
use redis::aio::{PubSub, PubSubStream};
use std::pin::Pin;
use std::time::Duration;
use tokio::time::sleep;

/// How soon a subscription that worked is opened again, and one that could not be opened.
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Something that happened to a subscription.
#[derive(Debug)]
pub(crate) enum Heard {
    /// The server has confirmed it: what is published from now on is heard.
    Listening,
    Message(String),
    /// It could not be opened, or has ended.
    Deaf,
    /// The same, and for good: a user without the right to it.
    Refused(Fault),
}

/// One subscription on each node.
pub(crate) struct Listeners(Vec<Listener>);

struct Listener {
    address: Address,
    channel: String,
    patience: Duration,
    hears: bool,
    events: Pin<Box<dyn Stream<Item = Heard>>>,
}

impl Listeners {
    pub(super) fn new(nodes: impl Iterator<Item = Address>, channel: &str, patience: Duration) -> Listeners {
        let listener = |address: Address| Listener {
            events: Box::pin(listen(address.clone(), channel.to_owned(), patience)),
            address,
            channel: channel.to_owned(),
            patience,
            hears: false,
        };
        Listeners(nodes.map(listener).collect())
    }

    /// What happens next, and on which node. May be dropped at any time without missing anything.
    pub(crate) async fn next(&mut self) -> (usize, Heard) {
        let all = self.0.iter_mut().map(|listener| listener.events.next());
        let (heard, node, _) = select_all(all).await;
        let heard = heard.unwrap_or(Heard::Deaf);
        self.0[node].hears = !matches!(heard, Heard::Deaf | Heard::Refused(_));
        (node, heard)
    }

    /// On how many nodes a message would be heard.
    pub(crate) fn hearing(&self) -> usize {
        self.0.iter().filter(|listener| listener.hears).count()
    }

    /// Subscribes anew on a node that did not find us: its end of the connection is gone.
    pub(crate) fn reopen(&mut self, node: usize) {
        let Listener { address, channel, patience, hears, events } = &mut self.0[node];
        *events = Box::pin(listen(address.clone(), channel.clone(), *patience));
        *hears = false;
    }
}

/// Where a subscription stands.
enum State {
    Closed { pause: Duration },
    Open(PubSubStream),
}

/// The life of one subscription, without end.
fn listen(address: Address, channel: String, patience: Duration) -> impl Stream<Item = Heard> {
    unfold(State::Closed { pause: Duration::ZERO }, move |state| {
        let (address, channel) = (address.clone(), channel.clone());
        async move {
            Some(match state {
                State::Closed { pause } => {
                    sleep(pause).await;
                    match within(Boot::now() + patience, subscribe(&address, &channel)).await {
                        Some(Ok(messages)) => (Heard::Listening, State::Open(messages)),
                        Some(Err(fault)) if fault.is_final() => {
                            (Heard::Refused(fault), State::Closed { pause: jitter(AGAIN_AFTER_FAILURE) })
                        }
                        _ => (Heard::Deaf, State::Closed { pause: jitter(AGAIN_AFTER_FAILURE) }),
                    }
                }
                State::Open(mut messages) => match messages.next().await {
                    Some(message) => (
                        Heard::Message(String::from_utf8_lossy(message.get_payload_bytes()).into_owned()),
                        State::Open(messages),
                    ),
                    None => (Heard::Deaf, State::Closed { pause: jitter(AGAIN) }),
                },
            })
        }
    })
}

async fn subscribe(address: &Address, channel: &str) -> Result<PubSubStream, Fault> {
    let socket = connect::open(address).await?;
    let login = RedisConnectionInfo::default().set_skip_set_lib_name();
    let opened = PubSub::new(&login, socket).await.map_err(|error| Fault::of(&error))?;
    let (mut requests, messages) = opened.split();
    requests.subscribe(channel).await.map_err(|error| Fault::of_channel(&error, channel))?;
    Ok(messages)
}
