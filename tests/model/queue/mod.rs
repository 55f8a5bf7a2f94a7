//! Waiting in line on one node: every order of every step of three waiters and of the holders, breadth first.
//!
//! Waiters subscribe, queue, look, are called, hold the lock, release it, are interrupted, freeze, thaw and die. Their
//! subscriptions break, and the server may or may not notice. Answers are lost. [`clients`] has the clients, and
//! [`node`] has the scripts. A script is one step, as on the server. A tick is half a second. Shorter steps (a request,
//! a message, a look that is due) happen before the next tick, in any order. Only the steps of frozen or dead clients
//! may happen later. States that differ only in the names of the waiters count once.
//!
//! Words:
//!
//! * A waiter *looks* when it sends TAKE. A *try* is one TAKE. A *roll-back* (undo.lua) undoes one try, but keeps the
//!   waiter's place in line. LEAVE (undo.lua) undoes all that the waiter did.
//! * A script that *calls* a waiter takes it out of the line, sends it `go`, and reserves the lock for it.
//! * The *list of members* (M) lists the shared leases, or the leases of slots. The lock's key is then a mark.
//!
//! What must hold:
//!
//! * no two clients whose leases conflict believe at the same time that they hold the lock. Two leases conflict unless
//!   both are shared, or both are different slots;
//! * no wake-up is lost. In searches without clocks, no live waiter waits for ever if it, and all waiters before it,
//!   could have the lock;
//! * in searches with clocks, no live waiter waits for more than [`Bounds::most_free`] ticks in a row if it, and all
//!   waiters before it, could have the lock;
//! * first come, first served. No client overtakes a waiter that is in line and not dead, or a live one that was
//!   dropped from the line, unless a failure has hit that waiter. Exception: a client may get a lease before a called
//!   waiter if both fit;
//! * a client that does not wait is refused only because of leases, waiters in line, a called waiter or `--newest`;
//! * with `--newest`, no number is granted once a larger number has stood in line or was granted. No client is
//!   superseded before that;
//! * after a client has left the line or released the lock, no lease, place in line or reservation of the client stays;
//! * no mark stays in the lock's key without a member. No list of members without a mark outlives its last lease;
//! * no lease that `release --force` has deleted comes back;
//! * nothing is granted while the lock is closed (`redlock stop --for`), and nobody waits for ever once it is open.

use super::search::{self, Checked, MOST, Space, bounds, search};
use state::{Claim, OTHER, State};

mod claims;
mod clients;
mod closed;
mod newest;
mod node;
mod state;
mod twice;

/// In ticks.
const TTL: u8 = 3;
/// In ticks. In redlock: 1000 ms.
const RESERVED: u8 = 2;
/// In ticks without a call. In redlock: 400 ms.
const FIRST_LOOKS: u8 = 1;
/// In ticks.
const CLOSED: u8 = 2;
/// The waiter at rank r (1 or more) looks after `OTHERS_LOOK * (r + 1)` ticks. In redlock: r + 1 seconds.
const OTHERS_LOOK: u8 = 2;
/// After a TAKE whose answer was lost, the waiter waits for this many ticks before the next.
const AFTER_FAILURE: u8 = 1;
/// The `timer` of a waiter that does not look by the clock.
const NEVER: u8 = 7;
/// If the clause [`Without::Clocks`] is left out, scripts drop a waiter that has not looked for this many ticks.
const UNSEEN: u8 = 3;

