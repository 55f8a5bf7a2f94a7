//! Breadth-first search through all states of a model, up to the first faulty step, with the shortest way to it.

use super::bits::Packable;
use std::fmt::Debug;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Instant;

/// A search that must see all states fails at this many.
pub(super) const MOST: usize = 20_000_000;
/// The fault that an event that must come ([`Hope`]) may never come.
pub(super) const HOPELESS: &str = "it may never come to an end";

/// The result of a step (the next state, say), or its fault.
pub(super) type Checked<T = ()> = Result<T, &'static str>;

/// A model that can be searched: its starts, and the possible steps from each state.
pub(super) trait Space: Debug {
    type State: Packable;

    fn starts(&self) -> Vec<Self::State>;
    /// Adds to `into` the state after each possible step, or the fault of the step.
    fn next(&self, state: &Self::State, into: &mut Vec<Checked<Self::State>>);
    fn hope(&self, _: &Self::State) -> Hope {
        Hope::Fulfilled
    }
    fn show(&self, state: &Self::State) -> String {
        format!("{state:?}")
    }
}

/// Declares a model's structure `Bounds`: the bounds of a search, and the clause that it leaves out. In
/// `Bounds::LEAST`, each bound has the value behind its `=`, and no clause is left out.
macro_rules! bounds {
    ($vis:vis Bounds { $($(#[$doc:meta])* $field:ident: $type:ty = $least:expr),* $(,)? }) => {
        #[derive(Clone, Copy, Debug)]
        $vis struct Bounds {
            $($(#[$doc])* $vis $field: $type,)*
            $vis without: Without,
        }

        impl Bounds {
            $vis const LEAST: Bounds = Bounds { $($field: $least,)* without: Without::Nothing };

            fn is(&self, without: Without) -> bool {
                self.without == without
            }
        }

        /// Checks that a search without the clause `without` finds the fault `what` after `steps` steps.
        #[track_caller]
        $vis fn without(without: Without, mut bounds: Bounds, what: &str, steps: usize) {
            bounds.without = without;
            $crate::model::search::goes_wrong(&bounds, what, steps);
        }
    };
}
pub(super) use bounds;

/// Whether a state still waits for an event that must come sooner or later (the grant of a free lock, say).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hope {
    /// The event has come, or the state waits for none.
    Fulfilled,
    /// Any possible step may be the next, and the event must come in every order of steps.
    Open,
    /// Chance decides which step is the next, and the event must come with probability one.
    ByChance,
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) states: usize,
    /// The search has seen all states that at most this many steps can reach. 0 if a step was faulty.
    pub(super) depth: usize,
    /// The search has stopped at its limit of states, before it went through all of them.
    pub(super) cut: bool,
    pub(super) wrong: Option<Wrong>,
}

#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) what: &'static str,
    /// The states on the shortest way from a start to the fault, without the faulty state. If the fault is
    /// [`HOPELESS`], the hope of the last of them may stay open for ever.
    pub(super) trace: Vec<String>,
    /// If the fault is [`HOPELESS`]: the states of one way on which the hope stays open, from the last state of
    /// `trace`.
    pub(super) circle: Vec<String>,
}

/// The states seen so far, numbered from 0 in the order in which they were found.
struct Seen<'a, P: Space> {
    space: &'a P,
    states: Vec<<P::State as Packable>::Words>,
    parents: Vec<u32>,
    /// Level 1 has the starts, level 2 the states one step from a start, and so on. First value: where in `states` the
    /// level that is being searched ends. Second value: its number.
    level: (usize, usize),
    /// A hash table of `states`, with open addressing: 0 for an empty entry, else the number of a state plus 1.
    table: Vec<u32>,
    /// The numbers of the next states: a list for each state, one behind the other. `ends` has the index at which each
    /// list ends. The list of a state whose hope is fulfilled ([`Hope`]) is empty.
    edges: Vec<u32>,
    ends: Vec<u32>,
}

impl<P: Space> Seen<'_, P> {
    fn place(&self, state: &<P::State as Packable>::Words) -> usize {
        let mask = self.table.len() - 1;
        let mixed = state.as_ref().iter().fold(0, |hash: u64, word| {
            let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ mixed >> 32
        });
        let mut at = usize::try_from(mixed).unwrap() & mask;
        while self.table[at] != 0 && self.states[self.table[at] as usize - 1] != *state {
            at = (at + 1) & mask;
        }
        at
    }

    /// Adds the state unless it has been seen; returns its number. `parent`: the number of the state before; a start is
    /// its own parent.
    fn add(&mut self, state: P::State, parent: u32) -> u32 {
        let state = state.pack();
        let at = self.place(&state);
        if self.table[at] != 0 {
            return self.table[at] - 1;
        }
        let number = u32::try_from(self.states.len()).unwrap();
        self.states.push(state);
        self.parents.push(parent);
        self.table[at] = number + 1;
        if self.states.len() * 2 > self.table.len() {
            let larger = self.table.len() * 2;
            self.table = vec![0; larger];
            for index in 0..self.states.len() {
                let at = self.place(&self.states[index]);
                self.table[at] = u32::try_from(index + 1).unwrap();
            }
        }
        number
    }

    fn state(&self, at: usize) -> P::State {
        P::State::unpack(&self.states[at])
    }

    fn show(&self, at: usize) -> String {
        self.space.show(&self.state(at))
    }

    /// The states on the shortest way from a start to the state with the number `at`, this state included.
    fn trace(&self, mut at: usize) -> Vec<String> {
        let mut trace = vec![self.show(at)];
        while self.parents[at] as usize != at {
            at = self.parents[at] as usize;
            trace.push(self.show(at));
        }
        trace.reverse();
        trace
    }

    /// The number of the first hopeless state, and the states of a way from it through hopeless states.
    ///
    /// A state is hopeless if its hope ([`Hope`]) may stay open for ever: with [`Hope::Open`], if no step is possible,
    /// or if some step leads to a hopeless state; with [`Hope::ByChance`], if each step leads to a hopeless state.
    fn hopeless(&self) -> Option<(usize, Vec<String>)> {
        let next =
            |at: usize| &self.edges[if at == 0 { 0 } else { self.ends[at - 1] as usize }..self.ends[at] as usize];
        let hopes: Vec<Hope> = (0..self.states.len()).map(|at| self.space.hope(&self.state(at))).collect();
        let mut hopeless: Vec<bool> = hopes.iter().map(|&hope| hope != Hope::Fulfilled).collect();
        let mut changed = true;
        while changed {
            changed = false;
            for at in (0..hopeless.len()).rev().filter(|&at| hopes[at] != Hope::Fulfilled) {
                let mut steps = next(at).iter().map(|&step| hopeless[step as usize]);
                let stays = next(at).is_empty()
                    || if hopes[at] == Hope::ByChance { steps.all(|step| step) } else { steps.any(|step| step) };
                changed |= hopeless[at] && !stays;
                hopeless[at] &= stays;
            }
        }
        let first = hopeless.iter().position(|&hopeless| hopeless)?;
        let (mut way, mut at) = (Vec::new(), first);
        while !way.contains(&at) {
            way.push(at);
            at = next(at).iter().map(|&step| step as usize).find(|&step| hopeless[step]).unwrap_or(at);
        }
        Some((first, way.into_iter().map(|at| self.show(at)).collect()))
    }
}

