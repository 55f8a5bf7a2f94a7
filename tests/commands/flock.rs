//! The tests of flock(1), run against redlock: a small shim turns flock's options into redlock's. By default flock
//! waits, and redlock tries once. If a call does not get the lock, flock exits with 1, and redlock with 75. A lock of
//! flock is a file, a lock of redlock is a name.

use crate::support::{Directory, Ended, Redis, Running, SOON, Test, eventually};
use nix::sys::signal::Signal;
use std::io::PipeWriter;
use std::sync::Arc;

/// A flock that calls redlock: `flock [-sxen] [-w SECONDS] [-E STATUS] FILE (COMMAND [ARG]... | -c LINE)`.
const SHIM: &str = r#"#!/bin/sh
wait=--wait status=1 how=
while :; do
    case $1 in
        -s | --shared | -x | -e | --exclusive) how="$how $1" ;;
        -n | --nb | --nonblock) wait=-n ;;
        -w | --wait | --timeout) wait="-w $2"; shift ;;
        -E | --conflict-exit-code) status=$2; shift ;;
        *) break ;;
    esac
    shift
done
file=$1
shift
[ "$1" = -c ] || set -- -- "$@"
exec redlock run "$file" -q $wait $how -E $status "$@"
"#;

struct Flock {
    redis: Redis,
    directory: Arc<Directory>,
}

impl Flock {
    fn new() -> Flock {
        let directory = Arc::new(Directory::new());
        directory.program("flock", SHIM);
        Flock { redis: Redis::start(), directory }
    }

    fn call(&self, line: &str) -> Test {
        let shim = self.directory.path().join("flock");
        let test = Test::program(&self.redis, shim.to_str().unwrap()).in_directory(&self.directory);
        test.args(line.split_whitespace())
    }

    /// A call that has got the lock, and ends when its standard input ends.
    #[track_caller]
    fn holder(&self, options: &str) -> (Running, PipeWriter) {
        let (reader, writer) = std::io::pipe().unwrap();
        let test = self.call(options).args(["lockfile", "sh", "-c", "echo Locking; cat; echo Unlocking"]);
        let holder = test.stdin_from(reader).stdout("Unlocking\n").spawn();
        holder.prints("Locking");
        (holder, writer)
    }

    /// A call with these options gets the lock.
    #[track_caller]
    fn enters(&self, line: &str) {
        self.call(line).args(["lockfile", "echo", "here"]).stdout("here\n").run();
    }

    /// A call with these options waits for that holder, and then gets the lock.
    #[track_caller]
    fn waits_for(&self, (holder, writer): (Running, PipeWriter), options: &str) {
        let waiter = self.call(options).args(["lockfile", "echo", "here"]).spawn();
        let queue = "{redlock:lockfile}:\u{1f}queue";
        eventually(SOON, "it waits", || self.redis.query::<usize>(&["ZCARD", queue]) == 1);
        drop(writer);
        waiter.prints("here");
        waiter.finish();
        holder.finish();
    }

    /// A call with these options does not get the lock, and ends with this status.
    #[track_caller]
    fn is_turned_away(&self, line: &str, status: i32) {
        self.call(line).args(["lockfile", "echo", "You will never see this!"]).status(status).run();
    }
}

#[test]
fn an_exclusive_lock_excludes() {
    let flock = Flock::new();
    for how in ["", "-x", "-e", "--exclusive"] {
        let (holder, writer) = flock.holder(how);
        flock.is_turned_away("-n", 1);
        flock.is_turned_away("-n -x", 1);
        flock.is_turned_away("--nonblock --conflict-exit-code 123", 123);
        flock.is_turned_away("-n -E 0", 0);
        flock.is_turned_away("-w 0.2", 1);
        flock.is_turned_away("--timeout 0.2 -E 42", 42);
        drop(writer);
        holder.finish();
        flock.enters("-n");
        flock.enters("-w 1");
    }
}

#[test]
fn without_n_it_waits() {
    let flock = Flock::new();
    for options in ["", "-x", "-w 60"] {
        flock.waits_for(flock.holder(""), options);
    }
}

#[test]
fn the_command_is_run_as_it_is() {
    let flock = Flock::new();
    for code in [0, 1, 7, 75, 123] {
        let line = format!("exit {code}");
        flock.call("-E 9 lockfile -c").arg(&line).status(code).run();
        flock.call("lockfile sh -c").arg(&line).status(code).run();
    }
    flock.call("lockfile -c").arg("echo one | tr a-z A-Z; kill -TERM $$").stdout("ONE\n").signal(Signal::SIGTERM).run();
    flock.call("lockfile cat").stdin("from here").stdout("from here").run();
}

#[test]
fn a_child_in_the_background_does_not_keep_the_lock() {
    let flock = Flock::new();
    let child = "sleep 60 <&- >&- 2>&- & echo started";
    let mut call = flock.call("-x lockfile -c").arg(child).spawn();
    call.prints("started");
    assert_eq!(call.wait(SOON), Ended::Status(0));
    flock.enters("-n -x");
    assert!(!call.others().is_empty(), "the child has ended");
}

#[test]
fn shared_locks_run_together() {
    let flock = Flock::new();
    for how in ["-s", "--shared", "-x -s", "-e --shared"] {
        let holders = [how, "-s", how].map(|how| flock.holder(how));
        flock.enters("-s -n");
        flock.enters("-s");
        for (holder, writer) in holders {
            // A writer is turned away until the last reader has ended.
            flock.is_turned_away("-x -n", 1);
            drop(writer);
            holder.finish();
        }
        flock.enters("-x -n");
    }
}

#[test]
fn shared_and_exclusive_exclude_each_other() {
    let flock = Flock::new();
    let (holder, writer) = flock.holder("-s");
    for how in ["", "-x", "--exclusive", "-s -x", "-s -e"] {
        flock.is_turned_away(&format!("-n {how}"), 1);
        flock.is_turned_away(&format!("-w 0.2 -E 123 {how}"), 123);
    }
    drop(writer);
    holder.finish();
    for how in ["-x", "-s -x"] {
        let (holder, writer) = flock.holder(how);
        flock.is_turned_away("-n -s", 1);
        flock.is_turned_away("-n -x -s -E 123", 123);
        flock.waits_for((holder, writer), "-s");
    }
}
