//! One file for each command of `redlock`: arguments become calls of the lock, and their result becomes output.
//! `watch` is for an option of `status`.

mod acquire;
mod check;
mod completions;
mod doctor;
mod extend;
mod forget;
mod log;
mod release;
mod run;
mod status;
mod stop;
mod wait;
mod watch;

use crate::cli::{Cli, Command, Common, LeaseArgs};
use crate::config::{self, Settings};
use crate::error::{Error, nodes_with_faults};
use crate::exit::Exit;
use crate::lock::keys::fits_one_slot;
use crate::lock::{Claim, DEFAULT_TTL, Lock, Locks, Missing, Owner, Reenter, Request, View};
use crate::output::{just_started, say};
use crate::progress::ProgressLine;
use crate::redis::{Deployment, Local};
use crate::sys;
use crate::sys::clock::Boot;
use crate::sys::random;
use crate::sys::signals::{Signals, not_ignored};
use crate::sys::wait::Readable;
use std::cell::RefCell;
use std::time::Duration;

const NAMELESS: &str = "missing lock name: give NAME and --token T, or set REDLOCK_NAME and REDLOCK_TOKEN";

pub(crate) fn carry_out(cli: &Cli) -> anyhow::Result<Exit> {
    let common = &cli.common;
    random::check().map_err(|error| Error::of_system("cannot get random numbers", &error))?;
    match &cli.command {
        Command::Run(args) => run::run(args, common),
        Command::Acquire(args) => acquire::run(args, common),
        Command::Extend(args) => extend::run(args, common),
        Command::Release(args) => release::run(args, common),
        Command::Stop(args) => stop::run(args, common),
        Command::Status(args) => status::run(args, common),
        Command::Check(args) => check::run(args, common),
        Command::Forget(args) => forget::run(args, common),
        Command::Log(args) => log::run(args, common),
        Command::Wait(args) => wait::run(args, common),
        Command::Doctor => doctor::run(common),
        // This command needs no settings, so broken settings do not matter.
        Command::Completions(args) => completions::run(args),
    }
}

/// Fails with the future's error, or with [`Error::cannot_wait`].
fn block_on<T, E: From<Error>>(future: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    sys::wait::block_on(future).map_err(Error::cannot_wait)?
}

/// Blocks these signals, except those that this process ignores, and makes them readable. A runtime must exist already.
fn signals(signals: impl IntoIterator<Item = i32>) -> Result<Readable<Signals>, Error> {
    let blocked = Signals::block(&not_ignored(signals));
    let signals = blocked.map_err(|errno| Error::cannot_wait(errno.into()))?;
    Readable::new(signals).map_err(Error::cannot_wait)
}

/// Keeps the progress line up to date until a signal comes, and returns the signal as an error.
async fn interrupted(signals: &Readable<Signals>, line: &RefCell<ProgressLine>) -> Error {
    tokio::select! {
        biased;
        arrived = signals.next(Signals::next) => Error::Interrupted(arrived.signal),
        () = ProgressLine::tick_on(line) => unreachable!("it has no end"),
    }
}

/// A timeout or quarantine that is not set is derived from `ttl`.
fn locks(settings: &Settings, ttl: Duration) -> Locks {
    Locks::new(&settings.nodes, settings.node_timeout, settings.quarantine, ttl)
}

/// With timeouts as in [`locks`].
///
/// # Errors
/// [`Error::Usage`] when the lock's keys cannot share a slot of a Cluster, and the errors of [`start_local`].
fn lock(settings: &Settings, name: &str, ttl: Duration) -> Result<Lock, Error> {
    let key = key(settings, name)?;
    start_local(settings, |_| false)?;
    Ok(locks(settings, ttl).lock(name, &key))
}

/// For a command that only looks. A server of `local:` that was never started is not started: it has no locks.
fn locks_to_look_at(settings: &Settings) -> Result<Locks, Error> {
    start_local(settings, Local::is_unused)?;
    Ok(locks(settings, DEFAULT_TTL))
}

/// For a command that only looks.
fn lock_to_look_at(settings: &Settings, name: &str) -> Result<Lock, Error> {
    let key = key(settings, name)?;
    Ok(locks_to_look_at(settings)?.lock(name, &key))
}

/// The prefix, then the name. Fails if no Cluster could keep the lock's keys in one slot.
fn key(settings: &Settings, name: &str) -> Result<String, Error> {
    let key = format!("{}{name}", settings.prefix);
    match fits_one_slot(&key) {
        true => Ok(key),
        false => Err(Error::Usage(format!(
            "the key {key:?} has a }} but no hash tag like {{this}}, so a Cluster could not keep this lock in one slot; use a name or prefix without }}"
        ))),
    }
}

/// The name and the token for extend and release. A call with neither gets those of the enclosing job, and a call with
/// only the name of the enclosing job gets its token. Otherwise the token is the given one, or None.
///
/// # Errors
/// [`Error::Usage`] if the call gives a token without a name, or gives neither and has no enclosing job.
fn name_and_token(
    name: Option<&str>,
    token: Option<&str>,
    enclosing: Option<&(String, String)>,
) -> Result<(String, Option<String>), Error> {
    let token = token.map(str::to_owned);
    match (name, token, enclosing) {
        (None, None, Some((name, token))) => Ok((name.clone(), Some(token.clone()))),
        (Some(given), None, Some((name, token))) if given == name => Ok((given.to_owned(), Some(token.clone()))),
        (Some(given), token, _) => Ok((given.to_owned(), token)),
        (None, _, _) => Err(Error::Usage(NAMELESS.to_owned())),
    }
}

