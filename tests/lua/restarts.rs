//! The scripts on a server that may have forgotten a lease: quarantine, re-creation, reservation for a holder.

use super::{CLOCK, LOCK, OWNER, Reply, Scripts, part, run_id, word};
use crate::support::Redis;

const ANOTHER_RUN: &str = "0123456789abcdef0123456789abcdef01234567";

#[test]
fn the_age_of_a_node_has_a_grain_of_a_second_and_may_be_negative() {
    let redis = Redis::start();
    // The uptime that the node reports, the uptime in the answer, and whether the node is quarantined.
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
    assert_eq!(scripts.run("release", "token=t hold=base"), word("released"));
    // Where INFO is refused, a re-creation must name no run_id.
    assert_eq!(scripts.recreate("t", ANOTHER_RUN).word(), "restarted");
    assert_eq!(scripts.recreate("t", "").word(), "extended");
    assert_eq!(scripts.run("revoke", "by=me force=1").word(), "released");
    // Where INFO is refused, the script has no run_id, notices no restart, and reserves nothing for the holder.
    let seen = ["t", ANOTHER_RUN, "60000", "9999999999999"];
    assert_eq!(scripts.take_remembering("third", "v", seen).word(), "granted");
}

#[test]
fn an_answer_of_before_the_restart_creates_nothing_behind_it() {
    let mut redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let before = scripts.run("extend", "token=t ttl=60000 hold=base renew=1").node().1.to_owned();
    redis.restart();
    let mut scripts = Scripts::on(redis.connection());
    assert_eq!(scripts.recreate("t", &before), word("restarted"));
    assert!(redis.keys_without_history().is_empty());
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
    // Until the holder is back, the reservation keeps newcomers away.
    assert_eq!(scripts.take("", "v", "60000", "").word(), "reserved");
    let run = run_id(&redis);
    let back = format!("token=t ttl=60000 fence={fence} {OWNER} run_id={run} alone=1 hold=base");
    assert_eq!(scripts.run("recreate", &back).word(), "extended");
    assert!(!redis.exists(&part("reserved")));
    // After the release, the waiter's TAKE does not reserve the lock for the holder a second time: the counter of
    // fencing tokens has reached the one that the waiter saw, which shows that the holder was back.
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
