//! One request and its answer: the keys and arguments of a call, and what the nodes' replies mean.

pub(super) mod answer;
pub(super) mod ask;
pub(super) mod fields;
pub(crate) mod keys;
pub(super) mod locks;
