//! The names of everything that a lock has in Redis.

use crate::lock::wire::fields::Args;
use crate::redis::{Call, Script};

/// Stands in every key of a lock except the lock's own key: `{redlock:backup}:␟queue`. Names have no control
/// characters, so a lock's own key never looks like one of the other keys. Also separates the facts in a waiter's name.
pub(in crate::lock) const SEPARATOR: char = '\u{1f}';

/// The other keys of a lock that have fixed names, each with its type. A request lists the lock's own key, then the
/// first [`NAMED`] of these keys, in the order that the scripts expect. The scripts make the others from BASE
/// (keys.lua), because longer requests would not fit into the 16 kB that a server reads after its client has gone
/// (scripts/mod.rs).
const PARTS: [(&str, &str); 13] = [
    ("lease", "hash"),      // The owner record of the present lease.
    ("fence", "string"),    // The counter of fencing tokens, which outlives the lease.
    ("queue", "zset"),      // The waiters, by ticket.
    ("reserved", "string"), // The waiter or holder to whom the lock is promised.
    ("holds", "zset"),      // The holds of a re-entrant lease.
    ("members", "zset"),    // The leases of a lock that several hold, by deadline.
    ("slots", "zset"),      // These leases by slot, if the lock has slots.
    ("fences", "hash"),     // The counters of fencing tokens of the slots, and one of all slots.
    ("log", "list"),        // The last runs.
    ("runs", "hash"),       // The last success, the last failure, and counts.
    ("newest", "string"),   // The largest number of --newest.
    ("visits", "zset"),     // The hosts that came, by the time at which they came.
    (CLOSED, "string"),     // Who closed the lock; it opens when this key expires.
];
const NAMED: usize = 8;

/// A lock has a history of runs if this key exists.
pub(in crate::lock) const LOG: &str = "log";
pub(in crate::lock) const CLOSED: &str = "closed";

/// The keys and the channels of one lock. In a Cluster, all of them are in one hash slot.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// The lock itself: a plain string, whose value is the token, or a mark (keys.lua).
    pub(crate) lock: String,
    /// The prefix of the other keys, and of the waiters' channels (`w:` and the waiter's name).
    pub(crate) base: String,
}

impl Keys {
    /// The keys of the lock whose own key is `lock`.
    pub(crate) fn of(lock: &str) -> Keys {
        let base = match hash_tag(lock) {
            Some(tag) => format!("{{{tag}}}:{lock}{SEPARATOR}"),
            None => format!("{{{lock}}}:{SEPARATOR}"),
        };
        Keys { lock: lock.to_owned(), base }
    }

    /// The keys that a request lists, in the order that the scripts expect.
    fn all(&self) -> Vec<String> {
        let others = PARTS[..NAMED].iter().map(|(part, _)| format!("{}{part}", self.base));
        [self.lock.clone()].into_iter().chain(others).collect()
    }

    pub(in crate::lock) fn call(&self, script: &'static Script, args: Args) -> Call {
        Call::new(script, self.all(), args.into_list(), (self.base.clone(), &PARTS))
    }

    /// The key of the note that the release of this lease leaves.
    pub(in crate::lock) fn note(&self, token: &str) -> String {
        format!("{}released:{token}", self.base)
    }

    pub(crate) fn waiter(&self, id: &str) -> String {
        format!("{}w:{id}", self.base)
    }
}

/// The lock to which this key belongs, if it is one of these `parts` of a lock.
pub(in crate::lock) fn lock_of(key: &str, parts: &[&str]) -> Option<String> {
    let front = key.split_once(SEPARATOR)?.0;
    let with_tag = front.split_once("}:").map(|(_, lock)| lock);
    let without = front.strip_prefix('{').and_then(|front| front.strip_suffix("}:"));
    let is_of = |lock: &&str| key.strip_prefix(&Keys::of(lock).base).is_some_and(|part| parts.contains(&part));
    [without, with_tag].into_iter().flatten().find(is_of).map(str::to_owned)
}

/// The other keys and the channels of each lock under `prefix` begin with this text, unless the lock's name has a hash
/// tag.
pub(crate) fn beside(prefix: &str) -> String {
    match hash_tag(prefix) {
        Some(tag) => format!("{{{tag}}}:{prefix}"),
        None => format!("{{{prefix}"),
    }
}

/// The text as a part of a pattern in Redis (SCAN, ACL), which matches the text alone.
pub(crate) fn glob_escaped(text: &str) -> String {
    let is_special = |c| matches!(c, '*' | '?' | '[' | ']' | '\\');
    text.chars().flat_map(|c| is_special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// The part of a key that Redis Cluster hashes instead of the whole: between the first `{` and the next `}` (Redis
/// Cluster specification, "Hash tags"). None if that part is empty, or a brace is missing.
pub(crate) fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// True if all keys of the lock are in one hash slot. `key` is the lock's own. The others have its hash tag, or else
/// all of it as theirs, which a `}` would end too early.
pub(crate) fn fits_one_slot(key: &str) -> bool {
    hash_tag(key).is_some() || !key.contains('}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_hashes_like_the_lock() {
        for lock in ["redlock:backup", "a{b", "{t}x", "redlock:{user:7}:mail", "x{a}{b}"] {
            assert!(fits_one_slot(lock));
            let slot = hash_tag(lock).unwrap_or(lock);
            let keys = Keys::of(lock);
            assert_eq!(lock_of(&format!("{}{LOG}", keys.base), &[LOG]).as_deref(), Some(lock));
            assert_eq!(lock_of(&keys.all()[1], &[LOG, CLOSED]), None);
            for key in &keys.all()[1..] {
                assert_eq!(hash_tag(key), Some(slot), "{key:?}");
            }
        }
        for (prefix, name) in [("redlock:", "backup"), ("", "x"), ("{app}:", "x"), ("x{a}{b}", "c")] {
            let keys = Keys::of(&format!("{prefix}{name}"));
            assert!(keys.base.starts_with(&beside(prefix)), "{keys:?}");
        }
        for lock in ["a}b", "{}", "}{"] {
            assert!(!fits_one_slot(lock), "{lock:?}");
        }
    }
}
