//! A Lua script, and one call of it.

use std::sync::LazyLock;

/// One script: what is sent when the server knows it, and when it does not.
#[derive(Debug)]
pub(crate) struct Script {
    pub(super) body: &'static str,
    sha1: LazyLock<String>,
}

impl Script {
    /// `sha1` is [`sha1`] of the same body.
    pub(crate) const fn new(body: &'static str, sha1: fn() -> String) -> Script {
        Script { body, sha1: LazyLock::new(sha1) }
    }

    /// The name by which EVALSHA knows it.
    pub(super) fn sha1(&self) -> &str {
        &self.sha1
    }

    /// The Redis command that a line, counted from 1, calls.
    pub(super) fn command_at(&self, line: usize) -> Option<&'static str> {
        let line = self.body.lines().nth(line.checked_sub(1)?)?;
        line.split_once("call('")?.1.split('\'').next()
    }
}

/// The name that Redis gives to a script.
pub(crate) fn sha1(body: &str) -> String {
    redis::Script::new(body).get_hash().to_owned()
}

/// One call of a script, the same for all nodes.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(super) script: &'static Script,
    pub(super) keys: Vec<String>,
    pub(super) args: Vec<String>,
    /// Sent with its body at once: one request that needs no answer before it is executed.
    pub(super) in_full: bool,
}

impl Call {
    pub(crate) fn new(script: &'static Script, keys: Vec<String>, args: Vec<String>) -> Call {
        Call { script, keys, args, in_full: false }
    }

    /// For a request that must be executed even if its answer is not waited for.
    pub(crate) fn in_full(self) -> Call {
        Call { in_full: true, ..self }
    }
}
