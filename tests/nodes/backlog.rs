//! A server that hangs, on a Unix socket with a full backlog: a new connection is neither accepted nor refused. Every
//! call still ends in time, and at once on a signal.

use crate::support::{Redis, SOON, any, eventually, in_the_end, message, ms, perhaps, redlock, when};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Instant, SystemTime};

/// Stops the server, and connects until there is no room. The backlog stays full as long as the connections are kept.
#[track_caller]
fn fill(redis: &Redis) -> Vec<OwnedFd> {
    redis.pause();
    let (address, mut connections) = (UnixAddr::new(&redis.socket()).unwrap(), Vec::new());
    loop {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let connection = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        match connect(connection.as_raw_fd(), &address) {
            Ok(()) => connections.push(connection),
            Err(Errno::EAGAIN) => return connections,
            Err(error) => panic!("after {}: {error}", connections.len()),
        }
        assert!(connections.len() < 1_000, "the backlog has no end");
    }
}

fn server() -> Redis {
    Redis::with(&["--tcp-backlog", "4"])
}

#[test]
fn every_call_ends_in_time() {
    let redis = server();
    let _full = fill(&redis);
    let calls: Vec<_> = [
        &["acquire", "--name", "backup"][..],
        &["acquire", "--name", "backup", "--wait", "500ms"],
        &["run", "--name", "backup", "--", "echo", "started"],
        &["run", "--name", "backup", "--wait", "500ms", "--", "echo", "started"],
        &["extend", "backup", "--token", "t"],
        &["release", "backup", "--token", "t"],
        &["stop", "backup"],
        &["status", "backup"],
        &["status"],
    ]
    .into_iter()
    .map(|arguments| {
        let said = in_the_end(arguments, message([redis.socket().to_str().unwrap()]));
        let test = redlock(&redis, "--node-timeout 300ms").args(arguments).status(69);
        test.stdout(when("no job", |text| !text.contains("started"))).stderr(said).within(SOON).spawn()
    })
    .collect();
    calls.into_iter().for_each(|call| drop(call.finish()));
}

#[test]
fn a_signal_ends_a_call_at_once() {
    let redis = server();
    let _full = fill(&redis);
    for arguments in [
        &["acquire", "--name", "backup"][..],
        &["run", "--name", "backup", "--wait", "--", "echo", "started"],
        &["run", "--name", "backup", "--", "echo", "started"],
        &["status", "backup"],
        &["wait", "backup"],
    ] {
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            let test = redlock(&redis, "--node-timeout 15s").args(arguments).args(match arguments[0] {
                "acquire" => &["--ttl", "1m"][..],
                _ => &[],
            });
            let test = test.signal(signal).stdout(any()).stderr(perhaps(["\"backup\"", "interrupted by"]));
            let mut call = test.within(SOON).spawn();
            // The test cannot see when the call has begun to wait for the server.
            std::thread::sleep(ms(150));
            assert!(!call.has_ended(), "{arguments:?}: {}", call.all_stderr());
            call.send(signal);
            call.finish();
        }
    }
}

#[test]
fn a_job_is_stopped_and_its_loss_reported_in_time() {
    let redis = server();
    let test = redlock(&redis, "run -q backup --ttl 6s -- sh -c");
    let alive = test.directory().path().join("alive");
    let job = test.arg("trap '' TERM; echo ready; while :; do touch alive; sleep 0.02; done").status(76);
    let job = job.stderr(when("the lock", |text| text.contains("\"backup\""))).within(SOON).spawn();
    job.prints("ready");
    // The renewal's connection is closed or silent, and the backlog has no room for a new connection.
    redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let _full = fill(&redis);
    let expires = SystemTime::now() + ms(6_000);
    eventually(SOON, "the job is dead", || job.job().is_empty());
    let last_alive = std::fs::metadata(alive).unwrap().modified().unwrap();
    assert!(last_alive < expires, "it outlived its lease");
    job.finish();
}

#[test]
fn a_job_that_ends_meanwhile_is_not_kept() {
    let redis = server();
    let (reader, writer) = std::io::pipe().unwrap();
    let test = redlock(&redis, "run -q backup --ttl 1m -- sh -c");
    let job = test.arg("echo ready; read line; exit 3").stdin_from(reader).status(3).spawn();
    job.prints("ready");
    redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let _full = fill(&redis);
    let start = Instant::now();
    drop(writer);
    job.finish();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}
