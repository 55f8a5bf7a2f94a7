//! The processes of a job. All die with the lease, at --max-run and with redlock, even if they have left their parent.
//! If the command ends by itself, its background processes may run on.

use crate::support::{
    Redis, Running, SOON, Test, Watched, alive, any, at_last, descendants, eventually, like, loss, message, ms, name,
    rand, redlock, run, send, stopped, tagged,
};
use nix::sys::signal::Signal;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Four sleepers: a child, an orphan in a session of its own, an orphan in the shell's group, and the last child.
const TREE: &str = "sleep 1000 & (setsid sleep 1000 &) ; (sleep 1000 &) ; echo ready; sleep 1000";
/// The keeper was killed, so redlock cannot know whether the job had ended.
const KILLED: &str = "redlock: the keeper process of \"backup\" was killed: its job was stopped, or <any>\n";
/// The shell and its four sleepers.
const MEMBERS: usize = 5;

/// All processes of the job, once they exist.
#[track_caller]
fn members(job: &Running) -> Vec<u32> {
    job.prints("ready");
    eventually(SOON, "the whole tree exists", || job.job().len() == MEMBERS);
    job.job()
}

/// Waits until no process with this tag is left, for `deadline` at most. Three looks in a row must find none, because a
/// single one may miss a process between fork and exec.
#[track_caller]
fn all_end(tag: &str, deadline: Duration) {
    let start = Instant::now();
    let mut empty = 0;
    while empty < 3 {
        let left = tagged(tag);
        empty = if left.is_empty() { empty + 1 } else { 0 };
        assert!(
            left.is_empty() || start.elapsed() < deadline,
            "after {deadline:?}: {:?}",
            left.iter().map(|&pid| (pid, name(pid))).collect::<Vec<_>>()
        );
    }
}

#[test]
fn the_whole_tree_dies_with_a_deleted_lease() {
    let redis = Redis::start();
    let test = run(&redis, ["--ttl", "4s", "--node-timeout", "2s", "--", "sh", "-c", TREE]).status(76);
    let job = test.stderr(at_last(message(["lost \"backup\"", "job stopped"]))).spawn();
    let (tree, tag) = (Watched::new(&members(&job)), job.tag().to_owned());
    redis.command(&["DEL", "redlock:backup"]);
    assert!(tree.all_end(SOON));
    job.finish();
    all_end(&tag, ms(0));
}

#[test]
fn the_whole_tree_dies_when_it_has_run_too_long() {
    let redis = Redis::start();
    for trap in ["", "trap '' TERM; "] {
        let script = format!("{trap}{TREE}");
        let job =
            run(&redis, ["--ttl", "20s", "--kill-after", "100ms", "--max-run", "900ms", "--", "sh", "-c", &script]);
        let job = job.status(124).stderr(at_last(message(["(--max-run)"]))).spawn();
        let (tree, tag) = (Watched::new(&members(&job)), job.tag().to_owned());
        assert!(tree.all_end(SOON));
        job.finish();
        all_end(&tag, ms(0));
        assert!(!redis.exists("redlock:backup"), "released");
    }
}

#[test]
fn a_forest_that_keeps_forking_dies_too() {
    let redis = Redis::start();
    // The command's background processes leave their parent, group and session, and most of them end soon.
    let forker = "f() { n=0; while [ $n -lt 40 ]; do (setsid sh -c \"sleep 0.05; setsid sleep 1000 &\" &); n=$((n+1)); done; }; f; echo ready; while :; do (setsid sleep 0.3 &); sleep 0.01; done";
    let test = run(&redis, ["--ttl", "20s", "--kill-after", "200ms", "--max-run", "700ms", "--", "sh", "-c", forker]);
    let job = test.status(124).stdout(any()).stderr(at_last(message(["(--max-run)"]))).spawn();
    let tag = job.tag().to_owned();
    job.finish();
    all_end(&tag, ms(0));
}

#[test]
fn a_process_that_leaves_its_group_at_the_moment_of_the_signal_gets_it() {
    let redis = Redis::start();
    // Each process leaves its group as soon as the pipe is closed.
    let script = "exec 3<&0; for n in $(seq 60); do (read line <&3; exec setsid sleep 1000) & done; echo ready; wait";
    for _ in 0..12 {
        let test = run(&redis, ["-q", "--", "sh", "-c", script]).signal(Signal::SIGTERM);
        let tag = test.tag().to_owned();
        let (job, pipe) = test.ready_to_read();
        eventually(SOON, "all exist", || job.job().len() == 61);
        job.send(Signal::SIGTERM);
        std::thread::sleep(Duration::from_micros(rand(1_500)));
        drop(pipe);
        job.finish();
        all_end(&tag, SOON);
    }
}

