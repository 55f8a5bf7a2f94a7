//! Subscriptions to one channel on every node. Each has a connection of its own, which is opened again when it ends.

use super::fault::Fault;
use super::route::Route;
use super::url::Host;
use crate::sys::clock::Boot;
use crate::sys::random::jitter;
use crate::sys::wait::within;
use futures_util::future::select_all;
use futures_util::stream::{Stream, StreamExt, unfold};
use redis::RedisConnectionInfo;
use redis::aio::{PubSub, PubSubStream};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::sleep;

/// The pause before a subscription that worked is opened again; after a failure to open it, `AGAIN_AFTER_FAILURE`.
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Something that happened to a subscription.
#[derive(Debug)]
pub(crate) enum SubscriptionEvent {
    /// The server has confirmed it: messages published from now on arrive.
    Listening,
    Message(String),
    /// The subscription could not be opened, or has ended.
    Deaf,
    /// The subscription is refused for good: the user lacks the right to it.
    Refused(Fault),
}

/// One subscription on each node.
pub(crate) struct Listeners(Vec<Listener>);

struct Listener {
    route: Route,
    channel: String,
    patience: Duration,
    hears: bool,
    events: Pin<Box<dyn Stream<Item = SubscriptionEvent>>>,
}

impl Listeners {
    pub(super) fn new(nodes: impl Iterator<Item = Route>, channel: &str, patience: Duration) -> Listeners {
        let listener = |route: Route| Listener {
            events: Box::pin(listen(route.clone(), channel.to_owned(), patience)),
            route,
            channel: channel.to_owned(),
            patience,
            hears: false,
        };
        Listeners(nodes.map(listener).collect())
    }

    /// The next event, and its node. May be dropped at any time without missing an event.
    pub(crate) async fn next(&mut self) -> (usize, SubscriptionEvent) {
        let all = self.0.iter_mut().map(|listener| listener.events.next());
        let (heard, node, _) = select_all(all).await;
        let heard = heard.unwrap_or(SubscriptionEvent::Deaf);
        self.0[node].hears = !matches!(heard, SubscriptionEvent::Deaf | SubscriptionEvent::Refused(_));
        (node, heard)
    }

    /// The number of nodes whose messages arrive.
    pub(crate) fn hearing(&self) -> usize {
        self.0.iter().filter(|listener| listener.hears).count()
    }

    /// Subscribes again on a node that did not find this subscriber, because its end of the connection is gone.
    pub(crate) fn reopen(&mut self, node: usize) {
        let Listener { route, channel, patience, hears, events } = &mut self.0[node];
        *events = Box::pin(listen(route.clone(), channel.clone(), *patience));
        *hears = false;
    }
}

/// The state of a subscription.
enum SubscriptionState {
    Closed { pause: Duration },
    Open { messages: PubSubStream, server: Option<Host>, demotions: u32 },
}

/// The events of one subscription, without end.
fn listen(route: Route, channel: String, patience: Duration) -> impl Stream<Item = SubscriptionEvent> {
    unfold(SubscriptionState::Closed { pause: Duration::ZERO }, move |state| {
        let (route, channel) = (route.clone(), channel.clone());
        async move {
            Some(match state {
                SubscriptionState::Closed { pause } => {
                    sleep(pause).await;
                    let demotions = route.demotions();
                    match within(Boot::now() + patience, subscribe(&route, &channel)).await {
                        Some(Ok((messages, server))) => {
                            (SubscriptionEvent::Listening, SubscriptionState::Open { messages, server, demotions })
                        }
                        Some(Err(fault)) if fault.is_final() => (
                            SubscriptionEvent::Refused(fault),
                            SubscriptionState::Closed { pause: jitter(AGAIN_AFTER_FAILURE) },
                        ),
                        _ => {
                            (SubscriptionEvent::Deaf, SubscriptionState::Closed { pause: jitter(AGAIN_AFTER_FAILURE) })
                        }
                    }
                }
                SubscriptionState::Open { mut messages, server, demotions } => {
                    // Waiters are notified on the new server. The caller polls this after each of its own requests.
                    let moved = || route.has_left(server.as_ref()) || route.demotions() != demotions;
                    match poll_fn(|cx| if moved() { Poll::Ready(None) } else { messages.poll_next_unpin(cx) }).await {
                        Some(message) => (
                            SubscriptionEvent::Message(
                                String::from_utf8_lossy(message.get_payload_bytes()).into_owned(),
                            ),
                            SubscriptionState::Open { messages, server, demotions },
                        ),
                        None if moved() => {
                            (SubscriptionEvent::Deaf, SubscriptionState::Closed { pause: Duration::ZERO })
                        }
                        None => (SubscriptionEvent::Deaf, SubscriptionState::Closed { pause: jitter(AGAIN) }),
                    }
                }
            })
        }
    })
}

async fn subscribe(route: &Route, channel: &str) -> Result<(PubSubStream, Option<Host>), Fault> {
    let (server, socket) = route.open().await?;
    let login = RedisConnectionInfo::default().set_skip_set_lib_name();
    let opened = PubSub::new(&login, socket).await.map_err(|error| Fault::of(&error))?;
    let (mut requests, messages) = opened.split();
    requests.subscribe(channel).await.map_err(|error| Fault::of(&error))?;
    Ok((messages, server))
}
