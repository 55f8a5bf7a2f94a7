//! Starting processes and learning how they ended.

use super::inherited::Inherited;
use super::signals::send;
use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{self, ForkResult, Pid};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

/// A program to start, with everything that needs memory made ready beforehand.
#[derive(Debug)]
pub(crate) struct Program {
    arguments: Vec<CString>,
    environment: Vec<CString>,
    inherited: Inherited,
    /// The place of LISTEN_PID in `environment`, where that names us.
    listen_pid: Option<usize>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It exited with this status.
    Status(u8),
    /// It died of this signal.
    Signal(i32),
}

impl End {
    /// Reads a status word of wait(2).
    pub(crate) fn from_raw(status: i32) -> End {
        if libc::WIFSIGNALED(status) {
            End::Signal(libc::WTERMSIG(status))
        } else {
            End::Status(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))
        }
    }
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

/// Whether this process has children, ended ones included.
pub(crate) fn has_children() -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: a null pointer asks for no answer but the status.
    let answer = unsafe { libc::waitid(libc::P_ALL, 0, std::ptr::null_mut(), flags) };
    answer == 0
}

/// Waits until this child has ended.
pub(crate) fn wait_for(pid: i32) {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    while Errno::result(unsafe { libc::waitpid(pid, &raw mut status, 0) }) == Err(Errno::EINTR) {}
}

/// Sends `signal` to a child that has not been reaped, so that its pid cannot be another's.
pub(crate) fn signal_child(pid: i32, signal: i32) {
    let _ = send(pid, signal);
}

/// Makes this process the parent of every descendant that loses its own.
pub(crate) fn adopt_orphans() {
    // Cannot fail: every kernel that has pidfds has this.
    let _ = prctl::set_child_subreaper(true);
}

/// Puts this process before all others where that is permitted. What it starts from then on would be, too.
pub(crate) fn hurry() -> Urgency {
    Errno::clear();
    // SAFETY: takes two numbers and touches no memory.
    let before = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // −1 may be an answer, too.
    if before == -1 && Errno::last_raw() != 0 {
        return Urgency(None);
    }
    // SAFETY: likewise.
    let raised = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } == 0;
    Urgency(raised.then_some(before))
}

/// Puts a child of ours before all others where that is permitted.
pub(crate) fn urge(child: i32) {
    if let Ok(child) = u32::try_from(child) {
        // SAFETY: takes three numbers and touches no memory.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, child, -20) };
    }
}

/// The same with a process group that a child of ours is in.
pub(crate) fn urge_group(group: i32) {
    if let Ok(group) = u32::try_from(group) {
        // SAFETY: likewise.
        unsafe { libc::setpriority(libc::PRIO_PGRP, group, -20) };
    }
}

/// How urgent this process was before it began to [`hurry`]; none if it does not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Urgency(Option<i32>);

impl Urgency {
    /// Gives it back.
    pub(crate) fn restore(self) {
        if let Some(before) = self.0 {
            // SAFETY: takes three numbers and touches no memory.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, before) };
        }
    }
}

/// Lets all threads share one heap. glibc would reserve another for each of our few threads, which takes longer than
/// all that they ever allocate.
pub(crate) fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: changes a number within the allocator, before there is a second thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// The process group that we are in.
pub(crate) fn own_group() -> i32 {
    unistd::getpgrp().as_raw()
}

/// Runs `body` in a forked process with a process group of its own, and ends that process after it.
/// Returns its pid.
///
/// # Errors
/// The kernel's, when it has no room for another process.
pub(crate) fn fork_helper(name: &CStr, body: impl FnOnce()) -> nix::Result<i32> {
    // SAFETY: this process has a single thread, so the copy of it may do anything that it may.
    match unsafe { unistd::fork() }? {
        ForkResult::Parent { child } => Ok(child.as_raw()),
        ForkResult::Child => {
            let _ = unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0));
            let _ = prctl::set_name(name);
            // A panic must not unwind into what the parent was doing.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            // SAFETY: ends the process without running what the parent registered for its own exit.
            unsafe { libc::_exit(0) }
        }
    }
}

/// Closes what a helper has inherited from us but the standard streams, these, and what we have ourselves inherited: what we
/// opened is closed on exec, and by that it is known.
pub(crate) fn keep_only(these: &[BorrowedFd<'_>]) {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let open = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    for fd in open.collect::<Vec<_>>() {
        if fd <= 2 || these.iter().any(|kept| kept.as_raw_fd() == fd) {
            continue;
        }
        // SAFETY: takes numbers, and fails for a descriptor that is closed, like that of the directory.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        if flags != -1 && flags & libc::FD_CLOEXEC != 0 {
            // SAFETY: the owner is the process that we were copied from; here it is not used again, nor dropped.
            unsafe { libc::close(fd) };
        }
    }
}

impl Program {
    /// Prepares `command` with `environment`; none when there is a NUL in it.
    pub(crate) fn new(
        command: &[OsString],
        environment: impl Iterator<Item = (OsString, OsString)>,
        inherited: Inherited,
    ) -> Option<Program> {
        let word = |word: &OsString| CString::new(word.as_bytes()).ok();
        let arguments = command.iter().map(word).collect::<Option<_>>()?;
        let environment = environment.map(|(name, value)| variable(&name, &value));
        let environment = environment.collect::<Option<_>>()?;
        Some(Program { arguments, environment, inherited, listen_pid: None })
    }

