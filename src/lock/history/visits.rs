//! The hosts that came to a lock, and the period of their visits. visits.lua notes the visits; runs.lua reports them.

use crate::lock::history::run::{FUTURE, Run};
use crate::lock::terms::holder::date;
use crate::lock::votes::quorum::middle;
use crate::redis::Reply;
use serde::{Serialize, Serializer};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// The number of hosts that a lock remembers. visits.lua has the same number.
const HOSTS: usize = 100;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The result of a host's visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Met {
    /// The host took the lock.
    Took,
    /// Others had the lock.
    Taken,
    /// The host was turned away, since a run had succeeded within `--once-per`.
    Done,
    /// The host was turned away for another reason.
    Other,
}

/// The last time that a host came to a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Visit {
    pub(crate) host: String,
    /// Time since 1970 by the server's clock.
    #[serde(rename = "came_at", serialize_with = "at")]
    pub(crate) came: Duration,
    pub(crate) met: Met,
    /// The server's clock when the server answered.
    #[serde(skip)]
    now: Duration,
    /// The run that began at this visit, if it is among the runs that were asked for.
    #[serde(skip)]
    pub(crate) run: Option<Run>,
}

impl Visit {
    /// The visits in one node's answer.
    pub(super) fn read_all(told: &Reply, now: Duration) -> Vec<Visit> {
        told.items().chunks_exact(2).take(HOSTS).filter_map(|pair| Visit::read(&pair[0], &pair[1], now)).collect()
    }

    fn read(host: &Reply, score: &Reply, now: Duration) -> Option<Visit> {
        let (host, score) = (host.as_text()?.to_owned(), score.as_count()?);
        let met = match score % 10 {
            0 => Met::Took,
            1 => Met::Taken,
            2 => Met::Done,
            _ => Met::Other,
        };
        Some(Visit { host, came: Duration::from_millis(score / 10), met, now, run: None })
    }

    /// True if `run` began at this visit. The visit and the run must come from the same node's answer. A run has only
    /// the first characters of a long host name.
    fn is_of(&self, run: &Run) -> bool {
        let is_by_host = run.owner.host.as_ref().is_some_and(|host| self.host.starts_with(host));
        self.met == Met::Took && run.began == Some(self.came) && is_by_host
    }

    /// The time since the host came. None if the server's clock was set back after the visit: the visit is then far in
    /// the future.
    pub(crate) fn ago(&self) -> Option<Duration> {
        (self.came <= self.now + FUTURE).then(|| self.passed())
    }

    fn passed(&self) -> Duration {
        self.now.saturating_sub(self.came)
    }

    /// The latest visit of one host, by the clock `now`. `same`: the visits of this host, one from each node. The visit
    /// gets the result that most nodes have noted, since one node may have granted a try that got no quorum.
    fn agreed(same: &[&Visit], now: Duration) -> Option<Visit> {
        let latest = same.iter().min_by_key(|visit| visit.passed())?;
        let count = |met| same.iter().filter(|visit| visit.met == met).count();
        let met = same.iter().max_by_key(|visit| (count(visit.met), Reverse(visit.passed())))?.met;
        let came = (latest.came + now).saturating_sub(latest.now);
        Some(Visit { host: latest.host.clone(), came, met, now, run: None })
    }
}

/// The last visit of each host, the latest first; at most [`HOSTS`] visits. All times are by one of the nodes' clocks:
/// the middle one. `nodes` has each node's visits and runs. `runs` has the combined runs of all nodes.
pub(super) fn merge(nodes: &[(&[Visit], &[Run])], runs: &[Run]) -> Vec<Visit> {
    let clocks = nodes.iter().filter_map(|(visits, _)| Some(visits.first()?.now)).collect();
    let now = middle(clocks, nodes.len()).unwrap_or_default();
    let mut hosts: BTreeMap<&str, Vec<&Visit>> = BTreeMap::new();
    for visit in nodes.iter().flat_map(|(visits, _)| *visits) {
        hosts.entry(&visit.host).or_default().push(visit);
    }
    let mut visits: Vec<Visit> = hosts.values().filter_map(|same| Visit::agreed(same, now)).collect();
    for visit in visits.iter_mut().filter(|visit| visit.met == Met::Took) {
        let told = nodes.iter().find_map(|&node| run_at_visit(&visit.host, node));
        visit.run = runs.iter().find(|run| told.is_some_and(|told| told.token == run.token)).cloned();
    }
    visits.sort_by_key(|visit| Reverse(visit.came));
    visits.truncate(HOSTS);
    visits
}

/// The run that began at the last visit of this host. The visits and the runs are those of one node.
fn run_at_visit<'a>(host: &str, (visits, runs): (&[Visit], &'a [Run])) -> Option<&'a Run> {
    let visit = visits.iter().find(|visit| visit.host == host)?;
    runs.iter().find(|run| visit.is_of(run))
}

