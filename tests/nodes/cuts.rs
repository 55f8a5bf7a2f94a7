//! Connections that break in the middle of a request: a take, a release, the undo of a try, or leaving the line. A
//! request that is sent again over a new connection does its work only once.
//!
//! With ALL_CUTS set, connections break at every ninth byte.

use crate::support::{Break, Mode, Proxy, Redis, SOON, Test, acquire, any, eventually, ms, redlock, teach_scripts};
use std::time::Duration;

const KEY: &str = "redlock:backup";
/// How long a lease may stay on a node after the end of redlock. With a single node: 3 s. With several nodes: the ttl
/// of 12 s, and 3 s more, because redlock does not wait for all of them.
const LEFT_FOR: Duration = Duration::from_secs(3);
const LEFT_ON_ONE_OF_SEVERAL: Duration = Duration::from_secs(15);

fn step(usual: usize) -> usize {
    if std::env::var_os("ALL_CUTS").is_some() { 9 } else { usual }
}

/// Runs the job once over these proxies, and returns how many bytes redlock sent through the last proxy.
#[track_caller]
fn job(proxies: &Vec<Proxy>, nodes: &Vec<Redis>, what: &str) -> usize {
    let last = &proxies[proxies.len() - 1];
    let before = last.requested();
    let test = redlock(proxies, "run backup -q --ttl 12s --wait 10s --quarantine 0 -- echo ran");
    test.stdout("ran\n").stderr(any()).run();
    for node in nodes {
        // The test looks only at the lock's key: a dead waiter whose UNDO was lost may stay in line for a while.
        let left_for = if nodes.len() == 1 { LEFT_FOR } else { LEFT_ON_ONE_OF_SEVERAL };
        eventually(left_for, &format!("{what}: no lease is left"), || !node.exists(KEY));
    }
    last.mend();
    let log = redlock(nodes, "log backup").text();
    assert_eq!(log.lines().filter(|line| line.ends_with("exit 0")).count(), 1, "{what}: {log}");
    assert_eq!(log.lines().count(), 1, "{what}: {log}");
    nodes.iter().for_each(|node| node.command(&["DEL", "{redlock:backup}:\u{1f}log"]));
    last.requested() - before
}

const HOWS: [Break; 4] = [Break::Reset, Break::End, Break::HalfEnd, Break::BlackHole];

#[test]
fn a_job_on_one_server_ends_well_wherever_its_connection_breaks() {
    let nodes = vec![Redis::start()];
    teach_scripts(&nodes[0]);
    let proxies = vec![Proxy::new(&nodes[0], Mode::Pass)];
    job(&proxies, &nodes, "no cut");
    let bytes = job(&proxies, &nodes, "no cut");
    for how in HOWS {
        for byte in (1..bytes).step_by(step(bytes / 12)) {
            proxies[0].break_at(byte, how);
            job(&proxies, &nodes, &format!("{how:?} at byte {byte} of {bytes}"));
        }
    }
}

#[test]
fn a_job_on_three_servers_that_meets_a_rival_ends_well_wherever_a_connection_breaks() {
    let nodes = Redis::several(3);
    nodes.iter().for_each(teach_scripts);
    let proxies: Vec<Proxy> = nodes.iter().map(|node| Proxy::new(node, Mode::Pass)).collect();
    // The rival has two nodes for a moment: the third node's grant is undone, and the waiter stays in line there.
    let rival = || nodes[..2].iter().for_each(|node| node.command(&["SET", KEY, "another", "PX", "150"]));
    rival();
    job(&proxies, &nodes, "no cut");
    rival();
    let bytes = job(&proxies, &nodes, "no cut");
    for how in HOWS {
        for byte in (1..bytes).step_by(step(bytes / 8)) {
            proxies[2].break_at(byte, how);
            rival();
            job(&proxies, &nodes, &format!("{how:?} at byte {byte} of {bytes}"));
        }
    }
}

#[test]
fn a_waiter_does_not_stand_behind_its_own_try() {
    let redis = Redis::start();
    teach_scripts(&redis);
    let proxy = Proxy::new(&redis, Mode::Pass);
    // The server grants the take. The answer is lost, and so is the undo.
    proxy.set(Mode::LoseReplies);
    let waiter =
        redlock(&proxy, "run backup -q --ttl 30s --wait 20s -- echo ran").stdout("ran\n").stderr(any()).spawn();
    eventually(SOON, "granted", || redis.exists(KEY));
    proxy.set(Mode::BlackHole);
    std::thread::sleep(ms(500));
    proxy.half_open();
    proxy.set(Mode::Pass);
    let finished = waiter.finish();
    assert!(finished.elapsed < SOON, "{:?}", finished.elapsed);
    assert!(!redis.exists(KEY));
}

#[test]
fn a_connection_that_is_given_up_for_another_one_is_reset() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    let (reader, writer) = std::io::pipe().unwrap();
    let test = redlock(&proxy, "run backup -q --ttl 20s -- sh -c").args(["echo ready; read line || :"]);
    let job = test.stdin_from(reader).spawn();
    job.prints("ready");
    // The first release does not get through. It must not arrive after the release over the new connection, so redlock
    // resets the old connection.
    proxy.half_open();
    drop(writer);
    job.finish();
    assert!(!redis.exists(KEY));
    eventually(SOON, "reset", || proxy.resets() == 1);
}

#[test]
fn a_restart_at_the_end_of_a_job_costs_neither_the_lock_nor_the_success() {
    // The server restarts with its data, or without.
    for (mut redis, remembers) in [(Redis::durable(), true), (Redis::start(), false)] {
        let (reader, writer) = std::io::pipe().unwrap();
        let test = redlock(&redis, "run backup --ttl 20s -- sh -c").args(["echo ready; read line || :"]);
        let job = test.stdin_from(reader).stderr(any()).spawn();
        job.prints("ready");
        redis.kill();
        drop(writer);
        std::thread::sleep(ms(300));
        redis.restart();
        let finished = job.finish();
        assert!(finished.elapsed < SOON, "{:?}", finished.elapsed);
        assert!(!redis.exists(KEY));
        if remembers {
            Test::new(&redis).args(["check", "backup", "--within", "1h"]).stdout(any()).run();
        }
    }
}

#[test]
fn a_node_that_has_lost_the_lease_is_not_told_of_a_loss_before_the_others_have_answered() {
    let nodes = Redis::several(3);
    let (reader, writer) = std::io::pipe().unwrap();
    let test = redlock(&nodes, "run backup -q --ttl 20s -- sh -c").args(["echo ready; read line || :"]);
    let job = test.stdin_from(reader).spawn();
    job.prints("ready");
    // A node that has not granted yet would look like a node that has lost the lease.
    eventually(SOON, "on all nodes", || nodes.iter().all(|node| node.exists(KEY)));
    nodes[0].command(&["DEL", KEY]);
    drop(writer);
    job.finish();
    let log = redlock(&nodes, "log backup").text();
    assert!(log.ends_with("exit 0\n"), "{log}");
}

#[test]
fn a_release_that_is_cut_off_is_repeated_with_pauses() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    let token = acquire(&proxy, "backup");
    proxy.set(Mode::Cut);
    let before = proxy.connections();
    let release = redlock(&proxy, format!("release backup --node-timeout 1s --token {token}")).status(69);
    let rounds = release.stderr(any()).run().elapsed.as_millis() / 50 + 1;
    let tried = u128::try_from(proxy.connections() - before).unwrap();
    // If a connection is closed at once, redlock may open another in the same round.
    assert!((2..=2 * rounds).contains(&tried), "{tried} connections in {rounds} rounds");
}
