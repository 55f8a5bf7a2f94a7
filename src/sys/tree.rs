//! Everything that descends from this process: finding it and signalling it.
//!
//! This process must be a subreaper, so that who has lost a parent is found here as a child. Where
//! /proc is not mounted, only the group and the child that the caller names are reached.

use super::process;
use super::signals::send;
use nix::errno::Errno;
use nix::libc;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// One process, as /proc showed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    parent: i32,
    group: i32,
    /// In clock ticks since boot: with the pid, an identity that is not used again.
    started: u64,
    stopped: bool,
}

/// The child and the process group that are known without looking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// A child of ours that has not been reaped.
    pub(crate) child: Option<i32>,
    /// A process group with nobody in it but descendants of ours.
    pub(crate) group: Option<i32>,
}

/// What one round of killing did.
#[derive(Debug, Default)]
pub(crate) struct Killed {
    pub(crate) signalled: usize,
    /// Processes that the kernel does not let us kill: those of another user.
    pub(crate) refused: Vec<i32>,
}

/// How often the tree is looked at again for those who were being forked while it was signalled.
const ROUNDS: usize = 8;

/// Sends `signal` to all descendants, once to each.
///
/// A process that is forked while we look is found by looking again. But one that a signal *handler* has
/// forked, to clean up, must not be hit: it is a child of somebody who was signalled and lives on. A missed
/// child of somebody who died of the signal has been handed to us, which tells the two apart.
pub(crate) fn signal_all(signal: i32, known: Known) {
    let us = own_pid();
    let mut seen = descendants(us);
    let group = known.group.filter(|&group| known.child.is_some() || seen.iter().any(|process| process.group == group));
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
            done.insert(identity);
            if Some(process.group) != group && Some(process.pid) != known.child {
                let _ = send_surely(process, signal);
            }
            found = true;
        }
        if !found && answered_for.is_empty() {
            break;
        }
        if round > 0 {
            // Time for those to die who are about to.
            std::thread::sleep(Duration::from_millis(1));
        }
        seen = descendants(us);
    }
}

/// Continues all descendants that are stopped, so that they can act on what they were sent.
pub(crate) fn continue_all() {
    for process in descendants(own_pid()).iter().filter(|process| process.stopped) {
        let _ = send_surely(process, libc::SIGCONT);
    }
}

/// One round of killing all descendants but `spared` and what descends from those. Repeat until there are no children: who is
/// being forked meanwhile is found as an orphan. The `first` round does without proof that a whole group has been hit.
pub(crate) fn kill_all(known: Known, first: bool, spared: &[i32]) -> Killed {
    let us = own_pid();
    let mut killed = Killed::default();
    // At once, before we look: on a busy machine that takes its time.
    let group = known.group.filter(|_| known.child.is_some());
    if let Some(child) = known.child {
        if let Some(group) = group {
            process::urge_group(group);
            let _ = send(-group, libc::SIGKILL);
        }
        match kill(child) {
            Err(_) => killed.refused.push(child),
            Ok(()) => killed.signalled += 1,
        }
    }
    let mut spared = spared.to_vec();
    // Parents come before their children.
    for process in descendants(us) {
        let Process { pid, parent, .. } = process;
        let hit = Some(pid) == known.child || first && Some(process.group) == group;
        if spared.contains(&pid) || spared.contains(&parent) {
            spared.push(pid);
        } else if !hit {
            // Nobody but us can reap our children, so that their pids are theirs.
            let sent = match parent == us {
                true => kill(pid),
                false => send_surely(&process, libc::SIGKILL),
            };
            match sent {
                Err(Errno::EPERM) => killed.refused.push(pid),
                Err(_) => {}
                Ok(()) => killed.signalled += 1,
            }
        }
    }
    killed
}

/// Kills a child of ours. To die takes the processor too, which others may want: where that is permitted, it comes first.
fn kill(child: i32) -> nix::Result<()> {
    process::urge(child);
    send(child, libc::SIGKILL)
}

/// The pids of the children that this process has.
pub(crate) fn own_children() -> Vec<i32> {
    if !process::has_children() {
        return Vec::new();
    }
    let us = own_pid();
    descendants(us).iter().filter(|process| process.parent == us).map(|process| process.pid).collect()
}

fn own_pid() -> i32 {
    nix::unistd::getpid().as_raw()
}

/// All that descends from `root`, parents before their children.
fn descendants(root: i32) -> Vec<Process> {
    let listed = fs::exists(format!("/proc/{root}/task/{root}/children")).unwrap_or(false);
    let table = if listed { HashMap::new() } else { everybody() };
    let mut found: Vec<Process> = Vec::new();
    let mut known = HashSet::from([root]);
    let mut next = 0;
    let mut parent = root;
    loop {
        let children = if listed {
            children_of(parent).into_iter().filter_map(look_at).collect()
        } else {
            table.get(&parent).cloned().unwrap_or_default()
        };
        // A pid that was given anew while we looked must not send us in circles.
        found.extend(children.into_iter().filter(|child| known.insert(child.pid)));
        let Some(process) = found.get(next) else {
            return found;
        };
        parent = process.pid;
        next += 1;
    }
}

/// The children of all threads of a process.
fn children_of(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect()
}

/// Every process of the machine by its parent, for kernels that do not list children.
fn everybody() -> HashMap<i32, Vec<Process>> {
    let mut table: HashMap<i32, Vec<Process>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(process) = pid.and_then(look_at) {
            table.entry(process.parent).or_default().push(process);
        }
    }
    table
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
    // Field 22 of proc_pid_stat(5); we are behind field 5.
    let started = fields.nth(16)?.parse().ok()?;
    Some(Process { pid, parent, group, started, stopped: state == "T" })
}

/// Sends a signal to exactly this process, even if its pid has been given to another since we looked.
fn send_surely(process: &Process, signal: i32) -> nix::Result<()> {
    // SAFETY: takes two numbers and touches no memory.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, process.pid, 0) };
    let fd = match Errno::result(opened) {
        Ok(fd) => i32::try_from(fd).map_err(|_| Errno::EBADF)?,
        Err(Errno::ENOSYS) => return send(process.pid, signal),
        Err(error) => return Err(error),
    };
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
        assert!(process.stopped);
        assert_eq!(parse(1, "1 (half"), None);
    }
}
