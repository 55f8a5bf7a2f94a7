//! Thousands hold a lock, wait for it, or have died: one script deals with all of them. Thousands of locks are listed
//! in little memory.

use super::claims::job;
use crate::support::reset_command_calls;
use crate::support::{
    Line, Redis, SOON, Test, acquire, any, command_calls, eventually, like, message, redlock, release,
};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::time::Duration;

const BASE: &str = "{redlock:backup}:\u{1f}";
/// A deadline far in the future, in ms since 1970.
pub(crate) const LATER: &str = "99999999999999";

/// Adds `items`, pairs of a score and a member, to the sorted set `part` of the lock: a thousand with each ZADD.
pub(crate) fn list(redis: &Redis, part: &str, items: impl Iterator<Item = (String, String)>) {
    let items: Vec<(String, String)> = items.collect();
    let key = format!("{BASE}{part}");
    for items in items.chunks(1_000) {
        let words = ["ZADD", &key].into_iter().chain(items.iter().flat_map(|(score, item)| [&**score, &**item]));
        redis.command(&words.collect::<Vec<_>>());
    }
}

pub(crate) fn token(number: usize) -> String {
    format!("{number:032x}")
}

/// Lets one reader take the lock, and lists `count` other readers, whose leases run out at `ends` (ms since 1970).
pub(crate) fn readers(redis: &Redis, count: usize, ends: &str) {
    redlock(redis, "acquire backup --shared --ttl 1h").stdout(like("<token>\n")).run();
    list(redis, "members", (1..=count).map(|number| (ends.to_owned(), token(number))));
}

/// Puts `count` dead waiters into the line, before all others.
pub(crate) fn dead_waiters(redis: &Redis, count: usize) {
    list(redis, "queue", (1..=count).map(|number| (number.to_string(), format!("dead{number}"))));
}

/// Makes `locks` free locks, each with a hundred hosts, and with two runs whose host and label have wide characters.
fn remembered(redis: &Redis, locks: usize) {
    const FILL: &str = "local now = redis.call('TIME')[1] - 30
        local visits = {}
        for host = 1, 100 do visits[2 * host - 1], visits[2 * host] = now .. '0000', 'web-' .. host end
        for i = 1, ARGV[1] do
          local name = string.format('{redlock:job-%05d}:\\31', i)
          for run = 1, 0, -1 do
            redis.call('LPUSH', name .. 'log', cjson.encode({t = string.format('%08x%024x', i, run), h = string.rep('漢', 60),
              p = '1', u = 'deploy', l = string.rep('字', 40), b = (now - run * 60) .. '000', d = '1000', f = '1', x = '0'}))
          end
          redis.call('ZADD', name .. 'visits', unpack(visits))
          redis.call('HSET', name .. 'runs', 'success', redis.call('LINDEX', name .. 'log', 0), 'succeeded', '2')
        end";
    redis.command(&["EVAL", FILL, "0", &locks.to_string()]);
}

#[test]
fn thousands_of_locks_are_listed_in_a_few_megabytes() {
    let redis = Redis::start();
    remembered(&redis, 5_000);
    // ulimit -d limits the private memory that a process can write, in kB.
    let limited = |line: &str| {
        let test = Test::program(&redis, "sh").args(["-c", "ulimit -d 16384; exec redlock \"$@\"", "sh"]);
        test.args(line.split(' ')).stdout(any()).within(Duration::from_secs(60)).run().stdout
    };
    assert_eq!(limited("status --all").lines().count(), 5_001);
    let all: Value = serde_json::from_str(&limited("status --all --format json")).unwrap();
    let all = all["locks"].as_array().unwrap();
    assert_eq!((all.len(), &all[4_999]["last"]["status"]), (5_000, &0.into()));
    assert_eq!(limited("status --format prometheus").matches("redlock_last_run_success{").count(), 5_000);
    assert_eq!(limited("check job-* --within 1h"), "5000 locks in order\n");
    assert_eq!(limited("check job-* --within 1h --min-hosts 100 --format json").lines().count(), 5_000);
    // The log has the runs of all locks, the oldest first.
    let log = limited("log --since 1h");
    assert_eq!(log.lines().count(), 10_000);
    assert!(log.lines().map(|line| &line[..19]).is_sorted(), "{:?}", log.lines().next());
    let (newest, second) = (limited("log -n 2000"), log.lines().nth(5_000).unwrap());
    assert_eq!(newest.lines().filter(|line| line[..19] >= second[..19]).count(), 2_000);
}

#[test]
fn more_locks_than_fit_into_the_memory_of_a_list_are_reported() {
    let redis = Redis::start();
    // A list has 24 MB for names, and counts 64 bytes more for each name.
    let fill = "for i = 1, 80000 do redis.call('SET', 'redlock:' .. string.rep('x', 250) .. i, 't') end";
    redis.command(&["EVAL", fill, "0"]);
    let said = message(["has more keys than can be listed", "redlock status NAME"]);
    redlock(&redis, "status").status(69).stderr(said).within(Duration::from_secs(60)).run();
}

