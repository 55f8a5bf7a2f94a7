//! A Lua script, and one call of it.

use const_sha1::{Digest, sha1};
use redis::Cmd;
use std::time::Duration;

/// A Lua script, sent with its body only to a server that does not know its name.
pub(crate) struct Script {
    pub(crate) body: &'static str,
    /// The SHA-1 of the body.
    name: Digest,
}

impl Script {
    /// Called in a constant: the name is computed by the compiler, as it would take 0.05 ms at each start.
    pub(crate) const fn new(body: &'static str) -> Script {
        Script { body, name: sha1(body.as_bytes()) }
    }
}

/// Lua code without lines of comment and without indentation, stripped by the compiler. A server reads only 16 kB from a client
/// that has gone: a TAKE and the script that undoes it have to fit in that.
#[derive(Debug)]
pub(crate) struct BareCode<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> BareCode<N> {
    /// `N` is the length of `lua`, in which no string spans lines.
    pub(crate) const fn of(lua: &str) -> BareCode<N> {
        let lua = lua.as_bytes();
        let mut bare = BareCode { bytes: [0; N], length: 0 };
        let mut at = 0;
        while at < lua.len() {
            if lua[at] == b' ' || lua[at] == b'\n' {
                at += 1;
                continue;
            }
            let is_code = lua[at] != b'-'; // no line of code begins like that
            while at < lua.len() && lua[at] != b'\n' {
                if is_code {
                    bare.bytes[bare.length] = lua[at];
                    bare.length += 1;
                }
                at += 1;
            }
            if is_code {
                bare.bytes[bare.length] = b'\n';
                bare.length += 1;
            }
        }
        bare
    }

    pub(crate) const fn as_str(&self) -> &str {
        match std::str::from_utf8(self.bytes.split_at(self.length).0) {
            Ok(code) => code,
            Err(_) => panic!("whole lines of a text are text"),
        }
    }
}

/// One call of a script, the same for all nodes.
#[derive(Clone)]
pub(crate) struct Call {
    pub(super) script: &'static Script,
    pub(super) keys: Vec<String>,
    pub(super) args: Vec<Vec<u8>>,
    pub(super) delivery: Delivery,
    /// The beginning of all keys that the script may use beside those, and the rest of each with its type.
    pub(super) beside: (String, &'static [(&'static str, &'static str)]),
}

/// The way of a call to a node whose connection may be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// The call goes once, over a new connection if the last request got no answer.
    Once,
    /// The call goes once, with its body, over the connection of the request that it undoes. It arrives behind that request,
    /// and is executed even if the caller does not wait for the answer.
    SameConnection,
    /// The call goes once, and the next request over the same connection, behind it.
    InOrder,
    /// The call goes over the open connection, and after each such pause without an answer over another new one. The first
    /// answer counts, even to an earlier call of this kind.
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

    /// The same with one more key, behind all others.
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

    /// The same call, for a request that does no harm if it is executed twice, or late.
    pub(crate) fn hedged(self, pause: Duration) -> Call {
        Call { delivery: Delivery::Hedged(pause), ..self }
    }

    /// The request for a server that knows the script.
    pub(super) fn by_name(&self) -> Cmd {
        self.command("EVALSHA", &self.script.name.to_string())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_the_name_that_redis_gives_to_it() {
        // All lengths around a border of 64 bytes, where the padding changes.
        for length in 0..200 {
            let body = "x".repeat(length);
            let name = sha1(body.as_bytes()).to_string();
            assert_eq!(name, redis::Script::new(&body).get_hash(), "{length} bytes");
        }
    }

    #[test]
    fn bare_code_has_no_lines_of_comment_and_no_indentation() {
        const LUA: &str =
            "-- A head.\n\nlocal a = 'x -- y,  z' -- why\nif not a then\n  -- Because.\n  return 1 .. -1\nend\n";
        assert_eq!(
            BareCode::<{ LUA.len() }>::of(LUA).as_str(),
            "local a = 'x -- y,  z' -- why\nif not a then\nreturn 1 .. -1\nend\n"
        );
    }
}
