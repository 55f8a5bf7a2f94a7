//! The message for arguments that clap does not understand. The message is one line: mostly clap's words, with a hint
//! in place of clap's tips and usage.

use crate::cli;
use crate::cli::parse::NO_DASHES;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};
use std::ffi::OsString;

/// Words of flock, timeout, consul, etcdctl, lockrun, sem, redis-cli and others that redlock lacks. An entry has the
/// commands of redlock to which the hint applies (an empty list: all), the words, and the hint.
const MEANT: [(&[&str], &str, &str); 28] = [
    (&[], "lock exec", "redlock run or redlock acquire?"),
    (&[], "unlock free", "redlock release?"),
    (&[], "refresh", "redlock extend?"),
    (&[], "list ls ps show info get", "redlock status?"),
    (&[], "history last logs", "redlock log?"),
    (&[], "watch top", "redlock status --watch?"),
    (&[], "check ping test", "redlock doctor?"),
    (&["run"], "--json", "run prints no results; standard output is the job's"),
    (&["run", "acquire"], "-j --jobs --count --concurrency --max", "--slots?"),
    (&["run", "acquire"], "--nowait --no-wait --nonblocking", "one try is the default, as with -n"),
    (
        &["run", "acquire"],
        "--exit-code --child-exit-code",
        "-E N is the status if the lock is held; redlock passes the job's status on",
    ),
    (&["run", "acquire"], "-o --close", "a lock is not an open file, so there is nothing to close"),
    (&["run"], "-F --no-fork", "redlock stays beside the job, to renew the lease"),
    (&["run"], "--max-time --maxtime --max-runtime --runtime --deadline --time-limit", "--max-run?"),
    (&["run"], "--every --daily --hourly --period --interval", "--once-per?"),
    (&["run"], "--signal --foreground --preserve-status --fg", "redlock always passes on signals and the job's status"),
    (&["log"], "-f --follow", "redlock status --watch?"),
    (&["log"], "--last --tail --max --count --limit", "-n?"),
    (&[], "--json -j -o --output", "--format json?"),
    (
        &[],
        "--timeout --retry --retries --monitor-retry --try --block -w",
        "run and acquire have --wait, wait has --timeout",
    ),
    (&[], "-t", "run, acquire and extend have --ttl, wait has --timeout"),
    (&[], "--expire --expires --expiry --lease", "run, acquire and extend have --ttl"),
    (&[], "--limit", "run and acquire have --slots, log has -n"),
    (&[], "-k", "run has --kill-after"),
    (&[], "-a --password --pass --auth", "--password-file or REDLOCK_PASSWORD; ps would show a password to all"),
    (&[], "--shell --command", "run has -c"),
    (&[], "--url --uri --host --server --port --db --addr --address --endpoints --http-addr --tls --ssl", REDIS),
    (
        &[],
        "--lock --key --id --lockfile --lock-file --lock-name --semaphorename",
        "the lock is NAME, a plain argument, or --name",
    ),
];

const REDIS: &str = "use --redis redis://HOST:PORT/DB (rediss:// with TLS)";

/// The error of these arguments in one line.
pub(crate) fn complaint(error: &Error, arguments: &[OsString]) -> String {
    let mut redlock = cli::command();
    redlock.build();
    let command = arguments.iter().skip(1).find_map(|word| redlock.find_subcommand(word));
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
    let sets_apart = |word: &OsString| word == "--" || word.as_encoded_bytes().starts_with(b"-c");
    let lacks_dashes = name == "run" && !arguments.iter().any(sets_apart);
    match error.kind() {
        // clap's words would show the token.
        ErrorKind::UnknownArgument if is_plain && form.contains("--token") => {
            format!("unexpected second argument; a token is written --token T: {form}")
        }
        ErrorKind::UnknownArgument if is_plain && name == "acquire" => {
            format!("{text}; acquire starts no command; use redlock run NAME -- COMMAND")
        }
        ErrorKind::UnknownArgument if is_plain && lacks_dashes => NO_DASHES.to_owned(),
        ErrorKind::UnknownArgument if is_plain => format!("{text}; {form}"),
        _ if let Some(long) = with_one_dash(&redlock, arguments) => format!("long options have two dashes: {long}"),
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
            format!("{text}; {}", hint(word, &redlock, command).unwrap_or(usual))
        }
        ErrorKind::MissingRequiredArgument => {
            format!("{}; {form}", text.replace("the following required arguments were not provided:", "missing"))
        }
        _ => text,
    }
}

/// The first known long option that has only one dash, as in consul (`-name`). Returns it with two dashes (`--name`).
fn with_one_dash(redlock: &Command, arguments: &[OsString]) -> Option<String> {
    let words = arguments.iter().take_while(|word| *word != "--").filter_map(|word| word.to_str());
    let options = words.filter(|word| word.starts_with('-') && word.len() > 3).map(|word| format!("-{word}"));
    let is_known = |word: &&str| {
        redlock.get_subcommands().any(|command| has_option(command, word))
            || MEANT.iter().any(|(_, words, _)| is_among(word, words))
    };
    options.filter_map(|option| option.split('=').next().filter(is_known).map(str::to_owned)).next()
}

/// The usual form of a call: `redlock wait NAME [--timeout D]`.
fn form(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.lines().next().unwrap_or_default().trim_start_matches("Usage: ").replace(" [OPTIONS]", "")
}

/// The hint, if any, for a word that redlock, or this command of redlock, does not know.
fn hint(word: &str, redlock: &Command, command: Option<&Command>) -> Option<String> {
    let name = command.map_or("", Command::get_name);
    let is_meant = |(commands, words, _): &&(&[&str], &str, &str)| {
        is_among(word, words) && (commands.is_empty() || commands.contains(&name))
    };
    if let Some((_, _, meant)) = MEANT.iter().find(is_meant) {
        return Some((*meant).to_owned());
    }
    let owners = redlock.get_subcommands().filter(|command| has_option(command, word));
    let owners: Vec<&str> = owners.map(Command::get_name).collect();
    let own: Vec<String> = match word.starts_with('-') {
        true if !owners.is_empty() => return Some(format!("it is an option of {}", enumerated(&owners, "and"))),
        true => command.unwrap_or(redlock).get_arguments().flat_map(forms).collect(),
        false => redlock.get_subcommands().map(|command| command.get_name().to_owned()).collect(),
    };
    // A word of one or two characters is not completed: too many options begin with it.
    let begin_so = own.iter().map(String::as_str).filter(|known| word.len() > 2 && known.starts_with(word));
    let longer: Vec<&str> = begin_so.collect();
    (!longer.is_empty()).then(|| format!("{}?", enumerated(&longer, "or")))
}

fn is_among(word: &str, words: &str) -> bool {
    words.split(' ').any(|one| one == word)
}

fn has_option(command: &Command, option: &str) -> bool {
    command.get_arguments().any(|arg| forms(arg).any(|form| form == option))
}

/// `a, b or c`
fn enumerated(words: &[&str], before_last: &str) -> String {
    match words {
        [others @ .., last] if !others.is_empty() => format!("{} {before_last} {last}", others.join(", ")),
        words => words.concat(),
    }
}

/// `-q` and `--quiet`.
fn forms(arg: &Arg) -> impl Iterator<Item = String> {
    let short = arg.get_short().map(|short| format!("-{short}"));
    short.into_iter().chain(arg.get_long().map(|long| format!("--{long}")))
}
