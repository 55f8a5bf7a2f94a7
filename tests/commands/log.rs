//! `redlock log`: the last runs of a lock, however they ended, and what the log must not disturb. Also `--once-per` and
//! metrics, which read the same history.

use super::history::part;
use crate::support::{
    Directory, Redis, SOON, Test, acquire, acquire_on_all, any, eventually, free_port, like, message, perhaps, permit,
    redlock, release, several, status, when,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::sync::Arc;

/// The runs of this lock, as objects, the oldest first.
#[track_caller]
fn runs<W: crate::support::Where + ?Sized>(servers: &W, name: &str) -> Vec<Value> {
    let log = Test::new(servers).args(["log", name, "--format", "json"]).stdout(any());
    let log = log.stderr(perhaps(["; the list is from the other nodes"])).run();
    log.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn outcomes<W: crate::support::Where + ?Sized>(servers: &W, name: &str) -> Vec<String> {
    runs(servers, name).iter().map(|run| run["outcome"].as_str().unwrap().to_owned()).collect()
}

/// The last column of each line that `redlock log` prints about this lock.
#[track_caller]
fn results(redis: &Redis, name: &str) -> Vec<String> {
    let log = redlock(redis, format!("log {name}")).stdout(any()).run();
    log.stdout.lines().map(|line| line.rsplit("  ").next().unwrap().to_owned()).collect()
}

#[test]
fn a_line_says_who_when_and_for_how_long() {
    let redis = Redis::start();
    let (user, host) = crate::support::myself();
    redlock(&redis, "run -q backup --label nightly -- sleep 1").run();
    let job = redlock(&redis, "run -q report -- sleep 1000").any_end().spawn();
    eventually(SOON, "it runs", || status(&redis, "report")["state"] == "held");
    let date = "\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d [+-]\\d{4}";
    let of_one = format!("{date}  \\d+s  {user}@{host} \\(nightly\\)  exit 0\n");
    redlock(&redis, "log backup").stdout(crate::support::regex(&of_one)).run();
    let of_all = format!(
        "{date}  backup  \\d+s  {user}@{host} \\(nightly\\)  exit 0\n{date}  report  \\d+s  {user}@{host} \\(sleep\\)    running\n"
    );
    redlock(&redis, "log").stdout(crate::support::regex(&of_all)).run();
    redlock(&redis, "log *e*").stdout(when_lines(1)).run();
    redlock(&redis, "log -n 1").stdout(like("<any>running\n")).run();
    redlock(&redis, "log --since 1h").stdout(when_lines(2)).run();
    redlock(&redis, "log backup --since 0").stderr(message(["no such run"])).run();
    redlock(&redis, "log nosuch").stderr(message(["no lock \"nosuch\" is known on "])).run();
    redlock(&redis, "log nosuch --format json").run();
    drop(job);
    let [run] = &*runs(&redis, "backup") else { panic!("one run") };
    let shape = format!(
        "{{\"name\":\"backup\",\"token_prefix\":\"<word>\",\"host\":\"{host}\",\"pid\":<n>,\"user\":\"{user}\",\
         \"label\":\"nightly\",\"slot\":null,\"began_at\":\"<time>\",\"ended_at\":\"<time>\",\"waited_ms\":<n>,\"duration_ms\":<n>,\
         \"outcome\":\"exited\",\"status\":0,\"signal\":null,\"revoked_by\":null,\"fencing_token\":<n>}}\n"
    );
    redlock(&redis, "log backup --format json").stdout(like(shape)).run();
    assert!(run["duration_ms"].as_u64().unwrap() >= 1000, "{run}");
    assert_eq!(run["token_prefix"].as_str().unwrap().len(), 8);
}

fn when_lines(count: usize) -> crate::support::Pattern {
    crate::support::when(format!("{count} lines"), move |text| text.lines().count() == count)
}

#[test]
fn the_newest_runs_are_kept_and_the_last_success() {
    let redis = Redis::start();
    redlock(&redis, "run -q backup --log 2 -- true").run();
    for _ in 0..4 {
        redlock(&redis, "run -q backup -- false").env("REDLOCK_LOG", "2").status(1).run();
    }
    assert_eq!(results(&redis, "backup"), ["exit 1", "exit 1"]);
    assert_eq!(status(&redis, "backup")["last_success"]["status"], 0);
    redlock(&redis, "run -q backup --log 1 -- true").run();
    assert_eq!(results(&redis, "backup"), ["exit 0"]);
    redlock(&redis, "run -q other --log 0 -- true").run();
    assert!(!redis.exists(&part("other", "log")) && !redis.exists(&part("other", "visits")));
    for number in ["x", "-1", "201"] {
        let test = redlock(&redis, "acquire backup").env("REDLOCK_LOG", number).status(64);
        test.stderr(message(["in REDLOCK_LOG: not a whole number from 0 to 200"])).run();
    }
    redlock(&redis, "status --log 3").fails(64, ["--log are for run and acquire only"]).run();
}

#[test]
fn the_history_lasts_for_a_hundred_days_after_the_last_run() {
    let redis = Redis::start();
    let days = |n: i64| n * 24 * 3600 * 1000;
    let keys = ["log", "runs", "visits"].map(|key| part("backup", key));
    for _ in 0..2 {
        redlock(&redis, "run -q backup -- true").run();
        for key in &keys {
            assert!(redis.pttl(key) > days(100) - 60_000, "{key}: {} ms", redis.pttl(key));
            // As if 50 days had passed.
            redis.command(&["PEXPIRE", key, &days(50).to_string()]);
        }
    }
}

#[test]
fn what_was_not_used_leaves_nothing() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    // Neither a waiter that gives up nor a hold is a run.
    redlock(&redis, "run -q backup --wait 50ms -- true").turned_away().run();
    let hold = Test::new(&redis).args(["acquire", "backup", "--reentrant", "--token", &token]).token();
    release(&redis, "backup", &hold);
    assert_eq!(outcomes(&redis, "backup"), ["running"]);
    release(&redis, "backup", &token);
    // An acquire that cannot print its token leaves no run.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    redlock(&redis, "acquire backup").stdout_to(full).fails(74, ["\"backup\" was released"]).run();
    assert_eq!(outcomes(&redis, "backup"), ["released"]);
    redlock(&redis, "run -q backup -- nosuch").fails(127, ["nosuch"]).run();
    // A script without its interpreter fails only when it is started, so the log has a run.
    let directory = Directory::new();
    let broken = directory.without_interpreter();
    redlock(&redis, "run -q backup --").arg(broken).fails(127, ["interpreter"]).run();
    assert_eq!(results(&redis, "backup"), ["released", "exit 127"]);
}

#[test]
fn a_release_that_no_server_hears_leaves_a_run_without_an_end() {
    let mut redis = Redis::durable();
    redlock(&redis, "run -q backup -- true").run();
    let directory = Arc::new(Directory::new());
    let job = ["run", "-q", "backup", "--", "sh", "-c", "echo ready; until test -e go; do sleep 0.05; done"];
    let job = Test::new(&redis).args(job).in_directory(&directory).stderr(any()).within(SOON * 2).ready();
    redis.kill();
    directory.file("go", "");
    job.finish();
    redis.restart();
    assert_eq!(outcomes(&redis, "backup"), ["exited", "running"]);
    redis.command(&["DEL", "redlock:backup"]);
    assert_eq!(outcomes(&redis, "backup"), ["exited", "expired"]);
    assert_eq!(status(&redis, "backup")["last_success"]["outcome"], "exited");
}

#[test]
fn a_node_that_has_not_heard_of_the_end_does_not_make_the_run_go_on() {
    let nodes = several(3);
    let token = acquire_on_all(&nodes, "backup");
    let dead = format!("redis://127.0.0.1:{}", free_port());
    release(&vec![nodes[0].url(), nodes[1].url(), dead], "backup", &token);
    assert!(nodes[2].exists(&part("backup", "log")));
    let ended = when("only ends", |log| !log.is_empty() && log.lines().all(|run| run.ends_with("released")));
    redlock(&nodes, "log backup").stdout(ended).run();
}

#[test]
fn what_an_older_version_takes_and_releases_is_not_taken_for_a_run_that_goes_on() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    // An older version has no log: DEL stands for its release, and SET for its take.
    redis.command(&["DEL", "redlock:backup", &part("backup", "lease")]);
    redis.command(&["SET", "redlock:backup", "5294ecab887e4ad3880ccf24c8387183", "PX", "60000"]);
    assert_eq!(outcomes(&redis, "backup"), ["expired"]);
    redis.command(&["DEL", "redlock:backup"]);
    redlock(&redis, "run -q backup -- true").run();
    assert_eq!(outcomes(&redis, "backup"), ["expired", "exited"]);
}

