//! Waiting in line on several masters. Each has a line, in the same order. The next waiter needs the grants of more
//! than half of them.

use crate::support::{
    Directory, Line, Numbered, Redis, Running, SOON, Test, acquire_on_all, any, eventually, message, redlock, release,
    several, status,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A job that counts its runs, and notices when two run at once.
const CRITICAL: &str = "mkdir inside || echo overlap >>overlaps
    echo >>done; sleep 0.01; rmdir inside";

fn lines(directory: &Directory, file: &str) -> usize {
    std::fs::read_to_string(directory.path().join(file)).map_or(0, |text| text.lines().count())
}

#[track_caller]
fn join_all(nodes: &[Redis], waiter: Test) -> Running {
    let before: Vec<usize> = nodes.iter().map(Line::length).collect();
    let running = waiter.spawn();
    for (node, before) in nodes.iter().zip(before) {
        Line::becomes(node, before + 1);
    }
    running
}

#[test]
fn twenty_waiters_over_five_masters_all_get_it_though_two_die() {
    let (mut nodes, directory) = (several(5), Arc::new(Directory::new()));
    let token = acquire_on_all(&nodes, Line::NAME);
    let waiter = || {
        Test::new(&nodes)
            .args(["run", "-q", "--name", Line::NAME, "--wait", "--"])
            .args(["sh", "-c", CRITICAL])
            .in_directory(&directory)
            .within(Duration::from_secs(60))
    };
    let waiters: Vec<Running> = (0..20).map(|_| waiter().spawn()).collect();
    for node in &nodes {
        Line::becomes(node, 20);
    }
    release(&nodes, Line::NAME, &token);
    eventually(SOON, "half of them had it", || lines(&directory, "done") >= 10);
    nodes[1].kill();
    nodes[4].kill();
    for waiter in waiters {
        waiter.finish();
    }
    assert_eq!(lines(&directory, "done"), 20);
    assert_eq!(lines(&directory, "overlaps"), 0, "never two at a time");
    for node in [&nodes[0], &nodes[2], &nodes[3]] {
        eventually(SOON, "nothing is left of the line", || Line::is_clean(node));
    }
}

#[test]
fn waiters_are_served_in_the_order_in_which_they_came() {
    let nodes = several(3);
    let token = acquire_on_all(&nodes, Line::NAME);
    let waiters = Numbered::join(&nodes, 10, || nodes.iter().map(Line::length).min().unwrap());
    release(&nodes, Line::NAME, &token);
    waiters.are_served_in_order();
}

#[test]
fn whoever_gives_up_leaves_the_line_of_every_node() {
    for signal in [Some(Signal::SIGINT), Some(Signal::SIGTERM), None] {
        let nodes = Redis::several(3);
        acquire_on_all(&nodes, Line::NAME);
        let quitter = match signal {
            Some(signal) => {
                let quitter = join_all(&nodes, Line::waiter(&nodes).signal(signal));
                quitter.send(signal);
                quitter
            }
            None => {
                let test = redlock(&nodes, "acquire -q --name").arg(Line::NAME);
                join_all(&nodes, test.args(["--wait", "1s"]).turned_away())
            }
        };
        quitter.finish();
        for node in &nodes {
            assert!(Line::is_clean(node), "{signal:?}");
        }
    }
}

#[test]
fn a_node_that_hangs_delays_neither_the_hand_over_nor_giving_up() {
    let nodes = several(3);
    let token = acquire_on_all(&nodes, Line::NAME);
    let first = join_all(&nodes, Line::waiter(&nodes));
    let second = join_all(&nodes, Line::waiter(&nodes).signal(Signal::SIGTERM));
    nodes[2].pause();
    let start = Instant::now();
    release(&nodes, Line::NAME, &token);
    first.finish();
    assert!(start.elapsed() < SOON, "{:?}, and not until its lease has run out", start.elapsed());
    second.send(Signal::SIGTERM);
    second.finish();
    for node in &nodes[..2] {
        assert!(Line::is_clean(node));
    }
    nodes[2].resume();
    eventually(SOON, "what had been sent has been done", || Line::is_clean(&nodes[2]));
}

#[test]
fn the_dead_and_the_frozen_hold_nobody_up() {
    let nodes = several(3);
    let token = acquire_on_all(&nodes, Line::NAME);
    let dead = join_all(&nodes, Line::waiter(&nodes));
    let frozen = join_all(&nodes, Line::waiter(&nodes));
    let alive = join_all(&nodes, Line::waiter(&nodes));
    drop(dead);
    frozen.send(Signal::SIGSTOP);
    let start = Instant::now();
    release(&nodes, Line::NAME, &token);
    let token = alive.finish().token();
    assert!(start.elapsed() < SOON, "{:?}, and not until a lease has run out", start.elapsed());
    frozen.send(Signal::SIGCONT);
    for node in &nodes {
        Line::becomes(node, 1);
    }
    release(&nodes, Line::NAME, &token);
    frozen.finish();
    for node in &nodes {
        eventually(SOON, "nothing is left", || Line::is_clean(node));
    }
}

#[test]
fn whoever_has_a_majority_leaves_the_line_of_the_other_nodes_too() {
    let nodes = several(3);
    let token = acquire_on_all(&nodes, Line::NAME);
    // If the waiter notices what is done below, it prints a line.
    let waiter = join_all(&nodes, Line::waiter(&nodes).stderr(any()));
    // Another program holds the lock on this node without an expiry, so that this node never grants it to the waiter.
    nodes[2].command(&["SET", Line::KEY, "another"]);
    release(&nodes, Line::NAME, &token);
    let token = waiter.finish().token();
    for node in &nodes {
        eventually(SOON, "nothing is left of the line", || Line::is_clean(node));
    }
    assert_eq!(nodes[2].get(Line::KEY).as_deref(), Some("another"));
    release(&nodes, Line::NAME, &token);
}

#[test]
fn who_waits_is_reported_though_a_master_is_down_or_has_missed_some() {
    let mut nodes = several(3);
    acquire_on_all(&nodes, Line::NAME);
    let join = |label: &str| {
        let words = ["run", "-q", "--name", Line::NAME, "--wait", "--label", label, "--", "true"];
        join_all(&nodes, Test::new(&nodes).args(words).any_end())
    };
    let (first, _second) = (join("first"), join("second"));
    let labels = |nodes: &Vec<Redis>| {
        let waiters = status(nodes, Line::NAME)["waiters"].take();
        let label = |waiter: &Value| waiter["label"].as_str().unwrap().to_owned();
        waiters.as_array().unwrap().iter().map(label).collect::<Vec<_>>()
    };
    nodes[0].command(&["ZPOPMIN", "{redlock:backup}:\u{1f}queue"]);
    assert_eq!(labels(&nodes), ["first", "second"]);
    let waiter = &status(&nodes, Line::NAME)["waiters"][0];
    assert_eq!(waiter["pid"], first.pid());
    assert!(waiter["waited_ms"].as_u64().is_some_and(|waited| waited < 60_000), "{waiter}");
    nodes[1].kill();
    assert_eq!(labels(&nodes), ["first", "second"]);
}

#[test]
fn rivals_that_have_a_part_each_until_the_wait_is_over_are_reported_as_such() {
    let nodes = several(3);
    for (number, node) in nodes.iter().enumerate() {
        node.command(&["SET", "redlock:backup", &format!("another{number}"), "PX", "60000"]);
    }
    // Each call makes its last try at the end of its wait.
    let calls = ["100ms", "300ms", "600ms", "900ms", "1200ms", "1500ms", "2s", "3s"].map(|wait| {
        let test = redlock(&nodes, format!("run -q backup --wait {wait} -- true")).status(75);
        test.stderr(message(["\"backup\" is held", "gave up after"])).spawn()
    });
    calls.into_iter().for_each(|call| drop(call.finish()));
}
