//! The words of the lock: who holds it, who waits for it, and how a lease is named and shared.

pub(super) mod claim;
pub(super) mod holder;
pub(super) mod owner;
pub(super) mod token;
pub(super) mod waiter;
