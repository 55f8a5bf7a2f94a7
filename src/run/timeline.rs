//! The arithmetic of a lease's timeline: the times of renewal, of SIGTERM and of SIGKILL. No clock, no I/O.
//!
//! ```text
//! 0 ······ R ······ R+S ····· R+2S ···· TERM ······ KILL ···· V
//! confirmed  try 1    try 2     try 3     grace       margin
//! ```
//!
//! R is the time of the first renewal, and V the end of validity. S is a third of the time from R to TERM, but at most
//! 5 s. If a try times out, the next try begins S after the beginning of that try. If a try fails sooner, the next try
//! follows after a pause. The tries go on until TERM. So with the default grace the lease survives every outage shorter
//! than a third of its ttl, whenever the outage begins.

use crate::keeper::Deadline;
use crate::lock::{less_drift, renewal_interval};
use crate::sys::clock::Boot;
use std::time::Duration;

const MILLISECOND: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeline {
    ttl: Duration,
    /// The time from the signal that asks the job to stop to SIGKILL, if the lease lasts that long.
    kill_after: Duration,
    /// The part of `kill_after` for which the timeline has room.
    grace: Duration,
    node_timeout: Duration,
}

impl Timeline {
    /// `kill_after`: the user's; None: the default.
    pub(crate) fn new(ttl: Duration, kill_after: Option<Duration>, node_timeout: Duration) -> Timeline {
        let kill_after = kill_after.unwrap_or_else(|| default_grace(ttl));
        Timeline { ttl, kill_after, grace: kill_after.min(largest_grace(ttl)), node_timeout }
    }

    /// The deadline for the job of a lease that ends at `valid_until`.
    pub(crate) fn deadline(&self, valid_until: Boot) -> Deadline {
        let kill_at = valid_until - margin(self.ttl);
        Deadline { term_at: kill_at - self.grace, kill_at }
    }

    /// The keeper has to kill the job at `kill_at`, and to report this. At the returned time redlock stops waiting.
    pub(crate) fn overdue_at(&self, kill_at: Boot) -> Boot {
        kill_at + margin(self.ttl) / 3
    }

    /// The time at which the last confirmed request was sent.
    pub(crate) fn confirmed_at(&self, valid_until: Boot) -> Boot {
        valid_until - less_drift(self.ttl)
    }

    /// The time of the first renewal after a confirmation.
    pub(crate) fn renew_at(&self, valid_until: Boot) -> Boot {
        self.confirmed_at(valid_until) + renewal_interval(self.ttl)
    }

    /// The deadline of a try that starts at `start`. Three tries fit before SIGTERM.
    pub(crate) fn give_up_at(&self, start: Boot) -> Boot {
        start + self.node_timeout.min(self.step())
    }

    /// The time of the next try after a try that started at `start` and timed out.
    pub(crate) fn retry_at(&self, start: Boot) -> Boot {
        start + self.step().min(Duration::from_secs(5))
    }

    /// The pause after a try that failed before its deadline.
    pub(crate) fn pause(&self) -> Duration {
        (self.ttl / 25).clamp(20 * MILLISECOND, 500 * MILLISECOND)
    }

    /// A third of the time between the first try and SIGTERM, at least 20 ms.
    fn step(&self) -> Duration {
        let first_try = renewal_interval(self.ttl);
        (less_drift(self.ttl).saturating_sub(margin(self.ttl) + self.grace + first_try) / 3).max(20 * MILLISECOND)
    }

    /// The time of SIGKILL after a loss that redlock learns of at `now`. Without the loss, the lease would be
    /// valid until `valid_until`.
    pub(crate) fn kill_after_loss(&self, now: Boot, valid_until: Boot) -> Boot {
        (now + self.kill_after).min(self.deadline(valid_until).kill_at)
    }
}

/// The time between SIGKILL and the end of validity, in which a busy machine carries out the kill.
fn margin(ttl: Duration) -> Duration {
    (ttl / 10).clamp(50 * MILLISECOND, Duration::from_secs(1))
}

/// The time from SIGTERM to SIGKILL if the user gave none.
pub(crate) fn default_grace(ttl: Duration) -> Duration {
    (ttl / 6).min(Duration::from_secs(10))
}

