//! The scripts of redlock, each as one step of the model's node.
//!
//! TAKE is the request to take the lock (take.lua). LEAVE is the request of a waiter that leaves the line (undo.lua).
//! The *list of members* is the key M. If an older version of redlock deletes the mark, the list stays without a mark.

use super::state::{Claim, Client, Ear, Key, Life, OTHER, Phase, Rest, State};
use super::{
    Bounds, Checked, FALSE_BUSY, FALSE_SUPERSEDED, FIRST_LOOKS, GRANTED_CLOSED, NEVER, OTHERS_LOOK, OUTDATED,
    OVERTAKEN, RESERVED, TTL, UNSEEN, Without,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Granted,
    /// The client gets no lease now. If it is a waiter, the node has put it in line.
    Refused,
    /// The slot for which the client asked is taken, but another is free.
    Taken,
    /// The client gets no lease, and must not wait.
    TurnedAway,
}

/// The result of [`Bounds::call`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Called {
    Nobody,
    /// The claim of the first in line does not fit beside the leases.
    Blocked,
    /// The lock is reserved for a waiter that an earlier request has called.
    Reserved,
    /// The index of the first in line: the node has called it, or is carrying out its TAKE.
    Client(usize),
}

impl Bounds {
    /// Sends a message to the waiter at this index: `go`, or `head` if `go` is false. If the server counts no listener,
    /// drops the waiter from the queue, and returns false.
    fn publish(&self, state: &mut State, index: usize, go: bool) -> bool {
        let client = &mut state.clients[index];
        if client.ear == Ear::Hears {
            let message = if go { &mut client.go } else { &mut client.head };
            *message = true;
        }
        let listens = client.ear != Ear::None || self.is(Without::Count);
        if !listens {
            client.in_q = false;
        }
        listens
    }

    /// If the lock's key is a mark: takes expired leases out of the list of members, and deletes the mark if no lease
    /// is left. If the key is no mark: deletes the list of members.
    fn sweep(&self, state: &mut State) {
        let is_mark = state.rest.key.is_mark();
        for client in &mut state.clients {
            let stays = match is_mark {
                true => client.lease > 0 || self.is(Without::Sweep),
                false => self.is(Without::Leftovers),
            };
            client.listed &= stays || !client.claim.key().is_mark();
        }
        if is_mark && state.members() == 0 {
            state.delete_key();
        }
    }

    fn fits(&self, state: &State, claim: Claim) -> bool {
        let key = state.rest.key;
        key == Key::Free
            || key.is_mark() && key == claim.key() && state.members() < key.limit()
            || self.is(Without::Limit) && key == Key::Two && claim == Claim::OneOfTwo
            || self.is(Without::Shape) && key.is_mark() && claim.key().is_mark()
    }

    /// Whether a waiter with this claim may fit beside the leases, as far as the node knows. It knows from the waiter's
    /// name that the waiter wants a slot, but not of how many.
    fn may_fit(&self, state: &State, claim: Claim) -> bool {
        let Rest { key, .. } = state.rest;
        let slots = matches!(key, Key::Two | Key::One) && matches!(claim, Claim::OneOfTwo | Claim::TheOnlyOne);
        if slots { state.members() < key.limit() } else { self.fits(state, claim) }
    }

    /// Sends `head` (you are first in line) to the first waiter in line that listens, and drops those in front of it.
    fn tell(&self, state: &mut State) {
        while let Some(first) = state.first().filter(|_| !self.is(Without::Tell)) {
            if self.publish(state, first, false) {
                return;
            }
        }
    }

