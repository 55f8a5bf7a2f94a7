//! A call that names no server uses the default address, and says so if a lock or the exit status depends on the
//! server. A variable such as REDLOCK_URL probably means the address, so a call that has one is refused, unless
//! redlock's own settings name the server. With -q all this stays the same. A Redis on this machine changes nothing.

use crate::support::{Network, Pattern, Redis, Test, any, like, message, redlock};
use std::sync::Arc;

const DEFAULT: &str = "redlock: no server was configured: the lock is on 127.0.0.1:6379, for this machine alone; \
                       set --redis or REDLOCK_REDIS\n";

/// Their answers depend on where the lock is.
const CALLS: [&str; 7] = [
    "run backup -E 0 -- true",
    "acquire backup --ttl 100ms --wait 10s",
    "wait backup --timeout 10s",
    "status free -q",
    "check backup --within 1h",
    "run --name a --name b -- true",
    "run backup --wait 300ms -- true",
];

/// Variables that users set by mistake instead of REDLOCK_REDIS.
const OTHER_NAMES: [&str; 8] = [
    "REDLOCK_URL",
    "REDLOCK_URI",
    "REDLOCK_HOST",
    "REDLOCK_SERVER",
    "REDLOCK_NODES",
    "REDLOCK_ADDR",
    "REDLOCK_ADDRESS",
    "REDLOCK_REDIS_URL",
];

/// A call that names no server, in this network.
fn call(network: &Arc<Network>, line: &str) -> Test {
    Test::bare().in_network(network).args(line.split(' '))
}

/// Each of [`CALLS`], with and without -q.
fn calls() -> impl Iterator<Item = String> {
    let both = |line: &str| [line.to_owned(), format!("-q {line}")];
    CALLS.iter().flat_map(move |line| both(line))
}

/// The line that refuses this variable, and names the right one.
fn refusal(name: &str) -> Pattern {
    message([&format!("unknown variable {name} (REDLOCK_REDIS?)"), "set REDLOCK_REDIS or --redis"])
}

#[test]
fn a_variable_that_means_the_address_is_refused_with_or_without_a_server_here() {
    let Some(network) = Network::new() else { return };
    let elsewhere = Redis::start();
    let refused = |line: &str, name: &str| {
        call(&network, line).env(name, elsewhere.url()).status(64).stderr(refusal(name)).run();
    };
    let refuses = || {
        for name in OTHER_NAMES {
            for line in ["run backup -q -E 0 -- true", "status -q backup"] {
                refused(line, name);
            }
            let beside = call(&network, "run backup -q -E 0 -- true").env(name, "redis://h");
            beside.env("REDIS_URL", elsewhere.url()).status(64).stderr(refusal(name)).run();
        }
        for line in calls().chain(["status", "log", "doctor", "release backup --force"].map(str::to_owned)) {
            refused(&line, OTHER_NAMES[0]);
        }
    };
    refuses();
    let here = Redis::on_default_port(&network);
    refuses();
    assert!(here.keys_without_history().is_empty() && elsewhere.keys_without_history().is_empty());
    // If the call names the nodes, redlock reports the variable, even with -q, and goes on.
    for name in OTHER_NAMES {
        let said = format!("redlock: ignoring unknown variable {name} (REDLOCK_REDIS?)\n");
        redlock(&elsewhere, "run backup -q -- true").env(name, "redis://h").stderr(said.as_str()).run();
        let by_flag = call(&network, "status -q backup --redis").arg(elsewhere.url());
        by_flag.env(name, "redis://h").stderr(said.as_str()).run();
        redlock(&elsewhere, "run backup -q -- true").env(name, "").run();
    }
}

