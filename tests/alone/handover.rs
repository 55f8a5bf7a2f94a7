//! How soon a waiter gets a lock that was released, has expired, or was deleted.

use crate::support::{Line, Redis, SOON, acquire, acquire_for, eventually, ms, redlock, release, slowness};
use std::time::{Duration, Instant};

/// The shortest time is within `bound`, and the median within `usually`. Both limits grow while the machine is slow.
#[track_caller]
fn assert_within(bound: Duration, usually: Duration, times: &[Duration]) {
    let mut sorted = times.to_vec();
    sorted.sort();
    let slow = slowness() * 4;
    assert!(
        sorted[0] <= bound + slow && sorted[sorted.len() / 2] <= usually + slow,
        "{times:?}, allowing for {slow:?}"
    );
}

#[test]
fn the_next_in_line_takes_a_released_lock_at_once() {
    let redis = Redis::start();
    let mut token = acquire(&redis, Line::NAME);
    let waiters: Vec<_> = (0..9).map(|_| Line::join(&redis, Line::waiter(&redis))).collect();
    let mut times = Vec::new();
    for _ in &waiters {
        let start = Instant::now();
        release(&redis, Line::NAME, &token);
        token = Line::passes_from([&redis], &token);
        times.push(start.elapsed());
    }
    waiters.into_iter().for_each(|waiter| {
        waiter.finish();
    });
    // These times include the run of `redlock release`.
    assert_within(ms(50), ms(200), &times);
}

#[test]
fn the_next_in_line_takes_an_expired_lock_within_50_ms() {
    let redis = Redis::start();
    // Each waiter keeps the lock until its lease has run out.
    let mut token = acquire_for(&redis, Line::NAME, "2s");
    let waiters: Vec<_> = ["300ms", "300ms", "100ms", "300ms", "700ms", "300ms"]
        .iter()
        .map(|ttl| Line::join(&redis, Line::waiter(&redis).args(["--ttl", ttl])))
        .collect();
    let mut late = Vec::new();
    for _ in &waiters {
        let left = u64::try_from(redis.pttl(Line::KEY)).unwrap_or(0);
        let due = Instant::now() + ms(left);
        token = Line::passes_from([&redis], &token);
        late.push(Instant::now().saturating_duration_since(due));
    }
    waiters.into_iter().for_each(|waiter| {
        waiter.finish();
    });
    assert_within(ms(50), ms(150), &late);
}

#[test]
fn a_lock_of_another_library_is_taken_soon_after_it_has_ended() {
    let redis = Redis::start();
    let (mut expired, mut deleted) = (Vec::new(), Vec::new());
    for round in 0..6 {
        let expires = round % 2 == 0;
        redis.command(&["SET", Line::KEY, "theirs", "PX", "60000"]);
        let waiter = Line::join(&redis, Line::waiter(&redis));
        let due = if expires {
            // The waiter looks before the lock expires, and learns the time that is left.
            redis.command(&["PEXPIRE", Line::KEY, "900"]);
            Instant::now() + ms(u64::try_from(redis.pttl(Line::KEY)).unwrap_or(0))
        } else {
            redis.command(&["DEL", Line::KEY]);
            Instant::now()
        };
        let token = Line::passes_from([&redis], "theirs");
        let late = Instant::now().saturating_duration_since(due);
        if expires {
            expired.push(late);
        } else {
            deleted.push(late);
        }
        waiter.finish();
        release(&redis, Line::NAME, &token);
    }
    assert_within(ms(50), ms(600), &expired);
    assert_within(ms(500), ms(600), &deleted);
}

#[test]
fn wait_joins_no_queue_and_looks_twice_a_second() {
    let redis = Redis::start();
    let mut late = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..9 {
        let token = match round % 3 {
            0 => acquire(&redis, Line::NAME),
            1 => acquire_for(&redis, Line::NAME, "700ms"),
            _ => {
                redis.command(&["SET", Line::KEY, "theirs", "PX", "700"]);
                String::new()
            }
        };
        let waiter = redlock(&redis, "wait -q").arg(Line::NAME).spawn();
        eventually(SOON, "it is connected", || redis.info("connected_clients") != "1");
        assert!(Line::is_clean(&redis));
        let due = match round % 3 {
            0 => {
                release(&redis, Line::NAME, &token);
                Instant::now()
            }
            _ => Instant::now() + ms(u64::try_from(redis.pttl(Line::KEY)).unwrap_or(0)),
        };
        waiter.finish();
        late[round % 3].push(Instant::now().saturating_duration_since(due));
    }
    let [released, expired, foreign] = late;
    assert_within(ms(550), ms(700), &released);
    for late in [expired, foreign] {
        assert_within(ms(50), ms(200), &late);
    }
}
