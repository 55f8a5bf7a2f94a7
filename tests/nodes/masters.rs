//! Several independent masters: quorum, early decision, roll-back, extension without re-creation, dead and slow nodes.

use crate::support::{
    Mode, Proxy, Redis, SOON, Test, acquire, acquire_on_all, any, command_calls, eventually, eventually_on_none,
    free_port, in_the_end, like, loss, message, ms, perhaps, redlock, release, reset_command_calls, several, status,
};
use nix::sys::signal::Signal;
use std::time::Duration;

const KEY: &str = "redlock:backup";

/// How many of the nodes have this value under the lock's key.
fn having(nodes: &[Redis], value: &str) -> usize {
    nodes.iter().filter(|node| node.get(KEY).as_deref() == Some(value)).count()
}

#[test]
fn the_lock_is_taken_lengthened_and_released_on_all_of_them() {
    for count in [2, 3, 5] {
        let nodes = several(count);
        let token = acquire_on_all(&nodes, "backup");
        redlock(&nodes, format!("extend -q backup --token {token} --ttl 1m")).run();
        eventually(SOON, "extended on all", || nodes.iter().all(|node| node.pttl(KEY) > 50_000));
        let object = status(&nodes, "backup");
        assert_eq!(object["state"], "held");
        assert_eq!(object["nodes"].as_array().unwrap().len(), count);
        release(&nodes, "backup", &token);
        eventually_on_none(&nodes);
        assert_eq!(status(&nodes, "backup")["state"], "free");
    }
}

#[test]
fn a_minority_of_dead_nodes_costs_nothing() {
    for (count, dead) in [(3, 1), (5, 2)] {
        let mut nodes = Redis::several(count);
        nodes[..dead].iter_mut().for_each(Redis::kill);
        let token = acquire(&nodes, "backup");
        assert!(having(&nodes[dead..], &token) > count / 2);
        redlock(&nodes, format!("extend -q backup --token {token}")).run();
        redlock(&nodes, "acquire -q backup").turned_away().run();
        assert_eq!(status(&nodes, "backup")["state"], "held");
        release(&nodes, "backup", &token);
        eventually_on_none(&nodes[dead..]);
        redlock(&nodes, "run -q backup -- echo ran").stdout("ran\n").run();
    }
}

#[test]
fn quorum_counts_the_configured_nodes_not_the_reached_ones() {
    for (count, dead) in [(2, 1), (3, 2), (4, 2), (5, 3)] {
        let mut nodes = Redis::several(count);
        let token = acquire_on_all(&nodes, "backup");
        nodes[..dead].iter_mut().for_each(Redis::kill);
        for arguments in [
            vec!["acquire", "--name", "other"],
            vec!["run", "--name", "other", "--", "echo", "started"],
            vec!["extend", "backup", "--token", &token],
            vec!["release", "backup", "--token", &token],
            vec!["status", "backup"],
            vec!["wait", "backup", "--timeout", "300ms"],
        ] {
            let counted =
                if arguments[0] == "status" { String::new() } else { format!("{} of {count} ", count - dead) };
            let said = in_the_end(&arguments, message(["\"", &counted]));
            let test = Test::new(&nodes).args(&arguments).status(69).stderr(said);
            let finished = test.stdout(crate::support::when("nothing started", |text| !text.contains("started"))).run();
            assert!(finished.elapsed < SOON, "{arguments:?}: {:?}", finished.elapsed);
        }
        eventually(SOON, "undone", || nodes[dead..].iter().all(|node| !node.exists("redlock:other")));
    }
}

#[test]
fn a_black_holed_node_delays_nobody() {
    let nodes = Redis::several(3);
    let modes = [Mode::Pass, Mode::BlackHole, Mode::Pass];
    let proxies: Vec<Proxy> = nodes.iter().zip(modes).map(|(node, mode)| Proxy::new(node, mode)).collect();
    let quick = |test: Test| {
        let test = test.env("REDLOCK_NODE_TIMEOUT", "15s");
        let call = format!("{test:?}");
        let finished = test.run();
        assert!(finished.elapsed < SOON, "{:?}: {call}", finished.elapsed);
        finished
    };
    let token = quick(redlock(&proxies, "acquire backup").stdout(any())).token();
    quick(redlock(&proxies, "acquire -q backup").turned_away());
    quick(redlock(&proxies, format!("extend -q backup --token {token}")));
    quick(redlock(&proxies, "run -q other -- true"));
    quick(redlock(&proxies, format!("release -q backup --token {token}")));
    assert!(!nodes[0].exists(KEY) && !nodes[2].exists(KEY));
}

