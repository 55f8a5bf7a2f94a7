//! All that is known at one moment: by the nodes, by the clients, and by the search.

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
    /// A request under way between a client and a node, or the answer.
    Slot {
        kind: Kind = 4,
        run: u8 = 2,
        counter: u8 = 3,
    }
}

packed! {
    /// What a client knows of one node, and what is under way between the client and this node.
    Side {
        /// Ticks until the deadline dᵢ; 0: the deadline has passed, or there is none.
        left: u8 = 3,
        /// The run of the node that confirmed the lease, from 1; 0: none.
        run: u8 = 2,
        removed: bool = 1,
        /// The deadline had not passed when the round was sent.
        fresh: bool = 1,
        slot: Slot,
        /// The run (from 1) that a late re-creation names; 0: there is none. A late re-creation is of an earlier round,
        /// and is still under way.
        late: u8 = 2,
    }
}

packed! {
    /// A lease, as a node has it.
    Entry {
        /// Ticks until the lease expires; 0: there is no lease.
        left: u8 = 3,
        place: u8 = 1,
    }
}

/// The index of the entry for a lease of an earlier try.
pub(super) const EARLIER: usize = 2;

packed! {
    Node {
        /// The present lease of each client, and a lease of an earlier try.
        entries: [Entry; 3],
        /// The client that has the earlier lease.
        earlier: u8 = 1,
        /// Readers and writers use the first counter. With slots, each place has a counter.
        counters: [u8; 2] = 3,
        /// The number of the node's run, from 1; 0: the node does not exist.
        run: u8 = 2,
        quarantined: u8 = 3,
        forced: bool = 1,
        /// This run of the node has confirmed the lease of the first client.
        heard: bool = 1,
        sides: [Side; 2],
    }
}

packed! {
    Client {
        phase: Phase = 3,
        /// Ticks since the present requests were sent.
        age: u8 = 3,
        fence: u8 = 3,
        tries: u8 = 2,
        /// The place (the slot of the lock) that the client asks for, or has.
        place: u8 = 1,
    }
}

packed! {
    Rest {
        restarts: u8 = 2,
        late: u8 = 2,
        /// The largest fencing token of a writer; with slots, the largest at the first place.
        won: u8 = 3,
        /// The largest fencing token of a reader; with slots, the largest at the second place.
        won_besides: u8 = 3,
        /// How many leases were asked for. This number is the clients' clock, which seeds the counters.
        asked: u8 = 3,
        /// 0: no deletion yet; 1, 2: the lease of the first or second client is being deleted; 3: the deletion is over.
        forced: u8 = 2,
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::model) struct State {
    pub(super) nodes: [Node; NODES],
    pub(super) clients: [Client; 2],
    pub(super) rest: Rest,
    /// The fault that was found on the way here. This field is not packed, so states are compared without it.
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
        // The word of a node that does not exist is 0, and stays behind the others.
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
