//! Every way in which a job can end, with every claim on its lock: log, JSON and metrics must agree with the trace that
//! the job itself has left.

use super::history::now_ms;
use crate::support::{
    Directory, Ended, Redis, Running, SOON, Test, any, eventually, ms, myself, name, redlock, send, status,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const TTL: Duration = ms(10_000);
/// The rounding error (ms) of a sum of several times in whole milliseconds.
const ROUNDING: i64 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By itself, with this status.
    Exit(i32),
    /// By this signal, sent to redlock.
    Signal(Signal),
    MaxRun,
    /// At `--max-run`; the job exits with 0 on SIGTERM.
    MaxRunWell,
    Deleted,
    Revoked,
    Forced,
    RedlockKilled,
    KeeperKilled,
    /// The server restarts while the job runs; with `empty`, it forgets everything.
    Restart {
        empty: bool,
    },
    /// The job ends with status 3 while the server is away.
    AwayAtTheEnd {
        empty: bool,
    },
}

const WAYS: [Way; 15] = [
    Way::Exit(0),
    Way::Exit(3),
    Way::Exit(76),
    Way::Signal(Signal::SIGTERM),
    Way::MaxRun,
    Way::MaxRunWell,
    Way::Deleted,
    Way::Revoked,
    Way::Forced,
    Way::RedlockKilled,
    Way::KeeperKilled,
    Way::Restart { empty: false },
    Way::Restart { empty: true },
    Way::AwayAtTheEnd { empty: false },
    Way::AwayAtTheEnd { empty: true },
];

/// The claims on the lock: arguments of `run`, and a command in front of the job.
const CLAIMS: [(&str, &str); 5] = [
    ("backup", ""),
    ("backup -s", ""),
    ("backup --slots 3", ""),
    ("--name backup --name other", ""),
    ("backup", "redlock run -q backup --reentrant -- "),
];

/// What the reports must say of a run, in this order: its end (in the log), its outcome (in JSON), its exit status, its
/// signal, and whether it is a success.
type Reports = (&'static str, &'static str, Option<i32>, Option<i32>, Option<bool>);

impl Way {
    /// The exit status of redlock (None: any end), and the reports of the run.
    fn expected(self) -> (Option<i32>, Reports) {
        let exit = |status: i32| (Some(status), ("exit", "exited", Some(status), None, Some(status == 0)));
        match self {
            Way::Exit(status) => exit(status),
            Way::Restart { .. } | Way::AwayAtTheEnd { .. } => exit(3),
            Way::Signal(signal) => (None, ("SIGTERM", "signaled", None, Some(signal as i32), Some(false))),
            Way::MaxRun | Way::MaxRunWell => (Some(124), ("--max-run", "too-long", None, None, Some(false))),
            Way::Deleted => (Some(76), ("lease lost", "lost", None, None, Some(false))),
            Way::Revoked | Way::Forced => (Some(76), ("revoked by", "revoked", None, None, Some(false))),
            Way::RedlockKilled => (None, ("lease ran out", "expired", None, None, None)),
            // The keeper alone knew how the command ended.
            Way::KeeperKilled => (Some(69), ("released", "released", None, None, None)),
        }
    }

    fn arguments(self) -> &'static str {
        if matches!(self, Way::MaxRun | Way::MaxRunWell) { "--max-run 2s" } else { "" }
    }

    /// The job's script, after its first command, which writes the time into the file `first`.
    fn script(self) -> String {
        let status = self.expected().0.filter(|_| !matches!(self, Way::MaxRun)).unwrap_or(0);
        let trap = if self == Way::MaxRunWell { "trap 'exit 0' TERM; " } else { "" };
        format!("{trap}until test -e go; do date +%s%3N >new; mv new last; sleep 0.02; done; exit {status}")
    }
}

/// A job under a lock, and its server.
struct Scene {
    redis: Redis,
    directory: Arc<Directory>,
    running: Option<Running>,
    /// The time of the call (ms since 1970).
    called: i64,
}

impl Scene {
    fn new(way: Way, (arguments, before): (&str, &str)) -> Scene {
        let redis = match way {
            Way::Restart { empty: false } | Way::AwayAtTheEnd { empty: false } => Redis::durable(),
            _ => Redis::start(),
        };
        let directory = Arc::new(Directory::new());
        let job = format!("date +%s%3N >first; {}", way.script());
        directory.file("job", job);
        let line = format!(
            "exec redlock run -q {arguments} --ttl {}ms {} -- {before}sh job",
            TTL.as_millis(),
            way.arguments()
        );
        let mut test = Test::sh(&redis, &line).in_directory(&directory).stderr(any()).within(SOON * 3).any_end();
        if let (Some(status), _) = way.expected() {
            test = test.status(status);
        }
        let scene = Scene { called: now_ms(), running: Some(test.spawn()), redis, directory };
        eventually(SOON * 2, "the job runs", || scene.trace("last").is_some());
        scene
    }

