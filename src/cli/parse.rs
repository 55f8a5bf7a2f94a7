//! Parses a command line: brings alternative spellings into one form, and refuses combinations that make no sense. An
//! error is one line.

use crate::cli::hints::{NO_DASHES, complaint, lacks, sets_apart};
use crate::cli::values::SHORTEST_TTL_OF_RUN;
use crate::cli::{self, AcquireArgs, Cli, Command, Common, Format, LeaseArgs, RunArgs, StatusArgs};
use crate::text::{SHOWN_OF_TOKEN, exact, shell_word};
use clap::error::ErrorKind;
use clap::parser::ValueSource::CommandLine;
use clap::{ArgMatches, FromArgMatches};
use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

/// Why a command line makes no call.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The text of `--help` or `--version`, for standard output; a success.
    Show(String),
    /// The short screen for a call without arguments, for standard error.
    Bare(String),
    /// An error, in one line.
    Wrong(String),
}

/// Parses a command line, program name first.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, Refusal> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    // `help X` becomes `X --help`: clap's own `help` command would add a line to the short help.
    if arguments.get(1).is_some_and(|first| first == "help") {
        arguments.remove(1);
        arguments.push("--help".into());
    }
    let mut cli = read(&arguments).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion if !arguments.iter().any(sets_apart) => {
            Refusal::Show(error.render().to_string())
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Refusal::Bare(error.render().to_string()),
        _ => Refusal::Wrong(moved(&arguments).unwrap_or_else(|| complaint(&error, &arguments))),
    })?;
    normalize(&mut cli).and_then(|()| check(&cli)).map_err(Refusal::Wrong)?;
    Ok(cli)
}

fn read(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let mut matches = cli::command().try_get_matches_from(arguments)?;
    if let Some((name, matches)) = matches.subcommand() {
        check_format(name, matches)?;
    }
    Cli::from_arg_matches_mut(&mut matches)
}

fn check_format(command: &str, matches: &ArgMatches) -> Result<(), clap::Error> {
    let given = matches.get_one::<Format>("format").filter(|_| matches.value_source("format") == Some(CommandLine));
    match given {
        Some(format) if !cli::formats(command).contains(format) => {
            Err(clap::Error::raw(ErrorKind::ArgumentConflict, lacks(command, &format.word())))
        }
        _ => Ok(()),
    }
}

fn normalize(cli: &mut Cli) -> Result<(), String> {
    match &mut cli.command {
        Command::Run(args) => {
            find_names(args)?;
            if let Some(line) = &args.line {
                args.command = ["/bin/sh".into(), "-c".into(), line.clone()].into();
            }
            // Zero switches a limit off, as with timeout(1).
            for limit in [&mut args.kill_after, &mut args.max_run, &mut args.once_per] {
                *limit = limit.filter(|limit| !limit.is_zero());
            }
            // cron mails whatever a job prints.
            cli.common.quiet |= args.once_per.is_some() && !cli.common.verbose && !stderr().is_terminal();
        }
        Command::Acquire(args) => args.taking.names.extend(args.plain.take()),
        Command::Status(args) => args.locks.gather(),
        Command::Log(args) => args.locks.gather(),
        Command::Check(args) => args.locks.gather(),
        _ => {}
    }
    Ok(())
}

/// Finds the names of `run`, and sorts them by their bytes: all calls take several locks in that order, so no two calls
/// each hold a lock that the other waits for.
fn find_names(args: &mut RunArgs) -> Result<(), String> {
    let names = &mut args.taking.names;
    let has_both = args.plain.is_some() && !names.is_empty();
    let has_command = args.line.is_some() || !args.command.is_empty();
    refuse(has_both && !has_command, NO_DASHES)?;
    refuse(has_both, "several locks are written --name A --name B")?;
    names.extend(args.plain.take());
    refuse(names.is_empty(), "missing lock name: redlock run NAME -- COMMAND")?;
    refuse(!has_command, "missing command: redlock run NAME -- COMMAND")?;
    names.sort();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("--name {} is given twice", pair[0])),
        None => Ok(()),
    }
}

