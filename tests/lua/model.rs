//! What the scripts do to one lock, said once more in Rust: the lock, the record of its lease, its holds, the fencing
//! counter, the queue and the reservation. Written from the description of the lock, not from the Lua.

use std::collections::{BTreeMap, BTreeSet};

/// How long a free lock is kept for a waiter that was called.
pub(super) const RESERVED_MS: i64 = 1000;

/// What an answer must look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Text(String),
    Int(i64),
    List(Vec<Expected>),
    /// An expiry: about so many milliseconds are left; −1 and −2 exactly.
    Left(i64),
    /// The server's clock in microseconds, as text.
    Now,
    /// Uptime and identity of the node.
    Identity,
    /// An owner record and the time.
    Record(BTreeMap<String, String>),
}

/// The quarantine that a young node of these tests is asked for.
pub(super) const YOUNG_S: i64 = 1_000_000;

/// What stands in a record instead of the time of day.
pub(super) const SOME_TIME: &str = "some time";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    /// Another type than a string.
    Other,
}

/// Something with an expiry, at this millisecond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timed<T> {
    pub(super) value: T,
    pub(super) ends: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    /// Milliseconds since the start.
    pub(super) now: i64,
    pub(super) lock: Option<Timed<Value>>,
    pub(super) lease: Option<Timed<BTreeMap<String, String>>>,
    pub(super) counter: Option<u64>,
    /// Ticket, waiter; the first in line first.
    pub(super) queue: BTreeSet<(u64, String)>,
    pub(super) reserved: Option<Timed<String>>,
    /// The oldest first.
    pub(super) holds: Option<Timed<Vec<String>>>,
    /// Until when a hold has made the lease last, beyond what it was taken for.
    pub(super) extended: BTreeMap<String, i64>,
    pub(super) listening: BTreeSet<String>,
    /// Channel and text of what somebody heard.
    pub(super) heard: Vec<(String, String)>,
}

/// What a waiter remembers of a lease that it saw.
pub(super) struct Seen<'a> {
    pub(super) token: &'a str,
    /// On another run of the server than the present one.
    pub(super) before: bool,
    pub(super) left: i64,
    pub(super) fence: u64,
}

pub(super) struct Owner<'a> {
    pub(super) host: &'a str,
    pub(super) label: &'a str,
}

fn text(text: impl Into<String>) -> Expected {
    Expected::Text(text.into())
}

fn list<const N: usize>(items: [Expected; N]) -> Expected {
    Expected::List(items.into())
}

fn gone() -> Expected {
    list([text("gone"), Expected::Identity])
}

impl Model {
    fn value(&self) -> Option<&str> {
        match &self.lock {
            Some(Timed { value: Value::Text(value), .. }) => Some(value),
            _ => None,
        }
    }

    fn is_other_type(&self) -> bool {
        matches!(self.lock, Some(Timed { value: Value::Other, .. }))
    }

    /// Whether this token holds the lock. Nobody's token is empty, whatever others write.
    fn is_ours(&self, token: &str) -> bool {
        !token.is_empty() && self.value() == Some(token)
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.lease.as_ref()?.value.get(name).map(String::as_str)
    }

    fn left_of(&self, ends: Option<i64>) -> i64 {
        ends.map_or(-1, |ends| ends - self.now)
    }

    fn left(&self) -> Expected {
        Expected::Left(self.lock.as_ref().map_or(-2, |lock| self.left_of(lock.ends)))
    }

    fn owner(&self) -> Expected {
        match &self.lease {
            Some(lease) if lease.value.get("token").map(String::as_str) == self.value() => {
                Expected::Record(lease.value.clone())
            }
            _ => list([]),
        }
    }

    /// `other`, with what is known of it.
    fn other(&self) -> Expected {
        if self.is_other_type() {
            return list([text("other"), text(""), self.left(), list([])]);
        }
        list([text("other"), text(self.value().unwrap_or("")), self.left(), self.owner()])
    }

    fn foreign(&self) -> [Expected; 3] {
        [text("foreign"), text("list"), self.left()]
    }

    fn count_holds(&self) -> Expected {
        let holds = self.holds.as_ref().map_or(0, |holds| holds.value.len());
        Expected::Int(i64::try_from(holds.max(1)).unwrap())
    }

