//! The calls that supervising a job rests on, tried before there is a job: a sandbox (seccomp) may refuse any of them, and most
//! come when it is too late to do without.

use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl;

/// The calls that redlock makes only once a job runs.
const NEEDED: &[(&str, libc::c_long)] = &[
    ("timerfd_settime", libc::SYS_timerfd_settime),
    ("wait4", libc::SYS_wait4),
    ("waitid", libc::SYS_waitid),
    ("kill", libc::SYS_kill),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
    #[cfg(target_arch = "x86_64")]
    ("poll", libc::SYS_poll),
    #[cfg(target_arch = "x86_64")]
    ("epoll_wait", libc::SYS_epoll_wait),
    ("fcntl", libc::SYS_fcntl),
];

/// Makes this process the parent of every descendant that loses its own, and tries what else supervising takes.
///
/// # Errors
/// The first call that is refused.
pub(crate) fn prepare_to_supervise() -> Result<(), (&'static str, Errno)> {
    prctl::set_child_subreaper(true).map_err(|errno| ("prctl", errno))?;
    let none: libc::c_long = -1;
    for &(call, number) in NEEDED {
        // SAFETY: changes nothing. No process, descriptor or address has the first number, and the others are no valid signal,
        // size or flags: without a sandbox each call fails for that.
        let answer = Errno::result(unsafe { libc::syscall(number, libc::c_long::from(i32::MAX), none, none, none) });
        if let Err(errno @ (Errno::EPERM | Errno::EACCES | Errno::ENOSYS)) = answer {
            return Err((call, errno));
        }
    }
    Ok(())
}
