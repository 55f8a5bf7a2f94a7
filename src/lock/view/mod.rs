//! The state of locks, for people and monitors.

pub mod check;
pub(super) mod listing;
pub mod order;
pub(super) mod status;
