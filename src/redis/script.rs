//! A Lua script, and one call of it.

use redis::Cmd;
use std::collections::BTreeSet;
use std::time::Duration;

/// A Lua script. A server that has received the body knows the script by its SHA1, until the server restarts, until
/// SCRIPT FLUSH, or (since Redis 7.4) until many newer scripts have come.
pub(crate) struct Script {
    pub(crate) body: &'static str,
    pub(crate) sha1: &'static str,
}

impl Script {
    /// The commands that the body calls, each once.
    pub(super) fn commands(&self) -> Vec<&'static str> {
        let calls = self.body.split("call('").skip(1).filter_map(|rest| rest.split('\'').next());
        calls.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

#[derive(Clone)]
pub(crate) struct Call {
    pub(super) script: &'static Script,
    pub(super) keys: Vec<String>,
    pub(super) args: Vec<Vec<u8>>,
    pub(super) delivery: Delivery,
    /// The lock's other keys: the common prefix of their names, and for each key the rest of its name and its type.
    pub(super) beside: (String, &'static [(&'static str, &'static str)]),
}

/// How a call is sent to a node whose connection may be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// The call goes once, over a new connection if the last request got no answer and was not [`Delivery::InOrder`].
    Once,
    /// The call undoes a request. It goes once, over the connection of that request, and so arrives after it. It
    /// carries the script's body, unless the connection has just sent it. So the server never has to ask for the body,
    /// and executes the call even if the caller does not wait for the answer.
    SameConnection,
    /// The call goes once, and the next request follows over the same connection.
    InOrder,
    /// The call first goes like [`Delivery::Once`], and then again after each pause with no answer, over a new
    /// connection. But while a request with [`Delivery::InOrder`] is unanswered, the call goes once, over the
    /// connection of that request. The first answer counts, even the answer to an earlier hedged call with the same
    /// script.
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

    /// Adds `key`, if there is one, behind all other keys.
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

    pub(super) fn by_name(&self) -> Cmd {
        self.command("EVALSHA", self.script.sha1)
    }

    pub(super) fn with_body(&self) -> Cmd {
        self.command("EVAL", self.script.body)
    }

    fn command(&self, command: &str, script: &str) -> Cmd {
        let mut cmd = redis::cmd(command);
        cmd.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        cmd
    }
}
