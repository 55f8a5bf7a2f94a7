//! Black-box tests of the `redlock` binary against real servers. One test binary: it links once, and its tests run
//! side by side.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a panic is how a test fails, and the harness captures what is printed"
)]

mod support;

/// The arguments, output and statuses of the commands. `mistakes` is about wrong calls and their messages.
/// `exit_statuses` is about failures of servers and outputs. `history`, `log`, `ends`, `once_per` and `hosts` are about
/// the history of runs.
mod commands {
    mod acquire;
    mod addresses;
    mod check;
    mod config_files;
    mod default_address;
    mod doctor;
    mod ends;
    mod exit_statuses;
    mod extend;
    mod flock;
    mod history;
    mod hosts;
    mod json;
    mod log;
    mod mistakes;
    mod on_call;
    mod once_per;
    mod permissions;
    pub(crate) mod pictures;
    mod release;
    mod scripts;
    mod seeds;
    mod shared;
    mod status;
    mod stop;
    mod unread_output;
    mod usage;
    mod wait;
    mod while_pid;
}

/// The job of `run`: its environment, processes, signals and terminal, and what happens to it when its lease ends.
mod run {
    mod basics;
    mod before_the_job;
    mod cold_commands;
    pub(crate) mod crontab;
    mod ends;
    mod environment;
    mod faults;
    mod keep_errors;
    mod keeper;
    mod losses;
    mod margins;
    mod names;
    mod signals;
    mod storms;
    mod terminal;
    mod timeline;
    mod tree;
}

/// Waiting in line: who is next, and what a waiter shows. Dead, frozen and departed waiters delay nobody. (The scripts
/// for this are tested in `lua` case by case, and in `model` in every order of steps.)
mod queue {
    mod faults;
    mod handover;
    pub(crate) mod interrupts;
    mod line;
    mod masters;
    mod newest;
    mod order;
}

/// The lease: its owner, its holds, its fencing token; readers and slots; other libraries; thousands of leases.
mod lock {
    pub(crate) mod claims;
    mod fencing;
    mod holds;
    mod holds_faults;
    mod interop;
    mod owners;
    pub(crate) mod sizes;
}

/// The servers: every deployment (`cluster`, `sentinel`, `local`, `masters`, `managed`), and TLS. How servers fail:
/// wrong replies, replies without an end, outages, restarts, broken connections.
mod nodes {
    mod backlog;
    mod closed;
    mod cluster;
    mod cuts;
    mod endless;
    mod faults;
    mod local;
    mod look_ups;
    mod managed;
    mod masters;
    mod minorities;
    mod moved;
    mod outages;
    mod quarantine;
    mod replies;
    mod restarts;
    mod sentinel;
    pub(crate) mod slow;
    mod tls;
}

/// The Lua scripts by themselves, and the models of what clients and nodes do.
mod lua;
mod model;

/// Everything fails at once, and the kernel's flock judges.
mod chaos;

/// Released versions of redlock, which share locks with the redlock under test.
mod releases;

/// Random input, from users and from servers.
mod fuzz;

/// Documentation, completions and packages: what comes with the binary.
mod docs {
    mod architecture;
    mod generated;
    mod packages;
    pub(crate) mod readme;
    mod shells;
}

/// The page of `log --format html`, in a browser; `make check-page` runs it.
mod page;

/// Tests that need the machine for themselves; most of them measure delays. `make margins` runs them one at a time.
mod alone {
    mod demo;
    mod handover;
    mod injected;
    mod interrupts;
    mod margins;
    mod sizes;
    mod slow;
}
