//! The scripts with shared leases and slots.

use super::{Scripts, listen, part};
use crate::support::Redis;

fn take(scripts: &mut Scripts, waiter: &str, token: &str, claim: &str) -> super::Reply {
    scripts.take_with(waiter, token, &format!("ttl=60000 claim={claim}"))
}

#[test]
fn the_last_free_slot_is_kept_for_who_was_called() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    for token in ["ta", "tb", "tc"] {
        assert_eq!(take(&mut scripts, "", token, "slots:3").word(), "granted");
    }
    let mut connection = redis.connection();
    let _ears = listen(&mut connection, &["p1"]);
    assert_eq!(take(&mut scripts, "p1", "u", "slots:3").word(), "held");
    scripts.release("tb");
    assert_eq!(take(&mut scripts, "", "u", "slots:3").word(), "reserved");
    scripts.release("tc");
    // Now two slots are free: the newcomer gets one, and `p1` the other.
    let reply = take(&mut scripts, "", "u", "slots:3");
    assert_eq!((reply.word(), reply.int("slot")), ("granted", Some(1)));
    let reply = take(&mut scripts, "p1", "v", "slots:3");
    assert_eq!((reply.word(), reply.int("slot")), ("granted", Some(2)));
}

#[test]
fn what_has_run_out_is_forgotten_by_the_next_script_however_much_it_is() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    take(&mut scripts, "", "ta", "slots:5000");
    let over = (1..3_000).map(|slot| (slot.to_string(), format!("over{slot}")));
    for (key, score) in [("members", None), ("slots", Some(()))] {
        let scores =
            over.clone().flat_map(|(slot, token)| [if score.is_some() { slot } else { "7".to_owned() }, token]);
        let command: Vec<String> = ["ZADD".to_owned(), part(key)].into_iter().chain(scores).collect();
        redis.command(&command.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let reply = take(&mut scripts, "", "tb", "slots:5000");
    assert_eq!((reply.word(), reply.int("slot")), ("granted", Some(1)));
    for key in ["members", "slots"] {
        assert_eq!(redis.query::<u64>(&["ZCARD", &part(key)]), 2, "{key}");
    }
}

/// Returns the outcomes of the renewals.
fn renewed(scripts: &mut Scripts, tokens: &[&str]) -> Vec<String> {
    let renew = |token: &&str| scripts.run("extend", &format!("token={token} claim=shared ttl=60000"));
    tokens.iter().map(renew).map(|reply| reply.word().to_owned()).collect()
}

#[test]
fn all_are_revoked_at_once_but_who_comes_later() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    for token in ["ta", "tg"] {
        take(&mut scripts, "", token, "shared");
    }
    let reply = scripts.run("revoke", "by=me");
    assert_eq!((reply.word(), reply.int("members")), ("revoked", Some(2)));
    // A lease that is granted after the revocation is not revoked.
    assert_eq!(take(&mut scripts, "", "new", "shared").word(), "granted");
    assert_eq!(renewed(&mut scripts, &["ta", "tg", "new"]), ["revoked", "revoked", "extended"]);
    let reply = scripts.run("inspect", "most=10");
    let signed: Vec<&str> = reply.get("holders").items().iter().map(|holder| holder.text("revoked")).collect();
    assert_eq!(signed.iter().filter(|by| **by == "me").count(), 2, "{reply:?}");
    // A second revocation covers `new`, a lease that was granted after the first. It now seems to begin in the future,
    // as if the clock had been set back after the grant.
    redis.command(&["HSET", &part("member:new"), "since", "99999999999999999"]);
    assert_eq!(scripts.run("revoke", "by=you").word(), "revoked");
    assert_eq!(renewed(&mut scripts, &["new"]), ["revoked"]);
}

#[test]
fn a_lease_is_found_by_the_beginning_of_its_token() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    for token in ["a1", "b1", "a2", "c", "a3", "b2", "d", "e", "a4"] {
        take(&mut scripts, "", token, "shared");
    }
    let reply = scripts.run("find", "prefix=a");
    let mut found: Vec<String> = reply.get("tokens").items().iter().map(|token| format!("{token:?}")).collect();
    found.sort();
    assert_eq!(found, ["a1", "a2", "a3", "a4"].map(|token| format!("Text({token:?})")));
}
