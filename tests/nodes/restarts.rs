//! Nodes that were restarted, and may have forgotten a lease. With several nodes, such a node grants nothing for a
//! while. The holder re-creates the lease on a node that has lost it.

use crate::support::{
    Line, Mode, Proxy, Redis, SOON, Test, acquire, acquire_for, any, eventually, eventually_on_none, job, message, ms,
    redlock, release, restarted, status,
};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

const KEY: &str = "redlock:backup";
/// A time without renewals: with a ttl of a minute, the next renewal comes after ten seconds.
const UNASKED: Duration = Duration::from_secs(7);
const FENCE: &str = "{redlock:backup}:\u{1f}fence";

/// Checks that the lock stays with the holder of this token, for 400 ms.
#[track_caller]
fn stays_with(redis: &Redis, token: &str) {
    let start = Instant::now();
    while start.elapsed() < ms(400) {
        assert_eq!(redis.get(KEY).as_deref(), Some(token), "after {:?}", start.elapsed());
        std::thread::sleep(ms(5));
    }
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
    // Without --quarantine, nodes have no vote for thirty seconds after their start.
    for quarantine in [None, Some("5m")] {
        acquire(quarantine, "backup").status(69).stderr(restarted()).run();
        eventually_on_none(&nodes);
    }
    acquire(Some("0"), "first").stdout(any()).run();
    // Servers count their uptime in whole seconds.
    eventually(SOON, "old enough", || {
        nodes.iter().all(|node| node.info("uptime_in_seconds").parse::<u32>().unwrap() >= 2)
    });
    acquire(Some("1s"), "backup").stdout(any()).run();
}

#[test]
fn a_node_that_was_restarted_is_not_given_the_key_and_has_no_vote() {
    let mut nodes = Redis::aged(3, 3_600);
    let acquire = |nodes: &Vec<Redis>| redlock(nodes, "acquire backup --quarantine 1m");
    nodes[0].restart();
    let token = acquire(&nodes).token();
    assert!(nodes[1..].iter().all(|node| node.get(KEY).as_ref() == Some(&token)));
    assert!(nodes[0].keys_without_history().is_empty(), "{:?}", nodes[0].keys_without_history());
    release(&nodes, "backup", &token);
    eventually_on_none(&nodes);
    // Node 1 is dead, and node 0 has no vote after its restart: only the vote of node 2 is left.
    nodes[1].kill();
    nodes[0].restart();
    acquire(&nodes).status(69).stderr(restarted()).run();
    eventually(SOON, "undone", || !nodes[2].exists(KEY));
    assert!(nodes[0].keys_without_history().is_empty(), "{:?}", nodes[0].keys_without_history());
    nodes[0].restart_aged(3_600);
    acquire(&nodes).stdout(any()).run();
}

#[test]
fn one_node_has_no_quarantine_unless_it_is_given() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    release(&redis, "backup", &token);
    redlock(&redis, "acquire backup --quarantine 1h").status(69).stderr(restarted()).run();
    assert!(!redis.exists(KEY));
}

#[test]
fn a_node_that_comes_back_empty_is_joined_again() {
    let mut nodes = Redis::several(3);
    let test = redlock(&nodes, "run -q backup --ttl 4s --node-timeout 2s -- cat");
    let (reader, writer) = std::io::pipe().unwrap();
    let mut job = test.stdin_from(reader).spawn();
    eventually(SOON, "acquired on all", || nodes.iter().all(|node| node.exists(KEY)));
    let token = nodes[0].get(KEY).unwrap();
    for node in &mut nodes {
        node.restart();
        eventually(SOON, "joined again", || node.get(KEY).as_ref() == Some(&token));
        assert!(!job.has_ended(), "{}", job.all_stderr());
    }
    // All three nodes have forgotten the lease once, and each has it again with all that belongs to it.
    assert_eq!(status(&nodes, "backup")["holders"][0]["holds"], 1);
    nodes[0].kill();
    std::thread::sleep(ms(4_100)); // longer than a lease
    assert!(!job.has_ended(), "{}", job.all_stderr());
    drop(writer);
    job.finish();
    eventually_on_none(&nodes[1..]);
}

#[test]
fn a_job_survives_the_restart_of_its_only_server() {
    for tcp in [false, true] {
        let mut redis = Redis::with_tcp(&[]);
        let url = if tcp { redis.tcp_url() } else { redis.url() };
        let (mut job, writer) = job(url.as_str(), &["-q", "--ttl", "1m"], 0);
        let (token, fence, since) = (redis.get(KEY), redis.get(FENCE), Instant::now());
        for outage in [0, 700] {
            redis.kill();
            std::thread::sleep(ms(outage));
            redis.restart();
            eventually(UNASKED, "taken again", || redis.get(KEY) == token);
            assert_eq!(redis.get(FENCE), fence);
            assert!(redis.pttl(KEY) > 45_000);
            assert!(!job.has_ended(), "{}", job.all_stderr());
        }
        let before = since.elapsed();
        let object = status(&redis, "backup");
        assert_eq!(object["holders"][0]["pid"], job.pid());
        assert_eq!(object["holders"][0]["fencing_token"].to_string(), fence.unwrap());
        // The lock counts as held since it was acquired, not since the restart.
        let held = ms(object["holders"][0]["held_ms"].as_u64().unwrap());
        assert!(held + ms(20) > before, "{held:?}, {before:?}");
        drop(writer);
        // With -q redlock does not report an outage that is over.
        assert_eq!(job.finish().stderr, "");
        assert!(!redis.exists(KEY));
    }
}

