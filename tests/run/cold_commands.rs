//! A command whose start takes longer than its lease (a binary on a slow network drive), and a keeper that stands
//! still. The lease is renewed meanwhile. If it cannot be renewed, no job begins or lives after the expiry.

use crate::support::{
    Directory, Mode, Proxy, Redis, SOON, Slow, Test, Watched, any, eventually, is_renewed, loss, ms, redlock, send,
    tagged, teach_scripts,
};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

fn run<W: crate::support::Where + ?Sized>(servers: &W, ttl: &str, cold: &Slow) -> Test {
    redlock(servers, format!("run -q backup --ttl {ttl} --")).arg(cold.path())
}

#[test]
fn a_cold_command_is_renewed_until_it_begins() {
    let redis = Redis::start();
    let directory = Directory::new();
    let cold = Slow::script(&directory, "echo started; exit 5");
    let mut job = run(&redis, "6s", &cold).status(5).stdout("started\n").spawn();
    cold.is_asked();
    let token = redis.get("redlock:backup");
    assert!(token.is_some());
    for _ in 0..3 {
        is_renewed(&redis);
        assert_eq!(redis.get("redlock:backup"), token);
        assert!(!job.has_ended(), "{}", job.all_stderr());
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
        let directory = Directory::new();
        let cold = Slow::script(&directory, "echo started");
        let mut job = run(&proxy, "3s", &cold).status(76).stderr(loss([])).spawn();
        cold.is_asked();
        proxy.set(mode.clone());
        eventually(SOON, "the lease has run out", || !redis.exists("redlock:backup"));
        let left = job.others();
        cold.let_go();
        job.wait(SOON);
        eventually(SOON, "nobody is left", || tagged(job.tag()).is_empty());
        job.finish();
        assert!(left.is_empty(), "{mode:?}: {} processes outlived the lease", left.len());
    }
}

/// Stops the keeper, and cuts off the server; returns how much of the lease is left when the job is dead.
#[track_caller]
fn keeper_stopped(ttl: u64, mode: Mode) -> Duration {
    let redis = Redis::start();
    teach_scripts(&redis);
    let proxy = Proxy::new(&redis, Mode::Pass);
    let script = "trap '' TERM; (setsid sleep 1000 &); sleep 1000 & echo ready; sleep 1000; sleep 1000";
    let test = redlock(&proxy, "run backup --ttl").arg(format!("{ttl}ms"));
    // The cause in the message may be the lease or the keeper.
    let job = test.args(["-q", "--", "sh", "-c", script]).any_end().stderr(any()).ready();
    eventually(SOON, "all exist", || job.job().len() == 4);
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
        // Otherwise the job would disturb the next tests.
        send(keeper, Signal::SIGCONT);
    }
    let ended = watched.all_end(SOON);
    assert!(in_time && ended, "the job outlived its lease; it has ended now: {ended}");
    // redlock need not wait for a server that will not answer.
    proxy.set(Mode::Cut);
    let finished = job.finish_whole();
    assert_ne!(finished.ended, crate::support::Ended::Status(0));
    left
}

#[test]
fn a_job_whose_keeper_stands_still_is_dead_before_its_lease_can_expire() {
    for (ttl, mode) in [(5_000, Mode::BlackHole), (5_000, Mode::Cut)] {
        let left = keeper_stopped(ttl, mode);
        eprintln!("ttl {ttl} ms: dead {left:?} before the expiry");
    }
}
