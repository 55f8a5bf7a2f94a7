//! Black-box tests of the `redlock` binary against real servers. One test binary: it links once, and its tests run
//! side by side.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a panic is how a test fails, and the harness captures what is printed"
)]

mod support;

/// What the program's own arithmetic needs, to be searched by the models.
#[path = "../src/sys"]
mod sys {
    #[expect(dead_code, reason = "the models have their own clock")]
    pub(crate) mod clock;
}

mod acquire;
mod addresses;
mod backlog;
mod cluster;
mod cold_commands;
mod completions;
mod config_files;
mod docs;
mod doctor;
mod environment;
mod exit_statuses;
mod extend;
mod faults;
mod fencing;
mod harness;
mod holds;
mod holds_faults;
mod interop;
mod interrupts;
mod json;
mod kept;
mod local;
mod losses;
mod lua;
mod managed;
mod margins;
mod masters;
mod minorities;
mod model;
mod outages;
mod owners;
mod packages;
mod permissions;
mod quarantine;
mod queue;
mod queue_faults;
mod queue_line;
mod queue_masters;
mod readme;
mod release;
mod restarts;
mod run_basics;
mod run_ends;
mod run_keeper;
mod run_signals;
mod run_terminal;
mod run_timeline;
mod run_tree;
mod scripts;
mod seeds;
mod sentinel;
mod status;
mod tls;
mod unread_output;
mod usage;
mod wait;
