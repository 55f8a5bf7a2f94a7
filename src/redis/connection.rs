//! An open connection to a server, and the attempts to open one.

use super::connect;
use super::fault::Fault;
use super::route::Route;
use super::script::Call;
use super::url::Host;
use crate::sys::clock::Boot;
use crate::sys::wait::within;
use futures_util::future::{join, select_all};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisConnectionInfo, RedisError, RedisResult, Value};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The largest number of parallel attempts to open a connection. The oldest gives way to the next.
const ATTEMPTS: usize = 8;

/// An open connection, which answers requests in order. A request whose future is dropped after it was sent stays in that
/// order: the next request arrives behind it.
pub(super) struct Connection {
    requests: MultiplexedConnection,
    /// The server at the other end, if the node has several.
    pub(super) server: Option<Host>,
    /// Ends when the connection is closed.
    driver: RefCell<JoinHandle<()>>,
    /// AUTH and SELECT, until they are answered. They travel with the first request, but outlive it: the next one needs them
    /// too.
    login: RefCell<Option<PendingLogin>>,
    is_named: Cell<bool>,
    was_refused: Cell<bool>,
}

type PendingLogin = Pin<Box<dyn Future<Output = RedisResult<()>>>>;

/// The answer to one call of a script, and the time at which the call was sent.
pub(super) struct ScriptAnswer {
    pub(super) sent: Boot,
    pub(super) value: RedisResult<Value>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.get_mut().abort();
    }
}

impl Connection {
    /// A connection along this route. If the login `works`, it travels with the first request. Otherwise it comes first: the
    /// request must not be executed as the default user, or in another database.
    async fn open(route: Route, works: bool) -> Result<Connection, Fault> {
        let (server, mut socket) = route.dial().await?;
        let mut login = Vec::new();
        if server.is_none() {
            match works {
                true => login = connect::login(route.address()),
                false => connect::log_in(&mut socket, route.address()).await?,
            }
        }
        // The caller sets a deadline around the whole request.
        let nothing = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let opened = MultiplexedConnection::new_with_config(&nothing, socket, config).await;
        let (requests, driver) = opened.map_err(|error| Fault::of(&error))?;
        Ok(Connection {
            server,
            driver: RefCell::new(tokio::spawn(driver)),
            login: RefCell::new((!login.is_empty()).then(|| log_in(requests.clone(), login))),
            requests,
            is_named: Cell::new(false),
            was_refused: Cell::new(false),
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.driver.borrow().is_finished()
    }

    /// Returns when the connection is closed.
    pub(super) async fn closed(&self) {
        poll_fn(|cx| match &mut *self.driver.borrow_mut() {
            driver if driver.is_finished() => Poll::Ready(()),
            driver => Pin::new(driver).poll(cx).map(drop),
        })
        .await;
    }

    /// True if the server has refused the login.
    pub(super) fn was_refused(&self) -> bool {
        self.was_refused.get()
    }

    pub(super) async fn command(&self, command: &Cmd) -> RedisResult<Value> {
        let mut requests = self.requests.clone();
        let sent = async { requests.send_packed_command(command).await.and_then(Value::extract_error) };
        self.with_login(sent).await
    }

    /// Runs commands in one round trip, and returns the answer to each.
    pub(super) async fn commands(&self, pipeline: &Pipeline, count: usize) -> RedisResult<Vec<Value>> {
        let mut requests = self.requests.clone();
        self.with_login(async { requests.send_packed_commands(pipeline, 0, count).await }).await
    }

    /// Runs a script by its name, and once more with its body on a server that does not know it.
    pub(super) async fn call(&self, call: &Call) -> ScriptAnswer {
        join(self.execute(call), self.name()).await.0
    }

    async fn execute(&self, call: &Call) -> ScriptAnswer {
        let sent = Boot::now();
        if !call.is_in_full() {
            match self.command(&call.by_name()).await {
                Err(error) if error.code() == Some("NOSCRIPT") => {}
                value => return ScriptAnswer { sent, value },
            }
        }
        ScriptAnswer { sent: Boot::now(), value: self.command(&call.with_body()).await }
    }

    /// Gives the connection its name in CLIENT LIST, behind the first request and in one packet with it: an error of the connection
    /// is then the answer to that request. The answer to this one does not matter.
    async fn name(&self) {
        if !self.is_named.replace(true) {
            let mut name = redis::cmd("CLIENT");
            name.arg("SETNAME").arg("redlock").set_no_response(true);
            let _ = self.requests.clone().send_packed_command(&name).await;
        }
    }

    /// Sends a request behind the login, in one packet with it.
    async fn with_login<T>(&self, request: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        if self.login.borrow().is_none() {
            return request.await;
        }
        let login = poll_fn(|cx| {
            let mut login = self.login.borrow_mut();
            let Some(under_way) = &mut *login else { return Poll::Ready(Ok(())) };
            let answer = ready!(under_way.as_mut().poll(cx));
            *login = None;
            Poll::Ready(answer)
        });
        let (login, answer) = join(login, request).await;
        if let Err(error) = login {
            self.was_refused.set(is_reply(&error));
            self.driver.borrow().abort();
            return Err(error);
        }
        answer
    }
}

fn log_in(mut requests: MultiplexedConnection, commands: Vec<Cmd>) -> PendingLogin {
    Box::pin(async move {
        let mut pipeline = Pipeline::with_capacity(commands.len());
        for command in &commands {
            pipeline.add_command(command.clone());
        }
        let values = requests.send_packed_commands(&pipeline, 0, commands.len()).await?;
        values.into_iter().try_for_each(|value| value.extract_error().map(drop))
    })
}

/// True if the error is the server's reply, false if the connection failed.
fn is_reply(error: &RedisError) -> bool {
    error.code().is_some()
}

type ConnectionAttempt = Pin<Box<dyn Future<Output = Result<Connection, Fault>>>>;

/// Attempts to open a connection. They outlive the request that began them.
#[derive(Default)]
pub(super) struct ConnectionAttempts {
    /// The attempts under way, the youngest last.
    attempts: VecDeque<ConnectionAttempt>,
    /// The start of the youngest attempt.
    begun: Option<Boot>,
}

impl ConnectionAttempts {
    /// The first connection that is open. Until then another attempt begins every `apart`, as the packets of earlier ones may
    /// be lost. The login `works` if an earlier connection was let in.
    ///
    /// # Errors
    /// The fault of the last attempt.
    pub(super) async fn next(&mut self, route: &Route, works: bool, apart: Duration) -> Result<Rc<Connection>, Fault> {
        loop {
            let due = self.begun.map_or(Boot::now(), |begun| begun + apart);
            if self.attempts.is_empty() || due.passed() {
                if self.attempts.len() == ATTEMPTS {
                    self.attempts.pop_front();
                }
                self.attempts.push_back(Box::pin(Connection::open(route.clone(), works)));
                self.begun = Some(Boot::now());
                continue;
            }
            if let Some((opened, attempt, _)) = within(due, select_all(self.attempts.iter_mut())).await {
                drop(self.attempts.remove(attempt));
                match opened {
                    Ok(connection) => {
                        self.clear();
                        return Ok(Rc::new(connection));
                    }
                    Err(fault) if self.attempts.is_empty() => return Err(fault),
                    Err(_) => {}
                }
            }
        }
    }

    /// True if no attempt is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.attempts.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.attempts.clear();
    }
}
