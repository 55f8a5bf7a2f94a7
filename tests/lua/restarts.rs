//! What the scripts do on a server that may have forgotten a lease: quarantine, re-creation, reservation for a holder.

use super::{CLOCK, LOCK, Reply, Scripts, heard, listen, part, run_id, waiters, word};
use crate::support::Redis;

const ANOTHER_RUN: &str = "0123456789abcdef0123456789abcdef01234567";

/// Whether an answer ends with what the node knows of itself.
#[track_caller]
fn tells_identity(redis: &Redis, reply: &Reply, word: &str, at: usize) {
    assert_eq!((reply.text(0), reply.at(at).text(1)), (word, &*run_id(redis)), "{reply:?}");
    assert!(reply.at(at).text(0).parse::<u64>().unwrap() < 3600, "{reply:?}");
}

#[test]
fn a_young_node_grants_nothing_and_calls_no_waiter_but_queues() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let mut connection = redis.connection();
    let mut ears = listen(&mut connection, &["first", "second"]);
    let reply = scripts.take_after("3600", "", "t");
    tells_identity(&redis, &reply, "young", 2);
    assert!((3590..=3601).contains(&reply.int(1).unwrap()), "{reply:?}");
    assert_eq!((reply.int(3), reply.int(5)), (Some(-1), Some(0)));
    assert!(redis.keys().is_empty());
    for (waiter, rank) in [("first", 0), ("second", 1), ("first", 0)] {
        let reply = scripts.take_after("3600", waiter, "t");
        assert_eq!((reply.text(0), reply.int(3)), ("young", Some(rank)));
    }
    assert_eq!(redis.keys(), [part("queue")]);
    assert_eq!(waiters(&redis), ["first", "second"]);
    // When the quarantine is over, the line is as it was. Nothing was called before.
    assert_eq!(scripts.take_after("0", "second", "u").text(0), "held");
    assert_eq!(heard(&mut ears), ("second".to_owned(), "head".to_owned()));
    assert_eq!(heard(&mut ears), ("first".to_owned(), "go".to_owned()));
    assert_eq!(scripts.take_after("0", "first", "t").text(0), "granted");
}

#[test]
fn a_young_node_shows_a_lease_that_it_has_and_grants_it_again() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    assert_eq!(scripts.recreate("t", &run_id(&redis), "0", "base").text(0), "extended");
    let reply = scripts.take_after("3600", "waiter", "u");
    assert_eq!((reply.text(0), reply.text(1), reply.int(5)), ("held", "t", Some(0)));
    tells_identity(&redis, &scripts.take_after("3600", "", "t"), "granted", 2);
}

#[test]
fn a_reservation_is_no_right_on_a_young_node_and_stays() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    redis.command(&["SET", &part("reserved"), "me", "PX", "60000"]);
    assert_eq!(scripts.take_after("3600", "me", "t").text(0), "young");
    assert_eq!(redis.get(&part("reserved")).as_deref(), Some("me"));
    assert_eq!(scripts.take_after("0", "me", "t").text(0), "granted");
}

#[test]
fn the_age_of_a_node_has_a_grain_of_a_second_and_is_never_negative() {
    let redis = Redis::start();
    // What the node says, and how long it has still to wait.
    for (uptime, left) in [("0", Some(31)), ("-7200", Some(31)), ("30", Some(1)), ("31", None), ("99", None)] {
        redis.command(&["FLUSHALL"]);
        let reply = Scripts::aged(redis.connection(), uptime).take_after("30", "", "t");
        match left {
            Some(left) => assert_eq!((reply.text(0), reply.int(1)), ("young", Some(left)), "{uptime}"),
            None => assert_eq!(reply.text(0), "granted", "{uptime}"),
        }
    }
}

