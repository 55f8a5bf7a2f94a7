//! What `run` says on standard error: every wording, and what `--quiet` leaves of it.

use crate::error::Error;
use crate::lock::Lease;
use crate::sys::clock::Boot;
use crate::sys::streams;
use crate::text::{escaped, human};
use humantime::format_duration;
use std::time::Duration;

/// Says what happens to one lock.
#[derive(Clone, Debug)]
pub(crate) struct Talk {
    /// The lock's name, quoted.
    name: String,
    quiet: bool,
    verbose: bool,
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
}

impl Talk {
    pub(super) fn new(name: &str, quiet: bool, verbose: bool) -> Talk {
        Talk { name: format!("{name:?}"), quiet, verbose }
    }

    /// One line on standard error. Failures come here directly; they are said under `--quiet` too.
    fn say(&self, text: &str) {
        streams::say(&format!("redlock: {text}"));
    }

    /// News that need no action.
    fn tell(&self, text: &str) {
        if !self.quiet {
            self.say(text);
        }
    }

    pub(super) fn acquired(&self, lease: &Lease, nodes: &str) {
        let Lease { token, fencing_token, ttl, .. } = lease;
        let (name, ttl) = (&self.name, format_duration(*ttl));
        self.tell(&format!("acquired {name} on {nodes}, token {token}, fencing token {fencing_token}, lease {ttl}"));
    }

    /// A try to renew has failed.
    pub(super) fn not_renewed(&self, faults: &str) {
        if self.verbose {
            self.tell(&format!("cannot renew {} yet: {faults}", self.name));
        }
    }

    /// The lease was lost, and the job stopped at `at`.
    pub(super) fn lost(&self, loss: &Loss, at: Boot, valid_until: Boot) {
        let late = at.since(valid_until);
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
            Loss::Proven(_) => "",
        };
        self.say(&format!("lost {}: {}; {job}{advice}", self.name, loss.text()));
        if self.verbose {
            let spare = valid_until.since(at).as_millis();
            self.tell(&format!("all of the job of {} ended {spare}ms before the lease could expire", self.name));
        }
    }

    /// The lease was lost, and `--on-lost continue` lets the job go on.
    pub(super) fn lost_but_going_on(&self, loss: &Loss) {
        self.say(&format!("lost {}: {}; job goes on without the lock", self.name, loss.text()));
    }

    /// The lock was not ours any more when it was released.
    pub(super) fn lost_at_release(&self, what: &str) {
        self.say(&format!("lost {}: {what}; the job may have run unprotected", self.name));
    }

    pub(super) fn not_released(&self, error: &Error, left: Duration) {
        self.tell(&format!("cannot release {}; the lock frees itself in {}", error.bare(), human(left)));
    }

    pub(super) fn too_long(&self, limit: Duration) {
        let limit = format_duration(limit);
        self.say(&format!("stopped the job of {} after {limit} (--max-run)", self.name));
    }

    pub(super) fn cannot_start(&self, command: &str, reason: &str) {
        self.say(&format!("cannot start \"{}\": {reason}; released {}", escaped(command, 200), self.name));
    }

    pub(super) fn keeper_gone(&self) {
        self.say(&format!("the process that kept the job of {} is gone; killed the job", self.name));
    }

    /// SIGKILL was sent a second ago.
    pub(super) fn unkillable(&self, pids: &[i32]) {
        self.say(&format!("waiting for the job of {}: pid {} does not die of SIGKILL", self.name, listed(pids)));
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
}

/// How many pids a message names.
const NAMED: usize = 5;

fn listed(pids: &[i32]) -> String {
    let named: Vec<String> = pids.iter().take(NAMED).map(ToString::to_string).collect();
    match pids.len().saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
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
