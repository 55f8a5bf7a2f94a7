//! Parses a command line: brings alternative spellings into one form, and refuses combinations that make no sense. An error is one
//! line, mostly in clap's words.

use crate::cli::values::{SHORTEST_TTL_OF_RUN, SHOWN_OF_TOKEN, Watch};
use crate::cli::{self, AcquireArgs, Cli, Command, Common, Format, LeaseArgs, LogArgs, RunArgs, StatusArgs};
use crate::text::{escaped, nearest};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{FromArgMatches, Subcommand};
use std::ffi::OsString;
use std::time::Duration;

/// The outcome of parsing a command line.
#[derive(Debug)]
pub(crate) enum ParseOutcome {
    Cli(Box<Cli>),
    /// The text of `--help` or `--version`, for standard output; a success.
    Show(String),
    /// The short screen for a call without arguments, for standard error.
    Bare(String),
    /// An error, in one line.
    Wrong(String),
}

const NAMELESS: &str = "missing lock name: redlock run NAME -- COMMAND, or --name NAME";
/// The longest part of a word that is shown, in characters.
const SHOWN: usize = 60;

/// Parses a command line, program name first.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> ParseOutcome {
    let mut arguments = help_as_option(arguments.into_iter().collect());
    // To free it takes 0.02 ms, and the process needs it once.
    let redlock = Box::leak(Box::new(cli::command()));
    let mut read = |arguments: &[OsString]| {
        redlock.try_get_matches_from_mut(arguments).and_then(|matches| Cli::from_arg_matches(&matches))
    };
    let first = read(&arguments);
    let parsed = match first.as_ref().ok().and_then(|cli| name_as_option(cli, &arguments)) {
        Some(rearranged) => {
            arguments = rearranged;
            let parsed = read(&arguments);
            if let Some(why) = parsed.as_ref().ok().and_then(|cli| ambiguity(cli, &arguments)) {
                return ParseOutcome::Wrong(why);
            }
            parsed
        }
        None => first,
    };
    let error = match parsed {
        Ok(mut cli) => {
            return match settle(&mut cli).and_then(|()| check(&cli)) {
                Ok(()) => ParseOutcome::Cli(Box::new(cli)),
                Err(why) => ParseOutcome::Wrong(why),
            };
        }
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ParseOutcome::Show(error.render().to_string()),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => ParseOutcome::Bare(error.render().to_string()),
        _ => ParseOutcome::Wrong(complaint(&error, &arguments)),
    }
}

/// True if one of the words is a command of redlock.
fn names_command(arguments: &[OsString]) -> bool {
    arguments.iter().skip(1).filter_map(|word| word.to_str()).any(Command::has_subcommand)
}

/// Turns `help [COMMAND]` into `[COMMAND] --help`: clap's own `help` command would take a line of the short screen.
fn help_as_option(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_some_and(|first| first == "help") {
        arguments.remove(1);
        arguments.truncate(2);
        arguments.push("--help".into());
    }
    arguments
}

/// Turns `run NAME [OPTIONS] -- COMMAND` into `run --name=NAME [OPTIONS] -- COMMAND`, and the same with `-c LINE` instead of the
/// command, before or after the name: clap would take NAME for the start of the command.
fn name_as_option(cli: &Cli, arguments: &[OsString]) -> Option<Vec<OsString>> {
    let Command::Run(run) = &cli.command else { return None };
    let (before, tail) = arguments.split_at(arguments.len().checked_sub(run.command.len())?);
    let is_command = !run.taking.option.is_empty() || before.last().is_some_and(|word| word == "--");
    let (name, rest) = tail.split_first().filter(|_| !is_command)?;
    let mut option = OsString::from("--name=");
    option.push(name);
    Some([before, &[option], rest].concat())
}

/// The reason to refuse a second name beside a plain one, or a command without a `--` before it: NAME COMMAND is ambiguous, and
/// guessing is unsafe.
fn ambiguity(cli: &Cli, rearranged: &[OsString]) -> Option<String> {
    let Command::Run(run) = &cli.command else { return None };
    if run.taking.option.len() > 1 {
        return Some("two names, one by --name and one without; give each by --name".to_owned());
    }
    let before = rearranged.len().checked_sub(run.command.len() + 1)?;
    if run.line.is_some() || rearranged[before] == "--" {
        return None;
    }
    let words = run.command.iter().map(|word| escaped(&word.to_string_lossy(), SHOWN));
    let words: Vec<String> = words.collect();
    let name = run.taking.option.concat();
    Some(match words.iter().position(|word| word == "--") {
        Some(dashes) => {
            let (surplus, command) = (words[..dashes].join(" "), words[dashes + 1..].join(" "));
            format!("unexpected \"{surplus}\" before --: redlock run {name} -- {command}")
        }
        None => format!("put -- before the command: redlock run {name} -- {}", words.join(" ")),
    })
}

