//! All that is known at one moment: by the node, by its clients, and by the search.

use super::super::bits::{Field, Packable, packed, variants};

/// How many clients may wait in line.
pub(super) const WAITERS: usize = 3;
/// The index of the client that does not wait: it has the lock from the start, and may come by again.
pub(super) const OTHER: usize = WAITERS;
const CLIENTS: usize = WAITERS + 1;

variants! {
    Claim {
        Exclusive,
        /// An exclusive claim by an older version of redlock. The older version knows no other claim, and takes a mark
        /// for a stranger's token.
        Older,
        Shared,
        /// One of two slots.
        OneOfTwo,
        /// The only slot.
        TheOnlyOne,
    }
}

variants! {
    /// The value of the lock's key.
    Key {
        Free,
        /// The token of an exclusive lease.
        Token,
        /// `Shared`, `Two` and `One` are marks: the leases are in a list beside the mark.
        Shared,
        Two,
        One,
        /// The value of another library.
        Foreign,
    }
}

variants! {
    Life { Alive, Frozen, Dead }
}

variants! {
    Phase {
        /// The client has not come yet.
        New,
        /// The client wants the lock, and awaits no answer.
        Waiting,
        /// The client's request to take the lock is under way.
        Asked,
        /// The answer is under way.
        Granted,
        Refused,
        /// Refused for good: the lock is in use with another claim, or a larger number has come.
        TurnedAway,
        /// A try has failed, and the request that undoes the try is under way.
        RollBack,
        /// The client was interrupted: its TAKE is under way, and its LEAVE follows the TAKE.
        AskedLeave,
        Leave,
        Holding,
        /// The client's lease was deleted by `--force`, and the client does not know.
        Ousted,
        /// The client has released the lock, or has left the line. Or it is dead, and has nothing under way.
        Done,
    }
}

variants! {
    /// A request over a connection that the client has given up: the server carries out the request at any time.
    Late {
        Nothing,
        RollBack,
        /// A roll-back that names no ticket: the client had not been told its ticket yet.
        RollBackWithoutPlace,
        Leave,
        Take,
    }
}

variants! {
    /// A subscription, as the server sees it.
    Ear {
        None,
        Hears,
        /// The connection is dead, and the server does not know.
        HalfOpen,
    }
}

packed! {
    Client {
        claim: Claim = 3,
        /// The number of `--newest`; 0: none.
        number: u8 = 2,
        life: Life = 2,
        phase: Phase = 4,
        ear: Ear = 2,
        /// Messages that the client has not read.
        go: bool = 1,
        head: bool = 1,
        /// Ticks until the client looks, counted only in the phase `Waiting`.
        timer: u8 = 3,
        /// The client is in the queue.
        in_q: bool = 1,
        /// The client's place in the queue, past or present, from 1; 0: none.
        ticket: u8 = 2,
        /// The client has been told its ticket.
        knows: bool = 1,
        /// The client's place in the order in which the waiters came, from 1; 0: not in line. Not known to the program.
        joined: u8 = 2,
        /// The client may have missed its turn: it was frozen, cut off or dropped from the queue, or `--force` took its
        /// lease. Not known to the program.
        excused: bool = 1,
        /// The client's token is in the lock's key, or the client's lease is in the list beside a mark.
        listed: bool = 1,
        /// Ticks until the client's lease runs out.
        lease: u8 = 2,
        /// The slot of the client's lease, if the lease has one.
        place: bool = 1,
        /// The lock is reserved for the client.
        reserved: bool = 1,
        /// The client has read "go" since its last look.
        called: bool = 1,
        /// The answer under way says that the client had been dropped from the queue.
        missed: bool = 1,
        /// Ticks in the queue since the client's last look; counted only with [`super::Without::Clocks`].
        unseen: u8 = 2,
        /// The client's lease comes from an earlier try, which was cut off.
        stale: bool = 1,
        /// The client's requests name earlier tries: the node has not confirmed that these tries are undone.
        carries: bool = 1,
        late: Late = 3,
        /// The client was done, and has come again.
        again: bool = 1,
    }
}

