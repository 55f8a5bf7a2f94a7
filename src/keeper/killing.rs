//! Kills a job in rounds of SIGKILL, until no process of the job is left.

use crate::sys::clock::Boot;
use crate::sys::process::{Handle, Reap, reap};
use crate::sys::tree::{self, Root};
use nix::libc;
use std::time::Duration;

/// The longest pause between rounds: in a longer pause, a chain of processes that fork and exit would escape.
const PAUSE: Duration = Duration::from_millis(1);

/// After this time, survivors of SIGKILL are reported. The rounds end if this user could kill none of the remaining
/// children during this time.
const PATIENCE: Duration = Duration::from_secs(1);

/// Rounds 4, 8, 16, 32 and so on kill the children, and everything below the children.
const DEEP: u32 = 4;

/// A round gives a sign of life for every 64 processes that it finds or kills below the children: about 3 ms of work.
const SIGN_OF_LIFE: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KillLoop {
    since: Boot,
    again_at: Boot,
    rounds: u32,
    /// Since this time, this user may kill none of the remaining children. None while a child can be killed.
    stuck_since: Option<Boot>,
    reported: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Complete,
    /// The next round is due at this time.
    Wait(Boot),
    /// These processes still exist a second after the first SIGKILL; the rounds go on. Only one round returns this.
    Survivors(Vec<i32>),
    /// Only these processes of another user are left; the rounds are over.
    OutOfReach(Vec<i32>),
}

impl KillLoop {
    pub(super) fn begin() -> KillLoop {
        let now = Boot::now();
        KillLoop { since: now, again_at: now, rounds: 0, stuck_since: None, reported: false }
    }

    /// Runs a round if it is due. To be called only while children other than `spared` may be left. Calls `alive` when
    /// the round begins, and for every 64 processes that the round finds or kills below the children.
    pub(super) fn round(&mut self, root: Root, spared: &[Handle], alive: &mut dyn FnMut()) -> Progress {
        let start = Boot::now();
        if start < self.again_at {
            return Progress::Wait(self.again_at);
        }
        alive();
        let killed = tree::kill_children(root, self.rounds == 0, spared);
        self.rounds += 1;
        // Without this call, a deep tree would die level by level. The first three rounds leave it out, because a large
        // flat job dies in these rounds, and its dying processes need the processor. If children are spared, every
        // round leaves it out, because it would kill their descendants, which do not belong to the job.
        if self.rounds >= DEEP && self.rounds.is_power_of_two() && spared.is_empty() {
            tree::kill_below(&mut |count| {
                if count % SIGN_OF_LIFE == 0 {
                    alive()
                }
            });
        }
        let now = Boot::now();
        // After a short round the next round comes soon, because the tree may be deep. After a long round the pause
        // leaves the processor to the dying processes.
        self.again_at = now + if self.reported { PAUSE } else { now.since(start).min(PAUSE) };
        if !killed.signalled.is_empty() {
            self.stuck_since = None;
            if !self.reported && (self.since + PATIENCE).passed() {
                self.reported = true;
                return Progress::Survivors(killed.signalled);
            }
        } else if !killed.refused.is_empty() && (*self.stuck_since.get_or_insert(now) + PATIENCE).passed() {
            return Progress::OutOfReach(killed.refused);
        }
        Progress::Wait(self.again_at)
    }

    pub(super) fn again_at(&self) -> Boot {
        self.again_at
    }
}

/// The keeper's parent, which kills the job in the keeper's place.
#[derive(Debug)]
pub(crate) struct Takeover<'a> {
    keeper: &'a Handle,
    /// Children of this process that do not belong to the job.
    strangers: &'a [Handle],
    killing: KillLoop,
}

impl<'a> Takeover<'a> {
    pub(super) fn begin(keeper: &'a Handle, strangers: &'a [Handle]) -> Takeover<'a> {
        let _ = keeper.signal(libc::SIGKILL);
        Takeover { keeper, strangers, killing: KillLoop::begin() }
    }

    /// Reaps the children that have ended, and runs the next round if the job still lives and the round is due.
    pub(crate) fn step(&mut self) -> Progress {
        loop {
            match reap() {
                Reap::Child(..) => {}
                Reap::NoneEnded if !self.is_over() => {
                    return self.killing.round(Root::default(), self.strangers, &mut || {});
                }
                Reap::NoneEnded | Reap::NoChildren => return Progress::Complete,
            }
        }
    }

    /// True once the keeper is dead, and every child of this process is a stranger or the dead keeper. (The dead keeper
    /// remains a child while a tracer delays the reaping.)
    fn is_over(&self) -> bool {
        let is_other = |child: &i32| self.strangers.iter().chain([self.keeper]).any(|other| other.is(*child));
        let has_ended = self.keeper.has_ended();
        // The keeper's children get their new parent before the keeper counts as dead.
        has_ended && tree::children().is_some_and(|children| children.iter().all(is_other))
    }
}
