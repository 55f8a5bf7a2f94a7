//! Messages, and results in every format of `--format`.

mod chart;
mod check;
mod form;
mod hosts;
mod log;
mod metrics;
mod page;
mod picture;
mod stop;
mod table;

use crate::cli::{Common, Format, values::LONGEST_NAME};
use crate::config::Setting;
use crate::doctor::{Diagnosis, Finding};
use crate::error::{Error, NotOurs};
use crate::exit::Exit;
use crate::lock::{Claim, Holder, Lease, Lock, Newest, Revocation, State, Status, Waiter};
use crate::sys::clock::{Boot, local_date, local_minute};
use crate::sys::inherited;
use crate::sys::streams::{self, Output};
use crate::text::{escaped, human, printable, reason, safe, seconds, shell_word};
pub(crate) use chart::chart;
pub(crate) use check::{Verdict, check, check_nagios};
pub(crate) use form::Row;
use form::{json, object, value};
pub(crate) use log::{forgotten, just_started};
pub(crate) use metrics::Metrics;
use nix::libc;
pub(crate) use page::page;
pub(crate) use picture::{Picture, Seen};
use std::io::{BufWriter, ErrorKind, Write};
use std::iter::{once, repeat, zip};
use std::time::Duration;
pub(crate) use stop::{asked, closed, stopped, stopped_json};
pub(crate) use table::{locks, runs};

/// `status` shows at most this many waiters.
const WAITERS: usize = 10;
/// A line shows at most this many characters of a message, or of another program's text.
const LINE: usize = 2000;
/// The size of the buffer for results, in bytes.
const BUFFER: usize = 64 << 10;

/// A message as a line that begins with redlock's name. The message may quote other users and programs.
pub(crate) fn line(message: &str) -> String {
    format!("redlock: {}", printable(message, LINE))
}

pub(crate) fn say(message: &str) {
    streams::say(&line(message));
}

/// Prints a message, and below it these lines of a job's standard error.
pub(crate) fn say_with(message: &str, errors: &str) {
    streams::say(&(line(message) + &log::indented(log::lines_of(errors))));
}

/// The beginning of the message about a new lease. `waited`: the time in line; none if the caller did not wait there.
pub(crate) fn acquired(lock: &Lock, lease: &Lease, waited: Option<Duration>) -> String {
    let waited = waited.map_or_else(String::new, |waited| format!(" after {} in line", human(waited)));
    let share = match (lock.claim(), lease.slot) {
        (Claim::Shared, _) => ", shared".to_owned(),
        (Claim::Slots(limit), Some(slot)) => format!(", slot {slot} (0 to {})", limit - 1),
        _ => String::new(),
    };
    format!("acquired {:?} on {}{waited}{share}", lock.name, lock.where_it_holds(lease))
}

/// The warning that an older deployment may come after a newer one; None if no server may have lost a number.
pub(crate) fn may_have_forgotten(lock: &Lock, lease: &Lease) -> Option<String> {
    let (name, up) = (&lock.name, human(lease.fresh?));
    Some(format!("{name:?}: a server was started {up} ago, and may have forgotten a larger number of --newest"))
}

fn not_written(error: &std::io::Error) -> Error {
    Error::Output(format!("the result could not be written: {}", reason(error)))
}

/// Writes text to standard output.
///
/// # Errors
/// [`Error::Interrupted`] when the reader has closed the pipe (`| head`); [`Error::Output`] when writing fails for
/// another reason, or SIGPIPE was ignored at start.
pub(crate) fn show(text: &str) -> Result<(), Error> {
    show_all([text])
}

/// Writes a text, given in parts, to standard output. The errors are those of [`show`].
pub(crate) fn show_all(parts: impl IntoIterator<Item = impl AsRef<str>>) -> Result<(), Error> {
    let mut out = BufWriter::with_capacity(BUFFER, Output::open());
    let written = parts.into_iter().try_for_each(|part| out.write_all(part.as_ref().as_bytes()));
    let written = written.and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        // A caller that ignores SIGPIPE expects an error, as from any other program.
        ErrorKind::BrokenPipe if !inherited::was_ignored(libc::SIGPIPE) => Error::Interrupted(libc::SIGPIPE),
        _ => not_written(&error),
    })
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Writes a result, and waits for the reader of a full pipe.
///
/// # Errors
/// [`Error::Output`] when the result cannot be written: standard output is closed, or its reader has closed the pipe.
pub(crate) async fn print_when_read(text: &str) -> Result<(), Error> {
    Output::open().write_when_read(text.as_bytes()).await.map_err(|error| not_written(&error))
}

