//! The faults of a node. The words of a fault follow the name of the node: "10.0.0.1:6379 timed out".

use super::distrust;
use super::script::Script;
use super::url::Host;
use crate::sys::host;
use crate::text::{escaped, human, reason, shell_quoted};
use nix::errno::Errno;
use redis::RedisError;
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The reason why a node gave no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No answer before the deadline.
    TimedOut,
    /// No answer before the deadline, because the look-up of this host name has not ended.
    LookUpTimedOut(String),
    /// The other nodes decided before this node answered.
    Slower,
    /// The other side closed the connection; a new connection may work at once.
    Closed,
    /// The node was started so recently that it may have forgotten a lease. `left` is the rest of its quarantine.
    Quarantined { uptime: Duration, left: Duration },
    /// The server of `local:` exited instead of answering. The field is the path of its log, which says why.
    Exited(String),
    /// redlock could not reach a server that can serve as this node. The field is the reason.
    Unreachable(String),
    /// This machine, not the node, lacks something, such as file descriptors. The field says what.
    Shortage(&'static str),
    /// An answer that no Redis gives.
    Garbage(&'static str),
    /// An answer that is longer than [`super::stream`] allows.
    TooLarge,
    /// The node answers, but cannot serve now: it is loading, out of memory or read-only, say. The fields are the code
    /// of the error, and the server's text. If the code is empty, the text is redlock's own.
    CannotServe(String, String),
    /// The node refuses for good, because of the password or the ACL, say, or this machine refuses to connect. The
    /// fields are the code of a [`Meaning`] and the server's text.
    Refused(String, String),
    /// The address itself is wrong: it leads to another kind of server, or names a database that does not exist. The
    /// fields are the code of a [`Meaning`] and the server's text.
    Misconfigured(String, String),
    /// One side of a TLS connection does not trust the other side. The fields are the reason and the advice.
    TlsFailure(String, &'static str),
    /// A helper key of the lock is of the wrong type. The field is the key.
    WrongType(String),
    /// The node has executed the request, but not enough replicas have confirmed the write in time. The fields say how
    /// many have, and how many should.
    Unconfirmed(i64, u32),
}

impl Fault {
    pub(super) fn of_io(error: &io::Error) -> Fault {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionReset, FileTooLarge, TimedOut, UnexpectedEof, WouldBlock,
        };
        // EAGAIN (`WouldBlock`) is no shortage here: it says that a socket operation would have to wait.
        if let Some(shortage) = host::shortage(error).filter(|_| error.kind() != WouldBlock) {
            return Fault::Shortage(shortage);
        }
        if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
            return match distrust::meaning(error) {
                (why, Some(advice)) => Fault::TlsFailure(why, advice),
                (why, None) => Fault::Unreachable(why),
            };
        }
        match error.kind() {
            FileTooLarge => Fault::TooLarge,
            TimedOut => Fault::TimedOut,
            UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe => Fault::Closed,
            _ => {
                let why = reason(error).to_lowercase();
                Fault::Unreachable(escaped(why.trim_start_matches("failed to lookup address information: "), 200))
            }
        }
    }

    /// The fault of a connection that this machine did not open. The errors of [`OF_THIS_MACHINE`] are final.
    pub(super) fn of_connect(error: &io::Error) -> Fault {
        // std checks the length of a socket's path itself.
        let is_too_long = error.raw_os_error().is_none() && error.kind() == io::ErrorKind::InvalidInput;
        let errno = if is_too_long { Errno::ENAMETOOLONG } else { Errno::from_raw(error.raw_os_error().unwrap_or(0)) };
        match OF_THIS_MACHINE.iter().find(|(known, _)| *known == errno) {
            Some((_, code)) => Fault::Refused((*code).to_owned(), String::new()),
            None => Fault::of_io(error),
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
        // Cuts off what Redis 7 appends: the name of the script, or the arguments of an unknown command.
        let detail = error.detail().unwrap_or_default();
        let detail =
            [" script: ", ", with args"].iter().fold(detail, |text, end| text.split(end).next().unwrap_or(text));
        match code {
            "" => Fault::Garbage("an empty error"),
            // Before the login, a server that requires a password refuses a long request with the code ERR:
            // "unauthenticated bulk length".
            _ if detail.contains("unauthenticated") => classified("NOAUTH", detail),
            code => classified(code, detail),
        }
    }

    /// The same fault, for a node of several servers: adds the name of `server` to `Unreachable` and `Refused`.
    pub(super) fn of_server(self, server: &Host) -> Fault {
        match self {
            Fault::Unreachable(why) => Fault::Unreachable(format!("{server}: {why}")),
            Fault::Refused(code, detail) if state(&code).is_empty() => {
                Fault::Refused(code, format!("{detail} ({server})"))
            }
            fault => fault,
        }
    }

    /// The same fault, of a login with the password from this place.
    pub(super) fn of_login(self, from: &str) -> Fault {
        match self {
            Fault::Refused(code, _) if code == WRONGPASS || code == NO_PASSWORD => {
                Fault::Refused(code, format!("the password is from {from}"))
            }
            fault => fault,
        }
    }

    /// The same fault, in a call of this script: names its commands, because the error does not name the missing one.
    pub(super) fn in_script(self, script: &Script) -> Fault {
        match self {
            Fault::Refused(code, text) if code == UNKNOWN_IN_SCRIPT => {
                Fault::Refused(code, format!("{text}; this script calls {}", script.commands().join(", ")))
            }
            fault => fault,
        }
    }

    /// The same fault, but temporary, for a node that has let redlock in before: its password or certificate may be
    /// changing just now.
    pub(super) fn for_now(self) -> Fault {
        match self {
            Fault::Refused(code, detail) | Fault::Misconfigured(code, detail) => Fault::CannotServe(code, detail),
            Fault::TlsFailure(why, _) => Fault::CannotServe(String::new(), format!("{TLS}: {why}")),
            fault => fault,
        }
    }

    /// The fault of a node with too many keys, or with a list of keys that does not end.
    pub(super) fn too_many_keys() -> Fault {
        Fault::CannotServe(TOO_MANY_KEYS.to_owned(), String::new())
    }

    /// True if some key is of the wrong type, and the server does not say which.
    pub(super) fn is_wrong_type(&self) -> bool {
        matches!(self, Fault::CannotServe(code, _) if code == WRONG_TYPE)
    }

    /// True if the server says that it is no primary; its host name may lead to another server by now.
    pub(super) fn is_demotion(&self) -> bool {
        matches!(self, Fault::CannotServe(code, _) if code == "READONLY" || code == "MASTERDOWN")
    }

    /// True if the fault may concern one lock only: a key of another type, a key that the user may not read, an error
    /// without a code of its own (ERR), or an answer that is too long.
    pub(super) fn is_of_one_lock(&self) -> bool {
        match self {
            Fault::CannotServe(code, _) | Fault::Refused(code, _) => {
                [WRONG_TYPE, NOPERM, "ERR"].contains(&code.as_str())
            }
            fault => matches!(fault, Fault::TooLarge | Fault::WrongType(_)),
        }
    }

    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, Fault::TimedOut | Fault::LookUpTimedOut(_))
    }

    /// True if a try over a new connection may succeed at once: the server has closed the old connection, could not be
    /// reached, is starting, or is no longer the primary.
    pub(crate) fn heals_soon(&self) -> bool {
        match self {
            Fault::Closed | Fault::Exited(_) | Fault::Unreachable(_) => true,
            Fault::CannotServe(code, _) => code == "LOADING" || self.is_demotion(),
            _ => false,
        }
    }

    /// True if the node exists, but the fault lasts until somebody mends it, so that a longer lease would not help.
    pub(crate) fn outlasts_leases(&self) -> bool {
        self.advice().0 >= 3 && !self.heals_soon()
    }

    /// True if the node has certainly not executed the request.
    pub(crate) fn is_before_execution(&self) -> bool {
        let codes = [CIRCLE, "TRYAGAIN", "ASK", "CLUSTERDOWN", "LOADING", "MASTERDOWN"];
        matches!(self, Fault::CannotServe(code, _) if codes.contains(&&**code))
    }

    /// True if the outcome of the request is unknown, or not confirmed by enough replicas.
    pub(crate) fn leaves_open(&self) -> bool {
        matches!(
            self,
            Fault::TimedOut
                | Fault::LookUpTimedOut(_)
                | Fault::Slower
                | Fault::Closed
                | Fault::Exited(_)
                | Fault::Unreachable(_)
                | Fault::Unconfirmed(..)
        )
    }

    /// True if the server, or a proxy before it, lacks the command, in whatever words, or if this user may not run it.
    pub(crate) fn is_absence(&self) -> bool {
        match self {
            Fault::Refused(code, _) => code == UNKNOWN || code == NOPERM,
            fault => matches!(fault, Fault::CannotServe(code, _) if code == "ERR"),
        }
    }

    pub(super) fn is_unknown_command(&self) -> bool {
        matches!(self, Fault::Refused(code, _) if code == UNKNOWN)
    }

    /// True if waiting cannot help: the node refuses redlock for good, or its address is wrong.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Fault::Refused(..) | Fault::Misconfigured(..) | Fault::TlsFailure(..))
    }
}

