//! What went wrong with a node, in words that continue "10.0.0.1:6379 …", and what others wrote, made fit to be shown.

use crate::sys::host;
use redis::RedisError;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Why a node gave no answer that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// Continues "10.0.0.1:6379 …".
    pub(crate) text: String,
}

/// What a [`Fault`] means for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// Not reached, or no answer in time.
    Unreachable,
    /// The connection was closed; a new one may work at once.
    Closed,
    /// It answers, but cannot serve now: loading, out of memory, read-only.
    CannotServe,
    /// Refused for good: password, ACL.
    Refused,
    /// The address itself is wrong: no such database, say.
    Misconfigured,
}

impl Fault {
    pub(in crate::lock) fn timed_out() -> Fault {
        Fault { kind: FaultKind::Unreachable, text: "timed out".to_owned() }
    }

    pub(super) fn garbage(what: impl fmt::Display) -> Fault {
        Fault { kind: FaultKind::Unreachable, text: format!("is not a Redis server ({what})") }
    }

    /// There is no room for the thread that would ask.
    pub(super) fn no_thread() -> Fault {
        Fault {
            kind: FaultKind::CannotServe,
            text: "cannot be asked: this user has too many processes (ulimit -u)".to_owned(),
        }
    }

    pub(super) fn of_io(error: &io::Error) -> Fault {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof};
        let shortage = host::shortage(error);
        // A socket that would have to wait is no shortage, though the number is the same.
        if let Some(shortage) = shortage.filter(|_| error.kind() != io::ErrorKind::WouldBlock) {
            // Not the server's fault: nobody should look for it there.
            return Fault { kind: FaultKind::CannotServe, text: format!("cannot be asked: {shortage}") };
        }
        match error.kind() {
            TimedOut => Fault::timed_out(),
            UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe => {
                Fault { kind: FaultKind::Closed, text: "closed the connection".to_owned() }
            }
            _ => Fault { kind: FaultKind::Unreachable, text: format!("cannot be reached: {}", plain(error)) },
        }
    }

    pub(super) fn of(error: &RedisError) -> Fault {
        if let Some(io) = io_error(error) {
            return Fault::of_io(io);
        }
        let Some(code) = error.code() else {
            return Fault::garbage("its answer cannot be read");
        };
        let (code, detail) = without_script(code, error.detail().unwrap_or_default());
        // To a long request a server that wants a password says no more than that it is too long.
        if code == "NOAUTH" || detail.contains("unauthenticated") {
            return Fault {
                kind: FaultKind::Refused,
                text: "refused: NOAUTH, it wants a password and none was given".to_owned(),
            };
        }
        if code.is_empty() {
            return Fault::garbage("an error without a word");
        }
        if code == "WRONGTYPE" {
            // Of the lock's own key the scripts know that it may be of any type.
            return Fault {
                kind: FaultKind::CannotServe,
                text: "cannot serve now: a key of the lock, {…}:…, is of a type that redlock did not write: delete it"
                    .to_owned(),
            };
        }
        let kind = kind_of_reply(code, detail);
        let verb = if kind == FaultKind::CannotServe { "cannot serve now" } else { "refused" };
        Fault {
            kind,
            text: format!("{verb}: {} {}", escaped(code, 40), escaped(detail, 200))
                .trim_end_matches(['.', ' '])
                .to_owned(),
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
fn kind_of_reply(code: &str, detail: &str) -> FaultKind {
    let says =
        |word: &str| code == word || detail.contains(&format!("-{word} ")) || detail.starts_with(&format!("{word} "));
    const NOW: [&str; 12] = [
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
    ];
    if NOW.into_iter().any(says) || detail.contains("max number of clients") {
        FaultKind::CannotServe
    } else if detail.contains("DB index") {
        FaultKind::Misconfigured
    } else {
        FaultKind::Refused
    }
}

/// The system's words for an error without Rust's "(os error 111)".
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    escaped(text, 200).to_lowercase()
}

/// What a terminal obeys instead of showing it: control characters and marks of writing direction.
pub(crate) fn unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// What others wrote, fit for a terminal: control characters escaped, cut after `most` characters.
pub(crate) fn escaped(text: &str, most: usize) -> String {
    let mut out = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == most {
            out.push('…');
            break;
        }
        if unprintable(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
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
    fn a_shortage_of_ours_is_no_fault_of_the_servers() {
        use nix::errno::Errno;
        for errno in [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM] {
            let fault = Fault::of_io(&io::Error::from_raw_os_error(errno as i32));
            assert_eq!(fault.kind, FaultKind::CannotServe, "{errno}");
            assert!(fault.text.starts_with("cannot be asked: this "), "{errno}");
        }
        let busy = Fault::of_io(&io::Error::from_raw_os_error(Errno::EAGAIN as i32));
        assert_eq!(busy.kind, FaultKind::Unreachable);
    }
}
