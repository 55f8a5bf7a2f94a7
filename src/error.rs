//! The typed error of everything below the commands. Most errors are data, and get their words in Display. No status
//! numbers, no printing.
//!
//! This file and `lock/` import each other: `lock/` returns these errors, and they contain types of `lock/`, because a
//! message names the holder.

use crate::lock::{Claim, Holder, Leases, Newest, Obstacle, Owner, Run, quorum};
use crate::redis::{Cause, Fault, Unusable};
use crate::sys::clock::{local_minute, unix_time};
use crate::sys::{host, signals};
use crate::text::{escaped, exact, first_of, human, quoted, reason, safe, seconds, shell_word};
use nix::errno::Errno;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// A message names this many holders of a lock at most.
const NAMED: usize = 10;
/// A message shows this many characters of a command at most.
const COMMAND: usize = 200;

/// A failure, displayed in one line: what happened to which lock on which node, and what to do next.
#[derive(Debug)]
pub(crate) enum Error {
    /// Bad flag, name, duration or URL, or a combination that cannot be safe.
    Usage(String),
    /// The lock is held, and the caller does not wait, or the wait is over. The holder may be an enclosing job.
    Held(Box<NamedObstacle>),
    /// The holders and this call name different numbers of slots, or only one side has slots.
    OtherClaim(Box<NamedObstacle>, Claim),
    /// `--once-per`: the call has nothing to do. `unlike`: the label of this call, if it seems to be of another job
    /// than the run in `by`.
    NotNeeded { name: String, by: Box<Reason>, unlike: Option<String> },
    /// `--newest`: another call has come with a larger number.
    Superseded { name: String, by: Box<Newest> },
    /// The lock is not free, so it cannot be forgotten.
    InUse(Box<NamedObstacle>),
    /// redlock cannot end the obstacle: another program's lock, or a key that is not a lock.
    CannotEnd(Box<NamedObstacle>),
    /// No quorum of nodes has answered, or the nodes that answered do not agree. `name`: None for a command that may be
    /// about several locks. `reached`: the number of nodes that answered. `is_default`: no option, variable or file has
    /// named the node.
    NoQuorum { name: Option<String>, nodes: usize, reached: usize, faults: Vec<(String, Fault)>, is_default: bool },
    /// The lease was too old to be used: at the grant, at the start of the command, or after the token was printed.
    GrantedTooLate { name: String, ttl: Duration },
    /// A lease was lost before the command of `run` was started. `taken`: a node reports that the lease was deleted or
    /// revoked, or that the lock has another holder.
    LostBeforeStart { name: String, why: String, taken: bool },
    /// Something that redlock needs is missing at present: descriptors, memory, the server of `local:`.
    Unavailable(String),
    /// The directory of `local:` is refused, because this user has no right to it, or another user could interfere. Or
    /// this machine (a sandbox, a /proc of others) refuses what redlock needs. Waiting does not help.
    Refused(String),
    /// The command was not found, or cannot be executed.
    NoCommand { command: String, errno: Errno, why: String },
    /// The token does not hold the lock, its lease cannot be used, or there is no lease to revoke.
    NotOurs { name: String, token: String, found: Box<NotOurs> },
    /// The result could not be written.
    Output(String),
    /// This signal ended the call; SIGPIPE: the reader of standard output has closed the pipe.
    Interrupted(i32),
    /// `run` under these locks ended before its job began, for this reason.
    DidNotRun { names: Vec<String>, why: Box<Error> },
}

/// Why a call with `--once-per` has nothing to do. All runs are of its period.
#[derive(Debug)]
pub(crate) enum Reason {
    /// This run has succeeded.
    Ran(Run),
    /// This holder's run goes on.
    Runs(Holder),
    /// The lock is closed.
    Closed(NamedObstacle),
    /// As many runs have begun, the first of them `ago`, as `--tries` allows.
    Tried { times: u64, ago: Option<Duration>, last: Option<Run> },
}

