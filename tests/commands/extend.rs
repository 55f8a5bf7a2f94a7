//! `redlock extend`: never shortens a lease, never re-creates a lost lease, never touches a lease of another token.

use crate::support::{Redis, SOON, Test, acquire, acquire_for, eventually, lapsed, like, message, redlock};

fn extend(redis: &Redis, name: &str, token: &str) -> Test {
    Test::new(redis).args(["extend", "-q", "--name", name, "--token", token])
}

#[test]
fn takes_the_ttl_that_the_lease_was_taken_with() {
    let redis = Redis::start();
    let token = acquire_for(&redis, "backup", "50s");
    redis.command(&["PEXPIRE", "redlock:backup", "5000"]);
    extend(&redis, "backup", &token).run();
    let left = redis.pttl("redlock:backup");
    assert!((45_000..=50_000).contains(&left), "{left}");
}

#[test]
fn everything_that_belongs_to_the_lease_lasts_as_long() {
    let redis = Redis::start();
    let token = acquire_for(&redis, "backup", "10s");
    extend(&redis, "backup", &token).args(["--ttl", "1m"]).run();
    for key in redis.keys_without_history() {
        assert!(redis.pttl(&key) > 50_000, "{key}: {}", redis.pttl(&key));
    }
}

#[test]
fn never_shortens_a_lease() {
    let redis = Redis::start();
    let token = acquire_for(&redis, "backup", "60s");
    extend(&redis, "backup", &token).args(["--ttl", "5s"]).run();
    let left = redis.pttl("redlock:backup");
    assert!(left > 50_000, "{left}");
}

#[test]
fn never_brings_a_lost_lease_back() {
    let redis = Redis::start();
    let token = lapsed(&redis, "backup");
    eventually(SOON, "all but the counter has expired", || redis.keys_without_history().len() == 1);
    let before = redis.keys_without_history();
    extend(&redis, "backup", &token).fails(77, ["\"backup\""]).run();
    let again = acquire(&redis, "gone");
    redis.command(&["DEL", "redlock:gone"]);
    extend(&redis, "gone", &again).fails(77, ["\"gone\""]).run();
    assert!(!redis.exists("redlock:backup") && !redis.exists("redlock:gone"));
    assert!(before.iter().all(|key| redis.exists(key)));
}

#[test]
fn only_ones_own() {
    let redis = Redis::start();
    let token = acquire_for(&redis, "backup", "20s");
    let other = acquire(&redis, "other");
    for wrong in [other.as_str(), "nonsense", &token[..8], &format!("{token}x"), &token.to_uppercase()] {
        extend(&redis, "backup", wrong).args(["--ttl", "1h"]).fails(77, ["\"backup\""]).run();
    }
    assert!(redis.pttl("redlock:backup") <= 20_000);
    extend(&redis, "backup", &token).run();
}

#[test]
fn json_has_its_exact_shape() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    let object = extend(&redis, "backup", &token)
        .args(["--ttl", "40s", "--format", "json"])
        .stdout(like("{\"name\":\"backup\",\"outcome\":\"extended\",\"holds\":1,\"validity_ms\":<n>}\n"))
        .run()
        .json();
    let validity = object["validity_ms"].as_u64().unwrap();
    assert!((35_000..=39_598).contains(&validity), "ttl less 1 % and 2 ms: {validity}");
}

#[test]
fn the_name_may_be_a_plain_argument() {
    let redis = Redis::start();
    let token = acquire_for(&redis, "backup", "10s");
    redlock(&redis, format!("extend -q backup --token {token} --ttl 1m")).run();
    redlock(&redis, format!("renew -q --token {token} --ttl 2m backup")).run();
    assert!(redis.pttl("redlock:backup") > 110_000);
    let help = Test::bare().args(["--help"]).text();
    assert!(help.contains("extend") && !help.contains("renew "), "renew is a hidden alias");
}

#[test]
fn name_and_token_come_from_the_environment_as_a_pair() {
    let redis = Redis::start();
    let token = acquire_for(&redis, "backup", "10s");
    let paired = || redlock(&redis, "extend -q").env("REDLOCK_NAME", "backup").env("REDLOCK_TOKEN", &token);
    paired().args(["--ttl", "1m"]).run();
    assert!(redis.pttl("redlock:backup") > 50_000);
    paired().args(["--name", "backup", "--ttl", "2m"]).run();
    assert!(redis.pttl("redlock:backup") > 110_000);
    // The two variables belong together: a call that gives another token or another name must give both.
    paired().args(["--token", "nonsense"]).fails(64, ["name"]).run();
    paired().args(["--name", "other"]).fails(64, ["--token"]).run();
    for (name, value) in [("REDLOCK_NAME", "backup"), ("REDLOCK_TOKEN", &token)] {
        let half = redlock(&redis, "extend").env(name, value).status(64);
        half.stderr(message(["missing lock name: give NAME and --token T", "REDLOCK_TOKEN"])).run();
    }
}

#[test]
fn a_foreign_lease_with_a_known_token_can_be_lengthened() {
    let redis = Redis::start();
    redis.command(&["SET", "redlock:backup", "their-own-value", "PX", "5000"]);
    extend(&redis, "backup", "their-own-value").args(["--ttl", "1m"]).run();
    assert!(redis.pttl("redlock:backup") > 50_000);
    extend(&redis, "backup", "another-value").args(["--ttl", "1h"]).fails(77, ["\"backup\""]).run();
    assert!(redis.pttl("redlock:backup") <= 60_000);
}
