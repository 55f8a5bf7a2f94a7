//! Locks as metrics in Prometheus' text format, for node_exporter's textfile collector.

use crate::lock::{Holder, Run, State, Status};
use std::time::Duration;

/// The value of a metric for one lock, with labels besides its name; none where it is not known.
type Value = fn(&Status) -> Option<(Vec<(&'static str, String)>, f64)>;

/// Every metric: its name, its meaning, its value. All are gauges.
const METRICS: [(&str, &str, Value); 12] = [
    ("held", "Whether the lock is held, or reserved for the next in line (1), or free (0).", |status| {
        match status.state {
            State::Unknown => None,
            state => alone(if state == State::Free { 0.0 } else { 1.0 }),
        }
    }),
    ("holder_info", "The holder of the lock, as labels.", |status| {
        let holder = status.holders().first().filter(|holder| holder.has_record())?;
        Some((labels(holder), 1.0))
    }),
    ("holders", "The number of leases on the lock.", |status| match status.state {
        State::Unknown => None,
        _ => alone(status.holders().len() as f64),
    }),
    ("acquired_timestamp_seconds", "When the lease that is held longest was acquired.", |status| {
        seconds(status.holders().iter().filter_map(|holder| holder.acquired_at).min())
    }),
    ("waiters", "The number of waiters in line.", |status| alone(status.waiting? as f64)),
    ("last_run_begin_timestamp_seconds", "When the last run began that has ended.", |status| {
        seconds(last(status)?.began)
    }),
    ("last_run_end_timestamp_seconds", "When the last run ended.", |status| seconds(last(status)?.ended)),
    ("last_run_duration_seconds", "How long the last run lasted.", |status| seconds(last(status)?.duration)),
    ("last_run_wait_seconds", "How long the last run had waited in line.", |status| seconds(last(status)?.waited)),
    ("last_run_exit_status", "The exit status of the last run, if its command exited.", |status| {
        alone(last(status)?.status?.into())
    }),
    ("last_run_success", "Whether the last run exited with status 0 (1) or ended in another way (0).", |status| {
        alone(if last(status)?.succeeded() { 1.0 } else { 0.0 })
    }),
    ("last_success_timestamp_seconds", "When the last run ended that succeeded.", |status| {
        seconds(status.last_success.as_ref()?.ended)
    }),
];

fn last(status: &Status) -> Option<&Run> {
    status.last.as_ref()
}

fn alone(value: f64) -> Option<(Vec<(&'static str, String)>, f64)> {
    Some((Vec::new(), value))
}

fn seconds(time: Option<Duration>) -> Option<(Vec<(&'static str, String)>, f64)> {
    alone(time?.as_secs_f64())
}

fn labels(holder: &Holder) -> Vec<(&'static str, String)> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    vec![("host", text(&holder.host)), ("user", text(&holder.user)), ("label", text(&holder.label))]
}

/// The metrics of these locks.
pub(crate) fn metrics(all: &[Status]) -> String {
    let mut text = String::new();
    for (metric, meaning, value) in METRICS {
        text.push_str(&format!("# HELP redlock_{metric} {meaning}\n# TYPE redlock_{metric} gauge\n"));
        for status in all {
            let Some((labels, value)) = value(status) else { continue };
            let labels = [("name", status.name.clone())].into_iter().chain(labels);
            let labels: Vec<String> = labels.map(|(label, text)| format!("{label}=\"{}\"", escaped(&text))).collect();
            text.push_str(&format!("redlock_{metric}{{{}}} {value}\n", labels.join(",")));
        }
    }
    text
}

/// The text of a label, as the format has it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
