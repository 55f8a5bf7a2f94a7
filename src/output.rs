//! Messages, and results as text and JSON. No other file knows the form of either.

mod form;
mod log;
mod metrics;
mod table;

use crate::cli::values::LONGEST_NAME;
use crate::config::Setting;
use crate::doctor::{Diagnosis, Finding};
use crate::error::{Error, NotOurs};
use crate::exit::Exit;
use crate::lock::{Claim, Holder, Lease, Lock, Revocation, State, Status, Waiter, renewal_interval};
use crate::sys::clock::local_date;
use crate::sys::inherited;
use crate::sys::streams::{self, Output};
use crate::text::{escaped, human, printable, reason, safe, seconds, who};
pub(crate) use form::Row;
use form::json;
pub(crate) use log::{forgotten, nagios, nagios_age, ran_within};
pub(crate) use metrics::Metrics;
use nix::libc;
use serde::Serialize;
use std::io::{BufWriter, ErrorKind, Write};
use std::time::Duration;
pub(crate) use table::{locks, runs};

/// The number of waiters that are shown, of all in line.
const WAITERS: usize = 10;
/// The number of characters of a message, or of a server's own text, that are shown.
const LINE: usize = 2000;
/// The bytes of a result that are written at once.
const BUFFER: usize = 64 << 10;

/// A message as a line of standard error. What a user or another program wrote may be quoted anywhere in it.
pub(crate) fn line(message: &str) -> String {
    format!("redlock: {}", printable(message, LINE))
}

/// Prints a message to standard error.
pub(crate) fn say(message: &str) {
    streams::say(&line(message));
}

/// The beginning of the news that a lease was acquired, after this wait in line, if any.
pub(crate) fn acquired(lock: &Lock, lease: &Lease, waited: Option<Duration>) -> String {
    let waited = waited.map_or_else(String::new, |waited| format!(" after {} in line", human(waited)));
    let share = match (lock.claim(), lease.place) {
        (Claim::Shared, _) => ", shared".to_owned(),
        (Claim::Slots(limit), Some(place)) => format!(", slot {place} (0 to {})", limit - 1),
        _ => String::new(),
    };
    format!("acquired {:?} on {}{waited}{share}", lock.name, lock.where_it_holds(lease))
}

fn not_written(error: &std::io::Error) -> Error {
    Error::Output(format!("the result could not be written: {}", reason(error)))
}

/// Writes complete lines to standard output. A closed pipe (`| head`) is no failure.
///
/// # Errors
/// [`Error::Interrupted`] when the reader of the pipe is gone, [`Error::Output`] when writing fails for another reason.
pub(crate) fn show(text: &str) -> Result<(), Error> {
    show_all([text])
}

/// Prints any number of lines, a part at a time.
pub(crate) fn show_all(parts: impl IntoIterator<Item = impl AsRef<str>>) -> Result<(), Error> {
    if inherited::was_closed(1) {
        return Err(not_written(&std::io::Error::other("standard output is closed")));
    }
    let mut out = BufWriter::with_capacity(BUFFER, std::io::stdout().lock());
    let written = parts.into_iter().try_for_each(|part| out.write_all(part.as_ref().as_bytes()));
    let written = written.and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        // A caller that ignores SIGPIPE expects the error, as of any other program.
        ErrorKind::BrokenPipe if !inherited::was_sigpipe_ignored() => Error::Interrupted(libc::SIGPIPE),
        _ => not_written(&error),
    })
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Serialize)]
struct NewLease<'a> {
    name: &'a str,
    key: &'a str,
    token: &'a str,
    fencing_token: u64,
    slot: Option<u32>,
    ttl_ms: u64,
    validity_ms: u64,
    holds: u64,
    waited_ms: u64,
}

/// Writes a result, and waits for the reader of a full pipe.
///
/// # Errors
/// [`Error::Output`] when standard output is closed, or its reader has gone.
pub(crate) async fn print_when_read(text: &str) -> Result<(), Error> {
    Output::open().write_all(text.as_bytes()).await.map_err(|error| not_written(&error))
}

/// Writes a failure without waiting for its reader: the failure may be that there is none.
fn print_at_once(text: &str) -> Result<(), Error> {
    Output::open().try_write(text.as_bytes()).map(drop).map_err(|error| not_written(&error))
}

