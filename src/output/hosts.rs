//! The hosts that came to a lock, as text.

use super::form::{Row, aligned};
use super::log::{AHEAD, result};
use crate::lock::{Met, RunOutcome, Visit};
use crate::sys::clock::{local_date, local_minute};
use crate::text::{first_of, safe, seconds};

/// A message names this many absent hosts at most.
const ABSENT: usize = 10;

/// A line for each host, in columns: `web-3  2026-11-24 03:00:02 +0100  4h 30m ago  ran, exit 0`.
pub(super) fn lines(hosts: &[Visit]) -> Vec<String> {
    let row = |visit: &Visit| {
        let date = local_date(visit.came).unwrap_or_default();
        Row::of(&[safe(&visit.host), date, ago(visit), met(visit)])
    };
    let rows: Vec<Row> = hosts.iter().map(row).collect();
    aligned(None, &rows, Some(0), None).map(|line| line.trim_end().to_owned()).collect()
}

/// The hosts that have not come lately: `web-7 last came yesterday 03:00`. None if there are none.
pub(super) fn absent<'a>(late: impl Iterator<Item = &'a Visit> + Clone) -> Option<String> {
    let count = late.clone().count();
    let last =
        late.map(|visit| format!("{} last came {}", safe(&visit.host), local_minute(visit.came).unwrap_or_default()));
    (count > 0).then(|| first_of(last, ABSENT, count as u64))
}

fn ago(visit: &Visit) -> String {
    visit.ago().map_or_else(|| AHEAD.to_owned(), |ago| format!("{} ago", seconds(ago)))
}

fn met(visit: &Visit) -> String {
    match (visit.met, &visit.run) {
        (Met::Took, Some(run)) if run.outcome == RunOutcome::Running => result(run),
        (Met::Took, Some(run)) => format!("ran, {}", result(run)),
        (Met::Took, None) => "took it".to_owned(),
        (Met::Taken, _) => "it was taken".to_owned(),
        (Met::Done, _) => "it had succeeded".to_owned(),
        (Met::Other, _) => "turned away".to_owned(),
    }
}
