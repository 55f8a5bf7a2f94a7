//! The message for arguments that clap does not understand: one line, mostly clap's words, with a hint in place of
//! clap's tips and usage.

use crate::cli;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};
use std::ffi::OsString;

/// The refusal of a `run` whose command has no `--` before it.
pub(super) const NO_DASHES: &str = "put -- before the command: redlock run NAME -- COMMAND";

/// Words of flock, timeout, consul, etcdctl, lockrun, sem, redis-cli and others that redlock lacks. An entry has the
/// commands to which the hint applies (an empty list: all), the words, and the hint.
const MEANT: [(&[&str], &str, &str); 38] = [
    (&[], "lock exec", "redlock run or redlock acquire?"),
    (&[], "unlock free", "redlock release?"),
    (&[], "force-unlock", "redlock stop NAME ends the job; redlock release NAME --force frees the lock at once"),
    (&[], "kill cancel revoke end pause close", "redlock stop?"),
    (&[], "refresh", "redlock extend?"),
    (&[], "list ls ps show info get locks", "redlock status?"),
    (&[], "history last", "redlock log?"),
    (&[], "watch top", "redlock status --watch?"),
    (&[], "ping test", "redlock doctor?"),
    (&["run"], "--json", "run prints no results; standard output is the job's"),
    (&["run", "acquire"], "-j --jobs --count --concurrency --max", "--slots?"),
    (&["run", "acquire"], "--nowait --no-wait", "one try is the default, as with -n"),
    (
        &["run", "acquire"],
        "--exit-code --child-exit-code",
        "-E N is the status if the lock is held; redlock passes the job's status on",
    ),
    (&["run", "acquire"], "-o --close", "a lock is not an open file, so there is nothing to close"),
    (&["run"], "-F --no-fork", "redlock stays beside the job, to renew the lease"),
    (&["run"], "--max-time --maxtime --runtime --deadline --time-limit", "--max-run?"),
    (&["run"], "--every --once-every --period --interval", "--once-per?"),
    (&["run"], "--hourly", "--once-per hour"),
    (&["run"], "--daily", "--once-per day"),
    (&["run"], "--hold-at-least --lock-at-least-for", "to run at most once: --once-per day --tries 1"),
    (&["run"], "--foreground --preserve-status --fg", "redlock always passes on signals and the job's status"),
    (&["run"], "--cancel-in-progress", "redlock stop NAME, then redlock run NAME --wait D; or --newest N"),
    (&["run"], "--lock-delay", "redlock needs none: a job is dead before its lease ends"),
    (&["release"], "--revoke", "redlock stop NAME"),
    (&["log"], "--chart", "--format chart"),
    (&["log"], "--html -o", "--format html > FILE"),
    (&["log"], "-f --follow", "redlock status --watch?"),
    (&["log"], "--last --tail --max --count --limit", "-n?"),
    (&[], "--json -j -o --output", "--format json?"),
    (
        &[],
        "--timeout --retry --retries --monitor-retry --try --block -w",
        "run and acquire have --wait, wait has --timeout",
    ),
    (&[], "-t", "for how long to wait: run and acquire have --wait, wait has --timeout; for the lease: --ttl"),
    (&[], "--expire --expires --expiry --lease", "run, acquire and extend have --ttl"),
    (&[], "--limit", "run and acquire have --slots, log has -n"),
    (&[], "-k --grace", "run has --kill-after"),
    (&[], "-a --password --pass --auth", "--password-file or REDLOCK_PASSWORD; ps would show a password to all"),
    (&[], "--shell --command", "run has -c"),
    (&[], "-p --url --uri --host --server --port --db --addr --address --endpoints --http-addr --tls --ssl", REDIS),
    (
        &[],
        "--lock --key --id --lockfile --lock-file --lock-name --semaphorename",
        "the lock is NAME, a plain argument, or --name",
    ),
];

/// For help among the words of a call: in other tools -h names the host, and a pipeline would take status 0 for a success.
const RUNS_NOTHING: &str =
    "-h, --help and -V run no command; leave them out (a server is given with --redis redis://HOST:PORT/DB)";

const REDIS: &str = "use --redis redis://HOST:PORT/DB (rediss:// with TLS)";

