//! Other lock libraries: with the fitting prefix, they and redlock exclude each other, and each releases only its own
//! locks.
//!
//! These tests send what a library sends, command by command and script by script. If Python has the library, it is
//! tried as well.

use crate::support::{Ended, Redis, SOON, Test, any, eventually, has_module, like, loss, message, redlock};
use std::process::Command;

/// A library, and how it takes and releases a lock.
struct Peer {
    library: &'static str,
    /// The part of the library's key before the name: the `--prefix` that fits.
    prefix: &'static str,
    value: &'static [u8],
    take: fn(&mut redis::Connection, &str, &[u8], u64) -> bool,
    release: fn(&mut redis::Connection, &str, &[u8]) -> bool,
}

fn set_nx_px(connection: &mut redis::Connection, key: &str, value: &[u8], ttl: u64) -> bool {
    let mut command = redis::cmd("SET");
    let reply: Option<String> = command.arg(key).arg(value).arg("NX").arg("PX").arg(ttl).query(connection).unwrap();
    reply.is_some()
}

fn set_nx_ex(connection: &mut redis::Connection, key: &str, value: &[u8], ttl: u64) -> bool {
    let mut command = redis::cmd("SET");
    let seconds = ttl.div_ceil(1_000);
    let reply: Option<String> = command.arg(key).arg(value).arg("EX").arg(seconds).arg("NX").query(connection).unwrap();
    reply.is_some()
}

fn evaluate(connection: &mut redis::Connection, script: &str, keys: &[&str], arguments: &[&[u8]]) -> Option<i64> {
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
    command.query(connection).unwrap()
}

fn del_if_equal(connection: &mut redis::Connection, key: &str, value: &[u8]) -> bool {
    let script = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    evaluate(connection, script, &[key], &[value]) == Some(1)
}

fn peers() -> Vec<Peer> {
    vec![
        Peer {
            library: "redis-py",
            prefix: "",
            value: b"0b1c4e6ac77e11ef8f2a0242ac120002",
            take: set_nx_px,
            release: |connection, key, value| {
                let script = "local token = redis.call('get', KEYS[1])
                    if not token or token ~= ARGV[1] then return 0 end
                    redis.call('del', KEYS[1]) return 1";
                evaluate(connection, script, &[key], &[value]) == Some(1)
            },
        },
        Peer {
            library: "python-redis-lock",
            prefix: "lock:",
            value: b"3q2+7wAAAAAAAAAAAAAAAAAAAAAA",
            take: set_nx_ex,
            release: |connection, key, value| {
                let script = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 else
                    redis.call('del', KEYS[2]) redis.call('lpush', KEYS[2], 1)
                    redis.call('pexpire', KEYS[2], ARGV[2]) redis.call('del', KEYS[1]) return 0 end";
                let signal = key.replacen("lock:", "lock-signal:", 1);
                evaluate(connection, script, &[key, &signal], &[value, b"1000"]) == Some(0)
            },
        },
        Peer {
            library: "node-redlock",
            prefix: "",
            value: b"52b8e4ac8ee32f6b8ba1c0e4a7d1b5a2",
            take: |connection, key, value, ttl| {
                let script = "for i, key in ipairs(KEYS) do if redis.call('exists', key) == 1 then return 0 end end
                    for i, key in ipairs(KEYS) do redis.call('set', key, ARGV[1], 'PX', ARGV[2]) end return #KEYS";
                evaluate(connection, script, &[key], &[value, ttl.to_string().as_bytes()]) == Some(1)
            },
            release: |connection, key, value| {
                let script = "local count = 0 for i, key in ipairs(KEYS) do
                    if redis.call('get', key) == ARGV[1] then redis.pcall('del', key) count = count + 1 end end
                    return count";
                evaluate(connection, script, &[key], &[value]) == Some(1)
            },
        },
        Peer {
            library: "redsync",
            prefix: "",
            value: b"wYkq0Z4rX1s2Q3v4b5n6mA==",
            take: set_nx_px,
            release: |connection, key, value| {
                let script = "local val = redis.call('GET', KEYS[1])
                    if val == ARGV[1] then return redis.call('DEL', KEYS[1])
                    elseif val == false then return -1 else return 0 end";
                evaluate(connection, script, &[key], &[value]) == Some(1)
            },
        },
        Peer {
            library: "rslock",
            prefix: "",
            value: b"\x00\xff\x1b[2J\x80\x81\x82twenty byte",
            take: set_nx_px,
            release: del_if_equal,
        },
        Peer {
            library: "redlock-rb",
            prefix: "",
            value: b"a2f1d9f0-4b1c-4f5e-9d57-0f3f5a3c9d11",
            take: |connection, key, value, ttl| {
                let script = "if (redis.call('exists', KEYS[1]) == 0 and ARGV[3] == 'yes')
                    or redis.call('get', KEYS[1]) == ARGV[1] then
                    redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1 end";
                evaluate(connection, script, &[key], &[value, ttl.to_string().as_bytes(), b"yes"]) == Some(1)
            },
            release: del_if_equal,
        },
    ]
}

