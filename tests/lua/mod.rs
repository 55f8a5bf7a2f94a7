//! The Lua scripts as they are checked in, on a real server: the important cases one by one, and random calls that are
//! compared with a model.

mod claims;
mod costs;
mod ends;
mod full;
mod history;

mod model;
mod random;
mod restarts;

use crate::support::{Redis, SOON, eventually};
use redis::{Connection, PubSub, Value};
use regex_lite::Regex;
use std::collections::BTreeMap;

const LOCK: &str = "redlock:x";
/// The names of the lock's other keys and of its channels begin with this text.
const BASE: &str = "{redlock:x}:\u{1f}";
const PARTS: [&str; 8] = ["lease", "fence", "queue", "reserved", "holds", "members", "slots", "fences"];
const CLOCK: &str = "1700000000000";
const OWNER: &str = "host=host pid=1 user=u label=label";

const LISTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/lock/scripts/mod.rs");
const FOLDERS: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/src/lock/scripts"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/src/lock/history"),
];

fn file(name: &str) -> String {
    let texts = FOLDERS.iter().map(|folder| std::fs::read_to_string(format!("{folder}/{name}.lua")));
    texts.reduce(Result::or).unwrap().unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The scripts by name, put together as build.rs does, but with their comments.
fn scripts() -> BTreeMap<String, String> {
    let list = std::fs::read_to_string(LISTED).unwrap();
    let script = Regex::new(r#"script!\((\w+), "(\w+)"\);"#).unwrap();
    let body = |name: &str| {
        let (mut text, mut included) = (String::new(), Vec::new());
        include("keys", &mut included, &mut text);
        include(name, &mut included, &mut text);
        text
    };
    script.captures_iter(&list).map(|found| (found[1].to_lowercase(), body(&found[2]))).collect()
}

fn include(name: &str, included: &mut Vec<String>, text: &mut String) {
    if included.iter().any(|known| known == name) {
        return;
    }
    included.push(name.to_owned());
    for line in file(name).lines() {
        match ["-- include ", "-- needs "].iter().find_map(|word| line.trim_start().strip_prefix(word)) {
            Some(names) => names.split(", ").for_each(|name| include(name, included, text)),
            None => *text += &format!("{line}\n"),
        }
    }
}

fn part(name: &str) -> String {
    format!("{BASE}{name}")
}

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

    fn items(&self) -> &[Reply] {
        match self {
            Reply::List(items) => items,
            _ => &[],
        }
    }

    fn get(&self, name: &str) -> &Reply {
        let pair = self.items().chunks(2).find(|pair| pair[0] == Reply::Text(name.to_owned()));
        pair.map_or(&Reply::Nil, |pair| &pair[1])
    }

    fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Reply::Text(text) => text,
            _ => "",
        }
    }

    fn int(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Reply::Int(n) => Some(*n),
            _ => None,
        }
    }

    fn word(&self) -> &str {
        self.text("outcome")
    }

    /// The node's uptime (s) and run_id.
    fn node(&self) -> (&str, &str) {
        self.text("node").split_once(' ').expect("its uptime and run_id")
    }

    fn holder(&self) -> &Reply {
        self.get("holders").items().first().unwrap_or(&Reply::Nil)
    }
}

struct Scripts {
    connection: Connection,
    scripts: BTreeMap<String, redis::Script>,
}

impl Scripts {
    fn on(connection: Connection) -> Scripts {
        Scripts::changed(connection, "", &[])
    }

    /// The scripts with these lines in front, and with these values of their constants.
    fn changed(connection: Connection, lines: &str, constants: &[(&str, String)]) -> Scripts {
        let changed = |(name, body): (String, String)| {
            let body = constants.iter().fold(body, |body, (constant, value)| {
                let theirs = Regex::new(&format!(r"(?m)^local {constant} = .*$")).unwrap();
                theirs.replace(&body, format!("local {constant} = {value}")).into_owned()
            });
            (name, redis::Script::new(&format!("{lines}{body}")))
        };
        Scripts { connection, scripts: scripts().into_iter().map(changed).collect() }
    }

    /// The scripts on a server that seems to have this uptime (s).
    fn aged(connection: Connection, uptime: &str) -> Scripts {
        let info = format!("'uptime_in_seconds:{uptime}\\r\\nrun_id:0a\\r\\n'");
        let pcall = format!("function(c, ...) if c == 'INFO' then return {info} end return server.pcall(c, ...) end");
        let lines = format!("local server = redis; local redis = {{call = server.call, pcall = {pcall}}}\n");
        Scripts::changed(connection, &lines, &[])
    }

    /// Runs a script with arguments such as `token=t hold=a`.
    #[track_caller]
    fn run(&mut self, name: &str, arguments: &str) -> Reply {
        let arguments: Vec<_> = arguments.split(' ').filter_map(|argument| argument.split_once('=')).collect();
        self.run_with(name, &arguments)
    }

