//! A list of locks, or of the runs of several: which keys are meant, and what the nodes together say of each.

use super::answer::Answer;
use super::keys::{Keys, SEPARATOR, remembered};
use super::locks::{Locks, NodeFault, Page};
use super::memory::{self, Memory, RunQuery};
use super::run::{Outcome, Run};
use super::scripts;
use super::status::{State, Status, View, combine};
use crate::error::Error;
use crate::redis::{Call, Fault};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The locks of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection<'a> {
    pub(crate) prefix: &'a str,
    /// A `*` in a name stands for anything. Without a name: all that there are.
    pub(crate) names: &'a [String],
}

/// Locks as a quorum shows them, and what could not be shown.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) locks: Vec<Status>,
    pub(crate) gaps: Gaps,
    /// The error about the locks in [`State::Unknown`], if there are any. What is remembered of them is known as far as it goes.
    pub(crate) unknown: Option<Error>,
}

/// The runs of several locks, by their beginning, each with the name of its lock.
#[derive(Debug, Default)]
pub(crate) struct RunListing {
    pub(crate) runs: Vec<(String, Run)>,
    /// The number of runs that go on of each lock that has more than are listed.
    pub(crate) running: Vec<(String, u64)>,
    /// The locks that have forgotten runs of the time that was asked for; see [`Memory`].
    pub(crate) forgotten: Vec<(String, Duration, u64)>,
    pub(crate) gaps: Gaps,
}

/// What a list lacks: the nodes that did not answer, and the locks that too few nodes can tell of.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    pub(crate) nodes: Vec<(String, Fault)>,
    pub(crate) locks: Vec<Error>,
}

