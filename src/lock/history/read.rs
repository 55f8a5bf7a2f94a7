//! The history of a lock's runs: the answer of each node (runs.lua), and all answers combined.

use crate::error::Error;
use crate::lock::history::newest::Newest;
use crate::lock::history::periods::Expected;
use crate::lock::history::run::{KEPT, Run, RunOutcome};
use crate::lock::history::visits;
use crate::lock::history::visits::Visit;
use crate::lock::scripts;
use crate::lock::terms::holder::ms;
use crate::lock::votes::quorum::{middle, reached};
use crate::lock::wire::fields::Args;
use crate::lock::wire::keys::Keys;
use crate::lock::wire::locks::BatchQuery;
use crate::redis::{Call, FromReply, Reply};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most runs that a log can have: `LOGGED` in log.lua. No more are read from a server's answer.
const LOGGED: usize = 220;
/// The most runs that one request asks for: the sum over all locks of the request. (A run takes a kilobyte at most.)
const RUNS: usize = 2_000;
/// With several nodes, each node is asked for this many runs more: runs that no quorum knows are left out.
const SPARE: usize = 10;
/// A server that was started less than this ago is new: it may have forgotten runs that ended before its start.
const NEW: Duration = Duration::from_secs(24 * 3600);
/// The most locks that one request asks about.
const LOCKS: usize = 500;

#[derive(Clone, Copy, Debug)]
pub(crate) struct RunQuery {
    /// The largest number of runs. If there are more, the oldest are left out.
    pub(crate) most: usize,
    /// Runs that ended longer ago than this are left out. None: no run is.
    pub(crate) since: Option<Duration>,
    /// Only runs that failed, or may have failed.
    pub(crate) failed: bool,
    /// The hosts that came to the lock, too.
    pub(crate) hosts: bool,
    /// The number of `--newest`, too.
    pub(crate) newest: bool,
    /// The last lines of each job's standard error, too.
    pub(crate) errors: bool,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct History {
    /// The last run that has ended, the last that succeeded, and the last that failed.
    pub(crate) last: Option<Run>,
    pub(crate) last_success: Option<Run>,
    pub(crate) last_failure: Option<Run>,
    /// The last run that has ended. (A lease of `acquire` is no run.)
    #[serde(skip)]
    pub(crate) last_run: Option<Run>,
    /// The usual duration of a run: the median of the successes among the last [`KEPT`] requested runs, whenever they
    /// ended. None if there are fewer than three.
    #[serde(rename = "usual_ms", serialize_with = "ms")]
    pub(crate) usual: Option<Duration>,
    /// The hosts that came to the lock, the latest first. None if the query did not ask for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hosts: Option<Vec<Visit>>,
    /// The number of `--newest`. None if the query did not ask for it, or if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) newest: Option<Newest>,
    /// True if no node that has answered has ever seen the lock, as far as it knows.
    #[serde(skip)]
    pub(crate) is_unseen: bool,
    /// What the calls with `--once-per` promise, by the clock `now`: of the nodes' clocks the one in the middle.
    #[serde(skip)]
    pub(crate) expected: Option<Expected>,
    #[serde(skip)]
    pub(in crate::lock) now: Duration,
    /// The runs that were asked for, in the order of their beginnings.
    #[serde(skip)]
    pub(crate) runs: Vec<Run>,
    /// The number of all runs that go on; `runs` may have only some of them.
    #[serde(skip)]
    pub(crate) running: u64,
    /// The numbers of successes and failures; none unless all nodes have answered.
    #[serde(skip)]
    pub(crate) counts: Option<Counts>,
    /// When the log's oldest run ended (since 1970), and how many runs the log has, if it keeps no more. None if the
    /// log of a node has all requested runs.
    #[serde(skip)]
    pub(crate) forgotten: Option<(Duration, u64)>,
    /// The server that was started first, and its uptime: runs that ended before its start may have been forgotten.
    /// None if a node did not answer, or knows a run of the lock, or is not [`NEW`].
    #[serde(skip)]
    pub(crate) started: Option<(String, Duration)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
}

#[derive(Clone, Debug, Default)]
struct NodeHistory {
    runs: Vec<Run>,
    running: u64,
    /// The last success and the last failure.
    results: Vec<Run>,
    counts: Counts,
    visits: Vec<Visit>,
    newest: Option<Newest>,
    is_unseen: bool,
    now: Option<Duration>,
    expected: Option<Expected>,
    /// The oldest run of the log, and how many runs the log has, if it keeps no more.
    oldest: Option<(Run, u64)>,
    /// The time since the server's start; none if the server knows a run of this lock, or refuses INFO.
    uptime: Option<Duration>,
}

impl RunQuery {
    pub(crate) const LAST: RunQuery =
        RunQuery { most: 1, since: None, failed: false, hosts: false, newest: false, errors: false };
    pub(crate) const ALL: RunQuery = RunQuery { most: usize::MAX, ..RunQuery::LAST };