/// The given token, else that of the innermost enclosing job that has a lease on this lock.
///
/// # Errors
/// [`Error::Usage`] with the text `missing` if there is no token; the errors of [`Lock::inspect`]; the reason why the
/// lock's state is unknown.
async fn token_of(
    token: Option<String>,
    lock: &mut Lock,
    ancestors: &[String],
    missing: &str,
) -> Result<String, Error> {
    let missing = || Error::Usage(missing.to_owned());
    if token.is_some() || ancestors.is_empty() {
        return token.ok_or_else(missing);
    }
    let mut unanswered = None;
    for token in ancestors.iter().rev() {
        let status = lock.inspect(View::STATE, Some(token)).await?;
        if status.holders().iter().any(|holder| holder.has(token)) {
            return Ok(token.clone());
        }
        unanswered = status.unanswered;
    }
    Err(unanswered.unwrap_or_else(missing))
}

/// The server of `local:`; None if the locks are on other servers. Starts it, unless it runs or `skip` returns true.
/// Call this before the first request, because a start takes longer than a node may take to answer, and before the
/// keeper is forked, because the server must not descend from the keeper.
///
/// # Errors
/// [`Error::Refused`] if the directory is refused, [`Error::Unavailable`] when the server cannot be started.
fn start_local(settings: &Settings, skip: fn(&Local) -> bool) -> Result<Option<Local>, Error> {
    let [node] = settings.nodes.as_slice() else { return Ok(None) };
    let Deployment::Local(directory) = node.deployment() else { return Ok(None) };
    let local = Local::at(directory.as_deref()).map_err(|error| error.within(|why| format!("{node} {why}")))?;
    if !skip(&local) {
        local.start().map_err(|error| Error::Unavailable(format!("{node} cannot be started: {error}")))?;
    }
    Ok(Some(local))
}

/// Prints warnings about the settings, and with `--verbose` the settings themselves.
fn settings(common: &Common) -> Result<Settings, Error> {
    let settings = config::settings(common)?;
    settings.warnings.iter().for_each(|why| say(why));
    if common.verbose {
        settings.skipped.iter().for_each(|why| say(why));
        // The nodes come first, and are shown even if they are the default.
        let given = settings.origins.iter().enumerate().filter(|(at, setting)| *at == 0 || !setting.is_default);
        say(&given.map(|(_, setting)| setting.to_string()).collect::<Vec<_>>().join(", "));
    }
    Ok(settings)
}

/// Warns, with `--quiet`, too, that no option, variable or file has named the nodes: every host would have its own
/// lock.
fn warn_of_default(settings: &Settings) {
    if let (true, [node]) = (settings.is_unconfigured, settings.nodes.as_slice()) {
        say(&format!(
            "no server was configured: the lock is on {node}, for this machine alone; set --redis or REDLOCK_REDIS"
        ));
    }
}

/// Says that no server knows a lock of this name, and a name that is like it: it is probably misspelt. `started`: see
/// [`History::started`].
async fn say_unseen(
    locks: &mut Locks,
    prefix: &str,
    name: &str,
    started: &Option<(String, Duration)>,
) -> Result<(), Error> {
    let near = locks.near(prefix, name).await.map_or_else(String::new, |near| format!("; {}", did_you_mean(&near)));
    let started = just_started(started);
    say(&format!("no lock {name:?} is known on {}{started}{near}", locks.where_they_are()));
    Ok(())
}

fn did_you_mean(near: &str) -> String {
    format!("did you mean {near:?}?")
}

/// Reports what is missing in a list. The exit follows from the first lock that is missing, if any.
fn say_missing(missing: &Missing) -> Exit {
    warning_about(missing).iter().for_each(|warning| say(warning));
    missing.locks.iter().for_each(|error| say(&error.to_string()));
    missing.locks.first().map_or(Exit::DONE, Exit::of_error)
}

fn warning_about(missing: &Missing) -> Option<String> {
    (!missing.nodes.is_empty())
        .then(|| format!("{}; the list is from the other nodes", nodes_with_faults(&missing.nodes)))
}

fn claim(taking: &LeaseArgs) -> Claim {
    match (taking.shared, taking.slots) {
        (true, _) => Claim::Shared,
        (false, Some(limit)) => Claim::Slots(limit),
        (false, None) => Claim::Exclusive,
    }
}

/// The request of run and acquire. `pid` is the process that will have the lock. `is_alone` is false with --once-per
/// or --while-pid. These two options exclude --reentrant, and so do some options in `taking`.
fn request(
    taking: &LeaseArgs,
    is_alone: bool,
    wait: Duration,
    settings: &Settings,
    pid: u32,
    label: String,
) -> Request {
    let can_reenter =
        is_alone && taking.names.len() == 1 && taking.newest.is_none() && claim(taking) == Claim::Exclusive;
    let reenter = match &taking.token {
        Some(token) => Reenter::Must(token.clone()),
        None if taking.reentrant => Reenter::IfHeld,
        None if can_reenter => Reenter::No,
        None => Reenter::Excluded,
    };
    Request {
        ttl: taking.ttl,
        wait,
        owner: Owner::local(pid, label),
        ancestors: settings.ancestors.clone(),
        reenter,
        noted: false,
        is_acquired: false,
        called: Boot::now(),
        once_per: None,
        has_label: settings.label.is_some(),
        newest: taking.newest,
        log: settings.log,
    }
}