/// The token of a new lease, alone on a line.
pub(crate) fn token(lease: &Lease) -> String {
    format!("{}\n", lease.token)
}

/// A new lease, for a shell's eval.
pub(crate) fn lease_env(name: &str, lease: &Lease) -> String {
    let slot = lease.place.map_or_else(String::new, |place| format!("REDLOCK_SLOT={place}\n"));
    format!(
        "REDLOCK_NAME={}\nREDLOCK_TOKEN={}\nREDLOCK_FENCING_TOKEN={}\n{slot}",
        shell_word(name),
        shell_word(&lease.token),
        lease.fencing_token
    )
}

/// A new lease as an object.
pub(crate) fn lease_json(lock: &Lock, lease: &Lease, waited: Duration) -> String {
    json(&NewLease {
        name: &lock.name,
        key: lock.key(),
        token: &lease.token,
        fencing_token: lease.fencing_token,
        slot: lease.place,
        ttl_ms: ms(lease.ttl),
        validity_ms: ms(lease.valid_until().left()),
        holds: lease.holds,
        waited_ms: ms(waited),
    })
}

/// The text as a single word for a POSIX shell. Plain words stay as they are, for readers other than a shell: `$GITHUB_ENV`,
/// dotenv files.
fn shell_word(text: &str) -> String {
    match text.chars().all(|c| c.is_alphanumeric() || "_-./:@%+,".contains(c)) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[derive(Serialize)]
struct Success<'a> {
    name: &'a str,
    outcome: &'static str,
    holds: Option<u64>,
    validity_ms: Option<u64>,
}

/// Prints the outcome of a command about one lock as an object.
pub(crate) fn success(
    name: &str,
    outcome: &'static str,
    holds: Option<u64>,
    validity: Option<Duration>,
) -> Result<(), Error> {
    show(&json(&Success { name, outcome, holds, validity_ms: validity.map(ms) }))
}

/// Prints the end of another holder's lease, as an object.
pub(crate) fn revoked_json(name: &str, revocation: &Revocation) -> Result<(), Error> {
    let outcome = if revocation.is_free { "released" } else { "revoked" };
    let left = revocation.holders.iter().filter_map(|holder| holder.lease).max();
    success(name, outcome, None, left)
}

/// Prints the end of another holder's lease, for the user who ended it.
pub(crate) fn revoked(name: &str, revocation: &Revocation) -> Result<(), Error> {
    let message = |holder: &Holder| match revocation.is_free {
        false => {
            let within = holder.ttl.map_or_else(String::new, |ttl| format!(" within {}", human(renewal_interval(ttl))));
            let at_the_latest =
                holder.lease.map_or_else(String::new, |left| format!(", in {} at the latest", human(left)));
            format!(
                "revoked {name:?}, held by {holder}: run and --while-pid stop their job{within} and free the lock; \
                 any other lease of acquire ends by itself{at_the_latest}"
            )
        }
        true => {
            let job = match holder.lease {
                _ if holder.kept.is_some() => "its job had ended".to_owned(),
                Some(left) => format!("its holder may go on working for up to {}", human(left)),
                None => "its holder may go on working, and its lease would never have expired".to_owned(),
            };
            format!("freed {name:?}, which was held by {holder}: {job}")
        }
    };
    show(&revocation.holders.iter().map(|holder| line(&message(holder)) + "\n").collect::<String>())
}

#[derive(Serialize)]
struct Failure<'a> {
    name: Option<&'a str>,
    outcome: &'static str,
    status: u8,
    message: String,
    holder: Option<&'a Holder>,
}

/// Prints a failure for `eval "$(redlock acquire --format env)"`. The status of eval is that of the evaluated text, and a
/// script must not go on without the lock.
///
/// # Errors
/// [`Error::Output`] when it could not be written.
pub(crate) fn failure_env(exit: Exit) -> Result<(), Error> {
    print_at_once(&format!("(exit {})\n", exit.status()))
}

/// Prints a failure as a monitoring plugin does.
///
/// # Errors
/// [`Error::Output`] when it could not be written.
pub(crate) fn failure_nagios(error: &anyhow::Error) -> Result<(), Error> {
    print_at_once(&log::nagios("UNKNOWN", &format!("{error:#}"), &[]))
}

