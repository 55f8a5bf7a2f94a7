//! The Lua scripts, embedded. Each file's header names its arguments and answers.

use crate::redis::{BareCode, Script};

// A function that is created searches all names of the one around it that are in use, but none of those further out: the rest of a
// script stands in a function, and costs a thirtieth less.
macro_rules! script {
    ($name:ident, $($part:literal),+) => {
        pub(super) static $name: Script = {
            const LUA: &str = concat!(
                include_str!("scripts/prelude.lua"),
                "return (function()\n",
                $(include_str!(concat!("scripts/", $part, ".lua"))),+,
                "end)()\n"
            );
            const CODE: BareCode<{ LUA.len() }> = BareCode::of(LUA);
            const BODY: &str = CODE.as_str();
            Script::new(BODY)
        };
    };
}

script!(
    TAKE, "members", "drop", "line", "node", "record", "grant", "run", "take", "holders", "lengthen", "journal",
    "close", "contend"
);
script!(UNDO, "members", "drop", "line", "undo");
script!(EXTEND, "members", "node", "record", "holders", "lengthen", "extend");
script!(ENTER, "members", "node", "record", "holders", "lengthen", "enter");
script!(RECREATE, "members", "node", "record", "holders", "grant", "run", "journal", "close", "lengthen", "recreate");
script!(FENCE, "members", "node", "record", "holders", "grant", "fence");
script!(
    RELEASE, "members", "drop", "line", "node", "record", "run", "journal", "release", "holders", "close", "correct",
    "late"
);
script!(REVOKE, "members", "drop", "line", "node", "record", "holders", "run", "journal", "revoke");
script!(FIND, "members", "find");
script!(HOLDS, "members", "node", "record", "holders", "holds");
script!(INSPECT, "members", "node", "record", "holders", "inspect");
script!(RUNS, "members", "node", "runs");

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
