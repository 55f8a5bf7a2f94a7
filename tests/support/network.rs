//! A network namespace: only servers of the test listen on its 127.0.0.1, even if this machine runs a Redis.

use super::die_with_parent;
use nix::errno::Errno;
use nix::libc;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;

/// Lives as long as a process in it that does nothing.
#[derive(Debug)]
pub(crate) struct Network {
    inhabitant: Child,
    namespaces: Vec<File>,
}

impl Network {
    /// None if this machine allows no network namespace.
    pub(crate) fn new() -> Option<Arc<Network>> {
        let is_root = nix::unistd::geteuid().is_root();
        let flags = libc::CLONE_NEWNET | if is_root { 0 } else { libc::CLONE_NEWUSER };
        let mut sleep = Command::new("sleep");
        // SAFETY: only async-signal-safe calls.
        unsafe {
            sleep.arg("infinity").pre_exec(move || {
                Errno::result(libc::unshare(flags))?;
                raise_loopback()
            });
        }
        let inhabitant = match die_with_parent(&mut sleep).spawn() {
            Ok(child) => child,
            Err(error) => {
                eprintln!("not tried: this machine lets nobody make a network namespace: {error}");
                return None;
            }
        };
        // The user namespace comes first: it gives the right to enter the network namespace.
        let names = if is_root { &["net"][..] } else { &["user", "net"] };
        let open = |name: &&str| File::open(format!("/proc/{}/ns/{name}", inhabitant.id())).unwrap();
        Some(Arc::new(Network { namespaces: names.iter().map(open).collect(), inhabitant }))
    }

    /// Lets the command start in this network, which must exist until then.
    pub(super) fn enter(&self, command: &mut Command) {
        let namespaces: Vec<i32> = self.namespaces.iter().map(AsRawFd::as_raw_fd).collect();
        // SAFETY: only async-signal-safe calls, and the closure was allocated before the fork.
        unsafe {
            command.pre_exec(move || {
                namespaces.iter().try_for_each(|&namespace| Errno::result(libc::setns(namespace, 0)).map(drop))?;
                Ok(())
            });
        }
    }
}

/// Switches 127.0.0.1 on. Async-signal-safe.
fn raise_loopback() -> io::Result<()> {
    // SAFETY: plain data; the structure outlives the call, and the descriptor is closed by exec.
    unsafe {
        let socket = Errno::result(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))?;
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = from.cast_signed() as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        Errno::result(libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &raw const request))?;
    }
    Ok(())
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.inhabitant.kill();
        let _ = self.inhabitant.wait();
    }
}
