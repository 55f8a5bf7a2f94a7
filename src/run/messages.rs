//! The messages of `run`, and which of them `--quiet` leaves.

use super::ending::LastWord;
use super::renewal::{LeaseUser, Loss, Trouble};
use crate::exit::Exit;
use crate::lock::{Lease, Lock};
use crate::output;
use crate::sys::clock::Boot;
use crate::sys::signals;
use crate::text::{escaped, exact, human};
use nix::errno::Errno;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Reports what happens to one lock, or to the job of several.
#[derive(Clone, Debug)]
pub(crate) struct Talk {
    /// The locks' names, quoted.
    name: String,
    quiet: bool,
    verbose: bool,
    /// The first failure to renew the lease, and its time, under `--quiet`. It is reported if the job is stopped because of
    /// it.
    kept: RefCell<Option<(String, Boot)>>,
}

impl Talk {
    pub(super) fn new<'a>(names: impl IntoIterator<Item = &'a str>, quiet: bool, verbose: bool) -> Talk {
        let names: Vec<String> = names.into_iter().map(|name| format!("{name:?}")).collect();
        Talk { name: names.join(" and "), quiet, verbose, kept: RefCell::default() }
    }

    /// Prints one line to standard error. Failures call this directly, since `--quiet` leaves them.
    fn say(&self, text: &str) {
        output::say(text);
    }

    /// Prints news that needs no action.
    fn tell(&self, text: &str) {
        if !self.quiet {
            self.say(text);
        }
    }

    /// Reports the lock as acquired, after this wait in line, if any.
    pub(super) fn acquired(&self, lock: &Lock, lease: &Lease, waited: Option<Duration>) {
        let (nodes, share, waited) =
            (lock.where_it_holds(lease), output::share(lock, lease), output::after_waiting(waited));
        let Lease { token, fencing_token, ttl, .. } = lease;
        let (name, ttl) = (&self.name, exact(*ttl));
        self.tell(&format!(
            "acquired {name} on {nodes}{waited}{share}, token {token}, fencing token {fencing_token}, lease {ttl}"
        ));
    }

    /// Reports with `--verbose` that the lock is free again, and what the run came to.
    pub(super) fn released(&self, lasted: Duration, exit: Exit) {
        let result = match exit {
            Exit::Command(status) => format!(", exit status {status}"),
            Exit::Signal(signal) => format!(", {}", signals::name(signal)),
            _ => String::new(),
        };
        if self.verbose {
            self.tell(&format!("released {} after {}{result}", self.name, human(lasted)));
        }
    }

    /// Reports failing renewals. With `--quiet` only the outcome is reported.
    pub(super) fn trouble(&self, trouble: &Trouble, going_on: bool) {
        match trouble {
            Trouble::Recovery(outage) => {
                self.kept.take();
                self.tell(&format!("renewed {} again after {}", self.name, human(*outage)));
            }
            Trouble::Failure { faults, first: true, .. } if self.quiet => {
                self.kept.replace(Some((faults.join(", "), Boot::now())));
            }
            Trouble::Failure { faults, first, end } if *first || self.verbose => {
                let what = if going_on { "the lease runs out" } else { "the job is stopped" };
                let back = if faults.len() == 1 { "it comes back" } else { "they come back" };
                let (faults, left) = (faults.join(", "), human(end.left()));
                self.tell(&format!("cannot renew {}: {faults}; {what} in {left} unless {back}", self.name));
            }
            Trouble::Failure { .. } => {}
        }
    }

    /// Reports SIGTERM to the job, because the lease is lost or about to be.
    pub(super) fn stopping(&self, loss: &Loss, kill_at: Boot) {
        let is_new = |first: &str| !matches!(loss, Loss::Outage { faults, .. } if faults == first);
        if let Some((faults, at)) = self.kept.take().filter(|(first, _)| is_new(first)) {
            self.say(&format!("cannot renew {}: {faults}, {} ago", self.name, human(at.elapsed())));
        }
        // After that time the job is already dead.
        if !kill_at.passed() {
            let lost = if matches!(loss, Loss::Outage { .. }) { "cannot renew" } else { "lost" };
            let (loss, left) = (text(loss), human(kill_at.left()));
            self.say(&format!("{lost} {}: {loss}; sent SIGTERM to the job, SIGKILL follows in {left}", self.name));
        }
    }

    /// Reports a lost lease where `--on-lost continue` lets the job go on.
    pub(super) fn lost_but_going_on(&self, loss: &Loss) {
        self.say(&format!("lost {}: {}; the job continues without the lock", self.name, text(loss)));
    }

    /// Prints a message at the end of the run. `command` is the one to be started.
    pub(super) fn last_word(&self, word: &LastWord, command: &OsStr, valid_until: Boot) {
        let (name, left) = (&self.name, human(valid_until.left()));
        match word {
            LastWord::Loss { loss, at } => self.loss(loss, *at, valid_until),
            LastWord::LossAtRelease(what) => self.say(&format!("lost {name}: {what}; the job may have run unprotected")),
            LastWord::LateRelease => {
                self.tell(&format!("{name} was not released before its lease ran out; the job had ended in time"));
            }
            LastWord::ReleaseFailure(why) => {
                self.tell(&format!("cannot release {name}: {why}; it will be free in {left}"));
            }
            LastWord::InnerHold => self.tell(&format!(
                "{name} stays locked: a redlock run --reentrant of the job still holds it; if that was killed, it is free in {left}"
            )),
            LastWord::TimeLimit(limit) => {
                self.say(&format!("stopped the job of {name} after {} (--max-run)", exact(*limit)));
            }
            LastWord::StartFailure(errno) => {
                let (command, reason) = (escaped(&command.to_string_lossy(), 200), start_failure(command, *errno));
                self.say(&format!("cannot start \"{command}\": {reason}; released {name}"));
            }
            LastWord::KeeperFailure => {
                self.say(&format!("the keeper process was killed, so the job of {name} was killed too"));
            }
        }
    }

    /// Reports a lost lease; the last process of the job ended at `at`.
    pub(super) fn loss(&self, loss: &Loss, at: Boot, valid_until: Boot) {
        let late = at.since(valid_until);
        let job = match loss {
            _ if late > Duration::ZERO => format!("job stopped {} after the lease could expire", human(late)),
            Loss::Proof(_) | Loss::Release => "job stopped".to_owned(),
            Loss::Outage { .. } | Loss::Sleep(_) if self.verbose => {
                format!("job stopped {}ms before the lease could expire", valid_until.since(at).as_millis())
            }
            Loss::Outage { .. } | Loss::Sleep(_) => "job stopped before the lease could expire".to_owned(),
        };
        let advice = match loss {
            Loss::Outage { .. } => "; a longer --ttl rides out longer outages",
            Loss::Sleep(_) => "; a longer --ttl rides out longer pauses",
            Loss::Proof(_) | Loss::Release => "",
        };
        self.say(&format!("lost {}: {}; {job}{advice}", self.name, text(loss)));
    }

    /// Reports processes that are still there a second after SIGKILL.
    pub(super) fn survivors(&self, pids: &[i32]) {
        self.say(&format!(
            "waiting for the job of {} to end: SIGKILL has not ended pid {} yet",
            self.name,
            listed(pids)
        ));
    }

    pub(super) fn out_of_reach(&self, pids: &[i32]) {
        let (name, pids) = (&self.name, listed(pids));
        self.say(&format!("not allowed to kill every process of the job of {name}: pid {pids} is left"));
    }
}

