//! Starts, signals and reaps processes, and reports facts about them.

use super::change_mask;
use super::inherited::{Inheritance, dispose};
use super::signals::send;
use super::{host, stdio, uninterrupted};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr, getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{Mode, stat};
use nix::unistd::{self, ForkResult, Pid};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A program to start. All words are C strings already, because nothing can be allocated between clone and exec.
#[derive(Debug)]
pub(crate) struct Program {
    file: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    inherited: Inheritance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotStarted {
    /// The kernel has no room for a process, or a step between clone and exec has failed.
    SetUp(Errno),
    /// The program could not be executed: ENOENT and the like.
    Exec(Errno),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reap {
    /// This child has ended: its pid, and its status as in wait(2).
    Child(i32, i32),
    NoneEnded,
    NoChildren,
}

/// Reaps one child that has ended, without waiting.
pub(crate) fn reap() -> Reap {
    let mut status = 0;
    // SAFETY: `status` outlives the call. (nix's `waitpid` knows no real-time signals.)
    match uninterrupted(|| Errno::result(unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) })) {
        Ok(0) => Reap::NoneEnded,
        Ok(pid) => Reap::Child(pid, status),
        Err(_) => Reap::NoChildren,
    }
}

pub(crate) fn has_children() -> bool {
    is_waited_for(libc::P_ALL, 0)
}

pub(crate) fn has_children_in(group: i32) -> bool {
    group > 0 && is_waited_for(libc::P_PGID, group)
}

pub(crate) fn is_child(pid: i32) -> bool {
    pid > 0 && is_waited_for(libc::P_PID, pid)
}

/// True if waitid(2) finds this kind of child, ended or not. Does not reap it.
fn is_waited_for(kind: libc::idtype_t, id: i32) -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: a null pointer asks for no facts about the child.
    let found = || Errno::result(unsafe { libc::waitid(kind, id.unsigned_abs(), std::ptr::null_mut(), flags) });
    uninterrupted(found).is_ok()
}

fn wait_for(pid: i32) {
    // SAFETY: a null pointer asks for no status.
    let _ = uninterrupted(|| Errno::result(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }));
}

/// Sends `signal` to a child, unless the child was reaped: another process may have its pid then.
pub(crate) fn signal_child(pid: i32, signal: i32) {
    if is_child(pid) {
        let _ = send(pid, signal);
    }
}

/// A process, held by a descriptor, because its pid may be reused.
#[derive(Debug)]
pub(crate) struct Handle {
    pid: i32,
    descriptor: OwnedFd,
}

impl Handle {
    /// Opens the process that has this pid now; ESRCH if there is none. The descriptor is closed on exec.
    pub(crate) fn open(pid: i32) -> nix::Result<Handle> {
        // SAFETY: takes two numbers and touches no memory.
        let number = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
        let number = i32::try_from(number).map_err(|_| Errno::EBADF)?;
        // SAFETY: the kernel has just returned this descriptor.
        Ok(Handle { pid, descriptor: unsafe { OwnedFd::from_raw_fd(number) } })
    }

    /// The pid, which is not reused while the process [exists](Handle::exists).
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// True if the process has this pid, and has not been reaped.
    pub(crate) fn is(&self, pid: i32) -> bool {
        self.pid == pid && self.exists()
    }

    /// True if the process belongs to the user of this process; ESRCH if it has ended.
    pub(crate) fn is_of_this_user(&self) -> nix::Result<bool> {
        let process = stat(format!("/proc/{}", self.pid).as_str());
        if self.has_ended() {
            return Err(Errno::ESRCH);
        }
        match process {
            // /proc hides the processes of other users (hidepid).
            Err(Errno::ENOENT) => Ok(false),
            process => Ok(process?.st_uid == unistd::geteuid().as_raw()),
        }
    }

    /// True until the process has been reaped.
    pub(crate) fn exists(&self) -> bool {
        self.signal(0) != Err(Errno::ESRCH)
    }

