//! Who shares a lock with redlock and is not redlock: another library, and one who tries over and over to get in too early.

use super::contender::{Arena, Contender, Lease, redlock};
use super::field::{ALLOWANCE, SHORTEST};
use super::history::{Bounded, Event, Line, now};
use crate::support::{Redis, SOON, ms};
use redis::{Connection, Script};
use std::path::Path;
use std::time::Duration;

/// What redis-py's `Lock` sends.
struct Foreign {
    connection: Connection,
    key: String,
    name: &'static str,
    number: u64,
}

impl Foreign {
    fn new(socket: &Path, name: &'static str) -> Option<Foreign> {
        let client = redis::Client::open(format!("unix://{}", socket.display())).unwrap();
        let connection = client.get_connection().ok()?;
        connection.set_read_timeout(Some(SOON)).unwrap();
        Some(Foreign { connection, key: format!("redlock:{name}"), name, number: 0 })
    }

    /// The line of its section, if it has the lock now. So far may the server's clock jump.
    fn acquire(&mut self, ttl: Duration, jump: Duration) -> redis::RedisResult<Option<Line>> {
        self.number += 1;
        let (start, token) = (now(), format!("foreign-{}", self.number));
        let mut set = redis::cmd("SET");
        set.arg(&self.key).arg(&token).arg("NX").arg("PX").arg(u64::try_from(ttl.as_millis()).unwrap());
        let granted: Option<String> = set.query(&mut self.connection)?;
        let line = Line {
            event: Event::Enter,
            lock: self.name.to_owned(),
            kind: 'x',
            place: "-".to_owned(),
            fence: None,
            token,
            pid: std::process::id(),
            at: 0,
            until: Some(start + i64::try_from((ttl - jump).as_micros()).unwrap()),
            status: None,
        };
        Ok(granted.map(|_| line))
    }

    fn release(&mut self, token: &str) {
        let script = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
        let _ = Script::new(script).key(&self.key).arg(token).invoke::<i64>(&mut self.connection);
    }
}

/// Another library that has the lock from time to time.
pub(super) fn share(contender: &mut Contender<'_>, socket: &Path) {
    while contender.arena.goes_on() {
        std::thread::sleep(contender.chance.time(20, 400));
        let Some(mut foreign) = Foreign::new(socket, "x1") else { continue };
        while contender.arena.goes_on() {
            match foreign.acquire(SHORTEST, ALLOWANCE) {
                Ok(Some(line)) => {
                    let token = line.token.clone();
                    if let Some(section) = Bounded::enter(&contender.arena.directory, line) {
                        std::thread::sleep(contender.chance.time(1, 200));
                        section.leave();
                    }
                    foreign.release(&token);
                }
                Ok(None) => {}
                Err(_) => break,
            }
            std::thread::sleep(contender.chance.time(20, 400));
        }
    }
}

/// How long the leases are that are used to their last millisecond, and how far a server's clock may jump in that time.
const USED_UP: Duration = ms(5000);
const JUMP: Duration = ms(USED_UP.as_millis() as u64 / 100 + 2);

/// Leases that are used to their last millisecond, on a server of their own, whose clock jumps ahead as far as it may as soon as
/// it has granted one; another tries to come in all the time.
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
                std::thread::sleep(Duration::from_micros(u64::try_from((until - now()).max(0)).unwrap()));
                section.leave();
            }
            contender.call("release", redlock(&["release", name, "--token", &lease.token]), None, &[0, 77]);
        }
    });
}

/// One who tries to come in every few milliseconds, and stays for as short.
fn press(arena: &Arena, socket: &Path, name: &'static str) {
    let mut foreign = Foreign::new(socket, name).unwrap();
    while arena.goes_on() {
        std::thread::sleep(ms(3));
        if let Some(line) = foreign.acquire(JUMP + ms(30), JUMP).unwrap() {
            let token = line.token.clone();
            if let Some(section) = Bounded::enter(&arena.directory, line) {
                section.leave();
            }
            foreign.release(&token);
            // So that others get it too.
            std::thread::sleep(ms(100));
        }
    }
}
