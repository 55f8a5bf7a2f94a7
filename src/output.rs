//! Standard output and JSON. The only file that prints results.

use crate::error::{Error, Held, human};
use crate::exit::Exit;
use crate::lock::{Ended, Freed, Holder, Lease, Record, State, Status, escaped, unprintable};
use crate::sys::inherited;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal, Write};
use std::time::{Duration, UNIX_EPOCH};

/// How much of what somebody wrote is shown in a column of a table.
const COLUMN: usize = 40;

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

/// Writes what somebody looks at. Where they have seen enough (`| head`), that is nobody's failure.
///
/// # Errors
/// [`Error::Unread`] when the pipe has no reader any more, [`Error::Output`] when nothing can be written otherwise.
fn show(text: &str) -> Result<(), Error> {
    write(text).map_err(|error| match error.kind() {
        // Whoever has it ignored wants to be told, as by any other program.
        ErrorKind::BrokenPipe if !inherited::was_sigpipe_ignored() => Error::Unread,
        _ => not_written(&error),
    })
}

/// The system's words without Rust's "(os error 28)".
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
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

/// The token of a new lease, alone on one line.
pub(crate) fn token(lease: &Lease) -> Result<(), Error> {
    print(&format!("{}\n", lease.token))
}

/// A new lease, for a shell's eval.
pub(crate) fn lease_env(name: &str, lease: &Lease) -> Result<(), Error> {
    print(&format!(
        "REDLOCK_NAME={}\nREDLOCK_TOKEN={}\nREDLOCK_FENCING_TOKEN={}\n",
        quoted(name),
        quoted(&lease.token),
        quoted(&lease.fencing_token.to_string())
    ))
}

/// A new lease as an object.
pub(crate) fn lease_json(name: &str, key: &str, lease: &Lease) -> Result<(), Error> {
    print_json(&Acquired {
        name,
        key,
        token: &lease.token,
        fencing_token: lease.fencing_token,
        ttl_ms: ms(lease.ttl),
        validity_ms: ms(lease.valid_until().left()),
        holds: lease.holds,
        waited_ms: ms(lease.waited),
    })
}

/// One word for a POSIX shell, whatever is in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[derive(Serialize)]
struct Outcome<'a> {
    name: &'a str,
    outcome: &'static str,
    holds: Option<u64>,
    validity_ms: Option<u64>,
}

/// What became of a lease that was extended or given up.
pub(crate) fn ended_json(name: &str, ended: &Ended) -> Result<(), Error> {
    let (outcome, holds, validity_ms) = match ended {
        Ended::Extended { validity, holds, .. } => ("extended", Some(*holds), Some(ms(*validity))),
        Ended::Released => ("released", Some(0), None),
        Ended::StillHeld(left) => ("still-held", Some(*left), None),
        Ended::NotHeld => ("not-held", None, None),
        Ended::HeldByOther(_) => ("held-by-other", None, None),
        Ended::Revoked(_) => ("revoked", None, None),
    };
    print_json(&Outcome { name, outcome, holds, validity_ms })
}

/// What became of somebody's lease that was to be ended.
pub(crate) fn freed_json(name: &str, freed: &Freed) -> Result<(), Error> {
    let (outcome, left) = match freed {
        Freed::Revoked(held) => ("revoked", held.lease),
        Freed::Released(held) => ("released", held.lease),
        Freed::NotHeld => ("not-held", None),
        Freed::HeldByOther(held) | Freed::Foreign(held) => ("held-by-other", held.lease),
    };
    print_json(&Outcome { name, outcome, holds: None, validity_ms: left.map(ms) })
}

/// What became of somebody's lease, for the one who ended it.
pub(crate) fn freed(name: &str, freed: &Freed) -> Result<(), Error> {
    match freed {
        Freed::Revoked(held) => {
            let at_the_latest =
                held.lease.map_or_else(String::new, |left| format!(", in {} at the latest", human(left)));
            print(&format!(
                "revoked {name:?}, held by {}: free when its job has been stopped{at_the_latest}\n",
                whose(held)
            ))
        }
        Freed::Released(held) => {
            let record = held.holder.as_ref().and_then(|holder| holder.record.as_ref());
            let job = match held.lease {
                _ if record.is_some_and(|record| record.kept.is_some()) => "its job had ended".to_owned(),
                Some(left) => format!("its job may still run for {}", human(left)),
                None => "its job may still run, for ever as far as is known".to_owned(),
            };
            print(&format!("freed {name:?}, which was held by {}: {job}\n", whose(held)))
        }
        Freed::NotHeld | Freed::HeldByOther(_) | Freed::Foreign(_) => Ok(()),
    }
}

