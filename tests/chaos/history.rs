//! The history. A section is what a job (`section.c`) or this test does under a lock. Each section writes lines into
//! the history, and `judge` judges them.

use nix::libc;
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Microseconds since this machine was started, including sleep.
pub(super) fn now() -> i64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap();
    now.tv_sec() * 1_000_000 + now.tv_nsec() / 1_000
}

pub(super) fn sleep_until(at: i64) {
    std::thread::sleep(Duration::from_micros(u64::try_from((at - now()).max(0)).unwrap()));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The section has entered, and no other section conflicts with it.
    Enter,
    Leave,
    /// A conflicting section, which redlock supervises, is alive.
    Overlap,
    /// A conflicting section, which ends by its own clock, has entered and not left yet.
    Beside,
}

const EVENTS: [(&str, Event); 4] =
    [("enter", Event::Enter), ("leave", Event::Leave), ("overlap", Event::Overlap), ("beside", Event::Beside)];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) event: Event,
    pub(super) lock: String,
    /// The claim: `x` exclusive, `s` shared, `p` a slot, `n` exclusive with `--newest`.
    pub(super) kind: char,
    /// The slot, the number of `--newest`, or `-`.
    pub(super) slot: String,
    pub(super) fence: Option<u64>,
    pub(super) token: String,
    pub(super) pid: u32,
    /// In microseconds of [`now`].
    pub(super) at: i64,
    /// When a section that ends by its own clock ends, in microseconds of [`now`].
    pub(super) until: Option<i64>,
    /// The job's exit status, in the line about its end.
    pub(super) status: Option<i64>,
}

impl Display for Line {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let event = EVENTS.iter().find(|one| one.1 == self.event).unwrap().0;
        let number = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
        let fence = number(self.fence.map(|n| n.to_string()));
        let [until, status] = [self.until, self.status].map(|n| number(n.map(|n| n.to_string())));
        let Line { lock, kind, slot, token, pid, at, .. } = self;
        write!(f, "{event} {lock} {kind} {slot} {fence} {token} {pid} {at} {until} {status}")
    }
}

impl Line {
    pub(super) fn read(text: &str) -> Line {
        let fields: Vec<&str> = text.split(' ').collect();
        let [event, lock, kind, slot, fence, token, pid, at, until, status] = fields[..] else { panic!("{text:?}") };
        let event = EVENTS.iter().find(|one| one.0 == event).unwrap_or_else(|| panic!("{text:?}")).1;
        let given = |text: &str| (text != "-").then(|| text.parse().unwrap());
        Line {
            event,
            lock: lock.to_owned(),
            kind: kind.parse().unwrap(),
            slot: slot.to_owned(),
            fence: (fence != "-").then(|| fence.parse().unwrap()),
            token: token.to_owned(),
            pid: pid.parse().unwrap(),
            at: at.parse().unwrap(),
            until: given(until),
            status: given(status),
        }
    }
}

/// A section of this test, which plays a script, or a user of another library. Nobody renews its lease, so it must end
/// by its own clock: redlock does not stop it.
#[derive(Debug)]
pub(super) struct Bounded {
    directory: PathBuf,
    line: Line,
    file: File,
}

impl Bounded {
    /// Enters, or returns none if a conflicting section is alive. In either case sets `event` and `at` of the line, and
    /// writes it into the history.
    pub(super) fn enter(directory: &Path, line: Line) -> Option<Bounded> {
        let how = if line.kind == 's' { libc::LOCK_SH } else { libc::LOCK_EX };
        let slot = if line.kind == 'p' { line.slot.as_str() } else { "" };
        let path = |suffix| directory.join(format!("{}.{slot}{suffix}", line.lock));
        let (judge, file) = (open(&path("judge")), open(&path("bounded")));
        let mut section = Bounded { directory: directory.to_owned(), line, file };
        if !flock(&section.file, how) {
            section.note(Event::Beside);
            return None;
        }
        // A section that redlock supervises locks `judge` first, and then tries `bounded`. Here the order is the
        // opposite, so at least one of the two sections sees the other.
        if flock(&judge, how) {
            flock(&judge, libc::LOCK_UN);
            section.note(Event::Enter);
            return Some(section);
        }
        section.note(Event::Overlap);
        None
    }

