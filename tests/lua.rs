//! The Lua scripts as they are checked in, on a real server: each case that matters by itself, and by chance, against a
//! model of what they should do.

mod holds;
mod model;
mod random;
mod restarts;

use crate::support::{Redis, SOON, eventually, ms};
use redis::{Connection, PubSub, Value};
use std::collections::BTreeMap;

/// The lock, whose other keys and channels are named like this.
const LOCK: &str = "redlock:x";
const BASE: &str = "{redlock:x}:\u{1f}";
const PARTS: [&str; 5] = ["lease", "fence", "queue", "reserved", "holds"];
const CLOCK: &str = "1700000000000";

macro_rules! script {
    ($file:literal) => {
        (
            $file,
            concat!(
                include_str!("../src/lock/scripts/queue.lua"),
                include_str!(concat!("../src/lock/scripts/", $file, ".lua"))
            ),
        )
    };
}

const SCRIPTS: [(&str, &str); 11] = [
    script!("take"),
    script!("fence"),
    script!("leave"),
    script!("rollback"),
    script!("extend"),
    script!("enter"),
    script!("release"),
    script!("recreate"),
    script!("revoke"),
    script!("holds"),
    script!("inspect"),
];

fn part(name: &str) -> String {
    format!("{BASE}{name}")
}

/// What a script answers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    Nil,
    Int(i64),
    Text(String),
    List(Vec<Reply>),
}

impl Reply {
    fn of(value: Value) -> Reply {
        match value {
            Value::Nil => Reply::Nil,
            Value::Int(n) => Reply::Int(n),
            Value::BulkString(bytes) => Reply::Text(String::from_utf8(bytes).unwrap()),
            Value::SimpleString(text) => Reply::Text(text),
            Value::Okay => Reply::Text("OK".to_owned()),
            Value::Array(items) => Reply::List(items.into_iter().map(Reply::of).collect()),
            other => panic!("{other:?}"),
        }
    }

    fn at(&self, at: usize) -> &Reply {
        match self {
            Reply::List(items) => items.get(at).unwrap_or(&Reply::Nil),
            _ => &Reply::Nil,
        }
    }

    fn text(&self, at: usize) -> &str {
        match self.at(at) {
            Reply::Text(text) => text,
            _ => "",
        }
    }

    fn int(&self, at: usize) -> Option<i64> {
        match self.at(at) {
            Reply::Int(n) => Some(*n),
            _ => None,
        }
    }
}

/// The scripts, and a connection to run them over.
struct Scripts {
    connection: Connection,
    scripts: BTreeMap<&'static str, redis::Script>,
}

impl Scripts {
    fn on(connection: Connection) -> Scripts {
        Scripts::behind(connection, "")
    }

    /// With these lines in front of each of them.
    fn behind(connection: Connection, lines: &str) -> Scripts {
        let scripts = SCRIPTS.map(|(name, body)| (name, redis::Script::new(&format!("{lines}{body}"))));
        Scripts { connection, scripts: scripts.into() }
    }

    /// On a server that says this of its age. (A clock that was set back cannot be had here.)
    fn aged(connection: Connection, uptime: &str) -> Scripts {
        let info = format!("'uptime_in_seconds:{uptime}\\r\\nrun_id:0a\\r\\n'");
        let pcall = format!("function(c, ...) if c == 'INFO' then return {info} end return server.pcall(c, ...) end");
        Scripts::behind(
            connection,
            &format!("local server = redis; local redis = {{call = server.call, pcall = {pcall}}}\n"),
        )
    }

    /// Runs a script with these arguments behind the first one.
    #[track_caller]
    fn run(&mut self, name: &str, arguments: &[&str]) -> Reply {
        let mut call = self.scripts[name].prepare_invoke();
        call.key(LOCK);
        for name in PARTS {
            call.key(part(name));
        }
        call.arg(BASE).arg(arguments);
        match call.invoke(&mut self.connection) {
            Ok(value) => Reply::of(value),
            Err(error) => panic!("{name} {arguments:?}: {error}"),
        }
    }

    #[track_caller]
    fn take(&mut self, waiter: &str, token: &str, ttl: &str, ticket: &str) -> Reply {
        let rest = [CLOCK, "0", "host", "1", "u", "label"];
        self.run("take", &[&[waiter, token, ttl, ticket], &rest[..]].concat())
    }

    /// Takes or leaves it, on a node whose vote counts after so many seconds.
    #[track_caller]
    fn take_after(&mut self, quarantine: &str, waiter: &str, token: &str) -> Reply {
        self.run("take", &[waiter, token, "60000", "", CLOCK, "", "host", "1", "u", "label", quarantine])
    }

    /// Takes as a waiter that has seen a lease: its token, on which run of the server, ms left, fencing token.
    #[track_caller]
    fn take_remembering(&mut self, waiter: &str, token: &str, seen: [&str; 4]) -> Reply {
        let rest = ["60000", "", CLOCK, "", "host", "1", "u", "label", "0"];
        self.run("take", &[&[waiter, token], &rest[..], &seen[..]].concat())
    }

