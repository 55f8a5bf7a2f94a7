//! Holds of a re-entrant lease that survive restarts of the nodes, and holds with a longer ttl than their lease.

use crate::support::{Directory, Redis, Running, SOON, Where, eventually, is_renewed, redlock, status};
use std::io::PipeWriter;
use std::sync::Arc;

const KEY: &str = "redlock:backup";

/// An outer job, which starts an inner `run --reentrant`. The outer one ends when its input ends, the inner one once a
/// file `go` exists.
#[track_caller]
fn nested<W: Where + ?Sized>(servers: &W, ttl: &str) -> (Running, PipeWriter, Arc<Directory>) {
    let (reader, writer) = std::io::pipe().unwrap();
    let script = format!(
        "redlock run -q --reentrant --name backup --ttl {ttl} --node-timeout 2s -- \
             sh -c 'echo ready; while [ ! -e go ]; do sleep 0.02; done' &
         read line; exit 0"
    );
    let test = redlock(servers, format!("run -q backup --ttl {ttl} --node-timeout 2s -- sh -c")).arg(&script);
    let directory = test.directory();
    let outer = test.stdin_from(reader).leaves_output_open().spawn();
    outer.prints("ready");
    (outer, writer, directory)
}

#[track_caller]
fn holds<W: Where + ?Sized>(servers: &W) -> serde_json::Value {
    status(servers, "backup")["holders"][0]["holds"].clone()
}

/// Ends the outer job, checks that the inner run then holds the lock on all nodes, and renews the lease, and ends the
/// inner job.
#[track_caller]
fn the_inner_keeps_it<W: Where + ?Sized>(
    servers: &W,
    nodes: &[Redis],
    (mut outer, writer, directory): (Running, PipeWriter, Arc<Directory>),
) {
    let token = nodes[0].get(KEY).unwrap();
    drop(writer);
    outer.wait(SOON);
    for _ in 0..2 {
        is_renewed(&nodes[0]);
        let having = nodes.iter().filter(|node| node.get(KEY).as_ref() == Some(&token)).count();
        assert_eq!(having, nodes.len(), "{}", outer.all_stderr());
    }
    assert_eq!(holds(servers), 1);
    directory.file("go", "");
    eventually(SOON, "the inner job has ended", || outer.others().is_empty());
    eventually(SOON, "free", || nodes.iter().all(|node| !node.exists(KEY)));
    assert!(!outer.all_stderr().contains("lost"), "{}", outer.all_stderr());
}

#[test]
fn an_inner_hold_survives_nodes_that_restart_one_after_the_other() {
    let mut nodes = Redis::several(3);
    let nested = nested(&nodes, "6s");
    eventually(SOON, "both on all nodes", || {
        let entered = |node: &Redis| node.query::<usize>(&["ZCARD", "{redlock:backup}:\u{1f}holds"]) == 2;
        nodes.iter().all(entered)
    });
    let token = nodes[0].get(KEY).unwrap();
    for node in &mut nodes {
        node.restart();
        eventually(SOON, "joined again", || node.get(KEY).as_ref() == Some(&token));
        // The first renewal gives the node the lease with one hold. The other job's next renewal adds the other hold.
        eventually(SOON, "both holds are known again", || holds(node) == 2);
    }
    the_inner_keeps_it(&nodes, &nodes, nested);
}

#[test]
fn an_inner_hold_survives_a_restart_of_the_only_server() {
    let mut redis = Redis::start();
    let nested = nested(&redis, "6s");
    redis.restart();
    eventually(SOON, "taken again", || redis.exists(KEY));
    eventually(SOON, "both holds are known again", || holds(&redis) == 2);
    let nodes = [redis];
    the_inner_keeps_it(&nodes[0], &nodes, nested);
}

#[test]
fn a_long_inner_hold_leaves_the_lease_longer_until_the_outer_job_ends() {
    let redis = Redis::start();
    let (reader, writer) = std::io::pipe().unwrap();
    let script = "hold=$(redlock acquire -q --reentrant --name backup --token $REDLOCK_TOKEN --ttl 1h) || exit 9
        redlock release -q --name backup --token $hold || exit 8
        echo ready; read line; exit 0";
    let job = redlock(&redis, "run -q backup --ttl 10s -- sh -c").arg(script).stdin_from(reader).spawn();
    job.prints("ready");
    assert!(redis.pttl(KEY) > 3_000_000, "{}", redis.pttl(KEY));
    drop(writer);
    job.finish();
    assert!(!redis.exists(KEY));
}

#[test]
fn an_inner_job_lives_by_the_lease_that_it_shares_however_long_its_own_would_be() {
    let redis = Redis::start();
    let inner = "redlock run -q --reentrant --name backup -- sleep 5";
    redlock(&redis, "run -q backup --ttl 4s --node-timeout 2s --").args(inner.split(' ')).run();
    assert!(!redis.exists(KEY));
}