/// Why a token names no lease that the caller can use.
#[derive(Clone, Debug)]
pub(crate) enum NotOurs {
    Free,
    /// The token does not hold the lock, so there is no lease to re-enter.
    NoneToReenter,
    NoneToRevoke,
    Other(NamedObstacle),
    /// The lock is held, but no holder has the lease that was to be revoked.
    OtherToRevoke(NamedObstacle),
    /// This user has revoked the lease. The holder can release it, but not extend it.
    Revoked(String),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct NamedObstacle {
    pub(crate) name: String,
    pub(crate) by: Obstacle,
    pub(crate) waited: Option<Duration>,
    /// True if the holder is an enclosing job.
    pub(crate) by_this_job: bool,
    /// With `by_this_job`: true if `--reentrant` would let this call re-enter the job's lease.
    pub(crate) can_reenter: bool,
    /// True if the caller could share the lock with the holders, but an exclusive waiter is ahead in line.
    pub(crate) is_promised: bool,
    /// With `--once-per`: true if another call, which stood in line before this one, reports the obstacle.
    pub(crate) is_reported: bool,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(text) | Error::Unavailable(text) | Error::Output(text) | Error::Refused(text) => {
                f.write_str(text)
            }
            Error::Held(held) => held.fmt(f),
            Error::InUse(held) => {
                write!(f, "{:?} {}; it can be forgotten once it is free", held.name, held.situation(Duration::ZERO))
            }
            Error::OtherClaim(held, claim) => other_claim(f, held, *claim),
            Error::NotNeeded { name, by, unlike } => not_needed(f, name, by, unlike.as_deref()),
            Error::Superseded { name, by } => {
                write!(f, "{name:?}: superseded by {by}{}; for a rollback leave out --newest", by.again())
            }
            Error::CannotEnd(held) => cannot_end(f, held),
            Error::NoQuorum { name: Some(name), .. } | Error::GrantedTooLate { name, .. } => {
                write!(f, "{name:?}: {}", self.with_advice())
            }
            Error::NoQuorum { name: None, .. } => f.write_str(&self.with_advice()),
            Error::DidNotRun { names, why } => {
                // This message names all locks. If there is only one, the reason does not repeat its name.
                let why = if names.len() == 1 { why.with_advice() } else { why.to_string() };
                write!(f, "{} did not run: {why}", quoted(names, " and "))
            }
            Error::LostBeforeStart { name, why, .. } => {
                write!(f, "lost {name:?} before the command was started: {why}")
            }
            Error::NoCommand { command, why, .. } => {
                let advice = if is_of_shell(command) { "; -c runs a shell line" } else { "" };
                write!(f, "cannot start \"{}\": {why}{advice}", escaped(command, COMMAND))
            }
            Error::NotOurs { name, token, found } => not_ours(f, name, token, found),
            Error::Interrupted(signal) => write!(f, "interrupted by {}", signals::name(*signal)),
        }
    }
}

impl std::error::Error for Error {}

/// A call with an unusable value is wrong. But if a shortage is the reason, the same call may succeed later.
impl From<Unusable> for Error {
    fn from(Unusable { why, cause }: Unusable) -> Error {
        match cause {
            Cause::Wrong => Error::Usage(why),
            Cause::System => Error::Unavailable(why),
            Cause::Refused => Error::Refused(why),
        }
    }
}

/// Words that only a shell executes: most systems have no program of these names.
const OF_SHELL: [&str; 29] = [
    ".", ":", "alias", "bg", "case", "cd", "command", "declare", "eval", "exec", "exit", "export", "fg", "for",
    "function", "if", "let", "local", "read", "readonly", "set", "shift", "source", "time", "trap", "ulimit", "umask",
    "unset", "while",
];

/// True if this command, which could not be started, is probably meant for a shell.
fn is_of_shell(command: &str) -> bool {
    OF_SHELL.contains(&command)
        || command.contains([' ', '|', '&', ';', '<', '>', '(', ')', '$', '`', '*', '=', '~', '{'])
}

