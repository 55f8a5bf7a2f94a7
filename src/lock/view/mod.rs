//! The state of locks, for people and monitors.

pub mod check;
pub(super) mod listing;
pub(super) mod status;
