//! Leases over nodes that restart and forget: every order of every step of two clients, breadth first.
//!
//! A client takes the lock, raises counters that are lower than its fencing token, renews, re-creates by the program's
//! own [`judge`], releases, is late, or stops forever. Requests and answers may be lost, or may arrive late, even after
//! a restart of the node. The clock may tick between any two steps. Times are kept relative to the present, so the
//! clock may tick without limit. States that differ only in the order of the nodes count once.
//!
//! A *round* is one renewal, sent to all nodes at once. A node's *run* is the time between two restarts of the node. A
//! node's *deadline* is dᵢ. A *place* is the number of a slot of the lock, from 0.
//!
//! What must hold:
//!
//! * Two clients with conflicting claims never have valid leases at the same time. Exceptions: `release --force` is
//!   used, or the only node has restarted.
//! * A writer's fencing token is larger than all earlier fencing tokens. A reader's fencing token is at least as large
//!   as that of each earlier writer. Each slot has fencing tokens of its own.
//! * A single node that has granted a later lease re-creates no earlier one. With several nodes, no client has a valid
//!   lease with a smaller fencing token than a later writer, or than a later lease of the same slot.
//! * If more than N − q nodes say *gone* or *another has it*, the client ends its lease. The search checks this only
//!   as long as no node has restarted.
//! * Once `release --force` has deleted a lease on all nodes, the lease never has a quorum again. Exception: a node
//!   has forgotten something.

use super::fencing;
use super::recreate::{Backing, NodeReport, Round, judge};
use super::search::{Checked, Space, bounds};
use state::{Client, EARLIER, Entry, Kind, Node, Phase, Rest, Side, Slot, State};
use table::judge_without;

mod node;
mod state;
mod table;

/// A clause of the table of re-creation, of a script, or of fencing.rs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Without {
    Nothing,
    /// A node in quarantine grants no lease.
    Quarantine,
    /// On a node whose deadline has passed, the lease is not re-created at once.
    NotPassed,
    /// The lease is re-created at once only if the node's deadline is later than the client's judgement of the answers.
    /// A deadline between the sending of the renewals and the judgement is not enough.
    PassedByNow,
    /// The lease is re-created at once only on a node in quarantine, or on a single node.
    StillQuarantined,
    /// If the lease may not be re-created at once, it is re-created only if q nodes confirm it in this round.
    ByOthers,
    /// On a node in quarantine, the lease is re-created only if an earlier run of this node confirmed it.
    NotWhileQuarantined,
    /// If a node says *gone*, but has not restarted, and its deadline has not passed, the lease was deleted on purpose,
    /// and is not re-created on this node in this round,
    RemovedOnPurpose,
    /// nor in any later round.
    ForTheRestOfTheLease,
    /// The request to re-create a lease names the node's run that said *gone*. In any other run, the node refuses.
    RunInRequest,
    /// With a single node, recreate.lua refuses a lease whose fencing token is below the node's counter. Without this
    /// clause, the client compares its fencing token with the counter that came with *gone*.
    CounterInScript,
    /// An answer that comes after the end of the lease's validity counts for nothing.
    InTime,
    /// If a node says *another has it*, its deadline is void.
    VoidByAnother,
    /// If a node says *another has it*, but its deadline has not passed, the lease was deleted on purpose, and is never
    /// re-created on this node.
    AnotherAfterRemoval,
    /// If a node says *gone*, its deadline is void, unless the client re-creates the lease on it at once.
    VoidByGone,
    /// Before a client has its lease, it raises the counters that are lower than the lease's fencing token.
    WriteBack,
    /// When a node confirms the lease, the client records the node's present run.
    RunOfConfirmation,
    /// A lease's token asks for one slot only. A try for another slot has another token.
    PlaceOfToken,
    /// Two slots never fit beside each other if one is a slot of 2 and the other is a slot of 1.
    Shape,
    /// A reader's fencing token may be the reader's clock, if too few of the granting nodes have a counter.
    ReaderSeeds,
    /// A reader ignores its clock only if q granting nodes have a counter. One is not enough.
    QuorumCounts,
    /// With several nodes, a node without a counter answers 0 to a reader. It does not store the reader's clock.
    NodeTellsNothing,
    /// Before a reader has its lease, it raises the counters that are lower than the lease's fencing token.
    ReaderWritesBack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    Exclusive,
    Shared,
    /// One slot of a lock with this number of slots.
    Slots(u8),
}

