//! Locks as metrics in Prometheus' text format, for node_exporter's textfile collector.

use crate::lock::{Holder, Run, State, Status};
use crate::text::printable;
use std::time::Duration;

/// The value of a metric for one lock; none where it is not known.
type Value = fn(&Status) -> Option<f64>;

/// The metric that names the holder, in labels.
const HOLDER: &str = "holder_info";

/// Every metric: its name, its meaning, its value. All are gauges.
const METRICS: [(&str, &str, Value); 12] = [
    ("held", "Whether the lock is held, or reserved for the next in line (1), or free (0).", |status| {
        known(status, if status.state == State::Free { 0.0 } else { 1.0 })
    }),
    (HOLDER, "The holder of the lock, as labels.", |status| named(status).map(|_| 1.0)),
    ("holders", "The number of leases on the lock.", |status| known(status, status.holders().len() as f64)),
    ("acquired_timestamp_seconds", "When the lease that is held longest was acquired.", |status| {
        seconds(status.holders().iter().filter_map(|holder| holder.acquired_at).min())
    }),
    ("waiters", "The number of waiters in line.", |status| Some(status.waiting? as f64)),
    ("last_run_begin_timestamp_seconds", "When the last run began that has ended.", |status| {
        seconds(last(status)?.began)
    }),
    ("last_run_end_timestamp_seconds", "When the last run ended.", |status| seconds(last(status)?.ended)),
    ("last_run_duration_seconds", "How long the last run lasted.", |status| seconds(last(status)?.duration)),
    ("last_run_wait_seconds", "How long the last run had waited in line.", |status| seconds(last(status)?.waited)),
    ("last_run_exit_status", "The exit status of the last run, if its command exited.", |status| {
        Some(last(status)?.status?.into())
    }),
    ("last_run_success", "Whether the last run exited with status 0 (1) or ended in another way (0).", |status| {
        Some(if last(status)?.succeeded() { 1.0 } else { 0.0 })
    }),
    ("last_success_timestamp_seconds", "When the last run ended that succeeded.", |status| {
        seconds(status.last_success.as_ref()?.ended)
    }),
];

fn last(status: &Status) -> Option<&Run> {
    status.last.as_ref()
}

fn known(status: &Status, value: f64) -> Option<f64> {
    Some(value).filter(|_| status.state != State::Unknown)
}

fn named(status: &Status) -> Option<&Holder> {
    status.holders().first().filter(|holder| holder.has_record())
}

fn seconds(time: Option<Duration>) -> Option<f64> {
    Some(time?.as_secs_f64())
}

/// The metrics of these locks.
pub(crate) fn metrics(all: &[Status]) -> String {
    let mut text = String::new();
    for (metric, meaning, value) in METRICS {
        text.push_str(&format!("# HELP redlock_{metric} {meaning}\n# TYPE redlock_{metric} gauge\n"));
        for status in all {
            let Some(value) = value(status) else { continue };
            let mut labels = format!("name=\"{}\"", escaped(&status.name));
            if let Some(Holder { host, user, label, .. }) = named(status).filter(|_| metric == HOLDER) {
                for (name, text) in [("host", host), ("user", user), ("label", label)] {
                    labels.push_str(&format!(",{name}=\"{}\"", escaped(text.as_deref().unwrap_or_default())));
                }
            }
            text.push_str(&format!("redlock_{metric}{{{labels}}} {value}\n"));
        }
    }
    text
}

/// The text of a label, as the format has it; on a terminal it is safe too.
fn escaped(text: &str) -> String {
    printable(text, usize::MAX).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
