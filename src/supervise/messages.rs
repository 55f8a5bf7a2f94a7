//! What `run` says on standard error: every wording, and what `--quiet` leaves of it.

use super::renewer::Grant;
use crate::error::{Error, human};
use crate::sys::stdio;
use humantime::format_duration;
use std::time::Duration;

/// Says what happens to one lock.
#[derive(Clone, Debug)]
pub(crate) struct Talk {
    /// The lock's name, quoted.
    name: String,
    quiet: bool,
    verbose: bool,
    patience: Duration,
}

/// What became of a lost lease, as far as one can tell.
#[derive(Clone, Debug)]
pub(super) enum Loss {
    /// What the nodes say: "it was released by force".
    Proven(String),
    /// What the nodes did instead of confirming, and for how long.
    Unconfirmed { faults: String, outage: Duration },
    /// No try to renew it was made: we were stopped, or the machine was asleep.
    Asleep(Duration),
    /// The lease's own thread has failed.
    Fault,
}

impl Talk {
    /// `ttl` is how long a lease lasts: a small part of it may be spent on a message that nobody reads.
    pub(super) fn new(name: &str, ttl: Duration, quiet: bool, verbose: bool) -> Talk {
        let patience = (ttl / 10).min(Duration::from_secs(1));
        Talk { name: format!("{name:?}"), quiet, verbose, patience }
    }

    /// One line on standard error. Failures come here directly; they are said under `--quiet` too.
    fn say(&self, text: &str) {
        stdio::say_within(&format!("redlock: {text}"), self.patience);
    }

    /// News that nobody has to act on.
    fn tell(&self, text: &str) {
        if !self.quiet {
            self.say(text);
        }
    }

    pub(super) fn acquired(&self, grant: &Grant) {
        let Talk { name, .. } = self;
        let Grant { nodes, token, fencing_token, ttl, .. } = grant;
        let lease = format_duration(*ttl);
        self.tell(&format!("acquired {name} on {nodes}, token {token}, fencing token {fencing_token}, lease {lease}"));
    }

    pub(super) fn unconfirmed(&self, faults: &str) {
        if self.verbose {
            self.tell(&format!("cannot renew {} yet: {faults}", self.name));
        }
    }

    /// The lease was lost, and the job stopped; `late` is how long after the end of the lease.
    pub(super) fn lost(&self, loss: &Loss, late: Duration) {
        let job = if late > Duration::ZERO {
            format!("job stopped {} after the lease could expire", human(late))
        } else if matches!(loss, Loss::Proven(_)) {
            "job stopped".to_owned()
        } else {
            "job stopped before the lease could expire".to_owned()
        };
        let advice = match loss {
            Loss::Unconfirmed { .. } => "; a longer --ttl rides out longer outages",
            Loss::Asleep(_) => "; a longer --ttl rides out longer pauses",
            Loss::Proven(_) | Loss::Fault => "",
        };
        self.say(&format!("lost {}: {}; {job}{advice}", self.name, loss.text()));
    }

    /// How much of the lease was left when its job had ended.
    pub(super) fn spare(&self, left: Duration) {
        if self.verbose {
            let left = left.as_millis();
            self.tell(&format!("all of the job of {} ended {left}ms before the lease could expire", self.name));
        }
    }

    /// The lease was lost, and `--on-lost continue` lets the job go on.
    pub(super) fn lost_but_going_on(&self, loss: &Loss) {
        self.say(&format!("lost {}: {}; job goes on without the lock", self.name, loss.text()));
    }

    /// The lock was not ours any more when we gave it up.
    pub(super) fn lost_at_release(&self, error: &Error) {
        let text = error.to_string();
        let lost = format!("lost {}: ", self.name);
        let text = text.strip_prefix(&lost).unwrap_or(&text);
        self.say(&format!("{lost}{text}; the job may have run unprotected"));
    }

    pub(super) fn not_released(&self, error: &Error, left: Duration) {
        // What to do about it is not needed: nothing.
        let error = error.to_string();
        let what = error.split("; ").next().unwrap_or_default();
        self.tell(&format!("cannot release {what}; the lock frees itself in {}", human(left)));
    }

    pub(super) fn too_long(&self, limit: Duration) {
        let limit = format_duration(limit);
        self.tell(&format!("stopped the job of {} after {limit} (--max-run)", self.name));
    }

    pub(super) fn cannot_start(&self, command: &str, reason: &str) {
        self.say(&format!("cannot start {command}: {reason}; released {}", self.name));
    }

    pub(super) fn keeper_gone(&self) {
        self.say(&format!("the process that kept the job of {} is gone; killed the job", self.name));
    }

    pub(super) fn out_of_reach(&self, pids: &[i32]) {
        let name = &self.name;
        match pids {
            [] => {
                self.say(&format!("cannot find all of the job of {name} without a /proc of its own: some may be left"))
            }
            pids => self.say(&format!("not allowed to kill all of the job of {name}: left pid {}", listed(pids))),
        }
    }

    /// SIGKILL was sent a second ago.
    pub(super) fn unkillable(&self, pids: &[i32]) {
        self.say(&format!("waiting for the job of {}: pid {} does not die of SIGKILL", self.name, listed(pids)));
    }
}

/// How many pids a message names.
const NAMED: usize = 8;

fn listed(pids: &[i32]) -> String {
    let named = pids.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match pids.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

impl Loss {
    fn text(&self) -> String {
        match self {
            Loss::Proven(text) => text.clone(),
            Loss::Unconfirmed { faults, outage } => format!("{faults} for {}", human(*outage)),
            Loss::Asleep(time) => {
                format!("not renewed for {}, redlock was stopped or the machine asleep", human(*time))
            }
            Loss::Fault => "a fault in redlock itself".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_say_what_happened() {
        let outage = Duration::from_secs(12);
        let faults = "10.0.0.1:6379 timed out".to_owned();
        assert_eq!(Loss::Unconfirmed { faults, outage }.text(), "10.0.0.1:6379 timed out for 12s");
        assert_eq!(Loss::Proven("it was revoked".to_owned()).text(), "it was revoked");
    }
}
