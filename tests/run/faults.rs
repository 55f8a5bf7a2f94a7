//! System calls that fail, or are interrupted by a signal.

use crate::support::{Ended, Fault, Faults, Finished, Redis, SOON, any, redlock};
use nix::errno::Errno;
use nix::libc;
use std::sync::Arc;

/// Ends a job by a signal that redlock hears.
fn told_to_end(redis: &Redis, faults: &Arc<Faults>) -> Finished {
    let script = "trap 'exit 3' TERM; kill $(cut -d' ' -f4 /proc/$PPID/stat); while :; do sleep 0.01; done";
    let test = redlock(redis, "run -q backup -- sh -c").arg(script).with_faults(faults).within(SOON).any_end();
    let finished = test.stderr(any()).spawn().finish_whole();
    assert!(!redis.exists("redlock:backup"), "released");
    finished
}

/// The calls by which redlock and its keeper hear of each other, of signals and of their children.
const LOOKS: [i64; 6] =
    [libc::SYS_poll, libc::SYS_read, libc::SYS_recvfrom, libc::SYS_sendto, libc::SYS_wait4, libc::SYS_waitid];

#[test]
fn a_look_that_is_interrupted_misses_nothing() {
    let redis = Redis::start();
    let healthy = Faults::none();
    assert_eq!(told_to_end(&redis, &healthy).ended, Ended::Status(3));
    // By then the program is loaded.
    let supervised = healthy.seen().into_iter().skip_while(|moment| moment.call != libc::SYS_signalfd4);
    for moment in supervised.filter(|moment| LOOKS.contains(&moment.call)) {
        if ["redlock", "redlock-keeper"].contains(&moment.caller.0.as_str()) {
            let Finished { ended, stderr, .. } =
                told_to_end(&redis, &Faults::planned(moment.clone(), Fault::Error(Errno::EINTR)));
            // The kernel interrupts nothing on the connection to the server, which does not block.
            let before = ended == Ended::Status(69) && stderr.contains("(interrupted system call)");
            assert!(ended == Ended::Status(3) || before, "{moment:?}: {ended:?}, {stderr}");
        }
    }
}
