//! A client sends a release to one node until an answer arrives: each *copy* of the release over a new connection.
//! Copies may be lost, or arrive late. The node may restart. Other clients may take the lock between two copies. The
//! grant has written the *text* of the run into the node's history; the release adds the run's end.
//!
//! What must hold:
//!
//! * If a job had its lease until the job ended, the client reports no loss.
//! * If `--force` or DEL took the lease away, the client does not report that all is well, unless the node has forgotten
//!   the loss. (A limit: the node has restarted with its data, but its history had no room for the text.)
//! * When the client reports that all is well, the lease has ended, and the history has the run, unless the node has
//!   forgotten it or had no room for it. The node counts the run once, except if the text was cut before the client
//!   reported a loss.
//! * The first end of a run that is reported stays, in whatever order the reports arrive.
//! * If nothing ran under the lease, no text is left.

use super::bits::{packed, variants};
use super::search::{Checked, Space, bounds, goes_wrong, is_clean};

/// Is called once for each possible next step, with a function that changes the state.
type Also<'a> = &'a mut dyn FnMut(&dyn Fn(&mut State));

/// In ticks.
const TTL: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// If a repeated copy finds no lease, but the end of the run, an earlier copy has ended the lease.
    AsksForText,
    /// If a repeated copy finds no lease, and no text on a node that has not restarted, the client cannot tell what has
    /// happened.
    CannotTell,
    /// If the text has no end, the lease was lost, even if the copy is repeated.
    TextWithoutEnd,
    /// If the node has restarted since it last confirmed the lease, and has no text, the client reports no loss.
    AnotherRun,
    /// If the node has restarted, but has the text, it has forgotten nothing.
    HasText,
    /// Each copy contains the whole run, which a node that has forgotten it adds.
    CarriesRun,
    /// A node that has not restarted adds no run without a lease, because its history was full.
    OnlyForgotten,
    /// An end is added to a text that has none. An end that exists stays.
    FirstStays,
    /// If nothing ran under the lease, the release deletes the text, even if the lease is lost.
    DeletesText,
}

bounds! {
    Bounds {
        /// False with `--log 0`.
        log: bool = true,
        /// Later runs may take the text's place in the history.
        cut: bool = false,
        restarts: u8 = 0,
        /// A node that restarts forgets everything. Otherwise it keeps its data.
        forgets: bool = false,
        /// How many copies of the release may arrive late.
        lates: u8 = 2,
        /// `--force` or DEL may take the lease away while the job runs.
        force: bool = true,
        /// Nothing runs under the lease.
        unused: bool = false,
    }
}

variants! { Lock { Free, Ours, Others } }

variants! {
    /// The text of the run in the node's history.
    Text { Nothing, Open, Ended, Revoked, Lost }
}

variants! {
    Phase {
        Runs,
        /// The job has ended, and the client is about to send a copy of the release.
        Ended,
        /// A copy of the release is under way, and the client waits for the answer.
        Saying,
        /// What the client reports: all is well (`Fine`), the lease was lost (`Lost`), or it cannot tell (`Unknown`).
        Fine,
        Lost,
        Unknown,
        /// The client has reported the loss to the node.
        Reported,
    }
}

packed! {
    State {
        lock: Lock = 2,
        left: u8 = 2,
        run: u8 = 2,
        text: Text = 3,
        /// The first end that the text has had.
        first: Text = 3,
        /// How often the node has counted the run.
        counted: u8 = 2,
        phase: Phase = 3,
        valid: u8 = 2,
        /// The value of `run` (the node's run_id) when the node last confirmed the lease.
        known_run: u8 = 2,
        /// How many copies of the release may still reach the node, though the client no longer awaits an answer.
        late: u8 = 2,
        said: u8 = 2,
        restarts: u8 = 2,
        lates: u8 = 2,
        /// `--force` or DEL took the lease away while the job ran.
        forced: bool = 1,
        /// The node has forgotten that the lease was taken away, or that it confirmed the end of the run.
        forgot: bool = 1,
        /// Later runs have taken the place of the text in the history.
        cut: bool = 1,
        /// The node forgot the lease, and granted the lock to another client, perhaps while the job still ran. So it is
        /// no fault if the client reports a loss.
        overlapped: bool = 1,
    }
}

