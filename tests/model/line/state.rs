//! One state of the search: what the nodes, their clients, and the search itself know at one moment.

use super::super::bits::{Field, Packable, packed, variants};

pub(super) const NODES: usize = 3;
/// The clients 0, 1 and 2 may wait in line.
pub(super) const WAITERS: usize = 3;
/// The first holder: the client that holds the lock at the start of a search.
pub(super) const HOLDER: usize = WAITERS;

/// The value of [`Node::key`] if the lock is free, and reserved for no waiter.
pub(super) const FREE: u8 = 0;

/// The token of a waiter's latest try, or of the first holder's lease.
pub(super) const fn token(client: usize) -> u8 {
    1 + 2 * client as u8
}

/// One token for all tries of a waiter before the latest try.
pub(super) const fn earlier(waiter: usize) -> u8 {
    2 + 2 * waiter as u8
}

/// The value of [`Node::key`] if the lock is free, and reserved for this waiter.
pub(super) const fn reserved(waiter: usize) -> u8 {
    8 + waiter as u8
}

variants! {
    /// What is on its way between a waiter and a node: nothing, one or two requests, or an answer. The node takes up
    /// two requests in the order of sending.
    Request {
        Nothing,
        /// TAKE: the node's part of a try. The variants from `Take` to `Release` are requests to the node.
        Take,
        /// TAKE, and behind it UNDO, which undoes the try, and keeps the waiter's place in line.
        TakeUndo,
        Undo,
        /// TAKE, and behind it STEP OUT, by which a waiter that has got the lock leaves the line.
        TakeStepOut,
        StepOut,
        /// TAKE, and behind it LEAVE, which undoes all that the waiter has done on the node.
        TakeLeave,
        Leave,
        Release,
        /// The node has granted the try. The variants from `Granted` to `Fault` are answers to the waiter.
        Granted,
        Held,
        Reserved,
        /// The node knows a larger number of `--newest` than the waiter's.
        Superseded,
        Quarantined,
        /// The waiter learns that no answer will come: the node cannot be reached, or the connection is lost.
        Fault,
    }
}

variants! {
    /// Whether an UNDO is late: the waiter sent it on a connection that it no longer uses. The node may take it up at
    /// any time. It undoes the waiter's latest try (`OfLatest`) or an earlier one (`OfEarlier`).
    Late { Nothing, OfLatest, OfEarlier }
}

packed! {
    /// What is under way between one waiter and one node, and what the two know of each other.
    Side {
        request: Request = 4,
        /// If the answer is `Held`, `Reserved` or `Quarantined`: the token that holds the lock, or [`FREE`]. Otherwise
        /// 0.
        by: u8 = 3,
        /// With the same answers: how many waiters stand in line before this one. Otherwise 0.
        rank: u8 = 2,
        late: Late = 2,
        /// The node counts the waiter as a listener.
        hears: bool = 1,
        /// The node has sent the message `go`, which the waiter has not read.
        go: bool = 1,
        /// The node has sent the message `head`, which the waiter has not read.
        head: bool = 1,
        in_line: bool = 1,
        /// The waiter has read this node's `go` after its latest try began.
        called: bool = 1,
        /// The node has not confirmed an UNDO of this waiter, whose next TAKE or LEAVE there therefore undoes its
        /// earlier tries.
        carries: bool = 1,
    }
}

packed! {
    Node {
        /// The lock on this node: free ([`FREE`]), free but reserved for a waiter ([`reserved`]), or taken by a lease,
        /// named by its token ([`token`], [`earlier`]).
        key: u8 = 4,
        /// Ticks until the lease or the reservation in `key` expires.
        left: u8 = 2,
        /// Ticks until the node's quarantine ends; 0: it is not in quarantine.
        quarantined: u8 = 2,
        /// No client can reach the node.
        away: bool = 1,
        /// The first holder's release is on its way to the node.
        releases: bool = 1,
        /// Waiter 1 stands in line before waiter 0. True only in searches that leave out [`super::Without::OneTicket`].
        turned: bool = 1,
        /// The largest number of `--newest` that the node knows; 0: none.
        newest: u8 = 2,
        sides: [Side; WAITERS],
    }
}

