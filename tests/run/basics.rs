//! `redlock run`: what the job gets, how it ends, and that the lock is held as long as the job runs. Other files test
//! signals, processes and the timeline of a lost lease.

use crate::support::{
    Directory, Monitor, Redis, SOON, Test, acquire, alive, any, at_last, command_calls, eventually, like, message, ms,
    redlock, regex, reset_command_calls, when,
};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

const ACQUIRED: &str = "redlock: acquired \"backup\" on <node>, token <token>, fencing token <n>, lease 30s\n";

fn run<const N: usize>(redis: &Redis, arguments: [&str; N]) -> Test {
    redlock(redis, "run --name backup").args(arguments)
}

#[test]
fn runs_the_command_says_so_on_standard_error_and_releases() {
    let redis = Redis::start();
    let finished = run(&redis, ["--", "echo", "hello"]).stdout("hello\n").stderr(like(ACQUIRED)).run();
    let words: Vec<&str> = finished.stderr.split([' ', ',']).collect();
    let at = words.iter().position(|word| *word == "token").unwrap();
    assert!(words[at + 1].len() >= 22, "the whole token: {}", finished.stderr);
    assert_eq!(redis.keys_without_history(), ["{redlock:backup}:\u{1f}fence"]);
    let tcp = Redis::with_tcp(&[]);
    let acquired = ACQUIRED.replace("<node>", &tcp.address());
    redlock(tcp.tcp_url().as_str(), "run --name backup -- true").stderr(like(acquired)).run();
}

#[test]
fn quiet_leaves_standard_error_to_the_job() {
    let redis = Redis::start();
    run(&redis, ["-q", "--", "sh", "-c", "echo out; echo err >&2"]).stdout("out\n").stderr("err\n").run();
}

#[test]
fn the_command_is_started_directly_with_its_arguments_as_they_are() {
    let redis = Redis::start();
    run(&redis, ["-q", "--", "printf", "[%s]", "a b", "$HOME", "*", "", "--ttl", "ü"])
        .stdout("[a b][$HOME][*][][--ttl][ü]")
        .run();
    run(&redis, ["-q", "--", "printf", "%s", "--name"]).stdout("--name").run();
    run(&redis, ["-q", "--", "cat"]).stdin("through\0it").stdout("through\0it").run();
}

#[test]
fn the_status_of_the_command_is_passed_on() {
    let redis = Redis::start();
    for status in (0..=255).step_by(5).chain([1, 2, 126, 127, 128, 137, 143]) {
        run(&redis, ["-q", "--", "sh", "-c", &format!("exit {status}")]).status(status).run();
    }
    assert!(!redis.exists("redlock:backup"));
}

#[test]
fn death_by_signal_is_passed_on_as_death_by_the_same_signal() {
    let redis = Redis::start();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGKILL,
        Signal::SIGUSR1,
        Signal::SIGPIPE,
        Signal::SIGSEGV,
        Signal::SIGABRT,
        Signal::SIGALRM,
    ] {
        let script = format!("kill -{} $$", signal as i32);
        let test = run(&redis, ["-q", "--", "sh", "-c", &script]).signal(signal);
        let directory = test.directory();
        test.run();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "a core of {signal}");
    }
    assert!(!redis.exists("redlock:backup"));
    let script = "redlock run -q --name backup -- sh -c 'kill -TERM $$'; echo $?";
    // Some shells report that the job was terminated.
    Test::sh(&redis, script).stdout("143\n").stderr(any()).run();
}

