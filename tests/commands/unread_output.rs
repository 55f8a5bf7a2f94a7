//! Output that takes nothing more: a full pipe, a full socket, a terminal whose other end does not read. redlock's work
//! must not depend on it, and a call that cannot print its result can be interrupted.

use crate::support::{
    Ended, Finished, Mode, Proxy, Redis, Running, SOON, Test, acquire, any, eventually, full_pipe, full_socket,
    full_terminal, is_renewed, like, message, ms, redlock, release,
};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pipe,
    Socket,
    Terminal,
    /// A terminal with room for a few bytes: poll(2) calls it writable, but a whole line does not fit.
    AlmostTerminal,
}

const KINDS: [Kind; 4] = [Kind::Pipe, Kind::Socket, Kind::Terminal, Kind::AlmostTerminal];

/// An output whose other end is kept open, but which nobody reads.
struct Unread {
    kind: Kind,
    end: OwnedFd,
    _other: OwnedFd,
}

impl Unread {
    fn new(kind: Kind) -> Unread {
        let (other, end): (OwnedFd, OwnedFd) = match kind {
            Kind::Pipe => {
                let (other, end) = full_pipe();
                (other.into(), end.into())
            }
            Kind::Socket => {
                let (other, end) = full_socket();
                (other.into(), end.into())
            }
            Kind::Terminal | Kind::AlmostTerminal => {
                let (other, end) = full_terminal(if kind == Kind::Terminal { 0 } else { 10 });
                (other, end.into())
            }
        };
        Unread { kind, end, _other: other }
    }

    /// Starts the call with this output as its standard error.
    #[track_caller]
    fn under(&self, test: Test) -> Running {
        test.stderr_to(self.end.try_clone().unwrap()).spawn()
    }

    /// Checks that the call ends soon, as the test expects, and that it leaves the output blocking.
    #[track_caller]
    fn ends(&self, mut call: Running) -> Finished {
        let start = Instant::now();
        while !call.has_ended() {
            assert!(start.elapsed() < SOON, "{:?}: hangs; {}", self.kind, call.all_stdout());
            std::thread::sleep(ms(2));
        }
        let finished = call.finish_whole();
        // The output must stay blocking, because other processes of the user write to it, too.
        let flags = OFlag::from_bits_retain(fcntl(&self.end, FcntlArg::F_GETFL).unwrap());
        assert!(!flags.contains(OFlag::O_NONBLOCK), "{:?}: left non-blocking", self.kind);
        finished
    }
}

/// Runs the test for all kinds of output side by side, each on a server of its own.
fn each_kind(test: impl Fn(&Redis, Kind) + Sync) {
    std::thread::scope(|scope| {
        for kind in KINDS {
            let test = &test;
            scope.spawn(move || test(&Redis::start(), kind));
        }
    });
}

#[test]
fn commands_end_though_nobody_reads_standard_error() {
    each_kind(|redis, kind| {
        let test = redlock(redis, "acquire -v backup").stdout(like("<token>\n"));
        let unread = Unread::new(kind);
        let token = unread.ends(unread.under(test)).token();
        for (arguments, status) in [
            (&["status", "-v", "backup"][..], 0),
            (&["status", "-q", "backup"], 75),
            (&["status", "backup", "--token", "another-token-of-some-length"], 77),
            (&["acquire", "--name", "backup"], 75),
            (&["acquire", "--name", "backup", "--wait", "1s"], 75),
            (&["run", "--name", "backup", "--", "true"], 75),
            (&["wait", "backup", "--timeout", "1s"], 75),
            (&["extend", "-v", "backup", "--token", &token], 0),
            (&["release", "-v", "backup", "--token", &token], 0),
            (&["release", "backup", "--token", &token], 77),
            (&["run", "-v", "--name", "backup", "--", "sh", "-c", "exit 5"], 5),
            (&["run", "-v", "--name", "backup", "--", "no-such-command"], 127),
            (&["status", "-v"], 0),
            (&["acquire", "--name", "backup", "--ttl", "never"], 64),
        ] {
            let unread = Unread::new(kind);
            let test = Test::new(redis).args(arguments).any_end().stdout(any());
            let finished = unread.ends(unread.under(test));
            assert_eq!(finished.ended, Ended::Status(status), "{kind:?}: {arguments:?}");
        }
        assert!(!redis.exists("redlock:backup"), "{kind:?}");
    });
}

