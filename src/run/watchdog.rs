//! The moment at which the keeper must have begun to kill the job of a lease that was not renewed.

use crate::sys::clock::Boot;
use crate::sys::wait::sleep_until;
use std::cell::Cell;
use tokio::sync::Notify;

/// Goes off when the keeper is late.
#[derive(Debug)]
pub(super) struct Watchdog {
    at: Cell<Boot>,
    /// Notified when `at` comes earlier than it did.
    sooner: Notify,
}

impl Watchdog {
    pub(super) fn new() -> Watchdog {
        Watchdog { at: Cell::new(Boot::NEVER), sooner: Notify::new() }
    }

    /// Moves the moment, in either direction.
    pub(super) fn set(&self, at: Boot) {
        if at < self.at.replace(at) {
            self.sooner.notify_one();
        }
    }

    /// The keeper is at work: it is not late before that.
    pub(super) fn put_off(&self, at: Boot) {
        self.at.set(self.at.get().max(at));
    }

    /// Comes back when the moment has passed.
    pub(super) async fn goes_off(&self) {
        while !self.at.get().passed() {
            tokio::select! {
                () = sleep_until(self.at.get()) => {}
                () = self.sooner.notified() => {}
            }
        }
    }
}