impl Locks {
    /// The selected locks, and with `memory` what they remember; then also those that are free and remember something. With
    /// an empty prefix a name with a `*` finds only those with an owner record of redlock's: everything else in the database
    /// is other data.
    ///
    /// # Errors
    /// [`Error::NoQuorum`].
    pub(crate) async fn list(&mut self, selection: Selection<'_>, view: View, free: bool) -> Result<Listing, Error> {
        let Selection { prefix, .. } = selection;
        let exact = |name: &str| selection.names.iter().any(|given| given == name);
        if self.nodes.are_unused() {
            let unused = selection.exact().map(|name| Status::unused(name, &format!("{prefix}{name}")));
            return Ok(Listing { locks: unused.collect(), ..Listing::default() });
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
        let (mut listing, mut is_unknown) = (Listing::default(), false);
        let mut all = self.look_at_all(prefix, &keys, view, &mut faults).await?;
        if let Some(query) = view.runs {
            let memories = self.remember(&keys, query, &mut faults).await?;
            for (status, memory) in all.iter_mut().zip(memories) {
                if let Ok(status) = status {
                    match memory {
                        Ok(memory) => status.memory = memory,
                        Err(fault) => status.unremembered = Some(self.untold(&status.name, &fault)),
                    }
                }
            }
        }
        for (key, status) in keys.iter().zip(all) {
            let status = match status {
                Ok(status) => status,
                Err(fault) => {
                    listing.gaps.locks.push(self.untold(&key[prefix.len()..], &fault));
                    continue;
                }
            };
            is_unknown |= status.state == State::Unknown;
            let is_shown = match status.state {
                _ if status.name.is_empty() => false, // the probe, where there is no lock
                _ if exact(&status.name) => true,
                State::Free => free && (status.memory.is_known() || status.unremembered.is_some()), // or gone since
                State::Foreign => !prefix.is_empty(),
                _ => true,
            };
            if is_shown {
                listing.locks.push(status);
            }
        }
        if is_unknown {
            let reached = self.nodes.len() - faults.len();
            listing.unknown = Some(self.unanswered(None, faults.iter().map(|(&node, fault)| (node, fault)), reached));
        }
        listing.gaps.nodes = self.named(faults);
        Ok(listing)
    }

    /// The runs of the selected locks: of all together the newest, as many as the query says.
    ///
    /// # Errors
    /// [`Error::NoQuorum`].
    pub(crate) async fn log(&mut self, selection: Selection<'_>, query: RunQuery) -> Result<RunListing, Error> {
        let (mut listing, mut faults) = (RunListing::default(), BTreeMap::new());
        if self.nodes.are_unused() {
            return Ok(listing);
        }
        let mut keys = self.remembered_keys(selection, &mut faults).await?;
        keys.extend(selection.exact().map(|name| format!("{}{name}", selection.prefix)));
        let keys: Vec<String> = keys.into_iter().collect();
        // Of many locks with many runs no more are kept than are asked for.
        for page in keys.chunks(memory::LOCKS) {
            for (key, memory) in page.iter().zip(self.remember(page, query, &mut faults).await?) {
                let name = key[selection.prefix.len()..].to_owned();
                match memory {
                    Ok(memory) => listing.add(&name, memory, query),
                    Err(fault) => listing.gaps.locks.push(self.untold(&name, &fault)),
                }
            }
            listing.keep_newest(query.most);
        }
        listing.gaps.nodes = self.named(faults);
        Ok(listing)
    }

    fn named(&self, faults: BTreeMap<usize, Fault>) -> Vec<(String, Fault)> {
        faults.into_iter().map(|(node, fault)| (self.nodes.asked(node), fault)).collect()
    }

    /// The keys of the selected locks that there are, and of those that are named.
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
            keys.extend(found.into_iter().filter(|key| !key.contains(SEPARATOR)));
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

    /// The state of each of these locks, or why too few nodes can tell.
    async fn look_at_all(
        &mut self,
        prefix: &str,
        keys: &[String],
        view: View,
        faults: &mut BTreeMap<usize, Fault>,
    ) -> Result<Vec<Result<Status, NodeFault>>, Error> {
        let (nodes, needed, mut all) = (self.nodes.len(), self.quorum(), Vec::new());
        for page in keys.chunks(view.locks_at_a_time()) {
            let calls: Vec<Call> = page.iter().map(|key| Keys::of(key).call(&scripts::INSPECT, view.args())).collect();
            let answers: Page<Answer> = self.ask_page(&calls, faults).await?;
            for (key, answers) in page.iter().zip(answers) {
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
        }
        Ok(all)
    }
}

impl Listing {
    /// The list, if anything is known.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] if the state of no lock is.
    pub(crate) fn known(self) -> Result<Listing, Error> {
        match self.unknown {
            Some(error) if self.locks.iter().all(|status| status.state == State::Unknown) => Err(error),
            _ => Ok(self),
        }
    }

    /// Moves the locks whose runs are not known to the gaps.
    pub(crate) fn must_remember(&mut self) {
        for mut status in std::mem::take(&mut self.locks) {
            match status.unremembered.take() {
                Some(error) => self.gaps.locks.push(error),
                None => self.locks.push(status),
            }
        }
    }
}

impl Selection<'_> {
    /// The patterns for which there is no lock in the list.
    pub(crate) fn unmatched(&self, listing: &Listing) -> Vec<String> {
        let matches = |pattern: &&str| listing.locks.iter().any(|status| stands_for(pattern, &status.name));
        let patterns = self.patterns();
        patterns.into_iter().filter(|pattern| !matches(pattern)).map(str::to_owned).collect()
    }

    fn exact(&self) -> impl Iterator<Item = &String> {
        self.names.iter().filter(|name| !name.contains('*'))
    }

    fn patterns(&self) -> Vec<&str> {
        match self.names {
            [] => vec!["*"],
            names => names.iter().filter(|name| name.contains('*')).map(String::as_str).collect(),
        }
    }
}

impl RunListing {
    fn add(&mut self, name: &str, memory: Memory, query: RunQuery) {
        let listed = memory.runs.iter().filter(|run| run.outcome == Outcome::Running).count() as u64;
        if memory.running > listed && !query.failed {
            self.running.push((name.to_owned(), memory.running));
        }
        self.forgotten.extend(memory.forgotten.map(|(before, kept)| (name.to_owned(), before, kept)));
        self.runs.extend(memory.runs.into_iter().map(|run| (name.to_owned(), run)));
    }

    /// Leaves the newest runs, by their beginning.
    fn keep_newest(&mut self, most: usize) {
        self.runs.sort_by_key(|(_, run)| run.age());
        self.runs.truncate(most);
        self.runs.sort_by_key(|(_, run)| (run.began, run.fencing_token));
    }
}

/// The text without the meaning that SCAN gives to some characters.
fn glob_escaped(text: &str) -> String {
    let is_special = |c| matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-');
    text.chars().flat_map(|c| is_special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// True if the name is one that the pattern stands for.
fn stands_for(pattern: &str, name: &str) -> bool {
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
