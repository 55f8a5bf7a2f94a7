//! `redlock status`: who has a lock, or all of them.

use super::{Watch, talk};
use crate::cli::Format;
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::{self, Locker, State};
use crate::output;
use crate::plan::{Status, default_ttl};

pub(crate) fn run(plan: Status) -> anyhow::Result<Exit> {
    let name = plan.name.clone().unwrap_or_default();
    let mut locker = Locker::new(&plan.settings, &name, default_ttl())?;
    let Some(every) = plan.watch else {
        return once(&plan, &mut locker, false);
    };
    let watch = Watch::start()?;
    loop {
        match once(&plan, &mut locker, true) {
            Ok(_) => {}
            // What is watched may come back.
            Err(error) if matches!(error.downcast_ref(), Some(Error::Unavailable(_))) => talk(&format!("{error:#}")),
            Err(error) => return Err(error),
        }
        if let Some(exit) = watch.interrupted_within(every) {
            return Ok(exit);
        }
    }
}

fn once(plan: &Status, locker: &mut Locker, watching: bool) -> anyhow::Result<Exit> {
    let json = plan.manner.format == Format::Json;
    if plan.name.is_none() {
        let all = locker.list(&plan.settings.prefix)?;
        match json {
            true => output::list_json(&all)?,
            false if all.is_empty() && !plan.manner.quiet && !watching => {
                talk(&format!("no locks under {:?} on {}", plan.settings.prefix, locker.nodes()));
            }
            false => output::list(&all, watching)?,
        }
        return Ok(Exit::Done);
    }
    let name = plan.name.as_deref().unwrap_or_default();
    let status = locker.inspect()?;
    match json {
        true => output::status_json(&status)?,
        false => output::status(&status, watching)?,
    }
    if watching {
        return Ok(Exit::Done);
    }
    Ok(match (status.state, &plan.token, &status.holder) {
        (State::Unknown, ..) => {
            talk(&status.trouble());
            Exit::Unavailable
        }
        (_, Some(token), Some(holder)) if lock::same_lease(&holder.token, token) => Exit::Done,
        (_, Some(_), _) => {
            if !plan.manner.quiet {
                talk(&format!("that token does not hold {name:?}"));
            }
            Exit::NotHeld
        }
        (State::Free, None, _) => Exit::Done,
        (_, None, _) if plan.exit_code => Exit::Held,
        _ => Exit::Done,
    })
}
