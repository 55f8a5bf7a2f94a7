//! The scripts for an exclusive lock. One node carries out one script in one step. A tick is one step of all nodes.

use super::super::quorum::quorum;
use super::state::{FREE, HOLDER, Late, Life, NODES, Node, Phase, Request, State, earlier, reserved, token};
use super::{Bounds, RESERVED, TTL, Without};

/// Whom [`Bounds::call_next`] has called, or why nobody was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Called {
    Nobody,
    /// Another client holds the lock.
    Blocked,
    /// The lock is reserved for a waiter that an earlier script has called.
    Reserved,
    Waiter(usize),
}

/// Sends the message `go` (if `go` is true) or `head` to the waiter, and returns true. If it does not listen, drops it
/// from the line, and returns false.
fn publish(node: &mut Node, waiter: usize, go: bool) -> bool {
    let side = &mut node.sides[waiter];
    side.go |= go && side.hears;
    side.head |= !go && side.hears;
    side.in_line &= side.hears;
    side.hears
}

/// Drops all waiters at the front of the line that do not listen. Sends `head` to the first that listens.
fn tell_first(node: &mut Node) {
    while let Some(first) = node.first() {
        if publish(node, first, false) {
            return;
        }
    }
}

impl Bounds {
    /// Puts waiter `me` into the node's line, in the order of tickets. If the search leaves out `OneTicket`, waiters 0
    /// and 1 stand in the order in which they joined.
    fn join(&self, node: &mut Node, me: usize) {
        if !node.sides[me].in_line {
            node.sides[me].in_line = true;
            node.turned = self.is(Without::OneTicket) && (me == 0 && node.sides[1].in_line || me > 1 && node.turned);
        }
    }

    fn call_next(&self, node: &mut Node, me: Option<usize>) -> Called {
        if node.reserved().is_some() {
            tell_first(node);
            return Called::Reserved;
        }
        while let Some(first) = node.first() {
            if node.key != FREE {
                if publish(node, first, false) {
                    return Called::Blocked;
                }
                continue;
            }
            node.sides[first].in_line = false;
            tell_first(node);
            if Some(first) == me {
                return Called::Waiter(first);
            }
            if publish(node, first, true) {
                if !self.is(Without::Reservation) {
                    (node.key, node.left) = (reserved(first), RESERVED);
                }
                return Called::Waiter(first);
            }
        }
        Called::Nobody
    }

    /// Runs take.lua for waiter `me`. Returns the answer, the token that holds the lock (or [`FREE`]), and how many
    /// waiters stand in line before this one. Both numbers are 0 if the answer is `Granted` or `Superseded`.
    fn take(&self, node: &mut Node, me: usize) -> (Request, u8, u8) {
        let side = &mut node.sides[me];
        let drops = std::mem::take(&mut side.carries) && node.key == earlier(me) && !self.is(Without::TakeCarries);
        if drops {
            node.delete_key();
        }
        let held_by = if node.is_free() { FREE } else { node.key };
        let answer = self.grant_or_queue(node, me);
        if answer == Request::Superseded {
            if drops {
                self.call_next(node, None);
            }
            return (answer, 0, 0);
        }
        if answer != Request::Granted || !self.is(Without::GrantRaises) {
            node.newest = node.newest.max(self.numbers[me]);
        }
        if answer == Request::Granted {
            node.sides[me].in_line = false;
            (node.key, node.left) = (token(me), TTL);
            return (answer, 0, 0);
        }
        self.join(node, me);
        if drops {
            self.call_next(node, None);
        }
        let rank = node.line().take_while(|&waiter| waiter != me).count() as u8;
        (answer, held_by, rank)
    }

    fn grant_or_queue(&self, node: &mut Node, me: usize) -> Request {
        if node.key == token(me) {
            return Request::Granted;
        }
        if (1..node.newest).contains(&self.numbers[me]) {
            return Request::Superseded;
        }
        if !node.is_free() {
            return Request::Held;
        }
        if node.quarantined > 0 && !self.is(Without::Quarantine) {
            return Request::Quarantined;
        }
        match node.reserved() {
            Some(waiter) if waiter == me => return Request::Granted,
            Some(_) => return Request::Reserved,
            None if node.first().is_none() => return Request::Granted,
            None => self.join(node, me),
        }
        match self.call_next(node, Some(me)) {
            Called::Waiter(waiter) if waiter != me => Request::Reserved,
            _ => Request::Granted,
        }
    }