/// What a search leaves out: a rule for the scripts or for the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// A script sends `head` to the waiter that has become the first in line.
    Tell,
    /// The release of a lease calls the next waiter.
    ReleaseCalls,
    /// The LEAVE of a waiter calls the next waiter.
    LeaveCalls,
    /// The LEAVE of a waiter ends a reservation of the lock for it.
    LeaveReservation,
    /// The LEAVE of a waiter takes it out of the line.
    LeavePlace,
    /// The LEAVE of a waiter deletes a lease only if it is its own.
    LeaveCompares,
    /// A script drops a waiter from the line if PUBLISH counts no listener on its channel.
    Count,
    /// A reservation of the lock for a called waiter ends after [`RESERVED`] ticks.
    ReservationEnds,
    /// While the lock is reserved for a called waiter, a client that does not fit beside it gets no lease.
    Reservation,
    /// A client that does not wait gets no lease while a live waiter is in line.
    Line,
    /// A waiter that was dropped from the line comes back with its old ticket.
    OldTicket,
    /// No script drops a waiter because it has not looked for a while.
    Clocks,
    /// A waiter subscribes to its channel before it queues.
    SubscribedFirst,
    /// A waiter looks as soon as its broken subscription works again.
    LookWhenListening,
    /// The first in line looks when the present lease runs out. If the lock is reserved for another, a waiter looks
    /// when the reservation runs out.
    LookAtExpiry,
    /// Each waiter behind the first in line looks when the present lease runs out.
    OthersAtExpiry,
    /// The first in line looks by the clock more often than those behind it.
    FirstLooks,
    /// A roll-back of a waiter's try keeps its place in line.
    RollBackKeepsPlace,
    /// Each look of any waiter in line makes the queue (Q) last longer.
    EachLookKeepsQueue,
    /// The node grants no more slots than the lock has.
    Limit,
    /// The node grants no lease beside leases with another claim.
    Shape,
    /// A script deletes leases that have run out from the list of members.
    Sweep,
    /// A script deletes the list of members if the lock's key is not a mark.
    Leftovers,
    /// The list of members expires when its last lease ends.
    ListExpires,
    /// The renewal of a member makes the lock's key last at least as long as its lease.
    ExtendsKey,
    /// When one of several members gives up its lease, the lock's key expires with the last of the others.
    Latest,
    /// A script calls a waiter only if its claim fits beside the present leases.
    CallsWhoFits,
    /// A script calls no waiter while the lock is reserved for another.
    OneCall,
    /// The grant of a shared lease or of a slot calls the next waiter, which may fit beside the new lease.
    GrantCalls,
    /// While the lock is reserved for a called waiter, another client gets a lease if both fit and the line is empty.
    BesideCalled,
    /// If the lock is reserved for another waiter, the LEAVE of a waiter sends `head` to the first in line.
    LeaveTells,
    /// A waiter for a slot looks as soon as the first of the present leases runs out.
    FirstPlace,
    /// A waiter's TAKE names its earlier tries that may still have a lease. The node undoes them first.
    TakeCarries,
    /// A waiter's LEAVE names its earlier tries that may still have a lease. The node undoes them.
    LeaveCarries,
    /// After a roll-back, a waiter still remembers its earlier tries, because only the last one was undone.
    RemembersEarlier,
    /// A TAKE that undoes an earlier grant to the waiter, and grants nothing, calls the next waiter.
    DropCalls,
    /// A roll-back that finds no grant to undo changes neither the line nor a reservation. So a roll-back that arrives
    /// late or twice does no harm.
    RollBackOfGrants,
    /// A waiter that has left the line uses a new name if it comes again.
    NewName,
    /// A client that gives up a connection aborts it. A request that is still on its way never arrives.
    Abort,
    /// With `--newest`, a grant raises NEWEST, the largest number that was granted or has stood in line.
    GrantRaises,
    /// With `--newest`, a waiter that gets a place in line raises NEWEST to its number.
    LineRaises,
    /// With `--newest`, a client that gets neither the lock nor a place in line does not change NEWEST.
    OnlyWhoStands,
    /// With `--newest`, the node compares a waiter's number with NEWEST at each look of the waiter.
    EachLook,
    /// With `--newest`, a client whose number is equal to NEWEST is not superseded.
    Peers,
    /// With `--newest`, a superseded waiter sends LEAVE.
    SupersededLeaves,
    /// A closed lock is granted to no client.
    Closed,
    /// A closed lock is not granted to a called waiter either.
    ClosedToCalled,
    /// A called waiter that meets a closed lock gives the call back, so that whoever opens the lock can call again.
    ClosedEndsCall,
    /// A waiter that meets a closed lock stands in line.
    ClosedKeepsPlace,
    /// Whoever opens the lock calls the next waiter.
    OpeningCalls,
    /// A waiter that meets a closed lock looks when the lock opens by itself.
    LookAtOpening,
}

bounds! {
    Bounds {
        /// How many live, subscribed waiters are in line from the start. They stand behind the dead waiters.
        in_line: u8 = 0,
        /// How many waiters hold the lock from the start, together with the holder that never waits: 0, or 1 (the last
        /// waiter).
        holders: u8 = 0,
        /// How many waiters at the front of the line are dead from the start.
        dead: u8 = 0,
        /// Whether time passes, and waiters look by the clock.
        clocks: bool = false,
        /// For how many ticks in a row a live waiter may wait, although it, and all waiters before it, could have the
        /// lock.
        most_free: u8 = 0,
        /// The queue (Q) expires after this many ticks without a look; 0: never.
        forgotten: u8 = 0,
        /// How often a waiter or the holder may die.
        kills: u8 = 0,
        /// How often a waiter may freeze.
        freezes: u8 = 0,
        /// How often a waiter's subscription may break.
        breaks: u8 = 0,
        /// How often the answer to a TAKE may be lost.
        losses: u8 = 0,
        /// How often a waiter may be interrupted. An interrupted waiter sends LEAVE.
        interrupts: u8 = 0,
        /// How often a client that does not wait may come, and try once to take the lock.
        passers_by: u8 = 0,
        /// How often another library may take the free lock. It frees the lock, but calls no waiter.
        foreign: u8 = 0,
        /// How often `release --force` may end one of several leases, or free the lock.
        forces: u8 = 0,
        /// True: `release --force` comes from an older version of redlock, which knows only exclusive leases.
        older_force: bool = false,
        /// How often a connection may be cut while a TAKE, the answer to a TAKE, or a roll-back is on its way.
        cuts: u8 = 0,
        /// How often a waiter may send LEAVE or a roll-back twice, over two connections. The server may carry out the
        /// first copy at any time.
        lates: u8 = 0,
        /// How often the node may refuse a TAKE for a quarantine, or for the recent success of a run. This happens only
        /// to a waiter whose earlier try still has a lease.
        refusals: u8 = 0,
        /// How often somebody may close the lock, for [`CLOSED`] ticks. Without clocks somebody opens it again.
        closes: u8 = 0,
        /// True: a waiter that has left the line, or has released the lock, may come again once.
        again: bool = false,
        /// The claims of the three waiters, then the claim of the holder that never waits.
        claims: [Claim; OTHER + 1] = [Claim::Exclusive; OTHER + 1],
        /// The claim of each client that tries once and does not wait.
        passer_by: Claim = Claim::Exclusive,
        /// The numbers of `--newest`: of the three waiters, then of the holder that never waits; 0: no number.
        numbers: [u8; OTHER + 1] = [0; OTHER + 1],
        passer_by_number: u8 = 0,
        /// Whether each TAKE of a waiter asks for a certain slot, as over several nodes. Otherwise the node picks one.
        names_places: bool = false,
    }
}