    /// What is recorded of the ttl of the lease that holds the lock.
    fn recorded(&self) -> Option<i64> {
        let ours = self.lease.is_some() && self.field("token") == self.value();
        ours.then(|| self.field("ttl"))?.map(|ttl| ttl.parse().unwrap())
    }

    /// Enters a hold, the one that took the lock always before the others. Once given up, that one stays so.
    fn add_hold(&mut self, hold: &str) {
        if self.holds.is_none() && hold == "base" {
            return;
        }
        let ends = self.lock.as_ref().and_then(|lock| lock.ends);
        let holds = self.holds.get_or_insert(Timed { value: vec!["base".to_owned()], ends: None });
        if !holds.value.iter().any(|known| known == hold) {
            let at = if hold == "base" { 0 } else { holds.value.len() };
            holds.value.insert(at, hold.to_owned());
        }
        holds.ends = ends;
    }

    /// A hold makes the lease last longer than it was taken for.
    fn note_end(&mut self, hold: &str, ttl: i64) {
        if self.recorded().is_none_or(|recorded| ttl <= recorded) {
            return;
        }
        let ends = self.extended.entry(hold.to_owned()).or_default();
        *ends = (*ends).max(self.now + ttl);
        if let Some(lease) = &mut self.lease {
            lease.value.insert(format!("to:{hold}"), SOME_TIME.to_owned());
        }
    }

    fn tells(&mut self, waiter: &str, what: &str) -> bool {
        let hears = self.listening.contains(waiter);
        if hears {
            self.heard.push((format!("w:{waiter}"), what.to_owned()));
        }
        hears
    }

    /// Whoever is first keeps watch from now on; the dead are dropped.
    fn tell(&mut self) {
        while let Some((ticket, waiter)) = self.queue.first().cloned() {
            if self.tells(&waiter, "head") {
                return;
            }
            self.queue.remove(&(ticket, waiter));
        }
    }

    /// Reserves the free lock for the first who hears, unless that is `me`. Returns who it is.
    fn pass(&mut self, me: &str) -> Option<String> {
        while let Some((_, waiter)) = self.queue.pop_first() {
            self.tell();
            if waiter == me {
                return Some(waiter);
            }
            if self.tells(&waiter, "go") {
                self.reserved = Some(Timed { value: waiter.clone(), ends: Some(self.now + RESERVED_MS) });
                return Some(waiter);
            }
        }
        None
    }

    fn hand_over(&mut self) {
        if self.pass("").is_none() {
            self.heard.push(("free".to_owned(), "free".to_owned()));
        }
    }

    fn free(&mut self) {
        self.lock = None;
        self.lease = None;
        self.holds = None;
        self.extended.clear();
    }

    fn write(&mut self, token: &str, ttl: i64, fence: u64, by: &Owner<'_>) {
        let ends = Some(self.now + ttl);
        self.lock = Some(Timed { value: Value::Text(token.to_owned()), ends });
        self.holds = None;
        self.extended.clear();
        let fields = [
            ("token", token),
            ("fence", &fence.to_string()),
            ("ttl", &ttl.to_string()),
            ("since", SOME_TIME),
            ("host", by.host),
            ("pid", "1"),
            ("user", "u"),
            ("label", by.label),
        ];
        let value = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        self.lease = Some(Timed { value, ends });
    }

    /// At least this long, never shorter than before.
    fn lengthen(&mut self, ttl: i64) -> Expected {
        let left = self.lock.as_ref().map_or(-2, |lock| self.left_of(lock.ends));
        if left < 0 || left >= ttl {
            return Expected::Left(left);
        }
        let ends = Some(self.now + ttl);
        if let Some(lock) = &mut self.lock {
            lock.ends = ends;
        }
        if let Some(lease) = &mut self.lease {
            lease.ends = ends;
        }
        if let Some(holds) = &mut self.holds {
            holds.ends = ends;
        }
        Expected::Left(ttl)
    }

    fn ticket_of(&self, waiter: &str) -> Option<u64> {
        self.queue.iter().find(|(_, known)| known == waiter).map(|(ticket, _)| *ticket)
    }

    fn line_up(&mut self, waiter: &str, ticket: u64) {
        if self.ticket_of(waiter).is_none() {
            self.queue.insert((ticket, waiter.to_owned()));
        }
    }