    /// The most locks that one request to this many nodes may ask about.
    pub(in crate::lock) fn locks_at_a_time(self, nodes: usize) -> usize {
        // The answer about a lock has up to `each` runs that have ended, and perhaps as many that go on, and the last
        // success and failure. All hosts together take the space of ten runs, the errors the space of one.
        let hosts = if self.hosts { 10 } else { 0 };
        let runs = (2 * self.each(nodes)).min(LOGGED) + 3 + hosts;
        (RUNS / runs).clamp(1, LOCKS)
    }

    /// How many runs to ask of each node: as many as the query wants, and [`SPARE`] more if there are several nodes; or
    /// the whole log, from which redlock chooses the runs that are meant.
    fn each(self, nodes: usize) -> usize {
        let is_chosen = self.failed || self.since.is_some();
        let most = if is_chosen { LOGGED } else { self.most };
        most.saturating_add(if nodes > 1 { SPARE } else { 0 }).min(LOGGED)
    }
}

impl FromReply for NodeHistory {
    fn from_reply(reply: &Reply) -> Option<NodeHistory> {
        let now = reply.get("clock").as_time();
        let going: Vec<&str> = reply.get("going").items().iter().filter_map(Reply::as_text).collect();
        let read = |text: &Reply| Run::read(text.as_text().unwrap_or_default(), &going, now);
        let runs: Vec<Run> = reply.get("texts").items().iter().take(LOGGED).map(read).collect();
        let told = runs.len() as u64;
        let is_full = reply.has("more") || runs.first().is_some_and(|newest| told >= newest.kept);
        let listed = runs.iter().filter(|run| run.outcome == RunOutcome::Running).count() as u64;
        let results = ["success", "failure"].map(|name| reply.has(name).then(|| read(reply.get(name))));
        let count = |name: &str| reply.get(name).as_count();
        let oldest = runs.last().cloned().filter(|_| is_full).map(|oldest| (oldest, told));
        let visits = Visit::read_all(reply.get("visits"), now.unwrap_or_default());
        let mut newest = Newest::read(reply);
        if let Some(newest) = &mut newest {
            newest.judge(&runs, &visits, oldest.as_ref().is_none_or(|(run, _)| newest.came_after(run)));
        }
        Some(NodeHistory {
            visits,
            newest,
            is_unseen: count("counters") == Some(0),
            running: count("members").unwrap_or(listed),
            results: results.into_iter().flatten().collect(),
            now,
            expected: expected(reply.get("expected").as_text()),
            counts: Counts { succeeded: count("succeeded").unwrap_or(0), failed: count("failed").unwrap_or(0) },
            oldest,
            uptime: reply.node().0.parse().ok().map(Duration::from_secs),
            runs,
        })
    }
}

impl History {
    pub(in crate::lock) fn is_known(&self) -> bool {
        self.last.is_some() || !self.runs.is_empty()
    }