    /// True if the process is dead, and its children have a new parent. A tracer may still keep the process from
    /// being reaped.
    pub(crate) fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    fn ends_within(&self, patience: Duration) -> bool {
        let mut ends = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
        let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO);
        uninterrupted(|| poll(&mut ends, patience)).is_ok_and(|ended| ended > 0)
    }

    /// Waits for the end of a child, for at most `patience`, and reaps the child if it has ended.
    pub(crate) fn reap_within(&self, patience: Duration) {
        self.ends_within(patience);
        // SAFETY: a null pointer asks for no status. The pid is the child's, or no child has it.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::WNOHANG) };
    }

    /// Replaces this process's standard error by that of the handle's process, unless the kernel refuses.
    pub(crate) fn share_errors(&self) {
        if let Ok(errors) = self.errors() {
            let _ = unistd::dup2_stderr(&errors);
        }
    }

    /// A copy of the standard error of the handle's process. If the kernel refuses the copy (Yama lets only ancestors
    /// copy), the file is opened again, without waiting for a pipe's reader, and without taking a terminal as the
    /// controlling terminal. The handle's process may then overwrite what this process writes into the file.
    fn errors(&self) -> nix::Result<OwnedFd> {
        // SAFETY: takes three numbers and touches no memory.
        let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.descriptor.as_raw_fd(), 2, 0) };
        if let Ok(copy) = i32::try_from(copy)
            && copy >= 0
        {
            // SAFETY: the kernel has just returned this descriptor.
            return Ok(unsafe { OwnedFd::from_raw_fd(copy) });
        }
        let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let errors = open(format!("/proc/{}/fd/2", self.pid).as_str(), flags, Mode::empty())?;
        // If the process has been reaped, another one may have its pid, and the file may be that one's.
        if self.exists() { Ok(errors) } else { Err(Errno::ESRCH) }
    }

    pub(crate) fn signal(&self, signal: i32) -> nix::Result<()> {
        let nothing: *const libc::siginfo_t = std::ptr::null();
        let descriptor = self.descriptor.as_raw_fd();
        // SAFETY: a null siginfo stands for the one that kill(2) would send.
        let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, descriptor, signal, nothing, 0) };
        Errno::result(sent).map(drop)
    }
}

impl AsFd for Handle {
    /// Readable once the process is dead.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Makes this process the parent of every descendant that loses its parent. Also tries the calls that handles and
/// children need: if the sandbox refuses one of them, redlock must know before there is a job.
pub(crate) fn adopt_orphans() -> nix::Result<()> {
    prctl::set_child_subreaper(true)?;
    let pid = unistd::getpid().as_raw();
    Handle::open(pid)?.signal(0)?;
    // SAFETY: a null pointer asks for no status.
    match Errno::result(unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) }) {
        // No process is its own child.
        Ok(_) | Err(Errno::ECHILD) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// True if this process is in the kernel's first pid namespace: there process 1 is the init of the machine.
pub(crate) fn is_in_initial_namespace() -> bool {
    // The kernel's PID_NS_INIT_INO.
    fs::read_link("/proc/self/ns/pid").is_ok_and(|namespace| namespace == Path::new("pid:[4026531836]"))
}

pub(crate) fn leads_session() -> bool {
    unistd::getsid(None) == Ok(unistd::getpid())
}

/// Runs `body` in a forked process, which then ends. Returns the pid of that process.
pub(crate) fn fork_helper(name: &CStr, body: impl FnOnce()) -> nix::Result<i32> {
    // SAFETY: this process has a single thread, so its copy may do everything.
    match unsafe { unistd::fork() }? {
        ForkResult::Parent { child } => Ok(child.as_raw()),
        ForkResult::Child => {
            let _ = prctl::set_name(name);
            body();
            // SAFETY: ends the process without running what the parent registered for its own exit.
            unsafe { libc::_exit(0) }
        }
    }
}

/// The descriptors that this process has open besides the standard ones.
fn inherited_descriptors() -> io::Result<Vec<i32>> {
    let listed = fs::read_dir("/proc/self/fd")?.collect::<io::Result<Vec<_>>>()?;
    let numbers = listed.into_iter().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.filter(|&descriptor| descriptor > 2).collect())
}