#[test]
fn a_holder_renews_at_once_when_its_connection_was_closed() {
    let redis = Redis::start();
    let (job, writer) = job(&redis, &["--ttl", "1m"], 0);
    eventually(SOON, "some of the lease is over", || redis.pttl(KEY) < 57_500);
    redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    eventually(UNASKED, "renewed", || redis.pttl(KEY) > 57_500);
    drop(writer);
    job.finish();
}

#[test]
fn a_waiter_does_not_overtake_a_holder_whose_server_restarts() {
    let mut redis = Redis::start();
    let (holder, writer) = job(&redis, &["--ttl", "30s"], 0);
    let token = redis.get(KEY).unwrap();
    let mut waiter = Line::join(&redis, Line::waiter(&redis));
    for _ in 0..3 {
        redis.restart();
        eventually(SOON, "taken again", || redis.exists(KEY));
        stays_with(&redis, &token);
        eventually(SOON, "queued again", || Line::length(&redis) == 1);
        assert!(!waiter.has_ended());
    }
    drop(writer);
    holder.finish();
    let next = waiter.finish().token();
    assert_eq!(redis.get(KEY), Some(next));
}

#[test]
fn a_waiter_reserves_the_lock_until_the_lease_that_it_saw_would_have_ended() {
    let mut redis = Redis::start();
    acquire_for(&redis, "backup", "8s");
    let expires = Instant::now() + ms(redis.pttl(KEY).cast_unsigned());
    let waiter = Line::join(&redis, Line::waiter(&redis));
    redis.restart();
    eventually(SOON, "queued again", || Line::length(&redis) == 1);
    assert!(!redis.exists(KEY));
    assert_eq!(status(&redis, "backup")["state"], "reserved");
    let whose = "the next in line or an earlier holder";
    let said = redlock(&redis, "status backup").text();
    assert!(said.contains(whose), "{said}");
    redlock(&redis, "acquire backup").turned_away().stderr(message(["free but reserved for ", whose])).run();
    redlock(&redis, "wait -q backup --timeout 1s").turned_away().run();
    let token = waiter.finish().token();
    let now = Instant::now();
    assert!(now >= expires, "{:?} before the end of the lease", expires - now);
    assert_eq!(redis.get(KEY), Some(token));
}

#[test]
fn a_waiter_does_not_overtake_a_holder_that_is_frozen_while_its_server_restarts() {
    let mut redis = Redis::start();
    let (holder, _writer) = job(&redis, &["--ttl", "4s", "--node-timeout", "2s"], 76);
    let waiter = Line::join(&redis, Line::waiter(&redis));
    holder.send(Signal::SIGSTOP);
    let expires = Instant::now() + ms(redis.pttl(KEY).cast_unsigned());
    redis.restart();
    waiter.finish();
    let now = Instant::now();
    assert!(now >= expires, "{:?} before the end of the lease", expires - now);
    holder.send(Signal::SIGCONT);
    holder.finish();
    assert!(redis.exists(KEY), "it is another's now");
}

#[test]
fn a_release_after_the_restart_ends_the_reservation() {
    let mut redis = Redis::start();
    let token = acquire(&redis, "backup");
    let mut waiter = Line::join(&redis, Line::waiter(&redis));
    redis.restart();
    eventually(SOON, "queued again", || Line::length(&redis) == 1);
    let start = Instant::now();
    while start.elapsed() < ms(1_500) {
        assert!(!waiter.has_ended(), "served after {:?}", start.elapsed());
        std::thread::sleep(ms(5));
    }
    redlock(&redis, format!("release backup --token {token}")).any_end().stderr(message(["\"backup\""])).run();
    let start = Instant::now();
    waiter.finish();
    assert!(start.elapsed() < SOON, "{:?}, and not what was left of thirty seconds", start.elapsed());
}

#[test]
fn a_holder_that_was_there_again_and_has_ended_is_not_waited_for() {
    let mut redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    let (holder, writer) = job(&redis, &["--ttl", "30s"], 0);
    let token = redis.get(KEY);
    let waiter = Line::join(&redis, Line::waiter(&proxy));
    proxy.set(Mode::Cut);
    redis.restart();
    eventually(SOON, "taken again", || redis.get(KEY) == token);
    drop(writer);
    holder.finish();
    assert!(!redis.exists(KEY));
    proxy.set(Mode::Pass);
    let start = Instant::now();
    waiter.finish();
    assert!(start.elapsed() < SOON, "{:?}, and not what was left of thirty seconds", start.elapsed());
}

