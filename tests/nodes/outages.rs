//! A call that waits for the lock also waits for a Redis that is down, loads its data, hangs or cannot be found. It
//! tries again until the wait is over. A lasting error ends the wait at once.

use crate::support::{
    Mode, Pattern, Proxy, Redis, Running, SOON, Test, Where, acquire, any, at_last, eventually, free_port, message, ms,
    perhaps, redlock, release, when,
};
use nix::sys::signal::Signal;

const KEY: &str = "redlock:backup";

fn commands() -> [&'static [&'static str]; 2] {
    [&["acquire", "--name", "backup"], &["run", "--name", "backup"]]
}

/// A call of `command` with these arguments; the job of `run` prints "started".
fn waiting<W: Where + ?Sized>(servers: &W, command: &[&str], arguments: &[&str]) -> Test {
    let test = Test::new(servers).args(command).args(arguments);
    if command[0] == "run" { test.args(["--", "echo", "started"]) } else { test }
}

/// This many lines, all from redlock. The last line names the node.
fn reports(node: &str, lines: usize) -> Pattern {
    let node = node.to_owned();
    when(format!("{lines} lines, the last one with {node}"), move |text| {
        text.lines().count() == lines
            && text.lines().all(|line| line.starts_with("redlock: "))
            && text.lines().last().is_some_and(|line| line.contains(&node))
    })
}

/// Waits until the waiter has said that the node does not answer, and checks that it still waits.
#[track_caller]
fn says_at_once(waiter: &mut Running, node: &str) {
    waiter.says(when("a line with the node", {
        let node = node.to_owned();
        move |line| line.starts_with("redlock: ") && line.contains(&node)
    }));
    assert!(!waiter.has_ended(), "{}", waiter.all_stderr());
}

/// Checks that each command waits as long as `--wait` says, and then exits with 69.
#[track_caller]
fn waits_it_out<W: Where + ?Sized>(servers: &W, node: &str) {
    let mut calls = Vec::new();
    for command in commands() {
        let arguments = ["--wait", "3s", "--node-timeout", "300ms"];
        let quiet = [&arguments[..], &["-q"]].concat();
        calls.push(waiting(servers, command, &quiet).status(69).stderr(reports(node, 1)).spawn());
        let mut waiter = waiting(servers, command, &arguments).status(69).stderr(reports(node, 1)).spawn();
        says_at_once(&mut waiter, node);
        calls.push(waiter);
    }
    for finished in calls.into_iter().map(Running::finish) {
        assert!(finished.elapsed >= ms(3_000), "{:?}", finished.elapsed);
    }
}

/// Checks that all waiters get the lock, now that the server answers.
#[track_caller]
fn are_served(waiters: Vec<Running>, redis: &Redis) {
    for waiter in waiters {
        let finished = waiter.finish();
        if finished.stdout != "started\n" {
            assert_eq!(redis.get(KEY), Some(finished.token()));
            release(redis, "backup", &finished.token());
        }
    }
}

/// Starts both commands with `--wait`, and checks that they wait.
#[track_caller]
fn waiters<W: Where + ?Sized>(servers: &W, node: &str) -> Vec<Running> {
    let start = |command: &&'static [&'static str]| {
        let arguments = ["--wait", "15s", "--node-timeout", "300ms"];
        let said = perhaps(["trying again", "waiting ", "acquired"]);
        let mut waiter = waiting(servers, command, &arguments).stdout(any()).stderr(said).spawn();
        says_at_once(&mut waiter, node);
        waiter
    };
    commands().iter().map(start).collect()
}

#[test]
fn a_server_that_is_down_is_waited_for() {
    let address = format!("127.0.0.1:{}", free_port());
    waits_it_out(format!("redis://{address}").as_str(), &address);
    waits_it_out("unix:///no/such/socket", "/no/such/socket");
}

#[test]
fn a_server_that_hangs_is_waited_for() {
    let redis = Redis::with_tcp(&[]);
    redis.pause();
    waits_it_out(redis.tcp_url().as_str(), &redis.address());
    let waiters = waiters(redis.tcp_url().as_str(), &redis.address());
    redis.resume();
    are_served(waiters, &redis);
}

#[test]
fn a_host_that_is_not_to_be_found_yet_is_waited_for() {
    let arguments = ["--wait", "1s"];
    for command in commands() {
        let test = waiting("redis://no-such-host.invalid", command, &arguments).status(69);
        let finished = test.stderr(when("the host", |text| text.contains("no-such-host.invalid"))).run();
        assert!(finished.elapsed >= ms(1_000), "{:?}", finished.elapsed);
    }
}

#[test]
fn a_server_that_comes_up_serves_who_waits_for_it() {
    for tcp in [true, false] {
        let mut redis = Redis::with_tcp(&[]);
        let (url, node) = match tcp {
            true => (redis.tcp_url(), redis.address()),
            false => (redis.url(), redis.socket().display().to_string()),
        };
        redis.kill();
        let waiters = waiters(url.as_str(), &node);
        redis.restart();
        are_served(waiters, &redis);
    }
}

