//! The hosts that came to a lock. visits.lua notes the visits; runs.lua reports them.

use crate::lock::history::run::{FUTURE, Run};
use crate::lock::terms::holder::date;
use crate::lock::votes::quorum::middle;
use crate::redis::Reply;
use serde::{Serialize, Serializer};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// How many hosts the history of a lock has. visits.lua has the same number.
const HOSTS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Met {
    Took,
    /// Others held the lock.
    Taken,
    /// The host was turned away, because a run had succeeded within `--once-per`.
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
    pub(in crate::lock) now: Duration,
    /// The run that began at this visit, if it is among the runs that were asked for.
    #[serde(skip)]
    pub(crate) run: Option<Run>,
}

impl Visit {
    pub(super) fn read_all(pairs: &Reply, now: Duration) -> Vec<Visit> {
        pairs.items().chunks_exact(2).take(HOSTS).filter_map(|pair| Visit::read(&pair[0], &pair[1], now)).collect()
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

    /// True if `run`, from the same node's answer, began at this visit. A run has only the start of a long host name.
    fn is_of(&self, run: &Run) -> bool {
        let is_by_host = run.owner.host.as_ref().is_some_and(|host| self.host.starts_with(host));
        self.met == Met::Took && run.began == Some(self.came) && is_by_host
    }

    /// None if the server's clock was set back after the visit, which is then far in the future.
    pub(crate) fn ago(&self) -> Option<Duration> {
        (self.came <= self.now + FUTURE).then(|| self.passed())
    }

    fn passed(&self) -> Duration {
        self.now.saturating_sub(self.came)
    }

    /// The latest visit of one host, by the clock `now`. `same`: the visits of this host, one from each node. It gets
    /// the result that most nodes have noted, because one node may have granted a try that got no quorum.
    fn agreed(same: &[&Visit], now: Duration) -> Option<Visit> {
        let latest = same.iter().min_by_key(|visit| visit.passed())?;
        let count = |met| same.iter().filter(|visit| visit.met == met).count();
        let met = same.iter().max_by_key(|visit| (count(visit.met), Reverse(visit.passed())))?.met;
        let came = (latest.came + now).saturating_sub(latest.now);
        Some(Visit { host: latest.host.clone(), came, met, now, run: None })
    }
}

/// The last visit of each host, the latest first; at most [`HOSTS`] visits. All times are by one of the nodes' clocks:
/// the middle one. `runs` has the combined runs of all nodes.
pub(super) fn merge(nodes: &[(&[Visit], &[Run])], runs: &[Run]) -> Vec<Visit> {
    let clocks = nodes.iter().filter_map(|(visits, _)| Some(visits.first()?.now)).collect();
    let now = middle(clocks, nodes.len()).unwrap_or_default();
    let mut hosts: BTreeMap<&str, Vec<&Visit>> = BTreeMap::new();
    for visit in nodes.iter().flat_map(|(visits, _)| *visits) {
        hosts.entry(&visit.host).or_default().push(visit);
    }
    let mut visits: Vec<Visit> = hosts.values().filter_map(|same| Visit::agreed(same, now)).collect();
    for visit in visits.iter_mut().filter(|visit| visit.met == Met::Took) {
        let begun = nodes.iter().find_map(|&node| run_at_visit(&visit.host, node));
        visit.run = runs.iter().find(|run| begun.is_some_and(|begun| begun.token == run.token)).cloned();
    }
    visits.sort_by_key(|visit| Reverse(visit.came));
    visits.truncate(HOSTS);
    visits
}

/// On one node, the run that began at the last visit of this host.
fn run_at_visit<'a>(host: &str, (visits, runs): (&[Visit], &'a [Run])) -> Option<&'a Run> {
    let visit = visits.iter().find(|visit| visit.host == host)?;
    runs.iter().find(|run| visit.is_of(run))
}

fn at<S: Serializer>(came: &Duration, to: S) -> Result<S::Ok, S::Error> {
    date(&Some(*came), to)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let seen: Vec<_> = merged.iter().map(|visit| (visit.host.as_str(), visit.came.as_secs(), visit.met)).collect();
        assert_eq!(seen, [("a", 1_050, Met::Took), ("b", 1_021, Met::Done)]);
        assert_eq!(merged[0].ago(), Some(Duration::from_secs(70)));
        let [ahead, near] = [1_061, 1_060].map(|came| visit("a", came, Met::Took, 1_000).ago());
        assert_eq!((ahead, near), (None, Some(Duration::ZERO)));
    }
}
