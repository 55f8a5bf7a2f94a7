//! Everything that descends from this process: finding it, signalling it, killing it.
//!
//! This process must be a subreaper, so that a process that has lost its parent is found here as a child. Where /proc does
//! not show this process (it is not mounted, or belongs to another pid namespace), or the kernel lists no children there
//! (CONFIG_PROC_CHILDREN), only the group and the child that the caller names are reached.

use super::process;
use super::signals::send;
use nix::errno::Errno;
use nix::libc;
use nix::unistd::{self, Pid};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// One process, as /proc showed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    /// In clock ticks since boot: with the pid, an identity that is not used again.
    started: u64,
    stopped: bool,
    /// It has a single thread.
    single: bool,
}

/// The child and the process group that are known without looking.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    /// A child of this process that has not been reaped.
    pub(crate) child: Option<i32>,
    /// A process group that descendants of this process alone are in, or were in.
    pub(crate) group: Option<i32>,
}

impl Known {
    /// The group, while a child holds on to its number: after that it may be given to a stranger.
    fn live_group(self) -> Option<i32> {
        self.group.filter(|&group| self.child.is_some() || process::has_children_in(group))
    }
}

/// What one round of killing did.
#[derive(Debug, Default)]
pub(crate) struct Killed {
    /// Children that were sent SIGKILL.
    pub(crate) signalled: Vec<i32>,
    /// Children that the kernel does not let this process kill: those of another user.
    pub(crate) refused: Vec<i32>,
}

/// How often the tree is looked at again for those who were being forked while it was signalled.
const ROUNDS: usize = 8;

/// Sends `signal` to all descendants, once to each, and continues the stopped ones behind it if `wake`. Asks `stop` before each
/// process that is looked at, and leaves the rest alone once that is true: a large tree takes a while. `stop` is told how
/// many have been found so far.
///
/// A process that is forked while this looks is found by looking again. But one that a signal *handler* has forked, to clean
/// up, must not be hit: it is a child of a process that was signalled and lives on. A missed child of a process that died of
/// the signal has been handed to this process, which tells the two apart.
pub(crate) fn signal_all(signal: i32, known: Known, wake: bool, stop: &mut dyn FnMut(usize) -> bool) {
    let Some(mut seen) = descendants(stop) else { return };
    let group = known.live_group();
    if let Some(group) = group {
        // The kernel leaves no gap within a group.
        let _ = send(-group, signal);
    } else if let Some(child) = known.child {
        let _ = send(child, signal);
    }
    let mut done: HashSet<(i32, u64)> = HashSet::new();
    for round in 0..ROUNDS {
        let mut found = false;
        // Those that have a parent who was signalled before they were seen, and their children.
        let mut answered_for = HashSet::new();
        let alive: HashMap<i32, u64> = seen.iter().map(|one| (one.pid, one.started)).collect();
        let before = done.clone();
        for process in &seen {
            let identity = (process.pid, process.started);
            let parent = alive.get(&process.parent).map(|&started| (process.parent, started));
            if done.contains(&identity) {
                continue;
            }
            if parent.is_some_and(|one| before.contains(&one) || answered_for.contains(&one)) {
                answered_for.insert(identity);
                continue;
            }
            if stop(seen.len()) {
                return;
            }
            done.insert(identity);
            found = true;
            if Some(process.group) != group && Some(process.pid) != known.child {
                let _ = send_surely(process, signal);
            }
            if wake && process.stopped {
                let _ = send_surely(process, libc::SIGCONT);
            }
        }
        if !found && answered_for.is_empty() {
            return;
        }
        if round > 0 {
            // Time for those to die who are about to.
            std::thread::sleep(Duration::from_millis(1));
        }
        let Some(now) = descendants(stop) else { return };
        seen = now;
    }
}

