//! One node: its connection, one request and its answer.

use super::address::Address;
use super::connection::{Connection, ConnectionAttempts, ScriptAnswer};
use super::fault::Fault;
use super::reply::{FromReply, Reply};
use super::route::Route;
use super::script::{Call, Delivery};
use super::url::{Deployment, Host};
use crate::sys::clock::Boot;
use crate::sys::wait::sleep_until;
use crate::sys::wait::within;
use futures_util::future::try_join;
use redis::{Cmd, Pipeline, RedisError, Value};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// The pause between attempts to reach a node that has closed its connection; after `RECONNECT_EAGERLY` it is `RECONNECT_LATER`.
const RECONNECT: Duration = Duration::from_millis(100);
const RECONNECT_EAGERLY: Duration = Duration::from_secs(10);
const RECONNECT_LATER: Duration = Duration::from_secs(1);
/// The number of connections with an unanswered request that are kept in addition to the latest: the answer may only be late.
const KEPT: usize = 4;
/// The longest delay of an answer that counts, in node timeouts.
const LATE: u32 = 2;

/// The outcome of one request to one node.
#[derive(Clone, Debug)]
pub(crate) struct RequestOutcome<A> {
    /// The time at which the request was sent: a lease counts from then.
    pub(crate) sent: Boot,
    pub(crate) answer: Result<A, Fault>,
}

/// One configured node.
pub(crate) struct Node {
    route: Route,
    timeout: Duration,
    link: Link,
    attempts: ConnectionAttempts,
    /// The insistent calls without an answer, the youngest last; each connection has one at most.
    unanswered: Vec<PendingRequest>,
    contact: Contact,
    /// The shortest time of an answer.
    round_trip: Duration,
    /// The time since which the other side has closed every connection, and the earliest time of the next attempt.
    closed: Option<(Boot, Boot)>,
}

/// The connection for the next request, and its state after the last request.
enum Link {
    Missing,
    /// All requests are answered.
    Answering(Rc<Connection>),
    /// The last request is not answered: a new connection replaces this connection as soon as it is open.
    Silent(Rc<Connection>),
    /// The last request is not answered, and the next must arrive behind it.
    Ordered(Rc<Connection>),
}

/// The best result of any request so far, on any connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Contact {
    Never,
    /// A request was sent, and may have been executed.
    Asked,
    Answered,
}

/// A request that is under way, and the connection on which its answer comes.
struct PendingRequest {
    connection: Rc<Connection>,
    begun: Boot,
    answer: Pin<Box<dyn Future<Output = ScriptAnswer>>>,
}

impl PendingRequest {
    fn new(connection: Rc<Connection>, call: &Call) -> PendingRequest {
        let (over, call) = (Rc::clone(&connection), call.clone());
        PendingRequest { connection, begun: Boot::now(), answer: Box::pin(async move { over.call(&call).await }) }
    }
}

/// The position and the answer of the first request that is answered. Without requests it never returns.
async fn first_answer(requests: &mut [PendingRequest]) -> (usize, ScriptAnswer) {
    poll_fn(|cx| {
        let mut polled = requests.iter_mut().map(|request| request.answer.as_mut().poll(cx)).enumerate();
        polled
            .find_map(|(at, answer)| match answer {
                Poll::Ready(answer) => Some(Poll::Ready((at, answer))),
                Poll::Pending => None,
            })
            .unwrap_or(Poll::Pending)
    })
    .await
}

impl Link {
    fn connection(&self) -> Option<&Rc<Connection>> {
        match self {
            Link::Missing => None,
            Link::Answering(connection) | Link::Silent(connection) | Link::Ordered(connection) => Some(connection),
        }
    }

    fn is_over(&self, connection: &Rc<Connection>) -> bool {
        self.connection().is_some_and(|own| Rc::ptr_eq(own, connection))
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.address(), f)
    }
}

impl Node {
    /// A node that is contacted by the first request.
    pub(crate) fn new(address: Address, timeout: Duration) -> Node {
        Node {
            route: Route::new(address),
            timeout,
            link: Link::Missing,
            attempts: ConnectionAttempts::default(),
            unanswered: Vec::new(),
            contact: Contact::Never,
            round_trip: Duration::MAX,
            closed: None,
        }
    }

    pub(crate) fn address(&self) -> &Address {
        self.route.address()
    }

    pub(super) fn route(&self) -> &Route {
        &self.route
    }

    /// The servers that have a part of the node's keys; a single `None` unless the node is a Cluster.
    pub(crate) async fn masters(&self) -> Result<Vec<Option<Host>>, Fault> {
        self.route.masters().await
    }

    /// Sends the next request to this server; with none, the server is looked up again.
    pub(crate) fn turn_to(&mut self, server: Option<Host>) {
        self.route.turn_to(server);
        self.attempts.clear();
    }