    /// Runs a script with these arguments, each a name and a value.
    #[track_caller]
    fn run_with(&mut self, name: &str, arguments: &[(&str, &str)]) -> Reply {
        self.try_with(name, arguments).unwrap_or_else(|error| panic!("{name} {arguments:?}: {error}"))
    }

    fn try_with(&mut self, name: &str, arguments: &[(&str, &str)]) -> redis::RedisResult<Reply> {
        let mut call = self.scripts[name].prepare_invoke();
        call.key(LOCK);
        for name in PARTS {
            call.key(part(name));
        }
        if !arguments.iter().any(|(name, _)| *name == "claim") {
            call.arg("claim").arg("exclusive");
        }
        call.arg(arguments);
        call.invoke(&mut self.connection).map(Reply::of)
    }

    /// Tries to take the lock, as this waiter and with this ticket. An empty waiter or ticket is not sent.
    #[track_caller]
    fn take(&mut self, waiter: &str, token: &str, ttl: &str, ticket: &str) -> Reply {
        self.take_with(waiter, token, &format!("ttl={ttl} ticket={ticket}"))
    }

    /// Tries to take the lock, with a quarantine of this many seconds.
    #[track_caller]
    fn take_after(&mut self, quarantine: &str, waiter: &str, token: &str) -> Reply {
        self.take_with(waiter, token, &format!("ttl=60000 quarantine={quarantine}"))
    }

    /// Tries to take the lock as a waiter that has seen a lease. `seen`: the lease's token, the server's run_id at that
    /// time, the ms that are left of the lease, the lease's fencing token.
    #[track_caller]
    fn take_remembering(&mut self, waiter: &str, token: &str, seen: [&str; 4]) -> Reply {
        let [seen, run, left, fence] = seen;
        let seen = format!("ttl=60000 seen={seen} seen_run_id={run} seen_left={left} seen_fence={fence}");
        self.take_with(waiter, token, &seen)
    }

    #[track_caller]
    fn take_with(&mut self, waiter: &str, token: &str, more: &str) -> Reply {
        let all = format!("waiter={waiter} token={token} now={CLOCK} {OWNER} {more}");
        // An argument without a value is not sent.
        let given: Vec<&str> = all.split(' ').filter(|argument| !argument.ends_with('=')).collect();
        self.run("take", &given.join(" "))
    }

    /// Asks the server to re-create a lease, if its run_id is `run_id`.
    #[track_caller]
    fn recreate(&mut self, token: &str, run_id: &str) -> Reply {
        self.run("recreate", &format!("token={token} ttl=60000 fence=5 {OWNER} run_id={run_id} hold=base"))
    }

    #[track_caller]
    fn release(&mut self, token: &str) -> Reply {
        self.run("release", &format!("token={token}"))
    }
}

/// An answer with this outcome, and nothing else.
fn word(word: &str) -> Reply {
    Reply::List(["outcome", word].map(|text| Reply::Text(text.to_owned())).into())
}

fn listen<'a>(connection: &'a mut Connection, waiters: &[&str]) -> PubSub<'a> {
    let mut ears = connection.as_pubsub();
    for waiter in waiters {
        ears.subscribe(part(&format!("w:{waiter}"))).unwrap();
    }
    ears
}

/// The next message: which waiter hears it, and its text.
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
        assert_eq!((reply.word(), reply.int("rank")), ("held", Some(number)));
    }
    let mut connection = redis.connection();
    let mut ears = listen(&mut connection, &["alive", "next"]);
    scripts.take("alive", "u", "60000", "");
    scripts.take("next", "u", "60000", "");
    assert_eq!(scripts.release("t"), word("released"));
    assert_eq!(redis.get(&part("reserved")).as_deref(), Some("alive"));
    assert_eq!(waiters(&redis), ["next"]);
    let said: Vec<_> = (0..3).map(|_| heard(&mut ears)).collect();
    // `alive` hears `head`, too: after the last dead waiter was dropped, `alive` was first for a moment.
    let expected = [("alive", "head"), ("next", "head"), ("alive", "go")];
    assert_eq!(said, expected.map(|(who, what)| (who.to_owned(), what.to_owned())));
    assert_eq!(scripts.take("alive", "v", "60000", "").word(), "granted");
}

