//! Waiters that die, freeze, lose their connection or their server, or give up: they hold nobody up for long.

use crate::support::{
    Line, Mode, Proxy, Redis, Running, SOON, Test, acquire, any, command_calls, eventually, like, ms, redlock, release,
    when,
};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Releases the lock; returns the next holder's token, and how long the hand-over took.
#[track_caller]
fn pass_on(redis: &Redis, token: &str) -> (String, Duration) {
    let start = Instant::now();
    release(redis, Line::NAME, token);
    let next = Line::passes_from([redis], token);
    (next, start.elapsed())
}

#[test]
fn the_dead_cost_nothing() {
    let redis = Redis::start();
    let token = acquire(&redis, Line::NAME);
    let dead: Vec<Running> = (0..20).map(|_| Line::join(&redis, Line::waiter(&redis))).collect();
    let alive = Line::join(&redis, Line::waiter(&redis));
    drop(dead); // kill -9
    eventually(SOON, "their connections are closed", || Line::listeners(&redis) == 1);
    assert_eq!(Line::length(&redis), 21);
    let (next, time) = pass_on(&redis, &token);
    assert_eq!(alive.finish().token(), next);
    assert!(time < SOON, "{time:?}, and not a second for each");
    assert!(Line::is_clean(&redis));
}

#[test]
fn a_frozen_head_costs_a_second_and_gets_its_place_back() {
    let redis = Redis::start();
    let token = acquire(&redis, Line::NAME);
    let mut frozen = Line::join(&redis, Line::waiter(&redis));
    let second = Line::join(&redis, Line::waiter(&redis));
    let mut third = Line::join(&redis, Line::waiter(&redis));
    let before = Line::waiters(&redis);
    let listening = || -> BTreeSet<String> {
        let clients: String = redis.query(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        clients.lines().map(|client| client.split(' ').next().unwrap().to_owned()).collect()
    };
    let listeners = listening();
    frozen.send(Signal::SIGSTOP);
    let (next, time) = pass_on(&redis, &token);
    assert_eq!(second.finish().token(), next);
    assert!(time >= ms(900), "less than a second: {time:?}");
    assert_eq!(Line::waiters(&redis), before[2..]);
    frozen.send(Signal::SIGCONT);
    eventually(SOON, "it is where it was", || Line::waiters(&redis) == [before[0].clone(), before[2].clone()]);
    assert!(!frozen.has_ended() && !third.has_ended());
    // `frozen`, which has thawed, sends TAKE again. Its subscription has lasted all the time.
    let looks = || command_calls(&redis)["evalsha"];
    let before = looks();
    eventually(SOON, "it looks", || looks() >= before + 2);
    assert!(listening().is_subset(&listeners), "{:?}, of {listeners:?}", listening());
    let (next, _) = pass_on(&redis, &next);
    assert_eq!(frozen.finish().token(), next);
    let (next, _) = pass_on(&redis, &next);
    assert_eq!(third.finish().token(), next);
    assert!(Line::is_clean(&redis));
}

#[test]
fn a_lost_connection_holds_nobody_up_and_the_place_is_kept() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    let token = acquire(&redis, Line::NAME);
    let mut lost = Line::join(&redis, Line::waiter(&proxy));
    let second = Line::join(&redis, Line::waiter(&redis));
    let third = Line::join(&redis, Line::waiter(&redis));
    let before = Line::waiters(&redis);
    proxy.set(Mode::Cut);
    eventually(SOON, "the server has noticed", || Line::listeners(&redis) == 2);
    let (next, _) = pass_on(&redis, &token);
    assert_eq!(second.finish().token(), next);
    proxy.set(Mode::Pass);
    eventually(SOON, "it is where it was", || Line::waiters(&redis) == [before[0].clone(), before[2].clone()]);
    eventually(SOON, "and can be called", || {
        let channels: Vec<String> = redis.query(&["PUBSUB", "CHANNELS", "*"]);
        channels.iter().any(|channel| channel.ends_with(&before[0]))
    });
    assert!(!lost.has_ended());
    let (next, _) = pass_on(&redis, &next);
    assert_eq!(lost.finish().token(), next);
    let (next, _) = pass_on(&redis, &next);
    assert_eq!(third.finish().token(), next);
    // Each of the three waiters has subscribed once, and `lost` a second time. More would be wrong, because nobody can
    // call a waiter that has no subscription yet.
    let subscriptions = redis.info("cmdstat_subscribe");
    assert!(subscriptions.starts_with("calls=4,"), "{subscriptions}");
}

#[test]
fn a_black_hole_does_not_swallow_the_lock() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    let token = acquire(&redis, Line::NAME);
    let _lost = Line::join(&redis, Line::waiter(&proxy));
    let second = Line::join(&redis, Line::waiter(&redis));
    proxy.set(Mode::BlackHole);
    let next = pass_on(&redis, &token).0;
    assert_eq!(second.finish().token(), next);
}

#[test]
fn waiters_survive_a_restart_and_keep_their_order() {
    for remembered in [true, false] {
        let mut redis = Redis::start();
        acquire(&redis, Line::NAME);
        if !remembered {
            redis.command(&["SAVE"]); // the lock without its line
        }
        let said =
            "<lines>redlock: waiting for \"backup\", <any>\n<lines>redlock: acquired \"backup\" <any> in line, <any>\n";
        let verbose = || redlock(&redis, "acquire -v backup --wait").stdout(any()).stderr(like(said));
        let waiters: Vec<Running> = (0..3).map(|_| Line::join(&redis, verbose())).collect();
        let before = Line::waiters(&redis);
        if remembered {
            redis.command(&["SAVE"]);
        }
        redis.restart();
        eventually(SOON, "all are in line again", || Line::listeners(&redis) == 3 && Line::length(&redis) == 3);
        eventually(SOON, "in the same order", || Line::waiters(&redis) == before);
        let mut token = redis.get(Line::KEY).unwrap();
        for mut waiter in waiters {
            eventually(SOON, "it says what has happened", || {
                let said = waiter.all_stderr();
                said.contains("queued again on 1 of 1 nodes")
                    // A server that has saved the line still knows this waiter, unless another request has dropped it
                    // as dead after the restart.
                    || remembered && said.contains("in line again")
            });
            assert!(!waiter.has_ended());
            token = pass_on(&redis, &token).0;
            assert_eq!(waiter.finish().token(), token);
        }
    }
}