    fn drop_out(&mut self, waiter: &str) {
        self.queue.retain(|(_, known)| known != waiter);
    }

    /// `ticket` is the one asked for; `given` what the server says if it has to give one, and its clock then.
    #[expect(clippy::too_many_arguments, reason = "they are the script's")]
    pub(super) fn take(
        &mut self,
        me: &str,
        token: &str,
        ttl: i64,
        ticket: Option<u64>,
        clock: u64,
        by: &Owner<'_>,
        quarantine: bool,
        seen: Option<&Seen<'_>>,
        given: Option<u64>,
        server_us: u64,
    ) -> Expected {
        let who = Expected::Identity;
        if self.is_other_type() {
            let [word, kind, left] = self.foreign();
            return list([word, kind, left, who]);
        }
        if self.is_ours(token) {
            self.lengthen(ttl);
            return list([text("granted"), text(self.field("fence").unwrap_or("0")), who]);
        }
        let forgotten = |seen: &&Seen<'_>| seen.before && seen.left > 0 && self.counter.unwrap_or(0) < seen.fence;
        if let Some(seen) = seen.filter(forgotten).filter(|_| self.lock.is_none() && self.reserved.is_none()) {
            self.reserved = Some(Timed { value: seen.token.to_owned(), ends: Some(self.now + seen.left) });
        }
        if self.lock.is_none() && quarantine {
            let [rank, told, queued] = self.place(me, ticket, given, server_us);
            return list([text("young"), Expected::Left(YOUNG_S), who, rank, told, queued]);
        }
        if self.lock.is_none() {
            let grant = if let Some(reserved) = &self.reserved {
                let ours = !me.is_empty() && reserved.value == me;
                if ours {
                    self.reserved = None;
                    self.drop_out(me);
                }
                ours
            } else if self.queue.is_empty() {
                true
            } else {
                if let (false, Some(ticket)) = (me.is_empty(), ticket) {
                    self.line_up(me, ticket);
                }
                self.pass(me).is_none_or(|next| next == me)
            };
            if grant {
                let fence = (self.counter.unwrap_or(0) + 1).max(clock);
                self.counter = Some(fence);
                self.write(token, ttl, fence, by);
                return list([text("granted"), text(fence.to_string()), who]);
            }
        }
        let [rank, told, queued] = self.place(me, ticket, given, server_us);
        let (left, owner, reserved) = match &self.reserved {
            _ if self.lock.is_some() => (self.left(), self.owner(), 0),
            Some(reserved) => (Expected::Left(self.left_of(reserved.ends)), list([]), 1),
            None => unreachable!("free, not reserved, and not granted"),
        };
        let value = text(self.value().unwrap_or(""));
        list([text("held"), value, left, owner, who, rank, told, queued, Expected::Int(reserved)])
    }

    /// Puts a waiter into the line: rank, ticket, whether it was not there before.
    fn place(&mut self, me: &str, ticket: Option<u64>, given: Option<u64>, server_us: u64) -> [Expected; 3] {
        let (mut rank, mut queued) = (-1, 0);
        let mut told = ticket.map_or(String::new(), |ticket| ticket.to_string());
        if !me.is_empty() {
            if self.ticket_of(me).is_none() {
                let ticket = ticket.unwrap_or_else(|| {
                    let last = self.queue.last().map_or(0, |(ticket, _)| *ticket);
                    let given = given.unwrap();
                    let by_clock = server_us.abs_diff(given) < 60_000_000;
                    assert!(given == last + 1 || by_clock && given > last, "ticket {given}");
                    given
                });
                self.line_up(me, ticket);
                queued = 1;
            }
            rank = self.queue.iter().position(|(_, waiter)| waiter == me).unwrap().try_into().unwrap();
            told = ticket.or(self.ticket_of(me)).unwrap().to_string();
        }
        [Expected::Int(rank), text(told), Expected::Int(queued)]
    }

    pub(super) fn fence(&mut self, token: &str, fence: u64) -> Expected {
        if !self.is_ours(token) {
            return list([text("gone")]);
        }
        if let Some(counter) = self.counter.filter(|&counter| counter > fence) {
            return list([text("higher"), text(counter.to_string())]);
        }
        self.counter = Some(fence);
        if let Some(lease) = &mut self.lease {
            lease.value.insert("fence".to_owned(), fence.to_string());
        }
        list([text("granted"), text(fence.to_string())])
    }

