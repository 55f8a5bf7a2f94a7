//! The messages of `run` and of a guard, and which of them `--quiet` suppresses.

use super::loss::{Loss, Outage};
use crate::error::{Error, NotOurs};
use crate::exit::Exit;
use crate::lock::{Lease, Lock, Unwritten};
use crate::output;
use crate::sys::clock::Boot;
use crate::sys::files;
use crate::sys::process::Handle;
use crate::sys::signals;
use crate::text::{escaped, exact, first_of, human, quoted, reason, safe};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Reports what happens to one lock, or to the job of several locks.
#[derive(Debug)]
pub(crate) struct Messages {
    name: String,
    quiet: bool,
    verbose: bool,
    /// The process whose standard error gets the messages. None: this process.
    audience: Option<Arc<Handle>>,
}

impl Messages {
    pub(super) fn new<'a>(names: impl IntoIterator<Item = &'a str>, quiet: bool, verbose: bool) -> Messages {
        Messages { name: quoted(names, " and "), quiet, verbose, audience: None }
    }

    pub(super) fn to(self, process: Arc<Handle>) -> Messages {
        Messages { audience: Some(process), ..self }
    }

    /// Prints one line about a failure, even with `--quiet`.
    fn say(&self, text: &str) {
        if let Some(process) = &self.audience {
            process.share_errors();
        }
        output::say(text);
    }

    /// Prints one line that needs no action. With `--quiet`, prints nothing.
    fn news(&self, text: &str) {
        if !self.quiet {
            self.say(text);
        }
    }

    /// Reports that redlock has acquired the lock. `waited`: the time in line, if redlock has waited. Even with
    /// `--quiet`, warns that a server may have forgotten a number of `--newest`.
    pub(super) fn acquired(&self, lock: &Lock, lease: &Lease, waited: Option<Duration>) {
        let (acquired, ttl) = (output::acquired(lock, lease, waited), exact(lease.ttl));
        let Lease { token, fencing_token, .. } = lease;
        self.news(&format!("{acquired}, token {token}, fencing token {fencing_token}, lease {ttl}"));
        output::may_have_forgotten(lock, lease).iter().for_each(|why| self.say(why));
    }

    /// With `--verbose`, reports the release of the lease or hold, the run's duration, and the run's end.
    pub(super) fn released(&self, lasted: Duration, exit: Exit) {
        let result = match exit {
            Exit::Command(status) => format!(", exit status {status}"),
            Exit::Signal(signal) => format!(", {}", signals::name(signal)),
            _ => String::new(),
        };
        if self.verbose {
            self.news(&format!("released {} after {}{result}", self.name, human(lasted)));
        }
    }

    pub(super) fn again(&self, reason: &Error) {
        self.news(&format!("{reason}; trying again"));
    }

    /// Reports that a renewal failed with these faults. redlock tries again until `end`. `first`: this is the first
    /// report of the outage (later reports need `--verbose`). `going_on`: redlock stops no job at `end`.
    pub(super) fn failure(&self, faults: &[String], first: bool, end: Boot, going_on: bool) {
        if first || self.verbose {
            let what = if going_on { "the lease runs out" } else { "the job is stopped" };
            let back = if faults.len() == 1 { "the node comes back" } else { "the nodes come back" };
            let (faults, left) = (faults.join(", "), human(end.left()));
            self.news(&format!("cannot renew {}: {faults}; {what} in {left} unless {back}", self.name));
        }
    }

    pub(super) fn recovery(&self, outage: Duration) {
        self.news(&format!("renewed {} again after {}", self.name, human(outage)));
    }

    /// Reports that `signal` was sent to the job, because the lease is lost or will soon be lost.
    pub(super) fn stopping(&self, loss: &Loss, signal: i32, kill_at: Boot) {
        // --quiet has suppressed the report of the outage's first faults. If the latest faults are others, the first
        // ones are reported now.
        if let Loss::Outage(Outage { since, first: Some(first), faults, .. }) = loss
            && self.quiet
            && first != faults
        {
            self.say(&format!("cannot renew {}: {first}, {} ago", self.name, human(since.elapsed())));
        }
        // Once `kill_at` has passed, the job is dead, or being killed.
        if !kill_at.passed() {
            let lost = if matches!(loss, Loss::Outage(_)) { "cannot renew" } else { "lost" };
            let (loss, signal, left) = (text(loss), signals::name(signal), human(kill_at.left()));
            self.say(&format!("{lost} {}: {loss}; sent {signal} to the job, SIGKILL follows in {left}", self.name));
        }
    }

    pub(super) fn lost_but_going_on(&self, loss: &Loss) {
        self.say(&format!("lost {}: {}; the job continues without the lock", self.name, text(loss)));
    }

    /// Reports a lease that was lost at its release, and may have been lost before the job ended.
    pub(super) fn lost_at_release(&self, found: &NotOurs) {
        self.say(&format!("lost {}: {}; the job may have run unprotected", self.name, found.what_became()));
    }

    /// Reports a lease that ran out between the end of the job and the release.
    pub(super) fn late_release(&self) {
        self.news(&format!("{} was not released before its lease ran out; the job had ended in time", self.name));
    }

    /// Reports a release that no quorum has confirmed. `is_once`: the job has succeeded under `--once-per`, and even
    /// `--quiet` does not suppress the report.
    pub(super) fn cannot_release(&self, error: &Error, valid_until: Boot, is_once: bool) {
        let (name, why, left) = (&self.name, error.trouble(), human(valid_until.left()));
        let text = format!("cannot release {name}: {why}; it will be free in {left}");
        match is_once {
            true => self.say(&format!("{text}, and --once-per may let another host run it again")),
            false => self.news(&text),
        }
    }

    /// Reports that the servers could not note the success, or else that the log could not be written.
    pub(super) fn unwritten(&self, unwritten: &Unwritten) {
        if let Some(why) = &unwritten.once {
            self.say(&format!("{} succeeded, but {why}: --once-per may let another host run it again", self.name));
        } else if let Some(why) = &unwritten.log {
            self.say(&format!("the log of {} could not be written: {why}", self.name));
        }
    }

    /// Reports that a `--reentrant` call inside the job still holds the lease.
    pub(super) fn inner_hold(&self, valid_until: Boot) {
        let (name, left) = (&self.name, human(valid_until.left()));
        self.news(&format!(
            "{name} stays locked: a --reentrant call of the job still holds it; if that call is dead, the lock is free in {left}"
        ));
    }

    /// Reports that the log lacks the job's errors, because the file of `--keep-errors` cannot be read.
    pub(super) fn unread_errors(&self, error: &io::Error) {
        let (name, why) = (&self.name, reason(error));
        self.say(&format!(
            "the log of {name} lacks the errors of its job: the file of --keep-errors cannot be read: {why}"
        ));
    }

    /// With `--keep-errors`, reports a run that has not succeeded: cron would mail nothing, since the job's errors are in
    /// this file. `errors`: the lines that the log keeps of them.
    pub(super) fn failed(&self, exit: Exit, host: Option<&str>, (path, file): (&Path, &File), errors: Option<&str>) {
        let (name, host) = (&self.name, safe(host.unwrap_or("?")));
        let (is_standard_error, file) =
            (files::is_standard_error(file), escaped(&path.to_string_lossy(), SHOWN_OF_PATH));
        let what = match exit {
            Exit::Command(status) => format!("{name} failed on {host} with status {status}"),
            Exit::Signal(signal) => format!("{name} was ended on {host} by {}", signals::name(signal)),
            Exit::TOO_LONG => format!("{name} was stopped on {host} by --max-run"),
            Exit::LOST => format!("{name} lost its lease on {host}"),
            _ => format!("{name} ended on {host} without a status"),
        };
        match errors {
            // They are there already.
            _ if is_standard_error => self.say(&what),
            Some(errors) => output::say_with(&format!("{what}; {file} ends:"), errors),
            None => self.say(&format!("{what}; {file} has no errors of it")),
        }
    }

    pub(super) fn time_limit(&self, limit: Duration) {
        self.say(&format!("stopped the job of {} after {} (--max-run)", self.name, exact(limit)));
    }

    /// Reports a keeper that was killed before it reported the end of the job. `started`: the keeper has reported the
    /// start.
    pub(super) fn keeper_failure(&self, started: bool) {
        let or = if started { "had just ended" } else { "had not begun" };
        self.say(&format!("the keeper process of {} was killed: its job was stopped, or {or}", self.name));
    }

    /// Reports a lost lease and the end of its job. `at`: the end of the last process that redlock could kill.
    pub(super) fn loss(&self, loss: &Loss, at: Boot, valid_until: Boot) {
        let (when, advice) = match loss {
            Loss::Proof(_) | Loss::Release => ("", String::new()),
            Loss::Outage(Outage { advice: Some(advice), .. }) => {
                (" before the lease could expire", format!("; {advice}"))
            }
            Loss::Outage(_) => {
                (" before the lease could expire", "; a longer --ttl rides out longer outages".to_owned())
            }
            Loss::Sleep(_) => (" before the lease could expire", "; a longer --ttl rides out longer pauses".to_owned()),
        };
        let when = match at.since(valid_until) {
            Duration::ZERO => when.to_owned(),
            late => format!(" {} after the lease could expire", human(late)),
        };
        self.say(&format!("lost {}: {}; job stopped{when}{advice}", self.name, text(loss)));
    }

    /// Reports processes that still exist a second after the first SIGKILL.
    pub(super) fn survivors(&self, pids: &[i32]) {
        self.say(&format!(
            "waiting for the job of {} to end: SIGKILL has not ended pid {} yet",
            self.name,
            first_of(pids, NAMED, pids.len() as u64)
        ));
    }

    pub(super) fn out_of_reach(&self, pids: &[i32]) {
        let (name, pids) = (&self.name, first_of(pids, NAMED, pids.len() as u64));
        self.say(&format!("cannot kill some processes of the job of {name}; still alive: pid {pids}"));
    }
}

/// A message names at most this many pids.
const NAMED: usize = 5;
/// A message shows this many characters of a path at most.
const SHOWN_OF_PATH: usize = 200;

pub(super) fn text(loss: &Loss) -> String {
    match loss {
        Loss::Proof(text) => text.clone(),
        Loss::Outage(Outage { faults, since, .. }) => format!("{faults} for {}", human(since.elapsed())),
        Loss::Sleep(time) => {
            format!("not renewed for {}, because redlock was suspended or the machine was asleep", human(*time))
        }
        Loss::Release => "it was released".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_say_what_happened() {
        let since = Boot::now() - Duration::from_secs(12);
        let outage = Outage { since, first: None, faults: "10.0.0.1:6379 timed out".to_owned(), advice: None };
        assert_eq!(text(&Loss::Outage(outage)), "10.0.0.1:6379 timed out for 12s");
        assert_eq!(text(&Loss::Proof("it was revoked".to_owned())), "it was revoked");
    }
}