packed! {
    /// The state of the node, and counts of the search. From `kills` on, each field says how many such events may still
    /// come.
    Rest {
        key: Key = 3,
        /// Ticks until the key expires.
        left: u8 = 2,
        /// Ticks until the reservation expires.
        reservation: u8 = 2,
        /// Ticks until the queue expires; 0: the queue does not expire.
        queue: u8 = 3,
        /// The register of `--newest`.
        newest: u8 = 2,
        /// The largest number that stood in line or was granted. Not known to the program.
        stood: u8 = 2,
        /// How many ticks in a row a live waiter could have had the lock.
        free: u8 = 4,
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
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub(super) clients: [Client; CLIENTS],
    pub(super) rest: Rest,
}

impl Claim {
    /// The key's content while leases of this claim are there.
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

    /// How many leases there may be at once under this key.
    pub(super) fn limit(self) -> usize {
        match self {
            Key::Shared => usize::MAX,
            Key::Two => 2,
            _ => 1,
        }
    }

    /// Whether the leases and this claim are of different shapes. There are three shapes: one of two slots, the only
    /// slot, and the rest (readers, writers, locks of other libraries).
    pub(super) fn is_other_shape(self, claim: Claim) -> bool {
        let slots = |key| {
            if matches!(key, Key::Two | Key::One) { key } else { Key::Free }
        };
        self != Key::Free && slots(self) != slots(claim.key())
    }
}

impl Client {
    /// Whether the client runs, and waits for its turn. A client that undoes a try does not wait.
    pub(super) fn lives(&self) -> bool {
        self.life == Life::Alive && matches!(self.phase, Phase::Waiting | Phase::Asked | Phase::Refused)
    }

    /// Whether the client believes that it has a lease.
    pub(super) fn holds(&self) -> bool {
        self.phase == Phase::Holding && self.life == Life::Alive
    }

    /// Whether the next tick must wait: the client has something to do, or the server has not executed its request yet.
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

    /// Ends the client's wait or hold. Anything that the client has left in Redis stays.
    pub(super) fn end(&mut self, phase: Phase) {
        let &mut Client { claim, life, ear, in_q, ticket, listed, lease, place, reserved, unseen, joined, .. } = self;
        let &mut Client { number, late, again, .. } = self;
        let ear = if life == Life::Dead && ear == Ear::HalfOpen { ear } else { Ear::None };
        let joined = if life == Life::Dead { joined } else { 0 };
        let left = Client { listed, lease, place, reserved, in_q, ticket, joined, ..Client::default() };
        *self = Client { claim, number, life, phase, ear, unseen, late, again, ..left };
    }

    /// Whether both clients may have the lock at the same time.
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
    /// Renumbers this field from 1, without a gap: only the order of the numbers matters.
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

    /// The first in the queue.
    pub(super) fn first(&self) -> Option<usize> {
        (0..WAITERS).filter(|&index| self.clients[index].in_q).min_by_key(|&index| self.clients[index].ticket)
    }

    /// Deletes the key; the list of members stays.
    pub(super) fn delete_key(&mut self) {
        self.rest.key = Key::Free;
        self.rest.left = 0;
        self.clients.iter_mut().for_each(|client| client.listed &= client.claim.key().is_mark());
    }

    /// Deletes the list of the leases beside a mark.
    pub(super) fn delete_list(&mut self) {
        self.clients.iter_mut().for_each(|client| client.listed &= !client.claim.key().is_mark());
    }

    pub(super) fn delete_reservation(&mut self) {
        self.rest.reservation = 0;
        self.clients.iter_mut().for_each(|client| client.reserved = false);
    }

    /// Whether the lock's key says that this client has the lock.
    pub(super) fn is_listed(&self, me: usize) -> bool {
        self.clients[me].listed && self.rest.key == self.clients[me].claim.key()
    }

    /// How many leases are listed beside a mark.
    pub(super) fn members(&self) -> usize {
        self.clients.iter().filter(|client| client.listed && client.claim.key().is_mark()).count()
    }

    /// Whether a lease with this claim fits beside all leases that have not run out. A lease that has run out does not
    /// count, even if the node has not noticed yet.
    pub(super) fn has_room(&self, claim: Claim) -> bool {
        self.has_room_beside(claim, |client| client.lease > 0)
    }

    fn has_room_beside(&self, claim: Claim, lives: impl Fn(&Client) -> bool) -> bool {
        let live = |&index: &usize| self.is_listed(index) && lives(&self.clients[index]);
        let live = (0..CLIENTS).filter(live).count();
        let Rest { key, .. } = self.rest;
        key != Key::Foreign && (live == 0 || key.is_mark() && key == claim.key() && live < key.limit())
    }

    /// Whether a live waiter could have the lock now: the waiter fits beside the leases, and all waiters in front of it
    /// fit, too.
    pub(super) fn could_go_on(&self) -> bool {
        let in_line = |client: &&Client| client.life != Life::Dead && (client.joined > 0 || client.knows);
        // A lease from an earlier try of a live client does not count.
        let lives = |client: &Client| client.lease > 0 && !(client.stale && client.life == Life::Alive);
        let stuck = |client: &&Client| !self.has_room_beside(client.claim, lives);
        let in_the_way = self.waiters().filter(in_line).filter(stuck).map(|client| client.joined).min();
        let before = |client: &&Client| in_the_way.is_none_or(|joined| client.joined < joined);
        self.waiters().filter(in_line).filter(before).any(Client::lives)
    }
}
