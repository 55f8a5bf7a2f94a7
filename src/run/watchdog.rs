//! In `run`, the watchdog goes off if the job has to be killed, but the keeper gives no sign of killing the job. Each
//! sign gives the keeper more time. In a guard, the watchdog goes off when SIGTERM is due.

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

    /// Moves the time to `at` after a sign of life from the keeper. An earlier `at` changes nothing.
    pub(super) fn put_off(&self, at: Boot) {
        self.at.set(self.at.get().max(at));
    }

    /// Returns once the time has passed. First redlock handles the events that came in time: they may move the time.
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
