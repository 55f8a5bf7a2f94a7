//! The hosts that came to a lock, as text.

use super::form::{Row, aligned};
use super::log::{AHEAD, led, result};
use crate::lock::{Met, RunOutcome, Visit};
use crate::sys::clock::local_date;
use crate::text::{first_of, safe, seconds};
use std::time::Duration;

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

/// The message if fewer than `least` hosts came in the time `within`: `only 29 of 30 hosts came: web-9 last came 3d
/// ago`. None if enough hosts came.
pub(crate) fn too_few(hosts: &[Visit], within: Duration, least: usize) -> Option<String> {
    if hosts.is_empty() && least > 0 {
        return Some("no host is known to have come".to_owned());
    }
    let has_come = |visit: &&Visit| visit.ago().is_some_and(|ago| ago <= within);
    let (came, absent): (Vec<&Visit>, Vec<&Visit>) = hosts.iter().partition(has_come);
    let last = absent.iter().map(|visit| format!("{} last came {}", safe(&visit.host), ago(visit)));
    let named = (!absent.is_empty()).then(|| first_of(last, ABSENT, absent.len() as u64));
    (came.len() < least).then(|| format!("only {} of {least} hosts came{}", came.len(), led(": ", named)))
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
