//! The history of a lock: its runs, and the calls of its hosts.

pub(super) mod memory;
pub(super) mod newest;
pub mod periods;
pub(super) mod run;
pub(super) mod visits;
