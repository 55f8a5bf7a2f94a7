//! Who holds a lock: what is written about the holder, and where it is shown. No text of others does any harm.

use crate::support::{
    Directory, Ended, Finished, Monitor, Redis, SOON, Test, acquire, acquire_for, any, eventually, like, myself,
    redlock, release, status,
};
use std::collections::BTreeMap;

/// The characters that change the writing direction (Unicode's Bidi_Control), and two that end a line.
const OBEYED: &str = "\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\
                      \u{2068}\u{2069}";

/// No control characters, and no changes of direction. If the text is not JSON, long lines are forbidden too.
fn harmless(text: &str) {
    let bad = text.chars().find(|c| c.is_control() && *c != '\n' || OBEYED.contains(*c));
    assert!(bad.is_none(), "{bad:?} in {text:?}");
    if text.starts_with('{') {
        return;
    }
    let longest = text.lines().map(|line| line.chars().count()).max();
    assert!(longest < Some(1_000), "over-long: {longest:?}");
}

/// Each call that shows who holds the lock prints harmless text.
#[track_caller]
fn shows_no_harm(redis: &Redis) {
    for (line, status) in [
        ("status backup", 0),
        ("status", 0),
        ("acquire backup", 75),
        ("acquire backup --wait 300ms", 75),
        ("wait backup --timeout 300ms", 75),
        ("extend backup --token t", 77),
        ("release backup --token t", 77),
        ("release backup --force --token 12345678", 77),
        ("run backup -- true", 75),
        ("status backup --format json", 0),
        ("status --format json", 0),
    ] {
        let Finished { ended, stdout, stderr, .. } = redlock(redis, line).any_end().stdout(any()).stderr(any()).run();
        let shown = stdout + &stderr;
        // A call may instead end with 75, and report that the key is not a lock.
        let other_type = shown.contains("not a string") && ended == Ended::Status(75);
        assert!(ended == Ended::Status(status) || other_type, "{line}: {ended:?} {shown}");
        if line.contains("json") {
            serde_json::from_str::<serde_json::Value>(&shown).unwrap();
        }
        harmless(&shown);
    }
}

/// The owner record of the lock `backup`: its key and its fields.
fn record(redis: &Redis) -> (String, BTreeMap<String, String>) {
    let keys = redis.keys_without_history();
    let hash = |key: &&String| redis.query::<String>(&["TYPE", key]) == "hash";
    let key = keys.iter().find(hash).expect("an owner record").clone();
    let fields = redis.query(&["HGETALL", &key]);
    (key, fields)
}

#[test]
fn the_holder_of_a_job() {
    let redis = Redis::start();
    let job = redlock(&redis, "run -q backup -- /bin/sleep 30").spawn();
    eventually(SOON, "acquired", || redis.exists("redlock:backup"));
    let (user, host) = myself();
    let holder = status(&redis, "backup")["holders"][0].clone();
    assert_eq!(holder["user"], user);
    assert_eq!(holder["host"], host);
    assert_eq!(holder["pid"], job.pid());
    assert_eq!(holder["label"], "sleep", "the command's base name");
    let pid = job.pid();
    let busy = format!(
        "redlock: \"backup\" is held by {user}@{host}, pid {pid} (sleep), for <duration>, lease <duration> left; \
         use --wait to queue for it\n"
    );
    redlock(&redis, "run backup -- true").status(75).stderr(like(busy)).run();
}

#[test]
fn the_label_of_a_job_is_the_name_of_its_script_or_command() {
    let redis = Redis::start();
    let directory = Directory::new();
    let script = "redlock status --format json \"$REDLOCK_NAME\" | grep -o '\"label\":\"[^\"]*'\n";
    let path = directory.file("nightly.sh", script);
    let path = path.to_str().unwrap();
    let line = format!("/bin/sh {path} secret");
    for (name, command, label) in [
        ("a", &["sh", "-e", path, "secret"][..], "nightly.sh"),
        ("b", &["env", "X=secret", "sh", path], "env"),
        ("c", &["bash", "-c", &line], "sh"),
    ] {
        let said = format!("\"label\":\"{label}\n");
        redlock(&redis, format!("run -q {name} --")).args(command).stdout(said).run();
    }
}

#[test]
fn a_label_is_given_by_flag_or_variable() {
    let redis = Redis::start();
    for (number, (test, label)) in [
        (redlock(&redis, "acquire --label").arg("nightly run"), "nightly run"),
        (redlock(&redis, "acquire").env("REDLOCK_LABEL", "from cron"), "from cron"),
        (redlock(&redis, "acquire --label flag").env("REDLOCK_LABEL", "from cron"), "flag"),
        (redlock(&redis, "acquire --label").arg("ü 🔒 \"quoted\""), "ü 🔒 \"quoted\""),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("lock-{number}");
        test.args(["--name", &name]).stdout(any()).run();
        assert_eq!(status(&redis, &name)["holders"][0]["label"], label);
        redlock(&redis, "acquire --name").arg(&name).fails(75, ["pid ", &format!("({label})"), "lease"]).run();
    }
}

