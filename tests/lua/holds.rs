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
fn an_inner_hold_lengthens_the_lease_and_its_release_sets_it_back() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    let reply = scripts.run("enter", &["t", "a", "3600000", "30000"]);
    assert_eq!((reply.int(3), reply.int(4)), (Some(3_600_000), Some(60_000)));
    lasts(&redis, 3_600_000);
    assert_eq!(scripts.run("release", &["t.a", "t", "a", "0"]).text(0), "still-held");
    lasts(&redis, 60_000);
}

#[test]
fn the_release_of_a_hold_takes_nothing_from_the_others() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    // The outer one has been extended by hand, one inner one for longer, another for longest.
    assert_eq!(scripts.run("extend", &["t", "t", "200000", "1", ""]).int(1), Some(200_000));
    scripts.run("enter", &["t", "a", "400000", "1"]);
    scripts.run("enter", &["t", "b", "600000", "1"]);
    scripts.run("extend", &["t.b", "t", "800000", "1", ""]);
    lasts(&redis, 800_000);
    assert_eq!(scripts.run("release", &["t.b", "t", "b", "0"]).int(1), Some(2));
    lasts(&redis, 400_000);
    assert_eq!(scripts.run("release", &["t", "t", "newest", "0"]).int(1), Some(1));
    lasts(&redis, 200_000);
    // What is shorter than the ttl of the lease is not made longer.
    redis.command(&["PEXPIRE", LOCK, "20000"]);
    scripts.run("enter", &["t", "c", "1000", "1"]);
    scripts.run("release", &["t.c", "t", "c", "0"]);
    assert!(redis.pttl(LOCK) <= 20_000);
}

#[test]
fn a_job_enters_for_as_long_as_the_lease_was_taken() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    redis.command(&["PEXPIRE", LOCK, "5000"]);
    let reply = scripts.run("enter", &["t", "a", "0", "1"]);
    assert_eq!((reply.text(0), reply.int(3), reply.int(4)), ("granted", Some(60_000), Some(60_000)));
    // Nothing is known of the lease of another library.
    redis.command(&["FLUSHALL"]);
    redis.command(&["SET", LOCK, "t", "PX", "5000"]);
    let reply = scripts.run("enter", &["t", "a", "0", "30000"]);
    assert_eq!((reply.text(0), reply.int(3), reply.int(4)), ("granted", Some(30_000), Some(0)));
}

#[test]
fn a_renewal_enters_its_hold_again_where_it_was_forgotten() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let renew = |scripts: &mut Scripts, hold| scripts.run("extend", &["t", "t", "60000", "1", hold]).int(2);
    scripts.take("", "t", "60000", "");
    // The outer job's own hold needs no entry.
    assert_eq!(renew(&mut scripts, "base"), Some(1));
    assert!(!redis.exists(&part("holds")));
    assert_eq!(renew(&mut scripts, "a"), Some(2));
    assert_eq!(renew(&mut scripts, "a"), Some(2));
    lasts(&redis, 60_000);
    assert_eq!(scripts.run("release", &["t", "t", "base", "0"]).int(1), Some(1));
    assert_eq!(redis.get(LOCK).as_deref(), Some("t"));
    assert_eq!(scripts.run("release", &["t.a", "t", "a", "0"]), word("released"));
}

#[test]
fn nodes_that_restart_one_after_the_other_keep_the_inner_hold() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let run = run_id(&redis);
    // The inner job was first to create the lease again: the outer one's hold is there as well.
    assert_eq!(scripts.recreate("t", &run, "0", "a").int(2), Some(2));
    assert_eq!(scripts.run("release", &["t.a", "t", "a", "0"]).int(1), Some(1));
    assert_eq!(scripts.run("release", &["t", "t", "base", "0"]), word("released"));
    // The outer one was first.
    assert_eq!(scripts.recreate("t", &run, "0", "base").int(2), Some(1));
    assert_eq!(scripts.recreate("t", &run, "0", "a").int(2), Some(2));
    lasts(&redis, 60_000);
    assert_eq!(scripts.run("release", &["t", "t", "base", "0"]).int(1), Some(1));
}

#[test]
fn extending_by_hand_enters_nothing_and_is_refused_to_a_hold_that_was_given_up() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    let extend = |scripts: &mut Scripts| scripts.run("extend", &["t.a", "t", "90000", "1", ""]);
    let reply = extend(&mut scripts);
    assert_eq!((reply.text(0), reply.int(1)), ("no-hold", Some(1)));
    scripts.run("enter", &["t", "a", "0", "1"]);
    scripts.run("enter", &["t", "b", "0", "1"]);
    assert_eq!(extend(&mut scripts).text(0), "extended");
    scripts.run("release", &["t.a", "t", "a", "0"]);
    assert_eq!(extend(&mut scripts).int(1), Some(2));
    assert!(redis.pttl(LOCK) <= 60_000);
}

/// A server that has no memory left, with a lock that `t` holds.
fn full() -> (Redis, Scripts) {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    assert_eq!(scripts.take("", "t", "60000", "").text(0), "granted");
    for name in ["extend", "release"] {
        scripts.run(name, &["nobody", "nobody", "newest", "0", ""]);
    }
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(redis.try_query::<redis::Value>(&["SET", "x", "y"]).is_err());
    (redis, scripts)
}

#[test]
fn a_server_without_memory_keeps_a_lock_that_is_to_be_held_at_least() {
    let (redis, mut scripts) = full();
    assert_eq!(scripts.run("release", &["t", "t", "base", "3600000"]), word("released"));
    for key in [LOCK.to_owned(), part("lease")] {
        assert!(redis.pttl(&key) > 3_500_000, "{key}");
    }
    let kept: Option<String> = redis.query(&["HGET", &part("lease"), "kept"]);
    assert!(kept.is_some());
}

#[test]
fn a_server_without_memory_still_extends_a_job_whose_hold_it_has_forgotten() {
    let (redis, mut scripts) = full();
    assert_eq!(scripts.run("extend", &["t", "t", "90000", "1", "a"]).text(0), "extended");
    assert!(redis.pttl(LOCK) > 60_000);
    // Nothing to lengthen: the hold is the first thing to be written, and refused.
    assert_eq!(scripts.run("extend", &["t", "t", "1000", "1", "b"]).text(0), "extended");
    assert_eq!(scripts.run("release", &["t", "t", "newest", "0"]).text(0), "still-held");
    assert_eq!(scripts.run("release", &["t", "t", "newest", "0"]), word("released"));
}
