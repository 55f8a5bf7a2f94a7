//! One node: the connection, and one request with its answer.

use super::address::Address;
use super::connect;
use super::connection::{Connection, ScriptAnswer};
use super::fault::Fault;
use super::look_up::LookUps;
use super::reply::{FromReply, Reply};
use super::route::Route;
use super::script::{Call, Delivery, Script};
use super::url::{Deployment, Host};
use crate::sys::clock::Boot;
use crate::sys::wait::{sleep_until, within};
use futures_util::future::{join_all, select_all, try_join};
use redis::{Cmd, Value};
use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::ptr;
use std::rc::Rc;
use std::time::Duration;

/// At most this many hedged calls are under way, each over its own connection. A further call replaces the oldest.
const ATTEMPTS: usize = 8;
/// The answer to a hedged call counts only if it comes within this many node timeouts.
const LATE: u32 = 2;

#[derive(Clone, Debug)]
pub(crate) struct RequestOutcome<A> {
    /// When the request was sent: the ttl of a lease counts from this time.
    pub(crate) sent: Boot,
    pub(crate) answer: Result<A, Fault>,
}

pub(crate) struct Node {
    route: Route,
    timeout: Duration,
    link: Link,
    /// The hedged calls under way, in the order in which they began. They outlive the request that began them.
    attempts: Vec<CallUnderWay>,
    /// True once a call may have been sent, over any connection.
    may_have_been_sent: bool,
    has_answered: bool,
    /// The shortest time that an answer took.
    round_trip: Duration,
    /// The earliest time of the next attempt to reach a node that is lost; none for other nodes.
    retry_at: Option<Boot>,
}

/// The connection for the next request, and its state after the last request.
enum Link {
    Missing,
    /// All requests are answered, except perhaps a request that undoes a request ([`Delivery::SameConnection`]).
    Answering(Rc<Connection>),
    /// The last request is not answered. A new connection, once it is open, replaces this connection.
    Silent(Rc<Connection>),
    /// The last request is not answered, and the next request must arrive behind that request.
    Ordered(Rc<Connection>),
}

struct CallUnderWay {
    begun: Boot,
    script: &'static Script,
    outcome: Pin<Box<dyn Future<Output = Result<ScriptAnswer, Fault>>>>,
}

impl CallUnderWay {
    /// A call over `open`, or else over a new connection.
    fn new(open: Option<Rc<Connection>>, route: &Route, call: &Call) -> CallUnderWay {
        let (route, call, script) = (route.clone(), call.clone(), call.script);
        let outcome = async move {
            let connection = match open {
                Some(connection) => connection,
                None => Connection::open(&route).await?,
            };
            Ok(connection.run_script(&call).await)
        };
        CallUnderWay { begun: Boot::now(), script, outcome: Box::pin(outcome) }
    }
}

impl Link {
    fn connection(&self) -> Option<&Rc<Connection>> {
        match self {
            Link::Missing => None,
            Link::Answering(connection) | Link::Silent(connection) | Link::Ordered(connection) => Some(connection),
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.address(), f)
    }
}

impl Node {
    /// The first request opens the connection.
    pub(crate) fn new(address: Address, timeout: Duration) -> Node {
        Node {
            route: Route::new(address),
            timeout,
            link: Link::Missing,
            attempts: Vec::new(),
            may_have_been_sent: false,
            has_answered: false,
            round_trip: Duration::MAX,
            retry_at: None,
        }
    }

    pub(crate) fn address(&self) -> &Address {
        self.route.address()
    }

    pub(super) fn route(&self) -> &Route {
        &self.route
    }

    pub(super) fn look_ups(&self) -> Rc<LookUps> {
        Rc::clone(self.address().look_ups())
    }

    /// The servers that have a part of the node's keys; a single `None` unless the node is a Cluster.
    pub(crate) async fn masters(&self) -> Result<Vec<Option<Host>>, Fault> {
        self.look_ups().within(Boot::now() + self.timeout, self.route.masters()).await
    }

    pub(crate) fn turn_to(&mut self, server: Option<Host>) {
        self.route.turn_to(server);
        self.attempts.clear();
    }

    pub(super) fn may_have_been_sent(&self) -> bool {
        self.may_have_been_sent
    }

