//! A model of a lease with two holds, and of releases that name no hold. The outer hold took the lock, and the inner
//! hold is a re-entry, which alone the client wants to end.
//!
//! A node may get the release more than once. With several nodes, one node may not know the inner hold.
//!
//! What must hold: as long as the outer job relies on the lease, no rival has a quorum.

use super::bits::{packed, variants};
use super::search::{Checked, Space, goes_wrong, is_clean};

const TTL: u8 = 2;
const NODES: usize = 3;

variants! {
    /// The rule for a release that names no hold.
    Rule {
        /// It ends no hold. A single node answers with the id of the inner hold, which the client's next release names.
        /// With several nodes, the client first asks all of them for the newest hold, and its release names this hold
        /// on all nodes.
        Named,
        /// It ends the newest hold that the node knows, and a second copy of it ends one more.
        Newest,
        /// Each node decides by itself. One that knows only the outer hold ends it. One that knows the inner hold ends
        /// no hold, and answers with the inner hold's id, which the client's next release names.
        NamedByEach,
    }
}

packed! {
    Node {
        ours: bool = 1,
        /// The node knows of the inner hold.
        entered: bool = 1,
        rival: bool = 1,
        left: u8 = 2,
        /// For how many ticks the outer job still relies on its lease on this node.
        counted: u8 = 2,
    }
}

packed! {
    State {
        nodes: [Node; NODES],
        /// The client has entered the inner hold, and no release has arrived at a node yet.
        inside: bool = 1,
        /// How many releases of the inner hold have arrived, on all nodes together.
        said: u8 = 2,
        /// A node has answered with the id of the inner hold, so the client's releases name it.
        named: bool = 1,
    }
}

#[derive(Clone, Copy, Debug)]
struct Holds {
    rule: Rule,
    nodes: usize,
}

impl Holds {
    /// A release that is meant for the inner hold arrives at the node `at`. `named`: it names the inner hold.
    fn release(self, state: &mut State, at: usize, named: bool) {
        let node = &mut state.nodes[at];
        if !node.ours {
            return;
        }
        match self.rule {
            Rule::Named | Rule::NamedByEach if node.entered && !named => state.named = true,
            // The node knows only the outer hold. The release ends this hold, and the node deletes the lease.
            Rule::Newest if !node.entered => *node = Node { counted: node.counted, ..Node::default() },
            Rule::NamedByEach if !node.entered && !named => *node = Node { counted: node.counted, ..Node::default() },
            _ => node.entered = false,
        }
    }

    fn valid(self, state: &State) -> bool {
        state.nodes[..self.nodes].iter().filter(|node| node.counted > 0).count() > self.nodes / 2
    }

    fn check(self, state: &State) -> Checked {
        let nodes = &state.nodes[..self.nodes];
        if self.valid(state) && nodes.iter().filter(|node| node.rival).count() > self.nodes / 2 {
            return Err("two holders");
        }
        Ok(())
    }
}

impl Space for Holds {
    type State = State;

    fn starts(&self) -> Vec<State> {
        let mut start = State::default();
        for node in &mut start.nodes[..self.nodes] {
            *node = Node { ours: true, left: TTL, counted: TTL, ..Node::default() };
        }
        vec![start]
    }

    fn next(&self, state: &State, into: &mut Vec<Checked<State>>) {
        let mut also = |change: &dyn Fn(&mut State)| {
            let mut next = *state;
            change(&mut next);
            into.push(self.check(&next).map(|()| next));
        };
        if !state.inside && state.said == 0 {
            // The client enters the inner hold, if a quorum of the nodes still has the lease. `missed`: the request
            // does not reach this node.
            for missed in (0..self.nodes).map(Some).take(if self.nodes > 1 { self.nodes } else { 0 }).chain([None]) {
                let reached = |at: usize| Some(at) != missed;
                let has = (0..self.nodes).filter(|&at| reached(at) && state.nodes[at].ours).count();
                if has > self.nodes / 2 {
                    also(&|next| {
                        next.inside = true;
                        for at in (0..self.nodes).filter(|&at| reached(at)) {
                            next.nodes[at].entered = next.nodes[at].ours;
                        }
                    });
                }
            }
        }
        // At most three releases of the inner hold arrive, at any node, and at any time.
        if (state.inside || state.said > 0) && state.said < 3 {
            let names = self.nodes > 1 && self.rule == Rule::Named || state.named;
            for at in 0..self.nodes {
                also(&|next| {
                    next.inside = false;
                    next.said += 1;
                    self.release(next, at, names);
                });
            }
        }
        for at in 0..self.nodes {
            let node = state.nodes[at];
            if node.ours && self.valid(state) {
                also(&|next| (next.nodes[at].left, next.nodes[at].counted) = (TTL, TTL));
            }
            if !node.ours && !node.rival {
                also(&|next| next.nodes[at].rival = true);
            }
        }
        also(&|next| {
            for node in &mut next.nodes {
                node.left = node.left.saturating_sub(1);
                node.counted = node.counted.saturating_sub(1);
                if node.left == 0 {
                    (node.ours, node.entered) = (false, false);
                }
            }
        });
    }
}

#[test]
fn a_release_gives_up_one_hold() {
    is_clean(&Holds { rule: Rule::Named, nodes: 1 });
    is_clean(&Holds { rule: Rule::Named, nodes: NODES });
}

#[test]
fn each_copy_must_mean_the_same_hold_and_each_node_too() {
    goes_wrong(&Holds { rule: Rule::Newest, nodes: 1 }, "two holders", 4);
    goes_wrong(&Holds { rule: Rule::NamedByEach, nodes: NODES }, "two holders", 8);
}
