//! Runs as text: in lists, in sentences, and for monitoring plugins.

use super::LINE;
use crate::cli::values::LONGEST_NAME;
use crate::lock::{Run, RunOutcome, State, Status};
use crate::sys::clock::{local_date, local_minute};
use crate::text::{escaped, human, safe, seconds};
use std::time::Duration;

/// A run as cells; the second cell has the name, if there is a name.
pub(super) fn cells(name: Option<&str>, run: &Run, verbose: bool) -> Vec<String> {
    let unknown = || "-".to_owned();
    let name = name.map(|name| escaped(name, LONGEST_NAME));
    let cells = [run.began.and_then(local_date).unwrap_or_else(unknown)].into_iter().chain(name);
    let duration = run.duration.map_or_else(unknown, seconds);
    let who = run.owner.who(false).unwrap_or_else(unknown);
    let slot = run.slot.map_or_else(String::new, |slot| format!("slot {slot}, "));
    let waited = run.waited.filter(|_| verbose).map_or_else(String::new, |time| format!(", waited {}", human(time)));
    let errors = indented(errors(run));
    cells.chain([duration, who, format!("{slot}{}{waited}{errors}", result(run))]).collect()
}

/// The last lines of the job's standard error, if they are known.
pub(super) fn errors(run: &Run) -> impl Iterator<Item = String> {
    run.errors.iter().flat_map(|errors| lines_of(errors))
}

/// The lines of a job's standard error. Tabs, which often indent such lines, become spaces.
pub(super) fn lines_of(errors: &str) -> impl Iterator<Item = String> {
    errors.lines().map(|line| escaped(&line.replace('\t', "    "), LINE))
}

/// These lines, to stand below a line of redlock's own.
pub(super) fn indented(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| format!("\n    {line}")).collect()
}

pub(super) fn last_error(run: &Run) -> Option<String> {
    errors(run).last().map(|line| line.trim_start().to_owned())
}

/// The line about a log that does not reach back to the requested time. `before`: the end of the oldest run in the log.
/// `kept`: the number of runs in the log, which keeps no more.
pub(crate) fn forgotten(name: &str, before: Duration, kept: u64) -> String {
    let time = local_minute(before).unwrap_or_default();
    format!("{name:?}: runs before {time} are not kept ({kept} are; --log N keeps more)")
}

/// The last run: `on web-3 (nightly), 2h 4m ago, for 4m 12s, exit status 0; last failure 9d 2h ago`. After a success,
/// the last failure follows, if there is one. After a bad end, the last success follows, or `no success known`. None if
/// no ended run is known.
pub(super) fn last_run(status: &Status) -> Option<String> {
    if let Some(error) = &status.history_error {
        return Some(format!("not known: {}", error.trouble()));
    }
    let run = status.history.last.as_ref()?;
    let label = run.owner.label_in_brackets();
    let duration = run.duration.map_or_else(String::new, |time| format!(", for {}", seconds(time)));
    let exited = run.status.filter(|_| run.outcome == RunOutcome::Exited);
    let result = exited.map_or_else(|| result(run), |status| format!("exit status {status}"));
    let other = match (&status.history.last_success, &status.history.last_failure) {
        _ if run.outcome == RunOutcome::Released => String::new(),
        (_, Some(failure)) if run.succeeded() => format!("; last failure{}", led(" ", ago(failure))),
        (_, None) if run.succeeded() => String::new(),
        (Some(success), _) => format!("; last success{}", led(" ", ago(success))),
        (None, _) => "; no success known".to_owned(),
    };
    Some(format!("{}{label}{}{duration}, {result}{other}", on(run).unwrap_or_default(), led(", ", ago(run))))
}

/// The end of a message if no run is known: `; web-3:6379 was started 5m ago`. A server that has just been started may
/// have lost runs. Empty if there is no such server.
pub(crate) fn just_started(started: &Option<(String, Duration)>) -> String {
    started.as_ref().map_or_else(String::new, |(node, time)| format!("; {node} was started {} ago", seconds(*time)))
}

/// `on web-3`; None if the host is not known.
pub(super) fn on(run: &Run) -> Option<String> {
    run.owner.host.as_ref().map(|host| format!("on {}", safe(host)))
}

/// `2h 4m ago`, or [`AHEAD`]; None if the time is not known.
pub(super) fn ago(run: &Run) -> Option<String> {
    match run.ago() {
        _ if run.is_ahead() => Some(AHEAD.to_owned()),
        ago => ago.map(|ago| format!("{} ago", seconds(ago))),
    }
}

/// `lead`, then `part`: `led(", ", "2h ago")` is `, 2h ago`. Empty if there is no part.
pub(super) fn led(lead: &str, part: Option<String>) -> String {
    part.map_or_else(String::new, |part| format!("{lead}{part}"))
}

pub(super) const AHEAD: &str = "in the future: the server's clock was changed";

/// A line as monitoring plugins print it (Monitoring Plugins Development Guidelines, "Plugin Output"), with this performance
/// data.
pub(super) fn nagios(word: &str, text: &str, data: &[String]) -> String {
    let data = if data.is_empty() { String::new() } else { format!(" | {}", data.join(" ")) };
    format!("{word} - {}{data}\n", text.replace('|', "_"))
}

/// The last run, for a column of a table. None if no run is known, and the lock is taken.
pub(super) fn last_cell(status: &Status) -> Option<String> {
    let free =
        || (status.state == State::Free && status.history.counts.is_some()).then(|| "no run is known".to_owned());
    match &status.history.last {
        _ if status.history_error.is_some() => Some("not known".to_owned()),
        Some(run) => Some(result(run) + &led(", ", ago(run))),
        None => free(),
    }
}

/// The outcome of a run in a few words, and whether it is in the future.
pub(super) fn result(run: &Run) -> String {
    let ahead = if run.is_ahead() { format!(", {AHEAD}") } else { String::new() };
    run.result() + &ahead
}
