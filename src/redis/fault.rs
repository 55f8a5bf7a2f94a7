//! What went wrong with a node, in words that continue "10.0.0.1:6379 …".

use crate::sys::host;
use crate::text::{escaped, human};
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
    /// It was started so recently that it may have forgotten what it is asked about: how long ago, and for how long it cannot tell.
    Young { uptime: Duration, left: Duration },
    /// There is no connection, for this reason.
    Unreachable(String),
    /// This machine, not the node, lacks something.
    Shortage(&'static str),
    /// An answer that no Redis gives.
    Garbage(&'static str),
    /// It answers, but cannot serve now: loading, out of memory, read-only. An error code and its text.
    CannotServe(String, String),
    /// Refused for good: password, ACL. An error code and its text.
    Refused(String, String),
    /// The address itself is wrong: no such database, say. An error code and its text.
    Misconfigured(String, String),
}

impl Fault {
    pub(super) fn of_io(error: &io::Error) -> Fault {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock};
        // A socket that would have to wait is no shortage, though the number is the same.
        if let Some(shortage) = host::shortage(error).filter(|_| error.kind() != WouldBlock) {
            return Fault::Shortage(shortage);
        }
        match error.kind() {
            TimedOut => Fault::TimedOut,
            UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe => Fault::Closed,
            _ => Fault::Unreachable(plain(error)),
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
            return Fault::Garbage("its answer cannot be read");
        };
        let (code, detail) = without_script(code, error.detail().unwrap_or_default());
        let (code, detail) = match (code, detail) {
            // To a long request a server that wants a password says no more than that it is too long.
            (code, detail) if code == "NOAUTH" || detail.contains("unauthenticated") => {
                return Fault::Refused("NOAUTH".to_owned(), "it wants a password and none was given".to_owned());
            }
            ("", _) => return Fault::Garbage("an error without a word"),
            ("WRONGTYPE", _) => {
                // Of the lock's own key the scripts know that it may be of any type.
                ("WRONGTYPE", "a key of the lock, {…}:…, is of a type that redlock did not write: delete it")
            }
            both => both,
        };
        classified(code, detail)
    }

    /// Whether trying again at once on a new connection makes sense: the server is gone, or just coming back.
    pub(crate) fn heals_soon(&self) -> bool {
        match self {
            Fault::Closed | Fault::Unreachable(_) => true,
            Fault::CannotServe(code, _) => code == "LOADING",
            _ => false,
        }
    }

    /// Whether waiting cannot help: the node refuses us for good, or its address is wrong.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Fault::Refused(..) | Fault::Misconfigured(..))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reply = |verb: &str, code: &str, detail: &str| {
            let text = format!("{verb}: {} {}", escaped(code, 40), escaped(detail, 200));
            f.write_str(text.trim_end_matches(['.', ' ']))
        };
        match self {
            Fault::CannotServe(code, detail) => reply("cannot serve now", code, detail),
            Fault::Refused(code, detail) | Fault::Misconfigured(code, detail) => reply("refused", code, detail),
            Fault::TimedOut => f.write_str("timed out"),
            Fault::Slower => f.write_str("is slower than the others"),
            Fault::Closed => f.write_str("closed the connection"),
            Fault::Young { uptime, left } => {
                write!(f, "restarted {} ago, cannot tell for {}", human(*uptime), human(*left))
            }
            Fault::Unreachable(why) => write!(f, "cannot be reached: {why}"),
            Fault::Shortage(what) => write!(f, "cannot be asked: {what}"),
            Fault::Garbage(what) => write!(f, "is not a Redis server ({what})"),
        }
    }
}

/// The system's error in one of the client library's, which wraps it.
fn io_error(error: &RedisError) -> Option<&io::Error> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<io::Error>().or_else(|| source.downcast_ref::<Arc<io::Error>>().map(|shared| &**shared))
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
    const NOW: [&str; 13] = [
        "OOM",
        "READONLY",
        "LOADING",
        "MISCONF",
        "BUSY",
        "MASTERDOWN",
        "CLUSTERDOWN",
        "TRYAGAIN",
        "NOREPLICAS",
        "MOVED",
        "ASK",
        "UNKILLABLE",
        "WRONGTYPE",
    ];
    let (code, detail) = (code.to_owned(), detail.to_owned());
    if NOW.into_iter().any(says) || detail.contains("max number of clients") {
        Fault::CannotServe(code, detail)
    } else if detail.contains("DB index") {
        Fault::Misconfigured(code, detail)
    } else {
        Fault::Refused(code, detail)
    }
}

/// The system's words for an error without Rust's "(os error 111)".
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    escaped(text, 200).to_lowercase()
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