impl Peer {
    fn key(&self) -> String {
        format!("{}backup", self.prefix)
    }

    fn redlock(&self, redis: &Redis, arguments: &[&str]) -> Test {
        Test::new(redis).args(["--prefix", self.prefix]).args(arguments)
    }
}

#[test]
fn their_lock_keeps_us_out_and_is_shown_as_foreign() {
    let redis = Redis::start();
    let mut connection = redis.connection();
    for peer in peers() {
        assert!((peer.take)(&mut connection, &peer.key(), peer.value, 20_000), "{}", peer.library);
        peer.redlock(&redis, &["acquire", "--name", "backup"]).fails(75, ["\"backup\" is held by"]).run();
        peer.redlock(&redis, &["run", "-q", "--name", "backup", "--", "echo", "started"]).turned_away().run();
        let object = peer.redlock(&redis, &["status", "backup", "--format", "json"]).json();
        assert_eq!(object["state"], "foreign", "{}", peer.library);
        let holder = &object["holders"][0];
        assert!(holder["user"].is_null() && holder["host"].is_null() && holder["pid"].is_null(), "{holder}");
        for command in ["release", "extend"] {
            peer.redlock(&redis, &[command, "backup", "--token", "not-theirs"]).fails(77, ["\"backup\""]).run();
        }
        let waiter = peer.redlock(&redis, &["run", "-q", "--name", "backup", "--wait", "--", "echo", "mine"]);
        let waiter = waiter.stdout("mine\n").spawn();
        eventually(SOON, "the waiter is connected", || redis.info("connected_clients").parse::<u32>().unwrap() > 2);
        assert!((peer.release)(&mut connection, &peer.key(), peer.value), "{}", peer.library);
        let finished = waiter.finish();
        assert!(finished.elapsed < SOON, "{}: nobody tells of their releases: {:?}", peer.library, finished.elapsed);
        assert!(!redis.exists(&peer.key()));
    }
}

#[test]
fn a_lock_whose_value_is_no_text_or_is_long_can_be_freed_by_force() {
    let redis = Redis::start();
    for value in [b"\xff\xfe".to_vec(), vec![b'x'; 10_000]] {
        let () = redis::cmd("SET").arg("redlock:backup").arg(value).query(&mut redis.connection()).unwrap();
        let said = like("redlock: freed \"backup\", which was held by another program<any>\n");
        redlock(&redis, "release backup --force").stdout(said).run();
        assert!(!redis.exists("redlock:backup"));
    }
}

#[test]
fn an_empty_value_is_a_lock_of_another_program() {
    let redis = Redis::start();
    redis.command(&["SET", "redlock:backup", "", "PX", "60000"]);
    for arguments in [
        &["acquire", "backup"][..],
        &["extend", "backup", "--token", "ours"],
        &["release", "backup", "--token", "ours"],
        &["stop", "backup"],
    ] {
        Test::new(&redis).args(arguments).any_end().stderr(message(["\"backup\"", "another program"])).run();
    }
    let said = like("<lines>another program<lines>");
    redlock(&redis, "status backup").stdout(said).run();
    redlock(&redis, "release backup --force").stdout(any()).run();
    assert!(!redis.exists("redlock:backup"));
}

#[test]
fn our_lock_keeps_them_out_and_only_we_release_it() {
    let redis = Redis::start();
    let mut connection = redis.connection();
    for peer in peers() {
        let token = peer.redlock(&redis, &["acquire", "--name", "backup"]).token();
        assert_eq!(redis.get(&peer.key()).as_ref(), Some(&token), "{}", peer.library);
        assert!(!(peer.take)(&mut connection, &peer.key(), peer.value, 20_000), "{}", peer.library);
        assert!(!(peer.release)(&mut connection, &peer.key(), peer.value), "{}", peer.library);
        peer.redlock(&redis, &["extend", "-q", "backup", "--token", &token]).run();
        peer.redlock(&redis, &["release", "-q", "backup", "--token", &token]).run();
        assert!((peer.take)(&mut connection, &peer.key(), peer.value, 20_000), "{}", peer.library);
        assert!((peer.release)(&mut connection, &peer.key(), peer.value), "{}", peer.library);
    }
}

