//! Calls of redlock that many tests make, and patterns for redlock's messages.

use super::{Pattern, Redis, Running, SOON, Test, Where, any, eventually, like, ms, redlock, when};
use std::io::PipeWriter;
use std::time::Instant;

#[track_caller]
pub(crate) fn acquire<W: Where + ?Sized>(servers: &W, name: &str) -> String {
    acquire_for(servers, name, "30s")
}

#[track_caller]
pub(crate) fn acquire_for<W: Where + ?Sized>(servers: &W, name: &str, ttl: &str) -> String {
    Test::new(servers).args(["acquire", "--name", name, "--ttl", ttl]).stdout(like("<token>\n")).run().token()
}

/// Takes a lock, makes the lease run out at once, and returns its token. (With a short ttl instead, the grant could
/// come too late on a slow machine, and `acquire` would fail.)
#[track_caller]
pub(crate) fn lapsed(redis: &Redis, name: &str) -> String {
    let token = acquire(redis, name);
    for key in redis.keys_without_history().iter().filter(|key| key.contains(name) && !key.ends_with("fence")) {
        redis.command(&["PEXPIRE", key, "1"]);
    }
    eventually(SOON, "run out", || !redis.exists(&format!("redlock:{name}")));
    token
}

/// Waits until the lease of the lock `backup` is renewed.
#[track_caller]
pub(crate) fn is_renewed(redis: &Redis) {
    key_is_renewed(redis, "redlock:backup");
}

/// Waits until the time left on this node grows.
#[track_caller]
pub(crate) fn key_is_renewed(redis: &Redis, key: &str) {
    let mut before = i64::MAX;
    eventually(SOON * 2, "it is renewed", || {
        let left = redis.pttl(key);
        left > std::mem::replace(&mut before, left)
    });
}

pub(crate) fn run<const N: usize>(redis: &Redis, arguments: [&str; N]) -> Test {
    redlock(redis, "run -q backup").args(arguments)
}

#[track_caller]
pub(crate) fn release<W: Where + ?Sized>(servers: &W, name: &str, token: &str) {
    Test::new(servers).args(["release", "-q", "--name", name, "--token", token]).run();
}

#[track_caller]
pub(crate) fn status<W: Where + ?Sized>(servers: &W, name: &str) -> serde_json::Value {
    let test = Test::new(servers).args(["status", "--format", "json", name]);
    test.stdout(when("an object", |text| text.starts_with('{'))).run().json()
}

#[track_caller]
pub(crate) fn fencing_token<W: Where + ?Sized>(servers: &W) -> u64 {
    status(servers, "backup")["holders"][0]["fencing_token"].as_u64().unwrap()
}

/// Starts servers that know the scripts of `acquire`, `extend`, `release` and `status`.
#[track_caller]
pub(crate) fn several(count: usize) -> Vec<Redis> {
    let nodes = Redis::several(count);
    nodes.iter().for_each(teach_scripts);
    nodes
}

/// Takes a lock on every node, and returns the token of the lease. `acquire` ends once a majority has granted: if a
/// node lacks the lock 500 ms later, the lock is released and taken again.
#[track_caller]
pub(crate) fn acquire_on_all(nodes: &Vec<Redis>, name: &str) -> String {
    let key = format!("redlock:{name}");
    let mut taken = String::new();
    eventually(SOON, "taken on all nodes", || {
        taken = acquire(nodes, name);
        let deadline = Instant::now() + ms(500);
        loop {
            if nodes.iter().all(|node| node.get(&key).as_ref() == Some(&taken)) {
                return true;
            }
            if Instant::now() > deadline {
                break;
            }
            std::thread::sleep(ms(2));
        }
        release(nodes, name, &taken);
        false
    });
    taken
}

/// Gives a server the user `locks` with the password `secret`, the permissions that redlock(1) documents, and the
/// further ACL rules `more`.
#[track_caller]
pub(crate) fn permit(redis: &Redis, more: &str) {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/man/src/redlock.man")).unwrap();
    let rule = page.split_once("ACL SETUSER").unwrap().1.split_once(".EE").unwrap().0.replace("PASSWORD", "secret");
    let words: Vec<&str> =
        ["ACL", "SETUSER"].into_iter().chain(rule.split_whitespace()).chain(more.split(' ')).collect();
    redis.command(&words);
}

/// Makes a server know the scripts of `acquire`, `extend`, `release` and `status`. Otherwise it would refuse the first
/// request with each script, and redlock would send a second.
#[track_caller]
pub(crate) fn teach_scripts(redis: &Redis) {
    let token = acquire(redis, "before");
    let test = Test::new(redis).args(["acquire", "--name", "before", "--reentrant", "--token", &token]);
    let hold = test.stdout(any()).run().token();
    Test::new(redis).args(["extend", "-q", "before", "--token", &token]).run();
    status(redis, "before");
    release(redis, "before", &hold);
    release(redis, "before", &token);
    for key in redis.keys_without_history().iter().filter(|key| key.contains("before")) {
        redis.command(&["DEL", key]);
    }
}

