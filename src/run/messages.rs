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

    /// A try to renew has failed, the first one in a row or another; `end` is when the job is stopped or the lease runs out.
    /// Under `--quiet` only what comes of it is said.
    pub(super) fn not_renewed(&self, faults: &[String], first: bool, going_on: bool, end: Boot) {
        if first || self.verbose {
            let what = if going_on { "the lease runs out" } else { "the job is stopped" };
            let back = if faults.len() == 1 { "it comes back" } else { "they come back" };
            let (faults, left) = (faults.join(", "), human(end.left()));
            self.tell(&format!("cannot renew {}: {faults}; {what} in {left} unless {back}", self.name));
        }
    }

    pub(super) fn renewed_again(&self, outage: Duration) {
        self.tell(&format!("renewed {} again after {}", self.name, human(outage)));
    }

    /// The job has been sent SIGTERM, since the lease is lost or about to be.
    pub(super) fn stopping(&self, loss: &Loss, kill_at: Boot) {
        // Otherwise that is over before it could be said.
        if !kill_at.passed() {
            let lost = if matches!(loss, Loss::Unconfirmed { .. }) { "cannot renew" } else { "lost" };
            let (loss, left) = (loss.text(), human(kill_at.left()));
            self.say(&format!("{lost} {}: {loss}; sent SIGTERM to the job, SIGKILL follows in {left}", self.name));
        }
    }

    /// The lease was lost, and the job stopped at `at`.
    pub(super) fn lost(&self, loss: &Loss, at: Boot, valid_until: Boot) {
        let late = at.since(valid_until);
        let job = match loss {
            _ if late > Duration::ZERO => format!("job stopped {} after the lease could expire", human(late)),
            Loss::Proven(_) => "job stopped".to_owned(),
            Loss::Unconfirmed { .. } | Loss::Asleep(_) if self.verbose => {
                format!("job stopped {}ms before the lease could expire", valid_until.since(at).as_millis())
            }
            Loss::Unconfirmed { .. } | Loss::Asleep(_) => "job stopped before the lease could expire".to_owned(),
        };
        let advice = match loss {
            Loss::Unconfirmed { .. } => "; a longer --ttl rides out longer outages",
            Loss::Asleep(_) => "; a longer --ttl rides out longer pauses",
            Loss::Proven(_) => "",
        };
        self.say(&format!("lost {}: {}; {job}{advice}", self.name, loss.text()));
    }

    /// The lease was lost, and `--on-lost continue` lets the job go on.
    pub(super) fn lost_but_going_on(&self, loss: &Loss) {
        self.say(&format!("lost {}: {}; the job goes on without the lock", self.name, loss.text()));
    }

    /// The lease was gone when it was to be released, though it should have lasted.
    pub(super) fn lost_at_release(&self, what: &str) {
        self.say(&format!("lost {}: {what}; the job may have run unprotected", self.name));
    }

    /// The lease ran out between the end of the job and its release.
    pub(super) fn ran_out(&self) {
        self.tell(&format!("{} was not released before its lease ran out; the job had ended in time", self.name));
    }

    pub(super) fn not_released(&self, error: &Error, left: Duration) {
        let (name, why, left) = (&self.name, error.trouble(), human(left));
        self.tell(&format!("cannot release {name}: {why}; it will be free in {left}"));
    }

    pub(super) fn too_long(&self, limit: Duration) {
        let limit = format_duration(limit);
        self.say(&format!("stopped the job of {} after {limit} (--max-run)", self.name));
    }

    pub(super) fn cannot_start(&self, command: &str, reason: &str) {
        self.say(&format!("cannot start \"{}\": {reason}; released {}", escaped(command, 200), self.name));
    }

    pub(super) fn keeper_gone(&self) {
        self.say(&format!("the keeper, the parent of the job of {}, was killed; killed the job", self.name));
    }

    /// SIGKILL was sent a second ago.
    pub(super) fn unkillable(&self, pids: &[i32]) {
        self.say(&format!(
            "waiting for the job of {} to end: SIGKILL has not ended pid {} yet",
            self.name,
            listed(pids)
        ));
    }

    pub(super) fn out_of_reach(&self, pids: &[i32]) {
        let name = &self.name;
        match pids {
            [] => self.say(&format!(
                "cannot find every process of the job of {name}: /proc is missing or another pid namespace's"
            )),
            pids => self
                .say(&format!("not allowed to kill every process of the job of {name}: pid {} is left", listed(pids))),
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
                format!("not renewed for {}, because redlock was suspended or the machine was asleep", human(*time))
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
