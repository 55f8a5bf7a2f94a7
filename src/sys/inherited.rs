//! What this process was started with, as far as it is changed here: closed standard descriptors, ignored signals, the signal
//! mask. A child gets it back.

use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::stat::Mode;
use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bits 0 to 2: standard input, output or error was closed; bit 3: SIGPIPE was ignored.
static AT_START: AtomicU8 = AtomicU8::new(0);
const SIGPIPE_IGNORED: u8 = 1 << 3;

/// Notes how this process was started, and does what std's start-up code would do, which notes nothing: opens /dev/null in the
/// place of closed standard descriptors, and ignores SIGPIPE.
pub(crate) fn take_note() {
    let mut bits = 0;
    for descriptor in 0..3 {
        // SAFETY: F_GETFD touches no memory, and any number may be asked about.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            bits |= 1 << descriptor;
            // The kernel gives the lowest number that is free, which is this one.
            let _ = nix::fcntl::open("/dev/null", OFlag::O_RDWR, Mode::empty()).map(IntoRawFd::into_raw_fd);
        }
    }
    if is_ignored(libc::SIGPIPE) {
        bits |= SIGPIPE_IGNORED;
    }
    // SAFETY: SIG_IGN installs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    AT_START.store(bits, Ordering::Relaxed);
}

/// The arguments as C's main gets them.
///
/// # Safety
/// `argv` must point to `argc` C strings that live as long as the process.
pub(crate) unsafe fn arguments(argc: libc::c_int, argv: *const *const libc::c_char) -> Vec<OsString> {
    let count = usize::try_from(argc).unwrap_or(0);
    // SAFETY: the caller's promise.
    let words = (0..count).map(|at| unsafe { CStr::from_ptr(*argv.add(at)) });
    words.map(|word| OsStr::from_bytes(word.to_bytes()).to_owned()).collect()
}

/// Whether standard input (0), output (1) or error (2) was closed when this process started.
pub(crate) fn was_closed(descriptor: u8) -> bool {
    AT_START.load(Ordering::Relaxed) & (1 << descriptor) != 0
}

/// Whether SIGPIPE was ignored when this process started; it always is by now.
pub(crate) fn was_sigpipe_ignored() -> bool {
    AT_START.load(Ordering::Relaxed) & SIGPIPE_IGNORED != 0
}

/// Whether this process ignores the signal now.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null pointer asks without setting, and `action` is large enough for the answer.
    let answer = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all zeroes are a valid sigaction, answered or not.
    answer == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// What a child of ours must get back before it becomes another program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inherited {
    mask: SigSet,
    sigchld_ignored: bool,
}

impl Inherited {
    /// Notes what was inherited, blocks `signals`, and sees to it that children can be waited for.
    pub(crate) fn take_over(signals: &SigSet) -> nix::Result<Inherited> {
        let sigchld_ignored = is_ignored(libc::SIGCHLD);
        if sigchld_ignored {
            // Else the kernel would throw away how our children end.
            // SAFETY: SIG_DFL installs no handler.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        }
        Ok(Inherited { mask: signals.thread_swap_mask(SigmaskHow::SIG_BLOCK)?, sigchld_ignored })
    }

    /// Gives everything back. Allocates nothing: for a child between fork and exec.
    pub(super) fn restore(&self) {
        for descriptor in 0..3_u8 {
            if was_closed(descriptor) {
                // SAFETY: closes what std opened in place of what the user had closed.
                unsafe { libc::close(i32::from(descriptor)) };
            }
        }
        let disposition = |ignored| {
            if ignored { libc::SIG_IGN } else { libc::SIG_DFL }
        };
        // SAFETY: neither disposition installs a handler.
        unsafe {
            libc::signal(libc::SIGPIPE, disposition(was_sigpipe_ignored()));
            libc::signal(libc::SIGCHLD, disposition(self.sigchld_ignored));
        }
        // Cannot fail: the mask came from the kernel.
        let _ = self.mask.thread_set_mask();
    }
}
