//! `--format json`: the object that a command prints when it fails. The object of a success is checked in the tests of
//! each command.

use crate::support::{Line, Redis, Test, acquire, any, in_the_end, like, message, myself, redlock};
use serde_json::Value;

/// The failure object of a call, checked for its exact shape.
#[track_caller]
fn failure(servers: &str, arguments: &[&str], status: i32, holder: &str) -> Value {
    let shape = format!(
        "{{\"name\":<any>,\"outcome\":\"<word>\",\"status\":{status},\"message\":\"<any>\",\"holder\":{holder}}}\n"
    );
    let test = Test::new(servers).args(arguments).args(["--format", "json"]).status(status);
    let finished = test.stdout(like(shape)).stderr(in_the_end(arguments, message([]))).run();
    let object = finished.json();
    let message = object["message"].as_str().unwrap();
    assert!(finished.stderr.ends_with(&format!("redlock: {message}\n")), "{message:?} {}", finished.stderr);
    assert!(!message.is_empty() && !message.ends_with('.') && !message.contains('\n'), "{message:?}");
    assert!(!message.starts_with("redlock: "), "{message:?}");
    object
}

/// The field `holder` of a failure object, as a template for [`like`].
fn holder(token: &str, label: &str) -> String {
    let (user, host) = myself();
    format!(
        "{{\"token_prefix\":\"{}\",\"slot\":null,\"host\":\"{host}\",\"pid\":<n>,\"user\":\"{user}\",\"label\":{label},\
         \"acquired_at\":\"<time>\",\"held_ms\":<n>,\"fencing_token\":<n>,\"holds\":<word>,\"ttl_ms\":30000,\
         \"lease_ms\":<n>,\"renewal_ms\":<n>}}",
        &token[..8]
    )
}

#[test]
fn busy_names_the_holder() {
    let redis = Redis::start();
    let token = redlock(&redis, "acquire backup --label nightly").token();
    let holder = holder(&token, "\"nightly\"");
    for arguments in [
        vec!["acquire", "--name", "backup"],
        vec!["acquire", "--name", "backup", "--wait", "1s"],
        vec!["acquire", "--name", "backup", "-q"],
        vec!["wait", "backup", "--timeout", "1s"],
    ] {
        let object = failure(&redis.url(), &arguments, 75, &holder);
        assert_eq!(object["name"], "backup");
        assert!(object["message"].as_str().unwrap().contains("is held by"), "{object}");
    }
    let object = failure(&redis.url(), &["acquire", "--name", "backup", "-E", "7"], 7, &holder);
    assert_eq!(object["outcome"], failure(&redis.url(), &["acquire", "--name", "backup"], 75, &holder)["outcome"]);
}

#[test]
fn a_token_that_does_not_hold_the_lock() {
    let redis = Redis::start();
    for command in ["extend", "release"] {
        let object = failure(&redis.url(), &[command, "backup", "--token", "t"], 77, "null");
        assert_eq!(object["outcome"], "not-held");
    }
    let token = acquire(&redis, "backup");
    let holder = holder(&token, "<any>");
    for command in ["extend", "release"] {
        let object = failure(&redis.url(), &[command, "backup", "--token", "t"], 77, &holder);
        assert_eq!(object["outcome"], "held-by-other");
    }
    for how in [&["release", "--force"][..], &["stop"]] {
        let object = failure(&redis.url(), &[how, &["backup", "--token", "12345678"]].concat(), 77, &holder);
        assert_eq!(object["outcome"], "held-by-other");
    }
}

#[test]
fn another_type_has_no_holder() {
    let redis = Redis::start();
    redis.command(&["HSET", "redlock:backup", "field", "1"]);
    failure(&redis.url(), &["acquire", "--name", "backup"], 75, "null");
    failure(&redis.url(), &["wait", "backup", "--timeout", "1s"], 75, "null");
}

#[test]
fn unreachable_and_refused() {
    let mut redis = Redis::with_tcp(&["--requirepass", "s3cret"]);
    for (status, url) in [(78, redis.tcp_url()), (78, redis.tcp_url().replace("redis://", "redis://:wrong@"))] {
        for arguments in [
            &["acquire", "--name", "backup"][..],
            &["extend", "backup", "--token", "t"],
            &["release", "backup", "--token", "t"],
            &["wait", "backup"],
        ] {
            let object = failure(&url, arguments, status, "null");
            assert!(!object.to_string().contains("wrong@"), "{object}");
        }
    }
    redis.kill();
    for arguments in [
        &["acquire", "--name", "backup"][..],
        &["acquire", "--name", "backup", "--wait", "50ms"],
        &["extend", "backup", "--token", "t"],
        &["release", "backup", "--token", "t"],
        &["release", "backup", "--force"],
        &["wait", "backup", "--timeout", "50ms"],
        &["status"],
    ] {
        failure(&redis.tcp_url(), arguments, 69, "null");
    }
}

#[test]
fn names_are_escaped_and_come_back_as_they_are() {
    let redis = Redis::start();
    for name in ["a\"b\\c", "ü 🔒", "\u{202e}backwards", "</script>"] {
        let test = Test::new(&redis).args(["acquire", "--name", name, "--format", "json"]).stdout(any());
        assert_eq!(test.run().json()["name"], name);
        let object = crate::support::status(&redis, name);
        assert_eq!(object["name"], name);
        assert_eq!(object["key"], format!("redlock:{name}"));
    }
}

/// Replaces the times that differ from one look to the next.
fn steady(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let is_moving = |name: &str| ["held_ms", "lease_ms", "waited_ms", "ago_ms"].contains(&name);
            fields
                .iter_mut()
                .for_each(|(name, value)| if is_moving(name) { *value = true.into() } else { steady(value) });
        }
        Value::Array(values) => values.iter_mut().for_each(steady),
        _ => {}
    }
}

#[test]
fn a_list_has_the_same_values_as_one_lock() {
    let redis = Redis::start();
    for _ in 0..4 {
        redlock(&redis, "run -q backup --newest 7 -- true").stderr(any()).run();
    }
    let errors = ["run", "-q", "backup", "--keep-errors", "errors", "--", "sh", "-c", "echo full >&2; exit 2"];
    Test::new(&redis).args(errors).status(2).stderr(any()).run();
    acquire(&redis, "backup");
    let waiter = Line::join(&redis, Line::waiter(&redis).any_end());
    acquire(&redis, "other");
    redis.command(&["SET", "redlock:theirs", "x"]);
    let mut list = redlock(&redis, "status backup other theirs never --format json").json();
    for object in list["locks"].as_array_mut().unwrap() {
        let mut one = crate::support::status(&redis, object["name"].as_str().unwrap());
        [&mut one, &mut *object].into_iter().for_each(steady);
        assert_eq!(object, &one);
        if one["name"] == "backup" {
            assert!(one["usual_ms"].is_u64() && one["newest"].is_object() && one["last"]["errors"] == "full", "{one}");
            assert_eq!(one["waiters"].as_array().unwrap().len(), 1);
        }
    }
    assert_eq!(list["locks"].as_array().unwrap().len(), 4);
    drop(waiter);
}
