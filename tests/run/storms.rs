//! Storms of signals to a redlock with a large job: the keeper still kills the whole job before the lease can expire.

use crate::support::{
    Mode, Proxy, Redis, Running, SOON, Watched, at_last, descendants, eventually, message, ms, redlock, run, send,
};
use nix::sys::signal::Signal;
use std::sync::atomic::{AtomicBool, Ordering};

/// A shell and `size` sleepers, each with a session of its own. All ignore SIGTERM, SIGINT and SIGQUIT.
fn crowd(size: usize) -> String {
    format!(
        "trap '' TERM INT QUIT; n=0; while [ $n -lt {size} ]; do setsid sleep 1000 & n=$((n+1)); done; echo ready; wait"
    )
}

/// All processes of the crowd, once they exist.
#[track_caller]
fn members(job: &Running, size: usize) -> Watched {
    job.prints("ready");
    let keeper = job.keeper();
    eventually(SOON, "all exist", || descendants(keeper).len() == size + 1);
    Watched::new(&descendants(keeper))
}

fn in_a_storm<T>(pid: u32, signal: Signal, body: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                send(pid, signal);
                std::thread::sleep(ms(5)); // the pace of the storm
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        over.store(true, Ordering::SeqCst);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn a_storm_of_signals_to_a_large_job_keeps_the_keeper_from_no_deadline() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    let test = redlock(&proxy, "run -q backup --ttl 10s");
    let said = at_last(message(["lost \"backup\"", "timed out"]));
    let mut job = test.args(["--", "sh", "-c", &crowd(300)]).status(76).stderr(said).spawn();
    let crowd = members(&job, 300);
    in_a_storm(job.pid(), Signal::SIGINT, || {
        for renewal in 1..=2 {
            let mut before = redis.pttl("redlock:backup");
            eventually(SOON, &format!("renewal {renewal}"), || {
                assert!(!job.has_ended(), "a lease that is renewed is not lost");
                let left = redis.pttl("redlock:backup");
                left > std::mem::replace(&mut before, left)
            });
        }
        proxy.set(Mode::BlackHole);
        // redlock has sent the last successful renewal before this moment, so the lease ends within the ttl of 10 s.
        assert!(crowd.all_end(ms(10_000)), "alive when the lease may have expired");
    });
    proxy.set(Mode::Cut);
    job.finish();
}

#[test]
fn a_storm_of_signals_does_not_hide_the_death_of_redlock() {
    let redis = Redis::start();
    let mut job = run(&redis, ["--", "sh", "-c", &crowd(300)]).any_end().spawn();
    let crowd = members(&job, 300);
    in_a_storm(job.pid(), Signal::SIGTERM, || {
        std::thread::sleep(ms(500)); // some hundred signals are on their way
    });
    job.send(Signal::SIGKILL);
    assert!(crowd.all_end(SOON), "alive, with a lease of 30 s");
    job.wait(SOON);
}
