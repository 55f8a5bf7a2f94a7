//! What the scripts do on a server that may have forgotten a lease: quarantine, re-creation, reservation for a holder.

use super::{CLOCK, LOCK, OWNER, Reply, Scripts, heard, listen, part, run_id, waiters, word};
use crate::support::Redis;

const ANOTHER_RUN: &str = "0123456789abcdef0123456789abcdef01234567";

/// Whether an answer says what the node knows of itself.
#[track_caller]
fn tells_identity(redis: &Redis, reply: &Reply, word: &str) {
    let (uptime, id) = reply.node();
    assert_eq!((reply.word(), id), (word, &*run_id(redis)), "{reply:?}");
    assert!(uptime.parse::<u64>().unwrap() < 3600, "{reply:?}");
}

#[test]
fn a_quarantined_node_grants_nothing_and_calls_no_waiter_but_queues() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let mut connection = redis.connection();
    let mut ears = listen(&mut connection, &["first", "second"]);
    let reply = scripts.take_after("3600", "", "t");
    tells_identity(&redis, &reply, "quarantined");
    assert_eq!((reply.int("rank"), reply.int("queued")), (None, None));
    assert!(redis.keys_without_the_memory().is_empty());
    for (waiter, rank) in [("first", 0), ("second", 1), ("first", 0)] {
        let reply = scripts.take_after("3600", waiter, "t");
        assert_eq!((reply.word(), reply.int("rank")), ("quarantined", Some(rank)));
    }
    assert_eq!(redis.keys_without_the_memory(), [part("queue")]);
    assert_eq!(waiters(&redis), ["first", "second"]);
    // When the quarantine is over, the line is as it was. Nothing was called before.
    assert_eq!(scripts.take_after("0", "second", "u").word(), "reserved");
    assert_eq!(heard(&mut ears), ("second".to_owned(), "head".to_owned()));
    assert_eq!(heard(&mut ears), ("first".to_owned(), "go".to_owned()));
    assert_eq!(scripts.take_after("0", "first", "t").word(), "granted");
}

#[test]
fn a_quarantined_node_shows_a_lease_that_it_has_and_grants_it_again() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    assert_eq!(scripts.recreate("t", &run_id(&redis), false, "base").word(), "extended");
    let reply = scripts.take_after("3600", "waiter", "u");
    assert_eq!((reply.word(), reply.holder().text("value"), reply.int("rank")), ("held", "t", Some(0)));
    tells_identity(&redis, &scripts.take_after("3600", "", "t"), "granted");
}

#[test]
fn a_reservation_is_no_right_on_a_young_node_and_stays() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    redis.command(&["SET", &part("reserved"), "me", "PX", "60000"]);
    assert_eq!(scripts.take_after("3600", "me", "t").word(), "quarantined");
    assert_eq!(redis.get(&part("reserved")).as_deref(), Some("me"));
    assert_eq!(scripts.take_after("0", "me", "t").word(), "granted");
}

#[test]
fn the_age_of_a_node_has_a_grain_of_a_second_and_may_be_negative() {
    let redis = Redis::start();
    // What the node says, as what that is taken, and whether it has still to wait.
    for (uptime, known, quarantined) in
        [("0", "0", true), ("-7200", "-7200", true), ("30", "30", true), ("31", "31", false), ("99", "99", false)]
    {
        redis.command(&["FLUSHALL"]);
        let reply = Scripts::aged(redis.connection(), uptime).take_after("30", "", "t");
        let outcome = if quarantined { "quarantined" } else { "granted" };
        assert_eq!((reply.word(), reply.node().0), (outcome, known), "{uptime}");
    }
}

