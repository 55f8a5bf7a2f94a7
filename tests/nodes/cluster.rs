//! A Cluster: one node, whose servers share the slots. A lock is on the master that has its slot at present.

use crate::support::{
    Authority, Cluster, Contenders, Endless, Line, Numbered, Redis, SOON, Test, acquire, any, eventually,
    fencing_token, is_renewed, job, like, message, ms, permit, redlock, release,
};
use std::time::{Duration, Instant};

const KEY: &str = Line::KEY;
const QUEUE: &str = "{redlock:backup}:\u{1f}queue";

fn length(cluster: &Cluster) -> usize {
    cluster.0[cluster.owner(KEY)].try_query(&["ZCARD", QUEUE]).unwrap_or(0)
}

#[test]
fn every_command_finds_the_master_of_the_slot() {
    let cluster = Cluster::start();
    // Any server may be a seed. At the other seed's address no server listens.
    for seed in &cluster.0 {
        let url = format!("redis+cluster://127.0.0.1:1,{}", seed.address());
        let test =
            Test::bare().args(["run", "-q", "--name", "backup", "--redis", &url, "--", "redlock", "status", "backup"]);
        test.stdout(like("backup  held<lines>")).run();
    }
    // These names are on all three masters: the list has to ask each master.
    let names: Vec<String> = (0..20).map(|number| format!("job-{number:02}")).collect();
    let tokens: Vec<String> = names.iter().map(|name| acquire(&cluster, name)).collect();
    let owners: Vec<usize> = names.iter().map(|name| cluster.owner(&format!("redlock:{name}"))).collect();
    assert!((0..3).all(|master| owners.contains(&master)), "{owners:?}");
    let list = redlock(&cluster, "status --format json").json();
    let listed: Vec<&str> =
        list["locks"].as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap()).collect();
    assert_eq!(listed, names);
    assert!(list["locks"].as_array().unwrap().iter().all(|lock| lock["state"] == "held"));
    for (name, token) in names.iter().zip(&tokens) {
        Test::new(&cluster).args(["extend", "-q", name, "--token", token]).run();
        release(&cluster, name, token);
    }
    assert!(names.iter().all(|name| cluster.get(&format!("redlock:{name}")).is_none()));
}

#[test]
fn the_documented_permissions_suffice() {
    let cluster = Cluster::start();
    cluster.0.iter().for_each(|server| permit(server, "+cluster|slots"));
    let url = cluster.url().replace("://", "://locks:secret@");
    redlock(url.as_str(), "run -q backup -- redlock status").stdout(like("<lines>backup<lines>")).run();
    assert_eq!(cluster.get(KEY), None);
}

#[test]
fn a_job_and_the_line_survive_resharding() {
    let cluster = Cluster::start();
    let (mut holder, writer) = job(&cluster, &["--ttl", "6s"], 0);
    let (token, fence) = (cluster.get(KEY), fencing_token(&cluster));
    let waiters = Numbered::join(&cluster, 3, || length(&cluster));
    for _ in 0..2 {
        let master = cluster.reshard(KEY);
        is_renewed(&cluster.0[master]);
        assert_eq!(cluster.get(KEY), token);
        assert!(!holder.has_ended(), "{}", holder.all_stderr());
    }
    let master = &cluster.0[cluster.owner(KEY)];
    eventually(SOON, "each waiter hears the new master", || Line::listeners(master) == 3);
    assert_eq!(length(&cluster), 3);
    drop(writer);
    holder.finish();
    assert!(waiters.are_served_in_order() > fence);
}

#[test]
fn there_is_one_holder_while_the_slot_moves_about() {
    let cluster = Cluster::start();
    let contenders = Contenders::start(&cluster, 4, 40, "");
    for _ in 0..6 {
        contenders.go_on(10);
        cluster.reshard(KEY);
    }
    contenders.finish(4 * 40);
}

