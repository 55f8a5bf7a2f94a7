//! Exit status 69: a server is full, busy or a replica, or redlock lacks descriptors. Exit status 74: output cannot be
//! written. Exit status 64: a password file cannot be read, or a database does not exist. The other statuses are in the
//! tests of each command.

use crate::support::{
    Ended, Redis, SOON, Test, acquire, any, eventually, in_the_end, like, message, redlock, release, status, when,
};
use nix::sys::signal::Signal;
use std::fs::File;
use std::process::Stdio;

/// They take a lock, so the server must be able to write.
fn writing_commands() -> Vec<Vec<&'static str>> {
    vec![
        vec!["acquire", "--name", "new"],
        vec!["run", "--name", "new", "--", "echo", "started"],
        vec!["acquire", "--name", "new", "--wait", "1s", "--format", "text"],
    ]
}

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// The writing end of a pipe that nobody reads.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn s74_a_token_that_cannot_be_written_is_released() {
    let redis = Redis::start();
    for format in ["text", "json", "env"] {
        for target in [full().into(), closed()] {
            let test = redlock(&redis, "acquire backup --format").arg(format).stdout_to(target);
            test.fails(74, ["\"backup\"", "released"]).run();
            assert_eq!(redis.keys_without_history(), ["{redlock:backup}:\u{1f}fence"], "{format}");
        }
    }
    redlock(&redis, "acquire backup -q").stdout_to(full()).fails(74, ["\"backup\""]).run();
    assert!(!redis.exists("redlock:backup"));
}

#[test]
fn s74_standard_output_that_is_not_even_open() {
    let redis = Redis::start();
    Test::sh(&redis, "redlock acquire --name backup >&-").fails(74, ["\"backup\""]).run();
    assert!(!redis.exists("redlock:backup"));
}

#[test]
fn s74_a_hold_that_cannot_be_written_is_given_up_but_not_the_outer_one() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    let test = redlock(&redis, format!("acquire backup --reentrant --token {token}"));
    test.stdout_to(full()).fails(74, ["\"backup\""]).run();
    assert_eq!(redis.get("redlock:backup"), Some(token));
    assert_eq!(status(&redis, "backup")["holders"][0]["holds"], 1);
}

#[test]
fn s74_the_other_results() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    for arguments in [
        vec!["status"],
        vec!["status", "backup"],
        vec!["status", "backup", "--format", "json"],
        vec!["status", "backup", "--watch", "100ms", "--format", "json"],
        vec!["extend", "backup", "--token", &token, "--format", "json"],
        vec!["completions", "bash"],
        vec!["--help"],
        vec!["--version"],
        vec!["release", "backup", "--token", &token, "--format", "json"],
    ] {
        Test::new(&redis).args(&arguments).stdout_to(full()).fails(74, []).run();
    }
}

#[test]
fn what_is_only_looked_at_ends_quietly_when_nobody_looks_any_more() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    for arguments in [
        &["--help"][..],
        &["help", "run"],
        &["--version"],
        &["completions", "bash"],
        &["status"],
        &["status", "backup", "--watch", "100ms"],
        &["status", "--format", "json", "--watch", "100ms"],
    ] {
        let test = || Test::new(&redis).args(arguments);
        test().stdout_to(closed()).signal(Signal::SIGPIPE).run();
        // A caller that ignores SIGPIPE gets a status and a message.
        test().stdout_to(closed()).ignoring(Signal::SIGPIPE).fails(74, ["broken pipe"]).run();
    }
    let script = "redlock status --watch 100ms | head -n 1";
    Test::sh(&redis, script).stdout(any()).run();
}

#[test]
fn s74_a_job_that_cannot_write_is_no_concern_of_ours() {
    let redis = Redis::start();
    redlock(&redis, "run -q backup -- sh -c").arg("echo x 2>/dev/null || exit 5").stdout_to(full()).status(5).run();
}

#[test]
fn standard_error_that_cannot_be_written_changes_nothing() {
    let redis = Redis::start();
    redlock(&redis, "run backup -- sh -c").arg("exit 3").status(3).stderr_to(full()).run();
    redlock(&redis, "run backup -- sh -c").arg("exit 3").status(3).stderr_to(closed()).run();
    Test::sh(&redis, "redlock run --name backup -- sh -c 'exit 3' 2>&-").status(3).run();
    acquire(&redis, "held");
    redlock(&redis, "run held -- true").status(75).stderr_to(full()).run();
    redlock(&redis, "acquire held --wait 1s").status(75).stderr_to(closed()).run();
}

#[test]
fn s69_out_of_memory() {
    let redis = Redis::start();
    let token = acquire(&redis, "held");
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for arguments in writing_commands() {
        let begin = if arguments[0] == "run" { "\"new\" did not run" } else { "\"new\"" };
        let said = "<node> is out of memory (OOM); free some memory or raise its maxmemory";
        let said = like(format!("redlock: {begin}: {said}\n"));
        Test::new(&redis).args(&arguments).status(69).stderr(in_the_end(&arguments, said)).run();
    }
    assert!(!redis.exists("redlock:new"));
    // Calls that need no more memory still work.
    assert_eq!(status(&redis, "held")["state"], "held");
    redlock(&redis, format!("extend -q held --token {token}")).run();
    redlock(&redis, format!("release -q held --token {token}")).run();
    assert!(!redis.exists("redlock:held"));
}

