//! A list of locks, or of the runs of several: which keys are meant, and what the nodes together say of each.

use super::answer::Answer;
use super::keys::{Keys, SEPARATOR, remembered};
use super::locks::{Locks, NodeFault, Page};
use super::memory::{Memory, RunQuery};
use super::run::{Run, RunOutcome};
use super::scripts;
use super::status::{State, Status, View, combine};
use crate::error::Error;
use crate::redis::{Call, Fault};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The number of runs above those that are asked for that may be kept until the oldest are dropped.
const SURPLUS: usize = 10_000;

/// The locks of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection<'a> {
    pub(crate) prefix: &'a str,
    /// A `*` in a name stands for anything. Without a name: all that there are.
    pub(crate) names: &'a [String],
}

/// The runs of several locks, by their beginning: of each what the caller keeps of it.
#[derive(Debug)]
pub(crate) struct RunListing<R> {
    pub(crate) runs: Vec<R>,
    /// The number of runs that go on of each lock that has more than are listed.
    pub(crate) running: Vec<(String, u64)>,
    /// The locks that have forgotten runs of the time that was asked for; see [`Memory`].
    pub(crate) forgotten: Vec<(String, Duration, u64)>,
    pub(crate) gaps: Gaps,
}

/// A run that was found: its places in time, and what is kept of it.
#[derive(Debug)]
struct Found<R> {
    age: (bool, Duration),
    began: (Option<Duration>, Option<u64>),
    kept: R,
}

/// What a list lacks: the nodes that did not answer, and the locks that too few nodes can tell of.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    pub(crate) nodes: Vec<(String, Fault)>,
    pub(crate) locks: Vec<Error>,
    /// The error about the locks in [`State::Unknown`], if there are any. What is remembered of them is known as far as it goes.
    pub(crate) unknown: Option<Error>,
    /// The state of some lock is known.
    has_known: bool,
}

impl Gaps {
    /// The same, if anything is known.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] if the state of no lock is.
    pub(crate) fn known(self) -> Result<Gaps, Error> {
        match self.unknown {
            Some(error) if !self.has_known => Err(error),
            _ => Ok(self),
        }
    }
}

impl Locks {
    /// Gives each of the selected locks to `show`, by their names; with `free` also those that are free and remember something.
    /// With an empty prefix a name with a `*` finds only those with an owner record of redlock's: everything else in the
    /// database is other data. A lock for which `show` returns an error is one that cannot be shown. There may be very many:
    /// no more than a page of them is held at a time.
    ///
    /// # Errors
    /// [`Error::NoQuorum`], perhaps behind locks that were shown.
    pub(crate) async fn list(
        &mut self,
        selection: Selection<'_>,
        view: View,
        free: bool,
        mut show: impl FnMut(Status) -> Result<(), Error>,
    ) -> Result<Gaps, Error> {
        let Selection { prefix, .. } = selection;
        let exact = |name: &str| selection.names.iter().any(|given| given == name);
        if self.nodes.are_unused() {
            let unused = selection.exact().map(|name| show(Status::unused(name, &format!("{prefix}{name}"))));
            return Ok(Gaps { locks: unused.filter_map(Result::err).collect(), ..Gaps::default() });
        }
        let mut faults = BTreeMap::new();
        let mut keys = self.held_keys(selection, &mut faults).await?;
        if free {
            keys.extend(self.remembered_keys(selection, &mut faults).await?);
        }
        if keys.is_empty() {
            // A replica answers SCAN, too: its answer about one lock tells that it is one.
            keys.insert(prefix.to_owned());
        }
        let keys: Vec<String> = keys.into_iter().collect();
        let (mut gaps, mut is_unknown) = (Gaps::default(), false);
        for page in keys.chunks(view.locks_at_a_time()) {
            for (key, status) in page.iter().zip(self.look_at_all(prefix, page, view, &mut faults).await?) {
                let shown = status.map_err(|fault| self.untold(&key[prefix.len()..], &fault)).and_then(|status| {
                    is_unknown |= status.state == State::Unknown;
                    let is_shown = match status.state {
                        _ if status.name.is_empty() => false, // the probe, where there is no lock
                        _ if exact(&status.name) => true,
                        State::Free => free && (status.memory.is_known() || status.unremembered.is_some()), // or gone since
                        State::Foreign => !prefix.is_empty(),
                        _ => true,
                    };
                    gaps.has_known |= is_shown && status.state != State::Unknown;
                    if is_shown { show(status) } else { Ok(()) }
                });
                gaps.locks.extend(shown.err());
            }
        }
        if is_unknown {
            let reached = self.nodes.len() - faults.len();
            gaps.unknown = Some(self.unanswered(None, faults.iter().map(|(&node, fault)| (node, fault)), reached));
        }
        gaps.nodes = self.named(faults);
        Ok(gaps)
    }

