//! Services that refuse what only their operators need: CONFIG, INFO.

use crate::support::{Redis, SOON, Where, acquire, any, eventually, like, message, redlock, release, status};

/// Takes, waits, extends, lists, releases and runs on these servers.
#[track_caller]
fn works<W: Where + ?Sized>(servers: &W) {
    let token = acquire(servers, "backup");
    let waiter = redlock(servers, "run -q backup --wait -- echo served").stdout("served\n").spawn();
    eventually(SOON, "it waits", || status(servers, "backup")["waiting"] == 1);
    let held = redlock(servers, "acquire backup").status(75);
    held.stderr(message(["\"backup\" is held by"])).run();
    redlock(servers, format!("extend -q backup --token {token} --ttl 1m")).run();
    redlock(servers, "status").stdout(like("<lines>backup<lines>")).run();
    release(servers, "backup", &token);
    waiter.finish();
    let run = redlock(servers, "run -q backup --ttl 4s --node-timeout 2s -- sleep 4.5");
    run.run();
    acquire(servers, "other");
    redlock(servers, "release -q other --force").stdout(any()).run();
    assert_eq!(status(servers, "other")["state"], "free");
}

#[test]
fn commands_that_were_renamed_away_are_not_needed() {
    let renamed = ["CONFIG", "INFO"].map(|command| ["--rename-command", command, ""]).concat();
    works(&Redis::with(&renamed));
    works(&(0..3).map(|_| Redis::with(&renamed)).collect::<Vec<_>>());
}

#[test]
fn commands_that_the_user_may_not_call_are_not_needed() {
    let redis = Redis::start();
    let rule = ["on", ">s3cret", "~*", "&*", "+@all", "-config", "-info", "-@admin"];
    redis.command(&[["ACL", "SETUSER", "limited"].as_slice(), &rule].concat());
    works(format!("{}?user=limited&pass=s3cret", redis.url()).as_str());
}