/// The period of a host's visits, if `once_per` is so near to this period that some runs are left out; else None.
/// `began_ago`: how long ago the run began whose success turns the host away. `came_before`: how long ago the host's
/// previous visit was. A time is near to `once_per` if the two differ by at most a quarter of `once_per`. (Daylight
/// saving time makes a day an hour longer or shorter.)
pub(in crate::lock) fn period_left_out(
    began_ago: Duration,
    came_before: Duration,
    once_per: Duration,
) -> Option<Duration> {
    let is_near = |time: Duration| (once_per * 3 / 4..=once_per * 5 / 4).contains(&time);
    let period = rounded(came_before);
    (is_near(began_ago) && is_near(came_before) && shorter(period) < once_per).then_some(period)
}

/// The `--once-per` that redlock advises for this period, in whole seconds.
pub(crate) fn shorter(period: Duration) -> Duration {
    Duration::from_secs((period * 5 / 6).as_secs().max(1))
}

/// The period of a crontab, rounded from the time between two calls. Cron's calls come a second or two late, but cron's
/// periods are whole minutes. So a time from 90 s on becomes whole minutes. A shorter time becomes whole seconds or ms.
fn rounded(time: Duration) -> Duration {
    let grain = match time {
        _ if time >= MINUTE * 3 / 2 => MINUTE,
        _ if time >= SECOND * 3 / 2 => SECOND,
        _ => SECOND / 1000,
    };
    let count = (time + grain / 2).as_millis() / grain.as_millis();
    grain * u32::try_from(count).unwrap_or(u32::MAX)
}

