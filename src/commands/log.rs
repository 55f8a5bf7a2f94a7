//! `redlock log`: the last runs of locks.

use super::check::Judged;
use super::{block_on, locks_to_look_at, say_missing, say_unseen, settings};
use crate::cli::{Common, Format, LogArgs};
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::{Facts, Locks, Run, RunQuery, Selection, Unlisted, View};
use crate::output::{self, Picture, Row, Seen, say};
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
        let query = RunQuery { since: Some(args.since.unwrap_or(DAY)), hosts: true, ..query };
        return picture(&mut locks, args, &settings.prefix, query, common);
    }
    let row = |name: &str, run: &Run| Row::of_run(name, run, is_json, of_one, common.verbose);
    let (runs, unlisted) = block_on(locks.log(selection, query, row))?;
    let exit = say_limits(&mut locks, &settings.prefix, &unlisted, !runs.is_empty(), common)?;
    output::show_all(output::runs(&runs, is_json, of_one))?;
    Ok(exit)
}

/// Draws the runs that are asked for, what is held, and what is expected.
fn picture(locks: &mut Locks, args: &LogArgs, prefix: &str, query: RunQuery, common: &Common) -> anyhow::Result<Exit> {
    let selection = Selection { prefix, names: &args.locks.names };
    let (mut unlisted, mut judged, mut seen) = (Unlisted::default(), Judged::default(), Vec::new());
    let missing = block_on(locks.list(selection, View::of_runs(query), true, |status| {
        let mut status = status.with_runs()?;
        let facts = Facts::of(&status, None, 0);
        judged.add(&status, &facts, &[])?;
        status.history.is_unseen = status.is_unseen();
        unlisted.add(&status.name, &status.history);
        status.history.hosts = None;
        seen.extend(Some(Seen { status, facts }).filter(|seen| seen.facts.is_taken || seen.is_drawn()));
        Ok(())
    }));
    unlisted.missing = missing?;
    let picture = Picture::of(&mut seen, query.since.unwrap_or_default());
    let exit = say_limits(locks, prefix, &unlisted, !picture.runs().is_empty(), common)?;
    judged.add_missing(&mut unlisted.missing);
    output::show_all(match common.format {
        Format::Html => output::page(&picture, &judged.verdicts),
        _ => output::chart(&picture, args.locks.one().is_some()),
    })?;
    Ok(exit)
}

/// Says what the list or the picture does not show. Returns the exit of [`say_missing`].
fn say_limits(locks: &mut Locks, prefix: &str, of: &Unlisted, has_runs: bool, common: &Common) -> Result<Exit, Error> {
    let Unlisted { running, unseen, forgotten, started, missing } = of;
    let exit = say_missing(missing);
    if common.format == Format::Json {
        return Ok(exit);
    }
    running.iter().for_each(|(name, count)| say(&format!("{name:?} has {count} runs that go on; not all are shown")));
    for (name, before, kept) in forgotten {
        say(&output::forgotten(name, *before, *kept));
    }
    if !has_runs && unseen.is_empty() && exit == Exit::DONE {
        let started = output::just_started(started);
        say(&format!("no such run is in the log on {}{started}", locks.where_they_are()));
    }
    let mut unseen = unseen.iter().filter(|_| !common.quiet);
    unseen.try_for_each(|name| block_on(say_unseen(locks, prefix, name, started)))?;
    Ok(exit)
}
