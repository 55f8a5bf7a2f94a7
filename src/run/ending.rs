//! Turns the end of a job into redlock's exit, and into an entry for the lock's log. No I/O.

use crate::exit::Exit;
use crate::keeper::Cause;
use crate::lock::{End, RunOutcome};
use crate::sys::clock::Boot;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The log keeps at most this many bytes, in JSON, of the end of a job's errors.
pub(super) const KEPT: usize = 1024;

/// The end of a job, which ended by itself or was stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobEnd {
    /// The exit of redlock, unless a lease was lost.
    pub(super) exit: Exit,
    /// When the last process ended. Processes that could not be killed do not count.
    pub(super) at: Boot,
}

impl JobEnd {
    /// `status`: the command's status, as in wait(2); None: the command could not be killed.
    pub(super) fn of(status: Option<i32>, cause: Cause, at: Boot) -> JobEnd {
        let status = status.map(ExitStatus::from_raw);
        let (code, signal) = (status.and_then(|status| status.code()), status.and_then(|status| status.signal()));
        let exit = match (cause, code, signal) {
            (Cause::TimeLimit, ..) => Exit::TOO_LONG,
            (_, Some(code), _) => Exit::Command(u8::try_from(code).unwrap_or(u8::MAX)),
            (_, None, Some(signal)) => Exit::Signal(signal),
            (_, None, None) => Exit::UNAVAILABLE,
        };
        JobEnd { exit, at }
    }

    /// True if the job ended in time, and its lease has run out since.
    pub(super) fn is_before(&self, valid_until: Boot) -> bool {
        self.at < valid_until && valid_until.passed()
    }
}

/// The end of a run for the log of its lock. The release sends it, so it cannot say how the release went.
pub(super) fn end_for_log(JobEnd { exit, at }: JobEnd, has_run_out: bool, errors: Option<&str>) -> End<'_> {
    let (outcome, code) = match exit {
        Exit::TOO_LONG => (RunOutcome::TooLong, None),
        Exit::Signal(signal) => (RunOutcome::Signaled, Some(signal.unsigned_abs())),
        // The command could not be killed, or the keeper ended without a report of the end.
        Exit::UNAVAILABLE => (RunOutcome::Released, None),
        exit => (RunOutcome::Exited, Some(exit.status().into())),
    };
    End { outcome: Some(outcome), code, at, has_run_out, errors }
}

/// The last lines that a job wrote to standard error, for the log: at most [`KEPT`] bytes in JSON. None if they are
/// blank. If the last line alone is longer than `KEPT`, its beginning is cut. `written`: all that the job wrote to
/// standard error, or the end of this output, which must be more than `KEPT`.
pub(super) fn last_lines(written: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(written);
    let mut room = KEPT;
    let fits = |(at, letter): (usize, char)| {
        room = room.checked_sub(length_in_json(letter))?;
        Some(at)
    };
    let (before, end) = text.split_at(text.char_indices().rev().map_while(fits).last()?);
    let is_whole = before.is_empty() || before.ends_with('\n');
    let behind_first = end.split_once('\n').map(|(_, lines)| lines).filter(|lines| !lines.is_empty() && !is_whole);
    Some(behind_first.unwrap_or(end).trim_end().to_owned()).filter(|lines| !lines.is_empty())
}

fn length_in_json(letter: char) -> usize {
    match letter {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        letter if letter < ' ' => 6,
        letter => letter.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::libc;

    #[test]
    fn a_job_ends_as_its_command_unless_it_ran_too_long() {
        let exit = |status, cause| JobEnd::of(status, cause, Boot::NEVER).exit;
        assert_eq!(exit(Some(3 << 8), Cause::OwnEnd), Exit::Command(3));
        assert_eq!(exit(Some(libc::SIGKILL), Cause::OwnEnd), Exit::Signal(libc::SIGKILL));
        assert_eq!(exit(Some(libc::SIGTERM), Cause::TimeLimit), Exit::TOO_LONG);
        assert_eq!(exit(None, Cause::OwnEnd), Exit::UNAVAILABLE);
    }

    #[test]
    fn the_log_is_told_how_the_command_ended() {
        for (exit, outcome, code) in [
            (Exit::Command(3), RunOutcome::Exited, Some(3)),
            (Exit::NOT_FOUND, RunOutcome::Exited, Some(127)),
            (Exit::CANNOT_EXECUTE, RunOutcome::Exited, Some(126)),
            (Exit::Signal(libc::SIGTERM), RunOutcome::Signaled, Some(15)),
            (Exit::UNAVAILABLE, RunOutcome::Released, None),
            (Exit::TOO_LONG, RunOutcome::TooLong, None),
        ] {
            let at = Boot::now();
            let end = End { outcome: Some(outcome), code, at, has_run_out: false, errors: None };
            assert_eq!(end_for_log(JobEnd { exit, at }, false, None), end, "{exit:?}");
        }
    }
}