impl Bounds {
    fn end(&self, state: &mut State, end: Text) {
        if self.log && (matches!(state.text, Text::Nothing | Text::Open) || self.is(Without::FirstStays)) {
            (state.text, state.counted) = (end, state.counted + 1);
            state.first = if state.first == Text::Nothing { end } else { state.first };
        }
    }

    fn ended(&self, state: &mut State) {
        match self.unused {
            true => (state.text, state.first) = (Text::Nothing, Text::Nothing),
            false => self.end(state, Text::Ended),
        }
    }

    /// The node runs release.lua for one copy of the release. Returns what the client concludes from the answer.
    /// `repeated`: this is not the first copy.
    fn release(&self, state: &mut State, repeated: bool) -> Phase {
        if state.lock == Lock::Ours {
            (state.lock, state.left) = (Lock::Free, 0);
            self.ended(state);
            return Phase::Fine;
        }
        let (text, is_free) = (state.text, state.lock == Lock::Free);
        let another_run = state.run != state.known_run;
        let forgot = another_run && text == Text::Nothing;
        state.overlapped |= forgot && !is_free;
        let may_add = is_free && (another_run || self.is(Without::OnlyForgotten)) && !self.is(Without::CarriesRun);
        if self.unused && !self.is(Without::DeletesText) || text == Text::Nothing && may_add {
            self.ended(state);
        }
        let ended = text == Text::Ended && !self.is(Without::AsksForText)
            || text == Text::Open && self.is(Without::TextWithoutEnd);
        match text {
            _ if repeated && ended => Phase::Fine,
            _ if is_free && forgot && !self.is(Without::AnotherRun) => Phase::Fine,
            _ if is_free && another_run && self.is(Without::HasText) => Phase::Fine,
            Text::Nothing if repeated && !self.is(Without::CannotTell) => Phase::Unknown,
            _ => Phase::Lost,
        }
    }

    fn check(&self, state: &State) -> Checked {
        let is_known = !self.log || state.text == Text::Ended || state.forgot || state.cut;
        match state.phase {
            Phase::Fine | Phase::Lost if self.unused => match state.text {
                Text::Open | Text::Ended => Err(LEFT),
                _ => Ok(()),
            },
            Phase::Lost if !state.forced && !state.overlapped => Err(FALSE_LOSS),
            Phase::Fine if state.forced && !state.forgot => Err(UNREPORTED),
            Phase::Fine if state.lock == Lock::Ours => Err("a lock is left behind"),
            Phase::Fine if !is_known => Err("a run is not known"),
            _ if !matches!(state.text, Text::Nothing | Text::Open) && state.text != state.first => Err(REPLACED),
            _ if state.counted > 1 && !(state.cut && state.phase == Phase::Reported) => Err(TWICE),
            _ => Ok(()),
        }
    }

    fn tick(state: &mut State) {
        state.left = state.left.saturating_sub(1);
        if state.left == 0 {
            state.lock = Lock::Free;
        }
        state.valid = state.valid.saturating_sub(1);
        if state.valid == 0 && state.phase == Phase::Ended {
            state.phase = Phase::Unknown;
        }
    }

    fn restart(&self, state: &mut State) {
        state.restarts -= 1;
        state.run += 1;
        // The restart cuts all connections, so the copies of the release that are under way are lost.
        state.late = 0;
        if state.phase == Phase::Saying {
            state.phase = Phase::Ended;
        }
        if self.forgets {
            (state.lock, state.left, state.counted) = (Lock::Free, 0, 0);
            (state.text, state.first) = (Text::Nothing, Text::Nothing);
            // Forgetting matters in two cases: the lease was taken away, or the client has heard an answer, which it
            // has not in the phases `Runs` and `Ended`.
            state.forgot = state.forced || !matches!(state.phase, Phase::Runs | Phase::Ended);
        }
    }