    /// Re-creates a lease with the fencing token 5: token, run of the server, whether it is the only node, hold.
    #[track_caller]
    fn recreate(&mut self, token: &str, run_id: &str, alone: &str, hold: &str) -> Reply {
        self.run("recreate", &[token, "60000", "5", "host", "1", "u", "label", run_id, alone, hold])
    }

    #[track_caller]
    fn release(&mut self, token: &str) -> Reply {
        self.run("release", &[token, "", "newest", "0"])
    }
}

fn word(word: &str) -> Reply {
    Reply::List(vec![Reply::Text(word.to_owned())])
}

/// Listens as these waiters.
fn listen<'a>(connection: &'a mut Connection, waiters: &[&str]) -> PubSub<'a> {
    let mut ears = connection.as_pubsub();
    for waiter in waiters {
        ears.subscribe(part(&format!("w:{waiter}"))).unwrap();
    }
    ears
}

/// The next thing heard: by whom, what.
#[track_caller]
fn heard(ears: &mut PubSub<'_>) -> (String, String) {
    let message = ears.get_message().unwrap();
    let channel = message.get_channel_name().rsplit(':').next().unwrap().to_owned();
    (channel, message.get_payload().unwrap())
}

fn run_id(redis: &Redis) -> String {
    let info: String = redis.query(&["INFO", "server"]);
    info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().to_owned()
}

fn waiters(redis: &Redis) -> Vec<String> {
    redis.query(&["ZRANGE", &part("queue"), "0", "-1"])
}

#[test]
fn fifty_dead_waiters_are_skipped_in_one_release() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    for number in 0..50 {
        let reply = scripts.take(&format!("dead{number}"), "u", "60000", "");
        assert_eq!((reply.text(0), reply.int(5)), ("held", Some(number)));
    }
    let mut connection = redis.connection();
    let mut ears = listen(&mut connection, &["alive", "next"]);
    scripts.take("alive", "u", "60000", "");
    scripts.take("next", "u", "60000", "");
    assert_eq!(scripts.release("t"), word("released"));
    assert_eq!(redis.get(&part("reserved")).as_deref(), Some("alive"));
    assert_eq!(waiters(&redis), ["next"]);
    let told: Vec<_> = (0..3).map(|_| heard(&mut ears)).collect();
    // Behind a dead one it is the first for a moment.
    let expected = [("alive", "head"), ("next", "head"), ("alive", "go")];
    assert_eq!(told, expected.map(|(who, what)| (who.to_owned(), what.to_owned())));
    assert_eq!(scripts.take("alive", "v", "60000", "").text(0), "granted");
}

#[test]
fn dead_waiters_alone_leave_the_lock_free_and_nothing_behind() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    for number in 0..50 {
        scripts.take(&format!("dead{number}"), "u", "60000", "");
    }
    let mut connection = redis.connection();
    let mut ears = connection.as_pubsub();
    ears.subscribe(part("free")).unwrap();
    assert_eq!(scripts.release("t"), word("released"));
    assert_eq!(ears.get_message().unwrap().get_payload::<String>().unwrap(), "free");
    assert_eq!(redis.keys(), [part("fence")]);
    assert_eq!(scripts.take("", "u", "60000", "").text(0), "granted");
}

#[test]
fn whoever_comes_by_does_not_overtake_a_waiter_that_lives() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    let mut connection = redis.connection();
    let mut ears = listen(&mut connection, &["first"]);
    scripts.take("first", "u", "60000", "");
    // Freed without a call: the lease ran out, or another library gave it up.
    redis.command(&["DEL", LOCK]);
    let reply = scripts.take("", "v", "60000", "");
    assert_eq!((reply.text(0), reply.text(1), reply.int(5), reply.int(8)), ("held", "", Some(-1), Some(1)));
    assert_eq!(heard(&mut ears), ("first".to_owned(), "go".to_owned()));
    assert_eq!(scripts.take("other", "v", "60000", "").int(8), Some(1));
    let reply = scripts.take("first", "u", "60000", "");
    assert_eq!((reply.text(0), redis.get(LOCK).as_deref()), ("granted", Some("u")));
    assert_eq!(waiters(&redis), ["other"]);
}

#[test]
fn a_reservation_lasts_a_second_and_then_the_next_is_called() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    let mut connection = redis.connection();
    let mut ears = listen(&mut connection, &["frozen", "next"]);
    let ticket = scripts.take("frozen", "u", "60000", "").text(6).to_owned();
    scripts.take("next", "v", "60000", "");
    scripts.release("t");
    let left = redis.pttl(&part("reserved"));
    assert!((1..=1000).contains(&left), "{left}");
    assert_eq!(scripts.take("next", "v", "60000", "").text(0), "held");
    eventually(SOON, "the reservation ran out", || !redis.exists(&part("reserved")));
    assert_eq!(scripts.take("next", "v", "60000", "").text(0), "granted");
    let told: Vec<_> = (0..2).map(|_| heard(&mut ears)).collect();
    let expected = [("next", "head"), ("frozen", "go")];
    assert_eq!(told, expected.map(|(who, what)| (who.to_owned(), what.to_owned())));
    // The frozen one thaws, and is before those that came later.
    scripts.take("late", "w", "60000", "");
    let reply = scripts.take("frozen", "u", "60000", &ticket);
    assert_eq!((reply.text(0), reply.int(5), reply.int(7)), ("held", Some(0), Some(1)));
    assert_eq!(reply.text(6), ticket);
    assert_eq!(waiters(&redis), ["frozen", "late"]);
}