#[test]
fn a_lock_that_they_took_over_is_lost_for_our_job() {
    let redis = Redis::start();
    let mut connection = redis.connection();
    for peer in peers() {
        let arguments = ["run", "-q", "--name", "backup", "--ttl", "4s", "--node-timeout", "2s", "--", "sleep", "30"];
        let job = peer.redlock(&redis, &arguments).status(76).stderr(loss([])).spawn();
        eventually(SOON, "acquired", || redis.exists(&peer.key()));
        redis.command(&["DEL", &peer.key()]);
        (peer.take)(&mut connection, &peer.key(), peer.value, 20_000);
        job.finish();
        assert!((peer.release)(&mut connection, &peer.key(), peer.value), "{} still had it", peer.library);
    }
}

#[test]
fn redissons_hash_is_held_by_something_else() {
    let redis = Redis::start();
    let script = "redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return 1";
    let field = b"8743c9c0-0795-4907-87fd-6c719a6b4586:1";
    evaluate(&mut redis.connection(), script, &["backup"], &[b"30000", field]);
    let redlock = |arguments: &[&str]| Test::new(&redis).args(["--prefix", ""]).args(arguments);
    redlock(&["acquire", "--name", "backup"]).fails(75, ["\"backup\"", "not a lock"]).run();
    for arguments in [&["release", "backup", "--token", "t"][..], &["extend", "backup", "--token", "t"]] {
        redlock(arguments).fails(77, ["\"backup\""]).run();
    }
    let test = redlock(&["status", "backup", "--format", "json"]).stdout(any());
    assert_eq!(test.run().json()["state"], "foreign");
    redlock(&["status", "-q", "backup"]).status(75).run();
    assert_eq!(redis.query::<String>(&["TYPE", "backup"]), "hash");
    assert!(redis.pttl("backup") > 20_000);
}

/// Runs a Python program with the server's socket as its argument, and returns what it prints. None if Python lacks the
/// module.
fn python(redis: &Redis, module: &str, program: &str) -> Option<String> {
    if !has_module(module) {
        return None;
    }
    let output = Command::new("python3").args(["-c", program]).arg(redis.socket()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// redlock and the Python program `take` exclude each other. The program prints whether it got the lock; `meanwhile`
/// runs while redlock holds the lock.
fn excludes(module: &str, prefix: &str, take: &str, meanwhile: impl Fn(&Redis)) {
    let redis = Redis::start();
    let Some(taken) = python(&redis, module, take) else { return };
    assert_eq!(taken, "True");
    let ours = |arguments: &[&str]| Test::new(&redis).args(["--prefix", prefix]).args(arguments);
    ours(&["acquire", "-q", "backup"]).turned_away().run();
    redis.command(&["DEL", &format!("{prefix}backup")]);
    let token = ours(&["acquire", "backup"]).token();
    assert_eq!(python(&redis, module, take).unwrap(), "False");
    meanwhile(&redis);
    ours(&["release", "-q", "backup", "--token", &token]).run();
    assert_eq!(python(&redis, module, take).unwrap(), "True");
}

#[test]
fn redis_py_itself() {
    let take = "import sys, redis
c = redis.Redis(unix_socket_path=sys.argv[1])
lock = c.lock('backup', timeout=20, blocking=False)
print(lock.acquire(), end='')";
    let release = "import sys, redis
c = redis.Redis(unix_socket_path=sys.argv[1])
lock = c.lock('backup', timeout=20)
lock.local.token = b'not ours'
try:
    lock.release()
except redis.exceptions.LockNotOwnedError:
    print('not owned', end='')";
    excludes("redis", "", take, |redis| assert_eq!(python(redis, "redis", release).unwrap(), "not owned"));
}

#[test]
fn python_redis_lock_itself() {
    let take = "import sys, redis, redis_lock
c = redis.StrictRedis(unix_socket_path=sys.argv[1])
lock = redis_lock.Lock(c, 'backup', expire=20)
print(lock.acquire(blocking=False), end='')";
    excludes("redis_lock", "lock:", take, |_| {});
}

#[test]
fn a_python_program_and_shell_jobs_never_overlap() {
    let redis = Redis::start();
    let program = "import sys, os, redis
c = redis.Redis(unix_socket_path=sys.argv[1])
for i in range(10):
    with c.lock('backup', timeout=20, sleep=0.01):
        os.mkdir('inside')
        os.rmdir('inside')";
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do
        redlock run -q --prefix '' --name backup --wait -- sh -ec 'mkdir inside; rmdir inside' || exit
    done";
    let shell = Test::sh(&redis, script);
    let python = Test::of("python3").args(["-c", program]).arg(redis.socket()).in_directory(&shell.directory());
    let python = has_module("redis").then(|| python.spawn());
    shell.run();
    if let Some(mut python) = python {
        assert_eq!(python.wait(SOON), Ended::Status(0), "{}", python.all_stderr());
    }
    assert!(!redis.exists("backup"));
}