    /// Sets one variable of the environment.
    pub(crate) fn set(&mut self, name: &OsStr, value: &OsStr) -> Option<()> {
        let line = variable(name, value)?;
        let to_equals = name.len() + 1;
        let start = &line.as_bytes()[..to_equals];
        self.environment.retain(|old| !old.as_bytes().starts_with(start));
        self.environment.push(line);
        Some(())
    }

    /// systemd's LISTEN_PID tells the one process that the passed sockets are for. Where that is
    /// `us`, make it the program, whose pid only the child knows.
    pub(crate) fn pass_on_sockets_of(&mut self, us: u32) {
        let ours = format!("LISTEN_PID={us}");
        self.listen_pid = self.environment.iter().position(|line| line.as_bytes() == ours.as_bytes());
    }

    /// Starts the program in process group `group`, in one of its own if that is 0, and as urgent as that. It is killed
    /// when this process, which must have a single thread, ends. Returns its pid, which is valid until it is reaped.
    ///
    /// # Errors
    /// Why it could not be executed: ENOENT and the like.
    pub(crate) fn start(&self, group: i32) -> nix::Result<i32> {
        let pointers = |lines: &[CString]| {
            let end = std::iter::once(std::ptr::null());
            let all = lines.iter().map(|line| line.as_ptr()).chain(end);
            all.collect::<Vec<_>>()
        };
        let arguments = pointers(&self.arguments);
        let mut environment = pointers(&self.environment);
        // Room for the name, ten digits and the final NUL.
        let mut listen_pid = *b"LISTEN_PID=\0\0\0\0\0\0\0\0\0\0\0\0";
        if let Some(place) = self.listen_pid {
            environment[place] = listen_pid.as_ptr().cast();
        }
        // execvpe keeps a path, and for a script without #! another array of arguments, on it.
        let path = std::env::var_os("PATH").map_or(0, |path| path.len());
        let words = 8 * 1024 + arguments.len() + path;
        let mut stack: Vec<u128> = Vec::with_capacity(words);
        let mut birth = Birth {
            arguments: arguments.as_ptr(),
            environment: environment.as_ptr(),
            listen_pid: &raw mut listen_pid,
            inherited: self.inherited,
            group,
            parent: unistd::getpid(),
            errno: 0,
        };
        // Like vfork, so that our memory need not be copied first: the child borrows it, on a stack of its own,
        // until it executes or exits, and only then are we continued. Signals are blocked meanwhile.
        // SAFETY: the end of the stack is aligned and the stack large enough; all that `birth` points to outlives
        // the child's use of it; this process has a single thread, which stands still.
        let pid = Errno::result(unsafe {
            libc::clone(
                Birth::give,
                stack.as_mut_ptr().add(words).cast(),
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                (&raw mut birth).cast(),
            )
        })?;
        // SAFETY: the child wrote to it while we stood still; the compiler is not to know better.
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
    listen_pid: *mut [u8; 23],
    inherited: Inherited,
    group: i32,
    parent: Pid,
    /// Why it could not execute.
    errno: i32,
}

impl Birth {
    /// The child's life before exec: only system calls, on memory that was made ready.
    extern "C" fn give(birth: *mut libc::c_void) -> i32 {
        // SAFETY: our parent passes a `Birth`, and stands still.
        let birth = unsafe { &mut *birth.cast::<Birth>() };
        // SAFETY: likewise.
        let listen_pid = unsafe { &mut *birth.listen_pid };
        write_digits(&mut listen_pid[11..], unistd::getpid().as_raw().unsigned_abs());
        // Fails where the group has just died with its last member, our parent's parent.
        let _ = unistd::setpgid(Pid::from_raw(0), Pid::from_raw(birth.group));
        let _ = prctl::set_pdeathsig(Signal::SIGKILL);
        if unistd::getppid() == birth.parent {
            birth.inherited.restore();
            // SAFETY: both arrays end with a null pointer and point to C strings.
            unsafe { libc::execvpe(*birth.arguments, birth.arguments, birth.environment) };
            birth.errno = Errno::last_raw();
        }
        // SAFETY: ends the child without running anything of its parent's.
        unsafe { libc::_exit(127) }
    }
}

/// One line of an environment; none when there is a NUL in it.
fn variable(name: &OsStr, value: &OsStr) -> Option<CString> {
    CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
}

/// Writes `number` in decimal and a NUL, without allocating.
fn write_digits(into: &mut [u8], number: u32) {
    let length = number.checked_ilog10().map_or(1, |log| log as usize + 1);
    let mut rest = number;
    for place in into[..length].iter_mut().rev() {
        *place = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    into[length] = 0;
}

#[cfg(test)]
mod tests {
    use super::{End, write_digits};

    #[test]
    fn digits_are_written_as_a_c_string() {
        for number in [0, 7, 10, 99, 4_194_304, u32::MAX] {
            let mut buffer = *b"xxxxxxxxxxxx";
            write_digits(&mut buffer, number);
            let text = format!("{number}\0");
            assert_eq!(&buffer[..text.len()], text.as_bytes());
        }
    }

    #[test]
    fn status_words_are_read() {
        assert_eq!(End::from_raw(0), End::Status(0));
        assert_eq!(End::from_raw(255 << 8), End::Status(255));
        assert_eq!(End::from_raw(9), End::Signal(9));
        assert_eq!(End::from_raw(0x80 | 11), End::Signal(11));
        assert_eq!(End::from_raw(40), End::Signal(40));
    }
}