    pub(super) fn leave(&mut self, me: &str, token: &str) -> Expected {
        if self.is_ours(token) {
            self.free();
        }
        self.drop_out(me);
        if !me.is_empty() && self.reserved.as_ref().is_some_and(|reserved| reserved.value == me) {
            self.reserved = None;
        }
        if self.lock.is_none() && self.reserved.is_none() {
            self.hand_over()
        } else {
            self.tell()
        }
        list([text("left")])
    }

    pub(super) fn rollback(&mut self, me: &str, token: &str, ticket: Option<u64>) -> Expected {
        if self.is_ours(token) {
            self.free();
        }
        if !me.is_empty() {
            self.reserved.take_if(|reserved| reserved.value == me);
            if let Some(ticket) = ticket {
                self.line_up(me, ticket);
            }
        }
        list([text("left")])
    }

    pub(super) fn extend(&mut self, token: &str, stem: &str, ttl: i64, unknown: i64, hold: &str) -> Expected {
        if self.lock.is_none() {
            return gone();
        }
        if !self.is_ours(token) && !self.is_ours(stem) {
            return self.other();
        }
        let recorded = self.field("token") == self.value();
        let field = |name| if recorded { self.field(name) } else { None };
        if let Some(by) = field("revoked") {
            return list([text("revoked"), text(by)]);
        }
        let fence = field("fence").unwrap_or("").to_owned();
        let by = if self.is_ours(token) { "base" } else { &token[stem.len() + 1..] };
        let entered =
            |hold: &str| self.holds.as_ref().is_some_and(|holds| holds.value.iter().any(|known| known == hold));
        if by != "base" && !entered(by) {
            return list([text("no-hold"), self.count_holds()]);
        }
        let ttl = if ttl > 0 { ttl } else { self.recorded().unwrap_or(unknown) };
        let left = self.lengthen(ttl);
        self.note_end(by, ttl);
        if !hold.is_empty() {
            self.add_hold(hold);
        }
        list([text("extended"), left, self.count_holds(), text(fence), Expected::Identity])
    }

    pub(super) fn enter(&mut self, token: &str, hold: &str, ttl: i64, unknown: i64) -> Expected {
        if self.lock.is_none() {
            return gone();
        }
        let revoked = self.recorded().is_some() && self.field("revoked").is_some();
        if !self.is_ours(token) || revoked {
            return self.other();
        }
        self.add_hold(hold);
        let recorded = self.recorded();
        let ttl = if ttl > 0 { ttl } else { recorded.unwrap_or(unknown) };
        let left = self.lengthen(ttl);
        self.note_end(hold, ttl);
        let fence = recorded.and_then(|_| self.field("fence")).unwrap_or("0").to_owned();
        let recorded = Expected::Int(recorded.unwrap_or(0));
        list([text("granted"), text(fence), self.count_holds(), left, recorded, Expected::Identity])
    }

    pub(super) fn release(&mut self, token: &str, stem: &str, hold: &str, keep: i64) -> Expected {
        if self.lock.is_none() {
            return match &mut self.reserved {
                Some(reserved) if !token.is_empty() && reserved.value == token => {
                    if keep > 0 {
                        reserved.ends = Some(self.now + keep);
                    } else {
                        self.reserved = None;
                        self.hand_over();
                    }
                    list([text("released")])
                }
                _ => gone(),
            };
        }
        let plain = self.is_ours(token);
        if !plain && !self.is_ours(stem) {
            return self.other();
        }
        let hold = if plain && hold != "base" { "newest" } else { hold };
        match &mut self.holds {
            Some(holds) => {
                let hold = match hold {
                    "newest" => holds.value.pop().unwrap(),
                    hold => {
                        holds.value.retain(|known| known != hold);
                        hold.to_owned()
                    }
                };
                if !holds.value.is_empty() {
                    self.extended.remove(&hold);
                    if let Some(lease) = &mut self.lease {
                        lease.value.remove(&format!("to:{hold}"));
                    }
                    self.shorten();
                    return list([text("still-held"), self.count_holds()]);
                }
                self.holds = None;
            }
            None if hold != "base" && hold != "newest" => {
                return list([text("still-held"), Expected::Int(1)]);
            }
            None => {}
        }
        if keep > 0 {
            let ends = Some(self.now + keep);
            if let Some(lock) = &mut self.lock {
                lock.ends = ends;
            }
            let lease = self.lease.get_or_insert(Timed { value: BTreeMap::new(), ends });
            lease.ends = ends;
            lease.value.insert("kept".to_owned(), SOME_TIME.to_owned());
        } else {
            self.free();
            self.hand_over();
        }
        list([text("released")])
    }

