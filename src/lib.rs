//! Parses the command line, carries out the command, prints the error, and exits with the status.

pub mod cli;
mod commands;
mod config;
mod doctor;
mod error;
mod exit;
mod keeper;
pub mod lock;
mod output;
mod progress;
mod redis;
mod run;
mod screen;
mod sys;
mod text;

use cli::parse::{self, Refusal};
use cli::{Cli, Format};
use error::Error;
use exit::Exit;
use nix::errno::Errno;
use std::ffi::{OsString, c_char, c_int};
use std::panic::{self, PanicHookInfo};
use std::time::Duration;
use sys::clock::Boot;
use sys::streams;

/// At exit, redlock waits at most this long for the reader of its last message. After a signal the wait is shorter,
/// because redlock must then end within 100 ms.
const LAST_WORDS: Duration = Duration::from_secs(1);
const LAST_WORDS_AFTER_SIGNAL: Duration = Duration::from_millis(30);

/// The program, called by C's main, because Rust's own start-up code takes 0.06 ms longer (an empty program: 0.44
/// instead of 0.38 ms). It also hides which descriptors were closed at start, and which signals were ignored.
///
/// # Safety
/// `argv` must point to `argc` C strings that live as long as the process.
pub unsafe fn main(argc: c_int, argv: *const *const c_char) -> c_int {
    sys::inherited::record_start_state();
    // SAFETY: the caller's promise.
    let arguments = unsafe { sys::inherited::arguments(argc, argv) };
    panic::set_hook(Box::new(|panic| end_by_panic(panic)));
    let exit = redlock(&arguments);
    streams::finish(last_words(exit));
    if let Exit::Signal(signal) = exit {
        sys::signals::end_by(signal);
    }
    exit.status().into()
}

fn last_words(exit: Exit) -> Duration {
    if matches!(exit, Exit::Signal(_)) { LAST_WORDS_AFTER_SIGNAL } else { LAST_WORDS }
}

/// Turns a panic into one line instead of a backtrace, and ends this process, so that the keeper kills the job.
fn end_by_panic(panic: &PanicHookInfo) -> ! {
    let errno = Errno::last();
    // tokio and std panic where the system refuses them a wait, a thread or random numbers.
    let is_of = |file: &str| file.contains("/tokio-") || file.contains("/library/std/");
    let is_of_system = panic.location().is_some_and(|location| is_of(location.file()));
    let exit = if is_of_system {
        let error = match errno {
            Errno::UnknownErrno => Error::Unavailable("cannot go on: the system has refused a call".to_owned()),
            errno => Error::of_system("cannot go on", &errno.into()),
        };
        output::say(&error.to_string());
        Exit::of_error(&error)
    } else {
        output::say(&format!("internal error: {panic}").replace('\n', " "));
        Exit::INTERNAL
    };
    streams::finish(LAST_WORDS);
    std::process::exit(exit.status().into())
}

fn redlock(arguments: &[OsString]) -> Exit {
    let failure = match parse::parse(arguments.iter().cloned()) {
        Ok(cli) => {
            return commands::carry_out(&cli).unwrap_or_else(|error| fail(&error, Some(&cli), cli.common.format));
        }
        Err(Refusal::Show(text)) => match output::show(&text) {
            Ok(()) => return Exit::DONE,
            Err(error) => error,
        },
        Err(Refusal::Bare(text)) => {
            streams::say(text.trim_end());
            return Exit::USAGE;
        }
        Err(Refusal::Wrong(why)) => Error::Usage(why),
    };
    fail(&failure.into(), None, parse::format_asked(arguments))
}

/// Reports a failure as text on standard error, unless `--quiet` or SIGPIPE silences it; and on standard output, too,
/// if the requested format has a form for failures.
fn fail(error: &anyhow::Error, cli: Option<&Cli>, format: Format) -> Exit {
    let chosen = cli.and_then(Cli::taking).and_then(|taking| taking.conflict_exit_code);
    // -E is for a lock that another job holds. If the caller's own job holds it, the call is a mistake. With
    // --once-per, -E is for a call that is not needed.
    let is_meant = !is_own(error) && (is_not_needed(error) || !cli.is_some_and(Cli::is_once));
    let exit = match (Exit::of(error).or_conflict(chosen.filter(|_| is_meant)), format) {
        (exit, Format::Nagios) if !matches!(exit, Exit::Signal(_)) => Exit::CANNOT_TELL,
        (exit, _) => exit,
    };
    let is_quiet =
        cli.is_some_and(|cli| cli.common.quiet) && (exit.is_talk() && !is_trouble(error) || is_reported(error));
    if !(exit.is_silent() || is_quiet) {
        output::say(&format!("{error:#}"));
    }
    // If the output fails, too, the message above and the exit status still report the failure.
    let _ = output::failure(format, cli.and_then(Cli::name), error, exit, Boot::now() + last_words(exit));
    exit
}

/// True if an enclosing job holds the lock.
fn is_own(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Held(held)) if held.by_this_job)
}

fn is_not_needed(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::NotNeeded { .. }))
}

/// True if another call reports the holder.
fn is_reported(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Held(held)) if held.is_reported)
}

/// True for two failures that are reported even with `-E` and `--quiet`: the lock stays held until an operator frees
/// it, or two jobs seem to have one name, so one of them is left out.
fn is_trouble(error: &anyhow::Error) -> bool {
    match error.downcast_ref() {
        Some(Error::Held(held)) => held.by.never_ends(),
        Some(Error::NotNeeded { unlike, .. }) => unlike.is_some(),
        _ => false,
    }
}
