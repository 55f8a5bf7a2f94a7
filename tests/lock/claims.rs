//! Locks that several hold: readers and writers, and slots.

use crate::support::{
    Cluster, Directory, Ended, Line, Redis, Running, SOON, Sentinels, Where, acquire, any, eventually, loss, message,
    redlock, release, several, status,
};
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::io::PipeWriter;
use std::sync::Arc;
use std::time::Duration;

/// Takes the lock `backup` with these arguments, and returns its token.
#[track_caller]
fn take<W: Where + ?Sized>(servers: &W, arguments: &str) -> String {
    redlock(servers, format!("acquire backup {arguments}")).token()
}

/// Takes the lock, again and again, until every node has the lease. A single call may not be enough, because it waits
/// for a majority of the nodes only.
#[track_caller]
fn take_on_all(nodes: &Vec<Redis>, arguments: &str) -> String {
    let mut token = take(nodes, arguments);
    eventually(SOON, "taken on all nodes", || {
        let holds = |node| redlock(node, format!("extend -q backup --token {token}")).any_end().stderr(any()).run();
        let everywhere = nodes.iter().all(|node| holds(node).ended == Ended::Status(0));
        if !everywhere {
            release(nodes, "backup", &token);
            token = take(nodes, arguments);
        }
        everywhere
    });
    token
}

/// Checks that a call with these arguments is turned away from the lock with the text `said`.
#[track_caller]
fn busy<W: Where + ?Sized>(servers: &W, arguments: &str, said: &str) {
    redlock(servers, format!("acquire backup {arguments}")).fails(75, [said]).run();
}

/// Queues for the lock, behind all that are in line.
#[track_caller]
fn queue(redis: &Redis, arguments: &str) -> Running {
    Line::join(redis, Line::waiter(redis).args(arguments.split_whitespace()))
}

#[track_caller]
fn slots<W: Where + ?Sized>(servers: &W) -> Vec<u64> {
    let status = status(servers, "backup");
    status["holders"].as_array().unwrap().iter().map(|holder| holder["slot"].as_u64().unwrap()).collect()
}

#[track_caller]
fn count<W: Where + ?Sized>(servers: &W) -> usize {
    status(servers, "backup")["holders"].as_array().unwrap().len()
}

/// Calls `run` with these arguments, and waits until the job has begun. The job ends when its standard input is closed.
/// `status`: the expected status of the call.
#[track_caller]
pub(super) fn job<W: Where + ?Sized>(servers: &W, arguments: &str, status: i32) -> (Running, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let test =
        redlock(servers, format!("run -q backup {arguments} -- sh -c")).arg("echo ready; cat").stdin_from(reader);
    let said = if status == 76 { loss(["it was revoked by"]) } else { "".into() };
    let job = test.status(status).stderr(said).spawn();
    job.prints("ready");
    (job, writer)
}

/// Those that remain, without the counters and the history.
#[track_caller]
fn remains(redis: &Redis) -> Vec<String> {
    redis.keys_without_history().into_iter().filter(|key| !key.ends_with("fence") && !key.ends_with("fences")).collect()
}

#[test]
fn readers_hold_it_together_and_keep_writers_out() {
    let redis = Redis::start();
    let (one, other) = (take(&redis, "-s"), take(&redis, "--shared --label nightly"));
    busy(&redis, "", "\"backup\" is shared by 2: ");
    let object = status(&redis, "backup");
    assert_eq!((&object["mode"], &object["limit"], count(&redis)), (&"shared".into(), &serde_json::Value::Null, 2));
    release(&redis, "backup", &one);
    busy(&redis, "-x", "(nightly)");
    // As with flock, the last of -s and -x counts.
    busy(&redis, "-s -x", "shared by 1");
    release(&redis, "backup", &other);
    assert!(remains(&redis).is_empty(), "{:?}", redis.keys_without_history());
    let writer = take(&redis, "-s -e");
    busy(&redis, "-x -s", "held by");
    release(&redis, "backup", &writer);
    let token = take(&redis, "-s");
    redlock(&redis, format!("release backup --token {token}")).stderr(message(["released"])).run();
    redlock(&redis, format!("release backup --token {token}")).fails(77, ["not held"]).run();
}

