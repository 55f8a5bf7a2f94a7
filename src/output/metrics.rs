//! Locks as metrics in Prometheus' text format, for node_exporter's textfile collector.

use crate::lock::{Holder, Run, RunOutcome, State, Status};
use std::iter::zip;
use std::time::Duration;

/// The values of a metric for one lock, each with labels besides its name; none where it is not known.
type Values = fn(&Status) -> Vec<(String, f64)>;

const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

/// Every metric: its name, its type, its meaning, its values.
const METRICS: [(&str, &str, &str, Values); 14] = [
    ("held", GAUGE, "Whether the lock is held, or reserved for the next in line (1), or free (0).", |status| {
        one(known(status, if status.state == State::Free { 0.0 } else { 1.0 }))
    }),
    ("holder_info", GAUGE, "A holder of the lock, as labels.", holder),
    ("holders", GAUGE, "The number of leases on the lock.", |status| one(known(status, status.holder_count() as f64))),
    ("acquired_timestamp_seconds", GAUGE, "When the lease of that holder was acquired.", |status| {
        seconds(named(status).and_then(|holder| holder.acquired_at))
    }),
    ("waiters", GAUGE, "The number of waiters in line.", |status| one(status.waiting.map(|waiting| waiting as f64))),
    ("last_run_begin_timestamp_seconds", GAUGE, "When the last run began that has ended.", |status| {
        seconds(last(status).and_then(|run| run.began))
    }),
    ("last_run_end_timestamp_seconds", GAUGE, "When the last run ended.", |status| {
        seconds(last(status).and_then(|run| run.ended))
    }),
    ("last_run_duration_seconds", GAUGE, "How long the last run lasted.", |status| {
        seconds(last(status).and_then(|run| run.duration))
    }),
    ("last_run_wait_seconds", GAUGE, "How long the last run had waited in line.", |status| {
        seconds(last(status).and_then(|run| run.waited))
    }),
    ("last_run_exit_status", GAUGE, "The exit status of the last run, if its command exited.", |status| {
        one(last(status).and_then(|run| run.status).map(f64::from))
    }),
    (
        "last_run_success",
        GAUGE,
        "Whether the last run exited with status 0 (1) or ended in another way (0).",
        |status| {
            let is_told = |run: &&Run| !matches!(run.outcome, RunOutcome::Released | RunOutcome::Unreadable);
            one(last(status).filter(is_told).map(|run| if run.succeeded() { 1.0 } else { 0.0 }))
        },
    ),
    ("last_success_timestamp_seconds", GAUGE, "When the last run ended that succeeded.", |status| {
        seconds(status.memory.last_success.as_ref().and_then(|run| run.ended))
    }),
    ("last_failure_timestamp_seconds", GAUGE, "When the last run ended that failed.", |status| {
        seconds(status.memory.last_failure.as_ref().and_then(|run| run.ended))
    }),
    ("runs_total", COUNTER, "How many runs have said that they succeeded, and that they failed.", |status| {
        let Some(counts) = status.memory.counts else { return Vec::new() };
        let each = [("success", counts.succeeded), ("failure", counts.failed)];
        each.map(|(result, count)| (format!(",result=\"{result}\""), count as f64)).into()
    }),
];

fn last(status: &Status) -> Option<&Run> {
    status.memory.last.as_ref()
}

fn one(value: Option<f64>) -> Vec<(String, f64)> {
    value.map(|value| (String::new(), value)).into_iter().collect()
}

fn holder(status: &Status) -> Vec<(String, f64)> {
    let Some(Holder { host, user, label, .. }) = named(status) else { return Vec::new() };
    let label_of =
        |(name, text): (&str, &Option<String>)| format!(",{name}=\"{}\"", escaped(text.as_deref().unwrap_or("")));
    vec![([("host", host), ("user", user), ("label", label)].map(label_of).concat(), 1.0)]
}

fn known(status: &Status, value: f64) -> Option<f64> {
    Some(value).filter(|_| status.state != State::Unknown)
}

fn named(status: &Status) -> Option<&Holder> {
    status.holders().first().filter(|holder| holder.has_record())
}

fn seconds(time: Option<Duration>) -> Vec<(String, f64)> {
    one(time.map(|time| time.as_secs_f64()))
}

/// Locks as metrics: of each metric the lines so far, as those of one metric stand together.
#[derive(Debug, Default)]
pub(crate) struct Metrics([String; METRICS.len()]);

impl Metrics {
    pub(crate) fn add(&mut self, status: &Status) {
        let name = escaped(&status.name);
        for (lines, (metric, _, _, values)) in zip(&mut self.0, METRICS) {
            for (labels, value) in values(status) {
                lines.push_str(&format!("redlock_{metric}{{name=\"{name}\"{labels}}} {value}\n"));
            }
        }
    }

    pub(crate) fn text(self) -> String {
        let with_head = |(lines, (metric, kind, meaning, _)): (String, _)| {
            format!("# HELP redlock_{metric} {meaning}\n# TYPE redlock_{metric} {kind}\n{lines}")
        };
        zip(self.0, METRICS).map(with_head).collect()
    }
}

/// The text of a label, as the format has it: two names never look alike. A name has no control characters; in what others wrote
/// they would reach a terminal.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    text.replace(char::is_control, "?")
}
