//! Leases over nodes that restart and forget: every order of every step of two clients, breadth first.
//!
//! A client takes the lock, writes the fencing token back where a node is behind, renews, re-creates by the real
//! [`judge`], releases, is late, or stops forever. Requests and answers are lost or late, also behind a restart; the
//! clock may tick between any two steps. Times are kept relative to now, so nothing bounds how long all of it takes.
//! What is alike but for the order of the nodes counts once.
//!
//! What must hold:
//!
//! * two clients are never both within the validity of their leases (one node: as long as it has not restarted);
//! * each lease that is won has a larger fencing token than those won before;
//! * a node on which a later lease was granted is not given an earlier one again (one node), and a client that believes
//!   in its lease has not been overtaken (several);
//! * a lease that `release --force` has deleted on all nodes, none of which has restarted, has no quorum any more.

use super::bits::Bits;
use super::fencing::settle;
use super::recreate::{Backing, Judgement, NodeReport, Round, confirm, judge};
use super::search::Space;

const NODES: usize = 3;

/// A clause of the table (or of a script) that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Without {
    /// All of them are there.
    Nothing,
    /// A node in quarantine votes like another.
    Quarantine,
    /// Row 1: re-creation also when the node's deadline had passed.
    NotPassed,
    /// Row 1: *passed* is judged by the moment at which the answers are in; here, by that at which the round was sent.
    PassedByNow,
    /// Rows 1 and 3: re-creation before q others confirm also behind the quarantine.
    StillYoung,
    /// Row 3 and 4: q others need not confirm.
    ByOthers,
    /// Row 4: a node in quarantine that never confirmed is given the lease.
    NotWhileYoung,
    /// Row 5: on the same run of the node, the deadline not passed.
    RemovedOnPurpose,
    /// Row 5 for the rest of the lease.
    ForTheRestOfTheLease,
    /// The run in the request.
    RunInRequest,
    /// The script's look at the counter; the client looks at what came with *gone*.
    CounterInScript,
    /// What comes after the validity counts for nothing.
    InTime,
    /// Another's key voids what was known of the node.
    VoidByAnother,
    /// Another's key before the deadline had passed: ours was removed on purpose, for the rest of the lease.
    AnotherAfterRemoval,
    /// What is gone, and not in quarantine any more, voids it.
    VoidByGone,
    /// The fencing token is written back.
    WriteBack,
    /// With a confirmation comes the run of the node.
    RunOfConfirmation,
}

/// Where the first client has the lock to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Nowhere,
    Everywhere,
    /// On any number of nodes from a quorum on.
    Quorum,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) nodes: usize,
    /// Of the clients; 0: there is no such client.
    pub(super) ttl: [u8; 2],
    pub(super) quarantine: u8,
    pub(super) restarts: u8,
    /// Nodes forget everything when they restart.
    pub(super) forgets: bool,
    /// Re-creations that arrive behind the next round.
    pub(super) late: u8,
    /// How often each client may try to take the lock.
    pub(super) tries: [u8; 2],
    pub(super) force: bool,
    /// The first client has the lock to begin with, on all nodes or any quorum of them.
    pub(super) held: Held,
    /// Which clients renew.
    pub(super) renews: [bool; 2],
    /// Keys are deleted when a client gives up or releases, not only left to expire.
    pub(super) leaves: bool,
    pub(super) without: Without,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    #[default]
    Nothing,
    Take,
    Granted,
    Refused,
    Fence,
    Raised,
    Extend,
    Confirmed,
    Gone,
    GoneYoung,
    Another,
    Lost,
    Rejoin,
    Leave,
}

const KINDS: [Kind; 14] = [
    Kind::Nothing,
    Kind::Take,
    Kind::Granted,
    Kind::Refused,
    Kind::Fence,
    Kind::Raised,
    Kind::Extend,
    Kind::Confirmed,
    Kind::Gone,
    Kind::GoneYoung,
    Kind::Another,
    Kind::Lost,
    Kind::Rejoin,
    Kind::Leave,
];

/// What is between a client and a node: a request under way, or its answer.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    kind: Kind,
    run: u8,
    counter: u8,
}

