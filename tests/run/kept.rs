//! `run --hold-at-least` when Redis is out of memory at the job's end.

use crate::support::{Redis, SOON, Where, eventually, message, redlock, release, several, status};

/// Runs a job with `--hold-at-least 40s` while `nodes` run out of memory, and expects that the job's end does not free
/// the lock.
#[track_caller]
fn kept<W: Where + ?Sized>(servers: &W, nodes: &[&Redis]) {
    for node in nodes {
        node.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    }
    let test = redlock(servers, "run -q backup --hold-at-least 40s --ttl 10s");
    let test = test.args(["--", "sh", "-c", "echo ready; read line; exit 3"]);
    let (job, writer) = test.status(3).ready_to_read();
    eventually(SOON, "on all of these", || nodes.iter().all(|node| node.exists("redlock:backup")));
    let token = nodes[0].get("redlock:backup");
    for node in nodes {
        node.command(&["CONFIG", "SET", "maxmemory", "1"]);
    }
    drop(writer);
    job.finish();
    for node in nodes {
        assert_eq!(node.get("redlock:backup"), token, "released");
        let left = node.pttl("redlock:backup");
        assert!((15_000..=40_000).contains(&left), "40 s were asked for: {left} ms");
    }
    for node in nodes {
        node.command(&["CONFIG", "SET", "maxmemory", "0"]);
    }
    let state = status(servers, "backup")["state"].clone();
    assert!(state == "kept" || state == "held", "{state}");
    let test = redlock(servers, "run backup -- echo started");
    test.status(75).stderr(message(["\"backup\""])).run();
    release(servers, "backup", &token.unwrap());
}

#[test]
fn a_lock_is_kept_though_redis_is_out_of_memory() {
    let redis = Redis::start();
    kept(&redis, &[&redis]);
}

#[test]
fn a_lock_is_kept_though_most_nodes_are_out_of_memory() {
    let nodes = several(3);
    kept(&nodes, &[&nodes[0], &nodes[1]]);
}