/// Prints a failure as an object.
///
/// # Errors
/// [`Error::Output`] when it could not be written.
pub(crate) fn failure(name: Option<&str>, error: &anyhow::Error, exit: Exit) -> Result<(), Error> {
    let (held, not_ours) = match error.downcast_ref() {
        Some(Error::Held(held) | Error::OtherShape(held, _) | Error::CannotEnd(held)) => (Some(&**held), "not-held"),
        Some(Error::NotOurs { found, .. }) => match &**found {
            NotOurs::Other(held) => (Some(held), "held-by-other"),
            NotOurs::Revoked(_) => (None, "revoked"),
            NotOurs::Free => (None, "not-held"),
        },
        _ => (None, "not-held"),
    };
    let outcome = match exit {
        Exit::Usage => "usage",
        Exit::Unavailable => "unavailable",
        Exit::Refused => "refused",
        Exit::Held | Exit::Conflict(_) => "held",
        Exit::NotHeld => not_ours,
        Exit::Output => "output",
        Exit::Signal(_) => "interrupted",
        _ => "internal",
    };
    let holder = held.and_then(|held| held.by.holders().first());
    let failure = Failure { name, outcome, status: exit.status(), message: format!("{error:#}"), holder };
    print_at_once(&json(&failure))
}

/// The state in text; JSON has a single word for each.
fn state(status: &Status) -> String {
    let word = match (status.state, status.mode) {
        (State::Held, Some(Claim::Shared)) => return format!("shared by {}", status.holder_count()),
        (State::Held, Some(Claim::Slots(limit))) => {
            return format!("{} of {limit} slots taken", status.holder_count());
        }
        (State::Free, _) => "free",
        (State::Held, _) => "held",
        (State::Kept, _) => "held (job ended)",
        (State::Reserved, _) => "reserved",
        (State::Revoked, _) => "revoked",
        (State::Foreign, _) => "foreign",
        (State::Unknown, _) => "unknown",
    };
    word.to_owned()
}

/// The state of a lock, for programs or for people.
pub(crate) fn status(status: &Status, is_json: bool) -> String {
    if is_json { json(status) } else { status_text(status) }
}

fn status_text(status: &Status) -> String {
    let mut text = format!("{}  {}", escaped(&status.name, LONGEST_NAME), state(status));
    let last = log::last_run(status);
    match (status.state, &last) {
        (State::Free, Some(last)) => text += &format!("; last run {last}"),
        // A misspelt name looks like this. Only all nodes together can tell.
        (State::Free, None) if status.memory.counts.is_some() => text += "; no run is known",
        _ => {}
    }
    let mut line = |label: &str, what: String| text.push_str(&format!("\n  {label:<8}{what}"));
    for holder in status.holders() {
        holder_lines(holder, &mut line);
    }
    let listed = status.holders().len() as u64;
    if status.holder_count() > listed {
        line("", format!("and {} more", status.holder_count() - listed));
    }
    match (status.state, status.holders(), status.lease()) {
        (State::Reserved, _, Some(left)) => line("for", format!("the next in line, for at most {}", human(left))),
        // The key is not a lock.
        (State::Foreign, [], left) => {
            line("lease", left.map_or_else(|| "never expires".to_owned(), |left| format!("{} left", human(left))));
        }
        _ => {}
    }
    if let Some(waiting) = status.waiting.filter(|&waiting| waiting > 0) {
        line("waiting", waiting.to_string());
    }
    let named: Vec<&Waiter> = status.waiters.iter().flatten().take(WAITERS).collect();
    named.iter().for_each(|waiter| line("", waiter_line(waiter)));
    match status.waiting.unwrap_or_default().saturating_sub(named.len() as u64) {
        more @ 1.. if !named.is_empty() => line("", format!("and {more} more")),
        _ => {}
    }
    if let Some(last) = last.filter(|_| status.state != State::Free) {
        line("last", last);
    }
    let odd = status.nodes.iter().any(|node| node.detail.is_some());
    if status.nodes.len() > 1 || odd {
        for node in &status.nodes {
            line("node", format!("{}  {}", node.node, node.detail.as_deref().unwrap_or(node.answer)));
        }
    }
    text.push('\n');
    text
}

