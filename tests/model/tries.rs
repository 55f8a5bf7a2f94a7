//! `--tries 1` over three nodes: two clients try to take a lock, count their run, begin it, and end it. Requests and
//! answers come in any order.
//!
//! What must hold:
//!
//! * One run begins.
//! * No call is turned away by a run that does not count: a tie, a minority's grant, a run that was taken back. A client
//!   that is just counting its run, or taking it back, may turn a call away.
//! * Not all calls are turned away.

use super::bits::{packed, variants};
use super::search::{Checked, Space, bounds, is_clean};

const NODES: usize = 3;
const QUORUM: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// A run is counted by a request of its own, after the grant.
    AfterGrant,
    /// The command starts once a quorum has counted the run.
    ByQuorum,
    /// One node's word turns a call away.
    OneWord,
    /// A call waits for the answers of all nodes.
    WaitsForAll,
    /// A node counts only a lease that it has.
    OnlyHeld,
    /// A try that is undone is not counted any more.
    TakenBack,
    /// A lease that is re-created is counted again.
    Recreated,
}

bounds! {
    Bounds {
        /// How many requests may be lost.
        losses: u8 = 0,
        /// How many clients may give up while they count their runs.
        gives_up: u8 = 0,
        /// How often a node may restart, and forget everything. The lease of a run is re-created on it.
        restarts: u8 = 0,
        /// A node restarts only while a run goes on.
        in_run: bool = false,
        /// Only the last fault counts: all calls are turned away.
        patient: bool = false,
    }
}

variants! {
    Phase {
        Idle,
        Taking,
        Counting,
        Runs,
        /// The undo is under way; then the client tries again,
        Failed,
        /// or is turned away,
        Refused,
        /// or has given up.
        GivingUp,
        Out,
    }
}

variants! {
    Answer { None, Granted, Held, Tried, Counted }
}

packed! {
    Client {
        phase: Phase = 3,
        /// The nodes that have not executed the TAKE, the TRY, the UNDO.
        take: [bool; NODES] = 1,
        count: [bool; NODES] = 1,
        undo: [bool; NODES] = 1,
        said: [Answer; NODES] = 3,
    }
}

packed! {
    State {
        clients: [Client; 2],
        /// The client, from 1, that holds the lock on a node. 0: none.
        holders: [u8; NODES] = 2,
        /// The runs that each node has counted.
        first: [bool; NODES] = 1,
        second: [bool; NODES] = 1,
        has_run: bool = 1,
        losses: u8 = 1,
        gives_up: u8 = 1,
        restarts: u8 = 1,
    }
}

impl State {
    fn counted(&mut self, client: usize) -> &mut [bool; NODES] {
        if client == 0 { &mut self.first } else { &mut self.second }
    }

    /// True if the count of this client's run on this node may turn a call away.
    fn may_count(&self, client: usize, node: usize) -> bool {
        let Client { phase, undo, .. } = self.clients[client];
        match phase {
            Phase::Counting | Phase::Runs => true,
            Phase::Failed | Phase::Refused | Phase::GivingUp => undo[node],
            // The only run has ended.
            Phase::Out => self.has_run,
            Phase::Idle | Phase::Taking => false,
        }
    }
}

impl Client {
    fn count(&self, answer: Answer) -> usize {
        self.said.iter().filter(|&&said| said == answer).count()
    }

    /// Undoes the try; `phase` says what comes then.
    fn undo(&mut self, phase: Phase) -> Checked {
        (self.phase, self.undo, self.said) = (phase, [true; NODES], [Answer::None; NODES]);
        Ok(())
    }
}

impl Bounds {
    fn take(&self, state: &mut State, at: usize, node: usize) -> Checked {
        state.clients[at].take[node] = false;
        let known = (0..2).filter(|&client| state.counted(client)[node]).collect::<Vec<_>>();
        state.clients[at].said[node] = match state.holders[node] {
            _ if !known.is_empty() => Answer::Tried,
            0 => Answer::Granted,
            _ => Answer::Held,
        };
        if !self.patient && !known.is_empty() && !known.iter().any(|&client| state.may_count(client, node)) {
            return Err(LEFT_OUT);
        }
        if state.clients[at].said[node] == Answer::Granted {
            state.holders[node] = at as u8 + 1;
            state.counted(at)[node] = self.is(Without::AfterGrant);
        }
        Ok(())
    }

    /// The client judges the answers to its TAKE.
    fn judge(&self, state: &mut State, at: usize) -> Checked {
        let client = &mut state.clients[at];
        let (granted, tried) = (client.count(Answer::Granted), client.count(Answer::Tried));
        let needed = if self.is(Without::OneWord) { QUORUM } else { 1 };
        client.take = [false; NODES];
        if tried >= needed {
            return client.undo(Phase::Refused);
        }
        if granted < QUORUM {
            return client.undo(Phase::Failed);
        }
        if self.is(Without::AfterGrant) {
            return self.begin(state, at);
        }
        (client.phase, client.count, client.said) = (Phase::Counting, [true; NODES], [Answer::None; NODES]);
        Ok(())
    }

    fn begin(&self, state: &mut State, at: usize) -> Checked {
        state.clients[at].phase = Phase::Runs;
        if std::mem::replace(&mut state.has_run, true) { Err(TWICE) } else { Ok(()) }
    }

    /// The node executes a TRY, which may come late.
    fn count(&self, state: &mut State, at: usize, node: usize) -> Checked {
        state.clients[at].count[node] = false;
        let has = usize::from(state.holders[node]) == at + 1;
        if has || self.is(Without::OnlyHeld) {
            state.counted(at)[node] = true;
        }
        if has && state.clients[at].phase == Phase::Counting {
            state.clients[at].said[node] = Answer::Counted;
        }
        Ok(())
    }

