//! Shared leases and slots by chance: after each call the keys are what a model of the one rule says. A node grants a lease when
//! no live lease that it knows conflicts with it.

use super::random::Chance;
use super::{CLOCK, LOCK, OWNER, Scripts, heard, listen, part, run_id, waiters, word};
use crate::support::Redis;
use std::collections::BTreeMap;

const TOKENS: [&str; 6] = ["ta", "tb", "tc", "td", "te", "tf"];
const CLAIMS: [&str; 4] = ["exclusive", "shared", "slots:2", "slots:3"];

/// What is there: the claim in force, and the place of each lease.
#[derive(Debug, Default)]
struct Model {
    claim: &'static str,
    leases: BTreeMap<&'static str, Option<u32>>,
}

impl Model {
    fn limit(claim: &str) -> Option<u32> {
        claim.strip_prefix("slots:").map(|limit| limit.parse().unwrap())
    }

    fn is_taken(&self, place: u32) -> bool {
        self.leases.values().any(|taken| *taken == Some(place))
    }

    /// The places that are free, from this one on, round.
    fn free_from(&self, place: u32, limit: u32) -> impl Iterator<Item = u32> {
        (0..limit).map(move |step| (place + step) % limit).filter(|&place| !self.is_taken(place))
    }

    /// Whether a lease with this claim fits, and where: at the place that is asked for, or at the first that is free.
    fn room(&self, claim: &str, place: Option<u32>) -> Result<Option<u32>, &'static str> {
        let limit = Model::limit(claim);
        if !self.leases.is_empty() && (self.claim != claim || claim == "exclusive") {
            let is_other = self.claim != claim && limit.or(Model::limit(self.claim)).is_some();
            return Err(if is_other { "other-shape" } else { "held" });
        }
        let Some(limit) = limit else { return Ok(None) };
        match (place, self.free_from(0, limit).next()) {
            (_, None) => Err("held"),
            (Some(place), _) if self.is_taken(place) => Err("taken"),
            (place, first) => Ok(place.or(first)),
        }
    }

    fn add(&mut self, token: &'static str, claim: &'static str, place: Option<u32>) {
        self.claim = claim;
        self.leases.insert(token, place);
    }

    fn has(&self, token: &str, claim: &str, place: Option<u32>) -> bool {
        self.claim == claim && self.leases.get(token).is_some_and(|at| place.is_none() || *at == place)
    }

    /// What a call with this claim on a lease that is not here is told.
    fn without(&self, claim: &str, place: Option<u32>) -> &'static str {
        let alike = self.leases.is_empty() || self.claim == claim && claim != "exclusive";
        if alike && !place.is_some_and(|place| self.is_taken(place)) { "gone" } else { "other" }
    }
}

struct Run<'a> {
    redis: &'a Redis,
    scripts: Scripts,
    chance: Chance,
    run_id: String,
    model: Model,
    /// Each script forgets all that have run out.
    sweeps_all: bool,
}