    pub(super) fn leave(mut self) {
        self.note(Event::Leave);
    }

    fn note(&mut self, event: Event) {
        (self.line.event, self.line.at) = (event, now());
        let mut history = OpenOptions::new().append(true).create(true).open(self.directory.join("history")).unwrap();
        history.write_all(format!("{}\n", self.line).as_bytes()).unwrap();
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        // Closing the file may not unlock it, because another thread may be starting a process that has it open, too.
        flock(&self.file, libc::LOCK_UN);
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn flock(file: &File, how: i32) -> bool {
    // SAFETY: flock takes two numbers, and touches no memory.
    unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) == 0 }
}

/// What the judge has read so far of one lock, or of one slot.
#[derive(Debug, Default)]
struct State {
    /// The largest fencing token, and the token of the lease that had it.
    highest: Option<(u64, String)>,
    /// The largest fencing token of leases that were not shared.
    written: u64,
    /// Sections that end by their own clock, and have not left.
    bounded: Vec<Line>,
    newest: u64,
}

#[derive(Debug, Default)]
pub(super) struct Judgement {
    pub(super) violations: Vec<String>,
    pub(super) entered: usize,
    /// How many sections should have ended by their own clock, but left later.
    pub(super) late: usize,
    /// Lock → the milliseconds from the end of each section to the beginning of the next. They make sense only if all
    /// sections of the lock are exclusive.
    pub(super) handovers: BTreeMap<String, Vec<i64>>,
}

/// Judges a history. Until `remembered_until` (microseconds of [`now`]), the servers know the largest number of
/// `--newest`, and a smaller one must not enter.
pub(super) fn judge(lines: &[Line], remembered_until: i64) -> Judgement {
    let mut judgement = Judgement::default();
    let mut states: BTreeMap<(&str, &str), State> = BTreeMap::new();
    let mut ended: BTreeMap<&str, i64> = BTreeMap::new();
    for line in lines {
        let slot = if line.kind == 'n' { "-" } else { &line.slot };
        let state = states.entry((&line.lock, slot)).or_default();
        match line.event {
            Event::Leave => {
                let of_token = state.bounded.iter().position(|one| one.token == line.token);
                if let Some(at) = of_token {
                    state.bounded.remove(at);
                    judgement.late += usize::from(line.until.is_some_and(|until| line.at > until));
                }
                ended.insert(&line.lock, line.at);
            }
            Event::Overlap => judgement.violations.push(format!("overlap: {line}")),
            Event::Beside => {
                // A section that still runs at `until` is late, which is no violation, because nobody renews its lease.
                // If neither of the two sections is late, the lock was granted twice.
                let in_time = |one: &Line| one.until.map(|until| line.at < until);
                let beside = |one: &&Line| {
                    in_time(one) == Some(true) && in_time(line) != Some(false) && conflicts(one.kind, line.kind)
                };
                if let Some(other) = state.bounded.iter().find(beside) {
                    judgement.violations.push(format!("overlap: {line}; beside: {other}"));
                }
            }
            Event::Enter => {
                judgement.entered += 1;
                if let Some(end) = ended.remove(line.lock.as_str()) {
                    judgement.handovers.entry(line.lock.clone()).or_default().push((line.at - end) / 1000);
                }
                judgement.violations.extend(state.enter(line));
                if line.kind == 'n' {
                    let number = line.slot.parse().unwrap();
                    let wrong = || format!("outdated: {line} behind {}", state.newest);
                    let is_wrong = number < state.newest && line.at < remembered_until;
                    judgement.violations.extend(is_wrong.then(wrong));
                    state.newest = state.newest.max(number);
                }
            }
        }
    }
    judgement
}

fn conflicts(one: char, other: char) -> bool {
    (one, other) != ('s', 's')
}

