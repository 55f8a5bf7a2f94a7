//! A release that is sent again over new connections, to one node that may restart. Copies arrive late, other clients
//! take the lock in between, the lock may be kept after the job, and the log notes the end of the run.
//!
//! What must hold:
//!
//! * If a job had its lease until the job ended, the client reports no loss.
//! * If the lease was taken away, the client does not report that all is well, unless the node has forgotten the loss.
//! * After the release the lock is gone. A lock that is to be kept for some time stays no longer than this time after
//!   the job's end.
//! * If the release is confirmed, the node's log has the run exactly once, unless the node has forgotten the run.

use super::bits::{packed, variants};
use super::search::{Checked, Space, bounds, is_clean};

/// A function that gets each step that can come next.
type Also<'a> = &'a mut dyn FnMut(&dyn Fn(&mut State));

/// The ttl of the lease, in ticks.
const TTL: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// A copy of the release does not prolong a lease that is kept already.
    KeptOnce,
    /// Each copy of the release tells the rest of the time for which the lock is kept, not the whole time.
    RestOfKeep,
    /// If a repeated release finds no lease, the node looks into the log: an earlier copy may have ended the run.
    LooksIntoLog,
    /// If the lease is gone after a restart, the node has forgotten the lease: nobody took the lease away.
    AnotherRun,
    /// A lease counts as forgotten only if the log has forgotten the run too.
    Forgotten,
    /// Each copy, even the first, carries the whole run, since the node may have forgotten the run.
    CarriesRun,
    /// The node writes the run that a copy carries only if the log does not know the run.
    NotTwice,
}

bounds! {
    Bounds {
        /// How many ticks the lock is kept after the job.
        keep: u8 = 0,
        log: bool = true,
        restarts: u8 = 0,
        /// The node forgets everything when it restarts.
        forgets: bool = false,
        /// How many copies may arrive late.
        lates: u8 = 2,
        /// The lease may be taken away while the job runs.
        force: bool = true,
    }
}

variants! { Lock { Free, Ours, Others } }

variants! {
    /// What the log says of the run.
    Log { Nothing, Open, End, Revoked }
}

variants! {
    Phase {
        Runs,
        /// The job has ended, and the release is to be sent.
        Ended,
        /// The release is under way.
        Saying,
        /// The answers to the release are `Released`, `Gone`, `GoneOnAnotherRun`, `Other` and `GoneAfterEnd`.
        Released,
        Gone,
        GoneOnAnotherRun,
        Other,
        /// The lock is not ours any more, and the log knows the end.
        GoneAfterEnd,
        /// The client reports `Fine`, `Lost` or, if it cannot tell, `Unknown`.
        Fine,
        Lost,
        Unknown,
    }
}

packed! {
    State {
        lock: Lock = 2,
        left: u8 = 3,
        kept: bool = 1,
        run: u8 = 2,
        log: Log = 2,
        /// How often the end was written.
        told: u8 = 2,
        phase: Phase = 4,
        valid: u8 = 2,
        /// The value of `run` when the node last confirmed the lease.
        known_run: u8 = 2,
        /// The rest of the time for which the lock is to be kept.
        keep: u8 = 3,
        /// Copies of the release that may still arrive. The client no longer waits for their answers.
        late: [LateCopy; 2],
        said: u8 = 2,
        restarts: u8 = 2,
        lates: u8 = 2,
        /// The lease was taken away while the job ran.
        forced: bool = 1,
        /// The node has forgotten that the lease was taken away, or that the node confirmed the run's end.
        forgot: bool = 1,
        /// The node had forgotten the lease, and had granted the lock to another client, perhaps while the job ran.
        overlapped: bool = 1,
    }
}

packed! {
    LateCopy {
        there: bool = 1,
        keep: u8 = 3,
        repeated: bool = 1,
    }
}