#[test]
fn arguments_of_the_job_are_never_written_to_redis() {
    let redis = Redis::start();
    let monitor = Monitor::new(&redis);
    let test = redlock(&redis, "run -q backup --ttl 4s --node-timeout 2s -- sh -c");
    test.args(["sleep 1.5 # s3cret-argument"]).env("PASSWORD", "s3cret-variable").run();
    let lines = monitor.lines(&redis);
    assert!(lines.iter().any(|line| line.contains("redlock:backup")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("s3cret")), "{lines:?}");
}

#[test]
fn the_record_goes_with_the_lease() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    let (key, _) = record(&redis);
    let (lock, owner) = (redis.pttl("redlock:backup"), redis.pttl(&key));
    assert!((lock - owner).abs() < 100, "{lock} {owner}");
    release(&redis, "backup", &token);
    assert!(!redis.exists(&key));
    // Others overwrite the lock. The old lease's record remains, but is not shown for the new holder.
    acquire(&redis, "backup");
    redis.command(&["SET", "redlock:backup", "theirs-now", "PX", "60000"]);
    let object = status(&redis, "backup");
    assert_eq!(object["state"], "foreign");
    assert!(object["holders"][0]["user"].is_null());
}

#[test]
fn a_record_with_control_characters_and_over_long_text_is_shown_escaped_and_cut() {
    let redis = Redis::start();
    redlock(&redis, "acquire backup --label nightly").stdout(any()).run();
    let (user, host) = myself();
    let (key, fields) = record(&redis);
    for hostile in [
        "\u{1b}[31mred\u{1b}[0m\u{7}\r\nredlock: acquired\t",
        "\u{9b}2J\u{90}x\u{9c}",
        "\u{202e}desrever\u{2066}\u{61c}",
        &"long ".repeat(20_000),
        "",
    ] {
        for (field, value) in &fields {
            if [&*user, &*host, "nightly"].contains(&value.as_str()) {
                redis.command(&["HSET", &key, field, hostile]);
            }
        }
        shows_no_harm(&redis);
    }
}

#[test]
fn no_form_of_results_has_a_character_that_a_terminal_obeys() {
    let redis = Redis::start();
    let name = format!("backup{OBEYED}");
    let call = |words: &[&str]| {
        let test = Test::new(&redis).args(words).any_end().stdout(any()).stderr(any());
        let Finished { stdout, stderr, .. } = test.run();
        assert!(stdout.len() + stderr.len() > 0, "{words:?}");
        harmless(&stdout);
        harmless(&stderr);
    };
    let label = format!("nightly{OBEYED}");
    let job = format!("echo '{OBEYED}' >&2; exit 1");
    call(&["run", "-v", &name, "--label", &label, "--keep-errors", "errors", "--", "sh", "-c", &job]);
    Test::new(&redis).args(["run", "-q", &name, "--", "true"]).run();
    call(&["acquire", &name, "--label", &label, "--ttl", "1h"]);
    call(&["acquire", &name, "--wait", "300ms"]);
    for form in ["text", "json", "prometheus"] {
        call(&["status", &name, "-v", "--hosts", "--format", form]);
        call(&["status", "--format", form]);
    }
    for form in ["text", "json", "chart"] {
        call(&["log", &name, "-v", "--format", form]);
    }
    call(&["check", &name, "--within", "1h", "--format", "nagios"]);
    call(&["check", &name, "--within", "1h"]);
    call(&["stop", &name, "--for", "1h"]);
    for form in ["text", "json", "prometheus"] {
        call(&["status", &name, "--format", form]);
        call(&["status", "-a", "--format", form]);
    }
    call(&["check", &name, "--within", "1h", "--format", "json"]);
    call(&["run", &name, "--", "true"]);
    call(&["stop", &name, "--for", "0"]);
    call(&["forget", &name]);
    call(&["doctor", "-v", "--prefix", &label]);
    // A line of the page's style may be longer than a line of text.
    let page = Test::new(&redis).args(["log", "--format", "html"]).text();
    assert!(page.contains("\\u{61c}") && !page.contains(|c| OBEYED.contains(c)), "{page}");
}

#[test]
fn a_record_with_nonsense_in_it_does_no_harm() {
    let redis = Redis::start();
    let token = acquire_for(&redis, "backup", "1h");
    let (key, fields) = record(&redis);
    for nonsense in ["", "abc", "-1", "99999999999999999999999", "1e308", "nan", "\u{0}", "18446744073709551615"] {
        for (field, value) in &fields {
            if *value != token {
                redis.command(&["HSET", &key, field, nonsense]);
            }
        }
        shows_no_harm(&redis);
    }
    for (field, value) in &fields {
        if *value != token {
            redis.command(&["HDEL", &key, field]);
        }
    }
    shows_no_harm(&redis);
    redlock(&redis, format!("release -q backup --token {token}")).run();
}

