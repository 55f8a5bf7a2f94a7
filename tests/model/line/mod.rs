//! Up to three waiters in line on three nodes, for an exclusive lock. A search goes through every order of every step,
//! breadth first. [`clients`] has the waiters, [`node`] the scripts, [`failures`] the failures.
//!
//! * **Requests.** A try is one TAKE to each node. UNDO undoes a try, and keeps the waiter's place in line. LEAVE
//!   undoes all that a waiter has done. By STEP OUT a waiter that has got the lock leaves the line. A release frees the
//!   lock.
//! * **Nodes.** Each node has a key, a line, reservations and subscriptions of its own. It takes up requests one by
//!   one. A request to all nodes reaches each of them at a different moment.
//! * **Waiters.** A waiter hears the answers to a try one by one, and decides as soon as they suffice. Waiters come in
//!   any order, and are numbered by ticket. The first waiter has the smallest ticket.
//! * **Time.** A tick is half a second. In searches with `clocks`, waiters look by the clock; leases, reservations and
//!   quarantines run out. In all other searches no time passes, and waiters wait for calls.
//! * **Pauses.** Before most tries a waiter makes a random pause, which lasts longer than any request, except in
//!   searches with `quick_pauses`. Ticks may pass meanwhile.
//!
//! What must hold:
//!
//! * No two clients believe that they hold the lock.
//! * If the lock is free, and a live waiter wants it, then sooner or later it is granted, in every order of steps.
//!   Where pauses end by chance, it is granted with probability one ([`Hope`]).
//! * First come, first served. A waiter's place is safe once one holder has the lock on q nodes, and the waiter is in
//!   line and listens on each of them. From then on, while it lives, no waiter with a later ticket overtakes it.
//!   Exception: a failure has hit the overtaken waiter, or a node.
//! * With `--newest`, no number is granted after a larger number, unless a node has forgotten the larger number.
//! * A waiter that has left, or has released the lock, has left nothing behind. (Not checked if nodes may fail.)
//!
//! In this model, the renewal and the re-creation of a lease take no time, nor does the end of a job that has lost its
//! lease. The model of leases checks these three in single steps. This model has no members, no fencing tokens, and no
//! callers that try once and do not wait.

use super::search::{Checked, HOPELESS, Hope, Space, bounds, is_clean};
use state::{HOLDER, NEVER, NODES, PAUSE, Phase, Rest, Side, Stands, State, Waiter, token};

mod clients;
mod failures;
mod node;
mod state;

/// How long a lease and a quarantine last, in ticks.
const TTL: u8 = 3;
/// In ticks. In redlock: 1000 ms.
const RESERVED: u8 = 2;
/// The first in line looks every `FIRST_LOOKS` ticks, even if nobody calls. In redlock: every 400 ms.
const FIRST_LOOKS: u8 = 1;
/// The waiter at rank r (1 or more) looks every (r + 1) × `OTHERS_LOOK` ticks. In redlock: every r + 1 seconds.
const OTHERS_LOOK: u8 = 2;
/// The next try comes this many ticks later if fewer than q nodes answer a try, or only nodes in quarantine.
const AFTER_FAILURE: u8 = 1;