/// What a client has with one node.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    /// What is left until the deadline d[i]; 0: passed, or none.
    left: u8,
    /// The run that confirmed, from 1; 0: none.
    run: u8,
    removed: bool,
    /// The deadline had not passed when the round was sent.
    fresh: bool,
    slot: Slot,
    /// A re-creation of an earlier round, still under way: the run that it names, from 1.
    late: u8,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// 0: free; 1, 2: a client's present lease; 3: an earlier one.
    holder: u8,
    expires: u8,
    counter: u8,
    /// From 1.
    run: u8,
    young: u8,
    forced: bool,
    /// The first client has heard from this run of the node.
    heard: bool,
    sides: [Side; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    #[default]
    Idle,
    Taking,
    Raising,
    Holding,
    Asking,
    Ended,
}

const PHASES: [Phase; 6] = [Phase::Idle, Phase::Taking, Phase::Raising, Phase::Holding, Phase::Asking, Phase::Ended];

#[derive(Clone, Copy, Debug, Default)]
struct Client {
    phase: Phase,
    /// Since the present requests were sent.
    age: u8,
    fence: u8,
    tries: u8,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    nodes: [Node; NODES],
    clients: [Client; 2],
    restarts: u8,
    late: u8,
    /// The largest fencing token that was won.
    won: u8,
    /// How many leases were asked for: the clock that seeds the counters.
    asked: u8,
    /// 0: none; 1, 2: the client whose lease is being deleted.
    forced: u8,
    /// What went wrong on the way here. Not part of the state.
    wrong: Option<&'static str>,
}

type Packed = [u64; NODES + 1];

fn pack(state: &State, nodes: usize) -> Packed {
    let mut packed = [0; NODES + 1];
    for (node, column) in state.nodes.iter().zip(&mut packed) {
        let mut bits = Bits(0, 0);
        for (value, width) in [(node.holder, 2), (node.expires, 3), (node.counter, 3), (node.run, 2), (node.young, 3)] {
            bits.put(value, width);
        }
        bits.put(node.forced.into(), 1);
        bits.put(node.heard.into(), 1);
        for side in &node.sides {
            let slot = side.slot;
            for (value, width) in [(side.left, 3), (side.run, 2), (side.removed.into(), 1), (side.fresh.into(), 1)] {
                bits.put(value, width);
            }
            for (value, width) in [(slot.kind as u8, 4), (slot.run, 2), (slot.counter, 3), (side.late, 2)] {
                bits.put(value, width);
            }
        }
        *column = bits.0;
    }
    packed[..nodes].sort_unstable();
    let mut bits = Bits(0, 0);
    for client in &state.clients {
        for (value, width) in [(client.phase as u8, 3), (client.age, 3), (client.fence, 3), (client.tries, 2)] {
            bits.put(value, width);
        }
    }
    for (value, width) in [(state.restarts, 2), (state.late, 2), (state.won, 3), (state.asked, 3), (state.forced, 2)] {
        bits.put(value, width);
    }
    packed[NODES] = bits.0;
    packed
}

fn unpack(packed: &Packed) -> State {
    let mut state = State::default();
    for (node, column) in state.nodes.iter_mut().zip(packed) {
        let mut bits = Bits(*column, 0);
        let [holder, expires, counter, run, young, forced, heard] = [2, 3, 3, 2, 3, 1, 1].map(|width| bits.get(width));
        let (forced, heard) = (forced == 1, heard == 1);
        *node = Node { holder, expires, counter, run, young, forced, heard, ..Node::default() };
        for side in &mut node.sides {
            let [left, run, removed, fresh, kind, of, counter, late] =
                [3, 2, 1, 1, 4, 2, 3, 2].map(|width| bits.get(width));
            let slot = Slot { kind: KINDS[usize::from(kind)], run: of, counter };
            *side = Side { left, run, removed: removed == 1, fresh: fresh == 1, slot, late };
        }
    }
    let mut bits = Bits(packed[NODES], 0);
    for client in &mut state.clients {
        let [phase, age, fence, tries] = [3, 3, 3, 2].map(|width| bits.get(width));
        *client = Client { phase: PHASES[usize::from(phase)], age, fence, tries };
    }
    [state.restarts, state.late, state.won, state.asked, state.forced] = [2, 2, 3, 3, 2].map(|width| bits.get(width));
    state
}

/// Now, on the clock of the real functions.
const NOW: i8 = 64;

fn at(left: u8) -> i8 {
    NOW + i8::try_from(left).unwrap_or(0)
}

impl Bounds {
    fn quorum(&self) -> usize {
        self.nodes / 2 + 1
    }

    fn is(&self, without: Without) -> bool {
        self.without == without
    }