#[test]
fn a_foreign_value_of_any_kind_does_no_harm() {
    let redis = Redis::start();
    let mut connection = redis.connection();
    let long = [b'x'; 100_000];
    for value in [
        &b"\x1b[2J\r\n\x07"[..],
        b"\xff\xfe\x00\x01 twenty bytes of rslock",
        b"",
        b"\xe2\x80\xae\xe2\x80\xae\xe2\x80\xae",
        &long,
    ] {
        redis::cmd("SET").arg("redlock:backup").arg(value).exec(&mut connection).unwrap();
        assert_eq!(status(&redis, "backup")["state"], "foreign");
        shows_no_harm(&redis);
    }
}

#[test]
fn a_key_of_any_type_under_the_name_does_no_harm() {
    let redis = Redis::start();
    for command in [
        vec!["RPUSH", "redlock:backup", "\u{1b}[31m"],
        vec!["SADD", "redlock:backup", "x"],
        vec!["ZADD", "redlock:backup", "1", "x"],
        vec!["XADD", "redlock:backup", "*", "x", "y"],
        vec!["HSET", "redlock:backup", "x", "y"],
    ] {
        redis.command(&["DEL", "redlock:backup"]);
        redis.command(&command);
        let dump: Vec<u8> = redis.query(&["DUMP", "redlock:backup"]);
        shows_no_harm(&redis);
        assert_eq!(dump, redis.query::<Vec<u8>>(&["DUMP", "redlock:backup"]), "touched");
    }
}

#[test]
fn names_that_others_gave_their_keys_do_no_harm_in_the_list() {
    let redis = Redis::start();
    let mut connection = redis.connection();
    let long = format!("redlock:{}", "long".repeat(10_000));
    for key in [
        &b"redlock:\x1b[31mred\nnext line\r"[..],
        b"redlock:\xff\xfe",
        b"redlock:",
        b"redlock:\xc2\x9b2J",
        long.as_bytes(),
    ] {
        redis::cmd("SET").arg(key).arg("theirs").exec(&mut connection).unwrap();
    }
    acquire(&redis, "backup");
    let text = redlock(&redis, "status").text();
    harmless(&text);
    assert!(text.contains("backup"));
    let json = redlock(&redis, "status --format json").stdout(any()).run();
    harmless(&json.stdout);
    assert!(json.json()["locks"].as_array().unwrap().iter().any(|lock| lock["name"] == "backup"));
}

#[test]
fn queues_and_counters_of_the_wrong_type_are_a_clear_failure() {
    let redis = Redis::start();
    for part in ["lease", "fence", "queue", "reserved", "holds"] {
        let key = format!("{{redlock:backup}}:\u{1f}{part}");
        redis.command(&["FLUSHALL"]);
        redis.command(&["RPUSH", &key, "x"]);
        let test = redlock(&redis, "acquire backup").stdout(any()).stderr(any());
        // The call may get the lock all the same. If it fails, it prints one line, and leaves no lock behind.
        let finished = test.any_end().run();
        let stderr = finished.stderr;
        harmless(&stderr);
        match finished.ended {
            Ended::Status(0) => assert!(redis.exists("redlock:backup"), "{part}"),
            Ended::Status(69 | 78) => {
                assert!(stderr.starts_with("redlock: ") && stderr.lines().count() == 1, "{part}: {stderr}");
                assert!(stderr.contains("delete it"), "{part}: {stderr}");
                assert!(!stderr.contains("script"), "{part}: {stderr}");
                assert!(!redis.exists("redlock:backup"), "{part}: left behind");
            }
            other => panic!("{part}: {other:?} {stderr}"),
        }
    }
}

#[test]
fn a_lock_that_was_acquired_is_its_caller_s() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    let holder = &status(&redis, "backup")["holders"][0];
    assert_eq!(holder["pid"], std::process::id());
}

#[test]
fn a_waiter_is_told_what_a_loser_is() {
    let redis = Redis::start();
    redis.command(&["HSET", "redlock:hash", "field", "1"]);
    let test = redlock(&redis, "acquire hash --wait 1s");
    let waiting = "redlock: waiting up to 1s for \"hash\"; exists but is not a lock <any>\n<any>\n";
    test.status(75).stderr(like(waiting)).run();
}

#[test]
fn the_user_is_who_the_process_belongs_to_whatever_the_environment_says() {
    let redis = Redis::with_tcp(&[]);
    let acquire = |test: Test| test.args(["acquire", "--name", "backup"]).stdout(any());
    let user = || status(&redis, "backup")["holders"][0]["user"].clone();
    let free = || redis.command(&["DEL", "redlock:backup"]);
    // The environment names another user.
    acquire(Test::new(&redis).env("LOGNAME", "mallory").env("USER", "mallory")).run();
    assert_eq!(user(), myself().0);
    free();
    if nix::unistd::geteuid().is_root() {
        // A user whom /etc/passwd does not know.
        let id = ["--reuid", "54321", "--clear-groups", env!("CARGO_BIN_EXE_redlock"), "--redis", &redis.tcp_url()];
        acquire(Test::program(&redis, "setpriv").args(id).env("USER", "mallory")).run();
        assert_eq!(user(), "54321");
    }
}
