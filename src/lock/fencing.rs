//! Fencing tokens that only ever grow, over N nodes. Pure: no clock, no I/O.
//!
//! Each node counts the leases of a lock: counter = max(counter + 1, the client's clock in ms). A lease's token is the
//! largest counter among the nodes that granted it, and q of them must stand at it before it is used; those that are
//! behind are raised, on the condition that they still have the lease and are not ahead. Two winners' quorums share such
//! a node, where the later one's grant came after the earlier one's token, and is larger.
//!
//! The models (tests/model) include this file by its path: of redlock it imports only the other files that they include.

use super::quorum::quorum;

/// The condition for a granted lease to use its fencing token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Settlement {
    /// The fencing token of the lease.
    pub(super) token: u64,
    /// Nodes that granted the lease and stand lower.
    pub(super) behind: Vec<usize>,
    /// The number of them that have to be raised.
    pub(super) needed: usize,
}

/// Decides from the counter of each node that granted the lease: node, counter.
pub(super) fn settle(grants: &[(usize, u64)], nodes: usize) -> Settlement {
    let token = grants.iter().map(|&(_, counter)| counter).max().unwrap_or(0);
    let behind: Vec<usize> = grants.iter().filter(|&&(_, counter)| counter < token).map(|&(node, _)| node).collect();
    let needed = quorum(nodes).saturating_sub(grants.len() - behind.len());
    Settlement { token, behind, needed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_agree_need_nothing_more() {
        let agreed = Settlement { token: 7, behind: Vec::new(), needed: 0 };
        assert_eq!(settle(&[(0, 7)], 1), agreed);
        assert_eq!(settle(&[(0, 7), (2, 7)], 3), agreed);
        // Here one is behind, but a quorum stands at the token without it.
        let one_behind = Settlement { token: 7, behind: vec![1], needed: 0 };
        assert_eq!(settle(&[(0, 7), (1, 5), (2, 7)], 3), one_behind);
    }

    #[test]
    fn as_many_are_raised_as_a_quorum_lacks() {
        let raised = |behind, needed| Settlement { token: 9, behind, needed };
        assert_eq!(settle(&[(1, 9), (2, 3)], 3), raised(vec![2], 1));
        assert_eq!(settle(&[(0, 9), (3, 8), (4, 9)], 5), raised(vec![3], 1));
        assert_eq!(settle(&[(0, 1), (1, 2), (3, 9), (4, 8)], 5), raised(vec![0, 1, 4], 2));
        assert_eq!(settle(&[(0, 9), (1, 4)], 2), raised(vec![1], 1));
    }
}
