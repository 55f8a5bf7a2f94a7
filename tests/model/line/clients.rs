//! The steps of a search, except failures: waiters act, nodes take up requests, and time passes.

use super::super::quorum::{Tally, Verdict, middle, quorum};
use super::state::{HOLDER, Late, Life, NEVER, NODES, NOW, Node, PAUSE, Phase, Request, Side, Stands, State, token};
use super::state::{WAITERS, earlier};
use super::{
    AFTER_FAILURE, Bounds, Checked, FIRST_LOOKS, LEFT_BEHIND, OTHERS_LOOK, OUTDATED, OVERTAKEN, TTL, TWO_HOLDERS,
    Without,
};

/// Is called once for each possible next step. The step is a function, too: it changes the state, and returns an error
/// if it finds a fault.
pub(super) type Also<'a> = &'a mut dyn FnMut(&dyn Fn(&mut State) -> Checked);

impl Bounds {
    pub(super) fn steps(&self, state: &State, into: &mut Vec<Checked<State>>) {
        let is_busy = state.is_busy();
        let mut also = |change: &dyn Fn(&mut State) -> Checked| {
            let mut next = *state;
            into.push(change(&mut next).and_then(|()| self.check(&mut next)).map(|()| next));
        };
        if !self.quick_pauses && !is_busy && state.pauses() {
            return self.end_pauses(state, &mut also);
        }
        for me in 0..usize::from(self.waiters) {
            self.step(state, me, &mut also);
            self.befall(state, me, &mut also);
        }
        for index in 0..NODES {
            self.serve_all(state, index, &mut also);
            self.befall_node(state, index, &mut also);
        }
        if state.rest.held {
            also(&|next| {
                next.rest.held = false;
                next.nodes.iter_mut().for_each(|node| node.releases = !node.away);
                Ok(())
            });
        }
        if self.clocks && !is_busy {
            also(&|next| self.pass_time(next));
        }
    }

    fn pass_time(&self, state: &mut State) -> Checked {
        self.tick(state);
        state.waiters.iter_mut().for_each(|waiter| match waiter.phase {
            Phase::Waiting if (PAUSE + 1..NEVER).contains(&waiter.look) => waiter.look -= 1,
            Phase::Trying => waiter.age = (waiter.age + 1).min(TTL),
            _ => {}
        });
        Ok(())
    }

    /// All steps while random pauses go on: one ends, several end at once, or a tick passes. All requests are done by
    /// now, because a pause lasts longer than a request.
    fn end_pauses(&self, state: &State, also: Also<'_>) {
        for ends in 1..1 << WAITERS {
            let is_of = |me: usize| ends & 1 << me != 0;
            if (0..WAITERS).all(|me| !is_of(me) || state.waiters[me].is_pausing()) {
                also(&|next| {
                    (0..WAITERS).filter(|&me| is_of(me)).for_each(|me| next.waiters[me].look = NOW);
                    Ok(())
                });
            }
        }
        if self.clocks {
            also(&|next| self.pass_time(next));
        }
    }

    /// All steps in which node `index` takes up a request.
    fn serve_all(&self, state: &State, index: usize, also: Also<'_>) {
        let node = &state.nodes[index];
        if node.releases {
            also(&|next| {
                next.nodes[index].releases = false;
                self.release(&mut next.nodes[index], HOLDER);
                Ok(())
            });
        }
        for (me, side) in node.sides.iter().enumerate() {
            if side.request.is_under_way() {
                also(&|next| {
                    self.serve(next, index, me);
                    Ok(())
                });
            }
            if side.late != Late::Nothing {
                also(&|next| {
                    self.serve_late(&mut next.nodes[index], me);
                    Ok(())
                });
            }
        }
    }

    /// All steps that waiter `me` can take, except failures.
    fn step(&self, state: &State, me: usize, also: Also<'_>) {
        let waiter = &state.waiters[me];
        if waiter.life != Life::Alive {
            return;
        }
        let under_way = state.nodes.iter().any(|node| node.sides[me].request.is_under_way());
        match waiter.phase {
            Phase::New => also(&|next| {
                let late = self.is(Without::SubscribedFirst);
                next.waiters[me].phase = if late { Phase::Waiting } else { Phase::Listening };
                Ok(())
            }),
            Phase::Listening => {
                self.listen(state, me, also);
                let hears = state.count(|node| node.sides[me].hears);
                if hears >= quorum(NODES) || hears == state.count(|node| !node.away) {
                    also(&|next| {
                        next.waiters[me].phase = Phase::Waiting;
                        Ok(())
                    });
                }
            }
            Phase::Waiting => {
                self.listen(state, me, also);
                self.hear(state, me, also);
                if waiter.look == NOW {
                    also(&|next| {
                        self.try_once(next, me);
                        Ok(())
                    });
                }
                if waiter.look == PAUSE && self.quick_pauses {
                    also(&|next| {
                        next.waiters[me].look = NOW;
                        Ok(())
                    });
                }
            }
            Phase::Trying => self.decide(state, me, also),
            Phase::RollingBack if !under_way => also(&|next| {
                next.waiters[me].phase = Phase::Waiting;
                Ok(())
            }),
            Phase::Holding if !under_way => also(&|next| {
                next.waiters[me].phase = Phase::Leaving;
                next.each_side(me, |side| side.ask(Request::Release));
                Ok(())
            }),
            Phase::Leaving if !under_way => also(&|next| {
                next.waiters[me].end(Phase::Done);
                Ok(())
            }),
            Phase::RollingBack | Phase::Holding | Phase::Leaving | Phase::Done => {}
        }
    }