#[test]
fn where_info_is_refused_nothing_fails_but_a_quarantine() {
    let redis = Redis::start();
    redis.command(&["ACL", "SETUSER", "u", "on", "nopass", "~*", "&*", "+@all", "-info"]);
    let mut connection = redis.connection();
    redis::cmd("AUTH").arg("u").arg("x").query::<()>(&mut connection).unwrap();
    let mut scripts = Scripts::on(connection);
    let unknown = |reply: &Reply| assert_eq!(reply.node(), ("", ""));
    assert_eq!(scripts.run("inspect", "").word(), "free");
    let reply = scripts.take_after("3600", "", "t");
    assert_eq!(reply.word(), "quarantined");
    unknown(&reply);
    let reply = scripts.take_after("0", "", "t");
    assert_eq!(reply.word(), "granted");
    unknown(&reply);
    for (waiter, rank) in [("first", 0), ("second", 1)] {
        assert_eq!(scripts.take_after("0", waiter, "u").int("rank"), Some(rank));
    }
    for (hold, holds) in [("a", 2), ("b", 3)] {
        assert_eq!(scripts.run("enter", &format!("token=t hold={hold}")).int("holds"), Some(holds));
    }
    assert_eq!(scripts.run("holds", "token=t").text("hold"), "b");
    assert_eq!(scripts.run("inspect", "").word(), "held");
    assert_eq!(scripts.run("extend", "token=t ttl=90000 hold=a renew=1").word(), "extended");
    assert_eq!(scripts.release("t").text("hold"), "b");
    assert_eq!(scripts.run("release", "token=t hold=b").word(), "still-held");
    assert_eq!(scripts.run("release", "token=t hold=a").word(), "still-held");
    assert_eq!(scripts.run("release", "token=t hold=base keep=90000"), word("released"));
    redis.command(&["DEL", LOCK]);
    // Without an identity a re-creation has to be asked for without one.
    assert_eq!(scripts.recreate("t", ANOTHER_RUN, false, "base").word(), "restarted");
    assert_eq!(scripts.recreate("t", "", false, "base").word(), "extended");
    assert_eq!(scripts.run("revoke", "by=me force=1").word(), "released");
    // Nor can a restart be told from none.
    let seen = ["t", ANOTHER_RUN, "60000", "9999999999999"];
    assert_eq!(scripts.take_remembering("third", "v", seen).word(), "granted");
}

#[test]
fn a_node_without_the_key_says_how_long_it_can_remember() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let calls = [
        ("extend", "token=t"),
        ("enter", "token=t hold=a"),
        ("release", "token=t hold=base"),
        ("revoke", "by=me force=1"),
        ("holds", "token=t"),
    ];
    for (name, arguments) in calls {
        tells_identity(&redis, &scripts.run(name, arguments), "gone");
    }
    tells_identity(&redis, &scripts.run("inspect", ""), "free");
    assert!(redis.keys_without_the_memory().is_empty());
}

#[test]
fn every_confirmation_says_on_which_run_of_the_server_it_is() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    tells_identity(&redis, &scripts.take("", "t", "60000", ""), "granted");
    tells_identity(&redis, &scripts.take("", "t", "60000", ""), "granted");
    tells_identity(&redis, &scripts.run("extend", "token=t"), "extended");
    tells_identity(&redis, &scripts.run("enter", "token=t hold=a"), "extended");
    tells_identity(&redis, &scripts.recreate("t", &run_id(&redis), false, "base"), "extended");
    tells_identity(&redis, &scripts.take("", "u", "60000", ""), "held");
}

#[test]
fn a_lease_is_created_again_before_all_that_wait_and_as_it_was() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    redis.command(&["ZADD", &part("queue"), "1", "waiter"]);
    redis.command(&["SET", &part("reserved"), "waiter", "PX", "60000"]);
    redis.command(&["SET", &part("fence"), "3"]);
    let reply = scripts.recreate("t", &run_id(&redis), false, "base");
    assert_eq!((reply.word(), reply.int("holds")), ("extended", Some(1)));
    assert_eq!((redis.get(LOCK).as_deref(), redis.get(&part("fence")).as_deref()), (Some("t"), Some("5")));
    assert!(!redis.exists(&part("reserved")) && !redis.exists(&part("holds")));
    let record: Vec<String> = redis.query(&["HMGET", &part("lease"), "token", "ttl", "fence", "host", "label"]);
    assert_eq!(record, ["t", "60000", "5", "host", "label"]);
    assert_eq!(waiters(&redis), ["waiter"]);
    assert_eq!(scripts.recreate("u", &run_id(&redis), false, "base").holder().text("value"), "t");
    // The counter of a node that went on in the meantime is not set back.
    redis.command(&["SET", &part("fence"), "8"]);
    redis.command(&["DEL", LOCK]);
    assert_eq!(scripts.recreate("t", &run_id(&redis), false, "base").word(), "extended");
    assert_eq!(redis.get(&part("fence")).as_deref(), Some("8"));
}

#[test]
fn an_answer_of_before_the_restart_creates_nothing_behind_it() {
    let mut redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let before = scripts.run("extend", "token=t ttl=60000 hold=base renew=1").node().1.to_owned();
    redis.restart();
    let mut scripts = Scripts::on(redis.connection());
    assert_eq!(scripts.recreate("t", &before, false, "base"), word("restarted"));
    assert!(redis.keys_without_the_memory().is_empty());
}