    /// True if a request may have reached the node.
    pub(super) fn is_touched(&self) -> bool {
        self.contact > Contact::Never
    }

    /// Runs a script. The caller drops the future at the deadline; the Sentinels and the replicas are asked before it.
    pub(super) async fn ask<A: FromReply>(&mut self, call: &Call, deadline: Boot) -> RequestOutcome<A> {
        let mut sent = Boot::now();
        // A new connection looks the server up itself.
        let route = self.route.clone();
        let connected = self.usable().is_some();
        let current = async { if connected { route.is_current(deadline).await } else { Ok(()) } };
        let answer = try_join(self.run(call, &mut sent), current).await.map(|(answer, ())| answer);
        let mut answer = self.heed(answer).and_then(read::<A>);
        if answer.as_ref().is_ok_and(A::is_confirmation)
            && let Err(fault) = self.replicated(deadline).await
        {
            answer = Err(fault);
        }
        RequestOutcome { sent, answer }
    }

    /// Runs a script several times in one round trip, each time for another lock.
    pub(super) async fn ask_many<A: FromReply>(&mut self, calls: &[Call]) -> RequestOutcome<Vec<A>> {
        let mut sent = Boot::now();
        let answer = self.run_many(calls, &mut sent).await;
        let answer = self.heed(answer).and_then(|values| values.into_iter().map(read).collect());
        RequestOutcome { sent, answer }
    }

    /// Connects and logs in, unless there is a connection. The caller sets the deadline by dropping the future.
    pub(crate) async fn reach(&mut self) -> Result<(), Fault> {
        match self.connect(self.timeout).await {
            // A TLS port accepts plain connections, too: the server has not answered yet.
            Ok(_) => Ok(()),
            Err(fault) => self.heed(Err(fault)),
        }
    }

    /// Runs a plain command. The caller sets the deadline by dropping the future.
    pub(crate) async fn command(&mut self, words: &[&str]) -> Result<Reply, Fault> {
        let mut command = Cmd::new();
        command.arg(words);
        let answer = async {
            let connection = self.connect(self.timeout).await?;
            connection.command(&command).await.map_err(|error| Fault::of(&error))
        };
        let answer = answer.await;
        Reply::of(self.heed(answer)?)
    }

    /// The cursor of the next page ("0" after the last), and the matching keys of this page.
    pub(super) async fn scan(&mut self, pattern: &str, cursor: &str) -> Result<(String, Vec<String>), Fault> {
        let page = self.command(&["SCAN", cursor, "MATCH", pattern, "COUNT", "1000"]).await?;
        match page.items() {
            [Reply::Text(cursor), Reply::List(keys)] if cursor.parse::<u64>().is_ok() => {
                Ok((cursor.clone(), keys.iter().filter_map(Reply::as_text).map(str::to_owned).collect()))
            }
            _ => Err(Fault::Garbage("in answer to SCAN")),
        }
    }

    /// Returns once a connection that the other side had closed is open again. Never returns for a node that was never
    /// reached, or that does not answer. If `eagerly`, the pause between attempts stays short.
    pub(super) async fn reconnected(&mut self, eagerly: bool) {
        if let Some(connection) = self.link.connection() {
            connection.closed().await;
            self.lose();
        }
        loop {
            let Some((since, retry_at)) = self.closed else { return std::future::pending().await };
            sleep_until(retry_at).await;
            let often = eagerly || !(since + RECONNECT_EAGERLY).passed();
            let pause = if often { RECONNECT } else { RECONNECT_LATER };
            self.closed = Some((since, Boot::now() + pause));
            if let Some(Ok(_)) = within(Boot::now() + self.timeout, self.connect(pause)).await {
                return;
            }
        }
    }

    async fn run(&mut self, call: &Call, sent: &mut Boot) -> Result<Value, Fault> {
        let mut tries = 0;
        let value = loop {
            let answer = match call.delivery {
                Delivery::Insistent(pause) => self.insist(call, pause).await?,
                _ => self.request(call).await?,
            };
            *sent = answer.sent;
            match answer.value {
                Err(error) if self.route.follow(&error, tries).await? => {
                    tries += 1;
                    self.attempts.clear();
                    if self.link.connection().is_some_and(|connection| connection.server != self.route.server()) {
                        self.link = Link::Missing;
                    }
                }
                value => break value,
            }
        };
        value.map_err(|error| match (self.address().deployment(), error.code()) {
            (Deployment::Cluster(_), Some("MOVED")) => {
                Fault::Unreachable("its servers name each other for this lock (MOVED)".to_owned())
            }
            _ => self.fault_of(&error),
        })
    }

