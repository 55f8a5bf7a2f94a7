//! The register of `--newest`, as newest.lua writes it.

use crate::lock::history::run::Run;
use crate::lock::history::visits::Visit;
use crate::lock::terms::waiter::Waiter;
use crate::lock::wire::answer::Answer;
use crate::redis::{Answers, Reply};
use crate::text::{human, safe};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The largest number that stood in line or was granted, and the first caller with that number.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Newest {
    /// None if the register does not begin with a number.
    pub(crate) number: Option<u64>,
    host: Option<String>,
    pid: Option<u64>,
    label: Option<String>,
    /// True if a call with this number has run; None if that is not known.
    has_run: Option<bool>,
    /// True if the first caller with this number waits.
    #[serde(skip)]
    waits: bool,
    /// When the first caller with this number came, and how long ago, by the server's clock.
    #[serde(skip)]
    came: Option<Duration>,
    #[serde(skip)]
    ago: Option<Duration>,
}

impl Newest {
    pub(in crate::lock) fn largest(answers: &Answers<Answer>) -> Option<Newest> {
        Newest::largest_of(answers.replies().filter_map(|answer| Newest::read(&answer.fields)))
    }

    pub(super) fn largest_of(registers: impl Iterator<Item = Newest>) -> Option<Newest> {
        registers.max_by_key(|newest| (newest.number, newest.has_run))
    }

    pub(super) fn read(answer: &Reply) -> Option<Newest> {
        let mut parts = answer.get("newest").as_text()?.splitn(5, ' ');
        let mut part = || parts.next().filter(|part| !part.is_empty());
        let number = part().and_then(|number| number.parse().ok());
        let came = part().and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
        let pid = part().and_then(|pid| pid.parse().ok());
        let short = |part: &str| part.chars().take(256).collect();
        let (host, label) = (part().map(short), part().map(short));
        let ago = answer.get("clock").as_time().zip(came).map(|(clock, came)| clock.saturating_sub(came));
        Some(Newest { number, host, pid, label, has_run: None, waits: false, came, ago })
    }

    /// Finds out whether a call with this number has run, by the same node's answer. Without such a run, `is_whole` must
    /// be true: the log has all runs since the first call came. A visit must show that this caller's runs are logged.
    pub(super) fn judge(&mut self, runs: &[Run], visits: &[Visit], is_whole: bool) {
        let is_run = runs.iter().any(|run| run.newest == self.number && run.began >= self.came);
        let is_logged = visits.iter().any(|visit| self.is_by(Some(&visit.host)) && Some(visit.came) >= self.came);
        self.has_run = (is_run || is_logged && is_whole).then_some(is_run);
    }

    pub(super) fn came_after(&self, run: &Run) -> bool {
        run.began < self.came
    }

    /// Finds out whether the caller with this number waits. `waiting`: how many wait, of whom `waiters` are the first.
    pub(in crate::lock) fn look_in_line(&mut self, waiters: &[Waiter], waiting: u64) {
        let is_it = |waiter: &Waiter| self.is_by(waiter.owner.host.as_deref()) && waiter.owner.pid == self.pid;
        self.waits = self.has_run != Some(true) && waiters.iter().any(is_it);
        if !self.waits && waiting > waiters.len() as u64 && self.has_run == Some(false) {
            self.has_run = None;
        }
    }

    /// True if the caller came from this host. Others keep only the first characters of a long host name.
    fn is_by(&self, host: Option<&str>) -> bool {
        host.zip(self.host.as_deref()).is_some_and(|(host, ours)| ours.starts_with(host) || host.starts_with(ours))
    }

    /// What is known of the caller: ` and waits in line`, ` and has not run`; else nothing.
    fn fate(&self) -> &'static str {
        match self.has_run {
            _ if self.waits => " and waits in line",
            Some(false) => " and has not run",
            _ => "",
        }
    }

    /// The number, if its caller has not run and does not wait: nobody will run it.
    fn is_left(&self) -> Option<u64> {
        self.number.filter(|_| self.has_run == Some(false) && !self.waits)
    }

    /// `: run 103 again`, if it has neither run nor waits.
    pub(crate) fn again(&self) -> String {
        self.is_left().map_or_else(String::new, |number| format!(": run {number} again"))
    }

    /// `103 by runner-4, 4m ago, has not run: run 103 again`
    pub(crate) fn in_status(&self) -> String {
        let number = self.number.map_or_else(|| "no number".to_owned(), |number| number.to_string());
        let host = self.host.as_deref().map_or_else(String::new, |host| format!(" by {}", safe(host)));
        let ago = self.ago.map_or_else(String::new, |ago| format!(", {} ago", human(ago)));
        format!("{number}{host}{ago}{}{}", self.fate().replace(" and", ","), self.again())
    }
}

/// "43 (ci-7, pid 4713, nightly), which came 3m ago"
impl fmt::Display for Newest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Newest { number, host, pid, label, ago, .. } = self;
        f.write_str(&number.map_or_else(|| "something that is not a number".to_owned(), |number| number.to_string()))?;
        let known = [host.as_deref().map(safe), pid.map(|pid| format!("pid {pid}")), label.as_deref().map(safe)];
        let known: Vec<String> = known.into_iter().flatten().collect();
        if !known.is_empty() {
            write!(f, " ({})", known.join(", "))?;
        }
        ago.map_or(Ok(()), |ago| write!(f, ", which came {} ago{}", human(ago), self.fate()))
    }
}
