//! SIGTERM at random moments to whoever waits or asks: it ends within 100 ms, and no node that answers keeps anything of
//! it. By hand: `INTERRUPT_ROUNDS=1000 cargo test --release --test main -- --nocapture interrupts`.

use crate::support::{
    Ended, Redis, Running, SOON, Test, acquire, acquire_on_all, any, eventually, ms, rand, redlock, release, rounds,
    several, teach_scripts,
};
use nix::sys::signal::Signal;
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// What is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// `run --wait` for a lock that another holds.
    Run,
    /// `acquire --wait` for one.
    Acquire,
    /// `wait` for one.
    Wait,
    /// `acquire` of a free lock.
    InFlight,
    /// `run` of a command under a free lock.
    InFlightRun,
}

/// Which servers are stopped before the signal comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    None,
    One,
    All,
}

/// Keys of this lock that belong to the queue or to a lease.
fn keys(node: &Redis, name: &str) -> Vec<String> {
    let mut keys = node.keys();
    keys.retain(|key| key.contains(name) && !key.ends_with("fence"));
    keys
}

struct Outcome {
    latency: Option<Duration>,
    /// Something was left on a node that had been stopped when the signal came.
    left_on_stopped: bool,
}

fn round(nodes: &Vec<Redis>, number: usize, what: What, stopped: Stopped) -> Outcome {
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
    let test = Test::new(nodes).args(&asked).any_end().stdout(any()).stderr(any());
    // Early ones often, for that is when most happens.
    let moment = Duration::from_micros(rand(200) * rand(200));
    // A job that runs may end as it likes, and its redlock then asks for the release: none must come to run.
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
            // What it was sent last may arrive a moment after the end.
            eventually(ms(1_000), &format!("{case}: nothing is left"), || keys(node, &name) == *before);
        }
    } else {
        // It had what it wanted, or had been refused, just before.
        assert!(what == What::InFlight || had_ended, "{case}: {ended:?} {}", call.all_stderr());
    }
    paused.iter().for_each(Redis::resume);
    let mut left_on_stopped = false;
    if interrupted {
        let first = nodes.len() - paused.len();
        for (node, before) in paused.iter().zip(&before[first..]) {
            let deadline = Instant::now() + ms(300);
            while keys(node, &name) != *before && Instant::now() < deadline {
                std::thread::sleep(ms(5));
            }
            let left = keys(node, &name);
            if left != *before {
                eprintln!("{case}: on a node that was stopped {left:?}, before {before:?}");
                left_on_stopped = true;
            }
        }
    }
    // The next round's servers are as before.
    for node in nodes {
        node.command(&["FLUSHALL"]);
    }
    Outcome { latency: interrupted.then_some(latency), left_on_stopped }
}

/// So many rounds of all kinds; prints latencies.
fn interrupt(nodes: &Vec<Redis>, stops: &[Stopped], default: usize) {
    let count = rounds("INTERRUPT_ROUNDS", default);
    let by_hand = count > default;
    let kinds = [What::Run, What::Acquire, What::Wait, What::InFlight, What::InFlightRun];
    let mut times = Vec::new();
    let mut left_on_stopped = 0;
    for number in 0..count {
        let stopped = stops[number / kinds.len() % stops.len()];
        let what = match kinds[number % kinds.len()] {
            What::InFlightRun if stopped == Stopped::One => What::InFlight,
            what => what,
        };
        let outcome = round(nodes, number, what, stopped);
        left_on_stopped += usize::from(outcome.left_on_stopped);
        if let Some(latency) = outcome.latency {
            times.push((latency, what, stopped));
        }
    }
    times.sort_by_key(|time| time.0);
    report(nodes.len(), &times, left_on_stopped);
    assert!(times.len() * 10 >= count * 5, "too few were interrupted: {} of {count}", times.len());
    // In the whole suite the slowest ones may have been kept waiting by the other tests.
    let slow = times.iter().filter(|time| time.0 > ms(100)).count();
    let may_be = if by_hand { 0 } else { count / 20 };
    assert!(slow <= may_be, "{slow} took longer than 100 ms, the worst {:?}", times.last());
    assert!(times.iter().all(|time| time.0 < ms(1_000)), "{:?}", times.last());
}

fn report(nodes: usize, times: &[(Duration, impl Debug, impl Debug)], left_on_stopped: usize) {
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].0;
    eprintln!(
        "{nodes} nodes, {} interrupted: median {:?}, 99 % {:?}, worst {:?}; {left_on_stopped} left something on a stopped node",
        times.len(),
        at(50),
        at(99),
        times.last()
    );
}

#[test]
fn one_node_that_answers() {
    let redis = Redis::start();
    teach_scripts(&redis);
    interrupt(&vec![redis], &[Stopped::None], 60);
}

#[test]
fn one_node_that_may_hang() {
    let redis = Redis::start();
    teach_scripts(&redis);
    interrupt(&vec![redis], &[Stopped::All], 24);
}

#[test]
fn three_nodes_one_or_all_of_which_may_hang() {
    interrupt(&several(3), &[Stopped::None, Stopped::One, Stopped::All], 60);
}

/// Measures how long redlock lives after `signal`, and expects it to die of that.
#[track_caller]
fn dies_of(waiter: &mut Running, signal: Signal) -> Duration {
    let start = Instant::now();
    waiter.send(signal);
    assert_eq!(waiter.wait(SOON), Ended::Signal(signal as i32));
    start.elapsed()
}

#[test]
fn an_interrupted_wait_ends_within_100_ms_and_leaves_nothing() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    let before = redis.keys();
    let mut times = Vec::new();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2] {
        let test = redlock(&redis, "run backup --wait -- echo started");
        let mut waiter = test.stderr(any()).signal(signal).spawn();
        waiter.stderr_line();
        // Two that do not ask for an end.
        waiter.send(Signal::SIGWINCH);
        waiter.send(Signal::SIGCONT);
        eventually(SOON, "it queues", || redis.keys() != before);
        times.push(dies_of(&mut waiter, signal));
        // The server takes a moment to read what it was sent last.
        eventually(ms(500), "nothing is left", || redis.keys() == before);
        eventually(SOON, "its keeper is gone", || waiter.others().is_empty());
        waiter.finish();
    }
    times.sort();
    // The slowest may have been kept waiting by the other tests.
    assert!(times[times.len() - 2] < ms(100), "{times:?}");
}

#[test]
fn an_interrupted_wait_leaves_nothing_on_the_nodes_that_answer() {
    let nodes = Redis::several(3);
    nodes.iter().for_each(teach_scripts);
    let token = crate::support::acquire_on_all(&nodes, "backup");
    let before = nodes[0].keys();
    let test = redlock(&nodes, "run backup --wait -- echo started");
    let mut waiter = test.stderr(any()).signal(Signal::SIGTERM).spawn();
    waiter.stderr_line();
    for node in &nodes[..2] {
        eventually(SOON, "it queues", || node.keys() != before);
    }
    nodes[2].pause();
    let time = dies_of(&mut waiter, Signal::SIGTERM);
    assert!(time < ms(250), "{time:?}, with a node that hangs");
    for node in &nodes[..2] {
        eventually(SOON, "nothing is left", || node.keys() == before);
    }
    nodes[2].resume();
    waiter.finish();
    release(&nodes, "backup", &token);
}