/// Where the first client holds the lock when the search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Nowhere,
    Everywhere,
    /// On at least q nodes. The search begins once with each such number of nodes.
    Quorum,
}

bounds! {
    pub(super) Bounds {
        nodes: usize = 3,
        claims: [Claim; 2] = [Claim::Exclusive; 2],
        /// Of each client, in ticks.
        ttl: [u8; 2] = [2, 2],
        quarantine: u8 = 2,
        restarts: u8 = 0,
        /// A node that restarts forgets all its leases and counters.
        forgets: bool = true,
        /// How many requests to re-create a lease may arrive late: after the client has sent new renewals.
        late: u8 = 0,
        /// How often each client may try to take the lock.
        tries: [u8; 2] = [0, 1],
        force: bool = false,
        held: Held = Held::Everywhere,
        renews: [bool; 2] = [true, false],
        /// A client may release its lease, and one that ends a lease or a try asks all nodes to delete its keys.
        /// Otherwise no client releases its lease, and the keys expire.
        leaves: bool = false,
    }
}

/// The present time in the calls of lock/votes/recreate.rs, in ticks. (The state itself has times relative to it.)
const NOW: i8 = 64;

fn at(left: u8) -> i8 {
    NOW + i8::try_from(left).unwrap_or(0)
}

impl Bounds {
    fn quorum(&self) -> usize {
        self.nodes / 2 + 1
    }

    fn all_starts(&self) -> Vec<State> {
        let rest = Rest { restarts: self.restarts, late: self.late, ..Rest::default() };
        let mut state = State { rest, ..State::default() };
        for node in &mut state.nodes[..self.nodes] {
            node.run = 1;
        }
        for (client, tries) in state.clients.iter_mut().zip(self.tries) {
            client.tries = tries;
        }
        if self.held == Held::Nowhere {
            return vec![state];
        }
        state.clients[0] = Client { phase: Phase::Holding, fence: 1, ..Client::default() };
        state.rest.won = 1;
        state.rest.asked = 1;
        let mut starts = Vec::new();
        for (index, node) in state.nodes[..self.nodes].iter_mut().enumerate() {
            node.entries[0].left = self.ttl[0];
            node.counters[0] = 1;
            node.sides[0].left = self.ttl[0];
            node.sides[0].run = 1;
            node.heard = true;
            let enough = if self.held == Held::Everywhere { self.nodes } else { self.quorum() };
            if index + 1 >= enough {
                starts.push(index);
            }
        }
        let missed = |most: usize| {
            let mut state = state;
            for node in &mut state.nodes[most + 1..self.nodes] {
                *node = Node { run: 1, ..Node::default() };
            }
            state
        };
        starts.into_iter().map(missed).collect()
    }

    fn valid(&self, state: &State, client: usize) -> bool {
        state.nodes.iter().filter(|node| node.sides[client].left > 0).count() >= self.quorum()
    }

    fn believes(&self, state: &State, client: usize) -> bool {
        matches!(state.clients[client].phase, Phase::Holding | Phase::Asking) && self.valid(state, client)
    }

    /// Whether `release --force` has deleted a client's lease on all nodes, and the client has not ended it.
    fn is_forced(&self, state: &State) -> bool {
        matches!(state.rest.forced, 1 | 2) && state.nodes[..self.nodes].iter().all(|node| node.forced)
    }

    /// How many ticks are left until a deadline dᵢ: the ttl minus the ticks since the client sent the request.
    fn good_for(&self, state: &State, client: usize) -> u8 {
        self.ttl[client].saturating_sub(state.clients[client].age)
    }

    fn send(&self, state: &mut State, client: usize, kind: Kind) {
        state.clients[client].age = 0;
        for node in &mut state.nodes[..self.nodes] {
            node.sides[client].slot = Slot { kind, ..Slot::default() };
        }
    }

    /// The client ends its lease or its try.
    fn end(&self, state: &mut State, client: usize, phase: Phase) {
        self.send(state, client, if self.leaves { Kind::Leave } else { Kind::Nothing });
        let me = &mut state.clients[client];
        me.phase = phase;
        me.fence = 0;
        me.place = 0;
        for node in &mut state.nodes {
            let side = &mut node.sides[client];
            *side = Side { slot: side.slot, late: side.late, ..Side::default() };
        }
        if state.rest.forced == client as u8 + 1 {
            state.rest.forced = 3;
        }
    }

