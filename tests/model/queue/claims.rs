//! Waiting in one line on one node, for leases with different claims. Two shared leases fit together, and so do two
//! different slots of the same L. All others exclude each other.

use super::state::{Claim, OTHER};
use super::twice::{CALLS_CUT, CALLS_LATE};
use super::{AFTER_FAILURE, CALLS, CALLS_AGAIN, CALLS_LOST, CLOCKS, DEAF, DEATHS, FIRST_LOOKS, FOREIGN, FROZEN, LOSS};
use super::{Bounds, QUIET, RESERVED, TTL, TWO_FROZEN, Without, is_clean, without};
use super::{CAME_BACK, FALSE_BUSY, FREE_TOO_LONG, LEFT_BEHIND, LOST, OVERTAKEN, TWO_HOLDERS};
use Claim::{Exclusive, Older, OneOfTwo, Shared, TheOnlyOne};

/// The claims of the three waiters, then the claim of the holder that never waits. Waiters in line from the start stand
/// in the order of this list.
pub(super) type Mix = [Claim; OTHER + 1];

pub(super) const READERS_BEHIND_A_WRITER: Mix = [Exclusive, Shared, Shared, Shared];
const READERS_BEFORE_A_WRITER: Mix = [Shared, Shared, Exclusive, Exclusive];
const WRITERS: Mix = [Exclusive, Exclusive, Shared, Shared];
const OLDER_WRITER: Mix = [Older, Shared, Shared, Shared];
const OLDER_HOLDER: Mix = [Shared, Shared, Older, Older];
pub(super) const SLOTS: Mix = [OneOfTwo; OTHER + 1];
const SLOTS_AND_OLDER: Mix = [OneOfTwo, Older, OneOfTwo, OneOfTwo];
const SLOTS_AND_WRITER: Mix = [OneOfTwo, Exclusive, OneOfTwo, OneOfTwo];
const SLOTS_AND_OTHERS: Mix = [OneOfTwo, TheOnlyOne, OneOfTwo, OneOfTwo];
pub(super) const ALL_SHAPES: Mix = [OneOfTwo, Shared, Exclusive, Exclusive];
const MIXES: [Mix; 10] = [
    READERS_BEHIND_A_WRITER,
    READERS_BEFORE_A_WRITER,
    WRITERS,
    OLDER_WRITER,
    OLDER_HOLDER,
    SLOTS,
    SLOTS_AND_OLDER,
    SLOTS_AND_WRITER,
    SLOTS_AND_OTHERS,
    ALL_SHAPES,
];

/// These bounds with the claims of `mix`. If the last waiter and the holder that never waits both have a shared claim,
/// or both want one of L slots, both hold the lock from the start. Then at most two waiters are in line from the start.
pub(super) fn with(mix: Mix, bounds: Bounds) -> Bounds {
    let holders = u8::from(mix[OTHER - 1] == mix[OTHER] && mix[OTHER].key().is_mark());
    let passer_by = if mix[0] == Older { Shared } else { mix[0] };
    let in_line = bounds.in_line.min(OTHER as u8 - holders);
    Bounds { claims: mix, passer_by, holders, in_line, ..bounds }
}

/// Checks that the search for each mix, with its [`Bounds::most_free`] in ticks, finds no fault, and that no smaller
/// `most_free` would do.
#[track_caller]
fn all_clean(mixes: &[(Mix, u8)], bounds: Bounds) {
    for &(mix, most_free) in mixes {
        is_clean(Bounds { most_free, ..with(mix, bounds) });
    }
}

/// One waiter may be interrupted (and then leaves), and one may freeze.
const LEAVING: Bounds = Bounds { interrupts: 1, freezes: 1, in_line: 3, ..QUIET };
/// One `release --force` may end a lease or free the lock, and one client may die.
const FORCE: Bounds = Bounds { forces: 1, kills: 1, ..QUIET };
const OLDER_FORCE: Bounds = Bounds { older_force: true, ..FORCE };
/// One client may die, and one waiter may freeze.
const DEAD_AND_FROZEN: Bounds = Bounds { kills: 1, freezes: 1, ..QUIET };

#[test]
fn calls_alone_let_in_all_who_fit() {
    for mix in MIXES.into_iter().filter(|mix| !mix.contains(&Older)) {
        all_clean(&[(mix, 0)], CALLS);
        all_clean(&[(mix, 0)], CALLS_AGAIN);
        all_clean(&[(mix, 0)], CALLS_LOST);
        all_clean(&[(mix, 0)], CALLS_CUT);
        all_clean(&[(mix, 0)], CALLS_LATE);
    }
}

#[test]
fn no_place_is_free_for_half_a_second_while_all_goes_well() {
    // Mixes with an older version of redlock are clean only if waiters look by the clock. A waiter of that version may
    // leave while the lock is in use: the next one is then sent only `head`, and has to look.
    all_clean(&MIXES.map(|mix| (mix, 0)), CLOCKS);
}

