//! Calls that are refused with 64 before any Redis is contacted, words that are accepted in more than one form, and the
//! help. `mistakes.rs` has further refusals, word for word.

use crate::support::{Redis, Test, at_last, message, redlock, when};
use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// A listener to which no call may connect.
struct Untouched(TcpListener);

impl Untouched {
    fn new() -> Untouched {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Untouched(listener)
    }

    fn url(&self) -> String {
        format!("redis://{}", self.0.local_addr().unwrap())
    }

    /// The call is refused before it connects. The message must have these fragments.
    fn refuses<const N: usize>(&self, arguments: &[&str], fragments: [&str; N]) {
        Test::new(self.url().as_str()).args(arguments).status(64).stderr(message(fragments)).run();
        self.assert();
    }

    fn assert(&self) {
        assert!(self.0.accept().is_err(), "Redis was contacted");
    }
}

#[test]
fn names() {
    let server = Untouched::new();
    let long = "ü".repeat(257);
    for name in ["", "a\nb", "a\u{1b}[31m", "\u{7f}", "\u{85}", "\t", &long] {
        server.refuses(&["acquire", "--name", name], ["name"]);
        server.refuses(&["run", "--name", name, "--", "true"], ["name"]);
        server.refuses(&["status", name], ["name"]);
    }
    redlock(server.url().as_str(), "acquire --name").arg(OsStr::from_bytes(b"a\xffb")).fails(64, []).run();
    server.assert();
}

#[test]
fn a_pattern_is_no_name_of_a_lock() {
    let server = Untouched::new();
    for call in ["wait", "acquire", "run --name", "release --force", "release --token T", "extend --token T"] {
        for name in ["deploy-*", "*"] {
            let mut words: Vec<&str> = call.split(' ').chain([name]).collect();
            if words[0] == "run" {
                words.extend(["--", "true"]);
            }
            server.refuses(&words, [name, "a * makes a pattern, which only status, log and check take"]);
        }
    }
    server.refuses(&["run", "job-*", "--", "true"], ["a * makes a pattern"]);
    server.refuses(&["run", "--name", "a", "--name", "b*", "--", "true"], ["a * makes a pattern"]);
    let redis = Redis::start();
    redlock(&redis, "run -q job-1 -- true").run();
    for line in ["status job-* --all", "log job-*", "status --name job-* -a"] {
        redlock(&redis, line).stdout(when("job-1", |text| text.contains("job-1"))).run();
    }
}

#[test]
fn keys_without_a_hash_tag_that_works() {
    let server = Untouched::new();
    for name in ["a}b", "}", "a}{b", "{}a"] {
        server.refuses(&["acquire", "--name", name], ["}"]);
    }
    server.refuses(&["acquire", "--name", "a", "--prefix", "b}"], ["}"]);
}

#[test]
fn a_bare_number_is_seconds() {
    let redis = Redis::start();
    for (option, number) in [("--ttl", "10"), ("--wait", "0.5"), ("--node-timeout", "1.5"), ("--quarantine", "0")] {
        Test::new(&redis).args(["run", "x", "-q", option, number, "--", "true"]).run();
    }
    let token = redlock(&redis, "acquire x --ttl 90.5").token();
    let busy = || at_last(message(["\"x\" is held by", "gave up after"]));
    let test = redlock(&redis, "acquire x -w 1.2").status(75).stderr(busy());
    assert!(test.run().elapsed >= Duration::from_millis(1_200));
    let test = redlock(&redis, "wait x --timeout 0.9").status(75).stderr(busy());
    assert!(test.run().elapsed >= Duration::from_millis(900));
    let extend = redlock(&redis, format!("extend x --token {token} --ttl 100 --format json"));
    let validity = extend.json()["validity_ms"].as_u64().unwrap();
    assert!((90_000..100_000).contains(&validity), "{validity}");
    let stopped = "redlock: stopped the job of \"y\" after 200ms (--max-run)\n";
    redlock(&redis, "run y -q --max-run 0.2 -- sleep 60").status(124).stderr(stopped).run();
}

#[test]
fn the_habits_of_flock_are_served() {
    let redis = Redis::start();
    for arguments in [
        &["run", "x", "-q", "-c", "exit 3"][..],
        &["run", "-q", "-c", "exit 3", "x"],
        &["run", "-c", "exit 3", "x", "-q", "-w", "10"],
        &["run", "-xn", "x", "-q", "-c", "exit 3"],
        &["run", "--nb", "-e", "x", "-q", "--", "sh", "-c", "exit 3"],
        &["run", "--nonblock", "--exclusive", "x", "-q", "-c", "exit 3"],
    ] {
        Test::new(&redis).args(arguments).status(3).run();
    }
    redlock(&redis, "run x -c true").stderr(message(["\"x\""])).run();
    redlock(&redis, "run x sh -c true").fails(64, ["redlock run NAME -- COMMAND"]).run();
}