impl Run<'_> {
    fn step(&mut self) -> String {
        let token = self.chance.one_of(&TOKENS);
        // Mostly what is in force.
        let claim = if self.chance.below(3) > 0 && !self.model.leases.is_empty() {
            self.model.claim
        } else {
            self.chance.one_of(&CLAIMS)
        };
        let place = Model::limit(claim).map(|limit| u32::try_from(self.chance.below(limit as usize)).unwrap());
        let model = &mut self.model;
        // A token belongs to its place.
        let place = model.leases.get(token).filter(|_| model.claim == claim).copied().unwrap_or(place);
        let named = place.filter(|_| self.chance.below(2) == 0);
        let mut granted = None;
        let at = |place: Option<u32>| place.map_or(String::new(), |place| format!(" place={place}"));
        let (name, arguments, expected) = match self.chance.below(16) {
            0..6 => {
                let expected = match model.room(claim, named) {
                    _ if model.leases.contains_key(token) => "granted",
                    Ok(place) => {
                        granted = Some(place);
                        "granted"
                    }
                    Err(refused) => refused,
                };
                ("take", format!("token={token} ttl=60000 now={CLOCK} {OWNER} claim={claim}{}", at(named)), expected)
            }
            6..8 => {
                let had = model.leases.remove(token).is_some();
                let expected = if had { "released" } else { model.without(claim, None) };
                ("release", format!("token={token} claim={claim}"), expected)
            }
            8 => {
                model.leases.remove(token);
                ("undo", format!("token={token}"), "done")
            }
            9 => {
                model.leases.remove(token);
                ("undo", format!("stay=1 token={token}"), "done")
            }
            10..13 => {
                if model.claim != claim && model.leases.contains_key(token) {
                    return String::new(); // no lease changes its claim
                }
                let expected = if model.has(token, claim, place) { "extended" } else { model.without(claim, place) };
                ("extend", format!("token={token} claim={claim} ttl=60000{}", at(place)), expected)
            }
            13 => {
                if model.leases.contains_key(token) && model.claim != claim {
                    return String::new();
                }
                let expected = match model.has(token, claim, place) {
                    true => "extended",
                    false if model.without(claim, place) == "gone" => {
                        model.add(token, claim, place);
                        "extended"
                    }
                    false => "other",
                };
                let run = &self.run_id;
                let more = format!("fence=5 hold=base run_id={run} {OWNER}{}", at(place));
                ("recreate", format!("token={token} claim={claim} ttl=60000 {more}"), expected)
            }
            14 => {
                let expected = match (model.leases.is_empty(), model.leases.remove(token).is_some()) {
                    (true, _) => "gone",
                    (false, true) => "released",
                    (false, false) => "other",
                };
                ("revoke", format!("by=me force=1 token={token}"), expected)
            }
            // Some run out, or an older version frees all by force, which leaves the members to themselves.
            _ if self.chance.below(4) == 0 => {
                self.redis.command(&["DEL", LOCK, &part("lease"), &part("holds")]);
                model.leases.clear();
                return "DEL".to_owned();
            }
            _ => {
                let tokens: Vec<_> = TOKENS.into_iter().filter(|_| self.chance.below(2) == 0).collect();
                for token in tokens.iter().filter(|_| model.claim != "exclusive") {
                    if model.leases.remove(token).is_some() {
                        self.redis.command(&["ZADD", &part("members"), "XX", "1", token]);
                    }
                }
                return format!("{tokens:?} run out");
            }
        };
        let reply = self.scripts.run(name, &arguments);
        assert_eq!(reply.word(), expected, "{name} {arguments} -> {reply:?}\n{:?}", self.model);
        // The place of one that has run out may not be free yet.
        if let Some(first_free) = granted {
            let given = reply.int("place").map(|place| u32::try_from(place).unwrap());
            let is_later = !self.sweeps_all && named.is_none() && given.is_some_and(|at| !self.model.is_taken(at));
            assert!(given == first_free || is_later, "{name} {arguments} -> {reply:?}");
            self.model.add(token, claim, given);
        }
        if let ("taken", Some(place), Some(limit)) = (expected, named, Model::limit(claim)) {
            let told: Vec<u32> =
                reply.get("free").items().iter().map(|place| u32::try_from(place.number()).unwrap()).collect();
            let free: Vec<u32> = self.model.free_from(place, limit).collect();
            let is_part = !self.sweeps_all && told.iter().all(|place| free.contains(place));
            assert!(told == free || is_part, "{name} {arguments} -> {reply:?} {free:?}");
        }
        if let Some(members) = reply.int("members") {
            assert_eq!(usize::try_from(members).unwrap(), self.model.leases.len(), "{name} {arguments} -> {reply:?}");
        }
        format!("{name} {arguments}")
    }

    /// The keys say the same, but for members that have run out and were not swept yet.
    fn agrees(&self, step: &str) {
        let list = |key: &str| -> BTreeMap<String, f64> {
            self.redis.query::<BTreeMap<String, f64>>(&["ZRANGE", &part(key), "0", "-1", "WITHSCORES"])
        };
        let key = self.redis.get(LOCK);
        let model = &self.model;
        let known: Vec<&str> = model.leases.keys().copied().collect();
        let is_mark = key.as_ref().is_some_and(|key| key.starts_with(&format!("{}.", model.claim)));
        if model.claim == "exclusive" || key.is_none() {
            assert_eq!(key.as_deref(), known.first().copied(), "{step}: {model:?}");
            return;
        }
        assert!(is_mark, "{step}: {key:?} {model:?}");
        let members = list("members");
        let live: Vec<&str> =
            members.iter().filter(|(_, ends)| **ends > 1.0).map(|(token, _)| token.as_str()).collect();
        assert_eq!(live, known, "{step}");
        let places = list("places");
        for (token, place) in &model.leases {
            assert_eq!(places.get(*token).copied(), place.map(f64::from), "{step}: {model:?}");
            assert!(self.redis.exists(&part(&format!("member:{token}"))), "{step}: {token}");
        }
        let last = members.values().copied().fold(0.0, f64::max);
        for key in [LOCK.to_owned(), part("members"), part("lease")] {
            let ends: f64 = self.redis.query(&["PEXPIRETIME", &key]);
            assert!(ends >= last || last <= 1.0, "{step}: {key} ends at {ends}, the last lease at {last}");
        }
    }
}

