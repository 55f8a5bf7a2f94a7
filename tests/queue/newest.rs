//! `--newest`: only the newest of the waiting jobs is worth running. No job runs after a newer job, whatever fails.

use crate::support::{
    self, Chance, Cluster, Directory, Ended, Line, Mode, Proxy, Redis, SOON, Test, Where, acquire, any, at_last,
    eventually, like, message, ms, myself, rand, redlock, release, status, when,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::sync::Arc;

/// A server that was started long ago, and has not just forgotten a number.
fn old() -> Redis {
    Redis::aged(1, 7200).remove(0)
}

const WAITERS: usize = 30;
const REGISTER: &str = "{redlock:backup}:\u{1f}newest";

/// A job that adds this text to the file `order`, or `two` if another job runs at the same time.
fn job<W: Where + ?Sized>(servers: &W, directory: &Arc<Directory>, arguments: &str, note: impl ToString) -> Test {
    let script = format!("flock -n busy sh -c 'echo {} >>order; sleep 0.1' || echo two >>order", note.to_string());
    let test = redlock(servers, format!("run -q backup --ttl 5s --wait {arguments} -- sh -c")).arg(script);
    test.in_directory(directory).within(SOON * 6)
}

fn numbered<W: Where + ?Sized>(servers: &W, directory: &Arc<Directory>, number: usize) -> Test {
    job(servers, directory, &format!("--newest {number}"), number)
}

/// What the jobs have added, in the order of their runs.
fn order(directory: &Directory) -> Vec<String> {
    let text = std::fs::read_to_string(directory.path().join("order")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The call is refused, because one with the larger number `by` has come before.
fn superseded(test: Test, by: usize) -> Test {
    test.status(75).stderr(at_last(message(["\"backup\": superseded by ", &format!(" {by} ")])))
}

/// Starts thirty waiters, with the numbers 1 to 30 in random order, and kills or stops some of them. `happens` is
/// called after the start of each, and may change the servers.
#[track_caller]
fn thirty<W: Where>(servers: &mut W, mut happens: impl FnMut(&mut W, usize)) {
    let seed = rand(1_000_000);
    let (mut chance, directory) = (Chance::new(seed), Arc::new(Directory::new()));
    let mut numbers: Vec<usize> = (1..=WAITERS).collect();
    numbers.sort_by_cached_key(|_| chance.next());
    let (largest_dies, mut waiters) = (chance.percent(50), Vec::new());
    for (at, number) in numbers.into_iter().enumerate() {
        waiters.push((number, numbered(servers, &directory, number).any_end().stderr(any()).spawn()));
        happens(servers, at);
        let victim = waiters.get(at.wrapping_sub(3)).filter(|_| chance.percent(30));
        if let Some((number, victim)) = victim {
            let dies = chance.percent(50) && (*number < WAITERS || largest_dies);
            victim.send(if dies { Signal::SIGKILL } else { Signal::SIGSTOP });
        }
        std::thread::sleep(chance.time(0, 60)); // some have run before others come
    }
    waiters.iter().for_each(|(_, waiter)| waiter.send(Signal::SIGCONT));
    let ends: Vec<(usize, Ended)> = waiters.into_iter().map(|(number, one)| (number, one.finish().ended)).collect();
    let killed = Ended::Signal(Signal::SIGKILL as i32);
    let possible = [Ended::Status(0), Ended::Status(75), Ended::Status(76), killed];
    assert!(ends.iter().all(|(_, ended)| possible.contains(ended)), "seed {seed}: {ends:?}");
    if ends.contains(&(WAITERS, killed)) {
        numbered(servers, &directory, WAITERS).stderr(any()).run();
    }
    superseded(numbered(servers, &directory, WAITERS - 1), WAITERS).run();
    let order: Vec<usize> = order(&directory).iter().map(|line| line.parse().expect("two at a time")).collect();
    assert!(order.is_sorted() && order.last() == Some(&WAITERS), "seed {seed}: {order:?}, {ends:?}");
}

#[test]
fn of_thirty_on_one_redis_none_runs_behind_a_newer_one() {
    thirty(&mut vec![Redis::durable()], |servers, at| {
        if at == WAITERS / 2 {
            servers[0].restart();
        }
    });
}

#[test]
fn of_thirty_over_three_masters_none_runs_behind_a_newer_one() {
    thirty(&mut (0..3).map(|_| Redis::durable()).collect::<Vec<_>>(), |servers, at| match at {
        8 => servers[0].pause(),
        14 => servers[0].resume(),
        16 => servers[1].restart(),
        22 => servers[2].pause(),
        28 => servers[2].resume(),
        _ => {}
    });
}

#[test]
fn of_thirty_on_a_cluster_none_runs_behind_a_newer_one() {
    thirty(&mut Cluster::start(), |cluster, at| {
        if at == WAITERS / 2 {
            cluster.reshard(Line::KEY);
        }
    });
}

#[test]
fn who_has_no_number_keeps_its_place_and_who_is_superseded_costs_no_wake_up() {
    let (redis, directory) = (old(), Arc::new(Directory::new()));
    let token = acquire(&redis, Line::NAME);
    let plain = |note| Line::join(&redis, job(&redis, &directory, "", note));
    let (first, second) = (plain("first"), plain("second"));
    let mut smaller = Line::join(&redis, superseded(numbered(&redis, &directory, 42), 43));
    let newest = Line::join(&redis, numbered(&redis, &directory, 43));
    let last = plain("last");
    smaller.send(Signal::SIGSTOP); // so, if it is called, it passes the call on late
    release(&redis, Line::NAME, &token);
    for waiter in [first, second] {
        waiter.finish();
    }
    smaller.send(Signal::SIGCONT);
    smaller.wait(SOON);
    for waiter in [smaller, newest, last] {
        waiter.finish();
    }
    assert_eq!(order(&directory), ["first", "second", "43", "last"]);
    assert!(Line::is_clean(&redis));
}

#[test]
fn where_the_newest_is_forced_or_the_server_restarts_empty_under_it_what_is_older_does_not_follow() {
    let (mut redis, directory) = (old(), Arc::new(Directory::new()));
    let forced = support::job(&redis, &["--newest", "43"], 76);
    superseded(numbered(&redis, &directory, 42), 43).run();
    redlock(&redis, "release backup --force").stdout(any()).run();
    superseded(numbered(&redis, &directory, 42), 43).run();
    drop(forced);
    let (restarted, writer) = support::job(&redis, &["--newest", "43"], 0);
    redis.restart_aged(7200);
    eventually(SOON, "it has its lease again", || redis.exists(Line::KEY));
    superseded(numbered(&redis, &directory, 42), 43).run();
    drop(writer);
    restarted.finish();
    superseded(numbered(&redis, &directory, 42), 43).run();
    numbered(&redis, &directory, 43).run();
    assert_eq!(order(&directory), ["43"]);
}

#[test]
fn a_free_lock_forgets_its_number() {
    let redis = old();
    let run = |line: &str| redlock(&redis, format!("run -q backup {line} -- true"));
    run("--newest 43 --label nightly").run();
    assert!((99 * 86_400_000..=100 * 86_400_000).contains(&redis.pttl(REGISTER)), "{}", redis.pttl(REGISTER));
    redlock(&redis, "release backup --force").status(77).stderr(message(["\"backup\" is not held"])).run();
    superseded(run("--newest 42"), 43).run();
    redlock(&redis, "forget backup").stderr(any()).run();
    assert!(!redis.exists(REGISTER));
    run("--newest 42").run();
}

#[test]
fn the_word_of_one_master_is_enough_unless_a_quorum_came_first() {
    let masters = Redis::aged(3, 7200);
    let urls: Vec<String> = masters.iter().map(Redis::url).collect();
    let run = |urls: &[String], number| redlock(urls, format!("run -q backup --newest {number} -- true"));
    masters[2].command(&["SET", REGISTER, "43 0 7 host label"]);
    superseded(run(&[urls[0].clone(), format!("{}0", urls[1]), urls[2].clone()], 42), 43).run();
    eventually(SOON, "what one has granted is undone", || masters.iter().all(|master| !master.exists(Line::KEY)));
    // A lease on only one of three masters does not count: the lock is free.
    masters[0].command(&["SET", Line::KEY, "remains", "PX", "60000"]);
    redlock(&urls, "forget backup").stderr(when("a master has a lease", |text| text.contains("has a lease"))).run();
    redlock(&urls, "release backup --force").status(77).stderr(message(["\"backup\" is not held"])).run();
    // While the first master had that lease, it did not forget the number 42, with which it would refuse the number 1
    // of the run below.
    masters[0].command(&["DEL", Line::KEY]);
    redlock(&urls, "forget backup").stderr(any()).run();
    run(&urls, 1).run();
    // Two masters grant the run with the number 42 before the third, which is slow, can report the number 43.
    masters[2].command(&["SET", REGISTER, "43 0 7 host label"]);
    let slow = Proxy::new(&masters[2], Mode::Delay(ms(300)));
    run(&[urls[0].clone(), urls[1].clone(), slow.url()], 42).run();
}

#[test]
fn a_server_that_was_just_started_may_have_forgotten_a_larger_number() {
    let mut masters = Redis::aged(3, 7200);
    let run = |masters: &Vec<Redis>| redlock(masters, "run -q deploy --newest 42 -- true");
    run(&masters).run();
    // Two masters have recorded each larger number, so one of any two that grant this number would know it, unless one
    // of them was restarted.
    masters[1].restart_aged(120);
    masters[2].restart_aged(180);
    let said = |name| {
        let up = "a server was started <n>m <any>ago, and may have forgotten a larger number of --newest";
        like(format!("redlock: \"{name}\": {up}\n"))
    };
    run(&masters).stderr(said("deploy")).run();
    redlock(&masters, "acquire other --newest 42").stdout(any()).stderr(said("other")).run();
    redlock(&masters, "run -q plain -- true").run();
    masters[1].restart_aged(3700);
    masters[2].restart_aged(3700);
    run(&masters).run();
    let single = Redis::start();
    redlock(&single, "run -q deploy --newest 42 -- true").stderr(message(["may have forgotten a larger number"])).run();
    // The server of `local:` forgets nothing.
    let stop = "redis-cli -s .local/state/redlock/*/redis.sock shutdown";
    Test::sh("local:", &format!("redlock run -q deploy --newest 42 -- true && {stop}")).run();
}

#[test]
fn peers_run_and_who_comes_for_one_try_only_supersedes_nobody() {
    let redis = old();
    let run = |number| redlock(&redis, format!("run -q backup --newest {number} -- true"));
    run(43).run();
    run(43).run();
    let token = acquire(&redis, Line::NAME);
    run(44).turned_away().run();
    release(&redis, Line::NAME, &token);
    run(43).run();
}

#[test]
fn the_messages_say_which_number_has_come() {
    let redis = old();
    let host = myself().1;
    redlock(&redis, "run -q backup --newest 43 --label nightly -- true").run();
    let said = format!(
        "\"backup\": superseded by 43 ({host}, pid <n>, nightly), which came <duration> ago; for a rollback leave \
         out --newest"
    );
    let older = redlock(&redis, "run backup --wait --newest 42 -- echo started").status(75);
    older.stderr(like(format!("redlock: {said}\n"))).run();
    let row = |fate| like(format!("<lines>  newest  43 by {host}, <duration> ago{fate}\n<lines>"));
    redlock(&redis, "status backup").stdout(row("")).run();
    redlock(&redis, "run -q -E 0 backup --newest 42 -- echo started").run();
    let acquire = redlock(&redis, "acquire backup --newest 42 --format json").status(75);
    let object = acquire.stdout(any()).stderr(any()).run().json();
    assert_eq!((&object["outcome"], &object["holder"]), (&"superseded".into(), &serde_json::Value::Null));
    let newest = &object["newest"];
    assert_eq!((&newest["number"], &newest["host"], &newest["label"]), (&43.into(), &host.into(), &"nightly".into()));
    assert!(newest["pid"].is_u64() && object["message"].as_str().unwrap().contains("superseded by 43"), "{object}");
    // No terminal may obey text that others have written.
    redis.command(&["SET", REGISTER, "44 0 7 host\u{1b} a \u{202e}b"]);
    let said = message(["superseded by 44 (host\\u{1b}, pid 7, a \\u{202e}b)"]);
    redlock(&redis, "run backup --newest 42 -- echo started").status(75).stderr(said).run();
    redis.command(&["DEL", REGISTER]);
    let token = support::acquire(&redis, Line::NAME);
    let waiter = Line::join(&redis, redlock(&redis, "run backup --wait --newest 43 -- true").stderr(any()));
    assert!(waiter.stderr_line().starts_with("redlock: waiting for \"backup\" with number 43, 1st in line; held by "));
    release(&redis, Line::NAME, &token);
    waiter.finish();
}

#[test]
fn wrong_numbers_and_combinations_are_refused() {
    let refused = |line: &str, why: &str| {
        for call in ["run -- true", "acquire"] {
            let (command, rest) = call.split_once(' ').map_or((call, ""), |(command, rest)| (command, rest));
            let test = Test::bare().args(format!("{command} backup {line} {rest}").split_whitespace());
            test.status(64).stderr(message([why])).run();
        }
    };
    let largest = "not a whole number from 0 to 9007199254740991";
    for number in ["x", "1.5", "9007199254740992", "18446744073709551616", "0x10"] {
        refused(&format!("--newest {number}"), largest);
    }
    refused("--newest=", largest);
    refused("--newest -1", "-1");
    for other in ["--shared", "--slots 2", "--reentrant"] {
        refused(&format!("--newest 1 {other}"), other.split(' ').next().unwrap());
    }
    for line in ["backup --once-per 1h", "--name a --name b"] {
        let test = Test::bare().args(format!("run --newest 1 {line} -- true").split(' ')).status(64);
        test.stderr(message(["--newest"])).run();
    }
    let redis = old();
    for number in ["0", "9007199254740991"] {
        redlock(&redis, format!("run -q backup --newest {number} -- true")).run();
    }
    superseded(redlock(&redis, "run -q backup --newest 9007199254740990 -- true"), 9_007_199_254_740_991).run();
}

#[test]
fn a_register_that_is_no_number_is_named_and_the_lock_forgets_it() {
    let redis = old();
    let run = |line: &str| redlock(&redis, format!("run -q backup {line} -- true"));
    for number in ["x", "1e5", "5.5", "-1", "9007199254740992", "99999999999999999999"] {
        let content = format!("{number} 0 7 host label");
        redis.command(&["SET", REGISTER, &content]);
        let said = "redlock: \"backup\" did not run: <any> refused: NONUMBER {redlock:backup}:\\u{1f}newest is no number; let \
                    the lock forget it: redlock forget NAME\n";
        for wait in ["", "--wait"] {
            run(&format!("--newest 43 {wait}")).status(78).stderr(like(said)).run();
        }
        assert_eq!(redis.get(REGISTER), Some(content), "it is left as it is");
        run("").run();
        redlock(&redis, "forget backup").stderr(any()).run();
        run("--newest 43").run();
    }
    redis.command(&["DEL", REGISTER]);
    redis.command(&["RPUSH", REGISTER, "43"]);
    run("--newest 43").status(69).stderr(message(["unlink $'{redlock:backup}:\\x1fnewest'"])).run();
}

#[test]
fn a_newest_call_that_ended_without_a_run_is_named_for_another_try() {
    for masters in [Redis::aged(1, 90_000), Redis::aged(3, 90_000)] {
        let call = |number, rest: &str| redlock(&masters, format!("run -q backup --newest {number} {rest} -- true"));
        let older = |fate: &str| {
            let by = format!(
                "redlock: \"backup\": superseded by 103 (<host>, pid <n>, true), which came <duration> ago{fate}"
            );
            call(102, "").status(75).stderr(like(format!("{by}; for a rollback leave out --newest\n"))).run();
        };
        let is_shown = |fate: &str, is: Value| {
            let row = format!("<lines>\n  newest  103 by <host>, <duration> ago{fate}\n<lines>");
            redlock(&masters, "status backup").stdout(like(row)).run();
            assert_eq!(status(&masters, "backup")["newest"]["has_run"], is, "{fate}");
        };
        let token = acquire(&masters, "backup");
        let mut cancelled = Line::join(&masters[0], call(103, "--wait").any_end());
        older(" and waits in line");
        is_shown(", waits in line", false.into());
        cancelled.send(Signal::SIGTERM);
        cancelled.wait(SOON);
        older(" and has not run: run 103 again");
        is_shown(", has not run: run 103 again", false.into());
        release(&masters, "backup", &token);
        call(103, "").run();
        older("");
        is_shown("", true.into());
        // Without a log, nobody knows whether the call has run.
        call(104, "--log 0").run();
        assert_eq!(status(&masters, "backup")["newest"]["has_run"], Value::Null);
    }
}
