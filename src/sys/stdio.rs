//! Standard input, output and error as descriptors: letting go of them, and writing a line of
//! standard error that cannot hang.

use super::clock::Boot;
use super::signals::without_ttou;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// Puts /dev/null over standard input and output, so that the other end of a pipe sees when whoever
/// still has them closes them.
pub(crate) fn let_go_of_input_and_output() {
    if let Ok(null) = null() {
        let _ = unistd::dup2_stdin(&null);
        let _ = unistd::dup2_stdout(&null);
    }
}

/// The same with standard error.
pub(crate) fn let_go_of_everything() {
    let_go_of_input_and_output();
    if let Ok(null) = null() {
        let _ = unistd::dup2_stderr(&null);
    }
}

fn null() -> nix::Result<std::os::fd::OwnedFd> {
    nix::fcntl::open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
}

/// Whether this process has a controlling terminal.
pub(crate) fn has_terminal() -> bool {
    let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
    nix::fcntl::open("/dev/tty", flags, Mode::empty()).is_ok()
}

/// How long a message may take where nothing is at stake.
const PATIENCE: Duration = Duration::from_secs(1);

/// [`say_within`] a second.
pub(crate) fn say(line: &str) {
    say_within(line, PATIENCE);
}

/// Writes `line` and a line feed to standard error in one piece, or drops it when a full pipe or a
/// stopped terminal does not take it within `patience`: what we do must not depend on somebody reading about it.
pub(crate) fn say_within(line: &str, patience: Duration) {
    let line = format!("{line}\n");
    without_ttou(|| write_within(line.as_bytes(), Boot::now() + patience));
}

fn write_within(line: &[u8], until: Boot) {
    let error = io::stderr();
    let mut rest = line;
    while !rest.is_empty() {
        let mut ready = [PollFd::new(error.as_fd(), PollFlags::POLLOUT)];
        let left = PollTimeout::try_from(until.left()).unwrap_or(PollTimeout::ZERO);
        match poll(&mut ready, left) {
            Ok(0) => return,
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(_) => return,
        }
        match write_now(rest) {
            Ok(written) => rest = &rest[written..],
            // Somebody was quicker to fill the pipe.
            Err(Errno::EAGAIN) if !until.passed() => std::thread::sleep(Duration::from_millis(1)),
            Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

/// Writes what standard error takes without waiting. A pipe or socket that had room a moment ago may have
/// been filled by another process since, and its descriptor cannot be made non-blocking: that would be so for
/// everybody who has it.
fn write_now(bytes: &[u8]) -> nix::Result<usize> {
    let error = io::stderr();
    let kind =
        fstat(&error).map_or(SFlag::empty(), |stat| SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()));
    if kind == SFlag::S_IFIFO || kind == SFlag::S_IFSOCK {
        let piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: `piece` describes `bytes`, which is only read and outlives the call.
        let written = unsafe { libc::pwritev2(2, &raw const piece, 1, -1, libc::RWF_NOWAIT) };
        match Errno::result(written) {
            // A kernel that cannot do this for pipes (before Linux 6.4).
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL | Errno::ESPIPE) => {}
            result => return result.map(|written| usize::try_from(written).unwrap_or(0)),
        }
    }
    unistd::write(&error, bytes)
}
