//! Re-entrancy: holds with tokens of their own, kept as a set and not as a count.

use crate::support::{
    Mode, Proxy, Redis, SOON, Where, acquire, acquire_for, acquire_on_all, any, eventually, lapsed, like, message, ms,
    redlock, release, status, when,
};
use serde_json::Value;

/// Enters a lease once more and returns the token of the hold.
#[track_caller]
fn enter<W: Where + ?Sized>(servers: &W, token: &str) -> String {
    let test = redlock(servers, format!("acquire backup --reentrant --token {token}"));
    test.token()
}

/// Returns the outcome and the number of holds that are left.
#[track_caller]
fn give_up<W: Where + ?Sized>(servers: &W, token: &str) -> (String, Value) {
    let object = redlock(servers, format!("release backup --token {token} --format json")).json();
    (object["outcome"].as_str().unwrap().to_owned(), object["holds"].clone())
}

fn still_held(left: u64) -> (String, Value) {
    ("still-held".to_owned(), left.into())
}

fn released() -> (String, Value) {
    ("released".to_owned(), 0.into())
}

fn holds<W: Where + ?Sized>(servers: &W) -> Value {
    status(servers, "backup")["holders"][0]["holds"].clone()
}

#[test]
fn a_hold_has_a_token_of_its_own_that_begins_with_the_leases() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    let (first, second) = (enter(&redis, &token), enter(&redis, &token));
    assert!(first.starts_with(&token) && second.starts_with(&token));
    assert!(first != second && first != token && second != token);
    assert_eq!(redis.get("redlock:backup"), Some(token));
    assert_eq!(holds(&redis), 3);
}

#[test]
fn json_of_a_hold() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    let shape = format!(
        "{{\"name\":\"backup\",\"key\":\"redlock:backup\",\"token\":\"{token}<any>\",\"fencing_token\":<n>,\"slot\":null,\
         \"ttl_ms\":<n>,\"validity_ms\":<n>,\"holds\":2,\"waited_ms\":<n>}}\n"
    );
    let test = redlock(&redis, format!("acquire backup --reentrant --token {token}"));
    let hold = test.args(["--format", "json"]).stdout(like(shape)).run().json()["token"].as_str().unwrap().to_owned();
    let test = redlock(&redis, format!("extend backup --token {hold} --format json"));
    let shape = "{\"name\":\"backup\",\"outcome\":\"extended\",\"holds\":2,\"validity_ms\":<n>}\n";
    test.stdout(like(shape)).run();
}

#[test]
fn the_lock_is_free_with_the_last_hold_whichever_goes_first() {
    let redis = Redis::start();
    for first in 0..3 {
        let token = acquire(&redis, "backup");
        let holds = [enter(&redis, &token), enter(&redis, &token), token.clone()];
        assert_eq!(give_up(&redis, &holds[first]), still_held(2), "{first}");
        assert_eq!(redis.get("redlock:backup").as_ref(), Some(&token));
        // Each release by the plain token ends the newest hold that is left.
        assert_eq!(give_up(&redis, &token), still_held(1), "{first}");
        assert_eq!(give_up(&redis, &token), released(), "{first}");
        assert_eq!(redis.keys_without_history(), ["{redlock:backup}:\u{1f}fence"]);
    }
}

#[test]
fn releasing_a_hold_may_be_repeated() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    let (first, second) = (enter(&redis, &token), enter(&redis, &token));
    assert_eq!(give_up(&redis, &first), still_held(2));
    assert_eq!(give_up(&redis, &first), still_held(2));
    assert_eq!(give_up(&redis, &second), still_held(1));
    for _ in 0..3 {
        assert_eq!(give_up(&redis, &second), still_held(1));
        assert_eq!(give_up(&redis, &first), still_held(1));
    }
    assert_eq!(give_up(&redis, &token), released());
}

#[test]
fn the_four_results() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    let hold = enter(&redis, &token);
    let say = |token: &str| redlock(&redis, format!("release backup --token {token}"));
    say(&hold).stderr(message(["\"backup\"", "still held", "1"])).run();
    say(&token).stderr(message(["released \"backup\""])).run();
    say(&token).fails(77, ["\"backup\" is not held"]).run();
    acquire(&redis, "backup");
    say(&token).fails(77, ["\"backup\"", "it is held by"]).run();
    say(&hold).fails(77, ["\"backup\"", "it is held by"]).run();
}

#[test]
fn a_lease_that_has_ended_cannot_be_entered() {
    let redis = Redis::start();
    let token = lapsed(&redis, "backup");
    let enter = || redlock(&redis, format!("acquire backup --reentrant --token {token}"));
    enter().fails(77, ["\"backup\""]).run();
    assert!(!redis.exists("redlock:backup"));
    let theirs = acquire(&redis, "backup");
    enter().fails(77, ["\"backup\""]).run();
    enter().arg("--wait").fails(77, ["\"backup\""]).run();
    assert_eq!(redis.get("redlock:backup"), Some(theirs));
}

