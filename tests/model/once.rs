//! The runs with `--once-per`, as one node keeps them: the texts of its history, and the last success in `once`. A run
//! that has succeeded sends the node copies of its release, which report the success. Then redlock has judged the
//! answers of all nodes, and sends the node one *final* report: the success, or that the lease was lost. Reports may
//! come late, more than once, and in any order.
//!
//! What must hold:
//!
//! * No run begins within the period of a success that the node knows, and that was not taken back. Exception: a later
//!   run has begun before the node knew of the success, or without asking the node.
//! * No call is turned away by a success that was taken back, or that began before the period.
//! * A repeated report changes nothing, unless the text of its run has been cut.

use super::bits::{packed, variants};
use super::search::{Checked, Space, bounds, goes_wrong, is_clean};

/// At most this many runs begin.
const RUNS: usize = 3;
/// When the search ends, and the period, in ticks of the node's clock.
const END: u8 = 4;
const PERIOD: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// A success becomes `once` only if the run is newer than the present `once`.
    Newer,
    /// The newer run has the larger fencing token, because the server's clock may have been set back.
    ByFence,
    /// The first end that is reported stays. A success that comes after a loss, in a late copy, changes nothing.
    FirstStays,
    /// If the final report is a loss, it takes the success of its run out of `once`,
    TakesBack,
    /// but not the success of another run.
    OwnLoss,
    /// A loss takes the success back even if the text of its run has been cut.
    TextIsCut,
    /// A loss comes into a text without an end.
    LossFirst,
    /// If the node has no text of the run, a copy adds it, because the node may have forgotten the run, or not have
    /// granted the lease.
    Adds,
    /// But if the node has confirmed the lease, and has not restarted, the text has been cut, and a copy adds nothing.
    OnlyForgotten,
    /// The beginning is the one that the grant answered. It is not reckoned from a report, which may be late.
    OfTheGrant,
}

bounds! {
    Bounds {
        runs: usize = 2,
        /// Other runs, without `--once-per`, may take the place of a text in the history.
        cut: bool = false,
        /// Runs may begin without asking the node.
        missed: bool = true,
        /// How often the node restarts, and forgets everything.
        forgets: u8 = 0,
        /// How often the node's clock is set back.
        jumps: u8 = 0,
    }
}

variants! {
    /// What a run has reported, or what a text says of the run's end.
    End { Open, Success, Loss }
}

packed! {
    Run {
        began: u8 = 3,
        heard: End = 2,
        /// The final report; `Open`: redlock has not judged.
        verdict: End = 2,
        /// The node has granted the lease, and not restarted since.
        confirmed: bool = 1,
        /// The success of this run need not turn away a call.
        excused: bool = 1,
    }
}

packed! {
    State {
        now: u8 = 3,
        begun: u8 = 2,
        runs: [Run; RUNS],
        /// The end in the text of each run.
        texts: [End; RUNS] = 2,
        /// The runs that have a text.
        listed: [bool; RUNS] = 1,
        /// The run in `once`, from 1, and when it began. 0: none.
        once: u8 = 2,
        once_began: u8 = 3,
        forgets: u8 = 1,
        jumps: u8 = 1,
    }
}

impl Bounds {
    /// A call comes. `missed`: it does not hear the node's answer, and the node does not grant the lock.
    fn call(&self, state: &mut State, missed: bool) -> Checked {
        let is_recent = |began: u8| state.now.abs_diff(began) < PERIOD;
        let runs = &state.runs[..usize::from(state.begun)];
        let turned_away = state.once > 0 && is_recent(state.once_began);
        match usize::from(state.once).checked_sub(1).map(|at| runs[at]).filter(|_| turned_away && !missed) {
            Some(Run { heard: End::Loss, .. }) => return Err(LOST),
            Some(run) => return if is_recent(run.began) { Ok(()) } else { Err(LEFT_OUT) },
            None => {}
        }
        let mut known = runs.iter().filter(|run| run.heard == End::Success && !run.excused);
        if !missed && known.any(|run| is_recent(run.began)) {
            return Err(TWICE);
        }
        if runs.len() < self.runs {
            let at = runs.len();
            state.runs[..at].iter_mut().for_each(|run| run.excused |= missed || run.heard != End::Success);
            state.runs[at] = Run { began: state.now, confirmed: !missed, ..Run::default() };
            state.begun += 1;
            state.listed[at] = !missed;
        }
        Ok(())
    }

    /// The node gets a report of this run. `late`: the report was under way for a tick.
    fn hear(&self, state: &mut State, at: usize, end: End, is_final: bool, late: bool) -> Checked {
        let before = (state.once, state.once_began);
        let run = &mut state.runs[at];
        if run.confirmed && !state.listed[at] && !is_final && !self.is(Without::OnlyForgotten) {
            return Ok(());
        }
        let is_repeated = run.heard == End::Loss || run.heard == end;
        let began = run.began + u8::from(late && self.is(Without::OfTheGrant));
        if is_final {
            run.verdict = end;
        }
        if !is_repeated {
            run.heard = end;
        }
        self.note(state, at, end, is_final, began);
        let changed = is_repeated && (state.once, state.once_began) != before;
        if changed && !self.cut { Err(CHANGES) } else { Ok(()) }
    }

