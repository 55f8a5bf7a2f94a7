//! Waiting: in line for the lock, or until it is free.

pub(super) mod free;
pub(super) mod queue;
