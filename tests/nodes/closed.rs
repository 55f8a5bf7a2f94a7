//! `redlock stop --for` on three masters, a Cluster and a service with Sentinels.

use crate::support::{
    Cluster, Redis, SOON, Sentinels, acquire, any, eventually, job, like, message, redlock, several, status,
};
use std::time::Duration;

const CLOSED: &str = "{redlock:backup}:\u{1f}closed";

#[test]
fn a_quorum_closes_and_one_that_forgets_opens_nothing() {
    let mut nodes = several(3);
    nodes[2].kill();
    redlock(&nodes, "stop backup -q --for 1h").run();
    nodes[2].restart();
    // Two of three are closed. The third never heard of it.
    redlock(&nodes, "acquire backup").fails(75, ["\"backup\" is closed by "]).run();
    assert_eq!(status(&nodes, "backup")["state"], "closed");
    redlock(&nodes, "stop backup -q --for 1h").run();
    nodes[0].restart();
    assert!(!nodes[0].exists(CLOSED));
    redlock(&nodes, "acquire backup").fails(75, ["\"backup\" is closed by "]).run();
    redlock(&nodes, "stop backup -q --for 0").run();
    acquire(&nodes, "backup");
}

#[test]
fn without_a_quorum_the_lock_is_not_closed_and_that_is_said() {
    let mut nodes = several(3);
    nodes[1..].iter_mut().for_each(Redis::kill);
    redlock(&nodes, "stop backup --for 1h").status(69).stderr(message(["\"backup\""])).run();
    nodes[1..].iter_mut().for_each(Redis::restart);
    acquire(&nodes, "backup");
}

#[test]
fn the_lock_opens_when_a_quorum_does() {
    let nodes = several(3);
    let opens = |each: [&str; 3]| {
        let close = |(node, ms): (&Redis, &str)| node.command(&["SET", CLOSED, "root@ops", "PX", ms]);
        nodes.iter().zip(each).for_each(close);
        status(&nodes, "backup")["closed_until"].as_str().unwrap().to_owned()
    };
    let early = opens(["600000", "7200000", "600000"]);
    assert!(early < opens(["900000"; 3]), "{early}");
}

#[test]
fn that_a_minority_may_be_closed_is_reported() {
    let nodes = several(3);
    let memory = |bytes| nodes[1..].iter().for_each(|node| node.command(&["CONFIG", "SET", "maxmemory", bytes]));
    memory("1");
    let said = "redlock: \"backup\" may be closed until <any> (redlock stop backup --for 0 opens it)\nredlock: \"backup\": <any>\n";
    redlock(&nodes, "stop backup --for 1h").status(69).stderr(like(said)).run();
    memory("0");
    acquire(&nodes, "backup");
}

#[test]
fn a_take_that_is_under_way_on_one_master_is_waited_for() {
    let nodes = several(3);
    acquire(&nodes[0], "backup");
    let said = like("redlock: \"backup\" is closed until <any>\n");
    let test = redlock(&nodes, "stop backup --for 1h").stdout(said).run();
    assert!(test.elapsed > Duration::from_secs(1), "{test:?}");
}

#[test]
fn a_holder_on_three_masters_is_stopped_and_nobody_comes_after_it() {
    let nodes = several(3);
    let (holder, _input) = job(&nodes, &["--ttl", "3s"], 76);
    redlock(&nodes, "stop backup --for 1h")
        .stderr(any())
        .stdout(like("redlock: stopped \"backup\" of <any>; closed until <any>\n"))
        .run();
    holder.finish();
    redlock(&nodes, "acquire backup --wait 300ms -q").fails(75, ["\"backup\" is closed by "]).run();
}

#[test]
fn a_closed_lock_moves_with_its_slot() {
    let cluster = Cluster::start();
    redlock(&cluster, "stop backup -q --for 1h").run();
    cluster.reshard("redlock:backup");
    redlock(&cluster, "acquire backup").fails(75, ["\"backup\" is closed by "]).run();
    // Halfway, the key of the closed lock is elsewhere than the others, and nobody gets the lock.
    let from = cluster.owner("redlock:backup");
    let to = (from + 1) % 3;
    cluster.begin_move("redlock:backup", to);
    while cluster.move_keys("redlock:backup", from, to, 10) > 0 {}
    redlock(&cluster, "acquire backup").fails(69, ["\"backup\""]).run();
    cluster.end_move("redlock:backup", to);
    redlock(&cluster, "stop backup -q --for 0").run();
    acquire(&cluster, "backup");
}

#[test]
fn a_closed_lock_survives_a_fail_over() {
    let mut service = Sentinels::failing_over(2);
    redlock(&service, "stop backup -q --for 1h").run();
    eventually(SOON, "replicated", || service.servers[1..].iter().all(|server| server.exists(CLOSED)));
    service.servers[0].kill();
    service.fails_over_from(0);
    redlock(&service, "acquire -q backup --wait 10s").fails(75, ["\"backup\" is closed by "]).run();
}