    /// The node executes an UNDO. After the last, the client goes on.
    fn undo(&self, state: &mut State, at: usize, node: usize) -> Checked {
        if usize::from(state.holders[node]) == at + 1 {
            state.holders[node] = 0;
        }
        state.counted(at)[node] &= self.is(Without::TakenBack);
        let client = &mut state.clients[at];
        client.undo[node] = false;
        if client.undo == [false; NODES] {
            let is_refused = client.phase == Phase::Refused;
            client.phase = if client.phase == Phase::Failed { Phase::Idle } else { Phase::Out };
            let all = state.clients.iter().all(|client| client.phase == Phase::Out);
            if is_refused && all && !state.has_run && state.gives_up == self.gives_up {
                return Err(NOBODY);
            }
        }
        Ok(())
    }

    /// The node restarts. The lease of the run that goes on is re-created.
    fn restart(&self, state: &mut State, node: usize) -> Checked {
        state.restarts -= 1;
        let holder = usize::from(std::mem::take(&mut state.holders[node]));
        (state.first[node], state.second[node]) = (false, false);
        if let Some(at) = holder.checked_sub(1).filter(|&at| state.clients[at].phase == Phase::Runs) {
            state.holders[node] = at as u8 + 1;
            state.counted(at)[node] = !self.is(Without::Recreated);
        }
        Ok(())
    }
}

impl Space for Bounds {
    type State = State;

    fn starts(&self) -> Vec<State> {
        let Bounds { losses, gives_up, restarts, .. } = *self;
        vec![State { losses, gives_up, restarts, ..State::default() }]
    }

    fn next(&self, state: &State, into: &mut Vec<Checked<State>>) {
        let mut also = |change: &dyn Fn(&mut State) -> Checked| {
            let mut next = *state;
            into.push(change(&mut next).map(|()| next));
        };
        for (at, client) in state.clients.into_iter().enumerate() {
            for node in 0..NODES {
                if client.take[node] {
                    also(&|next| self.take(next, at, node));
                }
                if client.count[node] {
                    also(&|next| self.count(next, at, node));
                }
                if client.undo[node] {
                    also(&|next| self.undo(next, at, node));
                }
                if state.losses > 0 && (client.take[node] || client.count[node]) {
                    also(&|next| {
                        next.losses -= 1;
                        (next.clients[at].take[node], next.clients[at].count[node]) = (false, false);
                        Ok(())
                    });
                }
            }
            let has_all = client.take == [false; NODES];
            let counted = client.count(Answer::Counted);
            match client.phase {
                Phase::Idle => also(&|next| {
                    next.clients[at] = Client { phase: Phase::Taking, take: [true; NODES], ..Client::default() };
                    Ok(())
                }),
                Phase::Taking
                    if has_all || self.is(Without::WaitsForAll) && client.count(Answer::Granted) >= QUORUM =>
                {
                    also(&|next| self.judge(next, at));
                }
                Phase::Counting if counted >= if self.is(Without::ByQuorum) { 1 } else { QUORUM } => {
                    also(&|next| self.begin(next, at));
                }
                Phase::Counting => {
                    if client.count == [false; NODES] {
                        also(&|next| next.clients[at].undo(Phase::Failed));
                    }
                    if state.gives_up > 0 {
                        also(&|next| {
                            next.gives_up -= 1;
                            next.clients[at].undo(Phase::GivingUp)
                        });
                    }
                }
                Phase::Runs => also(&|next| {
                    next.clients[at].phase = Phase::Out;
                    for holder in next.holders.iter_mut().filter(|holder| usize::from(**holder) == at + 1) {
                        *holder = 0;
                    }
                    Ok(())
                }),
                _ => {}
            }
        }
        let runs = state.clients.iter().any(|client| client.phase == Phase::Runs);
        // The quarantine keeps a node from granting a lock that it has forgotten.
        let settled = |client: &Client| matches!(client.phase, Phase::Idle | Phase::Runs | Phase::Out);
        if state.restarts > 0 && (runs || !self.in_run) && state.clients.iter().all(settled) {
            (0..NODES).for_each(|node| also(&|next| self.restart(next, node)));
        }
    }
}

const PLAIN: Bounds = Bounds::LEAST;
const LOSES: Bounds = Bounds { losses: 1, ..PLAIN };
const GIVES_UP: Bounds = Bounds { gives_up: 1, ..PLAIN };
const RESTARTS: Bounds = Bounds { restarts: 1, ..PLAIN };
/// A node restarts while a run goes on, and another does not answer afterwards.
const RECREATES: Bounds = Bounds { in_run: true, losses: 1, ..RESTARTS };

const TWICE: &str = "a second run begins";
const LEFT_OUT: &str = "a call is turned away by a run that does not count";
const NOBODY: &str = "all calls are turned away";

#[test]
fn one_run_begins_and_no_call_is_turned_away_by_less() {
    for bounds in [PLAIN, LOSES, GIVES_UP, Bounds { losses: 1, ..GIVES_UP }, RESTARTS, RECREATES] {
        is_clean(&bounds);
    }
}

#[test]
fn each_clause_of_that_is_needed() {
    without(Without::AfterGrant, PLAIN, LEFT_OUT, 4);
    // A tie.
    without(Without::AfterGrant, Bounds { patient: true, ..PLAIN }, NOBODY, 16);
    without(Without::ByQuorum, LOSES, TWICE, 15);
    without(Without::OneWord, RESTARTS, TWICE, 18);
    without(Without::WaitsForAll, RESTARTS, TWICE, 16);
    without(Without::OnlyHeld, GIVES_UP, LEFT_OUT, 10);
    without(Without::TakenBack, GIVES_UP, LEFT_OUT, 10);
    without(Without::Recreated, RECREATES, TWICE, 18);
}