fn whose(held: &Held) -> String {
    held.holder.as_ref().map_or_else(|| "another".to_owned(), Holder::to_string)
}

#[derive(Serialize)]
struct Failure<'a> {
    name: Option<&'a str>,
    outcome: &'static str,
    status: u8,
    message: String,
    holder: Option<HolderJson>,
}

/// A failure for `eval "$(redlock acquire --format env)"`, whose status is that of what it evaluates: a script must not go
/// on without the lock.
///
/// # Errors
/// [`Error::Output`] when it could not be written.
pub(crate) fn failure_env(exit: Exit) -> Result<(), Error> {
    text(&format!("(exit {})\n", exit.status()))
}

/// A failure as an object.
///
/// # Errors
/// [`Error::Output`] when it could not be written.
pub(crate) fn failure(name: Option<&str>, error: &anyhow::Error, exit: Exit) -> Result<(), Error> {
    let (outcome, held) = match error.downcast_ref() {
        Some(Error::Usage(_)) => ("usage", None),
        Some(Error::Held(held)) => ("held", Some(held)),
        Some(Error::Unavailable(_)) => ("unavailable", None),
        Some(Error::Refused(_)) => ("refused", None),
        Some(Error::NotHeld(_)) => ("not-held", None),
        Some(Error::HeldByOther(_, held)) => ("held-by-other", Some(held)),
        Some(Error::Revoked(_)) => ("revoked", None),
        Some(Error::Output(_) | Error::Unread) => ("output", None),
        Some(Error::Interrupted(_)) => ("interrupted", None),
        Some(Error::Internal(_)) | None => ("internal", None),
    };
    let holder = held.and_then(|held| held.holder.as_ref().map(|holder| HolderJson::of(holder, held.lease, None)));
    print_json(&Failure { name, outcome, status: exit.status(), message: format!("{error:#}"), holder })
}

#[derive(Serialize)]
struct HolderJson {
    token_prefix: String,
    host: Option<String>,
    pid: Option<u32>,
    user: Option<String>,
    label: Option<String>,
    acquired_at: Option<String>,
    held_ms: Option<u64>,
    fencing_token: Option<u64>,
    holds: Option<u64>,
    ttl_ms: Option<u64>,
    lease_ms: Option<u64>,
}

/// As much of a text that somebody wrote as anybody needs.
fn cut(text: &str) -> String {
    const LONGEST: usize = 256;
    text.chars().take(LONGEST).collect()
}

impl HolderJson {
    fn of(holder: &Holder, lease: Option<Duration>, holds: Option<u64>) -> HolderJson {
        let record = holder.record.as_ref();
        HolderJson {
            token_prefix: holder.token.chars().take(8).collect(),
            host: record.map(|record| cut(&record.host)),
            pid: record.map(|record| record.pid),
            user: record.map(|record| cut(&record.user)),
            label: record.map(|record| cut(&record.label)).filter(|label| !label.is_empty()),
            acquired_at: record.and_then(acquired_at),
            held_ms: record.map(|record| ms(record.held)),
            fencing_token: record.map(|record| record.fencing_token),
            holds: record.and(holds),
            ttl_ms: record.map(|record| ms(record.ttl)),
            lease_ms: lease.map(ms),
        }
    }
}

/// To the second, in UTC; none when somebody has written a time that no calendar has.
fn acquired_at(record: &Record) -> Option<String> {
    let mut text = String::new();
    let since = UNIX_EPOCH.checked_add(record.since)?;
    write!(text, "{}", humantime::format_rfc3339_seconds(since)).ok()?;
    Some(text)
}

#[derive(Serialize)]
struct StatusJson<'a> {
    name: &'a str,
    key: &'a str,
    state: &'static str,
    mode: Option<&'static str>,
    holders: Vec<HolderJson>,
    waiting: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<NodeJson<'a>>>,
}

#[derive(Serialize)]
struct NodeJson<'a> {
    node: &'a str,
    answer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