/// Cuts this forked process off from the caller: gives it a session with no terminal, blocks all signals, and closes
/// all descriptors apart from `kept` and the standard ones, which become /dev/null. The values that own the closed
/// descriptors must not be used afterwards, nor dropped. After an error, some of the descriptors are still open.
pub(crate) fn leave_caller(kept: [BorrowedFd; 2]) -> io::Result<()> {
    change_mask(SigmaskHow::SIG_SETMASK, &SigSet::all())?;
    unistd::setsid()?;
    let kept = kept.map(|descriptor| descriptor.as_raw_fd());
    for descriptor in inherited_descriptors()?.into_iter().filter(|descriptor| !kept.contains(descriptor)) {
        // SAFETY: touches no memory; the owners of these descriptors are not used again.
        unsafe { libc::close(descriptor) };
    }
    Ok(stdio::redirect_to_null(0..=2)?)
}

/// The socket of a detached server, in the server's working directory.
pub(crate) const SOCKET: &str = "redis.sock";

/// Starts a server that outlives this process and any signal to this process's group, terminal or tree. The server has
/// a session of its own, and no blocked signals. Its only descriptors are the standard ones of `command`, and a copy of
/// `kept`. Its parent is the nearest subreaper above this process: inside a job, the job's keeper, which leaves the
/// server alone (see [`is_detached`]).
pub(crate) fn start_detached(command: &mut Command, kept: &File) -> io::Result<()> {
    let (open, kept) = (inherited_descriptors()?, kept.as_raw_fd());
    // SAFETY: `detach` makes system calls only.
    unsafe { command.pre_exec(move || detach(&open, kept)) };
    // For a millisecond this process adopts no orphans. The keeper adopts those of the job, so they escape only if the
    // keeper is killed in this millisecond.
    let adopts = prctl::get_child_subreaper().unwrap_or(false);
    let _ = prctl::set_child_subreaper(false);
    // The intermediate process ends at once. (If SIGCHLD is ignored, wait fails: then the kernel reaps the process.)
    let started = command.spawn().map(|mut between| drop(between.wait()));
    let _ = prctl::set_child_subreaper(adopts);
    started
}

