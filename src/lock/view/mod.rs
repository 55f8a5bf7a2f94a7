//! The state of locks, for people and monitors.

pub(super) mod listing;
pub(super) mod status;
