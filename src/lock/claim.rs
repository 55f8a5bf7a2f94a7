//! The ways in which leases share a lock.

use serde::Serialize;

/// The claim of a lease on its lock. Two claims fit beside each other or they do not; the prelude of the scripts (`fits`)
/// decides. Exclusive fits beside none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Claim {
    #[default]
    Exclusive,
}

impl Claim {
    /// Its name in the scripts.
    pub(super) fn word(self) -> &'static str {
        match self {
            Claim::Exclusive => "exclusive",
        }
    }

    pub(super) fn of(word: &str) -> Option<Claim> {
        [Claim::Exclusive].into_iter().find(|claim| claim.word() == word)
    }
}