#[test]
fn a_majority_that_comes_up_serves_who_waits_for_it() {
    let mut nodes = Redis::several(3);
    nodes[1..].iter_mut().for_each(Redis::kill);
    let node = nodes[1].socket().display().to_string();
    let waiters = waiters(&nodes, &node);
    nodes[1].restart();
    for waiter in waiters {
        let finished = waiter.finish();
        if finished.stdout != "started\n" {
            release(&nodes, "backup", &finished.token());
        }
    }
}

#[test]
fn a_server_that_loads_its_data_is_waited_for() {
    let Some(mut redis) = Redis::loading_slowly("20000") else { return };
    redis.command(&["EVAL", "for i = 1, 500 do redis.call('SET', i, string.rep('x', 100)) end", "0"]);
    redis.command(&["SAVE"]);
    redis.restart_unready();
    eventually(SOON, "loading", || {
        redis.try_query::<String>(&["GET", "1"]).is_err_and(|error| error.code() == Some("LOADING"))
    });
    let start = |command: &&'static [&'static str]| {
        let said = perhaps(["trying again", "waiting ", "acquired"]);
        waiting(&redis, command, &["--wait", "20s"]).stdout(any()).stderr(said).spawn()
    };
    let mut waiters: Vec<Running> = commands().iter().map(start).collect();
    for waiter in &mut waiters {
        waiter.says(when("the lock", |line| line.contains("\"backup\"")));
        assert!(!waiter.has_ended(), "{}", waiter.all_stderr());
    }
    // The server was started with a delay of 20 ms for each key. With this delay it would load for ten seconds.
    redis.command(&["CONFIG", "SET", "key-load-delay", "0"]);
    are_served(waiters, &redis);
}

#[test]
fn a_signal_ends_a_wait_for_a_server_that_is_down() {
    let address = format!("127.0.0.1:{}", free_port());
    for command in commands() {
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            let test = waiting(format!("redis://{address}").as_str(), command, &["--wait"]);
            let mut waiter = test.interrupted(signal).spawn();
            says_at_once(&mut waiter, &address);
            waiter.send(signal);
            waiter.finish();
        }
    }
}

#[test]
fn what_cannot_heal_ends_a_wait_at_once() {
    let redis = Redis::with_tcp(&["--requirepass", "s3cret"]);
    let url = redis.tcp_url().replace("redis://", "redis://:wr0ng@");
    for command in commands() {
        waiting(url.as_str(), command, &["--wait"]).fails(78, ["WRONGPASS"]).run();
    }
    redlock(url.as_str(), "wait backup").fails(78, ["WRONGPASS"]).run();
}

#[test]
fn without_a_wait_it_is_one_try() {
    let address = format!("127.0.0.1:{}", free_port());
    for command in commands() {
        for arguments in [&[][..], &["--wait", "0"]] {
            let test = waiting(format!("redis://{address}").as_str(), command, arguments).status(69);
            test.stderr(reports(&address, 1)).run();
        }
    }
}

#[test]
fn the_command_wait_waits_for_redis_too() {
    let mut redis = Redis::start();
    redis.kill();
    let node = redis.socket().display().to_string();
    let test = redlock(&redis, "wait backup --timeout 3s").status(69).stderr(at_last(message(["\"backup\""])));
    let mut waiter = test.spawn();
    says_at_once(&mut waiter, &node);
    let finished = waiter.finish();
    assert!(finished.elapsed >= ms(3_000), "{:?}", finished.elapsed);
    let mut waiter = redlock(&redis, "wait backup").stderr(perhaps(["trying again"])).spawn();
    says_at_once(&mut waiter, &node);
    redis.restart();
    waiter.finish();
    acquire(&redis, "backup");
}

#[test]
fn refusals_for_less_than_a_third_of_the_ttl_cost_no_job_wherever_they_fall() {
    let redis = Redis::start();
    // The jobs start one after the other, over 1.5 s: the time between two renewals. So the renewals are spread evenly.
    let jobs: Vec<Running> = (0..16)
        .map(|number| {
            let name = format!("lock-{number}");
            let job =
                Test::new(&redis).args(["run", "-q", &name, "--ttl", "6s", "--", "sh", "-c", "echo ready; sleep 7"]);
            let job = job.spawn();
            job.prints("ready");
            std::thread::sleep(ms(90));
            job
        })
        .collect();
    redis.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    std::thread::sleep(ms(1_300));
    redis.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    jobs.into_iter().for_each(|job| drop(job.finish()));
}

#[test]
fn silence_for_less_than_a_third_of_the_ttl_costs_no_job_wherever_it_falls() {
    let redis = Redis::start();
    let jobs: Vec<(Proxy, Running)> = (0..16)
        .map(|number| {
            let (proxy, name) = (Proxy::new(&redis, Mode::Pass), format!("lock-{number}"));
            let test = Test::new(&proxy).args(["run", "-q", &name, "--ttl", "6s"]);
            let job = test.args(["--", "sh", "-c", "echo ready; sleep 7"]).stdout("ready\n").spawn();
            eventually(SOON, "acquired", || job.all_stdout() == "ready\n");
            std::thread::sleep(ms(90));
            (proxy, job)
        })
        .collect();
    jobs.iter().for_each(|(proxy, _)| proxy.set(Mode::BlackHole));
    std::thread::sleep(ms(1_300));
    jobs.iter().for_each(|(proxy, _)| proxy.set(Mode::Pass));
    for (_proxy, job) in jobs {
        job.finish();
    }
}
