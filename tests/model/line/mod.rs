//! Waiting in line on three nodes, for an exclusive lock: every order of every step of one to three waiters, breadth
//! first.
//!
//! Each node has its own key, line, reservation and subscriptions, and takes up requests one by one. A try is a TAKE on
//! each node. A waiter hears the answers one by one, and decides as soon as they suffice. [`clients`] has the waiters,
//! and [`node`] has the scripts. The other requests are UNDO, LEAVE, and the release of the first holder. Each of these
//! requests, too, reaches each node at a moment of its own. Waiters come in any order. They are numbered by ticket. A
//! ticket is the same on all nodes. A tick is half a second. In searches with clocks, waiters look, and leases and
//! reservations run out. In all other searches there are only calls. Every request takes less time than a random pause,
//! unless a search says that pauses may be quick. (A tick may end during a pause.) Clients, connections and nodes may
//! fail ([`failures`]).
//!
//! What must hold:
//!
//! * no two clients believe that they have the lock;
//! * while a live waiter wants the free lock, the lock is granted sooner or later, in every order of all steps. Where
//!   pauses end by chance, this has probability one ([`Hope`]). So no waiter is lost from the line for good;
//! * first come, first served. Once a live waiter stands in line, and listens, on q nodes that a holder has, no waiter
//!   with a later ticket overtakes this waiter. Exception: a failure has hit the overtaken waiter, or a node;
//! * with `--newest`, no number is granted after a larger number, unless a node has forgotten the larger one;
//! * a waiter that has left, or has released the lock, has left nothing behind. (Not checked if nodes may fail.)
//!
//! A live holder renews in no time, gives its lease back to a node that has restarted, and stops its job when fewer
//! than q nodes back the lease: the model of leases checks these steps. This model has no members, no fencing tokens,
//! and no callers that try once and do not wait.

use super::search::{Checked, HOPELESS, Hope, Space, bounds, is_clean};
use state::{HOLDER, NEVER, NODES, PAUSE, Phase, Rest, Side, Stands, State, Waiter, token};

mod clients;
mod failures;
mod node;
mod state;

/// How long a lease and a quarantine last, in ticks.
const TTL: u8 = 3;
/// How long the lock stays reserved for a waiter that was called, in ticks. In redlock it is 1000 ms.
const RESERVED: u8 = 2;
/// After how many ticks the first in line looks by itself. In redlock it is 400 ms.
const FIRST_LOOKS: u8 = 1;
/// After r + 1 times this many ticks the waiter at rank r (1 or more) looks. In redlock it is r + 1 seconds.
const OTHERS_LOOK: u8 = 2;
/// If fewer than q nodes answer a try, or all answers come from nodes in quarantine, the waiter repeats the try after
/// this many ticks.
const AFTER_FAILURE: u8 = 1;

/// The clause of the scripts or of a waiter that a search leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    /// No clause is left out.
    Nothing,
    /// If fewer than q nodes grant a try, the try is undone.
    RollBack,
    /// A waiter whose try is undone keeps its place in line.
    KeepsPlace,
    /// A try that was undone is repeated after a pause, not at once.
    Pause,
    /// Waiters look by the clock.
    Looks,
    /// A waiter queues only after q nodes, or all nodes that can be reached, have confirmed the waiter's subscription.
    /// If another node confirms later, the waiter looks again.
    SubscribedFirst,
    /// Each try has a token of its own.
    OwnToken,
    /// A waiter has the same ticket on all nodes: a time by the client's clock.
    OneTicket,
    /// TAKE undoes earlier tries, if the node has not confirmed that these tries are undone.
    TakeCarries,
    /// LEAVE undoes earlier tries, if the node has not confirmed that these tries are undone.
    LeaveCarries,
    /// A node that has called a waiter is reserved for this waiter.
    Reservation,
    /// A release calls the next waiter.
    ReleaseCalls,
    /// A waiter that leaves calls the next waiter.
    LeaveCalls,
    /// A waiter that gets the lock leaves the line on all nodes.
    StepOut,
    /// A node that has restarted grants nothing for a while.
    Quarantine,
    /// With `--newest`, a grant raises the number that the node keeps.
    GrantRaises,
    /// With `--newest`, re-creation raises the number that the node keeps.
    RecreateRaises,
    /// A waiter that is superseded undoes its tries, and leaves the line on all nodes.
    SupersededLeaves,
}

bounds! {
    Bounds {
        waiters: u8 = 0,
        /// How many waiters are in line from the start: the first ones. They are alive, and listen.
        in_line: u8 = 0,
        /// This many further waiters listen, and are about to ask. All other waiters may come at any time.
        about_to: u8 = 0,
        /// True: the first holder has its lease on all nodes. False: on a quorum.
        everywhere: bool = false,
        /// True: time passes, and waiters look by the clock. False: there are only calls.
        clocks: bool = false,
        /// True: pauses may end at any moment, and the search does not check that the lock is granted sooner or later.
        quick_pauses: bool = false,
        /// How often a waiter or the holder may die.
        kills: u8 = 0,
        freezes: u8 = 0,
        interrupts: u8 = 0,
        /// How often a node may restart, and forget everything.
        restarts: u8 = 0,
        /// How often a node may be out of reach for a while.
        outages: u8 = 0,
        /// How often a connection may be cut: the request or answer that is under way is then lost.
        cuts: u8 = 0,
        /// How often an UNDO may be late: the waiter has sent it again, over a new connection.
        lates: u8 = 0,
        /// The numbers of `--newest`: one for each waiter, then one for the first holder. 0 means no number.
        numbers: [u8; HOLDER + 1] = [0; HOLDER + 1],
    }
}

