//! One node: its connection, one request and its answer.

use super::address::{Address, Host, Place};
use super::fault::Fault;
use super::reply::{FromReply, Reply};
use super::route::Route;
use super::script::{Call, Script};
use super::within;
use crate::sys::clock::Boot;
use crate::sys::wait::sleep_until;
use futures_util::future::{join, try_join};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, RedisError, RedisResult, Value};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often a node whose connection was closed is tried again, and for how long so often.
const RECONNECT: Duration = Duration::from_millis(100);
const RECONNECT_EAGERLY: Duration = Duration::from_secs(10);
const RECONNECT_LATER: Duration = Duration::from_secs(1);

/// What came of one request to one node.
#[derive(Clone, Debug)]
pub(crate) struct Got<A> {
    /// When the request was sent: what the node grants counts from then.
    pub(crate) sent: Boot,
    pub(crate) answer: Result<A, Fault>,
}

/// One configured node.
#[derive(Debug)]
pub(crate) struct Node {
    route: Route,
    connection: Option<Connection>,
    /// Something has been sent to it, on this connection or on one before.
    touched: bool,
    /// It has answered something, on this connection or on one before.
    heard: bool,
    /// What was last asked and dropped before the answer came.
    unanswered: Option<&'static Script>,
    /// Since when the other side has closed every connection, and when the next one may be opened for that.
    closed: Option<(Boot, Boot)>,
}