/// A new lease, for a shell's eval.
pub(crate) fn lease_env(name: &str, lease: &Lease) -> String {
    let slot = lease.slot.map_or_else(String::new, |slot| format!("REDLOCK_SLOT={slot}\n"));
    format!(
        "REDLOCK_NAME={}\nREDLOCK_TOKEN={}\nREDLOCK_FENCING_TOKEN={}\n{slot}",
        shell_word(name),
        shell_word(&lease.token),
        lease.fencing_token
    )
}

pub(crate) fn lease_json(lock: &Lock, lease: &Lease, waited: Duration) -> String {
    object(&[
        ("name", value(&lock.name)),
        ("key", value(lock.key())),
        ("token", value(&lease.token)),
        ("fencing_token", value(lease.fencing_token)),
        ("slot", value(lease.slot)),
        ("ttl_ms", value(ms(lease.ttl))),
        ("validity_ms", value(ms(lease.valid_until().left()))),
        ("holds", value(lease.holds)),
        ("waited_ms", value(ms(waited))),
    ])
}

/// Prints the outcome of a command about one lock as a JSON object.
pub(crate) fn success(
    name: &str,
    outcome: &'static str,
    holds: Option<u64>,
    validity: Option<Duration>,
) -> Result<(), Error> {
    show(&object(&[
        ("name", value(name)),
        ("outcome", value(outcome)),
        ("holds", value(holds)),
        ("validity_ms", value(validity.map(ms))),
    ]))
}

/// Prints the result of `--force`. The text has a line for each holder that the nodes name. The JSON object has the
/// outcome, and the longest time that a lease still had.
pub(crate) fn freed(name: &str, revocation: &Revocation, is_json: bool) -> Result<(), Error> {
    if is_json {
        return success(name, "released", None, revocation.holders.iter().filter_map(|holder| holder.lease).max());
    }
    show(&revocation.holders.iter().map(|holder| line(&freed_message(name, holder)) + "\n").collect::<String>())
}

fn freed_message(name: &str, holder: &Holder) -> String {
    let job = match holder.lease {
        Some(left) => format!("its holder may still be working, and its lease had {} left", human(left)),
        None => "its holder may still be working, and its lease would never have expired".to_owned(),
    };
    format!("freed {name:?}, which was held by {holder}: {job}")
}

/// Prints a failure on standard output, if the format has a form for failures: json, env and nagios. Waits for a reader
/// until `until`: the failure may be just that nobody reads.
///
/// # Errors
/// [`Error::Output`] when the failure cannot be written.
pub(crate) fn failure(
    format: Format,
    name: Option<&str>,
    error: &anyhow::Error,
    exit: Exit,
    until: Boot,
) -> Result<(), Error> {
    let text = match format {
        Format::Json => failure_json(name, error, exit),
        // For `eval "$(redlock acquire --format env)"`. eval ends with the status of this text, so a script can stop if
        // it does not get the lock.
        Format::Env => format!("(exit {})\n", exit.status()),
        Format::Nagios => log::nagios("UNKNOWN", &format!("{error:#}"), &[]),
        Format::Text | Format::Prometheus | Format::Chart | Format::Html => return Ok(()),
    };
    Output::open().write_until(text.as_bytes(), until).map_err(|error| not_written(&error))
}