const TWO_HOLDERS: &str = "two holders";
const OVERTAKEN: &str = "a waiter that was in line before was overtaken";
const LEFT_BEHIND: &str = "something is left behind";
const OUTDATED: &str = "a number was granted behind a larger one";

impl Space for Bounds {
    type State = State;

    fn starts(&self) -> Vec<State> {
        let &Bounds { kills, freezes, interrupts, restarts, outages, cuts, lates, .. } = self;
        let granted = self.numbers[HOLDER];
        let rest = Rest { held: true, granted, kills, freezes, interrupts, restarts, outages, cuts, lates };
        let mut state = State { rest, ..State::default() };
        let held = if self.everywhere { NODES } else { NODES / 2 + 1 };
        for node in &mut state.nodes[..held] {
            (node.key, node.left, node.newest) = (token(HOLDER), TTL, self.numbers[HOLDER]);
        }
        for me in 0..usize::from(self.in_line + self.about_to) {
            let in_line = me < usize::from(self.in_line);
            let look = match me {
                _ if !in_line => 0,
                _ if !self.clocks => NEVER,
                0 => FIRST_LOOKS + PAUSE,
                _ => TTL + PAUSE,
            };
            let stands = if in_line { Stands::Yes } else { Stands::Not };
            state.waiters[me] = Waiter { phase: Phase::Waiting, look, stands, ..Waiter::default() };
            for node in &mut state.nodes {
                node.newest = node.newest.max(if in_line { self.numbers[me] } else { 0 });
                node.sides[me] = Side { hears: true, in_line, ..Side::default() };
            }
        }
        vec![state]
    }

    fn next(&self, state: &State, into: &mut Vec<Checked<State>>) {
        self.steps(state, into);
    }

    fn hope(&self, state: &State) -> Hope {
        if self.quick_pauses || state.is_held() || !state.waiters.iter().any(Waiter::wants) {
            Hope::Fulfilled
        } else if !state.is_busy() && state.pauses() {
            Hope::ByChance
        } else {
            Hope::Open
        }
    }

    fn show(&self, state: &State) -> String {
        let mut shown = format!("{:?}", state.rest);
        for waiter in &state.waiters[..usize::from(self.waiters)] {
            shown += &format!("\n   {waiter:?}");
        }
        for node in &state.nodes {
            shown += &format!("\n      {node:?}");
        }
        shown
    }
}

/// The holder has its lease on a quorum. One waiter is in line, another is about to ask; there is no look by the clock.
const CALLS: Bounds = Bounds { waiters: 2, in_line: 1, about_to: 1, ..Bounds::LEAST };
/// Two waiters are about to ask.
const RIVALS: Bounds = Bounds { in_line: 0, about_to: 2, ..CALLS };
/// One waiter comes at any time, and subscribes before it asks.
const COMES: Bounds = Bounds { waiters: 1, in_line: 0, about_to: 0, ..CALLS };
/// Two waiters are in line, and the holder has its lease everywhere.
const IN_LINE: Bounds = Bounds { in_line: 2, about_to: 0, everywhere: true, ..CALLS };
/// Three waiters are in line.
const THREE: Bounds = Bounds { waiters: 3, in_line: 3, ..IN_LINE };
/// Two waiters in line look by the clock.
const CLOCKS: Bounds = Bounds { clocks: true, ..IN_LINE };
const DEATH: Bounds = Bounds { kills: 1, ..CLOCKS };
/// One waiter is in line, and up to two of the waiter's connections are cut.
const CUTS: Bounds = Bounds { waiters: 1, in_line: 1, cuts: 2, ..IN_LINE };

#[test]
fn calls_alone_let_in_all_who_wait_in_their_order() {
    for bounds in [CALLS, RIVALS, COMES, IN_LINE, THREE] {
        is_clean(&bounds);
    }
}

#[test]
fn calls_alone_are_enough_when_one_freezes_leaves_or_is_cut_off() {
    is_clean(&Bounds { freezes: 1, ..IN_LINE });
    is_clean(&Bounds { interrupts: 1, ..IN_LINE });
    is_clean(&Bounds { cuts: 2, ..IN_LINE });
    is_clean(&Bounds { lates: 1, ..CALLS });
    is_clean(&Bounds { cuts: 3, interrupts: 1, ..CUTS });
}

#[test]
fn one_node_that_restarts_or_cannot_be_reached_stops_nobody() {
    is_clean(&Bounds { restarts: 1, ..IN_LINE });
    is_clean(&Bounds { outages: 1, ..IN_LINE });
}

