//! A state of the search: what the node knows at one moment, what the clients know, and what only the search knows.
//!
//! TAKE is the request to take the lock (take.lua). LEAVE is the request of a waiter that leaves the line. A roll-back
//! is the request of a waiter that undoes a failed try, but stays in line. LEAVE and roll-backs send undo.lua. The
//! *list of members* is the key M. If an older version of redlock deletes the mark, the list stays without a mark.

use super::super::bits::{Field, Packable, packed, variants};

/// How many clients may wait in line.
pub(super) const WAITERS: usize = 3;
/// The index of the client that never waits, and that holds the lock from the start. After its release, the same index
/// stands for clients that ask once for the lock, and go away if they are refused.
pub(super) const OTHER: usize = WAITERS;
const CLIENTS: usize = WAITERS + 1;

variants! {
    Claim {
        Exclusive,
        /// An exclusive claim by an older version of redlock, which knows no other claims, and takes a mark for the
        /// token of another library.
        Older,
        Shared,
        /// One of two slots.
        OneOfTwo,
        /// The only slot.
        TheOnlyOne,
    }
}

variants! {
    Key {
        Free,
        /// The token of an exclusive lease.
        Token,
        /// The mark of shared leases, which are in the list of members.
        Shared,
        /// The mark of leases with the claim [`Claim::OneOfTwo`], which are in the list of members.
        Two,
        /// The mark of a lease with the claim [`Claim::TheOnlyOne`], which is in the list of members.
        One,
        /// A value that another library has written.
        Foreign,
    }
}

variants! {
    Life { Alive, Frozen, Dead }
}

variants! {
    Phase {
        New,
        /// The client wants the lock, and has no request under way.
        Waiting,
        Asked,
        /// The node has granted the client's TAKE, and the answer is under way.
        Granted,
        /// The node has refused the client's TAKE, and the answer is under way. The client stands in line.
        Refused,
        /// The node has refused the client's TAKE for good, and the answer is under way. The lock is in use with a
        /// claim of another shape, or a larger number of `--newest` has come.
        TurnedAway,
        RollBack,
        /// The client was interrupted: its TAKE is under way, and its LEAVE follows.
        AskedLeave,
        Leave,
        Holding,
        /// `release --force` has deleted the client's lease, and it does not know this yet.
        Ousted,
        /// The client has released the lock or has left the line, or it is dead and has no request under way.
        Done,
    }
}

variants! {
    /// A request that a client has sent over a connection that it has given up. The node may carry it out at any time.
    Late {
        Nothing,
        RollBack,
        /// A roll-back that names no ticket, because the client did not know its ticket yet.
        RollBackWithoutPlace,
        Leave,
        Take,
    }
}

variants! {
    /// A client's subscription to its channel, as the server sees it.
    Ear {
        None,
        Hears,
        /// The connection is dead, but the server still counts the client as a listener.
        HalfOpen,
    }
}

packed! {
    Client {
        claim: Claim = 3,
        /// The client's number of `--newest`; 0: none.
        number: u8 = 2,
        life: Life = 2,
        phase: Phase = 4,
        ear: Ear = 2,
        /// The message `go` has arrived, and the client has not read it yet.
        go: bool = 1,
        /// The message `head` has arrived, and the client has not read it yet.
        head: bool = 1,
        /// Ticks until the client sends TAKE. The timer runs only in the phase `Waiting`.
        timer: u8 = 3,
        /// The client is in the queue on the node.
        in_q: bool = 1,
        /// The client's ticket; 0: none. The smallest ticket is first in line. A client that is dropped from the queue
        /// keeps it.
        ticket: u8 = 2,
        /// The client knows its ticket.
        knows: bool = 1,
        /// The client's number in the order in which the waiters came, from 1; 0: the client does not stand in line.
        /// Only the search keeps this number, to check who overtakes whom.
        joined: u8 = 2,
        /// The client was frozen, cut off or dropped from the queue, or `release --force` deleted its lease. Other
        /// clients may overtake this client while this client is out of the queue. Only the search knows this.
        excused: bool = 1,
        /// The lock's key is the client's token, or the list of members contains the client's lease.
        listed: bool = 1,
        lease: u8 = 2,
        /// Which of the two slots the client's lease has. Without a meaning for other claims than `OneOfTwo`.
        place: bool = 1,
        reserved: bool = 1,
        /// The client has read `go`, and has read no answer to a TAKE since.
        called: bool = 1,
        /// The answer under way says that the client had been dropped from the queue, and that its TAKE has put it
        /// back.
        missed: bool = 1,
        /// How many ticks the client has been in the queue since the node carried out its last TAKE. Counted only with
        /// [`super::Without::Clocks`].
        unseen: u8 = 2,
        /// The client's lease comes from an earlier try, whose connection was cut, not from its present one.
        stale: bool = 1,
        /// TAKE and LEAVE name the client's earlier tries, so that the node undoes them. No answer has confirmed that
        /// yet.
        carries: bool = 1,
        late: Late = 3,
        again: bool = 1,
    }
}

