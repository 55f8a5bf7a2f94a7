//! Tokens: random identities of leases, and of holds of a lease. A token suffices to release the lock.

use crate::sys::random::uuid;
use crate::text::SHOWN_OF_TOKEN;

/// Stands in the token of a hold between the lease's token and the hold's id, eight hexadecimal digits.
const HOLD_MARK: char = '.';
const HOLD_DIGITS: usize = 8;
/// The last character of the token of a lease whose release leaves a note. The memory of runs tells of a release too,
/// but may be switched off or fail; and a release mistaken for a loss would stop the process that the lease is for.
const NOTED: char = 'n';

/// Identifies the hold that took the lock.
pub(super) const BASE: &str = "base";

/// A token that no lease has had before.
pub(super) fn new_token() -> String {
    uuid().simple().to_string()
}

/// The token of a lease that one process renews and another releases: the release leaves a note for the process that
/// renews.
pub(super) fn new_noted() -> String {
    format!("{}{NOTED}", new_token())
}

/// True if the release of this lease leaves a note.
pub(super) fn is_noted(stem: &str) -> bool {
    stem.len() > 32 && stem.ends_with(NOTED)
}

/// A random id, which no other hold of the lease has.
pub(super) fn new_hold() -> String {
    new_token()[..HOLD_DIGITS].to_owned()
}

pub(super) fn of_hold(stem: &str, id: &str) -> String {
    format!("{stem}{HOLD_MARK}{id}")
}

/// The token of the lease, and the id of the hold if there is one.
pub(super) fn split(token: &str) -> (&str, Option<&str>) {
    match token.rsplit_once(HOLD_MARK) {
        Some((stem, id)) if id.len() == HOLD_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            (stem, Some(id))
        }
        _ => (token, None),
    }
}

/// The part of a token that may be shown.
pub(super) fn shown(token: &str) -> String {
    token.chars().take(SHOWN_OF_TOKEN).collect()
}
