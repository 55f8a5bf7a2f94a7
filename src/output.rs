//! Standard output and JSON. The only file that prints results.

use crate::cli::LONGEST_NAME;
use crate::config::Setting;
use crate::doctor::{Diagnosis, Finding};
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::answer::{Holder, rfc3339};
use crate::lock::{Ended, Given, Lease, Lock, State, Status};
use crate::sys::inherited;
use crate::sys::streams::Output;
use crate::text::{escaped, human, reason, unprintable};
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal, Write};
use std::time::Duration;
use unicode_width::UnicodeWidthStr;

/// How much of another user's text a column of a table shows.
const COLUMN: usize = 40;
/// How much of what a server says of itself is shown.
const LINE: usize = 2000;

/// Writes one result, complete lines, or says that it could not be.
///
/// # Errors
/// [`Error::Output`] when standard output is closed or full.
fn print(text: &str) -> Result<(), Error> {
    write(text).map_err(|error| not_written(&error))
}

fn write(text: &str) -> std::io::Result<()> {
    if inherited::was_closed(1) {
        return Err(std::io::Error::other("standard output is closed"));
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

fn not_written(error: &std::io::Error) -> Error {
    Error::Output(format!("the result could not be written: {}", reason(error)))
}

/// Writes what is looked at. A closed pipe (`| head`) is no failure.
///
/// # Errors
/// [`Error::Unread`] when the pipe has no reader any more, [`Error::Output`] when nothing can be written otherwise.
fn show(text: &str) -> Result<(), Error> {
    write(text).map_err(|error| match error.kind() {
        // A caller that ignores SIGPIPE expects the error, as of any other program.
        ErrorKind::BrokenPipe if !inherited::was_sigpipe_ignored() => Error::Unread,
        _ => not_written(&error),
    })
}

fn print_json(value: &impl Serialize) -> Result<(), Error> {
    print(&json(value))
}

fn json(value: &impl Serialize) -> String {
    // Strings and numbers only: this cannot fail.
    let mut text = unprintable_escaped(&serde_json::to_string(value).unwrap_or_default());
    text.push('\n');
    text
}

/// JSON asks for an escape of the first 32 control characters only; terminals obey the others, and marks of writing
/// direction, too. All of them can stand within strings only.
fn unprintable_escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if unprintable(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Serialize)]
struct Acquired<'a> {
    name: &'a str,
    key: &'a str,
    token: &'a str,
    fencing_token: u64,
    ttl_ms: u64,
    validity_ms: u64,
    holds: u64,
    waited_ms: u64,
}

/// Writes a result whose reader may keep it waiting: a pipe that is full.
///
/// # Errors
/// [`Error::Output`] when standard output is closed, or its reader gone.
pub(crate) async fn print_when_read(text: &str) -> Result<(), Error> {
    Output::open().write_all(text.as_bytes()).await.map_err(|error| not_written(&error))
}

/// Writes what does not wait for its reader: a failure, which may be that there is none.
fn print_at_once(text: &str) -> Result<(), Error> {
    Output::open().try_write(text.as_bytes()).map(drop).map_err(|error| not_written(&error))
}

/// The token of a new lease, alone on one line.
pub(crate) fn token(lease: &Lease) -> String {
    format!("{}\n", lease.token)
}

/// A new lease, for a shell's eval.
pub(crate) fn lease_env(name: &str, lease: &Lease) -> String {
    format!(
        "REDLOCK_NAME={}\nREDLOCK_TOKEN={}\nREDLOCK_FENCING_TOKEN={}\n",
        quoted(name),
        quoted(&lease.token),
        lease.fencing_token
    )
}

/// A new lease as an object.
pub(crate) fn lease_json(lock: &Lock, lease: &Lease, waited: Duration) -> String {
    json(&Acquired {
        name: &lock.name,
        key: lock.key(),
        token: &lease.token,
        fencing_token: lease.fencing_token,
        ttl_ms: ms(lease.ttl),
        validity_ms: ms(lease.valid_until().left()),
        holds: lease.holds,
        waited_ms: ms(waited),
    })
}

/// One word for a POSIX shell, whatever is in it. Plain words stay as they are, for what reads lines without a shell:
/// `$GITHUB_ENV`, dotenv files.
fn quoted(text: &str) -> String {
    match text.chars().all(|c| c.is_alphanumeric() || "_-./:@%+,".contains(c)) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[derive(Serialize)]
struct Outcome<'a> {
    name: &'a str,
    outcome: &'static str,
    holds: Option<u64>,
    validity_ms: Option<u64>,
}

/// What became of a lease that was extended or released.
pub(crate) fn given_json(name: &str, given: &Given) -> Result<(), Error> {
    let (outcome, holds, validity_ms) = match given {
        Given::Extended { validity, holds } => ("extended", Some(*holds), Some(ms(*validity))),
        Given::Released => ("released", Some(0), None),
        Given::StillHeld(left) => ("still-held", Some(*left), None),
        Given::NotHeld => ("not-held", None, None),
        Given::HeldByOther(_) => ("held-by-other", None, None),
        Given::Revoked(_) => ("revoked", None, None),
    };
    print_json(&Outcome { name, outcome, holds, validity_ms })
}

