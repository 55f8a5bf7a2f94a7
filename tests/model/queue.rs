//! Waiting in line on one node: every order of every step of three waiters and of those who hold the lock, breadth first.
//!
//! Waiters subscribe, queue, look, are called, take, hold, release, are interrupted, freeze, thaw and die; their
//! subscriptions break, with or without the server's knowledge, and answers are lost. The scripts are atomic, as they are
//! on the server. A tick is half a second. A step that takes less (a request, a message, a look that is due) happens
//! before the next tick, in any order among its like; only what is frozen or dead is not waited for. What is alike but for
//! the names of the waiters counts once.
//!
//! What must hold:
//!
//! * at most one client believes that it has the lock;
//! * no wake-up is lost: calls alone, with no look by the clock, leave no free lock with a live waiter in line behind;
//! * with looks by the clock, no lock is free for longer than [`Bounds::most_free`] ticks while a live waiter is in line,
//!   whatever dies, freezes or is lost;
//! * first come, first served: the lock goes past no waiter that is in line, or that is alive, hears, and has not missed
//!   its call by having been frozen or cut off; and it goes to no other than it is reserved for;
//! * a waiter that has left has left no lock, no place and no reservation behind.

use super::search::{Bits, Space, search};

const WAITERS: usize = 3;

/// How long a lease lasts, in ticks.
const TTL: u8 = 3;
/// How long the lock is reserved for a waiter that was called: 1000 ms.
const RESERVED: u8 = 2;
/// The first in line looks by itself: 400 ms.
const FIRST_LOOKS: u8 = 1;
/// The others: (r + 1) seconds.
const OTHERS_LOOK: u8 = 2;
/// A try is repeated after an answer was lost.
const AFTER_FAILURE: u8 = 1;
/// Without looks by the clock.
const NEVER: u8 = 7;
/// For [`Without::Clocks`]: a waiter that has not looked for so long is taken for dead.
const UNSEEN: u8 = 3;

/// A clause of the scripts or of the waiter that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    /// All of them are there.
    Nothing,
    /// tell(): the new first in line is told that it is.
    Tell,
    /// A release calls the next.
    ReleasePasses,
    /// A waiter that leaves calls the next, if the lock is free.
    LeavePasses,
    /// A waiter that leaves gives up what is reserved for it.
    LeaveReservation,
    /// A waiter that leaves gives up its place.
    LeavePlace,
    /// A waiter that leaves undoes a grant only if it was its own.
    LeaveCompares,
    /// PUBLISH says how many listen: a waiter that does not is passed over.
    Count,
    /// A reservation runs out.
    ReservationEnds,
    /// A reservation holds off all others.
    Reservation,
    /// A client that does not queue respects the line.
    Line,
    /// A waiter that was dropped comes back in its old place.
    OldTicket,
    /// No waiter is dropped because it has not looked for a while.
    Clocks,
    /// A waiter subscribes before it queues.
    SubscribedFirst,
    /// A waiter looks when its subscription works again.
    LookWhenListening,
    /// The first in line, and whoever meets a reservation, looks when it runs out.
    LookAtExpiry,
    /// The others look when the lease runs out.
    OthersAtExpiry,
    /// The first in line looks more often than the others.
    FirstLooks,
    /// What is rolled back keeps its place.
    RollBackKeepsPlace,
    /// Each look keeps the queue from being forgotten, not only that of the first.
    EachLookKeepsQueue,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Waiters that are in line from the start, alive and subscribed.
    in_line: u8,
    /// Waiters that were in line and are dead, before all others.
    dead: u8,
    /// Waiters look by the clock, and time passes; or there are calls alone.
    clocks: bool,
    /// For how many ticks the lock may be free while a live waiter is in line.
    most_free: u8,
    /// In how many ticks a queue that is not looked after is forgotten; 0: not at all.
    forgotten: u8,
    /// How often each of these may happen: a waiter or the holder dies,
    kills: u8,
    /// a waiter freezes,
    freezes: u8,
    /// a subscription breaks,
    breaks: u8,
    /// an answer is lost,
    losses: u8,
    /// a waiter is interrupted,
    interrupts: u8,
    /// a client comes that takes the lock or leaves it,
    passers_by: u8,
    /// another library takes the lock as soon as it is free, and frees it without a call.
    foreign: u8,
    without: Without,
}

macro_rules! variants {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(u8)]
        enum $name { #[default] $($(#[$about])* $variant),* }

        impl $name {
            const ALL: &'static [$name] = &[$($name::$variant),*];
        }
    };
}

variants! {
    Life { Alive, Frozen, Dead }
}