/// Brings alternative spellings into one form.
fn settle(cli: &mut Cli) -> Result<(), String> {
    // Zero switches a limit off, as with timeout(1).
    let limit = |limit: &mut Option<Duration>| *limit = limit.filter(|limit| !limit.is_zero());
    match &mut cli.command {
        Command::Run(args) => {
            args.taking.names = names_in_order(std::mem::take(&mut args.taking.option))?;
            if let Some(line) = &args.line {
                if let Some(command) = args.command.first() {
                    return Err(format!("two commands: -c and {}", command.display()));
                }
                args.command = ["/bin/sh".into(), "-c".into(), line.clone()].into();
            }
            limit(&mut args.kill_after);
            limit(&mut args.max_run);
            limit(&mut args.once_per);
            limit(&mut args.hold_at_least);
        }
        Command::Acquire(args) => {
            args.taking.names = std::mem::take(&mut args.taking.option);
            args.taking.names.extend(args.plain.take());
            match args.taking.names.as_slice() {
                [_] => {}
                [] => return Err("missing lock name".to_owned()),
                _ => return Err("acquire takes one lock; redlock run can hold several".to_owned()),
            }
        }
        Command::Status(StatusArgs { option, names, watch, .. }) => {
            names.append(option);
            if let Some(Watch::Name(name)) = watch {
                names.push(name.clone());
            }
            names.sort();
            names.dedup();
        }
        Command::Log(LogArgs { option, names, .. }) => {
            names.append(option);
            names.sort();
            names.dedup();
        }
        Command::Release(args) => {
            // `status` shows the start of a token with an ellipsis.
            args.token = args.token.take().map(|token| token.trim_end_matches('…').to_owned());
        }
        _ => {}
    }
    Ok(())
}

/// The names of `run` in the order of their bytes, which is the same for all that take several of them: so two calls cannot
/// each have what the other waits for.
fn names_in_order(mut names: Vec<String>) -> Result<Vec<String>, String> {
    names.sort();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("--name {} is given twice", escaped(&pair[0], SHOWN))),
        None if names.is_empty() => Err(NAMELESS.to_owned()),
        None => Ok(names),
    }
}

/// Rejects invalid option combinations that can be detected from the command line alone.
fn check(cli: &Cli) -> Result<(), String> {
    let Common { quiet, verbose, format, label, log, .. } = &cli.common;
    refuse(*quiet && *verbose, "--quiet and --verbose contradict each other")?;
    let acquires = matches!(cli.command, Command::Acquire(_));
    refuse(*format == Format::Env && !acquires, "--format env is for acquire only; there are text and json")?;
    let is_status = matches!(cli.command, Command::Status(_));
    refuse(
        *format == Format::Prometheus && !is_status,
        "--format prometheus is for status only; there are text and json",
    )?;
    let takes = acquires || matches!(cli.command, Command::Run(_));
    refuse(label.is_some() && !takes, "--label is for run and acquire only")?;
    refuse(log.is_some() && !takes, "--log is for run and acquire only; redlock log shows the last runs")?;
    match &cli.command {
        Command::Run(args) => check_run(args),
        Command::Acquire(args) => check_acquire(args),
        Command::Release(args) => {
            let shown = args.token.as_ref().is_none_or(|token| token.chars().count() >= SHOWN_OF_TOKEN);
            refuse(
                (args.revoke || args.force) && !shown,
                "--token is too short to tell whose lease is meant; give the eight characters that status shows",
            )
        }
        Command::Status(args) => check_status(args, &cli.common),
        Command::Wait(args) => refuse(args.lock.name().is_none(), "missing lock name"),
        _ => Ok(()),
    }
}

fn refuse(wrong: bool, why: &str) -> Result<(), String> {
    if wrong { Err(why.to_owned()) } else { Ok(()) }
}

fn check_lease(taking: &LeaseArgs) -> Result<(), String> {
    let pointless = taking.token.is_some() && !taking.reentrant;
    refuse(pointless, "--token needs --reentrant: it is the lease to share")?;
    let with_others = taking.shared || taking.slots.is_some();
    refuse(taking.reentrant && with_others, "--reentrant is for exclusive locks, without --shared and --slots")
}

