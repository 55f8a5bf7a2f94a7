//! Signals as data: they are blocked, and read one at a time, each with its origin. [`end_by`] ends this process by a
//! signal.

use super::change_mask;
use super::inherited::{self, was_ignored};
use super::uninterrupted;
use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::{AsFd, BorrowedFd};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignalEvent {
    pub(crate) signal: i32,
    /// True if the kernel sent the signal, for example for Ctrl-C, or when the terminal goes away; false if a process
    /// did. A sender's pid of 0 proves nothing: a process outside this pid namespace has the pid 0, too.
    pub(crate) from_kernel: bool,
}

/// A descriptor that can be polled, and from which blocked signals are read.
#[derive(Debug)]
pub(crate) struct Signals(SignalFd);

impl Signals {
    /// Opens a descriptor for the signals of `set`, which must be blocked in every thread.
    pub(crate) fn open(set: &SigSet) -> nix::Result<Signals> {
        SignalFd::with_flags(set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Signals)
    }

    /// Blocks `set` in this thread and all threads that it starts, and opens a descriptor for `set`.
    pub(crate) fn block(set: &SigSet) -> nix::Result<Signals> {
        change_mask(SigmaskHow::SIG_BLOCK, set)?;
        Signals::open(set)
    }

    /// The next signal, if one is pending. Passes over those by which this process hears of its own failed writes.
    pub(crate) fn next(&self) -> Option<SignalEvent> {
        loop {
            let info = uninterrupted(|| self.0.read_signal()).ok().flatten()?;
            let signal = i32::try_from(info.ssi_signo).ok()?;
            if !(info.ssi_pid == std::process::id() && inherited::is_of_writing(signal)) {
                return Some(SignalEvent { signal, from_kernel: info.ssi_code == libc::SI_KERNEL });
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The signals that are not for others: nobody can catch the first two, the third tells of children, and the last three
/// suspend this process.
const OWN: [i32; 6] = [libc::SIGKILL, libc::SIGSTOP, libc::SIGCHLD, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// All signals that this process can read and pass on. (The C library keeps those below SIGRTMIN for itself.)
pub(crate) fn for_others() -> impl Iterator<Item = i32> {
    (1..32).chain(libc::SIGRTMIN()..=libc::SIGRTMAX()).filter(|signal| !OWN.contains(signal))
}

/// Those of [`for_others`] that ask a waiting program to end.
pub(crate) fn ending() -> impl Iterator<Item = i32> {
    for_others().filter(|&signal| ends(signal))
}

/// True for a signal whose default action ends a process.
pub(crate) fn ends(signal: i32) -> bool {
    ![libc::SIGCONT, libc::SIGURG, libc::SIGWINCH].contains(&signal)
}

/// The set of these signals, except those that were ignored at start: if such a signal were blocked, the signalfd would
/// report it.
pub(crate) fn not_ignored(signals: impl IntoIterator<Item = i32>) -> SigSet {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is initialised first. (nix's sets know no real-time signals.)
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals.into_iter().filter(|&signal| !was_ignored(signal)) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        SigSet::from_sigset_t_unchecked(set.assume_init())
    }
}

/// Runs `action` with SIGTTOU blocked in this thread: under `stty tostop`, writing to the terminal from the background
/// would stop the process.
pub(crate) fn without_ttou<T>(action: impl FnOnce() -> T) -> T {
    let ttou = SigSet::from_iter([Signal::SIGTTOU]);
    let before = change_mask(SigmaskHow::SIG_BLOCK, &ttou);
    let result = action();
    if let Ok(before) = before {
        let _ = change_mask(SigmaskHow::SIG_SETMASK, &before);
    }
    result
}

/// The usual name of a signal: `SIGINT`.
pub(crate) fn name(signal: i32) -> String {
    // Real-time signals have numbers only.
    Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |signal| signal.as_str().to_owned())
}

/// Ends this process by `signal`: the parent then finds the signal in the status. Leaves no core, which would be of no
/// use. Returns if the signal cannot end this process. (No signal ends process 1.)
pub(crate) fn end_by(signal: i32) {
    if nix::unistd::getpid().as_raw() == 1 {
        return;
    }
    // The limit alone is not enough: it does not apply to cores that are piped to a program.
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let _ = prctl::set_dumpable(false);
    // SAFETY: SIG_DFL installs no handler; the set is initialised before it is used; raise touches no memory.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        // raise(3) signals this thread alone. If the whole process got the signal, another thread could take it.
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// Sends `signal` to the process `pid`, or to the group −`pid` if `pid` is negative.
pub(super) fn send(pid: i32, signal: i32) -> nix::Result<()> {
    // SAFETY: touches no memory. (nix's `kill` knows no real-time signals.)
    Errno::result(unsafe { libc::kill(pid, signal) }).map(drop)
}
