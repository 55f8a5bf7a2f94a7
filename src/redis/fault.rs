//! What went wrong with a node, in words that continue "10.0.0.1:6379 …".

use super::address::Host;
use super::script::Call;
use super::tls::{self, Untrusted};
use crate::sys::host;
use crate::text::{escaped, human, reason};
use redis::RedisError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Why a node gave no answer that can be used. Displayed, it continues "10.0.0.1:6379 …".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No answer before the deadline.
    TimedOut,
    /// The others have decided, and this one had not answered yet.
    Slower,
    /// The other side closed the connection; a new one may work at once.
    Closed,
    /// One of these two, and it has never said anything: it may speak TLS, or not, other than its URL says.
    Mute(Box<Fault>),
    /// It was started so recently that it may have forgotten what it is asked about: how long ago, and for how long it cannot tell.
    Young { uptime: Duration, left: Duration },
    /// There is no connection, for this reason.
    Unreachable(String),
    /// This machine, not the node, lacks something.
    Shortage(&'static str),
    /// An answer that no Redis gives.
    Garbage(&'static str),
    /// It answers, but cannot serve now: loading, out of memory, read-only. The code of a [`Meaning`] and the server's text.
    CannotServe(String, String),
    /// Refused for good: password, ACL. Its code, which may have a [`Meaning`], and the server's text.
    Refused(String, String),
    /// The address itself is wrong: a Sentinel, no such database. The code of a [`Meaning`] and the server's text.
    Misconfigured(String, String),
    /// TLS has failed for good.
    Untrusted(Untrusted),
    /// It has done what was asked, but too few of its replicas have said in time that they have it: how many, of how many.
    Unconfirmed(i64, u32),
}

impl Fault {
    pub(super) fn of_io(error: &io::Error) -> Fault {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock};
        // A socket that would have to wait is no shortage, though the number is the same.
        if let Some(shortage) = host::shortage(error).filter(|_| error.kind() != WouldBlock) {
            return Fault::Shortage(shortage);
        }
        if let Some(untrusted) = error.get_ref().and_then(|inner| inner.downcast_ref()).and_then(tls::distrust) {
            return Fault::Untrusted(untrusted);
        }
        match error.kind() {
            TimedOut => Fault::TimedOut,
            UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe => Fault::Closed,
            _ => {
                let why = reason(error).to_lowercase();
                Fault::Unreachable(escaped(why.trim_start_matches("failed to lookup address information: "), 200))
            }
        }
    }

    pub(super) fn of(error: &RedisError) -> Fault {
        if let Some(io) = io_error(error) {
            return Fault::of_io(io);
        }
        if error.is_connection_dropped() {
            return Fault::Closed;
        }
        let Some(code) = error.code() else {
            return Fault::Garbage("it cannot be parsed");
        };
        let (code, detail) = without_script(code, error.detail().unwrap_or_default());
        match (code, detail) {
            ("", _) => Fault::Garbage("an empty error"),
            // To a long request a server that requires a password says no more than that it is too long.
            (_, detail) if detail.contains("unauthenticated") => classified("NOAUTH", detail),
            // What follows are our own arguments.
            (code, detail) => classified(code, detail.split(", with args").next().unwrap_or(detail)),
        }
    }

    /// The same for a script. Of a command in it that is forbidden or renamed, or of a key, many servers do not say which.
    pub(super) fn of_call(error: &RedisError, call: &Call) -> Fault {
        let detail = error.detail().unwrap_or_default();
        let says = |words: &str| detail.contains(words);
        let command = || call.script.command_at(line_of_script(detail)).unwrap_or("a command of the script");
        let refused = |code: &str, detail: String| Fault::Refused(code.to_owned(), detail);
        match Fault::of(error) {
            Fault::Refused(..) if says("Unknown Redis command") => {
                refused("unknown command", format!("unknown command {}", command()))
            }
            Fault::Refused(..) if says("can't run this command") => {
                refused("NOPERM", format!("the user may not run {}", command()))
            }
            Fault::Refused(..) if says("one of the keys") => {
                let keys: Vec<&str> = call.keys.iter().map(|key| beginning(key)).take(2).collect();
                refused("NOPERM", format!("the user may not use the keys {}…", keys.join(", ")))
            }
            fault => fault,
        }
    }

    /// The same with the name of the server that is to blame, for a node that has several.
    pub(super) fn of_server(self, server: &Host) -> Fault {
        match self {
            Fault::Unreachable(why) => Fault::Unreachable(format!("{server}: {why}")),
            Fault::Refused(code, detail) => Fault::Refused(code, format!("{detail} ({server})")),
            fault => fault,
        }
    }

    /// The same for a node that has let redlock in before: a password or a certificate may be being replaced on one side, and
    /// trying again help.
    pub(super) fn for_now(self) -> Fault {
        match self {
            Fault::Refused(code, detail) | Fault::Misconfigured(code, detail) => Fault::CannotServe(code, detail),
            Fault::Untrusted(Untrusted { what, .. }) => Fault::CannotServe(String::new(), what),
            fault => fault,
        }
    }

    /// The same for a subscription.
    pub(super) fn of_channel(error: &RedisError, channel: &str) -> Fault {
        match Fault::of(error) {
            Fault::Refused(code, detail) if detail.contains("one of the channels") => {
                Fault::Refused(code, format!("the user may not use the channels {}…", beginning(channel)))
            }
            fault => fault,
        }
    }

    /// Whether trying again at once on a new connection makes sense: the server is gone, or just coming back.
    pub(crate) fn heals_soon(&self) -> bool {
        match self {
            Fault::Closed | Fault::Unreachable(_) => true,
            Fault::Mute(fault) => fault.heals_soon(),
            Fault::CannotServe(code, _) => code == "LOADING",
            _ => false,
        }
    }

    /// Whether waiting cannot help: the node refuses us for good, or its address is wrong.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Fault::Refused(..) | Fault::Misconfigured(..) | Fault::Untrusted(_))
    }
}

