//! Thousands of random calls of the scripts: each answer, each message and the keys in Redis must be as the model says.
//! The same seed makes the same calls again, because the test sets the scripts' clock. Leases have claims of every
//! kind, waiters live and die, runs are kept.

use super::history::number;
use super::model::{Model, NONCE, RESERVED_MS, RUN_ID, Timed, UPTIME_S, limit};
use super::{BASE, LOCK, Reply, Scripts, part};
use crate::support::{Chance, Redis};
use redis::{PubSub, Script};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// The first letter of a waiter's name shows the claim: s for shared, p for slots, any other letter for exclusive.
const WAITERS: [&str; 6] = ["wa", "wb", "sa", "sb", "pa", "pb"];
const CLAIMS: &[&str] = &["exclusive", "shared", "slots:2", "slots:3"];
/// These ttls are far apart, so a key's PTTL shows which ttl was set.
const TTLS: [i64; 4] = [100_000, 200_000, 300_000, 400_000];
/// By how much the time until a key expires may differ from the model. A busy machine may take this long for the calls
/// of one seed.
const SLACK_MS: u64 = 20_000;
/// The weight of a script, its name, and its arguments. NAME=A|B: each call has the argument NAME; the value is A or B.
/// NAME:P=A|B: P % of the calls have the argument NAME.
type Described = (u64, &'static str, &'static str);
const ALL: &[Described] = &[
    (
        34,
        "take",
        "token=NEW|NEW|NEW|HOLDER ttl=TTL OWNER waiter:70=WAITER ticket:50=1|7|20|40 now:80=NUMBER quarantine:12=100|99 \
         once:15=1|5000|1000000 labelled:30=1 newest:20=1|2|3 earlier:15=TOKEN seen:25=TOKEN seen_run_id=another|another|this seen_left=0|700000 \
         seen_fence=NUMBER seen_claim=CLAIM seen_slot:20=0|1 tries:20=1|2",
    ),
    (
        18,
        "release",
        "token=TOKEN hold:60=base|base|h1|h2|0 run:75=END unused:8=1 tries:30=1 final:40=1 run_id:50=another|this",
    ),
    (11, "undo", "token:60=TOKEN waiter:80=WAITER stay:50=1 ticket:75=1|7|20|40 earlier:15=TOKEN tries:30=1"),
    (8, "extend", "token=TOKEN ttl:50=TTL default=150000 hold:50=base|h1|h2|h3|0 renew:40=1"),
    (7, "enter", "token=TOKEN ttl:50=TTL default=150000 hold=base|h1|h2|h3|0"),
    (5, "fence", "token=TOKEN fence=NUMBER"),
    (4, "try", "token=TOKEN"),
    (
        6,
        "recreate",
        "token=TOKEN ttl=TTL OWNER fence=NUMBER run_id:95=this|this|this|another alone:50=1 hold:60=base|h1|h2 held:50=1 \
         began=BEGAN tries:30=1 once:30=1 newest:30=1|2|3",
    ),
    (6, "revoke", "token:60=TOKEN by=me|you force:50=1"),
    (2, "holds", "token=TOKEN"),
    (4, "inspect", "waiters=2"),
    (4, "close", "ttl:35=TTL by=me|you"),
    (4, "runs", "most=1|20 hosts:50=1 newest:50=1"),
];
/// The plain case, for which the scripts have special code: exclusive leases, on a lock that is mostly free when a call
/// asks for it; most runs end by an exit or a signal.
const USUAL: &[Described] = &[
    (
        40,
        "take",
        "token=NEW ttl=TTL OWNER now:80=NUMBER waiter:8=wa|wb ticket:50=1|7 quarantine:8=100|99 once:8=1000000 earlier:5=TOKEN",
    ),
    (40, "release", "token=TOKEN hold:70=base|base|base|h1 run:95=END final:6=1 run_id=this|this|this|another"),
    (4, "undo", "token:60=TOKEN waiter:80=wa|wb"),
    (4, "extend", "token=TOKEN ttl:50=TTL default=150000 renew:40=1"),
    (3, "enter", "token=TOKEN default=150000 hold=h1|h2"),
    (3, "recreate", "token=TOKEN ttl=TTL OWNER fence=NUMBER run_id=this alone:50=1 began=BEGAN"),
    (5, "revoke", "token:60=TOKEN by=me force:30=1"),
    (3, "fence", "token=TOKEN fence=NUMBER"),
];
const OWNER: &str = "host=h|i pid=1 user=u renewal:20=0 label=|label|\u{1f}\n entry:90=ENTRY";
/// What redlock knows of a run at its grant. `n`: the number of runs that the log keeps.
const ENTRY: &str = r#"{"h":"h","n":"3"}|{"h":"h","q":"1","n":"4"}|{"h":"h","q":"1","l":"\"t\":\"t1\""}"#;
/// A script that returns the name, type, content and PTTL of each key.
const DUMP: &str = "local read, all = {string = 'GET', list = 'LRANGE', hash = 'HGETALL', zset = 'ZRANGE'}, {}
    for _, key in ipairs(redis.call('KEYS', '*')) do
      local kind = redis.call('TYPE', key).ok
      local range = kind == 'list' and {0, -1} or kind == 'zset' and {0, -1, 'WITHSCORES'} or {}
      all[#all + 1] = {key, kind, redis.call(read[kind], key, unpack(range)), redis.call('PTTL', key)}
    end
    return all";

/// Lua code that the test puts in front of each script. The script then gets the time from the argument `clock`, and
/// fixed values from INFO and from the hash function. PTTL returns 1 ms less than the server does: the result is always
/// below a ttl that the script has set a moment before.
fn known_server() -> String {
    format!(
        "local server, clock = redis, nil
        for i = 1, #ARGV, 2 do if ARGV[i] == 'clock' then clock = ARGV[i + 1] end end
        local function known(call)
          return function(command, ...)
            if command == 'TIME' then return {{string.sub(clock, 1, -7), string.sub(clock, -6)}} end
            if command == 'INFO' then return 'uptime_in_seconds:{UPTIME_S}\\r\\nrun_id:{RUN_ID}\\r\\n' end
            local reply = call(command, ...)
            return command == 'PTTL' and reply > 0 and reply - 1 or reply
          end
        end
        local redis = {{call = known(server.call), pcall = known(server.pcall), sha1hex = function() return '{NONCE}' end}}\n"
    )
}

fn clock_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros().try_into().unwrap()
}

