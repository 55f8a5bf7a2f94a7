//! The scripts: each is a single step of the node.

use super::state::{Claim, Client, Ear, Key, Life, OTHER, Phase, Rest, State};
use super::{
    Bounds, Checked, FALSE_BUSY, FALSE_SUPERSEDED, FIRST_LOOKS, NEVER, OTHERS_LOOK, OUTDATED, OVERTAKEN, RESERVED, TTL,
    UNSEEN, Without,
};

/// The answer to a client that wants the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Granted,
    Refused,
    /// The slot is taken, but another slot is free.
    Taken,
    /// Refused for good.
    TurnedAway,
}

/// The result of calling the first in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Called {
    /// The line is empty.
    Nobody,
    /// The first in line does not fit.
    Blocked,
    /// The lock is reserved for a waiter that was called before.
    Reserved,
    Client(usize),
}

impl Bounds {
    /// Sends the waiter `go`, or else `head`. If the server counts no listener, drops the waiter, and returns false.
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

    /// With a mark: deletes expired leases in the list, and the mark if no lease is left. Without: empties the list.
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

    /// Whether a waiter may fit. The node knows only the waiter's name, which does not contain the number of slots.
    fn may_fit(&self, state: &State, claim: Claim) -> bool {
        let Rest { key, .. } = state.rest;
        let slots = matches!(key, Key::Two | Key::One) && matches!(claim, Claim::OneOfTwo | Claim::TheOnlyOne);
        if slots { state.members() < key.limit() } else { self.fits(state, claim) }
    }

    /// Sends `head` (keep watch) to the first waiter that listens. Drops the waiters in front of that waiter.
    fn tell(&self, state: &mut State) {
        while let Some(first) = state.first().filter(|_| !self.is(Without::Tell)) {
            if self.publish(state, first, false) {
                return;
            }
        }
    }

    /// Takes the first waiter out of the line, calls this waiter, and sends `head` to the next waiter. A first waiter
    /// that cannot fit stays in line, and is sent `head`. If the lock is reserved, does nothing. The node is just
    /// carrying out the request of `me`: if `me` is first, takes `me` out of the line, but does not call `me`.
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

    /// Checks that `who` overtakes no waiter. None is a client that does not wait, and must come after all waiters. A
    /// called waiter is not overtaken if it fits beside `who`.
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

    /// Whether there is room for leases of both claims.
    fn both_fit(&self, state: &State, claim: Claim, other: Claim) -> bool {
        let key = claim.key();
        let free = if state.rest.key == key { key.limit() - state.members() } else { key.limit() };
        key == other.key() && self.fits(state, claim) && free >= 2
    }

    /// Whether a lease has this slot, one of two.
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

    /// take.lua. `place`: the slot; None: any slot. `refuses`: the node refuses for a reason of its own.
    pub(super) fn take(&self, state: &mut State, who: usize, place: Option<bool>, refuses: bool) -> Checked<Answer> {
        let frees = self.drop_earlier(state, who, Without::TakeCarries);
        let answer = self.grant_or_queue(state, who, place, refuses)?;
        if frees && answer != Answer::Granted && !self.is(Without::DropCalls) {
            self.call(state, None)?;
        }
        Ok(answer)
    }

    /// Drops the lease of an earlier try if the request names this try. True if a lease was dropped.
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

    /// True if a number larger than the client's has stood in line, or was granted. A waiter learns this at each look.
    fn is_superseded(&self, state: &State, who: usize) -> Checked<bool> {
        let Client { number, knows, .. } = state.clients[who];
        let is_larger = if self.is(Without::Peers) { state.rest.newest >= number } else { state.rest.newest > number };
        if number == 0 || !is_larger || knows && self.is(Without::EachLook) {
            return Ok(false);
        }
        if state.rest.stood > number { Ok(true) } else { Err(FALSE_SUPERSEDED) }
    }

    /// Raises the register of `--newest` to the client's number. `forgets`: a clause is left out, so the node does not
    /// raise the register.
    fn raise(&self, state: &mut State, who: usize, forgets: bool) {
        let number = state.clients[who].number;
        state.rest.stood = state.rest.stood.max(number);
        if !forgets {
            state.rest.newest = state.rest.newest.max(number);
        }
    }

    /// Whether it is the turn of this client, whose claim fits. If yes, takes the client out of the line. If no, calls
    /// the first in line, unless the lock is reserved.
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

    /// Checks that a refused client had no room. The client does not wait, and the line was empty. Only leases and a
    /// called waiter may take the room away.
    fn is_busy(&self, state: &State) -> Checked {
        let claim = state.clients[OTHER].claim;
        let called = |called: usize| self.both_fit(state, claim, state.clients[called].claim);
        if state.has_room(claim) && state.reserved().is_none_or(called) { Err(FALSE_BUSY) } else { Ok(()) }
    }

    /// Gives the waiter a place in line, and sets the time of the waiter's next look.
    fn queue(&self, state: &mut State, me: usize) {
        let left = match self.fits(state, state.clients[me].claim) {
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
        let at_expiry = if rank == 0 || left.is_err() { Without::LookAtExpiry } else { Without::OthersAtExpiry };
        let look = if self.is(at_expiry) { regular } else { regular.min(left.unwrap_or_else(|left| left)) };
        state.clients[me].timer = if self.clocks { look } else { NEVER };
    }

    /// The number of ticks until a slot may be free. For readers and writers: until all leases have run out.
    fn until_free(&self, state: &State) -> u8 {
        let first = state.clients.iter().filter(|client| client.listed).map(|client| client.lease).min();
        let slots = matches!(state.rest.key, Key::Two | Key::One) && !self.is(Without::FirstPlace);
        first.filter(|_| slots).unwrap_or(state.rest.left)
    }

    /// Takes a lease away. The key then expires with the last of the other leases.
    fn drop_lease(&self, state: &mut State, who: usize) {
        state.clients[who].listed = false;
        if state.members() == 0 || !state.rest.key.is_mark() {
            state.delete_key();
        } else if !self.is(Without::Latest) {
            state.rest.left =
                state.clients.iter().filter(|client| client.listed).map(|client| client.lease).max().unwrap_or(0);
        }
    }

    /// release.lua.
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

    /// Calls the first waiter, after another waiter has left the line. Sends the first waiter only `head` if the lock
    /// is reserved, or if the lock is in use and `older` is true.
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

    /// undo.lua with `stay`. `late`: the next try has arrived before this request. The request then does not
    /// undo the lease of the next try. `names_place`: the request contains the waiter's ticket.
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

    /// `release --force`: deletes one lease, or all leases (None). With `older_force`, the call comes from an older
    /// version of redlock, which knows only exclusive leases.
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
