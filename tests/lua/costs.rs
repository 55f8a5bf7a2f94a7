//! The costs in the heads of the scripts, on an exclusive lock for which nobody waits.

use super::{CLOCK, OWNER, Scripts, file, run_id};
use crate::support::Redis;
use regex_lite::Regex;

/// The first number of calls in the script's head.
fn cost(name: &str) -> u64 {
    let script = file(name);
    let cost = Regex::new(r"(?m)^--.* Cost: [a-z ,]*(\d+) calls?\b").unwrap();
    cost.captures(&script).unwrap_or_else(|| panic!("{name} says no cost"))[1].parse().unwrap()
}

/// The number of calls that scripts have made on this server since its statistics were reset.
fn calls(redis: &Redis) -> u64 {
    let stats: String = redis.query(&["INFO", "commandstats"]);
    let stats = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="));
    // Redis 6 counts `script`, later servers `script|load`.
    let is_ours = |command: &str| matches!(command.split('|').next(), Some("evalsha" | "script" | "config"));
    let by_script = stats.filter(|(command, _)| !is_ours(command));
    by_script.map(|(_, rest)| rest.split(',').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn the_head_of_each_script_says_how_many_commands_it_calls() {
    let redis = Redis::start();
    let (mut scripts, run) = (Scripts::on(redis.connection()), run_id(&redis));
    let take = format!("ttl=60000 now={CLOCK} {OWNER} entry={{\"h\":\"host\"}}");
    let recreate = format!("{take} fence=5 run_id={run} hold=base held=5 alone=1");
    let of_held = [
        ("release", "hold=base outcome=exited code=0 began=5 ended=1 entry={\"t\":\"t\"}"),
        ("extend", "ttl=70000"),
        ("enter", "hold=b ttl=70000"),
        ("holds", ""),
        ("fence", "fence=1800000000000"),
        ("find", "prefix=a"),
        ("inspect", "most=10"),
        ("revoke", "by=root"),
        ("close", "by=root ttl=1000"),
        ("runs", "most=10"),
        ("undo", ""),
    ];
    let of_free = [("take", take.as_str()), ("recreate", recreate.as_str())];
    let of_free = of_free.map(|script| (false, script));
    let mut wrong = Vec::new();
    for (is_held, (name, arguments)) in of_held.map(|script| (true, script)).into_iter().chain(of_free) {
        redis.query::<()>(&["FLUSHALL"]);
        if is_held {
            // The heads give the costs on a lock that had a run before. The first run of a lock costs more, because it
            // creates the keys.
            scripts.run("take", &format!("token=s {take}"));
            scripts.run("release", "token=s outcome=exited code=0");
            scripts.run("take", &format!("token=t {take}"));
        }
        redis.query::<()>(&["CONFIG", "RESETSTAT"]);
        scripts.run(name, &format!("token=t {arguments}"));
        let (said, calls) = (cost(name), calls(&redis));
        wrong.extend((said != calls).then(|| format!("{name} says {said}, calls {calls}")));
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