impl Fault {
    pub(super) fn moved_in_a_circle() -> Fault {
        Fault::CannotServe(CIRCLE.to_owned(), String::new())
    }

    /// The fault of a node that hides its uptime, which a quarantine needs.
    pub(crate) fn without_uptime() -> Fault {
        Fault::Refused(NO_UPTIME.to_owned(), String::new())
    }

    /// The advice to the user, and its rank: of several faults, the advice of the highest rank is shown.
    pub(crate) fn advice(&self) -> (u8, Cow<'static, str>) {
        let (rank, advice) = match self {
            Fault::Refused(code, from) | Fault::CannotServe(code, from)
                if !from.is_empty() && (code == WRONGPASS || code == NO_PASSWORD) =>
            {
                return (4, format!("{}; {}", advice(code, ""), escaped(from, 200)).into());
            }
            Fault::WrongType(key) => return (3, format!("delete it: redis-cli unlink {}", shell_quoted(key)).into()),
            Fault::Refused(code, detail) if code == NO_COUNTER => {
                let key = detail.split(" is no fencing counter").next().unwrap_or_default();
                return (4, format!("delete it: redis-cli unlink {}", shell_quoted(key)).into());
            }
            Fault::TlsFailure(_, advice) => (6, *advice),
            Fault::Misconfigured(code, _) => (5, advice(code, "check --redis")),
            Fault::Refused(code, _) => (4, advice(code, "check the user, the password and the ACL")),
            Fault::CannotServe(code, _) => (3, advice(code, "see its log")),
            Fault::Unconfirmed(..) => (3, "are its replicas connected, and is --replicas right?"),
            Fault::Exited(_) => (3, "is its disk full?"),
            Fault::Shortage(_) => (3, "raise the limit, or try again later"),
            Fault::Quarantined { .. } => (3, "wait, or lower --quarantine if no lease can have been lost"),
            Fault::Garbage(_) | Fault::TooLarge => (2, "is the address right?"),
            // A TLS port closes a plain connection. A plain port does not answer a TLS handshake.
            Fault::Closed => (1, "is Redis running there, or is it a TLS port (rediss://)?"),
            Fault::LookUpTimedOut(_) => (0, "do the name servers in /etc/resolv.conf answer?"),
            Fault::TimedOut => (
                0,
                "is the network up? is the address right, with rediss:// for TLS or redis:// without? a slow network needs a longer \
                 --ttl",
            ),
            _ => (0, "is the address right, and is Redis running there?"),
        };
        (rank, advice.into())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::CannotServe(code, detail) | Fault::Refused(code, detail) | Fault::Misconfigured(code, detail) => {
                match state(code) {
                    "" => refusal(f, code, detail),
                    state if is_code(code) => write!(f, "{state} ({code})"),
                    state => f.write_str(state),
                }
            }
            Fault::TimedOut => f.write_str("timed out"),
            Fault::LookUpTimedOut(name) => write!(f, "timed out looking up {}", escaped(name, 100)),
            Fault::Exited(log) => write!(f, "exited (see {log})"),
            Fault::Slower => f.write_str("was slower than the others"),
            Fault::Closed => f.write_str("closed the connection"),
            Fault::Quarantined { uptime, left } => {
                write!(f, "restarted {} ago and cannot vote for another {}", human(*uptime), human(*left))
            }
            Fault::Unreachable(why) => write!(f, "is unreachable ({why})"),
            Fault::Shortage(what) => write!(f, "cannot be asked: {what}"),
            Fault::TlsFailure(why, _) => write!(f, "{TLS}: {why}"),
            Fault::Unconfirmed(confirmed, wanted) => {
                write!(f, "had the lease confirmed by only {confirmed} of {wanted} replicas")
            }
            Fault::WrongType(_) => f.write_str("has a helper key of this lock that is of the wrong type"),
            Fault::TooLarge => f.write_str("sent an answer of more than 4 MB"),
            Fault::Garbage(what) => write!(f, "sent something other than a Redis reply ({what})"),
        }
    }
}

