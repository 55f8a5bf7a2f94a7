//! The quarantine: the time after a node's start for which it has no vote on leases that it may have forgotten. Pure:
//! no clock, no I/O.

use crate::lock::lease::DEFAULT_TTL;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Quarantine {
    pub(crate) length: Duration,
    /// True if the user gave the quarantine, or if there is a single node. Otherwise it grows to cover the ttl of every
    /// lease that a node shows.
    pub(crate) is_fixed: bool,
}

impl Quarantine {
    /// `given` is the user's; the default covers leases of this ttl. A single node has no quarantine by default,
    /// because no caller could take a lock while the only node is in it.
    pub(in crate::lock) fn new(given: Option<Duration>, ttl: Duration, nodes: usize) -> Quarantine {
        let several = nodes > 1;
        let default = if several { ttl.max(DEFAULT_TTL) } else { Duration::ZERO };
        Quarantine { length: given.unwrap_or(default), is_fixed: given.is_some() || !several }
    }

    /// Rounded up.
    pub(in crate::lock) fn seconds(self) -> u64 {
        self.length.as_secs() + u64::from(self.length.subsec_nanos() > 0)
    }

    pub(in crate::lock) fn is_off(self) -> bool {
        self.length.is_zero()
    }

    /// Makes the quarantine at least as long as `lease`, the ttl of a lease on a node, unless it is fixed.
    pub(in crate::lock) fn cover(&mut self, lease: Duration) {
        if !self.is_fixed {
            self.length = self.length.max(lease);
        }
    }

    /// How much longer a node stays in quarantine: zero if its uptime (in whole seconds) is not known.
    pub(crate) fn left(self, uptime: Option<Duration>) -> Duration {
        match uptime {
            Some(uptime) if !self.is_off() => (self.length + Duration::from_secs(1)).saturating_sub(uptime),
            _ => Duration::ZERO,
        }
    }
}
