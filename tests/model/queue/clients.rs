//! The steps of the clients, the failures that can hit them, and the checks of each state.
//!
//! TAKE is the request to take the lock (take.lua). LEAVE is the request of a waiter that leaves the line (undo.lua).
//! The *list of members* is the key M. If an older version of redlock deletes the mark, the list stays without a mark.

use super::node::Answer;
use super::state::{Claim, Client, Ear, Key, Late, Life, OTHER, Phase, Rest, State, WAITERS};
use super::{AFTER_FAILURE, Bounds, CAME_BACK, CLOSED, Checked, FIRST_LOOKS, FREE_TOO_LONG, LEFT_BEHIND, LOST, NEVER};
use super::{TTL, TWO_HOLDERS, UNSEEN, Without};

/// Collects the steps that may come next. A step changes the state, or returns what has gone wrong.
type Also<'a> = &'a mut dyn FnMut(&dyn Fn(&mut State) -> Checked);

impl Bounds {
    pub(super) fn start(&self) -> State {
        let &Bounds { kills, freezes, breaks, losses, interrupts, passers_by, foreign, forces, .. } = self;
        let &Bounds { cuts, lates, refusals, closes, .. } = self;
        let rest = Rest { cuts, lates, refusals, closes, ..Rest::default() };
        let rest = Rest { kills, freezes, breaks, losses, interrupts, passers_by, foreign, forces, ..rest };
        let mut state = State { rest, ..State::default() };
        for (index, client) in state.clients.iter_mut().enumerate() {
            (client.claim, client.number) = (self.claims[index], self.numbers[index]);
        }
        (state.rest.newest, state.rest.stood) = (self.numbers[OTHER], self.numbers[OTHER]);
        for number in &self.numbers[..usize::from(self.dead + self.in_line)] {
            state.rest.newest = state.rest.newest.max(*number);
            state.rest.stood = state.rest.newest;
        }
        state.rest.key = self.claims[OTHER].key();
        state.rest.left = TTL;
        state.rest.queue = self.forgotten;
        for index in WAITERS - usize::from(self.holders)..=WAITERS {
            let holder = &mut state.clients[index];
            let place = self.claims[index] == Claim::OneOfTwo && index < OTHER;
            *holder = Client { phase: Phase::Holding, listed: true, lease: TTL, place, ..*holder };
        }
        for index in 0..self.dead + self.in_line {
            let waiter = &mut state.clients[usize::from(index)];
            *waiter = Client { in_q: true, ticket: index + 1, joined: index + 1, ..*waiter };
            if index < self.dead {
                waiter.life = Life::Dead;
                waiter.phase = Phase::Done;
                continue;
            }
            let timer = if !self.clocks { NEVER } else { if index == 0 { FIRST_LOOKS } else { TTL } };
            *waiter = Client { phase: Phase::Waiting, ear: Ear::Hears, knows: true, timer, ..*waiter };
        }
        state
    }

