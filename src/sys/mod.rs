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

/// Repeats a call that a signal interrupts: EINTR is no answer to the call.
fn uninterrupted<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}
