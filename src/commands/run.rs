//! `redlock run`: runs a command while it holds a lock.

use super::{lock, request, settings};
use crate::cli::{Common, OnLost, RunArgs};
use crate::error::Error;
use crate::exit::Exit;
use crate::keeper::Task;
use crate::progress::ProgressLine;
use crate::run::timeline::{default_grace, largest_grace};
use crate::run::{self, Job};
use humantime::format_duration;
use std::time::Duration;

pub(crate) fn run(args: &RunArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    let taking = &args.taking;
    let largest = largest_grace(taking.ttl);
    if args.grace.is_some_and(|grace| grace > largest) {
        let largest = Duration::from_millis(u64::try_from(largest.as_millis()).unwrap_or(u64::MAX));
        let (ttl, largest) = (format_duration(taking.ttl), format_duration(largest));
        return Err(Error::Usage(format!(
            "--grace is too long for a ttl of {ttl}, which needs time for three tries to renew it; the largest is {largest}"
        ))
        .into());
    }
    let label = settings.label.clone().unwrap_or_else(|| args.base_name());
    let lock = lock(&settings, &taking.name, taking.ttl)?;
    let job = Job {
        request: request(taking, args.wait(), &settings, std::process::id(), label),
        task: Task {
            command: args.command.clone(),
            environment: settings.environment.clone(),
            grace: args.grace.unwrap_or_else(|| default_grace(taking.ttl)),
            max_run: args.max_run,
            kill_after: args.kill_after,
            whole: args.whole,
        },
        grace: args.grace,
        continue_when_lost: args.on_lost == OnLost::Continue,
        hold_at_least: args.hold_at_least,
        quiet: common.quiet,
        verbose: common.verbose,
    };
    let line = ProgressLine::new(&taking.name, common.quiet, common.verbose, args.wait());
    Ok(run::run(job, lock, line)?)
}
