//! Calls that wait or ask get SIGTERM at random moments. Each ends at once, whatever the servers do, and leaves nothing
//! on a node that answers. `tests/alone/interrupts.rs` measures how soon they end.

use crate::support::{
    Ended, Redis, SOON, Test, acquire, acquire_on_all, eventually, rand, redlock, several, teach_scripts,
};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// `run --wait` for a lock in use.
    Run,
    /// `acquire --wait` for a lock in use.
    Acquire,
    /// `wait` for a lock in use.
    Wait,
    /// `acquire` of a free lock.
    InFlight,
    /// `run` of a command under a free lock.
    InFlightRun,
}

/// Which servers are stopped before the signal comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    None,
    One,
    All,
}

/// Those that belong to the queue or to a lease.
fn keys(node: &Redis, name: &str) -> Vec<String> {
    let mut keys = node.keys_without_history();
    keys.retain(|key| key.contains(name) && !key.ends_with("fence"));
    keys
}

/// Waits until this node has read the last request of redlock, and has closed its connections, so that only the test's
/// own client is connected.
fn has_heard_all(node: &Redis) {
    eventually(SOON, "redlock has hung up", || node.info("connected_clients") == "1");
}

/// Sends SIGTERM to a call. Returns how long the call lived afterwards; None if the signal did not end it.
fn round(nodes: &Vec<Redis>, number: usize, what: What, stopped: Stopped) -> Option<Duration> {
    let name = format!("lock-{number}");
    if matches!(what, What::Run | What::Acquire | What::Wait) {
        if nodes.len() == 1 {
            acquire(nodes, &name)
        } else {
            acquire_on_all(nodes, &name)
        };
    }
    let before: Vec<Vec<String>> = nodes.iter().map(|node| keys(node, &name)).collect();
    let asked = match what {
        What::Run => vec!["run", "-q", "--name", &name, "--wait", "--", "echo", "started"],
        What::Acquire => vec!["acquire", "-q", "--name", &name, "--wait"],
        What::Wait => vec!["wait", "-q", &name],
        What::InFlight => vec!["acquire", "-q", "--name", &name],
        What::InFlightRun => vec!["run", "-q", "--name", &name, "--", "sleep", "1000"],
    };
    // With this timeout, a call that waited for an answer would outlast the test.
    let test = Test::new(nodes).args(&asked).env("REDLOCK_NODE_TIMEOUT", "15s");
    // The signal comes at most 40 ms after the start, and mostly early, because a call does most things early.
    let moment = Duration::from_micros(rand(200) * rand(200));
    // With `InFlightRun` the servers stop before the job can begin, because the release after a job needs an answer.
    let stop_at = if what == What::InFlightRun { Duration::ZERO } else { moment.mul_f64(rand(100) as f64 / 100.0) };
    let paused = match stopped {
        Stopped::None => &nodes[..0],
        Stopped::One => &nodes[nodes.len() - 1..],
        Stopped::All => &nodes[..],
    };
    if stop_at.is_zero() {
        paused.iter().for_each(Redis::pause);
    }
    let mut call = test.spawn();
    let start = Instant::now();
    std::thread::sleep(stop_at);
    paused.iter().for_each(Redis::pause);
    std::thread::sleep(moment.saturating_sub(start.elapsed()));
    let had_ended = call.has_ended();
    let sent = Instant::now();
    if !had_ended {
        call.send(Signal::SIGTERM);
    }
    let ended = call.wait(SOON);
    let latency = sent.elapsed();
    let interrupted = ended == Ended::Signal(Signal::SIGTERM as i32);
    let case = format!("round {number}: {what:?}, {stopped:?} of {} stopped, after {moment:?}", nodes.len());
    let answers = &nodes[..nodes.len() - paused.len()];
    if interrupted {
        eventually(SOON, &format!("{case}: no process is left"), || call.others().is_empty());
        for (node, before) in answers.iter().zip(&before) {
            has_heard_all(node);
            assert_eq!(keys(node, &name), *before, "{case}: something is left");
        }
    } else {
        // The call was granted the lock, or was refused, before the signal could end it.
        assert!(what == What::InFlight || had_ended, "{case}: {ended:?} {}", call.all_stderr());
    }
    paused.iter().for_each(Redis::resume);
    for node in nodes {
        node.command(&["FLUSHALL"]);
    }
    interrupted.then_some(latency)
}

/// Makes `count` calls, each kind in turn, and interrupts those that have not ended yet. Returns how long each of them
/// lived on after the signal, the longest time last.
#[track_caller]
pub(crate) fn interrupt(nodes: &Vec<Redis>, stops: &[Stopped], count: usize) -> Vec<(Duration, What, Stopped)> {
    let kinds = [What::Run, What::Acquire, What::Wait, What::InFlight, What::InFlightRun];
    let mut times = Vec::new();
    for number in 0..count {
        let stopped = stops[number / kinds.len() % stops.len()];
        let what = match kinds[number % kinds.len()] {
            What::InFlightRun if stopped == Stopped::One => What::InFlight,
            what => what,
        };
        times.extend(round(nodes, number, what, stopped).map(|time| (time, what, stopped)));
    }
    times.sort_by_key(|time| time.0);
    assert!(times.len() * 10 >= count * 5, "too few were interrupted: {} of {count}", times.len());
    times
}

#[test]
fn one_node_that_answers() {
    let redis = Redis::start();
    teach_scripts(&redis);
    interrupt(&vec![redis], &[Stopped::None], 50);
}

#[test]
fn one_node_that_may_hang() {
    let redis = Redis::start();
    teach_scripts(&redis);
    interrupt(&vec![redis], &[Stopped::All], 25);
}

#[test]
fn three_nodes_one_or_all_of_which_may_hang() {
    interrupt(&several(3), &[Stopped::None, Stopped::One, Stopped::All], 45);
}

#[test]
fn a_wait_that_any_signal_interrupts_leaves_nothing() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    let before = redis.keys_without_history();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2] {
        let mut waiter = redlock(&redis, "run backup --wait -- echo started").interrupted(signal).spawn();
        waiter.stderr_line();
        // SIGWINCH and SIGCONT must not end the wait.
        waiter.send(Signal::SIGWINCH);
        waiter.send(Signal::SIGCONT);
        eventually(SOON, "it queues", || redis.keys_without_history() != before);
        waiter.send(signal);
        assert_eq!(waiter.wait(SOON), Ended::Signal(signal as i32));
        has_heard_all(&redis);
        assert_eq!(redis.keys_without_history(), before, "something is left");
        eventually(SOON, "its keeper has ended", || waiter.others().is_empty());
        waiter.finish();
    }
}
