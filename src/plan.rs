//! Flags, environment and redlock.conf become one task that can be carried out. Whatever is impossible or cannot be safe is
//! refused here, before Redis is touched, and nowhere else.

mod place;
mod sources;
mod urls;

pub(crate) use sources::Sources;

use crate::cli::{self, Cli, Command, Common, Format, Named, OnLost, Shell, Taking};
use crate::error::Error;
use crate::lock::{Reenter, Request, Settings, Wait, fits_one_slot};
use crate::supervise;
use place::{environment, settings};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// What time-outs are derived from where no lease is asked for.
const DEFAULT_TTL: Duration = Duration::from_secs(30);
const SHORTEST_TTL: Duration = Duration::from_millis(100);
/// Below this three tries and a grace do not fit into a lease (algorithms: the time line).
const SHORTEST_TTL_OF_RUN: Duration = Duration::from_millis(500);
const LONGEST_TTL: Duration = Duration::from_secs(30 * 24 * 3600);
const LONGEST_NAME: usize = 512;
const LONGEST_LABEL: usize = 256;
/// How much of a token is shown, and needed to say whose lease is meant.
const SHOWN_OF_TOKEN: usize = 8;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Task {
    Run(Box<supervise::Plan>),
    Acquire(Acquire),
    Extend(Extend),
    Release(Release),
    Status(Status),
    Await(Await),
    Completions(Shell),
}

/// How to talk about what is done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    pub(crate) format: Format,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
}

#[derive(Debug)]
pub(crate) struct Acquire {
    pub(crate) settings: Settings,
    pub(crate) name: String,
    pub(crate) request: Request,
    pub(crate) manner: Manner,
}

#[derive(Debug)]
pub(crate) struct Extend {
    pub(crate) settings: Settings,
    pub(crate) name: String,
    pub(crate) token: String,
    /// The ttl that the lease was taken with where none is given.
    pub(crate) ttl: Option<Duration>,
    pub(crate) manner: Manner,
}

#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) settings: Settings,
    pub(crate) name: String,
    pub(crate) how: How,
    pub(crate) manner: Manner,
}

/// How a lease is to end. With a token, or its first eight characters, somebody else's only if it is still that one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum How {
    Token(String),
    Revoke(Option<String>),
    Force(Option<String>),
}

#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) settings: Settings,
    /// Every lock under the prefix where none is given.
    pub(crate) name: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) exit_code: bool,
    pub(crate) watch: Option<Duration>,
    pub(crate) manner: Manner,
}

/// `redlock wait`.
#[derive(Debug)]
pub(crate) struct Await {
    pub(crate) settings: Settings,
    pub(crate) name: String,
    /// For ever where none is given.
    pub(crate) timeout: Option<Duration>,
    pub(crate) manner: Manner,
}

impl Task {
    /// The lock that it is about.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Task::Run(plan) => Some(&plan.name),
            Task::Acquire(acquire) => Some(&acquire.name),
            Task::Extend(extend) => Some(&extend.name),
            Task::Release(release) => Some(&release.name),
            Task::Status(status) => status.name.as_deref(),
            Task::Await(wait) => Some(&wait.name),
            Task::Completions(_) => None,
        }
    }
}

/// What a command that takes no lease derives its time-outs from.
pub(crate) fn default_ttl() -> Duration {
    DEFAULT_TTL
}

/// Turns the command line into a task.
///
/// # Errors
/// [`Error::Usage`] for everything that is impossible or cannot be safe.
pub(crate) fn plan(cli: Cli) -> Result<Task, Error> {
    match cli.command {
        // Needs nothing, and is to work with a broken configuration too.
        Command::Completions(args) => Ok(Task::Completions(args.shell)),
        _ => plan_from(cli, &Sources::of_process()?),
    }
}

