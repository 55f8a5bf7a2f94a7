//! Requests that are cut off, or sent twice. A connection is cut while a try, its answer, or the request that undoes
//! the try is on its way. Or a client sends a request again over a new connection, and the server takes up the first
//! copy later.

use super::{AFTER_FAILURE, Bounds, CALLS_AGAIN, QUIET, Without, is_clean, without};
use super::{FREE_TOO_LONG, LEFT_BEHIND, LOST};

const CUTS: Bounds = Bounds { cuts: 2, most_free: 2 * AFTER_FAILURE, ..QUIET };
/// One connection is cut, and a waiter leaves.
const LEAVES: Bounds = Bounds { in_line: 1, cuts: 1, interrupts: 1, most_free: AFTER_FAILURE, ..QUIET };
/// One connection is cut. No waiter looks by the clock. The node may refuse the next try for a reason of its own.
pub(super) const CALLS_CUT: Bounds =
    Bounds { cuts: 1, refusals: 1, losses: 0, breaks: 0, interrupts: 0, ..CALLS_AGAIN };
/// The answer to a try is lost. The waiter rolls the try back, and sends the request for the roll-back twice.
pub(super) const CALLS_LATE: Bounds = Bounds { lates: 1, losses: 1, breaks: 0, interrupts: 0, ..CALLS_AGAIN };
/// The answer to a try is lost. The waiter sends the request for the roll-back twice. Waiters look by the clock.
const LATE: Bounds = Bounds { lates: 1, losses: 1, passers_by: 1, most_free: AFTER_FAILURE, ..QUIET };
/// A waiter leaves, sends LEAVE twice, and comes again.
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
