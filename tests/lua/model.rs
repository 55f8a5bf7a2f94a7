//! A model of one lock, written from the description of the lock: who holds it, who waits, and (in history.rs) which
//! runs it has had. For each call of a script the model gives the answer, the messages, and the keys that are left.

use super::history::History;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

/// A sorted set: names, each with a number. Redis orders them by number, and names with the same number by name.
pub(super) type Scores = BTreeMap<String, i64>;
pub(super) type Record = BTreeMap<String, String>;

/// What the server is made to report as its uptime and its run_id.
pub(super) const UPTIME_S: i64 = 100;
pub(super) const RUN_ID: &str = "this";
/// The end of each mark (`shared.NONCE`), which the server's hash function always returns in the test.
pub(super) const NONCE: &str = "0123456789abcdef";
/// How long a free lock is reserved for a waiter: so long that no reservation for a waiter runs out in the test.
pub(super) const RESERVED_MS: i64 = 700_000;
/// How long Redis keeps the counters of fencing tokens, and the history.
const FENCE_MS: i64 = 100 * 24 * 3_600_000;
const LOG_MS: i64 = 101 * 24 * 3_600_000;

/// The value of a key, and the millisecond since 1970 at which the key expires (None: never).
#[derive(Clone, Debug, Default)]
pub(super) struct Timed<T> {
    pub(super) value: T,
    pub(super) ends: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    /// The server's clock: µs since 1970.
    pub(super) us: i64,
    /// The value of the lock's key: a token or a mark. The outer None: the lock is free. The inner None: the key is no
    /// string.
    pub(super) lock: Option<Timed<Option<String>>>,
    pub(super) lease: Option<Timed<Record>>,
    pub(super) records: BTreeMap<String, Timed<Record>>,
    /// Token → deadline in ms.
    pub(super) members: Timed<Scores>,
    pub(super) slots: Scores,
    /// Hold → time of its entry in µs; `base` → 0.
    pub(super) holds: Timed<Scores>,
    pub(super) counter: Option<i64>,
    /// Slot → its counter of fencing tokens; `all` → the largest of these counters.
    pub(super) counters: Scores,
    /// Waiter → ticket.
    pub(super) queue: Scores,
    pub(super) reserved: Option<Timed<String>>,
    /// Who has closed the lock.
    pub(super) closed: Option<Timed<String>>,
    /// The register of `--newest`: `N ms pid host label`. None: the server has no such key.
    pub(super) newest: Option<String>,
    pub(super) history: History,
    pub(super) listening: BTreeSet<String>,
    /// The messages that waiters have heard since the last comparison: (waiter, message).
    pub(super) heard: Vec<(String, String)>,
    pub(super) args: BTreeMap<&'static str, String>,
}

/// The result of [`Model::call_next`]. `Called` has the name of the waiter that was the first in line. `NotCalled`: the
/// claim of the first waiter does not fit, or the lock is reserved.
enum Next {
    Called(String),
    LineIsEmpty,
    NotCalled,
}

pub(super) fn limit(claim: &str) -> Option<i64> {
    claim.strip_prefix("slots:").map(|limit| limit.parse().unwrap())
}

fn texts(scores: &Scores) -> Json {
    scores.iter().map(|(name, score)| (name.clone(), json!(score.to_string()))).collect()
}

/// The names and numbers of a sorted set, in the order of Redis.
pub(super) fn in_order(scores: &Scores) -> Vec<(String, i64)> {
    let mut list: Vec<_> = scores.iter().map(|(name, score)| (name.clone(), *score)).collect();
    list.sort_by(|one, other| (one.1, &one.0).cmp(&(other.1, &other.0)));
    list
}

pub(super) fn node() -> Json {
    json!(format!("{UPTIME_S} {RUN_ID}"))
}

/// Calls and their arguments, deletions by others, and who holds the lock.
impl Model {
    pub(super) fn new(us: i64) -> Model {
        Model { us, ..Model::default() }
    }

    /// As if somebody had deleted it by hand.
    pub(super) fn delete(&mut self, key: &str) {
        match key {
            "lock" => self.lock = None,
            "lease" => self.lease = None,
            "holds" => self.holds = Timed::default(),
            "reserved" => self.reserved = None,
            "closed" => self.closed = None,
            "queue" => self.queue.clear(),
            "fence" => self.counter = None,
            "newest" => self.newest = None,
            _ => self.counters.clear(),
        }
    }

    /// Forgets all keys, as FLUSHALL does. Waiters that listen go on listening.
    pub(super) fn forget_all(&mut self) {
        let listening = std::mem::take(&mut self.listening);
        *self = Model { listening, ..Model::new(self.us) };
    }

    /// Changes the model as a call of this script with the arguments `args` changes the server, and returns the
    /// script's answer. A field that is null in the result is missing in the answer.
    pub(super) fn call(&mut self, script: &str) -> Json {
        self.sweep();
        match script {
            "take" => self.take(),
            "undo" => self.undo_take(),
            "extend" => self.extend(),
            "enter" => self.enter(),
            "recreate" => self.recreate(),
            "fence" => self.fence(),
            "try" => self.count(),
            "release" => self.release(),
            "revoke" => self.revoke(),
            "holds" => self.newest_hold(),
            "runs" => self.report_runs(),
            "close" => self.close(),
            _ => self.inspect(),
        }
    }