/// Searches until a step is faulty, until all states are seen, or until `most` are. If all are seen, checks that each
/// [`Hope`] is fulfilled sooner or later.
pub(super) fn search<P: Space>(space: &P, most: usize) -> Found {
    let mut seen = Seen {
        space,
        states: Vec::new(),
        parents: Vec::new(),
        level: (0, 0),
        table: vec![0; 1 << 12],
        edges: Vec::new(),
        ends: Vec::new(),
    };
    for (index, start) in space.starts().into_iter().enumerate() {
        seen.add(start, u32::try_from(index).unwrap());
    }
    let mut next = Vec::new();
    let mut at = 0;
    let mut hopes = false;
    while at < seen.states.len() && seen.states.len() < most {
        if at == seen.level.0 {
            seen.level = (seen.states.len(), seen.level.1 + 1);
        }
        let state = seen.state(at);
        let is_open = space.hope(&state) != Hope::Fulfilled;
        hopes |= is_open;
        space.next(&state, &mut next);
        for result in next.drain(..) {
            match result {
                Ok(state) => {
                    let step = seen.add(state, u32::try_from(at).unwrap());
                    seen.edges.extend(is_open.then_some(step));
                }
                Err(what) => {
                    let wrong = Some(Wrong { what, trace: seen.trace(at), circle: Vec::new() });
                    return Found { states: seen.states.len(), depth: 0, cut: false, wrong };
                }
            }
        }
        seen.ends.push(u32::try_from(seen.edges.len()).unwrap());
        at += 1;
    }
    let cut = at < seen.states.len();
    let hopeless = if cut || !hopes { None } else { seen.hopeless() };
    let wrong = hopeless.map(|(at, circle)| Wrong { what: HOPELESS, trace: seen.trace(at), circle });
    Found { states: seen.states.len(), depth: seen.level.1 - 1, cut, wrong }
}

