//! All that is known at one moment: by the nodes, by their clients, and by the search.

use super::super::bits::{Field, Packable, packed, variants};

pub(super) const NODES: usize = 3;
/// How many clients may wait in line.
pub(super) const WAITERS: usize = 3;
/// The client that has the lock to begin with.
pub(super) const HOLDER: usize = WAITERS;

/// The key's content when the lock is free, and reserved for no waiter.
pub(super) const FREE: u8 = 0;

/// The token of a client's latest try.
pub(super) const fn token(client: usize) -> u8 {
    1 + 2 * client as u8
}

/// The token of any earlier try of a waiter.
pub(super) const fn earlier(waiter: usize) -> u8 {
    2 + 2 * waiter as u8
}

/// The key of a free lock that is reserved for this waiter.
pub(super) const fn reserved(waiter: usize) -> u8 {
    8 + waiter as u8
}

variants! {
    /// The request or the answer on its way between a waiter and a node. A node handles the requests of a connection in
    /// the order of sending.
    Request {
        Nothing,
        /// A try. This variant and those down to `Release` are requests on the way to the node.
        Take,
        /// A try, then UNDO. UNDO undoes the try, and keeps the place in line.
        TakeUndo,
        Undo,
        /// A try, then STEP OUT. The waiter has got the lock, and leaves the line by STEP OUT.
        TakeStepOut,
        StepOut,
        /// A try, then LEAVE. LEAVE takes back all that the waiter has.
        TakeLeave,
        Leave,
        Release,
        /// The node has granted the try. This variant and those below are answers on the way to the waiter.
        Granted,
        Held,
        Reserved,
        /// A larger number of `--newest` has come.
        Superseded,
        Quarantined,
        /// The waiter learns that no answer will come: the node cannot be reached, or the connection is gone.
        Fault,
    }
}

variants! {
    /// UNDO on an old connection, which the client no longer uses. The node may carry out this UNDO at any time.
    Late { Nothing, OfLatest, OfEarlier }
}

packed! {
    /// The state between a waiter and one node.
    Side {
        request: Request = 4,
        /// `by` is the token that has the lock, or [`FREE`]. `rank` is the number of waiters before this waiter. Both
        /// are set if the answer refuses a try. Otherwise both are 0.
        by: u8 = 3,
        rank: u8 = 2,
        late: Late = 2,
        /// The node counts the waiter as a listener.
        hears: bool = 1,
        /// Messages that the waiter has not read.
        go: bool = 1,
        head: bool = 1,
        in_line: bool = 1,
        /// The waiter has read "go" since its last look.
        called: bool = 1,
        /// The node has not confirmed UNDO: the next TAKE or LEAVE undoes the earlier tries, too.
        carries: bool = 1,
    }
}

packed! {
    Node {
        /// [`FREE`], a token, or [`reserved`].
        key: u8 = 4,
        /// Ticks until the key expires.
        left: u8 = 2,
        /// Ticks until the node has a vote.
        quarantined: u8 = 2,
        /// No client can reach the node.
        away: bool = 1,
        /// The first holder's release is under way.
        releases: bool = 1,
        /// For [`super::Without::OneTicket`]: the second waiter is in line before the first.
        turned: bool = 1,
        /// The register of `--newest`.
        newest: u8 = 2,
        sides: [Side; WAITERS],
    }
}

variants! {
    Life { Alive, Frozen, Dead }
}

variants! {
    /// The phases of a waiter.
    Phase {
        /// The waiter has not come yet.
        New,
        /// The waiter waits until q nodes, or all that can be reached, count it as a listener.
        Listening,
        Waiting,
        /// A try is under way.
        Trying,
        RollingBack,
        Holding,
        /// The waiter gives back all that it has.
        Leaving,
        Done,
    }
}

variants! {
    /// Whether the waiter's place is promised. `Yes`: while a client had the lock on q nodes, the waiter stood in line
    /// on these nodes, and listened. Only the search knows this.
    Stands {
        Not,
        Yes,
        /// The waiter has met a failure: its place is no longer promised.
        Excused,
    }
}

/// When a waiter looks: now, after a random pause, or never. n + [`PAUSE`] means after n ticks and a random pause.
pub(super) const NOW: u8 = 0;
pub(super) const PAUSE: u8 = 1;
pub(super) const NEVER: u8 = 7;

packed! {
    Waiter {
        phase: Phase = 3,
        life: Life = 2,
        /// When the waiter looks: [`NOW`], [`PAUSE`], n + [`PAUSE`], or [`NEVER`].
        look: u8 = 3,
        /// Ticks since the requests of the try were sent.
        age: u8 = 2,
        stands: Stands = 2,
    }
}