/// What became of another's lease that was to be ended.
pub(crate) fn ended_json(name: &str, ended: &Ended) -> Result<(), Error> {
    let (outcome, left) = match ended {
        Ended::Revoked(holder) => ("revoked", holder.lease),
        Ended::Released { holder, .. } => ("released", holder.lease),
        Ended::NotHeld => ("not-held", None),
        Ended::HeldByOther(held) | Ended::Foreign(held) => {
            ("held-by-other", held.by.holder().and_then(|holder| holder.lease))
        }
    };
    print_json(&Outcome { name, outcome, holds: None, validity_ms: left.map(ms) })
}

/// What became of another's lease, for the one who ended it.
pub(crate) fn ended(name: &str, ended: &Ended) -> Result<(), Error> {
    match ended {
        Ended::Revoked(holder) => {
            let at_the_latest =
                holder.lease.map_or_else(String::new, |left| format!(", in {} at the latest", human(left)));
            print(&format!("revoked {name:?}, held by {holder}: free when its job has been stopped{at_the_latest}\n"))
        }
        Ended::Released { holder, .. } => {
            let job = match holder.lease {
                _ if holder.kept.is_some() => "its job had ended".to_owned(),
                Some(left) => format!("its job may still run for {}", human(left)),
                None => "its job may still run, and its lease would never have expired".to_owned(),
            };
            print(&format!("freed {name:?}, which was held by {holder}: {job}\n"))
        }
        Ended::NotHeld | Ended::HeldByOther(_) | Ended::Foreign(_) => Ok(()),
    }
}

#[derive(Serialize)]
struct Failure<'a> {
    name: Option<&'a str>,
    outcome: &'static str,
    status: u8,
    message: String,
    holder: Option<&'a Holder>,
}

/// A failure for `eval "$(redlock acquire --format env)"`, whose status is that of what it evaluates: a script must not go
/// on without the lock.
///
/// # Errors
/// [`Error::Output`] when it could not be written.
pub(crate) fn failure_env(exit: Exit) -> Result<(), Error> {
    print_at_once(&format!("(exit {})\n", exit.status()))
}

/// A failure as an object.
///
/// # Errors
/// [`Error::Output`] when it could not be written.
pub(crate) fn failure(name: Option<&str>, error: &anyhow::Error, exit: Exit) -> Result<(), Error> {
    let error_type = error.downcast_ref();
    let outcome = match (exit, error_type) {
        (Exit::Usage, _) => "usage",
        (Exit::Unavailable, _) => "unavailable",
        (Exit::Refused, _) => "refused",
        (Exit::Held | Exit::Conflict(_), _) => "held",
        (Exit::NotHeld, Some(Error::HeldByOther(..))) => "held-by-other",
        (Exit::NotHeld, Some(Error::Revoked(_))) => "revoked",
        (Exit::NotHeld, _) => "not-held",
        (Exit::Output, _) | (_, Some(Error::Unread)) => "output",
        (Exit::Signal(_), _) => "interrupted",
        _ => "internal",
    };
    let held = match error_type {
        Some(Error::Held(held) | Error::CannotEnd(held) | Error::HeldByOther(_, held)) => Some(held),
        _ => None,
    };
    let holder = held.and_then(|held| held.by.holder());
    let failure = Failure { name, outcome, status: exit.status(), message: format!("{error:#}"), holder };
    print_at_once(&json(&failure))
}

#[derive(Serialize)]
struct List<'a> {
    locks: &'a [Status],
}

/// The word for a state, in text and JSON alike.
fn word(state: State) -> &'static str {
    match state {
        State::Free => "free",
        State::Held => "held",
        State::Kept => "kept",
        State::Reserved => "reserved",
        State::Revoked => "revoked",
        State::Foreign => "foreign",
        State::Unknown => "unknown",
    }
}

/// One lock as an object.
pub(crate) fn status_json(status: &Status) -> Result<(), Error> {
    show(&json(status))
}

/// All locks as an object.
pub(crate) fn list_json(all: &[Status]) -> Result<(), Error> {
    show(&json(&List { locks: all }))
}

/// One lock for people.
pub(crate) fn status(status: &Status, redraw: bool) -> Result<(), Error> {
    show(&with_redraw(redraw, status_text(status)))
}

