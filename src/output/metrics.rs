//! Locks as metrics in Prometheus' text format, for node_exporter's textfile collector.

use crate::lock::{Facts, Finding, Holder, Owner, Run, RunOutcome, State, Status};
use crate::text;
use std::iter::zip;
use std::time::Duration;

/// The values of a metric for one lock, each with its labels (without the label `name`); None if they are not known.
type Values = Option<Vec<(String, f64)>>;

/// A metric: its name, its meaning, its values.
type Metric = (&'static str, &'static str, fn(&Status) -> Values);

/// A metric is a counter if its name ends in `_total`, else a gauge.
const METRICS: [Metric; 17] = [
    ("held", "1 if the lock is held, or reserved for the next in line; 0 if it is free.", |of| {
        one(if matches!(known(of)?.state, State::Free | State::Closed) { 0.0 } else { 1.0 })
    }),
    ("closed", "1 if nobody gets the lock (redlock stop --for), else 0.", |of| {
        one(if known(of)?.closed_until.is_some() { 1.0 } else { 0.0 })
    }),
    ("holder_info", "A holder of the lock, as labels.", holder),
    ("holders", "The number of leases on the lock.", |of| one(known(of)?.holder_count as f64)),
    ("acquired_timestamp_seconds", "When the lease in holder_info was acquired.", |of| seconds(named(of)?.acquired_at)),
    ("waiters", "The number of waiters in line.", |of| one(of.waiting? as f64)),
    ("last_run_begin_timestamp_seconds", "When the last ended run began.", |of| seconds(last(of)?.began)),
    ("last_run_end_timestamp_seconds", "When the last run ended.", |of| seconds(last(of)?.ended)),
    ("last_run_duration_seconds", "How long the last run lasted.", |of| seconds(last(of)?.duration)),
    ("last_run_wait_seconds", "How long the last run had waited in line.", |of| seconds(last(of)?.waited)),
    ("last_run_exit_status", "The exit status of the last run, if its command exited.", |of| {
        one(last(of).filter(|run| run.outcome == RunOutcome::Exited)?.status?.into())
    }),
    ("last_run_success", "1 if the last run exited with status 0, 0 if it ended in another way.", |of| {
        let is_reported = |run: &&Run| !matches!(run.outcome, RunOutcome::Released | RunOutcome::Unreadable);
        one(if last(of).filter(is_reported)?.succeeded() { 1.0 } else { 0.0 })
    }),
    ("last_success_timestamp_seconds", "When the last successful run ended.", |of| {
        seconds(of.history.last_success.as_ref()?.ended)
    }),
    ("last_failure_timestamp_seconds", "When the last failed run ended.", |of| {
        seconds(of.history.last_failure.as_ref()?.ended)
    }),
    (
        "in_order",
        "1 if check finds nothing wrong with the lock, else 0; for locks that are called with --once-per.",
        |of| one(if judged(of)?.is_empty() { 1.0 } else { 0.0 }),
    ),
    ("finding", "1 if check finds this of the lock, else 0.", |of| {
        let found = judged(of)?;
        let value = |word| if found.iter().any(|finding| finding.word() == word) { 1.0 } else { 0.0 };
        let each = ["overdue", "failed", "hangs"].map(|word| (format!(",finding=\"{word}\""), value(word)));
        Some(each.into())
    }),
    ("runs_total", "How many runs have reported success, and failure.", |of| {
        let counts = of.history.counts?;
        let each = [("success", counts.succeeded), ("failure", counts.failed)];
        Some(each.map(|(result, count)| (format!(",result=\"{result}\""), count as f64)).into())
    }),
];

fn one(value: f64) -> Values {
    Some(vec![(String::new(), value)])
}

fn seconds(time: Option<Duration>) -> Values {
    one(time?.as_secs_f64())
}

fn last(of: &Status) -> Option<&Run> {
    of.history.last.as_ref()
}

fn known(of: &Status) -> Option<&Status> {
    Some(of).filter(|of| of.state != State::Unknown)
}

/// What `check` finds, of a lock that it judges.
fn judged(of: &Status) -> Option<Vec<Finding>> {
    let facts = Facts::of(known(of)?, None, 0);
    facts.is_expected().then(|| facts.findings())
}

fn named(of: &Status) -> Option<&Holder> {
    of.holders().first().filter(|holder| holder.has_record())
}

fn holder(of: &Status) -> Values {
    let Owner { host, user, label, .. } = &named(of)?.owner;
    let labels = [("host", host), ("user", user), ("label", label)];
    let labels = labels.map(|(name, text)| format!(",{name}=\"{}\"", escaped(text.as_deref().unwrap_or(""))));
    Some(vec![(labels.concat(), 1.0)])
}

/// Locks as metrics. The lines are collected for each metric, since all lines of one metric have to stand together.
#[derive(Debug, Default)]
pub(crate) struct Metrics([String; METRICS.len()]);

impl Metrics {
    pub(crate) fn add(&mut self, status: &Status) {
        let name = escaped(&status.name);
        for (lines, (metric, _, values)) in zip(&mut self.0, METRICS) {
            for (labels, value) in values(status).into_iter().flatten() {
                lines.push_str(&format!("redlock_{metric}{{name=\"{name}\"{labels}}} {value}\n"));
            }
        }
    }

    pub(crate) fn text(self) -> String {
        let with_head = |(lines, (metric, meaning, _)): (String, Metric)| {
            let kind = if metric.ends_with("_total") { "counter" } else { "gauge" };
            format!("# HELP redlock_{metric} {meaning}\n# TYPE redlock_{metric} {kind}\n{lines}")
        };
        zip(self.0, METRICS).map(with_head).collect()
    }
}

/// The text of a label in this format. Everything that a terminal obeys is escaped, as `\u{202e}`. So that two names
/// never look alike, a backslash that begins such a text by itself is escaped, too.
fn escaped(text: &str) -> String {
    let text = text.replace("\\u{", "\\u{5c}u{");
    text::escaped(&text, usize::MAX).replace('\\', "\\\\").replace('"', "\\\"")
}