    fn tick(&self, state: &mut State) -> Checked {
        state.rest.free = if state.could_go_on() { state.rest.free + 1 } else { 0 };
        if state.rest.free > self.most_free {
            return Err(FREE_TOO_LONG);
        }
        self.let_leases_pass(state);
        state.rest.closed = state.rest.closed.saturating_sub(1);
        if state.rest.reservation > 0 && !self.is(Without::ReservationEnds) {
            state.rest.reservation -= 1;
            if state.rest.reservation == 0 {
                state.delete_reservation();
            }
        }
        if state.rest.queue > 0 {
            state.rest.queue -= 1;
            if state.rest.queue == 0 {
                state.clients.iter_mut().for_each(|client| client.in_q = false);
            }
        }
        for waiter in &mut state.clients[..OTHER] {
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

    /// One tick passes for all leases. Live holders renew theirs. The lock's key expires with the last lease. If the
    /// key is a mark, the list of members expires with it; if it is no mark any more, with the last lease in the list.
    fn let_leases_pass(&self, state: &mut State) {
        state.rest.left = state.rest.left.saturating_sub(1);
        for index in 0..=OTHER {
            let listed = state.is_listed(index);
            let client = &mut state.clients[index];
            client.lease = client.lease.saturating_sub(1);
            if listed && client.life == Life::Alive && matches!(client.phase, Phase::Holding | Phase::Ousted) {
                client.lease = TTL;
                if !self.is(Without::ExtendsKey) || !state.rest.key.is_mark() {
                    state.rest.left = TTL;
                }
            }
        }
        if state.rest.left == 0 {
            if state.rest.key.is_mark() {
                state.delete_list();
            }
            state.delete_key();
        }
        let outlived = |client: &Client| !client.claim.key().is_mark() || client.lease == 0;
        if !state.rest.key.is_mark() && state.clients.iter().all(outlived) && !self.is(Without::ListExpires) {
            state.delete_list();
        }
    }

    /// Gives to `also` the steps of client `me` without failures, and those in which the node carries out its request.
    fn step(&self, state: &State, me: usize, also: Also<'_>) {
        let waiter = &state.clients[me];
        match waiter.phase {
            Phase::New => also(&|next| {
                let waiter = &mut next.clients[me];
                waiter.phase = Phase::Waiting;
                waiter.ear = if self.is(Without::SubscribedFirst) { Ear::None } else { Ear::Hears };
                Ok(())
            }),
            Phase::Waiting if waiter.life == Life::Alive => self.wait(waiter, me, also),
            Phase::Asked => {
                let may_refuse = state.rest.refusals > 0 && waiter.stale;
                let places: &[Option<bool>] = if self.names_places { &[Some(false), Some(true)] } else { &[None] };
                let refusals = [false, true].into_iter().take(if may_refuse { 2 } else { 1 });
                for (place, refuses) in refusals.flat_map(|refuses| places.iter().map(move |place| (*place, refuses))) {
                    also(&|next| {
                        next.rest.refusals -= u8::from(refuses);
                        next.clients[me].unseen = 0;
                        next.clients[me].phase = match self.take(next, me, place, refuses)? {
                            Answer::Granted => Phase::Granted,
                            Answer::Refused => Phase::Refused,
                            // The waiter sends TAKE once more, for another slot.
                            Answer::Taken => Phase::Asked,
                            Answer::TurnedAway => Phase::TurnedAway,
                        };
                        if next.clients[me].life == Life::Dead {
                            next.clients[me].end(Phase::Done);
                        }
                        Ok(())
                    });
                }
            }
            Phase::AskedLeave => also(&|next| {
                self.take(next, me, None, false)?;
                next.clients[me].phase = Phase::Leave;
                Ok(())
            }),
            Phase::Leave => also(&|next| self.leave(next, me)),
            Phase::RollBack => also(&|next| {
                self.rollback(next, me, false, waiter.knows);
                next.clients[me].phase = Phase::Waiting;
                next.clients[me].carries &= !self.is(Without::RemembersEarlier);
                Ok(())
            }),
            Phase::Granted if waiter.life == Life::Alive => also(&|next| {
                if next.is_listed(me) && next.clients[me].lease > 0 {
                    next.clients[me].end(Phase::Holding);
                } else {
                    self.fail(next, me);
                }
                Ok(())
            }),
            Phase::Refused if waiter.life == Life::Alive => also(&|next| {
                let waiter = &mut next.clients[me];
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
                waiter.carries = false;
                Ok(())
            }),
            Phase::TurnedAway if waiter.life == Life::Alive => also(&|next| {
                next.clients[me].phase = Phase::Leave;
                if waiter.number > 0 && self.is(Without::SupersededLeaves) {
                    next.clients[me].end(Phase::Done);
                }
                Ok(())
            }),
            Phase::Holding | Phase::Ousted => also(&|next| {
                self.release(next, me)?;
                next.clients[me].end(Phase::Done);
                Ok(())
            }),
            Phase::Waiting | Phase::Granted | Phase::Refused | Phase::TurnedAway | Phase::Done => {}
        }
    }

    fn wait(&self, waiter: &Client, me: usize, also: Also<'_>) {
        if waiter.go {
            also(&|next| {
                let waiter = &mut next.clients[me];
                waiter.go = false;
                waiter.called = true;
                waiter.timer = 0;
                Ok(())
            });
        }
        if waiter.head {
            also(&|next| {
                let waiter = &mut next.clients[me];
                waiter.head = false;
                if self.clocks {
                    waiter.timer = 0;
                }
                Ok(())
            });
        }
        if waiter.timer == 0 {
            also(&|next| {
                next.clients[me].phase = Phase::Asked;
                Ok(())
            });
        }
        let late = self.is(Without::SubscribedFirst);
        if waiter.ear == Ear::None && (waiter.knows || !late) {
            also(&|next| {
                let waiter = &mut next.clients[me];
                waiter.ear = Ear::Hears;
                if !late && !self.is(Without::LookWhenListening) {
                    waiter.timer = 0;
                }
                Ok(())
            });
        }
    }

    /// Client `me` begins to undo its try. The request or the answer was lost, or the lease had ended before the client
    /// read the answer.
    fn fail(&self, state: &mut State, me: usize) {
        let waiter = &mut state.clients[me];
        waiter.phase = Phase::RollBack;
        waiter.timer = if self.clocks { AFTER_FAILURE } else { 0 };
        waiter.missed = false;
        waiter.called = false;
        if !waiter.knows && !waiter.in_q {
            waiter.joined = 0;
        }
    }

    /// Gives to `also` the failures of client `me`: it dies, freezes or is interrupted, its subscription breaks, or an
    /// answer to it is lost. A frozen client may thaw.
    fn befall(&self, state: &State, me: usize, also: Also<'_>) {
        let waiter = &state.clients[me];
        let (alive, phase) = (waiter.life == Life::Alive, waiter.phase);
        let answered = matches!(phase, Phase::Granted | Phase::Refused | Phase::TurnedAway);
        let in_line = answered || matches!(phase, Phase::Waiting | Phase::Asked);
        if state.rest.kills > 0 && waiter.life != Life::Dead && !matches!(phase, Phase::New | Phase::Done) {
            also(&|next| {
                next.rest.kills -= 1;
                let waiter = &mut next.clients[me];
                waiter.life = Life::Dead;
                waiter.ear = if waiter.ear == Ear::HalfOpen { Ear::HalfOpen } else { Ear::None };
                match phase {
                    // The waiter is dead, but the server may still carry out its last request.
                    Phase::Asked | Phase::AskedLeave | Phase::Leave | Phase::RollBack => {
                        waiter.go = false;
                        waiter.head = false;
                    }
                    _ => waiter.end(Phase::Done),
                }
                Ok(())
            });
        }
        if state.rest.freezes > 0 && alive && in_line {
            also(&|next| {
                next.rest.freezes -= 1;
                next.clients[me].life = Life::Frozen;
                next.clients[me].excused = true;
                Ok(())
            });
        }
        if waiter.life == Life::Frozen {
            also(&|next| {
                next.clients[me].life = Life::Alive;
                Ok(())
            });
        }
        if state.rest.breaks > 0 && alive && in_line && waiter.ear == Ear::Hears {
            // The waiter's subscription breaks. Either the server and the waiter notice (`Ear::None`), or neither does
            // (`Ear::HalfOpen`). `HalfOpen` is tried only with clocks, because only a look by the clock helps.
            for ear in [Ear::None, Ear::HalfOpen].into_iter().take(if self.clocks { 2 } else { 1 }) {
                also(&|next| {
                    next.rest.breaks -= 1;
                    let waiter = &mut next.clients[me];
                    waiter.ear = ear;
                    waiter.excused = true;
                    waiter.go = false;
                    waiter.head = false;
                    Ok(())
                });
            }
        }
        if state.rest.losses > 0 && alive && answered {
            also(&|next| {
                next.rest.losses -= 1;
                self.fail(next, me);
                Ok(())
            });
        }
        if state.rest.interrupts > 0 && alive && in_line {
            // The waiter stops listening, and leaves. The server may carry out LEAVE before or after it notices that.
            for ear in [Ear::None, waiter.ear] {
                also(&|next| {
                    next.rest.interrupts -= 1;
                    let waiter = &mut next.clients[me];
                    waiter.phase = if phase == Phase::Asked { Phase::AskedLeave } else { Phase::Leave };
                    waiter.ear = ear;
                    Ok(())
                });
            }
        }
    }

    /// Gives to `also` three kinds of steps of client `me`: its connection is cut; a late request is sent, or arrives;
    /// the client is done, and comes a second time.
    fn cut(&self, state: &State, me: usize, also: Also<'_>) {
        let waiter = &state.clients[me];
        let alive = waiter.life == Life::Alive;
        let asks = matches!(waiter.phase, Phase::Asked | Phase::Granted | Phase::Refused | Phase::RollBack);
        if state.rest.cuts > 0 && alive && asks {
            let in_kernel = self.is(Without::Abort) && waiter.phase == Phase::Asked;
            for late in [Late::Nothing, Late::Take].into_iter().take(if in_kernel { 2 } else { 1 }) {
                also(&|next| {
                    next.rest.cuts -= 1;
                    self.fail(next, me);
                    let waiter = &mut next.clients[me];
                    waiter.phase = Phase::Waiting;
                    waiter.stale = waiter.listed;
                    waiter.carries = true;
                    waiter.excused = true;
                    waiter.late = late;
                    Ok(())
                });
            }
        }
        if state.rest.cuts > 0 && alive && waiter.phase == Phase::Asked {
            // The cut loses the client's TAKE. The node gets only the request that undoes the try.
            also(&|next| {
                next.rest.cuts -= 1;
                self.fail(next, me);
                next.clients[me].excused = true;
                Ok(())
            });
        }
        if state.rest.lates > 0 && alive && waiter.late == Late::Nothing {
            let late = match waiter.phase {
                Phase::RollBack if waiter.knows => Late::RollBack,
                Phase::RollBack => Late::RollBackWithoutPlace,
                Phase::Leave => Late::Leave,
                _ => Late::Nothing,
            };
            if late != Late::Nothing {
                also(&|next| {
                    next.rest.lates -= 1;
                    next.clients[me].late = late;
                    Ok(())
                });
            }
        }
        if waiter.late != Late::Nothing {
            also(&|next| {
                let late = std::mem::take(&mut next.clients[me].late);
                self.arrive(next, me, late)
            });
        }
        let again = self.again && !waiter.again && waiter.phase == Phase::Done && !waiter.listed && me != OTHER;
        if again && waiter.life == Life::Alive {
            also(&|next| {
                next.clients[me].phase = Phase::New;
                next.clients[me].again = true;
                Ok(())
            });
        }
    }

    /// The node carries out a late request of client `me`, which has already sent the same request over another
    /// connection, or has given it up.
    fn arrive(&self, state: &mut State, me: usize, late: Late) -> Checked {
        match late {
            Late::Nothing => {}
            Late::RollBack | Late::RollBackWithoutPlace => self.rollback(state, me, true, late == Late::RollBack),
            Late::Take => {
                let Client { phase, again, carries, .. } = state.clients[me];
                self.take(state, me, None, false)?;
                let waiter = &mut state.clients[me];
                (waiter.phase, waiter.again, waiter.carries, waiter.stale) = (phase, again, carries, waiter.listed);
            }
            Late::Leave => {
                if self.is(Without::NewName) {
                    state.clients[me].in_q = false;
                    if state.clients[me].reserved {
                        state.delete_reservation();
                    }
                }
                self.leave_line(state, false)?;
            }
        }
        Ok(())
    }

    pub(super) fn steps(&self, state: &State, into: &mut Vec<Checked<State>>) {
        let mut also = |change: &dyn Fn(&mut State) -> Checked| {
            let mut next = *state;
            let changed = change(&mut next);
            into.push(changed.and_then(|()| self.check(&next)).map(|()| next));
        };
        for me in 0..=OTHER {
            self.step(state, me, &mut also);
            self.befall(state, me, &mut also);
            self.cut(state, me, &mut also);
        }
        let other = &state.clients[OTHER];
        if state.rest.passers_by > 0 && other.phase == Phase::Done && !other.listed {
            also(&|next| {
                next.rest.passers_by -= 1;
                (next.clients[OTHER].claim, next.clients[OTHER].number) = (self.passer_by, self.passer_by_number);
                self.take(next, OTHER, None, false).map(|_| ())
            });
        }
        if state.rest.closes > 0 && state.rest.closed == 0 {
            also(&|next| {
                next.rest.closes -= 1;
                next.rest.closed = CLOSED;
                Ok(())
            });
        }
        if state.rest.closed > 0 {
            also(&|next| self.open(next));
        }
        if state.rest.foreign > 0 && state.rest.key == Key::Free {
            also(&|next| {
                next.rest.foreign -= 1;
                next.rest.key = Key::Foreign;
                next.rest.left = TTL;
                Ok(())
            });
        }
        if state.rest.key == Key::Foreign {
            also(&|next| {
                next.delete_key();
                Ok(())
            });
        }
        if state.rest.forces > 0 && state.rest.key != Key::Free {
            let one = (0..=OTHER).filter(|&index| state.rest.key.is_mark() && state.is_listed(index)).map(Some);
            for whose in one.filter(|_| !self.older_force).chain([None]) {
                also(&|next| {
                    next.rest.forces -= 1;
                    self.force(next, whose)
                });
            }
        }
        if !state.waiters().any(Client::is_busy) {
            if self.clocks {
                also(&|next| self.tick(next));
            } else if state.could_go_on() {
                into.push(Err(LOST));
            }
        }
    }

    fn check(&self, state: &State) -> Checked {
        let mut holders = state.clients.iter().filter(|client| client.holds());
        while let Some(holder) = holders.next() {
            if !holders.clone().all(|other| holder.fits_beside(other)) {
                return Err(TWO_HOLDERS);
            }
        }
        for (index, client) in state.clients.iter().enumerate() {
            let listed = state.is_listed(index);
            if client.phase == Phase::Ousted && listed {
                return Err(CAME_BACK);
            }
            let left = client.phase == Phase::Done && client.life != Life::Dead;
            if left && (client.in_q || client.reserved || listed) {
                return Err(LEFT_BEHIND);
            }
        }
        let mut members = state.clients.iter().filter(|client| client.listed && client.claim.key().is_mark());
        let is_left = match state.rest.key.is_mark() {
            true => members.next().is_none(),
            false => members.next().is_some_and(|first| first.lease == 0 && members.all(|other| other.lease == 0)),
        };
        if is_left { Err(LEFT_BEHIND) } else { Ok(()) }
    }
}
