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
pub(crate) fn closed(name: &str, time: Duration) -> String {
    format!("{name:?} is {}", until(name, unix_time() + time))
}

fn until(name: &str, at: Duration) -> String {
    let at = local_minute(at).unwrap_or_else(|| "?".to_owned());
    format!("closed until {at} (redlock stop {} --for 0 opens it)", shell_word(name))
}

/// The warnings about jobs that may still run, since nobody has released their leases.
pub(crate) fn left_running(name: &str, stopped: &Stopped) -> Vec<String> {
    let warning = |holder: &Holder| {
        format!(
            "{name:?}: the lease of {holder} ran out, and nobody released it: the job may still run, with --on-lost continue \
             or where that host is cut off"
        )
    };
    stopped.ran_out.iter().map(warning).collect()
}

/// The result of `redlock stop`. `opened`: the call has opened the lock.
pub(crate) fn stopped(name: &str, stopped: &Stopped, opened: bool, is_json: bool) -> String {
    let Stopped { over, ran_out, took, now } = stopped;
    let host = |holder: &Holder| holder.owner.host.as_deref().map_or_else(|| holder.to_string(), safe);
    let hosts = |holders: &[Holder]| first_of(holders.iter().map(host), NAMED, holders.len() as u64);
    let is_closed = now.closed_until.is_some();
    let (outcome, text) = match (over.is_empty(), ran_out.is_empty()) {
        _ if opened => ("opened", format!("opened {name:?}; {}", what_now(name, now, &host, false))),
        (true, true) if is_closed => ("closed", format!("{name:?} is {}", what_now(name, now, &host, false))),
        (true, true) => ("free", format!("{name:?} is free")),
        (false, true) => {
            let who = format!("stopped {name:?} of {} after {}", hosts(over), human(*took));
            ("stopped", format!("{who}; {}", what_now(name, now, &host, true)))
        }
        (_, false) => {
            let who = format!("the lease of {} on {name:?} ran out after {}", hosts(ran_out), human(*took));
            ("ran-out", format!("{who}; {}", what_now(name, now, &host, true)))
        }
    };
    if !is_json {
        return super::line(&text) + "\n";
    }
    object(&[
        ("name", value(name)),
        ("outcome", value(outcome)),
        ("took_ms", value(ms(*took))),
        ("stopped", value(over)),
        ("ran_out", value(ran_out)),
        ("now", value(now)),
    ])
}

/// Who has the lock now, and how many wait: `web-2 has it now, 27 wait (to keep it closed: …)`.
fn what_now(name: &str, now: &Status, host: &dyn Fn(&Holder) -> String, can_close: bool) -> String {
    let waiting = now.waiting.filter(|&waiting| waiting > 0);
    let waiting = waiting.map_or_else(String::new, |waiting| format!(", {waiting} wait"));
    if let Some(at) = now.closed_until {
        return until(name, at) + &waiting;
    }
    let verb = if now.holder_count > 1 { "have" } else { "has" };
    let who = match now.holders() {
        [] => "it is free".to_owned(),
        holders => format!("{} {verb} it now", first_of(holders.iter().map(host), NAMED, now.holder_count)),
    };
    let hint = match can_close {
        true => format!(" (to keep it closed: redlock stop {} --for 2h)", shell_word(name)),
        false => String::new(),
    };
    who + &waiting + &hint
}