impl State {
    /// Records an entry. Returns a violation if its fencing token is too small, compared with earlier entries.
    fn enter(&mut self, line: &Line) -> Option<String> {
        if line.until.is_some() {
            self.bounded.push(line.clone());
        }
        let fence = line.fence?;
        // The token of an inner hold is the lease's token, a dot and more.
        let token = line.token.split('.').next().unwrap().to_owned();
        let ours = self.highest.as_ref().is_none_or(|one| fence > one.0 || fence == one.0 && token == one.1);
        // A reader's fencing token must not be below an earlier writer's, but may be below an earlier reader's, who may
        // have got a larger number from a node that had forgotten its counter.
        let grows = if line.kind == 's' { fence >= self.written } else { ours };
        let wrong = (!grows).then(|| format!("inversion: {line} behind {:?} and {}", self.highest, self.written));
        if ours {
            self.highest = Some((fence, token));
        }
        if line.kind != 's' {
            self.written = self.written.max(fence);
        }
        wrong
    }
}

/// A judge that acquits everything is worse than none.
mod tests {
    use super::{Line, judge, now};

    #[track_caller]
    fn violations(text: &str) -> Vec<String> {
        let lines: Vec<Line> = text.lines().map(|line| Line::read(line.trim())).collect();
        for (line, text) in lines.iter().zip(text.lines()) {
            assert_eq!(line.to_string(), text.trim());
        }
        judge(&lines, 1_000).violations
    }

    #[test]
    fn what_is_right_is_acquitted() {
        let right = "enter a x - 5 t1 10 100 - -
            leave a x - 5 t1 10 200 - -
            enter a s - 6 t2 11 210 - -
            enter a s - 6 t3 12 220 - -
            enter a x - 7 t4 13 230 - -
            enter a x - 7 t4.1 14 240 - -
            enter a x - 8 t5 13 230 400 -
            beside a x - 9 t6 15 450 - -
            leave a x - 8 t5 13 460 400 -
            enter a x - 10 t8 13 462 469 -
            beside a x - - foreign 14 468 465 -
            leave a x - 10 t8 13 469 469 -
            enter a x - - foreign 13 470 900 -
            leave a x - - foreign 13 480 900 -
            enter c n 7 5 t7 13 230 - -
            enter c n 7 6 t8 13 240 - -
            enter c n 9 7 t9 13 250 - -
            enter c n 8 8 t9 13 1000 - -
            enter b p 0 5 t7 13 230 - -
            enter b p 1 4 t8 13 230 - -";
        assert!(violations(right).is_empty(), "{:?}", violations(right));
        assert!(now() > 0);
    }

    #[test]
    fn what_is_wrong_is_found() {
        for wrong in [
            "overlap a x - 5 t1 10 100 - -",
            "enter a x - 5 t1 10 100 200 -\nbeside a x - 6 t2 11 199 - -",
            "enter a s - 5 t1 10 100 200 -\nbeside a x - 6 t2 11 199 - -",
            "enter a x - 5 t1 10 100 200 -\nbeside a x - - foreign 11 199 300 -",
            "enter a x - 5 t1 10 100 - -\nenter a x - 5 t2 10 100 - -",
            "enter a x - 5 t1 10 100 - -\nenter a x - 4 t2 10 100 - -",
            "enter a x - 5 t1 10 100 - -\nenter a x - 6 t2 10 100 - -\nenter a x - 5 t1 10 120 - -",
            "enter a x - 5 t1 10 100 - -\nenter a s - 4 t2 10 100 - -",
            "enter a s - 5 t1 10 100 - -\nenter a x - 5 t2 10 100 - -",
            "enter b p 1 5 t1 10 100 - -\nenter b p 1 5 t2 10 100 - -",
            "enter c n 7 5 t1 10 100 - -\nenter c n 6 6 t2 10 100 - -",
            "enter c n 7 5 t1 10 100 - -\nenter c n 8 5 t2 10 100 - -",
        ] {
            assert_eq!(violations(wrong).len(), 1, "{wrong}");
        }
    }
}