fn plan_from(cli: Cli, sources: &Sources) -> Result<Task, Error> {
    let common = cli.common();
    let manner = manner(&common, &cli.command)?;
    let settings = settings(&common, sources)?;
    Ok(match cli.command {
        Command::Run(args) => Task::Run(Box::new(run(*args, &common, settings, manner, sources)?)),
        Command::Acquire(args) => {
            let name = name(args.taking.name.clone(), &settings)?;
            if args.taking.conflict_exit_code == Some(0) {
                return refuse("-E 0 with acquire would let a script go on without the lock; it goes with run");
            }
            let ancestors = ancestors(sources)?;
            let label = label(&common, sources)?.unwrap_or_default();
            let request = Request {
                // We shall be gone; the script that called us has the token.
                pid: std::os::unix::process::parent_id(),
                ..request(&args.taking, args.wait, label, &ancestors, SHORTEST_TTL)?
            };
            Task::Acquire(Acquire { settings, name, request, manner })
        }
        Command::Extend(args) => {
            let (name, token) = name_and_token(args.named, args.token, &settings, sources)?;
            let token = token.ok_or_else(|| usage("which lease? --token is missing"))?;
            let ttl = args.ttl.map(|ttl| checked_ttl(ttl, SHORTEST_TTL)).transpose()?;
            Task::Extend(Extend { settings, name, token, ttl, manner })
        }
        Command::Release(args) => {
            let (name, mut token) = name_and_token(args.named, args.token, &settings, sources)?;
            if args.revoke || args.force {
                // As `status` shows it.
                token = token.map(|token| token.trim_end_matches('…').to_owned());
            }
            if (args.revoke || args.force) && token.as_ref().is_some_and(|token| token.chars().count() < SHOWN_OF_TOKEN)
            {
                return refuse(
                    "--token is too short to say whose lease is meant: it takes the eight characters that status shows",
                );
            }
            let how = match (args.revoke, args.force, token) {
                (true, _, token) => How::Revoke(token),
                (_, true, token) => How::Force(token),
                (_, _, Some(token)) => How::Token(token),
                _ => {
                    return refuse("which lease? --token is missing; --revoke and --force end somebody else's");
                }
            };
            Task::Release(Release { settings, name, how, manner })
        }
        Command::Status(args) => {
            let name = one_name(args.named)?.map(|given| name(given, &settings)).transpose()?;
            let token = args.token.map(checked_token).transpose()?;
            let exit_code = args.exit_code || manner.quiet;
            if name.is_none() && (token.is_some() || exit_code) {
                return refuse("--token, --exit-code and -q ask about one lock; the name is missing");
            }
            if args.watch.is_some() && (token.is_some() || args.exit_code) {
                return refuse("--watch goes on for ever, so that --token and --exit-code never give a status");
            }
            if args.watch.is_some_and(|every| every < Duration::from_millis(100)) {
                return refuse("--watch: 100ms is the shortest");
            }
            Task::Status(Status { settings, name, token, exit_code, watch: args.watch, manner })
        }
        Command::Wait(args) => {
            let given = one_name(args.named)?.ok_or_else(|| usage("which lock? the name is missing"))?;
            Task::Await(Await { name: name(given, &settings)?, settings, timeout: args.timeout, manner })
        }
        Command::Completions(args) => Task::Completions(args.shell),
    })
}

fn run(
    args: cli::RunArgs,
    common: &Common,
    settings: Settings,
    manner: Manner,
    sources: &Sources,
) -> Result<supervise::Plan, Error> {
    let name = name(args.taking.name.clone(), &settings)?;
    let ancestors = ancestors(sources)?;
    let label = match label(common, sources)? {
        Some(label) => label,
        None => base_name(&args.command),
    };
    let request = request(&args.taking, args.wait, label, &ancestors, SHORTEST_TTL_OF_RUN)?;
    if args.command.first().is_none_or(|command| command.is_empty()) {
        return refuse("the command is empty");
    }
    let largest = supervise::timeline::largest_grace(request.ttl);
    if args.grace.is_some_and(|grace| grace > largest) {
        let (ttl, largest) = (shown(request.ttl), shown(largest));
        return refuse(format!(
            "--grace does not fit into a ttl of {ttl} beside three tries to renew it; {largest} is the largest"
        ));
    }
    if args.hold_at_least.is_some_and(|hold| hold > LONGEST_TTL) {
        return refuse("--hold-at-least: 30 days is the longest");
    }
    // Like timeout(1): zero switches a limit off.
    let limit = |limit: Option<Duration>| limit.filter(|limit| !limit.is_zero());
    Ok(supervise::Plan {
        environment: environment(common, &settings, &ancestors, sources)?,
        settings,
        name,
        request,
        command: args.command,
        grace: args.grace,
        kill_after: limit(args.kill_after),
        continue_when_lost: args.on_lost == OnLost::Continue,
        hold_at_least: limit(args.hold_at_least),
        max_run: limit(args.max_run),
        whole: args.whole,
        quiet: manner.quiet,
        verbose: manner.verbose,
    })
}

fn usage(text: impl Into<String>) -> Error {
    Error::Usage(text.into())
}

fn refuse<T>(text: impl Into<String>) -> Result<T, Error> {
    Err(usage(text))
}

fn manner(common: &Common, command: &Command) -> Result<Manner, Error> {
    let manner = Manner { format: common.format.unwrap_or_default(), quiet: common.quiet, verbose: common.verbose };
    if manner.quiet && manner.verbose {
        return refuse("--quiet and --verbose contradict each other");
    }
    if manner.format == Format::Env && !matches!(command, Command::Acquire(_)) {
        return refuse("--format env goes with acquire only; there are text and json");
    }
    if common.label.is_some() && !matches!(command, Command::Acquire(_) | Command::Run(_)) {
        return refuse("--label goes with run and acquire only");
    }
    Ok(manner)
}

fn label(common: &Common, sources: &Sources) -> Result<Option<String>, Error> {
    let label = match &common.label {
        Some(label) => Some(label.clone()),
        None => sources.setting(&["REDLOCK_LABEL"])?.map(|value| value.text),
    };
    match label {
        Some(label) if label.len() > LONGEST_LABEL => refuse(format!("the label is longer than {LONGEST_LABEL} bytes")),
        Some(label) if label.chars().any(char::is_control) => refuse("the label has a control character in it"),
        label => Ok(label),
    }
}