    pub(super) fn arg(&self, name: &str) -> Option<String> {
        self.args.get(name).cloned()
    }

    pub(super) fn int(&self, name: &str) -> Option<i64> {
        self.args.get(name).map(|text| text.parse().unwrap())
    }

    pub(super) fn token(&self) -> String {
        self.arg("token").unwrap_or_default()
    }

    pub(super) fn ms(&self) -> i64 {
        self.us / 1000
    }

    pub(super) fn value(&self) -> Option<&str> {
        self.lock.as_ref()?.value.as_deref()
    }

    /// None if no members hold the lock.
    pub(super) fn held_claim(&self) -> Option<String> {
        self.value()?.strip_suffix(NONCE)?.strip_suffix('.').map(str::to_owned)
    }

    /// An empty token never holds the lock, although another library may have written an empty value.
    pub(super) fn has(&self, token: &str) -> bool {
        match self.held_claim() {
            Some(_) => self.members.value.contains_key(token),
            None => !token.is_empty() && self.value() == Some(token),
        }
    }

    fn record(&self, token: &str) -> Option<&Record> {
        let record = if self.held_claim().is_some() { self.records.get(token) } else { self.lease.as_ref() };
        record.map(|record| &record.value)
    }

    fn record_mut(&mut self, token: &str) -> &mut Timed<Record> {
        match self.held_claim() {
            Some(_) => self.records.entry(token.to_owned()).or_default(),
            None => self.lease.get_or_insert_default(),
        }
    }

    /// A copy of the record of this token's lease; empty if another library took the lock. If the lease was revoked
    /// together with all others, the copy has the field `revoked`.
    fn own_record(&self, token: &str) -> Record {
        let owner = if self.held_claim().is_some() { Some(token) } else { self.value() };
        let record = self.record(token).filter(|record| record.get("token").map(String::as_str) == owner);
        let mut record = record.cloned().unwrap_or_default();
        if let Some(by) = self.revoked_by(&record) {
            record.insert("revoked".to_owned(), by);
        }
        record
    }

    /// The user who has revoked the lease of this record, or all leases at once.
    fn revoked_by(&self, record: &Record) -> Option<String> {
        if self.held_claim().is_none() || record.contains_key("revoked") {
            return record.get("revoked").cloned();
        }
        let (at, by) = self.lease.as_ref()?.value.get("revoked")?.split_once(' ')?;
        let since: i64 = record.get("since").map_or(0, |since| since.parse().unwrap());
        (since <= at.parse().unwrap() || since > self.us).then(|| by.to_owned())
    }

    fn until_end(&self, token: &str) -> i64 {
        match (self.held_claim(), &self.lock) {
            (Some(_), _) => self.members.value[token] - self.ms(),
            (None, Some(lock)) => lock.ends.map_or(-1, |ends| ends - self.ms()),
            (None, None) => -2,
        }
    }

    fn place_of(&self, token: &str) -> Option<String> {
        self.held_claim()?;
        self.slots.get(token).map(i64::to_string)
    }

    fn longest(&self) -> Option<String> {
        self.held_claim()?;
        self.lease.as_ref()?.value.get("longest").cloned()
    }

    fn holder(&self, token: &str) -> Json {
        let mut holder = json!({"value": token, "left": self.until_end(token), "claim": self.held_claim()});
        holder["slot"] = json!(self.place_of(token));
        if let Some(record) = self.record(token).filter(|record| record.get("token").is_some_and(|own| own == token)) {
            for (name, value) in record {
                holder[name] = json!(value);
            }
            holder["now"] = json!(self.us.to_string());
            holder["revoked"] = json!(self.revoked_by(record));
        }
        holder
    }

    /// An answer with this outcome and all holders. (A script names 10 holders at most. The test never has more.)
    fn with_holders(&self, outcome: &str) -> Json {
        let live = &self.members.value;
        match (self.held_claim(), self.value()) {
            (Some(_), _) => json!({
                "outcome": outcome, "holders": live.keys().map(|token| self.holder(token)).collect::<Vec<_>>(),
                "members": live.len(), "longest": self.longest(), "next": live.values().map(|ends| ends - self.ms()).min(),
            }),
            (None, Some(token)) => json!({"outcome": outcome, "holders": [self.holder(token)]}),
            (None, None) => json!({"outcome": outcome, "holders": [{"type": "list", "left": self.until_end("")}]}),
        }
    }

    /// Adds two fields to an answer: the node (uptime and run_id), and the longest ttl of a member.
    fn with_facts(&self, mut answer: Json) -> Json {
        (answer["node"], answer["longest"]) = (node(), json!(self.longest()));
        answer
    }

    fn is_taken(&self, slot: i64) -> bool {
        self.held_claim().is_some() && self.slots.values().any(|taken| *taken == slot)
    }

    pub(super) fn is_vacant(&self) -> bool {
        match self.held_claim() {
            None => self.lock.is_none(),
            Some(held) => self.arg("claim") == Some(held) && !self.int("slot").is_some_and(|slot| self.is_taken(slot)),
        }
    }

    fn without_lease(&self) -> Json {
        match self.is_vacant() {
            true => self.with_facts(json!({"outcome": "gone"})),
            false => self.with_holders("other"),
        }
    }
}