fn at<S: Serializer>(came: &Duration, to: S) -> Result<S::Ok, S::Error> {
    date(&Some(*came), to)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// A crontab on some hosts: the times of its calls, and its `--once-per`.
    struct Crontab {
        due: Vec<Duration>,
        once_per: Duration,
        /// From time to time each host is off, for this long; zero: no host is ever off.
        off: Duration,
    }

    /// The next random number below `limit`.
    fn chance(seed: &mut u32, limit: u32) -> u32 {
        *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (*seed >> 8) % limit
    }

    impl Crontab {
        /// Calls during three years, at these times of day. Only days for which `is_meant` is true have calls.
        fn new(times: &[Duration], is_meant: fn(u32) -> bool, once_per: Duration) -> Crontab {
            let due = (0..3 * 365)
                .filter(|&day| is_meant(day))
                .flat_map(|day| times.iter().map(move |time| DAY * day + *time));
            Crontab { due: due.collect(), once_per, off: Duration::ZERO }
        }

        fn every(period: Duration, days: u32, once_per: Duration) -> Crontab {
            let calls = u32::try_from((DAY * days).as_millis() / period.as_millis()).expect("small");
            Crontab { due: (0..calls).map(|call| period * call).collect(), once_per, off: Duration::ZERO }
        }

        fn is_off(&self, host: usize, now: Duration) -> bool {
            let cycle = (self.off * 40).as_millis().max(1);
            let shift = DAY.as_millis() * 7 * host as u128;
            (now.as_millis() + shift) % cycle < self.off.as_millis()
        }

        /// Simulates every call of every host. Returns the number of runs, and the periods that are told.
        fn simulate(&self, hosts: usize) -> (u32, Vec<Duration>) {
            let (mut seed, mut runs, mut told) = (35, 0, Vec::new());
            let (mut success, mut visits) = (None, vec![None; hosts]);
            for due in &self.due {
                // The clocks of the hosts differ, and cron is late by up to a second.
                let mut calls: Vec<(Duration, usize)> =
                    (0..hosts).map(|host| (*due + SECOND / 1000 * chance(&mut seed, 1_500), host)).collect();
                calls.sort_unstable();
                for (now, host) in calls {
                    if self.is_off(host, now) {
                        continue;
                    }
                    let ago = |time: Duration| now - time;
                    match success.map(ago).filter(|ago| *ago < self.once_per) {
                        Some(began_ago) => {
                            let before: Option<Duration> = visits[host];
                            told.extend(
                                before.and_then(|before| period_left_out(began_ago, ago(before), self.once_per)),
                            );
                        }
                        None => {
                            runs += 1;
                            success = Some(now);
                        }
                    }
                    visits[host] = Some(now);
                }
            }
            (runs, told)
        }
    }

    #[test]
    fn a_crontab_whose_once_per_is_shorter_than_its_period_is_told_nothing() {
        let (night, hours) = ([HOUR * 3], |hours: u32| HOUR * hours);
        let crontabs = [
            ("each night", Crontab::new(&night, |_| true, hours(20)), 1_000),
            ("Monday to Friday", Crontab::new(&night, |day| day % 7 < 5, hours(20)), 700),
            ("each week", Crontab::new(&night, |day| day % 7 == 0, hours(20)), 150),
            ("each week, by its own rule", Crontab::new(&night, |day| day % 7 == 0, hours(140)), 150),
            ("twice a day", Crontab::new(&[HOUR * 3, HOUR * 15], |_| true, hours(10)), 2_000),
            ("twice a day, for one success", Crontab::new(&[HOUR * 3, HOUR * 15], |_| true, hours(20)), 1_000),
            ("each hour, for one success a day", Crontab::every(HOUR, 1_000, hours(24)), 900),
            ("each five minutes, for one an hour", Crontab::every(MINUTE * 5, 200, HOUR), 4_000),
        ];
        for (what, crontab, least) in crontabs {
            for hosts in [1, 2, 30] {
                // Each host is off for no time, for a third of `--once-per`, or for five days. An outage of nearly a
                // day is not tried: it would make an hourly crontab look like a daily one, once.
                for off in [Duration::ZERO, crontab.once_per / 3, DAY * 5] {
                    let (runs, told) =
                        Crontab { off, ..Crontab { due: crontab.due.clone(), ..crontab } }.simulate(hosts);
                    assert_eq!(told, [], "{what}, {hosts} hosts");
                    assert!(runs > least || !off.is_zero() || hosts == 1, "{what}, {hosts} hosts: {runs} runs");
                }
            }
        }
    }

    #[test]
    fn a_once_per_as_long_as_the_period_is_told_with_one_that_is_not() {
        let (night, workdays): (_, fn(u32) -> bool) = ([HOUR * 3], |day| day % 7 < 5);
        let crontabs = [
            ("each night", Crontab::new(&night, |_| true, HOUR * 24), HOUR * 24),
            ("Monday to Friday", Crontab::new(&night, workdays, HOUR * 24), HOUR * 24),
            ("each night, 23h", Crontab::new(&night, |_| true, HOUR * 24 + HOUR / 2), HOUR * 24),
            ("each hour", Crontab::every(HOUR, 100, HOUR), HOUR),
            ("each five minutes", Crontab::every(MINUTE * 5, 20, MINUTE * 5), MINUTE * 5),
            ("each week", Crontab::new(&night, |day| day % 7 == 0, DAY * 7), DAY * 7),
        ];
        for (what, crontab, period) in crontabs {
            for hosts in [1, 3] {
                let (runs, told) = crontab.simulate(hosts);
                let missed = crontab.due.len() as u32 - runs;
                assert!(missed > 5 && told.len() as u32 * 2 > missed, "{what}, {hosts}: {} of {missed}", told.len());
                assert!(told.iter().all(|told| *told == period), "{what}, {hosts}: {told:?}");
                let mended = Crontab { once_per: shorter(period), due: crontab.due.clone(), ..crontab };
                assert_eq!(mended.simulate(hosts).1, [], "{what}");
            }
        }
        // The durations that redlock advises are easy to type.
        assert_eq!([HOUR * 24, SECOND * 4, SECOND].map(shorter), [HOUR * 20, SECOND * 3, SECOND]);
    }

    #[test]
    fn near_means_between_three_and_five_quarters() {
        let is_told = |began: u32, came: u32| period_left_out(HOUR * began, HOUR * came, HOUR * 24).is_some();
        assert!(is_told(18, 18) && is_told(30, 28) && is_told(24, 24));
        assert!(!is_told(17, 24) && !is_told(31, 24) && !is_told(24, 17) && !is_told(24, 31));
        assert!(!is_told(24, 29), "24h is short enough for a period of 29h");
    }

    fn visit(host: &str, came: u64, met: Met, clock: u64) -> Visit {
        let [came, now] = [came, clock].map(Duration::from_secs);
        Visit { host: host.to_owned(), came, met, now, run: None }
    }

    #[test]
    fn of_several_nodes_the_latest_visit_counts_by_the_clock_in_the_middle() {
        let nodes = [
            vec![visit("a", 100, Met::Taken, 1_000), visit("b", 900, Met::Done, 1_000)],
            vec![visit("a", 1_050, Met::Took, 1_120), visit("b", 1_020, Met::Done, 1_120)],
            // This node granted a try that got no quorum.
            vec![visit("a", 1_170, Met::Took, 1_240), visit("b", 1_141, Met::Took, 1_240)],
        ];
        let merged = merge(&nodes.each_ref().map(|visits| (visits.as_slice(), &[][..])), &[]);
        let told: Vec<_> = merged.iter().map(|visit| (visit.host.as_str(), visit.came.as_secs(), visit.met)).collect();
        assert_eq!(told, [("a", 1_050, Met::Took), ("b", 1_021, Met::Done)]);
        assert_eq!(merged[0].ago(), Some(Duration::from_secs(70)));
        let [ahead, near] = [1_061, 1_060].map(|came| visit("a", came, Met::Took, 1_000).ago());
        assert_eq!((ahead, near), (None, Some(Duration::ZERO)));
    }
}
