//! The time between a job's death and the expiry of its lease, with short leases, large jobs and two busy cores. A
//! short lease survives the loss of a single request for renewal.

use crate::support::{Besides, Busy, Cut, Mode, Proxy, Redis, SOON, cut_off_many, eventually, redlock, rounds};

const SHORT: Cut = Cut { ttl: 1_000, ..Cut::SMALL };

#[test]
fn a_job_is_dead_before_its_lease_expires_200_times() {
    let _busy = Busy::start();
    let cuts = [SHORT, Cut { besides: Besides::Deaf, ..SHORT }];
    cut_off_many(&cuts.repeat(100), 6);
}

#[test]
fn so_it_is_when_redlock_is_stopped_or_its_standard_error_is_full() {
    let _busy = Busy::start();
    let kinds = [Besides::Stopped, Besides::FullStderr];
    cut_off_many(&kinds.map(|besides| Cut { besides, ..SHORT }).repeat(15), 6);
}

#[test]
fn so_it_is_when_the_keeper_is_stopped_while_it_kills() {
    let _busy = Busy::start();
    let cut = Cut { processes: 60, line: true, besides: Besides::KeeperStopped, ..SHORT };
    cut_off_many(&[cut].repeat(8), 1);
}

/// Cuts off jobs of one kind, one after the other. The server is out of reach for one job, and stopped for the next.
#[track_caller]
fn margins(cut: Cut, default: usize) {
    let _busy = Busy::start();
    let cuts = [cut, Cut { server_stopped: true, ..cut }];
    let all: Vec<Cut> = cuts.into_iter().cycle().take(rounds("MARGIN_ROUNDS", default)).collect();
    cut_off_many(&all, 1);
}

#[test]
fn so_it_is_with_a_ttl_of_500_ms() {
    margins(Cut { ttl: 500, besides: Besides::Deaf, ..SHORT }, 8);
}

#[test]
fn so_it_is_with_a_ttl_of_1_s() {
    margins(Cut { besides: Besides::Deaf, ..SHORT }, 4);
}

#[test]
fn so_it_is_with_a_ttl_of_3_s() {
    margins(Cut { ttl: 3_000, besides: Besides::Deaf, ..SHORT }, 2);
}

#[test]
fn so_it_is_with_1000_processes_and_a_ttl_of_500_ms() {
    margins(Cut { ttl: 500, processes: 1_000, ..SHORT }, 4);
}

#[test]
fn so_it_is_with_a_line_of_50_processes_and_a_ttl_of_500_ms() {
    margins(Cut { ttl: 500, processes: 50, line: true, ..SHORT }, 4);
}

#[test]
fn so_it_is_with_a_line_of_400_processes_and_a_ttl_of_1_s() {
    margins(Cut { processes: 400, line: true, ..SHORT }, 2);
}

#[test]
fn so_it_is_with_2000_processes_without_a_grace() {
    margins(Cut { processes: 2_000, besides: Besides::NoGrace, ..SHORT }, 2);
}

#[test]
fn black_holed_requests_are_survived_at_short_ttls() {
    for (ttl, rounds) in [("500ms", 4), ("1s", 3)] {
        let redis = Redis::start();
        let proxy = Proxy::new(&redis, Mode::Pass);
        let test = redlock(&proxy, format!("run -q backup --ttl {ttl}")).status(5);
        let test = test.args(["--", "sh", "-c", "echo ready; read line; exit 5"]);
        let (mut job, writer) = test.ready_to_read();
        let token = redis.get("redlock:backup");
        for _ in 0..rounds {
            let before = proxy.requested();
            proxy.set(Mode::BlackHole);
            eventually(SOON, "a renewal is swallowed", || proxy.requested() > before);
            let low = redis.pttl("redlock:backup");
            proxy.set(Mode::Pass);
            eventually(SOON, "it is renewed", || redis.pttl("redlock:backup") > low || job.has_ended());
            assert!(!job.has_ended(), "a single request that was swallowed cost the lease of {ttl}");
            assert_eq!(redis.get("redlock:backup"), token);
        }
        drop(writer);
        job.finish();
    }
}
