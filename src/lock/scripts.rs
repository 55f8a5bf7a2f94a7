//! The Lua scripts, embedded. Each file's header names its KEYS, ARGV and results.

use std::sync::LazyLock;

/// One script: what is sent when the server knows it, and when it does not.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) body: &'static str,
    sha1: LazyLock<String>,
    /// What its answer can begin with.
    pub(super) words: &'static [&'static str],
}

macro_rules! script {
    ($name:ident, $file:literal, $words:expr) => {
        pub(super) static $name: Script = Script {
            body: concat!(include_str!("scripts/queue.lua"), include_str!($file)),
            sha1: LazyLock::new(|| redis_sha1($name.body)),
            words: &$words,
        };
    };
}

script!(TAKE, "scripts/take.lua", ["granted", "held", "foreign"]);
script!(LEAVE, "scripts/leave.lua", ["left"]);
script!(ROLLBACK, "scripts/rollback.lua", ["left"]);
script!(EXTEND, "scripts/extend.lua", ["extended", "revoked", "gone", "other"]);
script!(ENTER, "scripts/enter.lua", ["granted", "gone", "other"]);
script!(REJOIN, "scripts/rejoin.lua", ["extended", "other"]);
script!(FENCE, "scripts/fence.lua", ["granted", "higher", "gone"]);
script!(RELEASE, "scripts/release.lua", ["released", "still-held", "gone", "other"]);
script!(REVOKE, "scripts/revoke.lua", ["revoked", "released", "gone", "other", "foreign"]);
script!(HOLDS, "scripts/holds.lua", ["holds", "gone"]);
script!(INSPECT, "scripts/inspect.lua", ["free", "held", "foreign"]);

impl Script {
    /// The name by which EVALSHA knows it.
    pub(super) fn sha1(&self) -> &str {
        &self.sha1
    }
}

fn redis_sha1(body: &str) -> String {
    super::node::script_name(body)
}