#[test]
fn leases_that_conflict_are_never_granted_together() {
    let redis = Redis::start();
    for seed in 1..=6 {
        redis.command(&["FLUSHALL"]);
        // The same where one script does not forget all that have run out.
        let sweeps_all = seed % 2 == 0;
        let scripts = Scripts::bounded(redis.connection(), if sweeps_all { 100 } else { 1 });
        let (chance, run_id) = (Chance::of(seed), run_id(&redis));
        let mut run = Run { redis: &redis, scripts, chance, run_id, model: Model::default(), sweeps_all };
        for _ in 0..1_000 {
            let step = run.step();
            run.agrees(&step);
        }
    }
}

fn take(scripts: &mut Scripts, waiter: &str, token: &str, claim: &str) -> super::Reply {
    scripts.take_with(waiter, token, &format!("ttl=60000 claim={claim}"))
}

#[test]
fn only_who_fits_is_called_and_the_first_who_does_not_is_told_to_watch() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    take(&mut scripts, "", "ta", "shared");
    take(&mut scripts, "", "tb", "shared");
    let mut connection = redis.connection();
    let mut ears = listen(&mut connection, &["w1", "s1", "s2"]);
    for (waiter, claim) in [("w1", "exclusive"), ("s1", "shared"), ("s2", "shared")] {
        assert_eq!(take(&mut scripts, waiter, "u", claim).word(), "held");
    }
    assert_eq!(heard(&mut ears), ("w1".to_owned(), "head".to_owned())); // s1 came behind it, and would have fitted
    assert_eq!(heard(&mut ears), ("w1".to_owned(), "head".to_owned()));
    assert_eq!(scripts.release("ta"), word("released"));
    assert_eq!(heard(&mut ears), ("w1".to_owned(), "head".to_owned()));
    assert_eq!(waiters(&redis), ["w1", "s1", "s2"]);
    assert_eq!(scripts.release("tb"), word("released"));
    let told = [heard(&mut ears), heard(&mut ears)].map(|(who, what)| format!("{who} {what}"));
    assert_eq!(told, ["s1 head", "w1 go"]);
    assert_eq!(take(&mut scripts, "w1", "tw", "exclusive").word(), "granted");
    assert_eq!(scripts.release("tw"), word("released"));
    let told = [heard(&mut ears), heard(&mut ears)].map(|(who, what)| format!("{who} {what}"));
    assert_eq!(told, ["s2 head", "s1 go"]);
    // The one that enters calls the next, and a passer-by is not turned away meanwhile.
    assert_eq!(take(&mut scripts, "s1", "tx", "shared").word(), "granted");
    assert_eq!(heard(&mut ears), ("s2".to_owned(), "go".to_owned()));
    assert_eq!(take(&mut scripts, "", "ty", "shared").word(), "granted");
    assert_eq!(redis.get(&part("reserved")).as_deref(), Some("s2"));
    assert_eq!(take(&mut scripts, "", "tz", "exclusive").word(), "held");
    assert_eq!(take(&mut scripts, "s2", "tz", "shared").word(), "granted");
    assert!(!redis.exists(&part("reserved")));
}