    /// The runs of the selected locks: of all together the newest, as many as the query says. `keep` is given each with the name
    /// of its lock, and returns what is to be kept of it: there may be very many.
    ///
    /// # Errors
    /// [`Error::NoQuorum`].
    pub(crate) async fn log<R>(
        &mut self,
        selection: Selection<'_>,
        query: RunQuery,
        keep: impl Fn(&str, &Run) -> R,
    ) -> Result<RunListing<R>, Error> {
        let (mut listing, mut faults) = (RunListing::default(), BTreeMap::new());
        if self.nodes.are_unused() {
            return Ok(listing.finished(query.most));
        }
        let mut keys = self.remembered_keys(selection, &mut faults).await?;
        keys.extend(selection.exact().map(|name| format!("{}{name}", selection.prefix)));
        let keys: Vec<String> = keys.into_iter().collect();
        // Of many locks with many runs no more are kept than are asked for.
        for page in keys.chunks(query.locks_at_a_time(self.nodes.len())) {
            for (key, memory) in page.iter().zip(self.remember(page, query, &mut faults).await?) {
                let name = &key[selection.prefix.len()..];
                match memory {
                    Ok(memory) => listing.add(name, &memory, query, &keep),
                    Err(fault) => listing.gaps.locks.push(self.untold(name, &fault)),
                }
            }
            if listing.runs.len() > query.most.saturating_add(SURPLUS) {
                listing.leave_newest(query.most);
            }
        }
        listing.gaps.nodes = self.named(faults);
        Ok(listing.finished(query.most))
    }

    fn named(&self, faults: BTreeMap<usize, Fault>) -> Vec<(String, Fault)> {
        faults.into_iter().map(|(node, fault)| (self.nodes.asked(node), fault)).collect()
    }

    /// The keys of all locks that are named, and of those that there are and a pattern matches.
    async fn held_keys(
        &mut self,
        selection: Selection<'_>,
        faults: &mut BTreeMap<usize, Fault>,
    ) -> Result<BTreeSet<String>, Error> {
        let mut keys: BTreeSet<String> = selection.exact().map(|name| format!("{}{name}", selection.prefix)).collect();
        for pattern in selection.patterns() {
            let pattern: Vec<String> = pattern.split('*').map(glob_escaped).collect();
            let found =
                self.matching(&format!("{}{}", glob_escaped(selection.prefix), pattern.join("*")), faults).await?;
            // What the pattern does not match is no server's word on a lock.
            let is_meant = |key: &String| key.starts_with(selection.prefix) && !key.contains(SEPARATOR);
            keys.extend(found.into_iter().filter(is_meant));
        }
        Ok(keys)
    }

    /// The keys of the locks that a pattern selects and that remember runs.
    async fn remembered_keys(
        &mut self,
        selection: Selection<'_>,
        faults: &mut BTreeMap<usize, Fault>,
    ) -> Result<BTreeSet<String>, Error> {
        let patterns = selection.patterns();
        if patterns.is_empty() {
            return Ok(BTreeSet::new());
        }
        let is_meant = |key: &String| {
            let name = key.strip_prefix(selection.prefix);
            name.is_some_and(|name| patterns.iter().any(|pattern| stands_for(pattern, name)))
        };
        let found = self.matching(&format!("{{*{SEPARATOR}[lo][op]*"), faults).await?;
        Ok(found.iter().filter_map(|key| remembered(key)).filter(is_meant).collect())
    }

    /// The keys that match the pattern. Adds to the faults.
    async fn matching(
        &mut self,
        pattern: &str,
        faults: &mut BTreeMap<usize, Fault>,
    ) -> Result<BTreeSet<String>, Error> {
        let found = self.nodes.scan(pattern, faults).await;
        let reached = found.iter().flatten().count();
        for (node, found) in found.iter().enumerate() {
            faults.extend(found.as_ref().err().map(|fault| (node, fault.clone())));
        }
        // Without a quorum of scans, a missing key proves nothing.
        if reached < self.quorum() {
            return Err(self.unanswered(None, faults.iter().map(|(&node, fault)| (node, fault)), reached));
        }
        Ok(found.into_iter().flatten().flatten().collect())
    }

