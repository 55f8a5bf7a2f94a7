//! Fencing tokens: the number of each lease is larger than all numbers before, whatever happens to leases and nodes. A
//! reader may get the same number as the lease before.

use crate::support::{
    Contenders, Mode, Proxy, Redis, SOON, Test, acquire, any, eventually, lapsed, like, ms, redlock, release, several,
    status,
};

use std::time::{SystemTime, UNIX_EPOCH};

const COUNTER: &str = "{redlock:backup}:\u{1f}fence";

#[track_caller]
fn take<W: crate::support::Where + ?Sized>(servers: &W) -> (String, u64) {
    let object = redlock(servers, "acquire backup --ttl 20s --format json").json();
    (object["token"].as_str().unwrap().to_owned(), object["fencing_token"].as_u64().unwrap())
}

/// Takes the lock until every node has the lease and its number. One take is not enough: a call may end as soon as a
/// majority has granted.
#[track_caller]
fn take_on_all(nodes: &Vec<Redis>) -> (String, u64) {
    let mut taken = take(nodes);
    eventually(SOON, "taken on all nodes", || {
        let counter = Some(taken.1.to_string());
        let everywhere = nodes.iter().all(|node| node.get(COUNTER) == counter && node.exists("redlock:backup"));
        if !everywhere {
            release(nodes, "backup", &taken.0);
            taken = take(nodes);
        }
        everywhere
    });
    taken
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[test]
fn grows_with_every_lease_and_begins_with_the_time() {
    let redis = Redis::start();
    let mut last = now_ms() - 1;
    for _ in 0..20 {
        let (token, fencing) = take(&redis);
        assert!(fencing > last, "{fencing} after {last}");
        assert!(fencing <= now_ms() + 1_000 && fencing < 1 << 53, "{fencing}");
        release(&redis, "backup", &token);
        last = fencing;
    }
}

/// What no fencing counter is. From 2^53 on, Lua's numbers and those of many databases would share a token.
const NO_COUNTERS: [&str; 9] = [
    "1000000000000000000000000000000",
    "inf",
    "18446744073709551616",
    "9007199254740992",
    "nonsense",
    "-1",
    "1.5",
    "1e5",
    "",
];

#[test]
fn a_counter_that_is_no_counter_is_named_and_nothing_is_granted() {
    let redis = Redis::start();
    let (slots, shown) = ("{redlock:backup}:\u{1f}fences", "{redlock:backup}:\\x1ffence");
    for value in NO_COUNTERS {
        let set: [(&str, &str, &dyn Fn()); 4] = [
            ("", "fence", &|| redis.command(&["SET", COUNTER, value])),
            ("--shared", "fence", &|| redis.command(&["SET", COUNTER, value])),
            ("--slots 2", "fences", &|| redis.command(&["HSET", slots, "0", value])),
            ("", "fences", &|| redis.command(&["HSET", slots, "all", value])),
        ];
        for (claim, key, set) in set {
            redis.command(&["UNLINK", COUNTER, slots]);
            set();
            let why = format!("{{redlock:backup}}:\\u{{1f}}{key} is no fencing counter");
            let advice = format!("delete it: redis-cli unlink $'{}'", shown.replace("fence", key));
            let words = ["\"backup\"", &why, &advice];
            redlock(&redis, format!("acquire backup {claim}")).fails(78, words).run();
            redlock(&redis, format!("run backup --wait {claim} -- echo started")).fails(78, words).run();
            assert_eq!(status(&redis, "backup")["state"], "free", "{value} {claim}");
        }
    }
    redis.command(&["UNLINK", COUNTER, slots]);
    let (token, _) = take(&redis);
    redis.command(&["SET", COUNTER, "inf"]);
    redlock(&redis, "release backup --force").fails(78, ["is no fencing counter"]).run();
    assert_eq!(status(&redis, "backup")["state"], "held");
    release(&redis, "backup", &token);
    // The last number that is a counter.
    redis.command(&["SET", COUNTER, "9007199254740991"]);
    let (token, fencing) = take(&redis);
    assert_eq!(fencing, 9_007_199_254_740_992);
    release(&redis, "backup", &token);
    redlock(&redis, "acquire backup").fails(78, ["is no fencing counter"]).run();
}

#[test]
fn a_counter_that_is_no_counter_on_one_master_costs_that_master_s_vote() {
    let nodes = several(3);
    nodes[0].command(&["SET", COUNTER, "inf"]);
    let (token, _) = take(&nodes);
    release(&nodes, "backup", &token);
    nodes[1].command(&["SET", COUNTER, "inf"]);
    redlock(&nodes, "acquire backup").fails(78, ["1 of 3 nodes answered", "is no fencing counter", "unlink"]).run();
}

#[test]
fn is_the_same_wherever_it_is_shown() {
    let redis = Redis::start();
    let script = "redlock status --format json backup; echo \"$REDLOCK_FENCING_TOKEN\"";
    let test = redlock(&redis, "run backup -- sh -c").arg(script);
    let finished = test.stdout(any()).stderr(like("redlock: acquired \"backup\" <any>\n")).run();
    let (json, printed) = finished.stdout.trim_end().split_once('\n').unwrap();
    let object: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(object["holders"][0]["fencing_token"].to_string(), printed);
    assert!(finished.stderr.contains(&format!("fencing token {printed},")), "{}", finished.stderr);
    let script = "eval \"$(redlock acquire --name backup --format env)\"; echo \"$REDLOCK_FENCING_TOKEN\"";
    let evaluated = Test::sh(&redis, script).text();
    assert!(evaluated.trim_end().parse::<u64>().unwrap() > printed.parse().unwrap());
    assert_eq!(status(&redis, "backup")["holders"][0]["fencing_token"].to_string(), evaluated.trim_end());
}

#[test]
fn survives_the_end_of_the_lease_in_every_way() {
    let redis = Redis::start();
    // The counter is far ahead of the clock, so each take adds one to it.
    let ahead = now_ms() + 1_000_000_000;
    redis.command(&["SET", COUNTER, &ahead.to_string()]);
    let (token, first) = take(&redis);
    assert_eq!(first, ahead + 1);
    release(&redis, "backup", &token);
    lapsed(&redis, "backup");
    assert_eq!(take(&redis).1, ahead + 3);
    redlock(&redis, "release backup --force").stdout(any()).run();
    assert_eq!(take(&redis).1, ahead + 5, "force counts too");
    redis.command(&["DEL", "redlock:backup"]);
    let (token, sixth) = take(&redis);
    assert_eq!(sixth, ahead + 6);
    release(&redis, "backup", &token);
    assert_eq!(take(&redis).1, ahead + 7);
    let kept = 100 * 24 * 3600 * 1000;
    assert!((kept - 60_000..=kept).contains(&redis.pttl(COUNTER)), "kept for 100 days: {}", redis.pttl(COUNTER));
}

#[test]
fn survives_a_server_that_forgets_everything() {
    let mut redis = Redis::start();
    let (_, first) = take(&redis);
    redis.restart();
    let (_, second) = take(&redis);
    redis.command(&["FLUSHALL"]);
    let (_, third) = take(&redis);
    assert!(first < second && second < third, "{first} {second} {third}");
}

#[test]
fn extending_and_entering_keep_it() {
    let redis = Redis::start();
    let (token, fencing) = take(&redis);
    redlock(&redis, format!("extend -q backup --token {token}")).run();
    let test = redlock(&redis, format!("acquire backup --reentrant --token {token}"));
    let object = test.args(["--format", "json"]).json();
    assert_eq!(object["fencing_token"], fencing);
    assert_eq!(status(&redis, "backup")["holders"][0]["fencing_token"], fencing);
}

#[test]
fn one_master_that_granted_late_does_not_decide_the_number_of_an_inner_hold() {
    let nodes = several(3);
    let (token, fencing) = take_on_all(&nodes);
    for (late, other) in [(0, fencing + 5), (1, fencing + 5), (2, fencing - 5)] {
        nodes[late].command(&["HSET", "{redlock:backup}:\u{1f}lease", "fence", &other.to_string()]);
        let test = redlock(&nodes, format!("acquire backup --reentrant --token {token} --format json"));
        assert_eq!(test.json()["fencing_token"], fencing);
        nodes[late].command(&["HSET", "{redlock:backup}:\u{1f}lease", "fence", &fencing.to_string()]);
    }
}

#[test]
fn every_lock_has_its_own() {
    let redis = Redis::start();
    redis.command(&["SET", COUNTER, &(now_ms() + 1_000_000_000).to_string()]);
    let (_, fencing) = take(&redis);
    acquire(&redis, "other");
    let other = status(&redis, "other")["holders"][0]["fencing_token"].as_u64().unwrap();
    assert!(other < fencing - 900_000_000, "{other} {fencing}");
}

#[test]
fn over_several_masters_it_grows_whichever_majority_is_left() {
    let mut nodes = Redis::several(3);
    // One node alone knows of a lease with a high fencing token.
    let ahead = now_ms() + 1_000_000_000;
    nodes[0].command(&["SET", COUNTER, &ahead.to_string()]);
    let (token, mut last) = take(&nodes);
    // The lock must be free on all nodes: once one node is down, the next grant needs both others.
    release(&nodes, "backup", &token);
    eventually(SOON, "free", || nodes.iter().all(|node| !node.exists("redlock:backup")));
    for round in 0..12 {
        // The first round kills node 1, so the majority of this round includes node 0, whose counter is ahead.
        let killed = (round + 1) % 3;
        nodes[killed].kill();
        let (token, fencing) = take(&nodes);
        assert!(fencing > last, "{fencing} after {last}");
        let standing = nodes.iter().enumerate().filter(|(number, _)| *number != killed);
        let standing = standing.filter(|(_, node)| node.get(COUNTER) == Some(fencing.to_string())).count();
        assert_eq!(standing, 2, "a majority stands at the number");
        release(&nodes, "backup", &token);
        last = fencing;
        nodes[killed].restart();
    }
    assert!(last > ahead);
}

#[test]
fn over_several_masters_the_largest_counter_of_the_majority_counts() {
    let mut nodes = Redis::several(3);
    nodes[2].kill();
    let ahead = now_ms() + 1_000_000_000;
    nodes[0].command(&["SET", COUNTER, &ahead.to_string()]);
    nodes[1].command(&["SET", COUNTER, &(ahead + 7).to_string()]);
    let (token, fencing) = take(&nodes);
    assert_eq!(fencing, ahead + 8);
    assert_eq!(nodes[0].get(COUNTER), Some(fencing.to_string()), "written back to the one that was behind");
    release(&nodes, "backup", &token);
    assert_eq!(take(&nodes).1, ahead + 9);
}

#[test]
fn agreeing_nodes_cost_one_round_trip() {
    let nodes = several(3);
    let monitors: Vec<_> = nodes.iter().map(crate::support::Monitor::new).collect();
    take(&nodes);
    let sent = |(node, monitor): (&Redis, &crate::support::Monitor)| {
        monitor.commands(node).iter().filter(|name| name.starts_with("EVAL")).count()
    };
    let sent: Vec<usize> = nodes.iter().zip(&monitors).map(sent).collect();
    assert!(sent.iter().all(|count| *count <= 1) && sent.iter().sum::<usize>() >= 2, "{sent:?}");
}

#[test]
fn contenders_see_it_grow_on_one_node() {
    Contenders::start(&Redis::start(), 5, 5, "").finish(25);
}

#[test]
fn contenders_see_it_grow_on_three_masters() {
    Contenders::start(&Redis::several(3), 5, 5, "").finish(25);
}

/// Takes the lock as a reader, and returns the fencing token.
#[track_caller]
fn read<W: crate::support::Where + ?Sized>(servers: &W) -> u64 {
    let test = redlock(servers, "acquire backup --shared --ttl 20s --node-timeout 5s --format json");
    test.json()["fencing_token"].as_u64().unwrap()
}

#[test]
fn a_slow_master_is_waited_for_where_another_one_has_lost_its_counter() {
    let nodes = several(3);
    let (token, written) = take_on_all(&nodes);
    release(&nodes, "backup", &token);
    eventually(SOON, "free", || nodes.iter().all(|node| !node.exists("redlock:backup")));
    nodes[0].command(&["DEL", COUNTER]);
    let proxies: Vec<Proxy> = nodes.iter().map(|node| Proxy::new(node, Mode::Delay(ms(200)))).collect();
    proxies[2].set(Mode::Delay(ms(400)));
    // Without the slow master's answer, redlock would see only one counter. The last writer's number might be larger,
    // so it would use the clock.
    assert_eq!(read(&proxies), written);
}

#[test]
fn a_master_that_lost_its_counter_gives_a_reader_no_number_of_its_own() {
    let (mut nodes, mut written) = (Vec::new(), 0);
    // On a busy machine the majority that answers first may include the restarted master: then the test tries again.
    eventually(SOON, "the two others know it", || {
        nodes = Redis::several(3);
        let token;
        (token, written) = take_on_all(&nodes);
        release(&nodes, "backup", &token);
        eventually(SOON, "free", || nodes.iter().all(|node| !node.exists("redlock:backup")));
        assert_eq!(read(&nodes), written);
        nodes[0].restart();
        assert!(nodes[0].get(COUNTER).is_none(), "the master has forgotten it");
        read(&nodes) == written
    });
    // Only one master that knows the number is left, so redlock sees only one counter. The last writer's number might
    // be larger, so redlock uses the clock.
    nodes[0].restart();
    nodes[2].kill();
    let clock = read(&nodes);
    assert!(clock > written, "{clock} after {written}");
    for node in &nodes[..2] {
        assert_eq!(node.get(COUNTER), Some(clock.to_string()), "a quorum stands at it");
    }
    assert_eq!(read(&nodes), clock, "and the next readers have it too");
}