pub(crate) fn complaint(error: &Error, arguments: &[OsString]) -> String {
    let mut redlock = cli::command();
    redlock.build();
    let words = arguments.iter().skip(1).take_while(|word| *word != "--").filter_map(|word| word.to_str());
    let command = match error.kind() {
        ErrorKind::InvalidSubcommand => None,
        _ => words.clone().find_map(|word| redlock.find_subcommand(word)),
    };
    let text = error.render().to_string();
    let text = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace(char::is_control, "?");
    let word = match (error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::InvalidArg)) {
        (Some(ContextValue::String(word)), _) | (None, Some(ContextValue::String(word))) => word,
        _ => "",
    };
    let form = command.map_or_else(String::new, form);
    let is_plain = !word.starts_with('-');
    let name = command.map_or("", Command::get_name);
    let has_command = arguments.iter().any(sets_apart);
    let lacks_dashes = name == "run" && !has_command;
    match error.kind() {
        ErrorKind::InvalidSubcommand if has_command => format!("{text}; redlock run NAME -- COMMAND?"),
        // clap's words would show the token.
        ErrorKind::UnknownArgument if is_plain && form.contains("--token") => {
            format!("unexpected second argument; a token is written --token T: {form}")
        }
        ErrorKind::UnknownArgument if is_plain && name == "acquire" => {
            format!("{text}; acquire starts no command; use redlock run NAME -- COMMAND")
        }
        ErrorKind::UnknownArgument if is_plain && lacks_dashes => NO_DASHES.to_owned(),
        ErrorKind::UnknownArgument if is_plain => format!("{text}; {form}"),
        _ if let Some(said) = words.clone().find_map(|word| with_one_dash(word, &redlock, command)) => said,
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => RUNS_NOTHING.to_owned(),
        ErrorKind::InvalidValue if word.starts_with("--format ") && command.is_some() => {
            let given = error.get(ContextKind::InvalidValue).map_or_else(String::new, ContextValue::to_string);
            lacks(name, &given.replace(char::is_control, "?"))
        }
        // clap takes the = of -n=3 for a flag.
        ErrorKind::UnknownArgument if word == "-=" => {
            let joined = words.filter(|word| !word.starts_with("--")).find_map(|word| word.split_once('='));
            format!("{} has no value", joined.map_or("a flag", |(flag, _)| flag))
        }
        ErrorKind::UnknownArgument if word[1..].starts_with(|c: char| c.is_ascii_digit()) => match name {
            "log" => format!("{text}; -n N shows the last N"),
            _ => format!("a duration or a number cannot be negative: {word}"),
        },
        ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument => {
            let usual = match name {
                "" => "redlock -h lists the commands".to_owned(),
                // The word may be an option of the job's command.
                _ if lacks_dashes => NO_DASHES.to_owned(),
                _ => format!("redlock {name} -h shows its options"),
            };
            format!("{text}; {}", meant(word, &redlock, command).or_else(|| likely(error)).unwrap_or(usual))
        }
        ErrorKind::MissingRequiredArgument => {
            format!("{}; {form}", text.replace("the following required arguments were not provided:", "missing"))
        }
        _ => text,
    }
}

/// True for the word before a command: `--`, or the `-c` of a shell line.
pub(super) fn sets_apart(word: &OsString) -> bool {
    word == "--" || word.as_encoded_bytes().starts_with(b"-c")
}

/// The refusal of a form of results that this command does not have.
pub(super) fn lacks(command: &str, format: &str) -> String {
    let list = cli::formats(command).iter().map(|format| format.word()).collect::<Vec<_>>().join(", ");
    match list.as_str() {
        "" => format!("{command} has no --format"),
        list => format!("{command} has no --format {format}; it has {list}"),
    }
}

/// For a long option that has only one dash, as in consul (`-name`).
fn with_one_dash(word: &str, redlock: &Command, command: Option<&Command>) -> Option<String> {
    let word = word.split('=').next().filter(|word| word.starts_with('-') && word.len() > 3)?;
    let long = format!("-{word}");
    match has_option(command.unwrap_or(redlock), &long) {
        true => Some(format!("long options have two dashes: {long}")),
        false => Some(format!("unexpected argument '{word}' found; {}", meant(&long, redlock, command)?)),
    }
}

/// The usual form of a call: `redlock wait NAME [--timeout D]`.
fn form(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.lines().next().unwrap_or_default().trim_start_matches("Usage: ").replace(" [OPTIONS]", "")
}

/// The hint for a word of another tool, or of another command of redlock.
fn meant(word: &str, redlock: &Command, command: Option<&Command>) -> Option<String> {
    let name = command.map_or("", Command::get_name);
    let is_meant = |(commands, words, _): &&(&[&str], &str, &str)| {
        is_among(word, words) && (commands.is_empty() || commands.contains(&name))
    };
    if let Some((_, _, meant)) = MEANT.iter().find(is_meant) {
        return Some((*meant).to_owned());
    }
    let owners = redlock.get_subcommands().filter(|command| has_option(command, word));
    let owners: Vec<&str> = owners.map(Command::get_name).collect();
    (!owners.is_empty()).then(|| format!("it is an option of {}", enumerated(&owners)))
}

/// The word of redlock that is most like the unknown one, if clap finds one.
fn likely(error: &Error) -> Option<String> {
    match (error.get(ContextKind::SuggestedArg), error.get(ContextKind::SuggestedSubcommand)) {
        (Some(ContextValue::String(word)), _) => Some(format!("{word}?")),
        // The likeliest is the last.
        (_, Some(ContextValue::Strings(words))) => words.last().map(|word| format!("{word}?")),
        _ => None,
    }
}

fn is_among(word: &str, words: &str) -> bool {
    words.split(' ').any(|one| one == word)
}

fn has_option(command: &Command, option: &str) -> bool {
    command.get_arguments().any(|arg| forms(arg).any(|form| form == option))
}

/// `a, b and c`
fn enumerated(words: &[&str]) -> String {
    match words {
        [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        words => words.concat(),
    }
}

/// `-q` and `--quiet`.
fn forms(arg: &Arg) -> impl Iterator<Item = String> {
    let short = arg.get_short().map(|short| format!("-{short}"));
    short.into_iter().chain(arg.get_long().map(|long| format!("--{long}")))
}