/// An open connection: requests are answered in the order in which they are made. A request whose future is dropped after
/// it was sent stays in that order, so that what is asked next arrives behind it.
#[derive(Debug)]
struct Connection {
    requests: MultiplexedConnection,
    /// Of several servers, the one at its other end.
    server: Option<Host>,
    /// Ends when the connection is closed.
    driver: JoinHandle<()>,
    /// It has been given its name in CLIENT LIST.
    named: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Node {
    pub(crate) fn new(address: Address) -> Node {
        Node {
            route: Route::new(address),
            connection: None,
            touched: false,
            heard: false,
            unanswered: None,
            closed: None,
        }
    }

    pub(crate) fn address(&self) -> &Address {
        self.route.address()
    }

    pub(super) fn route(&self) -> &Route {
        &self.route
    }

    /// All servers that have a part of the node's keys; one, without a name, unless it is a Cluster.
    pub(crate) async fn masters(&self) -> Result<Vec<Option<Host>>, Fault> {
        self.route.masters().await
    }

    /// The next request goes to this one of its servers.
    pub(crate) fn turn_to(&mut self, server: Option<Host>) {
        self.route.turn_to(server);
    }

    /// Whether a request may have reached it.
    pub(super) fn is_touched(&self) -> bool {
        self.touched
    }

    /// Closes the connection: a server that has not answered may never do so.
    pub(super) fn disconnect(&mut self) {
        self.connection = None;
        self.route.turn_to(None);
    }

    /// Runs a script. The caller sets the deadline by dropping the future; what else has to be asked is asked within it.
    pub(super) async fn ask<A: FromReply>(&mut self, call: &Call, deadline: Boot) -> Got<A> {
        let mut sent = Boot::now();
        // What is about to be opened is found anew.
        let route = self.route.clone();
        let connected = self.open_connection().is_some();
        let current = async { if connected { route.is_current(deadline).await } else { Ok(()) } };
        let answer = try_join(self.run(call, &mut sent), current).await.map(|(answer, ())| answer);
        let mut answer = self.heed(answer).and_then(read::<A>);
        if answer.as_ref().is_ok_and(A::is_confirmation)
            && let Err(fault) = self.replicated(deadline).await
        {
            answer = Err(fault);
        }
        Got { sent, answer }
    }

    /// Runs a script several times in one round trip, each time for another lock.
    pub(super) async fn ask_many<A: FromReply>(&mut self, calls: &[Call]) -> Got<Vec<A>> {
        let mut sent = Boot::now();
        let answer = self.run_many(calls, &mut sent).await;
        let answer = self.heed(answer).and_then(|values| values.into_iter().map(read).collect());
        Got { sent, answer }
    }

    /// Connects and logs in, unless that is done. The caller sets the deadline by dropping the future.
    pub(crate) async fn reach(&mut self) -> Result<(), Fault> {
        match self.connect().await {
            // A TLS port accepts too: nothing has been heard of the server yet.
            Ok(_) => Ok(()),
            Err(fault) => self.heed(Err(fault)),
        }
    }

    /// Runs a plain command. The caller sets the deadline by dropping the future.
    pub(crate) async fn command(&mut self, words: &[&str]) -> Result<Reply, Fault> {
        let mut command = Cmd::new();
        command.arg(words);
        let answer = async {
            let answer = self.connect().await?.send_packed_command(&command).await;
            answer.and_then(Value::extract_error).map_err(|error| Fault::of(&error))
        };
        let answer = answer.await;
        Reply::of(self.heed(answer)?)
    }

    /// One page of the keys that match; the cursor of the next one is "0" behind the last.
    pub(super) async fn scan(&mut self, pattern: &str, cursor: &str) -> Result<(String, Vec<String>), Fault> {
        let page = self.command(&["SCAN", cursor, "MATCH", pattern, "COUNT", "1000"]).await?;
        match page.items() {
            [Reply::Text(cursor), Reply::List(keys)] if cursor.parse::<u64>().is_ok() => {
                Ok((cursor.clone(), keys.iter().filter_map(Reply::as_text).map(str::to_owned).collect()))
            }
            _ => Err(Fault::Garbage("in answer to SCAN")),
        }
    }

    /// Comes back once a connection that the other side had closed is open again. A node that was never reached, or that does
    /// not answer, is not waited for. `patience` is how long one try may take; `eagerly` tries as often as at first all the
    /// time.
    pub(super) async fn reconnected(&mut self, patience: Duration, eagerly: bool) {
        if let Some(connection) = &mut self.connection {
            let _ = (&mut connection.driver).await;
            self.lost_connection();
        }
        loop {
            let Some((since, retry_at)) = self.closed else { return std::future::pending().await };
            sleep_until(retry_at).await;
            let often = eagerly || !(since + RECONNECT_EAGERLY).passed();
            self.closed = Some((since, Boot::now() + if often { RECONNECT } else { RECONNECT_LATER }));
            if let Some(Ok(_)) = within(Boot::now() + patience, self.connect()).await {
                return;
            }
        }
    }

    /// The other side has closed the connection.
    fn lost_connection(&mut self) {
        self.connection = None;
        self.closed.get_or_insert((Boot::now(), Boot::now()));
    }

    async fn run(&mut self, call: &Call, sent: &mut Boot) -> Result<Value, Fault> {
        self.touched |= self.connection.is_some();
        if !call.in_full && self.unanswered.replace(call.script).is_some_and(|last| std::ptr::eq(last, call.script)) {
            // What is asked again may be for another server by now. What undoes it comes behind it on the same connection.
            self.route.turn_to(None);
        }
        let mut tries = 0;
        let answer = loop {
            let mut requests = self.connect().await?;
            self.touched = true;
            *sent = Boot::now();
            let (answer, ()) = join(call.send(&mut requests, sent), self.name()).await;
            match answer {
                Err(error) if self.route.follow(&error, tries).await => tries += 1,
                answer => break answer,
            }
        };
        self.unanswered = None;
        answer.map_err(|error| match (self.address().place(), error.code()) {
            (Place::Cluster(_), Some("MOVED")) => {
                Fault::Unreachable("its servers name each other for this lock (MOVED)".to_owned())
            }
            _ => Fault::of_call(&error, call),
        })
    }

    /// Every answer says where its lock is; those that are elsewhere are asked for there.
    async fn run_many(&mut self, calls: &[Call], sent: &mut Boot) -> Result<Vec<Value>, Fault> {
        let mut values = vec![Value::Nil; calls.len()];
        let mut left: Vec<usize> = (0..calls.len()).collect();
        while let Some((&first, others)) = left.split_first() {
            values[first] = self.run(&calls[first], sent).await?;
            let mut pipeline = redis::Pipeline::with_capacity(others.len());
            for &other in others {
                pipeline.add_command(calls[other].by_name());
            }
            let mut elsewhere = Vec::new();
            if !others.is_empty() {
                let mut requests = self.connect().await?;
                let more = requests.send_packed_commands(&pipeline, 0, others.len()).await;
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

    /// Waits until as many replicas as the options ask for have what was last written.
    async fn replicated(&mut self, deadline: Boot) -> Result<(), Fault> {
        let wanted = self.address().replicas();
        // The server answers nothing else meanwhile: when this is dropped, what comes next needs another connection.
        let Some(mut connection) = self.connection.take_if(|_| wanted > 0) else { return Ok(()) };
        let patience = (deadline.left() * 3 / 4).as_millis().max(1);
        let mut wait = redis::cmd("WAIT");
        wait.arg(wanted).arg(patience.to_string());
        let answer = connection.requests.send_packed_command(&wait).await.and_then(Value::extract_error);
        match answer.map_err(|error| Fault::of(&error))? {
            Value::Int(confirmed) => {
                self.connection = Some(connection);
                if confirmed >= i64::from(wanted) {
                    return Ok(());
                }
                Err(Fault::Unconfirmed(confirmed, wanted))
            }
            _ => Err(Fault::Garbage("in answer to WAIT")),
        }
    }

    /// The connection, unless the other side has closed it or it no longer leads to the right server.
    fn open_connection(&mut self) -> Option<&mut Connection> {
        let route = &self.route;
        self.connection.as_mut().filter(|open| !open.driver.is_finished() && route.server() == open.server)
    }

    /// The open connection, or a new one where there is none.
    async fn connect(&mut self) -> Result<MultiplexedConnection, Fault> {
        if let Some(connection) = self.open_connection() {
            return Ok(connection.requests.clone());
        }
        let opened = Connection::open(&self.route).await;
        let opened = opened.map_err(|fault| if self.heard { fault.for_now() } else { fault });
        if opened.is_err() {
            self.route.turn_to(None);
        }
        // The handshake is an answer.
        self.heard |= opened.is_ok() && self.address().is_tls();
        Ok(self.connection.insert(opened?).requests.clone())
    }

    /// Gives a new connection its name in CLIENT LIST, behind the first request and in one packet with it: so what keeps the
    /// server from answering is told to that request. No answer is waited for, and none matters.
    async fn name(&mut self) {
        if let Some(Connection { requests, named: named @ false, .. }) = &mut self.connection {
            *named = true;
            let mut name = redis::cmd("CLIENT");
            let _ = requests.send_packed_command(name.arg("SETNAME").arg("redlock").set_no_response(true)).await;
        }
    }

    /// Draws the conclusions from an answer: what has been closed, or is out of step, answers nothing more.
    fn heed<T>(&mut self, answer: Result<T, Fault>) -> Result<T, Fault> {
        match &answer {
            Err(Fault::Closed) => self.lost_connection(),
            Err(Fault::Garbage(_) | Fault::Unreachable(_)) => self.connection = None,
            _ => {
                self.heard |= self.connection.is_some();
                self.closed = None;
            }
        }
        answer.map_err(|fault| self.suspecting_tls(fault))
    }

    /// A server that has never said anything may expect TLS, or not expect it: a TLS port closes the connection at once, and a
    /// plain one waits for the end of the line.
    pub(crate) fn suspecting_tls(&self, fault: Fault) -> Fault {
        match (&fault, self.heard, self.address().is_tls()) {
            (Fault::Closed, false, false) | (Fault::TimedOut, false, true) => Fault::Mute(Box::new(fault)),
            _ => fault,
        }
    }
}

impl Connection {
    async fn open(route: &Route) -> Result<Connection, Fault> {
        let (server, socket) = route.open().await?;
        // `open` has logged in; deadlines are the caller's, around the whole request.
        let login = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let opened = MultiplexedConnection::new_with_config(&login, socket, config).await;
        let (requests, driver) = opened.map_err(|error| Fault::of(&error))?;
        Ok(Connection { requests, server, driver: tokio::spawn(driver), named: false })
    }
}

fn read<A: FromReply>(value: Value) -> Result<A, Fault> {
    let reply = Reply::of(value)?;
    A::from_reply(&reply).ok_or(Fault::Garbage("in answer to a script"))
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

impl Call {
    /// Sends it by its name, and once more with its body to a server that does not know it.
    async fn send(&self, to: &mut MultiplexedConnection, sent: &mut Boot) -> RedisResult<Value> {
        if !self.in_full {
            match to.send_packed_command(&self.by_name()).await.and_then(Value::extract_error) {
                Err(error) if is_unknown_script(&error) => *sent = Boot::now(),
                answer => return answer,
            }
        }
        to.send_packed_command(&self.with_body()).await.and_then(Value::extract_error)
    }

    /// The request for a server that knows the script.
    fn by_name(&self) -> Cmd {
        self.request("EVALSHA", self.script.sha1())
    }

    /// The request that works on any server.
    fn with_body(&self) -> Cmd {
        self.request("EVAL", self.script.body)
    }

    fn request(&self, command: &str, script: &str) -> Cmd {
        let mut cmd = redis::cmd(command);
        cmd.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        cmd
    }
}