packed! {
    /// What belongs to no single client: values of the node, and counts of the search.
    Rest {
        key: Key = 3,
        /// Ticks until the lock's key expires.
        left: u8 = 2,
        /// Ticks until the reservation expires; 0: the lock is not reserved.
        reservation: u8 = 2,
        /// Ticks until the queue expires; 0: the queue never expires, or has expired.
        queue: u8 = 3,
        /// The number in the register of `--newest` (the key NEWEST); 0: none.
        newest: u8 = 2,
        /// The largest number of `--newest` that has stood in line or was granted; 0: none. Only the search keeps it,
        /// to check the register.
        stood: u8 = 2,
        /// Ticks until the lock opens by itself; 0: it is open. Without clocks it stays closed until somebody opens it.
        closed: u8 = 2,
        /// For how many ticks in a row a live waiter could have had the lock.
        free: u8 = 4,
        /// From here on: how many more events of each kind may happen (see [`super::Bounds`]).
        kills: u8 = 2,
        freezes: u8 = 2,
        breaks: u8 = 2,
        losses: u8 = 2,
        interrupts: u8 = 2,
        passers_by: u8 = 2,
        foreign: u8 = 2,
        forces: u8 = 2,
        cuts: u8 = 2,
        lates: u8 = 2,
        refusals: u8 = 2,
        closes: u8 = 2,
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub(super) clients: [Client; CLIENTS],
    pub(super) rest: Rest,
}

impl Claim {
    /// The value of the lock's key while a lease with this claim holds the lock.
    pub(super) fn key(self) -> Key {
        match self {
            Claim::Exclusive | Claim::Older => Key::Token,
            Claim::Shared => Key::Shared,
            Claim::OneOfTwo => Key::Two,
            Claim::TheOnlyOne => Key::One,
        }
    }
}

impl Key {
    pub(super) fn is_mark(self) -> bool {
        matches!(self, Key::Shared | Key::Two | Key::One)
    }

    /// How many leases may exist at once while the lock's key has this value.
    pub(super) fn limit(self) -> usize {
        match self {
            Key::Shared => usize::MAX,
            Key::Two => 2,
            _ => 1,
        }
    }

    /// Whether the lock is in use with another shape than this claim's: the node then refuses the claim for good. There
    /// are three shapes: one of two slots; the only slot; all else (readers, writers, locks of other libraries).
    pub(super) fn is_other_shape(self, claim: Claim) -> bool {
        let slots = |key| {
            if matches!(key, Key::Two | Key::One) { key } else { Key::Free }
        };
        self != Key::Free && slots(self) != slots(claim.key())
    }
}

impl Client {
    /// Whether the client is alive, and waits for its turn, which a client that undoes a try does not.
    pub(super) fn lives(&self) -> bool {
        self.life == Life::Alive && matches!(self.phase, Phase::Waiting | Phase::Asked | Phase::Refused)
    }

    /// Whether the client is alive, and believes that it has a lease.
    pub(super) fn holds(&self) -> bool {
        self.phase == Phase::Holding && self.life == Life::Alive
    }

    /// Whether the clock must wait for this client before the next tick, because it has something to do at once, or the
    /// node has not carried out its request yet.
    pub(super) fn is_busy(&self) -> bool {
        match self.phase {
            Phase::Waiting => {
                self.life == Life::Alive && (self.timer == 0 || self.go || self.head || self.ear == Ear::None)
            }
            Phase::Asked | Phase::RollBack | Phase::AskedLeave | Phase::Leave => self.life != Life::Dead,
            Phase::Granted | Phase::Refused | Phase::TurnedAway => self.life == Life::Alive,
            Phase::New | Phase::Holding | Phase::Ousted | Phase::Done => false,
        }
    }

    /// Ends the client's wait or hold: it enters this phase (`Holding` or `Done`), and forgets its wait. Its lease,
    /// ticket and reservation stay in Redis.
    pub(super) fn end(&mut self, phase: Phase) {
        let &mut Client { claim, life, ear, in_q, ticket, listed, lease, place, reserved, unseen, joined, .. } = self;
        let &mut Client { number, late, again, .. } = self;
        let ear = if life == Life::Dead && ear == Ear::HalfOpen { ear } else { Ear::None };
        let joined = if life == Life::Dead { joined } else { 0 };
        let left = Client { listed, lease, place, reserved, in_q, ticket, joined, ..Client::default() };
        *self = Client { claim, number, life, phase, ear, unseen, late, again, ..left };
    }

    /// Whether the two may have the lock at the same time.
    pub(super) fn fits_beside(&self, other: &Client) -> bool {
        match (self.claim, other.claim) {
            (Claim::Shared, Claim::Shared) => true,
            (Claim::OneOfTwo, Claim::OneOfTwo) => self.place != other.place,
            _ => false,
        }
    }
}

impl Packable for State {
    type Words = [u64; CLIENTS + 1];

    fn pack(mut self) -> Self::Words {
        for client in self.clients.iter_mut().filter(|client| !client.listed) {
            client.lease = 0;
            client.place = false;
            client.stale = false;
        }
        self.rank(|client| &mut client.ticket, |client| client.in_q || client.knows || client.phase == Phase::Refused);
        self.rank(|client| &mut client.joined, |_| true);
        let mut words = [0; CLIENTS + 1];
        for (client, word) in self.clients.iter().zip(&mut words) {
            *word = client.word();
        }
        words[..WAITERS].sort_unstable();
        words[CLIENTS] = self.rest.word();
        words
    }

    fn unpack(words: &Self::Words) -> State {
        State { clients: std::array::from_fn(|index| Client::of(words[index])), rest: Rest::of(words[CLIENTS]) }
    }
}

impl State {
    /// Replaces the clients' numbers in `field` by 1, 2, 3 and so on, because only their order matters. `counts`: false
    /// if a client's number does not matter: 0 replaces it.
    fn rank(&mut self, field: fn(&mut Client) -> &mut u8, counts: fn(&Client) -> bool) {
        let mut clients = self.clients;
        let numbers = clients.each_mut().map(|client| if counts(client) { *field(client) } else { 0 });
        for (client, number) in self.clients.iter_mut().zip(numbers) {
            let before = numbers.iter().filter(|&&other| other > 0 && other < number).count();
            *field(client) = if number == 0 { 0 } else { before as u8 + 1 };
        }
    }

    pub(super) fn waiters(&self) -> impl Iterator<Item = &Client> {
        self.clients[..WAITERS].iter()
    }

    pub(super) fn reserved(&self) -> Option<usize> {
        self.clients.iter().position(|client| client.reserved)
    }

    /// The waiter with the smallest ticket in the queue; None: the queue is empty.
    pub(super) fn first(&self) -> Option<usize> {
        (0..WAITERS).filter(|&index| self.clients[index].in_q).min_by_key(|&index| self.clients[index].ticket)
    }

    /// Deletes the lock's key; the list of members stays.
    pub(super) fn delete_key(&mut self) {
        self.rest.key = Key::Free;
        self.rest.left = 0;
        self.clients.iter_mut().for_each(|client| client.listed &= client.claim.key().is_mark());
    }

    /// Deletes the list of members; the lock's key stays.
    pub(super) fn delete_list(&mut self) {
        self.clients.iter_mut().for_each(|client| client.listed &= !client.claim.key().is_mark());
    }

    pub(super) fn delete_reservation(&mut self) {
        self.rest.reservation = 0;
        self.clients.iter_mut().for_each(|client| client.reserved = false);
    }

    /// Whether client `me` holds the lock on the node: the lock's key is its token, or the mark of its claim, and the
    /// list of members contains its lease.
    pub(super) fn is_listed(&self, me: usize) -> bool {
        self.clients[me].listed && self.rest.key == self.clients[me].claim.key()
    }

    /// Counts them whether or not the lock's key is a mark.
    pub(super) fn members(&self) -> usize {
        self.clients.iter().filter(|client| client.listed && client.claim.key().is_mark()).count()
    }

    /// Whether a lease with this claim fits beside all leases that have not run out. Those that have take no room, even
    /// if the node has not deleted them yet.
    pub(super) fn has_room(&self, claim: Claim) -> bool {
        self.has_room_beside(claim, |client| client.lease > 0)
    }

    fn has_room_beside(&self, claim: Claim, lives: impl Fn(&Client) -> bool) -> bool {
        let live = |&index: &usize| self.is_listed(index) && lives(&self.clients[index]);
        let live = (0..CLIENTS).filter(live).count();
        let Rest { key, .. } = self.rest;
        key != Key::Foreign && (live == 0 || key.is_mark() && key == claim.key() && live < key.limit())
    }

    /// Whether some live waiter could have the lock now. The lock must be open. There must be room beside the leases
    /// for this waiter's claim, and for the claim of each waiter that came before it.
    pub(super) fn could_go_on(&self) -> bool {
        if self.rest.closed > 0 {
            return false;
        }
        let in_line = |client: &&Client| client.life != Life::Dead && (client.joined > 0 || client.knows);
        // The lease of a live client's earlier try takes no room, because the client's next request undoes it.
        let lives = |client: &Client| client.lease > 0 && !(client.stale && client.life == Life::Alive);
        let stuck = |client: &&Client| !self.has_room_beside(client.claim, lives);
        let in_the_way = self.waiters().filter(in_line).filter(stuck).map(|client| client.joined).min();
        let before = |client: &&Client| in_the_way.is_none_or(|joined| client.joined < joined);
        self.waiters().filter(in_line).filter(before).any(Client::lives)
    }
}