/// How leases begin, last and end.
impl Model {
    fn delete_mark(&mut self) {
        (self.lock, self.lease, self.members) = (None, None, Timed::default());
        self.slots.clear();
    }

    fn forget(&mut self, tokens: &[String]) {
        for token in tokens {
            self.members.value.remove(token);
            self.slots.remove(token);
            self.records.remove(token);
        }
    }

    /// Makes the keys `lock` and `lease` expire at `ends` (ms since 1970).
    fn end_at(&mut self, ends: i64) {
        self.lock.as_mut().unwrap().ends = Some(ends);
        self.lease.as_mut().into_iter().for_each(|lease| lease.ends = Some(ends));
    }

    /// Makes the lock's keys expire at the latest deadline of a member. Deletes them if no member is left.
    fn expire_all(&mut self) {
        match self.members.value.values().copied().max() {
            None => self.delete_mark(),
            Some(last) => {
                self.members.ends = Some(last);
                self.end_at(last);
            }
        }
    }

    /// Forgets the members whose leases have run out. Each script begins with this.
    fn sweep(&mut self) {
        if self.held_claim().is_none() {
            return;
        }
        let over = in_order(&self.members.value).into_iter().filter(|(_, ends)| *ends <= self.ms());
        let over: Vec<_> = over.map(|(token, _)| token).collect();
        self.forget(&over);
        if self.members.value.is_empty() {
            self.delete_mark();
        }
    }

    /// The member `token` lasts for `ttl` ms from now.
    fn expire(&mut self, token: &str, ttl: i64) {
        let ends = self.ms() + ttl;
        self.members.value.insert(token.to_owned(), ends);
        self.record_mut(token).ends = Some(ends + 1000);
        self.expire_all();
    }

    pub(super) fn live_members(&self) -> Vec<String> {
        let live = self.members.value.iter().filter(|(_, ends)| **ends > self.ms());
        live.map(|(token, _)| token.clone()).collect()
    }

    fn set_longest(&mut self, ttl: i64) {
        let lease = &mut self.lease.get_or_insert_default().value;
        let longest = lease.get("longest").map_or(0, |longest| longest.parse().unwrap());
        lease.insert("longest".to_owned(), ttl.max(longest).to_string());
    }

    fn counter(&self, slot: Option<&str>) -> i64 {
        slot.map_or(self.counter, |slot| self.counters.get(slot).copied()).unwrap_or(0)
    }

    /// The number of keys with fencing counters.
    pub(super) fn kinds_of_counters(&self) -> usize {
        usize::from(self.counter.is_some()) + usize::from(!self.counters.is_empty())
    }

    fn set_counter(&mut self, count: i64, slot: Option<&str>) {
        let Some(slot) = slot else {
            self.counter = Some(count);
            return;
        };
        let all = count.max(self.counter(Some("all")));
        self.counters.extend([(slot.to_owned(), count), ("all".to_owned(), all)]);
    }

    fn grant(&mut self, fence: i64, count: i64, slot: Option<i64>) {
        let (token, claim, ttl) = (self.token(), self.arg("claim").unwrap(), self.int("ttl").unwrap());
        let ends = Some(self.ms() + ttl);
        if self.lock.is_none() {
            self.delete_mark(); // the mark of an earlier lease
            self.holds = Timed::default();
            let value = if claim == "exclusive" { token.clone() } else { format!("{claim}.{NONCE}") };
            self.lock = Some(Timed { value: Some(value), ends });
        }
        self.slots.extend(slot.map(|slot| (token.clone(), slot)));
        self.set_counter(count, slot.map(|slot| slot.to_string()).as_deref());
        let since = self.us - 1000 * self.int("held").unwrap_or(0);
        let given = ["token", "ttl", "host", "pid", "user", "label", "renewal"].map(|name| (name, self.arg(name)));
        let once =
            self.arg("once").map(|_| if self.args.contains_key("labelled") { "labelled" } else { "1" }.to_owned());
        let known = [("fence", Some(fence.to_string())), ("since", Some(since.to_string())), ("once", once)];
        let fields = given.into_iter().chain(known).filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let record = self.record_mut(&token);
        record.value.extend(fields);
        record.ends = ends;
        if self.held_claim().is_some() {
            self.set_longest(ttl);
            self.expire(&token, ttl);
        }
    }

    /// Makes the lease of `token` last at least `ttl` ms from now. Returns the ms left (-1: the lease never expires).
    fn lengthen(&mut self, token: &str, ttl: i64) -> i64 {
        let left = self.until_end(token);
        if left < 0 || left >= ttl {
            return left;
        }
        if self.held_claim().is_some() {
            self.set_longest(ttl);
            self.expire(token, ttl);
        } else {
            self.end_at(self.ms() + ttl);
            self.holds.ends = Some(self.ms() + ttl);
        }
        ttl
    }

    /// Extends the lease of the call's token, and returns the ms left. The ttl is the argument `ttl`, else the one in
    /// `record`, else the argument `default`.
    fn extend_lease(&mut self, record: &Record) -> i64 {
        let token = self.token();
        let taken_for = record.get("ttl").map(|ttl| ttl.parse().unwrap());
        self.lengthen(&token, self.int("ttl").or(taken_for).or(self.int("default")).unwrap())
    }

