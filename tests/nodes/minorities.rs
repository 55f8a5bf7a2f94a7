//! Calls that free another holder's lease over several masters: they ask all masters at once, and a majority decides.

use crate::support::{
    Redis, Running, SOON, acquire, any, eventually, is_renewed, like, loss, message, ms, perhaps, redlock, several,
    status, when,
};
use std::time::Instant;

const KEY: &str = "redlock:backup";

/// Starts a job under a lock over these nodes, and returns it with the token of its lease.
#[track_caller]
fn holder(nodes: &Vec<Redis>, ttl: &str, status: i32) -> (Running, String) {
    let test = redlock(nodes, format!("run -q backup --ttl {ttl} --node-timeout 1s -- sh -c"));
    let said = if status == 76 { loss([]) } else { "".into() };
    let job = test.arg("echo ready; exec sleep 60").status(status).stderr(said).spawn();
    job.prints("ready");
    let token = nodes.iter().find_map(|node| node.get(KEY)).unwrap();
    (job, token)
}

/// Waits for the end of the job, and checks that no node gets the lease back meanwhile.
#[track_caller]
fn loses_without_a_trace(mut job: Running, nodes: &[Redis], token: &str) {
    let mut connections: Vec<_> = nodes.iter().map(Redis::connection).collect();
    let start = Instant::now();
    while !job.has_ended() {
        for connection in &mut connections {
            let value: Option<String> = redis::cmd("GET").arg(KEY).query(connection).unwrap();
            assert_ne!(value.as_deref(), Some(token), "again, {:?} later", start.elapsed());
        }
        assert!(start.elapsed() < SOON, "the job runs on");
        // The job and its redlock need the processor, too.
        std::thread::sleep(ms(1));
    }
    job.finish();
    assert!(nodes.iter().all(|node| node.get(KEY).as_deref() != Some(token)));
}

#[test]
fn a_forced_release_over_three_masters_is_not_undone_by_the_holder() {
    let nodes = several(3);
    // The release comes at different moments between two renewals.
    for moment in [0, 300, 600, 900] {
        let (job, token) = holder(&nodes, "3s", 76);
        eventually(SOON, "on all nodes", || nodes.iter().all(|node| node.get(KEY).as_ref() == Some(&token)));
        std::thread::sleep(ms(moment)); // the moment is the point
        redlock(&nodes, "release -q backup --force").stdout(any()).stderr(perhaps(["run the command again"])).run();
        eventually(SOON, "on none", || nodes.iter().all(|node| node.get(KEY).as_ref() != Some(&token)));
        loses_without_a_trace(job, &nodes, &token);
    }
}

#[test]
fn a_forced_release_is_not_undone_where_one_master_missed_it() {
    let nodes = several(3);
    let (job, token) = holder(&nodes, "6s", 76);
    eventually(SOON, "on all nodes", || nodes.iter().all(|node| node.get(KEY).as_ref() == Some(&token)));
    nodes[2].pause();
    let test = redlock(&nodes, "release backup --force --node-timeout 1s");
    // The message may ask to repeat the call, and names the node that missed the release.
    test.any_end().stdout(any()).stderr(message([nodes[2].socket().to_str().unwrap()])).run();
    loses_without_a_trace(job, &nodes[..2], &token);
    nodes[2].resume();
    eventually(SOON, "given back there as well", || !nodes[2].exists(KEY));
}

#[test]
fn what_a_majority_has_freed_with_a_plain_del_is_loss_as_well() {
    let nodes = several(3);
    let (job, token) = holder(&nodes, "6s", 76);
    eventually(SOON, "on all nodes", || nodes.iter().all(|node| node.get(KEY).as_ref() == Some(&token)));
    nodes[0].command(&["DEL", KEY]);
    nodes[1].command(&["DEL", KEY]);
    loses_without_a_trace(job, &nodes[..2], &token);
    assert!(!nodes[2].exists(KEY));
}

#[test]
fn a_stale_lease_on_a_minority_is_no_lease() {
    for how in ["stop backup", "release backup --force"] {
        let nodes = several(3);
        let stale = acquire(&nodes[2], "backup");
        let free = || redlock(&nodes, how);
        let not_held = || when("the lock", |text| text.contains("\"backup\""));
        match how {
            "stop backup" => free().stdout(like("redlock: \"backup\" is free<any>\n")).run(),
            _ => free().status(77).stdout(any()).stderr(not_held()).run(),
        };
        let (mut job, token) = holder(&nodes, "4s", 0);
        for prefix in [&stale[..8], &stale] {
            free().args(["--token", prefix]).status(77).stdout(any()).stderr(not_held()).run();
        }
        // The job renews its lease, and finds that the lease was not revoked.
        for _ in 0..2 {
            is_renewed(&nodes[0]);
            assert!(!job.has_ended(), "{how}: {}", job.all_stderr());
            let having = nodes[..2].iter().filter(|node| node.get(KEY).as_ref() == Some(&token)).count();
            assert_eq!(having, 2, "{how}");
        }
        assert_eq!(status(&nodes, "backup")["state"], "held");
        drop(job);
    }
}

#[test]
fn the_lease_of_the_majority_is_freed_though_a_minority_has_a_stale_one() {
    for how in ["stop", "release --force"] {
        let nodes = several(3);
        let stale = acquire(&nodes[2], "backup");
        let (job, token) = holder(&nodes, "4s", 76);
        let test = redlock(&nodes, how).args(["-q", "backup", "--token", &token[..8]]);
        test.stdout(any()).stderr(perhaps(["run the command again"])).run();
        job.finish();
        assert!(nodes[..2].iter().all(|node| !node.exists(KEY)), "{how}");
        assert_eq!(nodes[2].get(KEY), Some(stale), "{how}");
    }
}

#[test]
fn without_a_majority_nothing_is_revoked_and_nothing_freed() {
    for how in ["stop backup", "stop backup --for 1h", "release backup --force"] {
        let mut nodes = several(3);
        acquire(&nodes, "backup");
        nodes[1..].iter_mut().for_each(Redis::kill);
        let test = redlock(&nodes, how).status(69).stdout(any());
        test.stderr(when("the lock", |text| text.contains("\"backup\""))).run();
    }
}
