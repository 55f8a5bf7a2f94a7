//! Finds, signals and kills the descendants of this process, or of another process ([`Descendants`]). A detached child
//! of this process ([`process::is_detached`]) does not count as a descendant.
//!
//! All functions need /proc ([`can_see`]). All but [`Descendants`] need this process to be a subreaper: a descendant
//! whose parent ends becomes a child of this process.

use super::process::{self, Handle};
use super::signals::send;
use nix::errno::Errno;
use nix::libc;
use nix::unistd::{self, Pid};
use std::collections::{HashSet, VecDeque};
use std::fs;
use std::io;

/// One process, as /proc shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    /// Clock ticks since boot: with the pid, an identity that is never reused.
    started: u64,
    /// The state's letter in proc_pid_stat(5).
    state: u8,
    /// True if the process has one thread.
    single: bool,
}

impl Process {
    /// True if the process cannot fork or end now: it is stopped, or in a wait that no signal ends (as in vfork).
    fn stands_still(&self) -> bool {
        matches!(self.state, b'T' | b't' | b'D')
    }
}

/// The child and the process group that the caller started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Root {
    /// A child of this process; None once the child is reaped.
    pub(crate) child: Option<i32>,
    /// A process group whose members are all descendants of this process.
    pub(crate) group: Option<i32>,
}

impl Root {
    /// The group, if its number cannot have been reused: `child` is not reaped yet, or the group contains a child of
    /// this process.
    fn live_group(self) -> Option<i32> {
        self.group.filter(|&group| self.child.is_some() || process::has_children_in(group))
    }
}

#[derive(Debug, Default)]
pub(crate) struct KillRound {
    pub(crate) signalled: Vec<i32>,
    /// Processes of another user, which this process may not signal.
    pub(crate) refused: Vec<i32>,
}

/// Sends `signal` to each descendant. With `wake`, SIGCONT follows, because a stopped process does not handle the
/// signal. A large tree takes a while, so `stop` is called before each process, with the number of processes found so
/// far. Once it returns true, no further process gets the signal.
///
/// Two kinds of processes miss the signal: a process outside the group that is forked during this call, and a process
/// that a signal handler forks to clean up.
pub(crate) fn signal_all(signal: i32, root: Root, wake: bool, stop: &mut dyn FnMut(usize) -> bool) {
    let Some(found) = descendants(stop) else { return };
    let group = root.live_group();
    if let Some(group) = group {
        // The kernel signals a group at once: no fork escapes.
        let _ = send(-group, signal);
    } else if let Some(child) = root.child {
        let _ = send(child, signal);
    }
    // True if the signal above reaches the process.
    let is_reached = |process: &Process| match group {
        Some(group) => process.group == group,
        None => Some(process.pid) == root.child,
    };
    for process in &found {
        if stop(found.len()) {
            return;
        }
        let Some((now, handle)) = present(process) else { continue };
        // If a process joins or leaves the group meanwhile, it gets the signal once or twice. If a process leaves the
        // group and comes back, it may miss the signal.
        if !(is_reached(process) && is_reached(&now)) {
            let _ = handle.signal(signal);
        }
        if wake {
            let _ = handle.signal(libc::SIGCONT);
        }
    }
}

/// The number of descendants that /proc shows. `stop` is called for each descendant; None once `stop` returns true.
pub(crate) fn size(stop: &mut dyn FnMut(usize) -> bool) -> Option<usize> {
    descendants(stop).map(|found| found.len())
}

/// Kills every child that is not `spared`; if `first`, also the group of `root`. The children of a dead process become
/// children of this process, so the caller repeats the call until no child is left: then no descendant is left.
///
/// Only this process can reap its children, so their pids are not reused, and need no check before a kill.
pub(crate) fn kill_children(root: Root, first: bool, spared: &[Handle]) -> KillRound {
    if let Some(group) = root.live_group().filter(|_| first) {
        let _ = send(-group, libc::SIGKILL);
    }
    let mut killed = KillRound::default();
    let session = unistd::getsid(None);
    // If no descriptor is free, the list of children cannot be read, and only `root.child` is known.
    for child in children().unwrap_or_else(|| root.child.into_iter().collect()) {
        if spared.iter().any(|one| one.is(child)) {
            continue;
        }
        let pid = Some(Pid::from_raw(child));
        // If the child is in another session than this process, a descendant has created that session, and only
        // descendants are in it. So the child's whole group may be killed: a signal to the group reaches even processes
        // that fork and exit.
        if unistd::getsid(pid) != session {
            let _ = unistd::getpgid(pid).map(|group| send(-group.as_raw(), libc::SIGKILL));
        }
        let is_killed = send(child, libc::SIGKILL).is_ok();
        let list = if is_killed { &mut killed.signalled } else { &mut killed.refused };
        list.push(child);
    }
    killed
}

