//! What is wrong with a command line that clap does not understand, in one line: clap's words without its tips and usage, and a hint.

use crate::cli;
use crate::parse::NO_DASHES;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};
use std::ffi::OsString;

/// Words of flock, timeout, consul, systemd and others that redlock does not have: the commands that they are a mistake for (none:
/// all), the words, and what to look for.
const MEANT: [(&[&str], &[&str], &str); 19] = [
    (&[], &["lock"], "redlock run or redlock acquire?"),
    (&[], &["unlock"], "redlock release?"),
    (&[], &["refresh"], "redlock extend?"),
    (&[], &["list", "ls", "ps"], "redlock status?"),
    (&[], &["history", "last"], "redlock log?"),
    (&[], &["watch"], "redlock status --watch?"),
    (&["run"], &["--json"], "run prints no results; standard output is the job's"),
    (&["run", "acquire"], &["-j"], "--slots?"),
    (&[], &["--json", "-j"], "--format json?"),
    (&["run", "acquire"], &["--nowait", "--no-wait"], "one try is the default, as with -n"),
    (&[], &["--timeout", "--retry", "-w"], "run and acquire have --wait, wait has --timeout"),
    (&[], &["-t"], "run, acquire and extend have --ttl, wait has --timeout"),
    (&[], &["--expire", "--expires", "--lease"], "run, acquire and extend have --ttl"),
    (&[], &["--limit"], "run and acquire have --slots, log has -n"),
    (&[], &["-k"], "run has --kill-after"),
    (&[], &["--password"], "--password-file or REDLOCK_PASSWORD; ps would show a password to all"),
    (&[], &["--shell", "--command"], "run has -c"),
    (&[], &["-o", "--close"], "a lock is not an open file, so there is nothing to close for the job"),
    (&[], &["-F", "--no-fork"], "redlock stays beside the job, to renew the lease"),
];

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
    match error.kind() {
        // clap's words would show the token.
        ErrorKind::UnknownArgument if !word.starts_with('-') && form.contains("--token") => {
            format!("unexpected second argument; a token is written --token T: {form}")
        }
        ErrorKind::UnknownArgument if lacks_dashes(command, arguments) && !word.starts_with('-') => {
            NO_DASHES.to_owned()
        }
        ErrorKind::UnknownArgument if !word.starts_with('-') => format!("{text}; {form}"),
        ErrorKind::UnknownArgument if word[1..].starts_with(|c: char| c.is_ascii_digit()) => {
            format!("a duration or a number cannot be negative: {word}")
        }
        ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument => {
            format!("{text}; {}", hint(word, &redlock, command))
        }
        ErrorKind::MissingRequiredArgument => {
            format!("{}; {form}", text.replace("the following required arguments were not provided:", "missing"))
        }
        _ => text,
    }
}

/// True for a call of `run` whose command is not set apart from its options.
fn lacks_dashes(command: Option<&Command>, arguments: &[OsString]) -> bool {
    let sets_apart = |word: &OsString| word == "--" || word.as_encoded_bytes().starts_with(b"-c");
    command.is_some_and(|command| command.get_name() == "run") && !arguments.iter().any(sets_apart)
}

/// The usual form of a call: `redlock wait NAME [--timeout D]`.
fn form(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.lines().next().unwrap_or_default().trim_start_matches("Usage: ").replace(" [OPTIONS]", "")
}

/// The hint for a word that redlock, or this command of it, does not know.
fn hint(word: &str, redlock: &Command, command: Option<&Command>) -> String {
    let name = command.map_or("", Command::get_name);
    let is_meant = |(commands, words, _): &&(&[&str], &[&str], &str)| {
        words.contains(&word) && (commands.is_empty() || commands.contains(&name))
    };
    if let Some((_, _, meant)) = MEANT.iter().find(is_meant) {
        return (*meant).to_owned();
    }
    let has_it = |command: &&Command| command.get_arguments().any(|arg| forms(arg).any(|form| form == word));
    let owners: Vec<&str> = redlock.get_subcommands().filter(has_it).map(Command::get_name).collect();
    let own: Vec<String> = match word.starts_with('-') {
        true if !owners.is_empty() => return format!("it is an option of {}", enumerated(&owners, "and")),
        true => command.unwrap_or(redlock).get_arguments().flat_map(forms).collect(),
        false => redlock.get_subcommands().map(|command| command.get_name().to_owned()).collect(),
    };
    // A word of one letter is the beginning of too much.
    let begin_so = own.iter().map(String::as_str).filter(|known| word.len() > 2 && known.starts_with(word));
    match (begin_so.collect::<Vec<_>>().as_slice(), command) {
        ([], None) => "redlock -h shows how it is used".to_owned(),
        ([], Some(_)) => format!("redlock {name} -h shows its options"),
        (longer, _) => format!("{}?", enumerated(longer, "or")),
    }
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