#[test]
fn the_default_address_is_reported_with_q_too_by_what_depends_on_it() {
    let Some(network) = Network::new() else { return };
    // Mistakes in a crontab: no variable, an empty variable, a variable of another program, a misspelt variable.
    let mistakes = [
        ("LANG", "C"),
        ("REDLOCK_REDIS", ""),
        ("REDIS_URL", ""),
        ("REDIS_HOST", "prod"),
        ("REDLOK_REDIS", "redis://h"),
    ];
    for line in calls().filter(|line| !line.contains("--timeout") && !line.contains("10s")) {
        for (name, value) in mistakes {
            let said = like(format!("{DEFAULT}redlock: <any>127.0.0.1:6379 is unreachable<any>\n"));
            let said = if line.contains("300ms") && !line.contains("-q") { any() } else { said };
            let finished = call(&network, &line).env(name, value).status(69).stderr(said).stdout(any()).run();
            assert!(finished.stderr.starts_with(DEFAULT), "{line}");
        }
    }
    let here = Redis::on_default_port(&network);
    for line in calls() {
        for (name, value) in mistakes {
            let finished = call(&network, &line).env(name, value).stdout(any()).stderr(any()).run();
            assert_eq!(finished.stderr.matches(DEFAULT).count(), 1, "{line}\n{}", finished.stderr);
            if line.starts_with("-q") {
                assert_eq!(finished.stderr, DEFAULT, "{line}");
            }
        }
    }
    // A call that itself names the default address gets no such line.
    for line in calls().filter(|line| line.starts_with("-q")) {
        call(&network, &line).env("REDIS_URL", "redis://127.0.0.1").stdout(any()).run();
        call(&network, &line).env("REDLOCK_REDIS", "redis://127.0.0.1:6379").stdout(any()).run();
    }
    // These take no lock, and their exit status does not depend on one.
    for line in ["status", "status backup", "log", "status --format prometheus"] {
        let finished = call(&network, line).stdout(any()).stderr(any()).run();
        assert!(!finished.stderr.contains("no server was configured"), "{line}");
    }
    // The message to a wrong call is about the mistake, not about the default address.
    call(&network, "run backup --log 0 --once-per 1h -- true").fails(64, ["--once-per"]).run();
    drop(here);
}

#[test]
fn what_runs_inside_a_job_on_the_default_address_does_not_say_it_again() {
    let Some(network) = Network::new() else { return };
    let (here, theirs) = (Redis::on_default_port(&network), Redis::start());
    let script = "
        redlock run -q inner -- redlock run -q innermost -- true || exit 11
        token=$(redlock acquire -q other) && redlock release -q other --token $token || exit 12
        redlock wait -q other && redlock status -q other || exit 13
        redlock check inner --within 1h >/dev/null || exit 14
        [ -z \"${REDLOCK_REDIS+set}\" ] || exit 15
        export REDIS_URL=$THEIRS
        redlock run -q theirs -- true || exit 16
        unset REDIS_URL
        REDLOCK_URL=redis://h redlock run -q inner -- true && exit 17
        true";
    let test = call(&network, "run -q backup -- sh -c").arg(script).env("THEIRS", theirs.url());
    let refused = "redlock: unknown variable REDLOCK_URL <any>\n";
    test.stderr(like(format!("{DEFAULT}{refused}"))).run();
    let has = |redis: &Redis, name: &str| redis.keys_without_history().iter().any(|key| key.contains(name));
    assert!(has(&theirs, "theirs") && !has(&theirs, "inner"));
    assert!(has(&here, "innermost") && !has(&here, "theirs"));
}

#[test]
fn what_kubernetes_sets_is_nobodys_mistake() {
    let redis = Redis::start();
    let variables = [
        ("REDLOCK_SERVICE_HOST", "10.0.0.7"),
        ("REDLOCK_SERVICE_PORT", "6379"),
        ("REDLOCK_SERVICE_PORT_REDIS", "6379"),
        ("REDLOCK_PORT", "tcp://10.0.0.7:6379"),
        ("REDLOCK_PORT_6379_TCP", "tcp://10.0.0.7:6379"),
        ("REDLOCK_PORT_6379_TCP_ADDR", "10.0.0.7"),
        ("REDLOCK_REDIS_SERVICE_HOST", "10.0.0.8"),
        ("REDLOCK_REDIS_SERVICE_PORT", "6379"),
        ("REDLOCK_REDIS_PORT", "tcp://10.0.0.8:6379"),
        ("REDLOCK_REDIS_PORT_6379_TCP_PROTO", "tcp"),
        ("REDLOCK_NODES_PORT_6379_TCP_ADDR", "10.0.0.9"),
        ("REDLOCK_VERSION", "0.1.0"),
    ];
    let with = |test: Test| variables.iter().fold(test, |test, (name, value)| test.env(name, value));
    with(redlock(&redis, "run -q backup -- true")).run();
    with(Test::bare().args(["run", "-q", "backup", "--", "true"])).env("REDIS_URL", redis.url()).run();
    if let Some(network) = Network::new() {
        let _here = Redis::on_default_port(&network);
        with(call(&network, "run -q backup -- true")).stderr(DEFAULT).run();
    }
}

#[test]
fn local_is_an_address_that_was_named() {
    let test = Test::bare();
    let directory = test.directory();
    test.args(["run", "-q", "backup", "--redis", "local:", "--", "redlock", "status", "-q", "other"]).run();
    Test::sh("local:", "redis-cli -s .local/state/redlock/*/redis.sock shutdown").in_directory(&directory).run();
}
