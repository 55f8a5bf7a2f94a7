//! What the scripts do to one lock, said once more in Rust: the lock, the record of its lease, its holds, the fencing
//! counter, the queue and the reservation. Written from the description of the lock, not from the Lua.

use std::collections::{BTreeMap, BTreeSet};

/// How long a free lock is kept for a waiter that was called.
pub(super) const RESERVED_MS: i64 = 1000;

/// What an answer must look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// [`SOME_TIME`] stands for the present.
    Text(String),
    Int(i64),
    List(Vec<Expected>),
    /// Names and values, in any order.
    Fields(BTreeMap<String, Expected>),
    /// An expiry: about so many milliseconds are left; −1 and −2 exactly.
    Left(i64),
    /// Uptime and identity of the node.
    Identity,
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

fn fields<const N: usize>(fields: [(&str, Expected); N]) -> BTreeMap<String, Expected> {
    fields.map(|(name, field)| (name.to_owned(), field)).into()
}

fn answer<const N: usize>(outcome: &str, more: [(&str, Expected); N]) -> Expected {
    let mut fields = fields(more);
    fields.insert("outcome".to_owned(), text(outcome));
    Expected::Fields(fields)
}

fn gone() -> Expected {
    answer("gone", [("node", Expected::Identity)])
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

    /// Whether there is a record of the lease that holds the lock.
    fn has_record(&self) -> bool {
        self.lease.is_some() && self.value().is_some() && self.field("token") == self.value()
    }

    /// Who has the lock, with what else is told of it.
    fn holders<const N: usize>(&self, more: [(&str, Expected); N]) -> Expected {
        let mut holder = fields(more);
        holder.insert("left".to_owned(), self.left());
        match self.value() {
            None => holder.insert("type".to_owned(), text("list")),
            Some(value) => holder.insert("value".to_owned(), text(value)),
        };
        if let (true, Some(lease)) = (self.has_record(), &self.lease) {
            holder.insert("now".to_owned(), text(SOME_TIME));
            holder.extend(lease.value.iter().map(|(name, value)| (name.clone(), text(value))));
        }
        Expected::List(vec![Expected::Fields(holder)])
    }

    fn not_ours(&self) -> Expected {
        if self.lock.is_none() { gone() } else { self.other() }
    }

    fn other(&self) -> Expected {
        answer("other", [("holders", self.holders([]))])
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

    fn free(&mut self) {
        self.lock = None;
        self.lease = None;
        self.holds = None;
    }

    fn write(&mut self, token: &str, ttl: i64, fence: u64, by: &Owner<'_>) {
        let ends = Some(self.now + ttl);
        self.lock = Some(Timed { value: Value::Text(token.to_owned()), ends });
        self.holds = None;
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

    /// Whether the lock is kept after its job.
    fn is_kept(&self) -> bool {
        self.has_record() && self.field("kept").is_some()
    }

    /// The same for a request about a lease, which may be late.
    fn extend_lease(&mut self, ttl: i64) -> Expected {
        if self.is_kept() { self.left() } else { self.lengthen(ttl) }
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
        earlier: &[&str],
    ) -> Expected {
        let freed = self.undo(earlier);
        let answer = self.take_or_queue(me, token, ttl, ticket, clock, by, quarantine, seen, given, server_us);
        let granted = matches!(&answer, Expected::Fields(fields) if fields["outcome"] == text("granted"));
        if freed && !granted {
            self.move_on();
        }
        answer
    }

    #[expect(clippy::too_many_arguments, reason = "they are the script's")]
    fn take_or_queue(
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
        if self.is_other_type() {
            return answer("held", [("holders", self.holders([])), ("node", Expected::Identity)]);
        }
        let granted = |fence: &str| answer("granted", [("fence", text(fence)), ("node", Expected::Identity)]);
        if self.is_ours(token) {
            self.lengthen(ttl);
            return granted(self.field("fence").unwrap_or("0"));
        }
        let forgotten = |seen: &&Seen<'_>| seen.before && seen.left > 0 && self.counter.unwrap_or(0) < seen.fence;
        if let Some(seen) = seen.filter(forgotten).filter(|_| self.lock.is_none() && self.reserved.is_none()) {
            self.reserved = Some(Timed { value: seen.token.to_owned(), ends: Some(self.now + seen.left) });
        }
        if self.lock.is_none() && quarantine {
            return self.refused("young", [], me, ticket, given, server_us);
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
                return granted(&fence.to_string());
            }
        }
        if self.lock.is_some() {
            let holders = self.holders([]);
            return self.refused("held", [("holders", holders)], me, ticket, given, server_us);
        }
        let left = Expected::Left(self.left_of(self.reserved.as_ref().unwrap().ends));
        self.refused("reserved", [("left", left)], me, ticket, given, server_us)
    }

    /// Not granted: puts a waiter into the line, and says at which rank, by which ticket, and whether it was not there before.
    fn refused<const N: usize>(
        &mut self,
        outcome: &str,
        more: [(&str, Expected); N],
        me: &str,
        ticket: Option<u64>,
        given: Option<u64>,
        server_us: u64,
    ) -> Expected {
        let Expected::Fields(mut fields) = answer(outcome, more) else { unreachable!() };
        fields.insert("node".to_owned(), Expected::Identity);
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
                fields.insert("queued".to_owned(), Expected::Int(1));
            }
            let rank = self.queue.iter().position(|(_, waiter)| waiter == me).unwrap();
            fields.insert("rank".to_owned(), Expected::Int(rank.try_into().unwrap()));
            let told = ticket.or(self.ticket_of(me)).unwrap();
            fields.insert("ticket".to_owned(), text(told.to_string()));
        }
        Expected::Fields(fields)
    }

    pub(super) fn fence(&mut self, token: &str, fence: u64) -> Expected {
        if !self.is_ours(token) {
            return self.not_ours();
        }
        if self.counter.is_some_and(|counter| counter > fence) {
            return answer("higher", []);
        }
        self.counter = Some(fence);
        if let Some(lease) = &mut self.lease {
            lease.value.insert("fence".to_owned(), fence.to_string());
        }
        answer("raised", [])
    }

    /// Takes back tries whose undoing was not confirmed. Whether one of them had the lock.
    fn undo(&mut self, tokens: &[&str]) -> bool {
        let granted = tokens.iter().any(|token| self.is_ours(token));
        if granted {
            self.free();
        }
        granted
    }

    /// What a release leaves to whoever is next.
    fn move_on(&mut self) {
        if self.lock.is_none() && self.reserved.is_none() {
            self.pass("");
        } else {
            self.tell();
        }
    }

    pub(super) fn leave(&mut self, me: &str, token: &str, earlier: &[&str]) -> Expected {
        self.undo(&[token]);
        self.undo(earlier);
        self.drop_out(me);
        if !me.is_empty() && self.reserved.as_ref().is_some_and(|reserved| reserved.value == me) {
            self.reserved = None;
        }
        self.move_on();
        answer("done", [])
    }

    /// Gives a place back for a grant that is taken back.
    pub(super) fn rollback(&mut self, me: &str, token: &str, ticket: Option<u64>) -> Expected {
        if let (true, false, Some(ticket)) = (self.undo(&[token]), me.is_empty(), ticket) {
            self.line_up(me, ticket);
        }
        answer("done", [])
    }

    /// `hold`: the one whose token is shown; `renew`: also if it is not known.
    pub(super) fn extend(&mut self, token: &str, hold: &str, ttl: i64, unknown: i64, renew: bool) -> Expected {
        let looks_like_a_hold = !hold.is_empty() && self.is_ours(&format!("{token}.{hold}"));
        if !self.is_ours(token) && !looks_like_a_hold {
            return self.not_ours();
        }
        if let Some(by) = self.field("revoked").filter(|_| self.has_record()) {
            return answer("revoked", [("by", text(by))]);
        }
        let by = if looks_like_a_hold || hold.is_empty() { "base" } else { hold };
        let entered = self.holds.as_ref().is_some_and(|holds| holds.value.iter().any(|known| known == by));
        let forgotten = by != "base" && !entered;
        if forgotten && !renew {
            return answer("no-hold", []);
        }
        let ttl = if ttl > 0 { ttl } else { self.recorded().unwrap_or(unknown) };
        let left = self.extend_lease(ttl);
        let (holds, node) = (self.count_holds(), Expected::Identity);
        match forgotten {
            true => {
                answer("extended", [("left", left), ("holds", holds), ("forgotten", Expected::Int(1)), ("node", node)])
            }
            false => answer("extended", [("left", left), ("holds", holds), ("node", node)]),
        }
    }

    pub(super) fn enter(&mut self, token: &str, hold: &str, ttl: i64, unknown: i64) -> Expected {
        if !self.is_ours(token) {
            return self.not_ours();
        }
        if self.has_record() && self.field("revoked").is_some() {
            return self.other();
        }
        self.add_hold(hold);
        let recorded = self.recorded();
        let ttl = if ttl > 0 { ttl } else { recorded.unwrap_or(unknown) };
        let left = self.extend_lease(ttl);
        let fence = recorded.and_then(|_| self.field("fence")).map(str::to_owned);
        let Expected::Fields(mut fields) =
            answer("extended", [("holds", self.count_holds()), ("left", left), ("node", Expected::Identity)])
        else {
            unreachable!()
        };
        fields.extend(fence.map(|fence| ("fence".to_owned(), text(fence))));
        fields.extend(recorded.map(|ttl| ("ttl".to_owned(), Expected::Int(ttl))));
        Expected::Fields(fields)
    }

    /// `hold`: the one that is released, the newest if it is empty.
    pub(super) fn release(&mut self, token: &str, hold: &str, keep: i64) -> Expected {
        if self.lock.is_none() {
            return match &mut self.reserved {
                Some(reserved) if !token.is_empty() && reserved.value == token && ["", "base"].contains(&hold) => {
                    if keep > 0 {
                        reserved.ends = Some(self.now + keep);
                    } else {
                        self.reserved = None;
                        self.pass("");
                    }
                    answer("released", [])
                }
                _ => gone(),
            };
        }
        let looks_like_a_hold = !hold.is_empty() && self.is_ours(&format!("{token}.{hold}"));
        if !self.is_ours(token) && !looks_like_a_hold {
            return self.other();
        }
        if let (true, Some(holds)) = (hold.is_empty(), &self.holds) {
            return answer("newest", [("hold", text(holds.value.last().unwrap()))]);
        }
        let hold = if looks_like_a_hold || hold.is_empty() { "newest" } else { hold };
        match &mut self.holds {
            Some(holds) => {
                if hold == "newest" {
                    holds.value.pop();
                }
                holds.value.retain(|known| known != hold);
                if !holds.value.is_empty() {
                    return answer("still-held", [("holds", self.count_holds())]);
                }
                self.holds = None;
            }
            None if hold != "base" && hold != "newest" => {
                return answer("still-held", [("holds", Expected::Int(1))]);
            }
            None => {}
        }
        if keep > 0 {
            let left = self.lock.as_ref().map_or(-1, |lock| self.left_of(lock.ends));
            if self.is_kept() && left <= keep {
                return answer("released", []);
            }
            let ends = Some(self.now + keep);
            if let Some(lock) = &mut self.lock {
                lock.ends = ends;
            }
            let lease = self.lease.get_or_insert(Timed { value: BTreeMap::new(), ends });
            lease.ends = ends;
            lease.value.insert("kept".to_owned(), SOME_TIME.to_owned());
        } else {
            self.free();
            self.pass("");
        }
        answer("released", [])
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
            return answer("restarted", []);
        }
        if self.lock.is_none() {
            let counter = self.counter.unwrap_or(0);
            if alone && counter > fence {
                return answer("higher", []);
            }
            self.reserved = None;
            self.counter = Some(counter.max(fence));
            self.write(token, ttl, fence, by);
        } else if !self.is_ours(token) {
            return self.other();
        }
        if let Some(by) = self.recorded().and_then(|_| self.field("revoked")) {
            return answer("revoked", [("by", text(by))]);
        }
        let left = self.extend_lease(ttl);
        if !hold.is_empty() {
            self.add_hold(hold);
        }
        answer("extended", [("left", left), ("holds", self.count_holds()), ("node", Expected::Identity)])
    }

    /// `token`: of the lease that is meant, if one is.
    pub(super) fn revoke(&mut self, token: &str, force: bool, by: &str) -> Expected {
        if self.lock.is_none() {
            return gone();
        }
        let holders = self.holders([]);
        let with_holders = |outcome| answer(outcome, [("holders", holders.clone())]);
        match self.value() {
            None => return with_holders("foreign"),
            Some(value) if !token.is_empty() && value != token => return with_holders("other"),
            Some(_) => {}
        }
        if !force {
            if !self.has_record() {
                return with_holders("foreign");
            }
            let lease = self.lease.as_mut().unwrap();
            lease.value.entry("revoked".to_owned()).or_insert(by.to_owned());
            if !lease.value.contains_key("kept") {
                return with_holders("revoked");
            }
        }
        self.free();
        self.pass("");
        with_holders("released")
    }

    /// The newest hold, and whether it has an age.
    pub(super) fn newest_hold(&self, token: &str) -> Expected {
        if !self.is_ours(token) {
            return self.not_ours();
        }
        let newest = self.holds.as_ref().and_then(|holds| holds.value.last());
        match newest.map_or("base", String::as_str) {
            "base" => answer("newest", [("hold", text("base")), ("entered", text("0"))]),
            hold => answer("newest", [("hold", text(hold)), ("entered", text(SOME_TIME))]),
        }
    }

    pub(super) fn inspect(&self, most: usize) -> Expected {
        let waiting = ("waiting", Expected::Int(self.queue.len().try_into().unwrap()));
        let first = self.queue.iter().take(most);
        let first = first.flat_map(|(ticket, waiter)| [text(waiter), text(ticket.to_string())]);
        let waiters = ("waiters", Expected::List(first.collect()));
        let clock = ("clock", text(SOME_TIME));
        if self.lock.is_some() {
            let holders = ("holders", self.holders([("holds", self.count_holds())]));
            return answer("held", [holders, waiting, waiters, clock]);
        }
        let left = self.reserved.as_ref().map_or(-2, |reserved| self.left_of(reserved.ends));
        let outcome = if self.reserved.is_some() { "reserved" } else { "free" };
        answer(outcome, [("left", Expected::Left(left)), waiting, waiters, clock, ("node", Expected::Identity)])
    }
}