impl Error {
    pub(crate) fn can_heal(&self) -> bool {
        match self {
            Error::GrantedTooLate { .. } | Error::LostBeforeStart { .. } => true,
            Error::NoQuorum { nodes, faults, .. } => {
                quorum(*nodes) + faults.iter().filter(|(_, fault)| fault.is_final()).count() <= *nodes
            }
            _ => false,
        }
    }

    /// [`Error::NoQuorum`] gets the name of the lock, if the command was about one lock.
    pub(crate) fn about(mut self, lock: Option<&str>) -> Error {
        if let Error::NoQuorum { name, .. } = &mut self {
            *name = lock.map(str::to_owned).or(name.take());
        }
        self
    }

    /// The error for a system call that failed. What is not refused for good may pass, so its exit status means: try
    /// again.
    pub(crate) fn of_system(what: &str, error: &io::Error) -> Error {
        match host::is_refusal(error) {
            true => Error::Refused(format!("{what}: {} (does a sandbox forbid a system call?)", reason(error))),
            false => {
                let why = host::shortage(error).map_or_else(|| reason(error), str::to_owned);
                Error::Unavailable(format!("{what}: {why}"))
            }
        }
    }

    pub(crate) fn no_command(command: &OsStr, errno: Errno) -> Error {
        let has_path = command.as_bytes().contains(&b'/');
        let why = match errno {
            _ if command.is_empty() => "the word is empty; is a variable unset?".to_owned(),
            Errno::EACCES if Path::new(command).is_dir() => "it is a directory".to_owned(),
            Errno::ENOENT if has_path && Path::new(command).exists() => "its interpreter was not found".to_owned(),
            Errno::ENOENT => "not found".to_owned(),
            errno => errno.desc().to_lowercase(),
        };
        match host::shortage(&errno.into()) {
            Some(_) => Error::of_system(&format!("cannot start {command:?}"), &errno.into()),
            None => Error::NoCommand { command: command.to_string_lossy().into_owned(), errno, why },
        }
    }

    /// The error when redlock cannot wait, usually for lack of descriptors or memory.
    pub(crate) fn cannot_wait(error: io::Error) -> Error {
        Error::of_system("cannot ask any node", &error)
    }

    /// [`Error::DidNotRun`], unless it is a refusal (a holder, `--once-per`, `--newest`), a wrong call, or a signal.
    pub(crate) fn before_the_job(self, names: &[String]) -> Error {
        match self {
            Error::Usage(_)
            | Error::Held(_)
            | Error::OtherClaim(..)
            | Error::NotNeeded { .. }
            | Error::Superseded { .. }
            | Error::Interrupted(_) => self,
            why => Error::DidNotRun { names: names.to_vec(), why: Box::new(why) },
        }
    }

    /// The problem and the advice. [`Error::NoQuorum`] and [`Error::GrantedTooLate`] do not name the lock here.
    fn with_advice(&self) -> String {
        match self {
            Error::NoQuorum { faults, is_default: true, .. } if matches!(faults[..], [(_, Fault::Unreachable(_))]) => {
                format!("{}; {NO_SERVER}", self.trouble())
            }
            Error::NoQuorum { faults, .. } => format!("{}; {}", self.trouble(), advice(faults)),
            Error::GrantedTooLate { .. } => format!("{}; use a longer --ttl", self.trouble()),
            error => error.to_string(),
        }
    }

    /// The problem without advice, and where possible without the lock's name.
    pub(crate) fn trouble(&self) -> String {
        match self {
            Error::NoQuorum { nodes: 1, faults, .. } => nodes_with_faults(faults),
            Error::NoQuorum { nodes, reached, faults, .. } => {
                let needed = quorum(*nodes);
                let few = match *reached < needed {
                    true => format!("{reached} of {nodes} nodes answered, {needed} needed"),
                    false => format!("the {reached} of {nodes} nodes that answered do not agree"),
                };
                if faults.is_empty() { few } else { format!("{few}: {}", nodes_with_faults(faults)) }
            }
            Error::GrantedTooLate { ttl, .. } => {
                format!("too much of the lease of {} had passed before it could be used", exact(*ttl))
            }
            error => error.to_string(),
        }
    }
}

