//! Everything that is refused with 64, before any Redis is contacted; and what the help shows.

use crate::support::{Redis, Test, any, at_last, message, redlock, when};
use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// A listener that nobody must ever connect to.
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

    /// A call that must be refused before it connects.
    fn refuses<const N: usize>(&self, arguments: &[&str], fragments: [&str; N]) {
        let test = Test::new(self.url().as_str()).args(arguments).status(64);
        test.stderr(message(fragments)).run();
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
    let test = redlock(server.url().as_str(), "acquire --name").arg(OsStr::from_bytes(b"a\xffb"));
    test.status(64).stderr(message([])).run();
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
            server.refuses(&words, [name, "a * makes a pattern, which only status and log take"]);
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
fn missing_parts() {
    let server = Untouched::new();
    server.refuses(&["run", "--name", "x"], ["command"]);
    server.refuses(&["run", "--name", "x", "--"], ["command"]);
    server.refuses(&["run", "--", "true"], ["name"]);
    server.refuses(&["acquire"], ["name"]);
    server.refuses(&["extend", "--token", "t"], ["name"]);
    server.refuses(&["release", "--token", "t"], ["name"]);
    server.refuses(&["wait"], ["name"]);
    server.refuses(&["extend", "x"], ["--token"]);
    server.refuses(&["release", "x"], ["missing --token; ", "--revoke", "--force"]);
    server.refuses(&["acquire", "--name"], ["--name"]);
}

#[test]
fn unknown_parts() {
    let server = Untouched::new();
    server.refuses(&["lock", "--name", "x"], ["lock"]);
    server.refuses(&["acquire", "--name", "x", "--frobnicate"], ["--frobnicate"]);
    server.refuses(&["acquire", "--name", "x", "surplus"], ["--name"]);
    server.refuses(&["acquire", "x", "surplus"], ["surplus"]);
    server.refuses(&["acquire", "--name", "x", "--format", "yaml"], ["yaml"]);
    server.refuses(&["completions", "tcsh"], ["tcsh"]);
    server.refuses(&["run", "--name", "x", "--on-lost", "maybe", "--", "true"], ["maybe"]);
}

#[test]
fn durations() {
    let server = Untouched::new();
    let acquire = |ttl: &str, fragment: &str| server.refuses(&["acquire", "--name", "x", "--ttl", ttl], [fragment]);
    acquire("0", "ttl");
    acquire("0s", "ttl");
    acquire("99ms", "100ms");
    acquire("31days", "30");
    acquire("1000000000h", "");
    acquire("99999999999999999999s", "");
    acquire("5M", "5m?");
    for nonsense in ["", "-5s", "abc", "5parsecs", "1y", "2months", "1year", "1h30", "30s;", "١s"] {
        acquire(nonsense, "");
    }
    server.refuses(&["run", "--name", "x", "--ttl", "499ms", "--", "true"], ["500ms"]);
    server.refuses(&["acquire", "--name", "x", "--wait", "5M"], ["5m?"]);
}

#[test]
fn a_bare_number_is_seconds() {
    let redis = Redis::start();
    for (option, number) in [("--ttl", "10"), ("--wait", "0.5"), ("--node-timeout", "1.5"), ("--quarantine", "0")] {
        Test::new(&redis).args(["run", "x", "-q", option, number, "--", "true"]).run();
    }
    let token = redlock(&redis, "acquire x --ttl 90.5").stdout(any()).run().token();
    let busy = || at_last(message(["\"x\" is held by", "gave up after"]));
    let test = redlock(&redis, "acquire x -w 1.2").status(75).stderr(busy());
    assert!(test.run().elapsed >= Duration::from_millis(1_200));
    let test = redlock(&redis, "wait x --timeout 0.9").status(75).stderr(busy());
    assert!(test.run().elapsed >= Duration::from_millis(900));
    let extend = redlock(&redis, format!("extend x --token {token} --ttl 100 --format json"));
    let validity = extend.stdout(any()).run().json()["validity_ms"].as_u64().unwrap();
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
    redlock(&redis, "run x sh -c true").status(64).stderr(message(["redlock run NAME -- COMMAND"])).run();
}

#[test]
fn variables_are_checked_like_their_flags_and_named() {
    let server = Untouched::new();
    for (variable, value) in [("REDLOCK_NODE_TIMEOUT", "5M"), ("REDLOCK_QUARANTINE", "soon")] {
        let test = redlock(server.url().as_str(), "acquire x").env(variable, value);
        test.status(64).stderr(message([variable])).run();
    }
    Test::bare().args(["status", "x"]).env("REDLOCK_REDIS", "http://a").status(64).stderr(message(["http"])).run();
    server.assert();
}

#[test]
fn a_grace_that_does_not_fit_names_the_largest_that_does() {
    let server = Untouched::new();
    // For 1 s: 988 − 100 − 250 − 150 ms.
    let run = ["run", "--name", "x", "--ttl", "1s", "--grace"];
    server.refuses(&[&run[..], &["489ms", "--", "true"]].concat(), ["grace", "488"]);
    server.refuses(&[&run[..], &["1h", "--", "true"]].concat(), ["grace", "488"]);
    let redis = Redis::start();
    Test::new(&redis).args(run).args(["488ms", "-q", "--", "true"]).run();
    Test::new(&redis).args(run).args(["0", "-q", "--", "true"]).run();
}

#[test]
fn tokens() {
    let server = Untouched::new();
    let empty = "empty token: did acquire fail?";
    server.refuses(&["extend", "x", "--token", ""], [empty]);
    server.refuses(&["release", "x", "--token", ""], [empty]);
    server.refuses(&["release", "x", "--token="], [empty]);
    server.refuses(&["release", "x", "--force", "--token", ""], [empty]);
    server.refuses(&["status", "x", "--token", ""], [empty]);
    server.refuses(&["acquire", "--name", "x", "--reentrant", "--token", ""], [empty]);
}

#[test]
fn combinations() {
    let server = Untouched::new();
    server.refuses(&["acquire", "--name", "x", "-E", "0"], ["-E 0"]);
    server.refuses(&["acquire", "--name", "x", "--conflict-exit-code", "0"], ["-E 0"]);
    for number in ["256", "-1", "x", ""] {
        server.refuses(&["acquire", "--name", "x", &format!("--conflict-exit-code={number}")], []);
        server.refuses(&["run", "--name", "x", &format!("--conflict-exit-code={number}"), "--", "true"], []);
    }
    server.refuses(&["release", "x", "--revoke", "--force"], ["--revoke", "--force"]);
    server.refuses(&["extend", "x", "--name", "y", "--token", "t"], ["name"]);
    server.refuses(&["status", "x", "--format", "env"], ["env"]);
    server.refuses(&["status", "x", "--watch", "-q"], ["--watch", "-q"]);
    server.refuses(&["acquire", "--name", "x", "--token", "t"], ["--reentrant"]);
}

#[test]
fn addresses() {
    for url in [
        "http://127.0.0.1",
        "127.0.0.1:6379",
        "redis://127.0.0.1:99999",
        "redis://127.0.0.1:port",
        "redis://127.0.0.1/x",
        "redis://",
        "unix://",
        "/tmp/socket",
        "redis://a,",
    ] {
        Test::bare().args(["status", "x", "--redis", url]).status(64).stderr(message([])).run();
        Test::bare().args(["status", "x"]).env("REDIS_URL", url).status(64).stderr(message([])).run();
    }
    let secret = when("no password", |text| !text.contains("s3cret") && text.starts_with("redlock: "));
    let test = Test::bare().args(["status", "x", "--redis", "redis://user:s3cret@127.0.0.1:port"]);
    test.status(64).stderr(secret).run();
}

#[test]
fn the_same_node_twice() {
    let server = Untouched::new();
    let url = server.url();
    let port = url.rsplit(':').next().unwrap();
    for (first, second) in [
        (url.clone(), url.clone()),
        (url.clone(), format!("{url}/")),
        (url.clone(), format!("{url}/1")),
        (url.clone(), format!("redis://user:pw@127.0.0.1:{port}")),
        ("redis://one".to_owned(), "redis://one:6379".to_owned()),
        ("unix:///run/redis.sock".to_owned(), "unix:///run/redis.sock?db=1".to_owned()),
    ] {
        for arguments in [
            vec!["--redis".to_owned(), first.clone(), "--redis".to_owned(), second.clone()],
            vec!["--redis".to_owned(), format!("{first},{second}")],
        ] {
            let test = Test::bare().args(["acquire", "--name", "x"]).args(&arguments).status(64);
            test.stderr(message(["twice"])).run();
        }
    }
    server.assert();
}

#[test]
fn with_json_a_usage_error_is_an_object_too() {
    let server = Untouched::new();
    let test = redlock(server.url().as_str(), "release x --format json");
    let object = test.status(64).stdout(any()).stderr(message(["missing --token"])).run().json();
    let keys: Vec<&String> = object.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["holder", "message", "name", "outcome", "status"]);
    assert_eq!(object["status"], 64);
    assert!(object["holder"].is_null());
    // So is that of a command line that cannot be understood.
    let test = redlock(server.url().as_str(), "acquire x --format json --ttl 0s").status(64);
    let object = test.stdout(any()).stderr(message(["100ms"])).run().json();
    assert_eq!((&object["outcome"], &object["status"]), (&"usage".into(), &64.into()));
    server.assert();
}

