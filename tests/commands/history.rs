//! The history of runs: which node's answer counts, what a changed clock does, how large the history may be, and what
//! monitoring gets.

use crate::support::{
    Directory, Mode, Proxy, Redis, Running, SOON, Test, Where, acquire, acquire_on_all, any, eventually, like, loss,
    message, ms, redlock, several, status, teach_scripts, when,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_MS: i64 = 24 * 3600 * 1000;

/// The name of one of a lock's keys in Redis.
pub(super) fn part(name: &str, part: &str) -> String {
    format!("{{redlock:{name}}}:\u{1f}{part}")
}

pub(super) fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

/// A run in the form that the scripts write, which began `began_ago_ms` ago, and took a second.
fn entry(token: &str, began_ago_ms: i64, status: &str) -> String {
    let began = (now_ms() - began_ago_ms).to_string();
    json!({"t": format!("{token:0<32}"), "h": "web-3", "p": "1", "u": "deploy", "b": began, "d": "1000", "f": "1", "x": status})
        .to_string()
}

#[track_caller]
fn runs<W: Where + ?Sized>(redis: &W, arguments: &str) -> Vec<Value> {
    let log = redlock(redis, format!("log --format json {arguments}")).stdout(any()).stderr(any()).run();
    log.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_success_of_a_clock_that_was_set_back_counts_only_as_far_as_it_was() {
    let redis = Redis::start();
    let ahead = |ms: i64| {
        let run = entry("a", -ms, "0");
        redis.command(&["DEL", &part("backup", "log")]);
        redis.command(&["RPUSH", &part("backup", "log"), &run]);
        redis.command(&["HSET", &part("backup", "runs"), "success", &run, "once", &run]);
    };
    // This success lies less than 1h in the future, half the period. It counts: the clock may be set back.
    ahead(3_500_000);
    redlock(&redis, "run backup --label nightly --once-per 2h -E 9 -- echo started").status(9).run();
    redlock(&redis, "check backup --within 1h").stdout("1 lock in order\n").run();
    redlock(&redis, "check backup --within 58m").status(1).stdout(like("backup: no success within 58m<any>\n")).run();
    redlock(&redis, "log backup").stdout(like("<any>, in the future: the server's clock was changed\n")).run();
    // A success further in the future blocks nothing, and the next success replaces it.
    ahead(400 * DAY_MS);
    redlock(&redis, "run -q backup --once-per 2h -- true").run();
    redlock(&redis, "check -q backup --within 1d").run();
    assert_eq!(status(&redis, "backup")["last_success"]["host"], crate::support::myself().1);
}

#[test]
fn a_renewal_writes_nothing_into_the_history() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    let key = part("backup", "log");
    redis.command(&["PEXPIRE", &key, &(50 * DAY_MS).to_string()]);
    let text = || redis.query::<Vec<String>>(&["LRANGE", &key, "0", "-1"]);
    let before = text();
    redlock(&redis, format!("extend -q backup --ttl 1h --token {token}")).run();
    assert_eq!(text(), before);
    assert!(redis.pttl(&key) <= 50 * DAY_MS);
}

/// A reader of `db` whose job has begun.
#[track_caller]
fn reader(redis: &Redis) -> Running {
    let test = redlock(redis, "run -q db -s -- sh -c").arg("echo ready; exec sleep 1000");
    let reader = test.any_end().stdout(any()).spawn();
    reader.prints("ready");
    reader
}

#[test]
fn of_runs_beside_each_other_the_last_to_end_is_the_last() {
    let redis = Redis::start();
    let first = reader(&redis);
    redlock(&redis, "run -q db -s -- true").run();
    first.send(Signal::SIGTERM);
    first.finish();
    let last = &status(&redis, "db")["last"];
    assert_eq!((&last["outcome"], &last["signal"]), (&"signaled".into(), &15.into()), "{last}");
    assert_eq!(status(&redis, "db")["last_success"]["status"], 0);
}

#[test]
fn runs_are_told_apart_by_their_whole_tokens() {
    let redis = Redis::start();
    for (token, status) in [("aaaaaaaa1", "0"), ("aaaaaaaa2", "3")] {
        redis.command(&["LPUSH", &part("backup", "log"), &entry(token, 5_000, status)]);
    }
    assert_eq!(runs(&redis, "backup").len(), 2);
}

#[test]
fn no_more_is_read_of_a_log_than_redlock_ever_writes() {
    let nodes = Redis::several(3);
    // A neighbour fills the log. Each text is as long as redlock's own.
    let run = entry("b", 5_000, "0");
    for node in &nodes {
        redlock(&node.url()[..], "run -q backup -- true").run();
        let many = vec![run.as_str(); 50_000];
        node.command(&[&["RPUSH", &part("backup", "log")], &many[..]].concat());
        node.command(&[
            "EVAL",
            "for i = 1, 50000 do redis.call('ZADD', KEYS[1], 1, 'host-' .. i) end",
            "1",
            &part("backup", "visits"),
        ]);
    }
    let sent = || nodes.iter().map(|node| node.info("total_net_output_bytes").parse::<u64>().unwrap()).sum::<u64>();
    let before = sent();
    redlock(&nodes, "log backup --since 1d").stdout(any()).stderr(any()).run();
    redlock(&nodes, "status backup --hosts").stdout(any()).run();
    assert!(sent() - before < 1_000_000, "{} bytes", sent() - before);
    // The next run cuts the log to what it keeps.
    redlock(&nodes[0].url()[..], "run -q backup -- true").run();
    assert_eq!(nodes[0].query::<u64>(&["LLEN", &part("backup", "log")]), 20);
}

#[test]
fn the_log_is_searched() {
    let redis = Redis::start();
    // The log has the newest run first; every tenth run has failed.
    for at in (0..200).rev() {
        let run = entry(&format!("{at:08x}"), i64::from(at) * 60_000, if at % 10 == 0 { "1" } else { "0" });
        let run = run.replace("\"p\":", "\"n\":\"200\",\"p\":");
        redis.command(&["LPUSH", &part("often", "log"), &run]);
    }
    assert_eq!(runs(&redis, "often").len(), 200);
    assert_eq!(runs(&redis, "often -n 1").len(), 1);
    let prefix = |run: &Value| u32::from_str_radix(run["token_prefix"].as_str().unwrap(), 16).unwrap();
    assert_eq!(runs(&redis, "often -n 3").iter().map(prefix).collect::<Vec<_>>(), [2, 1, 0]);
    let failed = runs(&redis, "often --failed");
    assert_eq!((failed.len(), prefix(&failed[0])), (20, 190));
    assert_eq!(runs(&redis, "often --failed -n 5").iter().map(prefix).next(), Some(40));
    assert_eq!(runs(&redis, "often --since 99m30s").len(), 100);
    assert!(redlock(&redis, "log often --since 99m30s").stdout(any()).run().stderr.is_empty());
    // If the log begins later than --since, redlock says so.
    let begins = "redlock: \"often\": runs before <any> are not kept (200 are; --log N keeps more)\n";
    redlock(&redis, "log often --since 2d").stdout(any()).stderr(like(begins)).run();
    redis.command(&["LTRIM", &part("often", "log"), "0", "198"]);
    redlock(&redis, "log often --since 2d").stdout(any()).run();
    redlock(&redis, "log often --since 101d").fails(64, ["remembered for 100 days"]).run();
}

#[test]
fn a_lease_of_acquire_reports_how_it_went() {
    let redis = Redis::start();
    let end = |line: &str| {
        let token = acquire(&redis, "self");
        redlock(&redis, format!("release -q self --token {token} {line}")).run();
        runs(&redis, "self -n 1").remove(0)
    };
    assert_eq!(end("")["outcome"], "released");
    redlock(&redis, "check self -q --within 1h").status(1).stdout(any()).run();
    assert_eq!((&end("--status 3")["outcome"], &end("--status 3")["status"]), (&"exited".into(), &3.into()));
    assert_eq!(end("--status 0")["status"], 0);
    redlock(&redis, "check self -q --within 1h").run();
    redlock(&redis, "release self --token t --status 256").fails(64, ["256"]).run();
    redlock(&redis, "release self --force --status 1").fails(64, ["--status"]).run();
    // A release that comes after the lease has run out can only add the status.
    let token = redlock(&redis, "acquire self --ttl 1s").token();
    eventually(SOON, "it has run out", || status(&redis, "self")["state"] == "free");
    redlock(&redis, format!("release self --token {token} --status 0")).status(77).stderr(any()).run();
    let last = runs(&redis, "self -n 1").remove(0);
    assert_eq!((&last["outcome"], &last["status"]), (&"expired".into(), &0.into()));
    let text = redlock(&redis, "status self").text();
    assert!(text.contains(", lease ran out; ") && !text.contains("exit status"), "{text}");
    // The late status does not change the time at which the run ended.
    assert!(runs(&redis, "self --since 0").is_empty());
    // A revocation stops a script. The script may still report status 0: in bash's EXIT trap, $? can be 0.
    let revoked = acquire(&redis, "other");
    redis.command(&["HSET", &part("other", "lease"), "revoked", "ops@adm-1"]);
    redlock(&redis, format!("release -q other --token {revoked} --status 0")).run();
    assert_eq!(runs(&redis, "other -n 1").remove(0)["outcome"], "revoked");
    let counts =
        |redis: &Redis| -> Vec<String> { redis.query(&["HMGET", &part("self", "runs"), "succeeded", "failed"]) };
    assert_eq!(counts(&redis), ["1", "2"]);
}

#[test]
fn several_locks_are_answered_together() {
    let redis = Redis::start();
    redlock(&redis, "run -q a -- true").run();
    redlock(&redis, "run -q b -- false").status(1).run();
    let watch = |line: &str, status: i32, said: &str| {
        redlock(&redis, format!("check --within 1h {line}")).status(status).stdout(like(said)).stderr(any()).run();
    };
    let failed = "b: no success within 1h, none is known; 1 host came, the last <any>. redlock log b -v\n\
                  b: failed on <any> at <any>, exit 1; 1 host came. redlock log b -v; by hand: redlock run b -- JOB\n";
    watch("a", 0, "1 lock in order\n");
    watch("a b", 1, &format!("{failed}1 lock in order\n"));
    watch("*", 1, &format!("{failed}1 lock in order\n"));
    watch("a b -q", 1, failed);
    watch("a nosuch*", 1, "1 lock in order\n");
    watch("a never", 1, "1 lock in order\n");
    watch("--format nagios a", 0, "OK - 1 lock in order | overdue=0 failed=0 hangs=0 hosts=0 unknown=0\n");
    watch(
        "--format nagios a b",
        2,
        "CRITICAL - b: no success<any>; b: failed<any> | overdue=1 failed=1 hangs=0 hosts=0 unknown=0\n",
    );
    watch("--format nagios a never", 3, "UNKNOWN - nothing to check: no run of \"never\"<any> | overdue=0<any>\n");
    let job = redlock(&redis, "run -q never -- sleep 1000").any_end().spawn();
    eventually(SOON, "it runs", || status(&redis, "never")["state"] == "held");
    watch(
        "never",
        1,
        "never: no success within 1h, none is known; 1 host came, the last <any>. redlock log never -v\n",
    );
    // A run that goes on has not failed.
    redlock(&redis, "log never --failed").stderr(message(["no such run"])).run();
    drop(job);
    let away = |line: &str| crate::support::Test::new("unix:///nosuch/s").args(line.split(' '));
    let said = like("UNKNOWN - \"a\": /nosuch/s is unreachable <any>\n");
    away("check a --within 1h --format nagios").status(3).stdout(said).stderr(message(["nosuch"])).run();
    let object = away("check a --within 1h --format json").status(69).stdout(any()).stderr(any()).run().json();
    assert_eq!(object["outcome"], "unavailable");
}

#[test]
fn an_end_that_was_reported_wins_over_a_node_that_has_lost_the_lease() {
    let nodes = several(3);
    let token = acquire_on_all(&nodes, "backup");
    nodes[0].command(&["DEL", "redlock:backup", &part("backup", "lease")]);
    redlock(&nodes, format!("release -q backup --token {token} --status 0")).run();
    let last = &status(&nodes, "backup")["last"];
    assert_eq!((&last["outcome"], &last["status"]), (&"exited".into(), &0.into()), "{last}");
    redlock(&nodes, "check -q backup --within 1h").run();
}

#[test]
fn a_failure_that_the_log_has_lost_is_reported() {
    let redis = Redis::start();
    redlock(&redis, "run -q backup --log 1 -- sh -c").arg("exit 3").status(3).run();
    redlock(&redis, "run -q backup --log 1 -- true").run();
    let statuses = |line: &str| runs(&redis, line).iter().map(|run| run["status"].clone()).collect::<Vec<_>>();
    assert_eq!((statuses("backup"), statuses("backup --failed")), (vec![0.into()], vec![3.into()]));
    assert_eq!((statuses("--failed -n 1 --since 1h"), statuses("--failed --since 0")), (vec![3.into()], vec![]));
    let reported = status(&redis, "backup");
    assert_eq!(
        (&reported["last"]["status"], &reported["last_failure"]["status"]),
        (&0.into(), &3.into()),
        "{reported}"
    );
    let text = like("backup  free; last run <any>, exit status 0; last failure <duration> ago\n");
    redlock(&redis, "status backup").stdout(text).run();
}

#[test]
fn a_server_that_was_just_started_may_have_forgotten() {
    let mut redis = Redis::start();
    redlock(&redis, "run -q backup -- true").run();
    redis.restart();
    let started = "; <any> was started <duration> ago\n";
    redlock(&redis, "status backup").stdout(like(format!("backup  free; no run is known{started}"))).run();
    redlock(&redis, "log backup").stderr(message(["no lock \"backup\" is known on ", "was started", " ago"])).run();
    for line in ["check backup --within 1h", "check b* --within 1h", "check"] {
        redlock(&redis, line).fails(1, ["nothing to check", " was started ", " ago"]).run();
    }
    // The node that was started first has the longest history.
    let mut nodes = Redis::aged(3, 90_000);
    redlock(&nodes, "status backup --quarantine 0").stdout(when("no more", |text| text.contains("known\n"))).run();
    redlock(&nodes[0].url()[..], "status backup").stdout("backup  free; no run is known\n").run();
    let young = like("backup  free; no run is known; <any> was started <duration> ago\n<lines>");
    redlock(&Redis::several(3), "status backup").stdout(young).run();
    nodes.truncate(1);
    redlock(&nodes, "log backup").stderr(when("no more", |text| !text.contains("started"))).run();
}

#[test]
fn a_lease_of_acquire_that_had_run_out_on_most_nodes_had_run_out() {
    let nodes = several(3);
    nodes[2].pause();
    let token = redlock(&nodes, "acquire backup --ttl 3s").stdout(any()).stderr(any()).run().token();
    eventually(SOON, "it has run out", || !nodes[0].exists("redlock:backup") && !nodes[1].exists("redlock:backup"));
    // Only now does this node carry out the take, and then the release.
    nodes[2].resume();
    eventually(SOON, "it is taken there", || nodes[2].exists("redlock:backup"));
    redlock(&nodes, format!("release backup --token {token} --status 0")).status(77).stderr(any()).run();
    let reported = status(&nodes, "backup");
    assert_eq!(
        (&reported["last"]["outcome"], &reported["last"]["status"]),
        (&"expired".into(), &0.into()),
        "{reported}"
    );
    assert!(reported["last_success"].is_null(), "{reported}");
    redlock(&nodes, "check -q backup --within 1h").status(1).stdout(any()).run();
}

#[test]
fn metrics_of_a_name_that_never_ran_and_of_several_nodes() {
    let nodes = several(3);
    redlock(&nodes, "run -q backup -- true").run();
    let metrics = |names: &str, test: &[Redis]| {
        let urls: Vec<String> = test.iter().map(Redis::url).collect();
        redlock(&urls, format!("status {names} --format prometheus")).stdout(any()).stderr(any()).run().stdout
    };
    let text = metrics("backup never", &nodes);
    for sample in [
        "runs_total{name=\"backup\",result=\"success\"} 1",
        "runs_total{name=\"never\",result=\"success\"} 0",
        "held{name=\"never\"} 0",
    ] {
        assert!(text.contains(sample), "{text}");
    }
    let mut nodes = nodes;
    nodes[1].kill();
    // If a node is missing, no count is printed: Prometheus would take a smaller count for a reset.
    let text = metrics("backup", &nodes);
    assert!(
        !text.contains("runs_total{") && text.contains("last_success_timestamp_seconds{name=\"backup\"}"),
        "{text}"
    );
}

#[test]
fn thousands_of_locks_and_runs_are_listed_in_pages() {
    let redis = Redis::start();
    // Host names and labels are as long as possible, and of wide characters.
    let wide = "備".repeat(60);
    for at in 0..600 {
        let name = format!("lock-{at:04}");
        let run = |run: i64| {
            let run = entry(&format!("{at:04x}{run:04x}"), run * 60_000 + 1_000, "0");
            run.replace("web-3", &wide).replace("\"u\":", &format!("\"l\":\"{}\",\"u\":", "備".repeat(40)))
        };
        let lines: Vec<String> = (0..30).map(run).collect();
        let key = part(&name, "log");
        let mut command = vec!["RPUSH", &key];
        command.extend(lines.iter().map(String::as_str));
        redis.command(&command);
    }
    assert_eq!(runs(&redis, "").len(), 600 * 30);
    assert_eq!(runs(&redis, "-n 7").len(), 7);
    assert_eq!(runs(&redis, "--since 10m").len(), 600 * 10);
    let all = redlock(&redis, "status --all --format json").json();
    assert_eq!(all["locks"].as_array().unwrap().len(), 600);
}

#[test]
fn a_lock_that_says_too_much_is_named_and_the_others_are_shown() {
    let redis = Redis::start();
    redlock(&redis, "run -q good -- true").run();
    redis.command(&["RPUSH", &part("big", "log"), &"x".repeat(5 << 20)]);
    redis.command(&["RPUSH", &part("also", "log"), &entry("a", 5_000, "0")]);
    let said = message(["\"big\"", "more than 4 MB"]);
    let shown = when("the others", |text| text.contains("good") && text.contains("also") && text.lines().count() == 2);
    redlock(&redis, "log").status(69).stdout(shown).stderr(said).run();
}

#[test]
fn a_lease_that_most_nodes_have_lost_is_lost() {
    let nodes = several(3);
    let job = redlock(&nodes, "run -q backup --ttl 20s -- sh -c").args(["echo ready; read line; true"]);
    let (job, stdin) = job.status(76).stderr(any()).ready_to_read();
    eventually(SOON, "all nodes have granted it", || nodes.iter().all(|node| node.exists("redlock:backup")));
    nodes[..2].iter().for_each(|node| node.command(&["DEL", "redlock:backup", &part("backup", "lease")]));
    drop(stdin);
    job.finish();
    let last = &status(&nodes, "backup")["last"];
    assert_eq!(last["outcome"], "lost", "{last}");
    redlock(&nodes, "check -q backup --within 1h").status(1).stdout(any()).run();
}

#[test]
fn a_server_that_stands_still_at_the_end_makes_a_run_no_longer() {
    let redis = Redis::start();
    let job = redlock(&redis, "run -q backup --ttl 20s -- sh -c").arg("echo ready; sleep 1").ready();
    redis.pause();
    std::thread::sleep(crate::support::ms(3_000)); // the job ends meanwhile
    redis.resume();
    job.finish();
    let took = runs(&redis, "backup").remove(0)["duration_ms"].as_u64().unwrap();
    assert!((1_000..2_500).contains(&took), "{took}");
}

#[test]
fn freeing_a_lock_for_all_ends_only_what_went_on() {
    let redis = Redis::start();
    let share = |ttl: &str| redlock(&redis, format!("acquire db -s --ttl {ttl} --node-timeout 1s")).token();
    let expired = share("2s");
    eventually(SOON, "it has run out", || status(&redis, "db")["state"] == "free");
    share("1m");
    share("1m");
    redlock(&redis, "release db --force").stdout(any()).run();
    let all = runs(&redis, "db");
    let of = |token: &str| all.iter().find(|run| run["token_prefix"] == token[..8]).unwrap()["outcome"].clone();
    assert_eq!(of(&expired), "expired");
    assert_eq!(all.iter().filter(|run| run["outcome"] == "revoked").count(), 2);
}

/// Ends well when it is asked to.
struct Job {
    running: Running,
    directory: Arc<Directory>,
}

impl Job {
    /// Starts `redlock run backup` with these arguments. Returns once the job has begun, and the server
    /// `known` has the key of the lock.
    fn start<W: Where + ?Sized>(servers: &W, known: &Redis, arguments: &str, adapt: impl FnOnce(Test) -> Test) -> Job {
        let directory = Arc::new(Directory::new());
        let test = redlock(servers, format!("run backup --ttl 20s {arguments} --"));
        let script = ": >begun; until test -e go; do sleep 0.01; done";
        let running = adapt(test.args(["sh", "-c", script]).in_directory(&directory).within(SOON * 2)).spawn();
        let begun = directory.path().join("begun");
        eventually(SOON, "it runs", || begun.exists() && known.exists("redlock:backup"));
        Job { running, directory }
    }

    fn end(&self) {
        std::fs::write(self.directory.path().join("go"), "").unwrap();
        eventually(SOON, "it has ended", || self.running.job().is_empty());
    }
}

fn counts(redis: &Redis) -> [Option<String>; 2] {
    redis.query(&["HMGET", &part("backup", "runs"), "succeeded", "failed"])
}

#[test]
fn a_release_that_the_log_has_forgotten_since_is_neither_a_loss_nor_another_run() {
    for restarts in [false, true] {
        let mut redis = Redis::durable();
        teach_scripts(&redis);
        let proxy = Proxy::new(&redis, Mode::Pass);
        let job = Job::start(&proxy, &redis, "", |test| test.stderr(any()));
        proxy.set(Mode::LoseReplies);
        job.end();
        eventually(SOON, "it is released", || !redis.exists("redlock:backup"));
        redlock(&redis, "run -q backup --log 1 -- false").status(1).run();
        if restarts {
            redis.kill();
            redis.restart();
        }
        proxy.set(Mode::Pass);
        let said = job.running.finish().stderr;
        assert!(said.contains("cannot release") || restarts, "{said}");
        // A server that has restarted, and whose log was cut, may have forgotten the run: it is noted again.
        let successes = if restarts { "2" } else { "1" };
        assert_eq!(counts(&redis), [Some(successes.to_owned()), Some("1".to_owned())], "{restarts}");
    }
}

#[test]
fn a_success_that_was_reported_under_a_lost_lease_is_none() {
    let nodes = several(3);
    redlock(&nodes, "run -q backup --once-per 1s -- true").run();
    std::thread::sleep(ms(600)); // the success is older than half the period
    let job = Job::start(&nodes, &nodes[0], "-q --once-per 1s", |test| test.status(76).stderr(any()));
    for node in &nodes[..2] {
        node.command(&["DEL", "redlock:backup", &part("backup", "lease")]);
    }
    job.end();
    job.running.finish();
    // Each node now gets a later failure. The run before that failure must still count as lost.
    redlock(&nodes, "run -q backup -- false").status(1).run();
    let (all, reported) = (runs(&nodes, "backup"), status(&nodes, "backup"));
    let outcomes: Vec<&Value> = all.iter().map(|run| &run["outcome"]).collect();
    assert_eq!(outcomes, ["exited", "lost", "exited"]);
    assert_eq!(reported["last_success"]["token_prefix"], all[0]["token_prefix"]);
    redlock(&nodes, "run -q backup --once-per 1h -E 9 -- true").status(9).run();
}

/// The times of a run come from the node with the middle clock, even if this node has not heard of the end.
#[test]
fn over_masters_whose_clocks_differ_runs_are_in_the_order_in_which_they_began() {
    let nodes: Vec<Redis> = (0..3).map(|_| Redis::with_clock(&[], 7200)).collect();
    for (minutes, node) in nodes.iter().enumerate() {
        node.clock().set(Duration::from_secs(60 * minutes as u64));
    }
    let log = part("backup", "log");
    for count in 1..=4 {
        let job = Job::start(&nodes, &nodes[0], "-q --quarantine 0", |test| test);
        // `run` starts the job when two of three nodes have granted the lock. The test needs all three grants.
        eventually(SOON, "all have granted it", || nodes.iter().all(|node| node.exists("redlock:backup")));
        job.end();
        job.running.finish();
        eventually(SOON, "all have heard it", || nodes.iter().all(|node| node.query::<u64>(&["LLEN", &log]) == count));
        if count % 2 == 1 {
            let reported: String = nodes[1].query(&["LINDEX", &log, "0"]);
            nodes[1].command(&["LSET", &log, "0", &reported.replace(",\"x\":\"0\"", "")]);
        }
    }
    let all = runs(&nodes, "backup");
    assert!(all.len() == 4 && all.is_sorted_by_key(|run| run["fencing_token"].as_u64()), "{all:?}");
    assert!(all.is_sorted_by(|one, other| one["ended_at"].as_str() <= other["began_at"].as_str()), "{all:?}");
    assert!(all.iter().all(|run| run["outcome"] == "exited"), "{all:?}");
}

#[test]
fn the_log_is_in_the_order_of_the_beginnings() {
    let redis = Redis::start();
    let reader = reader(&redis);
    redlock(&redis, "acquire db -s --ttl 1s").stdout(any()).run();
    eventually(SOON, "that has run out", || status(&redis, "db")["holder_count"] == 1);
    reader.send(Signal::SIGTERM);
    reader.finish();
    let token = redlock(&redis, "acquire db -s").token();
    redlock(&redis, format!("release -q db --token {token} --status 3")).run();
    let outcomes = |line: &str| runs(&redis, line).iter().map(|run| run["outcome"].clone()).collect::<Vec<_>>();
    assert_eq!(outcomes("db"), ["signaled", "expired", "exited"]);
    assert_eq!(outcomes("db -n 2"), ["signaled", "exited"]);
    // Nobody knows when the job of a lease ended that has run out.
    let expired = runs(&redis, "db").remove(1);
    assert!(expired["ended_at"].is_null() && expired["duration_ms"].is_null(), "{expired}");
    redlock(&redis, "log db").stdout(like("<any>\n<any>  -  <any>  lease ran out\n<any>\n")).run();
    // The log drops the run that began first.
    redlock(&redis, "run -q db -s --log 3 -- true").run();
    assert_eq!(outcomes("db"), ["expired", "exited", "exited"]);
}

#[test]
fn a_run_that_a_rival_has_overtaken_has_not_succeeded() {
    let mut redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    let job = Job::start(&proxy, &redis, "-q", |test| test.status(76).stderr(loss([])));
    proxy.set(Mode::Cut);
    redis.kill();
    redis.restart();
    acquire(&redis, "backup");
    job.end();
    proxy.set(Mode::Pass);
    job.running.finish();
    let outcomes: Vec<Value> = runs(&redis, "backup").iter().map(|run| run["outcome"].clone()).collect();
    assert_eq!(outcomes, ["lost", "running"]);
    assert_eq!(counts(&redis), [None, Some("1".to_owned())]);
}

#[test]
fn a_success_that_one_node_knows_is_one_and_what_others_may_have_forgotten_is_no_failure() {
    let mut nodes = Redis::aged(3, 3600);
    redlock(&nodes, "run -q backup -- true").run();
    nodes[..2].iter_mut().for_each(Redis::restart);
    let quarantined = || message(["1 of 3 nodes answered", "restarted", "cannot vote"]);
    let watch = |line: &str| redlock(&nodes, format!("check --quarantine 30s --within {line}"));
    watch("1h backup").stdout("1 lock in order\n").stderr(any()).run();
    watch("1h backup --format nagios").stdout(like("OK - <any>\n")).stderr(any()).run();
    for line in ["1h never", "1h backup never", "0s backup", "1h nosuch*"] {
        let unknown = when("why", |text| text.is_empty() || text.contains("1 of 3 nodes answered"));
        watch(line).status(69).stdout(unknown).stderr(any()).run();
    }
    redlock(&nodes, "check never --quarantine 30s")
        .status(69)
        .stdout(like("\"never\": 1 of 3<any>\n"))
        .stderr(any())
        .run();
    watch("1h never --format nagios").status(3).stdout(like("UNKNOWN - \"never\"<any>\n")).stderr(any()).run();
    redlock(&nodes, "status backup --quarantine 30s --format prometheus").status(69).stderr(quarantined()).run();
}

#[test]
fn a_status_that_one_node_has_missed_is_known() {
    let nodes = several(3);
    let token = redlock(&nodes, "acquire backup --ttl 1s").token();
    eventually(SOON, "it has run out", || status(&nodes, "backup")["state"] == "free");
    let but_first = vec!["unix:///nosuch/s".to_owned(), nodes[1].url(), nodes[2].url()];
    redlock(&but_first, format!("release backup --token {token} --status 3")).status(77).stderr(any()).run();
    assert_eq!(status(&nodes, "backup")["last"]["status"], 3);
}

#[test]
fn labels_of_metrics_differ_where_the_names_do() {
    let redis = Redis::start();
    // Prometheus' format escapes only backslashes, quotes and line ends. redlock also escapes what a terminal obeys.
    let names = [
        ("a\u{202e}b", "a\\\\u{202e}b"),
        ("a\u{61c}b", "a\\\\u{61c}b"),
        ("a\\u{202e}b", "a\\\\u{5c}u{202e}b"),
        ("a\\b", "a\\\\b"),
        ("a\"b", "a\\\"b"),
        ("a\\\"b", "a\\\\\\\"b"),
    ];
    for (name, _) in names {
        Test::new(&redis).args(["run", "-q", name, "--", "true"]).run();
    }
    let text = redlock(&redis, "status --format prometheus").text();
    let name_of = |line: &str| Some(line.strip_prefix("redlock_held{name=\"")?.strip_suffix("\"} 0")?.to_owned());
    let mut labels: Vec<String> = text.lines().filter_map(name_of).collect();
    let mut expected = names.map(|(_, label)| label);
    labels.sort();
    expected.sort();
    assert_eq!(labels, expected);
}

#[test]
fn runs_that_cannot_be_read_are_reported_as_not_known() {
    let redis = Redis::start();
    redis.command(&["SET", "{redlock:backup}:\u{1f}log", "x"]);
    let why = "not known: <node> has a helper key of this lock that is of the wrong type";
    redlock(&redis, "status backup").stdout(like(format!("backup  free; last run {why}\n"))).run();
    let reported = redlock(&redis, "status backup --format json").stdout(any());
    reported.stderr(message(["\"backup\": ", "of the wrong type", "unlink $'{redlock:backup}:\\x1flog'"])).run();
    let row = when("a row that says so", |text| text.lines().nth(1).is_some_and(|row| row.ends_with("  not known")));
    redlock(&redis, "status backup other").stdout(row).stderr(any()).run();
}