/// `"backup" has run: web-3, 03:00, 4m 12s`. With `unlike`, a question follows the same beginning.
fn not_needed(f: &mut fmt::Formatter<'_>, name: &str, by: &Reason, unlike: Option<&str>) -> fmt::Result {
    let since = |ago: Option<Duration>| {
        ago.and_then(|ago| local_minute(unix_time().saturating_sub(ago))).unwrap_or_else(|| "?".to_owned())
    };
    let host = |owner: &Owner| safe(owner.host.as_deref().unwrap_or("?"));
    match (by, unlike) {
        (Reason::Closed(held), _) => write!(f, "{name:?} {}", held.situation(Duration::ZERO)),
        (Reason::Ran(run), Some(ours)) => two_jobs(f, name, "has run", &run.owner, ours),
        (Reason::Runs(holder), Some(ours)) => two_jobs(f, name, "is being run", &holder.owner, ours),
        (Reason::Ran(run), None) => {
            let duration = run.duration.map_or_else(String::new, |time| format!(", {}", seconds(time)));
            write!(f, "{name:?} has run: {}, {}{duration}", host(&run.owner), since(run.began_ago()))
        }
        (Reason::Runs(holder), None) => {
            write!(f, "{name:?} is being run by {} since {}", host(&holder.owner), since(holder.held))
        }
        (Reason::Tried { times, ago, last }, _) => {
            let times = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
            write!(f, "{name:?} has been tried {times} since {}", since(*ago))?;
            last.as_ref().map_or(Ok(()), |run| write!(f, ", last on {}: {}", host(&run.owner), run.result()))
        }
    }
}

/// `"nightly" has run as pg-dump on db-1, not as files: two jobs with one name? …`
fn two_jobs(f: &mut fmt::Formatter<'_>, name: &str, verb: &str, owner: &Owner, ours: &str) -> fmt::Result {
    let part = |text: &Option<String>| safe(text.as_deref().unwrap_or("?"));
    let (theirs, host, ours) = (part(&owner.label), part(&owner.host), safe(ours));
    let question = "two jobs with one name? (one job: give both the same --label)";
    write!(f, "{name:?} {verb} as {theirs} on {host}, not as {ours}: {question}")
}

/// A lease whose job nobody can be asked to stop: `"deploy" was taken by acquire on ci-7, pid 4713, and nothing renews
/// it: free in 8m. If that script is dead: redlock release deploy --force`
fn cannot_end(f: &mut fmt::Formatter<'_>, held: &NamedObstacle) -> fmt::Result {
    let (name, [holder, ..]) = (&held.name, held.by.holders()) else {
        return write!(f, "{:?} {}; redlock does not delete it", held.name, held.situation(Duration::ZERO));
    };
    let (who, what) = match (holder.owner.host.as_deref(), holder.owner.pid) {
        (Some(host), pid) => {
            let pid = pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
            (format!("acquire on {}{pid}, and nothing renews it", safe(host)), "script")
        }
        (None, _) => (format!("{holder}, which redlock cannot stop"), "program"),
    };
    let free = holder.lease.map_or_else(|| "it never expires".to_owned(), |left| format!("free in {}", human(left)));
    let is_alone = matches!(&held.by, Obstacle::Leases(leases) if leases.count == 1);
    let which = if is_alone { String::new() } else { format!(" --token {}", holder.short_token()) };
    let release = format!("redlock release {} --force{which}", shell_word(name));
    write!(f, "{name:?} was taken by {who}: {free}. If that {what} is dead: {release}")
}

/// The claim in force, its holder, and the claim that was asked for: `"dl" is in use with 3 slots (by deploy@web-3),
/// not 4`.
fn other_claim(f: &mut fmt::Formatter<'_>, held: &NamedObstacle, claim: Claim) -> fmt::Result {
    let there = held.by.claim();
    let by = match &held.by {
        Obstacle::Leases(leases) => format!(" (by {})", named(leases, 1)),
        _ => String::new(),
    };
    let wanted = match (there, claim) {
        (Claim::Slots(_), Claim::Slots(limit)) => limit.to_string(),
        _ => how(claim),
    };
    write!(f, "{:?} is in use {}{by}, not {wanted}", held.name, how(there))
}

