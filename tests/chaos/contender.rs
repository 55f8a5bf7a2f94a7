//! Users of the locks while everything goes wrong: jobs, jobs inside jobs, scripts, people who revoke and look. What a
//! job or a script does under a lock is a section, which records its beginning and end in the history.

use super::call::{End, Mishap, Whom, call};
use super::field::{LONGEST, SHORTEST};
use super::history::{Bounded, Event, Line, now, sleep_until};
use crate::support::Chance;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SLOTS: u64 = 2;
/// A call may take this long. Even on a busy machine, this suffices for the longest wait, the longest section and the
/// longest standstill together.
const LIMIT: Duration = Duration::from_secs(60);

/// The lock of [`Contender::come_back`], which tries to extend leases that have ended.
pub(super) const LATE: &str = "late";
/// The calls of [`Contender::hold`], in the results.
const HOLD: &str = "run, long";

#[derive(Debug)]
pub(super) struct Arena {
    /// Has the history, and the output of the calls.
    pub(super) directory: PathBuf,
    pub(super) section: PathBuf,
    pub(super) until: Instant,
    pub(super) calls: AtomicUsize,
    pub(super) results: Mutex<Results>,
}

#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) violations: Vec<String>,
    /// How many calls of each kind ended with each [`End::code`].
    pub(super) statuses: BTreeMap<(&'static str, i32), usize>,
}

impl Arena {
    pub(super) fn accuse(&self, violation: String) {
        self.results.lock().unwrap().violations.push(violation);
    }

    pub(super) fn goes_on(&self) -> bool {
        Instant::now() < self.until
    }

    /// True if a call of this kind has lost its lease. True a minute after the attack in any case, so that no contender
    /// waits for ever.
    fn has_lost(&self, what: &'static str) -> bool {
        Instant::now() > self.until + LIMIT || self.results.lock().unwrap().statuses.contains_key(&(what, 76))
    }
}

pub(super) struct Contender<'a> {
    pub(super) arena: &'a Arena,
    pub(super) environment: BTreeMap<&'static str, String>,
    pub(super) chance: Chance,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Run,
    Shared,
    Slots,
    Newest,
    Several,
    Nest,
    Reentrant,
    Script,
    WhilePid,
    Revoke,
    Look,
}

const KINDS: [(u64, Kind); 11] = [
    (26, Kind::Run),
    (12, Kind::Shared),
    (14, Kind::Slots),
    (9, Kind::Newest),
    (8, Kind::Several),
    (6, Kind::Nest),
    (5, Kind::Reentrant),
    (14, Kind::Script),
    (9, Kind::WhilePid),
    (2, Kind::Revoke),
    (4, Kind::Look),
];