fn check_run(args: &RunArgs) -> Result<(), String> {
    let taking = &args.taking;
    check_lease(taking)?;
    refuse(taking.ttl < SHORTEST_TTL_OF_RUN, "--ttl: the shortest for run is 500ms")?;
    let several = taking.names.len() > 1;
    refuse(several && taking.reentrant, "--reentrant is for one lock, not for several")?;
    refuse(several && taking.slots.is_some(), "--slots is for one lock, not for several")?;
    let many = several || taking.shared || taking.slots.is_some() || taking.reentrant;
    refuse(args.once_per.is_some() && many, "--once-per is for one exclusive lock, without --reentrant")?;
    refuse(args.command.iter().take(1).any(|command| command.is_empty()), "the command is empty")
}

fn check_acquire(args: &AcquireArgs) -> Result<(), String> {
    let taking = &args.taking;
    check_lease(taking)?;
    let unsafe_zero = taking.conflict_exit_code == Some(0);
    refuse(unsafe_zero, "-E 0 would let a script go on without the lock; it is for run only")?;
    let renewed = args.while_pid.is_some();
    refuse(args.on_lost.is_some() && !renewed, "--on-lost needs --while-pid: only then is the lease renewed")?;
    refuse(
        renewed && taking.reentrant,
        "--while-pid renews a lease of its own; a lease to share with --reentrant is renewed by its run",
    )?;
    let short = taking.ttl < SHORTEST_TTL_OF_RUN;
    refuse(renewed && short, "--ttl: the shortest with --while-pid is 500ms")
}

fn check_status(args: &StatusArgs, common: &Common) -> Result<(), String> {
    let answers = args.token.is_some() || args.exit_code || args.ran_within.is_some() || common.quiet;
    refuse(
        answers && args.one_name().is_none(),
        "--token, --exit-code, --ran-within and -q ask about one lock; give its name",
    )?;
    let both = args.ran_within.is_some() && (args.token.is_some() || args.exit_code);
    refuse(both, "--ran-within, --token and --exit-code each have a status of their own; give one")?;
    let metrics = common.format == Format::Prometheus && (args.watch.is_some() || args.ran_within.is_some());
    refuse(metrics, "--format prometheus prints metrics once; leave out --watch and --ran-within")?;
    refuse(
        args.watch.is_some() && answers,
        "--watch never ends, so it gives no status; leave out --token, --exit-code, --ran-within and -q",
    )
}

/// Hints for users of flock, consul and others: the words, the commands that they are used with, and the replacement.
const MEANT: [(&[&str], &[&str], &str); 11] = [
    (&["lock"], &[], "redlock run or redlock acquire?"),
    (&["unlock"], &[], "redlock release?"),
    (&["refresh"], &[], "redlock extend?"),
    (&["list", "ls"], &[], "redlock status?"),
    (&["--json"], &["acquire", "extend", "release", "status"], "--format json?"),
    (&["--timeout"], &["run", "acquire"], "--wait?"),
    (&["--retry"], &["run", "acquire"], "--wait?"),
    (&["--wait", "-w"], &["wait"], "--timeout?"),
    (&["--shell", "--command"], &["run"], "-c?"),
    (&["-o", "--close"], &["run", "acquire"], "a lock is not an open file, so there is nothing to close for the job"),
    (&["-F", "--no-fork"], &["run", "acquire"], "redlock stays beside the job, to renew the lease"),
];

