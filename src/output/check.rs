//! What `check` has found: text, JSON, and a line for monitoring plugins.

use super::form::{json, object, value};
use super::hosts::absent;
use super::log::{last_error, led, nagios, on};
use super::{LINE, ms};
use crate::cli::values::LONGEST_NAME;
use crate::lock::{Facts, Finding, Run, RunOutcome, Status};
use crate::sys::clock::local_minute;
use crate::text::{escaped, exact, human, rfc3339, seconds, shell_word};
use std::borrow::Cow;

/// What is wrong with a lock: the findings, and a line for each, or the lock's object in JSON. There may be very many locks,
/// so only what is printed is kept.
pub(crate) struct Verdict {
    pub(crate) name: String,
    pub(crate) findings: Vec<Finding>,
    pub(super) lines: Vec<String>,
}

impl Verdict {
    pub(crate) fn of(status: &Status, facts: &Facts, is_json: bool) -> Verdict {
        let findings = facts.findings();
        let name = escaped(&status.name, LONGEST_NAME);
        let lines: Vec<String> =
            findings.iter().map(|finding| format!("{name}: {}", line(status, facts, finding))).collect();
        if !is_json {
            return Verdict { name: status.name.clone(), findings, lines };
        }
        let Facts { expected, min_hosts, closed_until, .. } = facts;
        let mut json = object(&[
            ("name", value(&status.name)),
            ("finding", value(findings.first().map(Finding::word))),
            ("period_ms", value(expected.map(|expected| ms(expected.period)))),
            ("due_ms", value(expected.map(|expected| ms(expected.due)))),
            ("last_success", value(&status.history.last_success)),
            ("last_run", value(&status.history.last)),
            ("running", value(status.running())),
            ("hosts", value(facts.came())),
            ("min_hosts", value(Some(min_hosts).filter(|least| **least > 0))),
            ("closed_until", value(closed_until.and_then(rfc3339))),
            ("text", value(lines.join("\n"))),
        ]);
        json.shrink_to_fit();
        Verdict { name: status.name.clone(), findings, lines: vec![json] }
    }

    /// The verdict on a lock whose keys cannot be read. `why` names the lock.
    pub(crate) fn unknown(name: String, why: String, is_json: bool) -> Verdict {
        let object = || json(&serde_json::json!({"name": name, "finding": Finding::Unknown.word(), "text": why}));
        let line = if is_json { object() } else { why };
        Verdict { name, findings: vec![Finding::Unknown], lines: vec![line] }
    }
}

/// `check` as text or as JSON, in parts.
pub(crate) fn check(verdicts: &[Verdict], is_json: bool, is_quiet: bool) -> impl Iterator<Item = Cow<'_, str>> {
    let shown = move |line| if is_json { Cow::from(line) } else { Cow::from(escaped(line, LINE) + "\n") };
    let lines = verdicts.iter().flat_map(|verdict| &verdict.lines).map(move |line| shown(line.as_str()));
    let in_order = in_order(verdicts).filter(|_| !is_json && !is_quiet);
    lines.chain(in_order.map(|line| Cow::from(line + "\n")))
}

/// `12 locks in order`; None if none is.
pub(super) fn in_order(verdicts: &[Verdict]) -> Option<String> {
    match verdicts.iter().filter(|verdict| verdict.findings.is_empty()).count() {
        0 => None,
        1 => Some("1 lock in order".to_owned()),
        count => Some(format!("{count} locks in order")),
    }
}

/// The line of a monitoring plugin, with the number of each finding. `nothing`: lines that say of what nothing is known.
/// `away`: the nodes that have not answered.
pub(crate) fn check_nagios(word: &str, verdicts: &[Verdict], nothing: &[String], away: Option<&str>) -> String {
    let lines = verdicts.iter().flat_map(|verdict| &verdict.lines).chain(nothing);
    let mut lines: Vec<String> = lines.map(|line| escaped(line, LINE)).collect();
    lines.extend(in_order(verdicts).filter(|_| lines.is_empty()));
    lines.extend(away.map(str::to_owned));
    let count = |word| verdicts.iter().flat_map(|verdict| &verdict.findings).filter(|one| one.word() == word).count();
    let data = Finding::WORDS.map(|word| format!("{word}={}", count(word)));
    nagios(word, &lines.join("; "), &data)
}