#[test]
fn a_job_is_renewed_and_its_status_reported_though_nobody_reads_standard_error() {
    each_kind(|redis, kind| {
        let unread = Unread::new(kind);
        let (reader, writer) = std::io::pipe().unwrap();
        let test = redlock(redis, "run -v backup --ttl 6s").args(["--", "sh", "-c", "echo ready; read line; exit 5"]);
        let job = unread.under(test.stdin_from(reader).status(5).stdout("ready\n"));
        eventually(SOON, "the job runs", || job.all_stdout() == "ready\n");
        let token = redis.get("redlock:backup");
        assert!(token.is_some(), "{kind:?}");
        for _ in 0..2 {
            is_renewed(redis);
            assert_eq!(redis.get("redlock:backup"), token, "{kind:?}");
        }
        drop(writer);
        unread.ends(job);
        assert!(!redis.exists("redlock:backup"), "{kind:?}");
    });
}

#[test]
fn an_outage_is_survived_though_nobody_reads_standard_error() {
    each_kind(|redis, kind| {
        // A message about the outage must not delay the next try.
        let proxy = Proxy::new(redis, Mode::Pass);
        let unread = Unread::new(kind);
        let (reader, writer) = std::io::pipe().unwrap();
        let test = redlock(&proxy, "run backup --ttl 6s --node-timeout 2s");
        let test = test.args(["--", "sh", "-c", "echo ready; read line; exit 5"]);
        let job = unread.under(test.stdin_from(reader).status(5).stdout("ready\n"));
        eventually(SOON, "the job runs", || job.all_stdout() == "ready\n");
        for _ in 0..2 {
            let connections = proxy.connections();
            proxy.set(Mode::Cut);
            eventually(SOON, "it has noticed", || proxy.connections() > connections);
            proxy.set(Mode::Pass);
            is_renewed(redis);
        }
        drop(writer);
        unread.ends(job);
    });
}