    fn count_holds(&self) -> usize {
        self.holds.value.len().max(1)
    }

    fn add_hold(&mut self, hold: &str) {
        if self.holds.value.is_empty() && hold == "base" {
            return;
        }
        if self.holds.value.is_empty() {
            self.holds.value.insert("base".to_owned(), 0);
        }
        let entered = if hold == "base" { 0 } else { self.behind_all(&self.holds.value) };
        self.holds.value.entry(hold.to_owned()).or_insert(entered);
        self.holds.ends = self.lock.as_ref().unwrap().ends;
    }

    /// A score that is larger than all `scores`: the time in µs, but at least the largest score + 1.
    fn behind_all(&self, scores: &Scores) -> i64 {
        self.us.max(scores.values().max().map_or(0, |last| last + 1))
    }

    fn drop_lease(&mut self, token: &str) {
        if self.held_claim().is_some() {
            self.forget(&[token.to_owned()]);
            return self.expire_all();
        }
        (self.lock, self.lease, self.holds) = (None, None, Timed::default());
    }

    fn undo(&mut self, token: &str) -> bool {
        let granted = self.has(token);
        if granted {
            self.drop_lease(token);
        }
        self.delete_run(token);
        granted
    }

    fn undo_earlier(&mut self) -> bool {
        let earlier = self.arg("earlier").unwrap_or_default();
        let granted: Vec<bool> = earlier.split_whitespace().map(|token| self.undo(token)).collect();
        granted.contains(&true)
    }
}

/// Which waiter is called, and when.
impl Model {
    /// True if a lease with this claim may be granted beside the present leases.
    fn fits(&self, claim: &str) -> bool {
        let Some(held) = self.held_claim() else { return self.lock.is_none() };
        let taken = i64::try_from(self.slots.len()).unwrap();
        claim == held && limit(claim).is_none_or(|limit| taken < limit)
    }

    fn claim_of(&self, waiter: &str) -> String {
        let slots = self.held_claim().filter(|held| held != "shared" && waiter.starts_with('p'));
        slots.unwrap_or(if waiter.starts_with('s') { "shared" } else { "exclusive" }.to_owned())
    }

    fn first_in_line(&self) -> Option<String> {
        in_order(&self.queue).into_iter().next().map(|(waiter, _)| waiter)
    }

    /// Sends the waiter this message (`go` or `head`). If it is dead, drops it, and returns false.
    fn tell(&mut self, waiter: &str, what: &str) -> bool {
        if self.listening.contains(waiter) {
            self.heard.push((waiter.to_owned(), what.to_owned()));
            return true;
        }
        self.queue.remove(waiter);
        false
    }

    fn tell_first(&mut self) {
        while let Some(waiter) = self.first_in_line() {
            if self.tell(&waiter, "head") {
                return;
            }
        }
    }

    /// Calls the first live waiter in line, if its claim fits. Calls nobody if the lock is reserved already. `me`: the
    /// waiter that sends the request; None: the client does not wait. If it is the first in line, it leaves the line
    /// without being called.
    fn call_next(&mut self, me: Option<&str>) -> Next {
        if self.reserved.is_some() {
            self.tell_first();
            return Next::NotCalled;
        }
        while let Some(first) = self.first_in_line() {
            let is_me = me == Some(&first);
            if is_me || self.fits(&self.claim_of(&first)) {
                self.queue.remove(&first);
                self.tell_first();
                if is_me || self.tell(&first, "go") {
                    let ends = Some(self.ms() + RESERVED_MS);
                    self.reserved = (!is_me).then(|| Timed { value: first.clone(), ends });
                    return Next::Called(first);
                }
            } else if self.tell(&first, "head") {
                return Next::NotCalled;
            }
        }
        Next::LineIsEmpty
    }

    fn hand_over(&mut self) {
        self.call_next(None);
    }
}

/// What each script does and answers.
impl Model {
    fn take(&mut self) -> Json {
        let freed = self.undo_earlier();
        let answer = self.take_or_queue();
        if freed && answer["outcome"] != "granted" {
            self.hand_over();
        }
        answer
    }

