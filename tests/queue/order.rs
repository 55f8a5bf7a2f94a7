//! Waiting in line on one Redis: first come, first served. A hand-over happens at once, and costs the same for a long
//! and a short line.

use crate::support::{
    Ended, Line, Mode, Monitor, Numbered, Proxy, Redis, Running, SOON, Test, Tls, Where, acquire, acquire_for, at_last,
    eventually, like, message, ms, myself, processor_time, redlock, release, status, teach_scripts,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::time::{Duration, Instant};

#[track_caller]
fn served_in_order(servers: &dyn Where, redis: &Redis, count: usize) {
    let token = acquire(redis, Line::NAME);
    let waiters = Numbered::join(servers, count, || Line::length(redis));
    assert_eq!(status(servers, Line::NAME)["waiting"], count);
    release(redis, Line::NAME, &token);
    waiters.are_served_in_order();
    assert!(Line::is_clean(redis));
}

#[test]
fn fifty_waiters_are_served_in_the_order_in_which_they_came() {
    let redis = Redis::start();
    served_in_order(&redis, &redis, 50);
}

#[test]
fn waiters_are_served_in_the_order_in_which_they_came_by_tls() {
    let (tls, _authority) = Tls::start();
    served_in_order(&tls, &tls.redis, 20);
}

#[test]
fn signals_that_ask_nothing_of_a_waiter_leave_it_in_its_place() {
    let redis = Redis::start();
    // The proxy is slow, so that the signals come while the waiter asks.
    let slow = Proxy::new(&redis, Mode::Delay(ms(15)));
    let token = acquire(&redis, Line::NAME);
    let mut first = Line::join(&redis, Line::waiter(&slow));
    let mut second = Line::join(&redis, Line::waiter(&redis));
    let line = Line::waiters(&redis);
    let mut storm = |storm: usize| {
        for _ in 0..storm {
            for signal in [Signal::SIGWINCH, Signal::SIGCONT, Signal::SIGCHLD] {
                if !first.has_ended() {
                    first.send(signal);
                }
            }
            std::thread::sleep(ms(1)); // at different moments
        }
    };
    storm(30);
    assert_eq!(Line::waiters(&redis), line);
    release(&redis, Line::NAME, &token);
    storm(100);
    let token = first.finish().token();
    assert!(!second.has_ended(), "it was overtaken");
    release(&redis, Line::NAME, &token);
    second.finish();
}

#[test]
fn a_wait_ends_in_time_whatever_signals_come_and_though_the_server_hangs() {
    let redis = Redis::start();
    acquire(&redis, Line::NAME);
    let slow = Proxy::new(&redis, Mode::Delay(ms(50)));
    let test = |servers: &dyn Where| {
        Test::new(servers).args(["run", "--node-timeout", "15s", "--name", Line::NAME, "--wait", "2s", "--", "true"])
    };
    let mut waiter = test(&slow).any_end().stderr(at_last(message(["\"backup\""]))).spawn();
    let start = Instant::now();
    while start.elapsed() < SOON && !waiter.has_ended() {
        waiter.send(Signal::SIGWINCH);
        std::thread::sleep(ms(20)); // more often than there is time for an answer
    }
    assert!(waiter.has_ended(), "it did not while signals came");
    // The usual status is 75. On a busy machine it may be 69, if the answer to the last TAKE came too late.
    let ended = waiter.finish().ended;
    assert!([75, 69].map(Ended::Status).contains(&ended), "{ended:?}");
    let hanging = Line::join(&redis, test(&redis).status(69).stderr(at_last(message(["timed out"]))));
    redis.pause();
    let start = Instant::now();
    hanging.finish();
    assert!(start.elapsed() < SOON, "{:?}, and no time-out of a node", start.elapsed());
    redis.resume();
    eventually(SOON, "what had been sent has been done", || Line::is_clean(&redis));
}

#[test]
fn a_newcomer_does_not_overtake_a_live_head() {
    for waits in [false, true] {
        let redis = Redis::start();
        acquire(&redis, Line::NAME);
        let first = Line::join(&redis, Line::waiter(&redis));
        // DEL calls no waiter: for a while the lock is free, though a waiter stands in line.
        redis.command(&["DEL", Line::KEY]);
        if waits {
            let mut newcomer = Line::waiter(&redis).spawn();
            let token = first.finish().token();
            assert_eq!(redis.get(Line::KEY).as_ref(), Some(&token));
            Line::becomes(&redis, 1);
            assert!(!newcomer.has_ended());
            release(&redis, Line::NAME, &token);
            assert_ne!(newcomer.finish().token(), token);
        } else {
            redlock(&redis, "acquire --name").arg(Line::NAME).fails(75, ["\"backup\" is"]).run();
            let token = first.finish().token();
            assert_eq!(redis.get(Line::KEY), Some(token));
        }
    }
}

#[test]
fn a_hand_over_takes_no_more_than_eight_requests() {
    let redis = Redis::start();
    teach_scripts(&redis);
    let token = acquire(&redis, Line::NAME);
    let monitor = Monitor::new(&redis);
    let waiters = Numbered::join(&redis, 10, || Line::length(&redis));
    release(&redis, Line::NAME, &token);
    waiters.are_served_in_order();
    let ours = ["EVAL", "EVALSHA", "SUBSCRIBE", "HELLO", "CLIENT", "AUTH", "SCRIPT"];
    let mut sent = monitor.commands(&redis);
    sent.retain(|command| ours.contains(&command.as_str()));
    assert!(sent.len() <= 8 * 10, "from joining to leaving: {} for ten: {sent:?}", sent.len());
}

#[test]
fn both_connections_of_a_waiter_have_their_name() {
    let redis = Redis::start();
    acquire(&redis, Line::NAME);
    let waiter = Line::join(&redis, Line::waiter(&redis).signal(Signal::SIGTERM));
    let named = || {
        let clients: String = redis.query(&["CLIENT", "LIST"]);
        let ours = clients.lines().filter(|client| client.contains(" name=redlock "));
        let (subscribed, others): (Vec<&str>, Vec<&str>) = ours.partition(|client| client.contains(" sub=1 "));
        (subscribed.len(), others.len())
    };
    eventually(SOON, "both have it", || named() == (1, 1));
    waiter.send(Signal::SIGTERM);
    waiter.finish();
}

#[test]
fn a_hundred_waiters_cost_next_to_nothing_and_are_all_served_in_order() {
    let redis = Redis::start();
    let token = acquire_for(&redis, Line::NAME, "5m");
    let waiters = Numbered::join(&redis, 100, || Line::length(&redis));
    let calls = || {
        let evaluated = crate::support::command_calls(&redis);
        ["eval", "evalsha"].iter().filter_map(|name| evaluated.get(*name)).sum::<u64>()
    };
    let (looked, used, start) = (calls(), processor_time(waiters.pids()), Instant::now());
    std::thread::sleep(Duration::from_secs(2)); // the time that is measured
    let (looked, used, time) = (calls() - looked, processor_time(waiters.pids()) - used, start.elapsed().as_secs_f64());
    assert!(f64::from(u32::try_from(looked).unwrap()) < 25.0 * time, "{looked} looks in {time} s");
    assert!(used.as_secs_f64() < 0.1 * time, "{used:?} in {time} s");
    release(&redis, Line::NAME, &token);
    waiters.are_served_in_order();
    assert!(Line::is_clean(&redis));
}

#[test]
fn status_reports_who_waits() {
    let redis = Redis::start();
    let ((user, host), token) = (myself(), acquire(&redis, Line::NAME));
    assert_eq!(status(&redis, Line::NAME)["waiters"], serde_json::json!([]));
    let waiter =
        |label: &str| Test::new(&redis).args(["run", "-q", "backup", "--wait", "--label", label, "--", "true"]);
    let labelled = |label: &str| Line::join(&redis, waiter(label).any_end());
    let (first, dead, mut third) = (labelled("nightly"), labelled("änd so on"), labelled("third"));
    let pids = [&first, &dead, &third].map(Running::pid);
    // Adds a waiter as an older version of redlock did, whose name is only an id.
    redis.command(&["ZADD", "{redlock:backup}:\u{1f}queue", "9007199254740991", "x5294ecab887e4ad3880ccf24c8387183"]);
    let waiters = status(&redis, Line::NAME)["waiters"].take();
    for (at, label) in ["nightly", "änd so on", "third"].into_iter().enumerate() {
        let waited = waiters[at]["waited_ms"].as_u64().unwrap();
        let expected = serde_json::json!(
            {"host": host, "pid": pids[at], "user": user, "label": label, "waited_ms": waited, "listening": true}
        );
        assert_eq!(waiters[at], expected);
        assert!(waited < 60_000, "{waited}");
    }
    assert_eq!((&waiters[3]["host"], &waiters[3]["pid"], waiters[4].is_null()), (&Value::Null, &Value::Null, true));
    let line = |at: usize, label| format!("          {user}@{host}, pid {} ({label}), for <duration>\n", pids[at]);
    let line = format!("{}{}{}", line(0, "nightly"), line(1, "änd so on"), line(2, "third"));
    let expected = format!(
        "<any>\n<any>\n<any>\n<any>\n<any>\n<any>\n  waiting 4\n{line}          a waiter without a name, for <duration>, not listening: dead or cut off\n"
    );
    redlock(&redis, "status backup").stdout(like(expected)).run();

    // `third` leaves the line, and `first` gets the lock. The script finds the two other waiters dead, and drops them.
    third.send(Signal::SIGTERM);
    third.wait(SOON);
    drop(dead);
    release(&redis, Line::NAME, &token);
    first.finish();
    eventually(SOON, "no one waits", || status(&redis, Line::NAME)["waiters"] == serde_json::json!([]));
    redis.command(&["FLUSHALL"]);

    acquire(&redis, Line::NAME);
    for number in 10..22 {
        redis.command(&["ZADD", "{redlock:backup}:\u{1f}queue", "1", &format!("x\u{1f}h{number}\u{1f}1\u{1f}u\u{1f}")]);
    }
    let text = redlock(&redis, "status backup").text();
    assert!(text.contains("u@h19, pid 1, for ") && text.ends_with("          and 2 more\n"), "{text}");
    assert_eq!(status(&redis, Line::NAME)["waiters"][11]["host"], "h21");
}

#[test]
fn wait_outlives_those_who_queue_before_it_ends() {
    let redis = Redis::start();
    let token = acquire(&redis, Line::NAME);
    let taker = Line::join(&redis, Line::waiter(&redis));
    let mut waiter = redlock(&redis, "wait -q").arg(Line::NAME).spawn();
    release(&redis, Line::NAME, &token);
    let next = taker.finish().token();
    assert!(!waiter.has_ended(), "the next one has it");
    release(&redis, Line::NAME, &next);
    waiter.finish();
}

#[test]
fn wait_does_not_wait_for_the_dead() {
    let redis = Redis::start();
    acquire(&redis, Line::NAME);
    drop(Line::join(&redis, Line::waiter(&redis)));
    assert_eq!(Line::length(&redis), 1);
    redis.command(&["DEL", Line::KEY]);
    redlock(&redis, "wait -q").arg(Line::NAME).within(SOON).run();
    assert!(Line::is_clean(&redis));
}
