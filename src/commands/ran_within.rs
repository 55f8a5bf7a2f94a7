//! `status --ran-within`: tells whether jobs have succeeded lately, for cron, Nagios and other monitoring.

use super::say_missing;
use crate::cli::{Common, Format};
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::{Missing, Selection, State, Status, stands_for};
use crate::output::{self, Row};
use std::time::Duration;

/// The possible answers for one lock, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Recency {
    Recent,
    /// The last success is in the future: the server's clock was set back after the success.
    Ahead,
    /// No recent success, or too few hosts.
    NotRecent,
}

/// The selected locks, with the answers: did a run of each succeed in the time `within`, and did enough hosts come?
pub(super) struct Jobs<'a> {
    selection: Selection<'a>,
    within: Duration,
    min_hosts: usize,
    common: &'a Common,
    /// The patterns that no lock has matched so far.
    unmatched: Vec<&'a str>,
    answers: Vec<(Recency, String)>,
    /// The first lock whose answer is unsure: it is not `Recent`, but the lock's state is unknown. Nodes that did not
    /// answer may know a recent success, or more hosts.
    unsure: Option<String>,
    /// `rows`: the locks, for JSON; `ages`: the ages of the last successes, for Nagios.
    rows: Vec<Row>,
    ages: Vec<String>,
}

impl<'a> Jobs<'a> {
    pub(super) fn new(
        selection: Selection<'a>,
        within: Duration,
        min_hosts: Option<usize>,
        common: &'a Common,
    ) -> Jobs<'a> {
        let (answers, rows, ages) = (Vec::new(), Vec::new(), Vec::new());
        let (min_hosts, unmatched) = (min_hosts.unwrap_or(0), selection.patterns());
        Jobs { selection, within, min_hosts, common, unmatched, answers, unsure: None, rows, ages }
    }

    /// Adds a lock.
    ///
    /// # Errors
    /// The reason why the runs of the lock are not known.
    pub(super) fn add(&mut self, status: Status) -> Result<(), Error> {
        self.unmatched.retain(|pattern| !stands_for(pattern, &status.name));
        let status = status.with_runs()?;
        let mut answer = self.answer(&status);
        let mut line = output::ran_within(&status, answer == Recency::Recent, self.within);
        let hosts = status.memory.hosts.as_deref().unwrap_or_default();
        if let Some(few) = output::too_few(hosts, self.within, self.min_hosts) {
            let but = if answer == Recency::Recent { "but" } else { "and" };
            line.push_str(&format!("; {but} {few}"));
            answer = Recency::NotRecent;
        }
        if status.state == State::Unknown && answer != Recency::Recent {
            self.unsure.get_or_insert_with(|| status.name.clone());
        }
        self.answers.push((answer, line));
        match self.common.format {
            Format::Json => self.rows.push(Row::of_lock(&status, true, None)),
            Format::Nagios => self.ages.extend(output::nagios_age(&status)),
            _ => {}
        }
        Ok(())
    }

    fn answer(&self, status: &Status) -> Recency {
        match &status.memory.last_success {
            Some(run) if run.is_ahead() => Recency::Ahead,
            Some(run) if run.ago().is_some_and(|ago| ago <= self.within) => Recency::Recent,
            _ => Recency::NotRecent,
        }
    }

    pub(super) fn tell(mut self, mut missing: Missing) -> anyhow::Result<Exit> {
        if let Some(error) = missing.unknown.take()
            && (self.unsure.is_some() || self.answers.is_empty())
        {
            return Err(error.about(self.unsure.as_deref()).into());
        }
        let worst = self.answers.iter().map(|(answer, _)| *answer).max().unwrap_or(Recency::NotRecent);
        let all_well = worst == Recency::Recent && self.unmatched.is_empty();
        let unmatched = self.unmatched.iter().map(|pattern| format!("no lock matches {pattern:?}"));
        self.answers.extend(unmatched.map(|line| (Recency::NotRecent, line)));
        if self.common.format == Format::Nagios {
            return self.tell_nagios(&missing, all_well, worst);
        }
        let exit = say_missing(&missing);
        match self.common.format {
            _ if self.common.quiet => {}
            Format::Json if self.rows.len() == 1 && self.selection.names.len() == 1 => {
                output::show_all(output::runs(&self.rows, true, true))?;
            }
            Format::Json => output::show_all(output::locks(&self.rows, true, None))?,
            _ => output::show_all(self.answers.iter().map(|(_, line)| format!("{line}\n")))?,
        }
        Ok(match exit {
            Exit::DONE if all_well => Exit::DONE,
            Exit::DONE => Exit::NOT_RECENT,
            exit => exit,
        })
    }

    /// Prints the result in one line, as monitoring plugins do.
    fn tell_nagios(self, missing: &Missing, all_well: bool, worst: Recency) -> anyhow::Result<Exit> {
        let unknown = missing.locks.first().map(ToString::to_string);
        let (exit, word) = match (&unknown, worst) {
            (None, _) if all_well => (Exit::DONE, "OK"),
            (None, Recency::Ahead) => (Exit::CANNOT_TELL, "UNKNOWN"),
            (None, _) => (Exit::CRITICAL, "CRITICAL"),
            (Some(_), _) => (Exit::CANNOT_TELL, "UNKNOWN"),
        };
        let told = self.answers.iter().filter(|(answer, _)| all_well || *answer != Recency::Recent);
        let told: Vec<&str> = told.map(|(_, line)| line.as_str()).collect();
        let text = match (&unknown, told.as_slice()) {
            (Some(error), _) => error.clone(),
            (None, []) => "no lock is named".to_owned(),
            (None, [one]) => (*one).to_owned(),
            (None, several) if all_well => format!("all {} have succeeded in time", several.len()),
            (None, several) => format!("{} of {}: {}", several.len(), self.answers.len(), several.join("; ")),
        };
        output::show(&output::nagios(word, &text, &self.ages))?;
        Ok(exit)
    }
}