#[test]
fn first_come_first_served_and_readers_in_a_row_enter_together() {
    let redis = Redis::start();
    let first = take(&redis, "-s");
    let writer = queue(&redis, "");
    // Another reader would fit, but a writer stands in line before it.
    busy(&redis, "-s", "an exclusive waiter is ahead in line");
    let mut readers: Vec<Running> = (0..3).map(|_| queue(&redis, "-s")).collect();
    let mut last = queue(&redis, "");
    let mut behind = queue(&redis, "-s");
    release(&redis, "backup", &first);
    let written = writer.finish().token();
    assert!(readers.iter_mut().all(|reader| !reader.has_ended()));
    release(&redis, "backup", &written);
    let read: Vec<String> = readers.drain(..).map(|reader| reader.finish().token()).collect();
    assert_eq!(count(&redis), 3);
    assert!(!last.has_ended() && !behind.has_ended());
    read.iter().for_each(|token| release(&redis, "backup", token));
    let written = last.finish().token();
    assert!(!behind.has_ended());
    release(&redis, "backup", &written);
    release(&redis, "backup", &behind.finish().token());
    assert!(remains(&redis).is_empty(), "{:?}", redis.keys_without_history());
}

#[test]
fn a_dead_writer_in_line_holds_no_reader_back() {
    let redis = Redis::start();
    let _first = take(&redis, "-s");
    let writer = Line::join(&redis, Line::waiter(&redis).signal(Signal::SIGKILL));
    writer.send(Signal::SIGKILL);
    writer.finish();
    take(&redis, "-s");
    assert!(Line::is_clean(&redis));
}

#[test]
fn each_holder_has_a_slot_of_its_own_and_a_free_one_is_given_again() {
    let redis = Redis::start();
    let env = redlock(&redis, "acquire backup --slots 3 --format env").stdout(any()).run();
    assert!(env.stdout.ends_with("\nREDLOCK_SLOT=0\n"), "{}", env.stdout);
    let json = redlock(&redis, "acquire backup --slots 3 --format json").json();
    assert_eq!(json["slot"], 1);
    let run = "run backup -q --slots 3 -- sh -c";
    let inner =
        "echo $REDLOCK_SLOT; redlock run -q inner -- sh -c 'echo ${REDLOCK_SLOT-none}'; redlock status backup >all";
    redlock(&redis, run).arg(inner).stdout("2\nnone\n").run();
    let third = take(&redis, "--slots 3");
    assert_eq!(slots(&redis), [0, 1, 2]);
    busy(&redis, "--slots 3", "\"backup\" has all 3 slots taken: ");
    let second = json["token"].as_str().unwrap();
    release(&redis, "backup", second);
    assert_eq!(slots(&redis), [0, 2]);
    let waiter = redlock(&redis, "acquire backup --slots 3 --format json").json();
    assert_eq!(waiter["slot"], 1);
    let object = status(&redis, "backup");
    assert_eq!((&object["mode"], &object["limit"]), (&"slots".into(), &3.into()));
    // A later lease of the same slot has a larger fencing token.
    assert!(waiter["fencing_token"].as_u64() > json["fencing_token"].as_u64());
    redlock(&redis, format!("extend backup --token {third} --ttl 5m")).stderr(message(["extended"])).run();
    redlock(&redis, "release backup --force").stdout(any()).run();
    assert!(remains(&redis).is_empty(), "{:?}", redis.keys_without_history());
}

