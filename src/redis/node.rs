//! One node: its connection, one request and its answer.

use super::address::Address;
use super::connect;
use super::fault::Fault;
use super::reply::{FromReply, Reply};
use super::script::Call;
use super::within;
use crate::sys::clock::Boot;
use crate::sys::wait::sleep_until;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, RedisError, Value};
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
    address: Address,
    connection: Option<Connection>,
    /// Something has been sent to it, on this connection or on one before.
    touched: bool,
    /// Since when the other side has closed every connection, and when the next one may be opened for that.
    closed: Option<(Boot, Boot)>,
}

/// An open connection: requests are answered in the order in which they are made. A request whose future is dropped after
/// it was sent stays in that order, so that what is asked next arrives behind it.
#[derive(Debug)]
struct Connection {
    requests: MultiplexedConnection,
    /// Ends when the connection is closed.
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Node {
    pub(super) fn new(address: Address) -> Node {
        Node { address, connection: None, touched: false, closed: None }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Whether a request may have reached it.
    pub(super) fn is_touched(&self) -> bool {
        self.touched
    }

    /// Closes the connection: a server that has not answered may never do so.
    pub(super) fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Runs a script. The caller sets the deadline by dropping the future.
    pub(super) async fn ask<A: FromReply>(&mut self, call: &Call) -> Got<A> {
        let mut sent = Boot::now();
        let answer = self.run(call, &mut sent).await;
        self.drop_if_unusable(&answer);
        Got { sent, answer: answer.and_then(|value| read(value)) }
    }

    /// Runs a script several times in one round trip, each time for another lock.
    pub(super) async fn ask_many<A: FromReply>(&mut self, calls: &[Call]) -> Got<Vec<A>> {
        let mut sent = Boot::now();
        let answer = self.run_many(calls, &mut sent).await;
        self.drop_if_unusable(&answer);
        Got { sent, answer: answer.and_then(|values| values.into_iter().map(read).collect()) }
    }

    /// One page of the keys that match; the cursor of the next one is "0" behind the last.
    pub(super) async fn scan(&mut self, pattern: &str, cursor: &str) -> Result<(String, Vec<String>), Fault> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000);
        let answer = async {
            let answer = self.connect().await?.send_packed_command(&scan).await;
            answer.and_then(Value::extract_error).map_err(|error| Fault::of(&error))
        };
        let answer = answer.await;
        self.drop_if_unusable(&answer);
        let page = Reply::of(answer?)?;
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
        let mut requests = self.connect().await?;
        self.touched = true;
        *sent = Boot::now();
        if !call.in_full {
            match requests.send_packed_command(&call.by_name()).await.and_then(Value::extract_error) {
                Err(error) if is_unknown_script(&error) => *sent = Boot::now(),
                answer => return answer.map_err(|error| Fault::of(&error)),
            }
        }
        let answer = requests.send_packed_command(&call.with_body()).await.and_then(Value::extract_error);
        answer.map_err(|error| Fault::of(&error))
    }

    async fn run_many(&mut self, calls: &[Call], sent: &mut Boot) -> Result<Vec<Value>, Fault> {
        let Some((first, others)) = calls.split_first() else { return Ok(Vec::new()) };
        let mut values = vec![self.run(first, sent).await?];
        let mut pipeline = redis::Pipeline::with_capacity(others.len());
        for call in others {
            pipeline.add_command(call.by_name());
        }
        if !others.is_empty() {
            let mut requests = self.connect().await?;
            let more = requests.send_packed_commands(&pipeline, 0, others.len()).await;
            values.extend(more.map_err(|error| Fault::of(&error))?);
        }
        Ok(values)
    }

    /// The open connection, or a new one where there is none or the other side has closed it.
    async fn connect(&mut self) -> Result<MultiplexedConnection, Fault> {
        let open = self.connection.take_if(|connection| !connection.driver.is_finished());
        let connection = match open {
            Some(connection) => connection,
            None => Connection::open(&self.address).await?,
        };
        Ok(self.connection.insert(connection).requests.clone())
    }

    /// What has been closed, or is out of step, answers nothing more.
    fn drop_if_unusable<T>(&mut self, answer: &Result<T, Fault>) {
        match answer {
            Err(Fault::Closed) => self.lost_connection(),
            Err(Fault::Garbage(_) | Fault::Unreachable(_)) => self.connection = None,
            _ => self.closed = None,
        }
    }
}

impl Connection {
    async fn open(address: &Address) -> Result<Connection, Fault> {
        let socket = connect::open(address).await?;
        // `open` has logged in; deadlines are the caller's, around the whole request.
        let login = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let opened = MultiplexedConnection::new_with_config(&login, socket, config).await;
        let (requests, driver) = opened.map_err(|error| Fault::of(&error))?;
        Ok(Connection { requests, driver: tokio::spawn(driver) })
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
