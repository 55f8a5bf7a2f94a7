//! What a call with `--once-per P` decides from times alone. P is the period of the crontab. A run that has succeeded
//! turns a call away if it began less than P/2 before the call, or after it.
//!
//! Half is farthest from both mistakes. Tonight's other hosts, retries and wrong clocks come within hours. Tomorrow's
//! call comes a whole P later, less an hour for daylight saving, less the morning on which somebody has repeated the
//! failed run by hand.

use std::time::Duration;

/// A call that names no wait waits for P/12, and no longer than this, unless a run of its period goes on.
const LONGEST_WAIT: Duration = Duration::from_secs(2 * 3600);

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The option `--once-per` of a call, and the options that stand with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OncePer {
    pub period: Duration,
    /// The longest wait, if the call names one.
    pub wait: Option<Duration>,
    /// The most runs that may begin in a period, whatever becomes of them.
    pub tries: Option<u64>,
    /// A success is due this often, if the job comes less often than in each period.
    pub due: Option<Duration>,
}

/// What the calls with `--once-per` of a lock promise: a success in each `due`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub period: Duration,
    pub due: Duration,
    /// When the first such call came, by the servers' clock.
    pub first: Duration,
}

impl OncePer {
    /// A run belongs to the period of a call that has waited for this long if it began less than this ago.
    pub fn looks_back(&self, waited: Duration) -> Duration {
        self.period / 2 + waited
    }

    /// The longest usual time between two successes. A month is a period of 30 days, and has 31.
    pub fn due(&self) -> Duration {
        self.due.unwrap_or(if self.period == 30 * DAY { 31 * DAY } else { self.period })
    }

    /// How long the call waits. `goes_on`: a run with `--once-per` of this call's period holds the lock, and somebody
    /// is to be there if it fails.
    pub fn waits(&self, goes_on: bool) -> Duration {
        match self.wait {
            Some(wait) => wait,
            None if self.tries == Some(1) => Duration::ZERO,
            None if goes_on => self.period / 2,
            None => (self.period / 12).min(LONGEST_WAIT),
        }
    }
}

/// True if a run that began at this time lies within `reach` of `now`; both times are by the server's clock. A run that
/// begins less than `reach` after `now` counts, too, because the clock may have been set back. (once.lua decides so.)
pub fn is_within(reach: Duration, now: Duration, began: Duration) -> bool {
    now.abs_diff(began) < reach
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_waits_for_a_twelfth_or_for_half_while_its_run_goes_on() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let day = OncePer { period: hours(24), wait: None, tries: None, due: None };
        assert_eq!([false, true].map(|goes_on| day.waits(goes_on)), [hours(2), hours(12)]);
        let week = OncePer { period: hours(168), ..day };
        assert_eq!([false, true].map(|goes_on| week.waits(goes_on)), [hours(2), hours(84)]);
        let half = OncePer { period: hours(12), ..day };
        assert_eq!(half.waits(false), hours(1));
        for (once, wait) in [
            (OncePer { wait: Some(hours(3)), ..day }, hours(3)),
            (OncePer { tries: Some(1), ..day }, hours(0)),
            (OncePer { tries: Some(1), wait: Some(hours(3)), ..day }, hours(3)),
        ] {
            assert_eq!([false, true].map(|goes_on| once.waits(goes_on)), [wait; 2]);
        }
        assert_eq!(OncePer { tries: Some(2), ..day }.waits(true), hours(12));
    }

    #[test]
    fn a_success_is_due_in_each_period_unless_the_call_says_less_often() {
        let days = |days: u32| days * DAY;
        let due = |period, due| OncePer { period: days(period), wait: None, tries: None, due }.due();
        assert_eq!([due(1, None), due(7, None), due(30, None)], [1, 7, 31].map(days));
        assert_eq!([due(1, Some(days(3))), due(30, Some(days(30)))], [3, 30].map(days));
    }

    #[test]
    fn a_run_counts_if_it_began_less_than_half_a_period_before_the_call_or_after_it() {
        let at = Duration::from_secs;
        let day = OncePer { period: at(86_400), wait: None, tries: None, due: None };
        let counts = |waited, ago: u64| is_within(day.looks_back(at(waited)), at(1_000_000), at(1_000_000 - ago));
        assert!(counts(0, 43_199) && !counts(0, 43_200));
        assert!(counts(600, 43_799) && !counts(600, 43_800));
        // The clock was set back.
        assert!(is_within(at(10), at(100), at(109)) && !is_within(at(10), at(100), at(110)));
    }
}