#[test]
fn a_slot_that_is_halfway_is_waited_for() {
    let cluster = Cluster::start();
    let (mut holder, writer) = job(&cluster, &["--ttl", "6s"], 0);
    let token = cluster.get(KEY);
    let from = cluster.owner(KEY);
    let to = (from + 1) % 3;
    cluster.begin_move(KEY, to);
    assert_eq!(cluster.move_keys(KEY, from, to, 1), 1);
    // At first the owner says TRYAGAIN (Redis 6 says ASK). After all keys have moved, the owner says ASK, and the new
    // owner says TRYAGAIN.
    let refused = |what: &str| {
        redlock(&cluster, "acquire backup --node-timeout 5s").fails(69, ["\"backup\"", what]).run();
    };
    refused("is moving this lock");
    while cluster.move_keys(KEY, from, to, 10) > 0 {}
    refused("ASK");
    let waiter = redlock(&cluster, "acquire -q backup --wait").stdout(any()).spawn();
    std::thread::sleep(ms(1_000));
    cluster.end_move(KEY, to);
    std::thread::sleep(ms(5_500)); // in all longer than the ttl
    assert_eq!(cluster.get(KEY), token);
    assert!(!holder.has_ended(), "{}", holder.all_stderr());
    drop(writer);
    holder.finish();
    let next = waiter.finish().token();
    assert_eq!(cluster.get(KEY), Some(next));
}

#[test]
fn a_request_that_meets_a_moving_slot_is_sent_again() {
    let cluster = Cluster::start();
    let token = acquire(&cluster, "backup");
    release(&cluster, "backup", &token);
    let from = cluster.owner(KEY);
    let to = (from + 1) % 3;
    // The old master has the fencing counter, but not the lock.
    cluster.begin_move(KEY, to);
    let acquire = redlock(&cluster, "acquire backup").stdout(any()).spawn();
    eventually(SOON, "told to try again", || {
        let said = cluster.0[from].query::<String>(&["INFO", "errorstats"]);
        said.contains("errorstat_TRYAGAIN") || said.contains("errorstat_ASK") // ASK: Redis 6
    });
    while cluster.move_keys(KEY, from, to, 10) > 0 {}
    cluster.end_move(KEY, to);
    let token = acquire.finish().token();
    assert_eq!(cluster.get(KEY), Some(token));
}

#[test]
fn servers_that_point_at_each_other_are_not_asked_over_and_over() {
    let cluster = Cluster::start();
    let owner = cluster.owner(KEY);
    // The owner has given the slot away, and the others have not heard of it.
    cluster.disown(KEY, (owner + 1) % 3);
    let connections = || cluster.0[owner].info("total_connections_received").parse::<u32>().unwrap();
    let before = connections();
    let took = redlock(&cluster, "acquire backup --node-timeout 3s").fails(69, ["\"backup\"", "MOVED"]).run().elapsed;
    assert!(took > ms(600), "pauses of 16 ms to 96 ms: {took:?}");
    assert!(connections() < before + 15, "{} connections", connections() - before);
}

#[test]
fn a_job_and_the_line_survive_the_fail_over_of_their_master() {
    for frozen in [false, true] {
        let mut cluster = Cluster::with_replicas();
        let (mut holder, writer) = job(&cluster, &["--ttl", "30s"], 0);
        let (token, fence) = (cluster.get(KEY).unwrap(), fencing_token(&cluster));
        let waiters = Numbered::join(&cluster, 2, || length(&cluster));
        let old = cluster.owner(KEY);
        if frozen {
            cluster.0[old].pause()
        } else {
            cluster.0[old].kill()
        }
        let new = &cluster.0[old + 3];
        let took_over = || new.info("role") == "master" && new.try_query::<i64>(&["PTTL", KEY]).is_ok();
        eventually(Duration::from_secs(30), "taken over", took_over);
        // redlock renews as soon as it knows that the old master is dead. This may be before the test looks.
        eventually(Duration::from_secs(20), "confirmed", || new.pttl(KEY) > 23_500);
        assert_eq!(new.get(KEY), Some(token));
        assert!(!holder.has_ended(), "{}", holder.all_stderr());
        eventually(SOON, "in line again", || Line::length(new) == 2);
        eventually(SOON, "each waiter hears the new master", || Line::listeners(new) == 2);
        drop(writer);
        holder.finish();
        assert!(waiters.are_served_in_order() > fence);
    }
}

