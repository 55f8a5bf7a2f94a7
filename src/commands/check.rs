//! `redlock check`: are all jobs in order?

use super::{block_on, did_you_mean, locks_to_look_at, settings, warn_of_default};
use crate::cli::{CheckArgs, Common, Format};
use crate::error::{Error, nodes_with_faults};
use crate::exit::Exit;
use crate::lock::{Facts, Finding, Locks, Missing, Selection, State, Status, View, stands_for};
use crate::output::{self, Verdict, just_started, say};

pub(crate) fn run(args: &CheckArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    warn_of_default(&settings);
    let selection = Selection { prefix: &settings.prefix, names: &args.locks.names };
    let mut locks = locks_to_look_at(&settings)?;
    let mut judged = Judged { is_json: common.format == Format::Json, ..Judged::default() };
    let missing = block_on(locks.list(selection, View::CHECK, true, |status| {
        let facts = Facts::of(&status, args.within, args.min_hosts.unwrap_or(0));
        judged.add(&status, &facts, selection.names)
    }));
    let mut missing = missing.map_err(|error| error.about(args.locks.one()))?;
    if let Some(wrong) = missing.locks.extract_if(.., |error| matches!(error, Error::Usage(_))).next() {
        return Err(wrong.into());
    }
    judged.add_missing(&mut missing);
    let nothing = block_on(async { Ok::<_, Error>(judged.nothing(selection, &mut locks).await) })?;
    if let (false, Some(error)) = (nothing.is_empty(), missing.unknown) {
        return Err(error.about(args.locks.one()).into());
    }
    let away = (!missing.nodes.is_empty()).then(|| nodes_with_faults(&missing.nodes));
    if let Some(away) = &away {
        say(&format!("{away}; judged by the other nodes"));
    }
    let findings: Vec<Finding> = judged.verdicts.iter().flat_map(|verdict| &verdict.findings).copied().collect();
    if common.format == Format::Nagios {
        let (exit, word) = match findings.iter().min() {
            Some(Finding::Overdue { .. } | Finding::Failed { .. }) => (Exit::CRITICAL, "CRITICAL"),
            Some(Finding::Hangs { .. } | Finding::Hosts { .. }) => (Exit::NOT_IN_ORDER, "WARNING"),
            Some(Finding::Unknown) => (Exit::CANNOT_TELL, "UNKNOWN"),
            None if !nothing.is_empty() => (Exit::CANNOT_TELL, "UNKNOWN"),
            None => (Exit::DONE, "OK"),
        };
        output::show(&output::check_nagios(word, &judged.verdicts, &nothing, away.as_deref()))?;
        return Ok(exit);
    }
    output::show_all(output::check(&judged.verdicts, common.format == Format::Json, common.quiet))?;
    nothing.iter().for_each(|line| say(line));
    Ok(match findings.iter().min() {
        Some(Finding::Unknown) => judged.unknown.unwrap_or(Exit::UNAVAILABLE),
        None if nothing.is_empty() => Exit::DONE,
        _ => Exit::NOT_IN_ORDER,
    })
}

/// The verdicts on the selected locks.
#[derive(Default)]
pub(super) struct Judged {
    is_json: bool,
    pub(super) verdicts: Vec<Verdict>,
    /// The verdicts on locks whose state is not known (indices): they do not count, since nodes that are away may know
    /// better.
    unsure: Vec<usize>,
    /// The exit of the first lock of which nothing is known.
    unknown: Option<Exit>,
}

impl Judged {
    /// Judges a lock, if it is to be judged: one of these names, or one that is expected.
    ///
    /// # Errors
    /// [`Error::Usage`] if the lock is named, and nothing tells how often it is to succeed.
    pub(super) fn add(&mut self, status: &Status, facts: &Facts, names: &[String]) -> Result<(), Error> {
        if let Some(error) = &status.history_error {
            self.add_unknown(status.name.clone(), error);
            return Ok(());
        }
        let is_meant = names.contains(&status.name) || facts.within.is_some() || facts.is_expected();
        if facts.is_empty() && status.state != State::Unknown || !is_meant {
            return Ok(());
        }
        let is_judged = facts.expected.is_some() || facts.within.is_some();
        if !is_judged && status.state != State::Unknown {
            let name = &status.name;
            return Err(Error::Usage(format!(
                "no call of {name:?} with --once-per is known, so nothing says how often it is to succeed; add --within D"
            )));
        }
        let verdict = Verdict::of(status, facts, self.is_json);
        if status.state == State::Unknown && !(is_judged && verdict.findings.is_empty()) {
            self.unsure.push(self.verdicts.len());
        }
        self.verdicts.push(verdict);
        Ok(())
    }

    fn add_unknown(&mut self, name: String, why: &Error) {
        self.unknown.get_or_insert(Exit::of_error(why));
        self.verdicts.push(Verdict::unknown(name, why.to_string(), self.is_json));
    }

    /// Adds the locks that cannot be judged.
    pub(super) fn add_missing(&mut self, missing: &mut Missing) {
        for error in &missing.locks {
            let name = if let Error::NoQuorum { name, .. } = error { name.clone() } else { None };
            self.add_unknown(name.unwrap_or_default(), error);
        }
        let Some(mut why) = missing.unknown.take() else { return };
        for at in std::mem::take(&mut self.unsure) {
            why = why.about(Some(&self.verdicts[at].name));
            self.unknown.get_or_insert(Exit::of_error(&why));
            self.verdicts[at] = Verdict::unknown(self.verdicts[at].name.clone(), why.to_string(), self.is_json);
        }
        missing.unknown = Some(why);
    }

    /// Lines that say of what nothing is known: a check never passes because it has found nothing.
    async fn nothing(&self, selection: Selection<'_>, locks: &mut Locks) -> Vec<String> {
        let is_found = |name: &&String| self.verdicts.iter().any(|verdict| stands_for(name, &verdict.name));
        let lacks: Vec<&String> = selection.names.iter().filter(|name| !is_found(name)).collect();
        let is_bare = selection.names.is_empty() && self.verdicts.is_empty();
        if lacks.is_empty() && !is_bare {
            return Vec::new();
        }
        let on = locks.where_they_are();
        let started = just_started(&locks.started(selection.prefix).await);
        let bare = format!(
            "for no lock on {on} have calls with --once-per come for half a period (a NAME is judged at once){started}"
        );
        let mut lines: Vec<String> = is_bare.then_some(bare).into_iter().collect();
        for name in lacks {
            if name.contains('*') {
                lines.push(format!(
                    "no lock that has been called with --once-per for half a period matches {name:?} on {on}{started}"
                ));
                continue;
            }
            let near = locks.near(selection.prefix, name).await.filter(|near| near != name);
            let near = near.map_or_else(String::new, |near| format!("; {}", did_you_mean(&near)));
            lines.push(format!("no run of {name:?} is known on {on}{started}{near}"));
        }
        lines.iter().map(|what| format!("nothing to check: {what}")).collect()
    }
}