#[test]
fn with_json_a_usage_error_is_an_object_too() {
    let server = Untouched::new();
    let object = redlock(server.url().as_str(), "release x --format json").fails(64, ["missing --token"]).json();
    let keys: Vec<&String> = object.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["holder", "message", "name", "outcome", "status"]);
    assert_eq!(object["status"], 64);
    assert!(object["holder"].is_null());
    // An error in the command line itself is an object, too.
    let object = redlock(server.url().as_str(), "acquire x --format json --ttl 0s").fails(64, ["100ms"]).json();
    assert_eq!((&object["outcome"], &object["status"]), (&"usage".into(), &64.into()));
    server.assert();
}

#[test]
fn help_fits_one_screen_and_shows_what_matters() {
    let short = Test::bare().arg("-h").text();
    for part in [
        "redlock run backup --once-per day --max-run 90m -- ",
        "redlock check -q",
        "--redis redis://HOST:PORT or REDLOCK_REDIS",
        "acquire",
        "status",
        "75",
        "76",
    ] {
        assert!(short.contains(part), "{part} is missing:\n{short}");
    }
    Test::bare().status(64).stderr(short.as_str()).run();
    let long = Test::bare().arg("--help").text();
    assert!(long.lines().count() > short.lines().count());
    let run = Test::bare().args(["run", "-h"]).text();
    assert!(run.contains(" redlock run --name backup --ttl 30s -- ./job.sh\n"), "{run}");
    // A line that is too long would be broken, and its last word would stand alone on the next line.
    let (_, end) = long.split_once("\nExit status:\n").unwrap();
    assert!(end.lines().all(|line| line.is_empty() || line.contains(' ')), "{end}");
    Test::bare().arg("--version").stdout(format!("redlock {}\n", env!("CARGO_PKG_VERSION"))).run();
}

#[test]
fn the_help_of_run_is_in_groups_and_its_one_screen_has_what_most_jobs_need() {
    let (short, long) = (Test::bare().args(["run", "-h"]).text(), Test::bare().args(["run", "--help"]).text());
    let headings = ["\nLock:\n", "\nCrontab:\n", "\nThe job and its end:\n", "\nDeployment:\n"];
    let places = headings.map(|heading| long.find(heading).unwrap_or_else(|| panic!("{heading}{long}")));
    assert!(places.is_sorted(), "{places:?}");
    assert!(Test::bare().arg("--help").text().contains("\nSettings, for every command:\n"));
    for option in ["--nonblock", "--exclusive", "--reentrant", "--token", "--on-lost", "--whole"] {
        let is_in = |help: &str| help.contains(&format!("{option} ")) || help.contains(&format!("{option}\n"));
        assert_eq!((is_in(&short), is_in(&long)), (false, true), "{option}");
    }
    for option in ["--kill-after <D>", "--signal <SIG>", "--max-run <D>"] {
        assert!(short.contains(option), "{option}");
    }
}

#[test]
fn every_command_has_its_own_help() {
    for command in ["run", "acquire", "extend", "release", "status", "wait", "completions"] {
        for flag in ["-h", "--help"] {
            let help = Test::bare().args([command, flag]).text();
            assert!(help.contains(&format!("redlock {command}")), "{help}");
        }
    }
}

#[test]
fn the_options_of_every_command_are_shown_once() {
    let help = |arguments: &[&str]| Test::bare().args(arguments).text();
    for option in ["--redis", "--replicas", "--quarantine", "--format", "--quiet"] {
        assert!(help(&["--help"]).contains(option), "{option}");
        for command in ["run", "acquire", "extend", "release", "status", "wait", "doctor", "completions"] {
            let help = help(&[command, "--help"]);
            assert!(!help.contains(&format!("      {option}")), "{help}");
            assert!(help.trim_end().ends_with("redlock --help"), "{help}");
        }
    }
}

#[test]
fn help_is_a_command_as_well() {
    let shown = |arguments: &[&str]| Test::bare().args(arguments).text();
    assert_eq!(shown(&["help"]), shown(&["--help"]));
    assert_eq!(shown(&["help", "run"]), shown(&["run", "--help"]));
    let test = Test::bare().args(["help", "lock"]).status(64);
    test.stderr("redlock: unrecognized subcommand 'lock'; redlock run or redlock acquire?\n").run();
}
