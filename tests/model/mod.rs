//! Models of clients and nodes. They use redlock's own files for quorums, re-creation and fencing tokens.
//!
//! The bounds of a search say what may happen, and how often. The search visits every state that can be reached. If a
//! clause (one rule of redlock) is left out, the search must find the fault that the clause prevents.

mod bits;
mod closing;
mod crontabs;
mod holds;
mod lease;
mod line;
mod once;
mod queue;
mod release;
mod search;
mod tokens;
mod tries;

use lease::{Bounds, Claim, Held, Without, without};
use redlock::lock::votes::{fencing, quorum, recreate};
use search::{MOST, is_clean, is_clean_so_far, search};

/// Two clients and three nodes. The first client holds the lock on all nodes, and the second tries once to take it. One
/// restart may happen.
const TWO: Bounds = Bounds { restarts: 1, ..Bounds::LEAST };
/// As [`TWO`], but the first client holds the lock on two or three of the nodes.
const MISSED: Bounds = Bounds { held: Held::Quorum, ..TWO };
/// `release --force` deletes the lease of the only client, which holds the lock on two or three of the three nodes. No
/// node restarts.
const FORCE: Bounds = Bounds { restarts: 0, tries: [0, 0], force: true, ..MISSED };
/// As [`FORCE`], but two restarts may happen. A node that restarts forgets nothing, and is quarantined for one tick.
const FORCE_RESTARTED: Bounds = Bounds { ttl: [1, 1], quarantine: 1, restarts: 2, forgets: false, ..FORCE };
/// As [`FORCE_RESTARTED`], but the client holds the lock on all three nodes, and a node that restarts is not
/// quarantined.
const FORCE_OFF: Bounds = Bounds { quarantine: 0, held: Held::Everywhere, ..FORCE_RESTARTED };
/// `release --force` deletes the lease of the first client, which holds the lock on all three nodes. The second client
/// tries once to take the lock. No node restarts.
const FORCE_TWO: Bounds = Bounds { ttl: [2, 1], tries: [0, 1], held: Held::Everywhere, ..FORCE };
/// One node, which may restart twice, and forgets everything at each restart. The first client holds the lock, and the
/// second tries once to take it.
const ONE: Bounds = Bounds { nodes: 1, quarantine: 0, restarts: 2, late: 1, leaves: true, ..TWO };
/// At the start nobody holds the lock. The first client may try once to take it, the second client twice. No node
/// restarts.
const TAKING: Bounds = Bounds {
    ttl: [1, 1],
    restarts: 0,
    tries: [1, 2],
    held: Held::Nowhere,
    renews: [false, false],
    leaves: true,
    ..TWO
};

/// As [`TAKING`], but each client may try once.
const ONE_TRY: Bounds = Bounds { tries: [1, 1], ..TAKING };
/// At the start nobody holds the lock. The first client may try twice to take it, the second client once. A client that
/// gives up a try, or releases the lock, does not delete its keys: they expire.
const TRIES: Bounds = Bounds { tries: [2, 1], leaves: false, ..TAKING };
/// As [`MISSED`], but each lease, and the quarantine after a restart, lasts one tick.
const SHORT: Bounds = Bounds { ttl: [1, 1], quarantine: 1, ..MISSED };

/// The claims of the first and of the second client. A reader has a shared claim, a writer an exclusive one.
const READER: [Claim; 2] = [Claim::Shared, Claim::Exclusive];
const READERS: [Claim; 2] = [Claim::Shared; 2];
const WRITER: [Claim; 2] = [Claim::Exclusive, Claim::Shared];
const SLOTS: [Claim; 2] = [Claim::Slots(2); 2];
const OTHER_SLOTS: [Claim; 2] = [Claim::Slots(2), Claim::Slots(1)];

const TWO_HOLDERS: &str = "two holders";
const CAME_BACK: &str = "a lease that was deleted came back";
const NOT_LARGER: &str = "a fencing token that is not larger than an earlier one";
const ESTRANGED: &str = "a reader's fencing token is not the last writer's, though a quorum knew that";
const GOES_ON: &str = "a client goes on with a lease that no quorum can have";