#[test]
fn with_looks_the_dead_stop_nobody() {
    is_clean(&CLOCKS);
    is_clean(&DEATH);
    is_clean(&Bounds { quick_pauses: true, ..CLOCKS });
}

#[test]
fn a_part_of_the_lock_must_be_given_back_with_a_place_in_line_and_after_a_pause() {
    without(Without::RollBack, IN_LINE, LEFT_BEHIND, 44);
    without(Without::KeepsPlace, CLOCKS, OVERTAKEN, 26);
    without(Without::Pause, CALLS, HOPELESS, 2);
}

#[test]
fn tries_must_be_told_apart_and_undone_by_the_next_request() {
    without(Without::OwnToken, Bounds { lates: 1, ..RIVALS }, TWO_HOLDERS, 22);
    without(Without::TakeCarries, CUTS, LEFT_BEHIND, 29);
    without(Without::LeaveCarries, Bounds { cuts: 3, interrupts: 1, ..CUTS }, LEFT_BEHIND, 25);
}

#[test]
fn the_line_must_be_one_on_all_nodes_and_keep_others_out() {
    without(Without::OneTicket, RIVALS, OVERTAKEN, 19);
    without(Without::Reservation, CALLS, OVERTAKEN, 7);
    without(Without::StepOut, IN_LINE, LEFT_BEHIND, 15);
}

#[test]
fn whoever_makes_room_must_call_and_whoever_waits_must_hear_and_look() {
    without(Without::ReleaseCalls, IN_LINE, HOPELESS, 2);
    without(Without::LeaveCalls, Bounds { interrupts: 1, ..IN_LINE }, HOPELESS, 2);
    without(Without::SubscribedFirst, COMES, HOPELESS, 3);
    without(Without::Looks, DEATH, HOPELESS, 6);
}

#[test]
fn a_node_that_has_forgotten_must_not_vote() {
    without(Without::Quarantine, Bounds { restarts: 1, ..IN_LINE }, TWO_HOLDERS, 18);
}

/// The first waiter has a smaller number than the second, or a larger one.
const NUMBERS: [[u8; HOLDER + 1]; 2] = [[1, 2, 0, 0], [2, 1, 0, 0]];
const SMALLER_FIRST: Bounds = Bounds { numbers: NUMBERS[0], ..RIVALS };
/// The holder has a larger number than the waiter that comes, and gives its lease again to a node that has forgotten
/// the lease.
const OUTDATED_BY_HOLDER: Bounds =
    Bounds { waiters: 1, in_line: 0, about_to: 1, clocks: true, restarts: 2, numbers: [1, 0, 0, 2], ..CALLS };

#[test]
fn no_number_is_granted_behind_a_larger_one_that_a_quorum_has_granted() {
    for numbers in NUMBERS {
        is_clean(&Bounds { numbers, ..CALLS });
        is_clean(&Bounds { numbers, ..IN_LINE });
    }
    is_clean(&SMALLER_FIRST);
    is_clean(&Bounds { numbers: NUMBERS[1], ..CLOCKS });
    is_clean(&Bounds { numbers: NUMBERS[0], restarts: 1, ..IN_LINE });
    is_clean(&OUTDATED_BY_HOLDER);
}

#[test]
fn what_has_the_lock_must_be_known_as_the_newest_and_what_is_superseded_must_leave() {
    without(Without::GrantRaises, SMALLER_FIRST, OUTDATED, 17);
    without(Without::RecreateRaises, OUTDATED_BY_HOLDER, OUTDATED, 21);
    without(Without::SupersededLeaves, Bounds { numbers: NUMBERS[0], ..IN_LINE }, LEFT_BEHIND, 8);
}

#[test]
fn larger_bounds_are_clean() {
    if std::env::var_os("LARGE_MODELS").is_none() {
        return;
    }
    is_clean(&Bounds { in_line: 0, about_to: 0, ..CALLS });
    is_clean(&Bounds { about_to: 0, clocks: true, ..CALLS });
    is_clean(&Bounds { waiters: 3, in_line: 2, about_to: 1, ..IN_LINE });
    is_clean(&Bounds { clocks: true, quick_pauses: true, ..RIVALS });
    is_clean(&Bounds { freezes: 1, ..CLOCKS });
    is_clean(&Bounds { interrupts: 1, ..CLOCKS });
    is_clean(&Bounds { cuts: 1, ..CLOCKS });
    is_clean(&Bounds { lates: 1, ..CLOCKS });
    is_clean(&Bounds { restarts: 1, ..CLOCKS });
    is_clean(&Bounds { outages: 1, ..CLOCKS });
    is_clean(&Bounds { kills: 2, ..CLOCKS });
    for numbers in NUMBERS {
        is_clean(&Bounds { waiters: 2, numbers, ..COMES });
        is_clean(&Bounds { restarts: 1, numbers, ..CLOCKS });
        is_clean(&Bounds { outages: 1, numbers, ..IN_LINE });
        is_clean(&Bounds { kills: 1, numbers, ..CLOCKS });
    }
}