#[test]
fn help_fits_one_screen_and_shows_what_matters() {
    let short = Test::bare().arg("-h").stdout(any()).run().stdout;
    assert!(short.lines().count() <= 24, "{} lines\n{short}", short.lines().count());
    for part in [
        "redlock run backup -- ",
        "--wait 10m",
        "-q -E 0 --wait 2h --once-per 20h --max-run 90m",
        "acquire",
        "status",
        "75",
        "76",
    ] {
        assert!(short.contains(part), "{part} is missing:\n{short}");
    }
    assert!(short.lines().all(|line| line.chars().count() <= 80), "{short}");
    Test::bare().status(64).stderr(short.as_str()).run();
    let long = Test::bare().arg("--help").stdout(any()).run().stdout;
    assert!(long.lines().count() > short.lines().count());
    let run = Test::bare().args(["run", "-h"]).stdout(any()).run().stdout;
    assert!(run.lines().count() <= 24, "{} lines\n{run}", run.lines().count());
    assert!(run.contains(" redlock run --name backup --ttl 30s -- ./job.sh\n"), "{run}");
    // A line that is too long is broken, and leaves a word alone.
    let (_, end) = long.split_once("\nExit status:\n").unwrap();
    assert!(end.lines().all(|line| line.is_empty() || line.contains(' ')), "{end}");
    Test::bare().arg("--version").stdout(format!("redlock {}\n", env!("CARGO_PKG_VERSION"))).run();
}