#[test]
fn what_the_command_leaves_in_the_background_runs_on_without_the_lock() {
    let redis = Redis::start();
    let script = "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; exit 3";
    let mut job = run(&redis, ["--", "sh", "-c", script]).status(3).leaves_output_open().spawn();
    job.wait(SOON);
    assert!(!redis.exists("redlock:backup"));
    for _ in 0..2 {
        let left: u32 = job.stdout_line().parse().unwrap();
        assert!(alive(left), "killed");
    }
    job.finish();
}

#[test]
fn with_whole_the_lock_lasts_until_the_last_descendant_has_ended() {
    let redis = Redis::start();
    let (reader, writer) = std::io::pipe().unwrap();
    // The last descendant has left its parent, its group and its session.
    let script = "(setsid sh -c 'read line' <&3 3<&- & ) 3<&0; echo left; exit 3";
    let mut job = run(&redis, ["--whole", "--", "sh", "-c", script]).stdin_from(reader).status(3).spawn();
    job.prints("left");
    eventually(SOON, "the command has ended, its child not", || job.job().len() == 1);
    for _ in 0..20 {
        assert!(!job.has_ended() && redis.exists("redlock:backup"));
        std::thread::sleep(ms(5)); // in which it must not end
    }
    drop(writer);
    job.finish();
    assert!(!redis.exists("redlock:backup"));
}

#[test]
fn with_whole_the_whole_tree_dies_with_the_lease_though_the_command_has_ended() {
    let redis = Redis::start();
    let script = "(setsid sleep 1000 &); echo left";
    let job = run(&redis, ["--whole", "--ttl", "4s", "--node-timeout", "2s", "--", "sh", "-c", script]);
    let job = job.status(76).stderr(loss(["job stopped"])).spawn();
    job.prints("left");
    eventually(SOON, "the command has ended", || job.job().len() == 1);
    let tag = job.tag().to_owned();
    redis.command(&["DEL", "redlock:backup"]);
    job.finish();
    all_end(&tag, ms(0));
}

/// Starts redlock, and kills it after `delay`. Soon no process may be left. If `complete`, the delay begins when the
/// whole job exists, and the lock must still be held afterwards.
fn kill_redlock(redis: &Redis, number: u32, complete: bool, delay: Duration) {
    let lock = format!("lock-{number}");
    let test = Test::new(redis).args(["run", "-q", "--name", &lock, "--", "sh", "-c", TREE]);
    let mut job = test.spawn();
    if complete {
        members(&job);
    }
    let start = Instant::now();
    while start.elapsed() < delay {
        std::hint::spin_loop();
    }
    job.send(Signal::SIGKILL);
    all_end(job.tag(), SOON);
    assert!(job.output_closes(SOON), "somebody has its output open");
    job.wait(SOON);
    if complete {
        let left = redis.pttl(&format!("redlock:{lock}"));
        assert!(left > 10_000, "released: {left}");
    }
}

/// Runs `body` with the numbers below `count`, a few at a time.
fn several_at_a_time(count: u32, body: impl Fn(u32) + Sync) {
    let next = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= count {
                        return;
                    }
                    body(number);
                }
            });
        }
    });
}

#[test]
fn nothing_outlives_a_redlock_that_is_killed_100_times() {
    let redis = Redis::start();
    several_at_a_time(50, |number| {
        kill_redlock(&redis, number, true, ms(u64::from(number % 5)));
    });
    // These kills come 0 to 30 ms after redlock's start. The command starts some 5 to 20 ms after redlock.
    several_at_a_time(50, |number| {
        let delay = Duration::from_micros(u64::from(number) * 600);
        kill_redlock(&redis, 100 + number, false, delay);
    });
}

#[test]
fn a_redlock_that_is_killed_at_the_very_moment_its_command_starts() {
    let redis = Redis::start();
    several_at_a_time(40, |number| {
        let lock = format!("lock-{number}");
        // The command first kills redlock, its parent's parent.
        let script = "kill -KILL $(cut -d' ' -f4 /proc/$PPID/stat); (setsid sleep 1000 &); sleep 1000";
        let test = Test::new(&redis).args(["run", "-q", "--name", &lock, "--", "sh", "-c", script]);
        let mut job = test.spawn();
        job.wait(SOON);
        all_end(job.tag(), SOON);
        assert!(redis.pttl(&format!("redlock:{lock}")) > 10_000);
    });
}

