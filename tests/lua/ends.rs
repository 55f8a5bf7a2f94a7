//! Answers to a release if the node does not have the lease, or cannot write the end of the run.

use super::{Scripts, part};
use crate::support::Redis;

const SEARCHED: u32 = 200; // a release looks through this many of the newest runs

/// Appends to the log this many runs, which have just ended.
fn log(redis: &Redis, runs: u32) {
    let seconds: Vec<String> = redis.query(&["TIME"]);
    for _ in 0..runs {
        let run = format!(r#"{{"t":"a","b":"{}000","d":"1"}}"#, seconds[0]);
        redis.command(&["RPUSH", &part("log"), &run]);
    }
}

#[test]
fn a_run_may_have_been_forgotten_if_all_that_is_left_of_a_log_that_was_cut_ended_later() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let mut told = || scripts.run("release", "token=t began=60000 ended=50000").text("known").to_owned();
    assert_eq!(told(), "");
    log(&redis, 1);
    assert_eq!(told(), "", "nothing was cut off");
    redis.command(&["HSET", &part("runs"), "cut", "1"]);
    assert_eq!(told(), "unsure");
    redis.command(&["DEL", &part("runs")]);
    // A release searches the newest SEARCHED runs of the log. If the log has SEARCHED runs or more, the run of `t` may
    // be among the runs that are not searched.
    log(&redis, SEARCHED - 2);
    assert_eq!(told(), "");
    log(&redis, 1);
    assert_eq!(told(), "unsure");
    redis.command(&["LSET", &part("log"), "-1", r#"{"t":"a","b":"1","d":"1"}"#]);
    assert_eq!(told(), "", "the last one ended before it");
}

#[test]
fn what_keeps_a_run_from_being_written_is_told_in_the_words_of_the_server() {
    // The cases are the usual end of a run, a success with `--once-per`, and a run whose lease the node has lost.
    for end in ["outcome=exited code=0", "outcome=exited code=0 once=1", "outcome=exited code=0 gone=lost"] {
        let redis = Redis::start();
        let mut scripts = Scripts::on(redis.connection());
        scripts.take_with("", "t", r#"ttl=60000 entry={"h":"host"}"#);
        redis.command(&["SET", &part("log"), "of another type"]);
        if end.contains("gone") {
            redis.command(&["DEL", super::LOCK]);
        }
        let reply = scripts.run("release", &format!(r#"token=t hold=base began=60000 entry={{"f":"1"}} {end}"#));
        assert!(reply.text("unwritten").contains("WRONGTYPE"), "{end}: {reply:?}");
        assert_eq!(reply.text("unnoted"), "", "{end}");
        redis.command(&["DEL", super::LOCK, &part("runs")]);
        redis.command(&["SET", &part("runs"), "of another type"]);
        let reply = scripts.run("release", r#"token=t began=60000 once=1 code=0 entry={"f":"1"}"#);
        assert!(reply.text("unnoted").contains("WRONGTYPE"), "{reply:?}");
    }
}
