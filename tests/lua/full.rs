//! The scripts on a server that has no memory left.

use super::{LOCK, Scripts, word};
use crate::support::Redis;

/// A server that has no memory left, with a lock that `t` holds with this claim.
fn full(claim: &str) -> (Redis, Scripts) {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    assert_eq!(scripts.take_with("", "t", &format!("claim={claim} ttl=60000")).word(), "granted");
    for name in ["extend", "release"] {
        scripts.run(name, "token=nobody");
    }
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(redis.try_query::<redis::Value>(&["SET", "x", "y"]).is_err());
    (redis, scripts)
}

#[test]
fn a_server_without_memory_still_extends_a_job_whose_hold_it_has_forgotten() {
    let (redis, mut scripts) = full("exclusive");
    assert_eq!(scripts.run("extend", "token=t hold=a ttl=90000 renew=1").word(), "extended");
    assert!(redis.pttl(LOCK) > 60_000);
    // The lease already lasts longer than this ttl.
    assert_eq!(scripts.run("extend", "token=t hold=b ttl=1000 renew=1").word(), "extended");
    assert_eq!(scripts.release("t"), word("released"));
}

#[test]
fn a_server_without_memory_still_extends_leases_of_every_claim() {
    for claim in ["exclusive", "shared", "slots:2"] {
        let (redis, mut scripts) = full(claim);
        assert_eq!(scripts.run("extend", "token=t ttl=90000").word(), "extended", "{claim}");
        assert!(redis.pttl(LOCK) > 60_000, "{claim}");
    }
}