const TWO_HOLDERS: &str = "two holders";
const OVERTAKEN: &str = "a waiter that was in line before was overtaken";
const LOST: &str = "a lost wake-up";
const FREE_TOO_LONG: &str = "free for too long";
const LEFT_BEHIND: &str = "something is left behind";
const CAME_BACK: &str = "a lease that was deleted came back";
const GRANTED_CLOSED: &str = "a lease was granted while the lock was closed";
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

/// Three waiters may come, and one client that does not wait. Two waiters may leave. Nobody looks by the clock.
const CALLS: Bounds = Bounds { interrupts: 2, passers_by: 1, ..Bounds::LEAST };
/// As [`CALLS`], but two of the waiters are in line from the start, and only one may leave. One subscription may break:
/// both the server and the waiter notice.
const CALLS_AGAIN: Bounds = Bounds { in_line: 2, breaks: 1, interrupts: 1, ..CALLS };
/// As [`CALLS_AGAIN`], but no subscription breaks. The answer to one TAKE may be lost.
const CALLS_LOST: Bounds = Bounds { breaks: 0, losses: 1, ..CALLS_AGAIN };
/// Two waiters are in line from the start. A third waiter may come, and one client that does not wait. One waiter may
/// leave. Waiters look by the clock.
const CLOCKS: Bounds = Bounds { in_line: 2, clocks: true, interrupts: 1, ..CALLS };
/// As [`CLOCKS`], but no waiter leaves, and each client that comes waits. The constants below add failures.
const QUIET: Bounds = Bounds { interrupts: 0, passers_by: 0, ..CLOCKS };
/// Two dead waiters stand in line before a live waiter. One more client may die.
const DEAD: Bounds = Bounds { in_line: 1, dead: 2, kills: 1, ..QUIET };
/// Two clients may die, at any time. If a waiter dies just after its call, the lock stays reserved for this waiter.
const DEATHS: Bounds = Bounds { kills: 2, most_free: 2 * RESERVED, ..QUIET };
const FROZEN: Bounds = Bounds { freezes: 1, passers_by: 1, most_free: RESERVED, ..QUIET };
/// Two of three waiters may freeze, at worst the first two in line. The first is called in vain, and the second is sent
/// `head` in vain. The third looks after at most [`TTL`] ticks. This look calls the second, so the lock stays reserved
/// for [`RESERVED`] more ticks.
const TWO_FROZEN: Bounds = Bounds { in_line: 3, freezes: 2, most_free: RESERVED + TTL, ..QUIET };
/// One subscription may break. If neither the server nor the waiter notices, the waiter misses its call. At the latest,
/// it looks when the lease that it saw last would have run out.
const DEAF: Bounds = Bounds { breaks: 1, most_free: TTL, ..QUIET };
const TWO_DEAF: Bounds = Bounds { in_line: 3, breaks: 2, most_free: TTL + 1, ..QUIET };
const LOSS: Bounds = Bounds { losses: 1, most_free: AFTER_FAILURE, ..QUIET };
const FOREIGN: Bounds = Bounds { foreign: 1, most_free: FIRST_LOOKS, ..QUIET };
/// As [`DEAD`], but the queue (Q) expires after 5 ticks without a look, and instead of a death a client comes that does
/// not wait.
const FORGOTTEN: Bounds = Bounds { kills: 0, forgotten: 5, passers_by: 1, ..DEAD };
const FROZEN_FORGOTTEN: Bounds = Bounds { forgotten: 5, ..FROZEN };

/// Checks that a search finds no fault within these bounds, and that [`Bounds::most_free`] is as small as possible.
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