#[test]
fn the_last_free_slot_is_kept_for_who_was_called() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    for token in ["ta", "tb", "tc"] {
        assert_eq!(take(&mut scripts, "", token, "slots:3").word(), "granted");
    }
    let mut connection = redis.connection();
    let _ears = listen(&mut connection, &["p1"]);
    assert_eq!(take(&mut scripts, "p1", "u", "slots:3").word(), "held");
    scripts.release("tb");
    assert_eq!(take(&mut scripts, "", "u", "slots:3").word(), "reserved");
    scripts.release("tc");
    // Now there is one for both.
    let reply = take(&mut scripts, "", "u", "slots:3");
    assert_eq!((reply.word(), reply.int("place")), ("granted", Some(1)));
    let reply = take(&mut scripts, "p1", "v", "slots:3");
    assert_eq!((reply.word(), reply.int("place")), ("granted", Some(2)));
}

#[test]
fn a_young_node_grants_nothing_though_it_bears_a_mark_and_says_how_long_its_leases_may_be() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    scripts.take_with("", "ta", "ttl=90000 claim=shared");
    let reply = scripts.take_with("", "tb", "ttl=1000 claim=shared quarantine=3600");
    assert_eq!((reply.word(), reply.text("longest")), ("young", "90000"));
    let reply = scripts.run("extend", "token=tb claim=shared ttl=1000");
    assert_eq!((reply.word(), reply.text("longest")), ("gone", "90000"));
    assert_eq!(take(&mut scripts, "", "tb", "exclusive").text("longest"), "90000");
}

#[test]
fn readers_count_nothing_and_the_next_writer_is_larger() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    let fences = ["ta", "tb"].map(|token| take(&mut scripts, "", token, "shared").text("fence").to_owned());
    assert_eq!(fences, [CLOCK, CLOCK]);
    let later = format!("{}9", &CLOCK[..CLOCK.len() - 1]);
    assert_eq!(scripts.run("fence", &format!("token=ta claim=shared fence={later}")), word("raised"));
    assert_eq!(scripts.run("fence", &format!("token=tb claim=shared fence={CLOCK}")), word("raised"));
    for token in ["ta", "tb"] {
        assert_eq!(scripts.release(token), word("released"));
    }
    let writer = take(&mut scripts, "", "tw", "exclusive").text("fence").parse::<u64>().unwrap();
    assert_eq!(writer, later.parse::<u64>().unwrap() + 1);
    scripts.release("tw");
    // Places count apart, and raise one counter of all, which an exclusive lease of before a restart looks at.
    take(&mut scripts, "", "tp", "slots:2");
    scripts.release("tp");
    redis.command(&["DEL", &part("fence")]);
    assert_eq!(scripts.recreate("tx", &run_id(&redis), true, "base").word(), "higher");
}

