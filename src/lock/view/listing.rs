//! A list of locks, or of the runs of several locks: selects locks, and combines the nodes' answers about each lock.

use crate::error::Error;
use crate::lock::Lock;
use crate::lock::history::read::{History, RunQuery};
use crate::lock::history::run::{Age, Run, RunOutcome};
use crate::lock::scripts;
use crate::lock::view::status::{NodeAnswer, State, Status, View, combine};
use crate::lock::wire::answer::Answer;
use crate::lock::wire::keys::{CLOSED, Keys, LOG, SEPARATOR, glob_escaped, lock_of};
use crate::lock::wire::locks::{BatchQuery, Locks};
use crate::redis::{Call, Fault};
use crate::sys::clock::Boot;
use crate::sys::wait::within;
use std::collections::BTreeSet;
use std::iter::zip;
use std::time::Duration;
use strsim::osa_distance;

/// This many runs beyond the requested number may be in memory, before the oldest are dropped.
const SURPLUS: usize = 10_000;

/// How long to look for the name that a misspelt one may mean.
const LOOK_FOR_NAMES: Duration = Duration::from_secs(1);

/// Which locks a list shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection<'a> {
    pub(crate) prefix: &'a str,
    /// A `*` in a name stands for anything. Without names, all locks are selected.
    pub(crate) names: &'a [String],
}

/// What a list of runs does not show.
#[derive(Debug, Default)]
pub(crate) struct Unlisted {
    /// Locks with unfinished runs that are not in the list. For each lock: its name, and the number of all its unfinished
    /// runs. Empty if only failed runs were asked for.
    pub(crate) running: Vec<(String, u64)>,
    /// The locks, named without a `*`, that no server has ever seen, as far as it knows.
    pub(crate) unseen: Vec<String>,
    /// The locks whose logs no longer have all runs of the requested time. For each lock: its name, and both values of
    /// [`History::forgotten`].
    pub(crate) forgotten: Vec<(String, Duration, u64)>,
    /// The server that may have lost the runs of a lock, and the time since its start; see [`History`].
    pub(crate) started: Option<(String, Duration)>,
    pub(crate) missing: Missing,
}

impl Unlisted {
    pub(crate) fn add(&mut self, name: &str, history: &History) {
        let listed = history.runs.iter().filter(|run| run.outcome == RunOutcome::Running).count() as u64;
        self.running.extend((history.running > listed).then(|| (name.to_owned(), history.running)));
        self.unseen.extend(history.is_unseen.then(|| name.to_owned()));
        self.forgotten.extend(history.forgotten.map(|(before, kept)| (name.to_owned(), before, kept)));
        self.started = self.started.take().or_else(|| history.started.clone());
    }
}

/// A run that was found: its times, to sort by, and the caller's row.
#[derive(Debug)]
struct Found<R> {
    age: Age,
    began: (Option<Duration>, Option<u64>),
    row: R,
}

/// The gaps in a list: nodes that did not answer, and locks that cannot be shown.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    pub(crate) nodes: Vec<(String, Fault)>,
    pub(crate) locks: Vec<Error>,
    /// The error about all locks in [`State::Unknown`]; None if there is no such lock. The runs of such a lock may
    /// still be known.
    pub(crate) unknown: Option<Error>,
    /// True if the list shows a lock whose state is known.
    has_known: bool,
}

impl Missing {
    /// The same gaps, unless they leave nothing to show.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] if the state of a lock is unknown, and the list shows no lock with a known state.
    pub(crate) fn known(self) -> Result<Missing, Error> {
        match self.unknown {
            Some(error) if !self.has_known => Err(error),
            _ => Ok(self),
        }
    }
}