/// The error in one line, mostly in clap's words.
fn complaint(error: &clap::Error, arguments: &[OsString]) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(" or "),
        _ => String::new(),
    };
    let has = |word: &str| arguments.iter().skip(1).any(|argument| argument == word);
    let meant = |word: &str| {
        let fits = |with: &[&str]| with.is_empty() || with.iter().any(|command| has(command));
        MEANT.iter().find(|(words, with, _)| words.contains(&word) && fits(with)).map(|(.., meant)| *meant)
    };
    let (command, argument) = (context(ContextKind::InvalidSubcommand), context(ContextKind::InvalidArg));
    match error.kind() {
        ErrorKind::MissingSubcommand => "missing command; redlock -h lists them".to_owned(),
        ErrorKind::InvalidSubcommand => {
            let redlock = cli::command();
            match (meant(&command), nearest(&command, redlock.get_subcommands().map(clap::Command::get_name))) {
                (Some(meant), _) => format!("unknown command {command:?}; {meant}"),
                (None, Some(similar)) => format!("unknown command {command:?}; redlock {similar}?"),
                (None, None) if arguments.last().is_some_and(|last| *last != *command) => {
                    format!("unknown command {command:?}; redlock run {command} -- COMMAND?")
                }
                (None, None) => format!("unknown command {command:?}; redlock -h lists them"),
            }
        }
        ErrorKind::UnknownArgument if argument.starts_with('-') => {
            let (similar, shown) = (context(ContextKind::SuggestedArg), argument.replace(char::is_control, "?"));
            match (meant(&argument), nearest(&argument, [similar.as_str()])) {
                (Some(meant), _) => format!("unknown option {shown}; {meant}"),
                (None, Some(similar)) => format!("unknown option {shown}; {similar}?"),
                (None, None) if !names_command(arguments) => {
                    format!("unknown option {shown} before the command; redlock run NAME {shown} -- COMMAND?")
                }
                (None, None) => format!("unknown option {shown}; -h and redlock --help list them"),
            }
        }
        ErrorKind::UnknownArgument if has("acquire") => {
            let shown = argument.replace(char::is_control, "?");
            format!("unexpected argument '{shown}': acquire runs no command; redlock run NAME -- COMMAND does")
        }
        ErrorKind::MissingRequiredArgument if argument.contains("COMMAND") => {
            let is_named = arguments.iter().any(|word| word.as_encoded_bytes().starts_with(b"--name"));
            let missing = if is_named { "COMMAND" } else { "lock name and COMMAND" };
            format!("missing {missing}: redlock run NAME -- COMMAND")
        }
        ErrorKind::ArgumentConflict if argument.starts_with("--name") && argument == context(ContextKind::PriorArg) => {
            "two names; only run and status take several".to_owned()
        }
        ErrorKind::ArgumentConflict if context(ContextKind::PriorArg) == "[NAME]" => {
            "two names, one by --name and one without".to_owned()
        }
        ErrorKind::MissingRequiredArgument => "missing shell name: bash, zsh or fish".to_owned(),
        _ => first_paragraph(error),
    }
}

/// Drops clap's tips and usage; keeps its first paragraph.
fn first_paragraph(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace(char::is_control, "?")
}

