//! Thousands of calls by chance, but repeatably: each answer, each message and what is then in Redis must be what the
//! model says.

use super::model::{Expected, Model, Owner, RESERVED_MS, SOME_TIME, Seen, Timed, Value, YOUNG_S};
use super::{BASE, LOCK, PARTS, Reply, Scripts, part, run_id};
use crate::support::Redis;
use redis::PubSub;
use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const TOKENS: [&str; 5] = ["ta", "tb", "tc", "tab", "ta.0"];
const WAITERS: [&str; 5] = ["wa", "wb", "wc", "wd", "we"];
const HOLDS: [&str; 3] = ["h1", "h2", "h3"];
/// Far enough apart for an expiry to tell which one it comes from.
const TTLS: [i64; 4] = [100_000, 200_000, 300_000, 400_000];
/// What a busy machine may take between two looks at the clock.
const SLACK_MS: u64 = 15_000;
const ANOTHER_RUN: &str = "0123456789012345678901234567890123456789";
const FENCE_MS: i64 = 100 * 24 * 3_600_000;
const QUEUE_MS: i64 = 900_000;
/// A reservation is made to last, so that its end is a matter of chance and not of time.
const KEPT_MS: i64 = 700_000;

/// xorshift64*.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn of(seed: u64) -> Chance {
        Chance(seed)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % end
    }

    pub(super) fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

fn server_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros().try_into().unwrap()
}

/// In µs or ms.
fn is_now(text: &str) -> bool {
    let is_near = |us: u64| us.abs_diff(server_us()) < 60_000_000;
    text.parse::<u64>().is_ok_and(|time| is_near(time) || is_near(time * 1000))
}

fn is_left(actual: i64, expected: i64) -> bool {
    if expected < 0 { actual == expected } else { actual >= 0 && actual.abs_diff(expected) <= SLACK_MS }
}

/// A record as read, its times replaced when they are the present.
fn record(flat: &[String]) -> BTreeMap<String, String> {
    let pairs = flat.chunks(2).map(|pair| {
        let timed = matches!(pair[0].as_str(), "since" | "kept" | "now");
        let value = if timed && is_now(&pair[1]) { SOME_TIME } else { &pair[1] };
        (pair[0].clone(), value.to_owned())
    });
    pairs.collect()
}

impl Expected {
    fn matches(&self, reply: &Reply) -> bool {
        match (self, reply) {
            (Expected::Text(expected), Reply::Text(text)) => expected == text || expected == SOME_TIME && is_now(text),
            (Expected::Int(expected), Reply::Int(n)) => expected == n,
            (Expected::Left(expected), Reply::Int(n)) => is_left(*n, *expected),
            (Expected::List(expected), Reply::List(items)) => {
                expected.len() == items.len()
                    && expected.iter().zip(items).all(|(expected, item)| expected.matches(item))
            }
            (Expected::Identity, Reply::List(items)) => {
                items.len() == 4 && reply.text("uptime").parse::<u64>().is_ok() && reply.text("run_id").len() == 40
            }
            (Expected::Fields(expected), Reply::List(items)) => {
                let field_matches = |(name, field): (&String, &Expected)| field.matches(reply.get(name));
                items.len() == 2 * expected.len() && expected.iter().all(field_matches)
            }
            _ => false,
        }
    }
}

struct Run<'a> {
    chance: Chance,
    scripts: Scripts,
    ears: PubSub<'a>,
    model: Model,
    run_id: String,
    start: Instant,
    /// What was done, for whoever has to find out why it failed.
    done: Vec<String>,
}

