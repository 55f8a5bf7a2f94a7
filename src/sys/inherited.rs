//! What this process was started with, as far as Rust's start-up code or we ourselves change it:
//! the signal mask, ignored signals, closed standard descriptors. A child gets it back.

use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow};
use std::sync::atomic::{AtomicU8, Ordering};

/// Bits 0 to 2: standard input, output or error was closed; bit 3: SIGPIPE was ignored.
static AT_START: AtomicU8 = AtomicU8::new(0);
const SIGPIPE_IGNORED: u8 = 1 << 3;

/// Runs before `main`, and before std's start-up code, which opens /dev/null over closed standard
/// descriptors and ignores SIGPIPE, so that nobody could tell afterwards.
#[used]
#[unsafe(link_section = ".init_array")]
static READ_AT_START: extern "C" fn() = read_at_start;

extern "C" fn read_at_start() {
    let mut bits = 0;
    for descriptor in 0..3 {
        // SAFETY: F_GETFD touches no memory, and any number may be asked about.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            bits |= 1 << descriptor;
        }
    }
    if is_ignored(libc::SIGPIPE) {
        bits |= SIGPIPE_IGNORED;
    }
    AT_START.store(bits, Ordering::Relaxed);
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
    sigpipe_ignored: bool,
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
        Ok(Inherited {
            mask: signals.thread_swap_mask(SigmaskHow::SIG_BLOCK)?,
            sigpipe_ignored: was_sigpipe_ignored(),
            sigchld_ignored,
        })
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
            libc::signal(libc::SIGPIPE, disposition(self.sigpipe_ignored));
            libc::signal(libc::SIGCHLD, disposition(self.sigchld_ignored));
        }
        // Cannot fail: the mask came from the kernel.
        let _ = self.mask.thread_set_mask();
    }
}
