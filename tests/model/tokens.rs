//! Fencing tokens, whatever clocks and leases do. A lease may end on a node at any time (a clock jumps, a key is
//! deleted). Requests arrive at any time or never. A client may stop after any step. A grant raises the node's counter
//! by 1 or more. (A real grant raises it by 1, or to the client's clock if that is larger.) The client computes the
//! lease's fencing token by the program's own [`fencing::vote`]. In a *write-back*, the client raises a lower counter
//! to the fencing token.
//!
//! A node *stands* for a lease if it at some moment had the lease and a counter equal to the lease's fencing token. A
//! lease is *won* once q nodes stand for it. What must hold: if a node stands for two won leases, the one that it
//! granted later has the larger fencing token.
//!
//! Any two quorums share a node, and on one node leases come one after the other. So no two won leases have the same
//! fencing token. If a lease is won before any node grants another one, the other one has the larger fencing token.
//!
//! In this model, nodes forget nothing. In the model of leases (tests/model/lease/), they do. In tests/chaos/, clocks
//! are wrong.

use super::bits::{Field, Packable, packed, variants};
use super::fencing;
use super::quorum::quorum;
use super::search::{Checked, Space, bounds, is_clean};

/// Adds to the next states the state after this change.
type Also<'a> = &'a mut dyn FnMut(&dyn Fn(&mut State));

const NODES: usize = 3;
const LEASES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// The write-back: the client raises the counters that are lower than the lease's fencing token.
    WriteBack,
    /// The write-back changes a node's counter only if the node still has the lease.
    Owner,
    /// The write-back checks that the node still has the lease, and that its counter is not above the fencing token.
    /// (No clause leaves out the second check alone: while the node has the lease, no other lease raises the counter.)
    OwnerAndCounter,
}

bounds! {
    Bounds {
        leases: usize = LEASES,
        /// The largest number that a grant adds to a node's counter.
        jumps: u8 = 2,
        /// A won lease may be re-created on a node that does not have it.
        rejoins: bool = false,
    }
}

variants! {
    /// How far a lease has come on a node.
    Step {
        /// The request to take the lock is under way, or lost.
        Asked,
        /// The node has granted the lease, whose client has not computed the fencing token yet.
        Granted,
        /// The node does not count for the lease: the client has computed the fencing token without it, or the node
        /// lost the lease before the write-back, and the lease was re-created.
        Without,
        /// The node's counter was lower than the lease's fencing token. The client asks the node to raise it.
        Behind,
        /// At some moment, the node had the lease and a counter equal to the lease's fencing token.
        Stands,
    }
}

packed! {
    Side {
        step: Step = 3,
        /// The value that the node's counter got from the grant of this lease; 0: the node has not granted the lease,
        /// or the client has already computed the fencing token.
        counter: u8 = 4,
        /// 1 if this lease was the first that the node granted, 2 if the second, 3 if the third; 0: not granted.
        order: u8 = 2,
    }
}

