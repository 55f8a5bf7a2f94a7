//! `run` with several names: all of the locks or none, in one order, within one wait, for one job.

use crate::support::{
    Directory, Mode, Proxy, Redis, Running, SOON, Test, acquire, any, eventually, key_is_renewed, like, message, ms,
    perhaps, redlock, release, send, several, when,
};
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::time::{Duration, Instant};

const KEYS: [&str; 2] = ["redlock:a", "redlock:b"];

fn run<const N: usize>(redis: &Redis, arguments: [&str; N]) -> Test {
    redlock(redis, "run --name b --name a").args(arguments)
}

/// Waits until one waiter stands in line for this lock.
#[track_caller]
fn queues(redis: &Redis, name: &str) {
    let queue = format!("{{redlock:{name}}}:\u{1f}queue");
    eventually(SOON, "it stands in line", || redis.query::<usize>(&["ZCARD", &queue]) == 1);
}

#[track_caller]
fn are_free(redis: &Redis) {
    assert!(KEYS.iter().all(|key| !redis.exists(key)), "{:?}", redis.keys_without_history());
}

#[test]
fn they_are_taken_in_the_order_of_their_bytes_and_the_job_finds_each() {
    let (redis, nodes) = (Redis::start(), several(3));
    let job = "
        [ $REDLOCK_NAME = b ] && [ $(echo $REDLOCK_HELD | wc -w) = 3 ] || exit 11
        [ $(redlock status --format json b | grep -c ${REDLOCK_TOKEN%${REDLOCK_TOKEN#????????}}) = 1 ] || exit 12
        for name in B a b; do redlock extend -q --name $name || exit 13; done
        redlock run -q inner -- redlock extend -q a || exit 14
        redlock extend other";
    let line = |name| format!("redlock: acquired \"{name}\" on <any>, token <token>, fencing token <n>, lease 30s\n");
    let said = ["B", "a", "b"].map(line).concat() + "redlock: missing --token, which acquire printed\n";
    for test in [Test::new(&redis), Test::new(&nodes)] {
        let test = test.args(["run", "--name", "b", "--name", "a", "--name", "B", "--", "sh", "-c", job]);
        test.status(64).stderr(like(&said)).run();
    }
    are_free(&redis);
}

#[test]
fn two_that_need_each_others_locks_do_not_wait_for_each_other() {
    let (redis, directory) = (Redis::start(), Arc::new(Directory::new()));
    let job = "mkdir inside && echo x >>done && rmdir inside";
    let call = |names: &str| {
        let script =
            format!("for i in 1 2 3 4 5 6 7 8; do redlock run -q {names} --wait 40s -- sh -c '{job}' || exit 1; done");
        Test::sh(&redis, &script).in_directory(&directory).within(Duration::from_secs(60)).spawn()
    };
    let calls = ["--name a --name b", "--name b --name a", "--name b --name a", "--name a --name b"].map(call);
    calls.into_iter().for_each(|call| drop(call.finish()));
    assert_eq!(std::fs::read_to_string(directory.path().join("done")).unwrap().lines().count(), 32);
    are_free(&redis);
}

#[test]
fn one_that_is_held_is_named_and_the_others_are_released() {
    let redis = Redis::start();
    for held in ["a", "b"] {
        let token = acquire(&redis, held);
        let said = message([&format!("\"{held}\" is held by "), "use --wait"]);
        run(&redis, ["-q", "--", "true"]).status(75).stderr(said).run();
        run(&redis, ["-q", "-E", "9", "--", "true"]).status(9).run();
        let said = when("another in the end", move |text| {
            let last = text.lines().last().unwrap_or_default();
            last.starts_with(&format!("redlock: \"{held}\" is held by ")) && last.contains("gave up after ")
        });
        run(&redis, ["--wait", "300ms", "--", "true"]).status(75).stderr(said).run();
        release(&redis, held, &token);
        are_free(&redis);
    }
    run(&redis, ["-q", "--", "true"]).run();
}

#[test]
fn the_wait_is_for_all_of_them_together() {
    let redis = Redis::start();
    let token = acquire(&redis, "a");
    let start = Instant::now();
    let said = when("b in the end", |text| text.lines().last().is_some_and(|last| last.contains("\"b\" is held by ")));
    let waiter = run(&redis, ["--wait", "6s", "--", "true"]).status(75).stderr(said).spawn();
    queues(&redis, "a");
    // This lease ends after the wait of 6 s, but in time for a new wait of 6 s that began with `b`.
    Test::new(&redis).args(["acquire", "b", "--ttl", "7s"]).stdout(any()).run();
    std::thread::sleep(ms(4000).saturating_sub(start.elapsed()));
    release(&redis, "a", &token);
    waiter.finish();
    are_free_of_waiters(&redis);
}

#[track_caller]
fn are_free_of_waiters(redis: &Redis) {
    assert!(
        redis.keys_without_history().iter().all(|key| !key.ends_with("queue") && *key != KEYS[0]),
        "{:?}",
        redis.keys_without_history()
    );
}

/// Starts a call that gets the lock `a`, with a ttl of four seconds, and then stands in line for `b`. Returns the call,
/// and the token of the lease on `b`.
#[track_caller]
fn halfway(redis: &Redis, expect: impl FnOnce(Test) -> Test) -> (Running, String) {
    let token = acquire(redis, "b");
    let test = run(redis, ["-q", "--ttl", "4s", "--wait"]).args(["--", "sh", "-c", "exit 7"]);
    let waiter = expect(test).spawn();
    queues(redis, "b");
    (waiter, token)
}

#[test]
fn those_already_taken_are_renewed_while_it_waits_for_the_next() {
    let redis = Redis::start();
    let (waiter, token) = halfway(&redis, |test| test.status(7));
    let lease = redis.get(KEYS[0]).unwrap();
    let start = Instant::now();
    while start.elapsed() < ms(4500) {
        assert_eq!(redis.get(KEYS[0]).as_ref(), Some(&lease), "{:?}", start.elapsed());
        std::thread::sleep(ms(50));
    }
    release(&redis, "b", &token);
    waiter.finish();
    are_free(&redis);
}

/// Waits until most nodes have a lease on `a`, and none has the lease `before`. Returns the token of the new lease.
#[track_caller]
fn another_lease(nodes: &[Redis], before: Option<&String>) -> String {
    let mut tokens = Vec::new();
    eventually(SOON, "it is taken again", || {
        tokens = nodes.iter().filter_map(|node| node.get(KEYS[0])).collect();
        tokens.len() * 2 > nodes.len() && tokens.iter().all(|token| Some(token) != before)
    });
    tokens.remove(0)
}

/// Waits for [`another_lease`], then until one waiter stands in line for `b` on each node.
#[track_caller]
fn is_taken_again(nodes: &[Redis], before: Option<&String>) -> String {
    let lease = another_lease(nodes, before);
    nodes.iter().for_each(|node| queues(node, "b"));
    lease
}

#[test]
fn one_that_is_lost_while_it_waits_for_the_next_is_released_and_all_are_taken_again() {
    for nodes in [vec![Redis::start()], several(3)] {
        let proxies: Vec<Proxy> = nodes.iter().map(|node| Proxy::new(node, Mode::Pass)).collect();
        let other = acquire(&nodes, "b");
        let again = |text: &str| {
            let again =
                |line: &&str| line.contains("lost \"a\" before the command was ") && line.ends_with("; trying again");
            text.lines().filter(again).count() == 4
        };
        let test = redlock(&proxies, "run --name b --name a --ttl 3s --wait -- sh -c").arg("exit 7").status(7);
        let waiter = test.stderr(when("it tries four times again", again)).spawn();
        let mut token = is_taken_again(&nodes, None);
        redlock(&nodes, "stop -q a").run();
        token = is_taken_again(&nodes, Some(&token));
        redlock(&nodes, "release -q a --force").stderr(perhaps(["run the command again"])).run();
        token = is_taken_again(&nodes, Some(&token));
        // Another waiter stands in line for `a`, and gets the lock first.
        let next = redlock(&nodes, "run a --wait -q -- true").spawn();
        queues(&nodes[0], "a");
        redlock(&nodes, "stop -q a").run();
        next.finish();
        token = is_taken_again(&nodes, Some(&token));
        // The outage lasts longer than the ttl.
        proxies.iter().for_each(|proxy| proxy.set(Mode::BlackHole));
        eventually(SOON, "it has run out", || nodes.iter().all(|node| !node.exists(KEYS[0])));
        std::thread::sleep(ms(300));
        proxies.iter().for_each(|proxy| proxy.set(Mode::Pass));
        // `is_taken_again` expects one waiter in line for `b`. But the call may now stand in line twice, because its
        // request to leave the line may have been lost in the outage.
        another_lease(&nodes, Some(&token));
        release(&nodes, "b", &other);
        waiter.finish();
        nodes.iter().for_each(are_free);
    }
}

/// A call loses its first lease while it waits for the next lock. The loss does not prolong the wait.
fn does_not_wait_longer(nodes: &Vec<Redis>) {
    let proxies: Vec<Proxy> = nodes.iter().map(|node| Proxy::new(node, Mode::Pass)).collect();
    let waiter = || redlock(&proxies, "run -q --name b --name a --ttl 2s --wait 6s -- true");
    acquire(nodes, "b");
    let held = waiter().status(75).stderr(message(["\"b\" is held by ", "gave up after 6s"])).spawn();
    let token = is_taken_again(nodes, None);
    redlock(nodes, "release -q a --force").stderr(perhaps(["run the command again"])).run();
    is_taken_again(nodes, Some(&token));
    let took = held.finish().elapsed;
    assert!(took >= ms(6000), "{took:?}");
    nodes.iter().for_each(|node| eventually(SOON, "it is given back", || !node.exists(KEYS[0])));
    // While the call waits for `b`, all nodes stop answering, for good.
    let away = waiter().status(69).stderr(message(["\"a\": ", "timed out"])).spawn();
    is_taken_again(nodes, None);
    proxies.iter().for_each(|proxy| proxy.set(Mode::BlackHole));
    let took = away.finish().elapsed;
    assert!(took >= ms(6000), "{took:?}");
}

#[test]
fn one_that_is_lost_while_it_waits_for_the_next_does_not_prolong_the_wait() {
    std::thread::scope(|scope| {
        scope.spawn(|| does_not_wait_longer(&vec![Redis::start()]));
        scope.spawn(|| does_not_wait_longer(&several(3)));
    });
}

/// The keeper is stopped until it is too late to start the command. Meanwhile the lease on `a` is lost. `again`: how
/// often the call then tries again.
#[track_caller]
fn loses_one_before_the_start(wait: &str, status: i32, again: usize) {
    let redis = Redis::start();
    let other = acquire(&redis, "b");
    let said = when("how often it tries again", move |text| {
        let lost = text.matches("lost \"a\" before the command was started: it was released or deleted on ").count();
        (lost, text.matches("; trying again").count()) == (1, again)
    });
    let test = run(&redis, ["--ttl", "12s", "--wait", wait, "-E", "9", "--", "sh", "-c", "exit 7"]);
    let waiter = test.status(status).stderr(said).within(SOON * 3).spawn();
    queues(&redis, "b");
    let keeper = waiter.keeper();
    key_is_renewed(&redis, KEYS[0]);
    // The next renewal comes about two seconds after the grant of `b`. The last moment for the start is three seconds
    // after this grant.
    std::thread::sleep(ms(1000));
    send(keeper, Signal::SIGSTOP);
    release(&redis, "b", &other);
    eventually(SOON, "it has both", || redis.get(KEYS[1]).is_some_and(|token| token != other));
    let granted = Instant::now();
    redis.command(&["DEL", KEYS[0]]);
    eventually(SOON, "the loss is known", || waiter.all_stderr().contains("lost \"a\": "));
    std::thread::sleep(ms(3100).saturating_sub(granted.elapsed()));
    send(keeper, Signal::SIGCONT);
    waiter.finish();
    are_free(&redis);
}

#[test]
fn one_that_is_lost_before_a_start_that_comes_too_late_is_taken_again_within_the_wait() {
    std::thread::scope(|scope| {
        scope.spawn(|| loses_one_before_the_start("1h", 7, 1));
        // The wait is over before the keeper goes on: the call ends with the status for a busy lock (-E).
        scope.spawn(|| loses_one_before_the_start("6500ms", 9, 0));
    });
}

#[test]
fn a_signal_that_ends_the_wait_leaves_nothing() {
    let redis = Redis::start();
    let (waiter, _) = halfway(&redis, |test| test.signal(Signal::SIGTERM));
    waiter.send(Signal::SIGTERM);
    waiter.finish();
    are_free_of_waiters(&redis);
}

#[test]
fn the_job_is_one() {
    let redis = Redis::start();
    for code in [0, 7, 64, 75, 76] {
        run(&redis, ["-q", "-E", "9", "--", "sh", "-c", &format!("exit {code}")]).status(code).run();
    }
    run(&redis, ["-q", "--", "sh", "-c", "kill -KILL $$"]).signal(Signal::SIGKILL).run();
    let said = message(["not found"]);
    run(&redis, ["-q", "--", "./no-such-command"]).status(127).stderr(said).run();
    // The job gets each signal once. The shell may report that a signal has ended a sleep.
    let job = "exec 2>/dev/null; trap 'echo got' USR1 TERM; echo ready; until [ -e end ]; do sleep 0.05; done; exit 3";
    for signal in [Signal::SIGUSR1, Signal::SIGTERM] {
        let job = run(&redis, ["-q", "--", "sh", "-c", job]).status(3).ready();
        job.send(signal);
        job.prints("got");
        std::fs::write(job.path().join("end"), "").unwrap();
        job.finish();
        are_free(&redis);
    }
    let said = message(["stopped the job of \"a\" and \"b\"", "--max-run"]);
    run(&redis, ["-q", "--max-run", "200ms", "--", "sleep", "30"]).status(124).stderr(said).run();
}

#[test]
fn a_job_that_loses_one_of_them_is_stopped_and_the_others_are_released() {
    let redis = Redis::start();
    for lost in ["a", "b"] {
        let said = format!(
            "redlock: lost \"{lost}\": <any>; sent SIGTERM to the job, SIGKILL follows in <duration>\n\
             redlock: lost \"{lost}\": <any>; job stopped\n"
        );
        let test = run(&redis, ["-q", "--ttl", "4s", "--", "sh", "-c", "echo ready; exec sleep 30"]);
        let job = test.status(76).stderr(like(said)).ready();
        redis.command(&["DEL", &format!("redlock:{lost}")]);
        job.finish();
        are_free(&redis);
        // The other lock is renewed as long as the job goes on without the lost one.
        let test = run(&redis, ["-q", "--ttl", "4s", "--on-lost", "continue", "--", "sh", "-c"]);
        let said = message([&format!("lost \"{lost}\""), "continues without the lock"]);
        let (job, writer) = test.arg("echo ready; read line").status(76).stderr(said).ready_to_read();
        redis.command(&["DEL", &format!("redlock:{lost}")]);
        eventually(SOON, "it is reported", || job.all_stderr().contains("continues"));
        let other = if lost == "a" { KEYS[1] } else { KEYS[0] };
        key_is_renewed(&redis, other);
        drop(writer);
        job.finish();
        are_free(&redis);
    }
    let job = "redlock release -q a; exec sleep 30";
    let said = when("a lost", |text| text.contains("lost \"a\": ") && !text.contains("\"b\""));
    run(&redis, ["-q", "--ttl", "4s", "--", "sh", "-c", job]).status(76).stderr(said).run();
    are_free(&redis);
}

#[test]
fn what_cannot_be_is_refused() {
    let redis = Redis::start();
    for (line, said) in [
        ("run --name a --name b --name a -- true", "--name a is given twice"),
        ("run --name a --name b --reentrant -- true", "--reentrant"),
        ("run --name a --name b --slots 3 -- true", "--slots"),
        ("run a --name b -- true", "several locks are written --name A --name B"),
        ("acquire --name a --name b", "redlock run can hold several"),
        ("extend --name a --name b --token 0123456789abcdef", "cannot be used multiple times"),
        ("release --name a --name b --token 0123456789abcdef", "cannot be used multiple times"),
        ("wait --name a --name b", "cannot be used multiple times"),
    ] {
        redlock(&redis, line).status(64).stderr(message([said])).run();
    }
    assert_eq!(redis.keys_without_history(), Vec::<String>::new());
}