    /// The steps of the client, of the node that takes up copies of the release, of `--force` and of DEL.
    fn steps(&self, state: &State, also: Also<'_>) {
        let repeated = state.said > 1;
        match state.phase {
            Phase::Runs => {
                if state.lock == Lock::Ours {
                    also(&|next| {
                        (next.left, next.valid, next.known_run) = (TTL, TTL, next.run);
                    });
                    for by_force in [true, false].into_iter().filter(|_| self.force) {
                        also(&|next| {
                            (next.lock, next.left, next.forced) = (Lock::Free, 0, true);
                            if by_force && next.text == Text::Open {
                                self.end(next, Text::Revoked);
                            }
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
                also(&|next| next.phase = self.release(next, repeated));
                // The next three steps are why no answer arrives: the answer is lost, or the copy of the release is
                // lost or late.
                also(&|next| {
                    self.release(next, repeated);
                    next.phase = Phase::Ended;
                });
                also(&|next| next.phase = Phase::Ended);
                if state.lates > 0 {
                    also(&|next| {
                        next.late += 1;
                        next.lates -= 1;
                        next.phase = Phase::Ended;
                    });
                }
            }
            Phase::Lost if !self.unused => also(&|next| {
                self.end(next, Text::Lost);
                next.phase = Phase::Reported;
            }),
            Phase::Fine | Phase::Lost | Phase::Unknown | Phase::Reported => {}
        }
        if state.late > 0 {
            also(&|next| {
                next.late -= 1;
                self.release(next, true);
            });
        }
    }

    /// The steps in which another client takes or releases the lock, the node restarts, or a tick passes.
    fn happens(&self, state: &State, also: Also<'_>) {
        match state.lock {
            Lock::Free => also(&|next| (next.lock, next.left) = (Lock::Others, TTL)),
            Lock::Others => also(&|next| (next.lock, next.left) = (Lock::Free, 0)),
            Lock::Ours => {}
        }
        if state.restarts > 0 {
            also(&|next| self.restart(next));
        }
        if self.cut && state.text != Text::Nothing {
            also(&|next| (next.text, next.first, next.cut) = (Text::Nothing, Text::Nothing, true));
        }
        // No tick passes while the client waits for an answer, because it gives up a request that takes a whole tick.
        if state.phase != Phase::Saying && (state.phase != Phase::Runs || state.valid > 0) {
            also(&Self::tick);
        }
    }
}

impl Space for Bounds {
    type State = State;

    fn starts(&self) -> Vec<State> {
        let &Bounds { restarts, lates, .. } = self;
        let text = if self.log { Text::Open } else { Text::Nothing };
        vec![State { lock: Lock::Ours, left: TTL, text, valid: TTL, restarts, lates, ..State::default() }]
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
const RESTARTS: Bounds = Bounds { restarts: 2, lates: 1, ..SAID };
const FORGETS: Bounds = Bounds { forgets: true, ..RESTARTS };
const UNLOGGED: Bounds = Bounds { log: false, ..SAID };
const CUT: Bounds = Bounds { cut: true, ..SAID };
const UNUSED: Bounds = Bounds { unused: true, ..FORGETS };

const FALSE_LOSS: &str = "a loss is reported that was none";
const UNREPORTED: &str = "a loss is not reported";
const TWICE: &str = "a run is counted twice";
const REPLACED: &str = "an end replaces the first";
const LEFT: &str = "a text is left behind";

#[test]
fn a_release_that_is_said_again_is_as_good_as_one() {
    for bounds in [SAID, RESTARTS, FORGETS, UNLOGGED, CUT, UNUSED] {
        is_clean(&bounds);
    }
}

#[test]
fn a_repeated_release_asks_for_the_text_of_its_run() {
    without(Without::AsksForText, SAID, FALSE_LOSS, 5);
    without(Without::CannotTell, UNLOGGED, FALSE_LOSS, 5);
    without(Without::CannotTell, CUT, FALSE_LOSS, 6);
    without(Without::TextWithoutEnd, SAID, UNREPORTED, 6);
}

#[test]
fn a_node_has_forgotten_a_run_if_it_has_restarted_and_has_no_text() {
    without(Without::AnotherRun, FORGETS, FALSE_LOSS, 4);
    without(Without::HasText, RESTARTS, UNREPORTED, 5);
    without(Without::CarriesRun, FORGETS, "a run is not known", 4);
    without(Without::OnlyForgotten, CUT, TWICE, 5);
    // The limit: a node that has restarted with its data, but had no room for the text.
    goes_wrong(&Bounds { log: false, ..RESTARTS }, UNREPORTED, 5);
    goes_wrong(&Bounds { cut: true, ..RESTARTS }, UNREPORTED, 6);
}

#[test]
fn the_first_end_stays_and_what_never_ran_leaves_nothing() {
    without(Without::FirstStays, SAID, REPLACED, 5);
    without(Without::DeletesText, UNUSED, LEFT, 4);
}