packed! {
    Node {
        /// The lease that holds the lock on this node: 1 for lease 0, 2 for lease 1, 3 for lease 2; 0: none.
        holder: u8 = 2,
        counter: u8 = 4,
        sides: [Side; LEASES],
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    nodes: [Node; NODES],
    /// 0: the lease's client has not computed the fencing token yet.
    tokens: [u8; LEASES],
}

impl Packable for State {
    type Words = [u64; NODES + 1];

    /// Sorts the nodes, because they are alike and their order does not matter.
    fn pack(self) -> Self::Words {
        let mut words = [0; NODES + 1];
        for (node, word) in self.nodes.iter().zip(&mut words) {
            *word = node.word();
        }
        words[..NODES].sort_unstable();
        words[NODES] = self.tokens.iter().fold(0, |word, token| word << 4 | u64::from(*token));
        words
    }

    fn unpack(words: &Self::Words) -> State {
        let token = |lease: usize| (words[NODES] >> (4 * (LEASES - 1 - lease)) & 15) as u8;
        State { nodes: std::array::from_fn(|node| Node::of(words[node])), tokens: std::array::from_fn(token) }
    }
}

impl State {
    fn count(&self, lease: usize, step: Step) -> usize {
        self.nodes.iter().filter(|node| node.sides[lease].step == step).count()
    }

    /// True if a node has granted this lease. (Lease 1 begins after lease 0, and lease 2 after lease 1. They are alike,
    /// so other orders need no search.)
    fn has_begun(&self, lease: usize) -> bool {
        self.nodes.iter().any(|node| node.sides[lease].order > 0)
    }

    fn is_won(&self, lease: usize) -> bool {
        self.tokens[lease] > 0 && self.count(lease, Step::Stands) >= quorum(NODES)
    }
}

impl Bounds {
    /// Calls `also` with each possible step of the node `at` for this lease: it executes a request, or the lease is
    /// re-created, or lost.
    fn serve(&self, state: &State, lease: usize, at: usize, also: Also<'_>) {
        let node = &state.nodes[at];
        let (holder, token) = (lease as u8 + 1, state.tokens[lease]);
        let is_free = node.holder == 0;
        match node.sides[lease].step {
            Step::Asked if is_free && (lease == 0 || state.has_begun(lease - 1)) => {
                for jump in 1..=self.jumps {
                    also(&|next| {
                        let node = &mut next.nodes[at];
                        (node.holder, node.counter) = (holder, node.counter + jump);
                        let order = node.sides.iter().map(|side| side.order).max().unwrap_or(0) + 1;
                        let late = Side { step: Step::Without, counter: 0, order };
                        let granted = Side { step: Step::Granted, counter: node.counter, order };
                        node.sides[lease] = if token > 0 { late } else { granted };
                    });
                }
            }
            Step::Behind => {
                let stands_lower = node.counter <= token || self.is(Without::OwnerAndCounter);
                if stands_lower && (node.holder == holder || !self.is(Without::Nothing)) {
                    also(&|next| {
                        next.nodes[at].counter = token;
                        next.nodes[at].sides[lease].step = Step::Stands;
                    });
                }
            }
            _ => {}
        }
        if self.rejoins && is_free && state.is_won(lease) {
            also(&|next| {
                let node = &mut next.nodes[at];
                (node.holder, node.counter) = (holder, node.counter.max(token));
                let step = &mut node.sides[lease].step;
                // `Behind`: the node lost the lease before its counter was raised, and may have granted another one in
                // between. So it does not count for this lease.
                *step = if *step == Step::Behind { Step::Without } else { *step };
            });
        }
        if node.holder == holder {
            also(&|next| next.nodes[at].holder = 0);
        }
    }

    /// The lease's client computes the fencing token. `heard`: the nodes (at least q) whose grants it knows.
    fn decide(&self, state: &mut State, lease: usize, heard: &[usize]) {
        let grants: Vec<(usize, u64)> =
            heard.iter().map(|&at| (at, state.nodes[at].sides[lease].counter.into())).collect();
        let mut vote = fencing::vote(&grants, NODES, 0);
        if self.is(Without::WriteBack) {
            vote.behind.clear();
        }
        state.tokens[lease] = vote.token as u8;
        for (at, node) in state.nodes.iter_mut().enumerate() {
            let side = &mut node.sides[lease];
            side.step = match side.step {
                _ if vote.behind.contains(&at) => Step::Behind,
                _ if heard.contains(&at) => Step::Stands,
                // The request may still arrive, and the node may grant the lease late.
                Step::Asked => Step::Asked,
                _ => Step::Without,
            };
            side.counter = 0;
        }
    }

    fn check(&self, state: &State) -> Checked {
        for (one, other) in (0..self.leases).flat_map(|one| (0..self.leases).map(move |other| (one, other))) {
            let is_wrong = |node: &Node| {
                let (before, after) = (node.sides[one], node.sides[other]);
                let stand = before.step == Step::Stands && after.step == Step::Stands;
                stand && before.order < after.order && state.tokens[one] >= state.tokens[other]
            };
            if state.is_won(one) && state.is_won(other) && state.nodes.iter().any(is_wrong) {
                return Err(NOT_LARGER);
            }
        }
        Ok(())
    }
}

impl Space for Bounds {
    type State = State;

    fn starts(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn next(&self, state: &State, into: &mut Vec<Checked<State>>) {
        let mut also = |change: &dyn Fn(&mut State)| {
            let mut next = *state;
            change(&mut next);
            into.push(self.check(&next).map(|()| next));
        };
        for lease in 0..self.leases {
            (0..NODES).for_each(|at| self.serve(state, lease, at, &mut also));
            if state.tokens[lease] > 0 {
                continue;
            }
            for heard in 1..1 << NODES {
                let heard: Vec<usize> = (0..NODES).filter(|at| heard & 1 << at != 0).collect();
                let is_granted = |&at: &usize| state.nodes[at].sides[lease].step == Step::Granted;
                if heard.len() >= quorum(NODES) && heard.iter().all(is_granted) {
                    also(&|next| self.decide(next, lease, &heard));
                }
            }
        }
    }
}

const NOT_LARGER: &str = "a fencing token that is not larger than that of a lease that was granted before";

#[test]
fn tokens_grow_whatever_clocks_and_leases_do() {
    is_clean(&Bounds { leases: 2, rejoins: true, ..Bounds::LEAST });
    is_clean(&Bounds { jumps: 1, ..Bounds::LEAST });
}

#[test]
fn the_token_must_be_written_back_and_only_where_the_lease_still_is() {
    without(Without::WriteBack, Bounds { leases: 2, ..Bounds::LEAST }, NOT_LARGER, 7);
    without(Without::Owner, Bounds { leases: 2, ..Bounds::LEAST }, NOT_LARGER, 8);
    without(Without::OwnerAndCounter, Bounds { leases: 2, ..Bounds::LEAST }, NOT_LARGER, 8);
}