/// True for the code of an error reply, false for the first words of a reply's text.
fn is_code(code: &str) -> bool {
    code.chars().all(|c| c.is_ascii_uppercase())
}

/// Shows an error in the server's words, or in redlock's own if there is no code.
fn refusal(f: &mut fmt::Formatter<'_>, code: &str, detail: &str) -> fmt::Result {
    match code {
        "" => {}
        code if is_code(code) => write!(f, "refused: {} ", escaped(code, 40))?,
        // Here `code` is the first words of the server's text, which `detail` has in full.
        _ => f.write_str("refused: ")?,
    }
    f.write_str(escaped(detail, 400).trim_end_matches(['.', ' ']))
}

const TLS: &str = "failed the TLS handshake";
/// The code for a server that is not a Sentinel, although the URL lists it as a Sentinel.
pub(super) const NOT_A_SENTINEL: &str = "not a Sentinel";
const WRONG_TYPE: &str = "WRONGTYPE";
const NO_COUNTER: &str = "NOCOUNTER";
const NO_UPTIME: &str = "no uptime";
/// The code of a Cluster whose servers redirect a lock to each other.
const CIRCLE: &str = "MOVED in a circle";
/// The first words of the error by which a server says that it is in no Cluster.
const NO_CLUSTER: &str = "This instance has cluster support";
const UNKNOWN: &str = "unknown command";
const UNKNOWN_IN_SCRIPT: &str = "unknown command in a script";
const NOPERM: &str = "NOPERM";
const WRONGPASS: &str = "WRONGPASS";
/// The first words of the error of a server that has no password.
const NO_PASSWORD: &str = "AUTH <password> called";
const TOO_MANY_KEYS: &str = "too many keys";

