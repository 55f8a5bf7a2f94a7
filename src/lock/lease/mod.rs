//! A held lease: the confirmations of the nodes, and the end of its validity.

mod acquire;
pub(super) mod attempt;
mod enter;
mod extend;
mod forget;
pub(super) mod release;
pub(super) mod renew;
pub(super) mod revoke;
pub(super) mod stop;
pub(super) mod traces;

use crate::lock::Request;
use crate::lock::history::run;
use crate::lock::history::run::{End, Entry};
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

/// After a restart a call with `--newest` is warned for this long, because a call with a larger number may have come
/// before the restart. Older deployments seldom come later than that.
pub(super) const FRESH: Duration = Duration::from_secs(3600);

/// One grant of a lock, limited in time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lease {
    /// The random identity of the lease. If this process has re-entered the lease, a suffix names its hold.
    pub(crate) token: String,
    /// This process's hold: [`token::BASE`], or the id with which it entered the lease.
    pub(super) hold: String,
    /// Larger than the fencing tokens of all earlier leases on the lock or slot; a shared lease has the last writer's.
    pub(crate) fencing_token: u64,
    pub(crate) ttl: Duration,
    /// The slot of the lease, from zero, if the lock has slots.
    pub(crate) slot: Option<u32>,
    /// When this process got the lease.
    pub(super) since: Boot,
    /// This process's included.
    pub(crate) holds: u64,
    pub(super) owner: Owner,
    /// What redlock knows of the lease's run, for the lock's history. None with `--log 0`.
    pub(super) entry: Option<Entry>,
    /// For each node, the beginning of the run by its own clock (ms since 1970), from its grant.
    pub(super) began: Vec<Option<u64>>,
    /// True if a success of the job counts for `--once-per`.
    pub(crate) is_once: bool,
    /// True if the run counts for `--tries`.
    pub(super) is_counted: bool,
    pub(super) has_label: bool,
    /// The caller's number of `--newest`.
    pub(super) newest: Option<u64>,
    /// With `newest`, at the grant: the uptime of a node that was started less than [`FRESH`] ago, if no quorum of
    /// other nodes has granted the lease. The node may have forgotten a larger number.
    #[serde(skip)]
    pub(crate) fresh: Option<Duration>,
    pub(super) backing: Vec<Backing>,
    /// The nodes that did not grant the lease because of a fault. No other process gets this list.
    #[serde(skip)]
    pub(super) faults: Vec<(usize, Fault)>,
}

/// Its field `run` is the server's run_id.
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
            began: vec![None; nodes],
            is_once: request.once_per.is_some(),
            is_counted: request.tries().is_some(),
            has_label: request.has_label,
            newest: request.newest,
            fresh: None,
            backing: vec![Backing::default(); nodes],
            faults: Vec::new(),
        }
    }

    /// Records that a node has granted the lease, or has let this process enter it. `ttl` counts from `sent`, when the
    /// request was sent.
    pub(super) fn granted(&mut self, node: usize, sent: Boot, ttl: Duration, by: &Answer) {
        self.backing[node] = Backing { until: Some(sent + less_drift(ttl)), run: by.run_id.clone(), removed: false };
        self.began[node] = by.get("began").as_count();
    }

    /// True if the lease was granted to this process, false if this process re-entered it.
    pub(crate) fn is_outermost(&self) -> bool {
        self.hold == token::BASE
    }

    /// Until then a quorum of nodes is sure to back the lease. If no quorum does, this is the moment at which the
    /// machine was started.
    pub(crate) fn valid_until(&self) -> Boot {
        recreate::valid_until(&self.backing).unwrap_or(Boot::at(Duration::ZERO))
    }

    /// The token of the lease itself, without the suffix of a hold.
    pub(super) fn stem(&self) -> &str {
        token::split(&self.token).0
    }

    /// The beginning of the run by the clock of this node (ms since 1970). A node whose grant was not heard gets the
    /// middle one of the others, because its own clock would say when a late request is executed, not when it began.
    pub(super) fn began(&self, node: usize) -> Option<u64> {
        let mut known: Vec<u64> = self.began.iter().copied().flatten().collect();
        known.sort_unstable();
        self.began[node].or(known.get(known.len() / 2).copied())
    }

    /// The whole run with its end, for the history of this node: enough even for a node that has forgotten everything.
    /// None if the history notes no run.
    pub(super) fn ended(&self, node: usize, end: End<'_>) -> Option<String> {
        let mut run = self.entry.clone()?;
        let mut add = |letter: &str, text: Option<String>| _ = text.map(|text| run.insert(letter.to_owned(), text));
        add("t", Some(self.token.clone()));
        add("b", self.began(node).map(|began| began.to_string()));
        add("f", Some(self.fencing_token.to_string()));
        add("i", self.slot.map(|slot| slot.to_string()));
        add("d", Some(end.at.min(Boot::now()).since(self.since).as_millis().to_string()));
        run.extend(end.fields());
        Some(run::json(&run))
    }

    /// Adds what a node needs to note the end of the run: the run itself, or that nothing ran (`unused`), and the
    /// run_id of its last confirmation. `end`: none if this process has re-entered the lease.
    pub(super) fn add_end_to(&self, args: Args, node: usize, end: Option<End<'_>>) -> Args {
        let Some(end) = end else { return args };
        args.with_some("run_id", self.backing[node].run.as_ref())
            .flag("unused", end.outcome.is_none())
            .flag("tries", self.is_counted)
            .with_some("run", self.ended(node, end))
    }

    pub(super) fn args(&self) -> Args {
        Args::default().with("token", self.stem()).with_some("slot", self.slot).time("ttl", self.ttl)
    }
}