/// Refuses combinations that the command line alone shows to be wrong, apart from those that clap refuses.
fn check(cli: &Cli) -> Result<(), String> {
    let Common { quiet, verbose, label, log, .. } = &cli.common;
    refuse(*quiet && *verbose, "--quiet and --verbose contradict each other")?;
    let takes = cli.taking().is_some();
    refuse((label.is_some() || log.is_some()) && !takes, "--label and --log are for run and acquire only")?;
    match &cli.command {
        Command::Run(args) => check_run(args),
        Command::Acquire(args) => check_acquire(args),
        Command::Release(args) => refuse(args.force && is_too_short(args.token.as_deref()), TOO_SHORT),
        Command::Stop(args) => {
            refuse(args.lock.name().is_none(), "missing lock name: redlock stop NAME")?;
            let (token, closes) = (args.token.as_deref(), args.closes);
            refuse(token != Some("all") && is_too_short(token), TOO_SHORT)?;
            refuse(
                token.is_some() && closes == Some(Duration::ZERO),
                "--for 0 opens the lock, and stops nobody; leave out --token",
            )
        }
        Command::Status(args) => check_status(args, &cli.common),
        Command::Log(args) => refuse(
            matches!(cli.common.format, Format::Chart | Format::Html) && (args.lines.is_some() || args.failed),
            "a picture needs all runs, or a gap could hide one; leave out -n and --failed",
        ),
        Command::Check(args) => {
            let is_bare = args.within.is_some() && args.locks.names.is_empty();
            refuse(is_bare, "--within is for locks that are named: redlock check NAME --within D")
        }
        Command::Wait(args) => refuse(args.lock.name().is_none(), "missing lock name: redlock wait NAME"),
        _ => Ok(()),
    }
}

const TOO_SHORT: &str =
    "--token is too short to tell whose lease is meant; give the eight characters that status shows";

fn is_too_short(token: Option<&str>) -> bool {
    token.is_some_and(|token| token.chars().count() < SHOWN_OF_TOKEN)
}

fn refuse(wrong: bool, why: &str) -> Result<(), String> {
    if wrong { Err(why.to_owned()) } else { Ok(()) }
}

fn check_run(args: &RunArgs) -> Result<(), String> {
    let LeaseArgs { names, ttl, reentrant, slots, newest, .. } = &args.taking;
    refuse(*ttl < SHORTEST_TTL_OF_RUN, "--ttl: the shortest for run is 500ms")?;
    let is_of_one = *reentrant || slots.is_some() || args.once_per.is_some() || newest.is_some();
    let why = "--reentrant, --slots, --once-per and --newest are for one lock, not for several";
    refuse(names.len() > 1 && is_of_one, why)?;
    let why = "--tries counts the runs of a period; add it, as in --once-per day --tries 3";
    refuse(args.tries.is_some() && args.once_per.is_none(), why)?;
    let why = "--due is for --once-per, and at least its period, as in --once-per day --due 3d";
    refuse(args.due.is_some_and(|due| args.once_per.is_none_or(|period| due < period)), why)?;
    check_wait(args.once_per, args.wait)
}

/// Refuses a wait that would go on when the next call is nearer than this one.
fn check_wait(period: Option<Duration>, wait: Option<Duration>) -> Result<(), String> {
    let (Some(period), Some(wait)) = (period, wait.filter(|wait| *wait < Duration::MAX)) else { return Ok(()) };
    let (longest, given) = (exact(period / 2), exact(wait));
    refuse(wait > period / 2, &format!("--wait {given} is more than half the period of --once-per; at most {longest}"))
}

fn check_acquire(args: &AcquireArgs) -> Result<(), String> {
    let LeaseArgs { names, ttl, conflict_exit_code, .. } = &args.taking;
    refuse(names.is_empty(), "missing lock name: redlock acquire NAME")?;
    refuse(names.len() > 1, "acquire takes one lock; redlock run can hold several")?;
    let is_zero = *conflict_exit_code == Some(0);
    refuse(is_zero, "-E 0 would let a script go on without the lock; it is for run only")?;
    let is_short = args.while_pid.is_some() && *ttl < SHORTEST_TTL_OF_RUN;
    refuse(is_short, "--ttl: the shortest with --while-pid is 500ms")
}