    fn take_or_queue(&mut self) -> Json {
        let (me, token, claim) = (self.arg("waiter"), self.token(), self.arg("claim").unwrap());
        let (held, limit) = (self.held_claim(), limit(&claim));
        if self.has(&token) {
            self.lengthen(&token, self.int("ttl").unwrap());
            let record = self.record(&token).cloned().unwrap_or_default();
            let (fence, since) = (record.get("fence").map_or("0", String::as_str), record.get("since"));
            let began = since.map(|since| (since.parse::<i64>().unwrap() / 1000).to_string());
            let slot = self.place_of(&token);
            return self.with_facts(json!({"outcome": "granted", "fence": fence, "began": began, "slot": slot}));
        }
        if let Some(newest) = self.newest.clone().filter(|_| self.largest() > self.int("newest")) {
            self.note_visit(3);
            let clock = self.ms().to_string();
            return json!({"outcome": "superseded", "newest": newest, "clock": clock, "node": node()});
        }
        if let Some(ran) = self.recent_success() {
            self.note_visit(2);
            return ran;
        }
        if let Some(tried) = self.tried_enough() {
            self.note_visit(3);
            return tried;
        }
        if self.closed.is_some() {
            // A called waiter gives the call back.
            self.reserved.take_if(|reserved| me.as_ref() == Some(&reserved.value));
            return self.refused("closed");
        }
        if self.lock.is_some() && held.as_ref() != Some(&claim) {
            let is_other = self.value().is_some() && (limit.is_some() || held.is_some_and(|held| held != "shared"));
            if !is_other {
                return self.refused("held");
            }
            self.note_visit(3);
            return self.with_facts(self.with_holders("other-claim"));
        }
        if self.lock.is_none() && self.reserved.is_none() {
            self.keep_for_holder();
        }
        if self.int("quarantine").is_some_and(|quarantine| UPTIME_S < quarantine + 1) {
            return self.refused("quarantined");
        }
        if !self.fits(&claim) {
            return self.refused("held");
        }
        if let (Some(slot), Some(limit), false) = (self.int("slot"), limit, self.is_vacant()) {
            let round = (slot..limit).chain(0..slot);
            let free: Vec<i64> = round.filter(|slot| !self.is_taken(*slot)).collect();
            return self.with_facts(json!({"outcome": "taken", "free": free}));
        }
        let Some(reserved) = self.reserved.as_ref().map(|reserved| reserved.value.clone()) else {
            return self.take_or_call(me);
        };
        if me.as_ref() == Some(&reserved) {
            self.reserved = None;
            self.queue.remove(&reserved);
            return self.granted();
        }
        self.beside(&reserved)
    }

    /// Answers a TAKE while the lock is not reserved. Grants if no live waiter is in line, or if `me` is the first in
    /// line. Else calls the first live waiter. `me`: the waiter that sends the TAKE; None: the client does not wait.
    fn take_or_call(&mut self, me: Option<String>) -> Json {
        if self.queue.is_empty() {
            return self.granted();
        }
        if let (Some(me), Some(ticket)) = (&me, self.int("ticket")) {
            self.queue.entry(me.clone()).or_insert(ticket);
        }
        match self.call_next(me.as_deref()) {
            Next::LineIsEmpty => self.granted(),
            Next::Called(next) if Some(&next) == me.as_ref() => self.granted(),
            Next::Called(next) => self.beside(&next),
            Next::NotCalled => self.refused("held"),
        }
    }

    /// Answers a TAKE while the lock is reserved for another client. Grants if both clients want a shared lease, or
    /// both want a slot, if there is room for both leases, and if the line is empty. Else refuses. `reserved`: the
    /// other client, by the name of a waiter or the token of a holder.
    fn beside(&mut self, reserved: &str) -> Json {
        let claim = self.arg("claim").unwrap();
        let initial = if claim == "shared" { 's' } else { 'p' };
        let taken = i64::try_from(self.slots.len()).unwrap();
        let is_alike = reserved.starts_with(initial) && claim != "exclusive" && self.queue.is_empty();
        let has_room = self.held_claim().is_none() || limit(&claim).is_none_or(|limit| taken + 2 <= limit);
        if is_alike && has_room { self.granted() } else { self.refused("reserved") }
    }

    /// The number in the register of `--newest`. None if the register is empty, or if this call has no number.
    fn largest(&self) -> Option<i64> {
        self.args.get("newest")?;
        self.newest.as_ref()?.split(' ').next()?.parse().ok()
    }

    /// Writes the number of this call into the register of `--newest`, if the register has no number or a smaller one.
    fn raise_newest(&mut self) {
        if self.int("newest") > self.largest() {
            let [number, pid, host, label] = ["newest", "pid", "host", "label"].map(|name| self.args[name].clone());
            self.newest = Some(format!("{number} {} {pid} {host} {label}", self.ms()));
        }
    }

    fn granted(&mut self) -> Json {
        self.raise_newest();
        let claim = self.arg("claim").unwrap();
        let first_free = limit(&claim).and_then(|limit| (0..limit).find(|slot| !self.is_taken(*slot)));
        let slot = limit(&claim).and(self.int("slot").or(first_free));
        // The fencing token of a slot exceeds the slot's counter and the lock's counter; that of an exclusive lease
        // exceeds the lock's counter and all slots' counters. With a single node, `recreate` refuses a lease whose
        // fencing token is below one of these counters.
        let own = self.counter(slot.map(|slot| slot.to_string()).as_deref());
        let other = if slot.is_some() { self.counter(None) } else { self.counter(Some("all")) };
        let count = if claim == "shared" { own } else { own.max(other) };
        let clock = self.int("now").unwrap_or(0);
        let fence = match claim.as_str() {
            "shared" if count > 0 => count,
            "shared" => clock,
            _ => clock.max(count + 1),
        };
        self.grant(fence, fence, slot);
        self.begin_run(self.ms(), fence, slot);
        if self.held_claim().is_some() {
            self.hand_over();
        }
        self.note_visit(0);
        let (fence, began) = (fence.to_string(), self.ms().to_string());
        self.with_facts(json!({"outcome": "granted", "fence": fence, "began": began, "slot": slot}))
    }