impl Fault {
    /// What to do about it. Of several faults, the one with the highest rank says what to do.
    pub(crate) fn advice(&self) -> (u8, &'static str) {
        match self {
            Fault::Untrusted(untrusted) => (6, untrusted.advice),
            Fault::Misconfigured(code, _) => (5, Meaning::of(code).map_or("check --redis", |met| met.advice)),
            Fault::Refused(code, _) => {
                (4, Meaning::of(code).map_or("check the user, the password and the ACL", |met| met.advice))
            }
            Fault::CannotServe(code, _) => (3, Meaning::of(code).map_or("see its log", |met| met.advice)),
            Fault::Unconfirmed(..) => (3, "are its replicas connected, and is --replicas right?"),
            Fault::Shortage(_) => (3, "raise the limit, or try again later"),
            Fault::Garbage(_) => (2, "is --redis right?"),
            Fault::Mute(fault) if **fault == Fault::Closed => {
                (1, "is Redis running there, or is it a TLS port (rediss://)?")
            }
            Fault::Mute(_) => (1, "is Redis running there, or is it a plain port (redis://)?"),
            _ => (0, "is --redis right, and is Redis running there?"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::CannotServe(code, detail) | Fault::Refused(code, detail) | Fault::Misconfigured(code, detail) => {
                match Meaning::of(code).map_or("", |met| met.what) {
                    "" => refusal(f, code, detail),
                    what if is_code(code) => write!(f, "{what} ({code})"),
                    what => f.write_str(what),
                }
            }
            Fault::Mute(fault) => fault.fmt(f),
            Fault::TimedOut => f.write_str("timed out"),
            Fault::Slower => f.write_str("was slower than the others"),
            Fault::Closed => f.write_str("closed the connection"),
            Fault::Young { uptime, left } => {
                write!(f, "started {} ago, no vote for another {}", human(*uptime), human(*left))
            }
            Fault::Unreachable(why) => write!(f, "cannot be reached: {why}"),
            Fault::Shortage(what) => write!(f, "cannot be asked: {what}"),
            Fault::Untrusted(Untrusted { what, .. }) => f.write_str(what),
            Fault::Unconfirmed(confirmed, wanted) => {
                write!(f, "got the lease confirmed by only {confirmed} of {wanted} replicas")
            }
            Fault::Garbage(what) => write!(f, "sent something other than a Redis reply ({what})"),
        }
    }
}

/// Whether this is the code of an error reply, rather than words that one begins with.
fn is_code(code: &str) -> bool {
    code.chars().all(|c| c.is_ascii_uppercase())
}

/// An error in the server's own words.
fn refusal(f: &mut fmt::Formatter<'_>, code: &str, detail: &str) -> fmt::Result {
    match code {
        "" => {}
        code if is_code(code) => write!(f, "refused: {} ", escaped(code, 40))?,
        _ => f.write_str("refused: ")?,
    }
    f.write_str(escaped(detail, 200).trim_end_matches(['.', ' ']))
}

/// The code of what was asked as a Sentinel, and is none.
pub(super) const NOT_A_SENTINEL: &str = "not a Sentinel";

/// What an error reply means.
struct Meaning {
    /// Its code, or where that is ERR the words that its text begins with.
    code: &'static str,
    fault: fn(String, String) -> Fault,
    /// Continues "10.0.0.1:6379 …"; empty where the server's own words say more.
    what: &'static str,
    advice: &'static str,
}

/// Written as a table: code, fault, what the node is or does, what to do.
const MEANINGS: [Meaning; 23] = {
    use Fault::{CannotServe, Misconfigured, Refused};
    const fn met(
        code: &'static str,
        fault: fn(String, String) -> Fault,
        what: &'static str,
        advice: &'static str,
    ) -> Meaning {
        Meaning { code, fault, what, advice }
    }
    [
        met("READONLY", CannotServe, "is a read-only replica", "point --redis at its primary"),
        met("MASTERDOWN", CannotServe, "is a replica that has lost its primary", "point --redis at a primary"),
        met("LOADING", CannotServe, "is still loading its data", "try again in a moment"),
        met("OOM", CannotServe, "is out of memory", "free some memory or raise its maxmemory"),
        met("MISCONF", CannotServe, "cannot save to its disk and takes no writes", "see its log"),
        met("NOREPLICAS", CannotServe, "has too few replicas to take writes", "see its min-replicas-to-write"),
        met("BUSY", CannotServe, "is busy with a slow script", "wait for the script, or stop it with SCRIPT KILL"),
        met("UNKILLABLE", CannotServe, "is busy with a slow script", "wait for the script"),
        met("CLUSTERDOWN", CannotServe, "belongs to a Cluster that is down", "try again when the Cluster is up"),
        met("TRYAGAIN", CannotServe, "is moving this lock to another Cluster node", "try again in a moment"),
        met("ASK", CannotServe, "is moving this lock to another Cluster node", "try again in a moment"),
        met("max number of clients", CannotServe, "has too many clients already", "raise its maxclients"),
        met(
            "WRONGTYPE",
            CannotServe,
            // Of the lock's own key the scripts know that it may be of any type.
            "has a key beside the lock, {…}:…, of a type that redlock does not use",
            "delete it",
        ),
        met(
            "MOVED",
            Misconfigured,
            "is one node of a Cluster, and the lock belongs to another",
            "use redis+cluster://",
        ),
        met("DB index", Misconfigured, "has no database with that number", "check the end of the URL"),
        met(
            "unknown command",
            Refused,
            "",
            "redlock needs it under its own name; for a Sentinel use redis+sentinel://HOST:PORT/SERVICE",
        ),
        met("NOPERM", Refused, "", "man redlock has the ACL rule that suffices"),
        met(
            "No such master",
            Refused,
            "is not a service that this Sentinel knows",
            "check the name behind the / in --redis; SENTINEL MASTERS lists them",
        ),
        met(
            NOT_A_SENTINEL,
            Misconfigured,
            "is not a Sentinel",
            "name the Sentinels, or use redis:// for a single server",
        ),
        met("NOAUTH", Refused, "requires a password", "set REDLOCK_PASSWORD or use --password-file"),
        met("WRONGPASS", Refused, "does not accept this user and password", "check both"),
        met("AUTH <password> called", Refused, "has no password, but one was given", "leave the password out"),
        met(
            "DENIED",
            Refused,
            "is in protected mode and serves its own host only",
            "give it a password, or set protected-mode no",
        ),
    ]
};

impl Meaning {
    fn of(code: &str) -> Option<&'static Meaning> {
        MEANINGS.iter().find(|met| met.code == code)
    }
}

