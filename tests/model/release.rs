//! A client sends a release to one node until an answer arrives: each *copy* of the release over a new connection.
//! Copies may be lost, or arrive late. The node may restart. Other clients may take the lock between two copies. The
//! lock may be kept for some time after the job. The node's *log* notes the end of the job's run.
//!
//! What must hold:
//!
//! * If a job had its lease until the job ended, the client reports no loss.
//! * If `--force` took the lease away, the client does not report that all is well, unless the node has forgotten the
//!   loss.
//! * When the client reports that all is well, the lease is gone. If the lock is to be kept for some time, the lease
//!   lasts at most for this time after the job's end.
//! * When the client reports that all is well, the node's log has the run, unless the node has forgotten the run. The
//!   log never has the run twice.

use super::bits::{packed, variants};
use super::search::{Checked, Space, bounds, is_clean};

/// A function that is called once for each possible next step. The step is a function, too: it changes the state.
type Also<'a> = &'a mut dyn FnMut(&dyn Fn(&mut State));

/// The ttl of the lease, in ticks.
const TTL: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// If an earlier copy of the release has set how long the lock is kept, no later copy prolongs this time.
    KeptOnce,
    /// If the lock is to be kept for some time after the job, each copy of the release asks only for the rest of this
    /// time.
    RestOfKeep,
    /// If a repeated copy of the release finds no lease, the node looks into the log: an earlier copy may have ended
    /// the run.
    LooksIntoLog,
    /// If the lease is gone, and the node has restarted since the node last confirmed the lease, the client reports no
    /// loss.
    AnotherRun,
    /// If the lease is gone after a restart, but the node's log knows the run, the client reports a loss.
    Forgotten,
    /// Each copy of the release contains the whole run. A node that has forgotten the run writes it into the log again.
    CarriesRun,
    /// The node writes the run from a copy of the release into the log only if the log does not know the run.
    NotTwice,
}

bounds! {
    Bounds {
        /// For how many ticks the lock is to be kept after the job. 0: the release frees the lock.
        keep: u8 = 0,
        log: bool = true,
        restarts: u8 = 0,
        /// True: a node that restarts forgets everything. False: the node keeps its data.
        forgets: bool = false,
        /// How many copies of the release may arrive late.
        lates: u8 = 2,
        /// True: `--force` may take the lease away while the job runs.
        force: bool = true,
    }
}

variants! { Lock { Free, Ours, Others } }

variants! {
    /// What the node's log says of the job's run.
    Log { Nothing, Open, End, Revoked }
}

variants! {
    Phase {
        Runs,
        /// The job has ended, and the client is about to send a copy of the release.
        Ended,
        /// A copy of the release is under way, and the client waits for the answer.
        Saying,
        /// The node has answered that the lease is released. `Released` to `GoneAfterEnd` are answers.
        Released,
        Gone,
        GoneOnAnotherRun,
        Other,
        /// The node has answered: the lease is gone, and the log has the end of the run.
        GoneAfterEnd,
        /// The client reports that all is well. The reports are `Fine`, `Lost` (the lease was lost) and `Unknown` (the
        /// client cannot tell).
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
        /// How often the end of the run stands in the node's log.
        told: u8 = 2,
        phase: Phase = 4,
        valid: u8 = 2,
        /// The value of `run` (the node's run_id) when the node last confirmed the lease.
        known_run: u8 = 2,
        /// For how many more ticks the lock is to be kept. The client counts the ticks from the job's end.
        keep: u8 = 3,
        /// Copies of the release that may still reach the node. The client no longer waits for answers to these copies.
        late: [LateCopy; 2],
        said: u8 = 2,
        restarts: u8 = 2,
        lates: u8 = 2,
        /// `--force` took the lease away while the job ran.
        forced: bool = 1,
        /// The node has forgotten that `--force` took the lease away, or that the node confirmed the end of the run.
        forgot: bool = 1,
        /// The node forgot the lease, and granted the lock to another client, perhaps while the job still ran. So it is
        /// no fault if the client reports a loss.
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
    /// The node runs release.lua for one copy of the release, and answers. `keep`: for how many more ticks the lock is
    /// to be kept. `repeated`: true for all copies after the first copy.
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
        // The restart cuts all connections: the copies of the release that are under way are lost.
        state.late = [LateCopy::default(); 2];
        if state.phase == Phase::Saying {
            state.phase = Phase::Ended;
        }
        if self.forgets {
            (state.lock, state.left, state.kept) = (Lock::Free, 0, false);
            (state.log, state.told) = (Log::Nothing, 0);
            // Forgetting matters in two cases: the lease was taken away, or the client has heard an answer. In the
            // phases `Runs` and `Ended` the client has heard no answer.
            state.forgot = state.forced || !matches!(state.phase, Phase::Runs | Phase::Ended);
        }
    }

    /// All steps of the client, of the node that takes up copies of the release, and of `--force`.
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
                // The next three steps are the reasons why no answer arrives. The answer is lost, or the copy of the
                // release is lost, or the copy arrives late.
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

    /// All steps in which another client takes or gives back the lock, the node restarts, or a tick passes.
    fn happens(&self, state: &State, also: Also<'_>) {
        match state.lock {
            Lock::Free => also(&|next| (next.lock, next.left) = (Lock::Others, TTL)),
            Lock::Others => also(&|next| (next.lock, next.left) = (Lock::Free, 0)),
            Lock::Ours => {}
        }
        if state.restarts > 0 {
            also(&|next| self.restart(next));
        }
        // No tick passes while the client waits for an answer: the client gives up a request that takes a whole tick.
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