/// Kills every descendant that /proc shows, except the children. Without this, the processes of a long chain would
/// become children of this process one by one, and die one by one. Calls `alive` for each process that is found, and
/// then for each kill, with the number of processes so far.
pub(crate) fn kill_below(alive: &mut dyn FnMut(usize)) {
    let found = descendants(&mut |count| {
        alive(count);
        false
    });
    for (count, process) in found.unwrap_or_default().iter().enumerate().filter(|(_, one)| one.parent != own_pid()) {
        alive(count);
        if let Some((_, handle)) = present(process) {
            let _ = handle.signal(libc::SIGKILL);
        }
    }
}

/// The largest number of rounds of SIGSTOP: during a round, processes that still run may fork.
const ROUNDS: usize = 8;

/// A process and all its descendants. The caller need not have started the process. Children are missed if their parent
/// ends before any look has found them.
#[derive(Debug)]
pub(crate) struct Descendants<'a> {
    root: &'a Handle,
    /// The processes found so far, the root included, without those that had ended at the last look.
    seen: Vec<Process>,
}

impl Descendants<'_> {
    pub(crate) fn of(root: &Handle) -> Descendants<'_> {
        let process = look_at(root.pid());
        // If the root still lives, its pid was not reused before the look.
        Descendants { root, seen: process.into_iter().filter(|_| !root.has_ended()).collect() }
    }

    /// Looks again. True once the root and all processes found so far have ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.look();
        self.seen.is_empty() && self.root.has_ended()
    }

    /// Sends `signal` and then SIGCONT to the root and to all descendants, parents before children.
    pub(crate) fn signal(&mut self, signal: i32) -> KillRound {
        let mut round = KillRound::default();
        let mut count = |pid, sent| match sent {
            Err(Errno::EPERM) => round.refused.push(pid),
            _ => round.signalled.push(pid),
        };
        self.look();
        if self.seen.is_empty() && !self.root.has_ended() {
            count(self.root.pid(), self.root.signal(signal));
        }
        self.for_each(&mut |process, handle| {
            count(process.pid, handle.signal(signal));
            let _ = handle.signal(libc::SIGCONT);
        });
        round
    }

    /// Stops all processes except the root, so that they do not fork. Then kills all processes, the root first, because
    /// it would go on with its next command after the end of a child. The root is not stopped, because its parent would
    /// notice: sudo(8), for example, would stop itself for good.
    pub(crate) fn kill(&mut self) -> KillRound {
        let root = self.root.pid();
        let mut known = HashSet::new();
        for _ in 0..ROUNDS {
            let mut moved = false;
            self.for_each(&mut |process, handle| {
                let is_new = known.insert((process.pid, process.started));
                if process.pid != root && (is_new || !process.stands_still()) {
                    let _ = handle.signal(libc::SIGSTOP);
                    moved = true;
                }
            });
            if !moved {
                break;
            }
        }
        self.signal(libc::SIGKILL)
    }

    fn look(&mut self) {
        self.for_each(&mut |_, _| ());
    }

    /// Drops the processes that [`present`] does not find, adds the new descendants, and calls `act` for each process.
    /// Never finds this process.
    fn for_each(&mut self, act: &mut dyn FnMut(&Process, &Handle)) {
        let mut known: HashSet<i32> = self.seen.iter().map(|process| process.pid).chain([own_pid()]).collect();
        let mut queue: VecDeque<Process> = self.seen.drain(..).collect();
        while let Some(process) = queue.pop_front() {
            let Some((process, handle)) = present(&process) else { continue };
            // `act` comes right after the look at the children: if `act` ends the parent, a child that was forked in
            // between is missed.
            let children = children_of(process.pid, process.single);
            act(&process, &handle);
            queue.extend(children.into_iter().filter(|&child| known.insert(child)).filter_map(look_at));
            self.seen.push(process);
        }
    }
}