    fn give_up(&self, state: &mut State, client: usize) {
        let phase = if state.clients[client].tries > 0 { Phase::Idle } else { Phase::Ended };
        self.end(state, client, phase);
    }

    fn tick(&self, state: &mut State) {
        if matches!(state.rest.forced, 1 | 2) && !self.is_forced(state) {
            state.rest.forced = 3; // the deletion reaches all nodes at once, or has to be repeated
        }
        for node in &mut state.nodes {
            node.quarantined = node.quarantined.saturating_sub(1);
            for entry in &mut node.entries {
                entry.left = entry.left.saturating_sub(1);
            }
            for side in &mut node.sides {
                side.left = side.left.saturating_sub(1);
            }
        }
        for client in 0..2 {
            let ttl = self.ttl[client];
            let under_way = state.nodes.iter().any(|node| node.sides[client].slot.kind == Kind::Rejoin);
            let me = &mut state.clients[client];
            let waits = matches!(me.phase, Phase::Taking | Phase::Raising | Phase::Asking);
            if waits || me.phase == Phase::Holding && under_way {
                me.age = (me.age + 1).min(ttl);
            }
            match state.clients[client].phase {
                Phase::Taking | Phase::Raising if state.clients[client].age >= ttl => self.give_up(state, client),
                Phase::Holding | Phase::Asking if !self.valid(state, client) && !self.is(Without::InTime) => {
                    self.end(state, client, Phase::Ended);
                }
                _ => {}
            }
        }
    }

    fn restart(&self, state: &mut State, node: usize) {
        let node = &mut state.nodes[node];
        state.rest.restarts -= 1;
        node.heard = false;
        node.run += 1;
        node.quarantined = self.quarantine;
        if self.forgets {
            let Node { run, quarantined, sides, .. } = *node;
            *node = Node { run, quarantined, sides, ..Node::default() };
        }
    }

    fn take(&self, state: &mut State, client: usize, place: u8) {
        state.clients[client].place = place;
        state.rest.asked += 1;
        state.clients[client].tries -= 1;
        state.clients[client].phase = Phase::Taking;
        // Until q nodes have granted the lease, `fence` is the client's clock: the number of all tries so far.
        state.clients[client].fence = state.rest.asked;
        for node in &mut state.nodes {
            if node.entries[client].left > 0 && !self.is(Without::PlaceOfToken) {
                node.entries[EARLIER] = node.entries[client];
                node.entries[client] = Entry::default();
                node.earlier = client as u8;
            }
            node.sides[client].late = 0;
        }
        self.send(state, client, Kind::Take);
    }

    /// Copies `backing` into the state: what the client knows of each node after a round of renewals or a re-creation.
    /// With several nodes, a valid lease of the client is a fault if a later writer, or a later lease of the same slot,
    /// has a larger fencing token.
    fn take_over(&self, state: &mut State, client: usize, backing: &[Backing<i8, u8>]) {
        for (node, backing) in state.nodes.iter_mut().zip(backing) {
            let side = &mut node.sides[client];
            side.left = backing.until.map_or(0, |until| u8::try_from(until - NOW).unwrap_or(0));
            if !self.is(Without::RunOfConfirmation) || side.run == 0 {
                side.run = backing.run.unwrap_or(0);
            }
            side.removed = backing.removed;
        }
        let Client { fence, place, .. } = state.clients[client];
        let later = self.won(state, client, place).0;
        if self.nodes > 1 && state.rest.forced == 0 && self.valid(state, client) && fence < later && !self.mixes() {
            state.wrong = Some("a client goes on past a later lease");
        }
    }

