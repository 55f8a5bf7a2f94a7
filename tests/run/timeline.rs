//! The timeline of a lease: redlock or the machine stands still for a while, a command would start too late, or
//! renewals fail until the job is killed. Also the memory of the keeper.

use crate::support::{
    Mode, Proxy, Redis, SOON, Watched, at_last, eventually, message, ms, redlock, send, stopped, when,
};
use nix::sys::signal::Signal;
use std::time::SystemTime;

#[test]
fn who_sleeps_through_the_end_of_the_lease_stops_the_job_at_once_on_waking() {
    let redis = Redis::start();
    // This test cannot put the machine to sleep, and stops redlock, the keeper and the job instead. Another test shows
    // that the keeper's timer goes on while the machine sleeps.
    let script = "trap 'echo term' TERM; echo ready; while :; do sleep 0.01; done";
    let test = redlock(&redis, "run -q backup --ttl 5s --node-timeout 2s");
    let test = test.args(["--", "bash", "-c", script]).status(76);
    let late = when("says that it was late", |text| {
        text.contains("; job stopped ") && text.contains(" after the lease could expire")
    });
    let job = test.stderr(late).ready();
    let keeper = job.keeper();
    let (mut all, members) = (job.others(), Watched::new(&job.job()));
    all.push(job.pid());
    for &pid in &all {
        send(pid, Signal::SIGSTOP);
    }
    eventually(SOON, "expired", || !redis.exists("redlock:backup"));
    // The keeper is continued last, because it could otherwise stop the job before the job is continued.
    all.sort_by_key(|&pid| pid == keeper);
    for &pid in &all {
        send(pid, Signal::SIGCONT);
    }
    assert!(members.all_end(SOON));
    // Without a lease there is no grace: nothing says "term".
    job.finish();
}

#[test]
fn a_command_that_would_start_too_late_is_not_started() {
    let redis = Redis::start();
    // The answer takes longer than a quarter of the ttl: when it comes, the first renewal would be due.
    let proxy = Proxy::new(&redis, Mode::Delay(ms(110)));
    crate::support::teach_scripts(&redis);
    let test = redlock(&proxy, "run -q backup --ttl 500ms");
    test.args(["--", "echo", "started"]).status(69).stderr(message(["\"backup\""])).run();
    eventually(SOON, "given back", || !redis.exists("redlock:backup"));
}

#[test]
fn nothing_more_is_hoped_for_once_the_job_is_being_stopped() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    // The last renewal times out just when SIGTERM is due.
    let test = redlock(&proxy, "run backup --ttl 600ms -- sh -c").arg("trap '' TERM; echo ready; exec sleep 1000");
    let ordered = when("says nothing of coming back behind SIGTERM", |text| {
        let (_, after) = text.split_once("sent SIGTERM").unwrap_or(("", "comes back"));
        !after.contains("comes back")
    });
    let job = test.status(76).stderr(ordered).ready();
    proxy.set(Mode::BlackHole);
    eventually(SOON, "the job is dead", || job.job().is_empty());
    proxy.set(Mode::Cut);
    job.finish_whole();
}

#[test]
fn a_redlock_that_hangs_for_a_while_goes_on_if_its_lease_does() {
    let redis = Redis::start();
    let test = redlock(&redis, "run -q backup --ttl 6s");
    let test = test.args(["--", "sh", "-c", "echo ready; read line; exit 5"]);
    let (job, writer) = test.status(5).ready_to_read();
    send(job.pid(), Signal::SIGSTOP);
    eventually(SOON, "a renewal is late", || redis.pttl("redlock:backup") < 4_200);
    send(job.pid(), Signal::SIGCONT);
    eventually(SOON, "made up for", || redis.pttl("redlock:backup") > 4_600);
    drop(writer);
    job.finish();
}

#[test]
fn a_job_that_says_nothing_and_hears_nothing_is_killed_while_redlock_is_stopped() {
    let redis = Redis::start();
    let script = "trap '' TERM INT HUP; setsid -f sleep 1000; echo ready; while :; do : >alive; sleep 0.01; done";
    let test = redlock(&redis, "run -q backup --ttl 5s --node-timeout 2s");
    let alive = test.directory().path().join("alive");
    let job = test.args(["--", "sh", "-c", script]).status(76);
    let job = job.stderr(at_last(message(["lost \"backup\"", "suspended"]))).ready();
    send(job.pid(), Signal::SIGSTOP);
    eventually(SOON, "it is stopped", || stopped(job.pid()));
    let left = redis.pttl("redlock:backup");
    let expires = SystemTime::now() + ms(left.try_into().unwrap());
    eventually(SOON, "the job is dead", || job.job().is_empty());
    let last_alive = std::fs::metadata(alive).unwrap().modified().unwrap();
    assert!(last_alive < expires, "it lived longer than its lease");
    send(job.pid(), Signal::SIGCONT);
    job.finish();
}

#[test]
fn the_keeper_costs_next_to_nothing() {
    let redis = Redis::start();
    let test = redlock(&redis, "run -q backup -- sh -c");
    let job = test.arg("echo ready; exec sleep 1000").any_end().ready();
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", job.keeper())).unwrap();
    let own = rollup.lines().filter(|line| line.starts_with("Private_"));
    let own: u64 = own.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum();
    // The memory that the keeper does not share with redlock: less than 300 kB with the release build.
    assert!(own <= 512, "{own} kB\n{rollup}");
}
