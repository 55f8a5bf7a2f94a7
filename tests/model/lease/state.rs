//! The state of the model at one moment: what the nodes know, what the clients know, and what the search counts.
//!
//! A node's *run* is the time between two restarts of the node. A *place* is the number of a slot of the lock, from 0.
//! (The type [`Slot`] is no slot of the lock: it holds a request or an answer.)

use super::super::bits::{Field, Packable, packed, variants};

pub(super) const NODES: usize = 5;

variants! {
    Kind {
        Nothing,
        Take,
        Granted,
        Refused,
        Fence,
        Raised,
        Extend,
        Confirmed,
        Gone,
        GoneQuarantined,
        Another,
        Lost,
        Rejoin,
        Leave,
    }
}

variants! {
    Phase { Idle, Taking, Raising, Holding, Asking, Ended }
}

packed! {
    /// The request or the answer that is under way between a client and a node. `run`: the number of the node's run, in
    /// an answer or in a re-creation; 0: none. `counter`: the counter of fencing tokens in an answer; 0: none.
    Slot {
        kind: Kind = 4,
        run: u8 = 2,
        counter: u8 = 3,
    }
}

packed! {
    /// What a client knows of one node, and what is under way between the two.
    Side {
        /// Ticks until the deadline dᵢ; 0: it has passed, or there is none.
        left: u8 = 3,
        /// The node's run (from 1) in which it last granted or confirmed the lease; 0: the client knows of none.
        run: u8 = 2,
        removed: bool = 1,
        /// The deadline dᵢ had not passed when the client sent the present round of renewals.
        fresh: bool = 1,
        slot: Slot,
        /// The node's run (from 1) that a late request names: one to re-create the lease that is still under way when
        /// the client has sent new renewals. 0: no request is late.
        late: u8 = 2,
    }
}

packed! {
    Entry {
        /// Ticks until the lease expires; 0: there is no lease.
        left: u8 = 3,
        place: u8 = 1,
    }
}

/// The index in `Node::entries` of a lease that a client got by an earlier try, under another token.
pub(super) const EARLIER: usize = 2;

packed! {
    Node {
        /// The lease of the first client, of the second client, and (at `EARLIER`) one that a client got by an earlier
        /// try.
        entries: [Entry; 3],
        /// The client (0 or 1) whose lease is `entries[EARLIER]`.
        earlier: u8 = 1,
        /// Of fencing tokens. Readers, writers and the first slot use the first counter, the second slot the second.
        counters: [u8; 2] = 3,
        /// The number of the node's run: 1 plus the number of restarts; 0: the node does not exist.
        run: u8 = 2,
        quarantined: u8 = 3,
        forced: bool = 1,
        /// The first client knows that the node's present run has granted or confirmed its lease.
        heard: bool = 1,
        sides: [Side; 2],
    }
}

packed! {
    Client {
        phase: Phase = 3,
        /// Ticks since the client last sent TAKE, a renewal or a re-creation; at most the ttl.
        age: u8 = 3,
        fence: u8 = 3,
        tries: u8 = 2,
        /// The lock's slot that the client asks for or has: 0 or 1. For a client without a slot: 0.
        place: u8 = 1,
    }
}

packed! {
    Rest {
        restarts: u8 = 2,
        late: u8 = 2,
        /// The largest fencing token of all writers so far. If the clients want slots: of the first slot.
        won: u8 = 3,
        /// The largest fencing token of all readers so far. If the clients want slots: of the second slot.
        won_besides: u8 = 3,
        /// How many tries to take the lock have begun. The clients use this number as their clock.
        asked: u8 = 3,
        /// How far `release --force` has come. 0: not begun. 1, 2: the nodes delete, or have deleted, the first or the
        /// second client's lease. 3: the clock ticked before all nodes had deleted the lease, or the client ended the
        /// lease.
        forced: u8 = 2,
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::model) struct State {
    pub(super) nodes: [Node; NODES],
    pub(super) clients: [Client; 2],
    pub(super) rest: Rest,
    /// The fault of the step that led to this state. A search ends at the first fault, so this field is not packed.
    pub(super) wrong: Option<&'static str>,
}

impl Packable for State {
    type Words = [u64; NODES + 1];

    fn pack(self) -> Self::Words {
        let mut words = [0; NODES + 1];
        for (mut node, word) in self.nodes.into_iter().take_while(|node| node.run > 0).zip(&mut words) {
            for entry in node.entries.iter_mut().filter(|entry| entry.left == 0) {
                entry.place = 0;
            }
            if node.entries[EARLIER].left == 0 {
                node.earlier = 0;
            }
            *word = node.word();
        }
        // States that differ only in the order of the nodes count once, so the words are sorted. The word of a node
        // that does not exist is 0, and comes last.
        words[..NODES].sort_unstable_by(|one, other| other.cmp(one));
        words[NODES] = self.clients.word() | self.rest.word() << 24;
        words
    }

    fn unpack(words: &Self::Words) -> State {
        State {
            nodes: std::array::from_fn(|node| if words[node] == 0 { Node::default() } else { Node::of(words[node]) }),
            clients: Field::of(words[NODES]),
            rest: Field::of(words[NODES] >> 24),
            wrong: None,
        }
    }
}