/// What is known, and the next step.
fn line(status: &Status, facts: &Facts, finding: &Finding) -> String {
    let name = shell_word(&status.name);
    let pid = |run: &Run| run.owner.pid.map(|pid| format!("pid {pid}"));
    match *finding {
        Finding::Overdue { each, came, last } => {
            let success =
                status.history.last_success.as_ref().map(|run| format!("{}{}", began(run), led(" ", on(run))));
            let what = match (success, facts.within) {
                (Some(success), Some(_)) => format!("no success within {}, the last {success}", exact(each)),
                (None, Some(_)) => format!("no success within {}, none is known", exact(each)),
                (Some(success), None) => format!("no success since {success}, expected each {}", exact(each)),
                (None, None) => format!("no success is known, expected each {}", exact(each)),
            };
            let last = last.and_then(local_minute);
            match (came, last) {
                (0, last) => {
                    let since = last.unwrap_or_else(|| "then".to_owned());
                    let next = match facts.within {
                        Some(_) => String::new(),
                        None => format!(" Another rhythm: --due D. Gone for good: redlock forget {name}"),
                    };
                    format!(
                        "{what}; no host has come since {since}. Is cron running? Is Redis ready (redlock doctor)?{next}"
                    )
                }
                (came, last) => {
                    format!("{what}; {}{}. redlock log {name} -v", hosts(came), led(", the last ", last))
                }
            }
        }
        Finding::Failed { came } => {
            let how = status.history.last_run.as_ref().map(|run| {
                let why = match run.outcome {
                    RunOutcome::Expired => " (is that host off, or cut off?)".to_owned(),
                    _ => led(": ", last_error(run)),
                };
                format!("failed{} {}, {}{why}", led(" ", on(run)), at(run), run.result())
            });
            let came = if came > 0 { format!("; {}", hosts(came)) } else { String::new() };
            let how = how.unwrap_or_default();
            // A run without the option would not count for the crontab.
            let once = facts.expected.map(|expected| format!(" --once-per {}", human(expected.period)));
            let once = once.unwrap_or_default();
            format!("{how}{came}. redlock log {name} -v; by hand: redlock run {name}{once} -- JOB")
        }
        Finding::Hangs { since, usual } => {
            let run = status.running();
            let who = format!("{}{}", led(" ", run.and_then(on)), led(", ", run.and_then(pid)));
            let usual = led(" ", usual.map(|usual| format!("(usually {})", human(usual))));
            format!("runs for {}{who}{usual}. To end it: redlock stop {name}", seconds(since))
        }
        Finding::Hosts { came, least } => {
            let known = status.history.hosts.as_deref().unwrap_or_default();
            let late = known.iter().zip(&facts.visits).filter(|(_, visit)| !facts.is_lately(visit.at));
            let absent = led("; ", absent(late.map(|(visit, _)| visit)));
            let next = "with this name and this Redis (redlock doctor)? Who came";
            format!(
                "{came} of {least} hosts came{absent}. Is cron running on the others, {next}: redlock status {name} --hosts"
            )
        }
        Finding::Unknown => String::new(),
    }
}

fn hosts(count: usize) -> String {
    if count == 1 { "1 host came".to_owned() } else { format!("{count} hosts came") }
}

fn began(run: &Run) -> String {
    run.began.and_then(local_minute).unwrap_or_default()
}

/// When the run ended: `at 03:41`, or on another day `yesterday 03:41`.
fn at(run: &Run) -> String {
    let time = run.last_known().and_then(local_minute).unwrap_or_default();
    if time.contains(' ') { time } else { format!("at {time}") }
}
