//! `redlock wait`: waits until a lock is free, and takes nothing.

use crate::support::{
    Mode, Proxy, Redis, SOON, Test, acquire, any, eventually, like, ms, perhaps, processor_time, redlock, release, when,
};

#[test]
fn a_free_lock_is_not_waited_for() {
    let redis = Redis::start();
    redlock(&redis, "wait -q backup").run();
    redlock(&redis, "wait -q backup --timeout 10s").run();
    redlock(&redis, "wait -q backup --timeout 0").run();
    let object = redlock(&redis, "wait -q backup --format json").json();
    assert_eq!((&object["name"], &object["outcome"]), (&"backup".into(), &"free".into()));
    assert!(redis.keys_without_history().is_empty(), "{:?}", redis.keys_without_history());
}

#[test]
fn ends_when_the_lock_is_released_and_takes_nothing() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    let mut waiters: Vec<_> = (0..3).map(|_| redlock(&redis, "wait -q backup").spawn()).collect();
    eventually(SOON, "all three are connected", || redis.info("connected_clients").parse::<u32>().unwrap() >= 4);
    assert!(waiters.iter_mut().all(|waiter| !waiter.has_ended()));
    release(&redis, "backup", &token);
    for waiter in waiters {
        waiter.finish();
    }
    assert_eq!(redis.keys_without_history(), ["{redlock:backup}:\u{1f}fence"]);
}

#[test]
fn foreign_locks_are_waited_for_as_well() {
    let redis = Redis::start();
    redis.command(&["SET", "redlock:backup", "theirs", "PX", "300"]);
    redlock(&redis, "wait backup -q").run();
    redis.command(&["SET", "redlock:backup", "theirs"]);
    let waiter = redlock(&redis, "wait backup -q").spawn();
    waiter.says(when("that it never ends", |line| line.contains("never expires")));
    redis.command(&["DEL", "redlock:backup"]);
    waiter.finish();
}

#[test]
fn a_server_that_never_answers_does_not_prolong_the_wait() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::BlackHole);
    let arguments = ["wait", "-q", "backup", "--timeout", "5s", "--node-timeout", "4s"];
    let finished = Test::new(proxy.url().as_str()).args(arguments).fails(69, ["\"backup\"", "timed out"]).run();
    // The second look begins after 4.5 s, and would time out after 8.5 s if the wait did not end after 5 s.
    assert!((ms(5_000)..ms(8_000)).contains(&finished.elapsed), "{:?}", finished.elapsed);
}

#[test]
fn a_wait_outlives_a_restart_of_the_server() {
    let mut redis = Redis::start();
    acquire(&redis, "backup");
    let mut waiter = redlock(&redis, "wait backup").stderr(perhaps(["; trying again"])).spawn();
    waiter.says(when("waiting", |line| line.contains("\"backup\"")));
    redis.kill();
    std::thread::sleep(ms(50)); // a moment in which it must not give up
    assert!(!waiter.has_ended(), "{}", waiter.all_stderr());
    redis.restart();
    waiter.finish();
}

#[test]
fn a_waiting_command_does_not_burn_the_processor() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    let waiter = redlock(&redis, "wait backup -q").spawn();
    eventually(SOON, "connected", || redis.info("connected_clients") != "1");
    let before = processor_time([waiter.pid()]);
    std::thread::sleep(ms(1_000)); // measured
    let used = processor_time([waiter.pid()]) - before;
    assert!(used <= ms(100), "{used:?} of a second");
}

#[test]
fn a_name_that_no_server_knows_is_answered_with_the_name_that_it_is_like() {
    let servers = [Redis::aged(1, 90_000), Redis::aged(3, 90_000)];
    for redis in &servers {
        let said = |name: &str, near: &str| like(format!("redlock: no lock \"{name}\" is known on <any>{near}\n"));
        redlock(redis, "wait bakup").stderr(when("no other name", |text| !text.contains("mean"))).run();
        redlock(redis, "run -q backup -- true").run();
        redlock(redis, "run -q deploy-api -- true").run();
        for name in ["bakup", "Backup", "redlock:backup"] {
            let said = || said(name, "; did you mean \"backup\"?");
            for command in ["wait", "log", "status -a deploy-api", "log deploy-api"] {
                redlock(redis, format!("{command} {name}")).stdout(any()).stderr(said()).run();
            }
            let free = format!("{name}  free; no run is known\n<lines>");
            redlock(redis, format!("status {name}"))
                .stdout(like(free))
                .stderr("redlock: did you mean \"backup\"?\n")
                .run();
        }
        redlock(redis, "wait report").stderr(when("no name is like it", |text| !text.contains("mean"))).run();
        for line in
            ["wait -q bakup", "status -q bakup", "log -q --format json bakup", "wait backup", "status -q backup"]
        {
            redlock(redis, line).run();
        }
        // A lock that leaves no run is known all the same, by its fencing counter.
        let token = redlock(redis, "acquire report --log 0").stdout(any()).run().token();
        release(redis, "report", &token);
        redlock(redis, "wait report").run();
    }
}