    /// If q nodes have granted the lease, the next state, in which the client has the lease, or raises the counters
    /// that are lower than its fencing token. None: the client needs more answers, or the lease would no longer be
    /// valid.
    fn decide(&self, state: &State, client: usize) -> Option<State> {
        let mut next = *state;
        let slots = || state.nodes[..self.nodes].iter().map(|node| node.sides[client].slot).enumerate();
        let granted = |slot: &Slot| matches!(slot.kind, Kind::Granted | Kind::Raised);
        let grants: Vec<(usize, u64)> =
            slots().filter(|(_, slot)| granted(slot)).map(|(node, slot)| (node, slot.counter.into())).collect();
        if grants.len() < self.quorum() || self.good_for(state, client) == 0 {
            return None;
        }
        let vote = fencing::vote(&grants, self.nodes, self.clock(state, client, &grants));
        let fence = u8::try_from(vote.token).unwrap_or(0);
        next.clients[client].fence = fence;
        if grants.len() == self.nodes && state.clients[client].phase == Phase::Taking {
            next.wrong = self.is_estranged(state, fence);
        }
        let reads = self.claims[client] == Claim::Shared;
        let forgets = self.is(Without::WriteBack) || reads && self.is(Without::ReaderWritesBack);
        if vote.needed > 0 && !forgets {
            if state.clients[client].phase == Phase::Raising {
                return None;
            }
            next.clients[client].phase = Phase::Raising;
            for node in vote.behind {
                next.nodes[node].sides[client].slot = Slot { kind: Kind::Fence, ..Slot::default() };
            }
            return Some(next);
        }
        for (node, _) in grants {
            let side = &mut next.nodes[node].sides[client];
            side.left = self.good_for(state, client);
            side.run = side.slot.run;
        }
        for node in &mut next.nodes {
            node.sides[client].slot = Slot::default();
        }
        next.clients[client].phase = Phase::Holding;
        next.clients[client].age = 0;
        let place = next.clients[client].place;
        next.wrong = self.misnumbered(state, client, place, fence).or(next.wrong);
        let slot = matches!(self.claims[client], Claim::Slots(_)) && place == 1;
        let won = if reads || slot { &mut next.rest.won_besides } else { &mut next.rest.won };
        *won = fence.max(*won);
        Some(next)
    }

    /// The fault of `fence`, the fencing token of the lease that the client now gets. For a writer, it must be larger
    /// than all earlier fencing tokens; for a reader, not smaller than that of any earlier writer; for a slot, larger
    /// than all earlier ones of this slot.
    fn misnumbered(&self, state: &State, client: usize, place: u8, fence: u8) -> Option<&'static str> {
        let (same, besides) = self.won(state, client, place);
        let reads = self.claims[client] == Claim::Shared;
        let grows = if reads { fence >= same } else { fence > same.max(besides) };
        // A single node forgets its counter in a restart, and the client's clock may be lower than that counter was. So
        // with a single node, a fencing token that is too small after a restart is no fault.
        let wrong = !grows && !self.mixes() && (self.nodes > 1 || state.rest.restarts == self.restarts);
        wrong.then_some("a fencing token that is not larger than an earlier one")
    }

    /// The fault of the fencing token of a reader's lease that all nodes have granted. As long as q nodes have not
    /// restarted, they know the last writer's fencing token, and a reader's must not be above all earlier ones.
    fn is_estranged(&self, state: &State, fence: u8) -> Option<&'static str> {
        let know = usize::from(self.restarts - state.rest.restarts) + self.quorum() <= self.nodes;
        let readers = self.claims == [Claim::Shared; 2] && self.held == Held::Everywhere;
        let is_new = fence > state.rest.won.max(state.rest.won_besides);
        (know && readers && is_new)
            .then_some("a reader's fencing token is not the last writer's, though a quorum knew that")
    }

    /// The client's clock, for `fencing::vote`; 0: it does not count. (`fence` is the clock until the client has a
    /// fencing token.) Without the clause `ReaderSeeds`, it never counts. Without the clause `QuorumCounts`, it counts
    /// only if no granting node has a counter.
    fn clock(&self, state: &State, client: usize, grants: &[(usize, u64)]) -> u64 {
        let some_count = grants.iter().any(|&(_, counter)| counter > 0);
        let ignores = self.is(Without::ReaderSeeds) || self.is(Without::QuorumCounts) && some_count;
        if ignores { 0 } else { state.clients[client].fence.into() }
    }

    /// True if one client wants a slot, and the other does not. The model does not compare their fencing tokens.
    fn mixes(&self) -> bool {
        let [one, other] = self.claims.map(|claim| matches!(claim, Claim::Slots(_)));
        one != other
    }

    /// The largest fencing tokens so far of all writers, and of all readers. If the client wants a slot: the largest of
    /// the slot `place`, and 0.
    fn won(&self, state: &State, client: usize, place: u8) -> (u8, u8) {
        let Rest { won, won_besides, .. } = state.rest;
        match self.claims[client] {
            Claim::Slots(_) if place == 1 => (won_besides, 0),
            Claim::Slots(_) => (won, 0),
            _ => (won, won_besides),
        }
    }

    fn renew(&self, state: &mut State, client: usize, keep_late: bool) {
        state.clients[client].phase = Phase::Asking;
        for node in &mut state.nodes[..self.nodes] {
            let side = &mut node.sides[client];
            side.fresh = side.left > 0;
            if keep_late && side.slot.kind == Kind::Rejoin && side.late == 0 && state.rest.late > 0 {
                side.late = side.slot.run;
                state.rest.late -= 1;
            }
        }
        self.send(state, client, Kind::Extend);
    }

    /// The client judges the answers that have come to its renewals. Renewals without an answer are lost.
    fn judge(&self, state: &mut State, client: usize) {
        let mut backing = backing(state, client, self.nodes);
        let mut overtaken = false;
        let age = i8::try_from(state.clients[client].age).unwrap_or(0);
        let said: Vec<NodeReport<i8, u8>> = state.nodes[..self.nodes]
            .iter()
            .map(|node| {
                let slot = node.sides[client].slot;
                let run = Some(slot.run);
                overtaken |= slot.counter > state.clients[client].fence;
                match slot.kind {
                    Kind::Confirmed => NodeReport::Confirmed { until: at(self.ttl[client]) - age, run },
                    Kind::Gone => NodeReport::Lost { run, quarantined: false },
                    Kind::GoneQuarantined => NodeReport::Lost { run, quarantined: true },
                    Kind::Another => NodeReport::Another,
                    _ => NodeReport::Silent,
                }
            })
            .collect();
        let round = Round { sent: NOW - age, now: NOW };
        let mut copy = backing.clone();
        let mut judgement = judge_without(self.without, &mut copy, &said, round);
        match self.without {
            Without::Nothing => {
                let real = judge(&mut backing, &said, round);
                assert_eq!((&real, &backing), (&judgement, &copy), "{said:?} {round:?}");
            }
            Without::CounterInScript => judgement.lost |= overtaken,
            _ => {}
        }
        let not_ours = |said: &&NodeReport<i8, u8>| matches!(said, NodeReport::Lost { .. } | NodeReport::Another);
        let refused = said.iter().filter(not_ours).count();
        if state.rest.restarts == self.restarts && refused > self.nodes - self.quorum() && !judgement.lost {
            state.wrong = Some("a client goes on with a lease that no quorum can have");
        }
        self.take_over(state, client, &copy);
        for node in &mut state.nodes[..self.nodes] {
            let slot = node.sides[0].slot;
            node.heard |= client == 0 && slot.kind == Kind::Confirmed && slot.run == node.run;
            let side = &mut node.sides[client];
            side.slot = Slot::default();
            side.fresh = false;
        }
        state.clients[client].age = 0;
        state.clients[client].phase = Phase::Holding;
        if judgement.lost {
            self.end(state, client, Phase::Ended);
            return;
        }
        for (node, run) in judgement.recreate {
            state.nodes[node].sides[client].slot =
                Slot { kind: Kind::Rejoin, run: run.unwrap_or(0), ..Slot::default() };
        }
    }
}