/// A message: one line that begins with "redlock: ", ends without a full stop, and has each of these texts in it.
pub(crate) fn message<const N: usize>(fragments: [&str; N]) -> Pattern {
    let fragments = fragments.map(str::to_owned);
    let what = format!("one line of redlock's with {fragments:?}");
    when(what, move |text| {
        let Some(line) = text.strip_prefix("redlock: ").and_then(|text| text.strip_suffix('\n')) else {
            return false;
        };
        let one_line = !line.contains(|c: char| c.is_control());
        // A message begins in lower case, unless it begins with a variable's name.
        let begins = !line.starts_with(char::is_uppercase) || line.starts_with("RED");
        let stop = line.ends_with('.') && !line.ends_with("...");
        one_line && begins && !stop && fragments.iter().all(|fragment| line.contains(fragment.as_str()))
    })
}

/// The output of a call with these arguments: only the message, unless --wait or --timeout lets other lines come
/// before.
pub(crate) fn in_the_end(arguments: &[&str], message: Pattern) -> Pattern {
    match arguments.iter().any(|argument| ["--wait", "--timeout"].contains(argument)) {
        true => at_last(message),
        false => message,
    }
}

/// Output whose last line is this message. Before it, a waiter says what it waits for, and a job's shells report their
/// children.
pub(crate) fn at_last(message: Pattern) -> Pattern {
    when(format!("in the end {message:?}"), move |text| {
        let lines = text.strip_suffix('\n').unwrap_or(text);
        message.matches(&text[lines.rfind('\n').map_or(0, |end| end + 1)..])
    })
}

/// Any number of lines from redlock, or none, because the number depends on timing. Each has one of these texts in it.
pub(crate) fn perhaps<const N: usize>(fragments: [&str; N]) -> Pattern {
    let fragments = fragments.map(str::to_owned);
    when(format!("perhaps lines of redlock's, each with one of {fragments:?}"), move |text| {
        let reported = |line: &str| fragments.iter().any(|fragment| line.contains(fragment.as_str()));
        text.lines().all(|line| line.starts_with("redlock: ") && reported(line))
    })
}

pub(crate) fn restarted() -> Pattern {
    when("\"backup\", and a node that was restarted", |text| {
        text.contains("\"backup\"") && ["restart", "quarantine"].iter().any(|word| text.contains(word))
    })
}

#[track_caller]
pub(crate) fn eventually_on_none(nodes: &[Redis]) {
    eventually(SOON, "on no node", || nodes.iter().all(|node| !node.exists("redlock:backup")));
}

pub(crate) fn myself() -> (String, String) {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap();
    let host = nix::unistd::gethostname().unwrap();
    (user.name, host.to_string_lossy().into_owned())
}

/// The two lines of `run` after the servers have reported a loss: one when the job gets SIGTERM, one when it has ended.
/// `why`: the reason in both lines, as a template for [`like`].
pub(crate) fn lost(why: &str) -> Pattern {
    like(format!(
        "redlock: lost \"backup\": {why}; sent SIGTERM to the job, SIGKILL follows in <duration>\n\
         redlock: lost \"backup\": {why}; job stopped\n"
    ))
}

/// The lines of `run` about a lost lease. The last line reports the loss, and has each of these texts in it. Lines
/// before it may say that a renewal failed, that the job was sent SIGTERM, or that a process outlives SIGKILL.
pub(crate) fn loss<const N: usize>(fragments: [&str; N]) -> Pattern {
    let last = message(fragments);
    when(format!("the lines of a loss, {last:?}"), move |text| {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let Some((end, before)) = lines.split_last() else { return false };
        let perhaps = ["cannot renew \"backup\": ", "sent SIGTERM to the job", "SIGKILL has not ended pid "];
        let reported = |line: &&str| perhaps.iter().any(|text| line.contains(text));
        before.len() <= perhaps.len()
            && before.iter().all(reported)
            && end.contains(": lost \"backup\": ")
            && last.matches(end)
    })
}

/// Starts `run -q` with the lock `backup`, and waits until the job has begun. The job ends when the returned writer is
/// dropped, or, if the expected status is 76, when the lease is lost.
#[track_caller]
pub(crate) fn job<W: Where + ?Sized>(servers: &W, arguments: &[&str], status: i32) -> (Running, PipeWriter) {
    let test = Test::new(servers).args(["run", "-q", "--name", "backup"]).args(arguments);
    let said = if status == 76 { loss([]) } else { "".into() };
    test.args(["--", "sh", "-c", "echo ready; cat"]).status(status).stderr(said).ready_to_read()
}