fn failure_json(name: Option<&str>, error: &anyhow::Error, exit: Exit) -> String {
    let (held, not_ours) = match error.downcast_ref() {
        Some(Error::Held(held) | Error::InUse(held) | Error::OtherClaim(held, _) | Error::CannotEnd(held)) => {
            (Some(&**held), "not-held")
        }
        Some(Error::NotOurs { found, .. }) => match &**found {
            NotOurs::Other(held) | NotOurs::OtherToRevoke(held) => (Some(held), "held-by-other"),
            NotOurs::Revoked(_) => (None, "revoked"),
            _ => (None, "not-held"),
        },
        _ => (None, "not-held"),
    };
    let newest = match error.downcast_ref() {
        Some(Error::Superseded { by, .. }) => Some(&**by),
        _ => None,
    };
    let outcome = match exit {
        _ if newest.is_some() => "superseded",
        Exit::USAGE => "usage",
        Exit::UNAVAILABLE => "unavailable",
        Exit::REFUSED => "refused",
        Exit::HELD | Exit::Conflict(_) => "held",
        Exit::NOT_HELD => not_ours,
        Exit::OUTPUT => "output",
        Exit::Signal(_) => "interrupted",
        _ => "internal",
    };
    let holder = held.and_then(|held| held.by.holders().first());
    let (status, message) = (exit.status(), format!("{error:#}"));
    let mut fields = vec![
        ("name", value(name)),
        ("outcome", value(outcome)),
        ("status", value(status)),
        ("message", value(message)),
        ("holder", value(holder)),
    ];
    fields.extend(newest.map(|newest| ("newest", value(newest))));
    object(&fields)
}

/// The state in words; JSON has a single word for each state.
fn state(status: &Status) -> String {
    match (status.state, status.mode) {
        (State::Held, Some(Claim::Shared)) => format!("shared by {}", status.holder_count),
        (State::Held, Some(Claim::Slots(limit))) => format!("{} of {limit} slots taken", status.holder_count),
        (state, _) => state.to_string(),
    }
}

pub(crate) fn status(status: &Status, is_json: bool) -> String {
    if is_json { json(status) } else { status_text(status) }
}

fn status_text(status: &Status) -> String {
    let (last, holders) = (log::last_run(status), status.holders());
    let news = match (status.state, &last) {
        (State::Free, Some(last)) => format!("; last run {last}"),
        // This hints at a misspelt name. Only all nodes together can tell that a lock has no runs.
        (State::Free, None) if status.history.counts.is_some() => {
            format!("; no run is known{}", log::just_started(&status.history.started))
        }
        _ => String::new(),
    };
    let closed = status.closed_until.and_then(local_minute).zip(status.closed_by.as_deref());
    let closed = closed.map(|(until, by)| {
        let name = escaped(&shell_word(&status.name), LONGEST_NAME);
        format!("by {} until {until} (redlock stop {name} --for 0 opens it)", safe(by))
    });
    let mut rows: Vec<(&str, Option<String>)> =
        holders.iter().flat_map(|holder| holder_rows(&status.name, holder, status.history.usual)).collect();
    rows.push(("", more(status.holder_count, holders.len())));
    rows.push(("closed", closed));
    rows.push(match (status.state, holders, status.lease()) {
        (State::Reserved, _, Some(left)) => {
            ("for", Some(format!("the next in line or an earlier holder, for at most {}", human(left))))
        }
        // The key is of a type that no lock has.
        (State::Foreign, [], Some(left)) => ("lease", Some(format!("{} left", human(left)))),
        (State::Foreign, [], None) => ("lease", Some("never expires".to_owned())),
        _ => ("", None),
    });
    let waiting = status.waiting.unwrap_or_default();
    rows.push(("waiting", Some(waiting.to_string()).filter(|_| waiting > 0)));
    let named: Vec<&Waiter> = status.waiters.iter().flatten().take(WAITERS).collect();
    rows.extend(named.iter().map(|waiter| ("", Some(waiter_line(waiter)))));
    rows.push(("", more(waiting, named.len()).filter(|_| !named.is_empty())));
    rows.push(("newest", status.history.newest.as_ref().map(Newest::in_status)));
    rows.push(("last", last.filter(|_| status.state != State::Free)));
    rows.push(("errors", status.history.last.as_ref().and_then(log::last_error)));
    if let Some(hosts) = &status.history.hosts {
        let lines = if hosts.is_empty() { vec!["none is known".to_owned()] } else { hosts::lines(hosts) };
        rows.extend(zip(once("hosts").chain(repeat("")), lines.into_iter().map(Some)));
    }
    let odd = status.nodes.iter().any(|node| node.detail.is_some());
    for node in status.nodes.iter().filter(|_| odd || status.nodes.len() > 1) {
        rows.push(("node", Some(format!("{}  {}", node.node, node.detail.as_deref().unwrap_or(node.answer)))));
    }
    let lines = rows.into_iter().filter_map(|(label, what)| Some(format!("\n  {label:<8}{}", what?)));
    format!("{}  {}{news}{}\n", escaped(&status.name, LONGEST_NAME), state(status), lines.collect::<String>())
}