variants! {
    /// What a waiter does.
    Phase {
        /// It has not come yet.
        New,
        /// It is in line, as far as it knows.
        Waiting,
        /// Its request to take the lock is under way.
        Asked,
        /// The answer is.
        Granted,
        Refused,
        /// An answer was lost, and what undoes the try is under way.
        RollBack,
        /// Interrupted with a request to take the lock under way, what undoes it behind it.
        AskedLeave,
        Leave,
        Holding,
        /// It has released or left, or is dead and has nothing under way.
        Done,
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

variants! {
    Owner { None, Waiter, Other, Foreign }
}

variants! {
    /// A client that holds the lock without having been in line.
    Other { None, Alive, Dead }
}

#[derive(Clone, Copy, Debug, Default)]
struct Waiter {
    life: Life,
    phase: Phase,
    ear: Ear,
    /// Messages that it has not read.
    go: bool,
    head: bool,
    /// Ticks until it looks; what the answer brings while that is under way.
    timer: u8,
    /// It is in the queue.
    in_q: bool,
    /// Its place in the queue, past or present, from 1; 0: none.
    ticket: u8,
    /// It has been told its ticket.
    knows: bool,
    /// The order in which they came, from 1; 0: not in line. Not known to the program.
    joined: u8,
    /// It was frozen or cut off, and may have missed its call. Not known to the program.
    excused: bool,
    /// The lock's key is its own.
    holds: bool,
    /// The lock is reserved for it.
    reserved: bool,
    /// It has read "go" since it looked the last time.
    called: bool,
    /// The answer says that it had been dropped from the queue.
    missed: bool,
    /// Ticks since it was in touch, for [`Without::Clocks`].
    unseen: u8,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    waiters: [Waiter; WAITERS],
    owner: Owner,
    /// Ticks until the lock expires.
    lease: u8,
    /// Ticks until the reservation does.
    reservation: u8,
    /// Ticks until the queue does.
    queue: u8,
    other: Other,
    /// For how many ticks the lock has been free with a live waiter in line.
    free: u8,
    kills: u8,
    freezes: u8,
    breaks: u8,
    losses: u8,
    interrupts: u8,
    passers_by: u8,
    foreign: u8,
}

type Packed = [u64; WAITERS + 1];

impl Waiter {
    fn pack(&self) -> u64 {
        let mut bits = Bits(0, 0);
        for (value, width) in [
            (self.life as u8, 2),
            (self.phase as u8, 4),
            (self.ear as u8, 2),
            (self.timer, 3),
            (self.ticket, 2),
            (self.joined, 2),
            (self.unseen, 2),
        ] {
            bits.put(value, width);
        }
        let flags = [self.go, self.head, self.in_q, self.knows, self.excused, self.holds, self.reserved, self.called];
        for flag in flags.into_iter().chain([self.missed]) {
            bits.put(flag.into(), 1);
        }
        bits.0
    }

    fn unpack(packed: u64) -> Waiter {
        let mut bits = Bits(packed, 0);
        let [life, phase, ear, timer, ticket, joined, unseen] = [2, 4, 2, 3, 2, 2, 2].map(|width| bits.get(width));
        let [go, head, in_q, knows, excused, holds, reserved, called, missed] =
            [1; 9].map(|width| bits.get(width) == 1);
        let (life, phase) = (Life::ALL[usize::from(life)], Phase::ALL[usize::from(phase)]);
        let ear = Ear::ALL[usize::from(ear)];
        Waiter {
            life,
            phase,
            ear,
            go,
            head,
            timer,
            in_q,
            ticket,
            knows,
            joined,
            excused,
            holds,
            reserved,
            called,
            missed,
            unseen,
        }
    }

    /// It is running, and its wait is not over.
    fn lives(&self) -> bool {
        self.life == Life::Alive && matches!(self.phase, Phase::Waiting | Phase::Asked | Phase::Refused)
    }

    /// It goes on before half a second is over.
    fn is_busy(&self) -> bool {
        match self.phase {
            Phase::Waiting => {
                self.life == Life::Alive && (self.timer == 0 || self.go || self.head || self.ear == Ear::None)
            }
            Phase::Asked | Phase::RollBack | Phase::AskedLeave | Phase::Leave => self.life != Life::Dead,
            Phase::Granted | Phase::Refused => self.life == Life::Alive,
            Phase::New | Phase::Holding | Phase::Done => false,
        }
    }

    /// It takes no further part; what it has left in Redis stays.
    fn end(&mut self, phase: Phase) {
        let &mut Waiter { life, ear, in_q, ticket, holds, reserved, unseen, joined, .. } = self;
        let ear = if life == Life::Dead && ear == Ear::HalfOpen { ear } else { Ear::None };
        let joined = if life == Life::Dead { joined } else { 0 };
        *self = Waiter { life, phase, ear, in_q, ticket, holds, reserved, unseen, joined, ..Waiter::default() };
    }
}

impl State {
    fn pack(mut self) -> Packed {
        self.rank(|waiter| &mut waiter.ticket, |waiter| waiter.in_q || waiter.knows || waiter.phase == Phase::Refused);
        self.rank(|waiter| &mut waiter.joined, |_| true);
        let mut packed = [0; WAITERS + 1];
        for (waiter, column) in self.waiters.iter().zip(&mut packed) {
            *column = waiter.pack();
        }
        packed[..WAITERS].sort_unstable();
        let mut bits = Bits(0, 0);
        for (value, width) in [
            (self.owner as u8, 2),
            (self.lease, 2),
            (self.reservation, 2),
            (self.queue, 3),
            (self.other as u8, 2),
            (self.free, 4),
            (self.kills, 2),
            (self.freezes, 2),
            (self.breaks, 2),
            (self.losses, 2),
            (self.interrupts, 2),
            (self.passers_by, 2),
            (self.foreign, 2),
        ] {
            bits.put(value, width);
        }
        packed[WAITERS] = bits.0;
        packed
    }

    fn unpack(packed: &Packed) -> State {
        let mut bits = Bits(packed[WAITERS], 0);
        let [owner, lease, reservation, queue, other, free] = [2, 2, 2, 3, 2, 4].map(|width| bits.get(width));
        let [kills, freezes, breaks, losses, interrupts, passers_by, foreign] = [2; 7].map(|width| bits.get(width));
        let waiters = [0, 1, 2].map(|index| Waiter::unpack(packed[index]));
        let (owner, other) = (Owner::ALL[usize::from(owner)], Other::ALL[usize::from(other)]);
        State {
            waiters,
            owner,
            lease,
            reservation,
            queue,
            other,
            free,
            kills,
            freezes,
            breaks,
            losses,
            interrupts,
            passers_by,
            foreign,
        }
    }

    /// Only the order of these numbers matters: from 1, without a gap.
    fn rank(&mut self, field: fn(&mut Waiter) -> &mut u8, counts: fn(&Waiter) -> bool) {
        let mut waiters = self.waiters;
        let numbers = waiters.each_mut().map(|waiter| if counts(waiter) { *field(waiter) } else { 0 });
        for (waiter, number) in self.waiters.iter_mut().zip(numbers) {
            let before = numbers.iter().filter(|&&other| other > 0 && other < number).count();
            *field(waiter) = if number == 0 { 0 } else { before as u8 + 1 };
        }
    }

    fn reserved(&self) -> Option<usize> {
        self.waiters.iter().position(|waiter| waiter.reserved)
    }

    fn first(&self) -> Option<usize> {
        (0..WAITERS).filter(|&index| self.waiters[index].in_q).min_by_key(|&index| self.waiters[index].ticket)
    }

    fn delete_lock(&mut self) {
        self.owner = Owner::None;
        self.lease = 0;
        self.waiters.iter_mut().for_each(|waiter| waiter.holds = false);
    }

    fn delete_reservation(&mut self) {
        self.reservation = 0;
        self.waiters.iter_mut().for_each(|waiter| waiter.reserved = false);
    }

    fn live_waiter(&self) -> bool {
        self.waiters.iter().any(|waiter| waiter.lives() && (waiter.joined > 0 || waiter.knows))
    }
}

const TWO_HOLDERS: &str = "two holders";
const OVERTAKEN: &str = "a waiter that was in line before was overtaken";
const LOST: &str = "a lost wake-up";
const FREE_TOO_LONG: &str = "free for too long";
const LEFT_BEHIND: &str = "a waiter that left has left something behind";

type Checked<T = ()> = Result<T, &'static str>;

/// Takes what can happen next.
type Also<'a> = &'a mut dyn FnMut(&dyn Fn(&mut State) -> Checked);

/// The scripts.
impl Bounds {
    fn is(&self, without: Without) -> bool {
        self.without == without
    }

    /// Whether the server counts a listener.
    fn publish(&self, state: &mut State, index: usize, go: bool) -> bool {
        let waiter = &mut state.waiters[index];
        if waiter.ear == Ear::Hears {
            let message = if go { &mut waiter.go } else { &mut waiter.head };
            *message = true;
        }
        waiter.ear != Ear::None || self.is(Without::Count)
    }

    fn drop_unseen(&self, state: &mut State) {
        if self.is(Without::Clocks) {
            state.waiters.iter_mut().for_each(|waiter| waiter.in_q &= waiter.unseen < UNSEEN);
        }
    }

    fn tell(&self, state: &mut State) {
        while let Some(first) = state.first().filter(|_| !self.is(Without::Tell)) {
            if self.publish(state, first, false) {
                return;
            }
            state.waiters[first].in_q = false;
        }
    }

    /// Returns who is next.
    fn pass(&self, state: &mut State, me: Option<usize>) -> Checked<Option<usize>> {
        self.drop_unseen(state);
        while let Some(first) = state.first() {
            state.waiters[first].in_q = false;
            self.tell(state);
            if Some(first) == me {
                return Ok(me);
            }
            if self.publish(state, first, true) {
                self.is_next(state, Some(first))?;
                state.waiters[first].reserved = true;
                state.reservation = RESERVED;
                return Ok(Some(first));
            }
        }
        Ok(None)
    }

    /// Without a place in line: all in line are before it.
    fn is_next(&self, state: &State, who: Option<usize>) -> Checked {
        let joined = who.map_or(0, |who| state.waiters[who].joined);
        let overtaken = |(index, waiter): (usize, &Waiter)| {
            let before = waiter.joined > 0 && (joined == 0 || waiter.joined < joined);
            let hears = waiter.ear == Ear::Hears && !waiter.excused;
            who != Some(index) && before && waiter.life != Life::Dead && (waiter.in_q || waiter.lives() && hears)
        };
        if state.waiters.iter().enumerate().any(overtaken) { Err(OVERTAKEN) } else { Ok(()) }
    }

    fn grant(&self, state: &mut State, who: Option<usize>) -> Checked {
        if state.reserved().is_some_and(|reserved| Some(reserved) != who) {
            return Err(OVERTAKEN);
        }
        state.lease = TTL;
        match who {
            Some(who) => {
                state.owner = Owner::Waiter;
                state.waiters[who].holds = true;
            }
            None => {
                state.owner = Owner::Other;
                state.other = Other::Alive;
            }
        }
        Ok(())
    }

    /// take.lua. Whether it is granted.
    fn take(&self, state: &mut State, me: Option<usize>) -> Checked<bool> {
        if state.owner == Owner::None {
            let reserved = state.reserved();
            if let Some(me) = me.filter(|_| me == reserved) {
                state.delete_reservation();
                state.waiters[me].in_q = false;
                self.grant(state, Some(me))?;
                return Ok(true);
            }
            if reserved.is_none() || self.is(Without::Reservation) {
                if state.first().is_none() || me.is_none() && self.is(Without::Line) {
                    self.is_next(state, me)?;
                    self.grant(state, me)?;
                    return Ok(true);
                }
                if let Some(me) = me
                    && state.waiters[me].knows
                    && !self.is(Without::OldTicket)
                {
                    state.waiters[me].in_q = true;
                }
                let next = self.pass(state, me)?;
                if next.is_none() || next == me {
                    self.is_next(state, me)?;
                    self.grant(state, me)?;
                    return Ok(true);
                }
            }
        }
        if let Some(me) = me {
            self.queue(state, me);
        }
        Ok(false)
    }

    /// Gives a place in line; the answer tells when to look again.
    fn queue(&self, state: &mut State, me: usize) {
        let held = state.owner != Owner::None;
        let left = if held { state.lease } else { state.reservation };
        let waiter = &mut state.waiters[me];
        if !waiter.in_q {
            waiter.missed = waiter.knows && !waiter.called;
            waiter.in_q = true;
            state.queue = self.forgotten;
            if !waiter.knows || self.is(Without::OldTicket) {
                waiter.ticket = u8::MAX;
            }
            if !waiter.knows {
                waiter.joined = u8::MAX;
            }
        }
        if waiter.life == Life::Alive && waiter.ear == Ear::Hears {
            waiter.excused = false;
        }
        let ticket = waiter.ticket;
        let rank = state.waiters.iter().filter(|waiter| waiter.in_q && waiter.ticket < ticket).count() as u8;
        if rank == 0 || !self.is(Without::EachLookKeepsQueue) {
            state.queue = self.forgotten;
        }
        let regular = if rank == 0 && !self.is(Without::FirstLooks) { FIRST_LOOKS } else { OTHERS_LOOK * (rank + 1) };
        let at_expiry = if rank == 0 || !held { Without::LookAtExpiry } else { Without::OthersAtExpiry };
        let look = if self.is(at_expiry) { regular } else { regular.min(left) };
        state.waiters[me].timer = if self.clocks { look } else { NEVER };
    }

    fn release(&self, state: &mut State) -> Checked {
        state.delete_lock();
        if !self.is(Without::ReleasePasses) {
            self.pass(state, None)?;
        }
        Ok(())
    }

    fn leave(&self, state: &mut State, me: usize) -> Checked {
        if state.waiters[me].holds || self.is(Without::LeaveCompares) {
            state.delete_lock();
        }
        if !self.is(Without::LeavePlace) {
            state.waiters[me].in_q = false;
        }
        if state.waiters[me].reserved && !self.is(Without::LeaveReservation) {
            state.delete_reservation();
        }
        state.waiters[me].end(Phase::Done);
        if state.owner != Owner::None || state.reserved().is_some() {
            self.tell(state);
        } else if !self.is(Without::LeavePasses) {
            self.pass(state, None)?;
        }
        Ok(())
    }

    fn rollback(&self, state: &mut State, me: usize) {
        if state.waiters[me].holds {
            state.delete_lock();
        }
        if state.waiters[me].reserved {
            state.delete_reservation();
        }
        let waiter = &mut state.waiters[me];
        waiter.in_q |= waiter.knows && !self.is(Without::RollBackKeepsPlace);
    }
}

/// What the clients do, and what happens to them.
impl Bounds {
    fn start(&self) -> State {
        let &Bounds { kills, freezes, breaks, losses, interrupts, passers_by, foreign, .. } = self;
        let mut state = State { kills, freezes, breaks, losses, interrupts, passers_by, foreign, ..State::default() };
        state.owner = Owner::Other;
        state.other = Other::Alive;
        state.lease = TTL;
        state.queue = self.forgotten;
        for index in 0..self.dead + self.in_line {
            let waiter = &mut state.waiters[usize::from(index)];
            *waiter = Waiter { in_q: true, ticket: index + 1, joined: index + 1, ..Waiter::default() };
            if index < self.dead {
                waiter.life = Life::Dead;
                waiter.phase = Phase::Done;
                continue;
            }
            let timer = if !self.clocks { NEVER } else { if index == 0 { FIRST_LOOKS } else { TTL } };
            *waiter = Waiter { phase: Phase::Waiting, ear: Ear::Hears, knows: true, timer, ..*waiter };
        }
        state
    }

    fn tick(&self, state: &mut State) -> Checked {
        let was_free = state.owner == Owner::None && state.live_waiter();
        state.free = if was_free { state.free + 1 } else { 0 };
        if state.free > self.most_free {
            return Err(FREE_TOO_LONG);
        }
        let renews = match state.owner {
            Owner::Waiter => {
                let holder = state.waiters.iter().find(|waiter| waiter.holds);
                holder.is_some_and(|holder| holder.phase == Phase::Holding)
            }
            Owner::Other => state.other == Other::Alive,
            Owner::None | Owner::Foreign => false,
        };
        if renews {
            state.lease = TTL;
        } else if state.owner != Owner::None {
            state.lease -= 1;
            if state.lease == 0 {
                state.delete_lock();
            }
        }
        if state.other == Other::Dead && state.owner != Owner::Other {
            state.other = Other::None;
        }
        if state.reservation > 0 && !self.is(Without::ReservationEnds) {
            state.reservation -= 1;
            if state.reservation == 0 {
                state.delete_reservation();
            }
        }
        if state.queue > 0 {
            state.queue -= 1;
            if state.queue == 0 {
                state.waiters.iter_mut().for_each(|waiter| waiter.in_q = false);
            }
        }
        for waiter in &mut state.waiters {
            if waiter.phase == Phase::Waiting {
                waiter.timer = waiter.timer.saturating_sub(1);
            }
            if waiter.life == Life::Dead && waiter.phase != Phase::Done {
                waiter.end(Phase::Done); // its request never arrived
            }
            if self.is(Without::Clocks) && waiter.in_q {
                waiter.unseen = (waiter.unseen + 1).min(UNSEEN);
            }
        }
        Ok(())
    }

    /// All that a waiter, or the server with its request, can do next.
    fn step(&self, state: &State, me: usize, also: Also<'_>) {
        let waiter = &state.waiters[me];
        match waiter.phase {
            Phase::New => also(&|next| {
                let waiter = &mut next.waiters[me];
                waiter.phase = Phase::Waiting;
                waiter.ear = if self.is(Without::SubscribedFirst) { Ear::None } else { Ear::Hears };
                Ok(())
            }),
            Phase::Waiting if waiter.life == Life::Alive => self.wait(waiter, me, also),
            Phase::Asked => also(&|next| {
                next.waiters[me].unseen = 0;
                next.waiters[me].phase = if self.take(next, Some(me))? { Phase::Granted } else { Phase::Refused };
                if next.waiters[me].life == Life::Dead {
                    next.waiters[me].end(Phase::Done);
                }
                Ok(())
            }),
            Phase::AskedLeave => also(&|next| {
                self.take(next, Some(me))?;
                next.waiters[me].phase = Phase::Leave;
                Ok(())
            }),
            Phase::Leave => also(&|next| self.leave(next, me)),
            Phase::RollBack => also(&|next| {
                self.rollback(next, me);
                next.waiters[me].phase = Phase::Waiting;
                Ok(())
            }),
            Phase::Granted if waiter.life == Life::Alive => also(&|next| {
                if next.waiters[me].holds {
                    next.waiters[me].end(Phase::Holding);
                } else {
                    self.fail(next, me);
                }
                Ok(())
            }),
            Phase::Refused if waiter.life == Life::Alive => also(&|next| {
                let waiter = &mut next.waiters[me];
                waiter.phase = Phase::Waiting;
                waiter.knows = true;
                if waiter.missed {
                    waiter.ear = Ear::None; // it subscribes anew
                    waiter.go = false;
                    waiter.head = false;
                    waiter.excused = true;
                }
                waiter.missed = false;
                waiter.called = false;
                Ok(())
            }),
            Phase::Holding => also(&|next| {
                if next.waiters[me].holds {
                    self.release(next)?;
                }
                next.waiters[me].end(Phase::Done);
                Ok(())
            }),
            Phase::Waiting | Phase::Granted | Phase::Refused | Phase::Done => {}
        }
    }

    fn wait(&self, waiter: &Waiter, me: usize, also: Also<'_>) {
        if waiter.go {
            also(&|next| {
                let waiter = &mut next.waiters[me];
                waiter.go = false;
                waiter.called = true;
                waiter.timer = 0;
                Ok(())
            });
        }
        if waiter.head {
            also(&|next| {
                let waiter = &mut next.waiters[me];
                waiter.head = false;
                if self.clocks {
                    waiter.timer = 0;
                }
                Ok(())
            });
        }
        if waiter.timer == 0 {
            also(&|next| {
                next.waiters[me].phase = Phase::Asked;
                Ok(())
            });
        }
        let late = self.is(Without::SubscribedFirst);
        if waiter.ear == Ear::None && (waiter.knows || !late) {
            also(&|next| {
                let waiter = &mut next.waiters[me];
                waiter.ear = Ear::Hears;
                if !late && !self.is(Without::LookWhenListening) {
                    waiter.timer = 0;
                }
                Ok(())
            });
        }
    }

    /// The answer to a try is lost, or comes too late.
    fn fail(&self, state: &mut State, me: usize) {
        let waiter = &mut state.waiters[me];
        waiter.phase = Phase::RollBack;
        waiter.timer = if self.clocks { AFTER_FAILURE } else { 0 };
        waiter.missed = false;
        waiter.called = false;
        if !waiter.knows {
            waiter.joined = 0;
        }
    }

    /// What can happen to a waiter.
    fn befall(&self, state: &State, me: usize, also: Also<'_>) {
        let waiter = &state.waiters[me];
        let (alive, phase) = (waiter.life == Life::Alive, waiter.phase);
        let in_line = matches!(phase, Phase::Waiting | Phase::Asked | Phase::Granted | Phase::Refused);
        if state.kills > 0 && waiter.life != Life::Dead && !matches!(phase, Phase::New | Phase::Done) {
            also(&|next| {
                next.kills -= 1;
                let waiter = &mut next.waiters[me];
                waiter.life = Life::Dead;
                waiter.ear = if waiter.ear == Ear::HalfOpen { Ear::HalfOpen } else { Ear::None };
                match phase {
                    // The server may still read what it has sent.
                    Phase::Asked | Phase::AskedLeave | Phase::Leave | Phase::RollBack => {
                        waiter.go = false;
                        waiter.head = false;
                    }
                    _ => waiter.end(Phase::Done),
                }
                Ok(())
            });
        }
        if state.freezes > 0 && alive && in_line {
            also(&|next| {
                next.freezes -= 1;
                next.waiters[me].life = Life::Frozen;
                next.waiters[me].excused = true;
                Ok(())
            });
        }
        if waiter.life == Life::Frozen {
            also(&|next| {
                next.waiters[me].life = Life::Alive;
                Ok(())
            });
        }
        if state.breaks > 0 && alive && in_line && waiter.ear == Ear::Hears {
            // The server notices, and the waiter too; or, where a clock would help, neither.
            for ear in [Ear::None, Ear::HalfOpen].into_iter().take(if self.clocks { 2 } else { 1 }) {
                also(&|next| {
                    next.breaks -= 1;
                    let waiter = &mut next.waiters[me];
                    waiter.ear = ear;
                    waiter.excused = true;
                    waiter.go = false;
                    waiter.head = false;
                    Ok(())
                });
            }
        }
        if state.losses > 0 && alive && matches!(phase, Phase::Granted | Phase::Refused) {
            also(&|next| {
                next.losses -= 1;
                self.fail(next, me);
                Ok(())
            });
        }
        if state.interrupts > 0 && alive && in_line {
            // The server may notice that it does not listen any more before it leaves, or later.
            for ear in [Ear::None, waiter.ear] {
                also(&|next| {
                    next.interrupts -= 1;
                    let waiter = &mut next.waiters[me];
                    waiter.phase = if phase == Phase::Asked { Phase::AskedLeave } else { Phase::Leave };
                    waiter.ear = ear;
                    Ok(())
                });
            }
        }
    }

    fn steps(&self, state: &State, into: &mut Vec<Checked<State>>) {
        let mut also = |change: &dyn Fn(&mut State) -> Checked| {
            let mut next = *state;
            into.push(change(&mut next).and_then(|()| self.check(&next)).map(|()| next));
        };
        for me in 0..WAITERS {
            self.step(state, me, &mut also);
            self.befall(state, me, &mut also);
        }
        if state.other == Other::Alive {
            also(&|next| {
                next.other = Other::None;
                if next.owner == Owner::Other { self.release(next) } else { Ok(()) }
            });
            if state.kills > 0 {
                also(&|next| {
                    next.kills -= 1;
                    next.other = Other::Dead;
                    Ok(())
                });
            }
        }
        if state.passers_by > 0 && state.other == Other::None {
            also(&|next| {
                next.passers_by -= 1;
                self.take(next, None).map(|_| ())
            });
        }
        if state.foreign > 0 && state.owner == Owner::None {
            also(&|next| {
                next.foreign -= 1;
                next.owner = Owner::Foreign;
                next.lease = TTL;
                Ok(())
            });
        }
        if state.owner == Owner::Foreign {
            also(&|next| {
                next.delete_lock();
                Ok(())
            });
        }
        if !state.waiters.iter().any(Waiter::is_busy) {
            if self.clocks {
                also(&|next| self.tick(next));
            } else if state.owner == Owner::None && state.live_waiter() {
                into.push(Err(LOST));
            }
        }
    }

    fn check(&self, state: &State) -> Checked {
        let believes = |waiter: &&Waiter| waiter.phase == Phase::Holding && waiter.life == Life::Alive;
        let holders = state.waiters.iter().filter(believes).count() + usize::from(state.other == Other::Alive);
        if holders > 1 {
            return Err(TWO_HOLDERS);
        }
        let left = |waiter: &&Waiter| waiter.phase == Phase::Done && waiter.life != Life::Dead;
        if state.waiters.iter().filter(left).any(|waiter| waiter.in_q || waiter.reserved || waiter.holds) {
            return Err(LEFT_BEHIND);
        }
        Ok(())
    }
}

impl Space for Bounds {
    type State = Packed;

    fn starts(&self) -> Vec<Packed> {
        vec![self.start().pack()]
    }

    fn next(&self, packed: &Packed, into: &mut Vec<Checked<Packed>>) {
        let mut next = Vec::new();
        self.steps(&State::unpack(packed), &mut next);
        into.extend(next.into_iter().map(|state| state.map(State::pack)));
    }

    fn hash(&self, packed: &Packed) -> u64 {
        packed.iter().fold(0, |hash: u64, column| {
            let mixed = (hash ^ column).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ (mixed >> 32)
        })
    }

    fn show(&self, packed: &Packed) -> String {
        let state = State::unpack(packed);
        let State { owner, lease, reservation, other, free, .. } = state;
        let mut shown = format!("lock {owner:?} {lease}, reservation {reservation}, other {other:?}, free {free}");
        for waiter in &state.waiters {
            let Waiter { life, phase, ear, timer, ticket, joined, .. } = waiter;
            let flags = [
                (waiter.in_q, " in_q"),
                (waiter.knows, " knows"),
                (waiter.reserved, " reserved"),
                (waiter.holds, " holds"),
                (waiter.go, " go"),
                (waiter.head, " head"),
                (waiter.called, " called"),
                (waiter.missed, " missed"),
                (waiter.excused, " excused"),
            ];
            let flags: String = flags.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect();
            shown += &format!("; {life:?} {phase:?} {ear:?} in {timer}, {ticket}/{joined}{flags}");
        }
        shown
    }
}

/// Far more states than any of these searches has; what is cut off here was not searched.
const MOST: usize = 1_000_000;

/// Three waiters come at any time, one of them may leave, and there is no look by the clock.
const CALLS: Bounds = Bounds {
    in_line: 0,
    dead: 0,
    clocks: false,
    most_free: 0,
    forgotten: 0,
    kills: 0,
    freezes: 0,
    breaks: 0,
    losses: 0,
    interrupts: 2,
    passers_by: 1,
    foreign: 0,
    without: Without::Nothing,
};
/// The same where a subscription breaks, and both ends notice; two are in line already.
const CALLS_AGAIN: Bounds = Bounds { in_line: 2, breaks: 1, interrupts: 1, ..CALLS };
/// The same where an answer is lost.
const CALLS_LOST: Bounds = Bounds { breaks: 0, losses: 1, ..CALLS_AGAIN };
/// Two waiters are in line, and look by the clock; a third one comes.
const CLOCKS: Bounds = Bounds { in_line: 2, clocks: true, interrupts: 1, ..CALLS };
/// Nothing but what a row changes can happen.
const QUIET: Bounds = Bounds { interrupts: 0, passers_by: 0, ..CLOCKS };
/// The first two in line are dead, and the holder dies.
const DEAD: Bounds = Bounds { in_line: 1, dead: 2, kills: 1, ..QUIET };
/// Any two die, each perhaps just when it has been called.
const DEATHS: Bounds = Bounds { kills: 2, most_free: 2 * RESERVED, ..QUIET };
const FROZEN: Bounds = Bounds { freezes: 1, passers_by: 1, most_free: RESERVED, ..QUIET };
/// The second of them is called only when the third waiter looks: it was not told that it is first.
const TWO_FROZEN: Bounds = Bounds { in_line: 3, freezes: 2, most_free: RESERVED + TTL, ..QUIET };
/// One does not hear its call, and does not know: it looks when the lease that it saw would have run out.
const DEAF: Bounds = Bounds { breaks: 1, most_free: TTL, ..QUIET };
const TWO_DEAF: Bounds = Bounds { in_line: 3, breaks: 2, most_free: TTL + 1, ..QUIET };
const LOSS: Bounds = Bounds { losses: 1, most_free: AFTER_FAILURE, ..QUIET };
const FOREIGN: Bounds = Bounds { foreign: 1, most_free: FIRST_LOOKS, ..QUIET };
/// A queue is forgotten after a while; the first two in line are dead, or one is frozen.
const FORGOTTEN: Bounds = Bounds { kills: 0, forgotten: 5, passers_by: 1, ..DEAD };
const FROZEN_FORGOTTEN: Bounds = Bounds { forgotten: 5, ..FROZEN };

/// Nothing goes wrong, and [`Bounds::most_free`] is no larger than it has to be.
#[track_caller]
fn is_clean(bounds: Bounds) {
    let found = search(&bounds, MOST);
    assert!(!found.cut, "{bounds:?}: not all of {} states searched", found.states);
    if let Some(wrong) = found.wrong {
        panic!("{bounds:?}: {} after {} steps:\n{}", wrong.what, wrong.trace.len(), wrong.trace.join("\n"));
    }
    if bounds.most_free > 0 {
        let found = search(&Bounds { most_free: bounds.most_free - 1, ..bounds }, MOST);
        assert_eq!(found.wrong.map(|wrong| wrong.what), Some(FREE_TOO_LONG), "{bounds:?}");
    }
}

/// What goes wrong without a clause, and after how many steps.
#[track_caller]
fn without(without: Without, bounds: Bounds, what: &str, steps: usize) {
    let found = search(&Bounds { without, ..bounds }, MOST);
    let wrong = found.wrong.map(|wrong| (wrong.what, wrong.trace.len()));
    assert_eq!(wrong, Some((what, steps)), "without {without:?}, {} states", found.states);
}

#[test]
fn calls_alone_lose_no_wake_up() {
    is_clean(CALLS);
    is_clean(CALLS_AGAIN);
    is_clean(CALLS_LOST);
}

#[test]
fn the_lock_is_free_for_no_half_second_while_all_goes_well() {
    is_clean(CLOCKS);
}

#[test]
fn those_who_were_dead_before_cost_no_time() {
    is_clean(DEAD);
}

#[test]
fn who_dies_when_it_was_called_costs_one_reservation() {
    is_clean(DEATHS);
    is_clean(Bounds { kills: 1, most_free: RESERVED, ..DEATHS });
}

#[test]
fn a_frozen_waiter_costs_one_reservation_and_keeps_its_place() {
    is_clean(FROZEN);
}

#[test]
fn two_frozen_waiters_cost_two_reservations_and_one_look() {
    is_clean(TWO_FROZEN);
}

#[test]
fn waiters_that_do_not_hear_look_by_themselves() {
    is_clean(DEAF);
    is_clean(TWO_DEAF);
}

#[test]
fn lost_answers_and_other_libraries_cost_one_look() {
    is_clean(LOSS);
    is_clean(FOREIGN);
}

#[test]
fn what_can_happen_to_one_waiter_can_happen_beside_another() {
    is_clean(Bounds { kills: 1, freezes: 1, ..TWO_FROZEN });
    is_clean(Bounds { in_line: 3, interrupts: 1, ..FOREIGN });
}

#[test]
fn a_queue_is_kept_while_any_waiter_looks() {
    is_clean(FORGOTTEN);
    is_clean(FROZEN_FORGOTTEN);
    without(Without::EachLookKeepsQueue, FORGOTTEN, OVERTAKEN, 10);
    without(Without::EachLookKeepsQueue, FROZEN_FORGOTTEN, OVERTAKEN, 11);
}

#[test]
fn whoever_frees_the_lock_must_call_the_next() {
    without(Without::ReleasePasses, CALLS, LOST, 6);
    without(Without::ReleasePasses, CLOCKS, FREE_TOO_LONG, 2);
    without(Without::LeavePasses, CALLS, LOST, 11);
    without(Without::LeavePasses, CLOCKS, FREE_TOO_LONG, 8);
}

#[test]
fn a_waiter_must_hear_before_it_queues_and_look_when_it_hears_again() {
    without(Without::SubscribedFirst, CALLS_AGAIN, LOST, 5);
    without(Without::LookWhenListening, CALLS_AGAIN, LOST, 5);
    without(Without::LookWhenListening, DEAF, FREE_TOO_LONG, 20);
}

#[test]
fn a_waiter_that_leaves_must_take_all_that_is_its_own_and_nothing_else() {
    without(Without::LeaveReservation, CALLS, LEFT_BEHIND, 6);
    without(Without::LeavePlace, CALLS, LEFT_BEHIND, 8);
    without(Without::LeaveCompares, CALLS, TWO_HOLDERS, 7);
}

#[test]
fn dead_waiters_must_be_passed_over_by_the_count_of_those_who_hear() {
    without(Without::Count, DEAD, FREE_TOO_LONG, 2);
}

#[test]
fn the_new_first_must_be_told_and_a_reservation_must_end() {
    without(Without::Tell, FROZEN, FREE_TOO_LONG, 5);
    without(Without::Tell, DEATHS, FREE_TOO_LONG, 15);
    without(Without::ReservationEnds, FROZEN, FREE_TOO_LONG, 15);
}

#[test]
fn the_line_goes_before_those_who_come_by() {
    without(Without::Reservation, CALLS, OVERTAKEN, 5);
    without(Without::Line, CALLS_LOST, OVERTAKEN, 7);
    without(Without::Line, FROZEN, OVERTAKEN, 12);
}

#[test]
fn a_waiter_that_was_cut_off_must_keep_its_place() {
    without(Without::OldTicket, CALLS_AGAIN, OVERTAKEN, 8);
    without(Without::OldTicket, FROZEN, OVERTAKEN, 17);
    without(Without::RollBackKeepsPlace, CALLS_LOST, OVERTAKEN, 7);
    without(Without::Clocks, CLOCKS, OVERTAKEN, 12);
}

#[test]
fn waiters_must_look_when_what_they_wait_for_runs_out_and_the_first_one_more_often() {
    without(Without::LookAtExpiry, DEATHS, FREE_TOO_LONG, 16);
    without(Without::OthersAtExpiry, DEATHS, FREE_TOO_LONG, 12);
    without(Without::OthersAtExpiry, DEAD, FREE_TOO_LONG, 9);
    without(Without::FirstLooks, FOREIGN, FREE_TOO_LONG, 13);
}
