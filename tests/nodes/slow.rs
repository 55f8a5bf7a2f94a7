//! Slow connections: round trips that are long in comparison with the ttl, and one test with TLS, a password, and a
//! hold-up on the way. Times are parts of the ttl, which is four seconds here, enough for a slow machine, and one
//! second in `tests/alone/slow.rs`.

use crate::support::{Mode, Proxy, Redis, Test, Tls, acquire, like, ms, perhaps, redlock, teach_scripts};
use std::time::{Duration, Instant};

fn arguments(name: &str, ttl: Duration) -> Vec<String> {
    let (whole, timeout) = (ttl.as_millis(), ttl.as_millis() / 2);
    let line = format!("run -v {name} --ttl {whole}ms --node-timeout {timeout}ms -- sh -c");
    let script = format!("echo ready; sleep {}", ttl.as_secs_f64() * 2.5);
    line.split(' ').map(str::to_owned).chain([script]).collect()
}

/// Checks that a job of 2.5 ttls keeps its lease over a connection with this round trip. Once, the connection stands
/// still for a quarter of the ttl, at a moment that depends on `number`.
fn survives(tls: &Tls, number: u32, ttl: Duration, round_trip: Duration) {
    let half = round_trip / 2;
    let proxy = Proxy::to_port(tls.port(), Mode::Delay(half));
    let url = format!("rediss://:s3cret@{}", proxy.address().replace("127.0.0.1", "localhost"));
    let test = Test::new(tls).env("REDLOCK_REDIS", &url).args(arguments(&format!("lock-{number}"), ttl));
    let said = perhaps(["redis rediss://", "acquired", "cannot renew", "renewed", "released"]);
    let job = test.stderr(said).spawn();
    job.prints("ready");
    std::thread::sleep(ttl / 2 + ttl / 40 * number);
    proxy.set(Mode::Hold(Instant::now() + ttl / 4, half));
    job.finish();
}

pub(crate) fn hold_ups_cost_no_job(ttl: Duration) {
    let (tls, _authority) = Tls::start();
    tls.redis.command(&["CONFIG", "SET", "requirepass", "s3cret"]);
    std::thread::scope(|scope| {
        for number in 0..10 {
            let (tls, round_trip) = (&tls, if number % 2 == 0 { ttl / 50 } else { ttl / 12 });
            scope.spawn(move || survives(tls, number, ttl, round_trip));
        }
    });
}

pub(crate) fn long_round_trips_cost_no_job(ttl: Duration) {
    let redis = Redis::start();
    teach_scripts(&redis);
    std::thread::scope(|scope| {
        for (number, hundredths) in [13, 17, 20].into_iter().enumerate() {
            let redis = &redis;
            scope.spawn(move || {
                let proxy = Proxy::new(redis, Mode::Delay(ttl * hundredths / 200));
                let test = Test::new(&proxy).args(arguments(&format!("lock-{number}"), ttl)).stdout("ready\n");
                // redlock reports only three things: its server, the grant, and the release.
                test.stderr(like("redlock: redis <any>\nredlock: acquired <any>\nredlock: released <any>\n")).run();
            });
        }
    });
}

#[test]
fn a_hold_up_costs_no_job() {
    hold_ups_cost_no_job(ms(4_000));
}

#[test]
fn a_round_trip_that_is_longer_than_a_third_of_the_time_for_tries_costs_no_job() {
    long_round_trips_cost_no_job(ms(4_000));
}

#[test]
fn a_wait_ends_with_what_the_server_says_last_however_late_that_comes() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    std::thread::scope(|scope| {
        for wait in ["1500ms", "1600ms", "1700ms", "1800ms", "1900ms", "2000ms"] {
            let redis = &redis;
            scope.spawn(move || {
                let proxy = Proxy::new(redis, Mode::Delay(ms(150)));
                redlock(&proxy, "acquire -q backup --wait").arg(wait).turned_away().run();
            });
        }
    });
}