    /// A hold has ended: the lease lasts no longer than what it was taken for, and what the others have asked for.
    fn shorten(&mut self) {
        let Some(recorded) = self.recorded() else { return };
        let asked = self.extended.values().copied().max().unwrap_or(0);
        let ends = asked.max(self.now + recorded);
        if self.lock.as_ref().and_then(|lock| lock.ends).is_some_and(|known| known > ends) {
            let ends = Some(ends);
            self.lock.iter_mut().for_each(|lock| lock.ends = ends);
            self.lease.iter_mut().for_each(|lease| lease.ends = ends);
            self.holds.iter_mut().for_each(|holds| holds.ends = ends);
        }
    }

    /// `same`: on the run of the server that is meant.
    #[expect(clippy::too_many_arguments, reason = "they are the script's")]
    pub(super) fn recreate(
        &mut self,
        token: &str,
        ttl: i64,
        fence: u64,
        by: &Owner<'_>,
        same: bool,
        alone: bool,
        hold: &str,
    ) -> Expected {
        if !same {
            return list([text("restarted"), Expected::Identity]);
        }
        if self.lock.is_none() {
            let counter = self.counter.unwrap_or(0);
            if alone && counter > fence {
                return list([text("higher"), text(counter.to_string())]);
            }
            self.reserved = None;
            self.counter = Some(counter.max(fence));
            self.write(token, ttl, fence, by);
        } else if !self.is_ours(token) {
            return self.other();
        }
        if let Some(by) = self.recorded().and_then(|_| self.field("revoked")) {
            return list([text("revoked"), text(by)]);
        }
        let left = self.lengthen(ttl);
        if !hold.is_empty() {
            self.add_hold(hold);
        }
        list([text("extended"), left, self.count_holds(), text(fence.to_string()), Expected::Identity])
    }

    pub(super) fn revoke(&mut self, prefix: &str, force: bool, by: &str) -> Expected {
        if self.is_other_type() {
            return Expected::List(self.foreign().into());
        }
        let Some(value) = self.value().map(str::to_owned) else {
            return gone();
        };
        if !value.starts_with(prefix) {
            return self.other();
        }
        let (left, owner) = (self.left(), self.owner());
        if !force {
            if owner == list([]) {
                return list([text("foreign"), text("string"), left]);
            }
            let lease = self.lease.as_mut().unwrap();
            lease.value.entry("revoked".to_owned()).or_insert(by.to_owned());
            if !lease.value.contains_key("kept") {
                return list([text("revoked"), text(value), left, owner]);
            }
        }
        self.free();
        self.hand_over();
        list([text("released"), text(value), left, owner])
    }

    /// The newest hold, and whether it has an age.
    pub(super) fn newest_hold(&self, token: &str) -> Expected {
        if !self.is_ours(token) {
            return gone();
        }
        let newest = self.holds.as_ref().and_then(|holds| holds.value.last());
        match newest.map_or("base", String::as_str) {
            "base" => list([text("holds"), text("base"), text("0")]),
            hold => list([text("holds"), text(hold), Expected::Now]),
        }
    }

    pub(super) fn inspect(&self) -> Expected {
        if self.is_other_type() {
            return Expected::List(self.foreign().into());
        }
        let waiting = Expected::Int(self.queue.len().try_into().unwrap());
        match self.value() {
            Some(value) => {
                list([text("held"), text(value), self.left(), self.owner(), self.count_holds(), waiting, Expected::Now])
            }
            None => {
                let reserved = self.reserved.as_ref();
                let left = reserved.map_or(-2, |reserved| self.left_of(reserved.ends));
                let reserved = Expected::Int(reserved.is_some().into());
                list([text("free"), Expected::Left(left), waiting, reserved, Expected::Now, Expected::Identity])
            }
        }
    }
}