fn check_status(args: &StatusArgs, common: &Common) -> Result<(), String> {
    let is_about_one = args.locks.one().is_some();
    refuse(args.hosts && !is_about_one, "--hosts lists the hosts of one lock; give its name")?;
    let answers = args.token.is_some() || common.quiet;
    refuse(answers && !is_about_one, "--token and -q ask about one lock; give its name")?;
    refuse(common.quiet && args.watch.is_some(), "--watch never ends, so it gives no status; leave out -q")?;
    refuse(
        common.format == Format::Prometheus && (args.watch.is_some() || args.hosts),
        "--format prometheus prints metrics once; leave out --watch and --hosts",
    )
}

/// The new line of a call of `status` with options that `check` has now, or -q; None for another call.
fn moved(arguments: &[OsString]) -> Option<String> {
    let words = asked(arguments);
    let at = words.iter().position(|word| word == "status").filter(|_| command(&words) == Some("status"))?;
    let line = words.join(" ").replace("--format=", "--format ");
    let old = ["--ran-within", "--min-hosts", "--format nagios", "--exit-code"];
    let old = old.into_iter().find(|old| line.contains(old))?;
    let is_status = old == "--exit-code";
    let new = words.iter().enumerate().skip(1).filter_map(|(place, word)| match &**word {
        "status" if place == at && !is_status => Some("check".to_owned()),
        "--exit-code" if is_status => Some("-q".to_owned()),
        "--exit-code" | "-a" | "--all" | "--hosts" if !is_status => None,
        word => Some(shell_word(&word.replacen("--ran-within", "--within", 1))),
    });
    let new = new.collect::<Vec<_>>().join(" ");
    Some(format!("status has no {old} any more: redlock {new}"))
}

/// The words of a call, without a command behind `--`.
fn asked(arguments: &[OsString]) -> Vec<Cow<'_, str>> {
    arguments.iter().take_while(|word| *word != "--").map(|word| word.to_string_lossy()).collect()
}