#[test]
fn one_node_restarts_and_there_is_one_holder() {
    is_clean(&TWO);
}

#[test]
fn two_nodes_restart_and_requests_are_late_and_there_is_one_holder() {
    is_clean(&Bounds { ttl: [1, 1], quarantine: 1, restarts: 2, late: 1, renews: [true, true], ..MISSED });
}

#[test]
fn the_longer_lease_decides_how_long_the_quarantine_is() {
    is_clean(&Bounds { ttl: [1, 2], late: 1, ..MISSED });
    let short = Bounds { ttl: [2, 1], quarantine: 1, ..TWO };
    assert!(search(&short, MOST).wrong.is_some(), "a quarantine as short as the rival's ttl lets it in");
}

#[test]
fn a_single_node_that_restarts_lets_no_lease_come_back_behind_a_later_one() {
    is_clean(&ONE);
    is_clean(&Bounds { ttl: [3, 2], ..ONE });
}

#[test]
fn each_lease_has_a_larger_fencing_token_than_those_before() {
    is_clean(&TAKING);
}

#[test]
fn a_lease_that_was_deleted_everywhere_stays_so() {
    is_clean(&FORCE);
    is_clean(&FORCE_RESTARTED);
    is_clean(&FORCE_OFF);
    is_clean(&Bounds { ttl: [1, 1], ..FORCE_TWO });
}

#[test]
fn without_the_quarantine_there_are_two_holders() {
    without(Without::Quarantine, MISSED, TWO_HOLDERS, 5);
}

#[test]
fn without_a_look_at_the_deadline_re_creation_takes_over_a_vote_for_another() {
    without(Without::NotPassed, TWO, TWO_HOLDERS, 17);
}

#[test]
fn a_deadline_that_was_not_passed_when_the_round_was_sent_is_not_enough() {
    without(Without::PassedByNow, TWO, TWO_HOLDERS, 19);
}

#[test]
fn a_quarantined_node_that_never_confirmed_may_have_voted_for_another() {
    without(Without::NotWhileQuarantined, MISSED, TWO_HOLDERS, 16);
}

#[test]
fn a_request_that_does_not_name_the_run_lands_behind_a_restart() {
    without(Without::RunInRequest, MISSED, TWO_HOLDERS, 16);
}

#[test]
fn a_counter_that_the_client_looks_at_is_too_old() {
    without(Without::CounterInScript, ONE, "a lease came back behind a later one", 9);
}

#[test]
fn without_the_word_of_the_others_a_deleted_lease_comes_back() {
    without(Without::ByOthers, FORCE, CAME_BACK, 15);
    without(Without::StillQuarantined, FORCE_OFF, CAME_BACK, 12);
}

#[test]
fn what_was_removed_on_purpose_comes_back_if_it_is_re_created() {
    without(Without::RemovedOnPurpose, FORCE, CAME_BACK, 16);
    without(Without::ForTheRestOfTheLease, FORCE, CAME_BACK, 19);
    without(Without::AnotherAfterRemoval, FORCE_TWO, CAME_BACK, 28);
}

#[test]
fn a_confirmation_that_does_not_bring_the_run_makes_a_deletion_look_like_a_restart() {
    without(Without::RunOfConfirmation, FORCE_RESTARTED, CAME_BACK, 15);
}

#[test]
fn a_lease_goes_on_beyond_its_end_unless_what_is_gone_is_void() {
    without(Without::InTime, FORCE, GOES_ON, 6);
    without(Without::VoidByGone, FORCE, GOES_ON, 6);
    without(Without::VoidByAnother, FORCE_TWO, GOES_ON, 9);
}

#[test]
fn without_the_write_back_fencing_tokens_do_not_grow() {
    without(Without::WriteBack, TAKING, NOT_LARGER, 13);
}