/// The command's base name, for people to read: never its arguments, which may hold secrets.
fn base_name(command: &[OsString]) -> String {
    let name = command.first().and_then(|command| Path::new(command).file_name()).unwrap_or_default();
    let mut label = String::new();
    for letter in name.to_string_lossy().chars() {
        if label.len() + letter.len_utf8() > LONGEST_LABEL {
            break;
        }
        label.push(if letter.is_control() { '?' } else { letter });
    }
    label
}

/// Checks a name, alone and behind its prefix.
fn name(name: String, settings: &Settings) -> Result<String, Error> {
    if name.is_empty() {
        return refuse("empty name");
    }
    if name.len() > LONGEST_NAME {
        return refuse(format!("the name is {} bytes long, and {LONGEST_NAME} are the most", name.len()));
    }
    if name.chars().any(char::is_control) {
        return refuse(format!("the name {name:?} has a control character in it"));
    }
    let key = format!("{}{name}", settings.prefix);
    if !fits_one_slot(&key) {
        return refuse(format!(
            "the key {key:?} has a }} but no hash tag like {{this}}; its parts could not stay together in a Cluster"
        ));
    }
    Ok(name)
}

/// The name from `--name` or the plain argument.
fn one_name(named: Named) -> Result<Option<String>, Error> {
    match (named.name, named.plain) {
        (Some(name), Some(plain)) if name != plain => {
            refuse(format!("two names, {name:?} and {plain:?}; one lock at a time"))
        }
        (name, plain) => Ok(name.or(plain)),
    }
}

fn checked_token(token: String) -> Result<String, Error> {
    match token.is_empty() {
        true => refuse("empty token: did acquire fail?"),
        false => Ok(token),
    }
}

/// Name and token of extend and release. Those of the job around us are a pair: for another name they mean nothing, and a
/// token that was given does not belong to their name.
fn name_and_token(
    named: Named,
    token: Option<String>,
    settings: &Settings,
    sources: &Sources,
) -> Result<(String, Option<String>), Error> {
    let given = one_name(named)?;
    let token = token.map(checked_token).transpose()?;
    let pair = match (sources.variable("REDLOCK_NAME")?, sources.variable("REDLOCK_TOKEN")?) {
        (Some(name), Some(token)) => Some((name.text, token.text)),
        _ => None,
    };
    let (given, token) = match (given, token, pair) {
        (None, None, Some((name, token))) => (name, Some(token)),
        (Some(given), None, Some((name, token))) if given == name => (given, Some(token)),
        (Some(given), token, _) => (given, token),
        (None, _, _) => return refuse("which lock? the name is missing"),
    };
    Ok((name(given, settings)?, token))
}

fn checked_ttl(ttl: Duration, shortest: Duration) -> Result<Duration, Error> {
    match ttl {
        _ if ttl < shortest => refuse(format!("--ttl: {} is the shortest", shown(shortest))),
        _ if ttl > LONGEST_TTL => refuse("--ttl: 30 days is the longest"),
        // Redis counts milliseconds.
        _ => Ok(Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))),
    }
}

fn request(
    taking: &Taking,
    wait: Option<Option<Duration>>,
    label: String,
    ancestors: &[String],
    shortest: Duration,
) -> Result<Request, Error> {
    let token = taking.token.clone().map(checked_token).transpose()?;
    let (ancestors, reenter) = match (token, taking.reentrant) {
        (Some(_), false) => {
            return refuse("--token goes with --reentrant: it is the lease to enter once more");
        }
        (Some(token), true) => (vec![token], Reenter::Must),
        (None, true) => (ancestors.to_vec(), Reenter::IfHeld),
        (None, false) => (ancestors.to_vec(), Reenter::No),
    };
    let wait = match wait {
        None => Wait::No,
        Some(None) => Wait::Forever,
        Some(Some(time)) if time.is_zero() => Wait::No,
        Some(Some(time)) => Wait::For(time),
    };
    Ok(Request { ttl: checked_ttl(taking.ttl, shortest)?, wait, pid: std::process::id(), label, ancestors, reenter })
}

/// The tokens of all leases that the jobs around us hold, outermost first: `REDLOCK_HELD`, separated by spaces, and
/// `REDLOCK_TOKEN`. A token is random, so that it need not be said of which lock.
fn ancestors(sources: &Sources) -> Result<Vec<String>, Error> {
    let mut tokens = Vec::new();
    for name in ["REDLOCK_HELD", "REDLOCK_TOKEN"] {
        for token in sources.variable(name)?.iter().flat_map(|value| value.text.split_whitespace()) {
            if !tokens.iter().any(|known| known == token) {
                tokens.push(token.to_owned());
            }
        }
    }
    Ok(tokens)
}

/// A duration as it can be given again, in whole milliseconds.
fn shown(time: Duration) -> String {
    let whole = Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    humantime::format_duration(whole).to_string()
}

#[cfg(test)]
mod tests;
