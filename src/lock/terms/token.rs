//! Tokens: random identities of leases, and of holds of a lease. A token suffices to release the lock.

use crate::sys::random::uuid;
use crate::text::SHOWN_OF_TOKEN;

/// The token of a hold is the lease's token, this mark, and the hold's id: `HOLD_DIGITS` hexadecimal digits.
const HOLD_MARK: char = '.';
const HOLD_DIGITS: usize = 8;
/// If a token ends with this character, the release of the lease leaves a note. Without it, the guard could take the
/// release for a loss, and stop the script. The history of runs is not enough, because it may be off, or may fail.
const NOTED: char = 'n';

/// Identifies the hold that took the lock.
pub(in crate::lock) const BASE: &str = "base";

pub(in crate::lock) fn new_token() -> String {
    uuid().simple().to_string()
}

/// For a lease that one process renews and another releases: the release leaves a note for the first.
pub(in crate::lock) fn new_noted() -> String {
    format!("{}{NOTED}", new_token())
}

pub(in crate::lock) fn is_noted(stem: &str) -> bool {
    stem.len() > 32 && stem.ends_with(NOTED)
}

pub(in crate::lock) fn new_hold() -> String {
    new_token()[..HOLD_DIGITS].to_owned()
}

pub(in crate::lock) fn of_hold(stem: &str, id: &str) -> String {
    format!("{stem}{HOLD_MARK}{id}")
}

/// The token of the lease, and the id of the hold if there is one.
pub(in crate::lock) fn split(token: &str) -> (&str, Option<&str>) {
    match token.rsplit_once(HOLD_MARK) {
        Some((stem, id)) if id.len() == HOLD_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            (stem, Some(id))
        }
        _ => (token, None),
    }
}

/// The part of a token that may be shown.
pub(in crate::lock) fn shown(token: &str) -> String {
    token.chars().take(SHOWN_OF_TOKEN).collect()
}