    fn refused(&mut self, outcome: &str) -> Json {
        let left = self.reserved.as_ref().map_or(0, |reserved| reserved.ends.unwrap() - self.ms());
        let answer = match outcome {
            "held" => self.with_holders(outcome),
            "reserved" => json!({"outcome": outcome, "left": left}),
            "closed" => json!({"outcome": outcome, "left": self.closed_left(), "closed": self.closed_by()}),
            _ => json!({"outcome": outcome}),
        };
        let mut answer = self.with_facts(answer);
        let is_foreign = self.lock.is_some() && self.value().is_none();
        let has_come = self.arg("waiter").is_none_or(|me| !is_foreign && !self.queue.contains_key(&me));
        if has_come {
            self.note_visit(if outcome == "held" { 1 } else { 3 });
        }
        if let Some(me) = self.arg("waiter").filter(|_| !is_foreign) {
            let known = self.queue.get(&me).copied();
            let ticket = self.int("ticket").or(known).unwrap_or(self.behind_all(&self.queue));
            self.queue.entry(me.clone()).or_insert(ticket);
            answer["queued"] = if known.is_none() { json!(1) } else { Json::Null };
            answer["rank"] = json!(in_order(&self.queue).iter().position(|(waiter, _)| *waiter == me));
            answer["ticket"] = json!(ticket.to_string());
            self.raise_newest();
        }
        answer
    }

    /// The waiter that sends the TAKE may have seen a lease (`seen`). If the server has lost it in a restart, reserves
    /// the lock for its holder.
    fn keep_for_holder(&mut self) {
        let (Some(token), Some(left)) = (self.arg("seen"), self.int("seen_left")) else { return };
        let (fence, is_shared) = (self.int("seen_fence").unwrap(), self.args["seen_claim"] == "shared");
        let count = self.counter(self.arg("seen_slot").as_deref());
        let was_here = count > fence || count == fence && !is_shared;
        if self.args["seen_run_id"] != RUN_ID && left > 0 && !was_here {
            self.reserved = Some(Timed { value: token, ends: Some(self.ms() + left) });
        }
    }

    fn undo_take(&mut self) -> Json {
        let (me, granted) = (self.arg("waiter"), self.undo(&self.token()));
        if self.args.contains_key("stay") {
            if let (true, Some(me), Some(ticket)) = (granted, me, self.int("ticket")) {
                self.queue.entry(me).or_insert(ticket);
            }
            return json!({"outcome": "done"});
        }
        self.undo_earlier();
        self.queue.remove(&me.clone().unwrap_or_default());
        if me.is_some() && self.reserved.as_ref().map(|reserved| &reserved.value) == me.as_ref() {
            self.reserved = None;
        }
        self.hand_over();
        json!({"outcome": "done"})
    }

    /// Returns whether the call's token holds the lock, and the hold that the call names, if any. Another library's
    /// token may look like `TOKEN.HOLD`. If that token holds the lock, the result is true and None.
    fn find_hold(&self) -> (bool, Option<String>) {
        let (token, hold) = (self.token(), self.arg("hold"));
        let looks_so =
            hold.as_ref().is_some_and(|hold| self.held_claim().is_none() && self.has(&format!("{token}.{hold}")));
        if self.has(&token) { (true, hold) } else { (looks_so, None) }
    }

    fn extend(&mut self) -> Json {
        let (is_held, hold) = self.find_hold();
        if !is_held {
            return self.without_lease();
        }
        let record = self.own_record(&self.token());
        if let Some(by) = record.get("revoked") {
            return json!({"outcome": "revoked", "by": by});
        }
        let forgotten = hold.is_some_and(|hold| hold != "base" && !self.holds.value.contains_key(&hold));
        if forgotten && !self.args.contains_key("renew") {
            return json!({"outcome": "no-hold"});
        }
        let (left, forgotten) = (self.extend_lease(&record), forgotten.then_some(1));
        json!({"outcome": "extended", "left": left, "holds": self.count_holds(), "forgotten": forgotten, "node": node()})
    }

    fn enter(&mut self) -> Json {
        if self.held_claim().is_some() || !self.has(&self.token()) {
            return self.without_lease();
        }
        let record = self.own_record(&self.token());
        if record.contains_key("revoked") {
            return self.with_holders("other");
        }
        self.add_hold(&self.arg("hold").unwrap());
        let (left, ttl) = (self.extend_lease(&record), record.get("ttl").map(|ttl| ttl.parse::<i64>().unwrap()));
        let (holds, fence) = (self.count_holds(), record.get("fence"));
        json!({"outcome": "extended", "fence": fence, "holds": holds, "left": left, "ttl": ttl, "node": node()})
    }

