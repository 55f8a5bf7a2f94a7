//! `redlock stop --for`: the lock is closed for a while, and somebody may open it earlier. TAKE then refuses each claim,
//! and a called waiter too; nothing else changes. Whoever opens the lock calls the next waiter; if it opens by itself,
//! the first in line looks.

use super::claims::{ALL_SHAPES, READERS_BEHIND_A_WRITER, SLOTS, with};
use super::{Bounds, CALLS, CALLS_AGAIN, CALLS_LOST, CLOCKS, FREE_TOO_LONG, FROZEN, GRANTED_CLOSED, LOST, OVERTAKEN};
use super::{DEATHS, Without, is_clean, without};

fn closing(bounds: Bounds) -> Bounds {
    Bounds { closes: 1, ..bounds }
}

#[test]
fn a_closed_lock_is_granted_to_nobody_and_then_to_all_in_their_order() {
    for bounds in [CALLS, CALLS_AGAIN, CALLS_LOST, CLOCKS, FROZEN, DEATHS] {
        is_clean(closing(bounds));
    }
    is_clean(Bounds { closes: 2, interrupts: 1, ..CALLS });
    for mix in [READERS_BEHIND_A_WRITER, SLOTS, ALL_SHAPES] {
        is_clean(closing(with(mix, CALLS)));
    }
}

#[test]
fn it_must_be_closed_to_all_and_to_the_called_waiter_too() {
    without(Without::Closed, closing(CALLS), GRANTED_CLOSED, 3);
    without(Without::ClosedToCalled, closing(CALLS), GRANTED_CLOSED, 9);
}

#[test]
fn whoever_is_refused_must_keep_its_place() {
    without(Without::ClosedKeepsPlace, closing(CALLS_AGAIN), OVERTAKEN, 6);
}

#[test]
fn whoever_opens_must_call() {
    without(Without::OpeningCalls, closing(CALLS_AGAIN), LOST, 9);
}

#[test]
fn a_called_waiter_must_give_the_call_back() {
    without(Without::ClosedEndsCall, closing(CALLS_AGAIN), LOST, 9);
}

#[test]
fn waiters_must_look_when_it_opens() {
    without(Without::LookAtOpening, closing(DEATHS), FREE_TOO_LONG, 14);
}
