//! What `check` finds wrong with a lock. A call with `--once-per` leaves in Redis what it promises, so that a run that
//! never came is noticed. No clock and no I/O: all times are since 1970 by the servers' clock.

use crate::lock::history::periods::Expected;
use crate::lock::history::run::{Run, RunOutcome};
use crate::lock::history::visits::{Met, Visit};
use crate::lock::view::status::{State, Status};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// What a lock is judged by.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub now: Duration,
    /// What the calls with `--once-per` promise. None: there was no such call.
    pub expected: Option<Expected>,
    /// `--within`: a success must have ended less than this ago, whatever is expected.
    pub within: Option<Duration>,
    pub min_hosts: usize,
    /// The last call of each host, the latest first.
    pub visits: Vec<Came>,
    /// When the last success began, and when it ended.
    pub success: Option<(Duration, Duration)>,
    /// True if the last run that ended has failed, or may have.
    pub has_failed: bool,
    /// When the current run began.
    pub running: Option<Duration>,
    /// The usual duration of a run.
    pub usual: Option<Duration>,
    /// `stop --for`: nobody gets the lock until then.
    pub closed_until: Option<Duration>,
    /// True if the state or the history is not known.
    pub is_unknown: bool,
    pub is_taken: bool,
    /// True if a lease is not renewed as it should be, or never ends.
    pub is_dead: bool,
    pub waiting: u64,
}

/// The last call of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    pub at: Duration,
    /// True if the call was turned away by a success.
    pub is_done: bool,
}

/// What is wrong, the worst first. `came`: the number of hosts that came lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// There was no success in the time `each`. `last`: the last call, if it came more than half a period after the
    /// last success began.
    Overdue {
        each: Duration,
        came: usize,
        last: Option<Duration>,
    },
    Failed {
        came: usize,
    },
    Hangs {
        since: Duration,
        usual: Option<Duration>,
    },
    Hosts {
        came: usize,
        least: usize,
    },
    /// The lock's keys cannot be read.
    Unknown,
}

impl Finding {
    pub const WORDS: [&'static str; 5] = ["overdue", "failed", "hangs", "hosts", "unknown"];

    pub fn word(&self) -> &'static str {
        Finding::WORDS[match self {
            Finding::Overdue { .. } => 0,
            Finding::Failed { .. } => 1,
            Finding::Hangs { .. } => 2,
            Finding::Hosts { .. } => 3,
            Finding::Unknown => 4,
        }]
    }
}

impl Expected {
    /// A success may be late by this much: hosts wait in line, and daylight saving makes a day an hour longer.
    fn slack(&self) -> Duration {
        let wait = (self.period / 12).min(2 * HOUR);
        if self.period < 2 * HOUR { wait } else { wait.max(70 * MINUTE) }
    }
}

impl Facts {
    /// The facts that the nodes have reported, with all times by the clock `now` of the history.
    pub(crate) fn of(status: &Status, within: Option<Duration>, min_hosts: usize) -> Facts {
        let history = &status.history;
        let by_now =
            |time: Duration, clock: Option<Duration>| (time + history.now).saturating_sub(clock.unwrap_or(history.now));
        let began = |run: &Run| Some(by_now(run.began?, run.now));
        let came = |visit: &Visit| Came { at: by_now(visit.came, Some(visit.now)), is_done: visit.met == Met::Done };
        let success = history.last_success.as_ref();
        Facts {
            now: history.now,
            expected: history.expected,
            within,
            min_hosts,
            visits: history.hosts.iter().flatten().map(came).collect(),
            success: success.and_then(|run| Some((began(run)?, by_now(run.ended?, run.now)))),
            has_failed: history.last_run.as_ref().is_some_and(has_failed),
            running: status.running().and_then(began),
            usual: history.usual,
            closed_until: status.closed_until,
            is_unknown: status.state == State::Unknown || status.history_error.is_some(),
            is_taken: status.state != State::Free,
            is_dead: status.never_expires() || status.holders().iter().any(|holder| holder.not_renewed().is_some()),
            waiting: status.waiting.unwrap_or(0),
        }
    }

