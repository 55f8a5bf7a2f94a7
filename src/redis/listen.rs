//! Subscriptions: one channel on every node, each over a connection of its own that is opened again when it ends.

use super::address::Host;
use super::fault::Fault;
use super::route::Route;
use super::within;
use crate::sys::clock::Boot;
use crate::sys::random::jitter;
use futures_util::future::select_all;
use futures_util::stream::{Stream, StreamExt, unfold};
use redis::RedisConnectionInfo;
use redis::aio::{PubSub, PubSubStream};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
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
    route: Route,
    channel: String,
    patience: Duration,
    hears: bool,
    events: Pin<Box<dyn Stream<Item = Heard>>>,
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
        let Listener { route, channel, patience, hears, events } = &mut self.0[node];
        *events = Box::pin(listen(route.clone(), channel.clone(), *patience));
        *hears = false;
    }
}

/// Where a subscription stands.
enum State {
    Closed { pause: Duration },
    Open(PubSubStream, Option<Host>),
}

/// The life of one subscription, without end.
fn listen(route: Route, channel: String, patience: Duration) -> impl Stream<Item = Heard> {
    unfold(State::Closed { pause: Duration::ZERO }, move |state| {
        let (route, channel) = (route.clone(), channel.clone());
        async move {
            Some(match state {
                State::Closed { pause } => {
                    sleep(pause).await;
                    match within(Boot::now() + patience, subscribe(&route, &channel)).await {
                        Some(Ok((messages, server))) => (Heard::Listening, State::Open(messages, server)),
                        Some(Err(fault)) if fault.is_final() => {
                            (Heard::Refused(fault), State::Closed { pause: jitter(AGAIN_AFTER_FAILURE) })
                        }
                        _ => (Heard::Deaf, State::Closed { pause: jitter(AGAIN_AFTER_FAILURE) }),
                    }
                }
                State::Open(mut messages, server) => {
                    // A node that has moved calls its waiters there. The caller polls this after each of its own requests.
                    let moved = || route.has_left(server.as_ref());
                    match poll_fn(|cx| if moved() { Poll::Ready(None) } else { messages.poll_next_unpin(cx) }).await {
                        Some(message) => (
                            Heard::Message(String::from_utf8_lossy(message.get_payload_bytes()).into_owned()),
                            State::Open(messages, server),
                        ),
                        None if moved() => (Heard::Deaf, State::Closed { pause: Duration::ZERO }),
                        None => (Heard::Deaf, State::Closed { pause: jitter(AGAIN) }),
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
    requests.subscribe(channel).await.map_err(|error| Fault::of_channel(&error, channel))?;
    Ok((messages, server))
}