/// Detaches this forked process from its caller. The exec will close all `open` descriptors apart from `kept`.
fn detach(open: &[i32], kept: i32) -> io::Result<()> {
    unistd::setsid()?;
    for &descriptor in open {
        let flags = if descriptor == kept { 0 } else { libc::FD_CLOEXEC };
        // SAFETY: touches no memory. The descriptors close at exec, not before: one of them reports a failed exec.
        match Errno::result(unsafe { libc::fcntl(descriptor, libc::F_SETFD, flags) }) {
            // The descriptor by which the list of descriptors was read is closed.
            Ok(_) | Err(Errno::EBADF) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    // The program must learn of the ends of its children.
    dispose(libc::SIGCHLD, false)?;
    change_mask(SigmaskHow::SIG_SETMASK, &SigSet::empty())?;
    // SAFETY: between fork and exec there is a single thread, and each side makes system calls only.
    match unsafe { unistd::fork() }? {
        // SAFETY: ends the process without running code of its parent.
        ForkResult::Parent { .. } => unsafe { libc::_exit(0) },
        ForkResult::Child => Ok(()),
    }
}

/// True if this child is a server that [`start_detached`] has started: one of the installed servers, which the kernel
/// names as the owner of the [`SOCKET`] in its directory. What a job can choose (a session, a name, its open files)
/// proves nothing.
pub(crate) fn is_detached(child: i32) -> bool {
    let pid = Pid::from_raw(child);
    let session = unistd::getsid(Some(pid));
    // Nearly all children of a keeper are in the keeper's session, or lead a session. `start_detached` has started none
    // of these, so their sockets need not be looked for.
    if session == Ok(pid) || session == unistd::getsid(None) {
        return false;
    }
    let process = Path::new("/proc").join(child.to_string());
    owner_of(&process.join("cwd").join(SOCKET)) == Ok(child) && is_server(&process.join("exe"))
}

/// The pid of the process that has opened this Unix socket for connections.
fn owner_of(socket: &Path) -> nix::Result<i32> {
    // This fails if the server's backlog is full.
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let connection = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    socket::connect(connection.as_raw_fd(), &UnixAddr::new(socket)?)?;
    Ok(getsockopt(&connection, PeerCredentials)?.pid())
}

fn is_server(file: &Path) -> bool {
    let id = |file: &Path| fs::metadata(file).map(|file| (file.dev(), file.ino())).ok();
    let id_of_file = id(file);
    id_of_file.is_some() && host::servers().any(|server| id(&server) == id_of_file)
}

impl Program {
    pub(crate) fn new(
        file: &Path,
        command: &[OsString],
        environment: impl Iterator<Item = (OsString, OsString)>,
        inherited: Inheritance,
    ) -> Program {
        Program {
            file: c_string(file.as_os_str().as_bytes()),
            arguments: command.iter().map(|word| c_string(word.as_bytes())).collect(),
            environment: environment.map(|(name, value)| variable(&name, &value)).collect(),
            inherited,
        }
    }

    /// Sets one variable of the environment, or removes it.
    pub(crate) fn set(&mut self, name: &OsStr, value: Option<&OsStr>) {
        let begin = [name.as_bytes(), b"="].concat();
        self.environment.retain(|line| !line.as_bytes().starts_with(&begin));
        self.environment.extend(value.map(|value| variable(name, value)));
    }

    /// Starts the program, and moves this process into a process group of its own. The program stays in the old group,
    /// or with `apart` gets a group of its own, too. Its standard error is `errors`, or else that of this process. The
    /// kernel kills the program when this process ends. This process must have a single thread and block all signals.
    /// The returned pid is valid until the program is reaped.
    pub(crate) fn start(&self, apart: bool, errors: Option<BorrowedFd<'_>>) -> Result<i32, NotStarted> {
        let (arguments, environment) = (null_terminated(&self.arguments), null_terminated(&self.environment));
        // For a script that has no #! line, execvpe builds another array of arguments on the stack.
        let words = 8 * 1024 + arguments.len();
        let mut stack: Vec<u128> = Vec::with_capacity(words);
        let mut setup = ChildSetup {
            file: self.file.as_ptr(),
            arguments: arguments.as_ptr(),
            environment: environment.as_ptr(),
            inherited: self.inherited,
            apart,
            errors,
            parent: unistd::getpid(),
            parents_status: c_string(format!("/proc/{}/status", unistd::getpid()).as_bytes()),
            room: vec![0; 1 << 20],
            failure: None,
        };
        // As with vfork, no memory is copied. The child uses this process's memory, with a stack of its own; this
        // process stands still until the child executes or exits.
        // SAFETY: the end of the stack is aligned, and the stack is large enough. This process frees nothing that
        // `setup` points to before the child executes or exits: this process has a single thread, which stands still.
        let born = Errno::result(unsafe {
            libc::clone(
                ChildSetup::run,
                stack.as_mut_ptr().add(words).cast(),
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                (&raw mut setup).cast(),
            )
        });
        let _ = unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0));
        let pid = born.map_err(NotStarted::SetUp)?;
        // SAFETY: the child may have written to `failure` while this process stood still; a volatile read keeps the
        // compiler from assuming otherwise.
        match unsafe { (&raw const setup.failure).read_volatile() } {
            // There is no failure either if a signal ended the child before exec; the child's status shows the signal.
            None => Ok(pid),
            Some(failure) => {
                wait_for(pid);
                Err(failure)
            }
        }
    }
}

/// Everything that a child needs between clone and exec.
struct ChildSetup<'a> {
    file: *const libc::c_char,
    arguments: *const *const libc::c_char,
    environment: *const *const libc::c_char,
    inherited: Inheritance,
    apart: bool,
    errors: Option<BorrowedFd<'a>>,
    parent: Pid,
    parents_status: CString,
    /// Room for the contents of the file `parents_status`, which lists all groups of the user.
    room: Vec<u8>,
    failure: Option<NotStarted>,
}

