//! The examples that this tool grew from: contenders for tickets, trying once, blocking with a timeout, waiting until
//! free, extending only one's own, entering and leaving.

use crate::support::{
    Directory, Redis, SOON, Test, Tls, acquire, acquire_for, any, eventually, message, ms, redlock, release,
};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

/// A contender takes one ticket, if there is one left, while it has the lock.
const CONTENDER: &str = "
    token=$(redlock acquire -q --name tickets --ttl 10s --wait 60s) || exit
    ticket=$(head -n 1 left)
    if [ -n \"$ticket\" ]; then
        echo \"$ticket\" >>taken
        tail -n +2 left >rest
        mv rest left
    fi
    redlock release -q --name tickets --token \"$token\"";

#[track_caller]
fn tickets<W: crate::support::Where + ?Sized>(servers: &W, contenders: usize, contender: &str) {
    let directory = Arc::new(Directory::new());
    let numbers: Vec<String> = (1..=10).map(|number| number.to_string()).collect();
    fs::write(directory.path().join("left"), numbers.join("\n") + "\n").unwrap();
    let running: Vec<_> = (0..contenders)
        .map(|_| {
            let test = Test::sh(servers, contender).in_directory(&directory).within(Duration::from_secs(90));
            test.spawn()
        })
        .collect();
    for contender in running {
        contender.finish();
    }
    let taken = fs::read_to_string(directory.path().join("taken")).unwrap();
    assert_eq!(taken.lines().collect::<Vec<_>>(), numbers, "each ticket exactly once, in order");
    assert_eq!(fs::read_to_string(directory.path().join("left")).unwrap(), "");
}

#[test]
fn a_hundred_contenders_for_ten_tickets() {
    tickets(&Redis::start(), 100, CONTENDER);
}

#[test]
fn contenders_for_ten_tickets_on_three_masters() {
    tickets(&Redis::several(3), 20, CONTENDER);
}

#[test]
fn contenders_for_ten_tickets_by_tls() {
    tickets(&Tls::start().0, 20, CONTENDER);
}

#[test]
fn contenders_that_try_once_and_again() {
    let contender = CONTENDER.replace(
        "token=$(redlock acquire -q --name tickets --ttl 10s --wait 60s) || exit",
        "until token=$(redlock acquire -q --name tickets --ttl 10s 2>/dev/null); do
             [ $? -eq 75 ] || exit 9
             sleep 0.05
         done",
    );
    assert_ne!(contender, CONTENDER);
    tickets(&Redis::start(), 20, &contender);
}

#[test]
fn contenders_that_run() {
    let contender = "redlock run -q --name tickets --wait 60s -- sh -ec '
        ticket=$(head -n 1 left)
        [ -n \"$ticket\" ] || exit 0
        echo \"$ticket\" >>taken; tail -n +2 left >rest; mv rest left'";
    tickets(&Redis::start(), 30, contender);
}

#[test]
fn without_the_lock_tickets_would_be_taken_twice() {
    // What the tests above rely on: the same contenders, each with a lock of its own, do overlap.
    let directory = Arc::new(Directory::new());
    let redis = Redis::start();
    let script = "redlock run -q --name alone-$1 -- sh -c 'mkdir inside || exit 9; sleep 0.5; rmdir inside'";
    let running: Vec<_> = (0..2)
        .map(|number: u32| {
            let test = Test::sh(&redis, script).args(["sh", &number.to_string()]).in_directory(&directory);
            test.stderr(any()).spawn()
        })
        .collect();
    let ends: Vec<_> = running.into_iter().map(|mut contender| contender.wait(SOON)).collect();
    assert!(ends.contains(&crate::support::Ended::Status(9)), "{ends:?}");
}

#[test]
fn try_once() {
    let redis = Redis::start();
    let script = "if token=$(redlock acquire -q --name lock); then echo \"got it\"; else echo \"status $?\"; fi";
    Test::sh(&redis, script).stdout("got it\n").run();
    Test::sh(&redis, script).stdout("status 75\n").stderr(message(["use --wait"])).run();
}

#[test]
fn blocking_with_a_time_out() {
    let redis = Redis::start();
    let token = acquire(&redis, "lock");
    let script = "redlock acquire -q --name lock --wait 1s; echo \"status $?\"";
    let finished = Test::sh(&redis, script).stdout("status 75\n").stderr(message(["gave up after"])).run();
    assert!(finished.elapsed >= ms(1_000), "{:?}", finished.elapsed);
    let script = "redlock acquire -q --name lock --wait 30s >token; echo \"status $?\"";
    let waiter = Test::sh(&redis, script).stdout("status 0\n").spawn();
    eventually(SOON, "the waiter is connected", || redis.info("connected_clients") != "1");
    release(&redis, "lock", &token);
    waiter.finish();
}

#[test]
fn wait_until_free() {
    let redis = Redis::start();
    acquire_for(&redis, "lock", "2s");
    let script = "redlock wait -q lock && echo free; redlock wait lock --timeout 1s && echo 'still free'";
    Test::sh(&redis, script).stdout("free\nstill free\n").run();
}

#[test]
fn extend_only_ones_own() {
    let redis = Redis::start();
    let token = acquire_for(&redis, "lock", "2s");
    redlock(&redis, "extend -q lock --token a-guess").status(77).stderr(message(["\"lock\""])).run();
    assert!(redis.pttl("redlock:lock") <= 2_000);
    redlock(&redis, format!("extend -q lock --token {token} --ttl 20s")).run();
    assert!(redis.pttl("redlock:lock") > 10_000);
}

#[test]
fn enter_and_leave_with_all_four_results() {
    let redis = Redis::start();
    let script = "
        outcome() { redlock release --name lock --token \"$1\" --format json 2>/dev/null | sed 's/.*\"outcome\":\"\\([^\"]*\\)\".*/\\1/'; }
        outer=$(redlock acquire --name lock)
        inner=$(redlock acquire --name lock --reentrant --token \"$outer\")
        outcome \"$inner\"
        outcome \"$outer\"
        outcome \"$outer\"
        other=$(redlock acquire --name lock)
        outcome \"$outer\"
        outcome \"$other\"";
    Test::sh(&redis, script).stdout("still-held\nreleased\nnot-held\nheld-by-other\nreleased\n").run();
}