    fn listen(&self, state: &State, me: usize, also: Also<'_>) {
        let late = self.is(Without::SubscribedFirst);
        for index in (0..NODES).filter(|&index| !state.nodes[index].away && !state.nodes[index].sides[me].hears) {
            also(&|next| {
                next.nodes[index].sides[me].hears = true;
                if !late {
                    next.waiters[me].look = NOW;
                }
                Ok(())
            });
        }
    }

    fn hear(&self, state: &State, me: usize, also: Also<'_>) {
        for index in 0..NODES {
            let side = &state.nodes[index].sides[me];
            if side.go {
                also(&|next| {
                    let side = &mut next.nodes[index].sides[me];
                    (side.go, side.called) = (false, true);
                    let soon = if next.count(|node| node.sides[me].called) >= quorum(NODES) { NOW } else { PAUSE };
                    next.waiters[me].look = next.waiters[me].look.min(soon);
                    Ok(())
                });
            }
            if side.head {
                also(&|next| {
                    next.nodes[index].sides[me].head = false;
                    next.waiters[me].look = next.waiters[me].look.min(if self.clocks { PAUSE } else { NEVER });
                    Ok(())
                });
            }
        }
    }

    /// Waiter `me` begins a try: it sends TAKE to all nodes, with a new token. On all nodes, the token of its previous
    /// try becomes [`earlier`].
    fn try_once(&self, state: &mut State, me: usize) {
        for node in &mut state.nodes {
            if !self.is(Without::OwnToken) {
                let renamed = |of: &mut u8| *of = if *of == token(me) { earlier(me) } else { *of };
                renamed(&mut node.key);
                node.sides.iter_mut().for_each(|side| renamed(&mut side.by));
                let late = &mut node.sides[me].late;
                *late = if *late == Late::OfLatest { Late::OfEarlier } else { *late };
            }
            let side = &mut node.sides[me];
            side.called = false;
            side.ask(if node.away { Request::Fault } else { Request::Take });
        }
        (state.waiters[me].phase, state.waiters[me].age) = (Phase::Trying, 0);
    }

    /// All steps in which waiter `me` decides about its try. It may have heard only some of the answers that have
    /// arrived, and decides if the missing ones cannot change the decision.
    fn decide(&self, state: &State, me: usize, also: Also<'_>) {
        for heard in 0..1usize << NODES {
            let of = |index: usize| heard & 1 << index != 0;
            if (0..NODES).any(|index| of(index) && !state.nodes[index].sides[me].request.is_answer()) {
                continue;
            }
            let said = |request| {
                (0..NODES).filter(|&index| of(index) && state.nodes[index].sides[me].request == request).count()
            };
            let (granted, held) = (said(Request::Granted), said(Request::Held) + said(Request::Reserved));
            let cannot = said(Request::Quarantined) + said(Request::Fault);
            let tally = Tally { nodes: NODES, yes: granted, no: held + cannot + said(Request::Superseded) };
            let is_explained = held >= quorum(NODES) || cannot + quorum(NODES) > NODES;
            let all = heard.count_ones() as usize == NODES;
            match tally.verdict() {
                Verdict::Yes if state.waiters[me].age < TTL => also(&|next| self.enter(next, me)),
                // If q nodes have not granted the try in time, one answer *superseded* is enough to give up.
                _ if said(Request::Superseded) > 0 => also(&|next| {
                    self.give_up(next, me);
                    if self.is(Without::SupersededLeaves) {
                        next.waiters[me].end(Phase::Done);
                        next.each_side(me, |side| side.ask(Request::Nothing));
                    }
                    Ok(())
                }),
                Verdict::No if is_explained || all => also(&|next| self.go_back(next, me, of)),
                // q nodes have granted the try, but the last of these answers came after the ttl.
                Verdict::Yes if all => also(&|next| self.go_back(next, me, of)),
                _ => {}
            }
        }
    }

    /// Waiter `me` gets the lock, because q nodes have granted its try. Errors: a waiter with a promised place
    /// ([`Stands::Yes`]) is overtaken, or a larger number of `--newest` was granted before.
    fn enter(&self, state: &mut State, me: usize) -> Checked {
        let overtaken = |waiter: usize| state.waiters[waiter].wants() && state.waiters[waiter].stands == Stands::Yes;
        if (0..me).any(overtaken) {
            return Err(OVERTAKEN);
        }
        if (1..state.rest.granted).contains(&self.numbers[me]) {
            return Err(OUTDATED);
        }
        state.rest.granted = state.rest.granted.max(self.numbers[me]);
        state.waiters[me].end(Phase::Holding);
        state.each_side(me, |side| {
            let out = !self.without_step_out(side);
            side.ask(match side.request {
                Request::Take if out => Request::TakeStepOut,
                Request::Take => Request::Take,
                _ if out => Request::StepOut,
                _ => Request::Nothing,
            });
            side.called = false;
        });
        Ok(())
    }