#[test]
fn entering_never_shortens_the_lease_but_may_lengthen_it() {
    let redis = Redis::start();
    let token = acquire_for(&redis, "backup", "1m");
    let enter = |ttl: &str| {
        redlock(&redis, format!("acquire backup --reentrant --token {token}")).args(["--ttl", ttl]).stdout(any()).run();
    };
    enter("5s");
    assert!(redis.pttl("redlock:backup") > 50_000);
    enter("2m");
    assert!(redis.pttl("redlock:backup") > 110_000);
    assert!(redis.keys_without_history().iter().all(|key| redis.pttl(key) > 110_000));
}

#[test]
fn all_holds_end_with_the_lease() {
    let redis = Redis::start();
    let token = acquire_for(&redis, "backup", "4s");
    let hold = redlock(&redis, format!("acquire backup --reentrant --token {token} --ttl 4s")).token();
    eventually(SOON, "expired", || redis.keys_without_history() == ["{redlock:backup}:\u{1f}fence"]);
    for token in [&hold, &token] {
        let release = redlock(&redis, format!("release -q backup --token {token}")).status(77);
        release.stderr(message(["\"backup\" is not held"])).run();
    }
    let token = acquire(&redis, "backup");
    assert_eq!(holds(&redis), 1);
    release(&redis, "backup", &token);
}

#[test]
fn a_hold_whose_reply_was_lost_does_not_stay() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    let token = acquire(&redis, "backup");
    proxy.set(Mode::LoseReplies);
    let test = redlock(&proxy, format!("acquire backup --reentrant --token {token}"));
    test.args(["--node-timeout", "200ms"]).fails(69, ["\"backup\""]).run();
    eventually(SOON, "given up", || holds(&redis) == 1);
    assert_eq!(give_up(&redis, &token), released());
}

#[test]
fn a_nested_run_enters_with_reentrant_and_leaves_the_outer_lease_alone() {
    let redis = Redis::start();
    let script = "set -e
        outer=$REDLOCK_TOKEN fencing=$REDLOCK_FENCING_TOKEN
        redlock run -q --reentrant --name backup -- sh -ec '
            test \"$REDLOCK_TOKEN\" != '$outer'
            test \"$REDLOCK_FENCING_TOKEN\" = '$fencing'
            redlock extend -q
            redlock status --format json backup'
        redlock status -q --token $outer backup >&2
        redlock status --format json backup";
    let finished = redlock(&redis, "run -q backup -- sh -c").arg(script).stdout(any()).run();
    let objects: Vec<Value> = finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects[0]["holders"][0]["holds"], 2);
    assert_eq!(objects[1]["holders"][0]["holds"], 1);
    assert!(!redis.exists("redlock:backup"));
}

#[test]
fn a_nested_run_may_nest_deeper_and_passes_statuses_on() {
    let redis = Redis::start();
    let script = "redlock run -q --reentrant --name backup -- \
        redlock run -q --reentrant --name backup -- \
        redlock run -q --reentrant --name backup -- sh -c 'redlock status --format json backup; exit 5'";
    let finished = redlock(&redis, "run -q backup -- sh -c").arg(script).stdout(any()).status(5).run();
    assert_eq!(finished.json()["holders"][0]["holds"], 4);
    assert!(!redis.exists("redlock:backup"));
}

#[test]
fn without_reentrant_a_nested_call_is_told_that_it_waits_for_itself_and_what_helps() {
    let redis = Redis::start();
    let inside = |call: &str, advice: &'static str| {
        let test = redlock(&redis, "run -q a -- sh -c").arg(format!("redlock {call}; test $? = 75"));
        let said = move |text: &str| {
            text.starts_with("redlock: \"a\" is held by the enclosing job, ") && text.trim_end().ends_with(advice)
        };
        test.stderr(when(format!("{call}: {advice}"), said)).run();
    };
    let reenter = "; use --reentrant to re-enter it";
    inside("run a -- echo never", reenter);
    inside("run -q a --wait -- echo never", reenter);
    inside("acquire a", reenter);
    // Even -q and -E 0 do not make this refusal a success, because the inner job can never run.
    inside("run a -q -E 0 -- echo never", reenter);
    // Calls that do not accept --reentrant get another advice.
    let leave = "; waiting for it would never end";
    inside("run --name a --name b -- true", leave);
    inside("run a --shared -- true", leave);
    inside("run a --once-per 1h -- true", leave);
    inside("acquire a --while-pid $$", leave);
    // A revoked lease cannot be re-entered.
    let revoked = "redlock stop a & sleep 30; redlock run a --reentrant -- true";
    let test = redlock(&redis, "run -q a -- sh -c").arg(revoked).any_end().stdout(any());
    test.stderr(when("no advice", |text| !text.contains("use --reentrant"))).run();
    // Another call holds the lock `other`, so the message does not mention the enclosing job.
    acquire(&redis, "other");
    let test = redlock(&redis, "run -q a -- sh -c").arg("redlock run other -- true; test $? = 75");
    test.stderr(when("not this job", |text| !text.contains("enclosing"))).run();
}

