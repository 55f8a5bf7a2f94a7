//! The calls that supervising a job rests on, tried before there is a job: a sandbox (seccomp) may refuse any of them, and most
//! come when it is too late to do without.

use super::clock::Boot;
use super::process::{self, Handle};
use super::signals::send;
use super::timer::Timer;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollTimeout};
use nix::sys::prctl;
use nix::unistd;
use std::io;

/// A call that the kernel refuses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) call: &'static str,
    pub(crate) errno: Errno,
}

/// Makes this process the parent of every descendant that loses its own, and tries what else supervising takes.
///
/// # Errors
/// The first call that is refused.
pub(crate) fn prepare_to_supervise() -> Result<(), Refusal> {
    let us = unistd::getpid().as_raw();
    let tries: [(&str, &dyn Fn() -> nix::Result<()>); 9] = [
        ("prctl", &|| prctl::set_child_subreaper(true)),
        ("timerfd_settime", &|| Timer::new()?.set(Boot::NEVER)),
        ("wait4", &|| process::try_to_wait(us)),
        ("waitid", &|| process::try_to_look(us)),
        ("kill", &|| send(us, 0)),
        ("pidfd_send_signal", &|| Handle::open(us)?.signal(0)),
        ("poll", &|| poll(&mut [], PollTimeout::ZERO).map(drop)),
        ("epoll_wait", &|| {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO).map(drop)
        }),
        ("fcntl", &|| fcntl(io::stderr(), FcntlArg::F_GETFD).map(drop)),
    ];
    tries.into_iter().try_for_each(|(call, attempt)| attempt().map_err(|errno| Refusal { call, errno }))
}
