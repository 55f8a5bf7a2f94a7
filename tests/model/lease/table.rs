//! A second implementation of the table of re-creation at the head of lock/votes/recreate.rs, of which a search can
//! leave out a clause.

use super::super::recreate::{Backing, Judgement, NodeReport, Round};
use super::Without;

/// What a client has to do if a node says *gone*.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Row {
    Nothing,
    /// Re-create the lease on the node, even if no other node confirms it.
    AtOnce,
    /// Re-create the lease on the node if q other nodes confirm it in this round.
    ByOthers,
}

/// Does the same as `judge` of lock/votes/recreate.rs, but leaves out the clause `without`.
pub(super) fn judge_without(
    without: Without,
    nodes: &mut [Backing<i8, u8>],
    said: &[NodeReport<i8, u8>],
    round: Round<i8>,
) -> Judgement<u8> {
    let is = |clause| without == clause;
    let (alone, quorum) = (nodes.len() == 1, nodes.len() / 2 + 1);
    let valid = |nodes: &[Backing<i8, u8>]| {
        nodes.iter().filter(|node| node.until.is_some_and(|until| until > round.now)).count() >= quorum
    };
    if !valid(nodes) && !is(Without::InTime) {
        return Judgement { recreate: Vec::new(), lost: true };
    }
    let mut rows = Vec::new();
    for (index, (node, said)) in nodes.iter_mut().zip(said).enumerate() {
        match *said {
            NodeReport::Silent => {}
            NodeReport::Confirmed { until, run } => {
                node.until = Some(until);
                node.run = run;
            }
            NodeReport::Another | NodeReport::Revoked if is(Without::VoidByAnother) => {}
            NodeReport::Another => {
                let passed = node.until.is_none_or(|until| until <= round.sent);
                node.removed |= !passed && !is(Without::AnotherAfterRemoval);
                node.until = None;
            }
            NodeReport::Revoked => node.until = None,
            NodeReport::Lost { run, quarantined } => {
                let passed_at = |moment| node.until.is_none_or(|until| until <= moment);
                let passed = passed_at(if is(Without::PassedByNow) { round.sent } else { round.now });
                let same = run == node.run;
                let row = match (node.run.is_some() && !same, quarantined || alone || is(Without::StillQuarantined)) {
                    (true, true) if passed && !is(Without::NotPassed) => Row::Nothing,
                    (true, true) => Row::AtOnce,
                    (true, false) => Row::ByOthers,
                    (false, _) if same && !passed_at(round.sent) && !is(Without::RemovedOnPurpose) => {
                        node.removed = !is(Without::ForTheRestOfTheLease);
                        Row::Nothing
                    }
                    (false, _) if quarantined && !is(Without::NotWhileQuarantined) => Row::Nothing,
                    (false, _) => Row::ByOthers,
                };
                if row != Row::AtOnce && !is(Without::VoidByGone) {
                    node.until = None;
                }
                if !node.removed {
                    rows.push((index, run, row));
                }
            }
        }
    }
    let lost = !valid(nodes) && !is(Without::InTime);
    let confirmed = said.iter().filter(|said| matches!(said, NodeReport::Confirmed { .. })).count();
    let by_others = confirmed >= quorum || is(Without::ByOthers);
    let revoked = said.contains(&NodeReport::Revoked);
    rows.retain(|&(_, _, row)| row == Row::AtOnce || row == Row::ByOthers && by_others);
    rows.sort_by_key(|&(_, _, row)| row == Row::ByOthers);
    let recreate =
        if lost || revoked { Vec::new() } else { rows.into_iter().map(|(node, run, _)| (node, run)).collect() };
    Judgement { recreate, lost }
}
