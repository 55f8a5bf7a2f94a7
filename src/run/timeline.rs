//! The arithmetic of a lease's time line: when to renew, when the job must stop, when nothing of it
//! may be alive. No clock, no I/O.
//!
//! ```text
//! 0 ······ R ······ R+S ····· R+2S ···· TERM ······ KILL ···· V
//! confirmed  try 1    try 2     try 3     grace       margin
//! ```

use crate::lock::surely;
use crate::sys::clock::Boot;
use std::time::Duration;

const MILLISECOND: Duration = Duration::from_millis(1);

/// The time line of a lease with this ttl.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeline {
    ttl: Duration,
    grace: Duration,
    node_timeout: Duration,
}

impl Timeline {
    /// `grace` is what the user asked for, at most [`largest_grace`] of the ttl that was asked for: it is cut where the lease of an
    /// enclosing job is shorter.
    pub(crate) fn new(ttl: Duration, grace: Option<Duration>, node_timeout: Duration) -> Timeline {
        Timeline { ttl, grace: grace.unwrap_or_else(|| default_grace(ttl)).min(largest_grace(ttl)), node_timeout }
    }

    /// When the job of a lease that is valid until then gets SIGTERM, and when SIGKILL.
    pub(crate) fn deadlines(&self, valid_until: Boot) -> (Boot, Boot) {
        let kill_at = valid_until - margin(self.ttl);
        (kill_at - self.grace, kill_at)
    }

    /// When a keeper that should have begun to kill the job at `kill_at`, and has not said so, is given up.
    pub(crate) fn overdue_at(&self, kill_at: Boot) -> Boot {
        kill_at + margin(self.ttl) / 3
    }

    /// When the first try to renew a lease that was confirmed then is due.
    pub(crate) fn renew_at(&self, confirmed_at: Boot) -> Boot {
        confirmed_at + (self.ttl / 3).min(Duration::from_secs(60))
    }

    /// When a try that starts at `start` gives up. Three of them fit before SIGTERM.
    pub(crate) fn give_up_at(&self, start: Boot, confirmed_at: Boot, valid_until: Boot) -> Boot {
        start + self.node_timeout.min(self.slot(confirmed_at, valid_until))
    }

    /// When the try after the one that started at `start`, and failed, is due.
    pub(crate) fn retry_at(&self, start: Boot, confirmed_at: Boot, valid_until: Boot) -> Boot {
        start + self.slot(confirmed_at, valid_until).min(Duration::from_secs(5))
    }

    /// A third of the time between the first try and SIGTERM.
    fn slot(&self, confirmed_at: Boot, valid_until: Boot) -> Duration {
        let term_at = self.deadlines(valid_until).0;
        // Where the votes of a lease have drifted apart there may be no time left for three tries.
        (term_at.since(self.renew_at(confirmed_at)) / 3).max(MILLISECOND * 20)
    }

    /// SIGKILL for the job of a lease that was found lost now, and had been believed valid until then.
    pub(crate) fn kill_after_loss(&self, now: Boot, valid_until: Boot) -> Boot {
        (now + self.grace).min(self.deadlines(valid_until).1)
    }
}

/// The time kept free between SIGKILL and the end of validity, for a busy machine to obey in.
fn margin(ttl: Duration) -> Duration {
    (ttl / 20).clamp(50 * MILLISECOND, Duration::from_secs(1))
}

/// The grace where the user asked for none.
pub(crate) fn default_grace(ttl: Duration) -> Duration {
    (ttl / 4).min(Duration::from_secs(10))
}

