//! The Lua scripts, embedded as `scripts/build.rs` puts them together. Each file's header names its arguments and answers.

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

    /// How much of what is sent over a connection is read when it is closed: a TAKE and what undoes it twice, the second time by
    /// name.
    #[test]
    fn what_undoes_a_take_is_read_with_it_though_its_sender_has_gone() {
        let bytes = |key: usize| {
            let (part, arguments) = (20, 2_000); // a waiter with its name, three times
            let tokens = 3 * (8 * 34 + 10); // of tries that no node has confirmed to have undone
            UNDO.body.len() + 3 * 9 * (key + part) + arguments + tokens
        };
        // With a name of more than 256 bytes, or a TAKE in full (the first since the server knows no scripts), a lease may
        // be left until it runs out, if the server stands still at the same time.
        let bytes = bytes("redlock:".len() + 256);
        assert!(bytes < 16 * 1024, "{bytes}");
    }
}