fn status_text(status: &Status) -> String {
    let mut text = format!("{}  {}", escaped(&status.name, LONGEST_NAME), word(status.state));
    let mut line = |label: &str, what: String| text.push_str(&format!("\n  {label:<8}{what}"));
    let holder = status.holder();
    if let Some(holder) = holder {
        line("by", holder.to_string());
        match (holder.held, holder.acquired_at.and_then(rfc3339)) {
            (Some(held), Some(since)) => line("for", format!("{}, since {since}", human(held))),
            (Some(held), None) => line("for", human(held)),
            (None, _) => {}
        }
        if let Some(kept) = holder.kept {
            line("ended", format!("{} ago", human(kept)));
        }
        if let Some(by) = &holder.revoked {
            line("revoked", format!("by {}", escaped(by, COLUMN)));
        }
    }
    match (&status.state, status.lease()) {
        (State::Free | State::Unknown, _) => {}
        (State::Reserved, Some(left)) => line("for", format!("the next in line, {} at most", human(left))),
        (State::Reserved, None) => {}
        (State::Kept, Some(left)) => line("kept", format!("for {} more", human(left))),
        (_, None) => line("lease", "never expires".to_owned()),
        (_, Some(left)) => {
            // One that was extended may last longer than it was taken for.
            let of = holder.and_then(|holder| holder.ttl).filter(|&ttl| left <= ttl);
            let of = of.map_or_else(String::new, |ttl| format!(" of {}", human(ttl)));
            line("lease", format!("{}{of} left", human(left)));
        }
    }
    if let Some(holder) = holder.filter(|holder| !holder.token.is_empty()) {
        let fence = holder.fencing_token.map_or_else(String::new, |fence| format!(", fencing token {fence}"));
        line("token", format!("{}…{fence}", escaped(&holder.short_token(), 8)));
    }
    if let Some(holds) = holder.and_then(|holder| holder.holds).filter(|&holds| holds > 1) {
        line("holds", holds.to_string());
    }
    if let Some(waiting) = status.waiting.filter(|&waiting| waiting > 0) {
        line("waiting", waiting.to_string());
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

/// All locks as a table for people.
pub(crate) fn list(all: &[Status], redraw: bool) -> Result<(), Error> {
    let mut rows = vec![["NAME", "STATE", "HELD BY", "FOR", "LEASE", "WAITING"].map(str::to_owned)];
    for status in all {
        let holder = status.holder().filter(|holder| holder.has_record());
        let time = |time: Option<Duration>| time.map_or_else(|| "-".to_owned(), human);
        rows.push([
            // Two locks must not look alike.
            escaped(&status.name, LONGEST_NAME),
            word(status.state).to_owned(),
            holder.map_or_else(|| "-".to_owned(), Holder::to_string),
            time(holder.and_then(|holder| holder.held)),
            match (status.lease(), status.state) {
                (None, State::Held | State::Kept | State::Revoked | State::Foreign) => "never".to_owned(),
                (lease, _) => time(lease),
            },
            status.waiting.map_or_else(|| "-".to_owned(), |waiting| waiting.to_string()),
        ]);
    }
    let mut width = [0; 6];
    for row in &rows {
        for (width, cell) in width.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(width) {
            line.push_str(&format!("{cell}{:1$}", "", width - cell.width() + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    show(&with_redraw(redraw, text))
}

#[derive(Serialize)]
struct Checkup<'a> {
    settings: &'a [Setting],
    checks: &'a [Finding],
}

/// What the doctor has found, as an object.
pub(crate) fn checkup_json(settings: &[Setting], findings: &[Finding]) -> Result<(), Error> {
    show(&json(&Checkup { settings, checks: findings }))
}

/// What the doctor has found, the worst first: what is not well with how to mend it, with `verbose` all of it, with `quiet`
/// what is broken alone.
pub(crate) fn checkup(settings: &[Setting], findings: &[Finding], quiet: bool, verbose: bool) -> Result<(), Error> {
    let mut text = String::new();
    let shown = |finding: &&Finding| match finding.verdict {
        Diagnosis::Fail => true,
        Diagnosis::Warn | Diagnosis::Unknown => !quiet,
        Diagnosis::Ok => verbose,
    };
    let shown: Vec<&Finding> = findings.iter().filter(shown).collect();
    // What several checks cannot tell for the same reason is told once.
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
        let settings = settings.iter().filter(|setting| verbose || !setting.is_default());
        settings.for_each(|setting| text.push_str(&format!("setting  {setting}\n")));
        text.push_str(&summary(findings));
    }
    show(&text)
}

fn summary(findings: &[Finding]) -> String {
    let count = |diagnosis| findings.iter().filter(|finding| finding.verdict == diagnosis).count();
    let what = match (count(Diagnosis::Fail), count(Diagnosis::Unknown)) {
        (0, 0) => "Redis is ready for locks",
        (0, _) => "Redis is ready for locks, as far as could be checked",
        _ => "Redis is not ready for locks",
    };
    let kinds = [Diagnosis::Fail, Diagnosis::Warn, Diagnosis::Unknown, Diagnosis::Ok];
    let counted =
        kinds.into_iter().filter(|&kind| count(kind) > 0).map(|kind| format!("{} {}", count(kind), kind.word()));
    format!("{what}: {}.\n", counted.collect::<Vec<_>>().join(", "))
}

/// In place of what was shown before, on a terminal.
fn with_redraw(redraw: bool, text: String) -> String {
    if redraw && std::io::stdout().is_terminal() { format!("\x1b[H\x1b[J{text}") } else { text }
}

/// What there is to read at length: help, completions.
pub(crate) fn text(text: &str) -> Result<(), Error> {
    show(text)
}