    /// True if no call and no run of the lock is known.
    pub(crate) fn is_empty(&self) -> bool {
        let Facts { expected: None, success: None, has_failed: false, running: None, .. } = self else { return false };
        self.visits.is_empty()
    }

    /// True if the lock is judged although nobody has named it. A trial by hand promises nothing, so the calls must have
    /// gone on for half a period.
    pub fn is_expected(&self) -> bool {
        let last = self.visits.first().map(|visit| visit.at);
        self.expected.zip(last).is_some_and(|(expected, last)| last >= expected.first + expected.period / 2)
    }

    /// The worst first. A closed lock runs nothing, but its hosts still come.
    pub fn findings(&self) -> Vec<Finding> {
        let runs = [self.overdue(), self.failed(), self.hangs()];
        let runs = runs.into_iter().flatten().filter(|_| self.closed_until.is_none());
        runs.chain(self.few_hosts()).collect()
    }

    /// What is wrong with a lock that nobody has named: a trial by hand promises no success.
    pub(crate) fn news(&self) -> Vec<Finding> {
        let mut news = self.findings();
        news.retain(|finding| self.is_expected() || matches!(finding, Finding::Failed { .. }));
        news
    }

    /// How long ago a host may have come and still count.
    fn reach(&self) -> Option<Duration> {
        self.within.or(self.expected.map(|expected| expected.due + expected.slack()))
    }

    /// True if a host that came at this time still counts.
    pub(crate) fn is_lately(&self, time: Duration) -> bool {
        self.reach().is_some_and(|reach| self.is_within(reach, time))
    }

    fn is_within(&self, reach: Duration, time: Duration) -> bool {
        self.now.abs_diff(time) < reach
    }

    pub(crate) fn came(&self) -> usize {
        self.visits.iter().filter(|visit| self.is_lately(visit.at)).count()
    }

    fn ran_for(&self) -> Option<Duration> {
        Some(self.now.saturating_sub(self.running?))
    }

    fn overdue(&self) -> Option<Finding> {
        let reach = self.reach()?;
        let (is_recent, each) = match (self.within, self.expected) {
            (Some(within), _) => (self.success.is_some_and(|(_, ended)| self.is_within(within, ended)), within),
            (None, expected) => (self.is_in_time(&expected?, reach), expected?.due),
        };
        let half = self.expected.map_or(Duration::ZERO, |expected| expected.period / 2);
        let success = self.success.map_or(Duration::ZERO, |(began, _)| began + half);
        let last = self.visits.first().map(|visit| visit.at).filter(|last| *last >= success);
        (!is_recent).then(|| Finding::Overdue { each, came: self.came(), last })
    }

    /// True if a success began in time, or turned a call away, or may still come.
    fn is_in_time(&self, expected: &Expected, reach: Duration) -> bool {
        let done = self.visits.iter().filter(|visit| visit.is_done).map(|visit| visit.at);
        let mut signs = done.chain(self.success.map(|(began, _)| began)).chain([expected.first]);
        let usual = self.usual.map_or(expected.period / 2, |usual| 2 * usual);
        signs.any(|at| self.is_within(reach, at)) || self.ran_for().is_some_and(|age| age < usual.max(expected.slack()))
    }

    fn failed(&self) -> Option<Finding> {
        (self.has_failed && self.running.is_none()).then(|| Finding::Failed { came: self.came() })
    }

    fn hangs(&self) -> Option<Finding> {
        let period = self.expected.map(|expected| expected.period).or(self.within)?;
        let most = self.usual.map_or(period / 2, |usual| (5 * usual).max(HOUR.min(period / 4)));
        self.ran_for().filter(|age| *age > most).map(|since| Finding::Hangs { since, usual: self.usual })
    }

    fn few_hosts(&self) -> Option<Finding> {
        let (came, least) = (self.came(), self.min_hosts);
        (self.reach().is_some() && came < least).then_some(Finding::Hosts { came, least })
    }
}

