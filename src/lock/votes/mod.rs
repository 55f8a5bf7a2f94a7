//! The rules over N nodes, without a clock and without I/O. The models (tests/model) run these very functions.

pub mod fencing;
pub(super) mod quarantine;
pub mod quorum;
pub mod recreate;