    fn recreate(&mut self) -> Json {
        let (token, slot, fence) = (self.token(), self.arg("slot"), self.int("fence").unwrap());
        let was_here = self.has(&token);
        if self.arg("run_id").as_deref() != Some(RUN_ID) {
            return json!({"outcome": "restarted"});
        }
        if !was_here {
            if !self.is_vacant() {
                return self.without_lease();
            }
            let count = self.counter(slot.as_deref());
            let others = if slot.is_some() { self.counter(None) } else { self.counter(Some("all")) };
            if self.args.contains_key("alone") && count.max(others) > fence {
                return json!({"outcome": "higher"});
            }
            self.grant(fence, count.max(fence), self.int("slot"));
            if self.history.log.iter().all(|run| run["t"] != token) {
                self.begin_run(self.int("began").unwrap(), fence, self.int("slot"));
            }
            if self.args.contains_key("tries") {
                self.count_try(self.int("began").unwrap());
            }
            self.raise_newest();
            let is_mine = |reserved: &Timed<String>| reserved.value == token;
            if self.held_claim().is_none() || self.reserved.as_ref().is_some_and(is_mine) {
                self.reserved = None;
            }
        }
        let record = self.own_record(&token);
        if let Some(by) = record.get("revoked") {
            return json!({"outcome": "revoked", "by": by});
        }
        let left = if was_here { self.extend_lease(&record) } else { self.int("ttl").unwrap() };
        if let (Some(hold), None) = (self.arg("hold"), self.held_claim()) {
            self.add_hold(&hold);
        }
        json!({"outcome": "extended", "left": left, "holds": self.count_holds(), "node": node()})
    }

    fn count(&mut self) -> Json {
        let token = self.token();
        if !self.has(&token) {
            return self.without_lease();
        }
        let since = self.record(&token).and_then(|record| record.get("since"));
        let began = since.map_or(self.ms(), |since| since.parse::<i64>().unwrap() / 1000);
        self.count_try(began);
        json!({"outcome": "counted"})
    }

    fn fence(&mut self) -> Json {
        let (token, slot, fence) = (self.token(), self.arg("slot"), self.int("fence").unwrap());
        if !self.has(&token) {
            return self.without_lease();
        }
        let count = self.counter(slot.as_deref());
        if count > fence && self.held_claim().as_deref() != Some("shared") {
            return json!({"outcome": "higher"});
        }
        self.set_counter(count.max(fence), slot.as_deref());
        if self.record(&token).is_some() {
            self.record_mut(&token).value.insert("fence".to_owned(), fence.to_string());
        }
        json!({"outcome": "raised"})
    }

    fn release(&mut self) -> Json {
        let (is_held, hold) = self.find_hold();
        if is_held {
            return self.release_hold(hold);
        }
        let known = self.end_without_lease();
        let (token, hold) = (self.token(), self.arg("hold"));
        let is_outer = hold.is_none_or(|hold| hold == "base");
        let is_promised = self.reserved.as_ref().is_some_and(|reserved| reserved.value == token);
        if self.lock.is_some() && self.held_claim().is_none() || !is_outer || !is_promised {
            let mut answer = self.without_lease();
            (answer["known"], answer["node"]) = (json!(known), node());
            return answer;
        }
        self.reserved = None;
        self.hand_over();
        json!({"outcome": "released"})
    }

    fn release_hold(&mut self, hold: Option<String>) -> Json {
        let token = self.token();
        let mut hold = hold;
        let holds = in_order(&self.holds.value);
        if let Some((newest, _)) = holds.last() {
            if !self.args.contains_key("hold") {
                return json!({"outcome": "newest", "hold": newest});
            }
            hold = hold.or(Some(newest.clone()));
            self.holds.value.remove(hold.as_ref().unwrap());
        } else if hold.as_ref().is_some_and(|hold| hold != "base") {
            return json!({"outcome": "still-held", "holds": 1});
        }
        if hold.is_none_or(|hold| hold == "base") {
            let by = self.record(&token).and_then(|record| self.revoked_by(record));
            self.end_released(by);
        }
        if !self.holds.value.is_empty() {
            return json!({"outcome": "still-held", "holds": self.count_holds()});
        }
        self.drop_lease(&token);
        self.hand_over();
        json!({"outcome": "released"})
    }

    fn revoke(&mut self) -> Json {
        let named = self.arg("token");
        let by_force = self.args.contains_key("force");
        match (self.value().map(str::to_owned), &named) {
            _ if self.lock.is_none() => return self.without_lease(),
            (None, _) => return self.with_holders("foreign"),
            (Some(_), Some(token)) if !self.has(token) => return self.with_holders("other"),
            _ => {}
        }
        let token = named.or(self.value().filter(|_| self.held_claim().is_none()).map(str::to_owned));
        if token.as_ref().is_some_and(|token| !by_force && !self.own_record(token).contains_key("ttl")) {
            return self.with_holders("foreign");
        }
        let mut answer = self.with_holders("revoked");
        if let (Some(token), true) = (&token, self.held_claim().is_some()) {
            answer = json!({"holders": [self.holder(token)]});
        }
        answer["outcome"] = json!(match &token {
            Some(token) => self.end_one(token, by_force),
            None if by_force => self.force_all(),
            None => self.revoke_all(),
        });
        if self.held_claim().is_some() || self.lock.is_none() {
            self.hand_over();
        }
        answer
    }