fn how(claim: Claim) -> String {
    match claim {
        Claim::Exclusive => "exclusively".to_owned(),
        Claim::Shared => "with --shared".to_owned(),
        Claim::Slots(1) => "with 1 slot".to_owned(),
        Claim::Slots(limit) => format!("with {limit} slots"),
    }
}

fn not_ours(f: &mut fmt::Formatter<'_>, name: &str, token: &str, found: &NotOurs) -> fmt::Result {
    match found {
        NotOurs::NoneToReenter => {
            write!(f, "the token does not hold {name:?}, so there is no lease to re-enter")
        }
        NotOurs::NoneToRevoke => write!(f, "{name:?} is not held"),
        NotOurs::Free => write!(f, "{name:?} is not held: the lease was released or ran out, or the name is wrong"),
        NotOurs::OtherToRevoke(held) => {
            let situation = held.situation(Duration::ZERO);
            write!(f, "{name:?} {situation}; no lease has that token: run redlock status again")
        }
        NotOurs::Other(held) => {
            // The user may have copied a cut token from `status`, such as `3f9a…`.
            let start = token.trim_end_matches('…');
            if start.len() < 4 || !held.by.holders().iter().any(|holder| holder.begins_with(start)) {
                return write!(f, "the token does not hold {name:?}: it {}", held.situation(Duration::ZERO));
            }
            write!(f, "that is only the start of the token that holds {name:?}; give the whole token")
        }
        NotOurs::Revoked(by) => {
            let by = safe(by);
            write!(f, "the lease on {name:?} was revoked by {by}: stop the work that it protects, then release it")
        }
    }
}

impl NotOurs {
    /// Why a lease in use was lost. The message puts `lost "backup": ` before this.
    pub(crate) fn what_became(&self) -> String {
        match self {
            NotOurs::Other(held) => format!("it {}", held.situation(Duration::ZERO)),
            NotOurs::Revoked(by) => format!("it was revoked by {}", safe(by)),
            _ => "it was released or deleted while in use".to_owned(),
        }
    }
}

pub(crate) fn nodes_with_faults(faults: &[(String, Fault)]) -> String {
    faults.iter().map(|(node, fault)| format!("{node} {fault}")).collect::<Vec<_>>().join(", ")
}

/// The advice if no server was configured, and none answers at the default address.
const NO_SERVER: &str =
    "set --redis or REDLOCK_REDIS, or start Redis at this address; --redis local: starts one for this machine alone";

/// The advice for the fault with the highest rank ([`Fault::advice`]).
fn advice(faults: &[(String, Fault)]) -> Cow<'static, str> {
    faults.iter().map(|(_, fault)| fault.advice()).max().map_or("try again".into(), |(_, advice)| advice)
}

/// The first `most` holders in one line, and the number of the others: "deploy@web-3 (nightly) and 3 more".
fn named(leases: &Leases, most: usize) -> String {
    first_of(leases.holders.iter().map(Holder::in_short), most, leases.count)
}

/// The new holders of a lock that the caller has lost: "deploy@web-3 now holds it".
pub(crate) fn now_held_by(leases: &Leases) -> String {
    let verb = if leases.count > 1 { "hold" } else { "holds" };
    format!("{} now {verb} it", named(leases, NAMED))
}

impl NamedObstacle {
    /// The facts about the caller (its wait, its job) are still missing.
    pub(crate) fn of(name: &str, by: Obstacle) -> NamedObstacle {
        NamedObstacle { name: name.to_owned(), by, ..NamedObstacle::default() }
    }

    /// The obstacle in words, from facts that are `ago` old: "is held by …, for 4m 12s, lease 21s left".
    pub(crate) fn situation(&self, ago: Duration) -> String {
        let (verb, rest) = self.predicate(ago);
        format!("{verb}{rest}")
    }

