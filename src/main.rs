//! Parse, run, print the error, exit. No decisions.
#![cfg_attr(not(test), no_main)]

mod cli;
mod commands;
mod config;
mod doctor;
mod error;
mod exit;
mod keeper;
mod lock;
mod output;
mod progress;
mod redis;
mod run;
mod sys;
mod text;

use cli::{Format, Parsed};
use error::Error;
use exit::Exit;
use std::ffi::OsString;
use std::time::Duration;
use sys::streams;

/// How long a last message waits for the reader of standard error, and how long it does after a signal, which ends redlock
/// within 100 ms.
const LAST_WORDS: Duration = Duration::from_secs(1);
const LAST_WORDS_AFTER_SIGNAL: Duration = Duration::from_millis(30);

/// C's main. The one of Rust's start-up code would take 0.06 ms longer (an empty program: 0.44 instead of 0.38 ms), and hide
/// from a job which descriptors were closed and which signals ignored.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn main(argc: nix::libc::c_int, argv: *const *const nix::libc::c_char) -> nix::libc::c_int {
    sys::inherited::take_note();
    // SAFETY: the C library passes what `main` is promised.
    let arguments = unsafe { sys::inherited::arguments(argc, argv) };
    // A panic is to be lease loss and one line, not a backtrace.
    std::panic::set_hook(Box::new(|panic| say(&format!("internal error: {panic}").replace('\n', " "))));
    let exit = std::panic::catch_unwind(|| redlock(&arguments)).unwrap_or(Exit::Internal);
    if let Exit::Signal(signal) = exit {
        streams::finish(LAST_WORDS_AFTER_SIGNAL);
        sys::signals::end_by(signal);
    }
    streams::finish(LAST_WORDS);
    exit.status().into()
}

fn redlock(arguments: &[OsString]) -> Exit {
    let failure = match cli::parse(arguments.iter().cloned()) {
        Parsed::Cli(cli) => return commands::carry_out(&cli).unwrap_or_else(|error| fail(&error, &Failure::of(&cli))),
        Parsed::Show(text) => match output::text(&text) {
            Ok(()) => return Exit::Done,
            Err(error) => error,
        },
        Parsed::Bare(text) => {
            streams::say(text.trim_end());
            return Exit::Usage;
        }
        Parsed::Wrong(why) => Error::Usage(why),
    };
    fail(&failure.into(), &Failure { format: cli::wanted_format(arguments), ..Failure::default() })
}

/// How a failure is told.
#[derive(Debug, Default)]
struct Failure<'a> {
    /// The lock that it is about.
    name: Option<&'a str>,
    format: Format,
    quiet: bool,
    /// What replaces the status of "held by another".
    conflict: Option<u8>,
}

impl Failure<'_> {
    fn of(cli: &cli::Cli) -> Failure<'_> {
        Failure {
            name: cli.name(),
            format: if cli.is_run() { Format::Text } else { cli.common.format },
            quiet: cli.common.quiet,
            conflict: cli.conflict(),
        }
    }
}

/// Tells of a failure, once for people and once for programs.
fn fail(error: &anyhow::Error, failure: &Failure) -> Exit {
    let exit = Exit::of(error).or_conflict(failure.conflict);
    if !(exit.is_silent() || failure.quiet && exit.is_talk()) {
        say(&format!("{error:#}"));
    }
    // If this cannot be written, it has been said above.
    let _ = match failure.format {
        Format::Json => output::failure(failure.name, error, exit),
        Format::Env => output::failure_env(exit),
        Format::Text => Ok(()),
    };
    exit
}

fn say(text: &str) {
    streams::say(&format!("redlock: {text}"));
}
