//! `redlock acquire`: the key and its ttl, the token, each form of output, the refusals, and the number of requests.

use crate::support::{
    Mode, Monitor, Proxy, Redis, Test, acquire, acquire_for, command_calls, like, myself, redlock, release,
    reset_command_calls,
};

#[test]
fn prints_the_token_alone_and_takes_the_key() {
    let redis = Redis::start();
    let token = redlock(&redis, "acquire backup").token();
    assert_eq!(redis.get("redlock:backup"), Some(token));
    let left = redis.pttl("redlock:backup");
    assert!((25_000..=30_000).contains(&left), "the default ttl is 30 s: {left}");
}

#[test]
fn the_ttl_is_what_was_asked_for() {
    let redis = Redis::start();
    for (name, ttl, most) in [
        ("a", "5s", 5_000),
        ("b", "1m 30s", 90_000),
        ("c", "2h", 7_200_000),
        ("d", "30days", 2_592_000_000),
        ("e", "3500ms", 3_500),
    ] {
        acquire_for(&redis, name, ttl);
        let left = redis.pttl(&format!("redlock:{name}"));
        assert!(left <= most && left > most - 3_000, "{ttl}: {left}");
    }
}

#[test]
fn every_token_is_another_one_and_cannot_be_guessed() {
    let redis = Redis::start();
    let (first, second) = (acquire(&redis, "a"), acquire(&redis, "b"));
    assert_ne!(first, second);
    assert!(first.len() >= 22, "122 random bits need as many characters: {first}");
    assert_ne!(first[..8], second[..8]);
}

#[test]
fn a_held_lock_is_busy_and_stays_as_it_was() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    let (user, host) = myself();
    let busy = format!(
        "redlock: \"backup\" is held by {user}@{host}, pid <n>, for <duration>, lease <duration> left; use --wait to queue for it\n"
    );
    redlock(&redis, "acquire backup").status(75).stderr(like(&busy)).run();
    redlock(&redis, "acquire backup --wait 0").status(75).stderr(like(&busy)).run();
    assert_eq!(redis.get("redlock:backup"), Some(token));
}

#[test]
fn the_status_of_busy_can_be_chosen_but_not_success() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    let busy = || redlock(&redis, "acquire backup");
    busy().args(["-E", "3"]).fails(3, ["is held by"]).run();
    busy().args(["--conflict-exit-code", "255", "-q"]).status(255).run();
    busy().args(["-E", "0"]).fails(64, ["-E"]).run();
}

#[test]
fn json_has_its_exact_shape() {
    let redis = Redis::start();
    let shape = "{\"name\":\"backup\",\"key\":\"redlock:backup\",\"token\":\"<token>\",\"fencing_token\":<n>,\"slot\":null,\
                 \"ttl_ms\":20000,\"validity_ms\":<n>,\"holds\":1,\"waited_ms\":<n>}\n";
    let object = redlock(&redis, "acquire backup --ttl 20s --format json").stdout(like(shape)).run().json();
    assert_eq!(redis.get("redlock:backup").as_deref(), object["token"].as_str());
    let validity = object["validity_ms"].as_u64().unwrap();
    assert!((15_000..=19_798).contains(&validity), "ttl less 1 % and 2 ms: {validity}");
}

#[test]
fn env_format_can_be_evaluated_whatever_the_name() {
    let redis = Redis::start();
    let name = "it's \"so\" $HOME `id` \\ ü;x";
    // A value that needs no quotes in a shell gets none: $GITHUB_ENV and dotenv files take quotes literally.
    let shape = "REDLOCK_NAME=team/db_1.main:x\nREDLOCK_TOKEN=<token>\nREDLOCK_FENCING_TOKEN=<n>\n";
    redlock(&redis, "acquire team/db_1.main:x --format env").stdout(like(shape)).run();
    for (name, quoted) in [("a b", "'a b'"), ("it's", "'it'\\''s'"), ("~", "'~'"), ("a?", "'a?'"), ("$x", "'$x'")] {
        let shape = format!("REDLOCK_NAME={quoted}\nREDLOCK_TOKEN=<token>\nREDLOCK_FENCING_TOKEN=<n>\n");
        Test::new(&redis).args(["acquire", name, "--format", "env"]).stdout(like(shape)).run();
    }
    let script = "set -e
        lines=$(redlock acquire --name \"$1\" --format env)
        eval \"$lines\"
        test \"$REDLOCK_NAME\" = \"$1\"
        test \"$REDLOCK_FENCING_TOKEN\" -gt 1700000000000
        redlock release -q --name \"$REDLOCK_NAME\" --token \"$REDLOCK_TOKEN\"";
    Test::sh(&redis, script).args(["sh", name]).run();
    assert!(!redis.exists(&format!("redlock:{name}")));
}

#[test]
fn acquire_and_release_are_one_round_trip_each() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    release(&redis, "backup", &token);
    let monitor = Monitor::new(&redis);
    reset_command_calls(&redis);
    let proxy = Proxy::new(&redis, Mode::Pass);
    let token = acquire(&proxy, "backup");
    assert_eq!(proxy.packets(), 1);
    release(&proxy, "backup", &token);
    assert_eq!(proxy.packets(), 2);
    let calls = command_calls(&redis);
    for chatter in ["ping", "hello", "client|setinfo", "client|id", "script|load", "select", "auth"] {
        assert!(!calls.contains_key(chatter), "{chatter}: {calls:?}");
    }
    let sent: Vec<String> = monitor.commands(&redis);
    let sent: Vec<&String> = sent.iter().filter(|name| !matches!(name.as_str(), "CONFIG" | "INFO" | "PING")).collect();
    // The connection's name comes in the same packet, behind the request.
    assert_eq!(sent, ["EVALSHA", "CLIENT", "EVALSHA", "CLIENT"]);
}

#[test]
fn a_foreign_lock_without_expiry_is_said_to_never_expire() {
    let redis = Redis::start();
    redis.command(&["SET", "redlock:backup", "forgotten"]);
    redlock(&redis, "acquire backup").fails(75, ["\"backup\" is held by", "never expires"]).run();
    assert_eq!(redis.pttl("redlock:backup"), -1);
    for (write, situation) in [
        (["SET", "redlock:backup", ""], "is held by another program, and never expires"),
        (["RPUSH", "redlock:backup", "x"], "exists but is not a lock (its key is not a string, and never expires)"),
    ] {
        redis.command(&["DEL", "redlock:backup"]);
        redis.command(&write);
        let busy = format!("redlock: \"backup\" {situation}; use another name or --prefix\n");
        redlock(&redis, "acquire backup").status(75).stderr(busy).run();
    }
}

#[test]
fn what_others_wrote_is_escaped_once() {
    let redis = Redis::start();
    redis.command(&["SET", "redlock:backup", "\u{1b}[2J"]);
    redlock(&redis, "acquire backup").fails(75, [r#"(the key's value begins with "\u{1b}[2J")"#]).run();
}