#[test]
fn a_command_that_cannot_be_started_is_126_or_127_and_the_lock_is_released() {
    let redis = Redis::start();
    let directory = Directory::new();
    let file = directory.path().join("not-executable");
    std::fs::write(&file, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (file, folder) = (file.to_str().unwrap(), directory.path().to_str().unwrap());
    for (command, status) in [(file, 126), (folder, 126), ("no-such-command-anywhere", 127), ("./no-such-file", 127)] {
        run(&redis, ["-q", "--", command]).status(status).stderr(message([command])).run();
        assert!(!redis.exists("redlock:backup"), "{command}");
    }
}

#[test]
fn the_job_knows_its_lock_and_where_it_is() {
    let redis = Redis::start();
    let test = redlock(&redis, "run backup --prefix app: --node-timeout 700ms");
    let finished = test.args(["--", "env"]).env("KEPT", "as it was").stdout(any()).stderr(like(ACQUIRED)).run();
    let environment: BTreeMap<&str, &str> = finished.stdout.lines().filter_map(|line| line.split_once('=')).collect();
    assert_eq!(environment["REDLOCK_NAME"], "backup");
    assert!(finished.stderr.contains(&format!("token {},", environment["REDLOCK_TOKEN"])), "{}", finished.stderr);
    let fencing = format!("fencing token {},", environment["REDLOCK_FENCING_TOKEN"]);
    assert!(finished.stderr.contains(&fencing), "{}", finished.stderr);
    assert_eq!(environment["REDLOCK_REDIS"], redis.url());
    assert_eq!(environment["REDLOCK_PREFIX"], "app:");
    assert_eq!(environment["REDLOCK_NODE_TIMEOUT"], "700ms");
    assert_eq!(environment["KEPT"], "as it was");
}

#[test]
fn extend_status_and_release_work_in_the_job_without_arguments() {
    let redis = Redis::start();
    let script = "redlock extend -q --ttl 1h && redlock status -q backup; test $? = 75 && redlock status -q --token $REDLOCK_TOKEN backup";
    let test = Test::bare().args(["run", "-q", "--name", "backup", "--redis", &redis.url(), "--prefix", "app:"]);
    test.args(["--", "sh", "-c", script]).stdout(any()).run();
}

#[test]
fn another_lock_in_the_job_does_not_take_the_jobs_token() {
    let redis = Redis::start();
    let script = "redlock release --name other; echo $?; redlock run -q --name other -- true; echo $?";
    run(&redis, ["-q", "--", "sh", "-c", script]).stdout("64\n0\n").stderr(message(["--token"])).run();
}

#[test]
fn a_busy_lock_is_75_and_the_command_is_not_started() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    run(&redis, ["--", "echo", "started"])
        .status(75)
        .stderr(message(["\"backup\" is held by", "use --wait to queue for it"]))
        .run();
    run(&redis, ["-q", "--", "echo", "started"]).turned_away().run();
    run(&redis, ["-q", "-E", "0", "--", "echo", "started"]).run();
    run(&redis, ["-q", "-E", "42", "--", "echo", "started"]).status(42).run();
    run(&redis, ["-q", "--wait", "1s", "--", "echo", "started"]).turned_away().run();
    run(&redis, ["-q", "--wait", "0", "--", "echo", "started"]).turned_away().run();
}

#[test]
fn what_never_ends_by_itself_is_said_whatever_is_asked_for() {
    let redis = Redis::start();
    let said = "never expires";
    redis.command(&["SET", "redlock:backup", "theirs"]);
    run(&redis, ["-q", "-E", "0", "--", "true"]).stderr(message(["\"backup\"", said])).run();
    let waiter = run(&redis, ["-q", "-E", "0", "--wait", "--", "true"]).spawn();
    waiter.says(when(said, move |line| line.starts_with("redlock: waiting for \"backup\"") && line.contains(said)));
    redis.command(&["DEL", "redlock:backup"]);
    waiter.finish();
}

#[test]
fn a_command_that_does_not_exist_is_noticed_before_waiting_in_line() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    for (command, said) in [
        ("no-such-command", "redlock: \"backup\" did not run: cannot start \"no-such-command\": not found\n"),
        ("./no-such-job", "redlock: \"backup\" did not run: cannot start \"./no-such-job\": not found\n"),
        ("", "redlock: \"backup\" did not run: cannot start \"\": the word is empty; is a variable unset?\n"),
    ] {
        run(&redis, ["--wait", "10m", "--", command]).status(127).stderr(said).run();
    }
    for (command, said) in [("/etc/passwd", "permission denied"), ("/etc", "it is a directory")] {
        let said = format!("redlock: \"backup\" did not run: cannot start \"{command}\": {said}\n");
        run(&redis, ["--wait", "10m", "--", command]).status(126).stderr(said).run();
    }
    for word in ["sleep 1", "A=1", "ls|wc", "cd", "exit", "~/job", "$JOB"] {
        let said =
            format!("redlock: \"backup\" did not run: cannot start \"{word}\": not found; -c runs a shell line\n");
        run(&redis, ["--wait", "10m", "--", word, "/dir"]).status(127).stderr(said).run();
    }
}

#[test]
fn wait_starts_the_command_when_the_lock_is_free() {
    let redis = Redis::start();
    let (first, writer) = run(&redis, ["-q", "--", "sh", "-c", "echo ready; cat"]).ready_to_read();
    let second = run(&redis, ["--wait", "--", "echo", "mine"])
        .stdout("mine\n")
        .stderr(at_last(message(["acquired \"backup\""])))
        .spawn();
    second.says(like("redlock: <any>\"backup\"<any>"));
    assert_eq!(second.all_stdout(), "");
    drop(writer);
    first.finish();
    second.finish();
}

