//! Killing a job in rounds, until the killing process has no children left.

use crate::sys::clock::Boot;
use crate::sys::process::{Handle, Reap, reap};
use crate::sys::tree::{self, PidSearch, Root};
use nix::libc;
use std::collections::HashSet;
use std::time::Duration;

/// The longest pause between rounds. With longer ones a chain of processes that fork and exit would escape.
const PAUSE: Duration = Duration::from_millis(1);

/// The time before survivors of SIGKILL are reported, or processes that this user may not kill are given up.
const PATIENCE: Duration = Duration::from_secs(1);

/// The number of the first round that kills everything below new children, however much that is. Most large flat jobs are
/// dying by then.
const DEEP: u64 = 3;

/// The number of processes that earlier rounds look at: a small job is killed at once, not level by level.
const FEW: usize = 64;

/// The time after which the search goes below children that SIGKILL has not ended.
const OVERDUE: Duration = Duration::from_millis(20);

/// The state of killing a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KillLoop {
    since: Boot,
    /// The time of the next round.
    again_at: Boot,
    rounds: u64,
    /// The children of the last round. Their own children come to this process when they die.
    dying: HashSet<i32>,
    /// The time of the search below the dying ones.
    deep_at: Boot,
    /// The time since which every child is one that this user may not kill.
    stuck_since: Option<Boot>,
    told: bool,
    search: PidSearch,
}

/// The result of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No process of the job is left.
    Complete,
    /// The next round is due then, or when a child ends.
    Wait(Boot),
    /// These processes are still there a second after SIGKILL; the rounds go on. Returned once.
    Survivors(Vec<i32>),
    /// Only these processes of another user are left; the rounds are over.
    OutOfReach(Vec<i32>),
}

impl KillLoop {
    pub(super) fn begin() -> KillLoop {
        let now = Boot::now();
        KillLoop {
            since: now,
            again_at: now,
            rounds: 0,
            dying: HashSet::new(),
            deep_at: now + OVERDUE,
            stuck_since: None,
            told: false,
            search: PidSearch::unknown(),
        }
    }

    /// Runs a round if it is due. There must be children apart from the spared ones. Calls `alive` at least every few
    /// milliseconds.
    pub(super) fn round(&mut self, root: Root, spared: &[Handle], alive: &mut dyn FnMut()) -> Progress {
        let start = Boot::now();
        if start < self.again_at {
            return Progress::Wait(self.again_at);
        }
        let killed = tree::kill_children(root, self.rounds == 0, spared, &mut self.search, alive);
        self.rounds += 1;
        let children = killed.signalled.iter().chain(&killed.refused).copied();
        if self.rounds >= DEEP && start >= self.deep_at {
            let before = Boot::now();
            tree::kill_below(children.collect(), usize::MAX, alive);
            // Most of the processor time belongs to the dying processes.
            self.deep_at = Boot::now() + before.elapsed() * 4;
        } else {
            let new = children.filter(|child| !self.dying.contains(child)).collect();
            tree::kill_below(new, if self.rounds < DEEP { FEW } else { usize::MAX }, alive);
        }
        self.dying = killed.signalled.iter().copied().collect();
        alive();
        let now = Boot::now();
        // A short round is repeated soon, since the tree may be deep; a long one leaves the processor to the dying processes.
        self.again_at = now + if self.told { PAUSE } else { now.since(start).min(PAUSE) };
        if !killed.signalled.is_empty() {
            self.stuck_since = None;
            if !self.told && (self.since + PATIENCE).passed() {
                self.told = true;
                return Progress::Survivors(killed.signalled);
            }
        } else if (*self.stuck_since.get_or_insert(now) + PATIENCE).passed() {
            return Progress::OutOfReach(killed.refused);
        }
        Progress::Wait(self.again_at)
    }

    /// The time of the next round.
    pub(super) fn again_at(&self) -> Boot {
        self.again_at
    }
}

/// The keeper's parent killing the job in the keeper's place.
#[derive(Debug)]
pub(crate) struct Takeover<'a> {
    keeper: &'a Handle,
    /// Children of this process that do not belong to the job.
    spared: &'a [Handle],
    killing: KillLoop,
}

impl<'a> Takeover<'a> {
    pub(super) fn begin(keeper: &'a Handle, spared: &'a [Handle]) -> Takeover<'a> {
        let _ = keeper.signal(libc::SIGKILL);
        Takeover { keeper, spared, killing: KillLoop::begin() }
    }

    /// Reaps the children that have ended, and runs a round if it is due.
    pub(crate) fn step(&mut self) -> Progress {
        loop {
            match reap() {
                Reap::Child(..) => {}
                Reap::NoneEnded if self.is_over() => return Progress::Complete,
                Reap::NoneEnded => return self.killing.round(Root::default(), self.spared, &mut || {}),
                Reap::NoChildren => return Progress::Complete,
            }
        }
    }

    /// True when the only children are the spared ones and the keeper's corpse, which a tracer may hold.
    fn is_over(&self) -> bool {
        // This check comes before the children are listed: the keeper's children change parents before the keeper counts as
        // dead.
        let corpse = Some(self.keeper).filter(|keeper| keeper.has_ended() && keeper.is_there()).map(Handle::pid);
        (corpse.is_some() || !self.spared.is_empty())
            && tree::children(self.spared).into_iter().all(|child| Some(child) == corpse)
    }
}