/// A run that waits for its next lock, and has no job yet.
impl LeaseUser for Talk {
    fn on_moved(&self, _: Boot) {}

    fn on_trouble(&self, trouble: &Trouble) {
        self.trouble(trouble, true);
    }
}

/// The most pids that a message names.
const NAMED: usize = 5;

fn listed(pids: &[i32]) -> String {
    let named: Vec<String> = pids.iter().take(NAMED).map(ToString::to_string).collect();
    match pids.len().saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// The reason for a lost lease.
pub(super) fn text(loss: &Loss) -> String {
    match loss {
        Loss::Proof(text) => text.clone(),
        Loss::Outage { faults, lasted } => format!("{faults} for {}", human(*lasted)),
        Loss::Sleep(time) => {
            format!("not renewed for {}, because redlock was suspended or the machine was asleep", human(*time))
        }
        Loss::Release => "it was released".to_owned(),
    }
}

/// The reason why the command could not be executed.
fn start_failure(command: &OsStr, errno: Errno) -> String {
    let has_path = command.as_bytes().contains(&b'/');
    match errno {
        Errno::ENOENT if has_path && std::fs::exists(command).unwrap_or(false) => {
            "its interpreter was not found".to_owned()
        }
        Errno::ENOENT => "not found".to_owned(),
        errno => errno.desc().to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_say_what_happened() {
        let lasted = Duration::from_secs(12);
        let faults = "10.0.0.1:6379 timed out".to_owned();
        assert_eq!(text(&Loss::Outage { faults, lasted }), "10.0.0.1:6379 timed out for 12s");
        assert_eq!(text(&Loss::Proof("it was revoked".to_owned())), "it was revoked");
    }
}