/// What the client knows of each node, in the types of lock/votes/recreate.rs.
fn backing(state: &State, client: usize, nodes: usize) -> Vec<Backing<i8, u8>> {
    let known = |node: &Node| {
        let side = node.sides[client];
        // `until` is `NOW` if the node's deadline passed after the client had sent the renewals, and None if it had
        // passed before.
        let until = (side.left > 0 || side.fresh).then(|| at(side.left));
        Backing { until, run: (side.run > 0).then_some(side.run), removed: side.removed }
    };
    state.nodes[..nodes].iter().map(known).collect()
}

impl Space for Bounds {
    type State = State;

    fn starts(&self) -> Vec<State> {
        self.all_starts()
    }

    fn next(&self, state: &State, into: &mut Vec<Checked<State>>) {
        let mut states = Vec::with_capacity(32);
        self.steps(state, &mut states);
        into.extend(states.into_iter().map(|next| self.check(&next).map_or(Ok(next), Err)));
    }

    fn show(&self, state: &State) -> String {
        let node = |node: &Node| {
            let names = ["A", "B", "x"];
            let held = |index: usize| {
                (node.entries[index].left > 0)
                    .then(|| format!("{}{}.{}", names[index], node.entries[index].left, node.entries[index].place))
            };
            let holder = (0..3).filter_map(held).collect::<Vec<_>>().join(" ");
            let side = |side: &Side| {
                let Slot { kind, run, .. } = side.slot;
                let more = format!("{}{}", if side.removed { "!" } else { "" }, if side.late > 0 { "~" } else { "" });
                format!("{}@{}{more} {kind:?}({run})", side.left, side.run)
            };
            let sides = node.sides.each_ref().map(side).join(" | ");
            format!("[{holder} c{:?} run {} quarantined {}: {sides}]", node.counters, node.run, node.quarantined)
        };
        let client = |client: &Client| format!("{:?}({}) f{}", client.phase, client.age, client.fence);
        let nodes: Vec<String> = state.nodes[..self.nodes].iter().map(node).collect();
        format!("{} {}", state.clients.each_ref().map(client).join("  "), nodes.join(" "))
    }
}

