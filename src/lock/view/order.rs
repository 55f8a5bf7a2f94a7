//! The order of locks for people: the worst first, then by name as people count.

use crate::lock::view::check::{Facts, Finding};
use std::cmp::Reverse;

/// What an operator has to look at, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// Its state or its history is not known.
    Unknown,
    Overdue,
    Failed,
    Hangs,
    /// Nobody renews a lease that should be renewed, or a lease never ends.
    Dead,
    /// This many wait in line.
    Awaited(Reverse<u64>),
    Closed,
    Taken,
    None,
}

impl Trouble {
    pub fn of(facts: &Facts) -> Trouble {
        match facts.news().first() {
            _ if facts.is_unknown => Trouble::Unknown,
            Some(Finding::Overdue { .. }) => Trouble::Overdue,
            Some(Finding::Failed { .. }) => Trouble::Failed,
            Some(Finding::Hangs { .. }) => Trouble::Hangs,
            _ if facts.is_dead => Trouble::Dead,
            _ if facts.waiting > 0 => Trouble::Awaited(Reverse(facts.waiting)),
            _ if facts.closed_until.is_some() => Trouble::Closed,
            _ if facts.is_taken => Trouble::Taken,
            _ => Trouble::None,
        }
    }
}

/// The sort key of a lock in every list and picture.
pub fn place(facts: &Facts, name: &str) -> (Trouble, String) {
    (Trouble::of(facts), counted(name))
}

/// The sort key of a name, by which job-2 comes before job-10: each number begins with a character for its length.
pub fn counted(name: &str) -> String {
    let mut key = String::with_capacity(2 * name.len());
    for part in name.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let number = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        let digits = number.trim_start_matches('0');
        key.extend((!number.is_empty()).then(|| char::from(digits.len().min(255) as u8)));
        key.push_str(digits);
        key.push_str(&part[number.len()..]);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::history::periods::Expected;
    use crate::lock::view::check::Came;
    use std::time::Duration;

    const HOUR: Duration = Duration::from_secs(3600);
    const NOW: Duration = Duration::from_secs(1000 * 3600);

    /// A lock of a daily job: its last success began this many hours ago, and a host came since.
    fn daily(hours: u32) -> Facts {
        let day = 24 * HOUR;
        Facts {
            now: NOW,
            expected: Some(Expected { period: day, due: day, first: Duration::ZERO }),
            visits: vec![Came { at: NOW - HOUR, is_done: false }],
            success: Some((NOW - hours * HOUR, NOW - hours * HOUR)),
            ..Facts::default()
        }
    }

    #[test]
    fn the_worst_comes_first() {
        let all = || Facts { is_dead: true, waiting: 3, is_taken: true, ..daily(3) };
        let table = [
            ("its state is not known", Facts { is_unknown: true, has_failed: true, ..daily(50) }),
            ("overdue", Facts { has_failed: true, ..daily(50) }),
            ("failed", Facts { has_failed: true, ..daily(3) }),
            ("hangs, and all else", Facts { running: Some(NOW - 13 * HOUR), ..all() }),
            ("its holder is dead, and some wait", all()),
            ("twenty wait", Facts { waiting: 20, is_taken: true, ..Facts::default() }),
            ("two wait", Facts { waiting: 2, closed_until: Some(NOW), ..Facts::default() }),
            ("closed, so not overdue", Facts { is_taken: true, closed_until: Some(NOW), ..daily(50) }),
            ("taken", Facts { is_taken: true, running: Some(NOW - HOUR), has_failed: true, ..daily(3) }),
            ("free, and in order", daily(3)),
        ];
        let troubles = table.each_ref().map(|(_, facts)| Trouble::of(facts));
        assert!(troubles.is_sorted_by(|one, other| one < other), "{troubles:?}");
        // A trial by hand promises nothing.
        let trial = Expected { period: 24 * HOUR, due: 24 * HOUR, first: NOW - 2 * HOUR };
        assert_eq!(Trouble::of(&Facts { expected: Some(trial), ..daily(50) }), Trouble::None);
    }

    #[test]
    fn names_are_ordered_as_people_count() {
        let names = [
            "",
            "1",
            "2",
            "10",
            "a",
            "a0",
            "a1",
            "a01b",
            "a2",
            "a10",
            "a10-2",
            "a10-10",
            "a99999999999999999999999",
            "a100000000000000000000000",
            "ab",
            "b",
            "job",
            "job-2",
            "job-10",
            "job-b",
            "\u{5099}2",
            "\u{5099}10",
        ];
        assert!(names.is_sorted_by_key(|name| counted(name)), "{:?}", names.map(counted));
        let (well, overdue) = (daily(3), daily(50));
        assert!(place(&overdue, "b") < place(&well, "a") && place(&well, "job-2") < place(&well, "job-10"));
    }
}