#[test]
fn without_its_keeper_the_job_is_killed_and_the_status_is_69() {
    let redis = Redis::start();
    let test = run(&redis, ["--", "sh", "-c", TREE]).status(69);
    let job = test.stderr(like(KILLED)).spawn();
    let (tree, tag) = (Watched::new(&members(&job)), job.tag().to_owned());
    send(job.keeper(), Signal::SIGKILL);
    assert!(tree.all_end(SOON));
    job.finish();
    all_end(&tag, ms(0));
    assert!(!redis.exists("redlock:backup"), "released after the job");
}

#[test]
fn a_job_that_ran_on_without_its_lease_because_redlock_was_stopped_and_its_keeper_killed_is_reported() {
    let redis = Redis::start();
    let test = run(&redis, ["--ttl", "4s", "--node-timeout", "2s", "--", "sh", "-c", TREE]).status(76);
    let job = test.stderr(message(["lost \"backup\"", "after the lease could expire"])).spawn();
    let tree = Watched::new(&members(&job));
    let keeper = job.keeper();
    send(job.pid(), Signal::SIGSTOP);
    eventually(SOON, "it is stopped", || stopped(job.pid()));
    send(keeper, Signal::SIGKILL);
    eventually(SOON, "the lease has expired", || !redis.exists("redlock:backup"));
    send(job.pid(), Signal::SIGCONT);
    assert!(tree.all_end(SOON));
    job.finish();
}

#[test]
fn a_keeper_that_dies_instead_of_starting_the_command_is_a_fault_and_the_lock_is_released() {
    let redis = Redis::start();
    let token = crate::support::acquire(&redis, "backup");
    let waiter =
        redlock(&redis, "run backup --wait -- echo started").status(69).stderr(message(["the keeper"])).spawn();
    waiter.stderr_line();
    let keeper = waiter.keeper();
    send(keeper, Signal::SIGSTOP);
    eventually(SOON, "it is stopped", || stopped(keeper));
    crate::support::release(&redis, "backup", &token);
    // redlock says this just before or just after it orders the keeper to start the command.
    waiter.says(like("redlock: acquired \"backup\" on <any> after <duration> in line, token <any>"));
    send(keeper, Signal::SIGKILL);
    waiter.finish();
    assert_eq!(redis.keys_without_history(), ["{redlock:backup}:\u{1f}fence"]);
}

#[test]
fn the_keeper_ignores_what_a_stop_of_the_whole_unit_sends() {
    let redis = Redis::start();
    let (job, writer) = run(&redis, ["--", "sh", "-c", "echo ready; read line; exit 5"]).status(5).ready_to_read();
    let keeper = job.keeper();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        send(keeper, signal);
    }
    drop(writer);
    job.finish();
}

#[test]
fn children_that_redlock_had_before_are_not_of_the_job() {
    let redis = Redis::start();
    // The shell starts a child, and then becomes redlock, which does not know of this child.
    let script =
        "sleep 1000 >/dev/null 2>&1 & echo $!; exec redlock run -q --name backup --max-run 200ms -- sleep 1000";
    let mut job = Test::sh(&redis, script).status(124).stderr(message(["(--max-run)"])).spawn();
    let child: u32 = job.stdout_line().parse().unwrap();
    job.wait(SOON);
    assert!(alive(child), "killed");
    job.finish();
}

#[test]
fn children_that_redlock_had_before_survive_the_end_of_the_keeper() {
    let redis = Redis::start();
    let script =
        "sleep 1000 >/dev/null 2>&1 & echo $!; exec redlock run -q --name backup -- sh -c 'echo ready; sleep 1000'";
    let mut job = Test::sh(&redis, script).status(69).stderr(like(KILLED)).spawn();
    let child: u32 = job.stdout_line().parse().unwrap();
    job.prints("ready");
    let keeper = job.keeper();
    let tree = Watched::new(&descendants(keeper));
    send(keeper, Signal::SIGKILL);
    assert!(tree.all_end(SOON));
    job.wait(SOON);
    assert!(alive(child), "killed");
    job.finish();
}

#[test]
fn the_command_is_a_child_of_the_keeper_and_that_of_redlock() {
    let redis = Redis::start();
    let job = run(&redis, ["--", "sh", "-c", "echo $$; exec sleep 1000"]).any_end().spawn();
    let command: u32 = job.stdout_line().parse().unwrap();
    assert_eq!(descendants(job.keeper()), [command]);
    assert!(descendants(job.pid()).contains(&job.keeper()));
}