variants! {
    Life { Alive, Frozen, Dead }
}

variants! {
    Phase {
        New,
        /// The waiter subscribes, until q nodes, or all nodes in reach, count it as a listener.
        Listening,
        Waiting,
        /// The waiter has sent the TAKEs of a try, and has not yet decided by the answers.
        Trying,
        RollingBack,
        Holding,
        /// The waiter has sent LEAVE, or has released the lock.
        Leaving,
        Done,
    }
}

variants! {
    /// Whether the waiter's place in line is promised: it is then a fault if one with a later ticket gets the lock
    /// first. Only the search knows of promises.
    Stands {
        Not,
        /// The place is promised: on q nodes that one holder had, the waiter stood in line, and listened.
        Yes,
        /// The place is no longer promised: a failure has hit the waiter, or a node.
        Excused,
    }
}

/// Values of [`Waiter::look`]. The waiter looks (sends TAKE) at once, after a random pause, or only when a node sends a
/// message or confirms a subscription. n + [`PAUSE`]: the waiter looks after n ticks and a random pause.
pub(super) const NOW: u8 = 0;
pub(super) const PAUSE: u8 = 1;
pub(super) const NEVER: u8 = 7;

packed! {
    Waiter {
        phase: Phase = 3,
        life: Life = 2,
        /// When the waiter looks: [`NOW`], [`PAUSE`], n + [`PAUSE`], or [`NEVER`].
        look: u8 = 3,
        /// Ticks since the waiter sent the TAKEs of its current try. The count ends at [`super::TTL`].
        age: u8 = 2,
        stands: Stands = 2,
    }
}

packed! {
    /// Whether the first holder holds the lock, the largest granted number of `--newest`, and how many failures of each
    /// kind may still come.
    Rest {
        /// The first holder believes that it holds the lock.
        held: bool = 1,
        /// The largest number of `--newest` with which a client has got the lock. 0 after a node has forgotten its own
        /// largest number. Only the search knows it.
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
    /// True for a request to the node; false for an answer to the waiter, and for `Nothing`.
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

    /// From first to last.
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

    /// A failure has hit this waiter or a node, so the waiter's place in line is no longer promised. Does nothing for a
    /// waiter that has not come, or is done.
    pub(super) fn excuse(&mut self) {
        if !matches!(self.phase, Phase::New | Phase::Done) {
            self.stands = Stands::Excused;
        }
    }

    /// Puts the waiter into a phase in which it no longer waits for the lock: `Holding`, `Leaving` or `Done`.
    pub(super) fn end(&mut self, phase: Phase) {
        let stands = if self.stands == Stands::Excused { Stands::Excused } else { Stands::Not };
        *self = Waiter { phase, life: self.life, stands, ..Waiter::default() };
    }
}

impl Packable for State {
    type Words = [u64; NODES + 1];

    /// Sorts the nodes, because states that differ only in their order count as one.
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

    /// Calls `change` for the [`Side`] of waiter `me` on each node in reach. On the others, drops the waiter's request
    /// or answer.
    pub(super) fn each_side(&mut self, me: usize, change: impl Fn(&mut Side)) {
        for node in &mut self.nodes {
            let side = &mut node.sides[me];
            side.ask(if node.away { Request::Nothing } else { side.request });
            if !node.away {
                change(side);
            }
        }
    }

    /// Whether a waiter, or a node in reach, has work to do. No tick passes before all work is done. Unless
    /// `quick_pauses` is set, no random pause ends before all work is done.
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

    pub(super) fn pauses(&self) -> bool {
        self.waiters.iter().any(Waiter::is_pausing)
    }

    /// Whether the client (a waiter, or [`HOLDER`]) believes that it holds the lock.
    pub(super) fn holds(&self, client: usize) -> bool {
        if client == HOLDER { self.rest.held } else { self.waiters[client].holds() }
    }

    /// Ends the client's lease, because fewer than q nodes back it. The client has stopped its job in time.
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
