//! The successful runs that `--once-per` asks for, as one node keeps them. A run sends words to the node. The word
//! "success" says that the run has succeeded. The word "loss" takes the success back. Words may come late, more than
//! once, and in any order. The node keeps the two newest runs that have sent words, even if they have a loss. The
//! newest run is in the field `once`, the second newest in the field `once_before`.
//!
//! What must hold:
//!
//! * Of all runs with a success and without a loss, the node finds the newest. Exception: the node may find no run if
//!   the two newest runs that have sent words both have a loss.
//! * A repeated word changes nothing.
//! * A success that comes after a loss of the same run changes nothing.

use super::bits::{Field, packed, variants};
use super::search::{Checked, Space, bounds, is_clean};

const RUNS: u8 = 4;

/// The clause of `note_once` in release.lua that a search leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// If the node keeps a run already, the word "success" of this run changes nothing.
    Again,
    /// A run becomes `once` only if the run is newer than the present `once`.
    NewerThanOnce,
    /// When a newer run becomes `once`, the run that was `once` becomes `once_before`.
    KeepsReplaced,
    /// A run that is older than `once`, and newer than `once_before`, becomes `once_before`.
    Between,
    /// A run that is older than both `once` and `once_before` is not kept.
    NewerThanBefore,
    /// The word "loss" counts for the run in `once_before`, not only for the run in `once`.
    LossOfEither,
    /// When a kept run sends the word "loss", the node still keeps the run.
    LossStays,
    /// The node keeps a run even if the first word of this run is "loss".
    LossFirst,
    /// The node compares runs by fencing token, not by the time at which each run began. A word tells the run's age, so
    /// a late word would make the run look too new.
    ByFence,
}

bounds! { Bounds {} }

variants! {
    /// The words that a run has sent to the node. `Loss`: at least one word was "loss". `Success`: all words were
    /// "success".
    Told { Nothing, Success, Loss }
}

packed! {
    /// A run that the node keeps, or that sends a word to the node. If `number` is 0, there is no run.
    Run {
        number: u8 = 3,
        lost: bool = 1,
        /// Of two runs, the run with the larger `order` counts as the newer run.
        order: u8 = 4,
    }
}

packed! {
    State {
        /// The two runs that the node keeps: first `once`, second `once_before`.
        kept: [Run; 2],
        /// How many runs have begun.
        begun: u8 = 3,
        told: [Told; 4] = 2,
    }
}

impl Bounds {
    /// Changes the kept runs as `note_once` in release.lua does. `word`: the run that sends a word to the node.
    fn note(&self, kept: &mut [Run; 2], word: Run) {
        if let Some(at) = kept.iter().position(|run| run.number == word.number) {
            if !word.lost && !self.is(Without::Again) || at == 1 && self.is(Without::LossOfEither) {
                return;
            }
            if word.lost && self.is(Without::LossStays) {
                return *kept = [kept[1 - at], Run::default()];
            }
            if word.lost {
                return kept[at].lost = true;
            }
        }
        if word.lost && self.is(Without::LossFirst) {
            return;
        }
        let [once, before] = *kept;
        if word.order > once.order || self.is(Without::NewerThanOnce) {
            *kept = [word, if self.is(Without::KeepsReplaced) { before } else { once }];
        } else if !self.is(Without::Between) && (word.order > before.order || self.is(Without::NewerThanBefore)) {
            kept[1] = word;
        }
    }

    /// The node gets a word of the run `number`. `lost`: the word is "loss"; false: the word is "success". `is_late`:
    /// the word was under way for a long time.
    fn hear(&self, state: &mut State, number: u8, lost: bool, is_late: bool) -> Checked {
        // Without the clause `ByFence`, the node computes when the run began: the server's clock minus the run's age,
        // which is in the word. This moment is the run's `order`. A late word makes the moment too late.
        let age = if is_late { 2 * state.begun + 1 } else { 2 * number };
        let order = if self.is(Without::ByFence) { age } else { number };
        let (told, before) = (&mut state.told[usize::from(number) - 1], state.kept);
        let is_known = *told == Told::Loss || *told == Told::Success && !lost;
        self.note(&mut state.kept, Run { number, lost, order });
        if is_known {
            return if state.kept.map(Run::word) == before.map(Run::word) { Ok(()) } else { Err(CHANGES) };
        }
        *told = if lost { Told::Loss } else { Told::Success };
        check(state)
    }
}

fn check(state: &State) -> Checked {
    let told = (1..).zip(state.told).filter(|(_, told)| *told != Told::Nothing);
    let newest_first: Vec<(u8, Told)> = told.collect::<Vec<_>>().into_iter().rev().collect();
    let are_both_lost = newest_first.len() > 1 && newest_first[..2].iter().all(|(_, told)| *told == Told::Loss);
    let success = newest_first.iter().find(|(_, told)| *told == Told::Success).map_or(0, |(number, _)| *number);
    // The run that TAKE finds: `once`, or `once_before` if `once` has a loss. 0: TAKE finds no run.
    let found = state.kept.iter().find(|run| run.number > 0 && !run.lost).map_or(0, |run| run.number);
    match found {
        _ if found == success => Ok(()),
        0 if are_both_lost => Ok(()),
        0 => Err(FORGOTTEN),
        _ if state.told[usize::from(found) - 1] == Told::Loss => Err(LOST),
        _ => Err(OLDER),
    }
}

impl Space for Bounds {
    type State = State;

    fn starts(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn next(&self, state: &State, into: &mut Vec<Checked<State>>) {
        if state.begun < RUNS {
            into.push(Ok(State { begun: state.begun + 1, ..*state }));
        }
        for number in 1..=state.begun {
            for (lost, is_late) in [(false, false), (false, true), (true, false), (true, true)] {
                let mut next = *state;
                into.push(self.hear(&mut next, number, lost, is_late).map(|()| next));
            }
        }
    }
}

const FORGOTTEN: &str = "a success is forgotten";
const OLDER: &str = "an older success than the newest is found";
const LOST: &str = "a success that was taken back is found";
const CHANGES: &str = "a word that is repeated changes something";

#[test]
fn the_newest_success_is_found_whatever_order_the_words_come_in() {
    is_clean(&Bounds::LEAST);
}

#[test]
fn each_clause_of_that_is_needed() {
    without(Without::Again, Bounds::LEAST, CHANGES, 3);
    without(Without::NewerThanOnce, Bounds::LEAST, OLDER, 4);
    without(Without::KeepsReplaced, Bounds::LEAST, FORGOTTEN, 4);
    without(Without::Between, Bounds::LEAST, FORGOTTEN, 4);
    without(Without::NewerThanBefore, Bounds::LEAST, OLDER, 6);
    without(Without::LossOfEither, Bounds::LEAST, LOST, 5);
    without(Without::LossStays, Bounds::LEAST, CHANGES, 3);
    without(Without::LossFirst, Bounds::LEAST, CHANGES, 3);
    without(Without::ByFence, Bounds::LEAST, OLDER, 4);
}