/// `deploy@web-3, pid 4121 (nightly), for 12s`
fn waiter_line(waiter: &Waiter) -> String {
    let who = match (&waiter.user, &waiter.host) {
        (Some(user), Some(host)) => who(user, host, waiter.pid, waiter.label.as_deref()),
        _ => "one that does not tell its name".to_owned(),
    };
    let time = waiter.waited.map_or_else(String::new, |waited| format!(", for {}", seconds(waited)));
    format!("{who}{time}")
}

fn holder_lines(holder: &Holder, line: &mut impl FnMut(&str, String)) {
    if let Some(slot) = holder.slot {
        line("slot", slot.to_string());
    }
    line("by", holder.to_string());
    if let Some(held) = holder.held {
        let since =
            holder.acquired_at.and_then(local_date).map_or_else(String::new, |since| format!(", since {since}"));
        line("for", seconds(held) + &since);
    }
    if let Some(kept) = holder.kept {
        line("ended", format!("{} ago", human(kept)));
    }
    if let Some(by) = &holder.revoked {
        line("revoked", format!("by {}", safe(by)));
    }
    match (holder.lease, holder.kept) {
        (Some(left), Some(_)) => line("kept", format!("for {} more", human(left))),
        (None, _) => line("lease", "never expires".to_owned()),
        (Some(left), None) => {
            // A lease that was extended may last longer than its ttl.
            let of = holder.ttl.filter(|&ttl| left <= ttl);
            let of = of.map_or_else(String::new, |ttl| format!(" of {}", human(ttl)));
            line("lease", format!("{}{of} left", human(left)));
        }
    }
    if !holder.token.is_empty() {
        let fence = holder.fencing_token.map_or_else(String::new, |fence| format!(", fencing token {fence}"));
        line("token", format!("{}…{fence}", holder.short_token()));
    }
    if let Some(holds) = holder.holds.filter(|&holds| holds > 1) {
        line("holds", holds.to_string());
    }
}

#[derive(Serialize)]
struct Checkup<'a> {
    settings: &'a [Setting],
    checks: &'a [Finding],
}

/// Prints the doctor's findings as an object.
pub(crate) fn checkup_json(settings: &[Setting], findings: &[Finding]) -> Result<(), Error> {
    show(&json(&Checkup { settings, checks: findings }))
}

/// Prints the doctor's findings with their remedies, worst first: problems; with `verbose` everything, with `quiet` failures
/// only.
pub(crate) fn checkup(settings: &[Setting], findings: &[Finding], quiet: bool, verbose: bool) -> Result<(), Error> {
    let mut text = String::new();
    let shown = |finding: &&Finding| match finding.verdict {
        Diagnosis::Fail => true,
        Diagnosis::Warn | Diagnosis::Unknown => !quiet,
        Diagnosis::Ok => verbose,
    };
    let shown: Vec<&Finding> = findings.iter().filter(shown).collect();
    // A detail that several checks share is printed once.
    for alike in shown.chunk_by(|a, b| (&a.node, &a.detail) == (&b.node, &b.detail)) {
        let Finding { node, verdict, detail, advice, .. } = alike[0];
        let node = node.as_ref().map_or_else(String::new, |node| format!("{node}  "));
        let checks: Vec<&str> = alike.iter().map(|finding| finding.check).collect();
        text.push_str(&format!("{:<8} {node}{}: {}\n", verdict.word(), checks.join(", "), escaped(detail, LINE)));
        if let Some(advice) = advice {
            text.push_str(&format!("         {}\n", escaped(advice, LINE)));
        }
    }
    if !quiet {
        let settings = settings.iter().filter(|setting| verbose || !setting.is_default);
        settings.for_each(|setting| text.push_str(&format!("setting  {}\n", printable(&setting.to_string(), LINE))));
        text.push_str(&summary(findings));
    }
    show(&text)
}

fn summary(findings: &[Finding]) -> String {
    let has = |verdict| findings.iter().any(|finding| finding.verdict == verdict);
    let what = match (has(Diagnosis::Fail), has(Diagnosis::Unknown)) {
        (false, false) => "Redis is ready for locks",
        (false, true) => "Redis is ready for locks, as far as could be checked",
        (true, _) => "Redis is not ready for locks",
    };
    let alike = findings.chunk_by(|a, b| a.verdict == b.verdict);
    let counts: Vec<String> = alike.map(|alike| format!("{} {}", alike.len(), alike[0].verdict.word())).collect();
    format!("{what}: {}.\n", counts.join(", "))
}