#[test]
fn what_has_run_out_and_was_not_swept_yet_is_nobodys_and_in_nobodys_way() {
    let redis = Redis::start();
    let mut scripts = Scripts::bounded(redis.connection(), 1);
    for token in ["ta", "tb", "tc", "td", "te", "tf"] {
        assert_eq!(take(&mut scripts, "", token, "slots:6").word(), "granted");
    }
    for (score, token) in ["ta", "tb", "tc", "td", "te"].iter().enumerate() {
        redis.command(&["ZADD", &part("members"), "XX", &(score + 1).to_string(), token]);
    }
    let listed = || redis.query::<Vec<String>>(&["ZRANGE", &part("members"), "0", "-1"]);
    assert_eq!(scripts.run("extend", "token=tc claim=slots:6 ttl=60000").word(), "gone");
    assert_eq!(listed(), ["tb", "tc", "td", "te", "tf"]);
    let at_d = format!("token=tx claim=slots:6 place=3 ttl=60000 fence=5 hold=base run_id={} {OWNER}", run_id(&redis));
    assert_eq!(scripts.run("recreate", &at_d).word(), "extended");
    assert_eq!(listed(), ["tc", "te", "tf", "tx"]);
    let reply = take(&mut scripts, "", "ty", "exclusive");
    assert_eq!((reply.word(), reply.int("members")), ("other-shape", Some(2)));
    let named: Vec<&str> = reply.get("holders").items().iter().map(|holder| holder.text("value")).collect();
    assert_eq!(named, ["tx", "tf"]);
    assert_eq!(listed(), ["te", "tf", "tx"]);
}

/// The words for each of these leases when it is renewed.
fn renewed(scripts: &mut Scripts, tokens: &[&str]) -> Vec<String> {
    let renew = |token: &&str| scripts.run("extend", &format!("token={token} claim=shared ttl=60000"));
    tokens.iter().map(renew).map(|reply| reply.word().to_owned()).collect()
}

#[test]
fn all_are_revoked_at_once_and_those_whose_jobs_have_ended_are_freed_a_part_at_a_time() {
    let redis = Redis::start();
    let mut scripts = Scripts::bounded(redis.connection(), 2);
    let tokens = ["ta", "tb", "tc", "td", "te", "tf", "tg"];
    for token in tokens {
        take(&mut scripts, "", token, "shared");
    }
    for token in &tokens[1..6] {
        assert_eq!(scripts.run("release", &format!("token={token} claim=shared keep=90000")), word("released"));
    }
    let mut reply = scripts.run("revoke", "by=me");
    let mut parts = 1;
    assert_eq!((reply.word(), reply.int("members")), ("revoked", Some(7)));
    while let super::Reply::Text(from) = reply.get("from").clone() {
        // What is granted meanwhile is not meant.
        if parts == 1 {
            assert_eq!(take(&mut scripts, "", "new", "shared").word(), "granted");
        }
        assert!(parts < 20, "{reply:?}");
        reply = scripts.run_with("revoke", &[("by", "me"), ("from", &from)]);
        parts += 1;
    }
    assert_eq!(reply.word(), "revoked");
    let left: Vec<String> = redis.query(&["ZRANGEBYLEX", &part("members"), "-", "+"]);
    assert_eq!(left.len(), 3, "{left:?}");
    assert_eq!(renewed(&mut scripts, &["ta", "tg", "new"]), ["revoked", "revoked", "extended"]);
    let reply = scripts.run("inspect", "most=10");
    let signed: Vec<&str> = reply.get("holders").items().iter().map(|holder| holder.text("revoked")).collect();
    assert_eq!(signed.iter().filter(|by| **by == "me").count(), 2, "{reply:?}");
    // A later one is for all that have come since, and one that was granted before the clock was set back is meant too.
    redis.command(&["HSET", &part("member:new"), "since", "99999999999999999"]);
    assert_eq!(scripts.run("revoke", "by=you").word(), "revoked");
    assert_eq!(renewed(&mut scripts, &["new"]), ["revoked"]);
}

