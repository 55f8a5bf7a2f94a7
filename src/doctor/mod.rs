//! Checks whether the nodes are ready for locks: gathers facts from each, and judges them by a table of checks. Changes nothing
//! on a server.

mod checks;
mod facts;
mod permissions;

use crate::lock::{Quarantine, Status};
use crate::redis::Address;
use facts::Facts;
pub(crate) use facts::NodeFacts;
use futures_util::future::join_all;
use serde::Serialize;
use std::iter::zip;
use std::ptr;
use std::time::Duration;

/// The verdict of a check, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Diagnosis {
    Fail,
    Warn,
    /// The server does not reveal it.
    Unknown,
    Ok,
}

impl Diagnosis {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Diagnosis::Fail => "fail",
            Diagnosis::Warn => "warn",
            Diagnosis::Unknown => "unknown",
            Diagnosis::Ok => "ok",
        }
    }
}

/// The result of a check, of one node or of all nodes.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) node: Option<String>,
    pub(crate) check: &'static str,
    pub(crate) verdict: Diagnosis,
    /// The meaning for locks.
    pub(crate) detail: String,
    /// The remedy, unless all is well.
    pub(crate) advice: Option<String>,
}

/// The use of locks, as configured and as found.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) addresses: &'a [Address],
    pub(crate) prefix: &'a str,
    /// The effective timeout for a lease of the default ttl.
    pub(crate) node_timeout: Duration,
    /// The number of replicas that have to confirm a lease.
    pub(crate) replicas: u32,
    pub(crate) quarantine: Quarantine,
    /// No server was configured.
    pub(crate) is_default: bool,
    /// The locks under the prefix, or the reason why they cannot be listed.
    pub(crate) locks: Result<Vec<Status>, String>,
}

impl Setup<'_> {
    /// True if a node that restarts may not vote for a while.
    fn has_quarantine(&self) -> bool {
        self.addresses.len() > 1 && !self.quarantine.length().is_zero()
    }
}

/// Gathers the facts about all nodes, side by side. Each request may take `patience`.
pub(crate) async fn gather(nodes: &[Address], prefix: &str, patience: Duration) -> Vec<NodeFacts> {
    join_all(nodes.iter().map(|node| facts::gather(node, prefix, patience))).await
}

/// Examines the nodes of the setup. Findings come worst first, and among equals those about all nodes first.
pub(crate) fn examine(setup: &Setup<'_>, nodes: &[NodeFacts]) -> Vec<Finding> {
    let reached: Vec<&Facts> = nodes.iter().flat_map(NodeFacts::reached).collect();
    let of_nodes = zip(nodes, setup.addresses).map(|(node, address)| of_node(node, address, setup, &reached));
    let of_nodes: Vec<Vec<CheckOutcome>> = of_nodes.collect();
    // A minority of nodes may be without a vote.
    let has_no_vote = |(_, _, result): &CheckOutcome| matches!(result, Err(Problem { harm: Harm::NoVote, .. }));
    let lost = of_nodes.iter().filter(|outcomes| outcomes.iter().any(has_no_vote)).count();
    let enough = lost <= (setup.addresses.len() - 1) / 2;
    let of_all = checks::OF_ALL.iter().map(|(check, look)| (None, *check, look(setup)));
    let outcomes = of_all.chain(of_nodes.into_iter().flatten());
    let mut findings: Vec<Finding> = outcomes.map(|outcome| Finding::of(outcome, enough)).collect();
    findings.sort_by_key(|finding| finding.verdict);
    findings
}

/// A node, a check, and its result.
type CheckOutcome = (Option<String>, &'static str, CheckResult);

/// The checks of one node. `reached` is every server that answered, of all nodes.
fn of_node(node: &NodeFacts, address: &Address, setup: &Setup<'_>, reached: &[&Facts]) -> Vec<CheckOutcome> {
    let mut outcomes: Vec<CheckOutcome> = Vec::new();
    let name = || Some(address.to_string());
    if let Some(local) = address.local() {
        outcomes.push((name(), "local", checks::local(&local)));
    }
    // If no server answers, the check of the connection reports it.
    if node.sentinels.iter().any(|(_, view)| view.is_ok()) {
        outcomes.push((name(), "sentinels", checks::sentinels(&node.sentinels)));
    }
    for (server, facts) in &node.servers {
        let mut found = |check, result| outcomes.push((Some(server.clone()), check, result));
        match facts {
            Err(fault) => found("connection", checks::unreached(fault)),
            Ok(facts) => {
                let others: Vec<&Facts> = reached.iter().copied().filter(|one| !ptr::eq(*one, facts)).collect();
                // A Sentinel keeps no locks: the other checks do not apply.
                let looks = checks::OF_A_NODE.iter().filter(|(check, _)| *check == "kind" || !facts.is_sentinel());
                looks.for_each(|(check, look)| found(check, look(facts, setup, &others)));
            }
        }
    }
    outcomes
}

/// A detail if all is well, else the problem.
type CheckResult = Result<String, Problem>;

/// A finding that is not ok.
#[derive(Clone, Debug)]
struct Problem {
    harm: Harm,
    detail: String,
    advice: String,
}

/// The harm of a problem.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Fail,
    /// The node grants no locks: a warning where enough others have a vote.
    NoVote,
    Warn,
    Unknown,
}

impl Harm {
    fn problem(self, detail: &str, advice: &str) -> Problem {
        Problem { harm: self, detail: detail.to_owned(), advice: advice.to_owned() }
    }

    /// The problem, if there is one.
    fn when(self, wrong: bool, detail: &str, advice: &str) -> Result<(), Problem> {
        if wrong { Err(self.problem(detail, advice)) } else { Ok(()) }
    }
}

impl Finding {
    /// `enough` nodes have a vote.
    fn of((node, check, result): CheckOutcome, enough: bool) -> Finding {
        match result {
            Ok(detail) => Finding { node, check, verdict: Diagnosis::Ok, detail, advice: None },
            Err(Problem { harm, detail, advice }) => {
                let verdict = match harm {
                    Harm::NoVote if enough => Diagnosis::Warn,
                    Harm::Fail | Harm::NoVote => Diagnosis::Fail,
                    Harm::Warn => Diagnosis::Warn,
                    Harm::Unknown => Diagnosis::Unknown,
                };
                Finding { node, check, verdict, detail, advice: Some(advice) }
            }
        }
    }
}