    /// The combined history of the nodes that have answered. `needed`: the number of nodes in a quorum.
    fn of(nodes: &[Option<NodeHistory>], needed: usize, query: RunQuery) -> History {
        let known = || nodes.iter().flatten();
        let all: Vec<&[Run]> = known().map(|node| node.runs.as_slice()).collect();
        let mut runs = merge(&all, needed);
        let results: Vec<&[Run]> = known().map(|node| node.results.as_slice()).collect();
        let mut results = merge(&results, needed);
        let reported = known().flat_map(|node| &node.results).filter(|_| query.errors);
        let errors: BTreeMap<&str, &String> =
            reported.filter_map(|run| Some((&run.token[..], run.errors.as_ref()?))).collect();
        for run in runs.iter_mut().chain(&mut results) {
            run.errors = errors.get(run.token.as_str()).copied().cloned();
        }
        results.retain(|result| runs.iter().all(|run| run.token != result.token));
        results.extend(runs.iter().cloned());
        let last =
            |is: fn(&&Run) -> bool| results.iter().filter(is).min_by_key(|run| (run.is_ahead(), run.age())).cloned();
        let last_failure = last(|run| run.failed());
        runs.retain(|run| !query.failed || run.went_wrong());
        // The last failure is kept even when the log has dropped it.
        let kept =
            last_failure.clone().filter(|failure| query.failed && runs.iter().all(|run| run.token != failure.token));
        runs.extend(kept);
        runs.sort_by_key(Run::age);
        let usual = usual(&runs[..runs.len().min(KEPT as usize)]);
        runs.retain(|run| query.since.is_none() || run.outcome == RunOutcome::Running || run.ago() < query.since);
        runs.truncate(query.most);
        runs.sort_by_key(|run| (run.began, run.fencing_token));
        let visits: Vec<(&[Visit], &[Run])> = known().map(|node| (&node.visits[..], &node.runs[..])).collect();
        let is_late = |(oldest, _): &&(Run, u64)| oldest.ago() < query.since;
        let oldest = known()
            .map(|node| node.oldest.as_ref().filter(is_late).and_then(|(run, kept)| Some((run.last_known()?, *kept))));
        let now = middle(known().filter_map(|node| node.now).collect(), nodes.len()).unwrap_or_default();
        History {
            newest: Newest::largest_of(known().filter_map(|node| node.newest.clone())),
            is_unseen: known().all(|node| node.is_unseen),
            now,
            expected: agreed_expected(known(), now),
            last: last(|run| run.outcome.weight() > 0),
            last_success: last(|run| run.succeeded()),
            last_failure,
            last_run: last(|run| run.outcome.weight() > 0 && !run.is_acquired),
            usual,
            hosts: query.hosts.then(|| visits::merge(&visits, &runs)),
            running: reached(known().map(|node| node.running).collect(), needed).unwrap_or(0),
            counts: nodes.iter().all(Option::is_some).then(|| Counts {
                succeeded: known().map(|node| node.counts.succeeded).max().unwrap_or(0),
                failed: known().map(|node| node.counts.failed).max().unwrap_or(0),
            }),
            started: None,
            // None if any node has all requested runs: the node's log was never cut, or reaches back to `since`.
            forgotten: oldest.reduce(|one, other| one.zip(other).map(|(one, other)| one.min(other))).flatten(),
            runs,
        }
    }
}

impl BatchQuery<'_> {
    /// For each of these locks: its history, or the reason why too few nodes report it. The reason does not name the
    /// lock. The caller asks about at most [`RunQuery::locks_at_a_time`] locks. `is_looked_at`: inspect.lua has
    /// reported their states.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] if too few nodes answer at all.
    pub(in crate::lock) async fn histories_of(
        &mut self,
        keys: &[&str],
        query: RunQuery,
        is_looked_at: bool,
    ) -> Result<Vec<Result<History, Error>>, Error> {
        let args = Args::default()
            .with("most", query.each(self.locks.nodes.len()))
            .flag("hosts", query.hosts)
            .flag("newest", query.newest)
            .flag("looked", is_looked_at);
        let calls: Vec<Call> = keys.iter().map(|key| Keys::of(key).call(&scripts::RUNS, args.clone())).collect();
        let answers = self.ask_page::<NodeHistory>(&calls).await?;
        let needed = self.locks.quorum();
        let together = |nodes: Vec<Option<NodeHistory>>| {
            let started = first_started(&nodes).map(|(node, uptime)| (self.locks.nodes.name(node), uptime));
            History { started, ..History::of(&nodes, needed, query) }
        };
        Ok(answers.into_iter().map(|nodes| nodes.map(together)).collect())
    }
}

/// The node that was started first, and its uptime, if the history has the field `started`.
fn first_started(nodes: &[Option<NodeHistory>]) -> Option<(usize, Duration)> {
    let uptimes: Option<Vec<Duration>> = nodes.iter().map(|node| node.as_ref()?.uptime).collect();
    let first = uptimes?.into_iter().enumerate().max_by_key(|(_, uptime)| *uptime);
    first.filter(|(_, uptime)| *uptime < NEW)
}

/// Reads what calls with `--once-per` promise; log.lua describes the text.
fn expected(text: Option<&str>) -> Option<Expected> {
    let mut times = text?.split(' ').map(|ms| ms.parse().ok().map(Duration::from_millis));
    let mut time = || times.next().flatten();
    Some(Expected { period: time()?, due: time()?, first: time()? })
}

/// What most nodes say of P and D (of as many, the rarer success), and the earliest call that any node knows: a node that
/// has forgotten everything begins anew. Times are by the clock `now`.
fn agreed_expected<'a>(nodes: impl Iterator<Item = &'a NodeHistory>, now: Duration) -> Option<Expected> {
    let known = nodes.filter_map(|node| Some((node.expected?, node.now?)));
    let known: Vec<Expected> = known
        .map(|(expected, clock)| Expected { first: (expected.first + now).saturating_sub(clock), ..expected })
        .collect();
    let alike =
        |one: &Expected| known.iter().filter(|other| (other.period, other.due) == (one.period, one.due)).count();
    let most = known.iter().max_by_key(|one| (alike(one), one.due))?;
    Some(Expected { first: known.iter().map(|one| one.first).min()?, ..*most })
}