    /// The time that the job has written into this file (ms since 1970).
    fn trace(&self, file: &str) -> Option<i64> {
        fs::read_to_string(self.directory.path().join(file)).ok()?.trim().parse().ok()
    }

    fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    fn go(&self) {
        fs::write(self.directory.path().join("go"), "").unwrap();
    }

    /// The processes of the job, without any redlock.
    fn job(&self) -> Vec<u32> {
        let mut job = self.running().job();
        job.retain(|&pid| name(pid) != "redlock");
        job
    }

    fn end(&mut self, way: Way) {
        match way {
            Way::Exit(_) => self.go(),
            Way::Signal(signal) => self.running().send(signal),
            Way::MaxRun | Way::MaxRunWell => {}
            Way::Deleted => self.redis.command(&["DEL", "redlock:backup"]),
            Way::Revoked => _ = redlock(&self.redis, "stop -q backup").stdout(any()).run(),
            Way::Forced => _ = redlock(&self.redis, "release -q --force backup").stdout(any()).run(),
            Way::RedlockKilled => self.running().send(Signal::SIGKILL),
            Way::KeeperKilled => send(self.running().keeper(), Signal::SIGKILL),
            Way::Restart { .. } => {
                self.redis.restart();
                eventually(SOON, "it goes on", || self.redis.exists("redlock:backup"));
                self.go();
            }
            Way::AwayAtTheEnd { .. } => {
                self.redis.kill();
                self.go();
                eventually(SOON, "it has ended", || self.job().is_empty());
                self.redis.restart();
            }
        }
    }

    /// Checks that all reports of the run are as expected, and agree with the trace of its job.
    fn is_reported(&self, way: Way, took: Duration) {
        let say = |line: &str| redlock(&self.redis, line).text();
        let (_, (end, outcome, code, signal, success)) = way.expected();
        let line = say("log backup -n 1");
        let end = code.map_or(end.to_owned(), |code| format!("exit {code}"));
        assert!(line.contains(&format!("  {end}")) || line.contains(&format!("  slot 0, {end}")), "{way:?}: {line}");
        let run: Value = serde_json::from_str(&say("log backup -n 1 --format json")).unwrap();
        let number = |field: &str| run[field].as_i64();
        let codes = (code.map(i64::from), signal.map(i64::from));
        assert_eq!((&run["outcome"], (number("status"), number("signal"))), (&outcome.into(), codes), "{run}");
        if outcome == "revoked" {
            let (user, host) = myself();
            assert_eq!(run["revoked_by"], format!("{user}@{host}"));
        }
        // The run lasted at least as long as its job's trace, and at most as long as the whole call. If redlock was
        // killed, nobody knows.
        let (first, last) = (self.trace("first").unwrap(), self.trace("last").unwrap());
        // A lease that is freed by force ends before its job.
        let shortest = if way == Way::Forced { 0 } else { last - first - ROUNDING };
        let bounds = shortest..=i64::try_from(took.as_millis()).unwrap();
        let is_known = way != Way::RedlockKilled;
        assert_eq!((run["ended_at"].is_string(), number("duration_ms").is_some()), (is_known, is_known), "{run}");
        assert!(number("duration_ms").is_none_or(|duration| bounds.contains(&duration)), "{bounds:?}: {run}");
        let shown = status(&self.redis, "backup");
        assert_eq!(shown["last"]["outcome"], run["outcome"], "{shown}");
        assert_eq!(shown["last_success"].is_null(), success != Some(true), "{shown}");
        let metrics = say("status backup --format prometheus");
        let value = |metric: &str, labels: &str| -> Option<f64> {
            let start = format!("redlock_{metric}{{name=\"backup\"{labels}}} ");
            metrics.lines().find_map(|line| line.strip_prefix(&start))?.parse().ok()
        };
        for (result, is) in [("success", true), ("failure", false)] {
            let count = value("runs_total", &format!(",result=\"{result}\""));
            assert_eq!(count, Some(f64::from(u8::from(success == Some(is)))), "{result}: {run}");
        }
        assert_eq!(value("last_run_exit_status", ""), code.map(f64::from));
        assert_eq!(value("last_run_end_timestamp_seconds", "").is_some(), is_known);
        let succeeded = (outcome != "released").then_some(f64::from(u8::from(success == Some(true))));
        assert_eq!(value("last_run_success", ""), succeeded);
        let ended = value("last_success_timestamp_seconds", "").map(|seconds| (seconds * 1000.0) as i64);
        assert_eq!(ended.is_some(), success == Some(true));
        // The reported end is the time of the grant plus the duration, which begins a bit after the grant, when the
        // client has the answer. So the reported end is a bit early.
        let earliest = last - (first - self.called) - ROUNDING;
        assert!(ended.is_none_or(|ended| (earliest..=now_ms()).contains(&ended)), "{ended:?}");
    }
}

/// Calls `check` with each item, six at a time.
fn at_once<T: Sync>(all: &[T], check: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::SeqCst)) {
                    check(one);
                }
            });
        }
    });
}

