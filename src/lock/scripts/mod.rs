//! The Lua scripts, as `scripts/build.rs` builds them. The head of each .lua file names the script's arguments and
//! answers.

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
script!(TRY, "try");
script!(EXTEND, "extend");
script!(ENTER, "enter");
script!(RECREATE, "recreate");
script!(FENCE, "fence");
script!(RELEASE, "release");
script!(REVOKE, "revoke");
script!(CLOSE, "close");
script!(FIND, "find");
script!(HOLDS, "holds");
script!(INSPECT, "inspect");
script!(RUNS, "runs");
script!(FORGET, "forget_all");

#[cfg(test)]
mod tests {
    use super::*;

    /// After a client has closed its connection, the server still reads 16 kB of requests, into which a TAKE and two
    /// UNDOs must fit. (The first UNDO carries the script's body, the second only its SHA1.)
    #[test]
    fn what_undoes_a_take_is_read_with_it_though_its_sender_has_gone() {
        let bytes = |key: usize| {
            let (part, arguments) = (20, 2_050); // a waiter with its name, three times
            let tokens = 3 * (8 * 34 + 10); // of tries whose undo no node has confirmed
            UNDO.body.len() + 3 * 9 * (key + part) + arguments + tokens
        };
        // The requests do not fit if the lock's name has more than 256 bytes, or if TAKE carries its whole body because
        // the server does not know TAKE's SHA1. If such a server also hangs when the client goes, the lease may remain
        // until its ttl is over.
        let bytes = bytes("redlock:".len() + 256);
        assert!(bytes <= 15_900, "{bytes}");
    }
}
