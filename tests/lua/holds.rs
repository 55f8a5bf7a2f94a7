//! What the scripts do to the holds of a lease, and what they can still do on a server without memory.

use super::{LOCK, Scripts, part, run_id, word};
use crate::support::Redis;

/// Whether the lease ends about here, and all that expires with it.
#[track_caller]
fn lasts(redis: &Redis, ms: i64) {
    for key in [LOCK.to_owned(), part("lease"), part("holds")] {
        let left = redis.pttl(&key);
        assert!((ms - 15_000..=ms).contains(&left), "{key}: {left}, not {ms}");
    }
}

#[test]
fn what_an_inner_hold_has_added_stays_for_those_that_count_on_it() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    let reply = scripts.run("enter", "token=t hold=a ttl=3600000 default=30000");
    assert_eq!((reply.int("left"), reply.int("ttl")), (Some(3_600_000), Some(60_000)));
    lasts(&redis, 3_600_000);
    assert_eq!(scripts.run("release", "token=t hold=a").word(), "still-held");
    lasts(&redis, 3_600_000);
}

#[test]
fn the_release_of_a_hold_takes_nothing_from_the_others() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    // The outer one has been extended by hand, one inner one for longer, another for longest.
    assert_eq!(scripts.run("extend", "token=t ttl=200000").int("left"), Some(200_000));
    scripts.run("enter", "token=t hold=a ttl=400000 default=1");
    scripts.run("enter", "token=t hold=b ttl=600000 default=1");
    scripts.run("extend", "token=t hold=b ttl=800000");
    lasts(&redis, 800_000);
    assert_eq!(scripts.run("release", "token=t hold=b").int("holds"), Some(2));
    lasts(&redis, 800_000);
    // A release that names none may be said twice: it is told which hold to name.
    assert_eq!((scripts.release("t").word(), scripts.release("t").text("hold")), ("newest", "a"));
    assert_eq!(scripts.run("release", "token=t hold=a").int("holds"), Some(1));
    lasts(&redis, 800_000);
    // What is shorter than the ttl of the lease is not made longer.
    redis.command(&["PEXPIRE", LOCK, "20000"]);
    scripts.run("enter", "token=t hold=c ttl=1000 default=1");
    scripts.run("release", "token=t hold=c");
    assert!(redis.pttl(LOCK) <= 20_000);
}

#[test]
fn a_job_enters_for_as_long_as_the_lease_was_taken() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    redis.command(&["PEXPIRE", LOCK, "5000"]);
    let reply = scripts.run("enter", "token=t hold=a default=1");
    assert_eq!((reply.word(), reply.int("left"), reply.int("ttl")), ("extended", Some(60_000), Some(60_000)));
    // Nothing is known of the lease of another library.
    redis.command(&["FLUSHALL"]);
    redis.command(&["SET", LOCK, "t", "PX", "5000"]);
    let reply = scripts.run("enter", "token=t hold=a default=30000");
    assert_eq!((reply.word(), reply.int("left"), reply.int("ttl")), ("extended", Some(30_000), None));
}

#[test]
fn a_renewal_is_told_that_its_hold_was_forgotten() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let renew = |scripts: &mut Scripts, hold| {
        let reply = scripts.run("extend", &format!("token=t hold={hold} ttl=60000 renew=1"));
        assert_eq!((reply.word(), reply.int("left")), ("extended", Some(60_000)));
        (reply.int("holds"), reply.int("forgotten"))
    };
    scripts.take("", "t", "60000", "");
    // The outer job's own hold needs no entry.
    assert_eq!(renew(&mut scripts, "base"), (Some(1), None));
    assert!(!redis.exists(&part("holds")));
    assert_eq!(renew(&mut scripts, "a"), (Some(1), Some(1)));
    scripts.run("enter", "token=t hold=a default=1");
    assert_eq!(renew(&mut scripts, "a"), (Some(2), None));
    lasts(&redis, 60_000);
    assert_eq!(scripts.run("release", "token=t hold=base").int("holds"), Some(1));
    assert_eq!(redis.get(LOCK).as_deref(), Some("t"));
    assert_eq!(scripts.run("release", "token=t hold=a"), word("released"));
}

#[test]
fn nodes_that_restart_one_after_the_other_keep_the_inner_hold() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let run = run_id(&redis);
    // The inner job was first to create the lease again: the outer one's hold is there as well.
    assert_eq!(scripts.recreate("t", &run, false, "a").int("holds"), Some(2));
    assert_eq!(scripts.run("release", "token=t hold=a").int("holds"), Some(1));
    assert_eq!(scripts.run("release", "token=t hold=base"), word("released"));
    // The outer one was first.
    assert_eq!(scripts.recreate("t", &run, false, "base").int("holds"), Some(1));
    assert_eq!(scripts.recreate("t", &run, false, "a").int("holds"), Some(2));
    lasts(&redis, 60_000);
    assert_eq!(scripts.run("release", "token=t hold=base").int("holds"), Some(1));
}

#[test]
fn extending_by_hand_enters_nothing_and_is_refused_to_a_hold_that_was_given_up() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    let extend = |scripts: &mut Scripts| scripts.run("extend", "token=t hold=a ttl=90000");
    assert_eq!(extend(&mut scripts), word("no-hold"));
    scripts.run("enter", "token=t hold=a default=1");
    scripts.run("enter", "token=t hold=b default=1");
    assert_eq!(extend(&mut scripts).word(), "extended");
    scripts.run("release", "token=t hold=a");
    assert_eq!(scripts.run("extend", "token=t hold=a ttl=200000"), word("no-hold"));
    assert!(redis.pttl(LOCK) <= 90_000);
}

#[test]
fn a_renewal_that_comes_behind_the_release_of_its_hold_enters_nothing() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    scripts.run("enter", "token=t hold=a default=1");
    assert_eq!(scripts.run("release", "token=t hold=a").word(), "still-held");
    scripts.run("extend", "token=t hold=a ttl=60000 renew=1");
    assert_eq!(scripts.run("release", "token=t hold=base"), word("released"));
}

/// A server that has no memory left, with a lock that `t` holds.
fn full() -> (Redis, Scripts) {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    assert_eq!(scripts.take("", "t", "60000", "").word(), "granted");
    for name in ["extend", "release"] {
        scripts.run(name, "token=nobody");
    }
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(redis.try_query::<redis::Value>(&["SET", "x", "y"]).is_err());
    (redis, scripts)
}

#[test]
fn a_server_without_memory_keeps_a_lock_that_is_to_be_held_at_least() {
    let (redis, mut scripts) = full();
    assert_eq!(scripts.run("release", "token=t hold=base keep=3600000"), word("released"));
    for key in [LOCK.to_owned(), part("lease")] {
        assert!(redis.pttl(&key) > 3_500_000, "{key}");
    }
    let kept: Option<String> = redis.query(&["HGET", &part("lease"), "kept"]);
    assert!(kept.is_some());
}

#[test]
fn a_server_without_memory_still_extends_a_job_whose_hold_it_has_forgotten() {
    let (redis, mut scripts) = full();
    assert_eq!(scripts.run("extend", "token=t hold=a ttl=90000 renew=1").word(), "extended");
    assert!(redis.pttl(LOCK) > 60_000);
    // Nothing to lengthen.
    assert_eq!(scripts.run("extend", "token=t hold=b ttl=1000 renew=1").word(), "extended");
    assert_eq!(scripts.release("t"), word("released"));
}
