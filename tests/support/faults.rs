//! Faults at system calls. A seccomp filter reports the system calls of a process and its descendants (apart from
//! `PASSED`) to a supervisor, before the kernel carries them out (seccomp_unotify(2)). The supervisor can let one
//! system call fail, or kill the process that makes it.

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

/// A process of a [`Test`](super::Test): its name in the kernel, and how many processes had that name before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Caller(pub(crate) String, pub(crate) usize);

/// The moment at which `caller` makes the system call with the number `call` for the `nth` time, from 1 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) caller: Caller,
    pub(crate) call: i64,
    pub(crate) nth: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Error(Errno),
    Kill,
}

/// A supervisor of the system calls of one [`Test`](super::Test).
#[derive(Debug, Default)]
pub(crate) struct Faults {
    plan: Option<(Moment, Fault)>,
    seen: Mutex<Vec<Moment>>,
}

/// The system calls that the C library makes in poll and epoll_wait. On newer architectures, Linux has only the
/// variants with a signal mask.
#[cfg(target_arch = "x86_64")]
pub(crate) const POLL: i64 = libc::SYS_poll;
#[cfg(target_arch = "x86_64")]
pub(crate) const EPOLL_WAIT: i64 = libc::SYS_epoll_wait;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const POLL: i64 = libc::SYS_ppoll;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const EPOLL_WAIT: i64 = libc::SYS_epoll_pwait;

/// System calls that the filter does not report. They manage memory and locks for the C library, end a process or
/// return from a signal. `report_calls` itself makes sendmsg under the filter.
const PASSED: [i64; 10] = [
    libc::SYS_brk,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_rt_sigreturn,
    libc::SYS_sendmsg,
];

impl Faults {
    /// A supervisor that causes no fault, and only records the system calls.
    pub(crate) fn none() -> Arc<Faults> {
        Arc::default()
    }

    /// Causes this fault when the first process with the name `process` makes the system call `call` for the `nth`
    /// time, from 1 on.
    pub(crate) fn at(process: &str, call: i64, nth: usize, fault: Fault) -> Arc<Faults> {
        Faults::planned(Moment { caller: Caller(process.to_owned(), 0), call, nth }, fault)
    }

    pub(crate) fn planned(moment: Moment, fault: Fault) -> Arc<Faults> {
        Arc::new(Faults { plan: Some((moment, fault)), seen: Mutex::default() })
    }

    pub(crate) fn seen(&self) -> Vec<Moment> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn plan(&self) -> Option<&(Moment, Fault)> {
        self.plan.as_ref()
    }

    pub(crate) fn happened(&self) -> bool {
        self.plan.as_ref().is_some_and(|(moment, _)| self.seen.lock().unwrap().contains(moment))
    }

    /// When `command` is started, the process and its descendants are supervised from the exec on.
    pub(super) fn supervise(self: &Arc<Faults>, command: &mut Command) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let faults = Arc::clone(self);
        std::thread::spawn(move || faults.serve(ours));
        // SAFETY: only async-signal-safe calls.
        unsafe { command.pre_exec(move || report_calls(&theirs)) };
    }

    fn serve(&self, mut child: UnixStream) {
        let mut numbers = [0; 8];
        if child.read_exact(&mut numbers).is_err() {
            return;
        }
        let [pid, listener] = [0, 4].map(|at| i32::from_ne_bytes(*numbers[at..].first_chunk().unwrap()));
        let listener = taken_from(pid, listener).unwrap();
        let mut callers: HashMap<u32, (String, Caller)> = HashMap::new();
        let mut counts: HashMap<(Caller, i64), usize> = HashMap::new();
        loop {
            let mut ready = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            if poll(&mut ready, PollTimeout::NONE) == Ok(1) && ready[0].revents() == Some(PollFlags::POLLHUP) {
                return;
            }
            // SAFETY: all zeroes are a valid notification, and the kernel demands zeroes.
            let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
            // SAFETY: the kernel writes a notification.
            if unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked) } != 0 {
                continue; // The process has been killed meanwhile.
            }
            let caller = caller(&mut callers, asked.pid);
            let call = i64::from(asked.data.nr);
            let nth = counts.entry((caller.clone(), call)).or_default();
            *nth += 1;
            let moment = Moment { caller, call, nth: *nth };
            let fault = self.plan.as_ref().filter(|(planned, _)| *planned == moment).map(|(_, fault)| *fault);
            self.seen.lock().unwrap().push(moment);
            let (error, flags) = match fault {
                Some(Fault::Error(errno)) => (-(errno as i32), 0),
                Some(Fault::Kill) => {
                    super::send(asked.pid, Signal::SIGKILL);
                    (-(Errno::EINTR as i32), 0)
                }
                None => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE),
            };
            let mut answer = libc::seccomp_notif_resp { id: asked.id, val: 0, error, flags: flags as u32 };
            // SAFETY: the kernel reads the answer, or refuses it if the process has been killed.
            unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
        }
    }
}

/// The process with this pid, under its present name: after a change of its name, it is another [`Caller`].
fn caller(known: &mut HashMap<u32, (String, Caller)>, pid: u32) -> Caller {
    let name = super::name(pid);
    if let Some((_, caller)) = known.get(&pid).filter(|(had, _)| *had == name) {
        return caller.clone();
    }
    let before = known.values().filter(|(_, Caller(other, _))| *other == name).count();
    let caller = Caller(name.clone(), before);
    known.insert(pid, (name, caller.clone()));
    caller
}

fn taken_from(pid: i32, descriptor: i32) -> nix::Result<OwnedFd> {
    // SAFETY: these calls take numbers, and touch no memory; each descriptor is new.
    unsafe {
        let process = Errno::result(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        let process = OwnedFd::from_raw_fd(process as i32);
        let copy = Errno::result(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), descriptor, 0))?;
        Ok(OwnedFd::from_raw_fd(copy as i32))
    }
}

/// Makes the kernel report each system call of the present process, apart from [`PASSED`], through a new descriptor,
/// whose number goes to the supervisor at the other end of the socket. Async-signal-safe.
fn report_calls(supervisor: &UnixStream) -> io::Result<()> {
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let passed = PASSED.map(|call| call as u32);
    let mut program = [statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW); PASSED.len() + 3];
    // A filter gets a structure whose first field is the number of the system call.
    program[0] = statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0);
    for (at, &call) in passed.iter().enumerate() {
        program[1 + at] = statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (passed.len() - at) as u8, 0, call);
    }
    program[1 + passed.len()] = statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_USER_NOTIF);
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let us = std::process::id().cast_signed();
    // SAFETY: the filter and the numbers outlive the calls that read them.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        let listener =
            Errno::result(libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter))?;
        let mut numbers = [us, listener as i32];
        let mut part = libc::iovec { iov_base: numbers.as_mut_ptr().cast(), iov_len: 8 };
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        Errno::result(libc::sendmsg(supervisor.as_raw_fd(), &raw const message, 0))?;
    }
    Ok(())
}
