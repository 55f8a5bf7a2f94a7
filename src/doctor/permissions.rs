//! Permissions in Redis: the smallest ACL rule for redlock, and the script that finds which part is missing.

use crate::lock::keys::{Keys, beside, glob_escaped};

/// The commands that redlock sends for a lock, and that its scripts call. Some addresses need more (redlock.man).
const COMMANDS: &str = "+evalsha +eval +subscribe +unsubscribe +publish +get +set +del +exists +type +pttl +pexpire +persist \
                        +time +info +scan +hget +hmget +hgetall +hset +hsetnx +hdel \
                        +zadd +zcard +zrange +zrevrange +zrank +zscore +zrem +zpopmin +zpopmax +zcount +pexpireat +lpush \
                        +lset +lrem +ltrim +lrange +lindex +hincrby +pubsub|numsub +client|setname";

/// The commands that locks do not need: they serve the uptime, the list of all locks, and the log.
pub(super) const OPTIONAL: [&str; 8] = ["info", "scan", "lpush", "lset", "lrem", "ltrim", "lrange", "lindex"];

/// The rule that allows [`COMMANDS`], to be pasted into redis-cli. It creates a new user if `user` is none or
/// `default`.
pub(super) fn rule(user: Option<&str>, prefix: &str) -> String {
    let user = user.filter(|&user| user != "default").unwrap_or("locks on >PASSWORD");
    let (plain, beside) = (glob_escaped(prefix), glob_escaped(&beside(prefix)));
    // ACL SETUSER refuses a pattern after ~*.
    let keys = if prefix.is_empty() { "~*".to_owned() } else { format!("~{plain}* ~{beside}*") };
    format!("ACL SETUSER {user} resetkeys {keys} resetchannels &{beside}* -@all {COMMANDS}")
}

/// The request that asks which commands the user may not run on locks with this prefix.
pub(super) fn question(prefix: &str) -> Vec<String> {
    let Keys { lock, base } = Keys::of(&format!("{prefix}doctor"));
    let script = ["EVAL", include_str!("permitted.lua"), "0"].map(str::to_owned);
    // The request does not ask about subcommands: locks work without `client|setname` and `pubsub|numsub`.
    let commands = COMMANDS.split(' ').filter(|command| !command.contains('|'));
    let commands = commands.map(|command| command.replace('+', ""));
    script.into_iter().chain([lock, base.clone(), base]).chain(commands).collect()
}
