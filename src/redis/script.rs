//! A Lua script, and one call of it.

use redis::Cmd;
use std::time::Duration;

/// A Lua script. A server that has got the body knows the script by its name, until the server restarts, or drops the
/// script: at SCRIPT FLUSH, or (since Redis 7.4) when it has many newer scripts.
pub(crate) struct Script {
    pub(crate) body: &'static str,
    /// The name by which a server knows the script.
    pub(crate) sha1: &'static str,
}

/// One call of a script, for one node or several.
#[derive(Clone)]
pub(crate) struct Call {
    pub(super) script: &'static Script,
    pub(super) keys: Vec<String>,
    pub(super) args: Vec<Vec<u8>>,
    pub(super) delivery: Delivery,
    /// The prefix of the lock's other keys; and for each of these keys the rest of its name, and its type.
    pub(super) beside: (String, &'static [(&'static str, &'static str)]),
}

/// The way of a call to a node whose connection may be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// The call goes once, over a new connection if the last request got no answer and was not [`Delivery::InOrder`].
    Once,
    /// The call undoes a request. The call goes once, over the connection of that request, and with the script's body
    /// unless this connection has just sent the body. So the call arrives behind that request, and is executed even if
    /// the caller does not wait for the answer.
    SameConnection,
    /// The call goes once, and the next request follows over the same connection.
    InOrder,
    /// The call goes first like [`Delivery::Once`], and again over a new connection after each pause with no answer,
    /// unless the request before the call was [`Delivery::InOrder`] and is unanswered. The first answer counts, even
    /// the answer to an earlier hedged call with the same script.
    Hedged(Duration),
}

impl Call {
    pub(crate) fn new(
        script: &'static Script,
        keys: Vec<String>,
        args: Vec<Vec<u8>>,
        beside: (String, &'static [(&'static str, &'static str)]),
    ) -> Call {
        Call { script, keys, args, delivery: Delivery::Once, beside }
    }

    /// The same call with `key`, if there is one, behind all other keys.
    pub(crate) fn with_key(mut self, key: Option<String>) -> Call {
        self.keys.extend(key);
        self
    }

    /// The same call, to undo the request before it.
    pub(crate) fn on_same_connection(self) -> Call {
        Call { delivery: Delivery::SameConnection, ..self }
    }

    /// The same call, for a request that must not be executed after later requests.
    pub(crate) fn in_order(self) -> Call {
        Call { delivery: Delivery::InOrder, ..self }
    }

    /// The same call, repeated after each `pause` with no answer: for a request that does no harm if it is executed
    /// twice, or late.
    pub(crate) fn hedged(self, pause: Duration) -> Call {
        Call { delivery: Delivery::Hedged(pause), ..self }
    }

    /// The request for a server that knows the script.
    pub(super) fn by_name(&self) -> Cmd {
        self.command("EVALSHA", self.script.sha1)
    }

    /// The request that works on any server.
    pub(super) fn with_body(&self) -> Cmd {
        self.command("EVAL", self.script.body)
    }

    fn command(&self, command: &str, script: &str) -> Cmd {
        let mut cmd = redis::cmd(command);
        cmd.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        cmd
    }
}
