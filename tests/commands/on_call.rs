//! The questions of an operator on call, which `status NAME` answers: is the job slow, is its holder alive, and which
//! waiters are dead.

use crate::support::{
    Line, Mode, Proxy, Redis, Running, SOON, Test, Where, acquire, any, eventually, job, like, permit, redlock, status,
};
use nix::sys::signal::Signal;
use regex_lite::Regex;
use serde_json::Value;

const LOCK: &str = "redlock:backup";
const LEASE: &str = "{redlock:backup}:\u{1f}lease";

/// The lines of `status backup`.
fn lines<W: Where + ?Sized>(servers: &W) -> Vec<String> {
    let text = redlock(servers, "status backup").text();
    text.lines().map(|line| line.trim_start().to_owned()).collect()
}

/// The line of `status backup` about renewals, if there is one.
fn news(redis: &Redis) -> Option<String> {
    lines(redis).into_iter().find(|line| line.contains("renewed for") || line.contains("renews"))
}

fn field(redis: &Redis, name: &str) -> Value {
    status(redis, "backup")["holders"][0][name].take()
}

#[test]
fn the_usual_time_is_the_middle_one_of_three_successes_at_least() {
    let redis = Redis::start();
    let run = |seconds: &str, status: i32| {
        let job = format!("sleep {seconds}; exit {status}");
        redlock(&redis, "run -q backup -c").arg(job).status(status).run();
    };
    run("0.2", 0);
    run("0", 0);
    let holds = |line: &str| {
        let (job, end) = job(&redis, &[], 0);
        let reported = lines(&redis).into_iter().find(|line| line.starts_with("for ")).unwrap();
        assert!(like(line).matches(&reported), "{reported}");
        drop(end);
        job.finish();
    };
    // The job of the first `holds` becomes the third success.
    holds("for     <duration>, since <date>");
    assert!(status(&redis, "backup")["usual_ms"].is_u64());
    run("1.5", 3);
    holds("for     <duration> (usually <n>ms), since <date>");
    redlock(&redis, "run -q backup -c").arg("sleep 0.4").run();
    redlock(&redis, "run -q backup -c").arg("sleep 0.4").run();
    let usual = status(&redis, "backup")["usual_ms"].as_u64().unwrap();
    assert!((200..400).contains(&usual), "of two short ones, two of 400 ms and one of 200 ms: {usual}");
    // For a lock without a job, `status` shows no usual time.
    assert!(lines(&redis).iter().all(|line| !line.contains("usually")));
    let list = redlock(&redis, "status --all --format json").json();
    assert_eq!(list["locks"][0]["usual_ms"], usual);
}

#[test]
fn what_acquire_took_is_renewed_by_none_but_a_process_that_it_was_given() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    let way_out = format!("release backup --force --token {}", &token[..8]);
    let reported = format!("taken by acquire: nothing renews it; if the script is dead: redlock {way_out}");
    assert_eq!((news(&redis), field(&redis, "renewal_ms")), (Some(reported), 0.into()));
    // A job that has re-entered the lease may renew it.
    let hold = redlock(&redis, "acquire backup --reentrant --token").arg(&token).token();
    assert_eq!((news(&redis), field(&redis, "renewal_ms")), (None, Value::Null));
    redlock(&redis, "release -q backup --token").arg(&hold).run();
    redlock(&redis, way_out).stdout(like("redlock: freed \"backup\", <any>\n")).run();
    let script = "redlock acquire backup --ttl 20s --while-pid $$; redlock status backup --format json | grep -c '\"renewal_ms\":20000'";
    Test::sh(&redis, script).stdout(like("<token>\n1\n")).run();
}

#[test]
fn a_lease_whose_renewals_are_missing_is_reported_with_its_latest_end() {
    let redis = Redis::start();
    let left = |ms: &str| redis.command(&["PEXPIRE", LOCK, ms]);
    let (job, end) = job(&redis, &[], 0);
    assert_eq!((news(&redis), field(&redis, "renewal_ms")), (None, 30_000.into()));
    // The next renewal is due 7.5 s after the last one. `status` reports it as missing after 11.25 s, so not yet after
    // 10.5 s.
    left("19500");
    assert_eq!(news(&redis), None);
    left("17000");
    let said = news(&redis).expect("a word");
    assert!(
        like("not renewed for 13s: its host may be gone or cut off; free in 17s at the latest").matches(&said),
        "{said}"
    );
    // A lease that was extended by hand needs no renewal.
    left("60000");
    assert_eq!(news(&redis), None);
    left("17000");
    assert!(news(&redis).is_some());
    redis.command(&["HSET", LEASE, "revoked", "ops@adm-1"]);
    assert_eq!(news(&redis), None);
    redis.command(&["HDEL", LEASE, "revoked"]);
    drop(end);
    job.finish();
}

#[test]
fn a_holder_that_was_stopped_is_reported_before_its_lease_ends() {
    let redis = Redis::start();
    let holder = redlock(&redis, "run -q backup --ttl 4s -- sleep 60").any_end().stderr(any()).spawn();
    eventually(SOON, "it holds", || redis.exists(LOCK));
    assert_eq!(news(&redis), None);
    holder.send(Signal::SIGSTOP);
    eventually(SOON, "its renewals are missing", || {
        news(&redis).is_some_and(|line| line.starts_with("not renewed for "))
    });
    assert!(redis.exists(LOCK));
    holder.send(Signal::SIGCONT);
    drop(holder);
}

