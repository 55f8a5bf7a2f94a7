//! A held lease: the confirmations of the nodes, and the end of its validity.

mod acquire;
pub(super) mod attempt;
mod enter;
mod extend;
pub(super) mod newest;
pub(super) mod release;
pub(super) mod renew;
pub(super) mod revoke;
pub(super) mod traces;

use crate::lock::Request;
use crate::lock::history::run;
use crate::lock::terms::owner::Owner;
use crate::lock::terms::token;
use crate::lock::votes::quorum::less_drift;
use crate::lock::votes::recreate;
use crate::lock::wire::answer::Answer;
use crate::lock::wire::fields::Args;
use crate::redis::Fault;
use crate::sys::clock::Boot;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The default of --ttl. cli/mod.rs has the same value as text.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// After a restart a call with `--newest` is warned for this long: a call with a larger number may have come before the
/// restart. Older deployments seldom come later than that.
pub(super) const FRESH: Duration = Duration::from_secs(3600);

/// One grant of a lock, limited in time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lease {
    /// The random identity of the lease. If this process has re-entered the lease, a suffix names this process's hold.
    pub(crate) token: String,
    /// This process's hold: [`token::BASE`], or the id of the hold with which this process entered the lease.
    pub(super) hold: String,
    /// A number larger than the fencing tokens of all earlier leases on the lock or slot. But a shared lease has the
    /// fencing token of the last writer.
    pub(crate) fencing_token: u64,
    pub(crate) ttl: Duration,
    /// The slot of the lease, from zero, if the lock has slots.
    pub(crate) slot: Option<u32>,
    /// The moment at which this process got the lease.
    pub(super) since: Boot,
    /// The number of holds of the lease, this process's included.
    pub(crate) holds: u64,
    pub(super) owner: Owner,
    /// What redlock knows of the lease's run, for the lock's memory. None with `--log 0`.
    pub(super) entry: Option<String>,
    /// True if a success of the job counts for `--once-per`.
    pub(crate) is_once: bool,
    /// The caller's number of `--newest`.
    pub(super) newest: Option<u64>,
    /// With `newest`, at the grant: the time since a node was started, if this was less than [`FRESH`] ago, and no quorum of
    /// other nodes has granted the lease. The node may have forgotten a larger number.
    #[serde(skip)]
    pub(crate) fresh: Option<Duration>,
    /// What the holder knows of each node.
    pub(super) backing: Vec<Backing>,
    /// The nodes that did not grant the lease because of a fault, and the faults. No other process gets this list.
    #[serde(skip)]
    pub(super) faults: Vec<(usize, Fault)>,
}

/// The holder's knowledge of one node. Its field `run` is the server's run_id.
pub(super) type Backing = recreate::Backing<Boot, String>;

impl Lease {
    /// A lease that was asked for, and that no node has confirmed yet.
    pub(super) fn new(token: String, hold: String, request: &Request, nodes: usize) -> Lease {
        Lease {
            token,
            hold,
            fencing_token: 0,
            ttl: request.ttl,
            slot: None,
            since: Boot::now(),
            holds: 1,
            owner: request.owner.clone(),
            entry: run::entry(request, Duration::ZERO),
            is_once: request.once_per.is_some(),
            newest: request.newest,
            fresh: None,
            backing: vec![Backing::default(); nodes],
            faults: Vec::new(),
        }
    }

    /// Records that a node has granted the lease, or has let this process enter the lease. `ttl` counts from `sent`,
    /// the moment at which the request was sent.
    pub(super) fn granted(&mut self, node: usize, sent: Boot, ttl: Duration, by: &Answer) {
        self.backing[node] = Backing { until: Some(sent + less_drift(ttl)), run: by.run_id.clone(), removed: false };
    }

    /// True if the lease was granted to this process; false if this process re-entered the lease.
    pub(crate) fn is_outermost(&self) -> bool {
        self.hold == token::BASE
    }

    /// The end of validity: until then a quorum of nodes is sure to back the lease. If no quorum backs the lease,
    /// returns the moment at which the machine was started.
    pub(crate) fn valid_until(&self) -> Boot {
        recreate::valid_until(&self.backing).unwrap_or(Boot::at(Duration::ZERO))
    }

    /// The token of the lease itself, without the suffix of a hold.
    pub(super) fn stem(&self) -> &str {
        token::split(&self.token).0
    }

    /// Adds what a node needs to write the end of the run: the run_id from the node's last confirmation, the beginning
    /// (ms ago), and the run itself. This is enough even for a node that has restarted and forgotten everything.
    pub(super) fn add_run_to(&self, args: Args, node: usize) -> Args {
        let entry = self.entry.as_ref().map(|entry| run::told(entry, &self.token, self.fencing_token, self.slot));
        args.with_some("run_id", self.backing[node].run.as_ref())
            .time("began", self.since.elapsed())
            .with_some("entry", entry)
    }

    /// The arguments that name the lease, its slot and its ttl.
    pub(super) fn args(&self) -> Args {
        Args::default().with("token", self.stem()).with_some("slot", self.slot).time("ttl", self.ttl)
    }
}
