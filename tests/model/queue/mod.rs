//! Waiting in line on one node: every order of every step of three waiters and of the holders, breadth first.
//!
//! Waiters subscribe, queue, look, are called, take, hold, release, are interrupted, freeze, thaw and die. Their
//! subscriptions break, and the server may or may not know this. Answers are lost. A script is one step, as on the
//! server ([`node`]; the clients: [`clients`]). A tick is half a second. Shorter steps (a request, a message, a look
//! that is due) happen before the next tick, in any order. Only frozen or dead clients may be later. States that differ
//! only in the names of the waiters count once.
//!
//! What must hold:
//!
//! * no two clients whose leases conflict believe that they have the lock. A writer conflicts with all clients, a slot
//!   with the same slot, a lease with leases of other claims;
//! * no wake-up is lost: if a waiter and all waiters before it could have the lock, calls alone wake this waiter. No
//!   look by the clock is needed;
//! * with looks by the clock, such a waiter waits for at most [`Bounds::most_free`] ticks, whatever dies, freezes or is
//!   lost;
//! * first come, first served: nobody overtakes a live waiter in line. A dropped waiter that is alive and hears is
//!   overtaken only if it was frozen or cut off. A client may pass a called waiter if both fit. A client that does not
//!   wait finds the lock busy only because of leases, the line or a called waiter;
//! * with `--newest`, no number is granted once a larger number has stood in line or was granted. Without such a larger
//!   number, no number is turned away;
//! * after a waiter has left, no lease, place or reservation of this waiter stays;
//! * no mark stays without a lease. No list of leases stays without a mark when all its leases have run out;
//! * what `release --force` has deleted does not come back.

use super::search::{self, Checked, MOST, Space, bounds, search};
use state::{Claim, OTHER, State};

mod claims;
mod clients;
mod newest;
mod node;
mod state;
mod twice;

/// How long a lease lasts, in ticks.
const TTL: u8 = 3;
/// How long the lock is reserved for a waiter that was called: 1000 ms.
const RESERVED: u8 = 2;
/// The first in line looks by itself after this many ticks; in redlock, after 400 ms.
const FIRST_LOOKS: u8 = 1;
/// Behind the first, the waiter at rank r looks after `OTHERS_LOOK * (r + 1)` ticks: r + 1 seconds.
const OTHERS_LOOK: u8 = 2;
/// If the answer to a try was lost, the waiter repeats the try after this many ticks.
const AFTER_FAILURE: u8 = 1;
/// The timer of a waiter that does not look by the clock.
const NEVER: u8 = 7;
/// For [`Without::Clocks`]: a waiter that has not looked for this many ticks is taken for dead.
const UNSEEN: u8 = 3;