#[test]
fn the_last_of_ten_thousand_slots_is_found() {
    let redis = Redis::start();
    take(&redis, "--slots 10000");
    // The lock now looks as if all slots but the last were taken.
    let (members, slots) = ("{redlock:backup}:\u{1f}members", "{redlock:backup}:\u{1f}slots");
    for first in (0..9_999).step_by(1_000) {
        let tokens = || (first..(first + 1_000).min(9_999)).map(|slot| (slot, format!("{slot:032}")));
        let members: Vec<String> = [String::from("ZADD"), members.to_owned()]
            .into_iter()
            .chain(tokens().flat_map(|(_, token)| [String::from("99999999999999"), token]))
            .collect();
        redis.command(&members.iter().map(String::as_str).collect::<Vec<_>>());
        let slots: Vec<String> = [String::from("ZADD"), slots.to_owned()]
            .into_iter()
            .chain(tokens().filter(|(slot, _)| *slot > 0).flat_map(|(slot, token)| [slot.to_string(), token]))
            .collect();
        redis.command(&slots.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let last = redlock(&redis, "acquire backup --slots 10000 --format json").json();
    assert_eq!(last["slot"], 9_999);
    busy(&redis, "--slots 10000", "all 10000 slots taken: ");
    redlock(&redis, "release backup --force").stdout(any()).run();
    assert!(remains(&redis).is_empty());
}

#[test]
fn a_slot_is_free_when_its_lease_has_run_out_or_its_holder_was_killed() {
    let redis = Redis::start();
    take(&redis, "--slots 2");
    take(&redis, "--slots 2 --ttl 3s");
    let second = queue(&redis, "--slots 2").finish().token();
    release(&redis, "backup", &second);
    let test = redlock(&redis, "run backup -q --slots 2 --ttl 3s --wait -- sleep 600").signal(Signal::SIGKILL);
    let holder = test.spawn();
    eventually(SOON, "both are taken", || count(&redis) == 2);
    let waiter = queue(&redis, "--slots 2");
    holder.send(Signal::SIGKILL);
    waiter.finish();
    assert_eq!(slots(&redis), [0, 1]);
}

#[test]
fn a_lock_in_use_in_another_way_is_a_mistake_of_the_caller() {
    let redis = Redis::start();
    let refused = |arguments: &str, said: [&str; 2]| {
        redlock(&redis, format!("acquire backup {arguments}")).status(64).stderr(message(said)).run();
    };
    for wait in ["", "--wait"] {
        let token = take(&redis, "--slots 3");
        for (arguments, not) in [("--slots 4", ", not 4"), ("", ", not exclusively"), ("-s", ", not with --shared")] {
            refused(&format!("{arguments} {wait}"), ["\"backup\" is in use with 3 slots (by ", not]);
        }
        release(&redis, "backup", &token);
        for (arguments, used) in [("-s", "with --shared"), ("", "exclusively")] {
            let token = take(&redis, arguments);
            refused(&format!("--slots 3 {wait}"), [&format!("is in use {used} (by "), ", not with 3 slots"]);
            release(&redis, "backup", &token);
        }
    }
    assert!(remains(&redis).is_empty(), "{:?}", redis.keys_without_history());
}

#[test]
fn who_waits_is_told_of_another_use_as_well() {
    let redis = Redis::start();
    take(&redis, "--slots 1");
    let waiter = Line::join(&redis, Line::waiter(&redis).args(["--slots", "1"]).fails(64, ["not with 1 slot"]));
    redis.command(&["SET", Line::KEY, "of another library", "PX", "60000"]);
    waiter.finish();
    assert!(Line::is_clean(&redis));
}

#[test]
fn others_take_the_mark_for_a_strangers_lock() {
    let redis = Redis::start();
    for arguments in ["-s", "--slots 3"] {
        let token = take(&redis, arguments);
        let mark = redis.get(Line::KEY).unwrap();
        let taken: redis::Value = redis.query(&["SET", Line::KEY, "theirs", "NX", "PX", "1000"]);
        assert_eq!(taken, redis::Value::Nil, "as redis-py takes it");
        // Neither the mark nor its first word is a token.
        for stranger in [mark.as_str(), mark.split('.').next().unwrap()] {
            redlock(&redis, format!("release backup --token {stranger}")).fails(77, ["\"backup\" is not held"]).run();
        }
        assert_eq!(redis.get(Line::KEY), Some(mark));
        // An older redlock with --force deletes these two keys. The members must then have lost their leases.
        redis.command(&["DEL", Line::KEY, "{redlock:backup}:\u{1f}lease"]);
        redlock(&redis, format!("extend backup --token {token}")).fails(77, ["\"backup\" is not held"]).run();
        let next = take(&redis, arguments);
        assert_eq!(count(&redis), 1);
        release(&redis, "backup", &next);
        assert!(remains(&redis).iter().all(|key| key.contains("member:")), "{:?}", redis.keys_without_history());
    }
}

#[test]
fn a_lease_that_is_not_listed_is_not_held() {
    let redis = Redis::start();
    for (arguments, stranger) in [("-s", "-s"), ("--slots 2", "--slots 2")] {
        let released = take(&redis, stranger);
        let stays = take(&redis, arguments);
        release(&redis, "backup", &released);
        for command in ["extend", "release"] {
            let test = redlock(&redis, format!("{command} backup --format json --token {released}")).status(77);
            let finished = test.stdout(any()).stderr(message(["\"backup\" is not held"])).run();
            assert_eq!(finished.json()["outcome"], "not-held");
        }
        release(&redis, "backup", &stays);
    }
}

#[test]
fn revoking_ends_all_leases_or_the_one_that_is_named() {
    let redis = Redis::start();
    let (one, one_input) = job(&redis, "-s --ttl 8s", 76);
    let (other, other_input) = job(&redis, "-s --ttl 8s", 76);
    let third = take(&redis, "-s");
    let prefix = &third[..8];
    redlock(&redis, format!("release backup --force --token {prefix}")).stdout(any()).run();
    assert_eq!(count(&redis), 2);
    redlock(&redis, format!("stop backup --token {prefix}")).fails(77, ["no lease has that token"]).run();
    redlock(&redis, "stop backup").fails(64, ["has several holders", "--token all"]).run();
    redlock(&redis, "stop backup --token all").stdout(any()).stderr(any()).run();
    for (job, input) in [(one, one_input), (other, other_input)] {
        job.finish();
        drop(input);
    }
    eventually(SOON, "the lock is free", || remains(&redis).is_empty());
}

#[test]
fn a_prefix_of_several_tokens_names_none_of_them() {
    let redis = Redis::start();
    let tokens = ["aaaaaaaa1", "aaaaaaaa2"].map(|token| format!("{token:0<32}"));
    let token = take(&redis, "-s");
    for token in &tokens {
        redis.command(&["ZADD", "{redlock:backup}:\u{1f}members", "99999999999999", token]);
    }
    for how in ["stop backup", "release backup --force"] {
        let test = redlock(&redis, format!("{how} --token aaaaaaaa")).status(64);
        test.stderr(message(["the tokens of 2 leases on \"backup\" begin with \"aaaaaaaa\""])).run();
    }
    redlock(&redis, format!("release backup --force --token {}", tokens[0])).stdout(any()).run();
    assert_eq!(count(&redis), 2);
    release(&redis, "backup", &token);
}

#[test]
fn wait_ends_with_the_last_of_them() {
    let redis = Redis::start();
    let tokens = [take(&redis, "--slots 2"), take(&redis, "--slots 2")];
    let mut watcher = redlock(&redis, "wait backup -q").spawn();
    release(&redis, "backup", &tokens[0]);
    redlock(&redis, "wait backup -q --timeout 0").turned_away().run();
    assert!(!watcher.has_ended());
    release(&redis, "backup", &tokens[1]);
    watcher.finish();
}

#[test]
fn readers_survive_a_restart_of_the_only_server_and_waiters_stay_out() {
    for arguments in ["-s", "--slots 2"] {
        let mut redis = Redis::with_tcp(&[]);
        let url = redis.tcp_url();
        let (one, one_input) = job(url.as_str(), arguments, 0);
        let (other, other_input) = job(url.as_str(), arguments, 0);
        redis.restart();
        eventually(SOON, "both have it again", || count(url.as_str()) == 2);
        busy(url.as_str(), if arguments == "-s" { "" } else { arguments }, "\"backup\"");
        drop((one_input, other_input));
        one.finish();
        other.finish();
        assert!(remains(&redis).is_empty(), "{:?}", redis.keys_without_history());
    }
}

#[test]
fn a_job_does_not_wait_for_itself() {
    let redis = Redis::start();
    let test = redlock(&redis, "run backup -q -s -- redlock run -q backup --wait -- true").status(75);
    test.stderr(message(["waiting for it would never end"])).run();
}

#[test]
fn a_job_waits_for_a_slot_that_another_holds_but_not_for_its_own() {
    let redis = Redis::start();
    let other = take(&redis, "--slots 2");
    let script = format!(
        "(sleep 1; redlock release -q backup --token {other}) & redlock run -q backup --slots 2 --wait 20s -- echo in; \
         redlock run -q backup --slots 2 -- redlock run -q backup --slots 2 --wait 20s -- true; echo $?"
    );
    let test = redlock(&redis, "run backup -q --slots 2 -- sh -c").arg(script);
    test.stdout("in\n75\n").stderr(message(["waiting for it would never end"])).run();
}

#[test]
fn over_three_masters_readers_are_together_and_writers_alone() {
    let nodes = several(3);
    let (one, other) = (take_on_all(&nodes, "-s"), take_on_all(&nodes, "-s"));
    busy(&nodes, "", "shared by 2");
    redlock(&nodes, "acquire backup --slots 2").fails(64, ["with --shared"]).run();
    let writer = Line::waiter(&nodes).spawn();
    nodes.iter().for_each(|node| Line::becomes(node, 1));
    busy(&nodes, "-s", "shared by 2");
    redlock(&nodes, format!("extend backup --token {one}")).stderr(message(["extended"])).run();
    release(&nodes, "backup", &one);
    release(&nodes, "backup", &other);
    release(&nodes, "backup", &writer.finish().token());
    acquire(&nodes, "backup");
}

/// Runs `jobs` jobs, which share `limit` slots on these nodes. Each notes its slot. Checks that no two have the same
/// slot at a time.
#[track_caller]
fn crowd(nodes: &Vec<Redis>, jobs: usize, limit: usize) {
    let directory = Arc::new(Directory::new());
    let script = "mkdir at-$REDLOCK_SLOT || echo twice >>faults; echo >>done
        set -- at-*; test $# -le $LIMIT || echo many >>faults; sleep 0.05; rmdir at-$REDLOCK_SLOT";
    let contenders: Vec<Running> = (0..jobs)
        .map(|_| {
            let test = redlock(nodes, format!("run -q backup --slots {limit} --wait -- sh -c")).arg(script);
            test.env("LIMIT", limit.to_string()).in_directory(&directory).within(Duration::from_secs(60)).spawn()
        })
        .collect();
    contenders.into_iter().for_each(|contender| drop(contender.finish()));
    let lines = |file: &str| std::fs::read_to_string(directory.path().join(file)).unwrap_or_default();
    assert_eq!((lines("done").lines().count(), lines("faults").as_str()), (jobs, ""));
}

#[test]
fn slots_are_never_more_than_there_are_and_none_is_given_twice() {
    crowd(&vec![Redis::start()], 12, 3);
    crowd(&several(3), 12, 3);
    crowd(&several(5), 10, 10);
}

#[test]
fn each_contender_gets_a_slot_though_all_come_at_once() {
    let nodes = several(3);
    let contenders: Vec<Running> =
        (0..6).map(|_| redlock(&nodes, "acquire -q backup --slots 6 --wait 30s").stdout(any()).spawn()).collect();
    let tokens: Vec<String> = contenders.into_iter().map(|contender| contender.finish().token()).collect();
    assert_eq!(slots(&nodes), [0, 1, 2, 3, 4, 5]);
    for token in tokens {
        release(&nodes, "backup", &token);
    }
    for node in &nodes {
        eventually(SOON, "nothing is left", || remains(node).is_empty());
    }
}

#[test]
fn the_slots_that_are_left_are_found_by_one_try_on_every_master() {
    let nodes = several(3);
    let tokens: Vec<String> = (0..12).map(|_| take_on_all(&nodes, "--slots 12 --ttl 5m")).collect();
    busy(&nodes, "--slots 12", "\"backup\" has all 12 slots taken: ");
    let slots = |node: &Redis| {
        let key = "{redlock:backup}:\u{1f}slots";
        node.query::<BTreeMap<String, u32>>(&["ZRANGE", key, "0", "-1", "WITHSCORES"])
    };
    for node in &nodes {
        assert_eq!(slots(node).into_values().collect::<BTreeSet<_>>(), (0..12).collect());
    }
    // A token has the same slot on every node.
    for token in tokens {
        assert_eq!(nodes.iter().map(|node| slots(node)[&token]).collect::<BTreeSet<_>>().len(), 1);
        release(&nodes, "backup", &token);
    }
}

/// Uses each kind of claim: two readers, then a writer that has waited for them, then two slots. The lease of a job
/// with a slot is renewed. At the end the lock is free.
#[track_caller]
pub(crate) fn work<W: Where + ?Sized>(servers: &W) {
    let readers = [take(servers, "-s"), take(servers, "-s")];
    busy(servers, "", "\"backup\" is shared by 2: ");
    assert_eq!(status(servers, "backup")["mode"], "shared");
    redlock(servers, format!("extend -q backup --token {}", readers[0])).run();
    let waiter = redlock(servers, "run -q backup --wait 1m -- echo writes").stdout("writes\n").spawn();
    eventually(SOON, "in line", || status(servers, "backup")["waiting"] == 1);
    readers.iter().for_each(|reader| release(servers, "backup", reader));
    waiter.finish();
    let (holder, input) = job(servers, "--slots 2 --ttl 3s", 0);
    let first = slots(servers);
    let other = take(servers, "--slots 2");
    busy(servers, "--slots 2", "\"backup\" has all 2 slots taken: ");
    eventually(SOON, "the job is renewed", || {
        status(servers, "backup")["holders"]
            .as_array()
            .unwrap()
            .iter()
            .any(|holder| holder["held_ms"].as_u64() > Some(3_500))
    });
    release(servers, "backup", &other);
    assert_eq!(slots(servers), first);
    drop(input);
    holder.finish();
    assert_eq!(status(servers, "backup")["state"], "free");
}

#[test]
fn a_cluster_has_shared_locks_and_slots() {
    work(&Cluster::start());
}

#[test]
fn a_service_with_sentinels_has_shared_locks_and_slots() {
    work(&Sentinels::start(1));
}