/// True if a shell evaluates the output of `acquire`, which then must not be empty.
pub(crate) fn is_evaluated(arguments: &[OsString]) -> bool {
    let is_env = |words: &[OsString]| words[0] == "--format" && words[1] == "env";
    let with_env = arguments.windows(2).any(is_env) || arguments.iter().any(|word| word == "--format=env");
    with_env && arguments.iter().skip(1).any(|word| word == "acquire")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{RunArgs, Wait};

    fn parsed(line: &str) -> ParseOutcome {
        parse(["redlock"].into_iter().chain(line.split(' ')).map(OsString::from))
    }

    fn cli(line: &str) -> Cli {
        match parsed(line) {
            ParseOutcome::Cli(cli) => *cli,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn run(line: &str) -> Box<RunArgs> {
        match cli(line).command {
            Command::Run(args) => args,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn refused(line: &str) -> String {
        match parsed(line) {
            ParseOutcome::Wrong(why) => why,
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
        assert_eq!(of("run --name x cmd -v --name y"), is("x", "cmd -v --name y"));
        assert_eq!(of("run --name x -- cmd -- -q"), is("x", "cmd -- -q"));
        assert_eq!(of("run --name x cmd -- -q"), is("x", "cmd -- -q"));
        assert_eq!(of("run --name x --wait -q cmd"), is("x", "cmd"));
        assert_eq!(of("-q run x -- cmd -- -q"), is("x", "cmd -- -q"));
        assert_eq!(of("run x --wait 5m --redis redis://a -- cmd"), is("x", "cmd"));
        assert_eq!(of("run x -c ls --"), is("x", "/bin/sh -c ls"));
        assert_eq!(of("run -n -c ls --name x"), is("x", "/bin/sh -c ls"));
        assert_eq!(of("run x -c ls"), is("x", "/bin/sh -c ls"));
        assert_eq!(of("run -c ls x"), is("x", "/bin/sh -c ls"));
        assert_eq!(of("run x --wait 5 -cls -q"), is("x", "/bin/sh -c ls"));
        assert_eq!(of("run -c ls x --ttl 5"), is("x", "/bin/sh -c ls"));
        for line in ["run -- x -- cmd", "run -- cmd", "run -c ls", "run -- x -c ls"] {
            assert_eq!(refused(line), NAMELESS, "{line}");
        }
        for line in ["run x cmd a", "run x -w 10 cmd a", "run -n x cmd a", "run --ttl 5s x -q cmd a"] {
            assert_eq!(refused(line), "put -- before the command: redlock run x -- cmd a", "{line}");
        }
        assert_eq!(refused("run x cmd -c ls"), "put -- before the command: redlock run x -- cmd -c ls");
        for line in ["run x y -- cmd a", "run x -n y -- cmd a", "run -n x y -- cmd a"] {
            assert_eq!(refused(line), "unexpected \"y\" before --: redlock run x -- cmd a", "{line}");
        }
        assert_eq!(refused("run x y -c ls -- cmd"), "unexpected \"y -c ls\" before --: redlock run x -- cmd");
        assert_eq!(refused("run x -c ls y"), "two commands: -c and y");
        let no_command = "missing COMMAND: redlock run NAME -- COMMAND";
        for line in ["run --name x", "run --name=x", "run x", "run x --", "run x -n"] {
            assert_eq!(refused(line), no_command, "{line}");
        }
        assert_eq!(refused("run"), "missing lock name and COMMAND: redlock run NAME -- COMMAND");
        assert_eq!(refused("run -n"), "missing lock name and COMMAND: redlock run NAME -- COMMAND");
        assert!(refused("run --wait ./job.sh").ends_with("write --wait -- ./job.sh, or put the name first"));
        assert_eq!(refused("run --name x -c ls cmd"), "two commands: -c and cmd");
    }

    #[test]
    fn waits_and_limits() {
        assert_eq!(run("run x -- true").wait(), Wait::No);
        assert_eq!(run("run --name x --wait -- true").wait(), Wait::Forever);
        assert_eq!(run("run -w 5m x -- true").wait(), Wait::For(Duration::from_secs(300)));
        assert_eq!(run("run x --wait=0 -- true").wait(), Wait::No);
        assert!(refused("run x -n --wait -- true").contains("cannot be used with"));
        for line in ["run x -n --nb --nonblock -- true", "run -x -e --exclusive -x x -- true"] {
            assert_eq!(run(line).wait(), Wait::No, "{line}");
        }
        let run = run("run x --kill-after 0 --max-run 0s --hold-at-least 0 --ttl 500ms -- true");
        assert_eq!((run.kill_after, run.max_run, run.hold_at_least), (None, None, None));
        assert_eq!(refused("run x --ttl 499ms -- true"), "--ttl: the shortest for run is 500ms");
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
            let why = refused(&format!("acquire x --reentrant {line}"));
            assert!(why.starts_with("--reentrant is for exclusive locks"), "{why}");
        }
    }

    #[test]
    fn options_of_every_command_go_before_and_after_its_name() {
        let Common { redis, prefix, quiet, .. } = cli("--redis a -q run --prefix p: x -- true").common;
        assert_eq!((redis.join(" ").as_str(), prefix.as_deref(), quiet), ("a", Some("p:"), true));
        assert_eq!(cli("--prefix p status --prefix q").common.prefix.as_deref(), Some("q"));
        assert_eq!(refused("-q status -v"), "--quiet and --verbose contradict each other");
        assert!(cli("run x --format json -- true").is_run() && !cli("status x --format json").is_run());
    }

    #[test]
    fn labels_never_show_arguments() {
        assert_eq!(run("run x -- /usr/bin/pg_dump --password=secret").base_name(), "pg_dump");
        assert_eq!(run(&format!("run x -- {}", "ü".repeat(200))).base_name(), "ü".repeat(64));
        let line = ["redlock", "run", "--name", "x", "-c", " /bin/mysql -psecret | wc"].map(OsString::from);
        let ParseOutcome::Cli(cli) = parse(line) else { panic!("refused") };
        assert!(matches!(cli.command, Command::Run(run) if run.base_name() == "mysql"));
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
        let evaluated = |line: &str| is_evaluated(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for line in ["redlock acquire --format=env --ttl", "redlock --format env acquire"] {
            assert!(evaluated(line), "{line}");
        }
        for line in ["redlock acquire --format json", "redlock status --format env", "redlock acquire env --ttl"] {
            assert!(!evaluated(line), "{line}");
        }
    }

    #[test]
    fn the_short_screen_is_one_screen() {
        for line in ["-h", "run -h", "-q -h"] {
            let ParseOutcome::Show(text) = parsed(line) else { panic!("no help") };
            assert!(text.lines().count() <= 24, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }
}