    fn end_one(&mut self, token: &str, by_force: bool) -> &'static str {
        let by = self.arg("by").unwrap();
        if !by_force {
            let record = &mut self.record_mut(token).value;
            record.entry("revoked".to_owned()).or_insert(by);
            return "revoked";
        }
        self.end_run(token, json!({"o": "revoked", "y": by}));
        let slot = self.place_of(token);
        self.drop_lease(token);
        self.set_counter(self.counter(slot.as_deref()) + 1, slot.as_deref());
        "released"
    }

    fn force_all(&mut self) -> &'static str {
        for run in self.history.log.clone() {
            let token = run["t"].as_str().unwrap();
            if self.has(token) {
                self.end_run(token, json!({"o": "revoked", "y": self.arg("by")}));
            }
        }
        let all: Vec<_> = self.members.value.keys().cloned().collect();
        self.forget(&all);
        self.delete_mark();
        self.set_counter(self.counter(None).max(self.counter(Some("all"))) + 1, None);
        "released"
    }

    fn revoke_all(&mut self) -> &'static str {
        let signed = format!("{} {}", self.us, self.args["by"]);
        let lease = &mut self.lease.get_or_insert_default().value;
        lease.insert("revoked".to_owned(), signed);
        "revoked"
    }

    fn newest_hold(&self) -> Json {
        if !self.has(&self.token()) {
            return self.without_lease();
        }
        let newest = in_order(&self.holds.value).pop().unwrap_or(("base".to_owned(), 0));
        json!({"outcome": "newest", "hold": newest.0, "entered": newest.1.to_string()})
    }

    fn inspect(&self) -> Json {
        let left = self.reserved.as_ref().map_or(-2, |reserved| reserved.ends.unwrap() - self.ms());
        let mut answer = match (&self.lock, &self.reserved) {
            (Some(_), _) => self.with_holders("held"),
            (None, None) => json!({"outcome": "free", "left": left, "node": node()}),
            (None, Some(_)) => json!({"outcome": "reserved", "left": left, "node": node()}),
        };
        let holds = if self.held_claim().is_some() { 1 } else { self.count_holds() };
        for holder in answer["holders"].as_array_mut().into_iter().flatten() {
            holder["holds"] = json!(holds);
        }
        let first: Vec<_> = in_order(&self.queue).into_iter().take(2).collect();
        let listening = first.iter().map(|(waiter, _)| i32::from(self.listening.contains(waiter)));
        answer["listening"] = if first.is_empty() { Json::Null } else { listening.collect() };
        answer["waiters"] =
            json!(first.into_iter().flat_map(|(name, ticket)| [name, ticket.to_string()]).collect::<Vec<_>>());
        (answer["waiting"], answer["clock"]) = (json!(self.queue.len()), json!(self.ms().to_string()));
        (answer["closed"], answer["closed_left"]) = (json!(self.closed_by()), json!(self.closed_left()));
        answer
    }

    fn close(&mut self) -> Json {
        let ends = self.int("ttl").map(|ttl| self.ms() + ttl);
        let opened = (ends.is_none() && self.closed.is_some()).then_some(1);
        self.closed = ends.map(|ends| Timed { value: self.args["by"].clone(), ends: Some(ends) });
        if self.closed.is_none() {
            self.hand_over();
        }
        json!({"outcome": "done", "held": self.value().map(|_| 1), "opened": opened})
    }

    fn closed_by(&self) -> Option<String> {
        self.closed.as_ref().map(|closed| closed.value.clone())
    }

    fn closed_left(&self) -> Option<i64> {
        self.closed.as_ref().map(|closed| closed.ends.unwrap() - self.ms())
    }
}

/// The keys that the scripts must leave in Redis.
impl Model {
    /// Name of a key → its content, and the ms until the key expires (-1: never).
    pub(super) fn keys(&self) -> BTreeMap<String, (Json, i64)> {
        let left = |ends: Option<i64>| ends.map_or(-1, |ends| ends - self.ms());
        let (members, holds, history) = (&self.members, &self.holds, &self.history);
        let lock =
            self.lock.as_ref().map(|lock| (lock.value.as_ref().map_or(json!(["1"]), |value| json!(value)), lock.ends));
        let timed = [
            ("lock", lock),
            ("lease", self.lease.as_ref().map(|lease| (json!(lease.value), lease.ends))),
            ("reserved", self.reserved.as_ref().map(|reserved| (json!(reserved.value), reserved.ends))),
            ("closed", self.closed.as_ref().map(|closed| (json!(closed.value), closed.ends))),
        ];
        let timed = timed.into_iter().filter_map(|(name, key)| key.map(|(value, ends)| (name, value, left(ends))));
        let lists = [
            ("fence", json!(self.counter.map_or(String::new(), |counter| counter.to_string())), FENCE_MS),
            ("newest", json!(self.newest.clone().unwrap_or_default()), FENCE_MS),
            ("queue", texts(&self.queue), 900_000),
            ("holds", texts(&holds.value), left(holds.ends)),
            ("members", texts(&members.value), left(members.ends)),
            ("slots", texts(&self.slots), left(members.ends)),
            ("fences", texts(&self.counters), FENCE_MS),
            ("log", json!(history.log), LOG_MS),
            ("runs", json!(history.runs), LOG_MS),
            ("visits", texts(&history.visits), LOG_MS),
            ("tries", texts(&history.tries), LOG_MS),
        ];
        let lists = lists.into_iter().filter(|(_, list, _)| ![json!({}), json!([]), json!("")].contains(list));
        let record = |(token, record): (&String, &Timed<Record>)| {
            (format!("member:{token}"), (json!(record.value), left(record.ends)))
        };
        let keys = timed.chain(lists).map(|(name, value, left)| (name.to_owned(), (value, left)));
        keys.chain(self.records.iter().map(record)).collect()
    }
}