/// A name counts once, however many keys it has. The 25,000 names, which have two keys each, fit into 24 MB only so.
#[test]
fn many_names_as_long_as_can_be_fit_into_the_memory_of_a_list() {
    let redis = Redis::start();
    let fill = "for i = 1, 25000 do
          local name = '{redlock:' .. string.rep('x', 500) .. i .. '}:\\31'
          redis.call('RPUSH', name .. 'log', '{\"t\":\"a\",\"b\":\"' .. i .. '000\",\"d\":\"1\",\"x\":\"0\"}')
          redis.call('HSET', name .. 'runs', 'succeeded', '1')
        end";
    redis.command(&["EVAL", fill, "0"]);
    let newest = redlock(&redis, "log -n 1 --format json").stdout(any()).within(Duration::from_secs(60)).run().json();
    assert!(newest["name"].as_str().unwrap().ends_with("x25000"), "{newest}");
}

fn members(redis: &Redis) -> usize {
    redis.query(&["ZCARD", &format!("{BASE}members")])
}

/// How many scripts the server has run for this command.
#[track_caller]
fn scripts(redis: &Redis, command: Test) -> u64 {
    reset_command_calls(redis);
    command.run();
    let calls = command_calls(redis);
    ["eval", "evalsha"].iter().filter_map(|name| calls.get(*name)).sum()
}

#[test]
fn thousands_that_have_run_out_are_forgotten_by_the_next_request_and_neither_named_nor_counted() {
    let redis = Redis::start();
    readers(&redis, 3_000, "1");
    redlock(&redis, "acquire backup").fails(75, ["\"backup\" is shared by 1: "]).run();
    assert_eq!(members(&redis), 1);
}

#[test]
fn a_job_among_thousands_is_told_of_the_revocation() {
    let redis = Redis::start();
    let (reader, end) = job(&redis, "--shared --ttl 4s", 76);
    readers(&redis, 3_000, LATER);
    let stop = redlock(&redis, "stop backup --token all").any_end().stdout(any()).stderr(any()).spawn();
    reader.finish();
    // It would wait for the others, too.
    stop.send(Signal::SIGTERM);
    stop.finish();
    drop(end);
}

#[test]
fn thousands_are_freed_by_a_request() {
    let redis = Redis::start();
    readers(&redis, 3_000, LATER);
    redlock(&redis, "run -q backup --shared -- true").run();
    let calls = scripts(&redis, redlock(&redis, "release backup --force").stdout(any()));
    assert!(calls <= 6, "{calls}: inspect, runs and revoke, each once more with its body");
    assert!(!redis.exists(&format!("{BASE}members")));
    redlock(&redis, "run -q backup -- true").run();
}

#[test]
fn one_of_thousands_is_revoked_by_the_beginning_of_its_token() {
    let redis = Redis::start();
    readers(&redis, 3_000, LATER);
    let last = token(3_000);
    redis.command(&["ZADD", &format!("{BASE}members"), "99999999999998", "cafecafecafe"]);
    let record = format!("{BASE}member:cafecafecafe");
    redis.command(&["HSET", &record, "token", "cafecafecafe", "ttl", "1000", "host", "h", "pid", "1", "user", "u"]);
    let asked = redlock(&redis, "stop backup --token cafecafe").stdout(any()).stderr(any()).any_end().spawn();
    eventually(SOON, "it is revoked", || redis.query::<bool>(&["HEXISTS", &record, "revoked"]));
    redlock(&redis, "release backup --force --token cafecafe").stdout(any()).run();
    assert!(!redis.exists(&record));
    asked.finish();
    redlock(&redis, "release backup --force --token cafecafe").status(77).stderr(any()).run();
    let several = message(["tokens of 9 leases", &format!("{:?}", &last[..31])]);
    redlock(&redis, format!("release backup --force --token {}", &last[..31])).status(64).stderr(several).run();
    assert_eq!(members(&redis), 1 + 3_000);
}

#[test]
fn one_try_passes_thousands_of_dead_waiters() {
    let redis = Redis::start();
    dead_waiters(&redis, 3_000);
    redlock(&redis, "run -q backup -- true").run();
    assert!(Line::is_clean(&redis));
    dead_waiters(&redis, 3_000);
    redlock(&redis, "wait -q backup").run();
    assert!(Line::is_clean(&redis));
}

#[test]
fn a_release_calls_the_first_that_lives_behind_thousands_of_dead_waiters() {
    let redis = Redis::start();
    let holder = acquire(&redis, "backup");
    dead_waiters(&redis, 3_000);
    // Without a call, the waiter would look again only in a minute.
    let waiter = Line::join(&redis, Line::waiter(&redis).args(["60s"]).within(Duration::from_secs(20)));
    release(&redis, "backup", &holder);
    waiter.finish();
    assert!(Line::is_clean(&redis));
}
