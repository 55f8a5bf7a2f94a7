//! The ways in which leases share a lock.
//!
//! * **Slots.** A single node grants the first free slot (`take.lua::free_from`). **Invariant: over several nodes each
//!   try has one token and one slot.** The client draws a slot, and asks all nodes for this slot. If the slot is taken,
//!   the nodes name free slots (`take.lua::free_slots`), and the next try asks at once for a slot that most nodes name
//!   (`attempt.rs::free_on_most`). If one token asked for two slots, a slot would be given twice: 12 (`PlaceOfToken`).
//! * **Fencing.** Each slot has a counter. A shared lease takes the lock's counter as it is, and raises only nodes that
//!   are behind. The next writer adds 1. A node that has lost its counter answers 0 to a reader, and the client ignores
//!   the 0. The client's clock counts only if fewer than q nodes grant with a counter: 15 (`QuorumCounts`).

use serde::{Serialize, Serializer};

/// How a lease claims its lock. An exclusive lease holds it alone. Shared leases hold it together, and so do different
/// slots of the same limit. `fits` in line.lua decides this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Claim {
    #[default]
    Exclusive,
    Shared,
    /// One of this many slots.
    Slots(u32),
}

impl Claim {
    /// The name of the claim in the scripts.
    pub(in crate::lock) fn word(self) -> String {
        match self {
            Claim::Exclusive => "exclusive".to_owned(),
            Claim::Shared => "shared".to_owned(),
            Claim::Slots(limit) => format!("slots:{limit}"),
        }
    }

    pub(super) fn of(word: &str) -> Option<Claim> {
        match word.split_once(':') {
            None if word == "exclusive" => Some(Claim::Exclusive),
            None if word == "shared" => Some(Claim::Shared),
            Some(("slots", limit)) => limit.parse().ok().map(Claim::Slots),
            _ => None,
        }
    }

    /// The first letter of a waiter's name, by which the scripts know the claim; empty for an exclusive one.
    pub(super) fn initial(self) -> &'static str {
        match self {
            Claim::Exclusive => "",
            Claim::Shared => "s",
            Claim::Slots(_) => "p",
        }
    }

    pub(crate) fn limit(self) -> Option<u32> {
        match self {
            Claim::Slots(limit) => Some(limit),
            _ => None,
        }
    }
}

/// The claim as `mode` in JSON, in one word; the limit is a field of its own.
impl Serialize for Claim {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(match self {
            Claim::Exclusive => "exclusive",
            Claim::Shared => "shared",
            Claim::Slots(_) => "slots",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_scripts_are_read_as_they_are_written() {
        for claim in [Claim::Exclusive, Claim::Shared, Claim::Slots(1), Claim::Slots(10_000)] {
            assert_eq!(Claim::of(&claim.word()), Some(claim));
        }
        for word in ["", "slots", "slots:", "slots:x", "shared:1"] {
            assert_eq!(Claim::of(word), None, "{word}");
        }
    }
}