#[test]
fn the_hold_that_took_the_lock_ends_its_run() {
    let redis = Redis::start();
    let nested = "redlock run -q backup --reentrant -- false; exit 3";
    Test::sh(&redis, &format!("redlock run -q backup -- sh -c '{nested}'")).status(3).run();
    assert_eq!(results(&redis, "backup"), ["exit 3"]);
}

#[test]
fn a_log_that_cannot_be_written_disturbs_nothing() {
    // The user `locks` may use the keys of the lock, but none of its history.
    let redis = Redis::with_tcp(&[]);
    permit(&redis, "resetkeys ~redlock:*");
    for part in ["lease", "fence", "queue", "reserved", "holds", "members", "slots", "fences", "closed"] {
        redis.command(&["ACL", "SETUSER", "locks", &format!("~*\u{1f}{part}")]);
    }
    let url = redis.tcp_url().replace("redis://", "redis://locks:secret@");
    let unwritten = || message(["the log of \"backup\" could not be written: "]);
    redlock(url.as_str(), "run -q backup -- true").stderr(unwritten()).run();
    let token = acquire(url.as_str(), "backup");
    redlock(url.as_str(), "status backup").stdout(any()).run();
    redlock(url.as_str(), "run -q backup --wait 50ms -- true").turned_away().run();
    let released = format!("release -q backup --token {token}");
    redlock(url.as_str(), released).stderr(unwritten()).run();
    // Calls that need the log fail, and say why.
    redlock(&redis, "run -q backup -- true").run();
    for asks in ["log", "log backup", "status --format prometheus", "run --once-per 1h backup -- true"] {
        redlock(url.as_str(), asks).fails(78, ["NOPERM", "the ACL rule it needs"]).stdout(any()).run();
    }
    for asks in ["check -q", "check backup --within 1d"] {
        let said = when("why", |text| text.contains("NOPERM") && text.contains("the ACL rule it needs"));
        redlock(url.as_str(), asks).status(78).stdout(said).run();
    }
    // If a key of a lock's history is of the wrong type, the message names the lock, and the other locks are shown.
    redlock(&redis, "run -q good -- true").run();
    for name in ["log", "runs"] {
        let keys = ["log", "runs"].map(|name| part("backup", name));
        redis.command(&[&["DEL"], &keys.each_ref().map(String::as_str)[..]].concat());
        redlock(&redis, "run -q backup -- true").run();
        redis.command(&["SET", &part("backup", name), "x"]);
        redlock(&redis, "run -q backup -- true").stderr(unwritten()).run();
        redlock(&redis, "status backup").stdout(any()).run();
        let delete = format!("redis-cli unlink $'{{redlock:backup}}:\\x1f{name}'");
        let unread = || message(["\"backup\"", "wrong type; delete it: ", &delete]);
        let shown = delete.clone();
        let said = when("the command", move |text| text.contains("log: the runs") && text.contains(&shown));
        redlock(&redis, "doctor").any_end().stdout(said).run();
        redlock(&redis, "log backup good --format json").status(69).stdout(when_lines(1)).stderr(unread()).run();
        let metrics = when("the other", |text| text.contains("runs_total{name=\"good\"") && !text.contains("backup"));
        redlock(&redis, "status good backup --format prometheus").status(69).stdout(metrics).stderr(unread()).run();
        let shown = delete.clone();
        let good = when("both", move |text| text.ends_with("\n1 lock in order\n") && text.contains(&shown));
        redlock(&redis, "check good backup --within 1h").status(69).stdout(good).run();
        if name == "runs" {
            redlock(&redis, "run backup -n --once-per 1h -- echo started").fails(69, ["wrong type"]).run();
        }
        let pasted = delete.replace("redis-cli", &format!("redis-cli -s {}", redis.socket().display()));
        assert!(std::process::Command::new("bash").args(["-c", &pasted]).status().unwrap().success());
        assert!(!redis.exists(&part("backup", name)), "{pasted}");
    }
    // Entries that redlock did not write.
    redis.command(&["DEL", &part("backup", "runs")]);
    redis.command(&["RPUSH", &part("backup", "log"), "x\u{1b}[2J", "{\"t\":1}", "[]"]);
    redlock(&redis, "run -q backup -- true").run();
    // The log has three runs and these three entries.
    redlock(&redis, "log backup").stdout(when_lines(6)).run();
    // Even if Redis is out of memory, a release can write how the run ended, because it first deletes keys.
    let token = acquire(&redis, "other");
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    release(&redis, "other", &token);
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(outcomes(&redis, "other"), ["released"]);
}

