//! `redlock log`: the last runs of locks.

use super::{block_on, locks_to_look_at, say_missing, say_unseen, settings};
use crate::cli::{Common, Format, LogArgs};
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::{Locks, Run, RunListing, RunQuery, Selection};
use crate::output::{self, Picture, Row, say};
use std::time::Duration;

/// The time that a picture shows without `--since`.
const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn run(args: &LogArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    let mut locks = locks_to_look_at(&settings)?;
    let selection = Selection { prefix: &settings.prefix, names: &args.locks.names };
    let (is_json, of_one) = (common.format == Format::Json, args.locks.one().is_some());
    let query = RunQuery {
        most: args.lines.unwrap_or(usize::MAX),
        since: args.since,
        failed: args.failed,
        hosts: false,
        newest: false,
        errors: is_json || common.verbose && common.format != Format::Chart,
    };
    if matches!(common.format, Format::Chart | Format::Html) {
        let span = args.since.unwrap_or(DAY);
        let named = |name: &str, run: &Run| (name.to_owned(), run.clone());
        let listing = block_on(locks.log(selection, RunQuery { since: Some(span), ..query }, named))?;
        let exit = say_limits(&listing, &locks.where_they_are());
        say_all_unseen(&mut locks, selection, &listing, common)?;
        let RunListing { runs, forgotten, .. } = &listing;
        let picture = Picture::of(runs, forgotten, span);
        output::show_all(match common.format {
            Format::Html => output::page(&picture, runs, forgotten, span),
            _ => output::chart(&picture, of_one),
        })?;
        return Ok(exit);
    }
    let row = |name: &str, run: &Run| Row::of_run(name, run, is_json, of_one, common.verbose);
    let listing = block_on(locks.log(selection, query, row))?;
    let exit = if is_json { say_missing(&listing.missing) } else { say_limits(&listing, &locks.where_they_are()) };
    say_all_unseen(&mut locks, selection, &listing, common)?;
    output::show_all(output::runs(&listing.runs, is_json, of_one))?;
    Ok(exit)
}

/// Says what the list or the picture does not show. Returns the exit of [`say_missing`].
fn say_limits<R>(listing: &RunListing<R>, on: &str) -> Exit {
    let RunListing { runs, running, unseen, forgotten, started, missing } = listing;
    let exit = say_missing(missing);
    running.iter().for_each(|(name, count)| say(&format!("{name:?} has {count} runs that go on; not all are shown")));
    for (name, before, kept) in forgotten {
        say(&output::forgotten(name, *before, *kept));
    }
    if runs.is_empty() && unseen.is_empty() && exit == Exit::DONE {
        say(&format!("no such run is in the log on {on}{}", output::just_started(started)));
    }
    exit
}

fn say_all_unseen<R>(
    locks: &mut Locks,
    Selection { prefix, .. }: Selection<'_>,
    RunListing { unseen, started, .. }: &RunListing<R>,
    common: &Common,
) -> Result<(), Error> {
    let mut names = unseen.iter().filter(|_| !common.quiet && common.format != Format::Json);
    names.try_for_each(|name| block_on(say_unseen(locks, prefix, name, started)))
}
