//! The end of a run, as a table: the outcomes of the job, of the lease and of its release determine the exit and the
//! last messages. No I/O.

use super::cannot_supervise;
use super::renewal::Loss;
use crate::error::Error;
use crate::exit::Exit;
use crate::keeper::Cause;
use crate::lock::{End, Outcome};
use crate::sys::clock::Boot;
use crate::sys::host;
use nix::errno::Errno;
use nix::libc;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// The outcome of the job.
#[derive(Debug)]
pub(super) enum JobOutcome {
    /// The job ended at `at`, by itself or because it was stopped. `status` is the command's, as wait(2) gives it.
    End { status: Option<i32>, cause: Cause, at: Boot },
    /// The command could not be executed. `signal` arrived meanwhile, and would have ended the command.
    StartFailure { errno: Errno, signal: Option<i32> },
    /// The order to start reached the keeper too late for the lease.
    TooLate,
    /// The keeper was killed, and redlock killed the job in its place, the last process at `at`. `overdue`: redlock killed the
    /// keeper too, which had let the deadline of the lease pass.
    KeeperFailure { overdue: bool, at: Boot },
}

/// The outcome of the release.
#[derive(Debug)]
pub(super) enum ReleaseOutcome {
    Success,
    /// A `run --reentrant` inside the job still has its hold.
    InnerHold,
    /// The nodes had the lease no longer: "it was released by force".
    Gone(String),
    /// No answer, for this reason.
    Failure(String),
}

impl ReleaseOutcome {
    pub(super) fn has_freed(&self) -> bool {
        matches!(self, ReleaseOutcome::Success)
    }

    /// `outermost`: the lease was not entered inside a job that holds it.
    pub(super) fn of(result: Result<u64, Error>, outermost: bool) -> ReleaseOutcome {
        match result {
            Ok(holds) if holds > 0 && outermost => ReleaseOutcome::InnerHold,
            Ok(_) => ReleaseOutcome::Success,
            Err(Error::NotOurs { found, .. }) => ReleaseOutcome::Gone(found.what_became()),
            Err(error) => ReleaseOutcome::Failure(error.trouble()),
        }
    }
}

/// The other inputs of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances<'a> {
    /// The lock's.
    pub(super) name: &'a str,
    pub(super) ttl: Duration,
    /// The time from the granted request to the lease.
    pub(super) took: Duration,
    pub(super) valid_until: Boot,
    pub(super) now: Boot,
    /// `--on-lost continue`
    pub(super) continues: bool,
    pub(super) max_run: Option<Duration>,
}

/// A message at the end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LastWord {
    /// The lease was lost, and the last process of the job ended at `at`.
    Loss {
        loss: Loss,
        at: Boot,
    },
    /// The lease was gone when it was to be released, though it should have lasted.
    LossAtRelease(String),
    /// The lease ran out between the end of the job and its release.
    LateRelease,
    ReleaseFailure(String),
    InnerHold,
    TimeLimit(Duration),
    StartFailure(Errno),
    KeeperFailure,
}

impl LastWord {
    /// True if it is about the job rather than about one of its leases.
    pub(super) fn is_about_job(&self) -> bool {
        matches!(self, LastWord::TimeLimit(_) | LastWord::StartFailure(_) | LastWord::KeeperFailure)
    }
}