fn command<'a>(words: &'a [Cow<'_, str>]) -> Option<&'a str> {
    let redlock = cli::command();
    words.iter().skip(1).map(AsRef::as_ref).find(|word| redlock.find_subcommand(word).is_some())
}

/// The format that an unparsable command line asks for: the reader expects even the error in that format.
pub(crate) fn format_asked(arguments: &[OsString]) -> Format {
    let words = asked(arguments);
    let line = words.join("=");
    let is_asked = |format: &&Format| line.contains(&format!("--format={}", format.word()));
    cli::formats(command(&words).unwrap_or_default()).iter().find(is_asked).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::RunArgs;
    use std::time::Duration;

    fn parsed(line: &str) -> Result<Cli, Refusal> {
        parse(["redlock"].into_iter().chain(line.split(' ')).map(OsString::from))
    }

    fn cli(line: &str) -> Cli {
        parsed(line).unwrap_or_else(|refusal| panic!("{line}: {refusal:?}"))
    }

    fn run(line: &str) -> Box<RunArgs> {
        match cli(line).command {
            Command::Run(args) => args,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn refused(line: &str) -> String {
        match parsed(line) {
            Err(Refusal::Wrong(why)) => why,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_command_begins_where_the_flags_end() {
        let of = |line| {
            let run = run(line);
            let RunArgs { taking, command, .. } = &*run;
            let words = command.iter().map(|word| word.to_string_lossy().into_owned());
            (taking.names.join("+"), words.collect::<Vec<_>>().join(" "))
        };
        let is = |name: &str, command: &str| (name.to_owned(), command.to_owned());
        assert_eq!(of("run --name x -- cmd -v --name y"), is("x", "cmd -v --name y"));
        assert_eq!(of("run --name x -- cmd -- -q"), is("x", "cmd -- -q"));
        assert_eq!(of("run --name x --wait -q -- cmd"), is("x", "cmd"));
        assert_eq!(of("run --name y --name=x -- cmd"), is("x+y", "cmd"));
        assert_eq!(of("-q run x -- cmd -- -q"), is("x", "cmd -- -q"));
        assert_eq!(of("run x -- cmd --name y"), is("x", "cmd --name y"));
        assert_eq!(of("run x --wait 5m --redis redis://a -- cmd"), is("x", "cmd"));
        assert_eq!(of("run x -c ls --"), is("x", "/bin/sh -c ls"));
        assert_eq!(of("run -n -c ls --name x"), is("x", "/bin/sh -c ls"));
        assert_eq!(of("run x -c ls"), is("x", "/bin/sh -c ls"));
        assert_eq!(of("run -c ls x"), is("x", "/bin/sh -c ls"));
        assert_eq!(of("run x --wait 5 -cls -q"), is("x", "/bin/sh -c ls"));
        assert_eq!(of("run -c ls x --ttl 5"), is("x", "/bin/sh -c ls"));
        for line in ["run x cmd a", "run x -w 10 cmd a", "run -n x cmd a", "run --name x cmd", "run --name x cmd a"] {
            assert_eq!(refused(line), NO_DASHES, "{line}");
        }
        for line in ["run x y -- cmd", "run x cmd -c ls", "run x -c ls cmd"] {
            let why = refused(line);
            assert!(
                why.starts_with("unexpected argument '") && why.ends_with("; redlock run NAME -- COMMAND [ARG]..."),
                "{why}"
            );
        }
        for line in ["run x --name y -- z", "run --name x -c ls cmd"] {
            assert_eq!(refused(line), "several locks are written --name A --name B", "{line}");
        }
        assert!(refused("run x -c ls -- y").contains("cannot be used with"));
        for line in ["run x", "run x --", "run x -n", "run --name x", "run --name=x --"] {
            assert_eq!(refused(line), "missing command: redlock run NAME -- COMMAND", "{line}");
        }
        for line in ["run", "run -n", "run -- cmd", "run -- x -- cmd", "run -- x -c ls", "run -c ls"] {
            assert_eq!(refused(line), "missing lock name: redlock run NAME -- COMMAND", "{line}");
        }
        assert!(refused("run --wait ./job.sh").ends_with("to wait forever: NAME --wait [-- COMMAND]"));
    }

    #[test]
    fn waits_and_limits() {
        assert_eq!(run("run x -- true").wait, None);
        assert_eq!(run("run --name x --wait -- true").wait, Some(Duration::MAX));
        assert_eq!(run("run -w 5m x -- true").wait, Some(Duration::from_secs(300)));
        assert_eq!(run("run x --wait=0 -- true").wait, Some(Duration::ZERO));
        assert!(refused("run x -n --wait -- true").contains("cannot be used with"));
        for line in ["run x -n --nb --nonblock -- true", "run -x -e --exclusive -x x -- true"] {
            assert_eq!(run(line).wait, None, "{line}");
        }
        let run = run("run x --kill-after 0 --max-run 0s --ttl 500ms -- true");
        assert_eq!((run.kill_after, run.max_run, run.signal), (None, None, 15));
        assert_eq!(refused("run x --ttl 499ms -- true"), "--ttl: the shortest for run is 500ms");
    }

    #[test]
    fn a_period_is_a_word_or_a_duration_and_half_of_it_is_the_longest_wait() {
        let once_per = |line: &str| run(&format!("run x {line} -- true")).once_per();
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        for (word, period) in [("hour", 1), ("day", 24), ("week", 168), ("month", 720), ("20h", 20), ("100d", 2400)] {
            let once = once_per(&format!("--once-per {word}")).expect("it is given");
            assert_eq!((once.period, once.wait, once.tries), (hours(period), None, None), "{word}");
        }
        assert_eq!(once_per("--once-per 0"), None);
        let wait = |line: &str| once_per(&format!("--once-per day {line}")).expect("it is given").wait;
        assert_eq!(["--wait", "--wait 12h"].map(wait), [Some(hours(12)); 2]);
        assert_eq!(["--wait 0", "-n"].map(wait), [Some(hours(0)); 2]);
        for line in ["999ms", "101d", "fortnight", "-1d", "1M", "days", "Day"] {
            let why = refused(&format!("run x --once-per {line} -- true"));
            assert!(why.contains("hour, day, week, month, or a duration from 1s to 100d") || line == "-1d", "{why}");
        }
        for (line, why) in [
            ("--once-per day --wait 12h1s", "--wait 12h 1s is more than half the period of --once-per; at most 12h"),
            ("--tries 3", "--tries counts the runs of a period; add it, as in --once-per day --tries 3"),
            ("--once-per 0 --tries 3", "--tries counts the runs of a period; add it, as in --once-per day --tries 3"),
        ] {
            assert_eq!(refused(&format!("run x {line} -- true")), why);
        }
        for line in ["0", "101", "-1", "x", "1.5"] {
            refused(&format!("run x --once-per day --tries {line} -- true"));
        }
    }

    #[test]
    fn the_default_ttl_is_that_of_a_lease_without_one() {
        assert_eq!(run("run x -- true").taking.ttl, crate::lock::DEFAULT_TTL);
    }

    #[test]
    fn the_last_of_shared_and_exclusive_counts_and_slots_go_with_neither() {
        let shared = |line: &str| run(&format!("run x {line} -- true")).taking.shared;
        for line in ["-s", "--shared", "-x -s", "-s -x -s", "-ns", "-e --shared"] {
            assert!(shared(line), "{line}");
        }
        for line in ["-n", "-x", "-s -x", "-s -e", "-s --exclusive", "-x -s -x"] {
            assert!(!shared(line), "{line}");
        }
        assert_eq!(run("run x --slots 10000 -- true").taking.slots, Some(10_000));
        for line in ["--slots 0", "--slots 10001", "--slots -1", "--slots x", "--slots"] {
            assert!(!refused(&format!("run x {line} -- true")).is_empty(), "{line}");
        }
        for line in ["--slots 3 -s", "-x --slots 3", "--slots 3 -s -x"] {
            assert!(refused(&format!("run x {line} -- true")).contains("cannot be used with"), "{line}");
        }
        for line in ["-s", "--slots 3"] {
            assert!(refused(&format!("acquire x --reentrant {line}")).contains("cannot be used with"), "{line}");
        }
    }

    #[test]
    fn options_of_every_command_go_before_and_after_its_name() {
        let Common { redis, prefix, quiet, .. } = cli("--redis a -q run --prefix p: x -- true").common;
        assert_eq!((redis.join(" ").as_str(), prefix.as_deref(), quiet), ("a", Some("p:"), true));
        assert_eq!(cli("--prefix p status --prefix q").common.prefix.as_deref(), Some("q"));
        assert_eq!(refused("-q status -v"), "--quiet and --verbose contradict each other");
        for line in ["--format json status x", "status x --format json"] {
            assert_eq!(cli(line).common.format, Format::Json, "{line}");
        }
    }

    #[test]
    fn what_cannot_be_understood_is_one_line() {
        let lines = [
            "bogus",
            "run",
            "run -x",
            "run x --name y -- z",
            "--format xml status",
            "completions foo",
            "completions",
            "extend --ttl",
            "-q",
            "acquire --name",
            "acquire --\u{1b}[3m",
            "acquire a\u{7}\nb",
        ];
        for line in lines {
            let why = refused(line);
            assert!(!why.contains("Usage:") && !why.contains("  "), "{why}");
            assert!(!why.contains(char::is_control), "{why}");
        }
        let asked = |line: &str| format_asked(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for (line, format) in [
            ("redlock acquire --format=env --ttl", Format::Env),
            ("redlock --format env acquire", Format::Env),
            ("redlock check x --format nagios --within y", Format::Nagios),
            ("redlock --format=json nosuch", Format::Json),
            ("redlock acquire --format json", Format::Json),
            ("redlock status --format env", Format::Text),
            ("redlock acquire env --ttl", Format::Text),
            ("redlock run x --ttl -- y --format json", Format::Text),
        ] {
            assert_eq!(asked(line), format, "{line}");
        }
    }

    #[test]
    fn the_short_screen_is_one_screen() {
        for line in ["-h", "run -h", "-q -h"] {
            let Err(Refusal::Show(text)) = parsed(line) else { panic!("no help") };
            assert!(text.lines().count() <= 24, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }
}
