//! `redlock release`: ends the caller's own lease, and with --force another's.

use crate::support::{Redis, Test, acquire, acquire_for, any, lapsed, like, message, myself, redlock, release, status};

fn releasing(redis: &Redis, name: &str, token: &str) -> Test {
    Test::new(redis).args(["release", "-q", "--name", name, "--token", token])
}

#[test]
fn a_token_that_holds_nothing_is_told_what_can_be_told() {
    let redis = Redis::start();
    let not_held = "redlock: \"backup\" is not held: the lease was released or ran out, or the name is wrong\n";
    let token = lapsed(&redis, "backup");
    releasing(&redis, "backup", &token).status(77).stderr(not_held).run();
    let token = acquire(&redis, "backup");
    releasing(&redis, "backup", &token).run();
    releasing(&redis, "backup", &token).status(77).stderr(not_held).run();
    acquire(&redis, "backup");
    let (user, host) = myself();
    let held = format!("it is held by {user}@{host}, pid <n>, for <duration>, lease <duration> left");
    let other = format!("redlock: the token does not hold \"backup\": {held}\n");
    releasing(&redis, "backup", &token).status(77).stderr(like(other)).run();
}

#[test]
fn only_ones_own() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    for wrong in ["nonsense", &token[..8], &format!("{token}x"), &token.to_uppercase()] {
        releasing(&redis, "backup", wrong).fails(77, ["\"backup\""]).run();
    }
    assert_eq!(redis.get("redlock:backup"), Some(token));
}

#[test]
fn json_has_its_exact_shape() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    let shape = "{\"name\":\"backup\",\"outcome\":\"released\",\"holds\":0,\"validity_ms\":<word>}\n";
    releasing(&redis, "backup", &token).args(["--format", "json"]).stdout(like(shape)).run();
}

#[test]
fn name_and_token_come_from_the_environment_as_a_pair() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    let paired = || redlock(&redis, "release -q").env("REDLOCK_NAME", "backup").env("REDLOCK_TOKEN", &token);
    paired().args(["--name", "other"]).fails(64, ["--token"]).run();
    assert!(redis.exists("redlock:backup"));
    paired().run();
    assert!(!redis.exists("redlock:backup"));
}

#[test]
fn force_frees_at_once_and_reports_whose_lease_it_was() {
    let redis = Redis::start();
    let token = acquire_for(&redis, "backup", "1m");
    let (user, host) = myself();
    let said = redlock(&redis, "release backup --force").text();
    assert!(said.contains(&format!("{user}@{host}")), "{said:?}");
    assert!(!said.contains("job"), "a lease of acquire has none: {said:?}");
    assert!(said.contains("59s") || said.contains("1m"), "for how long its holder may go on: {said:?}");
    assert!(!redis.exists("redlock:backup"));
    redlock(&redis, format!("extend backup --token {token}")).fails(77, ["\"backup\" is not held"]).run();
}

#[test]
fn a_status_that_cannot_be_logged_is_said() {
    let redis = Redis::start();
    redis.command(&["SET", "{redlock:backup}:\u{1f}log", "x"]);
    let unlogged =
        "redlock: the log of \"backup\" could not be written: <node> could not note it (<any>WRONGTYPE<any>)\n";
    for (quiet, said) in [("", &*format!("redlock: released \"backup\"\n{unlogged}")), ("-q", unlogged)] {
        let token = acquire(&redis, "backup");
        let line = format!("release backup --token {token} --status 0 {quiet}");
        redlock(&redis, line.trim_end()).stderr(like(said)).run();
    }
}

/// The restart makes the holder renew. It then learns that its lease is lost, and must not take the lock again.
#[test]
fn what_force_has_freed_stays_free_though_the_server_restarts_before_the_holder_knows() {
    let mut redis = Redis::durable();
    let job = redlock(&redis, "run -q backup --ttl 30s -- sh -c").arg("echo ready; sleep 5");
    let job = job.status(76).stderr(any()).ready();
    redlock(&redis, "release -q backup --force").run();
    redis.restart();
    job.finish();
    assert_eq!(status(&redis, "backup")["last"]["outcome"], "revoked");
}

#[test]
fn force_frees_a_foreign_lease_but_not_another_type() {
    let redis = Redis::start();
    redis.command(&["SET", "redlock:backup", "theirs"]);
    redlock(&redis, "release backup --force").stdout(any()).run();
    assert!(!redis.exists("redlock:backup"));
    redis.command(&["HSET", "redlock:backup", "field", "1"]);
    for how in ["release backup --force", "stop backup"] {
        let test = redlock(&redis, how).status(75);
        let said = "redlock: \"backup\" exists but is not a lock (its key is not a string, and never expires); \
                    redlock does not delete it\n";
        test.stderr(said).run();
    }
    assert!(redis.exists("redlock:backup"));
}

#[test]
fn force_and_stop_refuse_when_the_holder_has_changed() {
    let redis = Redis::start();
    let old = acquire(&redis, "backup");
    release(&redis, "backup", &old);
    let new = acquire(&redis, "backup");
    for how in ["release backup --force", "stop backup"] {
        for prefix in [&old[..8], &old] {
            let test = redlock(&redis, how).args(["--token", prefix]).status(77);
            test.stdout(any()).stderr(message(["\"backup\""])).run();
        }
    }
    assert_eq!(redis.get("redlock:backup").as_ref(), Some(&new));
    redlock(&redis, "release backup --force --token").arg(&new[..8]).stdout(any()).run();
    assert!(!redis.exists("redlock:backup"));
}

#[test]
fn force_ignores_the_token_in_the_environment() {
    let redis = Redis::start();
    let theirs = acquire(&redis, "theirs");
    let test = redlock(&redis, "release theirs --force").stdout(any());
    test.env("REDLOCK_NAME", "mine").env("REDLOCK_TOKEN", "my-own-token").run();
    assert_ne!(redis.get("redlock:theirs"), Some(theirs));
}
