//! `redlock run`: runs a command under one or several locks.

use super::{claim, lock, request, settings, warn_of_default};
use crate::cli::label;
use crate::cli::{Common, OnLost, RunArgs};
use crate::config::Settings;
use crate::error::Error;
use crate::exit::Exit;
use crate::keeper::Task;
use crate::lock::Request;
use crate::redis::Unusable;
use crate::run::timeline::default_grace;
use crate::run::{self, Job};
use crate::sys::files::{find_command, open_regular};
use std::fs::{File, OpenOptions};
use std::path::Path;

pub(crate) fn run(args: &RunArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    run_with(args, common, &settings).map_err(|error| error.before_the_job(&args.taking.names).into())
}

fn run_with(args: &RunArgs, common: &Common, settings: &Settings) -> Result<Exit, Error> {
    let taking = &args.taking;
    check(args, settings).map_err(Error::Usage)?;
    let once_per = args.once_per();
    let wait = once_per.map_or(args.wait.unwrap_or_default(), |once| once.waits(false));
    let label = settings.label.clone().unwrap_or_else(|| label::of(&args.command));
    // redlock looks for the command now, so that a user learns of a missing one at once, not after an hour in line.
    let file = find_command(&args.command[0]).map_err(|errno| Error::no_command(&args.command[0], errno))?;
    let errors = args.keep_errors.as_deref().map(open_errors).transpose()?;
    let lock = |name: &String| Ok(lock(settings, name, taking.ttl)?.with_claim(claim(taking)));
    let locks = taking.names.iter().map(lock).collect::<Result<_, Error>>()?;
    let job = Job {
        request: Request { once_per, ..request(taking, once_per.is_none(), wait, settings, std::process::id(), label) },
        task: Task {
            file,
            command: args.command.clone(),
            environment: settings.environment.clone(),
            errors,
            signal: args.signal,
            grace: args.kill_after.unwrap_or_else(|| default_grace(taking.ttl)),
            max_run: args.max_run,
            kill_after: args.kill_after,
            whole: args.whole,
        },
        errors: args.keep_errors.clone(),
        continue_when_lost: args.on_lost == Some(OnLost::Continue),
        quiet: common.quiet,
        verbose: common.verbose,
    };
    warn_of_default(settings);
    run::run(job, locks)
}

/// Opens the file for the job's errors. Refuses a pipe or a device, whose content could not be read back.
fn open_errors(path: &Path) -> Result<File, Error> {
    let opened = open_regular(path, OpenOptions::new().read(true).append(true));
    opened.map_err(|error| Unusable::of(&error).within(|why| format!("--keep-errors {path:?}: {why}")).into())
}

/// Refuses combinations that cli/parse.rs cannot judge, because they depend on the settings.
fn check(args: &RunArgs, settings: &Settings) -> Result<(), String> {
    let of_log = [("--once-per", args.once_per.is_some()), ("--keep-errors", args.keep_errors.is_some())];
    match of_log.into_iter().find(|(_, is_given)| *is_given && settings.log == 0) {
        Some((option, _)) => Err(format!("{option} needs the log, which is off (--log 0 or REDLOCK_LOG=0)")),
        None => Ok(()),
    }
}
