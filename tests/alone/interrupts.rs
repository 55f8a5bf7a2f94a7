//! A call that waits or asks ends at most 100 ms after a SIGTERM at a random moment.

use crate::queue::interrupts::{Stopped, interrupt};
use crate::support::{Redis, ms, rounds, several, teach_scripts};

#[track_caller]
fn within_100_ms(nodes: &Vec<Redis>, stops: &[Stopped]) {
    let times = interrupt(nodes, stops, rounds("INTERRUPT_ROUNDS", 60));
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    eprintln!("{} nodes, {} interrupted: median {:?}, 99 % {:?}", nodes.len(), times.len(), at(50), at(99));
    assert!(at(100).0 < ms(100), "{:?}", at(100));
}

#[test]
fn one_node_that_answers() {
    let redis = Redis::start();
    teach_scripts(&redis);
    within_100_ms(&vec![redis], &[Stopped::None]);
}

#[test]
fn one_node_that_may_hang() {
    let redis = Redis::start();
    teach_scripts(&redis);
    within_100_ms(&vec![redis], &[Stopped::All]);
}

#[test]
fn three_nodes_one_or_all_of_which_may_hang() {
    within_100_ms(&several(3), &[Stopped::None, Stopped::One, Stopped::All]);
}