impl Locks {
    /// Gives the selected locks to `show`, ordered by name. A lock that is named without a `*` is always shown. A `*`
    /// finds taken and closed locks, and with `free` also the free locks that have a history. If the prefix is empty, a
    /// `*` finds only locks with redlock's owner record, since other keys of the database may be no locks.
    ///
    /// Errors about single locks, and errors of `show`, go into the result. There may be very many locks, so only the
    /// answers about one page of locks are in memory at a time.
    ///
    /// # Errors
    /// [`Error::NoQuorum`], perhaps after some locks were shown.
    pub(crate) async fn list(
        &mut self,
        selection: Selection<'_>,
        view: View,
        free: bool,
        mut show: impl FnMut(Status) -> Result<(), Error>,
    ) -> Result<Missing, Error> {
        let prefix = selection.prefix;
        if self.nodes.are_unused() {
            let unused = selection.exact().map(|key| show(Status::unused(&key[prefix.len()..], &key)));
            return Ok(Missing { locks: unused.filter_map(Result::err).collect(), ..Missing::default() });
        }
        let mut batch = BatchQuery::of(self);
        let mut keys = batch.listed_keys(selection, if free { &[CLOSED, LOG] } else { &[CLOSED] }).await?;
        if keys.is_empty() {
            // No lock was found, but redlock asks about one all the same: a replica answers SCAN like a primary, and
            // only the answer about a lock shows that it is a replica.
            keys.insert(prefix.to_owned());
        }
        let keys: Vec<String> = keys.into_iter().collect();
        let (mut missing, mut is_unknown) = (Missing::default(), false);
        for page in keys.chunks(view.locks_at_a_time(batch.locks.nodes.len())) {
            for status in batch.look_at_all(prefix, page, view).await? {
                let shown = status.and_then(|status| {
                    is_unknown |= status.state == State::Unknown;
                    let is_shown = selection.shows(&status, free);
                    missing.has_known |= is_shown && status.state != State::Unknown;
                    if is_shown { show(status) } else { Ok(()) }
                });
                missing.locks.extend(shown.err());
            }
        }
        missing.unknown = is_unknown.then(|| batch.no_quorum(batch.locks.nodes.len() - batch.faults.len()));
        missing.nodes = batch.failed_nodes();
        Ok(missing)
    }

    /// The newest runs of all selected locks together, as many as the query says, in the order in which they began. `row`
    /// makes a row from a lock's name and a run. Only the rows stay in memory, since there may be very many runs.
    ///
    /// # Errors
    /// [`Error::NoQuorum`].
    pub(crate) async fn log<R>(
        &mut self,
        selection: Selection<'_>,
        query: RunQuery,
        row: impl Fn(&str, &Run) -> R,
    ) -> Result<(Vec<R>, Unlisted), Error> {
        let (mut found, mut unlisted) = (Vec::new(), Unlisted::default());
        let (mut batch, mut keys) = (BatchQuery::of(self), BTreeSet::new());
        if !batch.locks.nodes.are_unused() {
            keys = batch.logged_keys(selection).await?;
            keys.extend(selection.exact());
        }
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        for page in keys.chunks(query.locks_at_a_time(batch.locks.nodes.len())) {
            for (key, history) in zip(page, batch.histories_of(page, query, false).await?) {
                let name = &key[selection.prefix.len()..];
                let history = match history {
                    Ok(history) => history,
                    Err(error) => {
                        unlisted.missing.locks.push(error.about(Some(name)));
                        continue;
                    }
                };
                unlisted.add(name, &history);
                found.extend(history.runs.iter().map(|run| Found {
                    age: run.age(),
                    began: (run.began, run.fencing_token),
                    row: row(name, run),
                }));
            }
            if found.len() > query.most.saturating_add(SURPLUS) {
                leave_newest(&mut found, query.most);
            }
        }
        leave_newest(&mut found, query.most);
        found.sort_by_key(|found| found.began);
        unlisted.missing.nodes = batch.failed_nodes();
        unlisted.running.retain(|_| !query.failed);
        Ok((found.into_iter().map(|found| found.row).collect(), unlisted))
    }

