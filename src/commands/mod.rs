//! One file for each command of `redlock`: arguments become calls of the lock, and their result becomes output.

mod acquire;
mod completions;
mod doctor;
mod extend;
mod release;
mod run;
mod status;
mod wait;

use crate::cli::{Cli, Command, Common, Taking, Wait};
use crate::config::{self, Settings};
use crate::error::{Error, Held};
use crate::exit::Exit;
use crate::lock::{Lock, Owner, Reenter, Request};
use crate::redis::{Local, Place};
use crate::sys::{self, streams};
use std::time::Duration;

/// What a command that takes no lease derives its time-outs from.
const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// Carries a command out.
///
/// # Errors
/// Whatever kept it from being done; the exit status follows from it.
pub(crate) fn carry_out(cli: &Cli) -> anyhow::Result<Exit> {
    let common = &cli.common;
    match &cli.command {
        Command::Run(args) => run::run(args, common),
        Command::Acquire(args) => acquire::run(args, common),
        Command::Extend(args) => extend::run(args, common),
        Command::Release(args) => release::run(args, common),
        Command::Status(args) => status::run(args, common),
        Command::Wait(args) => wait::run(args, common),
        Command::Doctor(_) => doctor::run(common),
        // Needs no settings, and works with broken ones too.
        Command::Completions(args) => completions::run(args),
    }
}

/// Says something that is not a result.
fn talk(text: &str) {
    streams::say(&format!("redlock: {text}"));
}

/// Runs `future` to its end.
///
/// # Errors
/// Its own, and [`Error::Shortage`] when there are no descriptors left.
fn block_on<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    sys::wait::block_on(future).map_err(Error::cannot_wait)?
}

/// The lock of this name, with the prefix before it.
///
/// # Errors
/// [`Error::Usage`] when its keys do not fit beside each other, and what [`start_local`] says.
fn lock(settings: &Settings, name: &str, ttl: Duration) -> Result<Lock, Error> {
    let key = settings.checked_name(name)?;
    start_local(settings)?;
    Ok(settings.lock(name, &key, ttl))
}

/// Starts the server of `local:` unless it runs, if that is where the locks are. That comes first: it takes longer than a
/// node may take to answer, and the server must not be a descendant of what `run` becomes.
///
/// # Errors
/// [`Error::Usage`] for a directory that is not safe, [`Error::Shortage`] when the server cannot be started.
fn start_local(settings: &Settings) -> Result<Option<Local>, Error> {
    let [node] = settings.nodes.as_slice() else { return Ok(None) };
    let Place::Local(directory) = node.place() else { return Ok(None) };
    let local = Local::at(directory.as_deref()).map_err(|why| Error::Usage(format!("{node} {why}")))?;
    local.start().map_err(|error| Error::Shortage(format!("{node} cannot be started: {error}")))?;
    Ok(Some(local))
}

/// Reads the settings.
///
/// # Errors
/// [`Error::Usage`] for what is wrong with them.
fn settings(common: &Common) -> Result<Settings, Error> {
    let settings = config::settings(common)?;
    if common.verbose {
        settings.left_out.iter().for_each(|why| talk(why));
        talk(&given(&settings));
    }
    Ok(settings)
}

/// The settings that were given, and where: the nodes always.
fn given(settings: &Settings) -> String {
    let given = settings.told.iter().enumerate().filter(|(at, setting)| *at == 0 || !setting.is_default());
    given.map(|(_, setting)| setting.to_string()).collect::<Vec<_>>().join(", ")
}

/// The error for a token that does not hold the lock, which another does. `what` needs the token.
fn held_by_other(name: &str, token: &str, held: &Held, what: &str) -> Error {
    // As `status` shows it.
    let shown = token.trim_end_matches('…');
    let is_beginning = shown.len() >= 4 && held.by.holder().is_some_and(|holder| holder.token.starts_with(shown));
    let text = match is_beginning {
        true => format!("that is only the start of the token that holds {name:?}; {what} needs the whole token"),
        false => format!("the token does not hold {name:?}: it {}", held.situation(Duration::ZERO)),
    };
    Error::HeldByOther(text, Box::new(held.clone()))
}

/// What run and acquire ask for. `pid` is the process that will have the lock.
fn request(taking: &Taking, wait: Wait, settings: &Settings, pid: u32, label: String) -> Request {
    let (ancestors, reenter) = match (&taking.token, taking.reentrant) {
        (Some(token), _) => (vec![token.clone()], Reenter::Must),
        (None, reentrant) => {
            let innermost_first = settings.ancestors.iter().rev().cloned().collect();
            (innermost_first, if reentrant { Reenter::IfHeld } else { Reenter::No })
        }
    };
    Request {
        ttl: taking.ttl,
        wait: match wait {
            Wait::No => Duration::ZERO,
            Wait::Forever => Duration::MAX,
            Wait::For(time) => time,
        },
        owner: Owner::local(pid, label),
        ancestors,
        reenter,
    }
}
