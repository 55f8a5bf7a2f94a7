//! If a failure ends `run` before its job has begun, one line on standard error says that the job did not run. cron
//! mails it to the person who has to know whether there is a backup.

use crate::support::{Mode, Proxy, Redis, SOON, Test, acquire, any, eventually, like, redlock, release, send, status};
use nix::sys::signal::Signal;

/// redlock's only line gives this reason, with -q, too.
#[track_caller]
fn did_not_run(test: impl Fn(&str) -> Test, line: &str, status: i32, why: &str) {
    for quiet in ["", "-q "] {
        let said = like(format!("redlock: \"backup\" did not run: {why}\n"));
        test(&format!("run {quiet}backup {line}")).status(status).stderr(said).run();
    }
}

#[test]
fn where_redis_cannot_serve() {
    let on = |url: &'static str| move |line: &str| redlock(url, line);
    let nowhere = "unix:///nosuch/s";
    let unreachable = "/nosuch/s is unreachable (no such file or directory); <any>";
    did_not_run(on(nowhere), "-- true", 69, unreachable);
    did_not_run(on(nowhere), "-E 0 --once-per day --wait 0 -- true", 69, unreachable);
    redlock(nowhere, "run -q backup --wait 200ms -- true")
        .status(69)
        .stderr(like(format!("redlock: \"backup\" did not run: {unreachable}\n")))
        .run();
    let few = "0 of 3 nodes answered, 2 needed: <any>unreachable<any>; <any>";
    did_not_run(on("unix:///no/a,unix:///no/b,unix:///no/c"), "-- true", 69, few);

    let redis = Redis::with(&["--requirepass", "s3cret"]);
    let url = redis.url();
    let here = |line: &str| redlock(url.as_str(), line);
    let with = |password: &'static str| move |line: &str| here(line).env("REDLOCK_PASSWORD", password);
    did_not_run(here, "-- true", 78, "<node> requires a password (NOAUTH); <any>");
    did_not_run(with("wr0ng"), "-- true", 78, "<node> <any>password<any>; <any>");
    did_not_run(with("wr0ng"), "--wait 10m -- true", 78, "<node> <any>password<any>; <any>");
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    did_not_run(with("s3cret"), "-- true", 69, "<node> is out of memory (OOM); <any>");
}

#[test]
fn where_the_lease_comes_too_late() {
    let redis = Redis::start();
    let slow = Proxy::new(&redis, Mode::Delay(std::time::Duration::from_millis(400)));
    let url = slow.url();
    let test = |line: &str| redlock(url.as_str(), line);
    let line = "--ttl 500ms --node-timeout 450ms -- true";
    let finished = test(&format!("run backup {line}")).status(69).stderr(any()).run();
    let start = "redlock: \"backup\" did not run: ";
    assert!(finished.stderr.starts_with(start) && finished.stderr.lines().count() == 1, "{}", finished.stderr);
}

#[test]
fn where_this_machine_is_short_of_something_or_refuses() {
    let redis = Redis::start();
    let here = |line: &str| redlock(&redis, line);
    did_not_run(here, "-- nosuch", 127, "cannot start \"nosuch\": not found");
    did_not_run(here, "-- /etc/passwd", 126, "cannot start \"/etc/passwd\": permission denied");
    let directory = crate::support::Directory::new();
    let broken = directory.without_interpreter();
    let said = format!("redlock: \"backup\" did not run: cannot start \"{broken}\": its interpreter was not found\n");
    redlock(&redis, format!("run -q backup -- {broken}")).status(127).stderr(said).run();
    for limit in 4..7 {
        let script = format!("exec 3<&-; ulimit -n {limit}; exec redlock run -q backup -- true");
        let said = Test::sh(&redis, &script).any_end().stderr(any()).run().stderr;
        assert!(said.starts_with("redlock: \"backup\" did not run: cannot "), "{limit}: {said}");
    }
    let tools = |line: &str| redlock("local:", line).env("PATH", "/nosuch");
    did_not_run(tools, "-- /bin/true", 69, "local: cannot be started: <any>");
    assert!(!redis.exists("redlock:backup"));
}

#[test]
fn where_the_keeper_or_the_lease_to_re_enter_is_lost() {
    let redis = Redis::start();
    let token = acquire(&redis, "other");
    let reenter = |line: &str| redlock(&redis, line.replace("TOKEN", &token));
    did_not_run(reenter, "--reentrant --token TOKEN -- true", 77, "the token does not hold \"backup\", <any>");
    let token = acquire(&redis, "backup");
    let said = like("redlock: \"backup\" did not run: the keeper was killed before it could start the command\n");
    let waiter = redlock(&redis, "run -q backup --wait -- echo started").status(69).stderr(said).spawn();
    eventually(SOON, "it waits", || status(&redis, "backup")["waiting"] == 1);
    send(waiter.keeper(), Signal::SIGKILL);
    waiter.finish();
    release(&redis, "backup", &token);
    assert!(redis.keys_without_history().iter().all(|key| !key.contains("backup") || key.ends_with("fence")));
}

#[test]
fn the_job_of_several_locks_is_reported_with_all_of_them() {
    let said = like("redlock: \"a\" and \"b\" did not run: \"a\": /nosuch/s is unreachable (<any>); <any>\n");
    redlock("unix:///nosuch/s", "run -q --name b --name a -- true").status(69).stderr(said).run();
}

#[test]
fn what_is_held_refused_as_wrong_or_interrupted_speaks_for_itself() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    let says = |line: &str, status: i32| {
        let finished = redlock(&redis, line).status(status).stderr(any()).run();
        assert!(!finished.stderr.contains("did not run"), "{}", finished.stderr);
    };
    says("run backup -- true", 75);
    says("run backup --wait 100ms -- true", 75);
    says("run backup --slots 2 -- true", 64);
    says("run backup --log 0 --once-per 1h -- true", 64);
    // `acquire` has no job, so its message does not speak of one.
    let test = redlock("unix:///nosuch/s", "acquire backup").status(69);
    test.stderr(like("redlock: \"backup\": /nosuch/s is unreachable <any>\n")).run();
}