#[test]
fn without_its_master_the_job_is_dead_before_the_lease_expires() {
    let cluster = Cluster::start();
    let (holder, _writer) = job(&cluster, &["--ttl", "6s"], 76);
    let master = &cluster.0[cluster.owner(KEY)];
    let expires = Instant::now() + ms(master.pttl(KEY).cast_unsigned());
    master.pause();
    eventually(SOON, "nothing of the job is left", || holder.job().is_empty());
    assert!(Instant::now() < expires, "{:?} after the end of the lease", Instant::now() - expires);
    assert!(holder.finish().stderr.contains("lost \"backup\""));
}

#[test]
fn a_url_of_one_server_is_not_led_to_another() {
    let cluster = Cluster::start();
    let owner = cluster.owner(KEY);
    for (at, server) in cluster.0.iter().enumerate() {
        let test = Test::bare().args(["acquire", "-q", "backup", "--redis", &server.tcp_url()]);
        match at == owner {
            true => drop(test.stdout(any()).run()),
            false => drop(test.fails(64, ["\"backup\"", &server.address(), "MOVED"]).run()),
        }
    }
    assert_eq!(cluster.0.iter().map(Redis::keys_without_history).filter(|keys| !keys.is_empty()).count(), 1);
}

#[test]
fn a_seed_that_has_left_the_cluster_is_passed_over() {
    let cluster = Cluster::start();
    // `empty` has no slots. `alone` has one slot, and reports that its Cluster is down.
    let [empty, alone] = [0, 1].map(|_| Redis::with_tcp(&["--cluster-enabled", "yes"]));
    alone.command(&["CLUSTER", "ADDSLOTS", "0"]);
    let good = cluster.url().replace("redis+cluster://", "");
    for bad in [vec![&empty], vec![&alone], vec![&empty, &alone]] {
        let bad: Vec<String> = bad.into_iter().map(Redis::address).collect();
        let url = format!("redis+cluster://{},{good}", bad.join(","));
        for _ in 0..5 {
            let token = acquire(url.as_str(), "backup");
            let list = redlock(&url[..], "status").stdout(any()).run();
            assert!(list.stdout.contains("backup"), "{}", list.stdout);
            release(url.as_str(), "backup", &token);
        }
        // A waiter and a job find the way too.
        redlock(&url[..], "run -q backup --wait -- redlock status backup -q").status(75).run();
    }
    for (bad, why) in [(&empty, "knows no masters"), (&alone, "CLUSTERDOWN")] {
        let url = format!("redis+cluster://{}", bad.address());
        redlock(&url[..], "acquire backup").fails(69, ["\"backup\"", why]).run();
    }
    for (bad, why) in [(&empty, "knows no masters"), (&alone, "1 of 16384 slots")] {
        let url = format!("redis+cluster://{}", bad.address());
        redlock(&url[..], "status").fails(69, [why]).run();
        redlock(&url[..], "doctor").status(69).stdout(like(format!("<lines>{why}<lines>"))).run();
    }
}

#[test]
fn a_job_outlives_its_only_seed() {
    let mut cluster = Cluster::with_replicas();
    let owner = cluster.owner(KEY);
    let seed = 3 + (owner + 1) % 3; // the replica of another master
    let url = format!("redis+cluster://{}", cluster.0[seed].address());
    let (mut holder, writer) = job(url.as_str(), &["--ttl", "30s"], 0);
    cluster.0[seed].kill();
    cluster.0[owner].kill();
    let new = &cluster.0[owner + 3];
    let renewed = || new.try_query::<i64>(&["PTTL", KEY]).is_ok_and(|left| left > 26_000);
    eventually(Duration::from_secs(30), "renewed by the new master", renewed);
    assert!(!holder.has_ended(), "{}", holder.all_stderr());
    drop(writer);
    holder.finish();
}