#[test]
fn where_info_and_time_are_refused_the_vote_counts_and_nothing_fails() {
    let redis = Redis::start();
    redis.command(&["ACL", "SETUSER", "u", "on", "nopass", "~*", "&*", "+@all", "-info", "-time"]);
    let mut connection = redis.connection();
    redis::cmd("AUTH").arg("u").arg("x").query::<()>(&mut connection).unwrap();
    let mut scripts = Scripts::on(connection);
    let unknown = |reply: &Reply, at: usize| assert_eq!((reply.at(at).text(0), reply.at(at).text(1)), ("", ""));
    assert_eq!(scripts.run("inspect", &[]).text(0), "free");
    let reply = scripts.take_after("3600", "", "t");
    assert_eq!(reply.text(0), "granted");
    unknown(&reply, 2);
    for (waiter, rank) in [("first", 0), ("second", 1)] {
        assert_eq!(scripts.take_after("3600", waiter, "u").int(5), Some(rank));
    }
    for (hold, holds) in [("a", 2), ("b", 3)] {
        assert_eq!(scripts.run("enter", &["t", hold, "0", "60000"]).int(2), Some(holds));
    }
    assert_eq!(scripts.run("holds", &["t"]).text(1), "b");
    assert_eq!(scripts.run("inspect", &[]).text(0), "held");
    assert_eq!(scripts.run("extend", &["t", "t", "90000", "1", "a"]).text(0), "extended");
    assert_eq!(scripts.release("t").text(0), "still-held");
    assert_eq!(scripts.run("release", &["t.a", "t", "a", "0"]).text(0), "still-held");
    assert_eq!(scripts.run("release", &["t", "t", "base", "90000"]), word("released"));
    redis.command(&["DEL", LOCK]);
    // Without an identity a re-creation has to be asked for without one.
    assert_eq!(scripts.recreate("t", ANOTHER_RUN, "0", "base").text(0), "restarted");
    assert_eq!(scripts.recreate("t", "", "0", "base").text(0), "extended");
    assert_eq!(scripts.run("revoke", &["", "force", "me"]).text(0), "released");
    // Nor can a restart be told from none.
    let seen = ["t", ANOTHER_RUN, "60000", "9999999999999"];
    assert_eq!(scripts.take_remembering("third", "v", seen).text(0), "granted");
}

#[test]
fn a_node_without_the_key_says_how_long_it_can_remember() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let calls: [(&str, &[&str]); 5] = [
        ("extend", &["t", "t", "0", "60000", ""]),
        ("enter", &["t", "a", "0", "60000"]),
        ("release", &["t", "t", "base", "0"]),
        ("revoke", &["", "force", "me"]),
        ("holds", &["t"]),
    ];
    for (name, arguments) in calls {
        tells_identity(&redis, &scripts.run(name, arguments), "gone", 1);
    }
    tells_identity(&redis, &scripts.run("inspect", &[]), "free", 5);
    assert!(redis.keys().is_empty());
}

#[test]
fn every_confirmation_says_on_which_run_of_the_server_it_is() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    tells_identity(&redis, &scripts.take("", "t", "60000", ""), "granted", 2);
    tells_identity(&redis, &scripts.take("", "t", "60000", ""), "granted", 2);
    tells_identity(&redis, &scripts.run("extend", &["t", "t", "0", "60000", ""]), "extended", 4);
    tells_identity(&redis, &scripts.run("enter", &["t", "a", "0", "60000"]), "granted", 5);
    tells_identity(&redis, &scripts.recreate("t", &run_id(&redis), "0", "base"), "extended", 4);
    tells_identity(&redis, &scripts.take("", "u", "60000", ""), "held", 4);
}

#[test]
fn a_lease_is_created_again_before_all_that_wait_and_as_it_was() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    redis.command(&["ZADD", &part("queue"), "1", "waiter"]);
    redis.command(&["SET", &part("reserved"), "waiter", "PX", "60000"]);
    redis.command(&["SET", &part("fence"), "3"]);
    let reply = scripts.recreate("t", &run_id(&redis), "0", "base");
    assert_eq!((reply.text(0), reply.int(2), reply.text(3)), ("extended", Some(1), "5"));
    assert_eq!((redis.get(LOCK).as_deref(), redis.get(&part("fence")).as_deref()), (Some("t"), Some("5")));
    assert!(!redis.exists(&part("reserved")) && !redis.exists(&part("holds")));
    let record: Vec<String> = redis.query(&["HMGET", &part("lease"), "token", "ttl", "fence", "host", "label"]);
    assert_eq!(record, ["t", "60000", "5", "host", "label"]);
    assert_eq!(waiters(&redis), ["waiter"]);
    assert_eq!(scripts.recreate("u", &run_id(&redis), "0", "base").text(1), "t");
    // The counter of a node that went on in the meantime is not set back.
    redis.command(&["SET", &part("fence"), "8"]);
    redis.command(&["DEL", LOCK]);
    assert_eq!(scripts.recreate("t", &run_id(&redis), "0", "base").text(0), "extended");
    assert_eq!(redis.get(&part("fence")).as_deref(), Some("8"));
}

#[test]
fn an_answer_of_before_the_restart_creates_nothing_behind_it() {
    let mut redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let before = scripts.run("extend", &["t", "t", "60000", "60000", "base"]).at(1).text(1).to_owned();
    redis.restart();
    let mut scripts = Scripts::on(redis.connection());
    tells_identity(&redis, &scripts.recreate("t", &before, "0", "base"), "restarted", 1);
    assert!(redis.keys().is_empty());
}

#[test]
fn a_single_node_that_had_a_later_holder_refuses_even_when_it_has_gone() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let run = run_id(&redis);
    redis.command(&["SET", &part("fence"), "5"]);
    assert_eq!(scripts.recreate("t", &run, "1", "base").text(0), "extended");
    scripts.release("t");
    redis.command(&["SET", &part("fence"), "6"]);
    let reply = scripts.recreate("t", &run, "1", "base");
    assert_eq!((reply.text(0), reply.text(1)), ("higher", "6"));
    assert!(!redis.exists(LOCK));
    assert_eq!(scripts.recreate("t", &run, "0", "base").text(0), "extended");
}

