//! A timer that wakes a poll at a given time of the boot clock.

use super::clock::Boot;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// A timer that becomes readable at its time, and stays so until it is set again.
#[derive(Debug)]
pub(crate) struct Timer(TimerFd);

impl Timer {
    pub(crate) fn new() -> nix::Result<Timer> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        TimerFd::new(ClockId::CLOCK_BOOTTIME, flags).map(Timer)
    }

    /// Sets the timer to the time `at`. A time that has passed wakes the poll at once; [`Boot::NEVER`] never wakes it.
    /// Fails only in a sandbox: the kernel accepts every time that is not negative.
    pub(crate) fn set(&self, at: Boot) -> nix::Result<()> {
        // Zero would switch the timer off.
        let at = at.since_boot().max(Duration::from_nanos(1));
        let once = Expiration::OneShot(TimeSpec::from_duration(at));
        self.0.set(once, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