#[test]
fn deaths_freezes_and_losses_cost_those_behind_as_much_as_with_an_exclusive_lock() {
    let deaths =
        [(READERS_BEHIND_A_WRITER, 3), (READERS_BEFORE_A_WRITER, 4), (WRITERS, 2), (OLDER_WRITER, 3), (SLOTS, 2)];
    all_clean(&deaths, DEATHS);
    all_clean(&[(SLOTS_AND_OLDER, 2), (SLOTS_AND_WRITER, 2), (SLOTS_AND_OTHERS, 2), (ALL_SHAPES, 4)], DEATHS);
    all_clean(&MIXES.map(|mix| (mix, RESERVED)), FROZEN);
    all_clean(&[(WRITERS, RESERVED), (SLOTS, RESERVED), (SLOTS_AND_OTHERS, RESERVED)], TWO_FROZEN);
    all_clean(&[(SLOTS, 2), (WRITERS, 4), (OLDER_WRITER, 4)], DEAD_AND_FROZEN);
    all_clean(&[(WRITERS, TTL), (SLOTS, TTL), (OLDER_WRITER, TTL)], DEAF);
    all_clean(&MIXES.map(|mix| (mix, AFTER_FAILURE)), LOSS);
    all_clean(&[(WRITERS, FIRST_LOOKS), (ALL_SHAPES, FIRST_LOOKS), (SLOTS, 0)], FOREIGN);
    all_clean(&[(WRITERS, RESERVED), (SLOTS, RESERVED), (SLOTS_AND_OLDER, RESERVED)], LEAVING);
}

#[test]
fn who_asks_for_a_place_that_is_taken_asks_again_and_nothing_is_lost() {
    for mix in [SLOTS, SLOTS_AND_OLDER, SLOTS_AND_WRITER, SLOTS_AND_OTHERS] {
        for (bounds, most_free) in [(CLOCKS, 0), (DEATHS, 2), (FROZEN, RESERVED), (LOSS, AFTER_FAILURE)] {
            all_clean(&[(mix, most_free)], Bounds { names_places: true, ..bounds });
        }
        for bounds in [CALLS, CALLS_AGAIN, CALLS_LOST, CALLS_CUT, CALLS_LATE] {
            if mix != SLOTS_AND_OLDER {
                all_clean(&[(mix, 0)], Bounds { names_places: true, ..bounds });
            }
        }
    }
}

#[test]
fn what_is_freed_by_force_stays_free() {
    all_clean(&[(READERS_BEHIND_A_WRITER, 4), (WRITERS, 3), (SLOTS, 3), (SLOTS_AND_OTHERS, 3)], FORCE);
    all_clean(&[(OLDER_WRITER, 4), (WRITERS, 3), (SLOTS, 3), (SLOTS_AND_OLDER, 3)], OLDER_FORCE);
}

/// All searches together see 2 million states.
#[test]
fn every_mix_is_clean_under_all_bounds() {
    if std::env::var_os("LARGE_MODELS").is_none() {
        return;
    }
    let clocks =
        [CLOCKS, DEATHS, FROZEN, TWO_FROZEN, DEAF, LOSS, FOREIGN, LEAVING, FORCE, OLDER_FORCE, DEAD_AND_FROZEN];
    for mix in MIXES {
        for bounds in clocks {
            let found = super::search::search(&Bounds { most_free: 5, ..with(mix, bounds) }, super::search::MOST);
            assert!(!found.cut && found.wrong.is_none(), "{mix:?} {bounds:?}: {:?}", found.wrong);
        }
    }
}

/// Checks that a search with this mix, but without this clause, finds the fault `what` after `steps` steps.
#[track_caller]
fn costs(clause: Without, mix: Mix, bounds: Bounds, most_free: u8, what: &str, steps: usize) {
    without(clause, Bounds { most_free, ..with(mix, bounds) }, what, steps);
}

#[test]
fn only_leases_that_fit_may_be_beside_each_other() {
    costs(Without::Limit, SLOTS, LOSS, 1, TWO_HOLDERS, 4);
    costs(Without::Shape, SLOTS, LOSS, 1, TWO_HOLDERS, 4);
}

#[test]
fn the_key_and_the_list_must_last_as_long_as_the_last_lease() {
    costs(Without::ExtendsKey, SLOTS, FROZEN, 2, TWO_HOLDERS, 5);
    costs(Without::Latest, OLDER_WRITER, DEATHS, 3, FREE_TOO_LONG, 40);
    costs(Without::Sweep, WRITERS, DEATHS, 2, FREE_TOO_LONG, 18);
    costs(Without::Leftovers, SLOTS_AND_OLDER, OLDER_FORCE, 3, CAME_BACK, 4);
    costs(Without::ListExpires, SLOTS_AND_OLDER, OLDER_FORCE, 3, LEFT_BEHIND, 9);
}

#[test]
fn whoever_makes_room_must_call_the_next_if_it_fits_and_only_one() {
    costs(Without::CallsWhoFits, WRITERS, CALLS_LOST, 0, LOST, 8);
    costs(Without::OneCall, SLOTS, FROZEN, 2, OVERTAKEN, 6);
    costs(Without::GrantCalls, SLOTS, CALLS_LOST, 0, LOST, 8);
    costs(Without::LeaveCalls, READERS_BEHIND_A_WRITER, CALLS_LOST, 0, LOST, 3);
    costs(Without::LeaveTells, READERS_BEFORE_A_WRITER, LEAVING, 2, FREE_TOO_LONG, 7);
}

#[test]
fn a_place_that_is_free_soon_is_looked_for_and_one_that_is_free_is_given() {
    costs(Without::FirstPlace, SLOTS, DEAD_AND_FROZEN, 2, FREE_TOO_LONG, 17);
    costs(Without::BesideCalled, READERS_BEFORE_A_WRITER, CALLS_LOST, 0, FALSE_BUSY, 3);
}