#[test]
fn a_reservation_lasts_a_second_and_then_the_next_is_called() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    let mut connection = redis.connection();
    let mut ears = listen(&mut connection, &["frozen", "next"]);
    let ticket = scripts.take("frozen", "u", "60000", "").text("ticket").to_owned();
    scripts.take("next", "v", "60000", "");
    scripts.release("t");
    let left = redis.pttl(&part("reserved"));
    assert!((1..=1000).contains(&left), "{left}");
    assert_eq!(scripts.take("next", "v", "60000", "").word(), "reserved");
    eventually(SOON, "the reservation ran out", || !redis.exists(&part("reserved")));
    assert_eq!(scripts.take("next", "v", "60000", "").word(), "granted");
    let said: Vec<_> = (0..2).map(|_| heard(&mut ears)).collect();
    let expected = [("next", "head"), ("frozen", "go")];
    assert_eq!(said, expected.map(|(who, what)| (who.to_owned(), what.to_owned())));
    // `frozen` thaws, and with its old ticket stands in line before `late`, which came in the meantime.
    scripts.take("late", "w", "60000", "");
    let reply = scripts.take("frozen", "u", "60000", &ticket);
    assert_eq!((reply.word(), reply.int("rank"), reply.int("queued")), ("held", Some(0), Some(1)));
    assert_eq!(reply.text("ticket"), ticket);
    assert_eq!(waiters(&redis), ["frozen", "late"]);
}

#[test]
fn a_thawed_waiter_finds_the_free_lock_in_its_old_place() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take("", "t", "60000", "");
    let mut connection = redis.connection();
    let ears = listen(&mut connection, &["frozen", "late"]);
    let ticket = scripts.take("frozen", "u", "60000", "").text("ticket").to_owned();
    scripts.take("late", "v", "60000", "");
    scripts.release("t");
    redis.command(&["DEL", &part("reserved")]); // the waiter is frozen for longer than the reservation lasts
    let reply = scripts.take("frozen", "u", "60000", &ticket);
    assert_eq!(reply.word(), "granted");
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
    assert_eq!(scripts.take("alive", "v", "60000", "").int("rank"), Some(1));
    let left = redis.pttl(&part("queue"));
    assert!(left > 800_000, "{left}");
}

#[test]
fn a_server_that_forbids_to_publish_fails_no_release() {
    let redis = Redis::start();
    // The first user may not use the channels, the second may not use PUBLISH.
    for (user, rules) in [("mute", "resetchannels"), ("dumb", "-publish")] {
        redis.command(&["FLUSHALL"]);
        redis.command(&["ACL", "SETUSER", user, "on", "nopass", "~*", "&*", "+@all", rules]);
        let mut connection = redis.connection();
        redis::cmd("AUTH").arg(user).arg("x").query::<()>(&mut connection).unwrap();
        let mut scripts = Scripts::on(connection);
        assert_eq!(scripts.take("", "t", "60000", "").word(), "granted");
        assert_eq!(scripts.release("t"), word("released"), "{user}");
        assert!(!redis.exists(LOCK));
        assert_eq!(scripts.take("", "t", "60000", "").word(), "granted");
        assert_eq!(scripts.take("waiter", "u", "60000", "").word(), "held");
        assert_eq!(scripts.release("t"), word("released"), "{user}");
        assert!(!redis.exists(LOCK));
        // The script cannot find out whether the waiter is dead, so it treats it as alive.
        assert_eq!(redis.get(&part("reserved")).as_deref(), Some("waiter"));
        assert_eq!(scripts.take("waiter", "u", "60000", "").word(), "granted");
        assert_eq!(scripts.run("undo", "token=u"), word("done"));
        assert!(!redis.exists(LOCK));
    }
}

/// Who cannot read the lock's key does not know that the lock has a key of another type.
#[test]
fn a_key_that_must_not_be_read_is_no_key_of_another_type() {
    let redis = Redis::start();
    redis.command(&["ACL", "SETUSER", "blind", "on", "nopass", "~*", "&*", "+@all", "-get"]);
    let mut connection = redis.connection();
    redis::cmd("AUTH").arg("blind").arg("x").query::<()>(&mut connection).unwrap();
    let mut scripts = Scripts::on(connection);
    for (name, arguments) in
        [("extend", &[("token", "t")][..]), ("release", &[("token", "t")]), ("inspect", &[("most", "1")])]
    {
        let said = scripts.try_with(name, arguments).map_err(|error| error.to_string());
        assert!(said.as_ref().is_err_and(|error| error.to_lowercase().contains("run")), "{name}: {said:?}");
    }
}

#[test]
fn the_empty_value_of_another_library_is_nobodys_token() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    redis.command(&["SET", LOCK, ""]);
    let other = |reply: Reply| {
        assert_eq!((reply.word(), reply.holder().get("value")), ("other", &Reply::Text(String::new())));
        assert_eq!(reply.holder().int("left"), Some(-1));
    };
    assert_eq!(scripts.take("waiter", "t", "60000", "").word(), "held");
    for token in ["t", ""] {
        other(scripts.run("extend", &format!("token={token} ttl=60000")));
        other(scripts.release(token));
        other(scripts.run("enter", &format!("token={token} hold=a ttl=60000")));
    }
    assert_eq!(scripts.run("undo", "stay=1 waiter=waiter token= ticket=1"), word("done"));
    assert_eq!(scripts.run("undo", "waiter=waiter token="), word("done"));
    assert_eq!(redis.get(LOCK).as_deref(), Some(""));
}