    /// What is shown of each of these locks, or why too few nodes can tell.
    async fn look_at_all(
        &mut self,
        prefix: &str,
        keys: &[String],
        view: View,
        faults: &mut BTreeMap<usize, Fault>,
    ) -> Result<Vec<Result<Status, NodeFault>>, Error> {
        let (nodes, needed, mut all) = (self.nodes.len(), self.quorum(), Vec::new());
        let calls: Vec<Call> = keys.iter().map(|key| Keys::of(key).call(&scripts::INSPECT, view.args())).collect();
        let answers: Page<Answer> = self.ask_page(&calls, faults).await?;
        for (key, answers) in keys.iter().zip(answers) {
            let (mut known, mut unread): (Vec<Option<Answer>>, _) = (vec![None; nodes], None);
            for (node, answer) in answers {
                match answer.map(|answer| (self.may_have_forgotten(&answer), answer)) {
                    Ok((None, answer)) => known[node] = Some(answer),
                    Ok((Some(young), _)) => drop(faults.insert(node, young)),
                    Err(fault) => unread = Some((node, fault)),
                }
            }
            let status = combine(&key[prefix.len()..], key, &known.iter().map(Option::as_ref).collect::<Vec<_>>());
            all.push(match unread {
                Some(fault) if known.iter().flatten().count() < needed => Err(fault),
                _ => Ok(status),
            });
        }
        let Some(query) = view.runs else { return Ok(all) };
        for (status, memory) in all.iter_mut().zip(self.remember(keys, query, faults).await?) {
            if let Ok(status) = status {
                match memory {
                    Ok(memory) => status.memory = memory,
                    Err(fault) => status.unremembered = Some(self.untold(&status.name, &fault)),
                }
            }
        }
        Ok(all)
    }
}

impl<'a> Selection<'a> {
    fn exact(&self) -> impl Iterator<Item = &'a String> {
        self.names.iter().filter(|name| !name.contains('*'))
    }

    /// The names with a `*`; of a selection without a name one for all.
    pub(crate) fn patterns(&self) -> Vec<&'a str> {
        match self.names {
            [] => vec!["*"],
            names => names.iter().filter(|name| name.contains('*')).map(String::as_str).collect(),
        }
    }
}

impl<R> RunListing<R> {
    fn default() -> RunListing<R> {
        RunListing { runs: Vec::new(), running: Vec::new(), forgotten: Vec::new(), gaps: Gaps::default() }
    }
}

impl<R> RunListing<Found<R>> {
    fn add(&mut self, name: &str, memory: &Memory, query: RunQuery, keep: impl Fn(&str, &Run) -> R) {
        let listed = memory.runs.iter().filter(|run| run.outcome == RunOutcome::Running).count() as u64;
        if memory.running > listed && !query.failed {
            self.running.push((name.to_owned(), memory.running));
        }
        self.forgotten.extend(memory.forgotten.map(|(before, kept)| (name.to_owned(), before, kept)));
        let found = |run: &Run| Found { age: run.age(), began: (run.began, run.fencing_token), kept: keep(name, run) };
        self.runs.extend(memory.runs.iter().map(found));
    }

    fn leave_newest(&mut self, most: usize) {
        if self.runs.len() > most {
            self.runs.sort_by_key(|found| found.age);
            self.runs.truncate(most);
        }
    }

    fn finished(mut self, most: usize) -> RunListing<R> {
        self.leave_newest(most);
        self.runs.sort_by_key(|found| found.began);
        let RunListing { runs, running, forgotten, gaps } = self;
        RunListing { runs: runs.into_iter().map(|found| found.kept).collect(), running, forgotten, gaps }
    }
}

/// The text without the meaning that SCAN gives to some characters.
fn glob_escaped(text: &str) -> String {
    let is_special = |c| matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-');
    text.chars().flat_map(|c| is_special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// True if the name is one that the pattern stands for.
pub(crate) fn stands_for(pattern: &str, name: &str) -> bool {
    let mut parts: Vec<&str> = pattern.split('*').collect();
    let first = parts.remove(0);
    let Some(last) = parts.pop() else { return name == first };
    let rest = name.strip_prefix(first);
    let rest = parts.iter().try_fold(rest.unwrap_or_default(), |rest, part| Some(rest.split_once(part)?.1));
    name.starts_with(first) && rest.is_some_and(|rest| rest.ends_with(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name) in [("*", "a"), ("a*", "a"), ("*a", "ba"), ("a*b*c", "a-b-b-c"), ("a", "a"), ("**", "")] {
            assert!(stands_for(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a*", "b"), ("*a", "ab"), ("a*a", "a"), ("a*b*c", "acb"), ("a", "ab")] {
            assert!(!stands_for(pattern, name), "{pattern} {name}");
        }
    }
}