    /// The obstacle in fewer words, for the line that a waiter sees: "held by deploy@web-3 (nightly)".
    pub(crate) fn situation_in_short(&self, ago: Duration) -> String {
        match self.by.holders() {
            [holder @ Holder { claim: Claim::Exclusive, .. }] if holder.has_record() => {
                format!("held by {}", holder.in_short())
            }
            _ => self.predicate(ago).1,
        }
    }

    /// The predicate in two parts: the verb (may be empty), and the rest.
    fn predicate(&self, ago: Duration) -> (&'static str, String) {
        let leases = match &self.by {
            Obstacle::Unknown => return ("is ", "held by another process".to_owned()),
            Obstacle::Reserved(_) => {
                return ("is ", "free but reserved for the next in line or an earlier holder".to_owned());
            }
            Obstacle::Closed(by, left) => {
                let until = local_minute((unix_time() + *left).saturating_sub(ago)).unwrap_or_else(|| "?".to_owned());
                return ("is ", format!("closed by {} until {until}", safe(by)));
            }
            Obstacle::OtherType(left) => {
                let expiry =
                    left.map_or_else(|| "never expires".to_owned(), |left| format!("expires in {}", human(left)));
                return ("", format!("exists but is not a lock (its key is not a string, and {expiry})"));
            }
            Obstacle::Leases(leases) => leases,
        };
        let (count, all) = (leases.count, || named(leases, NAMED));
        match (leases.holders.as_slice(), self.by.claim()) {
            ([holder], Claim::Exclusive) => self.predicate_of(holder, ago),
            (_, Claim::Exclusive) => ("is ", format!("held by {}", all())),
            (_, Claim::Shared) => {
                let next = if self.is_promised { "; an exclusive waiter is ahead in line" } else { "" };
                ("is ", format!("shared by {count}: {}{next}", all()))
            }
            (_, Claim::Slots(limit)) if count < limit.into() => {
                ("has ", format!("{count} of {limit} slots taken: {}", all()))
            }
            (_, Claim::Slots(limit)) => ("has ", format!("all {limit} slots taken: {}", all())),
        }
    }

    fn predicate_of(&self, holder: &Holder, ago: Duration) -> (&'static str, String) {
        let left = holder.lease.and_then(|lease| lease.checked_sub(ago)).map(human);
        let whose = if self.by_this_job { "the enclosing job, " } else { "" };
        let since = holder.held.map_or_else(String::new, |held| format!(", for {}", seconds(held + ago)));
        let revoked = holder.revoked.as_ref();
        let revoked = revoked.map_or_else(String::new, |by| format!(", revoked by {}", safe(by)));
        let lease = match (holder.lease, left) {
            (None, _) => ", and never expires".to_owned(),
            (_, Some(left)) => format!(", lease {left} left"),
            (_, None) => String::new(), // lease renewed meanwhile
        };
        ("is ", format!("held by {whose}{holder}{since}{revoked}{lease}"))
    }
}

impl fmt::Display for NamedObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.name, self.situation(Duration::ZERO))?;
        if let Some(waited) = self.waited {
            write!(f, "; gave up after {}", human(waited))?;
        }
        match (self.by_this_job, self.waited) {
            (true, _) if self.can_reenter => f.write_str("; use --reentrant to re-enter it"),
            (true, _) => f.write_str("; waiting for it would never end"),
            (false, None) if self.by.never_ends() => f.write_str("; use another name or --prefix"),
            (false, None) => f.write_str("; use --wait to queue for it"),
            (false, Some(_)) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_server_was_named_the_advice_says_how_to() {
        let unreachable = |is_default: bool| Error::NoQuorum {
            name: None,
            nodes: 1,
            reached: 0,
            faults: vec![("127.0.0.1:6379".to_owned(), Fault::Unreachable("connection refused".to_owned()))],
            is_default,
        };
        let said = unreachable(true).to_string();
        assert!(["--redis", "REDLOCK_REDIS", "local:"].iter().all(|word| said.contains(word)), "{said}");
        assert!(!unreachable(false).to_string().contains("REDLOCK_REDIS"));
    }
}