    /// Writes the end of this run into the history and into `once`.
    fn note(&self, state: &mut State, at: usize, end: End, is_final: bool, began: u8) {
        let (number, had_text) = (u8::try_from(at).unwrap() + 1, state.listed[at]);
        let is_own = state.once == number && (had_text || !self.is(Without::TextIsCut));
        if end == End::Loss && (is_own && !self.is(Without::TakesBack) || self.is(Without::OwnLoss)) {
            (state.once, state.once_began) = (0, 0);
        }
        if !had_text {
            if !is_final && self.is(Without::Adds) {
                return;
            }
            state.texts[at] = End::Open;
            state.listed[at] = true;
        }
        let is_first = state.texts[at] == End::Open && !(end == End::Loss && self.is(Without::LossFirst));
        if !is_first && !self.is(Without::FirstStays) {
            return;
        }
        state.texts[at] = end;
        let is_newer = match self.without {
            Without::Newer => true,
            Without::ByFence => state.once == 0 || began > state.once_began,
            _ => number > state.once,
        };
        if end == End::Success && is_newer {
            (state.once, state.once_began) = (number, began);
        }
    }
}

impl Space for Bounds {
    type State = State;

    fn starts(&self) -> Vec<State> {
        vec![State { forgets: self.forgets, jumps: self.jumps, ..State::default() }]
    }

    fn next(&self, state: &State, into: &mut Vec<Checked<State>>) {
        let mut also = |change: &dyn Fn(&mut State) -> Checked| {
            let mut next = *state;
            into.push(change(&mut next).map(|()| next));
        };
        if state.now < END {
            also(&|next| {
                next.now += 1;
                Ok(())
            });
        }
        also(&|next| self.call(next, false));
        if self.missed {
            also(&|next| self.call(next, true));
        }
        for at in 0..usize::from(state.begun) {
            if self.cut && state.listed[at] {
                also(&|next| {
                    next.listed[at] = false;
                    Ok(())
                });
            }
            for late in [false, true] {
                also(&|next| self.hear(next, at, End::Success, false, late));
            }
            for end in [End::Success, End::Loss] {
                if [End::Open, end].contains(&state.runs[at].verdict) {
                    also(&|next| self.hear(next, at, end, true, false));
                }
            }
        }
        if state.jumps > 0 && state.now >= PERIOD {
            also(&|next| {
                (next.jumps, next.now) = (next.jumps - 1, next.now - PERIOD);
                next.runs.iter_mut().for_each(|run| run.excused = true);
                Ok(())
            });
        }
        if state.forgets > 0 {
            also(&|next| {
                next.forgets -= 1;
                (next.texts, next.listed, next.once, next.once_began) = Default::default();
                next.runs.iter_mut().for_each(|run| (run.heard, run.confirmed) = (End::Open, false));
                Ok(())
            });
        }
    }
}

const LATE: Bounds = Bounds::LEAST;
const FORGETS: Bounds = Bounds { forgets: 1, ..LATE };
const JUMPS: Bounds = Bounds { jumps: 1, ..LATE };
const CUT: Bounds = Bounds { cut: true, missed: false, ..LATE };

const TWICE: &str = "a run begins within the period of a success";
const LEFT_OUT: &str = "a call is turned away by a success before the period";
const LOST: &str = "a call is turned away by a success that was taken back";
const CHANGES: &str = "a repeated report changes something";

#[test]
fn no_run_begins_in_the_period_of_a_success_and_none_is_left_out() {
    for bounds in [LATE, FORGETS, JUMPS, CUT, Bounds { runs: RUNS, ..LATE }] {
        is_clean(&bounds);
    }
}

#[test]
fn each_clause_of_that_is_needed() {
    without(Without::Newer, LATE, TWICE, 6);
    without(Without::ByFence, JUMPS, TWICE, 6);
    without(Without::FirstStays, LATE, CHANGES, 3);
    without(Without::TakesBack, LATE, LOST, 4);
    without(Without::OwnLoss, LATE, CHANGES, 5);
    without(Without::TextIsCut, CUT, LOST, 5);
    without(Without::LossFirst, LATE, CHANGES, 3);
    without(Without::Adds, LATE, TWICE, 3);
    without(Without::OnlyForgotten, CUT, LOST, 5);
    without(Without::OfTheGrant, LATE, LEFT_OUT, 5);
    // The limit: a node that has not granted the lease hears of the loss, cuts the text, and hears of the success.
    goes_wrong(&Bounds { missed: true, ..CUT }, LOST, 5);
}