#[test]
fn a_job_of_two_ttls_keeps_the_lock_throughout() {
    let redis = Redis::start();
    let monitor = Monitor::new(&redis);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut job = run(&redis, ["-q", "--ttl", "3s", "--", "cat"]).stdin_from(reader).spawn();
    eventually(SOON, "acquired", || redis.exists("redlock:backup"));
    let token = redis.get("redlock:backup");
    let mut least = i64::MAX;
    let start = Instant::now();
    while start.elapsed() < ms(6_200) {
        assert!(!job.has_ended());
        assert_eq!(redis.get("redlock:backup"), token);
        least = least.min(redis.pttl("redlock:backup"));
        std::thread::sleep(ms(5));
    }
    drop(writer);
    job.finish();
    assert!(least > 500, "renewed late: {least} ms were left");
    assert!(!redis.exists("redlock:backup"));
    // The grant, the release, and about 8 renewals: one each 750 ms (ttl/4). The test's own requests are no scripts.
    let calls = monitor.commands(&redis).iter().filter(|name| name.starts_with("EVAL")).count();
    assert!((6..=20).contains(&calls), "{calls}");
}

#[test]
fn acquiring_renewing_and_releasing_are_one_round_trip_each() {
    let redis = Redis::start();
    run(&redis, ["-q", "--ttl", "4s", "--", "sleep", "1.2"]).run();
    let monitor = Monitor::new(&redis);
    reset_command_calls(&redis);
    run(&redis, ["-q", "--ttl", "8s", "--", "sleep", "2.5"]).run();
    let calls = command_calls(&redis);
    let commands = monitor.commands(&redis);
    let commands: Vec<&String> =
        commands.iter().filter(|name| !["CONFIG", "INFO", "PING"].contains(&name.as_str())).collect();
    assert_eq!(commands, ["EVALSHA", "CLIENT", "EVALSHA", "EVALSHA"], "take and the name, one renewal, release");
    for chatter in ["ping", "hello", "client|setinfo", "script|load", "keys"] {
        assert!(!calls.contains_key(chatter), "{chatter}: {calls:?}");
    }
}

#[test]
fn a_job_that_dies_of_the_forwarded_signal_ends_redlock_the_same_way() {
    let redis = Redis::start();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let job = run(&redis, ["-q", "--", "sh", "-c", "echo ready; exec sleep 30"]).signal(signal).ready();
        job.send(signal);
        job.finish();
        assert!(!redis.exists("redlock:backup"));
    }
}

#[test]
fn an_interrupted_wait_starts_nothing() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let waiter = run(&redis, ["--wait", "--", "echo", "started"]).interrupted(signal).spawn();
        waiter.says(like("redlock: <any>\"backup\"<any>"));
        waiter.send(signal);
        waiter.finish();
    }
}

#[test]
fn max_run_stops_the_job_with_124() {
    let redis = Redis::start();
    let job = run(&redis, ["--max-run", "300ms", "--", "sh", "-c", "echo $$; exec sleep 30"]).status(124);
    let job = job.stderr(message(["\"backup\"", "300ms"])).stdout(regex("")).spawn();
    job.says(like(ACQUIRED.trim_end()));
    let pid: u32 = job.stdout_line().parse().unwrap();
    let finished = job.finish();
    assert!(finished.elapsed >= ms(300), "{:?}", finished.elapsed);
    assert!(!alive(pid) && !redis.exists("redlock:backup"));
    run(&redis, ["-q", "--max-run", "20s", "--", "sh", "-c", "exit 3"]).status(3).run();
    // The job gets SIGTERM first, and its own status does not count. The shell may report the end of `sleep`.
    let ended = "exec 2>/dev/null; trap 'echo term; exit 9' TERM; echo ready; while :; do sleep 0.01; done";
    let ended = run(&redis, ["--max-run", "200ms", "--", "sh", "-c", ended]).status(124).stdout("ready\nterm\n");
    ended.stderr(at_last(message(["(--max-run)"]))).run();
    let deaf = run(&redis, ["-q", "--ttl", "20s", "--kill-after", "200ms", "--max-run", "200ms", "--", "sh", "-c"]);
    let deaf = deaf.arg("trap '' TERM; while :; do sleep 0.05; done").status(124);
    // The message comes with -q, too, so that cron mails it when a job is killed every night.
    let deaf = deaf.stderr("redlock: stopped the job of \"backup\" after 200ms (--max-run)\n");
    deaf.run();
}
