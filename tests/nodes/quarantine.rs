//! Nodes in quarantine: they were started so recently that they may have forgotten a lease. They grant nothing, and
//! report nothing about a lock that they do not know.

use crate::support::{
    Mode, Proxy, Redis, SOON, Test, Where, acquire_on_all, any, eventually, ms, perhaps, redlock, restarted, send, when,
};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

const KEY: &str = "redlock:backup";
const FENCE: &str = "{redlock:backup}:\u{1f}fence";

/// A call with the default quarantine.
fn by_default<W: Where + ?Sized>(servers: &W) -> Test {
    Test::new(servers).env_remove("REDLOCK_QUARANTINE")
}

/// Takes a lease on three nodes that have been up for an hour, and extends it for `ttl`. Then the last two nodes forget
/// it, and say that they have been up for `seconds`. Returns the nodes and the token.
fn two_that_forgot(ttl: &str, seconds: i64) -> (Vec<Redis>, String) {
    let mut nodes = Redis::aged(3, 3_600);
    let token = acquire_on_all(&nodes, "backup");
    redlock(&nodes, format!("extend -q backup --token {token} --ttl {ttl}")).run();
    eventually(SOON, "extended where it stays", || nodes[0].pttl(KEY) > 29_000);
    nodes[1..].iter_mut().for_each(|node| node.restart_aged(seconds));
    (nodes, token)
}

#[test]
fn the_default_is_thirty_seconds_or_the_ttl_if_that_is_longer() {
    for (age, ttl, granted) in [(25, "4s", false), (40, "4s", true), (40, "1m", false), (70, "1m", true)] {
        let nodes = Redis::aged(3, age);
        let test = by_default(&nodes).args(["acquire", "--name", "backup", "--ttl", ttl, "--node-timeout", "2s"]);
        let test = if granted { test.stdout(any()) } else { test.status(69).stderr(restarted()) };
        test.run();
    }
}

#[test]
fn the_lease_of_another_is_safe_from_a_shorter_ttl() {
    let (nodes, token) = two_that_forgot("30s", 5);
    for command in [&["acquire", "--name", "backup"][..], &["run", "--name", "backup", "--", "echo", "started"]] {
        let (first, rest) = command.split_first().unwrap();
        by_default(&nodes).args([first, "--ttl", "5s"]).args(rest).status(69).stderr(restarted()).run();
    }
    assert_eq!(nodes[0].get(KEY), Some(token));
}

/// Checks that a waiter is not served. The first node shows a lease of more than thirty seconds, so the other nodes
/// stay in quarantine for longer than that.
#[track_caller]
fn a_wait_is_not_served_beside(nodes: &Vec<Redis>, token: &str) {
    let test = by_default(nodes).args(["acquire", "-q", "--name", "backup", "--ttl", "4s", "--wait", "4s"]);
    test.args(["--node-timeout", "2s"]).status(69).stderr(restarted()).run();
    assert_eq!(nodes[0].get(KEY).as_deref(), Some(token));
    assert!(nodes[1..].iter().all(|node| !node.exists(KEY)));
    // Only the lease made the difference: another lock is granted.
    let test = by_default(nodes).args(["acquire", "-q", "--name", "other", "--ttl", "4s", "--node-timeout", "2s"]);
    test.stdout(any()).run();
}

#[test]
fn a_lease_that_was_extended_prolongs_it_too() {
    let (nodes, token) = two_that_forgot("5m", 29);
    a_wait_is_not_served_beside(&nodes, &token);
}

#[test]
fn a_survivor_that_answers_first_prolongs_it_for_a_single_try() {
    let (nodes, token) = two_that_forgot("5m", 100);
    let modes = [Mode::Pass, Mode::Delay(ms(60)), Mode::Delay(ms(60))];
    let proxies: Vec<Proxy> = nodes.iter().zip(modes).map(|(node, mode)| Proxy::new(node, mode)).collect();
    let acquire = |name: &str| {
        let test = by_default(&proxies).args(["acquire", "--name", name, "--ttl", "8s"]);
        test.args(["--node-timeout", "4s"])
    };
    acquire("backup").status(69).stderr(restarted()).run();
    assert_eq!(nodes[0].get(KEY), Some(token));
    eventually(SOON, "nothing is left", || nodes[1..].iter().all(|node| !node.exists(KEY)));
    acquire("other").stdout(any()).run();
}

#[test]
fn without_the_key_it_has_not_answered() {
    let (nodes, token) = two_that_forgot("30s", 4);
    let json = by_default(&nodes).args(["status", "backup", "--format", "json"]).status(69);
    let object = json.stdout(any()).stderr(restarted()).run().json();
    assert!(object["state"] == "unknown" || object["status"] == 69, "{object}");
    let unanswered = |arguments: &[&str]| by_default(&nodes).args(arguments).status(69).stdout(any());
    unanswered(&["status", "backup", "-q"]).stderr(restarted()).run();
    unanswered(&["status", "backup", "--token", &token]).stderr(restarted()).run();
    unanswered(&["extend", "backup", "--token", &token]).stderr(restarted()).run();
    unanswered(&["acquire", "--name", "backup", "--reentrant", "--token", &token]).stderr(restarted()).run();
    unanswered(&["stop", "backup"]).stderr(restarted()).run();
    unanswered(&["release", "backup", "--token", &token]).stderr(restarted()).run();
    // Without a quarantine, two nodes that have forgotten the lease are enough to say: not held.
    let sure = |arguments: &[&str]| Test::new(&nodes).args(arguments).stdout(any());
    sure(&["extend", "backup", "--token", &token]).fails(77, ["\"backup\" is not held"]).run();
    sure(&["status", "backup", "-q"]).run();
}