/// The longest grace that leaves time for three tries to renew.
pub(crate) fn largest_grace(ttl: Duration) -> Duration {
    let tries = 3 * (ttl / 20).max(50 * MILLISECOND);
    surely(ttl).saturating_sub(margin(ttl) + ttl / 3 + tries)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The points of a lease confirmed at 1000 s, in ms from then: three tries, their ends, TERM, KILL, V.
    fn line(ttl: u64, grace: Option<u64>, node_timeout: u64) -> [u128; 9] {
        let ttl = MILLISECOND * u32::try_from(ttl).unwrap_or(u32::MAX);
        let timeline = Timeline::new(ttl, grace.map(Duration::from_millis), Duration::from_millis(node_timeout));
        let zero = Boot::now();
        let valid = zero + surely(ttl);
        let first = timeline.renew_at(zero);
        let second = timeline.retry_at(first, zero, valid);
        let third = timeline.retry_at(second, zero, valid);
        let end = |start| timeline.give_up_at(start, zero, valid);
        let (term_at, kill_at) = timeline.deadlines(valid);
        [first, second, third, end(first), end(second), end(third), term_at, kill_at, valid]
            .map(|at| (at.since(zero) + MILLISECOND / 2).as_millis())
    }

    /// The default time-out of a single node.
    fn node_timeout(ttl: u64) -> u64 {
        (ttl / 10).clamp(250, 3000).min(ttl / 2)
    }

    #[test]
    fn documented_time_lines() {
        assert_eq!(line(500, None, 250), [167, 217, 268, 217, 268, 318, 318, 443, 493]);
        assert_eq!(line(1000, None, 250), [333, 452, 570, 452, 570, 688, 688, 938, 988]);
        assert_eq!(line(30_000, None, 3000), [10_000, 13_733, 17_465, 13_000, 16_733, 20_465, 21_198, 28_698, 29_698]);
        // Long ttls: renewed every minute, tried again every five seconds.
        assert_eq!(
            line(3_600_000, None, 3000),
            [60_000, 65_000, 70_000, 63_000, 68_000, 73_000, 3_552_998, 3_562_998, 3_563_998]
        );
    }

    #[test]
    fn order_holds_for_every_ttl_and_every_grace_that_fits() {
        let ttls =
            (500..3000).chain((3000..200_000).step_by(997)).chain([600_000, 3_600_000, 86_400_000, 2_592_000_000]);
        for ttl in ttls {
            let most = u64::try_from(largest_grace(Duration::from_millis(ttl)).as_millis()).unwrap_or(u64::MAX);
            for grace in [None, Some(0), Some(most / 2), Some(most)] {
                let [first, second, third, end1, end2, end3, term, kill, valid] = line(ttl, grace, node_timeout(ttl));
                let context = format!("ttl {ttl} ms, grace {grace:?}");
                assert!(first < second && second < third, "{context}");
                assert!(end1 <= second && end2 <= third && end3 <= term, "{context}");
                assert!(term <= kill && kill + 50 <= valid, "{context}");
                assert!(valid < u128::from(ttl), "{context}");
                assert!(end1 - first >= 49, "{context}: a try of {} ms", end1 - first);
            }
        }
    }

    #[test]
    fn default_grace_always_fits() {
        for ttl in (500..100_000).map(Duration::from_millis) {
            assert!(default_grace(ttl) <= largest_grace(ttl), "{ttl:?}");
        }
        assert_eq!(default_grace(Duration::from_secs(3600)), Duration::from_secs(10));
    }

    #[test]
    fn graces_that_fit() {
        let largest = |ttl| largest_grace(Duration::from_millis(ttl)).as_micros();
        assert_eq!(largest(500), 126_333);
        assert_eq!(largest(1000), 454_666);
        assert_eq!(largest(30_000), 14_198_000);
        // Never less than nothing, however short the ttl.
        assert_eq!(largest(100), 0);
    }

    #[test]
    fn proven_loss_never_gains_time() {
        let ttl = Duration::from_secs(30);
        let timeline = Timeline::new(ttl, None, Duration::from_secs(3));
        let zero = Boot::now();
        let valid = zero + surely(ttl);
        let kill_at = timeline.deadlines(valid).1;
        for after in 0..40 {
            let now = zero + Duration::from_secs(after);
            let at = timeline.kill_after_loss(now, valid);
            assert_eq!(at, (now + default_grace(ttl)).min(kill_at));
        }
    }

    #[test]
    fn drifted_votes_leave_short_tries_not_none() {
        // The vote that V hangs on is older than the last confirmed round.
        let ttl = Duration::from_secs(1);
        let timeline = Timeline::new(ttl, None, Duration::from_millis(250));
        let zero = Boot::now();
        let confirmed = zero + Duration::from_millis(600);
        let valid = zero + surely(ttl);
        let start = timeline.renew_at(confirmed);
        assert_eq!(timeline.retry_at(start, confirmed, valid), start + 20 * MILLISECOND);
    }
}
