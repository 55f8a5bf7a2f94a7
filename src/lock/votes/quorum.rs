//! The arithmetic of the Redlock algorithm: quorum, drift, validity, decision. Pure: no clock, no I/O.
//!
//! All nodes are asked at once. `quorum.rs::Tally` decides once q nodes have said yes, or fewer than q still can. A
//! node's grant counts until dᵢ = the moment of sending + ttl − drift (1 % of the ttl and 2 ms: `quorum.rs::drift`).
//! **The lease is valid until V, the q-th largest dᵢ** (`quorum.rs::validity`). The server sets the expiry after the
//! moment of sending, so q nodes have the key until V, and a rival gets N − q < q nodes at most. `mod.rs::Backing`
//! keeps dᵢ for each node: a failed renewal shortens no lease. An answer after V does not count. **Invariant:** each
//! try has a token of its own, so a late answer is never taken for that of another try. A try without a quorum is
//! undone on every node that may have granted the try: at once, or by the next request (`traces.rs::Traces` keeps a
//! list).

use std::time::Duration;

/// More than half of the configured nodes, whether they can be reached or not.
pub fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// How much earlier than its ttl a lease may end: clocks run at different speeds, and a server expires keys with
/// limited precision. One percent and 2 ms, as in Redis' description of Redlock.
pub fn drift(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// The ttl less the drift: a node's grant is sure to last for this time after the request was sent.
pub fn less_drift(ttl: Duration) -> Duration {
    ttl.saturating_sub(drift(ttl))
}

/// The end of validity: the q-th largest of the nodes' deadlines. None if fewer than q nodes have a deadline.
///
/// Each node keeps the holder's key until its deadline at least. So a quorum has the key until the end of validity, and
/// a rival can get only the other nodes, which are fewer than q.
pub fn validity<T: Ord + Copy>(deadlines: &[Option<T>]) -> Option<T> {
    reached(deadlines.iter().flatten().copied().collect(), quorum(deadlines.len()))
}

/// The `needed`-th largest of these values; none if there are fewer values.
pub fn reached<T: Ord + Copy>(mut values: Vec<T>, needed: usize) -> Option<T> {
    values.sort_unstable_by(|a, b| b.cmp(a));
    values.get(needed - 1).copied()
}

/// The q-th smallest value; if fewer than q nodes answered, the largest; none if no node answered.
pub fn middle<T: Ord + Copy>(mut answers: Vec<T>, nodes: usize) -> Option<T> {
    answers.sort_unstable();
    answers.get(quorum(nodes) - 1).or(answers.last()).copied()
}

/// The answers of the nodes so far to one question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub nodes: usize,
    pub yes: usize,
    /// Nodes that said no, or cannot be counted on: failed, timed out, restarted too recently.
    pub no: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Yes,
    /// No quorum can say yes any more.
    No,
    /// The nodes that have not answered yet decide.
    Open,
}

impl Tally {
    /// Decides as early as the answers allow: a dead or slow node costs nothing when the others agree.
    pub fn verdict(self) -> Verdict {
        let quorum = quorum(self.nodes);
        if self.yes >= quorum {
            Verdict::Yes
        } else if self.no > self.nodes - quorum {
            Verdict::No
        } else {
            Verdict::Open
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::clock::Boot;

    const ORIGIN: Boot = Boot::at(Duration::from_secs(1000));

    /// Every combination of results of `nodes` nodes: yes (0), no (1), failed (2), no answer yet (3).
    fn every_combination(nodes: usize) -> impl Iterator<Item = Vec<usize>> {
        (0..4usize.pow(u32::try_from(nodes).expect("small"))).map(move |mut code| {
            (0..nodes)
                .map(|_| {
                    let answer = code % 4;
                    code /= 4;
                    answer
                })
                .collect()
        })
    }

    #[test]
    fn a_quorum_is_more_than_half_so_that_any_two_share_a_node() {
        assert_eq!((1..=7).map(quorum).collect::<Vec<_>>(), [1, 2, 2, 3, 3, 4, 4]);
        for nodes in 1..=7 {
            assert!(2 * quorum(nodes) > nodes);
            assert!(2 * (quorum(nodes) - 1) <= nodes, "and no larger than needed");
        }
    }

    #[test]
    fn verdict_is_exact_for_every_combination_of_one_to_seven_nodes() {
        for nodes in 1..=7 {
            for answers in every_combination(nodes) {
                let count = |kind| answers.iter().filter(|&&answer| answer == kind).count();
                let tally = Tally { nodes, yes: count(0), no: count(1) + count(2) };
                // By definition, the verdict depends on the worst and the best that the missing answers can bring.
                let best = count(0) + count(3);
                let expected = if count(0) * 2 > nodes {
                    Verdict::Yes
                } else if best * 2 <= nodes {
                    Verdict::No
                } else {
                    Verdict::Open
                };
                assert_eq!(tally.verdict(), expected, "{answers:?}");
            }
        }
    }

    #[test]
    fn before_the_end_of_validity_a_quorum_has_the_key_and_after_it_not() {
        for nodes in 1..=7 {
            for answers in every_combination(nodes) {
                // Most deadlines differ. Some may be equal: those of nodes 0 and 3, say.
                let deadlines: Vec<Option<Boot>> = answers
                    .iter()
                    .enumerate()
                    .map(|(node, &answer)| {
                        (answer != 2).then(|| ORIGIN + Duration::from_millis((answer * 100 + node % 3 * 10) as u64))
                    })
                    .collect();
                let alive_at = |moment: Boot| deadlines.iter().flatten().filter(|&&end| end >= moment).count();
                match validity(&deadlines) {
                    Some(end) => {
                        assert!(alive_at(end) >= quorum(nodes), "{deadlines:?}");
                        assert!(alive_at(end + Duration::from_nanos(1)) < quorum(nodes), "{deadlines:?}");
                    }
                    None => assert!(deadlines.iter().flatten().count() < quorum(nodes)),
                }
            }
        }
    }

    #[test]
    fn drift_is_one_percent_and_two_milliseconds() {
        assert_eq!(drift(Duration::from_secs(30)), Duration::from_millis(302));
        assert_eq!(less_drift(Duration::from_millis(500)), Duration::from_millis(493));
    }

    #[test]
    fn the_middle_is_what_a_quorum_has_reached() {
        assert_eq!(middle(vec![5, 1, 9], 3), Some(5));
        assert_eq!(middle(vec![9], 3), Some(9));
        assert_eq!(middle(Vec::<u8>::new(), 3), None);
    }
}
