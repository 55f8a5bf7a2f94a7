//! Round trips that are long for the ttl, with TLS and a password, and one hold-up on the way.

use crate::support::{Mode, Proxy, Redis, Test, Tls, any, like, ms, teach_scripts};
use std::time::{Duration, Instant};

/// A job with a ttl of 1 s that lasts for several, over a line with this round trip that stands still once for 250 ms.
fn survives(tls: &Tls, number: u64, round_trip: Duration, hold_after: Duration) {
    let half = round_trip / 2;
    let proxy = Proxy::to_port(tls.port(), Mode::Delay(half));
    let url = format!("rediss://:s3cret@{}", proxy.address().replace("127.0.0.1", "localhost"));
    let test = Test::new(tls).env("REDLOCK_REDIS", &url);
    let name = format!("lock-{number}");
    let test = test.args(["run", "-v", &name, "--ttl", "1s", "--node-timeout", "500ms"]);
    let job = test.args(["--", "sh", "-c", "echo ready; sleep 3"]).stderr(any()).spawn();
    job.prints("ready");
    std::thread::sleep(hold_after);
    proxy.set(Mode::Hold(Instant::now() + ms(250), half));
    job.finish();
}

#[test]
fn a_hold_up_costs_no_job() {
    let (tls, _authority) = Tls::start();
    tls.redis.command(&["CONFIG", "SET", "requirepass", "s3cret"]);
    std::thread::scope(|scope| {
        for number in 0..10 {
            let (tls, round_trip) = (&tls, if number % 2 == 0 { ms(20) } else { ms(80) });
            scope.spawn(move || survives(tls, number, round_trip, ms(500 + 25 * number)));
        }
    });
}

#[test]
fn a_round_trip_that_is_longer_than_a_third_of_the_time_for_tries_costs_no_job() {
    let redis = Redis::start();
    teach_scripts(&redis);
    std::thread::scope(|scope| {
        for (number, round_trip) in [130, 170, 200].into_iter().enumerate() {
            let redis = &redis;
            scope.spawn(move || {
                let proxy = Proxy::new(redis, Mode::Delay(ms(round_trip) / 2));
                let name = format!("lock-{number}");
                let test = Test::new(&proxy).args(["run", &name, "--ttl", "1s", "--node-timeout", "500ms"]);
                // It says that it has the lock, and nothing more.
                test.args(["--", "sleep", "3"]).stderr(like("redlock: acquired <any>\n")).run();
            });
        }
    });
}
