//! The time by which the keeper must have begun to kill the job, if the lease was not renewed.

use crate::sys::clock::Boot;
use crate::sys::wait::{look_again, sleep_until};
use std::cell::Cell;
use tokio::sync::Notify;

/// Goes off when the keeper is late.
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

    /// Puts the time off to `at`, unless `at` is earlier: the keeper has given a sign of life.
    pub(super) fn put_off(&self, at: Boot) {
        self.at.set(self.at.get().max(at));
    }

    /// Returns when the time has passed, and no event that came in time has put it off.
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