/// The clause that is left out: a clause of the scripts or of the waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    /// No clause is left out.
    Nothing,
    /// tell_first(): the script tells the new first in line that it is first.
    Tell,
    /// A release calls the next waiter.
    ReleaseCalls,
    /// A waiter that leaves calls the next waiter, if the lock is free.
    LeaveCalls,
    /// A waiter that leaves gives up its reservation.
    LeaveReservation,
    /// A waiter that leaves gives up its place.
    LeavePlace,
    /// A waiter that leaves undoes a grant only if the grant is the waiter's own.
    LeaveCompares,
    /// PUBLISH says how many listen: the script drops a waiter that does not listen.
    Count,
    /// A reservation runs out.
    ReservationEnds,
    /// A reservation holds off other clients.
    Reservation,
    /// A client that does not queue respects the line.
    Line,
    /// A waiter that was dropped comes back in its old place.
    OldTicket,
    /// No waiter is dropped because it has not looked for a while.
    Clocks,
    /// A waiter subscribes before it queues.
    SubscribedFirst,
    /// A waiter looks when its subscription works again.
    LookWhenListening,
    /// The first in line looks when the lease runs out. A waiter that meets a reservation looks when the reservation
    /// runs out.
    LookAtExpiry,
    /// All waiters behind the first look when the lease runs out.
    OthersAtExpiry,
    /// The first in line looks more often than the others.
    FirstLooks,
    /// A waiter whose try is rolled back keeps its place.
    RollBackKeepsPlace,
    /// A look of any waiter in line keeps the queue from being forgotten.
    EachLookKeepsQueue,
    /// No more slots are given than there are.
    Limit,
    /// Leases of different claims do not fit beside each other.
    Shape,
    /// A lease that has run out is taken out of the list.
    Sweep,
    /// A list of leases counts for nothing without a mark.
    Leftovers,
    /// The list of leases expires.
    ListExpires,
    /// The key lasts as long as the last lease.
    ExtendsKey,
    /// The key lasts no longer than the last lease.
    Latest,
    /// Only a waiter that fits is called.
    CallsWhoFits,
    /// No waiter is called while the lock is reserved for another.
    OneCall,
    /// A grant calls the next waiter, which may fit beside the new holder.
    GrantCalls,
    /// A client gets the lock beside a waiter that was called, if both fit.
    BesideCalled,
    /// If the lock is reserved for another waiter, LEAVE tells the new first in line that it is first.
    LeaveTells,
    /// A waiter for a slot looks when the first lease runs out, not when the last lease does.
    FirstPlace,
    /// TAKE undoes earlier tries, if the node has not confirmed that these tries are undone.
    TakeCarries,
    /// LEAVE undoes earlier tries, if the node has not confirmed that these tries are undone.
    LeaveCarries,
    /// A roll-back undoes only its own try: the waiter remembers the earlier tries.
    RemembersEarlier,
    /// A TAKE that has freed something, and grants nothing, calls the next waiter.
    DropCalls,
    /// A roll-back that undoes nothing leaves the line as it is, so a repeated or late roll-back does no harm.
    RollBackOfGrants,
    /// A waiter that has left comes again under another name.
    NewName,
    /// A client aborts a connection that it gives up: a request that is still on its way never arrives.
    Abort,
    /// With `--newest`, a grant raises the register. The register is the largest number that was granted or queued.
    GrantRaises,
    /// A client that gets a place in line raises the register too.
    LineRaises,
    /// A client that gets neither the lock nor a place in line leaves the register as it is.
    OnlyWhoStands,
    /// A waiter reads the register at each look.
    EachLook,
    /// Clients with equal numbers are peers: neither supersedes the other.
    Peers,
    /// A waiter that is superseded leaves the line.
    SupersededLeaves,
}

bounds! {
    Bounds {
        /// How many waiters are in line from the start, alive and subscribed.
        in_line: u8 = 0,
        /// How many waiters have the lock from the start; 1: the last waiter. The holder that never waits has the lock
        /// from the start too.
        holders: u8 = 0,
        /// How many waiters at the front of the line are dead from the start.
        dead: u8 = 0,
        /// True: time passes, and waiters look by the clock. False: there are only calls.
        clocks: bool = false,
        /// For how many ticks a live waiter may go on waiting although no lease is in the way.
        most_free: u8 = 0,
        /// The queue is forgotten after this many ticks without a look; 0: never.
        forgotten: u8 = 0,
        /// How often a waiter or the holder may die.
        kills: u8 = 0,
        /// How often a waiter may freeze.
        freezes: u8 = 0,
        /// How often a subscription may break.
        breaks: u8 = 0,
        /// How often an answer may be lost.
        losses: u8 = 0,
        /// How often a waiter may be interrupted.
        interrupts: u8 = 0,
        /// How often a client may come that wants the lock, but does not wait.
        passers_by: u8 = 0,
        /// How often another library may take the free lock. The library frees the lock without a call.
        foreign: u8 = 0,
        /// How often `release --force` may end one of several leases, or free the lock.
        forces: u8 = 0,
        /// True: a version that knows only exclusive leases frees the lock by force.
        older_force: bool = false,
        /// How often a connection may be cut while a try, its answer, or the request that undoes the try is on its way.
        cuts: u8 = 0,
        /// How often a waiter may send LEAVE or a roll-back twice, over two connections. The first copy may arrive at
        /// any time.
        lates: u8 = 0,
        /// How often the node may undo a waiter's earlier try, and refuse the new try. Reasons for a refusal are a
        /// quarantine, and the recent success of a run.
        refusals: u8 = 0,
        /// A waiter that has left, or has released the lock, may come again.
        again: bool = false,
        /// The claims of the waiters, and of the holder that does not wait.
        claims: [Claim; OTHER + 1] = [Claim::Exclusive; OTHER + 1],
        /// The claim of clients that come by.
        passer_by: Claim = Claim::Exclusive,
        /// The numbers of `--newest` of the waiters and the holder; 0: no number.
        numbers: [u8; OTHER + 1] = [0; OTHER + 1],
        passer_by_number: u8 = 0,
        /// True: each try of a waiter asks for one slot, as with several nodes. False: the node picks a slot.
        names_places: bool = false,
    }
}

