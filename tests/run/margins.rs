//! The job is dead before its lease can expire on the server, whatever happens to server, redlock and machine. The same with short
//! leases and large jobs, which only a quiet machine kills in time, is in `tests/alone/margins.rs`.

use crate::support::{Besides, Cut, cut_off_many};

/// So many jobs of these kinds, all at once, with the server out of reach and stopped.
#[track_caller]
fn in_time<const N: usize>(kinds: [Cut; N], rounds: usize) {
    let cuts: Vec<Cut> = kinds.into_iter().flat_map(|cut| [cut, Cut { server_stopped: true, ..cut }]).collect();
    let all = cuts.repeat(rounds);
    cut_off_many(&all, all.len());
}

#[test]
fn a_job_is_dead_before_its_lease_expires() {
    in_time([Cut::SMALL, Cut { besides: Besides::Deaf, ..Cut::SMALL }], 6);
}

#[test]
fn so_it_is_when_redlock_is_stopped_or_its_standard_error_is_full() {
    in_time([Besides::Stopped, Besides::FullStderr].map(|besides| Cut { besides, ..Cut::SMALL }), 3);
}

#[test]
fn so_it_is_when_the_keeper_is_stopped_while_it_kills() {
    in_time([Cut { processes: 60, line: true, besides: Besides::KeeperStopped, ..Cut::SMALL }], 2);
}

#[test]
fn so_it_is_with_many_processes() {
    let flat = Cut { processes: 400, ..Cut::SMALL };
    in_time([flat, Cut { besides: Besides::NoGrace, ..flat }, Cut { processes: 50, line: true, ..flat }], 1);
}
