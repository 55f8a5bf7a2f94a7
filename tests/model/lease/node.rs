//! Models of the Lua scripts that clients send to nodes. A node runs a whole script in one step.

use super::super::recreate::confirm;
use super::state::{Client, EARLIER, Entry, Kind, Node, Phase, Slot, State};
use super::{Bounds, Claim, NOW, Without, at, backing};

impl Bounds {
    fn owner(node: &Node, entry: usize) -> usize {
        if entry == EARLIER { usize::from(node.earlier) } else { entry }
    }

    /// Whether a lease of the client, for the slot `place`, fits beside all other leases on the node.
    fn fits(&self, node: &Node, client: usize, place: u8) -> bool {
        (0..node.entries.len()).filter(|&entry| entry != client && node.entries[entry].left > 0).all(|entry| {
            let other = self.claims[Self::owner(node, entry)];
            match (self.claims[client], other) {
                (Claim::Shared, Claim::Shared) => true,
                (Claim::Slots(mine), Claim::Slots(of)) if mine == of => node.entries[entry].place != place,
                (Claim::Exclusive, _) | (_, Claim::Exclusive) => false,
                _ => self.is(Without::Shape) && node.entries[entry].place != place,
            }
        })
    }

    /// Whether the node has the client's lease. The slots are not compared, because a lease's token asks for one slot
    /// only.
    fn is_mine(&self, state: &State, client: usize, index: usize) -> bool {
        state.nodes[index].entries[client].left > 0
    }

    /// The index in `Node::counters` of the counter for a lease of the client, for the slot `place`.
    fn counter(&self, place: u8, client: usize) -> usize {
        if matches!(self.claims[client], Claim::Slots(_)) { place.into() } else { 0 }
    }

    /// The node runs take.lua. Returns its counter if it grants the lease, or has it already.
    fn grant(&self, state: &mut State, client: usize, index: usize) -> Option<u8> {
        let Client { place, fence: clock, .. } = state.clients[client];
        let node = &mut state.nodes[index];
        if node.entries[client].left > 0 {
            return Some(node.counters[self.counter(place, client)]);
        }
        if !self.fits(node, client, place) || node.quarantined > 0 && !self.is(Without::Quarantine) {
            return None;
        }
        node.entries[client] = Entry { left: self.ttl[client], place };
        let counter = &mut node.counters[self.counter(place, client)];
        *counter = match self.claims[client] {
            Claim::Shared if *counter == 0 && (self.nodes == 1 || self.is(Without::NodeTellsNothing)) => clock,
            Claim::Shared => *counter,
            _ => (*counter + 1).max(clock),
        };
        Some(*counter)
    }

    /// The node runs fence.lua, which raises its counter to the client's fencing token. Returns false if the node does
    /// not have the lease. If the counter is above the fencing token, returns true for a reader, and false for a writer
    /// or a slot.
    fn raise(&self, state: &mut State, client: usize, index: usize) -> bool {
        let Client { fence, place, .. } = state.clients[client];
        let ours = self.is_mine(state, client, index);
        let counter = &mut state.nodes[index].counters[self.counter(place, client)];
        let raises = ours && (*counter <= fence || self.claims[client] == Claim::Shared);
        if raises {
            *counter = fence.max(*counter);
        }
        raises
    }

    /// The node runs extend.lua, and answers.
    fn extend(&self, state: &mut State, client: usize, index: usize) -> Kind {
        let ours = self.is_mine(state, client, index);
        let node = &mut state.nodes[index];
        if ours {
            node.entries[client].left = node.entries[client].left.max(self.ttl[client]);
            return Kind::Confirmed;
        }
        node.entries[client] = Entry::default();
        if !self.fits(node, client, state.clients[client].place) {
            return Kind::Another;
        }
        if node.quarantined > 0 { Kind::GoneQuarantined } else { Kind::Gone }
    }

    /// The node executes the client's request, if one is under way. Adds the possible next states: the answer comes, or
    /// is lost.
    pub(super) fn serve(&self, state: &State, client: usize, index: usize, into: &mut Vec<State>) {
        let mut next = *state;
        let run = state.nodes[index].run;
        let mut slot = Slot { run, ..Slot::default() };
        match state.nodes[index].sides[client].slot.kind {
            Kind::Take => {
                slot.kind = Kind::Refused;
                if let Some(counter) = self.grant(&mut next, client, index) {
                    slot = Slot { kind: Kind::Granted, counter, ..slot };
                }
            }
            Kind::Fence => {
                slot.kind = Kind::Refused;
                if self.raise(&mut next, client, index) {
                    slot = Slot { kind: Kind::Raised, counter: state.clients[client].fence, ..slot };
                }
            }
            Kind::Extend => {
                slot.kind = self.extend(&mut next, client, index);
                if matches!(slot.kind, Kind::Gone | Kind::GoneQuarantined) && self.is(Without::CounterInScript) {
                    slot.counter = state.nodes[index].counters[self.counter(state.clients[client].place, client)];
                }
            }
            Kind::Rejoin => {
                let run = state.nodes[index].sides[client].slot.run;
                next.nodes[index].sides[client].slot = Slot::default();
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
                next.nodes[index].entries[client] = Entry::default();
                next.nodes[index].sides[client].slot = Slot::default();
                into.push(next);
                return;
            }
            _ => return,
        }
        let answered = slot.kind;
        next.nodes[index].sides[client].slot =
            if answered == Kind::Refused { Slot { kind: answered, ..Slot::default() } } else { slot };
        into.push(next);
        if matches!(answered, Kind::Granted | Kind::Raised | Kind::Confirmed) {
            let kind = if answered == Kind::Confirmed { Kind::Lost } else { Kind::Refused };
            next.nodes[index].sides[client].slot = Slot { kind, ..Slot::default() };
            into.push(next);
        }
    }

    /// The node runs recreate.lua. Returns true if it confirms the lease. `run`: the node's run that the request names.
    pub(super) fn rejoin(&self, state: &mut State, client: usize, index: usize, run: u8) -> bool {
        let Client { fence, place, .. } = state.clients[client];
        if fence == 0 || state.nodes[index].run != run && !self.is(Without::RunInRequest) {
            return false;
        }
        let counter = self.counter(place, client);
        if !self.is_mine(state, client, index) {
            state.nodes[index].entries[client] = Entry::default();
            if !self.fits(&state.nodes[index], client, place) {
                return false;
            }
            if self.nodes == 1 && state.nodes[index].counters[counter] > fence {
                if !self.is(Without::CounterInScript) {
                    self.end(state, client, Phase::Ended);
                    return false;
                }
                state.wrong = Some("a lease came back behind a later one");
            }
            let node = &mut state.nodes[index];
            node.entries[client].place = place;
            node.counters[counter] = node.counters[counter].max(fence);
        }
        let entry = &mut state.nodes[index].entries[client];
        entry.left = entry.left.max(self.ttl[client]);
        true
    }
}