impl<'a> StatusJson<'a> {
    fn of(status: &'a Status) -> StatusJson<'a> {
        let nodes: Vec<NodeJson<'a>> = status
            .nodes
            .iter()
            .map(|node| NodeJson { node: &node.node, answer: node.answer, detail: node.detail.as_deref() })
            .collect();
        StatusJson {
            name: &status.name,
            key: &status.key,
            state: word(status.state),
            mode: status.holder.as_ref().and_then(|holder| holder.record.as_ref()).map(|_| "exclusive"),
            holders: status.holder.iter().map(|holder| HolderJson::of(holder, status.lease, status.holds)).collect(),
            waiting: status.waiting,
            nodes: (!nodes.is_empty()).then_some(nodes),
        }
    }
}

#[derive(Serialize)]
struct ListJson<'a> {
    locks: Vec<StatusJson<'a>>,
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
    show(&json(&StatusJson::of(status)))
}

/// All locks as an object.
pub(crate) fn list_json(all: &[Status]) -> Result<(), Error> {
    show(&json(&ListJson { locks: all.iter().map(StatusJson::of).collect() }))
}

/// One lock for people.
pub(crate) fn status(status: &Status, redraw: bool) -> Result<(), Error> {
    show(&with_redraw(redraw, status_text(status)))
}

fn status_text(status: &Status) -> String {
    let mut text = format!("{}  {}", escaped(&status.name, 512), word(status.state));
    let mut line = |label: &str, what: String| text.push_str(&format!("\n  {label:<8}{what}"));
    if let Some(holder) = &status.holder {
        line("by", holder.to_string());
        if let Some(record) = &holder.record {
            line(
                "for",
                match acquired_at(record) {
                    Some(since) => format!("{}, since {since}", human(record.held)),
                    None => human(record.held),
                },
            );
            if let Some(kept) = record.kept {
                line("ended", format!("{} ago", human(kept)));
            }
            if let Some(by) = &record.revoked {
                line("revoked", format!("by {}", escaped(by, COLUMN)));
            }
        }
    }
    match (&status.state, status.lease) {
        (State::Free | State::Unknown, _) => {}
        (State::Reserved, Some(left)) => line("for", format!("the next in line, {} at most", human(left))),
        (State::Reserved, None) => {}
        (_, None) => line("lease", "never expires".to_owned()),
        (_, Some(left)) => {
            let of = status.holder.as_ref().and_then(|holder| holder.record.as_ref());
            // One that was extended may last longer than it was taken for.
            let of = of.filter(|record| left <= record.ttl);
            let of = of.map_or_else(String::new, |record| format!(" of {}", human(record.ttl)));
            line("lease", format!("{}{of} left", human(left)));
        }
    }
    if let Some(holder) = &status.holder
        && !holder.token.is_empty()
    {
        let mut token = format!("{}…", holder.short_token());
        if let Some(record) = &holder.record {
            token.push_str(&format!(", fencing token {}", record.fencing_token));
        }
        line("token", token);
    }
    if let Some(holds) = status.holds.filter(|&holds| holds > 1) {
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
        let record = status.holder.as_ref().and_then(|holder| holder.record.as_ref());
        let time = |time: Option<Duration>| time.map_or_else(|| "-".to_owned(), human);
        rows.push([
            escaped(&status.name, COLUMN),
            word(status.state).to_owned(),
            record.and(status.holder.as_ref()).map_or_else(|| "-".to_owned(), Holder::to_string),
            time(record.map(|record| record.held)),
            match (status.lease, status.state) {
                (None, State::Held | State::Kept | State::Revoked | State::Foreign) => "never".to_owned(),
                (lease, _) => time(lease),
            },
            status.waiting.map_or_else(|| "-".to_owned(), |waiting| waiting.to_string()),
        ]);
    }
    let mut width = [0; 6];
    for row in &rows {
        for (width, cell) in width.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(width) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    show(&with_redraw(redraw, text))
}

/// In place of what was shown before, on a terminal.
fn with_redraw(redraw: bool, text: String) -> String {
    if redraw && std::io::stdout().is_terminal() { format!("\x1b[H\x1b[J{text}") } else { text }
}

/// What there is to read at length: help, completions.
pub(crate) fn text(text: &str) -> Result<(), Error> {
    show(text)
}
