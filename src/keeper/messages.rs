//! What redlock and the keeper tell each other.

use crate::sys::clock::Boot;
use serde::{Deserialize, Serialize};

/// What the keeper is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// SIGTERM to the job at `term_at`, SIGKILL at `kill_at`, unless a later order moves them.
    Deadline { term_at: Boot, kill_at: Boot },
    /// Start the command with these variables besides, unless it is `not_after` already. Needs a deadline before it.
    Go { environment: Vec<(String, String)>, not_after: Boot },
    /// A signal that redlock was sent. One that already waits to be passed on is not queued twice.
    Signal { signal: i32, to: To },
    /// The lease is lost: SIGTERM to the job now, SIGKILL at `kill_at`.
    Stop { kill_at: Boot },
}

/// Whom a signal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum To {
    Job,
    Command,
    /// The terminal has sent it to the job itself; only `--kill-after` has to know.
    Nobody,
}

/// What the keeper tells.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    Started,
    /// The command could not be executed; there is no job.
    NotStarted {
        errno: i32,
    },
    /// The order to start came too late; there is no job.
    TooLate,
    /// The time for SIGTERM has come without a later deadline.
    Lapsed,
    /// All of the job is being killed. A keeper that has not said so by `kill_at` is stopped, or stuck in starting the command.
    Killing,
    /// SIGKILL was sent a second ago, and these are still there; the keeper goes on waiting for them.
    Unkillable {
        pids: Vec<i32>,
    },
    /// The job has ended at `at`, and the keeper with it. `status` is the command's, as wait(2) gives it; none if the
    /// command is out of reach.
    Ended {
        status: Option<i32>,
        cause: Cause,
        at: Boot,
        /// What could not be killed; an empty list where /proc does not tell the pids.
        out_of_reach: Option<Vec<i32>>,
    },
}

/// Why a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    Itself,
    TooLong,
    Lost,
}