impl Run<'_> {
    fn now(&self) -> i64 {
        self.start.elapsed().as_millis().try_into().unwrap()
    }

    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        let last = self.done.len().saturating_sub(12);
        panic!("{what}\nafter\n  {}\nmodel: {:#?}", self.done[last..].join("\n  "), self.model)
    }

    fn command(&mut self, words: &[&str]) {
        self.done.push(format!("{words:?}"));
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query::<redis::Value>(&mut self.scripts.connection).unwrap();
    }

    fn token(&mut self) -> String {
        // Mostly the one that matters.
        match &self.model.lock {
            Some(Timed { value: Value::Text(value), .. }) if !value.is_empty() && self.chance.below(3) > 0 => {
                value.clone()
            }
            _ => self.chance.one_of(&TOKENS).to_owned(),
        }
    }

    /// A waiter, or none.
    fn waiter(&mut self) -> &'static str {
        if self.chance.below(5) == 0 { "" } else { self.chance.one_of(&WAITERS) }
    }

    /// Near the counter, on both sides of it.
    fn number(&mut self) -> u64 {
        (self.model.counter.unwrap_or(3) + self.chance.below(5) as u64).saturating_sub(2)
    }

    /// Runs a script with these arguments, the empty ones of `optional` left out.
    fn script(&mut self, name: &str, arguments: &[(&str, &str)], optional: &[(&str, &str)]) -> Reply {
        self.model.now = self.now();
        let given = optional.iter().filter(|(_, value)| !value.is_empty());
        let arguments: Vec<_> = arguments.iter().chain(given).copied().collect();
        let reply = self.scripts.run_with(name, &arguments);
        self.done.push(format!("{name} {arguments:?} -> {reply:?}"));
        reply
    }

    /// One call of a script, by chance.
    fn call(&mut self) {
        let ttl = self.chance.one_of(&TTLS);
        let ttl_text = ttl.to_string();
        let label = ["", "a label", "\u{1f}\n"][self.chance.below(3)];
        let by = Owner { host: "h", label };
        let owner = [("host", by.host), ("pid", "1"), ("user", "u"), ("label", by.label)];
        let (reply, expected) = match self.chance.below(100) {
            0..34 => {
                let (me, clock) = (self.waiter(), self.number());
                let token =
                    if self.chance.below(8) == 0 { self.token() } else { self.chance.one_of(&TOKENS).to_owned() };
                let ticket = (self.chance.below(3) > 0).then(|| 1 + self.chance.below(40) as u64);
                let quarantine = self.chance.below(8) == 0;
                let seen = (self.chance.below(4) == 0).then(|| Seen {
                    token: self.chance.one_of(&TOKENS),
                    before: self.chance.below(4) > 0,
                    left: self.chance.one_of(&[0, KEPT_MS]),
                    fence: self.number(),
                });
                let earlier = self.earlier();
                let earlier_text = earlier.join(" ");
                let ticket_text = ticket.map_or(String::new(), |ticket| ticket.to_string());
                let clock_text = clock.to_string();
                let mut arguments = vec![("token", &*token), ("ttl", &*ttl_text), ("now", &*clock_text)];
                arguments.extend(owner);
                let young = YOUNG_S.to_string();
                let mut optional = vec![("waiter", me), ("ticket", &*ticket_text)];
                optional.push(("quarantine", if quarantine { &*young } else { "" }));
                optional.push(("earlier", &earlier_text));
                let run_id = self.run_id.clone();
                let texts = seen.as_ref().map(|seen| (seen.left.to_string(), seen.fence.to_string()));
                if let (Some(seen), Some((left, fence))) = (&seen, &texts) {
                    let run = if seen.before { ANOTHER_RUN } else { &run_id };
                    optional.extend([("seen", seen.token), ("seen_run_id", run), ("seen_left", left)]);
                    optional.push(("seen_fence", fence));
                }
                let reply = self.script("take", &arguments, &optional);
                let given = reply.text("ticket").parse().ok();
                let us = server_us();
                let expected = {
                    let seen = seen.as_ref();
                    self.model.take(me, &token, ttl, ticket, clock, &by, quarantine, seen, given, us, &earlier)
                };
                (reply, expected)
            }
            34..48 => {
                let token = self.token();
                let keep = self.chance.one_of(&[0, 0, 0, 0, 250_000]);
                let hold = self.chance.one_of(&HOLDS);
                let hold = ["base", "", "", hold, "0"][self.chance.below(5)];
                let keep_text = if keep > 0 { keep.to_string() } else { String::new() };
                let reply = self.script("release", &[("token", &token)], &[("hold", hold), ("keep", &keep_text)]);
                (reply, self.model.release(&token, hold, keep))
            }
            48..55 => {
                let me = self.waiter();
                let token = if self.chance.below(2) == 0 { String::new() } else { self.token() };
                let earlier = self.earlier();
                let optional = [("waiter", me), ("token", &*token), ("earlier", &earlier.join(" "))];
                (self.script("undo", &[], &optional), self.model.leave(me, &token, &earlier))
            }
            55..61 => {
                let me = self.waiter();
                let token = if self.chance.below(4) == 0 { String::new() } else { self.token() };
                let ticket = (self.chance.below(4) > 0).then(|| 1 + self.chance.below(40) as u64);
                let told = ticket.map_or(String::new(), |ticket| ticket.to_string());
                let reply =
                    self.script("undo", &[("stay", "1")], &[("waiter", me), ("token", &token), ("ticket", &told)]);
                (reply, self.model.rollback(me, &token, ticket))
            }
            61..69 => {
                let token = self.token();
                let ttl = self.chance.one_of(&[0, ttl]);
                let (hold, renew) = match self.chance.below(5) {
                    0 => ("h1", ""),
                    1 => (self.chance.one_of(&["base", "h1", "h2"]), "1"),
                    2 => ("0", ""),
                    _ => ("", ""),
                };
                let ttl_text = if ttl > 0 { ttl.to_string() } else { String::new() };
                let optional = [("hold", hold), ("renew", renew), ("ttl", &*ttl_text)];
                let reply = self.script("extend", &[("token", &token), ("default", "150000")], &optional);
                (reply, self.model.extend(&token, hold, ttl, 150_000, !renew.is_empty()))
            }
            69..78 => {
                let (token, hold) = (self.token(), self.chance.one_of(&HOLDS));
                let ttl = self.chance.one_of(&[0, ttl]);
                let ttl_text = if ttl > 0 { ttl.to_string() } else { String::new() };
                let arguments = [("token", &*token), ("hold", hold), ("default", "150000")];
                let reply = self.script("enter", &arguments, &[("ttl", &ttl_text)]);
                (reply, self.model.enter(&token, hold, ttl, 150_000))
            }
            78..84 => {
                let (token, fence) = (self.token(), self.number());
                let reply = self.script("fence", &[("token", &token), ("fence", &fence.to_string())], &[]);
                (reply, self.model.fence(&token, fence))
            }
            84..89 => {
                let (token, fence) = (self.token(), self.number());
                let fence_text = fence.to_string();
                let mut arguments = vec![("token", &*token), ("ttl", &*ttl_text), ("fence", &*fence_text)];
                arguments.extend(owner);
                let (same, alone) = (self.chance.below(5) > 0, self.chance.below(2) == 0);
                let hold = self.chance.one_of(&["", "base", "h1", "h2"]);
                let run_id = if same { self.run_id.clone() } else { ANOTHER_RUN.to_owned() };
                let optional = [("run_id", &*run_id), ("alone", if alone { "1" } else { "" }), ("hold", hold)];
                let reply = self.script("recreate", &arguments, &optional);
                (reply, self.model.recreate(&token, ttl, fence, &by, same, alone, hold))
            }
            89..93 => {
                let token = if self.chance.below(3) == 0 { String::new() } else { self.token() };
                let force = self.chance.below(2) == 0;
                let by = self.chance.one_of(&["me", "you"]);
                let reply =
                    self.script("revoke", &[("by", by)], &[("token", &token), ("force", if force { "1" } else { "" })]);
                (reply, self.model.revoke(&token, force, by))
            }
            93..96 => {
                let token = self.token();
                (self.script("holds", &[("token", &token)], &[]), self.model.newest_hold(&token))
            }
            _ => (self.script("inspect", &[("waiters", "2")], &[]), self.model.inspect(2)),
        };
        if !expected.matches(&reply) {
            self.fail(&format!("answered {reply:?}\nexpected {expected:?}"));
        }
    }

    /// Tokens of tries whose undoing was not confirmed; mostly none.
    fn earlier(&mut self) -> Vec<&'static str> {
        match self.chance.below(6) {
            0 => vec![self.chance.one_of(&TOKENS), self.chance.one_of(&TOKENS)],
            1 => vec![self.chance.one_of(&TOKENS)],
            _ => Vec::new(),
        }
    }

    /// Something that time does, or others.
    fn event(&mut self) {
        let now = self.now();
        let (lease, holds) = (part("lease"), part("holds"));
        let others = |value, ends| Some(Timed { value, ends });
        match self.chance.below(22) {
            0..3 => {
                self.command(&["DEL", LOCK, &lease, &holds]);
                (self.model.lock, self.model.lease, self.model.holds) = (None, None, None);
            }
            3 => {
                self.command(&["DEL", LOCK]);
                self.model.lock = None;
            }
            4 => {
                self.command(&["DEL", &lease]);
                self.model.lease = None;
            }
            5..8 => {
                self.command(&["DEL", &part("reserved")]);
                self.model.reserved = None;
            }
            8 => {
                self.command(&["DEL", &part("queue")]);
                self.model.queue.clear();
            }
            9 => {
                self.command(&["DEL", &part("fence")]);
                self.model.counter = None;
            }
            10 => {
                self.command(&["SET", LOCK, "of another library"]);
                self.model.lock = others(Value::Text("of another library".to_owned()), None);
            }
            11 => {
                self.command(&["SET", LOCK, "", "PX", "350000"]);
                self.model.lock = others(Value::Text(String::new()), Some(now + 350_000));
            }
            12 => {
                self.command(&["DEL", LOCK]);
                self.command(&["RPUSH", LOCK, "1"]);
                self.model.lock = others(Value::Other, None);
            }
            13..21 => {
                let waiter = self.chance.one_of(&WAITERS);
                let channel = part(&format!("w:{waiter}"));
                if self.model.listening.remove(waiter) {
                    self.done.push(format!("{waiter} dies"));
                    self.ears.unsubscribe(channel).unwrap();
                } else {
                    self.done.push(format!("{waiter} listens"));
                    self.ears.subscribe(channel).unwrap();
                    self.model.listening.insert(waiter.to_owned());
                }
            }
            _ => {
                self.command(&["FLUSHALL"]);
                let listening = std::mem::take(&mut self.model.listening);
                self.model = Model { listening, ..Model::default() };
            }
        }
    }

    /// Compares what was heard.
    fn listen(&mut self) {
        let sync = part("sync");
        redis::cmd("PUBLISH").arg(&sync).arg("").query::<()>(&mut self.scripts.connection).unwrap();
        let mut heard = Vec::new();
        loop {
            let message = self.ears.get_message().unwrap();
            let channel = message.get_channel_name();
            if channel == sync {
                break;
            }
            let channel = channel.strip_prefix(BASE).unwrap().to_owned();
            heard.push((channel, message.get_payload::<String>().unwrap()));
        }
        let expected = std::mem::take(&mut self.model.heard);
        if heard != expected {
            self.fail(&format!("heard {heard:?}\nexpected {expected:?}"));
        }
    }

    /// Compares what is in Redis with the model.
    fn compare(&mut self) {
        let [lease, fence, queue, reserved, holds, ..] = PARTS.map(part);
        let mut pipe = redis::pipe();
        pipe.cmd("TYPE").arg(LOCK);
        pipe.cmd("HGETALL").arg(&lease).cmd("GET").arg(&fence);
        pipe.cmd("ZRANGE").arg(&queue).arg(0).arg(-1).arg("WITHSCORES");
        pipe.cmd("GET").arg(&reserved).cmd("ZRANGE").arg(&holds).arg(0).arg(-1);
        for key in [LOCK, &lease, &fence, &queue, &reserved, &holds] {
            pipe.cmd("PTTL").arg(key);
        }
        pipe.cmd("PEXPIRE").arg(&reserved).arg(KEPT_MS);
        let replies: Vec<redis::Value> = pipe.query(&mut self.scripts.connection).unwrap();
        let replies: Vec<Reply> = replies.into_iter().map(Reply::of).collect();
        let text = |reply: &Reply| if let Reply::Text(text) = reply { text.clone() } else { String::new() };
        let flat = |at: usize| -> Vec<String> { replies[at].items().iter().map(text).collect() };
        let now = self.now();
        let model = &self.model;
        let kind = match &model.lock {
            None => "none",
            Some(Timed { value: Value::Text(_), .. }) => "string",
            Some(Timed { value: Value::Other, .. }) => "list",
        };
        let queued: Vec<String> =
            model.queue.iter().flat_map(|(ticket, waiter)| [waiter.clone(), ticket.to_string()]).collect();
        let counter = model.counter.map(|counter| counter.to_string()).unwrap_or_default();
        let promised = model.reserved.as_ref().map_or("", |reserved| &reserved.value);
        let entered = model.holds.as_ref().map_or(&[][..], |holds| &holds.value);
        let known = model.lease.as_ref().map(|lease| lease.value.clone()).unwrap_or_default();
        let left = |ends: Option<Option<i64>>| match ends {
            None => -2,
            Some(None) => -1,
            Some(Some(ends)) => ends - now,
        };
        let pttl = |at: usize| if let Reply::Int(left) = replies[at] { left } else { 0 };
        let within = |at: usize, present: bool, most: i64| match present {
            true => (1..=most).contains(&pttl(at)),
            false => pttl(at) == -2,
        };
        // A reservation that is new lasts a second; one that was seen before has been made to last.
        let new = model.reserved.as_ref().is_some_and(|known| known.ends <= Some(now + RESERVED_MS));
        let checks = [
            ("the lock's type", text(&replies[0]) == kind),
            ("the lease", record(&flat(1)) == known),
            ("the counter", text(&replies[2]) == counter),
            ("the queue", flat(3) == queued),
            ("the reservation", text(&replies[4]) == promised),
            ("the holds", flat(5) == entered),
            ("the lock's end", is_left(pttl(6), left(model.lock.as_ref().map(|lock| lock.ends)))),
            ("the lease's end", is_left(pttl(7), left(model.lease.as_ref().map(|lease| lease.ends)))),
            ("the counter's end", within(8, model.counter.is_some(), FENCE_MS)),
            ("the queue's end", within(9, !model.queue.is_empty(), QUEUE_MS)),
            ("the reservation's end", within(10, model.reserved.is_some(), if new { RESERVED_MS } else { KEPT_MS })),
            ("the holds' end", is_left(pttl(11), left(model.holds.as_ref().map(|holds| holds.ends)))),
        ];
        for (what, agrees) in checks {
            if !agrees {
                self.fail(&format!("{what} differs: {replies:?}"));
            }
        }
        if let Some(reserved) = &mut self.model.reserved {
            reserved.ends = Some(now + KEPT_MS);
        }
    }
}

/// `calls` calls with these seeds, the waiters alive by chance or all dead.
fn agree(seeds: std::ops::Range<u64>, calls: usize, alive: bool) {
    let redis = Redis::start();
    for seed in seeds {
        redis.command(&["FLUSHALL"]);
        let mut listener = redis.connection();
        let mut ears = listener.as_pubsub();
        ears.subscribe(part("sync")).unwrap();
        let mut run = Run {
            chance: Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            scripts: Scripts::on(redis.connection()),
            ears,
            model: Model::default(),
            run_id: run_id(&redis),
            start: Instant::now(),
            done: vec![format!("seed {seed}")],
        };
        for _ in 0..calls {
            if run.chance.below(8) == 0 {
                run.event();
                if !alive {
                    for waiter in std::mem::take(&mut run.model.listening) {
                        run.ears.unsubscribe(part(&format!("w:{waiter}"))).unwrap();
                    }
                }
            } else {
                run.call();
            }
            run.listen();
            run.compare();
        }
    }
}

#[test]
fn the_scripts_and_the_model_agree_when_waiters_live_and_die() {
    agree(1..7, 500, true);
}

#[test]
fn the_scripts_and_the_model_agree_when_all_waiters_are_dead() {
    agree(101..103, 500, false);
}