impl ChildSetup<'_> {
    /// Takes over the keys (Ctrl-C and the like) that were pressed before the child existed. Each key must reach the
    /// child exactly once. If a Ctrl-C is lost, the job goes on. If a Ctrl-Z is lost, the job goes on without renewals,
    /// because redlock is stopped. If a Ctrl-C comes twice, many programs take the second for "at once".
    ///
    /// The terminal signals the whole group, parent and child, which block all signals. So a signal that is pending
    /// only in the parent came before the child existed, and one that is pending in both has already reached the child.
    fn take_over_keys(&mut self) -> nix::Result<()> {
        // The parent's signals are read first, because a signal between the two reads would otherwise seem older than
        // the child.
        let Some(parents) = pending(&self.parents_status, &mut self.room)? else { return Ok(()) };
        // SAFETY: all zeroes are a valid set, and the call fills it.
        let own = unsafe {
            let mut own = std::mem::zeroed();
            Errno::result(libc::sigpending(&raw mut own))?;
            SigSet::from_sigset_t_unchecked(own)
        };
        for signal in OF_TERMINAL {
            if parents & 1 << (signal as i32 - 1) != 0 && !own.contains(signal) {
                send(unistd::getpid().as_raw(), signal as i32)?;
            }
        }
        Ok(())
    }

    /// All steps before exec. If one of them were left out, the job could outlive the lease, keep a file open or lose
    /// its errors.
    fn set_up(&mut self) -> nix::Result<()> {
        if self.apart {
            unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
        }
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        if unistd::getppid() != self.parent {
            return Err(Errno::ESRCH);
        }
        if !self.apart {
            self.take_over_keys()?;
        }
        self.inherited.restore()?;
        match self.errors {
            Some(errors) => uninterrupted(|| unistd::dup2_stderr(errors)),
            None => Ok(()),
        }
    }

    /// The child's code before exec: only system calls, on memory that is already allocated.
    extern "C" fn run(setup: *mut libc::c_void) -> i32 {
        // SAFETY: the parent passes a `ChildSetup`, and stands still.
        let setup = unsafe { &mut *setup.cast::<ChildSetup>() };
        setup.failure = Some(match setup.set_up() {
            Ok(()) => {
                // SAFETY: all are C strings, or arrays of them that end with a null pointer.
                unsafe { libc::execvpe(setup.file, setup.arguments, setup.environment) };
                NotStarted::Exec(Errno::last())
            }
            Err(errno) => NotStarted::SetUp(errno),
        });
        // SAFETY: ends the child without running code of its parent.
        unsafe { libc::_exit(127) }
    }
}

/// The signals that are pending for a process as a whole, from its file `status` in /proc: bit N − 1 is signal N. None
/// if the file does not say. Allocates nothing, because a child calls this between clone and exec.
fn pending(status: &CStr, room: &mut [u8]) -> nix::Result<Option<u64>> {
    let file = uninterrupted(|| open(status, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()))?;
    let length = uninterrupted(|| unistd::read(&file, room))?;
    let found = std::str::from_utf8(&room[..length]).ok().and_then(|text| text.split_once("ShdPnd:\t"));
    Ok(found.and_then(|(_, rest)| u64::from_str_radix(rest.get(..16)?, 16).ok()))
}

/// The signals that a terminal sends when a key is pressed, or when the terminal is closed.
const OF_TERMINAL: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTSTP];

fn null_terminated(lines: &[CString]) -> Vec<*const libc::c_char> {
    lines.iter().map(|line| line.as_ptr()).chain([std::ptr::null()]).collect()
}

fn variable(name: &OsStr, value: &OsStr) -> CString {
    c_string(&[name.as_bytes(), b"=", value.as_bytes()].concat())
}

/// No word of a command line or an environment contains a NUL.
fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).unwrap_or_default()
}