/// The errors of connect(2) that do not pass with time, each with the code of its [`Meaning`].
const OF_THIS_MACHINE: [(Errno, &str); 9] = [
    (Errno::EACCES, "EACCES"),
    (Errno::EPERM, "EPERM"),
    (Errno::ENAMETOOLONG, "ENAMETOOLONG"),
    (Errno::ENOTSOCK, "ENOTSOCK"),
    (Errno::EPROTOTYPE, "EPROTOTYPE"),
    (Errno::ENOTDIR, "ENOTDIR"),
    (Errno::ELOOP, "ELOOP"),
    (Errno::EAFNOSUPPORT, "EAFNOSUPPORT"),
    (Errno::EINVAL, "EINVAL"),
];

/// An error reply, or an error of [`OF_THIS_MACHINE`], and its meaning:
/// 1. the code of the error; for ERR the first words of the text;
/// 2. the fault;
/// 3. the words that follow the name of the node; empty if the server's own words are better;
/// 4. the advice.
type Meaning = (&'static str, fn(String, String) -> Fault, &'static str, &'static str);

const MEANINGS: [Meaning; 38] = {
    use Fault::{CannotServe, Misconfigured, Refused};
    [
        (TOO_MANY_KEYS, CannotServe, "has more keys than can be listed", "name the locks: redlock status NAME..."),
        ("READONLY", CannotServe, "is a read-only replica", "point --redis at its primary"),
        ("MASTERDOWN", CannotServe, "is a replica that has lost its primary", "point --redis at a primary"),
        ("LOADING", CannotServe, "is still loading its data", "try again in a moment"),
        ("OOM", CannotServe, "is out of memory", "free some memory or raise its maxmemory"),
        ("MISCONF", CannotServe, "cannot save to its disk and takes no writes", "see its log"),
        ("NOREPLICAS", CannotServe, "has too few replicas to take writes", "see its min-replicas-to-write"),
        ("BUSY", CannotServe, "is busy with a slow script", "wait for the script, or stop it with SCRIPT KILL"),
        ("CLUSTERDOWN", CannotServe, "belongs to a Cluster that is down", "try again when the Cluster is up"),
        (
            CIRCLE,
            CannotServe,
            "sends this lock to another server, which sends it back (MOVED)",
            "try again in a moment",
        ),
        ("TRYAGAIN", CannotServe, "is moving this lock to another Cluster node", "try again in a moment"),
        ("ASK", CannotServe, "is moving this lock to another Cluster node", "try again in a moment"),
        ("max number of clients", CannotServe, "has too many clients already", "raise its maxclients"),
        // The scripts handle every type of the lock's own key, so the error is about another key. Once that key is
        // found, the fault becomes `Fault::WrongType`.
        (WRONG_TYPE, CannotServe, "has a helper key of this lock ({…}:…) that is of the wrong type", "delete it"),
        // The error of lease.lua and take.lua; its text begins with the key.
        (NO_COUNTER, Refused, "", ""),
        // The error of newest.lua; its text names the key.
        ("NONUMBER", Refused, "", "let the lock forget it: redlock forget NAME"),
        ("MOVED", Misconfigured, "is one node of a Cluster, and the lock belongs to another", "use redis+cluster://"),
        (NO_CLUSTER, Misconfigured, "is not part of a Cluster", "use redis:// for a single server"),
        ("DB index", Misconfigured, "has no database with that number", "check --redis"),
        (NOT_A_SENTINEL, Misconfigured, "is not a Sentinel", "name the Sentinels, or use redis:// for a single server"),
        (
            "No such master",
            Refused,
            "is not a service that this Sentinel knows",
            "check the name behind the / in --redis; SENTINEL MASTERS lists them",
        ),
        (UNKNOWN_IN_SCRIPT, Refused, "", "redlock needs these commands: do not rename or disable them"),
        (
            UNKNOWN,
            Refused,
            "",
            "redlock needs this command: do not rename or disable it; for a Sentinel use redis+sentinel://HOST:PORT/SERVICE",
        ),
        (NOPERM, Refused, "", "redlock doctor prints the ACL rule it needs"),
        (
            NO_UPTIME,
            Refused,
            "refuses INFO, so a restart that lost its data cannot be detected",
            "allow it (ACL rule +info), or give --quarantine 0 if no lease can be lost",
        ),
        ("NOAUTH", Refused, "requires a password", "set REDLOCK_PASSWORD or use --password-file"),
        (WRONGPASS, Refused, "rejected this user and password", "check both"),
        (NO_PASSWORD, Refused, "uses no password, but one was given", "remove the password"),
        (
            "EACCES",
            Refused,
            "may not be connected to by this user",
            "let this user into its directory, and write to its socket (unixsocketperm)",
        ),
        ("EPERM", Refused, "may not be connected to on this machine", "check this machine's firewall and sandbox"),
        ("ENAMETOOLONG", Refused, "has too long a path: a socket's has at most 107 bytes", "use a shorter path"),
        ("ENOTSOCK", Refused, "is not a socket", "check --redis and the server's unixsocket"),
        ("EPROTOTYPE", Refused, "is a socket of another kind", "check --redis and the server's unixsocket"),
        ("ENOTDIR", Refused, "has a file in its path where a directory should be", "check --redis"),
        ("ELOOP", Refused, "is behind symbolic links that lead in a circle", "check --redis"),
        ("EAFNOSUPPORT", Refused, "has an address of a kind that this machine lacks", "use an IPv4 address"),
        ("EINVAL", Refused, "has an address that nobody can connect to", "check --redis"),
        (
            "DENIED",
            Refused,
            "is in protected mode and serves its own host only",
            "give it a password, or set protected-mode no",
        ),
    ]
};

fn meaning(code: &str) -> Option<&'static Meaning> {
    MEANINGS.iter().find(|(met, ..)| *met == code)
}

