//! The standard descriptors.

use super::uninterrupted;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::stat::Mode;
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;

/// Replaces these standard descriptors by /dev/null. A descriptor may be a pipe that the job has, too: if this process
/// kept it open, the process at the other end would not notice that the job has closed it. Fails if no descriptor is
/// free, and then replaces none.
pub(crate) fn redirect_to_null(mut descriptors: RangeInclusive<i32>) -> nix::Result<()> {
    let null = nix::fcntl::open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    descriptors.try_for_each(|descriptor| {
        // SAFETY: touches no memory, and nothing owns a standard descriptor.
        uninterrupted(|| Errno::result(unsafe { libc::dup2(null.as_raw_fd(), descriptor) })).map(drop)
    })
}

/// True if this process has a controlling terminal.
pub(crate) fn has_terminal() -> bool {
    let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
    nix::fcntl::open("/dev/tty", flags, Mode::empty()).is_ok()
}