/// The longest grace that leaves time for three renewals.
fn largest_grace(ttl: Duration) -> Duration {
    let tries = 3 * (ttl / 20).max(50 * MILLISECOND);
    less_drift(ttl).saturating_sub(margin(ttl) + ttl / 4 + tries)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The points of a lease, in ms from its confirmation: three tries, their ends, TERM, KILL, V.
    fn line(ttl: u64, grace: Option<u64>, node_timeout: u64) -> [u128; 9] {
        let ttl = MILLISECOND * u32::try_from(ttl).unwrap_or(u32::MAX);
        let timeline = Timeline::new(ttl, grace.map(Duration::from_millis), Duration::from_millis(node_timeout));
        let zero = Boot::now();
        let valid = zero + less_drift(ttl);
        let first = timeline.renew_at(valid);
        let second = timeline.retry_at(first);
        let third = timeline.retry_at(second);
        let end = |start| timeline.give_up_at(start);
        let Deadline { term_at, kill_at } = timeline.deadline(valid);
        [first, second, third, end(first), end(second), end(third), term_at, kill_at, valid]
            .map(|at| (at.since(zero) + MILLISECOND / 2).as_millis())
    }

    /// The default node timeout if there is a single node, in ms.
    fn node_timeout(ttl: u64) -> u64 {
        (ttl / 10).clamp(250, 3000).min(ttl / 2)
    }

    #[test]
    fn documented_time_lines() {
        assert_eq!(line(500, None, 250), [125, 203, 281, 203, 281, 360, 360, 443, 493]);
        assert_eq!(line(1000, None, 250), [250, 407, 564, 407, 564, 721, 721, 888, 988]);
        assert_eq!(line(30_000, None, 3000), [7_500, 12_500, 17_500, 10_500, 15_500, 20_500, 23_698, 28_698, 29_698]);
        // A lease with a long ttl is renewed every ten seconds. If a try times out, the next try begins five seconds
        // after the beginning of that try.
        assert_eq!(
            line(3_600_000, None, 3000),
            [10_000, 15_000, 20_000, 13_000, 18_000, 23_000, 3_552_998, 3_562_998, 3_563_998]
        );
    }

    #[test]
    fn order_holds_for_every_ttl_and_every_grace_that_fits() {
        let ttls =
            (500..3000).chain((3000..200_000).step_by(997)).chain([600_000, 3_600_000, 86_400_000, 2_592_000_000]);
        for ttl in ttls {
            let most = u64::try_from(largest_grace(Duration::from_millis(ttl)).as_millis()).unwrap_or(u64::MAX);
            for grace in [None, Some(0), Some(most / 2), Some(most), Some(most + 1), Some(u64::MAX)] {
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
        assert_eq!(largest(500), 168_000);
        assert_eq!(largest(1000), 488_000);
        assert_eq!(largest(30_000), 16_698_000);
        // The largest grace is never negative, however short the ttl.
        assert_eq!(largest(100), 0);
    }

    #[test]
    fn proven_loss_never_gains_time() {
        let ttl = Duration::from_secs(30);
        // 25 s is more than the timeline has room for: the job gets them all, unless the lease ends sooner.
        for kill_after in [None, Some(25), Some(3600)].map(|time| time.map(Duration::from_secs)) {
            let timeline = Timeline::new(ttl, kill_after, Duration::from_secs(3));
            let zero = Boot::now();
            let valid = zero + less_drift(ttl);
            let kill_at = timeline.deadline(valid).kill_at;
            for after in 0..40 {
                let now = zero + Duration::from_secs(after);
                let at = timeline.kill_after_loss(now, valid);
                assert_eq!(at, (now + kill_after.unwrap_or(default_grace(ttl))).min(kill_at));
            }
        }
    }

    /// The behaviour of a server that is away.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Away {
        /// The server refuses connections at once.
        Refusing,
        /// The server answers nothing and loses all requests, on open connections too.
        Silent,
    }

    /// True if a job survives an outage. `from` and `to`: the beginning and the end of the outage, counted from the
    /// confirmation. The rules are those of `renewal.rs` and `redis/node.rs`. A new connection costs a round trip.
    fn survives(timeline: Timeline, away: Away, from: Duration, to: Duration, round_trip: Duration) -> bool {
        let zero = Boot::now();
        let (from, to) = (zero + from, zero + to);
        let mut confirmed = zero;
        let mut start = timeline.renew_at(confirmed + less_drift(timeline.ttl));
        let mut connected = true;
        loop {
            let valid = confirmed + less_drift(timeline.ttl);
            let term_at = timeline.deadline(valid).term_at;
            if start >= term_at {
                return false;
            }
            let give_up = timeline.give_up_at(start).min(term_at);
            let next = timeline.retry_at(start);
            // A try sends its request again and again while the server is silent. Sets `attempt` to the time of the
            // first request that the outage does not swallow, or to `give_up` or later if there is no such request.
            let mut attempt = start;
            let mut takes = round_trip * if connected { 1 } else { 2 };
            while away == Away::Silent && attempt < to && attempt + takes > from && attempt < give_up {
                // On an open connection, silence is noticed once the answer is overdue.
                let silent = if attempt == start && connected { round_trip * 2 } else { Duration::ZERO };
                attempt = attempt + timeline.pause().max(silent);
                takes = round_trip * 2;
            }
            let answered = attempt + takes;
            if away == Away::Refusing && answered >= from && start < to {
                connected = false;
                start = next.min(start + timeline.pause());
            } else if answered > give_up {
                connected = false;
                start = next;
            } else if attempt >= to {
                return true;
            } else {
                confirmed = attempt;
                start = timeline.renew_at(confirmed + less_drift(timeline.ttl));
            }
        }
    }

    #[test]
    fn no_outage_of_a_third_of_the_ttl_costs_a_job() {
        for ttl in (500..=60_000).step_by(250) {
            let ttl = Duration::from_millis(ttl);
            let timeline =
                Timeline::new(ttl, None, (ttl / 10).clamp(250 * MILLISECOND, 3000 * MILLISECOND).min(ttl / 2));
            let outages = [ttl / 3, Duration::from_secs(15)];
            for outage in outages.into_iter().take(if ttl == Duration::from_secs(30) { 2 } else { 1 }) {
                for round_trip in [MILLISECOND, (ttl / 50).min(MILLISECOND * 20)] {
                    for phase in 0..400 {
                        let from = renewal_interval(ttl) * phase / 200;
                        let context = format!("ttl {ttl:?}, {outage:?} from {from:?}, round trip {round_trip:?}");
                        for away in [Away::Refusing, Away::Silent] {
                            assert!(survives(timeline, away, from, from + outage, round_trip), "{away:?}, {context}");
                        }
                    }
                }
            }
        }
    }
}
