//! In `run`, the watchdog goes off if the job has to be killed, and the keeper gives no sign, or no further sign, of
//! killing the job. In a guard, the watchdog goes off when SIGTERM is due.

use crate::sys::clock::Boot;
use crate::sys::wait::{look_again, sleep_until};
use std::cell::Cell;
use tokio::sync::Notify;

/// Goes off at its time, unless the time is moved before then.
#[derive(Debug)]
pub(super) struct Watchdog {
    at: Cell<Boot>,
    /// Tells that `at` has moved to an earlier time.
    sooner: Notify,
}

impl Watchdog {
    pub(super) fn new() -> Watchdog {
        Watchdog { at: Cell::new(Boot::NEVER), sooner: Notify::new() }
    }

    /// Moves the time, in either direction.
    pub(super) fn set(&self, at: Boot) {
        if at < self.at.replace(at) {
            self.sooner.notify_one();
        }
    }

    /// After a sign of life from the keeper, puts the time off to `at`. An earlier `at` changes nothing.
    pub(super) fn put_off(&self, at: Boot) {
        self.at.set(self.at.get().max(at));
    }

    /// Returns when the time has passed, and no event that came in time has moved the time.
    pub(super) async fn goes_off(&self) {
        loop {
            tokio::select! {
                biased;
                () = self.sooner.notified() => continue,
                () = sleep_until(self.at.get()) => look_again().await,
            }
            if self.at.get().passed() {
                return;
            }
        }
    }
}
