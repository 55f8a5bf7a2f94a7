//! The end of a run in the history: which end stays, what a release is answered, and what an error costs.

use super::{Scripts, part};
use crate::support::Redis;
use serde_json::Value;

/// The log, the newest run first.
fn log(redis: &Redis) -> Vec<Value> {
    let texts: Vec<String> = redis.query(&["LRANGE", &part("log"), "0", "-1"]);
    texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
}

fn field(redis: &Redis, name: &str) -> Value {
    let text: Option<String> = redis.query(&["HGET", &part("runs"), name]);
    text.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
}

fn taken(redis: &Redis) -> Scripts {
    let mut scripts = Scripts::on(redis.connection());
    scripts.take_with("", "t", r#"ttl=60000 entry={"h":"host"}"#);
    scripts
}

#[test]
fn the_first_end_that_is_reported_stays_and_a_later_one_adds_its_errors() {
    let redis = Redis::start();
    let mut scripts = taken(&redis);
    scripts.run("revoke", "force=1 by=me token=t");
    let late = |end: &str| format!(r#"token=t hold=base final=1 run={{"t":"t","b":"1","f":"1","d":"7",{end}}}"#);
    assert_eq!(scripts.run("release", &late(r#""o":"lost","e":"why""#)).text("known"), "known");
    scripts.run("release", &late(r#""x":"0","e":"no""#));
    let [run] = &log(&redis)[..] else { panic!("one run") };
    assert_eq!(
        (&run["o"], &run["y"], &run["x"], &run["e"]),
        (&"revoked".into(), &"me".into(), &Value::Null, &Value::Null)
    );
    assert_eq!((field(&redis, "failure")["e"].as_str(), field(&redis, "success")), (Some("why"), Value::Null));
    assert_eq!(
        redis.query::<Vec<Option<String>>>(&["HMGET", &part("runs"), "succeeded", "failed"]),
        [None, Some("1".to_owned())]
    );
}

#[test]
fn a_loss_takes_a_success_back_and_no_success_takes_back_a_loss() {
    let redis = Redis::start();
    let mut scripts = taken(&redis);
    let reported = |end: &str| format!(r#"token=t hold=base run={{"t":"t","b":"1","f":"1","d":"7","q":"1",{end}}}"#);
    let counts = || redis.query::<Vec<String>>(&["HMGET", &part("runs"), "succeeded", "failed"]);
    scripts.run("release", &reported(r#""x":"0""#));
    assert_eq!((&field(&redis, "once")["t"], &field(&redis, "success")["t"]), (&"t".into(), &"t".into()));
    for end in [r#""o":"lost""#, r#""x":"0""#] {
        scripts.run("release", &format!("{} final=1", reported(end)));
        let [run] = &log(&redis)[..] else { panic!("one run") };
        assert_eq!((&run["o"], &run["x"]), (&"lost".into(), &Value::Null));
        assert_eq!((field(&redis, "once"), field(&redis, "success")), (Value::Null, Value::Null));
        assert_eq!(
            (field(&redis, "failure")["o"].as_str(), counts()),
            (Some("lost"), vec!["0".to_owned(), "1".to_owned()])
        );
    }
}

#[test]
fn a_release_is_answered_what_the_log_knows_of_its_run() {
    let redis = Redis::start();
    let known = |end: &str| {
        redis.command(&["DEL", &part("log")]);
        if !end.is_empty() {
            redis.command(&["RPUSH", &part("log"), r#"{"t":"other"}"#, &format!(r#"{{"t":"t","b":"1"{end}}}"#)]);
        }
        Scripts::on(redis.connection()).run("release", "token=t hold=base").text("known").to_owned()
    };
    for end in [r#","x":"0""#, r#","s":"9""#, r#","o":"too-long""#, r#","o":"released""#] {
        assert_eq!(known(end), "ended", "{end}");
    }
    for end in [",\"h\":\"h\"", r#","o":"lost""#, r#","o":"revoked""#, r#","o":"expired","x":"0""#] {
        assert_eq!(known(end), "known", "{end}");
    }
    assert_eq!(known(""), "");
}

#[test]
fn what_keeps_a_run_from_being_written_is_reported_in_the_words_of_the_server() {
    // The cases are the usual end of a run, and a run whose lease the node has lost.
    for is_final in [false, true] {
        let redis = Redis::start();
        let mut scripts = taken(&redis);
        redis.command(&["SET", &part("log"), "of another type"]);
        let mut end = r#"token=t hold=base run={"t":"t","b":"1","f":"1","d":"7","q":"1","x":"0"}"#.to_owned();
        if is_final {
            redis.command(&["DEL", super::LOCK]);
            end += " final=1";
        }
        let reply = scripts.run("release", &end);
        assert!(reply.text("unwritten").contains("WRONGTYPE"), "{reply:?}");
        assert_eq!((reply.text("unnoted"), &field(&redis, "once")["t"]), ("", &"t".into()), "the success is noted");
        redis.command(&["DEL", &part("log"), &part("runs")]);
        redis.command(&["SET", &part("runs"), "of another type"]);
        let reply = scripts.run("release", &format!("{end} final=1"));
        assert!(reply.text("unnoted").contains("WRONGTYPE"), "{reply:?}");
    }
}

#[test]
fn an_end_cuts_the_log_to_what_it_keeps_and_a_grant_leaves_room_for_more() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    for (keeps, kept, most) in [(r#","n":"1""#, 1, 40), ("", 20, 40), (r#","n":"30""#, 30, 50)] {
        redis.command(&["FLUSHALL"]);
        for number in 0..most + 5 {
            let run = format!(r#"claim=shared ttl=60000 entry={{"h":"h"{keeps}}}"#);
            assert_eq!(scripts.take_with("", &format!("t{number}"), &run).word(), "granted");
        }
        let runs = log(&redis);
        assert_eq!((runs.len(), runs[0]["t"].as_str()), (most, Some(&*format!("t{}", most + 4))));
        // The end of the oldest run is noted, though the log is cut before this run.
        scripts.run("release", r#"claim=shared token=t5 hold=base run={"x":"0"}"#);
        assert_eq!((log(&redis), field(&redis, "succeeded")), (runs[..kept].to_vec(), 1.into()));
    }
}

#[test]
fn a_log_that_more_hold_together_than_it_keeps_ends_each_run_soon() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    for at in 0..250 {
        let arguments = r#"claim=shared ttl=60000 entry={"h":"host","n":"200"}"#;
        assert_eq!(scripts.take_with("", &format!("t{at}"), arguments).word(), "granted");
    }
    assert_eq!(log(&redis).len(), 220);
    // The newest of the runs that have dropped out reports itself whole; a lease of acquire leaves no trace.
    scripts.run(
        "release",
        r#"token=t29 hold=base claim=shared run={"t":"t29","b":"1","f":"1","d":"7","x":"0","n":"200"}"#,
    );
    assert_eq!((log(&redis).len(), &log(&redis)[0]["t"]), (200, &"t29".into()));
    scripts.run("release", "token=t28 claim=shared");
    assert_eq!(&log(&redis)[0]["t"], "t29");
    // All that the log has are noted as ended by force.
    scripts.run("revoke", "force=1 by=me");
    assert_eq!(log(&redis).iter().filter(|run| run["o"] == "revoked" && run["y"] == "me").count(), 199);
}

#[test]
fn a_try_that_its_caller_undoes_turns_this_caller_away_no_more() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let mut take = |token: &str, earlier: &str| {
        let options = r#"ttl=60000 once=1000000 tries=1 entry={"h":"host"}"#;
        scripts.take_with("", token, &format!("{options} {earlier}"));
        scripts.run("try", &format!("token={token}"))
    };
    assert_eq!(take("t", "").text("outcome"), "counted");
    assert_eq!(take("u", "earlier=t").text("outcome"), "counted");
}