fn is_left(actual: i64, expected: i64) -> bool {
    if expected < 0 { actual == expected } else { actual >= 0 && actual.abs_diff(expected) <= SLACK_MS }
}

/// True if the field `name` of an answer is as expected. Holders may come in any order; a run comes as a text.
fn matches(name: &str, expected: &Json, reply: &Reply) -> bool {
    match (expected, reply) {
        (Json::Null, Reply::Nil) => true,
        (Json::String(expected), Reply::Text(text)) => expected == text,
        (Json::Object(_), Reply::Text(text)) => run_or_text(text) == *expected,
        (Json::Number(expected), Reply::Int(n)) if name.ends_with("left") => is_left(*n, expected.as_i64().unwrap()),
        (Json::Number(expected), Reply::Int(n)) => expected.as_i64() == Some(*n),
        (Json::Array(expected), Reply::List(items)) => {
            let mut items = items.clone();
            if name == "holders" {
                items.sort_by_key(|holder| holder.text("value").to_owned());
            }
            expected.len() == items.len() && expected.iter().zip(&items).all(|(one, item)| matches("", one, item))
        }
        (Json::Object(fields), Reply::List(items)) => {
            let present: Vec<_> = fields.iter().filter(|(_, field)| !field.is_null()).collect();
            items.len() == 2 * present.len()
                && present.iter().all(|(name, field)| matches(name, field, reply.get(name)))
        }
        _ => false,
    }
}

fn run_or_text(text: &str) -> Json {
    if text.starts_with('{') { serde_json::from_str(text).unwrap() } else { json!(text) }
}

fn content(kind: &str, reply: &Reply) -> Json {
    let text = |reply: &Reply| if let Reply::Text(text) = reply { run_or_text(text) } else { Json::Null };
    match kind {
        "string" => text(reply),
        "list" => reply.items().iter().map(text).collect(),
        _ => {
            reply.items().chunks(2).map(|pair| (text(&pair[0]).as_str().unwrap().to_owned(), text(&pair[1]))).collect()
        }
    }
}

