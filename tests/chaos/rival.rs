//! Who shares a lock with redlock and is not redlock: another library, and one who tries over and over to get in too early.

use super::contender::{Arena, Contender, Lease, redlock};
use super::field::{ALLOWANCE, SHORTEST};
use super::history::{Bounded, Event, Line, now};
use crate::support::{ServerClock, ms};
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
        connection.set_read_timeout(Some(ms(500))).unwrap();
        Some(Foreign { connection, key: format!("redlock:{name}"), name, number: 0 })
    }

    /// The line of its section, if it has the lock now.
    fn acquire(&mut self, ttl: Duration) -> redis::RedisResult<Option<Line>> {
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
            until: Some(start + i64::try_from((ttl - ALLOWANCE).as_micros()).unwrap()),
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
            match foreign.acquire(SHORTEST) {
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

/// Leases that are used to their last millisecond, while the server's clock jumps ahead as far as it may.
pub(super) fn use_up(contender: &mut Contender<'_>, clock: &ServerClock) {
    while contender.arena.goes_on() {
        clock.set(Duration::ZERO);
        let ttl = format!("--ttl={}ms", SHORTEST.as_millis());
        let mut command = redlock(&["acquire", "edge", "--format", "json", "--wait", "5s"]);
        command.arg(ttl);
        let start = now();
        let end = contender.call("acquire", command, None, &[0, 69, 75]);
        if end.code() != 0 {
            continue;
        }
        clock.set(ALLOWANCE);
        let lease = Lease::read(&end.stdout);
        let until = start + lease.lasts();
        let line = Line { until: Some(until), ..lease.line("edge", 'x') };
        if let Some(section) = Bounded::enter(&contender.arena.directory, line) {
            std::thread::sleep(Duration::from_micros(u64::try_from((until - now()).max(0)).unwrap()));
            section.leave();
        }
        contender.call("release", redlock(&["release", "edge", "--token", &lease.token]), None, &[0, 69, 77]);
    }
}

/// One who tries to come in every few milliseconds.
pub(super) fn press(arena: &Arena, socket: &Path) {
    while arena.goes_on() {
        std::thread::sleep(ms(20));
        let Some(mut foreign) = Foreign::new(socket, "edge") else { continue };
        while arena.goes_on() {
            std::thread::sleep(ms(3));
            match foreign.acquire(ALLOWANCE + ms(30)) {
                Ok(Some(line)) => {
                    let token = line.token.clone();
                    if let Some(section) = Bounded::enter(&arena.directory, line) {
                        section.leave();
                    }
                    foreign.release(&token);
                    // So that the others get it too.
                    std::thread::sleep(ms(50));
                }
                Ok(None) => {}
                Err(_) => break,
            }
        }
    }
}
