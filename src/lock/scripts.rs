//! The Lua scripts, embedded. Each file's header names its arguments and answers.

use crate::redis::{BareCode, Script, sha1};

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: Script = {
            const LUA: &str = concat!(include_str!("scripts/prelude.lua"), include_str!($file));
            const CODE: BareCode<{ LUA.len() }> = BareCode::of(LUA);
            const BODY: &str = CODE.as_str();
            Script::new(BODY, || sha1(BODY))
        };
    };
}

script!(TAKE, "scripts/take.lua");
script!(LEAVE, "scripts/leave.lua");
script!(ROLLBACK, "scripts/rollback.lua");
script!(EXTEND, "scripts/extend.lua");
script!(ENTER, "scripts/enter.lua");
script!(RECREATE, "scripts/recreate.lua");
script!(FENCE, "scripts/fence.lua");
script!(RELEASE, "scripts/release.lua");
script!(REVOKE, "scripts/revoke.lua");
script!(HOLDS, "scripts/holds.lua");
script!(INSPECT, "scripts/inspect.lua");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_undoes_a_take_is_read_with_it_though_its_sender_has_gone() {
        let keys_and_arguments = 1_500;
        let bytes = ROLLBACK.body().len() + LEAVE.body().len() + 3 * keys_and_arguments;
        assert!(bytes < 16 * 1024, "{bytes}");
    }
}