    /// Runs a script. The caller drops the future at the deadline; Sentinels and replicas are asked early enough to
    /// answer before the deadline.
    pub(super) async fn ask<A: FromReply>(&mut self, call: &Call, deadline: Boot) -> RequestOutcome<A> {
        let mut sent = Boot::now();
        // If a connection is open, the Sentinels are asked whether its server is still the primary. A new connection
        // looks up the primary itself.
        let route = self.route.clone();
        let connected = self.usable().is_some();
        let current = async { if connected { route.is_current(deadline).await } else { Ok(()) } };
        let answer = try_join(self.run(call, &mut sent), current).await.map(|(answer, ())| answer);
        let mut answer = self.record_outcome(answer).and_then(read::<A>);
        if let Err(fault) = &answer
            && fault.is_wrong_type()
        {
            answer = Err(self.wrong_type(call, fault.clone()).await);
        }
        if answer.as_ref().is_ok_and(A::is_confirmation)
            && let Err(fault) = self.replicated(deadline).await
        {
            answer = Err(fault);
        }
        RequestOutcome { sent, answer }
    }

    /// One node's part of [`super::Nodes::ask_many`].
    pub(super) async fn ask_many<A: FromReply>(&mut self, calls: &[Call]) -> RequestOutcome<Vec<Result<A, Fault>>> {
        let mut sent = Boot::now();
        let answer = self.run_many(calls, &mut sent).await;
        let answer = self.record_outcome(answer).map(|values| values.into_iter().map(|value| read(value?)).collect());
        let mut answer: Result<Vec<Result<A, Fault>>, Fault> = answer;
        for (answer, call) in answer.iter_mut().flatten().zip(calls) {
            if let Err(fault) = answer
                && fault.is_wrong_type()
            {
                *fault = self.wrong_type(call, fault.clone()).await;
            }
        }
        RequestOutcome { sent, answer }
    }

    /// Looks for the key of the wrong type, which a script's error does not name. Returns [`Fault::WrongType`] with
    /// this key, or `fault` if no such key is found.
    async fn wrong_type(&mut self, call: &Call, fault: Fault) -> Fault {
        let (base, parts) = &call.beside;
        for (part, expected) in *parts {
            let key = format!("{base}{part}");
            let found = self.command(&["TYPE", &key]).await;
            if found.is_ok_and(|found| found.as_text().is_some_and(|found| found != "none" && found != *expected)) {
                return Fault::WrongType(key);
            }
        }
        fault
    }

    /// Connects and logs in, unless there is a connection.
    pub(crate) async fn reach(&mut self) -> Result<(), Fault> {
        let (look_ups, deadline) = (self.look_ups(), Boot::now() + self.timeout);
        let connected = look_ups.within(deadline, self.connect()).await;
        self.record_outcome(connected).map(drop)
    }

    /// The `run_id`s of the servers that answer: several if the address leads to several servers.
    pub(crate) async fn run_ids(&self) -> BTreeSet<String> {
        connect::run_ids(&self.server(), Boot::now() + self.timeout).await
    }

    fn server(&self) -> Address {
        self.route.server().map_or_else(|| self.address().clone(), |server| self.address().at(&server))
    }

