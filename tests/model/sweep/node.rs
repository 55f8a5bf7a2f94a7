//! The scripts: what the node does at once.

use super::{Bounds, COUNTED, FALSE_BUSY, FORGOTTEN, NO_PLACE, SWEPT, TOKENS, TWO_HOLDERS, Without};
use super::{Checked, Key, Lease, Request, State};

/// When the clock goes on by a tick while a script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    Not,
    /// Before the expiry of the key is set,
    BeforeKey,
    /// or behind it, before that of the lists is.
    BeforeLists,
}

/// A script at work.
pub(super) struct Script<'a> {
    pub(super) bounds: &'a Bounds,
    pub(super) state: &'a mut State,
    /// The key as far as the script knows.
    pub(super) key: Key,
    pub(super) late: Late,
    /// That has happened.
    pub(super) is_late: bool,
    /// More may have run out than it has forgotten.
    pub(super) more: bool,
}

impl Script<'_> {
    fn is(&self, without: Without) -> bool {
        self.bounds.without.contains(&without)
    }

    fn is_mark(&self) -> bool {
        matches!(self.key, Key::Shared | Key::Slots)
    }

    fn is_live(&self, token: usize) -> bool {
        let lease = self.state.leases[token];
        lease.listed && lease.left > 0
    }

    /// By the clock as it is by now.
    fn is_promised(&self, lease: &Lease) -> bool {
        lease.promised > u8::from(self.is_late)
    }

    /// The mark and all beside it are deleted.
    fn delete(&mut self) {
        self.state.delete_key();
        self.state.delete_lists();
        if !self.is(Without::SaysSo) {
            self.key = Key::Free;
        }
    }

    fn forget(&mut self, token: usize) {
        let lease = &mut self.state.leases[token];
        lease.listed = false;
        lease.placed = false;
    }

    /// The latest deadline; none of an empty list.
    fn last(&self) -> Option<u8> {
        self.state.leases.iter().filter(|lease| lease.listed).map(|lease| lease.left).max()
    }

    /// The head of every script.
    fn sweep(&mut self) {
        if !self.is_mark() {
            return;
        }
        if !self.is(Without::Sweep) {
            let over = (0..TOKENS).filter(|&token| {
                self.state.leases[token].listed && (!self.is_live(token) || self.is(Without::SweepLooks))
            });
            let over: Vec<usize> = over.take(SWEPT).collect();
            self.more = over.len() == SWEPT;
            over.into_iter().for_each(|token| self.forget(token));
        }
        if self.last().is_none_or(|last| last == 0 && !self.is(Without::FirstLooks)) {
            self.delete();
        }
    }

    /// What has run out at a place.
    fn forget_at(&mut self, place: Option<u8>) {
        if !self.is_mark() || !self.more || self.is(Without::PlaceForgotten) {
            return;
        }
        for other in 0..TOKENS {
            let lease = self.state.leases[other];
            if lease.placed && Some(lease.place) == place && lease.left == 0 {
                self.forget(other);
            }
        }
    }

    fn mine(&self, token: usize) -> bool {
        match self.key {
            Key::Free => false,
            Key::Token => usize::from(self.state.whose) == token,
            _ => {
                let lease = self.state.leases[token];
                lease.listed && (lease.left > 0 || self.is(Without::MineLooks)) && self.key == self.bounds.claims[token]
            }
        }
    }

    /// PEXPIREAT. What is behind the clock is deleted at once.
    fn settle(&mut self) {
        let last = self.last().filter(|&last| last > 0 || self.is(Without::DropLooks));
        let Some(last) = last else { return self.delete() };
        self.is_late |= self.late == Late::BeforeKey;
        let is_past = |script: &Self| last <= u8::from(script.is_late);
        if self.state.key != Key::Free {
            if is_past(self) {
                self.state.delete_key();
            } else if !self.is(Without::LastsAsLong) {
                self.state.left = last;
            }
        }
        self.is_late |= self.late == Late::BeforeLists;
        if is_past(self) {
            self.state.delete_lists();
        } else if !self.is(Without::ListsExpire) {
            self.state.lists = last;
        }
        if self.state.key == Key::Free && !self.is(Without::LooksAgain) {
            self.key = Key::Free;
        }
    }

    fn drop_lease(&mut self, token: usize) {
        if self.is_mark() {
            self.forget(token);
            return self.settle();
        }
        self.state.delete_key();
        self.key = Key::Free;
    }

    /// Whether the list has so many at these places.
    fn is_taken(&self, first: u8, last: u8) -> bool {
        let taken = |lease: &&Lease| {
            lease.placed
                && (first..=last).contains(&lease.place)
                && (lease.left > 0 || !self.is(Without::PlacesDoNotLook))
        };
        let count = self.state.leases.iter().filter(taken).count();
        let all = usize::from(last - first + 1);
        self.is_mark() && if self.is(Without::AtLeast) { count == all } else { count >= all }
    }

    fn first_free(&self) -> Option<u8> {
        let (mut first, mut last) = (0, self.bounds.limit - 1);
        if self.is_taken(first, last) {
            return None;
        }
        while first < last {
            let middle = (first + last) / 2;
            if self.is_taken(first, middle) { first = middle + 1 } else { last = middle }
        }
        Some(first)
    }

    fn fits(&self, token: usize) -> bool {
        let listed = self.state.leases.iter().filter(|lease| lease.placed);
        let listed = listed.filter(|lease| lease.left > 0 || !self.is(Without::PlacesDoNotLook)).count();
        match self.key {
            Key::Free => true,
            key if key != self.bounds.claims[token] => false,
            Key::Slots => listed < usize::from(self.bounds.limit),
            key => key == Key::Shared,
        }
    }

    fn is_vacant(&self, token: usize, place: Option<u8>) -> bool {
        let taken = |lease: &Lease| {
            lease.placed && Some(lease.place) == place && (lease.left > 0 || !self.is(Without::VacantDoesNotLook))
        };
        match self.key {
            Key::Free => true,
            key if !self.is_mark() || key != self.bounds.claims[token] => false,
            Key::Slots => !self.state.leases.iter().any(taken),
            _ => true,
        }
    }

    fn lasts(&mut self, token: usize, ttl: u8) {
        let lease = &mut self.state.leases[token];
        lease.listed = true;
        lease.left = ttl;
        self.settle();
    }

    fn grant(&mut self, token: usize, place: u8) {
        let (claim, ttl) = (self.bounds.claims[token], self.bounds.ttl[token]);
        if self.key == Key::Free {
            self.key = claim;
            if self.state.key == Key::Free {
                self.state.key = claim;
                self.state.whose = if claim == Key::Token { token as u8 } else { 0 };
                self.state.left = ttl;
            }
            if !self.is(Without::GrantClears) {
                self.state.delete_lists();
            }
        }
        if claim == Key::Slots {
            self.state.leases[token].placed = true;
            self.state.leases[token].place = place;
        }
        if self.is_mark() {
            self.lasts(token, ttl);
        }
    }

    /// The node says that the lease is there.
    fn promise(&mut self, token: usize, lasts: bool) -> Checked {
        let (claims, ttl) = (self.bounds.claims, self.bounds.ttl[token]);
        let place = if claims[token] == Key::Slots { self.state.leases[token].place } else { 0 };
        let conflicts = |(other, lease): (usize, &Lease)| {
            let beside = claims[other] == claims[token] && (claims[token] == Key::Shared || lease.at != place);
            other != token && self.is_promised(lease) && (claims[token] == Key::Token || !beside)
        };
        if self.state.leases.iter().enumerate().any(conflicts) {
            return Err(TWO_HOLDERS);
        }
        if lasts {
            let lease = &mut self.state.leases[token];
            lease.promised = lease.promised.max(ttl);
            lease.at = place;
        }
        Ok(())
    }

    /// Whether a lease at this place, or any, fits beside all that the node has promised.
    fn has_room(&self, token: usize, place: Option<u8>) -> bool {
        let claims = self.bounds.claims;
        let others = || (0..TOKENS).filter(|&other| self.state.leases[other].promised > 0);
        if others().any(|other| claims[other] != claims[token]) {
            return false;
        }
        match (claims[token], place) {
            (Key::Shared, _) => true,
            (Key::Slots, Some(place)) => !others().any(|other| self.state.leases[other].at == place),
            (Key::Slots, None) => others().count() < usize::from(self.bounds.limit),
            _ => others().next().is_none(),
        }
    }

    /// Others have it: they are named and counted.
    fn refuse(&self) -> Checked {
        let counted = |lease: &&Lease| lease.listed && (lease.left > 0 || self.is(Without::CountsLook));
        let promised = self.state.leases.iter().filter(|lease| lease.promised > 0).count();
        let count = self.state.leases.iter().filter(counted).count();
        if self.is_mark() && !self.is_late && count != promised { Err(COUNTED) } else { Ok(()) }
    }

    /// The lease is not here.
    fn not_mine(&self, token: usize, place: Option<u8>) -> Checked {
        if self.is_promised(&self.state.leases[token]) {
            return Err(FORGOTTEN);
        }
        match self.is_vacant(token, place) {
            true => Ok(()),
            false if self.has_room(token, place) => Err(FALSE_BUSY),
            false => self.refuse(),
        }
    }

    fn lengthen(&mut self, token: usize) {
        let ttl = self.bounds.ttl[token];
        match self.is_mark() {
            true if self.state.leases[token].left < ttl => self.lasts(token, ttl),
            true => {}
            false => self.state.left = self.state.left.max(ttl),
        }
    }

    /// At this place; none: at any.
    fn take(&mut self, token: usize, place: Option<u8>) -> Checked {
        if self.mine(token) {
            self.lengthen(token);
            return self.promise(token, true);
        }
        if !self.fits(token) {
            return if self.has_room(token, None) { Err(FALSE_BUSY) } else { self.refuse() };
        }
        if place.is_some() && !self.is_vacant(token, place) {
            return if self.has_room(token, place) { Err(FALSE_BUSY) } else { Ok(()) };
        }
        let slots = self.bounds.claims[token] == Key::Slots;
        let free = if slots { place.or_else(|| self.first_free()).ok_or(NO_PLACE)? } else { 0 };
        self.grant(token, free);
        self.promise(token, true)
    }

    fn release(&mut self, token: usize, keep: bool) -> Checked {
        if !self.mine(token) {
            return self.not_mine(token, None);
        }
        match (keep, self.is_mark()) {
            (false, _) => self.drop_lease(token),
            (true, true) => self.lasts(token, 1),
            (true, false) => self.state.left = 1,
        }
        self.state.leases[token].promised = u8::from(keep);
        Ok(())
    }

    fn undo(&mut self, token: usize) {
        if self.mine(token) {
            self.drop_lease(token);
        }
        self.state.leases[token].promised = 0;
    }

    pub(super) fn run(&mut self, token: usize, request: Request) -> Checked {
        let place_of = |place: u8| Some(place).filter(|_| self.bounds.claims[token] == Key::Slots);
        let named = match request {
            Request::Extend(place) | Request::Take(place) | Request::TakeAgain(place) => place.and_then(place_of),
            Request::Recreate(place) | Request::Fence(place) => place_of(place),
            _ => None,
        };
        self.sweep();
        self.forget_at(named);
        match request {
            Request::Take(_) => self.take(token, named),
            Request::TakeAgain(_) => {
                self.undo((token + 1) % TOKENS);
                self.take(token, named)
            }
            Request::Extend(_) | Request::Fence(_) if !self.mine(token) => self.not_mine(token, named),
            Request::Extend(_) => {
                self.lengthen(token);
                self.promise(token, true)
            }
            Request::Fence(_) => self.promise(token, false),
            Request::Recreate(place) => {
                if !self.mine(token) {
                    if !self.is_vacant(token, named) {
                        return self.not_mine(token, named);
                    }
                    self.grant(token, place);
                } else {
                    self.lengthen(token);
                }
                self.promise(token, true)
            }
            Request::Release => self.release(token, false),
            Request::Keep => self.release(token, true),
            Request::Undo | Request::Force => {
                self.undo(token);
                Ok(())
            }
            Request::ForceAll => {
                self.delete();
                self.state.leases.iter_mut().for_each(|lease| lease.promised = 0);
                Ok(())
            }
            Request::OlderForce => Ok(()),
        }
    }
}
