//! System calls that fail, that a signal interrupts, or at which the process is killed.

use crate::support::{Caller, Ended, Fault, Faults, Finished, POLL, Redis, SOON, Test, any, message, redlock, release};
use nix::errno::Errno;
use nix::libc;
use nix::pty::openpty;
use std::sync::Arc;

/// Runs a job that sends SIGTERM to redlock, and ends when redlock passes the signal on.
fn asked_to_end(redis: &Redis, faults: &Arc<Faults>) -> Finished {
    let script = "trap 'exit 3' TERM; kill $(cut -d' ' -f4 /proc/$PPID/stat); while :; do sleep 0.01; done";
    let test = redlock(redis, "run -q backup -- sh -c").arg(script).with_faults(faults).within(SOON).any_end();
    let finished = test.stderr(any()).spawn().finish_whole();
    assert!(!redis.exists("redlock:backup"), "released");
    finished
}

/// The system calls by which redlock and its keeper exchange messages, and hear of signals and of their children.
const LOOKS: [i64; 6] = [POLL, libc::SYS_read, libc::SYS_recvfrom, libc::SYS_sendto, libc::SYS_wait4, libc::SYS_waitid];

#[test]
fn a_look_that_is_interrupted_misses_nothing() {
    let redis = Redis::start();
    let healthy = Faults::none();
    assert_eq!(asked_to_end(&redis, &healthy).ended, Ended::Status(3));
    // When signalfd4 is called, the program has been loaded.
    let supervised = healthy.seen().into_iter().skip_while(|moment| moment.call != libc::SYS_signalfd4);
    for moment in supervised.filter(|moment| LOOKS.contains(&moment.call)) {
        if ["redlock", "redlock-keeper"].contains(&moment.caller.0.as_str()) {
            let Finished { ended, stderr, .. } =
                asked_to_end(&redis, &Faults::planned(moment.clone(), Fault::Error(Errno::EINTR)));
            // The real kernel interrupts only calls that block. Those on the connection to the server never do, so
            // redlock may fail if one of them is interrupted.
            let before = ended == Ended::Status(69) && stderr.contains("(interrupted system call)");
            assert!(ended == Ended::Status(3) || before, "{moment:?}: {ended:?}, {stderr}");
        }
    }
}

#[test]
fn a_keeper_that_is_killed_before_it_reports_the_start_or_the_end_leaves_open_how_the_job_ended() {
    let redis = Redis::start();
    for (report, or) in [(1, "had not begun"), (2, "had just ended")] {
        let faults = Faults::at("redlock-keeper", libc::SYS_sendto, report, Fault::Kill);
        let said = format!("redlock: the keeper process of \"backup\" was killed: its job was stopped, or {or}\n");
        redlock(&redis, "run -q backup -- true").with_faults(&faults).status(69).stderr(said).run();
        assert!(faults.happened() && !redis.exists("redlock:backup"));
        let log = redlock(&redis, "log backup -n 1 --format json").stdout(any()).run().json();
        assert_eq!((&log["outcome"], &log["status"]), (&"released".into(), &serde_json::Value::Null));
    }
}

/// System calls that need a descriptor, a process or memory, with the kernel's error for a shortage, and redlock's
/// words for it.
const SCARCE: [(i64, Errno, &str); 10] = [
    (libc::SYS_openat, Errno::ENFILE, "too many files open"),
    (libc::SYS_openat, Errno::ENOMEM, "out of memory"),
    (libc::SYS_socket, Errno::EMFILE, "too many files open"),
    (libc::SYS_socketpair, Errno::EMFILE, "too many files open"),
    (libc::SYS_epoll_create1, Errno::EMFILE, "too many files open"),
    (libc::SYS_eventfd2, Errno::ENFILE, "too many files open"),
    (libc::SYS_signalfd4, Errno::ENOMEM, "out of memory"),
    (libc::SYS_pidfd_open, Errno::EMFILE, "too many files open"),
    (libc::SYS_clone, Errno::EAGAIN, "too many processes"),
    (libc::SYS_epoll_ctl, Errno::ENOMEM, "out of memory"),
];

#[test]
fn a_shortage_is_reported_as_one_and_not_as_a_mistake_of_the_caller() {
    let redis = Redis::start();
    for line in ["run -q backup -- true", "acquire -q backup"] {
        let healthy = Faults::none();
        let call = |faults: &_| {
            let test: Test = redlock(&redis, line).with_faults(faults).any_end().stdout(any()).stderr(any());
            let finished = test.spawn().finish_whole();
            if let (true, Some(token)) = (line.starts_with("acquire"), finished.stdout.strip_suffix('\n')) {
                release(&redis, "backup", token);
            }
            assert!(!redis.exists("redlock:backup"), "released");
            finished
        };
        call(&healthy);
        for moment in healthy.seen().into_iter().filter(|moment| moment.caller.0.starts_with("redlock")) {
            for &(_, errno, why) in SCARCE.iter().filter(|(call, ..)| *call == moment.call) {
                let Finished { ended, stderr, .. } = call(&Faults::planned(moment.clone(), Fault::Error(errno)));
                // Three ends are right: redlock did without this call, reported the shortage, or could not load a
                // library.
                let is_reported = ended == Ended::Status(69) && message([why]).matches(&stderr);
                let is_loaded = !stderr.contains("loading shared libraries");
                assert!(
                    ended == Ended::Status(0) || is_reported || !is_loaded,
                    "{moment:?}, {errno}: {ended:?}, {stderr}"
                );
            }
        }
    }
}

#[test]
fn a_job_whose_process_cannot_be_set_up_as_it_must_be_does_not_start() {
    let (redis, terminal) = (Redis::start(), openpty(None, None).unwrap());
    // On a terminal the child takes over what was pressed before its birth.
    for at_terminal in [false, true] {
        let call = |faults: &Arc<Faults>| {
            let test = redlock(&redis, "run -q backup --keep-errors FILE -- sh -c").arg("echo started");
            let test = test.with_faults(faults).any_end().stdout(any());
            let test =
                if at_terminal { test.at_terminal(terminal.slave.try_clone().unwrap()) } else { test.stderr(any()) };
            test.spawn().finish_whole()
        };
        let healthy = Faults::none();
        assert_eq!(call(&healthy).stdout, "started\n");
        // The second process of this name is the child, which becomes the command. getppid cannot fail; the others are
        // about a file that the child has read.
        let harmless = [libc::SYS_getppid, libc::SYS_fcntl, libc::SYS_close];
        let steps = healthy.seen().into_iter().filter(|moment| moment.caller == Caller("redlock-keeper".into(), 1));
        let steps: Vec<_> = steps
            .take_while(|moment| moment.call != libc::SYS_execve)
            .filter(|moment| !harmless.contains(&moment.call))
            .collect();
        assert!(steps.len() > 5, "{steps:?}");
        for step in steps {
            let Finished { ended, stdout, stderr, .. } =
                call(&Faults::planned(step.clone(), Fault::Error(Errno::EBUSY)));
            assert_eq!((ended, stdout.as_str()), (Ended::Status(69), ""), "{step:?}");
            assert!(at_terminal || message(["\"backup\" did not run", "busy"]).matches(&stderr), "{step:?}: {stderr}");
            assert!(!redis.exists("redlock:backup"), "{step:?}");
        }
    }
}
