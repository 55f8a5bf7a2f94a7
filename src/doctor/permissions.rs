//! What redlock needs to be allowed in Redis: the smallest rule, and the question which part of it is missing.

use crate::lock::keys::{Keys, beside};

/// What redlock sends, and what its scripts call.
const COMMANDS: &str = "+evalsha +eval +subscribe +unsubscribe +publish +get +set +del +exists +type +pttl +pexpire +persist \
                        +time +info +scan +hget +hmget +hgetall +hset +hsetnx +hexists +hdel \
                        +zadd +zcard +zrange +zrevrange +zrank +zscore +zrem +zpopmin +zpopmax +client|setname";

/// Without these a lock works all the same: they tell how long a server has been up, its clock, and the list of all locks.
pub(super) const OPTIONAL: [&str; 3] = ["info", "time", "scan"];

/// The smallest rule that suffices, to be pasted into redis-cli. Without a user of its own a new one is made.
pub(super) fn rule(user: Option<&str>, prefix: &str) -> String {
    let user = user.filter(|&user| user != "default").unwrap_or("locks on >PASSWORD");
    let beside = beside(prefix);
    // No pattern may stand behind one that is for all keys.
    let keys = if prefix.is_empty() { "~*".to_owned() } else { format!("~{prefix}* ~{beside}*") };
    format!("ACL SETUSER {user} resetkeys {keys} resetchannels &{beside}* -@all {COMMANDS}")
}

/// The request that answers which commands the user may not run on locks with this prefix.
pub(super) fn question(prefix: &str) -> Vec<String> {
    let Keys { lock, base } = Keys::of(&format!("{prefix}doctor"));
    let script = ["EVAL", include_str!("permitted.lua"), "0"].map(str::to_owned);
    // The name in CLIENT LIST is nothing that a lock needs.
    let commands = COMMANDS.split(' ').filter(|command| !command.contains('|'));
    let commands = commands.map(|command| command.replace('+', ""));
    script.into_iter().chain([lock, base.clone(), base]).chain(commands).collect()
}