#[test]
fn several_nodes_report_each_run_once() {
    let mut nodes = several(3);
    redlock(&nodes, "run -q backup -- true").run();
    nodes[0].kill();
    redlock(&nodes, "run -q backup -- false").status(1).run();
    nodes[0].restart_aged(3600);
    nodes[1].kill();
    let reported = runs(&nodes, "backup");
    assert_eq!(reported.iter().map(|run| run["status"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1]);
    nodes[1].restart_aged(3600);
    // A minority has granted a lease, and the client has died before the undo.
    let logged = || nodes[2].query::<u64>(&["LLEN", &part("backup", "log")]);
    let before = logged();
    redlock(nodes[2].url().as_str(), "acquire backup --ttl 1s").stdout(any()).run();
    assert_eq!(logged(), before + 1);
    eventually(SOON, "it has run out", || !nodes[2].exists("redlock:backup"));
    assert_eq!(outcomes(&nodes, "backup"), ["exited", "exited"]);
}

#[test]
fn the_status_of_a_free_lock_shows_the_last_run_and_the_last_success() {
    let redis = Redis::start();
    let (_, host) = crate::support::myself();
    let said = |words: &str| like(format!("backup  free{words}\n").replace("HOST", &host));
    redlock(&redis, "status backup").stdout(said("; no run is known; <any> was started <duration> ago")).run();
    redlock(&redis, "run -q backup --log 1 --label nightly -- false").status(1).run();
    let failed = "; last run on HOST (nightly), <duration> ago, for <duration>, exit status 1; ";
    redlock(&redis, "status backup").stdout(said(&format!("{failed}no success known"))).run();
    redlock(&redis, "run -q backup -- true").run();
    let succeeded = "; last run on HOST (true), <duration> ago, for <duration>, exit status 0";
    let failure_before = format!("{succeeded}; last failure <duration> ago");
    redlock(&redis, "status backup").stdout(said(&failure_before)).run();
    redlock(&redis, "run -q backup --log 1 --label nightly -- false").status(1).run();
    redlock(&redis, "status backup").stdout(said(&format!("{failed}last success <duration> ago"))).run();
    let object = status(&redis, "backup");
    assert_eq!((&object["last"]["status"], &object["last_success"]["status"]), (&1.into(), &0.into()), "{object}");

    // The table of all locks.
    redlock(&redis, "status").stderr(message(["no lock is held"])).run();
    let cells = ["NAME", "STATE", "HELD BY", "FOR", "LEASE", "WAIT", "LAST RUN"].join("\\s+");
    let row = "backup +free +- +- +- +0 +failed; exit 1, [^ ]+ ago";
    redlock(&redis, "status --all").stdout(crate::support::regex(&format!("{cells}\n{row}\n"))).run();
    let token = acquire(&redis, "backup");
    redlock(&redis, "status").stdout(like("<any>\nbackup  held<any>exit 1, <duration> ago\n")).run();
    release(&redis, "backup", &token);
    let list = redlock(&redis, "status --all --format json").json();
    assert_eq!(list["locks"][0]["last"]["outcome"], "released");
}

#[test]
fn runs_beside_each_other_are_told_apart() {
    let redis = Redis::start();
    let job = |line: &str| redlock(&redis, line).any_end().spawn();
    let (first, second) = (job("run -q dl --slots 2 --ttl 3s -- sleep 1000"), job("run -q dl --slots 2 -- sleep 1000"));
    eventually(SOON, "both run", || outcomes(&redis, "dl") == ["running", "running"]);
    first.send(Signal::SIGKILL);
    drop(first);
    eventually(SOON, "it has run out", || outcomes(&redis, "dl").contains(&"expired".to_owned()));
    redlock(&redis, "run -q dl --slots 2 -- false").status(1).run();
    second.send(Signal::SIGTERM);
    second.finish();
    let mut all = results(&redis, "dl");
    all.sort();
    let (slots, mut ends): (Vec<&str>, Vec<&str>) = all.iter().filter_map(|end| end.split_once(", ")).unzip();
    ends.sort();
    assert_eq!(ends, ["SIGTERM", "exit 1", "lease ran out"]);
    assert!(slots == ["slot 0", "slot 0", "slot 1"] || slots == ["slot 0", "slot 1", "slot 1"], "{slots:?}");
    assert!(!redis.exists(&part("dl", "open")));
    let job = job("run -q db --shared -- sleep 1000");
    eventually(SOON, "it runs", || outcomes(&redis, "db") == ["running"]);
    redlock(&redis, "release -q --force db").run();
    drop(job);
    assert!(results(&redis, "db")[0].starts_with("revoked by "));
    acquire(&redis, "alone");
    redlock(&redis, "release -q --force alone").run();
    assert!(results(&redis, "alone")[0].starts_with("revoked by "));
}

#[test]
fn once_per_period_a_success_turns_others_away() {
    let redis = Redis::start();
    let once = |command: &str| redlock(&redis, format!("run backup --once-per 1h {command}"));
    // After a failed run the next host may try.
    once("-q -- false").status(1).run();
    once("-q -- true").run();
    once("--label true -- echo started").run();
    once("--label true -q -E 7 --wait 1m -- echo started").status(7).run();
    assert!(
        redis.keys_without_history().iter().all(|key| key.ends_with("fence")),
        "{:?}",
        redis.keys_without_history()
    );
    assert_eq!(results(&redis, "backup").len(), 2, "who was turned away leaves no entry");
    // Later failures do not hide the success.
    redlock(&redis, "run -q backup --log 1 -- false").status(1).run();
    once("--label true -- echo started").run();
    // A run by hand, without --once-per, does not switch off tonight's run.
    redlock(&redis, "run -q byhand -- true").run();
    redlock(&redis, "run -q byhand --once-per 20h -- false").status(1).run();
    // A success turns away waiters that came while the job ran.
    let job = redlock(&redis, "run -q other --once-per 1h -- sleep 1").spawn();
    eventually(SOON, "it runs", || status(&redis, "other")["state"] == "held");
    let waiters: Vec<_> = (0..3)
        .map(|_| redlock(&redis, "run other --label sleep --once-per 1h --wait -- echo started").spawn())
        .collect();
    job.finish();
    waiters.into_iter().for_each(|waiter| drop(waiter.finish()));
    assert_eq!(results(&redis, "other"), ["exit 0"]);
    for line in ["-s", "--slots 2", "--reentrant", "--name b"] {
        redlock(&redis, format!("run --name a {line} --once-per 1h -- true")).fails(64, ["--once-per"]).run();
    }
    for (line, why) in [
        ("run a --log 0 --once-per 1h -- true", "needs the log"),
        ("run a --once-per 101d -- true", "1s to 100d"),
        ("acquire a --once-per 1h", "unexpected argument"),
    ] {
        redlock(&redis, line).fails(64, ["--once-per", why]).run();
    }
}

#[test]
fn over_several_nodes_a_success_that_any_of_them_knows_counts() {
    let mut nodes = several(3);
    redlock(&nodes, "run -q backup --once-per 1h -- true").run();
    // Two nodes have lost the success: they grant, and their grants are taken back.
    for node in &nodes[..2] {
        node.command(&["FLUSHALL"]);
    }
    let turned_away = |nodes: &Vec<Redis>| {
        redlock(nodes, "run backup --label true --once-per 1h -E 9 -- echo started").status(9).run();
    };
    turned_away(&nodes);
    assert!(nodes.iter().all(|node| !node.exists("redlock:backup") && !node.exists(&part("backup", "open"))));
    nodes[0].kill();
    turned_away(&nodes);
}

/// The samples of a text in Prometheus' format. Checks that the samples of a metric stand together behind its HELP and
/// its TYPE, that the TYPE is right, and that the labels differ.
fn samples(text: &str) -> std::collections::BTreeMap<String, f64> {
    let sample =
        regex_lite::Regex::new(r#"^([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*\}) ([0-9.]+)$"#).unwrap();
    let (mut all, mut metric, mut seen) = (std::collections::BTreeMap::new(), String::new(), Vec::new());
    let mut has_type = false;
    for line in text.strip_suffix('\n').unwrap().split('\n') {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            metric = rest.split_once(' ').unwrap().0.to_owned();
            assert!(!seen.contains(&metric), "{line}");
            seen.push(metric.clone());
            has_type = false;
        } else if line.starts_with("# TYPE ") {
            let kind = if metric.ends_with("_total") { "counter" } else { "gauge" };
            assert_eq!(line, format!("# TYPE {metric} {kind}"));
            has_type = true;
        } else {
            let parts = sample.captures(line).unwrap_or_else(|| panic!("{line}"));
            assert!(parts[1] == metric && has_type, "{line}");
            assert!(all.insert(format!("{}{}", &parts[1], &parts[2]), parts[3].parse().unwrap()).is_none(), "{line}");
        }
    }
    all
}

#[test]
fn metrics_are_in_the_format_of_prometheus() {
    let redis = Redis::start();
    let of = |line: &str| samples(&redlock(&redis, line).text());
    assert!(of("status --format prometheus").is_empty());
    redlock(&redis, "run -q backup -- false").status(1).run();
    let odd = "a\"b\\c";
    Test::new(&redis).args(["acquire", odd, "--label", odd]).stdout(any()).run();
    let all = of("status --format prometheus");
    let quoted = "a\\\"b\\\\c";
    assert_eq!(all[&format!("redlock_held{{name=\"{quoted}\"}}")], 1.0);
    let (user, host) = crate::support::myself();
    let info = format!("{{name=\"{quoted}\",host=\"{host}\",user=\"{user}\",label=\"{quoted}\"}}");
    assert_eq!(all[&format!("redlock_holder_info{info}")], 1.0);
    assert_eq!(all["redlock_held{name=\"backup\"}"], 0.0);
    assert_eq!(all["redlock_last_run_exit_status{name=\"backup\"}"], 1.0);
    assert_eq!(all["redlock_last_run_success{name=\"backup\"}"], 0.0);
    assert!(all["redlock_last_run_end_timestamp_seconds{name=\"backup\"}"] > 1.7e9);
    assert!(!all.contains_key("redlock_last_success_timestamp_seconds{name=\"backup\"}"));
    redlock(&redis, "run -q backup -- true").run();
    let one = of("status backup --format prometheus");
    let success = one["redlock_last_success_timestamp_seconds{name=\"backup\"}"];
    assert_eq!(one["redlock_last_run_end_timestamp_seconds{name=\"backup\"}"], success);
    redlock(&redis, "log --format prometheus").fails(64, ["log has no --format prometheus"]).run();
}

#[test]
fn at_the_end_run_says_with_v_what_came_of_it() {
    let redis = Redis::start();
    let says = |line: &str, status: i32, said: &str| redlock(&redis, line).status(status).stderr(like(said)).run();
    let acquired = "redlock: acquired \"backup\" <any>\n";
    let released = "redlock: released \"backup\" after <duration>, exit status 1\n";
    says("run -v backup -- false", 1, &format!("redlock: redis <any>\n{acquired}{released}"));
    says("run backup -- false", 1, acquired);
}
