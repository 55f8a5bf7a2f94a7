//! What redlock needs to be allowed in Redis: the smallest rule, and the question which part of it is missing.

/// What redlock sends, and what its scripts call.
const COMMANDS: &str = "+evalsha +eval +subscribe +unsubscribe +publish +get +set +del +exists +type +pttl +pexpire +persist \
                        +time +info +scan +hget +hmget +hgetall +hset +hsetnx +hexists +hdel \
                        +zadd +zcard +zrange +zrevrange +zrank +zscore +zrem +zpopmin +zpopmax +client|setname";

/// Without these a lock works all the same: they tell how long a server has been up, its clock, and the list of all locks.
pub(super) const OPTIONAL: [&str; 3] = ["info", "time", "scan"];

/// The smallest rule that suffices, to be pasted into redis-cli. Without a user a new one is made.
pub(super) fn rule(user: Option<&str>, prefix: &str) -> String {
    let user = user.filter(|&user| user != "default").unwrap_or("locks on >PASSWORD");
    format!("ACL SETUSER {user} resetkeys ~{prefix}* ~{{{prefix}* resetchannels &{{{prefix}* -@all {COMMANDS}")
}

/// The request that answers which commands the user may not run on the locks with this prefix.
pub(super) fn question(prefix: &str) -> Vec<String> {
    let (lock, part) = (format!("{prefix}doctor"), format!("{{{prefix}doctor}}:"));
    let fixed = ["EVAL", include_str!("permitted.lua"), "0", &lock, &part, &part].map(str::to_owned);
    // The name in CLIENT LIST is nothing that a lock needs.
    let commands = COMMANDS.split(' ').filter(|command| !command.contains('|'));
    fixed.into_iter().chain(commands.map(|command| command.replace('+', ""))).collect()
}