fn state(code: &str) -> &'static str {
    meaning(code).map_or("", |(.., state, _)| state)
}

fn advice(code: &str, otherwise: &'static str) -> &'static str {
    meaning(code).map_or(otherwise, |(.., advice)| advice)
}

fn io_error(error: &RedisError) -> Option<&io::Error> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?.downcast_ref()
}

/// The fault for an error reply. (Before Redis 7, an ERR wraps the error of a command in a script.) An unknown error
/// counts as temporary, because proxies, modules and later versions have errors of their own, and few are permanent.
fn classified(code: &str, detail: &str) -> Fault {
    let text = if is_code(code) { detail.to_owned() } else { format!("{code} {detail}") };
    match MEANINGS.iter().find(|(met, ..)| code == *met || begins_or_wraps(&text, met)) {
        // The script's own words follow the code.
        Some((met @ NO_COUNTER, fault, ..)) => {
            let own = text.split_once("NOCOUNTER ").map_or(&*text, |(_, own)| own);
            fault((*met).to_owned(), own.to_owned())
        }
        // The server's text is not shown beside redlock's own words.
        Some((met, fault, words, _)) => fault((*met).to_owned(), if words.is_empty() { text } else { String::new() }),
        None if text.contains("ACL failure") || text.contains("The user executing the script") => {
            Fault::Refused(NOPERM.to_owned(), text)
        }
        // "Unknown Redis command called from Lua script"; Valkey leaves out "Redis".
        None if text.contains("command called from") => Fault::Refused(UNKNOWN_IN_SCRIPT.to_owned(), text),
        None => Fault::CannotServe(code.to_owned(), text),
    }
}