#[test]
fn whoever_came_first_after_the_restart_has_the_lock_or_had_it_and_the_holder_has_lost_it() {
    for releases in [false, true] {
        let mut redis = Redis::start();
        let (holder, _writer) = job(&redis, &["--ttl", "1m"], 76);
        holder.send(Signal::SIGSTOP);
        redis.restart();
        let rival = acquire(&redis, "backup");
        if releases {
            release(&redis, "backup", &rival);
        }
        let start = Instant::now();
        holder.send(Signal::SIGCONT);
        let said = holder.finish().stderr;
        assert!(start.elapsed() < UNASKED, "{releases}: {:?}", start.elapsed());
        assert!(said.contains("\"backup\""), "{said}");
        assert_eq!(redis.get(KEY), (!releases).then_some(rival), "{releases}");
    }
}

#[test]
fn a_lock_that_was_freed_on_a_server_that_runs_on_is_lost() {
    // Before the release, the server restarts and the holder re-creates the lease (`restarts`), or the connection is
    // cut (`cuts`), or both.
    for (restarts, cuts) in [(false, true), (true, false), (true, true)] {
        let mut redis = Redis::start();
        let proxy = Proxy::new(&redis, Mode::Pass);
        let (holder, _writer) = job(&proxy, &["--ttl", "6s"], 76);
        let token = redis.get(KEY);
        if restarts {
            redis.restart();
            eventually(SOON, "taken again", || redis.get(KEY) == token);
            // A renewal shows that the holder has heard the answer to its re-creation of the lease.
            eventually(SOON, "about to be renewed", || redis.pttl(KEY) < 5_000);
            eventually(SOON, "renewed", || redis.pttl(KEY) > 5_000);
        }
        if cuts {
            proxy.set(Mode::Cut);
        }
        redlock(&redis, "release -q backup --force").run();
        proxy.set(Mode::Pass);
        let (mut holder, start) = (holder, Instant::now());
        while !holder.has_ended() {
            assert!(!redis.exists(KEY), "taken again after {:?}", start.elapsed());
            assert!(start.elapsed() < SOON, "{restarts} {cuts}: not noticed");
            std::thread::sleep(ms(2));
        }
        holder.finish();
        assert!(!redis.exists(KEY));
    }
}

#[test]
fn where_a_restart_cannot_be_told_it_is_loss() {
    let mut redis = Redis::with(&["--user", "default", "on", "nopass", "~*", "&*", "+@all", "-info"]);
    let (holder, _writer) = job(&redis, &["--ttl", "8s"], 76);
    redis.restart();
    holder.finish();
    assert!(!redis.exists(KEY));
}

#[test]
fn a_job_survives_the_restart_of_all_its_nodes_at_once() {
    for restarting in [2, 3] {
        let mut nodes = Redis::aged(3, 3_600);
        let (reader, writer) = std::io::pipe().unwrap();
        let test = Test::new(&nodes).env_remove("REDLOCK_QUARANTINE").args(["run", "-q", "--name", "backup"]);
        let mut job = test.args(["--ttl", "6s", "--node-timeout", "2s", "--", "cat"]).stdin_from(reader).spawn();
        // A quorum suffices to take the lock, so one node may grant it later. A renewal waits for all nodes.
        let all = |is: fn(i64) -> bool| nodes.iter().all(|node| is(node.pttl(KEY)));
        eventually(SOON, "taken on all", || all(|left| (1..5_000).contains(&left)));
        eventually(SOON, "renewed on all", || all(|left| left > 5_000));
        let token = nodes[0].get(KEY);
        nodes[..restarting].iter_mut().for_each(Redis::kill);
        nodes[..restarting].iter_mut().for_each(Redis::restart);
        // Meanwhile others do not get the lock.
        let test = Test::new(&nodes).env_remove("REDLOCK_QUARANTINE").args(["acquire", "--name", "backup"]).any_end();
        test.stderr(message(["\"backup\""])).run();
        eventually(SOON, "taken again", || nodes.iter().all(|node| node.get(KEY) == token));
        assert!(!job.has_ended(), "{}", job.all_stderr());
        drop(writer);
        job.finish();
        eventually_on_none(&nodes);
    }
}

#[test]
fn without_a_quarantine_a_majority_that_restarts_is_loss() {
    let mut nodes = Redis::several(3);
    let (holder, _writer) = job(&nodes, &["--ttl", "8s", "--node-timeout", "2s"], 76);
    eventually(SOON, "taken on all", || nodes.iter().all(|node| node.exists(KEY)));
    nodes[..2].iter_mut().for_each(Redis::kill);
    nodes[..2].iter_mut().for_each(Redis::restart);
    holder.finish();
    eventually_on_none(&nodes);
}