/// Checks that the search sees all states (fewer than [`MOST`]), and finds no fault.
#[track_caller]
pub(super) fn is_clean(space: &impl Space) {
    let found = clean_part(space, MOST);
    assert!(!found.cut, "{space:?}: not all of {} states searched", found.states);
}

/// Searches all states, or the first `most`, and checks that there is no fault. If the search stops at `most` states,
/// it must have seen all that at most `steps` steps can reach.
#[track_caller]
pub(super) fn is_clean_so_far(space: &impl Space, most: usize, steps: usize) {
    let found = clean_part(space, most);
    assert!(!found.cut || found.depth >= steps, "{space:?}: {} steps, {} states", found.depth, found.states);
}

#[track_caller]
fn clean_part(space: &impl Space, most: usize) -> Found {
    let start = Instant::now();
    let found = search(space, most);
    if let Some(Wrong { what, trace, circle }) = found.wrong {
        let (steps, trace, circle) = (trace.len(), trace.join("\n"), circle.join("\n"));
        panic!("{space:?}: {what} after {steps} steps:\n{trace}\nand then:\n{circle}");
    }
    let ending = if found.cut { format!("{} steps", found.depth) } else { "all".to_owned() };
    note(space, &ending, found.states, start);
    found
}

/// Checks that a search finds the fault `what` after `steps` steps.
#[track_caller]
pub(super) fn goes_wrong(space: &impl Space, what: &str, steps: usize) {
    let start = Instant::now();
    let found = search(space, MOST);
    let wrong = found.wrong.map(|wrong| (wrong.what, wrong.trace.len()));
    assert_eq!(wrong, Some((what, steps)), "{space:?}, {} states", found.states);
    note(space, &format!("fault {steps}"), found.states, start);
}

/// For `make model`: appends a line about the search to the file that the variable TEST_MODELS names, if it is set: the
/// test, the number of states, the seconds, `ending` (how the search ended), and the bounds that are not 0, false or
/// `Nothing`.
fn note(space: &impl Debug, ending: &str, states: usize, start: Instant) {
    let Some(file) = std::env::var_os("TEST_MODELS") else { return };
    let (thread, seconds) = (std::thread::current(), start.elapsed().as_secs_f64());
    let bounds = format!("{space:?}");
    let is_none =
        |field: &&str| [": 0", ": false", ": Nothing"].iter().any(|none| field.trim_end_matches(" }").ends_with(none));
    let bounds: Vec<&str> = bounds.split(", ").filter(|field| !is_none(field)).collect();
    let test = thread.name().unwrap_or("?").trim_start_matches("model::");
    let line = format!("{test}: {states:>9} states {seconds:>6.1} s  {ending}; {}\n", bounds.join(", "));
    OpenOptions::new().append(true).create(true).open(file).unwrap().write_all(line.as_bytes()).unwrap();
}