#[test]
fn s69_a_shortage_of_ours_is_not_put_down_to_redis() {
    let redis = Redis::start();
    for limit in 4..8 {
        // Closes descriptor 3, which would count against the limit. The test may have inherited it, say from flock(1).
        let script = format!("exec 3<&-; ulimit -n {limit}; exec redlock acquire --name backup --ttl 100ms --wait 1s");
        let finished = Test::sh(&redis, &script).any_end().stdout(any()).stderr(any()).run();
        let said = finished.stderr;
        if limit == 4 {
            assert_eq!(finished.ended, Ended::Status(69), "{said}");
            let why = "cannot ask any node: this process has too many files open (ulimit -n)";
            assert!(said.contains(why), "{said}");
        }
        assert!(!said.contains("is the address right"), "{limit}: {said}");
    }
}

#[test]
fn s69_what_a_replica_says_is_no_answer() {
    let primary = Redis::with_tcp(&[]);
    let replica = Redis::replica_of(&primary, &[]);
    let calls = [
        &["status"][..],
        &["status", "held"],
        &["status", "held", "-q"],
        &["check", "held", "--within", "1h"],
        &["forget", "held"],
        &["status", "held", "--format", "json"],
        &["wait", "held", "--timeout", "300ms"],
        &["acquire", "held"],
        &["extend", "held", "--token", "ours"],
        &["release", "held", "--token", "ours"],
        &["release", "held", "--force"],
        &["stop", "held"],
        &["stop", "held", "--for", "1h"],
        &["acquire", "held", "--reentrant", "--token", "ours"],
    ];
    // The calls run side by side, because a release is tried for five seconds.
    let all_are_refused = || {
        let refused = |arguments: &&[&str]| {
            let said = when("READONLY", |text| text.contains("is a read-only replica (READONLY)"));
            Test::new(&replica).args(*arguments).status(69).stdout(any()).stderr(said).spawn()
        };
        let running: Vec<_> = calls.iter().map(refused).collect();
        running.into_iter().for_each(|call| drop(call.finish()));
    };
    all_are_refused();
    let token = acquire(&primary, "held");
    eventually(SOON, "replicated", || replica.exists("redlock:held"));
    all_are_refused();
    // A replica that refuses INFO is recognized as well.
    replica.command(&["ACL", "SETUSER", "default", "-info"]);
    all_are_refused();
    release(&primary, "held", &token);
}

#[test]
fn s69_busy_with_somebodys_script() {
    let redis = Redis::with(&["--lua-time-limit", "20"]);
    let mut connection = redis.connection();
    std::thread::scope(|scope| {
        let script = scope
            .spawn(move || redis::cmd("EVAL").arg("while true do end").arg(0).query::<redis::Value>(&mut connection));
        eventually(SOON, "busy", || {
            redis.try_query::<String>(&["GET", "1"]).is_err_and(|error| error.code() == Some("BUSY"))
        });
        for arguments in writing_commands() {
            let test = Test::new(&redis).args(&arguments).status(69);
            test.stderr(in_the_end(&arguments, message(["\"new\"", "BUSY"]))).run();
        }
        redis.command(&["SCRIPT", "KILL"]);
        assert!(script.join().unwrap().is_err());
    });
}

#[test]
fn the_password_comes_from_the_url_a_variable_or_a_file() {
    let redis = Redis::with_tcp(&["--requirepass", "s3cret:/@ü"]);
    let directory = crate::support::Directory::new();
    let file = directory.file("password", "s3cret:/@ü\n");
    let url = redis.tcp_url();
    let file = file.to_str().unwrap();
    let encoded = url.replace("redis://", "redis://default:s3cret%3A%2F%40%C3%BC@");
    for (number, test) in [
        Test::new(encoded.as_str()),
        Test::new(url.as_str()).env("REDLOCK_PASSWORD", "s3cret:/@ü"),
        Test::new(url.as_str()).env("REDLOCK_PASSWORD_FILE", file),
        Test::new(url.as_str()).args(["--password-file", file]),
        Test::new(url.as_str()).args(["--password-file", file]).env("REDLOCK_PASSWORD", "wrong"),
    ]
    .into_iter()
    .enumerate()
    {
        test.args(["acquire", "--name", &number.to_string()]).stdout(any()).run();
    }
    for missing in ["/no/such/file", "/"] {
        redlock(url.as_str(), "status x --password-file").arg(missing).stdout(any()).fails(64, [missing]).run();
    }
}

#[test]
fn s64_a_database_that_does_not_exist() {
    let redis = Redis::start();
    let url = format!("{}?db=99", redis.url());
    let test = redlock(url.as_str(), "acquire x").status(64);
    test.stderr(like("redlock: \"x\": <node> has no database with that number; check --redis\n")).run();
}
