//! `run --keep-errors`: the job's standard error in a file, and its last lines in the log of the lock.

use crate::support::{
    Directory, Pattern, Redis, SOON, Test, Where, any, eventually, like, message, myself, redlock, several, status,
    when,
};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

/// Has the last failure, with its errors.
const RUNS: &str = "{redlock:backup}:\u{1f}runs";

/// A run of `backup` in this directory. The job is a shell line; its errors go into `FILE`.
fn run<W: Where + ?Sized>(servers: &W, directory: &Arc<Directory>, options: &str, job: &str) -> Test {
    let words = "run -q backup --keep-errors FILE ".to_owned() + options;
    redlock(servers, words).args(["--", "sh", "-c", job]).in_directory(directory)
}

/// The last lines on standard error: what became of the run, and what the job wrote to `FILE`.
fn said(what: &str, errors: &str) -> Pattern {
    like(format!("<lines>redlock: \"backup\" {what}; FILE ends:\n{errors}"))
}

fn file(directory: &Directory) -> String {
    fs::read_to_string(directory.path().join("FILE")).unwrap()
}

/// The oldest first.
#[track_caller]
fn runs<W: Where + ?Sized>(servers: &W) -> Vec<Value> {
    let log = redlock(servers, "log backup --format json").stdout(any()).run();
    log.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The errors that the log has of the last run.
#[track_caller]
fn kept<W: Where + ?Sized>(servers: &W) -> Option<String> {
    runs(servers).pop().unwrap()["errors"].as_str().map(str::to_owned)
}

#[test]
fn the_errors_of_a_run_that_failed_are_in_its_file_and_its_log() {
    let (redis, directory) = (Redis::start(), Arc::new(Directory::new()));
    run(&redis, &directory, "", "echo warning >&2; echo result").stdout("result\n").run();
    assert!(runs(&redis)[0].get("errors").is_none(), "of a success nothing is kept");
    // redlock's own messages stay on standard error.
    let said = like(
        "redlock: redis <any>\nredlock: acquired <any>\nredlock: released <any>\nredlock: \"backup\" failed on <host> with \
         status 3; FILE ends:\n    first\n        \\u{1b}[31mno \"space\"\n",
    );
    let job = ["--", "sh", "-c", "printf 'first\\n\\t\\033[31mno \"space\"\\n' >&2; exit 3"];
    let test = redlock(&redis, "run -v backup --keep-errors FILE").args(job).in_directory(&directory);
    test.status(3).stderr(said).run();
    assert_eq!(file(&directory), "warning\nfirst\n\t\u{1b}[31mno \"space\"\n");
    let mode = fs::metadata(directory.path().join("FILE")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let lines = like(
        "<date>  <duration>  <any>  exit 0, waited <duration>\n<date>  <duration>  <any>  exit 3, waited <duration>\n    \
         first\n        \\u{1b}[31mno \"space\"\n",
    );
    redlock(&redis, "log -v backup").stdout(lines).stderr(any()).run();
    redlock(&redis, "log backup").stdout(when("two lines", |text| text.lines().count() == 2)).run();
    assert_eq!(kept(&redis).unwrap(), "first\n\t\u{1b}[31mno \"space\"");
    assert!(runs(&redis)[0].get("errors").is_none());
    let last = "backup  free; last run <any>, exit status 3; last success <any>\n  errors  \\u{1b}[31mno \"space\"\n";
    redlock(&redis, "status backup").stdout(like(last)).run();
    assert_eq!(status(&redis, "backup")["last"]["errors"], "first\n\t\u{1b}[31mno \"space\"");
    let mail = "<any>\nbackup: failed on <any> at <any>, exit 3: \\u{1b}[31mno \"space\"<any>\n";
    redlock(&redis, "check backup --within 0").status(1).stdout(like(mail)).run();
    // Others may read the page, so it shows errors only with -v.
    let shown = "<pre>first\n    \\u{1b}[31mno &quot;space&quot;</pre>";
    for (option, is_shown) in [("", false), (" -v", true)] {
        let page = when("the errors", move |page| page.contains(shown) == is_shown && page.contains("exit 3"));
        redlock(&redis, format!("log backup --format html{option}")).stdout(page).stderr(any()).run();
    }
    // After a success, the status has the errors only in `last_failure`.
    run(&redis, &directory, "", "true").run();
    redlock(&redis, "status backup").stdout(when("no error", |text| !text.contains("space"))).run();
    assert_eq!(status(&redis, "backup")["last_failure"]["errors"], "first\n\t\u{1b}[31mno \"space\"");
}

#[test]
fn a_file_that_cannot_be_kept_is_refused_before_the_lock() {
    let (redis, directory) = (Redis::start(), Arc::new(Directory::new()));
    nix::unistd::mkfifo(&directory.path().join("pipe"), Mode::S_IRWXU).unwrap();
    // redlock's binary is running, and not even root can write a running program.
    for (path, why) in [
        ("pipe", "it is not a regular file"),
        ("/dev/null", "it is not a regular file"),
        (".", "is a directory"),
        ("no/FILE", "no such file or directory"),
        (env!("CARGO_BIN_EXE_redlock"), "text file busy"),
    ] {
        let test = redlock(&redis, "run backup --keep-errors").args([path, "--", "echo", "started"]);
        test.in_directory(&directory).status(64).stderr(message(["--keep-errors", why])).run();
    }
    let test = run(&redis, &directory, "", "true").env("REDLOCK_LOG", "0").status(64);
    test.stderr(message(["--keep-errors needs the log, which is off"])).run();
    assert!(redis.keys_without_history().is_empty());
}

#[test]
fn the_last_lines_that_the_job_has_written_are_kept() {
    let directory = Arc::new(Directory::new());
    let long = "printf '%s' \"$(seq -s, 1000)\" >&2; ";
    let digits: String = (1..=1000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let lines = |from: u32| (from..=1000).map(|n| format!("{n}\n")).collect::<String>().trim_end().to_owned();
    for (job, expected) in [
        ("true", None),
        ("echo >&2; echo >&2", None),
        ("printf 'a\\n\\nb' >&2", Some("a\n\nb".to_owned())),
        // In JSON a line end takes two bytes. So 203 lines of three digits and one line of four digits fit.
        ("seq 1000 >&2", Some(lines(797))),
        // Lines of eight bytes fill the 1,024 bytes exactly.
        ("seq 100001 100200 >&2", Some((100_073..=100_200).map(|n| n.to_string()).collect::<Vec<_>>().join("\n"))),
        // If the last line is too long, its end is kept; otherwise whole lines are kept.
        (&format!("{long} echo >&2"), Some(digits[digits.len() - 1022..].to_owned())),
        (&format!("{long} printf '\\nlast\\n' >&2"), Some("last".to_owned())),
        // No character is cut in half. If the job itself writes half a character, U+FFFD stands for it.
        (
            "for i in $(seq 600); do printf 'äx' >&2; done; printf 'ä' >&2",
            Some("x".to_owned() + &"äx".repeat(340) + "ä"),
        ),
        ("printf 'a\\303' >&2", Some("a\u{fffd}".to_owned())),
        ("printf '\\200%.0s' $(seq 2000) >&2", Some("\u{fffd}".repeat(341))),
        ("printf '\\001%.0s' $(seq 2000) >&2", Some("\u{1}".repeat(170))),
        // Text from before the run does not count as the job's. Text that others write during the run does.
        ("echo mine >&2; echo others >>FILE", Some("mine\nothers".to_owned())),
        // The job itself empties or replaces the file, removes it, or takes its permissions away.
        ("echo old >&2; : >FILE; echo new >&2", Some("new".to_owned())),
        ("echo old >&2; mv FILE rotated; echo new >&2; echo other >FILE", Some("old\nnew".to_owned())),
        ("rm FILE; echo removed >&2", Some("removed".to_owned())),
        ("chmod 0 FILE; echo locked >&2", Some("locked".to_owned())),
        // A sparse file.
        ("truncate -s 1G FILE; echo >&2; echo large >&2", Some("large".to_owned())),
        ("exec 3>&2 2>/dev/null; echo by another number >&3", Some("by another number".to_owned())),
    ] {
        let redis = Redis::start();
        fs::write(directory.path().join("FILE"), "before\n").unwrap();
        let shown = |line: &str| line.replace('\u{1}', "\\u{1}");
        let said = match &expected {
            None => "; FILE has no errors of it\n".to_owned(),
            Some(kept) => format!("; FILE ends:\n    {}\n", shown(kept).replace('\n', "\n    ")),
        };
        let said = when(said.clone(), move |text| {
            text.strip_suffix(&said).is_some_and(|line| line.starts_with("redlock: \"backup\" failed on "))
        });
        run(&redis, &directory, "", &format!("{job}; exit 1")).status(1).stderr(said).run();
        assert_eq!(kept(&redis), expected, "{job}");
        let failure: String = redis.query(&["HGET", RUNS, "failure"]);
        assert!(failure.len() <= 1024 + 300, "{job}: {failure}");
    }
}

#[test]
fn a_file_that_is_full_keeps_what_it_took() {
    let (redis, directory) = (Redis::start(), Arc::new(Directory::new()));
    let job = "ulimit -f 1; trap '' XFSZ; echo first >&2; seq 1000 >&2; echo no >&2; exit 1";
    run(&redis, &directory, "", job)
        .status(1)
        .stderr(said("failed on <host> with status 1", "    first\n<lines>"))
        .run();
    let taken = file(&directory);
    assert!(taken.len() < 1025 && taken.starts_with("first\n1\n"), "{taken}");
    assert_eq!(kept(&redis).unwrap(), taken.trim_end());
}

#[test]
fn every_end_but_a_success_keeps_its_errors() {
    let (redis, directory) = (Redis::start(), Arc::new(Directory::new()));
    let stuck = "echo why >&2; echo ready; exec sleep 1000";
    let is_kept = |outcome: &str| {
        let last = runs(&redis).pop().unwrap();
        assert_eq!((&last["outcome"], &last["errors"]), (&outcome.into(), &"why".into()));
    };
    run(&redis, &directory, "", "echo why >&2; kill -9 $$")
        .signal(Signal::SIGKILL)
        .stderr(said("was ended on <host> by SIGKILL", "    why\n"))
        .run();
    is_kept("signaled");
    let too_long = said("was stopped on <host> by --max-run", "    why\n");
    run(&redis, &directory, "--max-run 50ms", stuck).status(124).stdout(any()).stderr(too_long).run();
    is_kept("too-long");
    let lost = || said("lost its lease on <host>", "    why\n");
    let job = |outcome: &str, end: &dyn Fn()| {
        let test = run(&redis, &directory, "--ttl 4s", stuck).status(76).stdout(any()).stderr(lost());
        let job = test.ready();
        end();
        job.finish();
        is_kept(outcome);
    };
    job("revoked", &|| _ = redlock(&redis, "stop -q backup").run());
    job("revoked", &|| _ = redlock(&redis, "release -q --force backup").run());
    job("lost", &|| redis.command(&["SET", "redlock:backup", "another", "PX", "1"]));
    let deletes = "redis-cli -s $SOCKET del redlock:backup >/dev/null; echo why >&2";
    let test = run(&redis, &directory, "", deletes).env("SOCKET", redis.socket()).status(76);
    test.stderr(lost()).run();
    is_kept("lost");
    let test = run(
        &redis,
        &directory,
        "--on-lost continue --ttl 1s",
        "redis-cli -s $SOCKET del redlock:backup; sleep 1; echo why >&2",
    );
    test.env("SOCKET", redis.socket()).status(76).stdout("1\n").stderr(lost()).run();
    is_kept("lost");
    // A redlock that is killed reports nothing to the log; the file has the errors.
    let mut killed = run(&redis, &directory, "--ttl 1s", stuck).any_end().stdout(any()).ready();
    killed.send(Signal::SIGKILL);
    killed.wait(SOON);
    eventually(SOON, "its lease has run out", || runs(&redis).last().unwrap()["outcome"] == "expired");
    assert_eq!(kept(&redis), None);
    assert_eq!(file(&directory), "why\n".repeat(8));
}

#[test]
fn each_of_several_locks_keeps_those_of_its_last_failure() {
    let (redis, directory) = (Redis::start(), Arc::new(Directory::new()));
    for number in 0..3 {
        let test = redlock(&redis, "run -q --name backup --name disk --keep-errors FILE -- sh -c");
        let test = test.arg(format!("echo {number} >&2; exit 1")).in_directory(&directory).status(1);
        let both = "redlock: \"backup\" and \"disk\" failed on <host> with status 1; FILE ends:\n    ";
        test.stderr(like(format!("{both}{number}\n"))).run();
    }
    redlock(&redis, "run -q backup -- true").run();
    for name in ["backup", "disk"] {
        let log = redlock(&redis, format!("log {name} --failed --format json")).stdout(any()).run();
        let kept: Vec<Value> =
            log.stdout.lines().map(|run| serde_json::from_str::<Value>(run).unwrap()["errors"].clone()).collect();
        assert_eq!(kept, [Value::Null, Value::Null, "2".into()]);
    }
}

#[test]
fn the_errors_that_any_of_several_nodes_has_are_shown() {
    let (nodes, directory) = (several(3), Arc::new(Directory::new()));
    run(&nodes, &directory, "", "echo why >&2; exit 1").status(1).stderr(any()).run();
    eventually(SOON, "all have heard", || nodes.iter().all(|node| node.exists(RUNS)));
    nodes[1..].iter().for_each(|node| node.command(&["HDEL", RUNS, "failure"]));
    assert_eq!(kept(&nodes).unwrap(), "why");
    let last = when("its last line", |text| text.contains("\n  errors  why\n"));
    redlock(&nodes, "status backup").stdout(last).run();
}

#[test]
fn errors_that_cannot_be_written_are_reported() {
    let (redis, directory) = (Redis::start(), Arc::new(Directory::new()));
    redis.command(&["SET", RUNS, "x"]);
    let test = redlock(&redis, "run backup --keep-errors FILE -- sh -c").arg("echo why >&2; exit 1");
    let lines = "redlock: acquired <any>\nredlock: the log of \"backup\" could not be written: <any>WRONGTYPE<any>\n\
                 redlock: \"backup\" failed on <host> with status 1; FILE ends:\n    why\n";
    test.in_directory(&directory).status(1).stderr(like(lines)).run();
    // The log has the run; only the errors are missing.
    redis.command(&["DEL", RUNS]);
    redlock(&redis, "log backup").stdout(like("<any>  exit 1\n")).run();
}

#[test]
fn what_standard_error_shows_already_is_not_repeated() {
    let (redis, directory) = (Redis::start(), Arc::new(Directory::new()));
    let line = "redlock run -q backup --keep-errors FILE -- sh -c 'echo why >&2; exit 3' 2>>FILE";
    Test::sh(&redis, line).in_directory(&directory).status(3).run();
    let said = format!("why\nredlock: \"backup\" failed on {} with status 3\n", myself().1);
    assert_eq!(file(&directory), said);
    run(&redis, &directory, "", "exit 3")
        .status(3)
        .stderr(like("<any> with status 3; FILE has no errors of it\n"))
        .run();
    run(&redis, &directory, "", "echo why >&2").run();
}
