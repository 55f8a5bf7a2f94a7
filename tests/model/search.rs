//! Breadth-first search through everything that can happen, with the shortest way to what must not.

use super::table::{Ending, note};
use std::fmt::Debug;
use std::time::Instant;

/// More states than any of the searches has; what is cut off here was not searched.
pub(super) const MOST: usize = 5_000_000;

/// What can be searched.
pub(super) trait Space: Debug {
    type State: Copy + Eq;

    fn starts(&self) -> Vec<Self::State>;
    /// All states that can come next, or what is wrong with them.
    fn next(&self, state: &Self::State, into: &mut Vec<Result<Self::State, &'static str>>);
    fn hash(&self, state: &Self::State) -> u64;
    fn show(&self, state: &Self::State) -> String;
}

/// What a search has found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) states: usize,
    /// The steps behind which all states were seen.
    pub(super) depth: usize,
    /// The bound was reached before all states were seen.
    pub(super) cut: bool,
    pub(super) wrong: Option<Wrong>,
}

#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) what: &'static str,
    /// The states on the way, without the last.
    pub(super) trace: Vec<String>,
}

/// The states seen so far, by their place in the order of their discovery.
struct Seen<'a, P: Space> {
    space: &'a P,
    states: Vec<P::State>,
    parents: Vec<u32>,
    /// Where those of the depth that is searched end, and its number.
    level: (usize, usize),
    /// Open addressing; 0 is empty, else the place plus 1.
    table: Vec<u32>,
}

impl<P: Space> Seen<'_, P> {
    fn place(&self, state: &P::State) -> usize {
        let mask = self.table.len() - 1;
        let mut at = usize::try_from(self.space.hash(state)).unwrap() & mask;
        while self.table[at] != 0 && self.states[self.table[at] as usize - 1] != *state {
            at = (at + 1) & mask;
        }
        at
    }

    fn add(&mut self, state: P::State, parent: u32) {
        let at = self.place(&state);
        if self.table[at] != 0 {
            return;
        }
        self.states.push(state);
        self.parents.push(parent);
        self.table[at] = u32::try_from(self.states.len()).unwrap();
        if self.states.len() * 2 > self.table.len() {
            let larger = self.table.len() * 2;
            self.table = vec![0; larger];
            for index in 0..self.states.len() {
                let at = self.place(&self.states[index]);
                self.table[at] = u32::try_from(index + 1).unwrap();
            }
        }
    }
}

/// Searches until something is wrong, all is seen, or `most` states are.
pub(super) fn search<P: Space>(space: &P, most: usize) -> Found {
    let mut seen = Seen { space, states: Vec::new(), parents: Vec::new(), level: (0, 0), table: vec![0; 1 << 12] };
    for (index, start) in space.starts().into_iter().enumerate() {
        seen.add(start, u32::try_from(index).unwrap());
    }
    let mut next = Vec::new();
    let mut at = 0;
    while at < seen.states.len() && seen.states.len() < most {
        if at == seen.level.0 {
            seen.level = (seen.states.len(), seen.level.1 + 1);
        }
        let state = seen.states[at];
        space.next(&state, &mut next);
        for result in next.drain(..) {
            match result {
                Ok(state) => seen.add(state, u32::try_from(at).unwrap()),
                Err(what) => {
                    let mut trace = vec![space.show(&state)];
                    let mut step = at;
                    while seen.parents[step] as usize != step {
                        step = seen.parents[step] as usize;
                        trace.push(space.show(&seen.states[step]));
                    }
                    trace.reverse();
                    return Found {
                        states: seen.states.len(),
                        depth: 0,
                        cut: false,
                        wrong: Some(Wrong { what, trace }),
                    };
                }
            }
        }
        at += 1;
    }
    Found { states: seen.states.len(), depth: seen.level.1 - 1, cut: at < seen.states.len(), wrong: None }
}

/// Nothing goes wrong.
#[track_caller]
pub(super) fn is_clean(space: &impl Space) {
    let found = clean_part(space, MOST);
    assert!(!found.cut, "{space:?}: not all of {} states searched", found.states);
}

/// Nothing goes wrong as far as so many states reach, and so many steps.
#[track_caller]
pub(super) fn is_clean_so_far(space: &impl Space, most: usize, steps: usize) {
    let found = clean_part(space, most);
    assert!(!found.cut || found.depth >= steps, "{space:?}: {} steps, {} states", found.depth, found.states);
}

#[track_caller]
fn clean_part(space: &impl Space, most: usize) -> Found {
    let start = Instant::now();
    let found = search(space, most);
    if let Some(wrong) = found.wrong {
        panic!("{space:?}: {} after {} steps:\n{}", wrong.what, wrong.trace.len(), wrong.trace.join("\n"));
    }
    let ending = if found.cut { Ending::Depth(found.depth) } else { Ending::Clean };
    note(space, ending, found.states, start.elapsed());
    found
}

/// This goes wrong, after so many steps.
#[track_caller]
pub(super) fn goes_wrong(space: &impl Space, what: &str, steps: usize) {
    let start = Instant::now();
    let found = search(space, MOST);
    let wrong = found.wrong.map(|wrong| (wrong.what, wrong.trace.len()));
    assert_eq!(wrong, Some((what, steps)), "{space:?}, {} states", found.states);
    note(space, Ending::Fault(steps), found.states, start.elapsed());
}
