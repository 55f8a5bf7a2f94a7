//! In each trial one system call of redlock's processes fails or is interrupted, or the process is killed at the call.
//! No job runs twice, no process is left, the status is one of README's table, and redlock's lines say why.

use crate::support::{
    Caller, Directory, Ended, Fault, Faults, Finished, Moment, Redis, SOON, Test, acquire_for, any, eventually, rounds,
    tagged,
};
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Errors with which the kernel may answer these calls: a signal has come, a resource is short, nothing can be read or
/// written at present, or the other side is closed.
const ERRORS: [(i64, &[Errno]); 15] = [
    (libc::SYS_clone, &[Errno::EAGAIN, Errno::ENOMEM]),
    (libc::SYS_connect, &[Errno::EINTR, Errno::EAGAIN, Errno::ECONNREFUSED]),
    (libc::SYS_epoll_create1, &[Errno::EMFILE]),
    (libc::SYS_epoll_ctl, &[Errno::ENOMEM]),
    (libc::SYS_eventfd2, &[Errno::EMFILE]),
    (libc::SYS_execve, &[Errno::ENOMEM]),
    (libc::SYS_openat, &[Errno::EINTR, Errno::ENFILE, Errno::ENOMEM]),
    (libc::SYS_pidfd_open, &[Errno::EMFILE]),
    (libc::SYS_read, &[Errno::EINTR]),
    (libc::SYS_recvfrom, &[Errno::EINTR, Errno::ECONNRESET]),
    (libc::SYS_sendto, &[Errno::EINTR, Errno::EAGAIN, Errno::EPIPE]),
    (libc::SYS_signalfd4, &[Errno::EMFILE]),
    (libc::SYS_socket, &[Errno::EMFILE]),
    (libc::SYS_timerfd_create, &[Errno::EMFILE]),
    (libc::SYS_wait4, &[Errno::EINTR]),
];

fn faults_at(moment: &Moment) -> Vec<Fault> {
    let errors = ERRORS.iter().find(|(call, _)| *call == moment.call).map_or(&[][..], |(_, errors)| errors);
    [Fault::Kill].into_iter().chain(errors.iter().copied().map(Fault::Error)).collect()
}

struct Scene<'a> {
    redis: &'a Redis,
    line: &'a str,
    /// Has the file to which the job appends a letter.
    runs: Directory,
}

impl Scene<'_> {
    /// Makes the call, with a lease if it needs one, and judges how it ended.
    fn play(&self, faults: &Arc<Faults>) -> Finished {
        let token = self.line.contains("TOKEN").then(|| acquire_for(self.redis, "backup", "10s"));
        let file = self.runs.path().join("runs");
        let _ = std::fs::remove_file(&file);
        let line = self.line.replace("TOKEN", token.as_deref().unwrap_or_default());
        let mut watched = Test::of("sleep").arg("1000").any_end().spawn();
        let line = line.replace("PID", &watched.pid().to_string());
        let test = Test::new(self.redis).args(line.split_whitespace()).with_faults(faults);
        let test = if line.starts_with("run") { test.args(["-c", "printf x >> \"$RUNS\""]) } else { test };
        let test = test.env("RUNS", &file).any_end().stdout(any()).stderr(any()).within(SOON);
        let tag = test.tag().to_owned();
        // A guard goes on as long as the watched process lives.
        let mut running = test.spawn();
        running.wait(SOON);
        if !watched.has_ended() {
            watched.send(Signal::SIGKILL);
        }
        eventually(SOON, "nothing that it has started is left", || tagged(&tag).is_empty());
        let finished = running.finish();
        let runs = std::fs::read_to_string(&file).unwrap_or_default();
        self.judge(&finished, &runs, faults);
        self.redis.command(&["FLUSHALL"]);
        finished
    }

    fn judge(&self, Finished { ended, stdout, stderr, .. }: &Finished, runs: &str, faults: &Faults) {
        let context = || format!("{}\n{:?}: {ended:?}, {runs:?}, {stdout:?}, {stderr:?}", self.line, faults.plan());
        assert!(runs.len() <= 1, "it ran twice\n{}", context());
        let is_run = self.line.starts_with("run");
        match ended {
            Ended::Status(0) => {
                assert!(!is_run || runs == "x", "it did not run\n{}", context());
                assert!(!self.line.starts_with("acquire") || stdout.ends_with('\n'), "no token\n{}", context());
            }
            Ended::Status(69 | 74 | 76 | 78 | 126) => {
                let lines: Vec<&str> = stderr.lines().collect();
                assert!(lines.iter().all(|line| line.starts_with("redlock: ")), "{}", context());
                assert!(!lines.is_empty(), "it says nothing\n{}", context());
            }
            Ended::Signal(signal) => assert_eq!(*signal, Signal::SIGKILL as i32, "{}", context()),
            Ended::Status(_) => panic!("{}", context()),
        }
        // Only a `run` that was killed may leave a lease behind.
        let is_killed = matches!(faults.plan(), Some((_, Fault::Kill)));
        let holds = self.redis.exists("redlock:backup");
        assert!(!holds || !is_run || is_killed, "held\n{}", context());
    }
}

#[test]
fn at_each_system_call() {
    let redis = Redis::start();
    let most = rounds("FAULTS", 40);
    for line in [
        "run -q backup --ttl 5s",
        "run -q backup --ttl 5s --wait 2s --once-per 1m",
        "acquire -q backup --ttl 5s",
        "acquire -q backup --ttl 5s --while-pid PID",
        "extend -q backup --ttl 20s --token TOKEN",
        "release -q backup --token TOKEN",
    ] {
        let scene = Scene { redis: &redis, line, runs: Directory::new() };
        let healthy = Faults::none();
        let finished = scene.play(&healthy);
        assert_eq!(finished.ended, Ended::Status(0), "{}", finished.stderr);
        // The calls before the first fcntl are the loader's. By this fcntl the program checks its standard descriptors.
        let seen =
            healthy.seen().into_iter().filter(|Moment { caller: Caller(name, _), .. }| name.starts_with("redlock"));
        let moments: Vec<Moment> = seen.skip_while(|moment| moment.call != libc::SYS_fcntl).collect();
        let trials: Vec<(Moment, Fault)> = moments
            .iter()
            .flat_map(|moment| faults_at(moment).into_iter().map(move |fault| (moment.clone(), fault)))
            .collect();
        let step = (trials.len() / most).max(1);
        let mut ends: BTreeMap<String, usize> = BTreeMap::new();
        for (moment, fault) in trials.iter().step_by(step) {
            let faults = Faults::planned(moment.clone(), *fault);
            *ends.entry(format!("{:?}", scene.play(&faults).ended)).or_default() += 1;
        }
        eprintln!("{line}: {} of {} faults, {ends:?}", trials.iter().step_by(step).count(), trials.len());
    }
}