    /// Calls the first waiter in line: takes it out of the line, sends it `go`, and reserves the lock. The second
    /// waiter is sent `head`. A first waiter that cannot fit stays in line, and is sent `head`. If the lock is reserved
    /// already, does nothing.
    ///
    /// `me`: the waiter whose TAKE the node may grant now; None: no waiter. If it is first, it is taken out of the
    /// line, but not called.
    fn call(&self, state: &mut State, me: Option<usize>) -> Checked<Called> {
        if state.reserved().is_some() && !self.is(Without::OneCall) {
            return Ok(Called::Reserved);
        }
        if self.is(Without::Clocks) {
            state.clients.iter_mut().for_each(|client| client.in_q &= client.unseen < UNSEEN);
        }
        while let Some(first) = state.first() {
            if Some(first) != me && !self.may_fit(state, state.clients[first].claim) && !self.is(Without::CallsWhoFits)
            {
                if self.publish(state, first, false) {
                    return Ok(Called::Blocked);
                }
                continue;
            }
            state.clients[first].in_q = false;
            self.tell(state);
            if Some(first) == me {
                return Ok(Called::Client(first));
            }
            if self.publish(state, first, true) {
                self.is_next(state, Some(first))?;
                state.delete_reservation();
                state.clients[first].reserved = true;
                state.rest.reservation = RESERVED;
                return Ok(Called::Client(first));
            }
        }
        Ok(Called::Nobody)
    }

    /// Checks that client `who`, which now gets the lock or a call, overtakes no waiter. `who`: None: the client that
    /// never waits, and must come after all of them. A called waiter that fits beside `who` is not overtaken.
    fn is_next(&self, state: &State, who: Option<usize>) -> Checked {
        let joined = who.map_or(0, |who| state.clients[who].joined);
        let claim = state.clients[who.unwrap_or(OTHER)].claim;
        let overtaken = |index: usize| {
            let client = &state.clients[index];
            let before = client.joined > 0 && (joined == 0 || client.joined < joined);
            let hears = client.ear == Ear::Hears && !client.excused;
            let called = client.reserved && self.both_fit(state, claim, client.claim);
            who != Some(index)
                && before
                && !client.listed
                && !called
                && client.life != Life::Dead
                && (client.in_q || client.lives() && hears)
        };
        if (0..OTHER).any(overtaken) { Err(OVERTAKEN) } else { Ok(()) }
    }

    /// Whether the present leases leave room for two more, one with each of the two claims.
    fn both_fit(&self, state: &State, claim: Claim, other: Claim) -> bool {
        let key = claim.key();
        let free = if state.rest.key == key { key.limit() - state.members() } else { key.limit() };
        key == other.key() && self.fits(state, claim) && free >= 2
    }

    /// Whether a lease has the slot `place`, one of two slots.
    fn is_taken(state: &State, place: bool) -> bool {
        let has_it = |client: &Client| client.listed && client.claim == Claim::OneOfTwo && client.place == place;
        state.rest.key == Key::Two && state.clients.iter().any(has_it)
    }

    fn grant(&self, state: &mut State, who: usize, place: Option<bool>) -> Checked {
        let claim = state.clients[who].claim;
        let place = claim == Claim::OneOfTwo && place.unwrap_or(Self::is_taken(state, false));
        if (1..state.rest.stood).contains(&state.clients[who].number) {
            return Err(OUTDATED);
        }
        if let Some(reserved) = state.reserved().filter(|&reserved| reserved != who)
            && !self.both_fit(state, claim, state.clients[reserved].claim)
        {
            return Err(OVERTAKEN);
        }
        if state.rest.closed > 0 {
            return Err(GRANTED_CLOSED);
        }
        self.raise(state, who, self.is(Without::GrantRaises));
        state.rest.key = claim.key();
        state.rest.left = TTL;
        let client = &mut state.clients[who];
        client.place = place;
        client.listed = true;
        client.stale = false;
        client.lease = TTL;
        if who == OTHER {
            client.phase = Phase::Holding;
            client.life = Life::Alive;
        }
        if claim.key().is_mark() && !self.is(Without::GrantCalls) {
            self.call(state, None)?;
        }
        Ok(())
    }