#[test]
fn five_masters_far_away_take_one_round_trip_not_five() {
    let nodes = Redis::several(5);
    let proxies: Vec<Proxy> = nodes.iter().map(|node| Proxy::new(node, Mode::Delay(ms(300)))).collect();
    let patient = |line: &str| redlock(&proxies, line).env("REDLOCK_NODE_TIMEOUT", "5s");
    // The first calls teach the servers the scripts, and take one more round trip for that.
    let token = patient("acquire backup").token();
    patient(&format!("release -q backup --token {token}")).run();
    for black_holed in [false, true] {
        if black_holed {
            proxies[4].set(Mode::BlackHole);
        }
        let finished = patient("acquire backup").stdout(any()).run();
        let (least, most) = (ms(600), ms(2_800));
        assert!((least..most).contains(&finished.elapsed), "{black_holed}: {:?}", finished.elapsed);
        patient(&format!("release -q backup --token {}", finished.token())).run();
    }
}

#[test]
fn validity_counts_from_before_the_request_was_sent() {
    let nodes = Redis::several(3);
    let proxies: Vec<Proxy> = nodes.iter().map(|node| Proxy::new(node, Mode::Delay(ms(100)))).collect();
    let acquired = redlock(&proxies, "acquire backup --ttl 10s --node-timeout 3s --format json").stdout(any()).run();
    let (validity, took) = (acquired.json()["validity_ms"].as_u64().unwrap(), acquired.elapsed);
    // The validity is the ttl, less the drift (102 ms) and the round trip, which takes at least 200 ms, and no longer
    // than the call.
    assert!(validity <= 9_698 && ms(validity) + took + ms(1) >= ms(9_898), "{validity}, {took:?}");
}

#[test]
fn a_lock_held_on_a_minority_does_not_keep_others_from_it() {
    let nodes = Redis::several(3);
    nodes[0].command(&["SET", KEY, "theirs", "PX", "60000"]);
    let token = acquire(&nodes, "backup");
    assert_eq!(having(&nodes[1..], &token), 2);
    release(&nodes, "backup", &token);
    eventually_on_none(&nodes[1..]);
    assert_eq!(having(&nodes, "theirs"), 1, "only what is ours is released");
}

#[test]
fn a_tie_is_nobodys() {
    let nodes = Redis::several(4);
    for node in &nodes[..2] {
        node.command(&["SET", KEY, "theirs", "PX", "60000"]);
    }
    redlock(&nodes, "acquire -q backup").turned_away().run();
    eventually_on_none(&nodes[2..]);
}

#[test]
fn rivals_that_have_a_part_each_are_tried_again_with_pauses() {
    let nodes = Redis::several(2);
    for (node, rival) in nodes.iter().zip(["one", "another"]) {
        node.command(&["SET", KEY, rival, "PX", "60000"]);
    }
    let calls = [0, 1, 2].map(|_| redlock(&nodes, "acquire -q backup").turned_away().spawn());
    // The six random pauses of a call add up to 0.6 s on average, so three calls together hardly ever take less than
    // 0.3 s.
    let took: Duration = calls.into_iter().map(|call| call.finish().elapsed).sum();
    assert!(took > ms(300), "{took:?}");
}

#[test]
fn nodes_that_timed_out_are_rolled_back_too() {
    let nodes = several(3);
    nodes[1..].iter().for_each(Redis::pause);
    redlock(&nodes, "acquire backup --node-timeout 200ms").fails(69, ["\"backup\"", "timed out"]).run();
    eventually_on_none(&nodes[..1]);
    nodes[1..].iter().for_each(Redis::resume);
    for _ in 0..5 {
        assert!(nodes[1..].iter().all(|node| !node.exists(KEY)), "what was sent while it was stopped comes first");
    }
    // The counter shows that these nodes have been asked.
    assert!(nodes[1..].iter().all(|node| node.exists("{redlock:backup}:\u{1f}fence")));
    acquire(&nodes, "backup");
}

#[test]
fn a_slow_node_that_grants_after_the_decision_is_released_with_the_others() {
    let nodes = several(3);
    let proxies: Vec<Proxy> = nodes.iter().map(|node| Proxy::new(node, Mode::Pass)).collect();
    proxies[2].set(Mode::Delay(ms(150)));
    eventually(SOON, "granted late", || {
        // A release over a new connection to the slow node could overtake the take. The job sleeps so that the take
        // arrives first.
        redlock(&proxies, "run -q backup -- sleep 0.1").run();
        nodes[2].exists("{redlock:backup}:\u{1f}fence")
    });
    eventually_on_none(&nodes);
}

#[test]
fn extend_never_creates_anew() {
    let nodes = Redis::several(3);
    let token = acquire_on_all(&nodes, "backup");
    let extend = || redlock(&nodes, format!("extend -q backup --token {token}"));
    nodes[0].command(&["DEL", KEY]);
    extend().run();
    assert!(!nodes[0].exists(KEY));
    nodes[1].command(&["DEL", KEY]);
    extend().fails(77, ["\"backup\""]).run();
    assert_eq!(having(&nodes, &token), 1);
    nodes[0].command(&["SET", KEY, "theirs", "PX", "60000"]);
    nodes[1].command(&["SET", KEY, "theirs", "PX", "60000"]);
    extend().fails(77, ["\"backup\""]).run();
    assert_eq!(having(&nodes, "theirs"), 2);
}