/// True if the text begins with this word, or wraps an error that begins with this word.
fn begins_or_wraps(text: &str, word: &str) -> bool {
    let word = format!("{word} ");
    text.starts_with(&word) || ["-", ": "].iter().any(|before| text.contains(&format!("{before}{word}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_inside_a_script_is_known_on_old_servers_too() {
        let script = "Error running script (call to f_5677): @user_script:12: ";
        for (text, code) in [
            ("-OOM command not allowed when used memory > 'maxmemory'.", "OOM"),
            ("@user_script: 12: WRONGTYPE Operation against", "WRONGTYPE"),
            ("@user_script: 12: The user executing the script can't run this command", "NOPERM"),
            ("@user_script: 12: Unknown Redis command called from Lua script", UNKNOWN_IN_SCRIPT),
            ("Unknown command called from script", UNKNOWN_IN_SCRIPT),
        ] {
            let is_known = |fault| matches!(&fault, Fault::CannotServe(met, _) | Fault::Refused(met, _) if met == code);
            assert!(is_known(classified("ERR", &format!("{script}{text}"))), "{text}");
        }
        assert!(matches!(classified("ERR", "READONLYNESS"), Fault::CannotServe(code, _) if code == "ERR"));
    }

    #[test]
    fn an_error_of_connect_is_final_if_no_waiting_ends_it() {
        let fault = |errno: Errno| Fault::of_connect(&io::Error::from_raw_os_error(errno as i32));
        for errno in OF_THIS_MACHINE.map(|(errno, _)| errno) {
            assert!(fault(errno).is_final() && fault(errno).to_string().ends_with(&format!(" ({errno:?})")), "{errno}");
            assert!(!fault(errno).for_now().is_final(), "{errno}");
        }
        for errno in [
            Errno::ECONNREFUSED,
            Errno::ECONNRESET,
            Errno::ENOENT,
            Errno::ETIMEDOUT,
            Errno::ENETUNREACH,
            Errno::ENETDOWN,
            Errno::EHOSTUNREACH,
            Errno::EADDRNOTAVAIL,
            Errno::EAGAIN,
            Errno::EMFILE,
            Errno::EIO,
        ] {
            assert!(!fault(errno).is_final(), "{errno}");
        }
        let too_long = std::os::unix::net::UnixStream::connect("/x".repeat(100)).expect_err("too long");
        assert_eq!(Fault::of_connect(&too_long), fault(Errno::ENAMETOOLONG));
    }

    #[test]
    fn a_shortage_of_this_machine_is_no_fault_of_the_server() {
        for errno in [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM] {
            let fault = Fault::of_io(&io::Error::from_raw_os_error(errno as i32));
            assert!(matches!(fault, Fault::Shortage(_)), "{errno}");
        }
        let busy = Fault::of_io(&io::Error::from_raw_os_error(Errno::EAGAIN as i32));
        assert!(matches!(busy, Fault::Unreachable(_)));
    }
}