#[test]
fn the_server_to_blame_is_named() {
    let cluster = Cluster::start();
    let owner = &cluster.0[cluster.owner(KEY)];
    let says = |why| {
        let test = Test::new(&cluster).args(["acquire", "backup", "--node-timeout", "2s"]).status(69);
        test.stderr(message(["cluster@", &format!("({})", owner.address()), why])).run();
    };
    owner.command(&["CONFIG", "SET", "maxmemory", "1"]);
    says("OOM");
    owner.command(&["CONFIG", "SET", "maxmemory", "0"]);
    owner.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    says("timed out");
    owner.command(&["CLIENT", "UNPAUSE"]);
}

#[test]
fn servers_that_are_no_cluster_are_refused() {
    let servers = [Redis::with_tcp(&[]), Redis::with_tcp(&[])];
    let url = format!("redis+cluster://{},{}", servers[0].address(), servers[1].address());
    for arguments in [&["acquire", "backup"][..], &["acquire", "backup", "--wait"], &["status"], &["status", "backup"]]
    {
        Test::new(&url[..]).args(arguments).fails(64, ["not part of a Cluster", "redis://"]).run();
    }
    // A server that cannot be reached now may be the right one.
    let url = format!("{url},127.0.0.1:1");
    redlock(&url[..], "acquire backup").fails(69, ["127.0.0.1:1"]).run();
    assert!(servers.iter().all(|server| server.keys_without_history().is_empty()));
}

#[test]
fn no_name_that_a_server_gives_reaches_the_terminal_unread() {
    let evil = "\x1b]0;evil\x07\x1b[31m";
    let slots = format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n${}\r\n{evil}\r\n:1\r\n", evil.len());
    let by_slots = Endless::answering(move |_| slots.clone().into_bytes());
    let moved = format!("-MOVED 1 {evil}:1\r\n");
    let by_moved = Endless::answering(move |number| match number {
        0 => b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n".to_vec(),
        _ => moved.clone().into_bytes(),
    });
    let named = format!("*2\r\n${}\r\n{evil}\r\n$1\r\n1\r\n*2\r\n$12\r\nconfig-epoch\r\n$1\r\n1\r\n", evil.len());
    let by_sentinel = Endless::answering(move |_| named.clone().into_bytes());
    let of_a_cluster = |server: &Endless| format!("redis+cluster://{}", server.address());
    let urls =
        [of_a_cluster(&by_slots), of_a_cluster(&by_moved), format!("redis+sentinel://{}/s", by_sentinel.address())];
    for url in urls {
        let said = message(["something other than a Redis reply"]);
        redlock(&url[..], "acquire backup").status(69).stderr(said).run();
    }
}

#[test]
fn a_job_survives_resharding_by_tls() {
    let authority = Authority::new();
    let cluster = Cluster::by_tls(&authority);
    let url = cluster.url().replace("redis+", "rediss+");
    let test = || Test::new(url.as_str()).env("REDLOCK_TLS_CA", authority.certificate());
    let (reader, writer) = std::io::pipe().unwrap();
    let job =
        test().args(["run", "-q", "backup", "--ttl", "8s", "--", "sh", "-c", "echo ready; cat"]).stdin_from(reader);
    let job = job.spawn();
    job.prints("ready");
    let token = cluster.get(KEY);
    let waiter = test().args(["acquire", "-q", "backup", "--wait"]).stdout(any()).spawn();
    eventually(SOON, "in line", || length(&cluster) == 1);
    let master = &cluster.0[cluster.reshard(KEY)];
    eventually(SOON, "heard on the new master", || Line::listeners(master) == 1);
    is_renewed(master);
    is_renewed(master);
    assert_eq!(cluster.get(KEY), token);
    test().arg("status").stdout(like("<lines>backup<lines>")).run();
    drop(writer);
    job.finish();
    let next = waiter.finish().token();
    assert_eq!(cluster.get(KEY), Some(next));
}
