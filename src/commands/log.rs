//! `redlock log`: the last runs of locks.

use super::{block_on, gaps, locks_to_look_at, settings};
use crate::cli::{Common, Format, LogArgs};
use crate::exit::Exit;
use crate::lock::{RunListing, RunQuery, Selection};
use crate::output;
use crate::output::say;
use std::time::Duration;

pub(crate) fn run(args: &LogArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common, Duration::ZERO)?;
    let mut locks = locks_to_look_at(&settings)?;
    let selection = Selection { prefix: &settings.prefix, names: &args.locks.names };
    let query = RunQuery { most: args.lines.unwrap_or(usize::MAX), since: args.since, failed: args.failed };
    let RunListing { runs, running, forgotten, gaps: missing } = block_on(locks.log(selection, query))?;
    let exit = gaps(&missing);
    let is_json = common.format == Format::Json;
    if !is_json {
        running.iter().for_each(|(name, count)| say(&format!("{name:?}: {count} runs go on; not all are shown")));
        for (name, before, kept) in &forgotten {
            say(&output::forgotten(name, *before, *kept));
        }
        if runs.is_empty() && exit == Exit::Done {
            say(&format!("no such run is in the log on {}", locks.where_they_are()));
        }
    }
    output::show(&output::runs(&runs, is_json, args.locks.one().is_some(), common.verbose))?;
    Ok(exit)
}
