//! Randomness from the kernel.

use nix::errno::Errno;
use nix::libc;
use uuid::{Builder, Uuid};

/// A random UUID. Takes no descriptor, of which there may be none left.
pub(crate) fn uuid() -> Uuid {
    let mut bytes = [0; 16];
    // SAFETY: writes no more than the length of `bytes` into it.
    let length = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match Errno::result(length) {
        Ok(16) => Builder::from_random_bytes(bytes).into_uuid(),
        // A kernel before 3.17, or a signal before there was any randomness.
        _ => Uuid::new_v4(),
    }
}
