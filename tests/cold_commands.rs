//! A command whose execution takes longer than its lease (a binary on a slow network drive), and a keeper that stands
//! still: the lease is renewed meanwhile, and what cannot be renewed neither begins nor lives after the expiry.

use crate::support::{
    Directory, Mode, Proxy, Redis, SOON, Test, Watched, any, eventually, ms, send, tagged, teach_scripts,
};
use nix::libc;
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Linux's <fcntl.h>; the libc crate lacks it for glibc.
const F_SETSIG: i32 = 10;

/// A shell script that cannot be opened, and so not executed, until it is let go: a write lease on a file holds back
/// whoever opens it, for /proc/sys/fs/lease-break-time (45 s) at most.
struct Cold {
    lease: File,
    path: PathBuf,
    _directory: Directory,
}

impl Cold {
    fn new(script: &str) -> Cold {
        let directory = Directory::new();
        let path = directory.path().join("cold");
        let mut file = File::options().write(true).create_new(true).mode(0o755).open(&path).unwrap();
        file.write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
        drop(file);
        let lease = File::open(&path).unwrap();
        // What tells of an opener is otherwise SIGIO, which ends a process.
        // SAFETY: takes three numbers and touches no memory.
        assert_eq!(unsafe { libc::fcntl(lease.as_raw_fd(), F_SETSIG, libc::SIGURG) }, 0);
        let cold = Cold { lease, path, _directory: directory };
        // A child of another test's that has not executed yet may have the file open for a moment.
        eventually(SOON, "a lease on a file", || cold.set_lease(libc::F_WRLCK));
        cold
    }

    fn set_lease(&self, kind: i32) -> bool {
        // SAFETY: likewise.
        unsafe { libc::fcntl(self.lease.as_raw_fd(), libc::F_SETLEASE, kind) == 0 }
    }

    /// Whether somebody waits for it.
    fn is_wanted(&self) -> bool {
        // SAFETY: likewise. Says what the lease should become.
        unsafe { libc::fcntl(self.lease.as_raw_fd(), libc::F_GETLEASE) != libc::F_WRLCK }
    }

    fn let_go(&self) {
        assert!(self.set_lease(libc::F_UNLCK));
    }
}

fn run<W: crate::support::Where + ?Sized>(servers: &W, ttl: &str, cold: &Cold) -> Test {
    Test::new(servers).args(["run", "-q", "--name", "backup", "--ttl", ttl, "--"]).arg(&cold.path)
}

#[test]
fn a_cold_command_is_renewed_until_it_begins() {
    let redis = Redis::start();
    let cold = Cold::new("echo started; exit 5");
    let mut job = run(&redis, "1s", &cold).status(5).stdout("started\n").spawn();
    eventually(SOON, "it is being executed", || cold.is_wanted());
    let token = redis.get("redlock:backup");
    assert!(token.is_some());
    let start = Instant::now();
    while start.elapsed() < ms(3_000) {
        assert_eq!(redis.get("redlock:backup"), token, "three ttls, after {:?}", start.elapsed());
        assert!(!job.has_ended(), "{}", job.all_stderr());
        std::thread::sleep(ms(10));
    }
    assert_eq!(job.all_stdout(), "");
    cold.let_go();
    job.finish();
    assert!(!redis.exists("redlock:backup"));
}

#[test]
fn a_cold_command_whose_lease_cannot_be_renewed_never_begins() {
    let redis = Redis::start();
    teach_scripts(&redis);
    for mode in [Mode::BlackHole, Mode::Cut] {
        let proxy = Proxy::new(&redis, Mode::Pass);
        let cold = Cold::new("echo started");
        let mut job = run(&proxy, "1s", &cold).any_end().stdout(any()).stderr(any()).spawn();
        eventually(SOON, "it is being executed", || cold.is_wanted());
        proxy.set(mode.clone());
        eventually(SOON, "the lease has run out", || !redis.exists("redlock:backup"));
        let left = job.others();
        cold.let_go();
        job.wait(SOON);
        eventually(SOON, "nobody is left", || tagged(job.tag()).is_empty());
        let finished = job.finish();
        assert_eq!(finished.stdout, "", "{mode:?}: it began after its lease");
        assert!(left.is_empty(), "{mode:?}: {} processes outlived the lease", left.len());
    }
}

/// The job's keeper stands still and the server is out of reach: how much of the lease is left when the job is dead.
#[track_caller]
fn keeper_stopped(ttl: u64, mode: Mode) -> Duration {
    let redis = Redis::start();
    teach_scripts(&redis);
    let proxy = Proxy::new(&redis, Mode::Pass);
    let script = "trap '' TERM; (setsid sleep 1000 &); sleep 1000 & echo ready; sleep 1000; sleep 1000";
    let test = Test::new(&proxy).args(["run", "--name", "backup", "--ttl", &format!("{ttl}ms")]);
    let job = test.args(["-q", "--", "sh", "-c", script]).any_end().stderr(any()).spawn();
    job.prints("ready");
    eventually(SOON, "all are there", || job.job().len() == 4);
    let watched = Watched::new(&job.job());
    let keeper = job.keeper();
    send(keeper, Signal::SIGSTOP);
    proxy.set(mode);
    std::thread::sleep(ms(60)); // what was on its way arrives
    let asked = Instant::now();
    let expires_at = asked + ms(redis.pttl("redlock:backup").try_into().unwrap());
    let in_time = watched.all_end(expires_at.saturating_duration_since(Instant::now()));
    let left = expires_at.saturating_duration_since(Instant::now());
    if !in_time {
        // For the sake of whoever comes after.
        send(keeper, Signal::SIGCONT);
    }
    let ended = watched.all_end(SOON);
    assert!(in_time && ended, "the job outlived its lease; it has ended now: {ended}");
    // Nobody need wait for a server that will not answer.
    proxy.set(Mode::Cut);
    let tag = job.tag().to_owned();
    let finished = job.finish();
    assert_ne!(finished.ended, crate::support::Ended::Status(0));
    eventually(SOON, "nothing is left", || tagged(&tag).is_empty());
    left
}

#[test]
fn a_job_whose_keeper_stands_still_is_dead_before_its_lease_can_expire() {
    for (ttl, mode) in [(1_000, Mode::BlackHole), (3_000, Mode::BlackHole), (3_000, Mode::Cut)] {
        let left = keeper_stopped(ttl, mode);
        eprintln!("ttl {ttl} ms: dead {left:?} before the expiry");
    }
}