    /// Carries out take.lua for the client `who`. `place`: the slot for which it asks; None: any slot. `refuses`: the
    /// node refuses for a reason of its own (a quarantine, say).
    pub(super) fn take(&self, state: &mut State, who: usize, place: Option<bool>, refuses: bool) -> Checked<Answer> {
        let frees = self.drop_earlier(state, who, Without::TakeCarries);
        let answer = self.grant_or_queue(state, who, place, refuses)?;
        if frees && answer != Answer::Granted && !self.is(Without::DropCalls) {
            self.call(state, None)?;
        }
        Ok(answer)
    }

    /// Deletes the lease of an earlier try of the client `who`, if its request names this try. True if a lease was
    /// deleted. `without`: if this clause is left out, deletes nothing.
    fn drop_earlier(&self, state: &mut State, who: usize, without: Without) -> bool {
        let Client { stale, carries, .. } = state.clients[who];
        let drops = stale && carries && state.is_listed(who) && !self.is(without);
        if drops {
            self.drop_lease(state, who);
        }
        drops
    }

    fn grant_or_queue(&self, state: &mut State, who: usize, place: Option<bool>, refuses: bool) -> Checked<Answer> {
        let client = state.clients[who];
        let me = Some(who).filter(|&who| who != OTHER);
        let older = client.claim == Claim::Older;
        let line = state.first().is_some();
        if !older {
            self.sweep(state);
        }
        if !older && state.rest.key.is_other_shape(client.claim) {
            return Ok(Answer::TurnedAway);
        }
        if self.is_superseded(state, who)? {
            return Ok(Answer::TurnedAway);
        }
        let fits = self.fits(state, client.claim) && !refuses;
        if self.is_closed_to(state, who) {
            if state.reserved() == me && me.is_some() && !self.is(Without::ClosedEndsCall) {
                state.delete_reservation();
            }
            if let Some(me) = me.filter(|_| !self.is(Without::ClosedKeepsPlace)) {
                self.queue(state, me);
            }
            return Ok(Answer::Refused);
        }
        if fits && place.is_some_and(|place| Self::is_taken(state, place)) {
            return Ok(Answer::Taken);
        }
        if client.life == Life::Alive && client.ear == Ear::Hears && client.knows {
            state.clients[who].excused = false;
        }
        if fits && self.may_enter(state, me, client.claim)? {
            self.grant(state, who, place)?;
            return Ok(Answer::Granted);
        }
        match me {
            Some(me) => self.queue(state, me),
            None if line || older => {}
            None => self.is_busy(state)?,
        }
        if me.is_none() && self.is(Without::OnlyWhoStands) {
            state.rest.newest = state.rest.newest.max(client.number);
        }
        Ok(Answer::Refused)
    }

    fn is_closed_to(&self, state: &State, who: usize) -> bool {
        let is_open_to_called = self.is(Without::ClosedToCalled) && state.reserved() == Some(who);
        state.rest.closed > 0 && !self.is(Without::Closed) && !is_open_to_called
    }

    /// Somebody opens the lock (close.lua without a time).
    pub(super) fn open(&self, state: &mut State) -> Checked {
        state.rest.closed = 0;
        if self.is(Without::OpeningCalls) { Ok(()) } else { self.call(state, None).map(|_| ()) }
    }

    /// Whether the register of `--newest` is larger than the number of client `who`. It is an error if no larger number
    /// has stood in line or was granted.
    fn is_superseded(&self, state: &State, who: usize) -> Checked<bool> {
        let Client { number, knows, .. } = state.clients[who];
        let is_larger = if self.is(Without::Peers) { state.rest.newest >= number } else { state.rest.newest > number };
        if number == 0 || !is_larger || knows && self.is(Without::EachLook) {
            return Ok(false);
        }
        if state.rest.stood > number { Ok(true) } else { Err(FALSE_SUPERSEDED) }
    }

    /// Raises the register of `--newest` to the number of the client `who`, unless the register is larger. `forgets`:
    /// true if a clause is left out: the register then stays as it is.
    fn raise(&self, state: &mut State, who: usize, forgets: bool) {
        let number = state.clients[who].number;
        state.rest.stood = state.rest.stood.max(number);
        if !forgets {
            state.rest.newest = state.rest.newest.max(number);
        }
    }

