//! `redlock stop --for` over three nodes: one client closes the lock, another tries to take it. Requests and answers come
//! in any order.
//!
//! What must hold: after the first client has said that the lock is closed, and nobody holds it, no try gets a quorum
//! while a quorum of nodes is closed. (How those in line keep their places: queue/closed.rs, with one node.)

use super::bits::{packed, variants};
use super::search::{Checked, Space, bounds, is_clean};

const NODES: usize = 3;
const QUORUM: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// A node that is closed grants nothing.
    Refuses,
    /// The lock is closed once a quorum is.
    ByQuorum,
    /// A node that is being closed tells of a lease. The client that closes the lock then waits for the end of the try.
    TellsLease,
}

bounds! {
    Bounds {
        /// How often the other client may try.
        tries: u8 = 1,
        /// How many requests may be lost.
        losses: u8 = 0,
        /// How often a node may restart, and forget everything: once all nodes are closed. The
        /// quarantine keeps this apart from a try.
        restarts: u8 = 0,
    }
}

variants! {
    Answer { None, Free, Held }
}

packed! {
    State {
        /// The nodes that have not executed the CLOSE, and what the others answered.
        close: [bool; NODES] = 1,
        answers: [Answer; NODES] = 2,
        closed: [bool; NODES] = 1,
        has_begun: bool = 1,
        /// The first client has said that the lock is closed.
        said: bool = 1,
        /// The nodes that have not executed the TAKE, the UNDO. The nodes that have granted it.
        take: [bool; NODES] = 1,
        undo: [bool; NODES] = 1,
        granted: [bool; NODES] = 1,
        /// The lease on each node.
        leases: [bool; NODES] = 1,
        is_trying: bool = 1,
        runs: bool = 1,
        tries: u8 = 2,
        losses: u8 = 1,
        restarts: u8 = 1,
    }
}

fn count(nodes: [bool; NODES]) -> usize {
    nodes.into_iter().filter(|&node| node).count()
}

impl Bounds {
    /// The client that closes the lock judges the answers. If the other client runs, it is asked to stop.
    fn say(&self, state: &mut State) -> Checked {
        let sees = state.answers.contains(&Answer::Held) && !self.is(Without::TellsLease);
        state.said = !(state.runs || sees && state.is_trying);
        Ok(())
    }

    fn judge(state: &mut State) -> Checked {
        if count(state.granted) < QUORUM {
            state.undo = state.granted;
        } else if state.said && count(state.closed) >= QUORUM {
            return Err(GRANTED);
        } else {
            state.runs = true;
        }
        (state.is_trying, state.granted) = (false, [false; NODES]);
        Ok(())
    }

    fn at_node(&self, state: &State, node: usize, into: &mut Vec<Checked<State>>) {
        let mut also = |change: &dyn Fn(&mut State)| {
            let mut next = *state;
            change(&mut next);
            into.push(Ok(next));
        };
        if state.close[node] {
            also(&|next| {
                (next.close[node], next.closed[node]) = (false, true);
                next.answers[node] = if next.leases[node] { Answer::Held } else { Answer::Free };
            });
        }
        if state.take[node] {
            also(&|next| {
                let grants = !next.leases[node] && (!next.closed[node] || self.is(Without::Refuses));
                (next.take[node], next.granted[node]) = (false, grants);
                next.leases[node] |= grants;
            });
        }
        if state.undo[node] {
            also(&|next| (next.undo[node], next.leases[node]) = (false, false));
        }
        if state.losses > 0 && (state.close[node] || state.take[node]) {
            also(&|next| (next.losses, next.close[node], next.take[node]) = (0, false, false));
        }
        if state.restarts > 0 && state.closed == [true; NODES] && !state.is_trying {
            also(&|next| (next.restarts, next.closed[node], next.leases[node]) = (0, false, false));
        }
    }
}

impl Space for Bounds {
    type State = State;

    fn starts(&self) -> Vec<State> {
        let Bounds { tries, losses, restarts, .. } = *self;
        vec![State { tries, losses, restarts, ..State::default() }]
    }

    fn next(&self, state: &State, into: &mut Vec<Checked<State>>) {
        (0..NODES).for_each(|node| self.at_node(state, node, into));
        let mut also = |change: &dyn Fn(&mut State) -> Checked| {
            let mut next = *state;
            into.push(change(&mut next).map(|()| next));
        };
        if !state.has_begun {
            also(&|next| {
                (next.has_begun, next.close) = (true, [true; NODES]);
                Ok(())
            });
        }
        let answered = state.answers.iter().filter(|&&answer| answer != Answer::None).count();
        if !state.said && answered >= if self.is(Without::ByQuorum) { 1 } else { QUORUM } {
            also(&|next| self.say(next));
        }
        if state.tries > 0 && !state.is_trying && !state.runs && state.undo == [false; NODES] {
            also(&|next| {
                (next.tries, next.is_trying, next.take) = (next.tries - 1, true, [true; NODES]);
                Ok(())
            });
        }
        if state.is_trying && (state.take == [false; NODES] || count(state.granted) >= QUORUM) {
            also(&|next| {
                next.take = [false; NODES];
                Bounds::judge(next)
            });
        }
    }
}

const PLAIN: Bounds = Bounds::LEAST;
const AGAIN: Bounds = Bounds { tries: 2, losses: 1, restarts: 1, ..PLAIN };

const GRANTED: &str = "a try gets a quorum though the lock was said to be closed";

#[test]
fn nobody_gets_a_lock_that_was_said_to_be_closed() {
    for bounds in [PLAIN, Bounds { losses: 1, ..PLAIN }, AGAIN] {
        is_clean(&bounds);
    }
}

#[test]
fn each_clause_of_that_is_needed() {
    without(Without::Refuses, PLAIN, GRANTED, 8);
    without(Without::ByQuorum, PLAIN, GRANTED, 8);
    without(Without::TellsLease, PLAIN, GRANTED, 8);
}
