//! The messages between redlock and the keeper.

use crate::sys::clock::Boot;
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Stop the job by this deadline, unless a later order moves the deadline.
    Deadline(Deadline),
    /// Start the command with these variables, unless `not_after` has passed. A variable without a value is removed. A
    /// deadline must have come before this order.
    Start { environment: Vec<(String, Option<String>)>, not_after: Boot },
    /// A signal that redlock received. The keeper queues each kind once.
    Signal { signal: i32, to: Recipient },
    /// The lease is lost: ask the job to stop now, and send SIGKILL at `kill_at`. A large job may get SIGKILL sooner.
    Stop { kill_at: Boot },
}

/// The latest times of SIGTERM and SIGKILL for the job: a large job may get the signals sooner.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Deadline {
    pub(crate) term_at: Boot,
    pub(crate) kill_at: Boot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Recipient {
    Job,
    Command,
    /// The terminal has already sent the signal to the job; the keeper only starts the time of `--kill-after`.
    KeeperOnly,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    Start,
    /// The keeper failed to set itself up, or to prepare the process of the command; there is no job.
    SetUpFailure {
        errno: i32,
    },
    /// The command could not be executed; there is no job.
    StartFailure {
        errno: i32,
    },
    /// The order to start arrived too late; there is no job until another order arrives in time.
    TooLate,
    /// SIGTERM is due: no later deadline has come.
    Lapse,
    /// The keeper is killing the whole job. The report comes every few milliseconds, so silence after `kill_at` means
    /// that the keeper is frozen, or stuck in starting the command.
    Kill,
    /// These processes still exist a second after SIGKILL; the keeper waits for them.
    Survivors {
        pids: Vec<i32>,
    },
    /// The job ended at `at`; only processes that could not be killed may be left. `status` is the command's, as in
    /// wait(2); none if the command could not be killed.
    End {
        status: Option<i32>,
        cause: Cause,
        at: Boot,
        /// Processes that could not be killed.
        out_of_reach: Option<Vec<i32>>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    OwnEnd,
    TimeLimit,
    Loss,
}