    /// Waiter `me` gives up, and asks each node in reach to undo all that it has done there.
    pub(super) fn give_up(&self, state: &mut State, me: usize) {
        state.waiters[me].end(Phase::Leaving);
        state.each_side(me, |side| {
            let behind = matches!(side.request, Request::Take | Request::TakeUndo);
            side.ask(if behind { Request::TakeLeave } else { Request::Leave });
            side.called = false;
        });
    }

    fn without_step_out(&self, side: &mut Side) -> bool {
        let without = self.is(Without::StepOut);
        side.hears &= !without;
        without
    }

    /// Waiter `me` undoes its try: fewer than q nodes have granted it, or q grants came too late. `heard`: whether it
    /// has heard the answer of the node with this index.
    fn go_back(&self, state: &mut State, me: usize, heard: impl Fn(usize) -> bool) -> Checked {
        state.waiters[me].look = self.next_look(state, me, &heard);
        state.waiters[me].phase = Phase::RollingBack;
        for (index, node) in state.nodes.iter_mut().enumerate() {
            let (away, side) = (node.away, &mut node.sides[me]);
            let request = side.request;
            side.carries |= away && request == Request::Granted;
            side.ask(match request {
                _ if away => Request::Nothing,
                Request::Take => Request::TakeUndo,
                Request::Granted | Request::Fault => Request::Undo,
                _ if !heard(index) => Request::Undo,
                _ => Request::Nothing,
            });
        }
        Ok(())
    }

    fn next_look(&self, state: &State, me: usize, heard: impl Fn(usize) -> bool) -> u8 {
        let in_ticks = |ticks: u8| if self.clocks && !self.is(Without::Looks) { ticks + PAUSE } else { NEVER };
        let heard: Vec<&Node> = (0..NODES).filter(|&index| heard(index)).map(|index| &state.nodes[index]).collect();
        let said = |is: fn(Request) -> bool| heard.iter().filter(|node| is(node.sides[me].request)).count();
        let answered = said(|request| request != Request::Fault);
        let is_refusal = |request| matches!(request, Request::Held | Request::Reserved);
        let refusals: Vec<(&Side, u8)> = heard
            .iter()
            .map(|node| (&node.sides[me], node.left))
            .filter(|(side, _)| is_refusal(side.request))
            .collect();
        let votes = refusals.iter().map(|(side, _)| refusals.iter().filter(|(other, _)| other.by == side.by).count());
        if answered < quorum(NODES)
            || said(|request| matches!(request, Request::Quarantined | Request::Fault)) == heard.len()
        {
            return if self.clocks { AFTER_FAILURE + PAUSE } else { PAUSE };
        }
        let rank = middle(refusals.iter().map(|(side, _)| side.rank).collect(), NODES).unwrap_or(0);
        let is_split = votes.max().unwrap_or(0) + NODES - answered < quorum(NODES);
        if is_split && rank == 0 {
            return if self.is(Without::Pause) { NOW } else { PAUSE };
        }
        let left = middle(refusals.iter().map(|&(_, left)| left.max(1)).collect(), NODES).unwrap_or(NEVER);
        let regular = if rank == 0 { FIRST_LOOKS } else { OTHERS_LOOK * (rank + 1) };
        in_ticks(regular.min(left))
    }

    /// Checks that at most one client believes that it holds the lock, and that waiters leave nothing behind. If a
    /// waiter stands in line, and listens, on q nodes that a holder has, its place is promised ([`Stands::Yes`]).
    fn check(&self, state: &mut State) -> Checked {
        if (0..=HOLDER).filter(|&client| state.holds(client)).count() > 1 {
            return Err(TWO_HOLDERS);
        }
        let held_by = (0..=HOLDER).find(|&client| state.holds(client)).map(token);
        for me in 0..WAITERS {
            let waiter = state.waiters[me];
            // No node knows anything of a live waiter that is done. This is not checked in searches with restarts or
            // outages, because there a node may miss the waiter's LEAVE or release.
            let left = waiter.phase == Phase::Done && waiter.life == Life::Alive && self.restarts + self.outages == 0;
            if left && state.count(|node| node.knows_nothing_of(me)) < NODES {
                return Err(LEFT_BEHIND);
            }
            let stands = |node: &Node| node.sides[me].in_line && node.sides[me].hears && Some(node.key) == held_by;
            if waiter.wants() && waiter.stands == Stands::Not && state.count(stands) >= quorum(NODES) {
                state.waiters[me].stands = Stands::Yes;
            }
        }
        Ok(())
    }
}
