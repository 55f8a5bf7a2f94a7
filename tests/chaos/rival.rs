//! Rivals of redlock for a lock: another library, and a client that tries over and over to get in too early.

use super::contender::{Arena, Contender, Lease, redlock};
use super::field::{ALLOWANCE, SHORTEST};
use super::history::{Bounded, Event, Line, now, sleep_until};
use crate::support::{Redis, SOON, ms};
use redis::{Connection, RedisResult, Script};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// redlock shares this lock with other libraries.
pub(super) const SHARED: &str = "x1";
/// How the tokens of redis-py's sections begin.
pub(super) const REDIS_PY: &str = "redis-py";

/// A lock, as a client of another library uses it.
pub(super) trait Library {
    /// Tries once; true if the lock is this client's now.
    fn acquire(&mut self) -> RedisResult<bool>;
    /// Sets the whole ttl anew; true if the lock was still this client's.
    fn reacquire(&mut self) -> RedisResult<bool>;
    fn release(&mut self);
}

/// Sends the commands of redis-py's `Lock`, with tokens that are easy to read.
pub(super) struct Imitation {
    connection: Connection,
    key: String,
    /// In milliseconds.
    ttl: u128,
    number: u64,
}

impl Imitation {
    /// None if the server cannot be reached.
    pub(super) fn new(socket: &Path, name: &str, ttl: Duration) -> Option<Imitation> {
        let client = redis::Client::open(format!("unix://{}", socket.display())).unwrap();
        let connection = client.get_connection().ok()?;
        connection.set_read_timeout(Some(SOON)).unwrap();
        Some(Imitation { connection, key: format!("redlock:{name}"), ttl: ttl.as_millis(), number: 0 })
    }

    fn token(&self) -> String {
        format!("foreign-{}", self.number)
    }

    fn if_ours(&mut self, what: &str) -> RedisResult<bool> {
        let script = Script::new(&format!("return redis.call('get', KEYS[1]) == ARGV[1] and {what} == 1"));
        script.key(&self.key).arg(self.token()).invoke(&mut self.connection)
    }
}

impl Library for Imitation {
    fn acquire(&mut self) -> RedisResult<bool> {
        self.number += 1;
        let mut set = redis::cmd("SET");
        set.arg(&self.key).arg(self.token()).arg("NX").arg("PX").arg(self.ttl.to_string());
        Ok(set.query::<Option<String>>(&mut self.connection)?.is_some())
    }

    fn reacquire(&mut self) -> RedisResult<bool> {
        self.if_ours(&format!("redis.call('pexpire', KEYS[1], {})", self.ttl))
    }

    fn release(&mut self) {
        let _ = self.if_ours("redis.call('del', KEYS[1])");
    }
}

/// redis-py itself, in a process of its own.
pub(super) struct RedisPy {
    python: Child,
    answers: BufReader<ChildStdout>,
}

