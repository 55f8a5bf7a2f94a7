//! `redlock status`: the holder of a lock, or all locks.

use super::watch::watch;
use super::{
    block_on, did_you_mean, lock_to_look_at, locks_to_look_at, say_missing, say_unseen, settings, warn_of_default,
    warning_about,
};
use crate::cli::{Common, Format, StatusArgs};
use crate::config::Settings;
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::{Facts, Lock, Selection, State, Status, View, place};
use crate::output::{self, Metrics, Row};
use crate::text::quoted;
use std::borrow::Cow;
use std::time::Duration;

pub(crate) fn run(args: &StatusArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    if args.answers_by_status(common.quiet) {
        warn_of_default(&settings);
    }
    let selection = Selection { prefix: &settings.prefix, names: &args.locks.names };
    if common.format != Format::Prometheus {
        if let Some(name) = args.locks.one() {
            return one(args, common, &settings, lock_to_look_at(&settings, name)?);
        }
        if let Some(every) = args.watch {
            return watch_all(args, common, &settings, selection, every);
        }
    }
    let mut locks = locks_to_look_at(&settings)?;
    let is_metrics = common.format == Format::Prometheus;
    let (is_json, mut rows, mut metrics) = (common.format == Format::Json, Vec::new(), Metrics::default());
    let mut unseen = Vec::new();
    let show = |mut status: Status| {
        if status.is_unseen() {
            unseen.push((status.name.clone(), status.history.started.clone()));
        }
        match is_metrics {
            true => metrics.add(&status.with_runs()?),
            false => rows.push(placed(&mut status, is_json, None)),
        }
        Ok(())
    };
    let view = if is_json { View::LIST } else { View::CHECK };
    // Monitoring asks about free locks, too.
    let missing = block_on(locks.list(selection, view, args.all || is_metrics, show));
    let missing = missing.map_err(|error| error.about(args.locks.one()))?;
    let missing = missing.known().map_err(|error| error.about(args.locks.one()))?;
    let exit = say_missing(&missing);
    match common.format {
        Format::Prometheus => output::show(&metrics.text())?,
        Format::Text if rows.is_empty() => {
            output::say(&format!("{} under {:?} on {}", none(args), settings.prefix, locks.where_they_are()));
        }
        _ => output::show_all(output::locks(&in_order(rows), is_json, None))?,
    }
    for (name, started) in unseen.iter().filter(|_| !is_json) {
        block_on(say_unseen(&mut locks, &settings.prefix, name, started))?;
    }
    Ok(exit)
}

/// The text for an empty list. Without -a, a list leaves out free locks, unless a lock is named in full.
fn none(args: &StatusArgs) -> String {
    match (quoted(&args.locks.names, " or "), args.all) {
        (names, true) if names.is_empty() => "no locks".to_owned(),
        (names, false) if names.is_empty() => "no lock is held (-a shows free ones)".to_owned(),
        (names, true) => format!("no lock matches {names}"),
        (names, false) => format!("no lock that is held matches {names} (-a shows free ones)"),
    }
}

fn watch_all(
    args: &StatusArgs,
    common: &Common,
    settings: &Settings,
    selection: Selection<'_>,
    every: Duration,
) -> anyhow::Result<Exit> {
    let (mut locks, is_json) = (locks_to_look_at(settings)?, common.format == Format::Json);
    block_on(watch(every, is_json, async |columns| {
        let mut rows = Vec::new();
        let add = |mut status: Status| {
            rows.push(placed(&mut status, is_json, columns));
            Ok(())
        };
        let missing =
            locks.list(selection, if is_json { View::LIST } else { View::CHECK }, args.all, add).await?.known()?;
        let warning = warning_about(&missing).filter(|_| !is_json).map(|warning| format!("{warning}\n"));
        Ok(warning.into_iter().map(Cow::from).chain(output::locks(&in_order(rows), is_json, columns)).collect())
    }))
}

/// A lock's row, and its place among the others.
fn placed(status: &mut Status, is_json: bool, columns: Option<usize>) -> (impl Ord + use<>, Row) {
    let facts = Facts::of(status, None, 0);
    // Only --hosts shows them.
    status.history.hosts = None;
    (place(&facts, &status.name), Row::of_lock(status, &facts, is_json, columns))
}

fn in_order(mut rows: Vec<(impl Ord, Row)>) -> Vec<Row> {
    rows.sort_by(|(one, _), (other, _)| one.cmp(other));
    rows.into_iter().map(|(_, row)| row).collect()
}

fn one(args: &StatusArgs, common: &Common, settings: &Settings, mut lock: Lock) -> anyhow::Result<Exit> {
    let is_json = common.format == Format::Json;
    let whole = View::WHOLE.with_hosts(args.hosts);
    if let Some(every) = args.watch {
        return block_on(watch(every, is_json, async |_| {
            Ok(output::status(&lock.inspect(whole, None).await?, is_json))
        }));
    }
    let view = if common.quiet { View::STATE } else { whole };
    let status = block_on(lock.inspect(view, args.token.as_deref()))?;
    if !common.quiet {
        output::show(&output::status(&status, is_json))?;
        if let Some(error) = status.history_error.as_ref().filter(|_| is_json) {
            output::say(&error.to_string());
        }
        // The text says already that no run is known.
        if status.is_unseen() && !is_json {
            let near = async { Ok::<_, Error>(lock.locks.near(&settings.prefix, &status.name).await) };
            block_on(near)?.iter().for_each(|near| output::say(&did_you_mean(near)));
        }
    }
    if let Some(error) = &status.unanswered {
        output::say(&error.to_string());
        return Ok(Exit::UNAVAILABLE);
    }
    // If the history cannot be read, the hosts are unknown, which is an error.
    let status = if args.hosts { status.with_runs()? } else { status };
    Ok(match (status.state, &args.token) {
        (_, Some(token)) if status.holders().iter().any(|holder| holder.has(token)) => Exit::DONE,
        (_, Some(_)) => {
            if !common.quiet {
                output::say(&format!("the token does not hold {:?}", lock.name));
            }
            Exit::NOT_HELD
        }
        (State::Free, None) => Exit::DONE,
        (_, None) if common.quiet => Exit::HELD,
        _ => Exit::DONE,
    })
}
