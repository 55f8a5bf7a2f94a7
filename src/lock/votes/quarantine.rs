//! The quarantine: the time after a node's start for which the node has no vote. Pure: no clock, no I/O.

use crate::lock::lease::DEFAULT_TTL;
use std::time::Duration;

/// The time after a node's start for which the node has no vote on leases that it may have forgotten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quarantine {
    pub(crate) length: Duration,
    /// True if the user gave the quarantine, or if there is a single node. False: the quarantine grows to cover the ttl
    /// of every lease that a node shows.
    pub(crate) is_fixed: bool,
}

impl Quarantine {
    /// `given`: the quarantine that the user gave; None: the default, which covers leases of this ttl. A single node
    /// has no quarantine by default: no caller could take a lock while the only node is in quarantine.
    pub(in crate::lock) fn new(given: Option<Duration>, ttl: Duration, nodes: usize) -> Quarantine {
        let several = nodes > 1;
        let default = if several { ttl.max(DEFAULT_TTL) } else { Duration::ZERO };
        Quarantine { length: given.unwrap_or(default), is_fixed: given.is_some() || !several }
    }

    /// The quarantine in whole seconds, rounded up.
    pub(in crate::lock) fn seconds(self) -> u64 {
        self.length.as_secs() + u64::from(self.length.subsec_nanos() > 0)
    }

    pub(in crate::lock) fn is_off(self) -> bool {
        self.length.is_zero()
    }

    /// Makes the quarantine at least as long as `lease`, unless the quarantine is fixed. `lease`: the ttl of a lease on
    /// a node.
    pub(in crate::lock) fn cover(&mut self, lease: Duration) {
        if !self.is_fixed {
            self.length = self.length.max(lease);
        }
    }

    /// How much longer a node stays in quarantine. `uptime`: how long the node has been up, in whole seconds. If the
    /// uptime is not known, the result is zero.
    pub(crate) fn left(self, uptime: Option<Duration>) -> Duration {
        match uptime {
            Some(uptime) if !self.is_off() => (self.length + Duration::from_secs(1)).saturating_sub(uptime),
            _ => Duration::ZERO,
        }
    }
}