    /// The server that may have lost the history of the locks, and the time since its start; see [`History`].
    pub(crate) async fn started(&mut self, prefix: &str) -> Option<(String, Duration)> {
        if self.nodes.are_unused() {
            return None;
        }
        // The prefix alone is no lock, so no server knows a run of it.
        let known = BatchQuery::of(self).histories_of(&[prefix], RunQuery::LAST, false).await;
        known.into_iter().flatten().flatten().find_map(|history| history.started)
    }

    /// The name that is probably meant by `name`, which no server has seen: the name of a lock that has a log, or `name`
    /// without the prefix, if it is a key. None also if there are too many keys to read within [`LOOK_FOR_NAMES`].
    pub(crate) async fn near(&mut self, prefix: &str, name: &str) -> Option<String> {
        if let Some(name) = name.strip_prefix(prefix).filter(|rest| !rest.is_empty() && !prefix.is_empty()) {
            return Some(name.to_owned());
        }
        if self.nodes.are_unused() {
            return None;
        }
        let mut batch = BatchQuery::of(self);
        let known = batch.logged_keys(Selection { prefix, names: &[] });
        let known = within(Boot::now() + LOOK_FOR_NAMES, known).await?.ok()?;
        let distance = |known: &str| osa_distance(&name.to_lowercase(), &known.to_lowercase());
        let known = known.iter().map(|key| &key[prefix.len()..]);
        let near = known.map(|known| (distance(known), known)).min()?;
        (near.0 <= 1 + name.chars().count() / 6).then(|| near.1.to_owned())
    }
}

impl Lock {
    /// The history of the lock, if no node has ever seen it, as far as the nodes know; else None.
    pub(crate) async fn unseen(&mut self) -> Option<History> {
        if self.locks.nodes.are_unused() {
            return Some(History::default());
        }
        let known = BatchQuery::of(&mut self.locks).histories_of(&[&self.keys.lock], RunQuery::LAST, false).await;
        known.into_iter().flatten().flatten().find(|history| history.is_unseen)
    }
}

