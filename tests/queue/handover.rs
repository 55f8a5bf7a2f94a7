//! How soon the next waiter gets a released lock, in the time of a `status` call, because no bound in milliseconds
//! would be right for every machine. `make margins` tests hand-overs in milliseconds, on a quiet machine.

use crate::support::{Line, Redis, acquire, release, several, status};
use std::time::{Duration, Instant};

const HANDOVERS: usize = 15;
/// A hand-over needs two requests: the release, and the TAKE of the next waiter. A waiter that was not called would
/// send TAKE only every 400 ms.
const MOST_CALLS: f64 = 4.0;

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64()
}

#[track_caller]
fn hands_over_in_the_time_of_a_few_calls(nodes: &Vec<Redis>) {
    let mut token = acquire(nodes, Line::NAME);
    let waiters: Vec<_> = (0..HANDOVERS).map(|_| Line::join(&nodes[0], Line::waiter(nodes))).collect();
    let (mut calls, mut handovers) = (Vec::new(), Vec::new());
    for _ in &waiters {
        let start = Instant::now();
        status(nodes, Line::NAME);
        calls.push(start.elapsed());
        let start = Instant::now();
        release(nodes, Line::NAME, &token);
        token = Line::passes_from(nodes, &token);
        handovers.push(start.elapsed());
    }
    waiters.into_iter().for_each(|waiter| drop(waiter.finish()));
    let ratio = median(handovers.clone()) / median(calls.clone());
    assert!(ratio < MOST_CALLS, "a hand-over takes as long as {ratio:.1} calls: {handovers:?}, {calls:?}");
}

#[test]
fn one_redis_hands_over_in_the_time_of_a_few_calls() {
    hands_over_in_the_time_of_a_few_calls(&vec![Redis::start()]);
}

#[test]
fn three_masters_hand_over_in_the_time_of_a_few_calls() {
    hands_over_in_the_time_of_a_few_calls(&several(3));
}