#[test]
fn release_needs_a_majority_that_had_the_lease() {
    let nodes = Redis::several(3);
    let token = acquire_on_all(&nodes, "backup");
    nodes[0].command(&["DEL", KEY]);
    nodes[1].command(&["DEL", KEY]);
    redlock(&nodes, format!("release -q backup --token {token}")).fails(77, ["\"backup\" is not held"]).run();
    eventually_on_none(&nodes);
}

#[test]
fn the_same_node_by_two_addresses_is_refused() {
    let redis = Redis::with_tcp(&[]);
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    // In both cases the two votes of this server would be the majority.
    for urls in [vec![redis.url(), redis.tcp_url()], vec![redis.url(), nobody, redis.tcp_url()]] {
        for arguments in [vec!["acquire", "--name", "backup"], vec!["run", "--name", "backup", "--", "echo", "started"]]
        {
            Test::new(&urls).args(&arguments).fails(64, ["same Redis"]).run();
            eventually(SOON, "rolled back", || !redis.exists(KEY));
        }
    }
}

#[test]
fn which_nodes_did_not_grant_the_lock_is_said() {
    let mut nodes = Redis::several(3);
    nodes[2].kill();
    let dead = nodes[2].socket().display().to_string();
    let said = format!("redlock: acquired \"backup\" on 2 of 3 nodes ({dead} <any>), token <token>, <any>\n");
    Test::new(&nodes).args(["run", "backup", "--", "true"]).stderr(like(said)).run();
    nodes[2].restart();
    let said = "redlock: acquired \"backup\" on <n> of 3 nodes<any>, token <token>, <any>\n";
    Test::new(&nodes).args(["run", "backup", "--", "true"]).stderr(like(said)).run();
}

#[test]
fn a_job_keeps_its_lock_while_a_majority_lives_and_loses_it_with_it() {
    let mut nodes = Redis::several(3);
    let test = redlock(&nodes, "run backup --ttl 4s --node-timeout 2s -- sleep 30").status(76);
    let mut job = test.stderr(loss([])).spawn();
    job.says(like("redlock: acquired \"backup\" on <any>, token <token>, fencing token <n>, lease <any>"));
    eventually(SOON, "on all nodes", || nodes.iter().all(|node| node.exists(KEY)));
    nodes[0].kill();
    std::thread::sleep(ms(4_100)); // longer than a lease
    assert!(!job.has_ended(), "{}", job.all_stderr());
    nodes[1].kill();
    job.finish();
}

#[test]
fn a_lock_that_is_held_where_half_of_the_nodes_are_dead_is_asked_for_once() {
    let mut nodes = several(2);
    acquire_on_all(&nodes, "backup");
    nodes[1].kill();
    reset_command_calls(&nodes[0]);
    redlock(&nodes, "acquire -q backup").turned_away().run();
    assert_eq!(command_calls(&nodes[0])["evalsha"], 1);
}

#[test]
fn a_master_that_hangs_does_not_make_the_others_be_asked_more_often() {
    let nodes = Redis::several(3);
    let job = redlock(&nodes, "run -q backup --ttl 6s --node-timeout 400ms")
        .args(["--", "sh", "-c", "echo ready; sleep 1000"])
        .any_end()
        .stderr(perhaps(["cannot renew", "lost "]))
        .spawn();
    job.prints("ready");
    nodes[2].pause();
    reset_command_calls(&nodes[0]);
    std::thread::sleep(ms(6_000)); // in which it is renewed three times
    let asked = command_calls(&nodes[0]).get("evalsha").copied().unwrap_or(0);
    assert!((2..=5).contains(&asked), "{asked} renewals");
    nodes[2].resume();
    job.send(Signal::SIGTERM);
    job.finish();
}

#[test]
fn a_slow_master_on_which_the_answer_depends_is_waited_for() {
    let nodes = Redis::several(3);
    let slow = Proxy::new(&nodes[0], Mode::Delay(ms(150)));
    let urls = [slow.url(), nodes[1].url(), nodes[2].url()].to_vec();
    let test = |arguments: &[&str]| Test::new(&urls).args(arguments).args(["-q", "--node-timeout", "5s"]);
    for (number, command) in ["extend", "release", "--force"].into_iter().enumerate() {
        let name = format!("lock-{number}");
        let token = test(&["acquire", &name]).token();
        let key = format!("redlock:{name}");
        // `acquire` may end before the slow node has granted the lock. So the test writes the token there.
        nodes[0].command(&["SET", &key, &token, "PX", "30000"]);
        nodes[2].command(&["DEL", &key]);
        match command {
            "extend" | "release" => test(&[command, &name, "--token", &token]).run(),
            flag => test(&["release", &name, flag]).stdout(any()).run(),
        };
        if command == "release" || command == "--force" {
            assert!(nodes.iter().all(|node| !node.exists(&key)), "{command}");
        }
    }
}
