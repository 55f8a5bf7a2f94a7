//! The example that this tool grew from: contenders for tickets.

use crate::support::{Directory, Redis, Test};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

/// A contender takes the lock, takes one ticket if there is one left, and releases the lock.
const CONTENDER: &str = "
    token=$(redlock acquire -q --name tickets --ttl 10s --wait 60s) || exit
    ticket=$(head -n 1 left)
    if [ -n \"$ticket\" ]; then
        echo \"$ticket\" >>taken
        tail -n +2 left >rest
        mv rest left
    fi
    redlock release -q --name tickets --token \"$token\"";

#[track_caller]
fn tickets<W: crate::support::Where + ?Sized>(servers: &W, contenders: usize, contender: &str) {
    let directory = Arc::new(Directory::new());
    let numbers: Vec<String> = (1..=10).map(|number| number.to_string()).collect();
    directory.file("left", numbers.join("\n") + "\n");
    let running: Vec<_> = (0..contenders)
        .map(|_| {
            let test = Test::sh(servers, contender).in_directory(&directory).within(Duration::from_secs(90));
            test.spawn()
        })
        .collect();
    for contender in running {
        contender.finish();
    }
    let taken = fs::read_to_string(directory.path().join("taken")).unwrap();
    assert_eq!(taken.lines().collect::<Vec<_>>(), numbers, "each ticket exactly once, in order");
    assert_eq!(fs::read_to_string(directory.path().join("left")).unwrap(), "");
}

#[test]
fn a_hundred_contenders_for_ten_tickets() {
    tickets(&Redis::start(), 100, CONTENDER);
}

#[test]
fn contenders_for_ten_tickets_on_three_masters() {
    tickets(&Redis::several(3), 20, CONTENDER);
}

#[test]
fn contenders_that_try_once_and_again() {
    let contender = CONTENDER.replace(
        "token=$(redlock acquire -q --name tickets --ttl 10s --wait 60s) || exit",
        "until token=$(redlock acquire -q --name tickets --ttl 10s 2>/dev/null); do
             [ $? -eq 75 ] || exit 9
             sleep 0.05
         done",
    );
    assert_ne!(contender, CONTENDER);
    tickets(&Redis::start(), 20, &contender);
}