/// The system's error in one of the client library's, which wraps it.
fn io_error(error: &RedisError) -> Option<&io::Error> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?.downcast_ref()
}

/// What stands before the part of a lock that a key or channel is for.
fn beginning(key: &str) -> &str {
    key.split('\u{1f}').next().unwrap_or(key)
}

/// The number of the line in our script that an error names, counted from 1; 0 without one.
fn line_of_script(detail: &str) -> usize {
    let behind = detail.rsplit_once("user_script:").map_or("", |(_, behind)| behind.trim_start());
    behind.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// An error without the name of our script and the line in it, which Redis 7 tells behind what went wrong, and older ones
/// before it, wrapped into an ERR.
fn without_script<'a>(code: &'a str, detail: &'a str) -> (&'a str, &'a str) {
    let (head, tail) = detail.rsplit_once(" script: ").unwrap_or((detail, ""));
    let detail = if tail.contains("user_script") { head } else { detail };
    let Some((_, inner)) = detail.rsplit_once("user_script:") else {
        return (code, detail);
    };
    let inner = inner.trim_start_matches(|c: char| c.is_ascii_digit() || " :-".contains(c));
    inner.split_once(' ').unwrap_or((inner, ""))
}

/// The error replies of servers of every age: before Redis 7 what fails inside a script is wrapped into an ERR.
fn classified(code: &str, detail: &str) -> Fault {
    let says =
        |word: &str| code == word || detail.contains(&format!("-{word} ")) || detail.starts_with(&format!("{word} "));
    match MEANINGS.iter().find(|met| says(met.code)) {
        Some(met) => (met.fault)(met.code.to_owned(), detail.to_owned()),
        None if detail.starts_with("ACL failure") => Fault::Refused("NOPERM".to_owned(), detail.to_owned()),
        None => Fault::Refused(code.to_owned(), detail.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_without_the_script_that_met_them() {
        let is = |code: &str, detail: &str, plain| assert_eq!(without_script(code, detail), plain);
        let oom = "command not allowed when used memory > 'maxmemory'.";
        is("OOM", &format!("{oom} script: 5677, on @user_script:12."), ("OOM", oom));
        is("ERR", &format!("Error running script (call to f_5677): @user_script: 12: -OOM {oom}"), ("OOM", oom));
        is(
            "ERR",
            "Error running script (call to f_5677): @user_script:12: @user_script: 12: WRONGTYPE Operation against",
            ("WRONGTYPE", "Operation against"),
        );
        is("ERR", "user_script:12: NOPERM no script: 5677, on @user_script:12.", ("NOPERM", "no"));
        is("ERR", "no script: here", ("ERR", "no script: here"));
        is("LOADING", "", ("LOADING", ""));
    }

    #[test]
    fn a_shortage_of_this_machine_is_no_fault_of_the_server() {
        use nix::errno::Errno;
        for errno in [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM] {
            let fault = Fault::of_io(&io::Error::from_raw_os_error(errno as i32));
            assert!(matches!(fault, Fault::Shortage(_)), "{errno}");
        }
        let busy = Fault::of_io(&io::Error::from_raw_os_error(Errno::EAGAIN as i32));
        assert!(matches!(busy, Fault::Unreachable(_)));
    }
}
