//! `redlock log`: the last runs of locks.

use super::status::without;
use super::{DEFAULT_TTL, block_on, locks, settings, start_local};
use crate::cli::{Common, Format, LogArgs};
use crate::exit::Exit;
use crate::lock::{Listing, LogPart, Outcome, Run, Selection};
use crate::output;
use std::time::Duration;

pub(crate) fn run(args: &LogArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common, Duration::ZERO)?;
    start_local(&settings, false)?;
    let mut locks = locks(&settings, DEFAULT_TTL);
    let selection = Selection { names: &args.locks.names, free: true, log: LogPart::AllOrFault };
    let Listing { locks: all, faults } = block_on(locks.list(&settings.prefix, selection))?;
    without(&faults).iter().for_each(|warning| output::say(warning));
    let is_recent = |run: &Run| match (args.since, run.ago) {
        (Some(since), Some(ago)) => run.outcome == Outcome::Running || ago <= since,
        _ => true,
    };
    let runs = all.iter().flat_map(|status| status.runs.iter().map(|run| (status.name.as_str(), run)));
    let mut runs: Vec<(&str, &Run)> = runs.filter(|(_, run)| is_recent(run)).collect();
    runs.sort_by_key(|(_, run)| run.began);
    runs.drain(..runs.len().saturating_sub(args.lines.unwrap_or(usize::MAX)));
    let is_json = common.format == Format::Json;
    if runs.is_empty() && !is_json {
        output::say(&format!("no such run is in the log on {}", locks.where_they_are()));
    }
    output::show(&output::runs(&runs, is_json, args.locks.one().is_some()))?;
    Ok(Exit::Done)
}