#[test]
fn a_list_has_the_worst_first_and_knows_what_is_known_of_one() {
    let redis = Redis::start();
    for _ in 0..3 {
        redlock(&redis, "run -q backup -- true").run();
    }
    let (job, end) = job(&redis, &[], 0);
    redis.command(&["PEXPIRE", LOCK, "17000"]);
    acquire(&redis, "deploy");
    let waiters = [(); 2].map(|()| redlock(&redis, "run -q queued --wait 1h -- true").any_end());
    acquire(&redis, "queued");
    let waiters = waiters.map(Test::spawn);
    redlock(&redis, "run -q done -- true").run();
    redlock(&redis, "run -q rotate --once-per day -- true").run();
    redlock(&redis, "stop shut --for 2h").stdout(any()).stderr(any()).run();
    let rows = || redlock(&redis, "status never rotate * --all").stdout(any()).stderr(any()).run().stdout;
    eventually(SOON, "two wait", || status(&redis, "queued")["waiting"] == 2);
    // A trial by hand is not overdue.
    redis.command(&["HSET", "{redlock:rotate}:\u{1f}runs", "expected", "1000 1000 99999999999999"]);
    assert!(!rows().contains("overdue"), "{}", rows());
    redis.command(&["HSET", "{redlock:rotate}:\u{1f}runs", "expected", "1000 1000 1763715123004"]);
    eventually(SOON, "it is overdue", || rows().contains("overdue; exit 0, "));
    let rows = rows();
    let rows: Vec<&str> = rows.lines().skip(1).collect();
    for (row, shown) in rows.iter().zip([
        "rotate +free .* overdue; exit 0, .* ago",
        "backup +held +\\S+ .* [0-9]+s \\([0-9]+ms\\) +1[0-9]s +0 +not renewed for 1[0-9]s; exit 0, .* ago",
        "queued +held .* 2 +nothing renews it",
        "shut +closed .* 0 +closed until .*",
        "deploy +held .* 0 +nothing renews it",
        "done +free .* 0 +exit 0, .* ago",
        "never +free .* 0 +no run is known",
    ]) {
        assert!(Regex::new(&format!("^{shown}$")).unwrap().is_match(row), "{row:?} {shown:?}");
    }
    assert_eq!(rows.len(), 7, "{rows:?}");
    drop((end, waiters));
    job.finish();
}

/// Whether the waiters listen, as `status` says.
fn listening<W: Where + ?Sized>(servers: &W) -> Vec<Option<bool>> {
    let waiters = status(servers, "backup")["waiters"].take();
    waiters.as_array().unwrap().iter().map(|waiter| waiter["listening"].as_bool()).collect()
}

#[test]
fn a_waiter_that_was_killed_is_told_from_one_that_waits() {
    let redis = Redis::with_tcp(&[]);
    permit(&redis, "");
    acquire(&redis, "backup");
    let waiter = || Line::join(&redis, Line::waiter(&redis).any_end());
    let waiters = [waiter(), waiter(), waiter()];
    assert_eq!(listening(&redis), [Some(true); 3]);
    waiters[1].send(Signal::SIGKILL);
    // A stopped waiter counts as listening: it would hear its call once it goes on.
    waiters[2].send(Signal::SIGSTOP);
    eventually(SOON, "it is reported", || listening(&redis) == [Some(true), Some(false), Some(true)]);
    let reported = lines(&redis);
    let waiting = reported.iter().position(|line| line == "waiting 3").expect("all are counted");
    let is_deaf = |line: &String| line.ends_with(", not listening: dead or cut off");
    assert_eq!(reported[waiting + 1..].iter().map(is_deaf).collect::<Vec<_>>(), [false, true, false], "{reported:?}");
    // Without the right to PUBSUB it is unknown whether a waiter listens.
    let url = redis.tcp_url().replace("redis://", "redis://locks:secret@");
    assert_eq!(listening(url.as_str()), [Some(true), Some(false), Some(true)]);
    permit(&redis, "-pubsub");
    assert_eq!(listening(url.as_str()), [None; 3]);
    assert!(lines(url.as_str()).iter().all(|line| !is_deaf(line)));
}

#[test]
fn a_waiter_that_one_of_three_masters_cannot_call_listens() {
    let nodes = Redis::several(3);
    acquire(&nodes, "backup");
    let proxy = Proxy::new(&nodes[2], Mode::Pass);
    let urls = [nodes[0].url(), nodes[1].url(), proxy.url()].to_vec();
    let waiter: Running = Line::waiter(&urls).any_end().stderr(any()).spawn();
    eventually(SOON, "it waits on all", || {
        nodes.iter().all(|node| Line::length(node) == 1 && Line::listeners(node) == 1)
    });
    proxy.set(Mode::Cut);
    eventually(SOON, "it is cut off", || Line::listeners(&nodes[2]) == 0);
    assert_eq!(listening(&nodes), [Some(true)]);
    waiter.send(Signal::SIGKILL);
    eventually(SOON, "it is dead", || listening(&nodes) == [Some(false)]);
}