#[test]
fn a_single_node_that_had_a_later_holder_refuses_even_when_it_has_gone() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let run = run_id(&redis);
    redis.command(&["SET", &part("fence"), "5"]);
    assert_eq!(scripts.recreate("t", &run, true, "base").word(), "extended");
    scripts.release("t");
    redis.command(&["SET", &part("fence"), "6"]);
    assert_eq!(scripts.recreate("t", &run, true, "base"), word("higher"));
    assert!(!redis.exists(LOCK));
    assert_eq!(scripts.recreate("t", &run, false, "base").word(), "extended");
}

#[test]
fn a_revoked_lease_is_not_confirmed_by_creating_it_again() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    // The first who revokes it is the one whom its holder is told.
    for by in ["me", "you"] {
        assert_eq!(scripts.run("revoke", &format!("by={by}")).word(), "revoked");
    }
    let reply = scripts.recreate("t", &run_id(&redis), false, "base");
    assert_eq!((reply.word(), reply.text("by")), ("revoked", "me"));
}

#[test]
fn a_waiter_keeps_the_lock_for_the_holder_that_a_restart_has_forgotten() {
    let mut redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    let seen = scripts.take("waiter", "u", "60000", "");
    let (before, fence) = (seen.node().1.to_owned(), CLOCK);
    redis.restart();
    let mut scripts = Scripts::on(redis.connection());
    let reply = scripts.take_remembering("waiter", "u", ["t", &before, "60000", fence]);
    assert_eq!((reply.word(), reply.int("rank")), ("reserved", Some(0)));
    assert!((50_000..=60_000).contains(&reply.int("left").unwrap()), "{reply:?}");
    assert_eq!(redis.get(&part("reserved")).as_deref(), Some("t"));
    // It holds off newcomers too, until the holder is back.
    assert_eq!(scripts.take("", "v", "60000", "").word(), "reserved");
    let run = run_id(&redis);
    let back = format!("token=t ttl=60000 fence={fence} {OWNER} run_id={run} alone=1 hold=base");
    assert_eq!(scripts.run("recreate", &back).word(), "extended");
    assert!(!redis.exists(&part("reserved")));
    // It has released: the counter stands at its fencing token, and nothing is kept any more.
    assert_eq!(scripts.run("release", "token=t hold=base"), word("released"));
    assert_eq!(scripts.take_remembering("waiter", "u", ["t", &before, "60000", fence]).word(), "granted");
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
        assert_eq!(scripts.take_remembering("waiter", "u", seen).word(), "granted", "{seen:?}");
    }
    redis.command(&["FLUSHALL"]);
    redis.command(&["SET", &part("reserved"), "other", "PX", "60000"]);
    assert_eq!(scripts.take_remembering("waiter", "u", ["t", ANOTHER_RUN, "60000", "9"]).word(), "reserved");
    assert_eq!(redis.get(&part("reserved")).as_deref(), Some("other"));
    scripts.run("undo", "waiter=other");
    redis.command(&["SET", LOCK, "w", "PX", "60000"]);
    assert_eq!(scripts.take_remembering("waiter", "u", ["t", ANOTHER_RUN, "60000", "9"]).holder().text("value"), "w");
    assert!(!redis.exists(&part("reserved")));
}

#[test]
fn the_holder_for_which_the_lock_is_kept_can_release_it() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let mut connection = redis.connection();
    let mut ears = listen(&mut connection, &["waiter"]);
    let kept = |scripts: &mut Scripts| {
        assert_eq!(scripts.take_remembering("waiter", "u", ["t", ANOTHER_RUN, "60000", "9"]).word(), "reserved");
    };
    kept(&mut scripts);
    // An inner job's end frees nothing.
    assert_eq!(scripts.run("release", "token=t hold=a").word(), "gone");
    assert_eq!(scripts.run("release", "token=v hold=base").word(), "gone");
    assert_eq!(redis.get(&part("reserved")).as_deref(), Some("t"));
    assert_eq!(scripts.run("release", "token=t hold=base"), word("released"));
    assert_eq!(heard(&mut ears), ("waiter".to_owned(), "go".to_owned()));
    assert_eq!(scripts.take("waiter", "u", "60000", "").word(), "granted");
    // With --hold-at-least it stays kept.
    redis.command(&["FLUSHALL"]);
    kept(&mut scripts);
    assert_eq!(scripts.run("release", "token=t hold=base keep=5000"), word("released"));
    assert!((1..=5000).contains(&redis.pttl(&part("reserved"))));
    assert_eq!(scripts.take("", "v", "60000", "").word(), "reserved");
}