struct Run<'a> {
    seed: u64,
    described: &'static [Described],
    claims: &'static [&'static str],
    chance: Chance,
    /// The number of tries so far.
    tries: u64,
    scripts: Scripts,
    ears: PubSub<'a>,
    dump: Script,
    model: Model,
    /// The calls and commands so far, for the message of a failure.
    done: Vec<String>,
}

impl Run<'_> {
    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        let last = self.done.len().saturating_sub(12);
        panic!("seed {}: {what}\nafter\n  {}\nmodel: {:#?}", self.seed, self.done[last..].join("\n  "), self.model)
    }

    fn command(&mut self, words: &[&str]) {
        self.done.push(format!("{words:?}"));
        redis::cmd(words[0]).arg(&words[1..]).query::<redis::Value>(&mut self.scripts.connection).unwrap();
    }

    /// Each try has a token of its own.
    fn new_token(&mut self) -> String {
        self.tries += 1;
        format!("t{}", self.tries)
    }

    fn holders(&self) -> Vec<String> {
        match self.model.held_claim() {
            Some(_) => self.model.live_members(),
            None => self.model.value().into_iter().filter(|value| !value.is_empty()).map(str::to_owned).collect(),
        }
    }

    /// A token, mostly that of a holder, else that of one of the latest tries. Also the first part of a token that looks
    /// like `TOKEN.HOLD`.
    fn token(&mut self) -> String {
        let mut known = self.holders();
        if known.is_empty() || self.chance.percent(40) {
            known.extend((0..6).map(|back| format!("t{}", self.tries.saturating_sub(back))));
            known.push("ta".to_owned());
        }
        self.chance.one_of(&known.iter().collect::<Vec<_>>()).clone()
    }

    /// A claim, mostly the claim of the members.
    fn claim(&mut self) -> String {
        let known = self.model.held_claim().filter(|_| self.chance.percent(60));
        known.unwrap_or_else(|| self.chance.one_of(self.claims).to_owned())
    }

    /// The value of an argument, for a word in a [`Described`]. A word in capitals stands for a random value, or a
    /// value of the present state. Any other word is the value.
    fn value(&mut self, name: &str) -> String {
        match name {
            "TOKEN" => self.token(),
            "NEW" => self.new_token(),
            "HOLDER" => self.holders().pop().unwrap_or_else(|| self.new_token()),
            "WAITER" => self.chance.one_of(&WAITERS).to_owned(),
            "CLAIM" => self.claim(),
            "TTL" => self.chance.one_of(&TTLS).to_string(),
            // A number near the counter of fencing tokens.
            "NUMBER" => (self.model.counter.unwrap_or(3) + self.chance.one_of(&[-2, -1, 0, 1, 2])).max(0).to_string(),
            "BEGAN" => self.began().to_string(),
            "END" => self.end(),
            "ENTRY" => self.chance.word(ENTRY).to_owned(),
            _ => name.to_owned(),
        }
    }

    fn arguments(&mut self, script: &str, described: &'static str) {
        for argument in described.split(' ').flat_map(|part| if part == "OWNER" { OWNER } else { part }.split(' ')) {
            let (name, values) = argument.split_once('=').unwrap();
            let (name, percent) = name.split_once(':').unwrap_or((name, "100"));
            let values: Vec<_> = values.split('|').collect();
            let value = self.chance.one_of(&values);
            if self.chance.percent(percent.parse().unwrap()) {
                let value = self.value(value);
                self.model.args.insert(name, value);
            }
        }
        let waiter = self.model.args.get("waiter").cloned().unwrap_or_default();
        let claim = match waiter.get(..1) {
            None => self.claim(),
            Some("w") => "exclusive".to_owned(),
            Some("s") => "shared".to_owned(),
            _ => self.model.held_claim().filter(|held| limit(held).is_some()).unwrap_or("slots:2".to_owned()),
        };
        // A re-creation always names the slot of the lease.
        let names_slot = script == "recreate" || self.chance.percent(50);
        if let Some(limit) = limit(&claim).filter(|_| names_slot) {
            let slot = self.chance.below(u64::try_from(limit).unwrap());
            self.model.args.insert("slot", slot.to_string());
        }
        self.model.args.insert("claim", claim);
    }

    /// The end of a run, as a release reports it: the whole run, or only a status.
    fn end(&mut self) -> String {
        if self.chance.percent(20) {
            return format!(r#"{{"x":"{}"}}"#, self.chance.word("0|3"));
        }
        let token = self.model.token();
        let known = self.model.history.log.iter().find(|run| run["t"] == *token).map(|run| number(run, "b"));
        let began = known.filter(|_| self.chance.percent(80)).unwrap_or(self.began());
        let (fence, took, entry) = (self.chance.below(9), self.chance.below(5000), self.chance.word(ENTRY));
        let end = self.chance.word(r#""x":"0"|"x":"0"|"x":"3"|"s":"9"|"o":"lost"|"o":"lost"|"o":"too-long""#);
        let errors = self.chance.word(r#"|,"e":"one"|,"e":"two""#);
        format!(r#"{{"t":"{token}","b":"{began}","f":"{fence}","d":"{took}",{end}{errors},{}"#, &entry[1..])
    }

    /// The beginning of a run that the server has forgotten; in the future if the server's clock was set back.
    fn began(&mut self) -> i64 {
        self.model.ms() + 1000 - i64::try_from(self.chance.below(9000)).unwrap()
    }

    /// Makes a random call of a script, and compares the answer with the model's.
    fn call(&mut self) {
        self.model.us += 2000 + i64::try_from(self.chance.below(2000)).unwrap();
        let all: Vec<_> = self.described.iter().map(|&(weight, script, with)| (weight, (script, with))).collect();
        let (script, described) = self.chance.weighted(&all);
        self.model.args.clear();
        self.arguments(script, described);
        let clock = self.model.us.to_string();
        let arguments = self.model.args.iter().map(|(name, value)| (*name, value.as_str()));
        let arguments: Vec<_> = arguments.chain([("clock", clock.as_str())]).collect();
        let reply = self.scripts.run_with(script, &arguments);
        self.done.push(format!("{script} {arguments:?} -> {reply:?}"));
        let expected = self.model.call(script);
        if !matches("", &expected, &reply) {
            self.fail(&format!("{script} answered {reply:?}\nexpected {expected}"));
        }
    }

    /// Makes a change that no script makes: by time, by other programs, by the server, or by waiters.
    fn event(&mut self, alive: bool) {
        let others = |value: Option<&str>, ends| Some(Timed { value: value.map(str::to_owned), ends });
        match self.chance.below(24) {
            0..9 => {
                // These keys vanish: an exclusive lease has run out, or somebody has deleted the keys by hand.
                let lease = ["lock", "lease", "holds"];
                let keys = [
                    &lease,
                    &lease,
                    &lease[..1],
                    &lease[1..2],
                    &["reserved"],
                    &["queue"],
                    &["fence", "fences"],
                    &["newest"],
                    &["closed"],
                ];
                for key in self.chance.one_of(&keys) {
                    self.command(&["DEL", &if *key == "lock" { LOCK.to_owned() } else { part(key) }]);
                    self.model.delete(key);
                }
            }
            9 => {
                self.command(&["SET", LOCK, "ta.0"]);
                self.model.lock = others(Some("ta.0"), None);
            }
            10 => {
                self.command(&["SET", LOCK, "", "PX", "350000"]);
                self.model.lock = others(Some(""), Some(self.model.ms() + 350_000));
            }
            11 => {
                self.command(&["DEL", LOCK]);
                self.command(&["RPUSH", LOCK, "1"]);
                self.model.lock = others(None, None);
            }
            12..16 => self.run_out(),
            16..23 if alive => {
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
            23 => {
                self.command(&["FLUSHALL"]);
                self.model.forget_all();
            }
            _ => {}
        }
    }

    /// Lets the leases of some members run out now.
    fn run_out(&mut self) {
        let now = self.model.ms();
        for token in self.model.members.value.clone().into_keys() {
            if self.chance.percent(50) {
                self.command(&["ZADD", &part("members"), "XX", &now.to_string(), &token]);
                self.model.members.value.insert(token, now);
            }
        }
    }

    /// Compares the messages that waiters have heard with the model.
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
            let waiter = channel.strip_prefix(&part("w:")).unwrap().to_owned();
            heard.push((waiter, message.get_payload::<String>().unwrap()));
        }
        let expected = std::mem::take(&mut self.model.heard);
        if heard != expected {
            self.fail(&format!("heard {heard:?}\nexpected {expected:?}"));
        }
    }

    /// Compares what is in Redis with the model.
    fn compare(&mut self) {
        let dump: redis::Value = self.dump.invoke(&mut self.scripts.connection).unwrap();
        let mut keys = BTreeMap::new();
        for key in Reply::of(dump).items() {
            let [Reply::Text(name), Reply::Text(kind), value, Reply::Int(left)] = key.items() else {
                panic!("{key:?}")
            };
            let name = name.strip_prefix(BASE).unwrap_or("lock");
            keys.insert(name.to_owned(), (content(kind, value), *left));
        }
        let expected = self.model.keys();
        for name in keys.keys().chain(expected.keys()) {
            let (actual, expected) = (keys.get(name), expected.get(name));
            let is_same = |(actual, expected): (&(Json, i64), &(Json, i64))| {
                actual.0 == expected.0 && is_left(actual.1, expected.1)
            };
            if !actual.zip(expected).is_some_and(is_same) {
                self.fail(&format!("{name} is {actual:?}\nexpected {expected:?}"));
            }
        }
    }
}

/// The kind of calls that a test makes. `alive`: waiters live and die by chance; false: all are dead. `has_plain_way`:
/// the scripts use their special code for the plain case (an exclusive lease, an empty line); false: they use their
/// general code in all cases.
struct Calls {
    described: &'static [Described],
    claims: &'static [&'static str],
    alive: bool,
    has_plain_way: bool,
}

/// A step is a call of a script, or another change.
const CALLS: usize = 250;

/// Compares the scripts with the model, for each of these seeds.
fn agree(seeds: std::ops::Range<u64>, calls: &Calls) {
    let &Calls { described, claims, alive, has_plain_way } = calls;
    let redis = Redis::start();
    let mut constants = vec![("RESERVED_MS", RESERVED_MS.to_string())];
    constants.extend((!has_plain_way).then(|| ("is_plain", "false".to_owned())));
    for seed in seeds {
        redis.command(&["FLUSHALL"]);
        let mut listener = redis.connection();
        let mut ears = listener.as_pubsub();
        ears.subscribe(part("sync")).unwrap();
        let us = clock_us();
        let scripts = Scripts::changed(redis.connection(), &known_server(), &constants);
        let (chance, dump, model) = (Chance::new(seed), Script::new(DUMP), Model::new(us));
        let mut run = Run { seed, described, claims, chance, tries: 0, scripts, ears, dump, model, done: Vec::new() };
        for _ in 0..CALLS {
            if run.chance.percent(12) {
                run.event(alive);
            } else {
                run.call();
            }
            run.listen();
            run.compare();
        }
    }
}

const OF_ALL_KINDS: Calls = Calls { described: ALL, claims: CLAIMS, alive: true, has_plain_way: true };
const MOSTLY_USUAL: Calls = Calls { described: USUAL, claims: &["exclusive"], ..OF_ALL_KINDS };

#[test]
fn the_scripts_and_the_model_agree_when_waiters_live_and_die() {
    agree(1..21, &OF_ALL_KINDS);
}

#[test]
fn the_scripts_and_the_model_agree_when_all_waiters_are_dead() {
    agree(101..105, &Calls { alive: false, ..OF_ALL_KINDS });
}

#[test]
fn the_scripts_and_the_model_agree_when_most_calls_are_usual() {
    agree(201..211, &MOSTLY_USUAL);
}

/// The scripts have special code for the plain case. Their general code must have the same effects there.
#[test]
fn the_scripts_and_the_model_agree_when_usual_calls_go_the_way_of_all_others() {
    agree(201..211, &Calls { has_plain_way: false, ..MOSTLY_USUAL });
}
