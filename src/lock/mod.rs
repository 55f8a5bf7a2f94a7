//! The lock: acquire, renew, extend, release, look, over N nodes. No clap, no printing.
//!
//! Calls go one way: `acquire` → `queue` → `attempt` → `traces` → `release`; `acquire` → `enter` → `traces`; `free`,
//! `revoke`, `stop` and `listing` → `status` → `history`; `renew` → `recreate`; each file that needs a quorum's verdict → `ask`.

pub mod history;
mod lease;
mod line;
mod scripts;
mod terms;
pub mod view;
pub mod votes;
mod wire;

pub(crate) use history::newest::Newest;
pub(crate) use history::read::RunQuery;
pub(crate) use history::run::{End, Run, RunOutcome};
pub(crate) use history::visits::{Met, Visit};
pub(crate) use lease::release::Unwritten;
pub(crate) use lease::renew::{Renewal, Try, renewal_interval};
pub(crate) use lease::revoke::Revocation;
pub(crate) use lease::stop::{StopNews, Stopped};
pub(crate) use lease::traces::UNDO_TIMEOUT;
pub(crate) use lease::{DEFAULT_TTL, Lease};
pub(crate) use line::queue::WaitReport;
pub(crate) use terms::claim::Claim;
pub(crate) use terms::holder::{Holder, Leases, Obstacle};
pub(crate) use terms::owner::Owner;
pub(crate) use terms::waiter::Waiter;
pub(crate) use view::check::{Facts, Finding};
pub(crate) use view::listing::{Missing, Selection, Unlisted, stands_for};
pub(crate) use view::order::{counted, place};
pub(crate) use view::status::{State, Status, View};
pub(crate) use votes::quarantine::Quarantine;
pub(crate) use votes::quorum::{less_drift, quorum};
pub(crate) use wire::keys;
pub(crate) use wire::locks::Locks;

use crate::redis::{Call, Fault, Script};
use crate::sys::clock::Boot;
use history::periods::OncePer;
use history::run;
use std::time::Duration;
use terms::token;
use wire::fields::Args;
use wire::keys::Keys;

#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) name: String,
    keys: Keys,
    /// None for a command that takes no lease: the scripts then read the claim from the lock.
    claim: Option<Claim>,
    pub(crate) locks: Locks,
    /// What the last release could not record about the end of the run.
    pub(crate) unwritten: Unwritten,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) ttl: Duration,
    /// The longest wait in line: zero for a call that does not wait, [`Duration::MAX`] for a wait without an end. A call
    /// with `--once-per` may wait longer: see [`OncePer::waits`].
    pub(crate) wait: Duration,
    /// The owner of the lease to come.
    pub(crate) owner: Owner,
    /// The tokens of the enclosing jobs' leases, the outermost first.
    pub(crate) ancestors: Vec<String>,
    pub(crate) reenter: Reenter,
    /// One process renews the lease, and another releases it. The release leaves a note, so that the process that
    /// renews does not take it for a loss.
    pub(crate) noted: bool,
    /// Another process releases the lease, by its token.
    pub(crate) is_acquired: bool,
    pub(crate) called: Boot,
    pub(crate) once_per: Option<OncePer>,
    /// True if the call names the label of the owner; false: it is the command's name.
    pub(crate) has_label: bool,
    /// The caller's number of `--newest`: nothing is granted if a larger number has come.
    pub(crate) newest: Option<u64>,
    /// The number of runs that the log of the lock keeps; zero: the run leaves no trace there.
    pub(crate) log: u64,
}

impl Request {
    fn is_renewed_by_none(&self) -> bool {
        self.is_acquired && !self.noted
    }

    /// The most runs of this call's period.
    fn tries(&self) -> Option<u64> {
        self.once_per?.tries
    }

    /// What this call with `--once-per` promises, as log.lua describes it.
    fn promises(&self) -> Option<String> {
        let once = self.once_per?;
        Some(format!("{} {}", once.period.as_millis(), once.due().as_millis()))
    }

    /// How far this call looks back with `--once-per`.
    fn looks_back(&self) -> Option<Duration> {
        Some(self.once_per?.looks_back(self.called.elapsed()))
    }

    /// The holder, if it is a run with `--once-per` of this call's period.
    fn same_period<'a>(&self, by: &'a Obstacle) -> Option<&'a Holder> {
        let reach = self.looks_back()?;
        let [holder] = by.holders() else { return None };
        (holder.is_once && holder.held? < reach).then_some(holder)
    }

    /// This call's label, if a run with this label and `has_label` seems to be another job's. Labels are compared as the
    /// history keeps them.
    fn unlike(&self, label: &Option<String>, has_label: bool) -> Option<String> {
        let (ours, theirs) = (run::kept_label(&self.owner.label), run::kept_label(label));
        (!self.has_label && !has_label && ours != theirs).then_some(ours)
    }
}

/// Whether to re-enter a lease, instead of waiting for the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reenter {
    No,
    /// Other options of this call rule a re-entry out.
    Excluded,
    /// If an ancestor still holds a lease, re-enter it, and do not change its ttl. Otherwise take the lock as usual.
    IfHeld,
    /// Re-enter the lease of this token, or fail. The entry extends it to the request's ttl, unless it lasts longer.
    Must(String),
}

impl Lock {
    pub(crate) fn node_timeout(&self) -> Duration {
        self.locks.node_timeout()
    }

    pub(crate) fn key(&self) -> &str {
        &self.keys.lock
    }

    pub(crate) fn with_claim(self, claim: Claim) -> Lock {
        Lock { claim: Some(claim), ..self }
    }

    /// The claim with which this process takes leases on the lock.
    pub(crate) fn claim(&self) -> Claim {
        self.claim.unwrap_or_default()
    }

    fn call(&self, script: &'static Script, args: Args) -> Call {
        self.keys.call(script, args.with_some("claim", self.claim.map(Claim::word)))
    }

    /// A call for the lease of the token `stem`. If its release leaves a note ([`token::is_noted`]), the call also has
    /// the note's key: release.lua writes the note, extend.lua reads it.
    fn call_noted(&self, script: &'static Script, stem: &str, args: Args) -> Call {
        let note = token::is_noted(stem).then(|| self.keys.note(stem));
        self.call(script, args.with_some("note", note.as_ref())).with_key(note)
    }

    /// The nodes that have granted the lease, for messages: `10.0.0.1:6379`, or `2 of 3 nodes (10.0.0.3:6379 timed
    /// out)`.
    pub(crate) fn where_it_holds(&self, lease: &Lease) -> String {
        let nodes = &self.locks.nodes;
        if nodes.len() == 1 {
            return nodes.name(0);
        }
        let granted = lease.backing.iter().filter(|backing| backing.until.is_some()).count();
        let why = |(node, fault): &(usize, Fault)| format!("{} {fault}", nodes.name(*node));
        match lease.faults.iter().map(why).collect::<Vec<_>>().join(", ").as_str() {
            "" => format!("{granted} of {} nodes", nodes.len()),
            why => format!("{granted} of {} nodes ({why})", nodes.len()),
        }
    }

    /// Returns once a node that was lost is connected again.
    pub(crate) async fn reconnected(&mut self) {
        self.locks.nodes.reconnected().await;
    }
}
