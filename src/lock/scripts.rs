//! The Lua scripts, embedded as `scripts/build.rs` builds them. Each file's header names its arguments and answers.

use crate::redis::Script;

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: Script = Script {
            body: include_str!(concat!(env!("OUT_DIR"), "/", $file, ".lua")),
            sha1: include_str!(concat!(env!("OUT_DIR"), "/", $file, ".sha1")),
        };
    };
}

script!(TAKE, "take");
script!(UNDO, "undo");
script!(EXTEND, "extend");
script!(ENTER, "enter");
script!(RECREATE, "recreate");
script!(FENCE, "fence");
script!(RELEASE, "release");
script!(REVOKE, "revoke");
script!(FIND, "find");
script!(HOLDS, "holds");
script!(INSPECT, "inspect");
script!(RUNS, "runs");

#[cfg(test)]
mod tests {
    use super::*;

    /// After the client has closed the connection, a server reads only 16 kB more. A TAKE and two UNDOs must fit. (The
    /// second UNDO has only the script's SHA1.)
    #[test]
    fn what_undoes_a_take_is_read_with_it_though_its_sender_has_gone() {
        let bytes = |key: usize| {
            let (part, arguments) = (20, 2_000); // a waiter with its name, three times
            let tokens = 3 * (8 * 34 + 10); // of tries whose undo no node has confirmed
            UNDO.body.len() + 3 * 9 * (key + part) + arguments + tokens
        };
        // With a name of more than 256 bytes, the requests may not fit. If the server does not know TAKE, it gets the
        // whole script, and the requests do not fit. If the server also hangs at that moment, the lease may remain
        // until its ttl is over.
        let bytes = bytes("redlock:".len() + 256);
        assert!(bytes < 16 * 1024, "{bytes}");
    }
}