#[test]
fn all_are_freed_by_force_at_once_and_none_can_go_on() {
    let redis = Redis::start();
    let mut scripts = Scripts::on(redis.connection());
    for token in ["ta", "tb", "tc"] {
        take(&mut scripts, "", token, "shared");
    }
    let mut connection = redis.connection();
    let mut ears = listen(&mut connection, &["w1"]);
    assert_eq!(take(&mut scripts, "w1", "u", "exclusive").word(), "held");
    let reply = scripts.run("revoke", "by=me force=1");
    assert_eq!((reply.word(), reply.int("members"), redis.exists(LOCK)), ("released", Some(3), false));
    assert_eq!(heard(&mut ears).1, "go");
    assert_eq!(renewed(&mut scripts, &["ta", "tb"]), ["gone", "gone"]);
    assert_eq!(take(&mut scripts, "w1", "tw", "exclusive").word(), "granted");
    for key in ["members", "places"] {
        assert!(!redis.exists(&part(key)), "{key}");
    }
}

#[test]
fn a_lease_is_found_by_the_beginning_of_its_token_a_part_at_a_time() {
    let redis = Redis::start();
    let mut scripts = Scripts::bounded(redis.connection(), 3);
    for token in ["a1", "b1", "a2", "c", "a3", "b2", "a4", "d", "e"] {
        take(&mut scripts, "", token, "shared");
    }
    // Many run out at the same time.
    for token in ["a1", "b1", "a2", "c", "a3", "b2"] {
        redis.command(&["ZADD", &part("members"), "XX", "99999999999999", token]);
    }
    let (mut found, mut from) = (Vec::new(), "0 0".to_owned());
    for _ in 0..10 {
        let reply = scripts.run_with("find", &[("prefix", "a"), ("from", &from)]);
        found.extend(reply.get("tokens").items().to_vec());
        from = reply.text("from").to_owned();
        if from.is_empty() {
            break;
        }
    }
    let mut found: Vec<String> = found.iter().map(|token| format!("{token:?}")).collect();
    found.sort();
    assert_eq!(found, ["a1", "a2", "a3", "a4"].map(|token| format!("Text({token:?})")));
}

#[test]
fn of_many_dead_waiters_a_script_drops_a_part_and_says_that_there_are_more() {
    let redis = Redis::start();
    let mut scripts = Scripts::bounded(redis.connection(), 3);
    take(&mut scripts, "", "t", "exclusive");
    for number in 0..10 {
        take(&mut scripts, &format!("dead{number}"), "u", "exclusive");
    }
    let reply = scripts.release("t");
    assert_eq!((reply.word(), reply.int("more"), waiters(&redis).len()), ("released", Some(1), 6)); // the one that it called was dead too
    // Who comes by is not told that a dead one has it.
    let reply = take(&mut scripts, "", "u", "exclusive");
    assert_eq!((reply.word(), reply.int("left"), reply.int("more")), ("reserved", Some(0), Some(1)));
    assert_eq!(waiters(&redis).len(), 2);
    let mut rounds = 0;
    while scripts.run("undo", "").int("more").is_some() {
        rounds += 1;
        assert!(rounds < 5);
    }
    assert_eq!(take(&mut scripts, "", "u", "exclusive").word(), "granted");
}

#[test]
fn a_user_who_may_not_delete_in_the_background_deletes_long_lists_at_once() {
    let redis = Redis::start();
    redis.command(&["ACL", "SETUSER", "old", "on", "nopass", "~*", "&*", "+@all", "-unlink"]);
    let mut connection = redis.connection();
    redis::cmd("AUTH").arg("old").arg("x").query::<()>(&mut connection).unwrap();
    let mut scripts = Scripts::on(connection);
    take(&mut scripts, "", "ta", "shared");
    let members: Vec<String> =
        (0..1_500).flat_map(|number| ["99999999999999".to_owned(), number.to_string()]).collect();
    let key = part("members");
    redis.command(&["ZADD", &key].into_iter().chain(members.iter().map(String::as_str)).collect::<Vec<_>>());
    assert_eq!(scripts.run("revoke", "by=me force=1").word(), "released");
    assert!(!redis.exists(&key) && !redis.exists(LOCK));
}