#[test]
fn a_lock_of_the_enclosing_job_is_not_waited_for_once_redis_is_back() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Cut);
    let inner = format!("redlock run backup --wait --redis {} -- true; test $? = 75", proxy.url());
    let running = redlock(&redis, "run -q backup -- sh -c").arg(inner).within(SOON * 2).stderr(any()).spawn();
    running.says(like("redlock: \"backup\": <node> closed the connection; trying again"));
    proxy.set(Mode::Pass);
    running.says(like("redlock: \"backup\" is held by the enclosing job, <any>; use --reentrant to re-enter it"));
    running.finish();
}

#[test]
fn a_token_from_outside_does_not_hide_the_locks_of_the_enclosing_jobs() {
    let redis = Redis::start();
    let script = "set -e
        token=$(redlock acquire x)
        redlock run -q x --reentrant --token $token -- sh -ec '
            redlock run -q outer --reentrant --wait 3s -- echo again
            redlock extend -q --name outer
            redlock run x --wait 3s -- true || test $? = 75'
        redlock release -q x --token $token";
    let test = redlock(&redis, "run -q outer -- sh -c").arg(script);
    test.stdout("again\n").stderr(message(["\"x\" is held by the enclosing job, "])).run();
    assert!(!redis.exists("redlock:outer") && !redis.exists("redlock:x"));
}

#[test]
fn one_lock_another_and_the_first_again() {
    let redis = Redis::start();
    let script = "redlock run -q --name b -- redlock run -q --reentrant --name a -- \
        sh -c 'redlock status --format json a; redlock status --format json b'";
    let finished = redlock(&redis, "run -q a -- sh -c").arg(script).stdout(any()).run();
    let objects: Vec<Value> = finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects[0]["holders"][0]["holds"], 2);
    assert_eq!(objects[1]["holders"][0]["holds"], 1);
    assert!(!redis.exists("redlock:a") && !redis.exists("redlock:b"));
}

#[test]
fn reentrant_outside_of_any_job_is_an_ordinary_run() {
    let redis = Redis::start();
    redlock(&redis, "run -q --reentrant backup -- true").run();
    acquire(&redis, "backup");
    redlock(&redis, "run -q --reentrant backup -- true").turned_away().run();
}

#[test]
fn an_inner_job_renews_for_the_outer_one() {
    let redis = Redis::start();
    // The inner redlock renews the lease. Without a renewal, the lease would end before the inner job.
    let token = acquire_for(&redis, "backup", "4s");
    let test = redlock(&redis, "run -q --reentrant backup --ttl 4s -- sleep 5");
    test.env("REDLOCK_NAME", "backup").env("REDLOCK_TOKEN", &token).run();
    assert_eq!(redis.get("redlock:backup").as_ref(), Some(&token));
    assert_eq!(holds(&redis), 1);
    release(&redis, "backup", &token);
}

#[test]
fn over_several_masters_a_node_that_missed_the_inner_hold_does_not_drop_the_outer() {
    let nodes = Redis::several(3);
    let token = acquire_on_all(&nodes, "backup");
    nodes[2].pause();
    let test = redlock(&nodes, format!("acquire backup --reentrant --token {token}"));
    let hold = test.args(["--node-timeout", "3s"]).token();
    nodes[2].resume();
    assert_eq!(give_up(&nodes, &hold), still_held(1));
    for _ in 0..3 {
        assert!(nodes.iter().all(|node| node.get("redlock:backup").as_ref() == Some(&token)), "dropped");
        std::thread::sleep(ms(20)); // a late answer of the slow node
    }
    assert_eq!(give_up(&nodes, &token), released());
    eventually(SOON, "free", || nodes.iter().all(|node| !node.exists("redlock:backup")));
}

#[test]
fn over_several_masters_the_plain_token_gives_up_the_same_hold_everywhere() {
    let nodes = Redis::several(3);
    let token = acquire_on_all(&nodes, "backup");
    enter(&nodes, &token);
    nodes[0].pause();
    let test = redlock(&nodes, format!("acquire backup --reentrant --token {token}"));
    test.args(["--node-timeout", "3s"]).stdout(any()).run();
    nodes[0].resume();
    assert_eq!(give_up(&nodes, &token), still_held(2));
    assert_eq!(give_up(&nodes, &token), still_held(1));
    assert_eq!(give_up(&nodes, &token), released());
    eventually(SOON, "free", || nodes.iter().all(|node| !node.exists("redlock:backup")));
}

#[test]
fn an_outer_job_says_that_an_inner_one_that_was_killed_keeps_the_lock() {
    let redis = Redis::start();
    let inner =
        "redlock run -q --reentrant --name backup -- sh -c \"kill -KILL \\$(cut -d\' \' -f4 /proc/\\$PPID/stat)\"";
    let test = redlock(&redis, "run backup -- sh -c").arg(format!("{inner}; exit 3"));
    // In between, some shells report that the inner redlock was killed.
    let said = "redlock: acquired \"backup\" <any>\n<lines>redlock: \"backup\" stays locked: <any>\n";
    test.status(3).stderr(like(said)).run();
    assert!(redis.exists("redlock:backup"));
}
