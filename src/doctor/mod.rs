//! Checks whether the nodes are ready for locks: gathers facts from each, and judges them by a table of checks. Changes nothing
//! on a server.

mod checks;
mod facts;
mod permissions;

use crate::lock::Quarantine;
use crate::redis::Address;
use facts::{Facts, NodeFacts};
use futures_util::future::join_all;
use serde::Serialize;
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
pub(crate) struct Practice<'a> {
    pub(crate) addresses: &'a [Address],
    pub(crate) prefix: &'a str,
    /// The configured timeout; `node_timeout` is the effective one, for a lease of the default ttl.
    pub(crate) given_timeout: Option<Duration>,
    pub(crate) node_timeout: Duration,
    /// The number of replicas that have to confirm a lease.
    pub(crate) replicas: u32,
    pub(crate) quarantine: Quarantine,
    /// No server was configured.
    pub(crate) is_default: bool,
    /// The locks under the prefix, or the reason why they cannot be listed.
    pub(crate) locks: Result<Inventory, String>,
}

/// A summary of the locks under the prefix.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inventory {
    /// The longest lease that is held now.
    pub(crate) longest_lease: Duration,
    /// The names of locks that never expire.
    pub(crate) eternal: Vec<String>,
}

impl Practice<'_> {
    /// True if a node that restarts may not vote for a while.
    fn has_quarantine(&self) -> bool {
        self.addresses.len() > 1 && !self.quarantine.length().is_zero()
    }
}

/// Examines all nodes in parallel. Findings come worst first, and among equals those about all nodes first.
pub(crate) async fn examine(practice: &Practice<'_>) -> Vec<Finding> {
    let nodes = practice.addresses.iter().map(|node| facts::gather(node, practice.prefix, practice.node_timeout));
    let nodes: Vec<NodeFacts> = join_all(nodes).await;
    let reached: Vec<&Facts> = nodes.iter().flat_map(NodeFacts::reached).collect();
    let of_all = checks::OF_ALL.iter().map(|(check, look)| (None, *check, look(practice)));
    let of_nodes =
        nodes.iter().zip(practice.addresses).map(|(node, address)| of_node(node, address, practice, &reached));
    let of_nodes: Vec<Vec<CheckOutcome>> = of_nodes.collect();
    // A minority of nodes may be without a vote.
    let lost = of_nodes.iter().filter(|outcomes| outcomes.iter().any(|(_, _, checked)| has_no_vote(checked))).count();
    let enough = lost <= (practice.addresses.len() - 1) / 2;
    let outcomes = of_all.chain(of_nodes.into_iter().flatten());
    let mut findings: Vec<Finding> =
        outcomes.map(|(node, check, checked)| Finding::of(node, check, tolerated(checked, enough))).collect();
    findings.sort_by_key(|finding| finding.verdict);
    findings
}

/// A node, a check, and its result.
type CheckOutcome = (Option<String>, &'static str, CheckResult);

/// The checks of one node. `reached` is every server that answered, of all nodes.
fn of_node(node: &NodeFacts, address: &Address, practice: &Practice<'_>, reached: &[&Facts]) -> Vec<CheckOutcome> {
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
        let mut found = |check, checked| outcomes.push((Some(server.clone()), check, checked));
        match facts {
            Err(fault) => found("connection", checks::unreached(fault)),
            Ok(facts) => {
                let others: Vec<&Facts> = reached.iter().copied().filter(|one| !ptr::eq(*one, facts)).collect();
                // A Sentinel keeps no locks: the other checks do not apply.
                let looks = checks::OF_A_NODE.iter().filter(|(check, _)| *check == "kind" || !facts.is_sentinel());
                looks.for_each(|(check, look)| found(check, look(facts, practice, &others)));
            }
        }
    }
    outcomes
}

fn has_no_vote(checked: &CheckResult) -> bool {
    checked.as_ref().is_err_and(|problem| problem.costs_the_vote)
}

/// A node without a vote is a warning where `enough` others have one.
fn tolerated(checked: CheckResult, enough: bool) -> CheckResult {
    checked.map_err(|problem| match problem.costs_the_vote && enough {
        true => Problem { verdict: Diagnosis::Warn, ..problem },
        false => problem,
    })
}

/// A detail if all is well, else the problem.
type CheckResult = Result<String, Problem>;

/// A finding that is not ok.
#[derive(Clone, Debug)]
struct Problem {
    verdict: Diagnosis,
    /// True if the only harm is that the node grants no locks.
    costs_the_vote: bool,
    detail: String,
    advice: String,
}

impl Problem {
    fn fail(detail: impl Into<String>, advice: impl Into<String>) -> Problem {
        Problem { verdict: Diagnosis::Fail, costs_the_vote: false, detail: detail.into(), advice: advice.into() }
    }

    /// The node grants no locks.
    fn no_vote(detail: impl Into<String>, advice: impl Into<String>) -> Problem {
        Problem { costs_the_vote: true, ..Problem::fail(detail, advice) }
    }

    fn warn(detail: impl Into<String>, advice: impl Into<String>) -> Problem {
        Problem { verdict: Diagnosis::Warn, ..Problem::fail(detail, advice) }
    }

    fn unknown(detail: impl Into<String>, advice: impl Into<String>) -> Problem {
        Problem { verdict: Diagnosis::Unknown, ..Problem::fail(detail, advice) }
    }
}

impl Finding {
    fn of(node: Option<String>, check: &'static str, checked: CheckResult) -> Finding {
        match checked {
            Ok(detail) => Finding { node, check, verdict: Diagnosis::Ok, detail, advice: None },
            Err(Problem { verdict, detail, advice, .. }) => {
                Finding { node, check, verdict, detail, advice: Some(advice) }
            }
        }
    }
}
