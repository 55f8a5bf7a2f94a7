//! A picture of the runs in a period: a line for each lock and host, with the time from left to right.

use crate::lock::{Run, RunOutcome};
use crate::sys::clock::{local_date, unix_time};
use std::collections::BTreeMap;
use std::time::Duration;

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60;
/// The possible intervals, in minutes, between two times on the time axis of a picture.
const INTERVALS: [u64; 14] = [1, 5, 15, 30, 60, 120, 180, 360, 720, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 50 * DAY];

/// The runs in the period from `from` to `to`, by the servers' clock.
#[derive(Debug)]
pub(crate) struct Picture<'a> {
    from: Duration,
    to: Duration,
    /// The parts of each line. The key is the lock and the host.
    pub(super) lines: BTreeMap<(&'a str, &'a str), Vec<Part>>,
}

/// A part of a line, from one time to another.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) from: Duration,
    pub(super) to: Duration,
    pub(super) mark: Mark,
    /// The index of the run in the argument `runs` of [`Picture::of`]. None with [`Mark::Forgotten`].
    pub(super) run: Option<usize>,
}

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
    /// The picture of these runs in the last `span`. A run whose beginning is not known cannot be shown. `forgotten`
    /// lists the locks whose older runs are forgotten: the lock, the time up to which the runs are forgotten, and the
    /// number of runs that are kept.
    pub(crate) fn of(runs: &'a [(String, Run)], forgotten: &[(String, Duration, u64)], span: Duration) -> Picture<'a> {
        let to = runs.iter().filter_map(|(_, run)| run.now).max().unwrap_or_else(unix_time);
        let from = to.saturating_sub(span.max(Duration::from_secs(1)));
        let mut picture = Picture { from, to, lines: BTreeMap::new() };
        for (number, (name, run)) in runs.iter().enumerate() {
            let Some(began) = run.began else { continue };
            let parts = picture.lines.entry((name, run.owner.host.as_deref().unwrap_or("-"))).or_default();
            let asked = began.saturating_sub(run.waited.unwrap_or_default());
            let ended = run.duration.map_or(began, |duration| began + duration);
            parts.push(Part { from: asked, to: began, mark: Mark::Waited, run: Some(number) });
            parts.push(Part { from: began, to: ended, mark: Mark::of(run), run: Some(number) });
        }
        let forgotten: BTreeMap<&str, Duration> =
            forgotten.iter().map(|(name, before, _)| (name.as_str(), *before)).collect();
        for ((name, _), parts) in &mut picture.lines {
            let before = forgotten.get(name);
            parts.extend(before.map(|&to| Part { from, to, mark: Mark::Forgotten, run: None }));
            parts.retain(|part| part.to > from && (part.to > part.from || part.mark != Mark::Waited));
        }
        picture
    }

    /// The place of a time: 0 at the left edge, 1 at the right.
    pub(super) fn place(&self, time: Duration) -> f64 {
        let since = time.saturating_sub(self.from).as_secs_f64();
        (since / (self.to - self.from).as_secs_f64()).min(1.0)
    }

    /// At most `most` round times of this machine's zone, at equal intervals: `03:00`, or `11-21` for whole days.
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
            let shown = if interval < DAY { date.get(11..16)? } else { date.get(5..10)? };
            is_round.then(|| (time, shown.to_owned()))
        });
        round.step_by((interval / DAY).max(1) as usize).collect()
    }

    pub(super) fn end(&self) -> Duration {
        self.to
    }
}
