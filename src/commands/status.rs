//! `redlock status`: who has a lock, or all of them.

use super::{DEFAULT_TTL, lock, settings, talk};
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
    let mut lock = match args.named.name() {
        Some(name) => lock(&settings, name, DEFAULT_TTL)?,
        None => settings.lock("", &settings.prefix, DEFAULT_TTL),
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
    let json = common.format == Format::Json;
    let watching = args.watch.is_some();
    let Some(name) = args.named.name() else {
        let all = lock.list(&settings.prefix).await?;
        match json {
            true => output::list_json(&all)?,
            false if all.is_empty() && !common.quiet && !watching => {
                talk(&format!("no locks under {:?} on {}", settings.prefix, lock.where_it_is()));
            }
            false => output::list(&all, watching)?,
        }
        return Ok(Exit::Done);
    };
    let status = lock.inspect().await?;
    match json {
        _ if common.quiet => {}
        true => output::status_json(&status)?,
        false => output::status(&status, watching)?,
    }
    if watching {
        return Ok(Exit::Done);
    }
    Ok(match (status.state, &args.token, status.holder()) {
        (State::Unknown, ..) => {
            talk(&status.trouble().unwrap_or_default());
            Exit::Unavailable
        }
        (_, Some(token), Some(holder)) if same_lease(&holder.token, token) => Exit::Done,
        (_, Some(_), _) => {
            if !common.quiet {
                talk(&format!("that token does not hold {name:?}"));
            }
            Exit::NotHeld
        }
        (State::Free, None, _) => Exit::Done,
        (_, None, _) if args.exit_code || common.quiet => Exit::Held,
        _ => Exit::Done,
    })
}
