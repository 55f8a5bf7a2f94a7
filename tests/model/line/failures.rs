//! The steps in which waiters, the first holder, connections and nodes fail.

use super::clients::Also;
use super::state::{HOLDER, Late, Life, Phase, Request, State, Waiter, token};
use super::{Bounds, NODES, TTL, Without};

impl Bounds {
    /// All steps in which a failure hits waiter `me` or one of its connections, its freeze ends, or the first holder
    /// dies.
    pub(super) fn befall(&self, state: &State, me: usize, also: Also<'_>) {
        let (rest, waiter) = (&state.rest, &state.waiters[me]);
        let alive = waiter.life == Life::Alive;
        if rest.kills > 0 && rest.held {
            also(&|next| {
                next.rest.kills -= 1;
                next.rest.held = false;
                Ok(())
            });
        }
        if rest.kills > 0 && waiter.life != Life::Dead && !matches!(waiter.phase, Phase::New | Phase::Done) {
            also(&|next| {
                next.rest.kills -= 1;
                next.waiters[me].end(Phase::Done);
                next.waiters[me].life = Life::Dead;
                for side in next.nodes.iter_mut().map(|node| &mut node.sides[me]) {
                    (side.hears, side.go, side.head, side.called) = (false, false, false, false);
                    if side.request.is_answer() {
                        side.ask(Request::Nothing);
                    }
                }
                Ok(())
            });
        }
        if rest.freezes > 0 && waiter.wants() {
            also(&|next| {
                next.rest.freezes -= 1;
                next.waiters[me].life = Life::Frozen;
                next.waiters[me].excuse();
                Ok(())
            });
        }
        if waiter.life == Life::Frozen {
            also(&|next| {
                next.waiters[me].life = Life::Alive;
                Ok(())
            });
        }
        if rest.interrupts > 0 && waiter.wants() {
            // A node may take up LEAVE before or after it notices that the waiter no longer listens.
            for hears in [false, true] {
                also(&|next| {
                    next.rest.interrupts -= 1;
                    self.give_up(next, me);
                    next.each_side(me, |side| side.hears &= hears);
                    Ok(())
                });
            }
        }
        if alive {
            (0..NODES).for_each(|index| self.cut(state, me, index, also));
        }
    }

    /// All steps in which the connection between waiter `me` and node `index` is cut. In one step the request or answer
    /// under way is lost. In another an UNDO becomes late: the waiter sends a second copy over a new connection.
    fn cut(&self, state: &State, me: usize, index: usize, also: Also<'_>) {
        let (rest, side) = (&state.rest, &state.nodes[index].sides[me]);
        let tries = state.waiters[me].phase == Phase::Trying;
        let cuts = match side.request {
            Request::Fault => false,
            Request::TakeUndo | Request::Undo => true,
            _ => tries,
        };
        if rest.cuts > 0 && cuts && !state.nodes[index].away {
            also(&|next| {
                next.rest.cuts -= 1;
                next.waiters[me].excuse();
                let side = &mut next.nodes[index].sides[me];
                side.ask(if tries { Request::Fault } else { Request::Nothing });
                side.carries |= !tries;
                Ok(())
            });
        }
        if rest.lates > 0 && side.request == Request::Undo && side.late == Late::Nothing {
            also(&|next| {
                next.rest.lates -= 1;
                next.waiters[me].excuse();
                next.nodes[index].sides[me].late = Late::OfLatest;
                Ok(())
            });
        }
    }

    /// All steps in which a failure hits node `index`, or in which it can be reached again.
    pub(super) fn befall_node(&self, state: &State, index: usize, also: Also<'_>) {
        if state.nodes[index].away {
            return also(&|next| {
                next.nodes[index].away = false;
                Ok(())
            });
        }
        if state.rest.restarts > 0 {
            also(&|next| {
                next.rest.restarts -= 1;
                self.lose(next, index, true);
                Ok(())
            });
        }
        if state.rest.outages > 0 {
            also(&|next| {
                next.rest.outages -= 1;
                self.lose(next, index, false);
                next.nodes[index].away = true;
                Ok(())
            });
        }
    }

    /// Node `index` loses its connections and the requests under way. `all`: it restarts, and forgets everything. If a
    /// live holder held the lock there, the holder re-creates its lease in the same step.
    pub(super) fn lose(&self, state: &mut State, index: usize, all: bool) {
        let holder = (0..=HOLDER).find(|&client| state.holds(client) && state.nodes[index].key == token(client));
        let State { nodes, waiters, rest } = state;
        let node = &mut nodes[index];
        node.releases = false;
        for (me, side) in node.sides.iter_mut().enumerate() {
            side.carries |= matches!(side.request, Request::TakeUndo | Request::Undo);
            if side.request.is_under_way() {
                let tries = side.request == Request::Take && waiters[me].life != Life::Dead;
                side.ask(if tries { Request::Fault } else { Request::Nothing });
            }
            (side.late, side.hears, side.go, side.head) = (Late::Nothing, false, false, false);
            side.in_line &= !all;
        }
        if all {
            let forgets = std::mem::take(&mut node.newest) > 0;
            if let Some(holder) = holder {
                node.newest = if self.is(Without::RecreateRaises) { 0 } else { self.numbers[holder] };
            } else {
                node.delete_key();
                rest.granted = if forgets { 0 } else { rest.granted };
            }
            node.quarantined = TTL;
        }
        waiters.iter_mut().for_each(Waiter::excuse);
    }
}
