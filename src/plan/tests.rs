//! From a command line, variables and files to a task, or to the line that says why not.

use super::place::DEFAULT_REDIS;
use super::*;
use crate::cli::Parsed;

fn parse(line: &[&str]) -> Parsed {
    cli::parse(["redlock"].iter().chain(line).map(OsString::from))
}

fn planned_in(line: &[&str], variables: &[(&str, &str)]) -> Result<Task, String> {
    match parse(line) {
        Parsed::Cli(cli) => {
            let sources = Sources::of(variables, &[]).expect("no files");
            plan_from(*cli, &sources).map_err(|error| error.to_string())
        }
        Parsed::Wrong(why) => Err(why),
        other => panic!("{other:?}"),
    }
}

/// Words without spaces in them.
fn planned(line: &str) -> Result<Task, String> {
    planned_in(&line.split(' ').collect::<Vec<_>>(), &[])
}

fn refused(line: &str) -> String {
    planned(line).expect_err(line)
}

fn run_in(line: &str, variables: &[(&str, &str)]) -> supervise::Plan {
    match planned_in(&line.split(' ').collect::<Vec<_>>(), variables) {
        Ok(Task::Run(plan)) => *plan,
        other => panic!("{line}: {other:?}"),
    }
}

fn run_of(line: &str) -> supervise::Plan {
    run_in(line, &[])
}

fn settings_of(line: &str, variables: &[(&str, &str)]) -> Settings {
    run_in(&format!("{line} run --name x true"), variables).settings
}

#[test]
fn durations() {
    let is = |text, time| assert_eq!(cli::duration(text), Ok(time), "{text}");
    is("0", Duration::ZERO);
    is("0s", Duration::ZERO);
    is(" 500ms ", Duration::from_millis(500));
    is("1m 30s", Duration::from_secs(90));
    is("1.5s", Duration::from_millis(1500));
    is("2weeks", Duration::from_secs(14 * 86_400));
    let is = |text, why: &str| assert_eq!(cli::duration(text), Err(why.to_owned()), "{text}");
    is("30", "a number needs a unit: 30s?");
    is("1.5", "a number needs a unit: 1.5s?");
    is("1m 30", "a unit is missing: 30s?");
    is("5M", "5M is five months; 5m?");
    is("1M", "1M is one month; 1m?");
    is("1h 40M", "1h 40M: M is months; m?");
    is("1y", "1y: months and years differ in length; say it in days, like 30d");
    is("2 months", "2 months: months and years differ in length; say it in days, like 30d");
    is("", "empty; a duration is written 500ms, 30s or 1m 30s");
    is("3 parsecs", "no unit \"parsecs\"; there are ms, s, m, h, d and w");
    is("99999999999999999999s", "too long");
    is("18446744073709551615s 1000ms", "too long");
    is("0.00000000001s", "too long, or too fine");
    for bad in [
        "-5s",
        "s",
        "5 5",
        "1e3s",
        "٣s",
        "5s,",
        "\u{0}",
        "nan",
        "5µ",
        ".5s",
        "5.s",
        "999999999999w 999999999999w 99999999999d",
    ] {
        let _ = cli::duration(bad);
    }
}