    /// Whether it is the turn of the client that has sent TAKE. The caller has checked that its claim fits beside the
    /// leases. `me`: the client, if it waits; None: the client that never waits. If it is its turn, takes it out of the
    /// line. Else calls the first waiter, unless the lock is reserved.
    fn may_enter(&self, state: &mut State, me: Option<usize>, claim: Claim) -> Checked<bool> {
        match state.reserved() {
            Some(reserved) if me == Some(reserved) => {
                state.delete_reservation();
                state.clients[reserved].in_q = false;
                return Ok(true);
            }
            Some(reserved) if !self.is(Without::Reservation) => {
                let empty = state.first().is_none();
                let beside = empty && self.both_fit(state, claim, state.clients[reserved].claim);
                return Ok(beside && !self.is(Without::BesideCalled));
            }
            _ => {}
        }
        if state.first().is_none() || me.is_none() && self.is(Without::Line) {
            self.is_next(state, me)?;
            return Ok(true);
        }
        if let Some(me) = me
            && state.clients[me].knows
            && !self.is(Without::OldTicket)
        {
            state.clients[me].in_q = true;
        }
        match self.call(state, me)? {
            Called::Client(called) if Some(called) != me => Ok(false),
            Called::Blocked | Called::Reserved => Ok(false),
            _ => self.is_next(state, me).map(|()| true),
        }
    }

    /// Checks that the node had a reason to refuse the client that never waits (`OTHER`), although the line was empty:
    /// the leases leave no room for it, or not for both it and a called waiter.
    fn is_busy(&self, state: &State) -> Checked {
        let claim = state.clients[OTHER].claim;
        let called = |called: usize| self.both_fit(state, claim, state.clients[called].claim);
        if state.has_room(claim) && state.reserved().is_none_or(called) { Err(FALSE_BUSY) } else { Ok(()) }
    }

    /// Puts the waiter `me` in line, unless it is in line already. Sets the time of its next look.
    fn queue(&self, state: &mut State, me: usize) {
        let left = match self.fits(state, state.clients[me].claim) {
            _ if state.rest.closed > 0 => Err(state.rest.closed),
            true if state.reserved().is_some() => Err(state.rest.reservation),
            _ => Ok(self.until_free(state)),
        };
        self.raise(state, me, self.is(Without::LineRaises));
        let client = &mut state.clients[me];
        if !client.in_q {
            client.missed = client.knows && !client.called;
            client.in_q = true;
            state.rest.queue = self.forgotten;
            if !client.knows || self.is(Without::OldTicket) {
                client.ticket = u8::MAX;
            }
            if !client.knows {
                client.joined = u8::MAX;
            }
        }
        if client.life == Life::Alive && client.ear == Ear::Hears {
            client.excused = false;
        }
        let ticket = client.ticket;
        let rank = state.waiters().filter(|client| client.in_q && client.ticket < ticket).count() as u8;
        if rank == 0 || !self.is(Without::EachLookKeepsQueue) {
            state.rest.queue = self.forgotten;
        }
        let regular = if rank == 0 && !self.is(Without::FirstLooks) { FIRST_LOOKS } else { OTHERS_LOOK * (rank + 1) };
        let at_expiry = if state.rest.closed > 0 {
            Without::LookAtOpening
        } else if rank == 0 || left.is_err() {
            Without::LookAtExpiry
        } else {
            Without::OthersAtExpiry
        };
        let look = if self.is(at_expiry) { regular } else { regular.min(left.unwrap_or_else(|left| left)) };
        state.clients[me].timer = if self.clocks { look } else { NEVER };
    }

    /// Ticks until a waiter may get the lock because leases have run out: the first lease if slots are held, else all
    /// leases.
    fn until_free(&self, state: &State) -> u8 {
        let first = state.clients.iter().filter(|client| client.listed).map(|client| client.lease).min();
        let slots = matches!(state.rest.key, Key::Two | Key::One) && !self.is(Without::FirstPlace);
        first.filter(|_| slots).unwrap_or(state.rest.left)
    }