impl BatchQuery<'_> {
    fn failed_nodes(self) -> Vec<(String, Fault)> {
        self.faults.into_iter().map(|(node, fault)| (self.locks.nodes.asked(node), fault)).collect()
    }

    /// The keys of all locks that are named, and of all locks that a pattern matches and that are taken or have one of
    /// these `parts` (see keys.rs).
    async fn listed_keys(&mut self, selection: Selection<'_>, parts: &[&str]) -> Result<BTreeSet<String>, Error> {
        let mut keys: BTreeSet<String> = selection.exact().collect();
        for pattern in selection.patterns() {
            let lock_of = |key: String| {
                let key = if key.contains(SEPARATOR) { lock_of(&key, parts)? } else { key };
                Some(key).filter(|key| selection.matches(key, &[pattern]))
            };
            // A second scan would cost the server as much again. The stars in front and behind also find the parts:
            // `{redlock:backup}:␟closed`.
            let pattern: Vec<String> = pattern.split('*').map(glob_escaped).collect();
            let pattern = format!("*{}{}*", glob_escaped(selection.prefix), pattern.join("*"));
            keys.extend(self.matching(&pattern, lock_of).await?);
        }
        Ok(keys)
    }

    /// The keys of the locks that have a log, and that a pattern selects.
    async fn logged_keys(&mut self, selection: Selection<'_>) -> Result<BTreeSet<String>, Error> {
        let patterns = selection.patterns();
        if patterns.is_empty() {
            return Ok(BTreeSet::new());
        }
        let lock_of = |key: String| lock_of(&key, &[LOG]).filter(|key| selection.matches(key, &patterns));
        self.matching(&format!("{{*{SEPARATOR}{LOG}"), lock_of).await
    }

    /// Scans the nodes for keys that match the pattern, and returns their locks. `lock_of`: the lock of a key; None if
    /// the key is not meant.
    ///
    /// # Errors
    /// [`Error::NoQuorum`].
    async fn matching(
        &mut self,
        pattern: &str,
        lock_of: impl Fn(String) -> Option<String>,
    ) -> Result<BTreeSet<String>, Error> {
        let found = self.locks.nodes.scan(pattern, &self.faults, lock_of).await;
        for (node, found) in found.iter().enumerate() {
            self.faults.extend(found.as_ref().err().map(|fault| (node, fault.clone())));
        }
        // A missing key proves nothing unless a quorum of nodes was scanned.
        let reached = found.iter().flatten().count();
        if reached < self.locks.quorum() {
            return Err(self.no_quorum(reached));
        }
        Ok(found.into_iter().flatten().flatten().collect())
    }

    /// The status of each of these locks, or why too few nodes can tell.
    async fn look_at_all(
        &mut self,
        prefix: &str,
        keys: &[String],
        view: View,
    ) -> Result<Vec<Result<Status, Error>>, Error> {
        let calls: Vec<Call> = keys.iter().map(|key| Keys::of(key).call(&scripts::INSPECT, view.args())).collect();
        let mut all = Vec::new();
        for (key, answers) in zip(keys, self.ask_page::<Answer>(&calls).await?) {
            let name = &key[prefix.len()..];
            let status = answers.map(|mut answers| {
                for (node, answer) in answers.iter_mut().enumerate() {
                    let forgetful = answer.as_ref().and_then(|answer| self.locks.may_have_forgotten(answer));
                    answer.take_if(|_| forgetful.is_some());
                    self.faults.extend(forgetful.map(|fault| (node, fault)));
                }
                let answers: Vec<Option<&Answer>> = answers.iter().map(Option::as_ref).collect();
                let of_node = |(node, answer): (usize, &Option<&Answer>)| {
                    let answer = answer.map_or_else(|| self.faults.get(&node).map(Err), |answer| Some(Ok(answer)));
                    Some(NodeAnswer::of(self.locks.nodes.name(node), answer?))
                };
                let mut status = combine(name, key, &answers);
                status.nodes = answers.iter().enumerate().filter_map(of_node).collect();
                status
            });
            all.push(status.map_err(|error| error.about(Some(name))));
        }
        if let Some(query) = view.runs {
            self.add_history(&mut all.iter_mut().flatten().collect::<Vec<_>>(), query).await?;
        }
        Ok(all)
    }
}

impl<'a> Selection<'a> {
    /// The keys of the names without a `*`.
    fn exact(self) -> impl Iterator<Item = String> {
        self.names.iter().filter(|name| !name.contains('*')).map(move |name| format!("{}{name}", self.prefix))
    }

    /// True if [`Locks::list`] shows a lock with this status.
    fn shows(self, status: &Status, free: bool) -> bool {
        match status.state {
            _ if status.name.is_empty() => false, // no lock: `list` asks this to detect replicas
            _ if self.names.contains(&status.name) => true,
            State::Free => free && (status.history.is_known() || status.history_error.is_some()), // else just deleted
            State::Foreign => !self.prefix.is_empty(),
            _ => true,
        }
    }

    fn matches(self, key: &str, patterns: &[&str]) -> bool {
        let name = key.strip_prefix(self.prefix);
        name.is_some_and(|name| patterns.iter().any(|pattern| stands_for(pattern, name)))
    }

    /// The names with a `*`; a single `*` if the selection has no name.
    pub(crate) fn patterns(&self) -> Vec<&'a str> {
        match self.names {
            [] => vec!["*"],
            names => names.iter().filter(|name| name.contains('*')).map(String::as_str).collect(),
        }
    }
}

fn leave_newest<R>(found: &mut Vec<Found<R>>, most: usize) {
    if found.len() > most {
        found.sort_by_key(|found| found.age);
        found.truncate(most);
    }
}

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