/// The process as it is now. None if the process has ended, or if no descriptor is free.
fn present(process: &Process) -> Option<(Process, Handle)> {
    let handle = Handle::open(process.pid).ok()?;
    let now = look_at(process.pid).filter(|now| now.started == process.started && !handle.has_ended())?;
    Some((now, handle))
}

fn own_pid() -> i32 {
    unistd::getpid().as_raw()
}

/// Checks that /proc is mounted, lists children (CONFIG_PROC_CHILDREN), and belongs to this process's pid namespace. In
/// another namespace the pids would mean other processes.
pub(crate) fn can_see() -> io::Result<()> {
    // In the /proc of another namespace, this process has another number.
    fs::File::open(format!("/proc/self/task/{}/children", own_pid())).map(drop)
}

/// The children of this process's main thread, without detached programs ([`process::start_detached`]). The main thread
/// adopts all orphans. None if no descriptor is free to read the list.
pub(crate) fn children() -> Option<Vec<i32>> {
    let us = own_pid();
    let mut all = children_of_thread(&format!("/proc/{us}/task/{us}"))?;
    all.retain(|&child| !process::is_detached(child));
    Some(all)
}

/// All descendants of this process, parents before children. `stop` is called for each descendant, with the number of
/// processes found so far, this process included. None once `stop` returns true.
fn descendants(stop: &mut dyn FnMut(usize) -> bool) -> Option<Vec<Process>> {
    let us = own_pid();
    let mut found: Vec<Process> = look_at(us).into_iter().collect();
    // A pid reused during the search must not lead in circles.
    let mut known = HashSet::from([us]);
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let children = match parent.pid == us {
            true => children().unwrap_or_default(),
            false => children_of(parent.pid, parent.single),
        };
        for pid in children {
            if stop(found.len()) {
                return None;
            }
            found.extend(look_at(pid).filter(|child| known.insert(child.pid)));
        }
        next += 1;
    }
    found.retain(|process| process.pid != us);
    Some(found)
}

/// The children of all threads of a process. `single`: the process is known to have one thread.
fn children_of(pid: i32, single: bool) -> Vec<i32> {
    if single {
        return children_of_thread(&format!("/proc/{pid}/task/{pid}")).unwrap_or_default();
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| children_of_thread(thread.path().to_str()?)).flatten().collect()
}

/// The children of the thread with this directory in /proc; None if the list cannot be read.
fn children_of_thread(directory: &str) -> Option<Vec<i32>> {
    let list = fs::read_to_string(format!("{directory}/children")).ok()?;
    Some(list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

fn look_at(pid: i32) -> Option<Process> {
    // The program's name need not be UTF-8.
    parse(pid, &String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// Parses /proc/PID/stat. The second field, the program's name in brackets, may itself contain brackets and spaces.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    // Fields 20 and 22 of proc_pid_stat(5); the group is field 5.
    let single = fields.nth(14)? == "1";
    let started = fields.nth(1)?.parse().ok()?;
    Some(Process { pid, parent, group, started, state, single })
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::{Root, parse};
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_group_is_known_as_long_as_a_child_in_it_keeps_its_number() {
        let mut child = Command::new("true").process_group(0).spawn().unwrap();
        let root = Root { child: None, group: i32::try_from(child.id()).ok() };
        assert_eq!(root.live_group(), root.group);
        child.wait().unwrap();
        assert_eq!(root.live_group(), None);
    }

    #[test]
    fn a_name_may_look_like_the_fields_behind_it() {
        let stat = "77 (a) S 1 (b) T 12 34 34 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 1";
        let process = parse(77, stat).unwrap();
        assert_eq!((process.parent, process.group, process.started), (12, 34, 98765));
        assert!(process.stands_still() && process.single);
        assert_eq!(parse(1, "1 (half"), None);
    }
}
