//! The environment of a job: the caller's variables as they were, variables about the lock, and the settings that came
//! by flags. So a bare `redlock extend` and a nested `redlock run` work in the job, also with a password.

use crate::support::{Directory, Redis, Test, any, like, redlock};
use std::collections::BTreeMap;

/// Nested `run`s, bare `extend`s, and other commands that a job may call. The status shows which call failed.
const USES: &str = "
    redlock extend -q || exit 11
    redlock run -q --name inner -- redlock run -q --name innermost -- redlock extend -q || exit 12
    redlock run -q --reentrant --name backup -- redlock extend -q || exit 13
    token=$(redlock acquire -q --name other) || exit 14
    redlock release -q --name other --token $token || exit 15
    redlock status free >/dev/null || exit 16
    cd / && redlock extend -q || exit 17";

/// The environment that the job prints with `env -0`.
#[track_caller]
fn environment(test: Test) -> BTreeMap<String, String> {
    entries(test.args(["--", "env"]))
}

#[track_caller]
fn entries(test: Test) -> BTreeMap<String, String> {
    let printed = test.arg("-0").stdout(any()).run().stdout;
    let entries = printed.split_terminator('\0').map(|entry| entry.split_once('=').unwrap());
    entries.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The environment of a program that is started in the same way, but not by redlock.
#[track_caller]
fn without_redlock(test: Test, besides: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries(besides.iter().fold(test, |test, (name, value)| test.env(name, value)))
}

/// Removes the variables about the lock itself, which must exist.
#[track_caller]
fn take_own(environment: &mut BTreeMap<String, String>) {
    assert_eq!(environment.remove("REDLOCK_NAME").as_deref(), Some("backup"));
    let token = environment.remove("REDLOCK_TOKEN").unwrap();
    assert!(environment.remove("REDLOCK_FENCING_TOKEN").unwrap().parse::<u64>().is_ok());
    assert!(environment.remove("REDLOCK_HELD").unwrap().contains(&token));
}

#[test]
fn it_is_the_callers_as_it_was() {
    let redis = Redis::with_tcp(&["--requirepass", "s3cret"]);
    let (url, directory) = (redis.tcp_url(), std::sync::Arc::new(Directory::new()));
    let with_password = url.replace("redis://", "redis://:s3cret@");
    let several_lines = "two\nlines = and more";
    for variables in [
        &[("REDIS_URL", with_password.as_str())][..],
        &[("REDLOCK_REDIS", &with_password), ("REDIS_URL", "redis://elsewhere.invalid")],
        &[("REDLOCK_REDIS", &url), ("REDLOCK_PASSWORD", "s3cret")],
        &[("REDIS_URL", &url), ("REDLOCK_PASSWORD", "s3cret"), ("REDLOCK_PREFIX", ""), ("REDLOCK_LABEL", "nightly")],
        &[("REDIS_URL", &with_password), ("REDLOCK_NODE_TIMEOUT", "2s 500ms"), ("REDLOCK_QUARANTINE", "0")],
        &[("REDIS_URL", &with_password), ("KEPT", several_lines), ("EMPTY", ""), ("LISTEN_PID", "1")],
        &[("REDIS_URL", &with_password), ("REDLOCK_NODE_TIMEOUT", ""), ("REDLOCK_REDIS", "")],
    ] {
        let start = |program: Test| {
            let test = program.in_directory(&directory).env("TEST_TAG", "the same");
            variables.iter().fold(test, |test, (name, value)| test.env(name, value))
        };
        let mut found = environment(start(Test::bare()).args(["run", "-q", "--name", "backup"]));
        take_own(&mut found);
        assert_eq!(found, without_redlock(start(Test::of("env")), &[]), "{variables:?}");
    }
}

#[test]
fn what_came_by_flags_is_in_it_too_and_nothing_else() {
    let redis = Redis::with_tcp(&["--requirepass", "s3cret"]);
    let directory = std::sync::Arc::new(Directory::new());
    let file = directory.path().join("password");
    std::fs::write(&file, "s3cret\n").unwrap();
    let (url, file) = (redis.tcp_url(), file.to_str().unwrap());
    let start = |program: Test| {
        // The flags count, and not these variables. The job gets the flags' settings as variables; REDIS_URL and
        // REDLOCK_LABEL reach it unchanged.
        let variables = [
            ("REDLOCK_REDIS", "redis://elsewhere.invalid"),
            ("REDIS_URL", "redis://another.invalid"),
            ("REDLOCK_PREFIX", "theirs:"),
            ("REDLOCK_LABEL", "theirs"),
        ];
        let test = program.in_directory(&directory).env("TEST_TAG", "the same");
        variables.iter().fold(test, |test, (name, value)| test.env(name, value))
    };
    let test = start(Test::bare()).args(["run", "-q", "--name", "backup", "--redis", &url, "--prefix", "app:"]);
    let test = test.args(["--node-timeout", "700ms", "--quarantine", "0", "--password-file", file]);
    let mut found = environment(test.args(["--label", "mine"]));
    take_own(&mut found);
    assert_eq!(found.remove("REDLOCK_QUARANTINE").map(|text| humantime::parse_duration(&text).unwrap_or_default()), {
        Some(std::time::Duration::ZERO)
    });
    let expected = [
        ("REDLOCK_REDIS", url.as_str()),
        ("REDLOCK_PREFIX", "app:"),
        ("REDLOCK_NODE_TIMEOUT", "700ms"),
        ("REDLOCK_PASSWORD_FILE", file),
    ];
    assert_eq!(found, without_redlock(start(Test::of("env")), &expected));
}

#[test]
fn a_nested_redlock_finds_its_password() {
    let redis = Redis::with_tcp(&["--requirepass", "s3cret"]);
    let url = redis.tcp_url();
    let with_password = url.replace("redis://", "redis://:s3cret@");
    let directory = Directory::new();
    let file = directory.path().join("password");
    std::fs::write(&file, "s3cret\n").unwrap();
    let file = file.to_str().unwrap();
    for (how, test) in [
        ("REDLOCK_REDIS", Test::new(with_password.as_str())),
        ("REDIS_URL", Test::bare().env("REDIS_URL", &with_password)),
        ("REDLOCK_PASSWORD", Test::new(url.as_str()).env("REDLOCK_PASSWORD", "s3cret")),
        ("REDLOCK_PASSWORD beside REDIS_URL", Test::bare().env("REDIS_URL", &url).env("REDLOCK_PASSWORD", "s3cret")),
        ("REDLOCK_PASSWORD_FILE", Test::new(url.as_str()).env("REDLOCK_PASSWORD_FILE", file)),
        ("--redis", Test::new("redis://elsewhere.invalid").args(["--redis", &with_password])),
        ("--redis beside REDLOCK_PASSWORD", Test::bare().args(["--redis", &url]).env("REDLOCK_PASSWORD", "s3cret")),
        ("--password-file", Test::new(url.as_str()).args(["--password-file", file]).env("REDLOCK_PASSWORD", "wrong")),
    ] {
        let test = test.args(["run", "--name", "backup", "--", "sh", "-c", USES]);
        let finished = test.stderr(like("redlock: acquired \"backup\" <any>\n")).run();
        assert!(!finished.stderr.contains("s3cret"), "{how}: {}", finished.stderr);
    }
}

#[test]
fn a_nested_redlock_finds_several_nodes_and_a_prefix_given_by_flags() {
    let nodes = Redis::several(3);
    let mut test = Test::bare().args(["run", "-q", "--name", "backup", "--prefix", "app:", "--quarantine", "0"]);
    for node in &nodes {
        test = test.args(["--redis", &node.url()]);
    }
    test.args(["--", "sh", "-c", USES]).run();
    assert!(nodes.iter().any(|node| node.exists("{app:inner}:\u{1f}fence")));
}

#[test]
fn a_variable_that_redlock_does_not_have_is_named_and_never_honoured() {
    let redis = Redis::start();
    let test = || redlock(&redis, "acquire backup --format json").env("REDLOCK_TTL", "5m").stdout(any());
    let said = "redlock: ignoring unknown variable REDLOCK_TTL; redlock --help names the known ones\n";
    let object = test().stderr(like(said)).run().json();
    assert_eq!(object["ttl_ms"], 30_000);
    redis.command(&["FLUSHALL"]);
    let job = ["REDLOCK_NAME", "REDLOCK_TOKEN", "REDLOCK_FENCING_TOKEN", "REDLOCK_HELD"];
    let test = job.into_iter().fold(test(), |test, name| test.env(name, "x"));
    let said = format!("{said}redlock: redis <any> (REDLOCK_REDIS)\nredlock: acquired <any>\n");
    test.arg("-v").stderr(like(said)).run();
    let test = |command| redlock(&redis, command).env("REDLOCK_REDIS_URL", "redis://elsewhere");
    for line in ["status -q free", "status free"] {
        let test = test(line).stdout(any());
        test.stderr("redlock: ignoring unknown variable REDLOCK_REDIS_URL (REDLOCK_REDIS?)\n").run();
    }
}
