//! Compares the runs that redlock has recorded with the history. A section is what a job or a script does under a lock,
//! and writes its own lines into the history.

use super::Place;
use super::contender::redlock;
use super::history::{Event, Line};
use std::collections::BTreeMap;
use std::process::Stdio;

/// The log of a lock keeps this many runs: as many as it can.
pub(super) const KEPT: usize = 200;
/// A lock with such a name is on a server of its own: see rival.rs.
const ALONE: &str = "edge-";
/// By how much, in milliseconds, the clocks of servers may go wrong while a job runs.
const CLOCKS: i64 = 250;

/// One run, as `redlock log --format json` reports it.
#[derive(Debug)]
struct Reported {
    name: String,
    /// The first eight characters of the lease's token.
    token: String,
    outcome: String,
    status: Option<i64>,
    duration: Option<i64>,
}

impl Reported {
    fn read(line: &str) -> Reported {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
        let (name, token, outcome) = (text("name"), text("token_prefix"), text("outcome"));
        Reported { name, token, outcome, status: object["status"].as_i64(), duration: object["duration_ms"].as_i64() }
    }
}

/// Judges the recorded runs after an attack, when nothing runs any more. Returns the violations, and the number of
/// runs.
pub(super) fn judge(place: &Place, history: &[Line]) -> (Vec<String>, usize) {
    let mut log = redlock(&["log", "--format", "json", "-n", "100000"]);
    log.env_clear().envs(place.environment(0)).stdin(Stdio::null());
    let output = log.output().unwrap();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return (vec![format!("the log cannot be read: {}: {said}", output.status)], 0);
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let reported: Vec<Reported> = text.lines().map(Reported::read).collect();
    let mut violations = compare(&reported, history, place.field.durable);
    let objects: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    violations.extend(super::shown::judge(place, &objects));
    (violations, reported.len())
}

/// Compares the runs of the log with the sections. `durable`: no server has forgotten anything.
fn compare(reported: &[Reported], history: &[Line], durable: bool) -> Vec<String> {
    let mut violations = Vec::new();
    let mut sections: BTreeMap<(&str, &str), Vec<&Line>> = BTreeMap::new();
    let is_here = |line: &&Line| line.token.len() >= 32 && !line.lock.starts_with(ALONE);
    for line in history.iter().filter(is_here) {
        sections.entry((&line.lock, &line.token[..8])).or_default().push(line);
    }
    let mut known: BTreeMap<(&str, &str), &Reported> = BTreeMap::new();
    for run in reported {
        let key = (run.name.as_str(), run.token.as_str());
        if known.insert(key, run).is_some() {
            violations.push(format!("log: reported twice: {run:?}"));
        }
        if run.outcome == "running" || run.outcome == "unreadable" {
            violations.push(format!("log: nothing runs any more: {run:?}"));
        }
        if run.outcome == "expired" && run.duration.is_some() {
            violations.push(format!("log: nobody knows when that ended: {run:?}"));
        }
        let Some(lines) = sections.get(&key).filter(|_| run.outcome == "exited") else { continue };
        let (first, last) = (lines[0], lines[lines.len() - 1]);
        if last.event != Event::Leave || last.status.is_some_and(|status| Some(status) != run.status) {
            violations.push(format!("log: {run:?}, but the last of its sections was: {last}"));
        }
        let lasted = (last.at - first.at) / 1_000;
        if run.duration.is_none_or(|reported| reported + CLOCKS < lasted) {
            violations.push(format!("log: {run:?}, but its sections took {lasted} ms"));
        }
    }
    // A grant records the run. So a durable server must know the run of each section, unless the log of the lock is
    // full.
    let is_full = |lock: &str| reported.iter().filter(|run| run.name == lock).count() >= KEPT;
    let forgotten = sections.iter().filter(|(key, _)| durable && !known.contains_key(*key) && !is_full(key.0));
    violations.extend(forgotten.map(|(_, lines)| format!("log: nothing is known of the run of: {}", lines[0])));
    violations
}

mod tests {
    use super::{Reported, compare};
    use crate::chaos::history::Line;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn run(outcome: &str, status: Option<i64>, duration: i64) -> Reported {
        let (name, token) = ("a".to_owned(), TOKEN[..8].to_owned());
        let duration = Some(duration).filter(|_| outcome != "expired");
        Reported { name, token, outcome: outcome.to_owned(), status, duration }
    }

    fn history(leaves: bool) -> Vec<Line> {
        let enter = format!("enter a x - 5 {TOKEN} 10 1000000 - -");
        let leave = format!("leave a x - 5 {TOKEN} 10 2000000 - 7");
        [enter, leave].iter().take(1 + usize::from(leaves)).map(|line| Line::read(line)).collect()
    }

    #[test]
    fn what_is_true_is_acquitted() {
        assert!(compare(&[run("exited", Some(7), 1001)], &history(true), true).is_empty());
        for outcome in ["expired", "lost", "signaled", "too-long", "revoked"] {
            assert!(compare(&[run(outcome, None, 900)], &history(false), true).is_empty(), "{outcome}");
        }
        assert!(compare(&[], &history(true), false).is_empty());
    }

    #[test]
    fn what_is_not_is_found() {
        let wrong = |reported: &[Reported], leaves| compare(reported, &history(leaves), true).len();
        assert_eq!(wrong(&[run("exited", Some(0), 1001)], true), 1, "another status");
        assert_eq!(wrong(&[run("exited", Some(7), 1001)], false), 1, "it did not end");
        assert_eq!(wrong(&[run("exited", Some(7), 500)], true), 1, "it took longer");
        assert_eq!(wrong(&[run("running", None, 1001)], true), 1, "it goes on");
        assert_eq!(wrong(&[run("lost", None, 1001), run("lost", None, 1001)], true), 1, "twice");
        let over = Reported { duration: Some(1001), ..run("expired", None, 1001) };
        assert_eq!(wrong(&[over], false), 1, "its end is not known");
        assert_eq!(wrong(&[], true), 1, "nothing is known");
    }
}