#[test]
fn readers_and_writers_exclude_each_other_through_restarts_and_their_tokens_grow() {
    is_clean(&Bounds { claims: READER, ..SHORT });
    is_clean(&Bounds { claims: WRITER, ..SHORT });
    is_clean(&Bounds { claims: READER, ..ONE });
    is_clean(&Bounds { claims: READER, ..TAKING });
    let short = Bounds { claims: READER, ttl: [2, 1], quarantine: 1, ..TWO };
    assert!(
        search(&short, MOST).wrong.is_some(),
        "a quarantine shorter than what the longest reader took lets a writer in"
    );
}

#[test]
fn no_place_is_given_twice() {
    is_clean(&Bounds { claims: SLOTS, ..SHORT });
    is_clean(&Bounds { claims: SLOTS, leaves: false, ..ONE_TRY });
    is_clean(&Bounds { claims: SLOTS, ..TRIES });
    is_clean(&Bounds { claims: OTHER_SLOTS, ..ONE_TRY });
    is_clean(&Bounds { claims: [Claim::Slots(2), Claim::Exclusive], ..SHORT });
}

#[test]
fn without_the_places_one_is_given_twice() {
    without(Without::PlaceOfToken, Bounds { claims: SLOTS, ..TRIES }, TWO_HOLDERS, 12);
    without(Without::Shape, Bounds { claims: OTHER_SLOTS, ..ONE_TRY }, TWO_HOLDERS, 8);
    without(Without::Quarantine, Bounds { claims: SLOTS, ..SHORT }, TWO_HOLDERS, 5);
}

#[test]
fn readers_must_leave_their_token_behind_for_the_next_writer() {
    without(Without::ReaderWritesBack, Bounds { claims: READER, ..TAKING }, NOT_LARGER, 10);
    without(Without::ReaderSeeds, Bounds { claims: WRITER, ..SHORT }, NOT_LARGER, 6);
    let lost = Bounds { claims: WRITER, restarts: 1, quarantine: 1, tries: [2, 1], ..TAKING };
    is_clean(&lost);
    without(Without::QuorumCounts, lost, NOT_LARGER, 15);
}

#[test]
fn a_reader_has_the_last_writers_token_if_a_quorum_knows_it() {
    let everywhere = Bounds { claims: READERS, held: Held::Everywhere, ..SHORT };
    is_clean(&everywhere);
    without(Without::NodeTellsNothing, everywhere, ESTRANGED, 7);
}

/// For each search with five nodes: after how many states it stops, and how many steps it must have completed by then.
/// With LARGE_MODELS both numbers are larger.
const FIVE: (usize, usize) = (40_000, 7);

/// Searches the first states of models with five nodes. In two of them both clients try once to take the lock. In a
/// third, the first client holds the lock on three nodes or more, the second tries once to take it, and two restarts
/// may happen.
#[test]
fn five_nodes_are_like_three() {
    let (states, steps) = if std::env::var_os("LARGE_MODELS").is_some() { (5_000_000, 12) } else { FIVE };
    for bounds in [ONE_TRY, Bounds { restarts: 2, ..SHORT }, Bounds { claims: SLOTS, ..ONE_TRY }] {
        is_clean_so_far(&Bounds { nodes: 5, ..bounds }, states, steps);
    }
    without(Without::Quarantine, Bounds { nodes: 5, ..MISSED }, TWO_HOLDERS, 6);
}

/// Runs only if the variable LARGE_MODELS is set, because the searches see 29 million states.
#[test]
fn larger_bounds_are_clean() {
    if std::env::var_os("LARGE_MODELS").is_none() {
        return;
    }
    let late = Bounds { restarts: 1, late: 1, renews: [true, true], ..SHORT };
    is_clean(&Bounds { ttl: [3, 3], ..FORCE });
    for claims in [READERS, READER, WRITER, OTHER_SLOTS, [Claim::Slots(2), Claim::Exclusive]] {
        for bounds in [TWO, late, TAKING, Bounds { renews: [true, true], ..TAKING }] {
            is_clean(&Bounds { claims, ..bounds });
        }
    }
    for bounds in [TWO, Bounds { restarts: 2, ..SHORT }, TAKING, TRIES] {
        is_clean(&Bounds { claims: SLOTS, ..bounds });
    }
}