/// What a search leaves out. Each clause is a rule for nodes or for waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// A node that takes up UNDO undoes its grant of the try.
    RollBack,
    /// A node that undoes its grant of a try gives the waiter back its place in line.
    KeepsPlace,
    /// If no client has q nodes, the first in line makes a random pause before the next try.
    Pause,
    /// A waiter looks by the clock, even if nobody calls it.
    Looks,
    /// A waiter queues only after q nodes, or all nodes in reach, have confirmed its subscription. When a further node
    /// confirms it, the waiter looks.
    SubscribedFirst,
    /// Each try of a waiter has a token of its own.
    OwnToken,
    /// A waiter has the same ticket on all nodes: a time by the client's clock.
    OneTicket,
    /// If a node has not confirmed the UNDO of a waiter's try, the waiter's next TAKE there undoes the try.
    TakeCarries,
    /// If a node has not confirmed the UNDO of a waiter's try, the waiter's LEAVE there undoes the try.
    LeaveCarries,
    /// A node that sends a waiter `go` reserves the lock for it.
    Reservation,
    /// A node that carries out a release calls the next waiter.
    ReleaseCalls,
    /// A node that carries out LEAVE or STEP OUT calls the next waiter.
    LeaveCalls,
    /// A waiter that gets the lock leaves the line on all nodes.
    StepOut,
    /// A node that has restarted grants nothing until its quarantine ends.
    Quarantine,
    /// A node that grants a lease notes the lease's number of `--newest`, if it knows no larger one.
    GrantRaises,
    /// A node on which a holder re-creates its lease notes the lease's number of `--newest`.
    RecreateRaises,
    /// A waiter that hears *superseded* undoes its tries, and leaves the line, on all nodes.
    SupersededLeaves,
}

bounds! {
    Bounds {
        waiters: u8 = 0,
        /// How many waiters stand in line on all nodes at the start, and listen: those with the smallest tickets.
        in_line: u8 = 0,
        /// How many waiters are not in line at the start, but listen, and are about to send TAKE. Their tickets are
        /// larger than those of the waiters in line. All others may come at any time.
        about_to: u8 = 0,
        /// Whether the first holder has its lease on all nodes, or on q nodes only.
        everywhere: bool = false,
        /// Whether time passes, and waiters look by the clock. Otherwise they wait for calls.
        clocks: bool = false,
        /// True: random pauses may end while requests are under way. The search then does not check that the lock is
        /// granted sooner or later. False: each pause lasts longer than all requests.
        quick_pauses: bool = false,
        /// How often a waiter or the first holder may die.
        kills: u8 = 0,
        freezes: u8 = 0,
        interrupts: u8 = 0,
        /// How often a node may restart, and forget everything.
        restarts: u8 = 0,
        /// How often a node may be out of reach for a while.
        outages: u8 = 0,
        /// How often a connection may be cut. The request or answer under way is then lost.
        cuts: u8 = 0,
        /// How many UNDOs may arrive late, after the waiter has sent a second copy over a new connection.
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

/// The first holder has its lease on q nodes. One waiter is in line, another is about to send its first TAKE. No time
/// passes.
const CALLS: Bounds = Bounds { waiters: 2, in_line: 1, about_to: 1, ..Bounds::LEAST };
/// Nobody is in line at the start. Two waiters are about to send their first TAKE.
const RIVALS: Bounds = Bounds { in_line: 0, about_to: 2, ..CALLS };
/// Nobody is in line at the start. The only waiter comes at any time, and does not listen before.
const COMES: Bounds = Bounds { waiters: 1, in_line: 0, about_to: 0, ..CALLS };
/// Two waiters are in line, and the first holder has its lease on all nodes.
const IN_LINE: Bounds = Bounds { in_line: 2, about_to: 0, everywhere: true, ..CALLS };
const THREE: Bounds = Bounds { waiters: 3, in_line: 3, ..IN_LINE };
const CLOCKS: Bounds = Bounds { clocks: true, ..IN_LINE };
const DEATH: Bounds = Bounds { kills: 1, ..CLOCKS };
/// One waiter is in line. Up to two times, one of its connections is cut.
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

/// In the first list the first waiter has a smaller number of `--newest` than the second, in the second list a larger
/// one.
const NUMBERS: [[u8; HOLDER + 1]; 2] = [[1, 2, 0, 0], [2, 1, 0, 0]];
const SMALLER_FIRST: Bounds = Bounds { numbers: NUMBERS[0], ..RIVALS };
/// The first holder has a larger number of `--newest` than the only waiter. Up to two times, a node restarts, and the
/// first holder re-creates its lease there.
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