impl Contender<'_> {
    pub(super) fn contend(&mut self) {
        while self.arena.goes_on() {
            match self.chance.weighted(&KINDS) {
                Kind::Run => self.run("run", 'x'),
                Kind::Shared => self.run("run --shared", 's'),
                Kind::Slots => self.run("run --slots", 'p'),
                Kind::Newest => self.run("run --newest", 'n'),
                Kind::Several => self.several(),
                Kind::Nest => self.nest(),
                Kind::Reentrant => self.reentrant(),
                Kind::Script => self.script(),
                Kind::WhilePid => self.while_pid(),
                Kind::Revoke => self.revoke(),
                Kind::Look => self.look(),
            }
            std::thread::sleep(self.chance.time(0, 25));
        }
    }

    fn name(&mut self) -> &'static str {
        self.chance.one_of(&["x1", "x2", "x3", "x4"])
    }

    fn ttl(&mut self) -> String {
        let ttl = self.chance.one_of(&[SHORTEST, SHORTEST * 3 / 2, LONGEST]);
        format!("--ttl={}ms", ttl.as_millis())
    }

    /// For `--newest`. The numbers grow with time, but some calls get the same one, and some an outdated one.
    fn number(&mut self) -> String {
        (now() / 400_000 - i64::try_from(self.chance.below(4)).unwrap()).to_string()
    }

    /// 0 for a single try, else some seconds in line.
    fn wait(&mut self) -> &'static str {
        self.chance.weighted(&[(2, "--wait=0"), (2, "--wait=1s"), (6, "--wait=8s")])
    }

    /// The command line of a section with these locks, and the status with which it ends. `ways`: see section.c.
    fn section(&mut self, locks: &[(&str, char)], ways: &str) -> (Vec<String>, i32) {
        let long = self.chance.percent(3);
        let time = if long { self.chance.time(500, 5000) } else { self.chance.time(1, 70) };
        // 143: the section ends by SIGTERM.
        let status = self.chance.one_of(&[0, 0, 0, 7, 143]);
        let mut words = vec![self.arena.section.to_str().unwrap().to_owned()];
        words.push(self.arena.directory.to_str().unwrap().to_owned());
        words.extend([time.as_millis().to_string(), format!("-{ways}"), status.to_string()]);
        words.extend(locks.iter().map(|(name, kind)| format!("{name}:{kind}")));
        (words, status)
    }

    /// A panic, a control character in stderr, or a status that is not `possible` is a violation.
    pub(super) fn call(
        &mut self,
        what: &'static str,
        command: Command,
        mishap: Option<Mishap>,
        possible: &[i32],
    ) -> End {
        let number = self.arena.calls.fetch_add(1, Ordering::Relaxed);
        let shown = format!("{command:?}");
        let end = call(command, &self.environment, (&self.arena.directory, number), mishap, LIMIT);
        let code = end.code();
        *self.arena.results.lock().unwrap().statuses.entry((what, code)).or_default() += 1;
        let unclean = |text: &str| text.chars().any(|c| c.is_control() && c != '\n');
        // After a mishap a call may end by any signal, and after one of the keeper also with status 69.
        let of_mishap = end.mishap.is_some_and(|mishap| code > 128 || (mishap.whom == Whom::Keeper && code == 69));
        let panics = end.stderr.contains("panicked") || end.code() == 101 || end.code() == 134;
        if panics || unclean(&end.stderr) || !(possible.contains(&code) || of_mishap) {
            let said = &end.stderr;
            self.arena.accuse(format!("call {number} ends with {code} ({:?}): {shown}: {said:?}", end.mishap));
        }
        end
    }

    fn run(&mut self, what: &'static str, kind: char) {
        let name = match kind {
            'p' => "slots",
            'n' => "newest",
            _ => self.name(),
        };
        let deaf = if self.chance.percent(15) { "d" } else { "" };
        let kids = if self.chance.percent(15) { "k" } else { "" };
        let (mut section, status) = self.section(&[(name, kind)], &format!("{deaf}{kids}"));
        let mut command = redlock(&["run", "--name", name]);
        command.args([self.ttl().as_str(), self.wait()]);
        match kind {
            'n' => {
                let number = self.number();
                command.args(["--newest", &number]);
                section.last_mut().unwrap().push_str(&number);
            }
            's' => drop(command.arg("--shared")),
            'p' => drop(command.args(["--slots", &SLOTS.to_string()])),
            _ => {}
        }
        if !kids.is_empty() {
            command.arg("--whole");
        }
        let mut possible = vec![status, 69, 75, 76];
        if self.chance.percent(4) {
            command.arg("--max-run=300ms");
            possible.push(124);
        }
        command.arg("--").args(section);
        let mishap = Mishap::draw(&mut self.chance);
        self.call(what, command, mishap, &possible);
    }

    fn several(&mut self) {
        let kind = if self.chance.percent(25) { 's' } else { 'x' };
        let (section, status) = self.section(&[("x1", kind), ("x2", kind)], "");
        let mut command = redlock(&["run", "--name", "x2", "--name", "x1"]);
        command.args([self.ttl().as_str(), self.wait()]);
        if kind == 's' {
            command.arg("--shared");
        }
        command.arg("--").args(section);
        let mishap = Mishap::draw(&mut self.chance);
        self.call("run --name --name", command, mishap, &[status, 69, 75, 76]);
    }

    /// A run inside a run: the section of the inner run has both locks. Without --whole, which keeps the outer lock
    /// until all processes of the job have ended, a process could outlive the outer command, and go on without its
    /// lock.
    fn nest(&mut self) {
        let (section, status) = self.section(&[("x1", 'x'), ("x2", 'x')], "");
        let mut command = redlock(&["run", "--name", "x1", "--whole"]);
        command.args([self.ttl().as_str(), self.wait(), "--", "redlock", "run", "--name", "x2"]);
        command.args([self.ttl().as_str(), self.wait(), "--"]).args(section);
        let mishap = Mishap::draw(&mut self.chance);
        self.call("run in run", command, mishap, &[status, 69, 75, 76]);
    }

    /// A `run --reentrant` inside a run of the same lock. The end of the inner run must not end the lease, because the
    /// outer run then enters a section of its own.
    fn reentrant(&mut self) {
        let name = self.name();
        let inner = self.section(&[(name, 'x')], "").0.join(" ");
        let (outer, status) = self.section(&[(name, 'x')], "");
        let script = format!("redlock run --name {name} --reentrant -- {inner}; {}", outer.join(" "));
        let mut command = redlock(&["run", "--name", name, "--whole"]);
        command.args([self.ttl().as_str(), self.wait(), "--", "sh", "-c", &script]);
        let mishap = Mishap::draw(&mut self.chance);
        self.call("run --reentrant", command, mishap, &[status, 69, 75, 76]);
    }

    /// A script whose lease the guard renews in the background. It replaces itself by the section (`exec`), so that the
    /// section is the process that the guard watches.
    fn while_pid(&mut self) {
        let name = self.name();
        let (section, status) = self.section(&[(name, 'x')], "");
        let acquire = format!("redlock acquire {name} --while-pid $$ --format env {} {}", self.ttl(), self.wait());
        let export = "export REDLOCK_NAME REDLOCK_TOKEN REDLOCK_FENCING_TOKEN";
        let script = format!("set -e; lease=$({acquire}); eval \"$lease\"; {export}; exec {}", section.join(" "));
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        // The mishap hits the script, never the guard, because nothing would stop the script if the guard were dead.
        let mishap = Mishap::draw(&mut self.chance).filter(|mishap| mishap.whom == Whom::Redlock);
        self.call("acquire --while-pid", command, mishap, &[status, 69, 75, 137, 143]);
    }

    /// A script without a guard, which acquires, extends and releases, and never works after its lease.
    fn script(&mut self) {
        let slots = self.chance.percent(20);
        let kind = if slots { 'p' } else { self.chance.one_of(&['x', 'x', 's']) };
        let name = if slots { "slots" } else { self.name() };
        let mut command = redlock(&["acquire", name, "--format", "json"]);
        command.args([self.ttl().as_str(), self.wait()]);
        match kind {
            's' => drop(command.arg("--shared")),
            'p' => drop(command.args(["--slots", &SLOTS.to_string()])),
            _ => {}
        }
        let start = now();
        let mishap = Mishap::draw(&mut self.chance).filter(|mishap| mishap.whom == Whom::Redlock);
        let end = self.call("acquire", command, mishap, &[0, 69, 75]);
        if end.code() != 0 {
            return;
        }
        let lease = Lease::read(&end.stdout);
        let until = start + lease.lasts();
        let line = lease.line(name, kind);
        self.work(&line, until);
        if self.chance.percent(60) {
            if self.chance.percent(40) {
                // By then the lease has run out, and if another contender has taken the lock, the extension must fail.
                sleep_until(until + i64::try_from(self.chance.time(1, 500).as_micros()).unwrap());
            }
            self.extend(&line);
        }
        if self.chance.percent(90) {
            self.call("release", redlock(&["release", name, "--token", &lease.token]), None, &[0, 69, 77]);
        }
    }

    /// Extends the lease that `line` names. After a success, enters another section under the extended lease.
    fn extend(&mut self, line: &Line) {
        let start = now();
        let extend = ["extend", &line.lock, "--token", &line.token, "--format", "json"];
        let end = self.call("extend", redlock(&extend), None, &[0, 69, 77]);
        if end.code() == 0 {
            self.work(line, start + Lease::read(&end.stdout).lasts());
        }
    }

    /// Lets a lease run out, runs a section under a new lease of the same lock, and tries to extend the first lease,
    /// which must fail.
    pub(super) fn come_back(&mut self) {
        let (ttl, wait) = (format!("--ttl={}ms", SHORTEST.as_millis()), "--wait=8s");
        while self.arena.goes_on() {
            let start = now();
            let acquire = redlock(&["acquire", LATE, "--format", "json", &ttl, wait]);
            let end = self.call("acquire", acquire, None, &[0, 69, 75]);
            if end.code() == 0 {
                let lease = Lease::read(&end.stdout);
                sleep_until(start + lease.lasts());
                let (section, status) = self.section(&[(LATE, 'x')], "");
                let mut run = redlock(&["run", LATE, &ttl, wait, "--"]);
                run.args(section);
                self.call("run", run, None, &[status, 69, 75, 76]);
                self.extend(&lease.line(LATE, 'x'));
            }
            std::thread::sleep(self.chance.time(0, 25));
        }
    }

    /// Spends some time in a section, which ends before `until`, unless this thread is woken too late.
    pub(super) fn work(&mut self, line: &Line, until: i64) {
        let left = until - now();
        if left < 20_000 {
            return;
        }
        if let Some(section) = Bounded::enter(&self.arena.directory, Line { until: Some(until), ..line.clone() }) {
            let time = self.chance.time(1, 300).as_micros().min(u128::try_from(left - 10_000).unwrap());
            std::thread::sleep(Duration::from_micros(u64::try_from(time).unwrap()));
            section.leave();
        }
    }

    /// Runs one job after the other. Each holds the lock for `milliseconds`, and ignores SIGTERM. Stops when the attack
    /// is over and one of the jobs has lost its lease.
    pub(super) fn hold(&mut self, milliseconds: &str) {
        while self.arena.goes_on() || !self.arena.has_lost(HOLD) {
            let mut command = redlock(&["run", "--name", "long", "--ttl=2s", "--wait=8s", "--"]);
            command.arg(&self.arena.section).arg(&self.arena.directory).args([milliseconds, "d", "0", "long:x"]);
            self.call(HOLD, command, None, &[0, 69, 75, 76]);
        }
    }

    /// Waits for the last quarter of the attack, then revokes the leases of `hold`, until a job of `hold` has lost its
    /// lease, or [`LIMIT`] after the attack.
    pub(super) fn take_away(&mut self) {
        std::thread::sleep((self.arena.until - Instant::now()) * 3 / 4);
        while !self.arena.has_lost(HOLD) {
            self.call("stop", redlock(&["stop", "long"]), None, &[0, 69, 75, 77]);
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    fn revoke(&mut self) {
        let name = self.chance.one_of(&["x1", "x2", "slots"]);
        self.call("stop", redlock(&["stop", name, "--token", "all"]), None, &[0, 69, 75, 77]);
    }

    fn look(&mut self) {
        let name = self.name();
        let all: [&[&str]; 6] = [
            &["status", name, "--format", "json"],
            &["status", "--format", "json"],
            &["status", name, "-q"],
            &["log", name],
            &["log", "--format", "json"],
            &["wait", name, "--timeout", "2s"],
        ];
        let line = self.chance.one_of(&all);
        let end = self.call("status, log, wait", redlock(line), None, &[0, 69, 75]);
        if line.last() == Some(&"json") && end.code() == 0 {
            for object in end.stdout.lines().filter(|object| serde_json::from_str::<serde_json::Value>(object).is_err())
            {
                self.accuse_output(line, object);
            }
        }
    }

    fn accuse_output(&self, line: &[&str], object: &str) {
        self.arena.accuse(format!("{line:?} prints {object:?}"));
    }
}

pub(super) fn redlock(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    command.args(arguments);
    command
}

#[derive(Debug)]
pub(super) struct Lease {
    pub(super) token: String,
    fence: Option<u64>,
    slot: Option<u64>,
    validity_ms: i64,
    waited_ms: i64,
}

impl Lease {
    pub(super) fn read(printed: &str) -> Lease {
        let object: serde_json::Value = serde_json::from_str(printed).unwrap();
        let number = |name: &str| object[name].as_i64().unwrap_or_default();
        Lease {
            token: object["token"].as_str().unwrap_or_default().to_owned(),
            fence: object["fencing_token"].as_u64(),
            slot: object["slot"].as_u64(),
            validity_ms: number("validity_ms"),
            waited_ms: number("waited_ms"),
        }
    }

    /// In µs from the start of the call: the wait, and then the validity.
    pub(super) fn lasts(&self) -> i64 {
        (self.waited_ms + self.validity_ms) * 1_000
    }

    pub(super) fn line(&self, lock: &str, kind: char) -> Line {
        Line {
            event: Event::Enter,
            lock: lock.to_owned(),
            kind,
            slot: self.slot.map_or("-".to_owned(), |slot| slot.to_string()),
            fence: self.fence,
            token: self.token.clone(),
            pid: std::process::id(),
            at: 0,
            until: None,
            status: None,
        }
    }
}
