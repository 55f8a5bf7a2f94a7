//! The numbers that sum up attacks.

use super::Place;
use super::history::{Event, Line, judge};
use super::rival::REDIS_PY;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// The numbers of an attack, or the sums of several.
#[derive(Debug, Default)]
pub(super) struct Figures {
    attacks: usize,
    seconds: u64,
    sections: usize,
    pub(super) lost: usize,
    turned_away: usize,
    killed: usize,
    late: usize,
    faults: usize,
    /// How many sections redis-py itself has entered.
    by_redis_py: usize,
    /// How many runs history has kept.
    pub(super) runs: usize,
}

impl Figures {
    /// The numbers of one attack that is over. The caller adds `runs`.
    pub(super) fn of(place: &Place, faults: usize, length: Duration) -> Figures {
        let (history, results) = (place.history(), place.arena.results.lock().unwrap());
        let judged = judge(&history, place.field.remembers_until);
        let is_python = |line: &&Line| line.event == Event::Enter && line.token.starts_with(REDIS_PY);
        let count = |code: i32| results.statuses.iter().filter(|one| one.0.1 == code).map(|one| one.1).sum();
        Figures {
            attacks: 1,
            seconds: length.as_secs(),
            sections: judged.entered,
            lost: count(76),
            turned_away: count(75),
            killed: count(137),
            late: judged.late,
            faults,
            by_redis_py: history.iter().filter(is_python).count(),
            runs: 0,
        }
    }

    pub(super) fn add(&mut self, other: &Figures) {
        self.attacks += other.attacks;
        self.seconds += other.seconds;
        self.sections += other.sections;
        self.lost += other.lost;
        self.turned_away += other.turned_away;
        self.killed += other.killed;
        self.late += other.late;
        self.faults += other.faults;
        self.by_redis_py += other.by_redis_py;
        self.runs += other.runs;
    }
}

impl Display for Figures {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} attacks, {} s, {} faults, {} sections, {} of them redis-py's; {} calls lost their lease, {} were turned away, {} killed; {} scripts \
             left late and had met nobody; {} runs in the log",
            self.attacks,
            self.seconds,
            self.faults,
            self.sections,
            self.by_redis_py,
            self.lost,
            self.turned_away,
            self.killed,
            self.late,
            self.runs
        )
    }
}

pub(super) fn statuses(counts: &BTreeMap<(&'static str, i32), usize>) -> String {
    let mut kinds: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for ((kind, status), count) in counts {
        kinds.entry(kind).or_default().push(format!("{status} ×{count}"));
    }
    let kinds: Vec<String> = kinds.iter().map(|(kind, ends)| format!("{kind}: {}", ends.join(" "))).collect();
    kinds.join("; ")
}

/// Median, 95th percentile and largest of these milliseconds.
pub(super) fn percentiles(times: &[i64]) -> String {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    format!("{} / {} / {} ms", at(50), at(95), at(100))
}
