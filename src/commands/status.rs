//! `redlock status`: the holder of a lock, or all locks.

use super::watch::watch;
use super::{DEFAULT_TTL, lock_to_look_at, locks, restart_local, settings};
use crate::cli::{Common, Format, StatusArgs};
use crate::config::Settings;
use crate::error::{Error, listed};
use crate::exit::Exit;
use crate::lock::{Listing, Lock, Locks, Selection, State, Status};
use crate::output;
use crate::redis::Fault;
use crate::sys::wait;
use std::time::Duration;

/// The number of runs that a status tells, besides the last success.
const LAST_RUN: u64 = 1;

pub(crate) fn run(args: &StatusArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    let is_json = common.format == Format::Json;
    if let Some(name) = args.locks.one() {
        let mut lock = lock_to_look_at(&settings, name)?;
        return blocking(async {
            match &args.watch {
                Some(every) => {
                    watch(every.every(), is_json, async |_| Ok(output::status(&lock.inspect(LAST_RUN).await?, is_json)))
                        .await
                }
                None => one(args, common, &mut lock).await,
            }
        });
    }
    restart_local(&settings)?;
    let mut locks = locks(&settings, DEFAULT_TTL);
    blocking(async {
        match &args.watch {
            Some(every) => {
                watch(every.every(), is_json, async |columns| {
                    let Listing { locks: mut all, faults } =
                        locks.list(&settings.prefix, selection(args, common.format)).await?;
                    all.sort_by_key(Status::gravity);
                    let warning = without(&faults).filter(|_| !is_json).map(|warning| format!("{warning}\n"));
                    Ok(warning.unwrap_or_default() + &output::list(&all, is_json, columns))
                })
                .await
            }
            None => several(args, common.format, &settings, &mut locks).await,
        }
    })
}

fn selection(args: &StatusArgs, format: Format) -> Selection<'_> {
    Selection { names: &args.locks.names, free: args.all || format == Format::Prometheus, runs: LAST_RUN }
}

fn blocking(look: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    wait::block_on(look).map_err(Error::cannot_wait)?
}

async fn several(args: &StatusArgs, format: Format, settings: &Settings, locks: &mut Locks) -> anyhow::Result<Exit> {
    let Listing { locks: all, faults } = locks.list(&settings.prefix, selection(args, format)).await?;
    if let Some(warning) = without(&faults) {
        output::say(&warning);
    }
    if format == Format::Prometheus {
        output::show(&output::metrics(&all))?;
    } else if all.is_empty() && format != Format::Json {
        let which = match args.locks.names.as_slice() {
            [] => format!("under {:?}", settings.prefix),
            names => format!("called {}", names.join(" or ")),
        };
        output::say(&format!("no locks {which} on {}", locks.where_they_are()));
    } else {
        output::show(&output::list(&all, format == Format::Json, None))?;
    }
    Ok(Exit::Done)
}

/// The nodes that have not answered, and why.
pub(super) fn without(faults: &[(String, Fault)]) -> Option<String> {
    (!faults.is_empty()).then(|| format!("{}; the list is from the other nodes", listed(faults)))
}

async fn one(args: &StatusArgs, common: &Common, lock: &mut Lock) -> anyhow::Result<Exit> {
    let status = lock.inspect(LAST_RUN).await?;
    let name = &lock.name;
    if let (Some(within), None) = (args.ran_within, &status.unanswered) {
        return ran_within(&status, within, common);
    }
    if common.format == Format::Prometheus && status.unanswered.is_none() {
        output::show(&output::metrics(&[status]))?;
        return Ok(Exit::Done);
    }
    if !common.quiet && common.format != Format::Prometheus && args.ran_within.is_none() {
        output::show(&output::status(&status, common.format == Format::Json))?;
        if status.state == State::Free && name.contains(['?', '[']) {
            output::say(&format!("{name:?} is one name: only * stands for anything"));
        }
    }
    if let Some(error) = &status.unanswered {
        output::say(&error.to_string());
        return Ok(Exit::Unavailable);
    }
    Ok(match (status.state, &args.token) {
        (_, Some(token)) if status.holders().iter().any(|holder| holder.has(token)) => Exit::Done,
        (_, Some(_)) => {
            if !common.quiet {
                output::say(&format!("the token does not hold {name:?}"));
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
