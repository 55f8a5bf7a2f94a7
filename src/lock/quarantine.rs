//! The time for which a node that was started has no vote. Pure: no clock, no I/O.

use super::lease::DEFAULT_TTL;
use std::time::Duration;

/// The time for which a node that was started has no say about leases that it may have forgotten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quarantine {
    pub(crate) length: Duration,
    /// It was given; otherwise it grows with the ttl of every lease that a node shows.
    pub(crate) is_fixed: bool,
}

impl Quarantine {
    /// The one that was given, else one that covers leases of this ttl. A single node has none unless it was given:
    /// for that time no caller could have the lock.
    pub(super) fn new(given: Option<Duration>, ttl: Duration, nodes: usize) -> Quarantine {
        let several = nodes > 1;
        let default = if several { ttl.max(DEFAULT_TTL) } else { Duration::ZERO };
        Quarantine { length: given.unwrap_or(default), is_fixed: given.is_some() || !several }
    }

    /// The same in whole seconds, rounded up.
    pub(super) fn seconds(self) -> u64 {
        self.length.as_secs() + u64::from(self.length.subsec_nanos() > 0)
    }

    /// True if no node has to be up for any time.
    pub(super) fn is_off(self) -> bool {
        self.length.is_zero()
    }

    /// Takes in the length of a lease that a node knows of.
    pub(super) fn cover(&mut self, lease: Duration) {
        if !self.is_fixed {
            self.length = self.length.max(lease);
        }
    }

    /// The rest of the quarantine of a node that has been up for `uptime`, which has a grain of a second.
    pub(crate) fn left(self, uptime: Option<Duration>) -> Duration {
        match uptime {
            Some(uptime) if !self.is_off() => (self.length + Duration::from_secs(1)).saturating_sub(uptime),
            _ => Duration::ZERO,
        }
    }
}
