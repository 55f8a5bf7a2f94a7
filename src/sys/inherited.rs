//! The parts of the initial state that this process changes, and restores for a child: closed standard descriptors,
//! ignored signals, the signal mask.

use super::change_mask;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::stat::Mode;
use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bit 0, 1 or 2 is set if standard input, output or error was closed. Bit 3 is set if SIGPIPE was ignored, bit 4 if
/// SIGXFSZ was ignored.
static AT_START: AtomicU8 = AtomicU8::new(0);

/// The signals by which a write can end this process, each with its bit of [`AT_START`]. They are ignored, so that the
/// write fails instead, for example when the file behind standard error has reached the `ulimit -f`.
const OF_WRITING: [(i32, u8); 2] = [(libc::SIGPIPE, 1 << 3), (libc::SIGXFSZ, 1 << 4)];

/// Records the initial state. Then opens /dev/null for closed standard descriptors and ignores SIGPIPE, as std's
/// start-up code does in other programs. Ignores SIGXFSZ, too.
pub(crate) fn record_start_state() {
    let mut bits = 0;
    for descriptor in 0..3 {
        // SAFETY: F_GETFD touches no memory, and accepts any number.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 && Errno::last() == Errno::EBADF {
            bits |= 1 << descriptor;
            // open(2) takes the lowest free number: `descriptor`.
            let _ = nix::fcntl::open("/dev/null", OFlag::O_RDWR, Mode::empty()).map(IntoRawFd::into_raw_fd);
        }
    }
    for (signal, bit) in OF_WRITING {
        if is_ignored(signal) {
            bits |= bit;
        }
        // SAFETY: SIG_IGN installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
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

/// True if standard input (0), output (1) or error (2) was closed when this process started.
pub(crate) fn was_closed(descriptor: u8) -> bool {
    AT_START.load(Ordering::Relaxed) & (1 << descriptor) != 0
}

/// True for a signal by which a process hears of its own failed writes.
pub(super) fn is_of_writing(signal: i32) -> bool {
    OF_WRITING.iter().any(|&(one, _)| one == signal)
}

/// True if this process ignored the signal when it started. (Since then it ignores those of writing in any case.)
pub(crate) fn was_ignored(signal: i32) -> bool {
    match OF_WRITING.iter().find(|&&(one, _)| one == signal) {
        Some((_, bit)) => AT_START.load(Ordering::Relaxed) & bit != 0,
        None => is_ignored(signal),
    }
}

pub(crate) fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null pointer means that nothing is set, and `action` is large enough for the answer.
    let answer = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all zeroes are a valid sigaction, so `action` is valid even if the call has failed.
    answer == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Ignores the signal, or restores its default action.
pub(super) fn dispose(signal: i32, is_ignored: bool) -> nix::Result<()> {
    // SAFETY: neither disposition installs a handler.
    let before = unsafe { libc::signal(signal, if is_ignored { libc::SIG_IGN } else { libc::SIG_DFL }) };
    if before == libc::SIG_ERR { Err(Errno::last()) } else { Ok(()) }
}

/// The state that a child must get back before exec.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inheritance {
    mask: SigSet,
    sigchld_ignored: bool,
}

impl Inheritance {
    /// Records the state, blocks `signals`, and makes sure that children can be waited for.
    pub(crate) fn take_over(signals: &SigSet) -> nix::Result<Inheritance> {
        let sigchld_ignored = is_ignored(libc::SIGCHLD);
        if sigchld_ignored {
            // With SIGCHLD ignored, the kernel would discard the children's statuses.
            dispose(libc::SIGCHLD, false)?;
        }
        Ok(Inheritance { mask: change_mask(SigmaskHow::SIG_BLOCK, signals)?, sigchld_ignored })
    }

    /// Restores the state. Allocates nothing, because a child calls this between fork and exec.
    pub(super) fn restore(&self) -> nix::Result<()> {
        for descriptor in 0..3_u8 {
            if was_closed(descriptor) {
                // SAFETY: this descriptor is the /dev/null that was opened in place of a closed one.
                Errno::result(unsafe { libc::close(i32::from(descriptor)) })?;
            }
        }
        let at_start = AT_START.load(Ordering::Relaxed);
        let of_writing = OF_WRITING.map(|(signal, bit)| (signal, at_start & bit != 0));
        for (signal, was_ignored) in of_writing.into_iter().chain([(libc::SIGCHLD, self.sigchld_ignored)]) {
            dispose(signal, was_ignored)?;
        }
        change_mask(SigmaskHow::SIG_SETMASK, &self.mask).map(drop)
    }
}
