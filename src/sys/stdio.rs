//! The standard descriptors.

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd;

/// Replaces standard input and output by /dev/null, so that the other end of a pipe notices when the job closes them.
pub(crate) fn let_go_of_input_and_output() {
    if let Ok(null) = null() {
        let _ = unistd::dup2_stdin(&null);
        let _ = unistd::dup2_stdout(&null);
    }
}

/// Replaces standard error, too.
pub(crate) fn let_go_of_everything() {
    let_go_of_input_and_output();
    if let Ok(null) = null() {
        let _ = unistd::dup2_stderr(&null);
    }
}

fn null() -> nix::Result<std::os::fd::OwnedFd> {
    nix::fcntl::open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
}

/// True if this process has a controlling terminal.
pub(crate) fn has_terminal() -> bool {
    let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
    nix::fcntl::open("/dev/tty", flags, Mode::empty()).is_ok()
}