    fn starts(&self) -> Vec<State> {
        let mut state = State { restarts: self.restarts, late: self.late, ..State::default() };
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
        state.won = 1;
        state.asked = 1;
        let mut starts = Vec::new();
        for (index, node) in state.nodes[..self.nodes].iter_mut().enumerate() {
            node.holder = 1;
            node.expires = self.ttl[0];
            node.counter = 1;
            node.sides[0].left = self.ttl[0];
            node.sides[0].run = 1;
            node.heard = true;
            let enough = if self.held == Held::Quorum { self.quorum() } else { self.nodes };
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

    /// Whether all nodes have heard that a lease is to be deleted.
    fn is_forced(&self, state: &State) -> bool {
        matches!(state.forced, 1 | 2) && state.nodes[..self.nodes].iter().all(|node| node.forced)
    }

    /// What a node that confirms is good for: what is left of the ttl since the request.
    fn good_for(&self, state: &State, client: usize) -> u8 {
        self.ttl[client].saturating_sub(state.clients[client].age)
    }

    fn send(&self, state: &mut State, client: usize, kind: Kind) {
        state.clients[client].age = 0;
        for node in &mut state.nodes[..self.nodes] {
            node.sides[client].slot = Slot { kind, ..Slot::default() };
        }
    }

    /// Nothing more is to be done with the lease but to delete its keys.
    fn end(&self, state: &mut State, client: usize, phase: Phase) {
        self.send(state, client, if self.leaves { Kind::Leave } else { Kind::Nothing });
        let me = &mut state.clients[client];
        me.phase = phase;
        me.fence = 0;
        for node in &mut state.nodes {
            let side = &mut node.sides[client];
            *side = Side { slot: side.slot, late: side.late, ..Side::default() };
        }
        if state.forced == client as u8 + 1 {
            state.forced = 3;
        }
    }

    fn give_up(&self, state: &mut State, client: usize) {
        let phase = if state.clients[client].tries > 0 { Phase::Idle } else { Phase::Ended };
        self.end(state, client, phase);
    }

    fn tick(&self, state: &mut State) {
        if matches!(state.forced, 1 | 2) && !self.is_forced(state) {
            state.forced = 3; // it goes to all nodes at once, or has to be repeated
        }
        for node in &mut state.nodes {
            node.young = node.young.saturating_sub(1);
            node.expires = node.expires.saturating_sub(1);
            if node.expires == 0 {
                node.holder = 0;
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
        state.restarts -= 1;
        node.heard = false;
        node.run += 1;
        node.young = self.quarantine;
        if self.forgets {
            let Node { run, young, sides, .. } = *node;
            *node = Node { run, young, sides, ..Node::default() };
        }
    }

    fn take(&self, state: &mut State, client: usize) {
        state.asked += 1;
        state.clients[client].tries -= 1;
        state.clients[client].phase = Phase::Taking;
        // Who asks later has a later clock; until it is won, this stands for the fencing token.
        state.clients[client].fence = state.asked;
        for node in &mut state.nodes {
            if node.holder == client as u8 + 1 {
                node.holder = 3;
            }
            node.sides[client].late = 0;
        }
        self.send(state, client, Kind::Take);
    }

    /// A node takes up the request of a client, and its answer arrives or is lost.
    fn serve(&self, state: &State, client: usize, index: usize, into: &mut Vec<State>) {
        let name = client as u8 + 1;
        let mut next = *state;
        let node = &mut next.nodes[index];
        let (free, ours) = (node.holder == 0, node.holder == name);
        let mut slot = Slot { run: node.run, ..Slot::default() };
        match node.sides[client].slot.kind {
            Kind::Take => {
                let votes = node.young == 0 || self.is(Without::Quarantine);
                slot.kind = Kind::Refused;
                if free && votes {
                    node.holder = name;
                    node.expires = self.ttl[client];
                    node.counter = (node.counter + 1).max(state.clients[client].fence);
                    slot = Slot { kind: Kind::Granted, counter: node.counter, ..slot };
                }
            }
            Kind::Fence => {
                let fence = state.clients[client].fence;
                slot.kind = Kind::Refused;
                if ours && node.counter <= fence {
                    node.counter = fence;
                    slot = Slot { kind: Kind::Raised, counter: fence, ..slot };
                }
            }
            Kind::Extend if ours => {
                node.expires = node.expires.max(self.ttl[client]);
                slot.kind = Kind::Confirmed;
            }
            Kind::Extend if free => {
                slot.kind = if node.young > 0 { Kind::GoneYoung } else { Kind::Gone };
                if self.is(Without::CounterInScript) {
                    slot.counter = node.counter;
                }
            }
            Kind::Extend => slot.kind = Kind::Another,
            Kind::Rejoin => {
                let run = node.sides[client].slot.run;
                node.sides[client].slot = Slot::default();
                let done = self.rejoin(&mut next, client, index, run);
                into.push(next);
                if done {
                    let run = Some(next.nodes[index].run);
                    let until = at(self.good_for(&next, client));
                    let mut backing = backing(&next, client, self.nodes);
                    if self.is(Without::InTime) {
                        backing[index].until = Some(until);
                        backing[index].run = run;
                    } else if !confirm(&mut backing, index, until, run, NOW) {
                        next.nodes[index].sides[client].slot.kind =
                            if self.leaves { Kind::Leave } else { Kind::Nothing };
                    }
                    self.take_over(&mut next, client, &backing);
                    into.push(next);
                }
                return;
            }
            Kind::Leave => {
                if ours {
                    node.holder = 0;
                    node.expires = 0;
                }
                node.sides[client].slot = Slot::default();
                into.push(next);
                return;
            }
            _ => return,
        }
        let answered = slot.kind;
        node.sides[client].slot =
            if answered == Kind::Refused { Slot { kind: answered, ..Slot::default() } } else { slot };
        into.push(next);
        if matches!(answered, Kind::Granted | Kind::Raised | Kind::Confirmed) {
            let kind = if answered == Kind::Confirmed { Kind::Lost } else { Kind::Refused };
            next.nodes[index].sides[client].slot = Slot { kind, ..Slot::default() };
            into.push(next);
        }
    }

    /// rejoin.lua. Whether the node confirms.
    fn rejoin(&self, state: &mut State, client: usize, index: usize, run: u8) -> bool {
        let fence = state.clients[client].fence;
        let node = &mut state.nodes[index];
        let name = client as u8 + 1;
        if fence == 0 || node.run != run && !self.is(Without::RunInRequest) {
            return false;
        }
        if node.holder == 0 {
            if self.nodes == 1 && node.counter > fence {
                if !self.is(Without::CounterInScript) {
                    self.end(state, client, Phase::Ended);
                    return false;
                }
                state.wrong = Some("a lease came back behind a later one");
            }
            node.holder = name;
            node.counter = node.counter.max(fence);
        }
        if node.holder != name {
            return false;
        }
        node.expires = node.expires.max(self.ttl[client]);
        true
    }

    /// Takes over what the real functions have made of a client's nodes.
    fn take_over(&self, state: &mut State, client: usize, backing: &[Backing<i8, u8>]) {
        for (node, backing) in state.nodes.iter_mut().zip(backing) {
            let side = &mut node.sides[client];
            side.left = backing.until.map_or(0, |until| u8::try_from(until - NOW).unwrap_or(0));
            if !self.is(Without::RunOfConfirmation) || side.run == 0 {
                side.run = backing.run.unwrap_or(0);
            }
            side.removed = backing.removed;
        }
        if self.nodes > 1 && state.forced == 0 && self.valid(state, client) && state.clients[client].fence < state.won {
            state.wrong = Some("a client goes on past a later lease");
        }
    }

    /// Enough nodes have granted the lease: it is won, or its fencing token is written back first.
    fn decide(&self, state: &State, client: usize) -> Option<State> {
        let mut next = *state;
        let slots = || state.nodes[..self.nodes].iter().map(|node| node.sides[client].slot).enumerate();
        let granted = |kind| matches!(kind, Kind::Granted | Kind::Raised);
        let grants: Vec<(usize, u64)> =
            slots().filter(|(_, slot)| granted(slot.kind)).map(|(node, slot)| (node, slot.counter.into())).collect();
        if grants.len() < self.quorum() || self.good_for(state, client) == 0 {
            return None;
        }
        let settlement = settle(&grants, self.nodes);
        let fence = u8::try_from(settlement.token).unwrap_or(0);
        next.clients[client].fence = fence;
        if settlement.needed > 0 && !self.is(Without::WriteBack) {
            if state.clients[client].phase == Phase::Raising {
                return None;
            }
            next.clients[client].phase = Phase::Raising;
            for node in settlement.behind {
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
        // A single node forgets what its clients' clocks may not have passed yet.
        if fence <= next.won && (self.nodes > 1 || state.restarts == self.restarts) {
            next.wrong = Some("a fencing token that is not larger than an earlier one");
        }
        next.won = next.won.max(fence);
        Some(next)
    }

    fn renew(&self, state: &mut State, client: usize, keep_late: bool) {
        state.clients[client].phase = Phase::Asking;
        for node in &mut state.nodes[..self.nodes] {
            let side = &mut node.sides[client];
            side.fresh = side.left > 0;
            if keep_late && side.slot.kind == Kind::Rejoin && side.late == 0 && state.late > 0 {
                side.late = side.slot.run;
                state.late -= 1;
            }
        }
        self.send(state, client, Kind::Extend);
    }

    /// What has come is all that comes in time.
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
                    Kind::Gone => NodeReport::Gone { run, young: false },
                    Kind::GoneYoung => NodeReport::Gone { run, young: true },
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
        let not_ours = |said: &&NodeReport<i8, u8>| matches!(said, NodeReport::Gone { .. } | NodeReport::Another);
        let refused = said.iter().filter(not_ours).count();
        if state.restarts == self.restarts && refused > self.nodes - self.quorum() && !judgement.lost {
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
            state.nodes[node].sides[client].slot = Slot { kind: Kind::Rejoin, run: run.unwrap_or(0), counter: 0 };
        }
    }
}

/// What a client knows of its nodes, as the real functions have it.
fn backing(state: &State, client: usize, nodes: usize) -> Vec<Backing<i8, u8>> {
    let known = |node: &Node| {
        let side = node.sides[client];
        // Passed since the round was sent: that is now, at the latest.
        let until = (side.left > 0 || side.fresh).then(|| at(side.left));
        Backing { until, run: (side.run > 0).then_some(side.run), removed: side.removed }
    };
    state.nodes[..nodes].iter().map(known).collect()
}

/// What the table says of a node that has forgotten the lease.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Row {
    Nothing,
    /// Create it again while the lease is valid.
    AtOnce,
    /// Create it again when q others confirm.
    ByOthers,
}

/// The table once more, from its description, each clause of which can be left out.
fn judge_without(
    without: Without,
    nodes: &mut [Backing<i8, u8>],
    said: &[NodeReport<i8, u8>],
    round: Round<i8>,
) -> Judgement<u8> {
    let is = |clause| without == clause;
    let (alone, quorum) = (nodes.len() == 1, nodes.len() / 2 + 1);
    let valid = |nodes: &[Backing<i8, u8>]| {
        nodes.iter().filter(|node| node.until.is_some_and(|until| until > round.now)).count() >= quorum
    };
    if !valid(nodes) && !is(Without::InTime) {
        return Judgement { recreate: Vec::new(), lost: true };
    }
    let mut rows = Vec::new();
    for (index, (node, said)) in nodes.iter_mut().zip(said).enumerate() {
        match *said {
            NodeReport::Silent => {}
            NodeReport::Confirmed { until, run } => {
                node.until = Some(until);
                node.run = run;
            }
            NodeReport::Another | NodeReport::Revoked if is(Without::VoidByAnother) => {}
            NodeReport::Another => {
                let passed = node.until.is_none_or(|until| until <= round.sent);
                node.removed |= !passed && !is(Without::AnotherAfterRemoval);
                node.until = None;
            }
            NodeReport::Revoked => node.until = None,
            NodeReport::Gone { run, young } => {
                let passed_at = |moment| node.until.is_none_or(|until| until <= moment);
                let passed = passed_at(if is(Without::PassedByNow) { round.sent } else { round.now });
                let same = run == node.run;
                let row = match (node.run.is_some() && !same, young || alone || is(Without::StillYoung)) {
                    (true, true) if passed && !is(Without::NotPassed) => Row::Nothing,
                    (true, true) => Row::AtOnce,
                    (true, false) => Row::ByOthers,
                    (false, _) if same && !passed_at(round.sent) && !is(Without::RemovedOnPurpose) => {
                        node.removed = !is(Without::ForTheRestOfTheLease);
                        Row::Nothing
                    }
                    (false, _) if young && !is(Without::NotWhileYoung) => Row::Nothing,
                    (false, _) => Row::ByOthers,
                };
                if row != Row::AtOnce && !is(Without::VoidByGone) {
                    node.until = None;
                }
                if !node.removed {
                    rows.push((index, run, row));
                }
            }
        }
    }
    let lost = !valid(nodes) && !is(Without::InTime);
    let confirmed = said.iter().filter(|said| matches!(said, NodeReport::Confirmed { .. })).count();
    let by_others = confirmed >= quorum || is(Without::ByOthers);
    let revoked = said.contains(&NodeReport::Revoked);
    rows.retain(|&(_, _, row)| row == Row::AtOnce || row == Row::ByOthers && by_others);
    rows.sort_by_key(|&(_, _, row)| row == Row::ByOthers);
    let recreate =
        if lost || revoked { Vec::new() } else { rows.into_iter().map(|(node, run, _)| (node, run)).collect() };
    Judgement { recreate, lost }
}

impl Space for Bounds {
    type State = Packed;

    fn starts(&self) -> Vec<Packed> {
        self.starts().iter().map(|state| pack(state, self.nodes)).collect()
    }

    fn next(&self, packed: &Packed, into: &mut Vec<Result<Packed, &'static str>>) {
        let state = unpack(packed);
        let mut states = Vec::with_capacity(32);
        self.steps(&state, &mut states);
        into.extend(states.iter().map(|next| match self.check(next) {
            Some(wrong) => Err(wrong),
            None => Ok(pack(next, self.nodes)),
        }));
    }

    fn hash(&self, packed: &Packed) -> u64 {
        let mixed =
            packed.iter().fold(0, |hash: u64, word| (hash.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        mixed ^ mixed >> 32
    }

    fn show(&self, packed: &Packed) -> String {
        let state = unpack(packed);
        let node = |node: &Node| {
            let holder = ["-", "A", "B", "x"][usize::from(node.holder)];
            let side = |side: &Side| {
                let Slot { kind, run, .. } = side.slot;
                let more = format!("{}{}", if side.removed { "!" } else { "" }, if side.late > 0 { "~" } else { "" });
                format!("{}@{}{more} {kind:?}({run})", side.left, side.run)
            };
            let sides = node.sides.each_ref().map(side).join(" | ");
            format!("[{holder}{} c{} run {} young {}: {sides}]", node.expires, node.counter, node.run, node.young)
        };
        let client = |client: &Client| format!("{:?}({}) f{}", client.phase, client.age, client.fence);
        let nodes: Vec<String> = state.nodes[..self.nodes].iter().map(node).collect();
        format!("{} {}", state.clients.each_ref().map(client).join("  "), nodes.join(" "))
    }
}

impl Bounds {
    /// Everything that can happen next.
    fn steps(&self, state: &State, into: &mut Vec<State>) {
        let mut also = |change: &dyn Fn(&mut State)| {
            let mut next = *state;
            change(&mut next);
            into.push(next);
        };
        also(&|next| self.tick(next));
        for node in 0..self.nodes {
            if state.restarts > 0 && state.forced == 0 {
                also(&|next| self.restart(next, node));
            }
            if matches!(state.forced, 1 | 2) && !state.nodes[node].forced {
                also(&|next| {
                    let node = &mut next.nodes[node];
                    node.forced = true;
                    if node.holder == state.forced {
                        node.holder = 0;
                        node.expires = 0;
                    }
                });
            }
        }
        for client in 0..2 {
            match state.clients[client].phase {
                Phase::Idle if state.clients[client].tries > 0 => also(&|next| self.take(next, client)),
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
                    if state.late > 0 && state.nodes.iter().any(unserved) {
                        also(&|next| self.renew(next, client, true));
                    }
                    if self.leaves {
                        also(&|next| self.end(next, client, Phase::Ended));
                    }
                    // One that meets a restart may have to be repeated.
                    let told = |node: &Node| node.heard || node.holder != 1 || self.quarantine == 0;
                    if self.force && state.forced == 0 && state.nodes[..self.nodes].iter().all(told) {
                        also(&|next| next.forced = client as u8 + 1);
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
        let restarted = state.restarts < self.restarts;
        if both && state.forced == 0 && (self.nodes > 1 || !restarted) {
            return Some("two holders");
        }
        if self.is_forced(state) && !(restarted && self.forgets) {
            let left = state.nodes.iter().filter(|node| node.holder == state.forced).count();
            if left >= self.quorum() {
                return Some("a lease that was deleted came back");
            }
        }
        state.wrong
    }
}
