//! Starting processes and learning how they ended.

use super::inherited::Inherited;
use super::signals::send;
use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{self, ForkResult, Pid};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A program to start, with everything that needs memory made ready beforehand.
#[derive(Debug)]
pub(crate) struct Program {
    arguments: Vec<CString>,
    environment: Vec<CString>,
    inherited: Inherited,
}

/// What a look at our children found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reaped {
    /// This child has ended, with this status word of wait(2).
    One(i32, i32),
    /// All children live.
    Nobody,
    /// There are no children.
    Childless,
}

/// Takes in one child that has ended, without waiting.
pub(crate) fn reap() -> Reaped {
    let mut status = 0;
    // SAFETY: `status` outlives the call. Not nix's `waitpid`: it knows no real-time signals.
    match Errno::result(unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) }) {
        Ok(0) => Reaped::Nobody,
        Ok(pid) => Reaped::One(pid, status),
        Err(_) => Reaped::Childless,
    }
}

/// Whether there is a child of this process in that group, ended or not.
pub(crate) fn has_children_in(group: i32) -> bool {
    is_waited_for(libc::P_PGID, group)
}

/// Whether waitid(2) knows such a child; leaves it to be reaped.
fn is_waited_for(kind: libc::idtype_t, id: i32) -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: a null pointer asks for no answer but the status.
    id > 0 && unsafe { libc::waitid(kind, id.unsigned_abs(), std::ptr::null_mut(), flags) } == 0
}

/// Waits until this child has ended.
fn wait_for(pid: i32) {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    while Errno::result(unsafe { libc::waitpid(pid, &raw mut status, 0) }) == Err(Errno::EINTR) {}
}

/// Sends `signal` to a child; not to a stranger who has the pid of one that has been reaped.
pub(crate) fn signal_child(pid: i32, signal: i32) {
    if is_waited_for(libc::P_PID, pid) {
        let _ = send(pid, signal);
    }
}

/// Makes this process the parent of every descendant that loses its own.
pub(crate) fn adopt_orphans() {
    // Cannot fail: every kernel that has pidfds has this.
    let _ = prctl::set_child_subreaper(true);
}

/// Runs `body` in a forked process, and ends that process after it. Returns its pid.
///
/// # Errors
/// The kernel's, when it has no room for another process.
pub(crate) fn fork_helper(name: &CStr, body: impl FnOnce()) -> nix::Result<i32> {
    // SAFETY: this process has a single thread, so the copy of it may do anything that it may.
    match unsafe { unistd::fork() }? {
        ForkResult::Parent { child } => Ok(child.as_raw()),
        ForkResult::Child => {
            let _ = prctl::set_name(name);
            // A panic must not unwind into what the parent was doing.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            // SAFETY: ends the process without running what the parent registered for its own exit.
            unsafe { libc::_exit(0) }
        }
    }
}

/// Starts a program that is to outlive this process and whatever ends it: in a session of its own, without any descriptor but
/// the three that `command` gives it, and as a child of whoever takes in the orphans above this process, even where this
/// process is a subreaper.
///
/// # Errors
/// Why it could not be executed.
pub(crate) fn start_detached(command: &mut Command) -> io::Result<()> {
    let listed = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<i32> = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let disown = move || {
        unistd::setsid()?;
        for &descriptor in open.iter().filter(|&&descriptor| descriptor > 2) {
            // SAFETY: touches no memory. Closed at exec only: one of them reports that it failed.
            unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        // SAFETY: SIG_DFL installs no handler. The program is to learn of the ends of its children.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        // SAFETY: between fork and exec there is a single thread, and each side makes nothing but system calls.
        match unsafe { unistd::fork() }? {
            // SAFETY: ends the process without running anything of its parent's.
            ForkResult::Parent { .. } => unsafe { libc::_exit(0) },
            ForkResult::Child => Ok(()),
        }
    };
    // SAFETY: `disown` makes nothing but system calls.
    unsafe { command.pre_exec(disown) };
    // For a millisecond, in which a keeper would have to be killed for an orphan of the job to get away.
    let adopts = prctl::get_child_subreaper().unwrap_or(false);
    let _ = prctl::set_child_subreaper(false);
    // The process in between, which ends at once. Where SIGCHLD is ignored it cannot be waited for, and need not be.
    let started = command.spawn().map(|mut between| drop(between.wait()));
    let _ = prctl::set_child_subreaper(adopts);
    started
}

impl Program {
    /// Prepares `command` with `environment`.
    pub(crate) fn new(
        command: &[OsString],
        environment: impl Iterator<Item = (OsString, OsString)>,
        inherited: Inherited,
    ) -> Program {
        Program {
            arguments: command.iter().map(|word| c_string(word.as_bytes())).collect(),
            environment: environment.map(|(name, value)| variable(&name, &value)).collect(),
            inherited,
        }
    }

    /// Sets one variable of the environment.
    pub(crate) fn set(&mut self, name: &OsStr, value: &OsStr) {
        let line = variable(name, value);
        let to_equals = name.len() + 1;
        let start = &line.as_bytes()[..to_equals];
        self.environment.retain(|old| !old.as_bytes().starts_with(start));
        self.environment.push(line);
    }

    /// Starts the program, and puts this process, all of whose signals must be blocked, into a process group of its own. The
    /// program stays in the group that this process leaves, or `apart` gets its own too. It is killed when this process,
    /// which must have a single thread, ends. Returns its pid, which is valid until it is reaped.
    ///
    /// # Errors
    /// Why it could not be executed: ENOENT and the like.
    pub(crate) fn start(&self, apart: bool) -> nix::Result<i32> {
        let pointers = |lines: &[CString]| {
            let end = std::iter::once(std::ptr::null());
            let all = lines.iter().map(|line| line.as_ptr()).chain(end);
            all.collect::<Vec<_>>()
        };
        let (arguments, environment) = (pointers(&self.arguments), pointers(&self.environment));
        // execvpe keeps a path, and for a script without #! another array of arguments, on it.
        let path = std::env::var_os("PATH").map_or(0, |path| path.len());
        let words = 8 * 1024 + arguments.len() + path;
        let mut stack: Vec<u128> = Vec::with_capacity(words);
        let mut birth = Birth {
            arguments: arguments.as_ptr(),
            environment: environment.as_ptr(),
            inherited: self.inherited,
            apart,
            typed: if apart { SigSet::empty() } else { typed::catch() },
            parent: unistd::getpid(),
            errno: 0,
        };
        // What comes from here on is noted, or the child's own.
        let _ = birth.typed.thread_unblock();
        // Like vfork, so that memory need not be copied first: the child borrows it, on a stack of its own, until it
        // executes or exits, and only then this process is continued.
        // SAFETY: the end of the stack is aligned and the stack large enough; all that `birth` points to outlives
        // the child's use of it; this process has a single thread, which stands still.
        let born = Errno::result(unsafe {
            libc::clone(
                Birth::give,
                stack.as_mut_ptr().add(words).cast(),
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                (&raw mut birth).cast(),
            )
        });
        let _ = SigSet::all().thread_set_mask();
        let _ = unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0));
        let pid = born?;
        // SAFETY: the child wrote to it while this process stood still; the compiler is not to know better.
        match unsafe { (&raw const birth.errno).read_volatile() } {
            // Nothing, too, if a signal came before it could execute: reaping it will show.
            0 => Ok(pid),
            errno => {
                wait_for(pid);
                Err(Errno::from_raw(errno))
            }
        }
    }
}