#[test]
fn every_way_a_job_can_end_is_reported_as_it_was() {
    let each = |way: Way| CLAIMS.map(|claim| (way, claim));
    at_once(&WAYS.map(each).concat(), |&(way, claim)| {
        eprintln!("{way:?} {claim:?}");
        let start = Instant::now();
        let mut scene = Scene::new(way, claim);
        scene.end(way);
        scene.running.take().unwrap().finish_whole();
        let took = start.elapsed();
        eventually(SOON, "the lock is free", || !scene.redis.exists("redlock:backup"));
        scene.is_reported(way, took);
    });
}

#[test]
fn each_exit_status_is_reported() {
    let redis = Redis::start();
    // A log keeps 200 runs at most, so this test reads it twice.
    for statuses in [0..128, 128..256] {
        let numbers: String = statuses.clone().map(|n| format!("{n}\n")).collect();
        let script = format!(
            "for n in $(seq {} {}); do
                redlock run -q backup --log 128 -- sh -c \"echo $n >>trace; exit $n\"; echo $?
            done",
            statuses.start,
            statuses.end - 1
        );
        let script = Test::sh(&redis, &script).stdout(numbers.clone()).within(SOON * 12);
        let directory = script.directory();
        script.run();
        assert_eq!(fs::read_to_string(directory.path().join("trace")).unwrap(), numbers);
        let log = redlock(&redis, "log backup").text();
        let ends: String = log.lines().map(|line| format!("{}\n", line.rsplit("  exit ").next().unwrap())).collect();
        assert_eq!(ends, numbers);
        let log = redlock(&redis, "log backup --format json").text();
        for (line, n) in log.lines().zip(statuses) {
            let run: Value = serde_json::from_str(line).unwrap();
            assert_eq!((&run["outcome"], &run["status"], &run["signal"]), (&"exited".into(), &n.into(), &Value::Null));
        }
    }
    counts_are(&redis, 1, 255);
}

#[test]
fn each_signal_that_can_kill_is_reported() {
    let redis = Redis::start();
    let signals: Vec<i32> = (1..=16).chain(24..=27).chain(29..=31).chain(34..=64).collect();
    at_once(&signals, |signal| {
        let job = format!("ulimit -c 0; echo $$ >trace; kill -{signal} $$; echo alive >>trace");
        let test = Test::new(&redis).args(["run", "-q", "backup", "-s", "--log", "100", "-c", &job]);
        let directory = test.directory();
        let ended = test.any_end().run().ended;
        assert_eq!(ended, Ended::Signal(*signal));
        assert_eq!(fs::read_to_string(directory.path().join("trace")).unwrap().lines().count(), 1, "{signal}");
    });
    let log = redlock(&redis, "log backup --format json").text();
    let reported = |line: &str| {
        let run: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&run["outcome"], &run["status"]), (&"signaled".into(), &Value::Null), "{run}");
        i32::try_from(run["signal"].as_i64().unwrap()).unwrap()
    };
    let mut reported: Vec<i32> = log.lines().map(reported).collect();
    reported.sort_unstable();
    assert_eq!(reported, signals);
    counts_are(&redis, 0, signals.len());
}

/// Checks how many runs of `backup` have succeeded, and how many have failed.
#[track_caller]
fn counts_are(redis: &Redis, successes: usize, failures: usize) {
    let metrics = redlock(redis, "status backup --format prometheus").text();
    for (result, count) in [("success", successes), ("failure", failures)] {
        let sample = format!("redlock_runs_total{{name=\"backup\",result=\"{result}\"}} {count}\n");
        assert!(metrics.contains(&sample), "{sample} in {metrics}");
    }
}

#[test]
fn a_lease_of_a_script_reports_what_its_release_says() {
    let take = "token=$(redlock acquire -q backup --ttl 4s --while-pid $$) || exit; echo taken; read line; ";
    let rows = [
        ("exit 3", "released", Value::Null, [0, 0]),
        ("kill -9 $$", "released", Value::Null, [0, 0]),
        ("redlock release -q backup --token $token --status 0", "exited", 0.into(), [1, 0]),
        ("redlock release -q backup --token $token --status 3; exit 4", "exited", 3.into(), [0, 1]),
        // The script sleeps, so that its guard asks the server before the script ends.
        ("redlock release -q backup --token $token --status 0; sleep 2", "exited", 0.into(), [1, 0]),
        ("redlock stop -q backup & sleep 1000", "revoked", Value::Null, [0, 1]),
        ("redlock release -q --force backup; sleep 1000", "revoked", Value::Null, [0, 1]),
    ];
    at_once(&rows, |(rest, outcome, reported_status, [successes, failures])| {
        let redis = Redis::start();
        let script = Test::sh(&redis, &format!("{take}{rest}")).stdin("\n").stdout(any()).stderr(any()).any_end();
        script.spawn().finish_whole();
        let log = redlock(&redis, "log backup --format json").json();
        assert_eq!((&log["outcome"], &log["status"]), (&(*outcome).into(), reported_status), "{rest}: {log}");
        counts_are(&redis, *successes, *failures);
    });
}
