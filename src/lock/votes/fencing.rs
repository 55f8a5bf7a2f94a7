//! Fencing tokens that only ever grow, over N nodes. Pure: no clock, no I/O.
//!
//! Each node counts the leases of a lock: counter = max(counter + 1, the client's clock in ms). The fencing token of a
//! lease is the largest counter among the nodes that granted it. The client uses it once the counters of q nodes have
//! reached it, and raises a smaller counter if the node still has the lease. The quorums of two leases share a node,
//! whose counter had reached the first lease's fencing token before it granted the second lease. So the second lease's
//! fencing token is larger.
//!
//! A shared lease adds nothing to the counter. Over several nodes, a node that has lost its counter answers 0, which
//! the client ignores. If q granting nodes have a counter, at least one of them knows the last writer's. If fewer have
//! one, the client's clock counts, too: it is nearly always larger than any writer's counter.

use crate::lock::votes::quorum::quorum;

/// The fencing token of a granted lease, and the nodes whose counters must be raised before it is used.
#[derive(Debug, PartialEq, Eq)]
pub struct FenceVote {
    pub token: u64,
    /// The granting nodes whose counters are smaller than the fencing token.
    pub behind: Vec<usize>,
    /// How many of the counters in `behind` have to be raised, no matter which.
    pub needed: usize,
}

/// `grants`: the nodes that granted the lease, and their counters (0: none). `clock`: the client's, in ms since 1970.
pub fn vote(grants: &[(usize, u64)], nodes: usize, clock: u64) -> FenceVote {
    let largest = grants.iter().map(|&(_, counter)| counter).max().unwrap_or(0);
    let counted = grants.iter().filter(|&&(_, counter)| counter > 0).count();
    // If fewer than q nodes have a counter, perhaps none of them knows the last writer's counter.
    let token = if counted < quorum(nodes) { largest.max(clock) } else { largest };
    let behind: Vec<usize> = grants.iter().filter(|&&(_, counter)| counter < token).map(|&(node, _)| node).collect();
    let needed = quorum(nodes).saturating_sub(grants.len() - behind.len());
    FenceVote { token, behind, needed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_agree_need_nothing_more() {
        let agreed = FenceVote { token: 7, behind: Vec::new(), needed: 0 };
        assert_eq!(vote(&[(0, 7)], 1, 9), agreed);
        assert_eq!(vote(&[(0, 7), (2, 7)], 3, 9), agreed);
        // One node is behind, but the other two have reached the token, and are a quorum.
        let one_behind = FenceVote { token: 7, behind: vec![1], needed: 0 };
        assert_eq!(vote(&[(0, 7), (1, 5), (2, 7)], 3, 9), one_behind);
    }

    #[test]
    fn as_many_are_raised_as_a_quorum_lacks() {
        let raised = |behind, needed| FenceVote { token: 9, behind, needed };
        assert_eq!(vote(&[(1, 9), (2, 3)], 3, 8), raised(vec![2], 1));
        assert_eq!(vote(&[(0, 9), (3, 8), (4, 9)], 5, 8), raised(vec![3], 1));
        assert_eq!(vote(&[(0, 1), (1, 2), (3, 9), (4, 8)], 5, 8), raised(vec![0, 1, 4], 2));
        assert_eq!(vote(&[(0, 9), (1, 4)], 2, 8), raised(vec![1], 1));
    }

    #[test]
    fn a_lost_counter_is_replaced_by_those_of_a_quorum_or_by_the_clock() {
        let token = |grants: &[(usize, u64)]| vote(grants, 3, 9).token;
        assert_eq!([token(&[(0, 0), (1, 5), (2, 5)]), token(&[(0, 0), (1, 5)]), token(&[(0, 0), (1, 0)])], [5, 9, 9]);
        assert_eq!(token(&[(0, 0), (1, 11)]), 11);
        assert_eq!(vote(&[(0, 0), (1, 5)], 3, 9), FenceVote { token: 9, behind: vec![0, 1], needed: 2 });
    }
}
