//! The job is dead before its lease can expire on the server, even if server, redlock or keeper is stopped. The tests
//! in `tests/alone/margins.rs` have shorter leases and larger jobs, which only a quiet machine kills in time.

use crate::support::{
    Besides, Cut, Mode, Proxy, Redis, Running, SOON, acquire, any, cut_off_many, eventually, is_renewed,
    key_is_renewed, ms, redlock, release,
};
use nix::sys::signal::Signal;
use std::path::{Path, PathBuf};

/// Cuts off many jobs at once. Of each kind, the server is out of reach for `rounds` jobs, and stopped for `rounds`
/// more.
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

/// Describes the keeper's timer.
fn timer_of(keeper: u32) -> PathBuf {
    let files = std::fs::read_dir(format!("/proc/{keeper}/fdinfo")).unwrap().map(|file| file.unwrap().path());
    let is_timer = |file: &PathBuf| std::fs::read_to_string(file).is_ok_and(|text| text.contains("it_value"));
    files.into_iter().find(is_timer).expect("the keeper has a timer")
}

/// In milliseconds, until this timer expires.
fn left(timer: &Path) -> i64 {
    let text = std::fs::read_to_string(timer).unwrap();
    let (seconds, rest) = text.split_once("it_value: (").unwrap().1.split_once(", ").unwrap();
    let nanoseconds = rest.split_once(')').unwrap().0;
    seconds.parse::<i64>().unwrap() * 1_000 + nanoseconds.parse::<i64>().unwrap() / 1_000_000
}

/// Stops redlock, and expects that the keeper will kill the job at least `earlier` ms before the first of these keys
/// expires.
#[track_caller]
fn is_to_be_killed_before(redis: &Redis, job: &Running, keys: &[&str], ttl: i64, earlier: i64) {
    let (mut connection, timer) = (redis.connection(), timer_of(job.keeper()));
    // A stopped redlock renews nothing. The keeper counts the processes when half of the time to the kill is over.
    job.send(Signal::SIGSTOP);
    let mut before_expiry = || {
        // The keys are read before the timer: time that passes in between makes the difference larger, never smaller.
        let lefts = keys.iter().map(|key| redis::cmd("PTTL").arg(key).query::<i64>(&mut connection).unwrap());
        lefts.min().unwrap() - left(&timer)
    };
    eventually(SOON, "the processes are counted", || before_expiry() < ttl / 4);
    let least = (0..20).map(|_| before_expiry()).min().unwrap();
    assert!(least + 2 >= earlier, "to be killed {least} ms before the expiry, not {earlier}");
}

#[test]
fn a_renewal_counts_from_before_it_was_sent() {
    // In milliseconds. EARLIER is the drift (1 % and 2 ms), the margin (a tenth), and the way to the server.
    const TTL: i64 = 8_000;
    const EARLIER: i64 = TTL / 100 + 2 + TTL / 10 + 100;
    let redis = Redis::start();
    let slow = Proxy::new(&redis, Mode::Delay(ms(100)));
    let test =
        redlock(&slow, format!("run -q backup --kill-after 1ms --ttl {TTL}ms -- sh -c")).arg("echo ready; read line");
    let (job, writer) = test.any_end().stderr(any()).ready_to_read();
    is_renewed(&redis);
    eventually(SOON, "the answer has come", || redis.pttl("redlock:backup") < TTL - 1_200);
    is_to_be_killed_before(&redis, &job, &["redlock:backup"], TTL, EARLIER);
    job.send(Signal::SIGCONT);
    drop(writer);
    job.finish();
}

#[test]
fn of_several_leases_the_first_to_end_decides() {
    // In milliseconds. EARLIER is the drift (1 % and 2 ms), and the margin (a tenth).
    const TTL: i64 = 8_000;
    const EARLIER: i64 = TTL / 100 + 2 + TTL / 10;
    let redis = Redis::start();
    let token = acquire(&redis, "b");
    let (reader, writer) = std::io::pipe().unwrap();
    let test = redlock(&redis, format!("run -q --name a --name b --wait 20s --kill-after 1ms --ttl {TTL}ms -- sh -c"));
    let job = test.arg("echo ready; read line").stdin_from(reader).any_end().stderr(any()).spawn();
    key_is_renewed(&redis, "redlock:a");
    eventually(SOON, "the lease of a is a second old", || redis.pttl("redlock:a") < TTL - 1_000);
    release(&redis, "b", &token);
    job.prints("ready");
    is_to_be_killed_before(&redis, &job, &["redlock:a", "redlock:b"], TTL, EARLIER);
    job.send(Signal::SIGCONT);
    drop(writer);
    job.finish();
}

#[test]
fn the_more_processes_a_job_has_the_earlier_it_is_to_be_killed() {
    const PROCESSES: i64 = 600;
    // In milliseconds. EARLIER is the drift (1 % and 2 ms), the margin (a tenth), and 250 µs for each process.
    const TTL: i64 = 8_000;
    const EARLIER: i64 = TTL / 100 + 2 + TTL / 10 + PROCESSES / 4;
    let redis = Redis::start();
    let script = "exec 3<&0; n=1; while [ $n -lt $1 ]; do read line <&3 & n=$((n+1)); done; echo ready; read line";
    let test = redlock(&redis, format!("run backup -q --kill-after 1ms --ttl {TTL}ms -- sh -c"));
    let test = test.args([script, "sh", &PROCESSES.to_string()]).any_end().stderr(any());
    let (job, writer) = test.ready_to_read();
    is_to_be_killed_before(&redis, &job, &["redlock:backup"], TTL, EARLIER);
    job.send(Signal::SIGCONT);
    drop(writer);
    job.finish();
}
