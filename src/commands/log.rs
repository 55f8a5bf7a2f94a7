//! `redlock log`: the last runs of locks.

use super::{block_on, locks_to_look_at, say_missing, settings};
use crate::cli::{Common, Format, LogArgs};
use crate::exit::Exit;
use crate::lock::{Run, RunListing, RunQuery, Selection};
use crate::output::{self, Row, say};
use std::time::Duration;

pub(crate) fn run(args: &LogArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common, Duration::ZERO)?;
    let mut locks = locks_to_look_at(&settings)?;
    let selection = Selection { prefix: &settings.prefix, names: &args.locks.names };
    let query = RunQuery { most: args.lines.unwrap_or(usize::MAX), since: args.since, failed: args.failed };
    let (is_json, of_one) = (common.format == Format::Json, args.locks.one().is_some());
    let row = |name: &str, run: &Run| Row::of_run(name, run, is_json, of_one, common.verbose);
    let RunListing { runs, running, forgotten, started, missing } = block_on(locks.log(selection, query, row))?;
    let exit = say_missing(&missing);
    if !is_json {
        running.iter().for_each(|(name, count)| say(&format!("{name:?}: runs that go on: {count}; not all are shown")));
        for (name, before, kept) in &forgotten {
            say(&output::forgotten(name, *before, *kept));
        }
        if runs.is_empty() && exit == Exit::DONE {
            let just_started = output::just_started(&started);
            say(&format!("no such run is in the log on {}{just_started}", locks.where_they_are()));
        }
    }
    output::show_all(output::runs(&runs, is_json, of_one))?;
    Ok(exit)
}
