//! The rule by which a holder re-creates its lease on nodes that have lost it. Pure: no clock, no I/O.
//!
//! A number with a word, 12 (`Clocks`), is a result of the models (tests/model): without the clause `Clocks`, a search
//! finds a fault after 12 steps.
//!
//! A node *backs* a lease while it keeps the key. A node that has restarted empty backs the lease while its quarantine
//! keeps rivals out. The lease is valid for as long as q nodes back it. Every clause of the rule is needed: without it
//! a search (tests/model) finds two holders, a lease that comes back after `release --force`, or no quorum.
//!
//! A restarted node may have forgotten leases. With N > 1 such a node is *quarantined* (`quarantine.rs::Quarantine`)
//! for `--quarantine` (by default the ttl, but at least 30 s, and at least each ttl that a node shows). A quarantined
//! node grants nothing, and has no vote on a lock that it does not know (`ask.rs::may_have_forgotten`). The same is
//! true of a node that hides its uptime. With N = 1 there is no quarantine unless the option is given.
//!
//! The holder re-creates the lease on a node that has lost it. `recreate.rs::judge` judges all answers to a round of
//! renewals. This table is for a node that says *gone*. d is the node's dᵢ, and *void* if it no longer counts. A node
//! whose run_id differs from that of its last confirmation has restarted, and is *another run*:
//!
//! | the node is | d has not passed | d has passed, or there is none |
//! | --- | --- | --- |
//! | another run, quarantined (or N = 1) | re-create at once, on that run; d stays | void; nothing while quarantined |
//! | another run, not quarantined | void; re-create if q others confirm in this round | the same |
//! | the same run | void; never re-create: deleted on purpose | void; re-create if q others confirm, not quarantined |
//! | an unknown run (INFO refused) | void; re-create if q others confirm, not quarantined | the same |
//!
//! If a node says *another has it*, d is void; if d had not passed, that node never gets the lease again. If any node
//! says *revoked*, nothing is re-created. If a node does not answer, its d stays. If fewer than q nodes have a d that
//! has not passed, the lease is lost. `recreate.lua` ignores the queue and the reservation, and raises the counter to
//! the lease's fencing token. If any of these clauses is left out, the models find a fault:
//!
//! | clause | without it | found |
//! | --- | --- | --- |
//! | a quarantined node has no vote | the node votes again, for a rival | two holders, 5 (`Quarantine`) |
//! | at once only if d has not passed | a rival's lease is forgotten | two holders, 17 (`NotPassed`), 19 (`PassedByNow`) |
//! | not on a quarantined node that never confirmed | the node may back a rival | two holders, 16 (`NotWhileQuarantined`) |
//! | the request names the run | the request arrives after the next restart | two holders, 16 (`RunInRequest`) |
//! | N = 1: refused if F has grown | a later holder has come and gone | the lease is back, 9 (`CounterInScript`) |
//! | q others must confirm | a lease deleted by `--force` returns, node by node | the lease is back, 15 (`ByOthers`) |
//! | … with `--quarantine 0` too | a deleted lease returns, after restarts | the lease is back, 12 (`StillQuarantined`) |
//! | the same run, d not passed: never again | a deleted lease returns | the lease is back, 19 (`ForTheRestOfTheLease`) |
//! | *another has it*, d not passed: never | a deleted lease returns | the lease is back, 28 (`AnotherAfterRemoval`) |
//! | a confirmation brings the run_id | a deletion is taken for a restart | the lease is back, 15 (`RunOfConfirmation`) |
//! | *gone* and *another has it* void d | votes that are lost count | no quorum, 6 (`VoidByGone`), 9 (`VoidByAnother`) |
//! | answers after V count for nothing | a lease that has ended is valid again | no quorum, 6 (`InTime`) |
//!
//! **The only server restarts empty.** The holder finds its connection closed, and tries to connect every 100 ms
//! (`mod.rs::RECONNECT`). Then it renews at once, hears *gone* from another run, and re-creates the lease. Waiters keep
//! the lock reserved for the holder. A newcomer that asks before the holder and all waiters gets the lock: the holder
//! then hears *another has it*, a loss. Both have the lock until the first job is dead. `--quarantine` closes this gap.

