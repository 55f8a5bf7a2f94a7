//! What `redlock stop` says.

use super::form::{object, value};
use super::{ms, renewal_news};
use crate::lock::{Holder, Status, Stopped};
use crate::sys::clock::{local_minute, unix_time};
use crate::text::{first_of, human, safe, shell_word};
use std::time::Duration;

/// A message names this many holders at most.
const NAMED: usize = 10;

/// The holders that were asked: `root@web-1, pid 4711 (backup.sh), to stop "backup": over in 25s at the latest`.
pub(crate) fn asked(name: &str, holders: &[Holder], left: Option<Duration>) -> String {
    let left = left.map_or_else(String::new, |left| format!(": over in {} at the latest", human(left)));
    let late = holders.iter().find_map(|holder| renewal_news(name, holder)).filter(|_| holders.len() == 1);
    let late = late.map_or_else(String::new, |late| format!("; {late}"));
    format!("{} to stop {name:?}{left}{late}", first_of(holders, NAMED, holders.len() as u64))
}

/// `"backup" is closed until 05:12 (redlock stop backup --for 0 opens it)`
pub(crate) fn closed(name: &str, verb: &str, time: Duration) -> String {
    format!("{name:?} {verb} {}", until(name, unix_time() + time))
}

fn until(name: &str, at: Duration) -> String {
    let at = local_minute(at).unwrap_or_else(|| "?".to_owned());
    format!("closed until {at} (redlock stop {} --for 0 opens it)", shell_word(name))
}

/// The result of `redlock stop`. `opened`: the call has opened the lock.
pub(crate) fn stopped(name: &str, stopped: &Stopped, opened: bool) -> String {
    let Stopped { over, ran_out, took, now, was_closed, .. } = stopped;
    let mut said = Vec::new();
    if opened {
        said.push(if *was_closed { format!("opened {name:?}") } else { format!("{name:?} was not closed") });
    }
    if !over.is_empty() {
        said.push(format!("stopped {name:?} of {} after {}", hosts(over, over.len() as u64), human(*took)));
    }
    if !ran_out.is_empty() {
        let who = first_of(ran_out, NAMED, ran_out.len() as u64);
        let still = "the job may still run, with --on-lost continue or where that host is cut off";
        said.push(format!("{name:?}: the lease of {who} ran out, and nobody released it: {still}"));
    }
    match now.closed_until {
        _ if !said.is_empty() => said.push(what_now(name, now, !opened)),
        Some(at) => said.push(format!("{name:?} is {}{}", until(name, at), waiting(now))),
        None => said.push(format!("{name:?} is free")),
    }
    said.join("; ")
}

pub(crate) fn stopped_json(name: &str, stopped: &Stopped, opened: bool) -> String {
    let Stopped { over, ran_out, unasked, took, now, .. } = stopped;
    let outcome = match () {
        () if opened => "opened",
        () if !ran_out.is_empty() => "ran-out",
        () if !over.is_empty() => "stopped",
        () if now.closed_until.is_some() => "closed",
        () => "free",
    };
    object(&[
        ("name", value(name)),
        ("outcome", value(outcome)),
        ("took_ms", value(ms(*took))),
        ("stopped", value(over)),
        ("ran_out", value(ran_out)),
        ("unasked", value(unasked)),
        ("now", value(now)),
    ])
}

/// The first hosts of these holders: `web-1, web-2 and 3 more`.
fn hosts(holders: &[Holder], all: u64) -> String {
    let host = |holder: &Holder| holder.owner.host.as_deref().map_or_else(|| holder.to_string(), safe);
    first_of(holders.iter().map(host), NAMED, all)
}

fn waiting(now: &Status) -> String {
    now.waiting.filter(|&waiting| waiting > 0).map_or_else(String::new, |waiting| format!(", {waiting} wait"))
}

/// Who holds the lock now, and how many wait: `web-2 has it now, 27 wait (to keep it closed: …)`.
fn what_now(name: &str, now: &Status, can_close: bool) -> String {
    let verb = if now.holder_count > 1 { "have" } else { "has" };
    let (who, can_close) = match (now.closed_until, now.holders()) {
        (Some(at), _) => (until(name, at), false),
        (None, []) => ("it is free".to_owned(), can_close),
        (None, holders) => (format!("{} {verb} it now", hosts(holders, now.holder_count)), can_close),
    };
    let hint = format!(" (to keep it closed: redlock stop {} --for 2h)", shell_word(name));
    format!("{who}{}{}", waiting(now), if can_close { &hint } else { "" })
}