    /// Deletes the lease of the client `who`. If others are left under the mark, the lock's key expires with the last
    /// of them. Else deletes the lock's key.
    fn drop_lease(&self, state: &mut State, who: usize) {
        state.clients[who].listed = false;
        if state.members() == 0 || !state.rest.key.is_mark() {
            state.delete_key();
        } else if !self.is(Without::Latest) {
            state.rest.left =
                state.clients.iter().filter(|client| client.listed).map(|client| client.lease).max().unwrap_or(0);
        }
    }

    pub(super) fn release(&self, state: &mut State, who: usize) -> Checked {
        if state.clients[who].claim != Claim::Older {
            self.sweep(state);
        }
        if state.is_listed(who) {
            self.drop_lease(state, who);
            if !self.is(Without::ReleaseCalls) {
                self.call(state, None)?;
            }
        }
        Ok(())
    }

    pub(super) fn leave(&self, state: &mut State, me: usize) -> Checked {
        let older = state.clients[me].claim == Claim::Older;
        if !older {
            self.sweep(state);
        }
        self.drop_earlier(state, me, Without::LeaveCarries);
        if state.is_listed(me) && !state.clients[me].stale || self.is(Without::LeaveCompares) {
            self.drop_lease(state, me);
        }
        if !self.is(Without::LeavePlace) {
            state.clients[me].in_q = false;
        }
        if state.clients[me].reserved && !self.is(Without::LeaveReservation) {
            state.delete_reservation();
        }
        state.clients[me].end(Phase::Done);
        self.leave_line(state, older)
    }

    /// Calls the first waiter in line, after another has left the line. If the lock is reserved, only sends it `head`.
    /// `older`: an older version of redlock has sent LEAVE. Its script only sends `head` if the lock is in use.
    pub(super) fn leave_line(&self, state: &mut State, older: bool) -> Checked {
        let tells = match older && state.rest.key != Key::Free {
            true => true,
            false if self.is(Without::LeaveCalls) => false,
            false => self.call(state, None)? == Called::Reserved && !self.is(Without::LeaveTells),
        };
        if tells {
            self.tell(state);
        }
        Ok(())
    }

    /// A roll-back: undoes a try of waiter `me`, which stays in line (undo.lua with `stay`). `late`: true: the request
    /// is late, and undoes only an earlier try; false: it undoes the waiter's last try. `names_place`: it contains the
    /// waiter's ticket.
    pub(super) fn rollback(&self, state: &mut State, me: usize, late: bool, names_place: bool) {
        let undoes = state.is_listed(me) && state.clients[me].stale == late;
        if undoes {
            self.drop_lease(state, me);
        }
        let client = &mut state.clients[me];
        if undoes || self.is(Without::RollBackOfGrants) {
            client.in_q |= names_place && !self.is(Without::RollBackKeepsPlace);
            if client.reserved && self.is(Without::RollBackOfGrants) {
                state.delete_reservation();
            }
        }
        let client = &mut state.clients[me];
        if !client.in_q && !client.knows {
            client.joined = 0;
        }
    }

    /// `release --force` deletes the lease of client `whose`; None: all leases. With [`Bounds::older_force`], an older
    /// version of redlock sends the request, which deletes only the lock's key, not the list of members.
    pub(super) fn force(&self, state: &mut State, whose: Option<usize>) -> Checked {
        let older = self.older_force;
        if !older {
            self.sweep(state);
        }
        for index in 0..=OTHER {
            if !state.is_listed(index) || whose.is_some_and(|whose| whose != index) {
                continue;
            }
            let client = &mut state.clients[index];
            if client.holds() {
                client.phase = Phase::Ousted;
            }
            client.excused = true; // its turn was a grant whose answer it has not read
            client.listed &= older && client.claim.key().is_mark();
        }
        if state.members() == 0 || older || whose.is_none() || !state.rest.key.is_mark() {
            state.delete_key();
        }
        self.call(state, None).map(|_| ())
    }
}
