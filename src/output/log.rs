//! Runs in the log of a lock, as text and JSON.

use super::{COLUMN, aligned, json};
use crate::cli::values::LONGEST_NAME;
use crate::lock::{Outcome, Run, Status};
use crate::sys::clock::local_date;
use crate::sys::signals;
use crate::text::{escaped, exact, seconds, who};
use serde::Serialize;
use std::time::Duration;

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    #[serde(flatten)]
    run: &'a Run,
}

/// Runs, each with the name of its lock: an object or a line each. In text the names are left out where all are of one lock.
pub(crate) fn runs(runs: &[(&str, &Run)], is_json: bool, of_one: bool) -> String {
    if is_json {
        return runs.iter().map(|&(name, run)| json(&Entry { name, run })).collect();
    }
    let rows: Vec<Vec<String>> = runs.iter().map(|(name, run)| row(Some(*name).filter(|_| !of_one), run)).collect();
    aligned(&rows)
}

fn row(name: Option<&str>, run: &Run) -> Vec<String> {
    let unknown = || "-".to_owned();
    let name = name.map(|name| escaped(name, LONGEST_NAME));
    let cells = [run.began.and_then(local_date).unwrap_or_else(unknown)].into_iter().chain(name);
    let duration = run.duration.map_or_else(unknown, seconds);
    let who = who(&run.user, &run.host, None, run.label.as_deref());
    cells.chain([duration, who, result(run)]).collect()
}

/// Continues "backup  free": the last run, and the last success if that was another. Empty without a log.
pub(super) fn last_run(status: &Status) -> String {
    let Some(run) = &status.last else { return String::new() };
    let label = run.label.as_ref().map_or_else(String::new, |label| format!(" ({})", escaped(label, COLUMN)));
    let duration = run.duration.map_or_else(String::new, |time| format!(", for {}", seconds(time)));
    let result = run.status.map_or_else(|| result(run), |status| format!("exit status {status}"));
    let success = match &status.last_success {
        _ if run.succeeded() || run.outcome == Outcome::Released => String::new(),
        Some(success) => format!("; last success{}", ago(success).trim_start_matches(',')),
        None => "; no success known".to_owned(),
    };
    format!("; last run on {}{label}{}{duration}, {result}{success}", escaped(&run.host, COLUMN), ago(run))
}

/// `, 2h 4m ago`
fn ago(run: &Run) -> String {
    run.ago.map_or_else(String::new, |ago| format!(", {} ago", seconds(ago)))
}

/// Whether a run has succeeded within that time, in one line.
pub(crate) fn ran_within(status: &Status, is_recent: bool, within: Duration) -> String {
    let (name, within) = (&status.name, exact(within));
    let has = if is_recent { "has" } else { "has not" };
    let success = status.last_success.as_ref().map(|run| format!("last on {}{}", escaped(&run.host, COLUMN), ago(run)));
    let success = success.unwrap_or_else(|| "no success is known".to_owned());
    let last = status.last.as_ref().filter(|last| status.last_success.as_ref() != Some(last));
    let last = last.map_or_else(String::new, |last| format!("; last run{}: {}", ago(last), result(last)));
    format!("{name:?} {has} succeeded within {within}: {success}{last}\n")
}

/// The last run in a column of a table.
pub(super) fn last_cell(status: &Status) -> String {
    status.last.as_ref().map_or_else(|| "-".to_owned(), |run| format!("{}{}", result(run), ago(run)))
}

/// The end of a run in few words.
fn result(run: &Run) -> String {
    match (run.outcome, run.status, run.signal) {
        (Outcome::Exited, Some(status), _) => format!("exit {status}"),
        (Outcome::Signaled, _, Some(signal)) => signals::name(signal.into()),
        (Outcome::Exited | Outcome::Signaled, ..) => "ended".to_owned(),
        (Outcome::Lost, ..) => "lease lost".to_owned(),
        (Outcome::TooLong, ..) => "--max-run".to_owned(),
        (Outcome::Revoked, ..) => match &run.revoked_by {
            Some(by) => format!("revoked by {}", escaped(by, COLUMN)),
            None => "revoked".to_owned(),
        },
        (Outcome::Released, ..) => "released".to_owned(),
        (Outcome::Expired, ..) => "lease ran out".to_owned(),
        (Outcome::Running, ..) => "running".to_owned(),
    }
}