impl RedisPy {
    pub(super) fn new(socket: &Path, name: &str, ttl: Duration) -> RedisPy {
        let mut command = Command::new("python3");
        command.args(["-c", include_str!("rival.py")]).arg(socket).arg(format!("redlock:{name}"));
        command.arg(ttl.as_secs_f64().to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut python = command.spawn().unwrap();
        let answers = BufReader::new(python.stdout.take().unwrap());
        RedisPy { python, answers }
    }

    /// The result of a method of the lock, or the name of the error.
    fn ask(&mut self, method: &str) -> String {
        writeln!(self.python.stdin.as_ref().unwrap(), "{method}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert!(!answer.is_empty(), "redis-py has ended");
        answer.trim_end().to_owned()
    }
}

impl Library for RedisPy {
    fn acquire(&mut self) -> RedisResult<bool> {
        Ok(self.ask("acquire") == "True")
    }

    fn reacquire(&mut self) -> RedisResult<bool> {
        Ok(self.ask("reacquire") == "True")
    }

    fn release(&mut self) {
        self.ask("release");
    }
}

impl Drop for RedisPy {
    fn drop(&mut self) {
        let _ = self.python.kill();
        let _ = self.python.wait();
    }
}

/// The line of the history about a section of another library, which must end by `until`, a time of [`now`].
fn line(lock: &str, token: String, until: i64) -> Line {
    Line {
        event: Event::Enter,
        lock: lock.to_owned(),
        kind: 'x',
        slot: "-".to_owned(),
        fence: None,
        token,
        pid: std::process::id(),
        at: 0,
        until: Some(until),
        status: None,
    }
}

/// Lets a client of another library take the lock [`SHARED`] from time to time. The tokens of its sections begin with
/// `who`.
pub(super) fn share<L: Library>(contender: &mut Contender<'_>, who: &str, connect: impl Fn() -> Option<L>) {
    // The server's clock may jump ahead by ALLOWANCE, and the lock then expires that much earlier than its ttl.
    let until = |start: i64| start + i64::try_from((SHORTEST - ALLOWANCE).as_micros()).unwrap();
    let mut number = 0;
    while contender.arena.goes_on() {
        std::thread::sleep(contender.chance.time(20, 400));
        let Some(mut lock) = connect() else { continue };
        while contender.arena.goes_on() {
            let start = now();
            let Ok(granted) = lock.acquire() else { break };
            if granted {
                number += 1;
                let line = line(SHARED, format!("{who}-{number}"), until(start));
                contender.work(&line, until(start));
                let start = now();
                if contender.chance.percent(30) && lock.reacquire().unwrap_or(false) {
                    contender.work(&line, until(start));
                }
                lock.release();
            }
            std::thread::sleep(contender.chance.time(20, 400));
        }
    }
}

/// The ttl of a lease that is used to its last millisecond. `JUMP`: how far the server's clock jumps meanwhile.
const USED_UP: Duration = ms(5000);
const JUMP: Duration = ms(USED_UP.as_millis() as u64 / 100 + 2);

/// Uses leases to their last millisecond, on a server that no other contender uses. After each grant, the server's
/// clock jumps ahead as far as README allows. All the time a rival (`press`) tries to get the lock.
pub(super) fn use_up(contender: &mut Contender<'_>, name: &'static str) {
    let (server, arena) = (Redis::with_clock(&[], 3_600), contender.arena);
    contender.environment.insert("REDLOCK_REDIS", server.url());
    contender.environment.insert("REDLOCK_QUARANTINE", String::new());
    let ttl = format!("--ttl={}ms", USED_UP.as_millis());
    std::thread::scope(|scope| {
        scope.spawn(|| press(arena, &server.socket(), name));
        while arena.goes_on() {
            server.clock().set(Duration::ZERO);
            let start = now();
            let acquire = redlock(&["acquire", name, "--format", "json", "--wait", "5s", &ttl]);
            let end = contender.call("acquire", acquire, None, &[0, 75]);
            if end.code() != 0 {
                continue;
            }
            server.clock().set(JUMP);
            let lease = Lease::read(&end.stdout);
            let until = start + lease.lasts();
            let line = Line { until: Some(until), ..lease.line(name, 'x') };
            if let Some(section) = Bounded::enter(&arena.directory, line) {
                sleep_until(until);
                section.leave();
            }
            contender.call("release", redlock(&["release", name, "--token", &lease.token]), None, &[0, 77]);
        }
    });
}

/// Tries to get the lock every few milliseconds, and releases it at once.
fn press(arena: &Arena, socket: &Path, name: &'static str) {
    let mut lock = Imitation::new(socket, name, JUMP + ms(30)).unwrap();
    while arena.goes_on() {
        std::thread::sleep(ms(3));
        let start = now();
        if lock.acquire().unwrap() {
            if let Some(section) = Bounded::enter(&arena.directory, line(name, lock.token(), start + 30_000)) {
                section.leave();
            }
            lock.release();
            // In this pause redlock can get the lock.
            std::thread::sleep(ms(100));
        }
    }
}