fn usual(runs: &[Run]) -> Option<Duration> {
    let mut times: Vec<Duration> = runs.iter().filter(|run| run.succeeded()).filter_map(|run| run.duration).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().filter(|_| times.len() >= 3)
}

/// The runs of all nodes, each once, without the runs that do not count (see [`agreed`]).
fn merge(nodes: &[&[Run]], needed: usize) -> Vec<Run> {
    let mut runs: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    for run in nodes.iter().copied().flatten() {
        runs.entry(&run.token).or_default().push(run);
    }
    runs.into_values().filter_map(|same| agreed(same, needed)).collect()
}

/// Combines what several nodes know of one run. An end that redlock reported to any node counts, unless a quorum knows
/// a loss, or that a lease of `acquire` ran out. Returns None if redlock reported no end, and fewer than `needed` nodes
/// (a quorum) know the run: it may be left over from a take without a quorum.
fn agreed(mut same: Vec<&Run>, needed: usize) -> Option<Run> {
    // The node whose clock is in the middle gives the run's times, so that no node's clock decides alone.
    same.sort_by_key(|run| run.began);
    let count = |outcome| same.iter().filter(|run| run.outcome == outcome).count();
    let heaviest = same.iter().map(|run| run.outcome.weight()).max();
    let weight = match () {
        // A loss is real if a quorum knows it. A single node may merely have forgotten the lease.
        () if count(RunOutcome::Lost) >= needed => RunOutcome::Lost.weight(),
        // The lease ran out on a quorum. A node that granted the lease late may still have accepted the release.
        () if same.iter().any(|run| run.is_acquired) && count(RunOutcome::Expired) >= needed => {
            RunOutcome::Expired.weight()
        }
        () => heaviest?,
    };
    let word = if weight > RunOutcome::Expired.weight() {
        let alike: Vec<&&Run> = same.iter().filter(|run| run.outcome.weight() == weight).collect();
        alike[alike.len() / 2]
    } else if same.len() < needed {
        return None;
    } else {
        let is_running = count(RunOutcome::Running) >= needed;
        let meant = same.iter().filter(|run| run.outcome.weight() <= weight);
        let meant = meant.filter(|run| (run.outcome == RunOutcome::Running) == is_running);
        // An end with a status is preferred: redlock may have reported it after the expiry, to some nodes only.
        meant.max_by_key(|run| run.status)?
    };
    let fencing_token = same.iter().filter_map(|run| run.fencing_token).max();
    Some(Run { fencing_token, ..(*word).clone() }.by_clock_of(same[same.len() / 2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGUN: &str = r#""t":"aaaaaaaa77","b":"1763715123004","f":"7""#;

    fn run(end: &str, going: &[&str]) -> Run {
        Run::read(&format!("{{{BEGUN}{end}}}"), going, Some(Duration::from_millis(1_763_715_200_000)))
    }

    #[test]
    fn nodes_are_heard_together() {
        let (open, gone) = (run("", &["aaaaaaaa77"]), run("", &[]));
        let lost = run(r#","d":"3000","o":"lost""#, &[]);
        let ended = run(r#","d":"1000","x":"0""#, &[]);
        let outcome = |nodes: &[&Run]| {
            let nodes: Vec<&[Run]> = nodes.iter().map(|run| std::slice::from_ref(*run)).collect();
            merge(&nodes, 2).first().map(|run| (run.outcome, run.ended.map(|ended| ended.as_secs() % 10)))
        };
        // A run that only a minority knows may be left over from a take without a quorum.
        assert_eq!((outcome(&[&open]), outcome(&[&gone])), (None, None));
        assert_eq!(outcome(&[&open, &open]), Some((RunOutcome::Running, None)));
        assert_eq!(outcome(&[&open, &gone]), Some((RunOutcome::Expired, None)));
        assert_eq!(outcome(&[&gone, &open, &open]), Some((RunOutcome::Running, None)));
        assert_eq!(outcome(&[&ended]), Some((RunOutcome::Exited, Some(4))));
        // An end that redlock reported to one node outweighs a loss that a single node noted. A loss outweighs an
        // expiry. A loss that a quorum noted outweighs everything.
        assert_eq!(outcome(&[&lost, &gone, &ended]), Some((RunOutcome::Exited, Some(4))));
        assert_eq!(outcome(&[&lost, &gone, &open]), Some((RunOutcome::Lost, Some(6))));
        assert_eq!(outcome(&[&lost, &ended, &lost]), Some((RunOutcome::Lost, Some(6))));
        // For a lease of `run`, the end on one node suffices. For a lease of `acquire`, the expiry on two nodes counts
        // more than the end on one node.
        assert_eq!(outcome(&[&gone, &ended, &gone]), Some((RunOutcome::Exited, Some(4))));
        let [gone_too, ended_late] = [&gone, &ended].map(|run| Run { is_acquired: true, ..run.clone() });
        assert_eq!(outcome(&[&gone_too, &ended_late, &gone_too]), Some((RunOutcome::Expired, None)));
        assert_eq!(outcome(&[&gone_too, &ended_late, &ended_late]), Some((RunOutcome::Exited, Some(4))));
        let other = Run { token: "aaaaaaaa88".to_owned(), ..ended.clone() };
        assert_eq!(merge(&[&[other], &[ended]], 2).len(), 2, "eight digits are not a token");
    }

    #[test]
    fn the_times_of_all_runs_are_by_the_clock_in_the_middle() {
        let read = |began: u64, behind: i64, end: &str| {
            let time = |time: u64| time.saturating_add_signed(behind * 1000);
            let text = format!(r#"{{"t":"{began}","b":"{}","f":"7"{end}}}"#, time(began));
            Run::read(&text, &[], Some(Duration::from_millis(time(500_000))))
        };
        let (ended, gone) = (r#","d":"1000","x":"0""#, "");
        // The node with the clock in the middle has not heard the end of the second run.
        let nodes = [(-120, ended), (0, gone), (120, ended)]
            .map(|(behind, end)| [read(200_000, behind, ended), read(300_000, behind, end)]);
        let runs = merge(&nodes.each_ref().map(|runs| &runs[..]), 2);
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs());
        let times: Vec<_> = runs.iter().map(|run| [run.began, run.ended, run.ago()].map(seconds)).collect();
        let expected = [200, 300].map(|began| [began, began + 1, 499 - began].map(Some));
        assert_eq!(times, expected);
    }

    #[test]
    fn a_run_goes_on_if_a_quorum_of_the_nodes_says_so() {
        let node = |running| Some(NodeHistory { running, ..NodeHistory::default() });
        let running = |nodes: &[Option<NodeHistory>]| History::of(nodes, 2, RunQuery::LAST).running;
        // A single node does not suffice: it may not have heard of the run's end.
        assert_eq!(running(&[node(0), node(1), node(0)]), 0);
        assert_eq!(running(&[node(0), node(1), None]), 0);
        assert_eq!(running(&[node(3000), node(2999), node(3001)]), 3000);
    }

    #[test]
    fn of_several_nodes_the_earliest_call_and_what_most_say_of_it_count() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let node = |period, first, clock: u64| NodeHistory {
            expected: expected(Some(&format!("{period} {period} {}", hours(first).as_millis()))),
            now: Some(hours(clock)),
            ..NodeHistory::default()
        };
        let agreed = |nodes: &[NodeHistory]| {
            agreed_expected(nodes.iter(), hours(1000)).map(|of| (of.period.as_millis(), of.first.as_secs() / 3600))
        };
        // The second node's clock is ahead; the third has begun anew, with another period.
        assert_eq!(agreed(&[node(7, 300, 1000), node(7, 310, 1020), node(9, 900, 1000)]), Some((7, 290)));
        assert_eq!(agreed(&[node(7, 300, 1000), node(9, 200, 1000)]), Some((9, 200)));
        assert_eq!(agreed(&[NodeHistory::default()]), None);
        for text in ["", "7", "7 7", "7 7 x", "-1 7 7"] {
            assert_eq!(expected(Some(text)), None, "{text}");
        }
    }

    #[test]
    fn counts_are_reported_if_all_nodes_have_answered() {
        let node = |succeeded| NodeHistory { counts: Counts { succeeded, failed: 1 }, ..NodeHistory::default() };
        let counts = |nodes: &[Option<NodeHistory>]| History::of(nodes, 2, RunQuery::LAST).counts;
        let all = [Some(node(3)), Some(node(5)), Some(node(4))];
        assert_eq!(counts(&all), Some(Counts { succeeded: 5, failed: 1 }));
        assert_eq!(counts(&[Some(node(3)), None, Some(node(4))]), None);
    }
}