#[test]
fn a_thawed_waiter_finds_the_free_lock_in_its_old_place() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    let mut connection = redis.connection();
    let ears = listen(&mut connection, &["frozen", "late"]);
    let ticket = scripts.take("frozen", "u", "60000", "").text(6).to_owned();
    scripts.take("late", "v", "60000", "");
    scripts.release("t");
    redis.command(&["DEL", &part("reserved")]); // frozen for longer than it lasts
    let reply = scripts.take("frozen", "u", "60000", &ticket);
    assert_eq!(reply.text(0), "granted");
    assert_eq!(waiters(&redis), ["late"]);
    drop(ears);
}

#[test]
fn a_queue_is_not_forgotten_while_a_waiter_behind_a_dead_one_looks() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    scripts.take("dead", "u", "60000", "");
    scripts.take("alive", "v", "60000", "");
    redis.command(&["PEXPIRE", &part("queue"), "60000"]);
    assert_eq!(scripts.take("alive", "v", "60000", "").int(5), Some(1));
    let left = redis.pttl(&part("queue"));
    assert!(left > 800_000, "{left}");
}

#[test]
fn a_grant_is_rolled_back_before_the_waiter_has_been_told_its_place() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    // The answer is lost, and with it the ticket.
    assert_eq!(scripts.take("me", "t", "60000", "").text(0), "granted");
    assert_eq!(scripts.run("rollback", &["me", "t", ""]), word("left"));
    assert_eq!(redis.keys(), [part("fence")]);
}

#[test]
fn a_server_that_forbids_to_publish_fails_no_release() {
    let redis = Redis::start();
    // One may not use the channels, the other not the command.
    for (user, rules) in [("mute", "resetchannels"), ("dumb", "-publish")] {
        redis.command(&["FLUSHALL"]);
        redis.command(&["ACL", "SETUSER", user, "on", "nopass", "~*", "&*", "+@all", rules]);
        let mut connection = redis.connection();
        redis::cmd("AUTH").arg(user).arg("x").query::<()>(&mut connection).unwrap();
        let mut scripts = Scripts::on(connection);
        assert_eq!(scripts.take("", "t", "60000", "").text(0), "granted");
        assert_eq!(scripts.release("t"), word("released"), "{user}");
        assert!(!redis.exists(LOCK));
        assert_eq!(scripts.take("", "t", "60000", "").text(0), "granted");
        assert_eq!(scripts.take("waiter", "u", "60000", "").text(0), "held");
        assert_eq!(scripts.release("t"), word("released"), "{user}");
        assert!(!redis.exists(LOCK));
        // Nobody can tell that the waiter is dead, so it is taken to live.
        assert_eq!(redis.get(&part("reserved")).as_deref(), Some("waiter"));
        assert_eq!(scripts.take("waiter", "u", "60000", "").text(0), "granted");
        assert_eq!(scripts.run("leave", &["", "u"]), word("left"));
        assert!(!redis.exists(LOCK));
    }
}

#[test]
fn the_empty_value_of_another_library_is_nobodys_token() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    redis.command(&["SET", LOCK, ""]);
    let other = |reply: Reply| assert_eq!((reply.text(0), reply.int(2)), ("other", Some(-1)));
    assert_eq!(scripts.take("waiter", "t", "60000", "").text(0), "held");
    other(scripts.run("extend", &["t", "", "60000", "60000"]));
    other(scripts.release("t"));
    assert_eq!(scripts.run("rollback", &["waiter", "", "1"]), word("left"));
    assert_eq!(scripts.run("leave", &["waiter", ""]), word("left"));
    assert_eq!(redis.get(LOCK).as_deref(), Some(""));
}

#[test]
fn a_hold_that_was_given_up_does_not_come_back_when_another_enters() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    assert_eq!(scripts.run("enter", &["t", "a", "60000"]).int(2), Some(2));
    assert_eq!(scripts.run("release", &["t", "", "base", "0"]).text(0), "still-held");
    assert_eq!(scripts.run("enter", &["t", "b", "60000"]).int(2), Some(2));
    assert_eq!(scripts.run("release", &["t.b", "t", "b", "0"]).int(1), Some(1));
    assert_eq!(scripts.run("release", &["t.a", "t", "a", "0"]), word("released"));
}

#[test]
fn the_counter_outlives_expiry_and_starts_at_the_clients_clock() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let first = scripts.take("", "t", "20", "");
    assert_eq!(first.text(1), CLOCK);
    eventually(SOON, "expired", || !redis.exists(LOCK));
    let second = scripts.take("", "u", "60000", "");
    assert_eq!(second.text(1), "1700000000001");
    let left = redis.pttl(&part("fence"));
    assert!(left > 29 * 24 * 3_600_000 && ms(30 * 24 * 3_600_000).as_millis() >= left as u128);
}
