//! Parse, dispatch, print the error, exit. No decisions.

mod cli;
mod commands;
mod error;
mod exit;
mod keeper;
mod lock;
mod output;
mod plan;
mod supervise;
mod sys;
mod waiting;

use cli::{Format, Parsed};
use error::Error;
use exit::Exit;
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    // Only the message is ours: a panic of a thread is to be lease loss, not an orphaned job.
    std::panic::set_hook(Box::new(|panic| {
        say(format_args!("internal error: {panic}").to_string().replace('\n', " ").as_str())
    }));
    let exit = std::panic::catch_unwind(redlock).unwrap_or(Exit::Internal);
    if let Exit::Signal(signal) = exit {
        sys::signals::end_by(signal);
    }
    exit.into()
}

fn redlock() -> Exit {
    let arguments: Vec<_> = std::env::args_os().collect();
    let cli = match cli::parse(arguments.iter().cloned()) {
        Parsed::Cli(cli) => cli,
        Parsed::Show(text) => return show(&text),
        Parsed::Bare(text) => {
            let _ = io::stderr().write_all(text.as_bytes());
            return Exit::Usage;
        }
        Parsed::Wrong(why) => {
            let (json, env) = (cli::wants("json", &arguments), cli::wants("env", &arguments));
            let exit = fail(&Error::Usage(why).into(), json, None, false, None);
            if env {
                let _ = output::failure_env(exit);
            }
            return exit;
        }
    };
    let (json, quiet, conflict) = (cli.json(), cli.common().quiet, cli.conflict());
    let evaluated = cli.common().format == Some(Format::Env) && cli.is_acquire();
    let mut name = cli.name().map(str::to_owned);
    let done = plan::plan(*cli).map_err(anyhow::Error::from).and_then(|task| {
        name = task.name().map(str::to_owned);
        commands::carry_out(task)
    });
    done.unwrap_or_else(|error| {
        let exit = fail(&error, json, name.as_deref(), quiet, conflict);
        if evaluated {
            let _ = output::failure_env(exit);
        }
        exit
    })
}

fn show(text: &str) -> Exit {
    match output::text(text) {
        Ok(()) => Exit::Done,
        Err(error) => fail(&error.into(), false, None, false, None),
    }
}

/// Tells of a failure, once for people and once for programs.
fn fail(error: &anyhow::Error, json: bool, name: Option<&str>, quiet: bool, conflict: Option<u8>) -> Exit {
    let exit = Exit::of(error).or_conflict(conflict);
    if !(exit.is_silent() || quiet && exit.is_talk()) {
        say(&format!("{error:#}"));
    }
    if json {
        // Whoever cannot be told this has been told above.
        let _ = output::failure(name, error, exit);
    }
    exit
}

fn say(text: &str) {
    sys::stdio::say(&format!("redlock: {text}"));
}