#[test]
fn wait_goes_on_until_it_is_over() {
    let start = Instant::now();
    let nodes = Redis::several(3);
    let test = by_default(&nodes).args(["wait", "backup", "--timeout", "600ms"]).status(69).stderr(restarted());
    let finished = test.run();
    assert!(finished.elapsed >= ms(600), "{finished:?}");
    redlock(&nodes, "wait -q backup --quarantine 3s").run();
    assert!(start.elapsed() >= Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn a_waiter_is_told_at_once_and_served_when_it_is_over() {
    let start = Instant::now();
    let (several, one) = (Redis::several(3), Redis::start());
    let test = |servers: &dyn Where| {
        let test = redlock(servers, "acquire backup --quarantine 6s --wait 15s");
        test.stdout(any()).stderr(perhaps(["trying again", "waiting "]))
    };
    let mut waiters = [test(&several).spawn(), test(&one).spawn()];
    for waiter in &mut waiters {
        waiter.says(restarted());
        assert!(!waiter.has_ended(), "{}", waiter.all_stderr());
    }
    for waiter in waiters {
        waiter.finish();
        assert!(start.elapsed() >= Duration::from_secs(6), "{:?}", start.elapsed());
    }
}

#[test]
fn a_node_that_was_started_in_the_future_was_started_now() {
    let nodes = Redis::aged(3, -3_600);
    by_default(&nodes).args(["acquire", "--name", "backup"]).status(69).stderr(restarted()).run();
    redlock(&nodes[0], "acquire backup --quarantine 1m").status(69).stderr(restarted()).run();
    assert!(nodes.iter().all(|node| !node.exists(FENCE)));
    let said = when("not ready", |text| text.contains("started 0s ago: it may have forgotten leases"));
    by_default(&nodes).arg("doctor").status(69).stdout(said).run();
    // Without a quarantine it does not matter when the nodes were started.
    redlock(&nodes, "acquire backup").stdout(any()).run();
}

#[test]
fn nodes_that_refuse_info_are_refused_unless_it_is_off() {
    let nodes: Vec<Redis> = (0..3).map(|_| Redis::with(&["--rename-command", "INFO", ""])).collect();
    let refused = |arguments: &[&str]| {
        let said = when("what to do", |text| {
            ["\"backup\"", "refuses INFO", "+info", "--quarantine 0"].iter().all(|part| text.contains(part))
        });
        by_default(&nodes).args(arguments).status(78).stdout(any()).stderr(said).run();
    };
    let take = [&["acquire", "backup"][..], &["run", "backup", "--wait", "--", "echo", "started"]];
    take.iter().for_each(|arguments| refused(arguments));
    assert!(nodes.iter().all(|node| !node.exists(FENCE)), "nothing was granted");
    for arguments in [&["status", "backup"][..], &["wait", "backup"], &["release", "backup", "--token", "t"]] {
        refused(arguments);
    }
    let off = |arguments: &[&str]| by_default(&nodes).args(["--quarantine", "0"]).args(arguments);
    let token = off(&["acquire", "backup"]).token();
    // A take is refused even while the lock is held: otherwise a waiter would hear of the refusal only at the end of
    // its wait.
    take.iter().for_each(|arguments| refused(arguments));
    off(&["release", "-q", "backup", "--token", &token]).run();
    // A single node need not report its uptime, unless a quarantine is given.
    by_default(&nodes[0]).args(["run", "-q", "backup", "--", "true"]).run();
    let test = by_default(&nodes[0]).args(["acquire", "backup", "--quarantine", "1s"]).status(78);
    test.stderr(when("what to do", |text| text.contains("refuses INFO"))).run();
}

#[test]
fn a_list_of_nothing_but_unknown_locks_is_no_list() {
    let nodes = Redis::aged(3, 5);
    for names in ["", "*", "b*", "backup other"] {
        for format in ["text", "json"] {
            let test = by_default(&nodes).arg("status").args(names.split_whitespace()).args(["--format", format]);
            let finished = test.fails(69, ["cannot vote for another"]).stdout(any()).run();
            assert!(!finished.stdout.contains("NAME") && !finished.stdout.contains("locks\":["), "{}", finished.stdout);
        }
    }
    let watch = by_default(&nodes).args(["status", "--watch"]).interrupted(Signal::SIGTERM).spawn();
    assert!(watch.stderr_line().contains("cannot vote for another"));
    send(watch.pid(), Signal::SIGTERM);
    watch.finish();
}
