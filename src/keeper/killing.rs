//! Killing a job, round by round, until the process that does it has no children left.

use crate::sys::clock::Boot;
use crate::sys::process::{Reaped, reap};
use crate::sys::tree::{self, Known};
use std::time::Duration;

/// The pause between rounds never grows, or a chain of processes that fork and exit would get away.
const PAUSE: Duration = Duration::from_millis(1);

/// How long a job that does not die is waited for in silence, and processes that may not be killed keep it from being called over.
const PATIENCE: Duration = Duration::from_secs(1);

/// A job that is being killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Killing {
    since: Boot,
    /// When to look for survivors.
    again_at: Boot,
    rounds: u64,
    /// Since when there has been no child that may be killed.
    stuck_since: Option<Boot>,
    told: bool,
}

/// What has come of it so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No process is left.
    Done,
    /// It goes on; this is when to look again, or sooner when a child has ended.
    GoesOn(Boot),
    /// It goes on, though these have been sent SIGKILL and are still there after a second. Said once.
    Unkillable(Vec<i32>),
    /// These are another user's, and all that is left; none are named where /proc does not tell them.
    OutOfReach(Vec<i32>),
}

impl Killing {
    pub(super) fn begin() -> Killing {
        let now = Boot::now();
        Killing { since: now, again_at: now, rounds: 0, stuck_since: None, told: false }
    }

    /// Takes in the children that have ended, and kills those that are left if it is time for that.
    pub(crate) fn step(&mut self) -> Progress {
        loop {
            match reap() {
                Reaped::One(..) => {}
                Reaped::Nobody => return self.round(Known::default()),
                Reaped::Childless => return Progress::Done,
            }
        }
    }

    /// Kills what is left, if it is time for that; there are children.
    pub(super) fn round(&mut self, known: Known) -> Progress {
        let start = Boot::now();
        if start < self.again_at {
            return Progress::GoesOn(self.again_at);
        }
        let killed = tree::kill_children(known, self.rounds == 0);
        self.rounds += 1;
        let now = Boot::now();
        // A short round is repeated soon, for the tree may be deep; a long one leaves the processor to those who die.
        self.again_at = now + if self.told { PAUSE } else { now.since(start).min(PAUSE) };
        if !killed.signalled.is_empty() {
            self.stuck_since = None;
            if !self.told && (self.since + PATIENCE).passed() {
                self.told = true;
                return Progress::Unkillable(killed.signalled);
            }
        } else if (*self.stuck_since.get_or_insert(now) + PATIENCE).passed() {
            return Progress::OutOfReach(killed.refused);
        }
        Progress::GoesOn(self.again_at)
    }

    /// When the next round is due.
    pub(super) fn again_at(&self) -> Boot {
        self.again_at
    }
}