    /// Sends a request once.
    async fn request(&mut self, call: &Call) -> Result<ScriptAnswer, Fault> {
        let connection = match (call.delivery, &self.link) {
            (Delivery::Once | Delivery::InOrder, Link::Silent(_)) => {
                self.route.forget();
                self.open(self.timeout).await?
            }
            _ => self.connect(self.timeout).await?,
        };
        self.link = match (call.delivery, &self.link) {
            (_, Link::Ordered(_)) | (Delivery::InOrder, _) => Link::Ordered(Rc::clone(&connection)),
            (Delivery::Behind, Link::Answering(_)) => Link::Answering(Rc::clone(&connection)),
            _ => Link::Silent(Rc::clone(&connection)),
        };
        self.contact = self.contact.max(Contact::Asked);
        let answer = connection.call(call).await;
        self.link = Link::Answering(connection);
        self.take_time(&answer);
        Ok(answer)
    }

    /// Sends a request that may be repeated: over the open connection, and over new connections until there is an answer. The
    /// answer to an earlier request of this kind counts as well.
    async fn insist(&mut self, call: &Call, pause: Duration) -> Result<ScriptAnswer, Fault> {
        // A slow line needs more patience than `pause`.
        let patience = pause.max(self.round_trip.saturating_mul(2).min(self.timeout));
        let mut silent_at = self.insist_on_open(call, patience);
        self.contact = self.contact.max(Contact::Asked);
        let works = self.contact == Contact::Answered;
        loop {
            if silent_at.passed() && self.attempts.is_idle() {
                // Another server may be the primary by now.
                self.route.forget();
            }
            tokio::select! {
                (at, answer) = first_answer(&mut self.unanswered) => {
                    let connection = self.unanswered.remove(at).connection;
                    let is_latest = self.link.is_over(&connection);
                    if self.route.has_left(connection.server.as_ref()) || (answer.value.is_err() && !is_latest) {
                        // The answer comes from a former primary, or over a connection that has been replaced.
                        silent_at = silent_at.min(Boot::now());
                        continue;
                    }
                    if answer.value.is_ok() && answer.sent.elapsed() > self.timeout * LATE {
                        // The answer comes from a server that stood still, and may have been demoted meanwhile.
                        if is_latest {
                            self.unanswered.push(PendingRequest::new(connection, call));
                        }
                        continue;
                    }
                    if answer.value.is_ok() {
                        self.unanswered.clear();
                    }
                    self.link = Link::Answering(connection);
                    self.take_time(&answer);
                    return Ok(answer);
                }
                opened = self.attempts.next(&self.route, works, pause), if silent_at.passed() => {
                    let connection = opened.map_err(|fault| self.failed(fault))?;
                    if self.unanswered.len() == KEPT {
                        self.unanswered.remove(0);
                    }
                    self.unanswered.push(PendingRequest::new(Rc::clone(&connection), call));
                    self.link = Link::Silent(connection);
                    silent_at = Boot::now() + patience;
                }
                () = sleep_until(silent_at), if !silent_at.passed() => {}
            }
        }
    }

    /// Sends the insistent request over the open connection, unless an earlier one is under way there. Returns the time after
    /// which the connection counts as silent.
    fn insist_on_open(&mut self, call: &Call, patience: Duration) -> Boot {
        let now = Boot::now();
        let Some(connection) = self.usable() else { return now };
        let under_way = self.unanswered.iter().find(|request| Rc::ptr_eq(&request.connection, &connection));
        let silent_at = match (&self.link, under_way) {
            // Later requests must arrive behind the last.
            (Link::Ordered(_), _) => Boot::NEVER,
            (Link::Silent(_), None) => now,
            (_, Some(request)) => request.begun + patience,
            (_, None) => now + patience,
        };
        if under_way.is_none() && !matches!(self.link, Link::Silent(_)) {
            self.unanswered.push(PendingRequest::new(Rc::clone(&connection), call));
        }
        if !matches!(self.link, Link::Ordered(_)) {
            self.link = Link::Silent(connection);
        }
        silent_at
    }

    /// Runs the calls in one round trip. In a Cluster, an answer may say that its lock is elsewhere; that call is repeated
    /// there.
    async fn run_many(&mut self, calls: &[Call], sent: &mut Boot) -> Result<Vec<Value>, Fault> {
        let mut values = vec![Value::Nil; calls.len()];
        let mut left: Vec<usize> = (0..calls.len()).collect();
        while let Some((&first, others)) = left.split_first() {
            values[first] = self.run(&calls[first], sent).await?;
            let mut pipeline = Pipeline::with_capacity(others.len());
            for &other in others {
                pipeline.add_command(calls[other].by_name());
            }
            let mut elsewhere = Vec::new();
            if !others.is_empty() {
                let more = self.connect(self.timeout).await?.commands(&pipeline, others.len()).await;
                for (&other, value) in others.iter().zip(more.map_err(|error| Fault::of(&error))?) {
                    match &value {
                        Value::ServerError(error) if error.code() == "MOVED" => elsewhere.push(other),
                        _ => values[other] = value,
                    }
                }
            }
            left = elsewhere;
        }
        Ok(values)
    }