impl Status {
    /// The first of the runs that go on.
    pub(crate) fn running(&self) -> Option<&Run> {
        self.history.runs.iter().find(|run| run.outcome == RunOutcome::Running)
    }
}

/// True unless the run has succeeded, or an operator has ended it. A run that was released without a status counts as
/// failed: its keeper was killed.
fn has_failed(run: &Run) -> bool {
    !run.succeeded() && !matches!(run.outcome, RunOutcome::Revoked | RunOutcome::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);
    const NOW: Duration = Duration::from_secs(1000 * 24 * 3600);

    fn ago(minutes: u32) -> Duration {
        NOW - minutes * MINUTE
    }

    /// A daily lock: this many minutes ago three hosts came, and a success began that took 4 minutes.
    fn daily(minutes: u32) -> Facts {
        let expected = Expected { period: DAY, due: DAY, first: ago(60_000) };
        let came = |is_done| Came { at: ago(minutes), is_done };
        Facts {
            now: NOW,
            expected: Some(expected),
            visits: [true, true, false].map(came).into(),
            success: Some((ago(minutes), ago(minutes) + 4 * MINUTE)),
            usual: Some(4 * MINUTE),
            ..Facts::default()
        }
    }

    #[test]
    fn what_is_known_of_a_lock_is_judged() {
        let (night, late) = (270, 26 * 60); // half past seven; D and S
        let overdue = |came, last| Finding::Overdue { each: DAY, came, last };
        let hangs = |minutes: u32, usual| Finding::Hangs { since: minutes * MINUTE, usual };
        let four = Some(4 * MINUTE);
        let came = |at, is_done| vec![Came { at: ago(at), is_done }];
        let every = |facts: Facts, period: Duration| Facts {
            expected: facts.expected.map(|expected| Expected { period, due: period, ..expected }),
            ..facts
        };
        let table: Vec<(&str, Facts, Vec<Finding>)> = vec![
            ("in order", daily(night), vec![]),
            ("just in time", daily(late - 1), vec![]),
            ("one night without", daily(late), vec![overdue(0, None)]),
            (
                "a host came and did nothing",
                Facts { visits: came(night, false), ..daily(late) },
                vec![overdue(1, Some(ago(night)))],
            ),
            (
                "a later success is known to have turned a call away",
                Facts { visits: came(night, true), ..daily(late) },
                vec![],
            ),
            (
                "no success ever",
                Facts { success: None, visits: came(night, false), ..daily(night) },
                vec![overdue(1, Some(ago(night)))],
            ),
            (
                "too young to be overdue",
                Facts {
                    success: None,
                    visits: came(night, false),
                    expected: Some(Expected { period: DAY, due: DAY, first: ago(late - 1) }),
                    ..daily(night)
                },
                vec![],
            ),
            (
                "--due 3d",
                Facts {
                    expected: Some(Expected { period: DAY, due: 3 * DAY, first: ago(60_000) }),
                    ..daily(74 * 60 - 1)
                },
                vec![],
            ),
            (
                "the clock was set back",
                Facts { success: Some((NOW + 20 * HOUR, NOW + 20 * HOUR)), visits: vec![], ..daily(night) },
                vec![],
            ),
            (
                "the clock was set back far",
                Facts { success: Some((NOW + 26 * HOUR, NOW + 26 * HOUR)), visits: vec![], ..daily(night) },
                vec![overdue(0, None)],
            ),
            // The slack S.
            ("each hour", every(daily(64), HOUR), vec![]),
            ("each hour, overdue", every(daily(65), HOUR), vec![Finding::Overdue { each: HOUR, came: 0, last: None }]),
            ("each 2 hours", every(daily(189), 2 * HOUR), vec![]),
            (
                "each 2 hours, overdue",
                every(daily(190), 2 * HOUR),
                vec![Finding::Overdue { each: 2 * HOUR, came: 0, last: None }],
            ),
            ("each week", every(daily(170 * 60 - 1), 7 * DAY), vec![]),
            (
                "each week, overdue",
                every(daily(170 * 60), 7 * DAY),
                vec![Finding::Overdue { each: 7 * DAY, came: 0, last: None }],
            ),
            // A run goes on.
            (
                "younger than S",
                Facts { running: Some(ago(119)), usual: Some(20 * MINUTE), visits: vec![], ..daily(late) },
                vec![hangs(119, Some(20 * MINUTE))],
            ),
            (
                "older than S",
                Facts { running: Some(ago(120)), usual: Some(30 * MINUTE), visits: vec![], ..daily(late) },
                vec![overdue(0, None)],
            ),
            (
                "younger than twice the usual",
                Facts { running: Some(ago(599)), usual: Some(5 * HOUR), ..daily(late) },
                vec![],
            ),
            ("younger than P/2", Facts { running: Some(ago(719)), usual: None, ..daily(late) }, vec![]),
            (
                "older than P/2",
                Facts { running: Some(ago(721)), usual: None, ..daily(late) },
                vec![overdue(0, None), hangs(721, None)],
            ),
            // Failures.
            ("failed", Facts { has_failed: true, ..daily(night) }, vec![Finding::Failed { came: 3 }]),
            ("failed and runs again", Facts { has_failed: true, running: Some(ago(1)), ..daily(night) }, vec![]),
            (
                "failed and overdue",
                Facts { has_failed: true, ..daily(late) },
                vec![overdue(0, None), Finding::Failed { came: 0 }],
            ),
            // Hanging.
            ("more than five times the usual", Facts { running: Some(ago(61)), ..daily(night) }, vec![hangs(61, four)]),
            ("within an hour", Facts { running: Some(ago(60)), ..daily(night) }, vec![]),
            (
                "within five times the usual",
                Facts { running: Some(ago(100)), usual: Some(20 * MINUTE), ..daily(night) },
                vec![],
            ),
            (
                "within a quarter of P",
                every(Facts { running: Some(ago(15)), usual: Some(MINUTE), ..daily(20) }, HOUR),
                vec![],
            ),
            (
                "beyond a quarter of P",
                every(Facts { running: Some(ago(16)), usual: Some(MINUTE), ..daily(20) }, HOUR),
                vec![hangs(16, Some(MINUTE))],
            ),
            // Hosts.
            ("enough hosts", Facts { min_hosts: 3, ..daily(night) }, vec![]),
            ("too few hosts", Facts { min_hosts: 4, ..daily(night) }, vec![Finding::Hosts { came: 3, least: 4 }]),
            (
                "closed",
                Facts {
                    min_hosts: 1,
                    has_failed: true,
                    running: Some(ago(900)),
                    closed_until: Some(NOW),
                    ..daily(late)
                },
                vec![Finding::Hosts { came: 0, least: 1 }],
            ),
            // --within.
            ("within", Facts { within: Some(HOUR), ..daily(63) }, vec![]),
            (
                "not within",
                Facts { within: Some(HOUR), ..daily(64) },
                vec![Finding::Overdue { each: HOUR, came: 0, last: None }],
            ),
            ("within, though late", Facts { within: Some(2 * DAY), ..daily(late) }, vec![]),
            (
                "hosts within",
                Facts { within: Some(5 * HOUR), min_hosts: 4, ..daily(night) },
                vec![Finding::Hosts { came: 3, least: 4 }],
            ),
            (
                "without P",
                Facts { within: Some(HOUR), expected: None, running: Some(ago(31)), usual: None, ..daily(20) },
                vec![hangs(31, None)],
            ),
        ];
        for (what, facts, findings) in table {
            assert_eq!(facts.findings(), findings, "{what}");
        }
    }

    #[test]
    fn a_trial_by_hand_promises_nothing() {
        let tried = |first| Facts { expected: Some(Expected { period: DAY, due: DAY, first }), ..daily(60) };
        assert!(!tried(ago(60)).is_expected() && !tried(ago(779)).is_expected() && tried(ago(780)).is_expected());
        assert!(!Facts { expected: None, ..daily(60) }.is_expected());
        assert!(!Facts { visits: vec![], ..daily(60) }.is_expected());
    }
}
