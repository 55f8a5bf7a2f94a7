//! Nodes that were restarted and may have forgotten a lease: no vote for a while, and a lease that is given to them anew.

use crate::support::{Redis, SOON, Test, acquire, any, eventually, message, ms, release, status};

const KEY: &str = "redlock:backup";

#[track_caller]
fn eventually_on_none(nodes: &[Redis]) {
    eventually(SOON, "on no node", || nodes.iter().all(|node| !node.exists(KEY)));
}

#[test]
fn nodes_that_were_just_started_have_no_vote() {
    let nodes = Redis::several(3);
    let acquire = |quarantine: Option<&str>, name: &str| {
        let mut test =
            Test::new(&nodes).args(["acquire", "--name", name, "--ttl", "10s"]).env_remove("REDLOCK_QUARANTINE");
        if let Some(quarantine) = quarantine {
            test = test.args(["--quarantine", quarantine]);
        }
        test
    };
    // For as long as the ttl, if nothing else is said; the message tells for how long.
    for quarantine in [None, Some("5m")] {
        let test = acquire(quarantine, "backup").status(69);
        test.stderr(message(["\"backup\"", "quarantine"])).run();
        eventually_on_none(&nodes);
    }
    acquire(Some("0"), "first").stdout(any()).run();
    // The uptime has a grain of a second.
    acquire(Some("1s"), "backup").status(69).stderr(message(["quarantine"])).run();
    eventually(SOON, "old enough", || {
        nodes.iter().all(|node| node.info("uptime_in_seconds").parse::<u32>().unwrap() >= 2)
    });
    acquire(Some("1s"), "backup").stdout(any()).run();
}

#[test]
fn a_node_that_was_restarted_is_given_the_key_but_has_no_vote() {
    let mut nodes = Redis::several(3);
    let old = |node: &Redis| node.info("uptime_in_seconds").parse::<u32>().unwrap() >= 2;
    eventually(SOON, "old enough", || nodes.iter().all(old));
    let acquire = |nodes: &Vec<Redis>| Test::new(nodes).args(["acquire", "--name", "backup", "--quarantine", "1s"]);
    nodes[0].restart();
    let token = acquire(&nodes).stdout(any()).run().token();
    eventually(SOON, "given the key", || nodes[0].get(KEY).as_ref() == Some(&token));
    release(&nodes, "backup", &token);
    eventually_on_none(&nodes);
    // With one of the others gone there are two answers, and one vote.
    nodes[1].kill();
    nodes[0].restart();
    acquire(&nodes).status(69).stderr(message(["\"backup\"", "quarantine"])).run();
    eventually(SOON, "undone", || !nodes[0].exists(KEY) && !nodes[2].exists(KEY));
    eventually(SOON, "old enough", || old(&nodes[0]));
    acquire(&nodes).stdout(any()).run();
}

#[test]
fn one_node_has_no_quarantine_unless_it_is_given() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    release(&redis, "backup", &token);
    let test = Test::new(&redis).args(["acquire", "--name", "backup", "--quarantine", "1h"]).status(69);
    test.stderr(message(["\"backup\"", "quarantine"])).run();
    assert!(!redis.exists(KEY));
}

#[test]
fn a_node_that_comes_back_empty_is_joined_again() {
    let mut nodes = Redis::several(3);
    let test = Test::new(&nodes).args(["run", "-q", "--name", "backup", "--ttl", "1500ms", "--", "cat"]);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut job = test.stdin_from(reader).spawn();
    eventually(SOON, "acquired on all", || nodes.iter().all(|node| node.exists(KEY)));
    let token = nodes[0].get(KEY).unwrap();
    for node in &mut nodes {
        node.restart();
        eventually(SOON, "joined again", || node.get(KEY).as_ref() == Some(&token));
        assert!(!job.has_ended(), "{}", job.all_stderr());
    }
    // All three have forgotten it once, and each has it again with what belongs to it.
    assert_eq!(status(&nodes, "backup")["holders"][0]["holds"], 1);
    nodes[0].kill();
    std::thread::sleep(ms(1_600)); // longer than a lease
    assert!(!job.has_ended(), "{}", job.all_stderr());
    drop(writer);
    job.finish();
    eventually_on_none(&nodes[1..]);
}