impl Bounds {
    /// The node runs release.lua, and answers. `keep`: the number of ticks for which the lock is kept. `repeated`: the
    /// request was sent before.
    fn release(&self, state: &mut State, keep: u8, repeated: bool) -> Phase {
        if state.lock == Lock::Ours {
            if state.log == Log::Open {
                state.log = Log::End;
                state.told += 1;
            }
            if keep == 0 {
                (state.lock, state.left, state.kept) = (Lock::Free, 0, false);
            } else if !state.kept || keep < state.left || self.is(Without::KeptOnce) {
                state.left = keep;
                state.kept = true;
            }
            return Phase::Released;
        }
        let knows_end = state.log == Log::End;
        let another_run = state.run != state.known_run;
        let forgot = another_run && state.log == Log::Nothing;
        let unknown = state.log == Log::Nothing || self.is(Without::NotTwice);
        if self.log && another_run && unknown && state.lock == Lock::Free && !self.is(Without::CarriesRun) {
            state.log = Log::End;
            state.told += 1;
        }
        state.overlapped |= forgot && state.lock == Lock::Others;
        match state.lock {
            _ if repeated && knows_end && !self.is(Without::LooksIntoLog) => Phase::GoneAfterEnd,
            Lock::Free if (forgot || another_run && self.is(Without::Forgotten)) && !self.is(Without::AnotherRun) => {
                Phase::GoneOnAnotherRun
            }
            Lock::Free => Phase::Gone,
            _ => Phase::Other,
        }
    }

    fn check(&self, state: &State) -> Checked {
        match state.phase {
            Phase::Lost if !state.forced && !state.overlapped => Err(FALSE_LOSS),
            Phase::Fine if state.forced && !state.forgot => Err("a loss is not told"),
            Phase::Fine if state.lock == Lock::Ours && !state.kept => Err("a lock is left behind"),
            Phase::Fine if state.lock == Lock::Ours && state.left > state.keep => Err(KEPT_TOO_LONG),
            Phase::Fine if self.log && state.log != Log::End && !state.forgot => Err("a run is not known"),
            _ if state.told > 1 => Err("a run is written twice"),
            _ => Ok(()),
        }
    }

    fn tick(state: &mut State) {
        state.left = state.left.saturating_sub(1);
        if state.left == 0 {
            (state.lock, state.kept) = (Lock::Free, false);
        }
        state.valid = state.valid.saturating_sub(1);
        if state.phase != Phase::Runs {
            state.keep = state.keep.saturating_sub(1);
        }
        if state.valid == 0 && state.phase == Phase::Ended {
            state.phase = Phase::Unknown;
        }
    }

    fn restart(&self, state: &mut State) {
        state.restarts -= 1;
        state.run += 1;
        // The requests under way are lost with their connections.
        state.late = [LateCopy::default(); 2];
        if state.phase == Phase::Saying {
            state.phase = Phase::Ended;
        }
        if self.forgets {
            (state.lock, state.left, state.kept) = (Lock::Free, 0, false);
            (state.log, state.told) = (Log::Nothing, 0);
            // True if there is something to forget: the lease was taken away, or the node has confirmed the run's end.
            state.forgot = state.forced || !matches!(state.phase, Phase::Runs | Phase::Ended);
        }
    }

    /// All steps of the client and of its requests. While the job runs, `--force` may take the lease away.
    fn steps(&self, state: &State, also: Also<'_>) {
        match state.phase {
            Phase::Runs => {
                if state.lock == Lock::Ours {
                    also(&|next| {
                        (next.left, next.valid, next.known_run) = (TTL, TTL, next.run);
                    });
                    if self.force {
                        also(&|next| {
                            (next.lock, next.left, next.forced) = (Lock::Free, 0, true);
                            next.log = if self.log { Log::Revoked } else { Log::Nothing };
                        });
                    }
                }
                if state.valid > 0 {
                    also(&|next| next.phase = Phase::Ended);
                }
            }
            Phase::Ended => also(&|next| {
                next.phase = Phase::Saying;
                next.said = (next.said + 1).min(2);
            }),
            Phase::Saying => {
                let keep = if self.is(Without::RestOfKeep) { self.keep } else { state.keep };
                let repeated = state.said > 1;
                also(&|next| next.phase = self.release(next, keep, repeated));
                // If no answer arrives, then the answer was lost, or the release was lost, or the release arrives late.
                also(&|next| {
                    self.release(next, keep, repeated);
                    next.phase = Phase::Ended;
                });
                also(&|next| next.phase = Phase::Ended);
                if let Some(at) = state.late.iter().position(|copy| !copy.there).filter(|_| state.lates > 0) {
                    also(&|next| {
                        next.late[at] = LateCopy { there: true, keep, repeated };
                        next.lates -= 1;
                        next.phase = Phase::Ended;
                    });
                }
            }
            Phase::Released | Phase::GoneOnAnotherRun | Phase::GoneAfterEnd => also(&|next| next.phase = Phase::Fine),
            Phase::Gone | Phase::Other => {
                let may_be_own = !self.log && state.said > 1;
                also(&|next| next.phase = if may_be_own { Phase::Unknown } else { Phase::Lost });
            }
            Phase::Fine | Phase::Lost | Phase::Unknown => {}
        }
        for at in 0..state.late.len() {
            if state.late[at].there {
                also(&|next| {
                    let copy = std::mem::take(&mut next.late[at]);
                    self.release(next, copy.keep, copy.repeated);
                });
            }
        }
    }

