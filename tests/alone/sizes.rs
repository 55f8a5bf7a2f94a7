//! The longest script where ten thousand hold a lock, wait for it, or have died; and a job with a lease of a second beside them.

use crate::lock::sizes::{LATER, dead_waiters, list, readers, token};
use crate::support::{Redis, any, like, redlock};
use nix::sys::signal::Signal;

const COUNT: usize = 10_000;
const MOST_US: i64 = 5_000;

/// Runs these command lines, then tells the longest script of all that the server has run for them.
#[track_caller]
fn worst(redis: &Redis, what: &str, lines: &[&str]) {
    redis.command(&["SLOWLOG", "RESET"]);
    for line in lines {
        let status = if line.starts_with("acquire") { 75 } else { 0 };
        redlock(redis, *line).status(status).stdout(any()).stderr(any()).run();
    }
    let slow: Vec<(i64, i64, i64, Vec<String>, String, String)> = redis.query(&["SLOWLOG", "GET", "-1"]);
    // What looks at the lock for `release` names as many holders as a status shows.
    let is_meant =
        |words: &[String]| words[0].to_lowercase().starts_with("eval") && !words.iter().any(|word| word == "most");
    let scripts = slow.iter().filter(|(_, _, _, words, ..)| is_meant(words));
    let longest = scripts.map(|(_, _, us, ..)| *us).max().unwrap_or(0);
    eprintln!("{what:<50} {:>6.2} ms", longest as f64 / 1000.0);
    assert!(longest < MOST_US, "{what}: {longest} us");
}

fn places(redis: &Redis, ends: &str) {
    redlock(redis, format!("acquire backup --slots {COUNT} --ttl 1h")).stdout(like("<token>\n")).run();
    list(redis, "members", (1..COUNT).map(|number| (ends.to_owned(), token(number))));
    list(redis, "places", (1..COUNT).map(|number| (number.to_string(), token(number))));
}

#[test]
fn no_script_takes_longer_than_5_ms_whatever_ten_thousand_do() {
    let redis = Redis::with(&["--slowlog-log-slower-than", "500", "--slowlog-max-len", "100000"]);
    let mut job = redlock(&redis, "run -q job --ttl 1s -- sleep 600").signal(Signal::SIGTERM).spawn();
    places(&redis, LATER);
    worst(&redis, "slots: one turned away", &["acquire backup --slots 10000"]);
    worst(&redis, "slots: revoked", &["release backup --revoke"]);
    worst(&redis, "slots: freed by force", &["release backup --force"]);
    places(&redis, "1");
    worst(&redis, "slots: all but one dead, and one more", &["run -q backup --slots 10000 -- true"]);
    worst(&redis, "slots: those freed by force", &["release backup --force"]);
    readers(&redis, COUNT, LATER);
    worst(&redis, "readers: one turned away", &["acquire backup"]);
    worst(&redis, "readers: one more", &["run -q backup --shared -- true"]);
    worst(&redis, "readers: revoked", &["release backup --revoke"]);
    worst(&redis, "readers: freed by force", &["release backup --force"]);
    readers(&redis, COUNT, "1");
    worst(&redis, "readers: all but one dead, and one turned away", &["acquire backup"]);
    dead_waiters(&redis, COUNT);
    worst(&redis, "waiters: all dead, and one try", &["release backup --force", "run -q backup -- true"]);
    assert!(!job.has_ended());
    job.send(Signal::SIGTERM);
    job.finish();
}
