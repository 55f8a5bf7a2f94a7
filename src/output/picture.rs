//! A picture of the runs in a period: a line for each lock and host, with the time from left to right.

use super::log::{ago, led};
use crate::lock::{Facts, Finding, Run, RunOutcome, Status, counted, place};
use crate::sys::clock::{local_date, unix_time};
use std::collections::BTreeMap;
use std::time::Duration;

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60;
/// The possible intervals, in minutes, between two times on the time axis of a picture.
const INTERVALS: [u64; 14] = [1, 5, 15, 30, 60, 120, 180, 360, 720, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 50 * DAY];

/// A lock, with its runs in the period of the picture.
pub(crate) struct Seen {
    pub(crate) status: Status,
    pub(crate) facts: Facts,
}

impl Seen {
    /// True if the lock ran, or is expected to.
    pub(crate) fn is_drawn(&self) -> bool {
        self.facts.is_expected() || !self.status.history.runs.is_empty()
    }

    /// What is shown in place of runs, after a cross if the lock is overdue; and whether it is.
    pub(super) fn absence(&self, cross: char) -> (String, bool) {
        let is_overdue = self.facts.news().iter().any(|finding| matches!(finding, Finding::Overdue { .. }));
        let success =
            self.status.history.last_success.as_ref().map(|run| format!("last success{}", led(" ", ago(run))));
        let text = success.unwrap_or_else(|| "no success is known".to_owned());
        (if is_overdue { format!("{cross} {text}") } else { text }, is_overdue)
    }
}

/// The runs in the period from `from` to `to`, by the servers' clock.
pub(crate) struct Picture<'a> {
    pub(super) from: Duration,
    pub(super) to: Duration,
    /// The locks, the worst first.
    pub(super) locks: &'a [Seen],
    pub(super) lines: Vec<Line<'a>>,
}

/// A lock that ran or is expected, a host, and its parts. A lock that has not run has one line, without parts.
pub(super) type Line<'a> = (&'a Seen, &'a str, Vec<Part<'a>>);

pub(super) struct Part<'a> {
    pub(super) from: Duration,
    pub(super) to: Duration,
    pub(super) mark: Mark,
    /// None with [`Mark::Forgotten`].
    pub(super) run: Option<&'a Run>,
}

pub(super) const LEGEND: [(Mark, &str); 5] = [
    (Mark::Ran, "ran"),
    (Mark::Failed, "failed"),
    (Mark::GoesOn, "goes on"),
    (Mark::Waited, "waited"),
    (Mark::Forgotten, "forgotten"),
];

/// The meaning of a part. If parts overlap, the meaning that stands last in this list is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    Nothing,
    /// The log no longer has the runs of this time, if there were any.
    Forgotten,
    Waited,
    Ran,
    GoesOn,
    Failed,
}

impl Mark {
    fn of(run: &Run) -> Mark {
        match run.outcome {
            RunOutcome::Running => Mark::GoesOn,
            _ if run.went_wrong() => Mark::Failed,
            _ => Mark::Ran,
        }
    }
}

impl<'a> Picture<'a> {
    /// The picture of these locks in the last `span`. Puts the worst lock first.
    pub(crate) fn of(locks: &'a mut [Seen], span: Duration) -> Picture<'a> {
        locks.sort_by_cached_key(|lock| place(&lock.facts, &lock.status.name));
        let locks = &*locks;
        let clocks = locks.iter().flat_map(|lock| lock.status.history.runs.iter().filter_map(|run| run.now));
        let now = || locks.iter().map(|lock| lock.facts.now).max().filter(|now| !now.is_zero());
        let to = clocks.max().or_else(now).unwrap_or_else(unix_time);
        let from = to.saturating_sub(span.max(Duration::from_secs(1)));
        let drawn = locks.iter().filter(|lock| lock.is_drawn());
        Picture { from, to, locks, lines: drawn.flat_map(|lock| lines(lock, from)).collect() }
    }

    /// All runs of the picture, each with its lock, in the order in which they began.
    pub(crate) fn runs(&self) -> Vec<(&'a str, &'a Run)> {
        let of_lock = |lock: &'a Seen| lock.status.history.runs.iter().map(|run| (&lock.status.name[..], run));
        let mut runs: Vec<_> = self.locks.iter().flat_map(of_lock).collect();
        runs.sort_by_key(|(_, run)| (run.began, run.fencing_token));
        runs
    }

    /// The place of a time: 0 at the left edge, 1 at the right.
    pub(super) fn place(&self, time: Duration) -> f64 {
        let since = time.saturating_sub(self.from).as_secs_f64();
        (since / (self.to - self.from).as_secs_f64()).min(1.0)
    }

    /// At most `most` round times of this machine's zone, at equal intervals: `03:00`, or `11-21` at midnight.
    /// Daylight saving time may repeat an hour, or leave one out.
    pub(super) fn round_times(&self, most: u64) -> Vec<(Duration, String)> {
        let minutes = (self.to - self.from).as_secs() / MINUTE;
        let is_wide = |interval: &&u64| minutes / **interval < most;
        let interval = *INTERVALS.iter().find(is_wide).unwrap_or(&INTERVALS[INTERVALS.len() - 1]);
        // Local time may differ from UTC by quarters of an hour: 00:00 in Kathmandu is 18:15 in UTC.
        let grain = interval.min(15) * MINUTE;
        let times = (self.from.as_secs().div_ceil(grain) * grain..=self.to.as_secs()).step_by(grain as usize);
        let round = times.filter_map(|time| {
            let time = Duration::from_secs(time);
            let date = local_date(time)?;
            let number = |at: usize| date.get(at..at + 2)?.parse::<u64>().ok();
            let is_round = (number(11)? * 60 + number(14)?) % interval.min(DAY) == 0;
            let is_midnight = date.get(11..16)? == "00:00";
            let shown = if interval < DAY && !is_midnight { date.get(11..16)? } else { date.get(5..10)? };
            is_round.then(|| (time, shown.to_owned()))
        });
        round.step_by((interval / DAY).max(1) as usize).collect()
    }
}

/// The lines of a lock in a picture that begins at `from`. A run whose beginning is not known cannot be shown.
fn lines(lock: &Seen, from: Duration) -> Vec<Line<'_>> {
    let history = &lock.status.history;
    let mut lines: BTreeMap<(String, &str), Vec<Part<'_>>> = BTreeMap::new();
    for (run, began) in history.runs.iter().filter_map(|run| Some((run, run.began?))) {
        let host = run.owner.host.as_deref().unwrap_or("-");
        let asked = began.saturating_sub(run.waited.unwrap_or_default());
        let ended = run.duration.map_or(began, |duration| began + duration);
        lines.entry((counted(host), host)).or_default().extend([
            Part { from: asked, to: began, mark: Mark::Waited, run: Some(run) },
            Part { from: began, to: ended, mark: Mark::of(run), run: Some(run) },
        ]);
    }
    for parts in lines.values_mut() {
        parts.extend(history.forgotten.map(|(to, _)| Part { from, to, mark: Mark::Forgotten, run: None }));
        parts.retain(|part| part.to > from && (part.to > part.from || part.mark != Mark::Waited));
    }
    lines.retain(|_, parts| !parts.is_empty());
    if lines.is_empty() {
        lines.insert(Default::default(), Vec::new());
    }
    lines.into_iter().map(|((_, host), parts)| (lock, host, parts)).collect()
}
