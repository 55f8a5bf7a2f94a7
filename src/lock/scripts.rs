//! The Lua scripts, embedded. Each file's header names its arguments and answers.

use crate::redis::{BareCode, Script, sha1};

macro_rules! script {
    ($name:ident, $($part:literal),+) => {
        pub(super) static $name: Script = {
            const LUA: &str = concat!($(include_str!(concat!("scripts/", $part, ".lua"))),+);
            const CODE: BareCode<{ LUA.len() }> = BareCode::of(LUA);
            const BODY: &str = CODE.as_str();
            Script::new(BODY, || sha1(BODY))
        };
    };
}

script!(TAKE, "prelude", "lease", "take");
script!(LEAVE, "prelude", "leave");
script!(ROLLBACK, "prelude", "rollback");
script!(EXTEND, "prelude", "lease", "extend");
script!(ENTER, "prelude", "lease", "enter");
script!(RECREATE, "prelude", "lease", "recreate");
script!(FENCE, "prelude", "lease", "fence");
script!(RELEASE, "prelude", "lease", "release");
script!(REVOKE, "prelude", "lease", "revoke");
script!(HOLDS, "prelude", "lease", "holds");
script!(INSPECT, "prelude", "lease", "inspect");

#[cfg(test)]
mod tests {
    use super::*;

    /// How much of what is sent over a connection is read when it is closed: a TAKE and the two scripts that undo it.
    #[test]
    fn what_undoes_a_take_is_read_with_it_though_its_sender_has_gone() {
        let bytes = |key: usize, bodies: &[&Script]| {
            let (part, arguments) = (20, 1_600);
            bodies.iter().map(|script| script.body().len()).sum::<usize>() + 3 * 6 * (key + part) + arguments
        };
        let longest = "redlock:".len() + 512;
        for bytes in [bytes(longest, &[&ROLLBACK, &LEAVE]), bytes(64, &[&TAKE, &ROLLBACK, &LEAVE])] {
            assert!(bytes < 16 * 1024, "{bytes}");
        }
    }
}