/// The exit and the messages of a run under these leases that got as far as starting its command, and has lost one of them
/// at most. Each message comes with the number of its lease.
///
/// # Errors
/// As [`ending`].
pub(super) fn ending_of_all(
    outcome: &JobOutcome,
    loss: Option<(usize, Loss)>,
    leases: Vec<(ReleaseOutcome, Circumstances<'_>)>,
) -> Result<(Exit, Vec<(usize, LastWord)>), Error> {
    // Where the releases do not matter, one lease decides: the lost one, or the one that ends first.
    let is_whole = matches!(outcome, JobOutcome::End { .. }) && loss.is_none();
    let first_to_end = || (0..leases.len()).min_by_key(|&at| leases[at].1.valid_until).unwrap_or_default();
    let (decisive, mut loss) = loss.map_or_else(|| (first_to_end(), None), |(at, loss)| (at, Some(loss)));
    let (mut exit, mut said) = (None, Vec::new());
    for (at, (release, besides)) in leases.into_iter().enumerate().filter(|(at, _)| is_whole || *at == decisive) {
        let (one, words) = ending(outcome, loss.take(), release, besides)?;
        // A lease that was lost outranks the end of the job, which is the same for all.
        if exit.is_none() || one == Exit::Lost {
            exit = Some(one);
        }
        said.extend(words.into_iter().filter(|word| at == decisive || !word.is_about_job()).map(|word| (at, word)));
    }
    Ok((exit.unwrap_or(Exit::Internal), said))
}

/// The exit and the messages of a run under one lease.
///
/// # Errors
/// A shortage, or a lease that ended too early to start the command.
fn ending(
    outcome: &JobOutcome,
    loss: Option<Loss>,
    release: ReleaseOutcome,
    besides: Circumstances<'_>,
) -> Result<(Exit, Vec<LastWord>), Error> {
    Ok(match (outcome, loss) {
        (JobOutcome::StartFailure { signal: Some(signal), .. }, _) => (Exit::Signal(*signal), vec![]),
        (JobOutcome::StartFailure { errno, .. }, _) if host::shortage(&(*errno).into()).is_some() => {
            return Err(cannot_supervise(*errno));
        }
        (JobOutcome::StartFailure { errno: Errno::ENOENT, .. }, _) => {
            (Exit::NotFound, vec![LastWord::StartFailure(Errno::ENOENT)])
        }
        (JobOutcome::StartFailure { errno, .. }, _) => (Exit::CannotExecute, vec![LastWord::StartFailure(*errno)]),
        (JobOutcome::TooLate, Some(Loss::Proof(what))) => {
            return Err(Error::LostBeforeStart { name: besides.name.to_owned(), what });
        }
        (JobOutcome::TooLate, _) => {
            let Circumstances { name, took, ttl, .. } = besides;
            return Err(Error::GrantedTooLate { name: name.to_owned(), took, ttl });
        }
        // A job that has outlived its lease means that redlock and the keeper both stood still for a while.
        (JobOutcome::KeeperFailure { overdue, at }, Some(loss)) if *overdue || *at > besides.valid_until => {
            (Exit::Lost, vec![LastWord::Loss { loss, at: *at }])
        }
        (JobOutcome::KeeperFailure { .. }, _) => (Exit::Internal, vec![LastWord::KeeperFailure]),
        // The loss was reported when it happened.
        (JobOutcome::End { .. }, Some(_)) if besides.continues => (Exit::Lost, vec![]),
        (JobOutcome::End { at, .. }, Some(loss)) => (Exit::Lost, vec![LastWord::Loss { loss, at: *at }]),
        (JobOutcome::End { status, cause, at }, None) => after_a_whole_lease(*status, *cause, *at, release, besides),
    })
}

/// The end of a run for the log of its lock: told with the release, and so before it is known what came of that.
pub(super) fn told(outcome: &JobOutcome, is_lost: bool, valid_until: Boot, now: Boot) -> End {
    let has_run_out = |at: Boot| at < valid_until && valid_until <= now;
    let end = |outcome, code: u32, has_run_out| End { outcome: Some(outcome), code: Some(code), has_run_out };
    let signaled = |signal: i32| end(Outcome::Signaled, signal.unsigned_abs(), false);
    match outcome {
        JobOutcome::TooLate => End::UNUSED,
        JobOutcome::StartFailure { signal: Some(signal), .. } => signaled(*signal),
        JobOutcome::StartFailure { errno, .. } if host::shortage(&(*errno).into()).is_some() => End::UNUSED,
        JobOutcome::StartFailure { errno: Errno::ENOENT, .. } => {
            end(Outcome::Exited, Exit::NotFound.status().into(), false)
        }
        JobOutcome::StartFailure { .. } => end(Outcome::Exited, Exit::CannotExecute.status().into(), false),
        JobOutcome::KeeperFailure { overdue, at } if *overdue || *at > valid_until => End::LOST,
        JobOutcome::KeeperFailure { .. } => signaled(libc::SIGKILL),
        JobOutcome::End { .. } if is_lost => End::LOST,
        JobOutcome::End { cause: Cause::TimeLimit, at, .. } => {
            End { outcome: Some(Outcome::TooLong), code: None, has_run_out: has_run_out(*at) }
        }
        JobOutcome::End { status, at, .. } => match exit_of(*status) {
            Exit::Signal(signal) => End { has_run_out: has_run_out(*at), ..signaled(signal) },
            exit => end(Outcome::Exited, exit.status().into(), has_run_out(*at)),
        },
    }
}

/// The exit and the messages for a job that ended while its lease was valid.
fn after_a_whole_lease(
    status: Option<i32>,
    cause: Cause,
    at: Boot,
    release: ReleaseOutcome,
    besides: Circumstances<'_>,
) -> (Exit, Vec<LastWord>) {
    // Such a job was protected, even if another process holds the lock now.
    let ran_out = at < besides.valid_until && besides.valid_until <= besides.now;
    let about_release = match release {
        ReleaseOutcome::Success => None,
        ReleaseOutcome::InnerHold => Some(LastWord::InnerHold),
        ReleaseOutcome::Gone(_) if ran_out => Some(LastWord::LateRelease),
        ReleaseOutcome::Gone(what) => return (Exit::Lost, vec![LastWord::LossAtRelease(what)]),
        ReleaseOutcome::Failure(why) => Some(LastWord::ReleaseFailure(why)),
    };
    let (exit, about_job) = match (cause, besides.max_run) {
        (Cause::TimeLimit, Some(limit)) => (Exit::TooLong, Some(LastWord::TimeLimit(limit))),
        _ => (exit_of(status), None),
    };
    (exit, about_release.into_iter().chain(about_job).collect())
}

/// The command's own exit.
fn exit_of(status: Option<i32>) -> Exit {
    let Some(status) = status.map(ExitStatus::from_raw) else { return Exit::Internal };
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Command(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Internal,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    const fn second(number: u64) -> Boot {
        Boot::at(Duration::from_secs(number))
    }

    /// Valid until second 30, released at second 20.
    const IN_TIME: Circumstances = Circumstances {
        name: "backup",
        ttl: Duration::from_secs(30),
        took: Duration::from_secs(20),
        valid_until: second(30),
        now: second(20),
        continues: false,
        max_run: None,
    };
    /// Released at second 40.
    const LATE: Circumstances = Circumstances { now: second(40), ..IN_TIME };

    /// The command ended at second 20 with this status word.
    fn end(status: i32) -> JobOutcome {
        JobOutcome::End { status: Some(status), cause: Cause::OwnEnd, at: second(20) }
    }

    fn gone() -> ReleaseOutcome {
        ReleaseOutcome::Gone("it was revoked".to_owned())
    }

    fn loss() -> Option<Loss> {
        Some(Loss::Proof("it was revoked".to_owned()))
    }

    #[test]
    fn a_job_with_a_whole_lease_ends_as_its_command() {
        let three = Exit::Command(3);
        let failure = || ReleaseOutcome::Failure("10.0.0.1:6379 timed out".to_owned());
        for (release, besides, exit, words) in [
            (ReleaseOutcome::Success, IN_TIME, three, vec![]),
            (ReleaseOutcome::Success, LATE, three, vec![]),
            (ReleaseOutcome::InnerHold, IN_TIME, three, vec![LastWord::InnerHold]),
            (gone(), LATE, three, vec![LastWord::LateRelease]),
            (gone(), IN_TIME, Exit::Lost, vec![LastWord::LossAtRelease("it was revoked".to_owned())]),
            (failure(), IN_TIME, three, vec![LastWord::ReleaseFailure("10.0.0.1:6379 timed out".to_owned())]),
        ] {
            assert_eq!(ending(&end(3 << 8), None, release, besides).unwrap(), (exit, words));
        }
        let killed = ending(&end(libc::SIGKILL), None, ReleaseOutcome::Success, IN_TIME).unwrap();
        assert_eq!(killed, (Exit::Signal(libc::SIGKILL), vec![]));
    }

    #[test]
    fn the_log_is_told_how_the_command_ended_and_whether_a_lease_that_is_gone_was_lost() {
        let told = |outcome: &JobOutcome, is_lost, now| {
            let End { outcome, code, has_run_out } = told(outcome, is_lost, second(30), second(now));
            (outcome, code, has_run_out)
        };
        let limit = JobOutcome::End { status: Some(libc::SIGTERM), cause: Cause::TimeLimit, at: second(20) };
        let late = JobOutcome::End { status: Some(0), cause: Cause::OwnEnd, at: second(35) };
        let killed = |overdue, at| JobOutcome::KeeperFailure { overdue, at: second(at) };
        let start = |errno, signal| JobOutcome::StartFailure { errno, signal };
        let (exited, signaled, lost) = (Some(Outcome::Exited), Some(Outcome::Signaled), Some(Outcome::Lost));
        for (outcome, is_lost, now, expected) in [
            (end(3 << 8), false, 20, (exited, Some(3), false)),
            (end(3 << 8), false, 40, (exited, Some(3), true)),
            (end(libc::SIGKILL), false, 20, (signaled, Some(9), false)),
            (end(0), true, 20, (lost, None, false)),
            (late, false, 40, (exited, Some(0), false)),
            (limit, false, 20, (Some(Outcome::TooLong), None, false)),
            (killed(false, 20), false, 20, (signaled, Some(9), false)),
            (killed(true, 20), true, 20, (lost, None, false)),
            (killed(false, 35), true, 40, (lost, None, false)),
            (start(Errno::ENOENT, None), false, 20, (exited, Some(127), false)),
            (start(Errno::EACCES, None), false, 20, (exited, Some(126), false)),
            (start(Errno::ENOENT, Some(2)), false, 20, (signaled, Some(2), false)),
            (start(Errno::EAGAIN, None), false, 20, (None, None, false)),
            (JobOutcome::TooLate, true, 20, (None, None, false)),
        ] {
            assert_eq!(told(&outcome, is_lost, now), expected, "{outcome:?}");
        }
    }

    #[test]
    fn a_job_that_outlived_its_lease_was_unprotected() {
        let outcome = JobOutcome::End { status: Some(0), cause: Cause::OwnEnd, at: second(35) };
        let (exit, words) = ending(&outcome, None, gone(), LATE).unwrap();
        assert_eq!((exit, words), (Exit::Lost, vec![LastWord::LossAtRelease("it was revoked".to_owned())]));
    }

    #[test]
    fn a_loss_outranks_what_the_command_returned() {
        let word = LastWord::Loss { loss: loss().unwrap(), at: second(20) };
        let continues = Circumstances { continues: true, ..IN_TIME };
        for (besides, words) in [(IN_TIME, vec![word]), (continues, vec![])] {
            assert_eq!(ending(&end(3 << 8), loss(), ReleaseOutcome::Success, besides).unwrap(), (Exit::Lost, words));
        }
    }

    #[test]
    fn a_time_limit_outranks_the_status_but_no_loss() {
        let limit = Duration::from_secs(5);
        let besides = Circumstances { max_run: Some(limit), ..IN_TIME };
        let outcome = JobOutcome::End { status: Some(libc::SIGTERM), cause: Cause::TimeLimit, at: second(20) };
        for (loss, release, exit, word) in [
            (None, ReleaseOutcome::Success, Exit::TooLong, LastWord::TimeLimit(limit)),
            (None, gone(), Exit::Lost, LastWord::LossAtRelease("it was revoked".to_owned())),
            (loss(), ReleaseOutcome::Success, Exit::Lost, LastWord::Loss { loss: loss().unwrap(), at: second(20) }),
        ] {
            assert_eq!(ending(&outcome, loss, release, besides).unwrap(), (exit, vec![word]));
        }
    }

    #[test]
    fn the_end_of_the_keeper_is_a_fault_unless_a_deadline_has_passed() {
        // The time of death decides, not that of the release.
        let overdue = |overdue| JobOutcome::KeeperFailure { overdue, at: second(19) };
        let word = LastWord::Loss { loss: loss().unwrap(), at: second(19) };
        assert_eq!(ending(&overdue(true), loss(), gone(), IN_TIME).unwrap(), (Exit::Lost, vec![word]));
        let fault = (Exit::Internal, vec![LastWord::KeeperFailure]);
        assert_eq!(ending(&overdue(false), None, ReleaseOutcome::Success, IN_TIME).unwrap(), fault);
        assert_eq!(ending(&overdue(false), loss(), ReleaseOutcome::Success, IN_TIME).unwrap(), fault);
        let (outlived, at) = (JobOutcome::KeeperFailure { overdue: false, at: second(31) }, second(31));
        let word = LastWord::Loss { loss: loss().unwrap(), at };
        assert_eq!(ending(&outlived, loss(), gone(), LATE).unwrap(), (Exit::Lost, vec![word]));
    }

    #[test]
    fn one_lost_lease_of_several_outranks_the_rest() {
        let of_all = |outcome: &JobOutcome, loss, releases: Vec<ReleaseOutcome>| {
            let leases = releases.into_iter().map(|release| (release, IN_TIME)).collect();
            ending_of_all(outcome, loss, leases).unwrap()
        };
        let success = || ReleaseOutcome::Success;
        let limit = Duration::from_secs(5);
        assert_eq!(of_all(&end(3 << 8), None, vec![success(), success()]), (Exit::Command(3), vec![]));
        let word = LastWord::LossAtRelease("it was revoked".to_owned());
        for (at, releases) in [(0, vec![gone(), success()]), (1, vec![success(), gone()])] {
            assert_eq!(of_all(&end(3 << 8), None, releases), (Exit::Lost, vec![(at, word.clone())]));
        }
        let loss = || loss().unwrap();
        let word = LastWord::Loss { loss: loss(), at: second(20) };
        let failure = ReleaseOutcome::Failure(String::new());
        assert_eq!(of_all(&end(0), Some((1, loss())), vec![failure, success()]), (Exit::Lost, vec![(1, word)]));
        // What is about the job is said once.
        let outcome = JobOutcome::KeeperFailure { overdue: false, at: second(19) };
        let (exit, words) = of_all(&outcome, None, vec![success(), success()]);
        assert_eq!((exit, words.len()), (Exit::Internal, 1));
        let leases = vec![success(), success()].into_iter();
        let besides = Circumstances { max_run: Some(limit), ..IN_TIME };
        let leases = leases.map(|release| (release, besides)).collect();
        let outcome = JobOutcome::End { status: Some(0), cause: Cause::TimeLimit, at: second(20) };
        let all = ending_of_all(&outcome, None, leases).unwrap();
        assert_eq!(all, (Exit::TooLong, vec![(0, LastWord::TimeLimit(limit))]));
    }

    #[test]
    fn a_command_that_cannot_be_started() {
        let start =
            |errno, signal| ending(&JobOutcome::StartFailure { errno, signal }, None, ReleaseOutcome::Success, IN_TIME);
        let word = LastWord::StartFailure;
        assert_eq!(start(Errno::ENOENT, None).unwrap(), (Exit::NotFound, vec![word(Errno::ENOENT)]));
        assert_eq!(start(Errno::EACCES, None).unwrap(), (Exit::CannotExecute, vec![word(Errno::EACCES)]));
        assert_eq!(start(Errno::ENOENT, Some(libc::SIGINT)).unwrap(), (Exit::Signal(libc::SIGINT), vec![]));
        assert!(matches!(start(Errno::EAGAIN, None), Err(Error::Shortage(_))));
        let too_late = |loss| ending(&JobOutcome::TooLate, loss, ReleaseOutcome::Success, IN_TIME);
        assert!(matches!(too_late(None), Err(Error::GrantedTooLate { .. })));
        assert!(matches!(too_late(loss()), Err(Error::LostBeforeStart { .. })));
    }
}