#[test]
fn a_revoked_lease_is_not_confirmed_by_creating_it_again() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    scripts.run("revoke", &["", "revoke", "me"]);
    let reply = scripts.recreate("t", &run_id(&redis), "0", "base");
    assert_eq!((reply.text(0), reply.text(1)), ("revoked", "me"));
}

#[test]
fn a_waiter_keeps_the_lock_for_the_holder_that_a_restart_has_forgotten() {
    let mut redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    let seen = scripts.take("waiter", "u", "60000", "");
    let (before, fence) = (seen.at(4).text(1).to_owned(), CLOCK);
    redis.restart();
    let mut scripts = Scripts::on(redis.connection());
    let reply = scripts.take_remembering("waiter", "u", ["t", &before, "60000", fence]);
    assert_eq!((reply.text(0), reply.text(1), reply.int(5), reply.int(8)), ("held", "", Some(0), Some(1)));
    assert!((50_000..=60_000).contains(&reply.int(2).unwrap()), "{reply:?}");
    assert_eq!(redis.get(&part("reserved")).as_deref(), Some("t"));
    // It holds off newcomers too, until the holder is back.
    assert_eq!(scripts.take("", "v", "60000", "").text(0), "held");
    assert_eq!(
        scripts.run("recreate", &["t", "60000", fence, "h", "1", "u", "l", &run_id(&redis), "1", "base"]).text(0),
        "extended"
    );
    assert!(!redis.exists(&part("reserved")));
    // It has released: the counter stands at its fencing token, and nothing is kept any more.
    assert_eq!(scripts.run("release", &["t", "t", "base", "0"]), word("released"));
    assert_eq!(scripts.take_remembering("waiter", "u", ["t", &before, "60000", fence]).text(0), "granted");
}

#[test]
fn nothing_is_kept_on_the_same_run_beyond_the_lease_or_over_another_reservation() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let run = run_id(&redis);
    let seen = [
        ["t", &run, "60000", "9"],
        ["t", "", "60000", "9"],
        ["t", ANOTHER_RUN, "0", "9"],
        ["t", ANOTHER_RUN, "-5", "9"],
        ["t", ANOTHER_RUN, "60000", ""],
        ["", ANOTHER_RUN, "60000", "9"],
    ];
    for seen in seen {
        redis.command(&["FLUSHALL"]);
        assert_eq!(scripts.take_remembering("waiter", "u", seen).text(0), "granted", "{seen:?}");
    }
    redis.command(&["FLUSHALL"]);
    redis.command(&["SET", &part("reserved"), "other", "PX", "60000"]);
    assert_eq!(scripts.take_remembering("waiter", "u", ["t", ANOTHER_RUN, "60000", "9"]).text(0), "held");
    assert_eq!(redis.get(&part("reserved")).as_deref(), Some("other"));
    scripts.run("leave", &["other", ""]);
    redis.command(&["SET", LOCK, "w", "PX", "60000"]);
    assert_eq!(scripts.take_remembering("waiter", "u", ["t", ANOTHER_RUN, "60000", "9"]).text(1), "w");
    assert!(!redis.exists(&part("reserved")));
}

#[test]
fn the_holder_for_which_the_lock_is_kept_can_release_it() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let mut connection = redis.connection();
    let mut ears = listen(&mut connection, &["waiter"]);
    let kept = |scripts: &mut Scripts| {
        assert_eq!(scripts.take_remembering("waiter", "u", ["t", ANOTHER_RUN, "60000", "9"]).text(0), "held");
    };
    kept(&mut scripts);
    // An inner job's end frees nothing.
    assert_eq!(scripts.run("release", &["t.a", "t", "a", "0"]).text(0), "gone");
    assert_eq!(scripts.run("release", &["v", "v", "base", "0"]).text(0), "gone");
    assert_eq!(redis.get(&part("reserved")).as_deref(), Some("t"));
    assert_eq!(scripts.run("release", &["t", "t", "base", "0"]), word("released"));
    assert_eq!(heard(&mut ears), ("waiter".to_owned(), "go".to_owned()));
    assert_eq!(scripts.take("waiter", "u", "60000", "").text(0), "granted");
    // With --hold-at-least it stays kept.
    redis.command(&["FLUSHALL"]);
    kept(&mut scripts);
    assert_eq!(scripts.run("release", &["t", "t", "base", "5000"]), word("released"));
    assert!((1..=5000).contains(&redis.pttl(&part("reserved"))));
    assert_eq!(scripts.take("", "v", "60000", "").text(0), "held");
}