#[test]
fn a_lost_lease_ends_the_job_though_nobody_reads_standard_error() {
    each_kind(|redis, kind| {
        let unread = Unread::new(kind);
        let test = redlock(redis, "run -v backup --ttl 4s --node-timeout 2s");
        let test = test.args(["--", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.02; done"]);
        let job = unread.under(test.status(76).stdout("ready\n"));
        eventually(SOON, "the job runs", || job.all_stdout() == "ready\n");
        redis.command(&["DEL", "redlock:backup"]);
        unread.ends(job);
    });
}

#[test]
fn a_waiter_takes_its_turn_and_can_be_interrupted_though_nobody_reads_standard_error() {
    let times = Mutex::new(Vec::new());
    each_kind(|redis, kind| {
        let before = acquire(redis, "backup");
        let queue = redis.keys_without_history();
        let waiter = || redlock(redis, "acquire -v backup --wait");
        let unread = Unread::new(kind);
        let waits = unread.under(waiter().stdout(like("<token>\n")));
        eventually(SOON, "it waits", || redis.keys_without_history() != queue);
        std::thread::sleep(ms(300)); // in which it says that it waits
        release(redis, "backup", &before);
        let token = unread.ends(waits).token();
        assert_eq!(redis.get("redlock:backup").as_ref(), Some(&token), "{kind:?}");
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            let before = redis.keys_without_history();
            let unread = Unread::new(kind);
            let mut waits = unread.under(waiter().signal(signal));
            eventually(SOON, "it waits", || redis.keys_without_history() != before);
            times.lock().unwrap().push(interrupted(&mut waits, signal, kind));
            unread.ends(waits);
            eventually(SOON, "nothing is left", || redis.keys_without_history() == before);
        }
    });
    at_once(&times);
}

/// Sends the signal, and returns the time until the end of the call, which must come soon.
#[track_caller]
fn interrupted(call: &mut Running, signal: Signal, kind: Kind) -> Duration {
    let start = Instant::now();
    call.send(signal);
    while !call.has_ended() {
        assert!(start.elapsed() < SOON, "{kind:?}: {signal} is not heard");
        std::thread::sleep(ms(1));
    }
    start.elapsed()
}

/// Checks that at least one time is short. The others may be longer, because other tests use the machine.
#[track_caller]
fn at_once(times: &Mutex<Vec<Duration>>) {
    let times = times.lock().unwrap();
    assert!(times.iter().any(|&time| time < ms(2_000)), "{times:?}");
}

#[test]
fn a_token_that_cannot_be_printed_can_be_interrupted_and_leaves_nothing() {
    let times = Mutex::new(Vec::new());
    each_kind(|redis, kind| {
        for (signal, format) in
            [(Signal::SIGTERM, "text"), (Signal::SIGINT, "json"), (Signal::SIGHUP, "env"), (Signal::SIGQUIT, "text")]
        {
            let unread = Unread::new(kind);
            let test = redlock(redis, "acquire -q backup --format").arg(format);
            let mut call = test.stdout_to(unread.end.try_clone().unwrap()).signal(signal).spawn();
            eventually(SOON, "it has the lock", || redis.exists("redlock:backup"));
            std::thread::sleep(ms(100)); // after which it is writing
            assert!(!call.has_ended(), "{kind:?}: {}", call.all_stderr());
            times.lock().unwrap().push(interrupted(&mut call, signal, kind));
            unread.ends(call);
            eventually(SOON, "it is free", || !redis.exists("redlock:backup"));
        }
    });
    at_once(&times);
}

#[test]
fn a_token_that_is_read_late_is_printed_whole() {
    let redis = Redis::start();
    let (mut reader, writer) = full_pipe();
    let mut call = redlock(&redis, "acquire backup").stdout_to(writer).spawn();
    eventually(SOON, "it has the lock", || redis.exists("redlock:backup"));
    std::thread::sleep(ms(300)); // in which it must not give up
    assert!(!call.has_ended(), "{}", call.all_stderr());
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    call.wait(SOON);
    let token = text.trim_start_matches('x').trim_end();
    assert_eq!(redis.get("redlock:backup").as_deref(), Some(token));
    call.finish();
}

/// Reads what is written to the output from now on until its last writer has ended.
fn read_all(mut reader: impl Read) -> String {
    let mut text = Vec::new();
    // The master side of a terminal without a slave side is an error (EIO).
    let _ = reader.read_to_end(&mut text);
    String::from_utf8(text).unwrap().replace("\r\n", "\n")
}

#[test]
fn a_result_is_printed_whole_though_another_process_has_made_the_output_non_blocking() {
    let redis = Redis::start();
    for line in ["completions zsh", "extend backup --token none --format json"] {
        let test = || redlock(&redis, line).any_end().stderr(any());
        let whole = test().stdout(any()).run().stdout;
        for kind in KINDS {
            let Unread { end, _other: other, .. } = Unread::new(kind);
            fcntl(&end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
            let call = test().stdout_to(end).spawn();
            // A failure waits for a second at most.
            match line.starts_with("completions") {
                true => std::thread::sleep(ms(200)),
                false => eventually(SOON, "it has failed", || !call.all_stderr().is_empty()),
            }
            let text = read_all(std::fs::File::from(other));
            assert_eq!(text.trim_start_matches('x'), whole, "{kind:?}: {line}");
            call.finish_whole();
        }
    }
}

#[test]
fn a_token_that_is_not_read_before_its_lease_runs_out_is_a_failure() {
    let redis = Redis::start();
    for more in ["", "--format json", "--format env", "--while-pid"] {
        let (mut reader, writer) = full_pipe();
        let pid = if more == "--while-pid" { std::process::id().to_string() } else { String::new() };
        let test = redlock(&redis, format!("acquire backup --ttl 600ms {more} {pid}")).stdout_to(writer).status(69);
        let said = message(["too much of the lease of 600ms had passed before it could be used; use a longer --ttl"]);
        let call = test.stderr(said).spawn();
        eventually(SOON, "it has the lock", || redis.exists("redlock:backup"));
        eventually(SOON, "it has run out", || !redis.exists("redlock:backup"));
        // Another call may take the lock before the token is read.
        let other = acquire(&redis, "backup");
        call.finish_whole();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text.trim_start_matches('x'), "");
        release(&redis, "backup", &other);
    }
}

#[test]
fn what_is_only_looked_at_can_be_interrupted_while_it_is_printed() {
    each_kind(|redis, kind| {
        acquire(redis, "backup");
        let before = redis.keys_without_history();
        for arguments in [&["status", "backup"][..], &["status"], &["status", "--format", "json", "backup"]] {
            let unread = Unread::new(kind);
            let connections = redis.info("total_connections_received");
            let test = Test::new(redis).args(arguments).stdout_to(unread.end.try_clone().unwrap());
            let mut call = test.signal(Signal::SIGTERM).spawn();
            eventually(SOON, "it has asked", || {
                redis.info("total_connections_received") != connections || call.has_ended()
            });
            std::thread::sleep(ms(50)); // after which it is writing
            interrupted(&mut call, Signal::SIGTERM, kind);
            unread.ends(call);
        }
        assert_eq!(redis.keys_without_history(), before, "{kind:?}");
    });
}