#[test]
fn the_command_begins_where_the_flags_end() {
    let command = |line| {
        run_of(line).command.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(command("run --name x cmd -v --name y"), "cmd -v --name y");
    assert_eq!(command("run --name x -- cmd -- -q"), "cmd -- -q");
    assert_eq!(command("run --name x cmd -- -q"), "cmd -- -q");
    assert_eq!(command("run --wait --name x -- cmd --ttl"), "cmd --ttl");
    assert_eq!(command("run --name x --wait 5m cmd 5m"), "cmd 5m");
    assert_eq!(command("run --name x --wait -q cmd"), "cmd");
    assert_eq!(refused("run --name x"), "the following required arguments were not provided: COMMAND");
    assert_eq!(refused("run --nam x y"), "unexpected argument '--nam' found; a similar argument exists: '--name'");
    assert!(
        refused("run --name x --wait ./job.sh").ends_with("if it is the command, put -- before it: --wait -- ./job.sh")
    );
    assert_eq!(planned_in(&["run", "--name", "x", ""], &[]).map(|_| ()), Err("the command is empty".to_owned()));
}

#[test]
fn waits() {
    let wait = |line| run_of(line).request.wait;
    assert_eq!(wait("run --name x true"), Wait::No);
    assert_eq!(wait("run --name x --wait -- true"), Wait::Forever);
    assert_eq!(wait("run --name x --wait 5m true"), Wait::For(Duration::from_secs(300)));
    assert_eq!(wait("run --name x --wait=0 true"), Wait::No);
    assert_eq!(wait("run --name x --wait 0s true"), Wait::No);
}

#[test]
fn options_of_every_command_go_before_and_after_its_name() {
    let settings = settings_of("--redis redis://a --prefix p: --redis redis://b,redis://c", &[]);
    assert_eq!((settings.urls.join(" ").as_str(), settings.prefix.as_str()), ("redis://a redis://b redis://c", "p:"));
    let both = run_of("-q --redis redis://a --prefix p: run --redis redis://b --prefix q: --name x true");
    assert_eq!((both.settings.urls.join(" ").as_str(), both.settings.prefix.as_str()), ("redis://a redis://b", "q:"));
    assert!(both.quiet && !both.verbose);
    assert_eq!(refused("-q status -v"), "--quiet and --verbose contradict each other");
    assert!(run_of("run -vvv --name x true").verbose);
}

#[test]
fn a_flag_replaces_its_variable_and_an_empty_variable_is_unset() {
    let urls = |line, variables: &[(&str, &str)]| settings_of(line, variables).urls.join(" ");
    let (ours, apps) = (("REDLOCK_REDIS", "redis://a,redis://b"), ("REDIS_URL", "redis://c"));
    assert_eq!(urls("--redis redis://d", &[ours, apps]), "redis://d");
    assert_eq!(urls("-q", &[ours, apps]), "redis://a redis://b");
    assert_eq!(urls("-q", &[("REDLOCK_REDIS", ""), apps]), "redis://c");
    assert_eq!(urls("-q", &[("REDIS_URL", "")]), DEFAULT_REDIS);
    let prefix = |variables: &[(&str, &str)]| settings_of("-q", variables).prefix;
    assert_eq!(prefix(&[]), "redlock:");
    assert_eq!(prefix(&[("REDLOCK_PREFIX", "")]), "");
    let timeout = |line, value| settings_of(line, &[("REDLOCK_NODE_TIMEOUT", value)]).node_timeout;
    assert_eq!(timeout("-q", "2s"), Some(Duration::from_secs(2)));
    assert_eq!(timeout("--node-timeout 3s", "nonsense"), Some(Duration::from_secs(3)));
    assert_eq!(timeout("-q", ""), None);
    let bad = planned_in(&["run", "--name", "x", "true"], &[("REDLOCK_QUARANTINE", "30")]);
    assert_eq!(bad.map(|_| ()), Err("in REDLOCK_QUARANTINE: a number needs a unit: 30s?".to_owned()));
}

#[test]
fn nodes_are_checked() {
    assert_eq!(
        refused("--redis redis://h status --redis redis://H:6379/1"),
        "in --redis: the node h:6379 is given twice, and may have one vote only"
    );
    assert_eq!(
        refused("--redis rediss://h status"),
        "in --redis: rediss:// is not supported yet; redis:// and unix:// are"
    );
    let empty = planned_in(&["status", "--redis", ""], &[]).expect_err("empty");
    assert_eq!(empty, "in --redis: empty Redis URL; one looks like redis://127.0.0.1:6379");
}

#[test]
fn names_and_keys() {
    let of = |name: &str, prefix: &str| planned_in(&["status", "--prefix", prefix, "--name", name], &[]).map(|_| ());
    for (name, prefix) in
        [("x", ""), ("ü ö", "p"), ("a{b}c", ""), ("{", "x"), ("{{}", ""), ("x", "{tag}:"), ("a}b{c}", "{p}")]
    {
        assert_eq!(of(name, prefix), Ok(()), "{prefix:?} {name:?}");
    }
    for (name, prefix) in [("a}", ""), ("{}x", ""), ("}{a", ""), ("{}{a}", ""), ("x", "{}"), ("x", "\t")] {
        assert!(of(name, prefix).is_err(), "{prefix:?} {name:?}");
    }
    assert_eq!(of("", "p"), Err("empty name".to_owned()));
    assert_eq!(of(&"x".repeat(512), "p"), Ok(()));
    assert_eq!(of(&"x".repeat(513), "p"), Err("the name is 513 bytes long, and 512 are the most".to_owned()));
    assert_eq!(of("a\nb", ""), Err("the name \"a\\nb\" has a control character in it".to_owned()));
    assert_eq!(refused("wait a --name b"), "two names, \"b\" and \"a\"; one lock at a time");
    assert!(planned("wait a --name a").is_ok());
    assert_eq!(refused("wait"), "which lock? the name is missing");
}

#[test]
fn leases_and_graces() {
    assert_eq!(run_of("run --name x true").request.ttl, Duration::from_secs(30));
    assert_eq!(refused("run --name x --ttl 499ms true"), "--ttl: 500ms is the shortest");
    assert_eq!(refused("acquire --name x --ttl 0s"), "--ttl: 100ms is the shortest");
    assert!(planned("acquire --name x --ttl 100ms").is_ok());
    assert!(planned("extend x --token t --ttl 30d").is_ok());
    assert_eq!(refused("extend x --token t --ttl 31d"), "--ttl: 30 days is the longest");
    assert!(planned("run --name x --grace 14s true").is_ok());
    assert_eq!(
        refused("run --name x --grace 15s true"),
        "--grace does not fit into a ttl of 30s beside three tries to renew it; 14s 198ms is the largest"
    );
    for ttl in [500, 700, 1000, 2500, 30_000, 600_000, 2_592_000_000] {
        let ttl = Duration::from_millis(ttl);
        let usual = (ttl / 4).min(Duration::from_secs(10));
        assert!(
            usual <= crate::supervise::timeline::largest_grace(ttl),
            "{ttl:?}: {:?}",
            crate::supervise::timeline::largest_grace(ttl)
        );
    }
}

#[test]
fn limits_of_run() {
    let plan = run_of("run --name x --kill-after 0 --max-run 0s --hold-at-least 0 --on-lost continue --whole true");
    assert_eq!((plan.kill_after, plan.max_run, plan.hold_at_least), (None, None, None));
    assert!(plan.continue_when_lost && plan.whole && plan.grace.is_none());
    let plan = run_of("run --name x --kill-after 1s --max-run 2s --hold-at-least 3s true");
    assert_eq!(
        [plan.kill_after, plan.max_run, plan.hold_at_least],
        [1, 2, 3].map(|seconds| Some(Duration::from_secs(seconds)))
    );
}

#[test]
fn acquire_has_limits_of_its_own() {
    assert!(refused("acquire --name x -E 0").starts_with("-E 0 with acquire"));
    assert!(planned("acquire --name x -E 1").is_ok());
    assert!(planned("run --name x -E 0 true").is_ok());
    assert_eq!(
        refused("acquire --name x --token t"),
        "--token goes with --reentrant: it is the lease to enter once more"
    );
    assert!(planned("acquire --name x --format env").is_ok());
    assert_eq!(refused("status --format env"), "--format env goes with acquire only; there are text and json");
    assert_eq!(refused("status --label l"), "--label goes with run and acquire only");
}

#[test]
fn an_empty_token_is_refused_anywhere() {
    for line in ["extend x", "release x", "release x --force", "status x", "acquire --name x --reentrant"] {
        let words: Vec<_> = line.split(' ').chain(["--token", ""]).collect();
        assert_eq!(planned_in(&words, &[]).map(|_| ()), Err("empty token: did acquire fail?".to_owned()), "{line}");
    }
}

#[test]
fn name_and_token_of_the_job_around_us_are_a_pair() {
    let job = [("REDLOCK_NAME", "n"), ("REDLOCK_TOKEN", "t")];
    let extend =
        |line: &str, variables: &[(&str, &str)]| match planned_in(&line.split(' ').collect::<Vec<_>>(), variables) {
            Ok(Task::Extend(extend)) => Ok(format!("{} {}", extend.name, extend.token)),
            Ok(other) => panic!("{other:?}"),
            Err(why) => Err(why),
        };
    assert_eq!(extend("extend", &job), Ok("n t".to_owned()));
    assert_eq!(extend("renew --name n", &job), Ok("n t".to_owned()));
    assert_eq!(extend("extend n --token u", &job), Ok("n u".to_owned()));
    assert_eq!(extend("extend m", &job), Err("which lease? --token is missing".to_owned()));
    assert_eq!(extend("extend --token u", &job), Err("which lock? the name is missing".to_owned()));
    assert_eq!(extend("extend", &job[..1]), Err("which lock? the name is missing".to_owned()));
    assert_eq!(extend("extend n", &[job[0], ("REDLOCK_TOKEN", "")]), Err("which lease? --token is missing".to_owned()));
    let how = |line: &str, variables: &[(&str, &str)]| match planned_in(&line.split(' ').collect::<Vec<_>>(), variables)
    {
        Ok(Task::Release(release)) => release.how,
        other => panic!("{other:?}"),
    };
    assert_eq!(how("release", &job), How::Token("t".to_owned()));
    assert_eq!(how("release m --force", &job), How::Force(None));
    assert_eq!(how("release m --revoke --token 3f2a9c01", &job), How::Revoke(Some("3f2a9c01".to_owned())));
    assert_eq!(refused("release x --revoke --force"), "the argument '--revoke' cannot be used with '--force'");
    assert!(refused("release x").starts_with("which lease?"));
    assert_eq!(
        planned_in(&["status", "--exit-code"], &job).map(|_| ()),
        Err("--token, --exit-code and -q ask about one lock; the name is missing".to_owned())
    );
}

#[test]
fn status_is_asked_about_one_lock_once() {
    let of = |line| match planned(line) {
        Ok(Task::Status(status)) => (status.name, status.exit_code, status.watch),
        other => panic!("{other:?}"),
    };
    assert_eq!(of("status"), (None, false, None));
    assert_eq!(of("status x -q"), (Some("x".to_owned()), true, None));
    assert_eq!(of("status x --watch"), (Some("x".to_owned()), false, Some(Duration::from_secs(2))));
    assert_eq!(of("status --watch 1s x").2, Some(Duration::from_secs(1)));
    assert!(refused("status --watch x").ends_with("if it is the name, put it before --watch"));
    assert_eq!(refused("status --watch 0 x"), "--watch: 100ms is the shortest");
    assert!(refused("status x --watch --exit-code").starts_with("--watch goes on for ever"));
}

#[test]
fn an_end_by_force_takes_as_much_of_a_token_as_is_shown() {
    for how in ["--force", "--revoke"] {
        assert_eq!(
            refused(&format!("release x {how} --token 3f2a9c0")),
            "--token is too short to say whose lease is meant: it takes the eight characters that status shows"
        );
        assert!(planned(&format!("release x {how} --token 3f2a9c01")).is_ok());
    }
    assert!(planned("release x --token t").is_ok());
}

#[test]
fn a_quarantine_covers_the_longest_lease_and_no_more() {
    assert!(planned("status --quarantine 30d").is_ok());
    let longest = "the quarantine is 30 days at most";
    assert_eq!(refused("status --quarantine 31d"), longest);
    let variable = planned_in(&["status"], &[("REDLOCK_QUARANTINE", "31d")]);
    assert_eq!(variable.map(|_| ()), Err(longest.to_owned()));
}

#[test]
fn a_users_file_that_we_may_not_read_matters_where_it_may_say_which_redis() {
    let planned = |line: &[&str], variables: &[(&str, &str)]| {
        let Parsed::Cli(cli) = parse(line) else { panic!("{line:?}") };
        let sources = Sources::of(variables, &[("/etc/redlock.conf", "REDLOCK_LABEL=l")]);
        let sources = sources.expect("fine").kept_from_us("cannot read it");
        plan_from(*cli, &sources).map(|_| ()).map_err(|error| error.to_string())
    };
    let no = Err("cannot read it".to_owned());
    assert_eq!(planned(&["status"], &[]), no);
    assert_eq!(planned(&["status"], &[("REDIS_URL", "redis://a")]), no);
    assert_eq!(planned(&["status"], &[("REDLOCK_REDIS", "redis://a")]), Ok(()));
    assert_eq!(planned(&["status", "--redis", "redis://a"], &[]), Ok(()));
}

#[test]
fn leases_to_enter() {
    let job = [("REDLOCK_HELD", "a b"), ("REDLOCK_TOKEN", "c")];
    let asked = |request: Request| (request.reenter, request.ancestors.join(" "));
    let with = |tokens: &str, reenter| (reenter, tokens.to_owned());
    let plain = run_in("run --name x true", &job).request;
    assert_eq!(asked(plain), with("a b c", Reenter::No));
    let inside = run_in("run --name x --reentrant true", &job).request;
    assert_eq!(asked(inside), with("a b c", Reenter::IfHeld));
    let given = run_in("run --name x --reentrant --token t true", &job).request;
    assert_eq!(asked(given), with("t", Reenter::Must));
    let outside = run_of("run --name x --reentrant true").request;
    assert_eq!(asked(outside), with("", Reenter::IfHeld));
}

#[test]
fn labels() {
    assert_eq!(run_of("run --name x /usr/bin/pg_dump --password=secret").request.label, "pg_dump");
    assert_eq!(run_in("run --name x a", &[("REDLOCK_LABEL", "l")]).request.label, "l");
    assert_eq!(run_in("run --name x --label m a", &[("REDLOCK_LABEL", "l")]).request.label, "m");
    assert_eq!(run_of(&format!("run --name x {}", "ü".repeat(200))).request.label, "ü".repeat(128));
    assert_eq!(
        planned_in(&["run", "--name", "x", "--label", "\u{1b}[2J", "a"], &[]).map(|_| ()),
        Err("the label has a control character in it".to_owned())
    );
}

#[test]
fn the_job_is_told_where_but_no_password() {
    let of = |line, variables: &[(&str, &str)]| {
        let plan = run_in(line, variables);
        plan.environment.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    assert_eq!(of("run --name x true", &[]), ["REDLOCK_PREFIX=redlock:", "REDLOCK_REDIS=redis://127.0.0.1:6379"]);
    let flags = "run --redis redis://u:s@h --redis unix:///s --node-timeout 1s --quarantine 0 --name x true";
    assert_eq!(
        of(flags, &[("REDLOCK_HELD", "t")]),
        [
            "REDLOCK_PREFIX=redlock:",
            "REDLOCK_REDIS=redis://u@h,unix:///s",
            "REDLOCK_NODE_TIMEOUT=1s",
            "REDLOCK_QUARANTINE=0s",
            "REDLOCK_HELD=t",
        ]
    );
    assert_eq!(
        of("run --name x true", &[("REDLOCK_REDIS", "redis://:s@h")]),
        ["REDLOCK_PREFIX=redlock:", "REDLOCK_REDIS=redis://h"]
    );
    // The application's own variable stays as it is, and is found again.
    assert_eq!(of("run --name x true", &[("REDIS_URL", "redis://:s@h")]), ["REDLOCK_PREFIX=redlock:"]);
    let password = run_in("run --name x true", &[("REDLOCK_PASSWORD", "s")]);
    assert_eq!(password.settings.password.as_deref(), Some("s"));
    assert!(password.environment.iter().all(|(_, value)| value != "s"));
}

#[test]
fn passwords_come_from_files() {
    let path = std::env::temp_dir().join(format!("redlock-password-{}", std::process::id()));
    std::fs::write(&path, "s3 cret \r\nrest\n").expect("a temporary directory");
    let text = path.to_str().expect("UTF-8");
    let plan = run_in(&format!("run --password-file {text} --name x true"), &[("REDLOCK_PASSWORD", "other")]);
    assert_eq!(plan.settings.password.as_deref(), Some("s3 cret "));
    assert!(plan.environment.contains(&("REDLOCK_PASSWORD_FILE".to_owned(), text.to_owned())));
    let plan = run_in("run --name x true", &[("REDLOCK_PASSWORD_FILE", text), ("REDLOCK_PASSWORD", "other")]);
    assert_eq!(plan.settings.password.as_deref(), Some("s3 cret "));
    std::fs::write(&path, "\n").expect("a temporary directory");
    assert!(refused(&format!("status --password-file {text}")).ends_with("its first line is empty"));
    std::fs::remove_file(&path).expect("it is ours");
    assert!(refused(&format!("status --password-file {text}")).ends_with(": no such file or directory"));
    assert!(refused("status --password-file /dev/zero").ends_with("too long"));
}

#[test]
fn what_cannot_be_understood_is_one_line() {
    let lines = [
        "bogus",
        "run",
        "run -x",
        "status a b",
        "--format xml status",
        "completions foo",
        "extend --ttl",
        "-q",
        "acquire --name",
    ];
    for line in lines {
        let why = refused(line);
        assert!(!why.contains('\n') && !why.contains("Usage:") && !why.contains("  "), "{why}");
    }
    assert!(matches!(cli::parse(["redlock".into()]), Parsed::Bare(_)));
    assert!(matches!(parse(&["-h"]), Parsed::Show(_)));
    assert!(matches!(parse(&["run", "--help"]), Parsed::Show(_)));
    let json = |line: &str| cli::wants("json", &line.split(' ').map(OsString::from).collect::<Vec<_>>());
    assert!(json("redlock acquire --format json --ttl 30") && json("redlock --format=json bogus"));
    assert!(
        !json("redlock run --format json") && !json("redlock acquire") && !json("redlock acquire -- --format json")
    );
}

#[test]
fn the_short_screen_is_one_screen() {
    for line in [&["-h"][..], &["run", "-h"]] {
        let Parsed::Show(text) = parse(line) else { panic!("no help") };
        assert!(text.lines().count() <= 24, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