use crate::lock::votes::quorum::{quorum, validity};
use serde::{Deserialize, Serialize};

/// The answer of one node in a round of renewal. `run` is the node's run_id, none if INFO is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeReport<T, R> {
    /// The lease exists, and was extended: the node backs it until `until`.
    Confirmed { until: T, run: Option<R> },
    /// The lease is lost, and no other lease is in its way.
    Lost { run: Option<R>, quarantined: bool },
    /// Another holder holds the lock on the node, or a later grant or `release --force` has ended the lease.
    Another,
    /// The lease exists, and was revoked.
    Revoked,
    /// The node failed, timed out, or gave an answer that says nothing about the lease.
    Silent,
}

/// What the holder knows of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backing<T, R> {
    /// Until this time, which follows from its last confirmation, the node is sure to back the lease; none if it does
    /// not.
    pub until: Option<T>,
    /// The server's run_id at its last confirmation; none if INFO is refused.
    pub run: Option<R>,
    /// The key was deleted on purpose: the lease is never re-created on this node.
    pub removed: bool,
}

impl<T, R> Default for Backing<T, R> {
    fn default() -> Backing<T, R> {
        Backing { until: None, run: None, removed: false }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Round<T> {
    pub sent: T,
    /// The moment at which all nodes have answered, or at which the time is up.
    pub now: T,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement<R> {
    /// The nodes on which to re-create the lease, and the run_id of each.
    pub recreate: Vec<(usize, Option<R>)>,
    /// True if fewer than q nodes back the lease, or its validity is over.
    pub lost: bool,
}

pub fn valid_until<T: Ord + Copy, R>(nodes: &[Backing<T, R>]) -> Option<T> {
    validity(&nodes.iter().map(|node| node.until).collect::<Vec<_>>())
}

fn is_valid<T: Ord + Copy, R>(nodes: &[Backing<T, R>], now: T) -> bool {
    valid_until(nodes).is_some_and(|end| now < end)
}

/// Records that a node has extended or re-created the lease, and backs it until `until`: the moment of sending + ttl −
/// drift. `run` is the run_id in its answer, none if INFO is refused. Returns false if the validity had ended before
/// the answer came: then it does not count, and the node's key must be deleted.
pub fn confirm<T: Ord + Copy, R>(nodes: &mut [Backing<T, R>], node: usize, until: T, run: Option<R>, now: T) -> bool {
    let counts = is_valid(nodes, now);
    if counts {
        nodes[node].until = Some(until);
        nodes[node].run = run;
    }
    counts
}

/// Judges all the answers of a round together, one for each node.
pub fn judge<T: Ord + Copy, R: Clone + PartialEq>(
    nodes: &mut [Backing<T, R>],
    said: &[NodeReport<T, R>],
    round: Round<T>,
) -> Judgement<R> {
    if !is_valid(nodes, round.now) {
        return Judgement { recreate: Vec::new(), lost: true };
    }
    // `forgot`: nodes that restarted, forgot the lease, and have let in no rival. `missed`: other nodes without the
    // lease, which get it only if q nodes confirm it.
    let (mut forgot, mut missed) = (Vec::new(), Vec::new());
    let (mut confirmed, mut revoked) = (0, false);
    let alone = nodes.len() == 1;
    for (index, (node, said)) in nodes.iter_mut().zip(said).enumerate() {
        match said {
            NodeReport::Silent => {}
            NodeReport::Confirmed { until, run } => {
                confirmed += 1;
                node.until = Some(*until);
                node.run = run.clone();
            }
            // If the node still had to back the lease at `round.sent`, the lease did not run out there: it was deleted.
            NodeReport::Another => {
                node.removed |= node.until.is_some_and(|until| round.sent < until);
                node.until = None;
            }
            NodeReport::Revoked => {
                node.until = None;
                revoked = true;
            }
            NodeReport::Lost { run, quarantined } => {
                let passed = |moment: T| node.until.is_none_or(|until| until <= moment);
                let known = run.is_some() && node.run.is_some();
                let restarted = known && *run != node.run;
                // No rival got the lock: before the restart the key kept rivals out, and after it the quarantine. (A
                // single node has no quarantine by default; there the counter shows whether a rival got the lock.) The
                // node must back the lease until now, because otherwise the key may have expired before the restart,
                // and the node may have granted a rival's lease.
                if restarted && !passed(round.now) && (*quarantined || alone) {
                    forgot.push((index, run.clone()));
                    continue;
                }
                // If the node has not restarted, and still had to back the lease at `round.sent`, the key was deleted.
                node.removed |= known && !restarted && !passed(round.sent);
                node.until = None;
                if !quarantined {
                    missed.push((index, run.clone()));
                }
            }
        }
    }
    let mut judgement = Judgement { recreate: Vec::new(), lost: !is_valid(nodes, round.now) };
    let by_others = confirmed >= quorum(nodes.len());
    if !revoked && !judgement.lost {
        judgement.recreate = forgot;
        if by_others {
            judgement.recreate.extend(missed);
        }
        judgement.recreate.retain(|(index, _)| !nodes[*index].removed);
    }
    judgement
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Round<u32> = Round { sent: 10, now: 12 };

    /// The judgement of these reports. Before this round, each node has confirmed the lease until 30, with run_id 1.
    fn judged(said: &[NodeReport<u32, u32>]) -> (Judgement<u32>, Vec<Backing<u32, u32>>) {
        let known = Backing { until: Some(30), run: Some(1), removed: false };
        let mut nodes = vec![known; said.len()];
        (judge(&mut nodes, said, ROUND), nodes)
    }

    fn gone(run: Option<u32>, quarantined: bool) -> NodeReport<u32, u32> {
        NodeReport::Lost { run, quarantined }
    }

    const HERE: NodeReport<u32, u32> = NodeReport::Confirmed { until: 40, run: Some(1) };

    #[test]
    fn a_node_whose_quarantine_is_over_needs_the_word_of_the_others() {
        let (judgement, nodes) = judged(&[gone(Some(2), false), HERE, NodeReport::Silent]);
        assert_eq!((judgement.recreate, judgement.lost, nodes[0].until), (vec![], false, None));
        let (judgement, _) = judged(&[gone(Some(2), false), HERE, HERE]);
        assert_eq!(judgement.recreate, [(0, Some(2))]);
        let (judgement, nodes) = judged(&[gone(Some(2), true), HERE, NodeReport::Silent]);
        assert_eq!((judgement.recreate, nodes[0].until), (vec![(0, Some(2))], Some(30)));
    }

    #[test]
    fn a_node_that_does_not_say_its_run_needs_it_too_and_is_not_taken_to_be_emptied() {
        let (judgement, nodes) = judged(&[gone(None, false), HERE, NodeReport::Silent]);
        assert_eq!((judgement.recreate, nodes[0].removed), (vec![], false));
        let (judgement, _) = judged(&[gone(None, false), HERE, HERE]);
        assert_eq!(judgement.recreate, [(0, None)]);
    }

    #[test]
    fn nothing_is_recreated_once_a_node_says_revoked() {
        let (judgement, _) = judged(&[gone(Some(2), true), HERE, HERE, HERE, NodeReport::Revoked]);
        assert_eq!((judgement.recreate, judgement.lost), (vec![], false));
    }

    #[test]
    fn a_single_node_is_given_the_lease_after_a_restart_and_not_after_a_deletion() {
        assert_eq!(judged(&[gone(Some(2), false)]).0, Judgement { recreate: vec![(0, Some(2))], lost: false });
        assert!(judged(&[gone(Some(1), false)]).0.lost);
        assert!(judged(&[gone(None, false)]).0.lost);
    }
}