    /// All steps of other clients, of the node, and of time.
    fn happens(&self, state: &State, also: Also<'_>) {
        match state.lock {
            Lock::Free => also(&|next| (next.lock, next.left) = (Lock::Others, TTL)),
            Lock::Others => also(&|next| (next.lock, next.left) = (Lock::Free, 0)),
            Lock::Ours => {}
        }
        if state.restarts > 0 {
            also(&|next| self.restart(next));
        }
        // No tick passes during a request: the client gives up a request that takes a whole tick.
        if matches!(state.phase, Phase::Runs | Phase::Ended | Phase::Fine | Phase::Lost | Phase::Unknown)
            && (state.phase != Phase::Runs || state.valid > 0)
        {
            also(&Self::tick);
        }
    }
}

impl Space for Bounds {
    type State = State;

    fn starts(&self) -> Vec<State> {
        let &Bounds { keep, restarts, lates, .. } = self;
        let log = if self.log { Log::Open } else { Log::Nothing };
        let start =
            State { lock: Lock::Ours, left: TTL, run: 0, log, valid: TTL, keep, restarts, lates, ..State::default() };
        vec![start]
    }

    fn next(&self, state: &State, into: &mut Vec<Checked<State>>) {
        let mut also = |change: &dyn Fn(&mut State)| {
            let mut next = *state;
            change(&mut next);
            into.push(self.check(&next).map(|()| next));
        };
        self.steps(state, &mut also);
        self.happens(state, &mut also);
    }
}

const SAID: Bounds = Bounds::LEAST;
const KEPT: Bounds = Bounds { keep: 2, ..SAID };
const RESTARTS: Bounds = Bounds { restarts: 2, lates: 1, ..SAID };
const FORGETS: Bounds = Bounds { forgets: true, ..RESTARTS };
const UNLOGGED: Bounds = Bounds { log: false, ..SAID };
const KEPT_AND_FORGOTTEN: Bounds = Bounds { keep: 2, ..FORGETS };

const FALSE_LOSS: &str = "a job is told of a loss that was none";
const KEPT_TOO_LONG: &str = "a lock is kept for too long";

#[test]
fn a_release_that_is_said_again_is_as_good_as_one() {
    for bounds in [SAID, KEPT, RESTARTS, FORGETS, UNLOGGED, KEPT_AND_FORGOTTEN] {
        is_clean(&bounds);
    }
}

#[test]
fn a_lock_that_is_kept_stays_no_longer_than_was_said_first() {
    without(Without::KeptOnce, KEPT, KEPT_TOO_LONG, 8);
    without(Without::RestOfKeep, KEPT, KEPT_TOO_LONG, 5);
}

#[test]
fn what_an_earlier_copy_has_released_is_no_loss() {
    without(Without::LooksIntoLog, SAID, FALSE_LOSS, 6);
}

#[test]
fn a_node_that_has_forgotten_the_run_is_told_it_once_and_one_that_knows_its_end_is_believed() {
    without(Without::AnotherRun, FORGETS, FALSE_LOSS, 5);
    without(Without::CarriesRun, FORGETS, "a run is not known", 5);
    without(Without::NotTwice, RESTARTS, "a run is written twice", 6);
    without(Without::Forgotten, RESTARTS, "a loss is not told", 6);
}