/// What a child needs between its birth and its exec.
struct Birth {
    arguments: *const *const libc::c_char,
    environment: *const *const libc::c_char,
    inherited: Inherited,
    apart: bool,
    /// What [`typed`] catches.
    typed: SigSet,
    parent: Pid,
    /// Why it could not execute.
    errno: i32,
}

impl Birth {
    /// The child's life before exec: only system calls, on memory that was made ready.
    extern "C" fn give(birth: *mut libc::c_void) -> i32 {
        let _ = SigSet::all().thread_set_mask();
        // SAFETY: the parent passes a `Birth`, and stands still.
        let birth = unsafe { &mut *birth.cast::<Birth>() };
        if birth.apart {
            let _ = unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0));
        }
        let _ = prctl::set_pdeathsig(Signal::SIGKILL);
        if unistd::getppid() == birth.parent {
            typed::raise(&birth.typed);
            birth.inherited.restore();
            // SAFETY: both arrays end with a null pointer and point to C strings.
            unsafe { libc::execvpe(*birth.arguments, birth.arguments, birth.environment) };
            birth.errno = Errno::last_raw();
        }
        // SAFETY: ends the child without running anything of its parent's.
        unsafe { libc::_exit(127) }
    }
}

/// What is typed at a terminal while a child is being born into its foreground group must reach the child exactly once.
///
/// The parent is in that group too, and has these signals open for the one clone(2). Linux does not fork while one of them is
/// pending, and gives one that comes during the fork to both. So one that the handler noted came before the birth, or was
/// taken from the child itself: either way the child raises it again once no handler is in the way.
mod typed {
    use super::super::signals::{not_ignored, send};
    use nix::libc;
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    use nix::unistd;
    use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

    /// Bit N: signal N has come.
    static NOTED: AtomicU32 = AtomicU32::new(0);
    static PARENT: AtomicI32 = AtomicI32::new(0);

    /// Sees to it that those of the signals that are not ignored are noted once they are not blocked; returns them.
    pub(super) fn catch() -> SigSet {
        PARENT.store(unistd::getpid().as_raw(), Ordering::Relaxed);
        let signals = not_ignored(&[Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT]);
        let action = SigAction::new(SigHandler::SigAction(note), SaFlags::empty(), SigSet::all());
        for signal in &signals {
            // SAFETY: the handler touches nothing but atomics.
            let _ = unsafe { sigaction(signal, &action) };
        }
        signals
    }

    extern "C" fn note(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel passes what it knows of the signal.
        let by_kernel = unsafe { (*info).si_code } == libc::SI_KERNEL;
        // What a process has sent to the parent is not the child's.
        if by_kernel || unistd::getpid().as_raw() != PARENT.load(Ordering::Relaxed) {
            NOTED.fetch_or(1 << signal, Ordering::Relaxed);
        }
    }

    /// In the child, with everything blocked: takes the handler away, and raises what was noted.
    pub(super) fn raise(caught: &SigSet) {
        for signal in caught {
            // SAFETY: SIG_DFL installs no handler.
            unsafe { libc::signal(signal as i32, libc::SIG_DFL) };
            if NOTED.load(Ordering::Relaxed) & (1 << signal as i32) != 0 {
                let _ = send(unistd::getpid().as_raw(), signal as i32);
            }
        }
    }
}

/// One line of an environment.
fn variable(name: &OsStr, value: &OsStr) -> CString {
    c_string(&[name.as_bytes(), b"=", value.as_bytes()].concat())
}

/// What was part of a command line or an environment before has no NUL in it.
fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).unwrap_or_default()
}