packed! {
    /// The first holder, the largest number of `--newest`, and how many failures of each kind may still come.
    Rest {
        /// The first holder has the lock.
        held: bool = 1,
        /// The largest number that a quorum has granted, and that no node has forgotten. Only the search knows this.
        granted: u8 = 2,
        kills: u8 = 2,
        freezes: u8 = 2,
        interrupts: u8 = 2,
        restarts: u8 = 2,
        outages: u8 = 2,
        cuts: u8 = 2,
        lates: u8 = 2,
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub(super) nodes: [Node; NODES],
    pub(super) waiters: [Waiter; WAITERS],
    pub(super) rest: Rest,
}

impl Request {
    /// Whether this is a request that the node will take up, and not an answer.
    pub(super) fn is_under_way(self) -> bool {
        use Request::{Leave, Release, StepOut, Take, TakeLeave, TakeStepOut, TakeUndo, Undo};
        matches!(self, Take | TakeUndo | Undo | TakeStepOut | StepOut | TakeLeave | Leave | Release)
    }

    pub(super) fn is_answer(self) -> bool {
        use Request::{Fault, Granted, Held, Quarantined, Reserved, Superseded};
        matches!(self, Granted | Held | Reserved | Superseded | Quarantined | Fault)
    }
}

impl Side {
    pub(super) fn ask(&mut self, request: Request) {
        (self.request, self.by, self.rank) = (request, 0, 0);
    }
}

impl Node {
    pub(super) fn is_free(&self) -> bool {
        self.key == FREE || self.reserved().is_some()
    }

    pub(super) fn reserved(&self) -> Option<usize> {
        (0..WAITERS).find(|&waiter| self.key == reserved(waiter))
    }

    pub(super) fn delete_key(&mut self) {
        (self.key, self.left) = (FREE, 0);
    }

    /// The waiters in line, the first one first.
    pub(super) fn line(&self) -> impl Iterator<Item = usize> + use<> {
        let order = if self.turned { [1, 0, 2] } else { [0, 1, 2] };
        let sides = self.sides;
        order.into_iter().filter(move |&waiter: &usize| sides[waiter].in_line)
    }

    pub(super) fn first(&self) -> Option<usize> {
        self.line().next()
    }

    /// Whether the waiter has no lease, no place in line and no reservation on this node.
    pub(super) fn knows_nothing_of(&self, waiter: usize) -> bool {
        ![token(waiter), earlier(waiter), reserved(waiter)].contains(&self.key) && !self.sides[waiter].in_line
    }
}

impl Waiter {
    /// Whether the waiter has come, wants the lock, and is neither dead nor frozen.
    pub(super) fn wants(&self) -> bool {
        self.life == Life::Alive
            && matches!(self.phase, Phase::Listening | Phase::Waiting | Phase::Trying | Phase::RollingBack)
    }

    pub(super) fn holds(&self) -> bool {
        self.life == Life::Alive && self.phase == Phase::Holding
    }

    pub(super) fn is_pausing(&self) -> bool {
        self.life == Life::Alive && self.phase == Phase::Waiting && self.look == PAUSE
    }

    /// Notes a failure: the waiter's place is no longer promised. Changes nothing for a waiter that has not come, or is
    /// done.
    pub(super) fn excuse(&mut self) {
        if !matches!(self.phase, Phase::New | Phase::Done) {
            self.stands = Stands::Excused;
        }
    }

    /// Ends the waiter's wait, and begins this phase.
    pub(super) fn end(&mut self, phase: Phase) {
        let stands = if self.stands == Stands::Excused { Stands::Excused } else { Stands::Not };
        *self = Waiter { phase, life: self.life, stands, ..Waiter::default() };
    }
}

impl Packable for State {
    type Words = [u64; NODES + 1];

    /// The nodes are alike: their order does not matter.
    fn pack(self) -> Self::Words {
        let mut words = [0; NODES + 1];
        for (node, word) in self.nodes.iter().zip(&mut words) {
            *word = node.word();
        }
        words[..NODES].sort_unstable();
        words[NODES] = self.waiters.word() | self.rest.word() << 36;
        words
    }

    fn unpack(words: &Self::Words) -> State {
        State {
            nodes: std::array::from_fn(|node| Node::of(words[node])),
            waiters: Field::of(words[NODES]),
            rest: Rest::of(words[NODES] >> 36),
        }
    }
}

impl State {
    pub(super) fn count(&self, is: impl Fn(&Node) -> bool) -> usize {
        self.nodes.iter().filter(|node| is(node)).count()
    }

    /// Changes the state between a waiter and each node that can be reached. Drops all requests to other nodes, and all
    /// answers from other nodes.
    pub(super) fn each_side(&mut self, me: usize, change: impl Fn(&mut Side)) {
        for node in &mut self.nodes {
            let side = &mut node.sides[me];
            side.ask(if node.away { Request::Nothing } else { side.request });
            if !node.away {
                change(side);
            }
        }
    }

    /// Whether a node or a waiter has work to do. Work takes less time than a pause: no tick passes before all work is
    /// done.
    pub(super) fn is_busy(&self) -> bool {
        let nodes = || self.nodes.iter().filter(|node| !node.away);
        nodes().any(|node| node.releases)
            || self.waiters.iter().enumerate().any(|(me, waiter)| {
                let sides = || nodes().map(|node| &node.sides[me]);
                let alive = waiter.life == Life::Alive;
                let acts = match waiter.phase {
                    Phase::Waiting => waiter.look == NOW || sides().any(|side| side.go || side.head || !side.hears),
                    Phase::Listening | Phase::Trying | Phase::RollingBack | Phase::Leaving => true,
                    Phase::New | Phase::Holding | Phase::Done => false,
                };
                alive && acts || waiter.life != Life::Dead && sides().any(|side| side.request.is_under_way())
            })
    }

    /// Whether a waiter makes a random pause.
    pub(super) fn pauses(&self) -> bool {
        self.waiters.iter().any(Waiter::is_pausing)
    }

    /// Whether the client believes that it has the lock.
    pub(super) fn holds(&self, client: usize) -> bool {
        if client == HOLDER { self.rest.held } else { self.waiters[client].holds() }
    }

    /// Ends the lease of a client. No quorum backs the lease, and the client has stopped its job in time.
    pub(super) fn lose(&mut self, client: usize) {
        if client == HOLDER {
            self.rest.held = false;
        } else {
            self.waiters[client].excuse();
            self.waiters[client].end(Phase::Done);
        }
    }

    pub(super) fn is_held(&self) -> bool {
        (0..=HOLDER).any(|client| self.holds(client))
    }
}
