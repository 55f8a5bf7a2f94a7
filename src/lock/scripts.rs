//! The Lua scripts, embedded. Each file's header names its KEYS, ARGV and results.

use crate::redis::{Script, sha1};

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: Script = {
            const BODY: &str = concat!(include_str!("scripts/queue.lua"), include_str!($file));
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