#[test]
fn every_command_has_its_own_help() {
    for command in ["run", "acquire", "extend", "release", "status", "wait", "completions"] {
        for flag in ["-h", "--help"] {
            let help = Test::bare().args([command, flag]).stdout(any()).run().stdout;
            assert!(help.contains(&format!("redlock {command}")), "{help}");
        }
    }
}

#[test]
fn the_options_of_every_command_are_shown_once() {
    let help = |arguments: &[&str]| Test::bare().args(arguments).stdout(any()).run().stdout;
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
    let shown = |arguments: &[&str]| Test::bare().args(arguments).stdout(any()).run().stdout;
    assert_eq!(shown(&["help"]), shown(&["--help"]));
    assert_eq!(shown(&["help", "run"]), shown(&["run", "--help"]));
    let test = Test::bare().args(["help", "lock"]).status(64);
    test.stderr("redlock: unrecognized subcommand 'lock'; redlock run or redlock acquire?\n").run();
}

#[test]
fn what_was_meant_is_said() {
    let said = |arguments: &[&str], hint: &str| {
        let test = Test::bare().args(arguments).status(64);
        test.stderr(message([hint])).run();
    };
    // A slip of the pen.
    said(&["statsu"], "unrecognized subcommand 'statsu'; redlock -h shows how it is used");
    said(&["stat"], "unrecognized subcommand 'stat'; status?");
    said(&["acquire", "x", "--tll", "5s"], "unexpected argument '--tll' found; redlock acquire -h shows its options");
    // What consul, flock and others call it.
    said(&["lock", "x", "true"], "unrecognized subcommand 'lock'; redlock run or redlock acquire?");
    said(&["unlock", "x"], "unrecognized subcommand 'unlock'; redlock release?");
    said(&["refresh", "x"], "unrecognized subcommand 'refresh'; redlock extend?");
    said(&["list"], "unrecognized subcommand 'list'; redlock status?");
    said(&["acquire", "x", "--timeout", "5s"], "unexpected argument '--timeout' found; run and acquire have --wait");
    said(&["run", "--retry", "5", "x", "--", "true"], "run and acquire have --wait");
    said(&["wait", "x", "--wait", "5s"], "unexpected argument '--wait' found; it is an option of run and acquire");
    said(&["run", "--shell", "true", "x"], "unexpected argument '--shell' found; run has -c");
    said(&["run", "-o", "x", "--", "true"], "unexpected argument '-o' found; a lock is not an open file");
    said(
        &["run", "--no-fork", "x", "--", "true"],
        "unexpected argument '--no-fork' found; redlock stays beside the job",
    );
    said(&["status", "x", "--json"], "--format json?");
    // The short screen has examples.
    said(&["bogus"], "unrecognized subcommand 'bogus'; redlock -h shows how it is used");
    said(&["backup", "--", "./x"], "redlock -h shows");
    said(&["-n", "backup", "echo"], "unexpected argument '-n' found; it is an option of run, acquire and log");
    said(
        &["run", "--frobnicate", "x", "--", "true"],
        "unexpected argument '--frobnicate' found; redlock run -h shows its options",
    );
    // A name and a command without the dashes.
    let dashes = "put -- before the command: redlock run NAME -- COMMAND";
    said(&["run", "-n", "backup", "true"], dashes);
    said(&["run", "backup", "echo hi"], dashes);
    said(&["run", "backup", "-w", "10", "echo", "hi"], dashes);
    said(&["run", "--name", "backup", "true"], dashes);
    said(&["run", "backup"], "missing command: redlock run NAME -- COMMAND");
    said(&["run"], "missing lock name: redlock run NAME -- COMMAND");
    said(&["run", "a", "b", "--", "true"], "unexpected argument 'b' found; redlock run NAME -- COMMAND");
    said(&["run", "a", "--name", "b", "--", "true"], "several locks are written --name A --name B");
    // An optional value that may have swallowed the command or the name.
    said(&["run", "--name", "x", "--wait", "./job.sh"], "--wait -- ./job.sh");
    said(&["acquire", "-w", "backup"], "put the name first");
    said(&["acquire", "--name", "-verbose"], "long options have two dashes: --verbose");
    said(&["acquire", "--name", "x", "--ttl=-5s"], "a duration cannot be negative");
}