/// Kills every child, and the known group if `first`. Each death hands the children of the dead to this process, so repeating
/// this until there are no children kills all descendants.
///
/// Only this process can reap its children, so their pids are theirs, and nothing needs to be looked at before it is killed.
pub(crate) fn kill_children(known: Known, first: bool) -> Killed {
    if let Some(group) = known.live_group().filter(|_| first) {
        // The kernel leaves no gap within a group.
        let _ = send(-group, libc::SIGKILL);
    }
    let mut children = children();
    children.extend(known.child.filter(|child| !children.contains(child)));
    let mut killed = Killed::default();
    let session = unistd::getsid(None);
    for child in children {
        let pid = Some(Pid::from_raw(child));
        // All of a session that a descendant has made are descendants: no gap either for those who fork and exit.
        if unistd::getsid(pid) != session {
            let _ = unistd::getpgid(pid).map(|group| send(-group.as_raw(), libc::SIGKILL));
        }
        match send(child, libc::SIGKILL) {
            Err(_) => killed.refused.push(child),
            Ok(()) => killed.signalled.push(child),
        }
    }
    killed
}

fn own_pid() -> i32 {
    unistd::getpid().as_raw()
}

/// Whether /proc is there and counts processes as this one does.
fn shows(us: i32) -> bool {
    fs::read_link("/proc/self").is_ok_and(|link| link.as_os_str() == us.to_string().as_str())
}

/// The children of this process' main thread, which all orphans become.
fn children() -> Vec<i32> {
    let us = own_pid();
    if shows(us) { children_of(us, true) } else { Vec::new() }
}

/// All that descends from this process, parents before their children; none when `stop` became true meanwhile.
fn descendants(stop: &mut dyn FnMut(usize) -> bool) -> Option<Vec<Process>> {
    let us = own_pid();
    let mut found: Vec<Process> = Vec::new();
    if !shows(us) {
        return Some(found);
    }
    let mut known = HashSet::from([us]);
    let mut next = 0;
    let (mut parent, mut single) = (us, false);
    loop {
        for pid in children_of(parent, single) {
            if stop(found.len()) {
                return None;
            }
            // A pid that was given anew meanwhile must not lead in circles.
            found.extend(look_at(pid).filter(|child| known.insert(child.pid)));
        }
        let Some(process) = found.get(next) else {
            return Some(found);
        };
        (parent, single) = (process.pid, process.single);
        next += 1;
    }
}

/// The children of all threads of a process, which has a `single` one or perhaps more.
fn children_of(pid: i32, single: bool) -> Vec<i32> {
    if single {
        return children_of_thread(&format!("/proc/{pid}/task/{pid}")).unwrap_or_default();
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| children_of_thread(thread.path().to_str()?)).flatten().collect()
}

/// The children of the thread with this directory in /proc.
fn children_of_thread(directory: &str) -> Option<Vec<i32>> {
    let list = fs::read_to_string(format!("{directory}/children")).ok()?;
    Some(list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

/// Reads /proc/PID/stat.
fn look_at(pid: i32) -> Option<Process> {
    // A name need not be UTF-8.
    parse(pid, &String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// The second field is the program's name, in brackets, and may itself contain brackets and spaces.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    // Fields 20 and 22 of proc_pid_stat(5); the last was field 5.
    let single = fields.nth(14)? == "1";
    let started = fields.nth(1)?.parse().ok()?;
    Some(Process { pid, parent, group, started, stopped: state == "T", single })
}

/// Sends a signal to exactly this process, even if its pid has been given to another since we looked.
fn send_surely(process: &Process, signal: i32) -> nix::Result<()> {
    // SAFETY: takes two numbers and touches no memory.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, process.pid, 0) })?;
    let fd = i32::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just given us this descriptor.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    if look_at(process.pid).is_none_or(|now| now.started != process.started) {
        return Err(Errno::ESRCH);
    }
    let nothing: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: a null siginfo asks for what kill(2) would send.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, nothing, 0) };
    Errno::result(sent).map(drop)
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::parse;

    #[test]
    fn a_name_may_look_like_the_fields_behind_it() {
        let stat = "77 (a) S 1 (b) T 12 34 34 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 1";
        let process = parse(77, stat).unwrap();
        assert_eq!((process.parent, process.group, process.started), (12, 34, 98765));
        assert!(process.stopped && process.single);
        assert_eq!(parse(1, "1 (half"), None);
    }
}
