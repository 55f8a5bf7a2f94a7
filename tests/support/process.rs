//! Processes from the outside: who is alive, who descends from whom, who belongs to a test; and signals.

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Lets the kernel kill the process when the thread that starts it ends, so that no server outlives a test binary that
/// is killed.
pub(crate) fn die_with_parent(command: &mut Command) -> &mut Command {
    // SAFETY: prctl is async-signal-safe, and the closure calls nothing else.
    unsafe {
        command.pre_exec(|| {
            #[cfg(target_os = "linux")]
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            Ok(())
        })
    }
}

/// Sends a signal to one process; it is no failure if the process has already ended.
pub(crate) fn send(pid: u32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
}

pub(crate) fn alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
}

/// The name of the process (/proc/PID/comm); empty if it does not exist.
pub(crate) fn name(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

pub(crate) fn stopped(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state == 'T')
}

pub(crate) fn sleeps(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state == 'S')
}

/// The value behind `name` in /proc/PID/status.
pub(crate) fn status_line(pid: u32, name: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.map(|line| line.trim_start_matches(':').trim().to_owned())
}

/// Processes that a test watches, whether or not they are its children.
#[derive(Debug)]
pub(crate) struct Watched(Vec<OwnedFd>);

impl Watched {
    pub(crate) fn new(pids: &[u32]) -> Watched {
        let open = |pid: &u32| {
            // SAFETY: takes two numbers and touches no memory.
            let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, *pid, 0) };
            // SAFETY: the kernel has just given us this descriptor.
            (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap()) })
        };
        Watched(pids.iter().filter_map(open).collect())
    }

    /// Waits until all watched processes have ended; false if this takes longer than `deadline`.
    pub(crate) fn all_end(&self, deadline: Duration) -> bool {
        let until = Instant::now() + deadline;
        self.0.iter().all(|fd| {
            let left = until.saturating_duration_since(Instant::now());
            let mut ready = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
            poll(&mut ready, PollTimeout::try_from(left).unwrap()) == Ok(1)
        })
    }
}

/// Every live process below `pid`, however deep.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = all()
        .filter_map(|pid| {
            let (state, parent) = stat(pid)?;
            (state != 'Z' && state != 'X').then_some((pid, parent))
        })
        .collect();
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|entry| entry.1 == parent).map(|entry| entry.0));
        next += 1;
    }
    found.remove(0);
    found
}

/// Every live process whose environment, as of its start, has the line `TEST_TAG=<tag>`, orphans included.
pub(crate) fn tagged(tag: &str) -> Vec<u32> {
    let line = format!("TEST_TAG={tag}");
    all()
        .filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == line.as_bytes()) && alive(*pid)
        })
        .collect()
}

fn all() -> impl Iterator<Item = u32> {
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The state and the parent of a process, from /proc/PID/stat. The process' name, in parentheses, may contain any
/// character, so the state begins behind the last `)`.
fn stat(pid: u32) -> Option<(char, u32)> {
    let line = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let line = String::from_utf8_lossy(&line);
    let mut fields = line[line.rfind(')')? + 1..].split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
