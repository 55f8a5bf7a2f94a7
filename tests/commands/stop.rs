//! `redlock stop`: ends another's job, and closes the lock. tests/nodes/closed.rs has several masters.

use crate::support::{
    Line, Numbered, Redis, SOON, acquire, acquire_for, any, command_calls, eventually, job, like, loss, myself,
    redlock, release, reset_command_calls, status,
};
use nix::sys::signal::Signal;
use std::time::Duration;

const CLOSED: &str = "{redlock:backup}:\u{1f}closed";

#[test]
fn the_job_is_over_when_stop_ends_and_the_next_has_the_lock() {
    let redis = Redis::start();
    let (holder, _input) = job(&redis, &["--ttl", "3s"], 76);
    let waiters: Vec<_> = (0..2).map(|_| Line::join(&redis, Line::waiter(&redis))).collect();
    let watched = holder.job();
    let (user, host) = myself();
    let asked =
        format!("redlock: asked {user}@{host}, pid <n> (echo) to stop \"backup\": over in <duration> at the latest\n");
    let said = format!(
        "redlock: stopped \"backup\" of {host} after <duration>; {host} has it now, 1 wait (to keep it closed: redlock \
         stop backup --for 2h)\n"
    );
    redlock(&redis, "stop backup").stderr(like(asked)).stdout(like(said)).run();
    assert!(watched.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()), "{watched:?}");
    holder.finish();
    drop(waiters);
}

#[test]
fn the_answer_in_json_has_those_who_were_stopped_and_the_lock_as_it_is_now() {
    let redis = Redis::start();
    let (holder, _input) = job(&redis, &["--ttl", "2s"], 76);
    let answer = redlock(&redis, "stop backup -q --format json").json();
    assert_eq!((&answer["outcome"], &answer["now"]["state"]), (&"stopped".into(), &"free".into()), "{answer}");
    assert_eq!(answer["stopped"][0]["host"], myself().1);
    assert!(answer["ran_out"].as_array().unwrap().is_empty() && answer["took_ms"].is_u64(), "{answer}");
    holder.finish();
}

#[test]
fn nobody_is_stopped_where_nobody_holds_the_lock() {
    let redis = Redis::start();
    let free = |name: &str| format!("redlock: {name:?} is free\n");
    let unknown = "redlock: no lock \"bakup\" is known on <any>; did you mean \"backup\"?\n";
    redlock(&redis, "run -q backup -- true").run();
    redlock(&redis, "stop bakup").stdout(free("bakup")).stderr(like(unknown)).run();
    redlock(&redis, "stop backup").stdout(free("backup")).run();
    redlock(&redis, "stop backup -q").run();
    assert_eq!(redlock(&redis, "stop backup --format json").json()["outcome"], "free");
}

#[test]
fn a_plain_acquire_is_left_as_it_is_and_the_way_out_is_reported() {
    let redis = Redis::start();
    let token = acquire_for(&redis, "backup", "1m");
    let host = myself().1;
    let said = format!(
        "redlock: \"backup\" was taken by acquire on {host}, pid <n>, and nothing renews it: free in <duration>. If that \
         script is dead: redlock release backup --force\n"
    );
    redlock(&redis, "stop backup").status(75).stderr(like(&*said)).run();
    redlock(&redis, format!("extend -q backup --token {token}")).run();
    let closed = "redlock: \"backup\" is closed until <any> (redlock stop backup --for 0 opens it)\n";
    redlock(&redis, "stop backup --for 1h").status(75).stderr(like(format!("{closed}{said}"))).run();
    redlock(&redis, format!("extend -q backup --token {token}")).run();
    release(&redis, "backup", &token);
    redlock(&redis, "acquire backup").fails(75, ["\"backup\" is closed by "]).run();
}

#[test]
fn another_librarys_lock_is_left_as_it_is() {
    let redis = Redis::start();
    redis.command(&["SET", "redlock:backup", "theirs", "PX", "60000"]);
    let said = "redlock: \"backup\" was taken by another program (the key's value begins with \"theirs\"), which redlock \
                cannot stop: free in <duration>. If that program is dead: redlock release backup --force\n";
    redlock(&redis, "stop backup").status(75).stderr(like(said)).run();
    assert_eq!(redis.get("redlock:backup").as_deref(), Some("theirs"));
}

