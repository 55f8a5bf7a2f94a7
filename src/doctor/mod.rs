//! Checks whether the nodes are ready for locks: gathers facts from each, and judges them by a table of checks. Changes
//! nothing on a server.

mod checks;
mod facts;
mod finding;
mod permissions;

use crate::redis::Address;
pub(crate) use checks::{LockFacts, Setup};
use facts::Facts;
pub(crate) use facts::NodeFacts;
use finding::{CheckOutcome, Harm, Problem};
pub(crate) use finding::{Diagnosis, Finding};
use futures_util::future::join_all;
use std::iter::zip;
use std::ptr;
use std::time::Duration;

/// Gathers the facts about all nodes at the same time. Each request may take `patience`.
pub(crate) async fn gather(nodes: &[Address], prefix: &str, patience: Duration) -> Vec<NodeFacts> {
    join_all(nodes.iter().map(|node| facts::gather(node, prefix, patience))).await
}

/// Examines the nodes. The worst findings come first; of equal verdicts, those about all nodes come first.
pub(crate) fn examine(setup: &Setup<'_>, nodes: &[NodeFacts]) -> Vec<Finding> {
    let reached: Vec<&Facts> = nodes.iter().flat_map(NodeFacts::reached).collect();
    let of_nodes = zip(nodes, setup.addresses).map(|(node, address)| of_node(node, address, setup, &reached));
    let of_nodes: Vec<Vec<CheckOutcome>> = of_nodes.collect();
    // Locks still work if less than half of the nodes have no vote.
    let has_no_vote = |(_, _, result): &CheckOutcome| matches!(result, Err(Problem { harm: Harm::NoVote, .. }));
    let lost = of_nodes.iter().filter(|outcomes| outcomes.iter().any(has_no_vote)).count();
    let enough = lost <= (setup.addresses.len() - 1) / 2;
    let of_all = checks::OF_ALL.iter().map(|(check, look)| (None, *check, look(setup)));
    let outcomes = of_all.chain(of_nodes.into_iter().flatten());
    let mut findings: Vec<Finding> = outcomes.map(|outcome| Finding::of(outcome, enough)).collect();
    findings.sort_by_key(|finding| finding.verdict);
    findings
}

/// The checks of one node. `reached` is every server that answered, of all nodes.
fn of_node(node: &NodeFacts, address: &Address, setup: &Setup<'_>, reached: &[&Facts]) -> Vec<CheckOutcome> {
    let mut outcomes: Vec<CheckOutcome> = Vec::new();
    let name = || Some(address.to_string());
    if let Some(local) = address.local() {
        outcomes.push((name(), "local", checks::local(&local)));
    }
    // If no Sentinel answers, the check `connection` reports this failure.
    if node.sentinels.iter().any(|(_, view)| view.is_ok()) {
        outcomes.push((name(), "sentinels", checks::sentinels(&node.sentinels)));
    }
    for (server, facts) in &node.servers {
        let mut found = |check, result| outcomes.push((Some(server.clone()), check, result));
        match facts {
            Err(fault) => found("connection", checks::unreached(fault)),
            Ok(facts) => {
                let others: Vec<&Facts> = reached.iter().copied().filter(|one| !ptr::eq(*one, facts)).collect();
                // A Sentinel keeps no locks, so only the check `kind` applies.
                let looks = checks::OF_A_NODE.iter().filter(|(check, _)| *check == "kind" || !facts.is_sentinel());
                looks.for_each(|(check, look)| found(check, look(facts, setup, &others)));
            }
        }
    }
    outcomes
}
