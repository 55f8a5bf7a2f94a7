//! `--newest`: once a larger number has stood in line or was granted, a client with a smaller one gets no lease, and
//! does not block others.
//!
//! TAKE answers `superseded` to a client with a smaller number. A waiter that gets this answer sends LEAVE, as an
//! interrupted one does. If the lock was reserved for it, LEAVE calls the next waiter.

use super::state::OTHER;
use super::twice::CALLS_CUT;
use super::{Bounds, CALLS, CALLS_AGAIN, CALLS_LOST, CLOCKS, DEATHS, FROZEN, LOSS, Without, is_clean, without};
use super::{FALSE_SUPERSEDED, LEFT_BEHIND, OUTDATED};

/// Of the three waiters, then of the holder that never waits; 0: no number. Waiters in line from the start stand in the
/// order of this list.
type Numbers = [u8; OTHER + 1];

const RISING: Numbers = [1, 2, 3, 1];
const LARGEST_FIRST: Numbers = [3, 1, 2, 0];
const PEERS: Numbers = [2, 1, 1, 2];
const SOME: Numbers = [1, 0, 2, 1];

fn with(numbers: Numbers, bounds: Bounds) -> Bounds {
    Bounds { numbers, passer_by_number: 2, ..bounds }
}

#[test]
fn no_number_is_granted_behind_a_larger_one_and_no_wake_up_is_lost() {
    for numbers in [RISING, LARGEST_FIRST, PEERS, SOME] {
        for bounds in [CALLS, CALLS_AGAIN, CALLS_LOST, CALLS_CUT] {
            is_clean(with(numbers, bounds));
        }
    }
}

#[test]
fn whoever_is_superseded_costs_those_behind_no_more_than_one_that_does_not_want_the_lock_any_more() {
    for bounds in [CLOCKS, DEATHS, FROZEN, LOSS] {
        is_clean(with(RISING, bounds));
        is_clean(with(SOME, bounds));
    }
}

#[test]
fn the_register_must_grow_with_all_who_are_granted_the_lock_or_a_place_and_with_nobody_else() {
    without(Without::GrantRaises, with(RISING, CALLS), OUTDATED, 6);
    without(Without::LineRaises, with(RISING, CALLS), OUTDATED, 6);
    without(Without::OnlyWhoStands, with(SOME, CALLS_LOST), FALSE_SUPERSEDED, 5);
}

#[test]
fn a_waiter_must_read_it_at_each_look_and_leave_where_a_larger_number_has_come() {
    without(Without::EachLook, with(RISING, CALLS_LOST), OUTDATED, 4);
    without(Without::Peers, with(PEERS, CALLS), FALSE_SUPERSEDED, 2);
    without(Without::SupersededLeaves, with(RISING, CLOCKS), LEFT_BEHIND, 4);
}