    pub(crate) async fn command(&mut self, words: &[&str]) -> Result<Reply, Fault> {
        let mut command = Cmd::new();
        command.arg(words);
        let (look_ups, deadline) = (self.look_ups(), Boot::now() + self.timeout);
        let answer = look_ups.within(deadline, async {
            let connection = self.connect().await?;
            connection.command(&command).await.map_err(|error| Fault::of(&error))
        });
        let answer = answer.await;
        Reply::of(self.record_outcome(answer)?)
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

    /// Returns once a lost node is connected again. A node is lost when its connection closes, or when a request finds
    /// no working connection. Never returns for a node that was never asked, or that hangs.
    pub(super) async fn reconnected(&mut self, pause: Duration) {
        if let Some(connection) = self.link.connection() {
            connection.closed().await;
            self.lose();
        }
        loop {
            let Some(retry_at) = self.retry_at else { return std::future::pending().await };
            sleep_until(retry_at).await;
            self.retry_at = Some(Boot::now() + pause);
            if within(Boot::now() + self.timeout, self.connect()).await.is_some_and(|opened| opened.is_ok()) {
                return;
            }
        }
    }

    async fn run(&mut self, call: &Call, sent: &mut Boot) -> Result<Value, Fault> {
        let mut tries = 0;
        let value = loop {
            let answer = match call.delivery {
                Delivery::Hedged(pause) => self.hedge(call, pause).await?,
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
            (Deployment::Cluster(_), Some("MOVED")) => Fault::moved_in_a_circle(),
            _ => Fault::of(&error).in_script(call.script),
        })
    }

    async fn request(&mut self, call: &Call) -> Result<ScriptAnswer, Fault> {
        let connection = match (call.delivery, &self.link) {
            (Delivery::Once | Delivery::InOrder, Link::Silent(_)) => {
                self.route.forget();
                self.open().await?
            }
            _ => self.connect().await?,
        };
        self.link = match (call.delivery, &self.link) {
            (_, Link::Ordered(_)) | (Delivery::InOrder, _) => Link::Ordered(Rc::clone(&connection)),
            (Delivery::SameConnection, Link::Answering(_)) => Link::Answering(Rc::clone(&connection)),
            _ => Link::Silent(Rc::clone(&connection)),
        };
        self.may_have_been_sent = true;
        let answer = connection.run_script(call).await;
        Ok(self.answered(answer))
    }

    /// Sends a request, and repeats it over new connections until there is an answer ([`Delivery::Hedged`]). The answer
    /// to an earlier hedged request with the same script counts as well.
    async fn hedge(&mut self, call: &Call, pause: Duration) -> Result<ScriptAnswer, Fault> {
        // A slow network needs more patience than `pause`.
        let patience = pause.max(self.round_trip.saturating_mul(2).min(self.timeout));
        let open = self.usable();
        self.attempts.retain(|attempt| ptr::eq(attempt.script, call.script));
        // After an ordered request, this request must follow over the same connection.
        let is_ordered = open.is_some() && matches!(self.link, Link::Ordered(_));
        if let Some(connection) = open
            && (matches!(self.link, Link::Answering(_)) || is_ordered && self.attempts.is_empty())
        {
            self.attempts.push(CallUnderWay::new(Some(Rc::clone(&connection)), &self.route, call));
            if !is_ordered {
                self.link = Link::Silent(connection);
            }
        }
        self.may_have_been_sent = true;
        loop {
            let due = match self.attempts.last() {
                None => Boot::now(),
                Some(_) if is_ordered => Boot::NEVER,
                Some(latest) => latest.begun + patience,
            };
            if due.passed() {
                // Another server may be the primary by now. But with neither a connection nor an attempt, a redirection
                // may have just named this server.
                if self.link.connection().is_some() || !self.attempts.is_empty() {
                    self.route.forget();
                }
                if self.attempts.len() >= ATTEMPTS {
                    self.attempts.remove(0);
                }
                self.attempts.push(CallUnderWay::new(None, &self.route, call));
                continue;
            }
            let first = select_all(self.attempts.iter_mut().map(|attempt| attempt.outcome.as_mut()));
            let Some((outcome, at, _)) = within(due, first).await else { continue };
            drop(self.attempts.remove(at));
            let is_latest = at == self.attempts.len();
            match outcome {
                Err(fault) if is_latest => return Err(self.failed(fault)),
                // This answer is ignored, because it may come from a former primary, or from a server that stood still
                // and was demoted meanwhile.
                Ok(answer)
                    if self.route.has_left(answer.connection.server.as_ref())
                        || answer.value.is_ok() && answer.sent.elapsed() > self.timeout * LATE => {}
                Ok(answer) if answer.value.is_ok() || is_latest => return Ok(self.answered(answer)),
                // This attempt has failed, but a later one is still under way.
                _ => {}
            }
        }
    }

    /// Runs the first call, which loads the script. Then runs all other calls in one round trip. Repeats a call if a
    /// Cluster answers that the lock is elsewhere, or if the answer was over the limit of [`super::stream`].
    async fn run_many(&mut self, calls: &[Call], sent: &mut Boot) -> Result<Vec<Result<Value, Fault>>, Fault> {
        let mut values: Vec<Result<Value, Fault>> = vec![Ok(Value::Nil); calls.len()];
        let mut left: Vec<usize> = (0..calls.len()).collect();
        while let Some((&first, others)) = left.split_first() {
            values[first] = match self.run(&calls[first], sent).await {
                Err(fault) if !fault.is_of_one_lock() => return Err(fault),
                value => value,
            };
            let requests: Vec<Cmd> = others.iter().map(|&other| calls[other].by_name()).collect();
            let connection = self.connect().await?;
            let answers = join_all(requests.iter().map(|request| connection.send(request))).await;
            let answers: Vec<Result<Value, Fault>> =
                answers.into_iter().map(|value| value.map_err(|error| Fault::of(&error))).collect();
            let is_cut = answers.contains(&Err(Fault::TooLarge));
            let mut again = Vec::new();
            for (&other, value) in others.iter().zip(answers) {
                match value {
                    Ok(Value::ServerError(error)) if error.code() == "MOVED" => again.push(other),
                    Ok(Value::ServerError(error)) => match Fault::of(&error.into()) {
                        fault if fault.is_of_one_lock() => values[other] = Err(fault),
                        fault => return Err(fault),
                    },
                    Err(Fault::TooLarge | Fault::Closed) if is_cut => again.push(other),
                    Err(fault) => return Err(fault),
                    value => values[other] = value,
                }
            }
            left = again;
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

    /// The connection, if it is open and still leads to the right server.
    fn usable(&self) -> Option<Rc<Connection>> {
        let fits = |open: &&Rc<Connection>| !open.is_closed() && !self.route.has_left(open.server.as_ref());
        self.link.connection().filter(fits).cloned()
    }

    async fn connect(&mut self) -> Result<Rc<Connection>, Fault> {
        match self.usable() {
            Some(connection) => Ok(connection),
            None => self.open().await,
        }
    }

    /// A new connection; the old connection is kept until the new one is open.
    async fn open(&mut self) -> Result<Rc<Connection>, Fault> {
        let connection = Connection::open(&self.route).await.map_err(|fault| self.failed(fault))?;
        self.give_up_for(&connection);
        self.link = Link::Answering(Rc::clone(&connection));
        Ok(connection)
    }

    /// Aborts the old connection if its last request has no answer, and `new` replaces it.
    fn give_up_for(&self, new: &Rc<Connection>) {
        if let Link::Silent(old) | Link::Ordered(old) = &self.link
            && !Rc::ptr_eq(old, new)
        {
            old.abort();
        }
    }

    /// Called when no connection could be opened. Forgets the server that a Cluster named. The fault is temporary if
    /// the node has answered before.
    fn failed(&mut self, fault: Fault) -> Fault {
        self.route.forget();
        if self.has_answered { fault.for_now() } else { fault }
    }

    /// Records that the connection has answered, perhaps by an error.
    fn answered(&mut self, answer: ScriptAnswer) -> ScriptAnswer {
        self.give_up_for(&answer.connection);
        self.link = Link::Answering(Rc::clone(&answer.connection));
        if answer.value.is_ok() {
            self.attempts.clear();
            self.round_trip = self.round_trip.min(answer.sent.elapsed());
        }
        answer
    }

    /// Drops the connection, and plans to reconnect at once unless a time is planned already.
    fn lose(&mut self) {
        self.link = Link::Missing;
        self.attempts.clear();
        self.retry_at.get_or_insert(Boot::now());
    }

    /// Drops the connection if the fault makes the connection unusable, or shows that the server is no longer a
    /// primary. With `local:`, a closed connection becomes [`Fault::Exited`].
    fn record_outcome<T>(&mut self, answer: Result<T, Fault>) -> Result<T, Fault> {
        match &answer {
            Err(
                Fault::Closed
                | Fault::TimedOut
                | Fault::LookUpTimedOut(_)
                | Fault::Garbage(_)
                | Fault::TooLarge
                | Fault::Unreachable(_),
            ) => {
                self.lose();
            }
            Err(fault) if fault.is_demotion() => {
                self.route.leave();
                self.lose();
            }
            _ => {
                self.has_answered |= self.link.connection().is_some();
                self.retry_at = None;
            }
        }
        answer.map_err(|fault| match (fault, self.address().local()) {
            (Fault::Closed, Some(local)) => Fault::Exited(local.log().display().to_string()),
            (fault, _) => fault,
        })
    }
}

fn read<A: FromReply>(value: Value) -> Result<A, Fault> {
    let reply = Reply::of(value)?;
    A::from_reply(&reply).ok_or(Fault::Garbage("in answer to a script"))
}