    /// Waits until enough replicas for `--replicas` have the last write.
    async fn replicated(&mut self, deadline: Boot) -> Result<(), Fault> {
        let wanted = self.address().replicas();
        if wanted == 0 {
            return Ok(());
        }
        // WAIT blocks the connection: if this future is dropped, the next request needs another one.
        let link = std::mem::replace(&mut self.link, Link::Missing);
        let Some(connection) = link.connection() else { return Err(Fault::Closed) };
        let patience = (deadline.left() * 3 / 4).as_millis().max(1);
        let mut wait = redis::cmd("WAIT");
        wait.arg(wanted).arg(patience.to_string());
        match connection.command(&wait).await.map_err(|error| Fault::of(&error))? {
            Value::Int(confirmed) => {
                self.link = link;
                if confirmed >= i64::from(wanted) {
                    return Ok(());
                }
                Err(Fault::Unconfirmed(confirmed, wanted))
            }
            _ => Err(Fault::Garbage("in answer to WAIT")),
        }
    }

    /// The connection, unless the other side has closed it or it no longer leads to the right server.
    fn usable(&self) -> Option<Rc<Connection>> {
        let fits = |open: &&Rc<Connection>| !open.is_closed() && !self.route.has_left(open.server.as_ref());
        self.link.connection().filter(fits).cloned()
    }

    /// The open connection; a new connection if there is none.
    async fn connect(&mut self, apart: Duration) -> Result<Rc<Connection>, Fault> {
        match self.usable() {
            Some(connection) => Ok(connection),
            None => self.open(apart).await,
        }
    }

    /// A new connection; the old one is kept until it is open. Attempts begin this far `apart`.
    async fn open(&mut self, apart: Duration) -> Result<Rc<Connection>, Fault> {
        let opened = self.attempts.next(&self.route, self.contact == Contact::Answered, apart).await;
        let connection = opened.map_err(|fault| self.failed(fault))?;
        if self.address().is_tls() {
            // The handshake is an answer.
            self.contact = Contact::Answered;
        }
        self.link = Link::Answering(Rc::clone(&connection));
        Ok(connection)
    }

    /// Records that no connection could be opened, and returns the fault to report.
    fn failed(&mut self, fault: Fault) -> Fault {
        self.route.forget();
        if self.contact == Contact::Answered { fault.for_now() } else { fault }
    }

    fn fault_of(&self, error: &RedisError) -> Fault {
        let refused = self.link.connection().is_some_and(|connection| connection.was_refused());
        let fault = Fault::of(error);
        if refused && self.contact == Contact::Answered { fault.for_now() } else { fault }
    }

    fn take_time(&mut self, answer: &ScriptAnswer) {
        if answer.value.is_ok() {
            self.round_trip = self.round_trip.min(answer.sent.elapsed());
        }
    }

    /// Records that the other side has closed the connection.
    fn lose(&mut self) {
        self.link = Link::Missing;
        self.closed.get_or_insert((Boot::now(), Boot::now()));
    }

    /// Drops a connection that is closed or out of step, or whose server is no longer a primary.
    fn heed<T>(&mut self, answer: Result<T, Fault>) -> Result<T, Fault> {
        match &answer {
            Err(Fault::Closed | Fault::TimedOut) => self.lose(),
            Err(fault) if fault.is_demotion() => {
                self.route.leave();
                self.unanswered.clear();
                self.lose();
            }
            Err(Fault::Garbage(_) | Fault::Unreachable(_)) => {
                self.unanswered.clear();
                self.link = Link::Missing;
            }
            _ => {
                if self.link.connection().is_some() {
                    self.contact = Contact::Answered;
                }
                self.closed = None;
            }
        }
        answer.map_err(|fault| self.suspecting_tls(fault))
    }

    /// The same fault, or [`Fault::Mute`] if TLS may be the reason. A TLS port closes a plain connection at once, and a plain
    /// port waits for the end of the line.
    pub(crate) fn suspecting_tls(&self, fault: Fault) -> Fault {
        if let (Fault::Closed, Some(local)) = (&fault, self.address().local()) {
            return Fault::Exited(local.log().display().to_string());
        }
        match (&fault, self.contact == Contact::Answered, self.address().is_tls()) {
            (Fault::Closed, false, false) | (Fault::TimedOut, false, true) => Fault::Mute(Box::new(fault)),
            _ => fault,
        }
    }
}

fn read<A: FromReply>(value: Value) -> Result<A, Fault> {
    let reply = Reply::of(value)?;
    A::from_reply(&reply).ok_or(Fault::Garbage("in answer to a script"))
}
