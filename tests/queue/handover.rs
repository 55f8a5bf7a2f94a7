//! How soon a released lock is the next waiter's, as a ratio to a plain call of the same moment: no bound in milliseconds holds on
//! every machine. `make bench` measures, `make margins` has the milliseconds of a quiet machine.

use crate::support::{Line, Redis, Where, acquire, release, several, status};
use std::time::{Duration, Instant};

const HANDOVERS: usize = 15;
/// A release is a call too, and the next one takes the lock with one request; without a call, the first one looks every 400 ms.
const MOST_CALLS: f64 = 4.0;

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64()
}

#[track_caller]
fn hands_over_in_the_time_of_a_few_calls<W: Where + ?Sized>(servers: &W, first: &Redis) {
    let mut token = acquire(servers, Line::NAME);
    let waiters: Vec<_> = (0..HANDOVERS).map(|_| Line::join(first, Line::waiter(servers))).collect();
    let (mut calls, mut handovers) = (Vec::new(), Vec::new());
    for _ in &waiters {
        let start = Instant::now();
        status(servers, Line::NAME);
        calls.push(start.elapsed());
        let start = Instant::now();
        release(servers, Line::NAME, &token);
        token = Line::passes_from(first, &token);
        handovers.push(start.elapsed());
    }
    waiters.into_iter().for_each(|waiter| drop(waiter.finish()));
    let ratio = median(handovers.clone()) / median(calls.clone());
    assert!(ratio < MOST_CALLS, "a hand-over takes as long as {ratio:.1} calls: {handovers:?}, {calls:?}");
}

#[test]
fn one_redis_hands_over_in_the_time_of_a_few_calls() {
    let redis = Redis::start();
    hands_over_in_the_time_of_a_few_calls(&redis, &redis);
}

#[test]
fn three_masters_hand_over_in_the_time_of_a_few_calls() {
    let nodes = several(3);
    hands_over_in_the_time_of_a_few_calls(&nodes, &nodes[0]);
}
