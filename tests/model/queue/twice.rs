//! Waiting in line on one node, with requests that are cut off or sent twice.
//!
//! Cut off: a connection is cut while a TAKE, the answer to a TAKE, or a roll-back is on its way. (A roll-back undoes
//! one TAKE, but keeps the waiter's place in line.) Sent twice: a client sends a LEAVE or a roll-back again over a new
//! connection, and the server may carry out the first copy after the second.

use super::{AFTER_FAILURE, Bounds, CALLS_AGAIN, QUIET, Without, is_clean, without};
use super::{FREE_TOO_LONG, LEFT_BEHIND, LOST};

const CUTS: Bounds = Bounds { cuts: 2, most_free: 2 * AFTER_FAILURE, ..QUIET };
/// One waiter is in line from the start. One connection may be cut, and one waiter may leave. Waiters look by the
/// clock.
const LEAVES: Bounds = Bounds { in_line: 1, cuts: 1, interrupts: 1, most_free: AFTER_FAILURE, ..QUIET };
/// One connection may be cut. After the cut, the node may refuse the waiter's TAKE, for example because it is in
/// quarantine. No waiter looks by the clock.
pub(super) const CALLS_CUT: Bounds =
    Bounds { cuts: 1, refusals: 1, losses: 0, breaks: 0, interrupts: 0, ..CALLS_AGAIN };
/// The answer to one TAKE may be lost, and one waiter may send a roll-back twice. No waiter looks by the clock.
pub(super) const CALLS_LATE: Bounds = Bounds { lates: 1, losses: 1, breaks: 0, interrupts: 0, ..CALLS_AGAIN };
/// The answer to one TAKE may be lost, and one waiter may send a roll-back twice. Waiters look by the clock.
const LATE: Bounds = Bounds { lates: 1, losses: 1, passers_by: 1, most_free: AFTER_FAILURE, ..QUIET };
/// One waiter may leave, send LEAVE twice, and come again. No waiter looks by the clock.
const LEAVES_LATE: Bounds = Bounds { lates: 1, interrupts: 1, again: true, clocks: false, ..QUIET };

#[test]
fn a_try_that_was_cut_off_is_in_the_way_of_nobody() {
    is_clean(CUTS);
    is_clean(LEAVES);
    is_clean(CALLS_CUT);
}

#[test]
fn what_is_said_twice_does_no_more_than_what_is_said_once() {
    is_clean(LATE);
    is_clean(CALLS_LATE);
    is_clean(LEAVES_LATE);
}

#[test]
fn the_next_request_must_undo_the_tries_that_were_cut_off_and_all_of_them() {
    without(Without::TakeCarries, CALLS_CUT, LOST, 14);
    without(Without::TakeCarries, CUTS, FREE_TOO_LONG, 20);
    without(Without::RemembersEarlier, CUTS, FREE_TOO_LONG, 24);
    without(Without::LeaveCarries, LEAVES, LEFT_BEHIND, 7);
}

#[test]
fn a_try_that_undoes_another_and_is_refused_must_call_the_next() {
    without(Without::DropCalls, CALLS_CUT, LOST, 19);
}

#[test]
fn a_roll_back_must_undo_a_grant_or_nothing() {
    without(Without::RollBackOfGrants, CALLS_LATE, LEFT_BEHIND, 12);
}

#[test]
fn a_name_must_not_be_used_again_nor_a_connection_be_given_up_open() {
    without(Without::NewName, LEAVES_LATE, LOST, 16);
    without(Without::Abort, LEAVES, LEFT_BEHIND, 6);
}
