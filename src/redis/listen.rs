//! Subscriptions to one channel on every node. Each has a connection of its own, and is opened again when that ends.

use super::connect::exchange;
use super::connection::naming;
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

/// The pause before a subscription is opened again: after its connection has broken, or after it could not be opened.
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_AFTER_FAILURE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) enum SubscriptionEvent {
    /// The server has confirmed the subscription: messages published from now on arrive.
    Listening,
    Message(String),
    /// The subscription could not be opened, or has ended.
    Deaf,
    /// The node refuses the subscription or the login for good. The subscription is tried again all the same.
    Refused(Fault),
}

pub(crate) struct Listeners {
    each: Vec<Listener>,
    channel: String,
    patience: Duration,
}

struct Listener {
    route: Route,
    hears: bool,
    events: Pin<Box<dyn Stream<Item = SubscriptionEvent>>>,
}

impl Listener {
    fn new(route: Route, channel: &str, patience: Duration) -> Listener {
        Listener { events: Box::pin(listen(route.clone(), channel.to_owned(), patience)), route, hears: false }
    }
}

impl Listeners {
    pub(super) fn new(nodes: impl Iterator<Item = Route>, channel: &str, patience: Duration) -> Listeners {
        let each = nodes.map(|route| Listener::new(route, channel, patience)).collect();
        Listeners { each, channel: channel.to_owned(), patience }
    }

    /// The next event, and the index of its node. If the future is dropped, no event is missed.
    pub(crate) async fn next(&mut self) -> (usize, SubscriptionEvent) {
        let all = self.each.iter_mut().map(|listener| listener.events.next());
        let (heard, node, _) = select_all(all).await;
        let heard = heard.unwrap_or(SubscriptionEvent::Deaf);
        self.each[node].hears = !matches!(heard, SubscriptionEvent::Deaf | SubscriptionEvent::Refused(_));
        (node, heard)
    }

    /// The number of nodes whose messages arrive.
    pub(crate) fn hearing(&self) -> usize {
        self.each.iter().filter(|listener| listener.hears).count()
    }

    /// Subscribes again on this node, over a new connection. The node has lost the old one, and its messages do not
    /// arrive any more.
    pub(crate) fn reopen(&mut self, node: usize) {
        self.each[node] = Listener::new(self.each[node].route.clone(), &self.channel, self.patience);
    }
}

struct Subscription {
    messages: PubSubStream,
    server: Option<Host>,
    demotions: u32,
}

impl Subscription {
    async fn open(route: &Route, channel: &str) -> Result<Subscription, Fault> {
        let demotions = route.demotions();
        let (server, mut socket) = route.open().await?;
        // The name is sent before SUBSCRIBE, since a subscriber may not send CLIENT. A refusal does not matter.
        let _ = exchange(&mut socket, &[naming()]).await;
        let login = RedisConnectionInfo::default().set_skip_set_lib_name();
        let opened = PubSub::new(&login, socket).await.map_err(|error| Fault::of(&error))?;
        let (mut requests, messages) = opened.split();
        requests.subscribe(channel).await.map_err(|error| Fault::of(&error))?;
        Ok(Subscription { messages, server, demotions })
    }

    /// True if the route has left the server of this subscription: from then on another server notifies the waiters.
    fn has_moved(&self, route: &Route) -> bool {
        route.has_left(self.server.as_ref()) || route.demotions() != self.demotions
    }
}

/// The events of the channel on one node, without end: a subscription that fails is followed by a new one.
fn listen(route: Route, channel: String, patience: Duration) -> impl Stream<Item = SubscriptionEvent> {
    use SubscriptionEvent::{Deaf, Listening, Message, Refused};
    // The state is an open subscription, or else the pause before a subscription is opened.
    unfold(Err(Duration::ZERO), move |state: Result<Subscription, Duration>| {
        let (route, channel) = (route.clone(), channel.clone());
        async move {
            let mut open = match state {
                Ok(open) => open,
                Err(pause) => {
                    sleep(jitter(pause)).await;
                    let opened = within(Boot::now() + patience, Subscription::open(&route, &channel)).await;
                    return Some(match opened {
                        Some(Ok(open)) => (Listening, Ok(open)),
                        // A waiter can do without SUBSCRIBE, which some proxies lack: it looks more often.
                        Some(Err(fault)) if fault.is_final() && !fault.is_unknown_command() => {
                            (Refused(fault), Err(AGAIN_AFTER_FAILURE))
                        }
                        _ => (Deaf, Err(AGAIN_AFTER_FAILURE)),
                    });
                }
            };
            // No task is woken when the route moves. But the caller also makes requests, and polls this future after
            // each.
            let next = poll_fn(|cx| match open.has_moved(&route) {
                true => Poll::Ready(None),
                false => open.messages.poll_next_unpin(cx),
            });
            Some(match next.await {
                Some(message) => (Message(String::from_utf8_lossy(message.get_payload_bytes()).into_owned()), Ok(open)),
                None if open.has_moved(&route) => (Deaf, Err(Duration::ZERO)),
                None => (Deaf, Err(AGAIN)),
            })
        }
    })
}
