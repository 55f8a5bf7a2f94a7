//! `redlock status`: who has a lock, or all of them.

use super::{DEFAULT_TTL, lock, settings, start_local, talk};
use crate::cli::{Common, Format, StatusArgs};
use crate::config::Settings;
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::{Lock, State, same_lease};
use crate::output;
use crate::sys::{inherited, signals, wait};
use nix::libc;

pub(crate) fn run(args: &StatusArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    let mut lock = match args.one_name() {
        Some(name) => lock(&settings, name, DEFAULT_TTL)?,
        None => {
            start_local(&settings)?;
            settings.lock("", &settings.prefix, DEFAULT_TTL)
        }
    };
    // Unless Ctrl-C was ignored from the start (`&` in a script).
    if args.watch.is_some() && !inherited::is_ignored(libc::SIGINT) {
        ctrlc::set_handler(|| signals::end_by(libc::SIGINT))?;
    }
    wait::block_on(async {
        let Some(every) = args.watch else { return show(args, common, &settings, &mut lock).await };
        loop {
            match show(args, common, &settings, &mut lock).await {
                Ok(_) => {}
                // What is watched may come back.
                Err(error) if Exit::of(&error) == Exit::Unavailable => talk(&format!("{error:#}")),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(every).await;
        }
    })
    .map_err(Error::cannot_wait)?
}

async fn show(args: &StatusArgs, common: &Common, settings: &Settings, lock: &mut Lock) -> anyhow::Result<Exit> {
    match args.one_name() {
        Some(name) => one(name, args, common, lock).await,
        None => several(args, common, settings, lock).await,
    }
}

async fn several(args: &StatusArgs, common: &Common, settings: &Settings, lock: &mut Lock) -> anyhow::Result<Exit> {
    let names = args.names();
    let all = lock.list(&settings.prefix, names).await?;
    let watching = args.watch.is_some();
    match common.format {
        Format::Json => output::list_json(&all)?,
        _ if all.is_empty() && !watching => {
            let which = match names {
                [] => format!("under {:?}", settings.prefix),
                names => format!("called {}", names.join(" or ")),
            };
            talk(&format!("no locks {which} on {}", lock.where_it_is()));
        }
        _ => output::list(&all, watching)?,
    }
    Ok(Exit::Done)
}

async fn one(name: &str, args: &StatusArgs, common: &Common, lock: &mut Lock) -> anyhow::Result<Exit> {
    let status = lock.inspect().await?;
    let watching = args.watch.is_some();
    match common.format {
        _ if common.quiet => {}
        Format::Json => output::status_json(&status)?,
        _ => output::status(&status, watching)?,
    }
    if watching {
        return Ok(Exit::Done);
    }
    if let Some(error) = &status.unanswered {
        talk(&error.to_string());
        return Ok(Exit::Unavailable);
    }
    Ok(match (status.state, &args.token, status.holder()) {
        (_, Some(token), Some(holder)) if same_lease(&holder.token, token) => Exit::Done,
        (_, Some(_), _) => {
            if !common.quiet {
                talk(&format!("the token does not hold {name:?}"));
            }
            Exit::NotHeld
        }
        (State::Free, None, _) => Exit::Done,
        (_, None, _) if args.exit_code || common.quiet => Exit::Held,
        _ => Exit::Done,
    })
}
