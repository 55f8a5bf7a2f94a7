//! What nodes say that do not grant a lock: others have it, they cannot serve, or their vote does not count.

use super::Locker;
use super::Request;
use super::acquire::Attempt;
use super::ask::Answers;
use super::node::Reply;
use super::owner::Holder;
use super::quorum::middle;
use crate::error::{Error, Held, human};
use std::time::Duration;

/// The uptime that a node tells has a grain of a second.
const UPTIME_GRAIN: Duration = Duration::from_secs(1);
/// What the nodes said that have not granted the lock.
#[derive(Clone, Debug)]
pub(super) struct Busy {
    pub(super) held: Held,
    /// Until the lock may become free, if nobody lengthens it.
    pub(super) left: Option<Duration>,
    /// How many are before us in line.
    pub(super) rank: u64,
    /// The place we have got in line.
    pub(super) ticket: String,
    /// Nodes where we had not been in line.
    pub(super) queued: Vec<usize>,
    /// Some nodes may have granted it, but not enough; they have it back.
    pub(super) partial: bool,
    /// Nobody has a quorum: rivals took it at the same time, and each got a part.
    pub(super) split: bool,
}

impl Busy {
    /// Who has it, as seen by whoever asked.
    pub(super) fn of(&self, request: &Request) -> Held {
        let holder = self.held.holder.as_ref();
        Held {
            by_this_job: holder.is_some_and(|holder| request.ancestors.contains(&holder.token)),
            ..self.held.clone()
        }
    }
}

impl Locker {
    /// The error for a lock that others have.
    pub(super) fn is_held(&self, busy: &Busy, request: &Request, waited: Option<Duration>) -> Error {
        Error::Held(Box::new(Held { waited, ..busy.of(request) }))
    }

    /// Whether so many nodes have it held, or so many fail, that the reason is known.
    pub(super) fn told_why(&self, answers: &Answers) -> bool {
        let minority = self.nodes.len() - self.quorum();
        let refused = answers.count("held") + answers.count("foreign");
        refused > minority || answers.faults().count() > minority
    }

    /// Two addresses that lead to the same run of the same server would vote twice.
    pub(super) fn same_node_twice(&self, answers: &Answers) -> Option<Error> {
        let mut seen: Vec<(&str, usize)> = Vec::new();
        for (node, _, reply) in answers.replies() {
            let run_id = identity(reply).text(1);
            match seen.iter().find(|(other, _)| *other == run_id) {
                Some(&(_, other)) if !run_id.is_empty() => {
                    return Some(Error::Usage(format!(
                        "{} and {} are the same Redis given twice: each node needs one of its own",
                        self.nodes[other].address(),
                        self.nodes[node].address()
                    )));
                }
                _ => seen.push((run_id, node)),
            }
        }
        None
    }

    /// Tells apart "others have it" from "too few nodes can answer".
    pub(super) fn why_not(&self, answers: &Answers, quarantine: Duration) -> Attempt {
        let nodes = self.nodes.len();
        let young: Vec<(usize, Duration)> = answers
            .replies()
            .filter(|(_, _, reply)| reply.text(0) == "granted")
            .map(|(node, _, reply)| (node, young_for(reply, quarantine)))
            .filter(|(_, left)| !left.is_zero())
            .collect();
        let refused: Vec<&Reply> = answers
            .replies()
            .map(|(_, _, reply)| reply)
            .filter(|reply| matches!(reply.text(0), "held" | "foreign"))
            .collect();
        let reached = answers.replies().count() - young.len();
        if refused.is_empty() || reached < self.quorum() && refused.len() <= nodes - self.quorum() {
            let error = self.no_quorum(answers);
            let Some(longest) = young.iter().map(|(_, left)| *left).max() else {
                return Attempt::Faulty(error);
            };
            let names: Vec<String> = young.iter().map(|(node, _)| self.nodes[*node].address().to_string()).collect();
            let faults = match self.describe_faults(answers) {
                none if none.is_empty() => none,
                some => format!(" ({some})"),
            };
            let (names, vote, whose) = match names.split_last() {
                Some((last, others)) if !others.is_empty() => {
                    (format!("{} and {last}", others.join(", ")), "vote", "their")
                }
                _ => (names.concat(), "votes", "its"),
            };
            return Attempt::Faulty(Error::Unavailable(format!(
                "{:?}: {names} may have forgotten a lease in a restart, and {vote} again in {}{faults}; wait, or lower \
                 --quarantine if {whose} data is safe",
                self.name,
                human(longest),
            )));
        }
        // Who has it: the value that most nodes name.
        let votes = |reply: &Reply| {
            let same = |other: &&&Reply| reply.text(0) == other.text(0) && reply.text(1) == other.text(1);
            refused.iter().filter(same).count()
        };
        let most = refused.iter().max_by_key(|reply| (votes(reply), !reply.text(1).is_empty()));
        // Whoever has said nothing may stand behind it too.
        let unheard = nodes - answers.replies().count();
        let split = most.is_none_or(|reply| votes(reply) + unheard < self.quorum());
        let mut held = most.map_or_else(Held::default, |reply| self.held(reply));
        // Not by its value: that of another library may be empty.
        held.reserved = most.is_some_and(|reply| reply.text(0) == "held" && reply.int(8) == Some(1));
        if held.reserved {
            held.holder = None::<Holder>;
        }
        let known = |at: usize| -> Vec<u64> {
            refused.iter().filter_map(|reply| reply.int(at).and_then(|n| u64::try_from(n).ok())).collect()
        };
        Attempt::Busy(Box::new(Busy {
            left: middle(known(2), nodes).map(Duration::from_millis),
            rank: middle(known(5), nodes).unwrap_or(0),
            ticket: refused
                .iter()
                .map(|reply| reply.text(6))
                .find(|ticket| !ticket.is_empty())
                .unwrap_or("")
                .to_owned(),
            queued: answers
                .replies()
                .filter(|(_, _, reply)| reply.int(7) == Some(1))
                .map(|(node, _, _)| node)
                .collect(),
            partial: refused.len() < nodes,
            split,
            held,
        }))
    }
}

fn identity(reply: &Reply) -> &Reply {
    match reply.text(0) {
        "granted" => reply.at(2),
        "held" => reply.at(4),
        _ => reply.at(3),
    }
}

/// For how long the vote of a node still does not count because it has not been up for long: it may have forgotten a
/// lease. A node that refuses to tell is trusted.
pub(super) fn young_for(reply: &Reply, quarantine: Duration) -> Duration {
    if quarantine.is_zero() {
        return Duration::ZERO;
    }
    match identity(reply).text(0).parse::<u64>() {
        Ok(uptime) => (quarantine + UPTIME_GRAIN).saturating_sub(Duration::from_secs(uptime)),
        Err(_) => Duration::ZERO,
    }
}