#[test]
fn of_several_holders_one_must_be_named_or_all() {
    let redis = Redis::start();
    let (one, _one) = job(&redis, &["--slots", "3", "--ttl", "2s"], 76);
    let (other, _other) = job(&redis, &["--slots", "3", "--ttl", "2s"], 76);
    let said = redlock(&redis, "stop backup").status(64).stderr(any()).run().stderr;
    let holders = status(&redis, "backup")["holders"].clone();
    let prefix = |number: usize| holders[number]["token_prefix"].as_str().unwrap().to_owned();
    assert!(said.contains(&prefix(0)) && said.contains(&prefix(1)) && said.contains("--token all"), "{said}");
    redlock(&redis, format!("stop backup -q --token {}", prefix(0))).run();
    one.finish();
    assert_eq!(status(&redis, "backup")["holder_count"], 1);
    redlock(&redis, "stop backup -q --token all").run();
    other.finish();
    assert_eq!(status(&redis, "backup")["state"], "free");
}

#[test]
fn all_who_can_be_asked_are_asked_and_the_others_stay_as_they_are() {
    let redis = Redis::start();
    let token = redlock(&redis, "acquire backup --shared --ttl 1m").token();
    let (reader, _input) = job(&redis, &["--shared", "--ttl", "2s"], 76);
    let way_out = format!("If that script is dead: redlock release backup --force --token {}\n", &token[..8]);
    let left = format!("<lines>redlock: \"backup\" was taken by acquire on <any> {way_out}");
    redlock(&redis, "stop backup --token all").status(75).stderr(like(&left)).stdout(any()).run();
    reader.finish();
    redlock(&redis, format!("extend -q backup --token {token}")).run();
    // Beside others, the line that frees one lease names its token.
    let (reader, input) = job(&redis, &["--shared"], 0);
    let stop = redlock(&redis, format!("stop backup --token {}", &token[..8]));
    stop.status(75).stderr(like(format!("redlock: \"backup\" was taken by acquire on <any> {way_out}"))).run();
    drop(input);
    reader.finish();
}

#[test]
fn what_was_not_closed_is_not_opened() {
    let redis = Redis::start();
    let unknown = "redlock: no lock \"bakup\" is known on <any>\n";
    let said = "redlock: \"bakup\" was not closed; it is free\n";
    redlock(&redis, "stop bakup --for 0").stdout(said).stderr(like(unknown)).run();
    redis.command(&["LPUSH", "redlock:list", "x"]);
    redlock(&redis, "stop list --for 0").fails(75, ["\"list\" exists but is not a lock"]).run();
}

#[test]
fn a_job_that_goes_on_without_its_lock_may_still_run() {
    let redis = Redis::start();
    let test = redlock(&redis, "run -q backup --ttl 1s --on-lost continue -- sh -c").arg("echo ready; sleep 4");
    let holder = test.status(76).stderr(any()).ready();
    let warned = "redlock: \"backup\": the lease of <any>, pid <n> (echo) ran out, and nobody released it: the job may still \
                  run, <any>; it is free <any>\n";
    redlock(&redis, "stop backup -q").stderr(like(warned)).run();
    assert!(!holder.job().is_empty());
    holder.finish();
}

#[test]
fn a_holder_whose_renewals_are_missing_is_reported_and_waited_for() {
    let redis = Redis::start();
    let (holder, _input) = job(&redis, &["--ttl", "8s"], 76);
    holder.send(Signal::SIGSTOP);
    redis.command(&["PEXPIRE", "redlock:backup", "2000"]);
    let said = redlock(&redis, "stop backup").stdout(any()).stderr(any()).run();
    assert!(said.stderr.contains("not renewed for"), "{said:?}");
    assert!(said.stdout.contains("ran out, and nobody released it"), "{said:?}");
    assert!(said.elapsed > Duration::from_millis(1_500), "{said:?}");
    holder.send(Signal::SIGCONT);
    holder.finish();
}

#[test]
fn an_interrupted_stop_leaves_its_request() {
    let redis = Redis::start();
    let test = redlock(&redis, "run -q backup --ttl 20s --kill-after 2s -- sh -c");
    let holder = test.arg("trap '' TERM; echo ready; while :; do sleep 0.01; done").status(76).stderr(loss([])).ready();
    let stop = redlock(&redis, "stop backup --for 1h").interrupted(Signal::SIGINT).spawn();
    stop.says(like("redlock: asked <any>"));
    stop.send(Signal::SIGINT);
    let said = stop.finish().stderr;
    assert!(said.contains("is closed until") && said.contains("the request stands: "), "{said}");
    holder.finish();
    assert_eq!(status(&redis, "backup")["state"], "closed");
}

