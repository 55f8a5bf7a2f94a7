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

script!(TAKE, "prelude", "line", "lease", "journal", "take");
script!(UNDO, "prelude", "line", "undo");
script!(EXTEND, "prelude", "line", "lease", "extend");
script!(ENTER, "prelude", "line", "lease", "enter");
script!(RECREATE, "prelude", "line", "lease", "journal", "recreate");
script!(FENCE, "prelude", "line", "lease", "fence");
script!(RELEASE, "prelude", "line", "lease", "journal", "release");
script!(REVOKE, "prelude", "line", "lease", "journal", "members", "revoke");
script!(FIND, "prelude", "line", "lease", "members", "find");
script!(HOLDS, "prelude", "line", "lease", "holds");
script!(INSPECT, "prelude", "line", "lease", "inspect");
script!(RUNS, "prelude", "line", "lease", "runs");

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
            UNDO.body().len() + 3 * 9 * (key + part) + arguments + tokens
        };
        // With a name of more than 256 bytes, or a TAKE in full (the first since the server knows no scripts), a lease may
        // be left until it runs out, if the server stands still at the same time.
        let bytes = bytes("redlock:".len() + 256);
        assert!(bytes < 16 * 1024, "{bytes}");
    }
}