#[test]
fn whoever_gives_up_leaves_the_line_as_if_it_had_never_come() {
    for signal in [Some(Signal::SIGINT), Some(Signal::SIGTERM), None] {
        for run in [false, true] {
            // A new server does not know `undo.lua`, the script by which a waiter leaves the line.
            let redis = Redis::start();
            let token = acquire(&redis, Line::NAME);
            let waiter = |wait: &str| {
                let command = if run { "run" } else { "acquire" };
                let test = Test::new(&redis).args([command, "-q", "--name", Line::NAME]).arg(format!("--wait={wait}"));
                if run { test.args(["--", "true"]) } else { test }
            };
            let quitter = match signal {
                Some(signal) => {
                    let quitter = Line::join(&redis, waiter("1m").signal(signal));
                    quitter.send(signal);
                    quitter
                }
                None => Line::join(&redis, waiter("1s").turned_away()),
            };
            quitter.finish();
            assert!(Line::is_clean(&redis), "{signal:?} {run}");
            release(&redis, Line::NAME, &token);
        }
    }
}

#[test]
fn whoever_gives_up_after_being_called_passes_the_call_on() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    let token = acquire(&redis, Line::NAME);
    let called = Line::join(&redis, Line::waiter(&proxy).signal(Signal::SIGTERM));
    let next = Line::join(&redis, Line::waiter(&redis));
    // The release calls `called` while it is stopped, and SIGTERM comes before it goes on. So it finds the call and the
    // signal at the same time.
    called.send(Signal::SIGSTOP);
    release(&redis, Line::NAME, &token);
    called.send(Signal::SIGTERM);
    called.send(Signal::SIGCONT);
    called.finish();
    let token = next.finish().token();
    assert_eq!(redis.get(Line::KEY), Some(token));
    assert!(Line::is_clean(&redis));
}

#[test]
fn the_end_of_the_wait_is_reported_with_the_holder() {
    let redis = Redis::start();
    acquire(&redis, Line::NAME);
    let test = Test::new(&redis).args(["acquire", "--name", Line::NAME, "--wait", "1s"]);
    test.status(75)
        .stderr(when("two lines, the last one busy", |text| {
            let lines: Vec<&str> = text.lines().collect();
            lines.len() == 2
                && lines[0].starts_with("redlock: waiting up to 1s for \"backup\", 1st in line; held by ")
                && lines[1].starts_with("redlock: \"backup\" is held by ")
        }))
        .run();
    assert!(Line::is_clean(&redis));
}

/// Kills the holder and the first `dead` waiters together. The next one must get the lock soon after the lease ends.
#[track_caller]
fn dies_with_the_first(servers: &(impl crate::support::Where + ?Sized), nodes: &[Redis], dead: usize) {
    let test = Test::new(servers).args(["run", "-q", "--name", Line::NAME, "--ttl", "3s", "--", "sh", "-c"]);
    let holder = test.arg("echo ready; exec sleep 60").spawn();
    holder.prints("ready");
    let token = nodes.iter().find_map(|node| node.get(Line::KEY)).unwrap();
    let join = || {
        let (before, waiter) = (Line::length(&nodes[0]), Line::waiter(servers).spawn());
        nodes.iter().for_each(|node| Line::becomes(node, before + 1));
        waiter
    };
    let first: Vec<Running> = (0..dead).map(|_| join()).collect();
    let alive = join();
    for process in first.iter().chain([&holder]) {
        process.send(Signal::SIGKILL);
    }
    let left = nodes.iter().map(|node| node.pttl(Line::KEY)).max().unwrap();
    let expires = Instant::now() + ms(left.max(0).cast_unsigned());
    let next = alive.finish().token();
    let late = Instant::now().saturating_duration_since(expires);
    assert!(late < SOON, "{late:?} after the end of the lease, which is before its own next look");
    assert_ne!(next, token);
}

#[test]
fn the_next_one_is_served_soon_after_the_holder_and_the_first_twenty_five_died_together() {
    let redis = Redis::start();
    dies_with_the_first(&redis, std::slice::from_ref(&redis), 25);
}

#[test]
fn so_it_is_on_several_masters() {
    let nodes = crate::support::several(3);
    dies_with_the_first(&nodes, &nodes, 12);
}

#[test]
fn nobody_is_first_in_line_for_a_key_that_is_no_lock_and_looks_are_rare() {
    let redis = Redis::start();
    redis.command(&["HSET", "redlock:backup", "field", "1"]);
    let proxy = Proxy::new(&redis, Mode::Pass);
    let waiter = redlock(&proxy, "acquire backup --wait").spawn();
    let said = waiter.stderr_line();
    assert!(said.contains("is not a lock") && !said.contains("in line"), "{said}");
    std::thread::sleep(ms(300));
    let before = proxy.packets();
    std::thread::sleep(ms(2_000));
    assert!(proxy.packets() - before <= 1, "{} looks", proxy.packets() - before);
}