    /// Runs undo.lua with `stay`. If the lease with this token holds the lock on the node, deletes the lease, and puts
    /// waiter `me` into the line again.
    fn roll_back(&self, node: &mut Node, me: usize, token: u8) {
        if node.key != token || self.is(Without::RollBack) {
            return;
        }
        node.delete_key();
        if !self.is(Without::KeepsPlace) {
            self.join(node, me);
        }
    }

    /// Runs undo.lua without `stay`, because waiter `me` leaves the line. `keeps`: it has got the lock, and keeps its
    /// lease.
    fn leave(&self, node: &mut Node, me: usize, keeps: bool) {
        let carries = std::mem::take(&mut node.sides[me].carries) && !self.is(Without::LeaveCarries);
        if !keeps && node.key == token(me) || carries && node.key == earlier(me) || node.key == reserved(me) {
            node.delete_key();
        }
        let side = &mut node.sides[me];
        (side.in_line, side.hears, side.go, side.head) = (false, false, false, false);
        if !self.is(Without::LeaveCalls) {
            self.call_next(node, None);
        }
    }

    pub(super) fn release(&self, node: &mut Node, client: usize) {
        if node.key == token(client) {
            node.delete_key();
            if !self.is(Without::ReleaseCalls) {
                self.call_next(node, None);
            }
        }
    }

    /// Node `index` takes up the request of waiter `me`. If a second request stands behind a TAKE, only the TAKE is
    /// carried out in this step.
    pub(super) fn serve(&self, state: &mut State, index: usize, me: usize) {
        let waits = state.waiters[me].life != Life::Dead && state.waiters[me].phase == Phase::Trying;
        let node = &mut state.nodes[index];
        let request = std::mem::take(&mut node.sides[me].request);
        let rest = match request {
            Request::Take => {
                let (answer, by, rank) = self.take(node, me);
                if waits {
                    let side = &mut node.sides[me];
                    (side.request, side.by, side.rank) = (answer, by, rank);
                }
                return;
            }
            Request::TakeUndo => Request::Undo,
            Request::TakeStepOut => Request::StepOut,
            Request::TakeLeave => Request::Leave,
            Request::Undo => return self.roll_back(node, me, token(me)),
            Request::StepOut => return self.leave(node, me, true),
            Request::Leave => return self.leave(node, me, false),
            Request::Release => return self.release(node, me),
            _ => unreachable!("{request:?} is no request"),
        };
        self.take(node, me);
        node.sides[me].request = rest;
    }

    /// The node takes up a late UNDO of waiter `me`, which has sent a second copy over a new connection.
    pub(super) fn serve_late(&self, node: &mut Node, me: usize) {
        match std::mem::take(&mut node.sides[me].late) {
            Late::Nothing => {}
            Late::OfLatest => self.roll_back(node, me, token(me)),
            Late::OfEarlier => self.roll_back(node, me, earlier(me)),
        }
    }

    /// Half a second passes on all nodes. A live holder renews its lease on all nodes in reach that have it. If fewer
    /// than q nodes have it afterwards, the holder loses it. Requests of dead waiters are lost.
    pub(super) fn tick(&self, state: &mut State) {
        let holds: [bool; HOLDER + 1] = std::array::from_fn(|client| state.holds(client));
        for node in &mut state.nodes {
            node.quarantined = node.quarantined.saturating_sub(1);
            let renews = (0..=HOLDER).any(|client| holds[client] && node.key == token(client));
            node.left = if renews && !node.away { TTL } else { node.left.saturating_sub(1) };
            if node.left == 0 {
                node.delete_key();
            }
            for (side, waiter) in node.sides.iter_mut().zip(&state.waiters) {
                if waiter.life == Life::Dead {
                    side.ask(Request::Nothing); // it never arrived
                }
            }
        }
        for client in (0..=HOLDER).filter(|&client| holds[client]) {
            if state.count(|node| node.key == token(client)) < quorum(NODES) {
                state.lose(client);
            }
        }
    }
}
