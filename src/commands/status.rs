//! `redlock status`: the holder of a lock, or all locks.

use super::watch::watch;
use super::{DEFAULT_TTL, block_on, lock_to_look_at, locks, settings, start_local, tell_default};
use crate::cli::{Common, Format, StatusArgs};
use crate::error::listed;
use crate::exit::Exit;
use crate::lock::{Listing, Lock, LogPart, Selection, State, Status};
use crate::output;
use crate::redis::Fault;
use std::time::Duration;

pub(crate) fn run(args: &StatusArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common, Duration::ZERO)?;
    let is_json = common.format == Format::Json;
    if args.answers_by_status(common.quiet) {
        tell_default(&settings);
    }
    if let Some(name) = args.locks.one() {
        let mut lock = lock_to_look_at(&settings, name)?;
        return match &args.watch {
            Some(watching) => block_on(watch(watching.every, is_json, async |_| {
                Ok(output::status(&lock.inspect(LogPart::LastRun).await?, is_json))
            })),
            None => block_on(one(args, common, &mut lock)),
        };
    }
    start_local(&settings, false)?;
    let mut locks = locks(&settings, DEFAULT_TTL);
    let is_free_shown = args.all || common.format == Format::Prometheus;
    let selection = Selection { names: &args.locks.names, free: is_free_shown, log: log_part(args, common) };
    match &args.watch {
        Some(watching) => block_on(watch(watching.every, is_json, async |columns| {
            let Listing { locks: mut all, faults } = locks.list(&settings.prefix, selection).await?;
            all.sort_by_key(Status::gravity);
            let warning = without(&faults).filter(|_| !is_json).map(|warning| format!("{warning}\n"));
            Ok(warning.unwrap_or_default() + &output::list(&all, is_json, columns))
        })),
        None => {
            let Listing { locks: all, faults } = block_on(locks.list(&settings.prefix, selection))?;
            without(&faults).iter().for_each(|warning| output::say(warning));
            match common.format {
                Format::Prometheus => output::show(&output::metrics(&all))?,
                Format::Text if all.is_empty() => {
                    output::say(&format!("{} under {:?} on {}", none(args), settings.prefix, locks.where_they_are()));
                }
                _ => output::show(&output::list(&all, is_json, None))?,
            }
            Ok(Exit::Done)
        }
    }
}

/// What an empty list says. Without -a it has free locks only if they are named in full.
fn none(args: &StatusArgs) -> String {
    let names: Vec<String> = args.locks.names.iter().map(|name| format!("{name:?}")).collect();
    match (names.join(" or "), args.all) {
        (names, true) if names.is_empty() => "no locks".to_owned(),
        (names, false) if names.is_empty() => "no lock is held (-a shows free ones)".to_owned(),
        (names, true) => format!("no lock matches {names}"),
        (names, false) => format!("no lock that is held matches {names} (-a shows free ones)"),
    }
}

/// Who watches must not take a log that cannot be read for one without a success.
fn log_part(args: &StatusArgs, common: &Common) -> LogPart {
    let is_watched = args.ran_within.is_some() || common.format == Format::Prometheus;
    if is_watched { LogPart::LastRunOrFault } else { LogPart::LastRun }
}

/// The nodes that have not answered, and why.
pub(super) fn without(faults: &[(String, Fault)]) -> Option<String> {
    (!faults.is_empty()).then(|| format!("{}; the list is from the other nodes", listed(faults)))
}

async fn one(args: &StatusArgs, common: &Common, lock: &mut Lock) -> anyhow::Result<Exit> {
    let status = lock.inspect(log_part(args, common)).await?;
    if !common.quiet && common.format != Format::Prometheus && args.ran_within.is_none() {
        output::show(&output::status(&status, common.format == Format::Json))?;
    }
    if let Some(error) = &status.unanswered {
        output::say(&error.to_string());
        return Ok(Exit::Unavailable);
    }
    if let Some(within) = args.ran_within {
        return ran_within(&status, within, common);
    }
    if common.format == Format::Prometheus {
        output::show(&output::metrics(&[status]))?;
        return Ok(Exit::Done);
    }
    Ok(match (status.state, &args.token) {
        (_, Some(token)) if status.holders().iter().any(|holder| holder.has(token)) => Exit::Done,
        (_, Some(_)) => {
            if !common.quiet {
                output::say(&format!("the token does not hold {:?}", lock.name));
            }
            Exit::NotHeld
        }
        (State::Free, None) => Exit::Done,
        (_, None) if args.exit_code || common.quiet => Exit::Held,
        _ => Exit::Done,
    })
}

/// Whether a run that ended within that time has succeeded. A line says so for people who watch.
fn ran_within(status: &Status, within: Duration, common: &Common) -> anyhow::Result<Exit> {
    let ago = status.last_success.as_ref().and_then(|run| run.ago);
    let is_recent = ago.is_some_and(|ago| ago <= within);
    match common.format {
        _ if common.quiet => {}
        Format::Json => output::show(&output::status(status, true))?,
        _ => output::show(&output::ran_within(status, is_recent, within))?,
    }
    Ok(if is_recent { Exit::Done } else { Exit::NotRecent })
}
