//! The Lua scripts, embedded. Each file's header names its arguments and answers.

use crate::redis::{BareCode, Script};

macro_rules! script {
    ($name:ident, $($part:literal),+) => {
        pub(super) static $name: Script = {
            const LUA: &str = concat!($(include_str!(concat!("scripts/", $part, ".lua"))),+);
            const CODE: BareCode<{ LUA.len() }> = BareCode::of(LUA);
            const BODY: &str = CODE.as_str();
            Script::new(BODY)
        };
    };
}

script!(
    TAKE, "prelude", "members", "drop", "line", "node", "record", "grant", "run", "take", "holders", "lengthen",
    "journal", "close", "contend"
);
script!(UNDO, "prelude", "members", "drop", "line", "undo");
script!(EXTEND, "prelude", "members", "node", "record", "holders", "lengthen", "extend");
script!(ENTER, "prelude", "members", "node", "record", "holders", "lengthen", "enter");
script!(
    RECREATE, "prelude", "members", "node", "record", "holders", "grant", "run", "journal", "close", "lengthen",
    "recreate"
);
script!(FENCE, "prelude", "members", "node", "record", "holders", "grant", "fence");
script!(
    RELEASE, "prelude", "members", "drop", "line", "node", "record", "run", "journal", "release", "holders", "close",
    "correct", "late"
);
script!(REVOKE, "prelude", "members", "drop", "line", "node", "record", "holders", "run", "journal", "part", "revoke");
script!(FIND, "prelude", "members", "part", "find");
script!(HOLDS, "prelude", "members", "node", "record", "holders", "holds");
script!(INSPECT, "prelude", "members", "node", "record", "holders", "inspect");
script!(RUNS, "prelude", "members", "node", "runs");

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
