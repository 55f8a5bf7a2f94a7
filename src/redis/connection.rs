//! An open connection to a server.

use super::fault::Fault;
use super::route::Route;
use super::script::{Call, Delivery, Script};
use super::url::Host;
use crate::sys::clock::Boot;
use futures_util::future::join;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::SockRef;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, RedisResult, Value};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::ptr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Answers requests in order. A request that was sent keeps its place in this order, even if its future is dropped.
pub(super) struct Connection {
    requests: MultiplexedConnection,
    /// The server at the other end, if the node has several.
    pub(super) server: Option<Host>,
    /// The task that sends and receives; it ends with the connection.
    driver: RefCell<JoinHandle<()>>,
    is_named: Cell<bool>,
    /// The script that was last sent with its body; the server knows that script when it reads the next request.
    loaded: Cell<Option<&'static Script>>,
    /// A copy of the descriptor of a TCP socket; none for a Unix socket, or if no descriptor was free.
    descriptor: Option<OwnedFd>,
}

pub(super) struct ScriptAnswer {
    pub(super) connection: Rc<Connection>,
    pub(super) sent: Boot,
    pub(super) value: RedisResult<Value>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.get_mut().abort();
    }
}

impl Connection {
    /// Opens a connection along this route, and logs in.
    pub(super) async fn open(route: &Route) -> Result<Rc<Connection>, Fault> {
        let (server, mut stream) = route.open().await?;
        let descriptor = stream.descriptor.take();
        let nothing = RedisConnectionInfo::default().set_skip_set_lib_name();
        // The client library needs no timeout, because the caller's deadline encloses the whole request.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let opened = MultiplexedConnection::new_with_config(&nothing, stream, config).await;
        let (requests, driver) = opened.map_err(|error| Fault::of(&error))?;
        let driver = RefCell::new(tokio::spawn(driver));
        Ok(Rc::new(Connection {
            requests,
            server,
            driver,
            is_named: Cell::new(false),
            loaded: Cell::new(None),
            descriptor,
        }))
    }

    /// Aborts the connection before a new one takes its place. A TCP connection is reset: the kernel discards unsent
    /// requests, so no old request can arrive after a request over the new connection.
    pub(super) fn abort(&self) {
        if let Some(descriptor) = &self.descriptor {
            let _ = SockRef::from(descriptor).set_linger(Some(Duration::ZERO));
        }
        self.driver.borrow().abort();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.driver.borrow().is_finished()
    }

    pub(super) async fn closed(&self) {
        poll_fn(|cx| match &mut *self.driver.borrow_mut() {
            driver if driver.is_finished() => Poll::Ready(()),
            driver => Pin::new(driver).poll(cx).map(drop),
        })
        .await;
    }

    pub(super) async fn command(&self, command: &Cmd) -> RedisResult<Value> {
        self.send(command).await.and_then(Value::extract_error)
    }

    /// Sends a command. A reply of the server is `Ok`, even if the reply is an error.
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        self.requests.clone().send_packed_command(command).await
    }

    /// Runs a script by its SHA1, and sends the body if the server does not know the SHA1. A call that undoes another
    /// call ([`Delivery::SameConnection`]) sends the body at once, unless this connection has just sent the same body.
    pub(super) async fn run_script(self: Rc<Self>, call: &Call) -> ScriptAnswer {
        let ((sent, value), ()) = join(self.execute(call), self.name()).await;
        ScriptAnswer { connection: self, sent, value }
    }

    async fn execute(&self, call: &Call) -> (Boot, RedisResult<Value>) {
        let sent = Boot::now();
        let is_loaded = self.loaded.get().is_some_and(|script| ptr::eq(script, call.script));
        if call.delivery != Delivery::SameConnection || is_loaded {
            match self.command(&call.by_name()).await {
                Err(error) if error.code() == Some("NOSCRIPT") => {}
                value => return (sent, value),
            }
        }
        self.loaded.set(Some(call.script));
        (Boot::now(), self.command(&call.with_body()).await)
    }

    /// Gives the connection its name in CLIENT LIST. CLIENT SETNAME follows the first request in the same packet; if
    /// the connection fails, the first request gets the error. The answer to CLIENT SETNAME does not matter.
    async fn name(&self) {
        if !self.is_named.replace(true) {
            let _ = self.requests.clone().send_packed_command(naming().set_no_response(true)).await;
        }
    }
}

pub(super) fn naming() -> Cmd {
    let mut name = redis::cmd("CLIENT");
    name.arg("SETNAME").arg("redlock");
    name
}