impl Bounds {
    fn steps(&self, state: &State, into: &mut Vec<State>) {
        let mut also = |change: &dyn Fn(&mut State)| {
            let mut next = *state;
            change(&mut next);
            into.push(next);
        };
        also(&|next| self.tick(next));
        for node in 0..self.nodes {
            if state.rest.restarts > 0 && state.rest.forced == 0 {
                also(&|next| self.restart(next, node));
            }
            if matches!(state.rest.forced, 1 | 2) && !state.nodes[node].forced {
                also(&|next| {
                    let node = &mut next.nodes[node];
                    node.forced = true;
                    node.entries[usize::from(state.rest.forced - 1)] = Entry::default();
                });
            }
        }
        for client in 0..2 {
            match state.clients[client].phase {
                Phase::Idle if state.clients[client].tries > 0 => {
                    let places = if let Claim::Slots(limit) = self.claims[client] { limit } else { 1 };
                    (0..places).for_each(|place| also(&|next| self.take(next, client, place)));
                }
                Phase::Taking | Phase::Raising => also(&|next| self.give_up(next, client)),
                Phase::Asking => {
                    let unanswered = |node: &Node| node.sides[client].slot.kind == Kind::Extend;
                    if state.clients[client].age > 0 || !state.nodes[..self.nodes].iter().all(unanswered) {
                        also(&|next| self.judge(next, client));
                    }
                }
                Phase::Holding if !self.renews[client] => {
                    if self.leaves {
                        also(&|next| self.end(next, client, Phase::Ended));
                    }
                }
                Phase::Holding => {
                    also(&|next| self.renew(next, client, false));
                    let unserved = |node: &Node| node.sides[client].slot.kind == Kind::Rejoin;
                    if state.rest.late > 0 && state.nodes.iter().any(unserved) {
                        also(&|next| self.renew(next, client, true));
                    }
                    if self.leaves {
                        also(&|next| self.end(next, client, Phase::Ended));
                    }
                    // After a node's restart, the client takes a deleted lease for a forgotten one, until the node
                    // confirms the lease. A deletion before that may have to be repeated. So with a quarantine, the
                    // model deletes the lease only when each node that has it has confirmed it.
                    let confirmed = |node: &Node| node.heard || node.entries[0].left == 0 || self.quarantine == 0;
                    if self.force && state.rest.forced == 0 && state.nodes[..self.nodes].iter().all(confirmed) {
                        also(&|next| next.rest.forced = client as u8 + 1);
                    }
                }
                Phase::Idle | Phase::Ended => {}
            }
        }
        for client in 0..2 {
            if matches!(state.clients[client].phase, Phase::Taking | Phase::Raising) {
                into.extend(self.decide(state, client));
            }
            for node in 0..self.nodes {
                self.serve(state, client, node, into);
                let late = state.nodes[node].sides[client].late;
                if late > 0 {
                    let mut next = *state;
                    next.nodes[node].sides[client].late = 0;
                    self.rejoin(&mut next, client, node, late);
                    into.push(next);
                }
            }
        }
    }

    fn check(&self, state: &State) -> Option<&'static str> {
        let both = self.believes(state, 0) && self.believes(state, 1);
        let restarted = state.rest.restarts < self.restarts;
        let (one, other) = (state.clients[0].place, state.clients[1].place);
        let beside = match self.claims {
            [Claim::Shared, Claim::Shared] => true,
            [Claim::Slots(of), Claim::Slots(many)] => of == many && one != other,
            _ => false,
        };
        if both && !beside && state.rest.forced == 0 && (self.nodes > 1 || !restarted) {
            return Some("two holders");
        }
        if self.is_forced(state) && !(restarted && self.forgets) {
            let left =
                state.nodes.iter().filter(|node| node.entries[usize::from(state.rest.forced - 1)].left > 0).count();
            if left >= self.quorum() {
                return Some("a lease that was deleted came back");
            }
        }
        state.wrong
    }
}
