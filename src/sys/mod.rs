//! The operating system: clock, processes, signals, terminal. All `unsafe` code except C's main. Nothing about locks.
//!
//! Linux only: the code needs signalfd, timerfd, pidfds, child subreapers, parent-death signals and /proc.

pub(crate) mod clock;
pub(crate) mod files;
pub(crate) mod host;
pub(crate) mod inherited;
pub(crate) mod keyboard;
mod memory;
pub(crate) mod packets;
pub(crate) mod process;
pub(crate) mod random;
pub(crate) mod signals;
pub(crate) mod stdio;
pub(crate) mod streams;
pub(crate) mod timer;
pub(crate) mod tree;
pub(crate) mod trust;
pub(crate) mod wait;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};

/// Repeats a call that a signal interrupts: EINTR is no answer to the call.
fn uninterrupted<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}

/// Changes the signal mask of this thread, and returns the mask before. (nix's functions for threads overlook errors.)
pub(crate) fn change_mask(how: SigmaskHow, set: &SigSet) -> nix::Result<SigSet> {
    let mut before = SigSet::empty();
    sigprocmask(how, Some(set), Some(&mut before))?;
    Ok(before)
}