/// `and 3 more`: the number of entries that are not listed. None if all are listed.
fn more(all: u64, listed: usize) -> Option<String> {
    Some(all.saturating_sub(listed as u64)).filter(|&more| more > 0).map(|more| format!("and {more} more"))
}

/// `deploy@web-3, pid 4121 (nightly), for 12s`
fn waiter_line(waiter: &Waiter) -> String {
    let who = waiter.owner.who(true).unwrap_or_else(|| "a waiter without a name".to_owned());
    let time = waiter.waited.map_or_else(String::new, |waited| format!(", for {}", seconds(waited)));
    let deaf = if waiter.listening == Some(false) { ", not listening: dead or cut off" } else { "" };
    format!("{who}{time}{deaf}")
}

/// The known facts about a holder of the lock `name`, each with its label. `usual`: the usual duration of its runs.
fn holder_rows(name: &str, holder: &Holder, usual: Option<Duration>) -> [(&'static str, Option<String>); 8] {
    let usual = usual.map_or_else(String::new, |usual| format!(" (usually {})", human(usual)));
    let since = holder.acquired_at.and_then(local_date).map_or_else(String::new, |since| format!(", since {since}"));
    let fence = holder.fencing_token.map_or_else(String::new, |fence| format!(", fencing token {fence}"));
    // A lease that was extended may last longer than its ttl.
    let of = holder.ttl.filter(|&ttl| holder.lease.is_some_and(|left| left <= ttl));
    let of = of.map_or_else(String::new, |ttl| format!(" of {}", human(ttl)));
    let lease = holder.lease.map_or_else(|| "never expires".to_owned(), |left| format!("{}{of} left", human(left)));
    [
        ("slot", holder.slot.map(|slot| slot.to_string())),
        ("by", Some(holder.to_string())),
        ("for", holder.held.map(|held| seconds(held) + &usual + &since)),
        ("revoked", holder.revoked.as_ref().map(|by| format!("by {}", safe(by)))),
        ("lease", Some(lease)),
        ("", renewal_news(name, holder)),
        ("token", Some(format!("{}…{fence}", holder.short_token())).filter(|_| !holder.token.is_empty())),
        ("holds", holder.holds.filter(|&holds| holds > 1).map(|holds| holds.to_string())),
    ]
}

/// A note that nothing renews the lease, or that the renewal is late. None if the lease is revoked, is renewed in time,
/// or never expires, or if its renewal or its end is not known.
fn lease_news(holder: &Holder) -> Option<String> {
    let is_by_hand = holder.revoked.is_none() && holder.renewal?.is_zero() && holder.lease.is_some();
    let late = || Some(format!("not renewed for {}", human(holder.not_renewed()?)));
    if is_by_hand { Some("nothing renews it".to_owned()) } else { late() }
}

/// The same note with what it means, and what to do.
fn renewal_news(name: &str, holder: &Holder) -> Option<String> {
    let (news, left) = (lease_news(holder)?, human(holder.lease?));
    let (name, token) = (escaped(&shell_word(name), LONGEST_NAME), holder.short_token());
    Some(match holder.not_renewed() {
        Some(_) => format!("{news}: its host may be gone or cut off; free in {left} at the latest"),
        None => {
            format!("taken by acquire: {news}; if the script is dead: redlock release {name} --force --token {token}")
        }
    })
}

/// Prints the doctor's findings, and the settings. The JSON object has all of them. The text has the settings, and the
/// problems with their remedies, the worst first. `--verbose` adds the other findings. `--quiet` leaves only failures.
pub(crate) fn checkup(settings: &[Setting], findings: &[Finding], common: &Common) -> Result<(), Error> {
    let Common { quiet, verbose, .. } = *common;
    if common.format == Format::Json {
        return show(&object(&[("settings", value(settings)), ("checks", value(findings))]));
    }
    let mut text = String::new();
    let shown = |finding: &&Finding| match finding.verdict {
        Diagnosis::Fail => true,
        Diagnosis::Warn | Diagnosis::Unknown => !quiet,
        Diagnosis::Ok => verbose,
    };
    let shown: Vec<&Finding> = findings.iter().filter(shown).collect();
    // Successive findings with the same node and detail are printed as one.
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