const TWO_HOLDERS: &str = "two holders";
const OVERTAKEN: &str = "a waiter that was in line before was overtaken";
const LOST: &str = "a lost wake-up";
const FREE_TOO_LONG: &str = "free for too long";
const LEFT_BEHIND: &str = "something is left behind";
const CAME_BACK: &str = "a lease that was deleted came back";
const FALSE_BUSY: &str = "a client was turned away though it fits";
const OUTDATED: &str = "a number was granted though a larger one has come";
const FALSE_SUPERSEDED: &str = "a client was superseded though no larger number has come";

impl Space for Bounds {
    type State = State;

    fn starts(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn next(&self, state: &State, into: &mut Vec<Checked<State>>) {
        self.steps(state, into);
    }

    fn show(&self, state: &State) -> String {
        let mut shown = format!("{:?}", state.rest);
        for client in &state.clients {
            shown += &format!("\n      {client:?}");
        }
        shown
    }
}

/// Three waiters come at any time, and one client that never waits. Two waiters may leave. Nobody looks by the clock.
const CALLS: Bounds = Bounds { interrupts: 2, passers_by: 1, ..Bounds::LEAST };
/// As [`CALLS`], but two waiters are in line already, and only one may leave. A subscription breaks: the server and the
/// waiter notice the break.
const CALLS_AGAIN: Bounds = Bounds { in_line: 2, breaks: 1, interrupts: 1, ..CALLS };
/// As [`CALLS_AGAIN`], but no subscription breaks, and an answer is lost.
const CALLS_LOST: Bounds = Bounds { breaks: 0, losses: 1, ..CALLS_AGAIN };
/// Two waiters are in line, and look by the clock. A third waiter and a passer-by come, and one waiter may leave.
const CLOCKS: Bounds = Bounds { in_line: 2, clocks: true, interrupts: 1, ..CALLS };
/// As [`CLOCKS`], but no client leaves or comes by. The constants below add failures.
const QUIET: Bounds = Bounds { interrupts: 0, passers_by: 0, ..CLOCKS };
/// The first two in line are dead, and one more client may die.
const DEAD: Bounds = Bounds { in_line: 1, dead: 2, kills: 1, ..QUIET };
/// Any two clients die, at any time: a waiter may die just when it has been called.
const DEATHS: Bounds = Bounds { kills: 2, most_free: 2 * RESERVED, ..QUIET };
const FROZEN: Bounds = Bounds { freezes: 1, passers_by: 1, most_free: RESERVED, ..QUIET };
/// Any two waiters freeze, at worst the first two in line. The first is called in vain. The second was told `head`, but
/// cannot look. So nothing happens until the third looks: this look calls the second.
const TWO_FROZEN: Bounds = Bounds { in_line: 3, freezes: 2, most_free: RESERVED + TTL, ..QUIET };
/// One waiter misses its call, and does not know this. The waiter has seen a lease before, and looks when this lease
/// would run out.
const DEAF: Bounds = Bounds { breaks: 1, most_free: TTL, ..QUIET };
const TWO_DEAF: Bounds = Bounds { in_line: 3, breaks: 2, most_free: TTL + 1, ..QUIET };
const LOSS: Bounds = Bounds { losses: 1, most_free: AFTER_FAILURE, ..QUIET };
const FOREIGN: Bounds = Bounds { foreign: 1, most_free: FIRST_LOOKS, ..QUIET };
/// A queue is forgotten after 5 ticks without a look. The first two in line are dead.
const FORGOTTEN: Bounds = Bounds { kills: 0, forgotten: 5, passers_by: 1, ..DEAD };
const FROZEN_FORGOTTEN: Bounds = Bounds { forgotten: 5, ..FROZEN };

/// Checks that nothing goes wrong, and that [`Bounds::most_free`] is as small as possible.
#[track_caller]
fn is_clean(bounds: Bounds) {
    search::is_clean(&bounds);
    if bounds.most_free > 0 {
        let found = search(&Bounds { most_free: bounds.most_free - 1, ..bounds }, MOST);
        assert_eq!(found.wrong.map(|wrong| wrong.what), Some(FREE_TOO_LONG), "{bounds:?}");
    }
}

#[test]
fn calls_alone_lose_no_wake_up() {
    is_clean(CALLS);
    is_clean(CALLS_AGAIN);
    is_clean(CALLS_LOST);
}

#[test]
fn the_lock_is_free_for_no_half_second_while_all_goes_well() {
    is_clean(CLOCKS);
}

#[test]
fn those_who_were_dead_before_cost_no_time() {
    is_clean(DEAD);
}

#[test]
fn who_dies_when_it_was_called_costs_one_reservation() {
    is_clean(DEATHS);
    is_clean(Bounds { kills: 1, most_free: RESERVED, ..DEATHS });
}

#[test]
fn a_frozen_waiter_costs_one_reservation_and_keeps_its_place() {
    is_clean(FROZEN);
}

#[test]
fn two_frozen_waiters_cost_two_reservations_and_one_look() {
    is_clean(TWO_FROZEN);
}

#[test]
fn waiters_that_do_not_hear_look_by_themselves() {
    is_clean(DEAF);
    is_clean(TWO_DEAF);
}

#[test]
fn lost_answers_and_other_libraries_cost_one_look() {
    is_clean(LOSS);
    is_clean(FOREIGN);
}

#[test]
fn what_can_happen_to_one_waiter_can_happen_beside_another() {
    is_clean(Bounds { kills: 1, freezes: 1, ..TWO_FROZEN });
    is_clean(Bounds { in_line: 3, interrupts: 1, ..FOREIGN });
}

#[test]
fn a_queue_is_kept_while_any_waiter_looks() {
    is_clean(FORGOTTEN);
    is_clean(FROZEN_FORGOTTEN);
    without(Without::EachLookKeepsQueue, FORGOTTEN, OVERTAKEN, 10);
    without(Without::EachLookKeepsQueue, FROZEN_FORGOTTEN, OVERTAKEN, 11);
}

#[test]
fn whoever_frees_the_lock_must_call_the_next() {
    without(Without::ReleaseCalls, CALLS, LOST, 6);
    without(Without::ReleaseCalls, CLOCKS, FREE_TOO_LONG, 2);
    without(Without::LeaveCalls, CALLS, LOST, 11);
    without(Without::LeaveCalls, CLOCKS, FREE_TOO_LONG, 8);
}

#[test]
fn a_waiter_must_hear_before_it_queues_and_look_when_it_hears_again() {
    without(Without::SubscribedFirst, CALLS_AGAIN, LOST, 5);
    without(Without::LookWhenListening, CALLS_AGAIN, LOST, 5);
    without(Without::LookWhenListening, DEAF, FREE_TOO_LONG, 20);
}

#[test]
fn a_waiter_that_leaves_must_take_all_that_is_its_own_and_nothing_else() {
    without(Without::LeaveReservation, CALLS, LEFT_BEHIND, 6);
    without(Without::LeavePlace, CALLS, LEFT_BEHIND, 8);
    without(Without::LeaveCompares, CALLS, TWO_HOLDERS, 7);
}

#[test]
fn dead_waiters_must_be_passed_over_by_the_count_of_those_who_hear() {
    without(Without::Count, DEAD, FREE_TOO_LONG, 2);
}

#[test]
fn the_new_first_must_be_told_and_a_reservation_must_end() {
    without(Without::Tell, FROZEN, FREE_TOO_LONG, 5);
    without(Without::Tell, DEATHS, FREE_TOO_LONG, 15);
    without(Without::ReservationEnds, FROZEN, FREE_TOO_LONG, 15);
}

#[test]
fn the_line_goes_before_those_who_come_by() {
    without(Without::Reservation, CALLS, OVERTAKEN, 5);
    without(Without::Line, CALLS_LOST, OVERTAKEN, 7);
    without(Without::Line, FROZEN, OVERTAKEN, 12);
}

#[test]
fn a_waiter_that_was_cut_off_must_keep_its_place() {
    without(Without::OldTicket, CALLS_AGAIN, OVERTAKEN, 8);
    without(Without::OldTicket, FROZEN, OVERTAKEN, 14);
    without(Without::RollBackKeepsPlace, CALLS_LOST, OVERTAKEN, 7);
    without(Without::Clocks, CLOCKS, OVERTAKEN, 12);
}

#[test]
fn waiters_must_look_when_what_they_wait_for_runs_out_and_the_first_one_more_often() {
    without(Without::LookAtExpiry, DEATHS, FREE_TOO_LONG, 16);
    without(Without::OthersAtExpiry, DEATHS, FREE_TOO_LONG, 12);
    without(Without::OthersAtExpiry, DEAD, FREE_TOO_LONG, 9);
    without(Without::FirstLooks, FOREIGN, FREE_TOO_LONG, 13);
}