#[test]
fn a_closed_lock_is_shown_and_opens_from_any_host() {
    let redis = Redis::start();
    let (user, host) = myself();
    let said = "redlock: \"backup\" is closed until <any> (redlock stop backup --for 0 opens it)\n";
    redlock(&redis, "stop backup --for 2h").stdout(like(said)).run();
    let left = redis.pttl(CLOSED);
    assert!((7_190_000..=7_200_000).contains(&left), "{left}");
    redlock(&redis, "acquire backup").fails(75, [&format!("\"backup\" is closed by {user}@{host} until ")]).run();
    let quiet = redlock(&redis, "run backup --once-per day --wait 0 -- echo never").run();
    assert_eq!(quiet.stdout, "");
    let closed = format!("redlock: \"backup\" is closed by {user}@{host} until <any>\n");
    redlock(&redis, "run backup --once-per day --wait 0 -E 9 -- true").status(9).run();
    let test = redlock(&redis, "run backup --once-per day --wait 0 -v -- true");
    test.stderr(like(format!("<lines>{closed}"))).run();
    for claim in ["--shared", "--slots 3", "--newest 5"] {
        redlock(&redis, format!("acquire backup {claim}")).turned_away().run();
    }
    redlock(&redis, "wait backup -q --timeout 300ms").turned_away().run();
    redlock(&redis, "status backup -q").status(75).run();
    let shown = status(&redis, "backup");
    assert_eq!((&shown["state"], &shown["closed_by"]), (&"closed".into(), &format!("{user}@{host}").into()));
    assert!(shown["closed_until"].is_string(), "{shown}");
    for list in ["status", "status -a", "status *ack*"] {
        reset_command_calls(&redis);
        let text = redlock(&redis, list).text();
        assert_eq!(text.matches("backup  closed ").count(), 1, "{text}");
        assert_eq!(command_calls(&redis)["scan"], 1, "{list}");
    }
    redlock(&redis, "status b*p-x").stderr(any()).stdout("").run();
    let metrics = redlock(&redis, "status --format prometheus").text();
    assert!(metrics.contains("redlock_closed{name=\"backup\"} 1\n"), "{metrics}");
    assert!(metrics.contains("redlock_held{name=\"backup\"} 0\n"), "{metrics}");
    redlock(&redis, "stop backup --for 0")
        .on_host("elsewhere")
        .stdout("redlock: opened \"backup\"; it is free\n")
        .run();
    assert_eq!(status(&redis, "backup")["closed_until"], serde_json::Value::Null);
    acquire(&redis, "backup");
}

#[test]
fn who_holds_a_lock_that_is_closed_behind_it_keeps_it() {
    let redis = Redis::start();
    let token = acquire_for(&redis, "backup", "3s");
    redlock(&redis, "stop backup --for 1h").status(75).stderr(any()).run();
    redlock(&redis, format!("extend backup -q --token {token} --ttl 1m")).run();
    redlock(&redis, format!("run -q backup --reentrant --token {token} -- true")).run();
    let shown = redlock(&redis, "status backup").text();
    assert!(shown.starts_with("backup  held\n") && shown.contains("  closed  by "), "{shown}");
}

#[test]
fn those_in_line_keep_their_places_and_all_are_served_in_order_once_it_opens() {
    for opens_by_itself in [false, true] {
        let redis = Redis::start();
        let (holder, input) = job(&redis, &[], 0);
        let waiters = Numbered::join(&redis, 4, || Line::length(&redis));
        redis.command(&["SET", CLOSED, "root@ops", "PX", if opens_by_itself { "1500" } else { "60000" }]);
        // The release calls the first, which meets the closed lock.
        drop(input);
        holder.finish();
        if !opens_by_itself {
            eventually(SOON, "the first is in line again", || Line::length(&redis) == 4);
            redlock(&redis, "stop backup -q --for 0").run();
        }
        waiters.are_served_in_order();
        assert!(Line::is_clean(&redis));
    }
}

#[test]
fn it_is_closed_before_the_holder_is_asked() {
    let redis = Redis::start();
    let (holder, _input) = job(&redis, &["--ttl", "2s"], 76);
    let waiter = Line::join(&redis, Line::waiter(&redis).any_end().stderr(any()));
    redlock(&redis, "stop backup -q --for 1h").run();
    holder.finish();
    assert!(!redis.exists("redlock:backup"), "granted to nobody");
    waiter.send(Signal::SIGTERM);
    waiter.finish();
}
