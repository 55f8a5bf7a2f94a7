//! Getting a lock: one attempt on all nodes, what has to be true for it to count, and how a failed one is undone.

use super::ask::Answers;
use super::lease::{Lease, hold_token, split_token};
use super::node::{Call, Node, Order, Reply};
use super::owner::{Holder, ourselves};
use super::queue::full_jitter;
use super::quorum::{Verdict, middle};
use super::{Locker, Reenter, Request, Wait, fencing, scripts};
use crate::error::{Error, Held};
use crate::sys::clock::{Boot, unix_time};
use std::time::Duration;
use uuid::Uuid;

/// The uptime that a node tells has a grain of a second.
const UPTIME_GRAIN: Duration = Duration::from_secs(1);
/// What clean-up may take when a signal waits: the end comes within 100 ms.
pub(super) const HURRY: Duration = Duration::from_millis(80);

/// How long to wait, up to these times, before each further try after a lost race among several.
const RIVALRY_MS: [u64; 6] = [20, 40, 80, 160, 320, 640];
const RIVALRY_AT_MOST: Duration = Duration::from_secs(1);

/// Whoever tries to get the lock, and as what.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidate {
    /// Its name in the queue; empty when it takes the lock or leaves it.
    pub(super) waiter: String,
    /// Its place in the queue; empty until it has one.
    pub(super) ticket: String,
}

/// How one attempt went.
pub(super) enum Attempt {
    Granted(Lease),
    /// Others have it, or part of it.
    Busy(Box<Busy>),
    /// Too few nodes can answer. Nothing is left behind on those that do.
    Faulty(Error),
    /// This signal came. Nothing is left behind.
    Interrupted(i32),
}

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

impl Locker {
    /// Takes the lock, or queues for it as long as `request.wait` says. `on_wait` is called when the wait begins and
    /// whenever something about it has changed. On failure nothing is left on any node that answers.
    ///
    /// # Errors
    /// [`Error::Held`], [`Error::Unavailable`], [`Error::Refused`], [`Error::Interrupted`]; [`Error::NotHeld`] when a
    /// lease had to be entered that has ended; [`Error::Usage`] when two addresses lead to the same node.
    pub(crate) fn acquire(
        &mut self,
        request: &Request,
        on_wait: &mut dyn FnMut(&super::Waiting),
    ) -> Result<Lease, Error> {
        if let Some(place) = self.place.take() {
            return self.go_on_waiting(place, request, on_wait);
        }
        let start = Boot::now();
        if request.reenter != Reenter::No {
            for token in &request.ancestors {
                if let Some(lease) = self.enter(token, request)? {
                    return Ok(lease);
                }
            }
            if request.reenter == Reenter::Must {
                return Err(Error::NotHeld(format!(
                    "the token does not hold {:?}: its lease has ended, so there is nothing to enter",
                    self.name
                )));
            }
        }
        let mut attempt = self.attempt(&Candidate::default(), request);
        // Of rivals that come at the same time each may get a part, and then one of them should get all.
        for base in RIVALRY_MS {
            if !matches!(&attempt, Attempt::Busy(busy) if busy.split) {
                break;
            }
            let pause = Duration::from_millis(base)
                .max(Boot::now().since(start) * 3)
                .min(RIVALRY_AT_MOST);
            if let Some(signal) = self.pause(full_jitter(pause)) {
                return Err(Error::Interrupted(signal));
            }
            attempt = self.attempt(&Candidate::default(), request);
        }
        match attempt {
            Attempt::Granted(lease) => Ok(Lease {
                waited: Boot::now().since(start),
                ..lease
            }),
            Attempt::Faulty(error) => Err(error),
            Attempt::Interrupted(signal) => Err(Error::Interrupted(signal)),
            Attempt::Busy(busy) if request.wait == Wait::No => {
                Err(self.is_held(*busy, request, None))
            }
            Attempt::Busy(busy) => self.queue(request, *busy, start, on_wait),
        }
    }

    /// The error for a lock that others have.
    pub(super) fn is_held(&self, busy: Busy, request: &Request, waited: Option<Duration>) -> Error {
        let by_this_job = busy
            .held
            .holder
            .as_ref()
            .is_some_and(|holder| request.ancestors.contains(&holder.token));
        Error::Held(Box::new(Held {
            waited,
            by_this_job,
            ..busy.held
        }))
    }

    /// One try on all nodes, with a token of its own.
    pub(super) fn attempt(&mut self, candidate: &Candidate, request: &Request) -> Attempt {
        let token = Uuid::new_v4().simple().to_string();
        let ttl = request.ttl.as_millis().to_string();
        // The same number on all nodes, so that they agree on the fencing token at once.
        let now = unix_time().as_millis().to_string();
        let identify = if self.nodes.len() > 1 || !self.quarantine.is_zero() {
            "1"
        } else {
            "0"
        };
        let [host, pid, user, label] = ourselves(&request.label);
        let call = self.script(
            &scripts::TAKE,
            &[
                &candidate.waiter,
                &token,
                &ttl,
                &candidate.ticket,
                &now,
                identify,
                &host,
                &pid,
                &user,
                &label,
            ],
        );
        let give_up = self.deadline();
        let quarantine = self.quarantine;
        let counts = move |reply: &Reply| {
            reply.text(0) == "granted" && young_for(reply, quarantine).is_zero()
        };
        let start = Boot::now();
        let mut answers = self.ask_all(&call, give_up, |answers| {
            answers.tally(counts).verdict() != Verdict::Open
        });
        if answers.tally(counts).verdict() == Verdict::Yes {
            self.linger(&mut answers, start);
        } else if !self.told_why(&answers) {
            // It is decided, but not whether it is held or cannot be had.
            self.take_more(&mut answers, give_up, |locker, answers| {
                !locker.told_why(answers)
            });
        } else {
            self.settle(&mut answers, start);
        }
        if answers.interrupted.is_none() {
            answers.interrupted = self.take_interrupt();
        }
        let mut failed = None;
        if let Some(signal) = answers.interrupted {
            failed = Some(Attempt::Interrupted(signal));
        } else if let Some(error) = self.same_node_twice(&answers) {
            failed = Some(Attempt::Faulty(error));
        } else if answers.tally(counts).verdict() == Verdict::Yes {
            match self.confirm(&token, &answers, counts, request) {
                Attempt::Granted(lease) => return Attempt::Granted(lease),
                attempt => failed = Some(attempt),
            }
        }
        let failed = failed.unwrap_or_else(|| self.why_not(&answers, quarantine));
        match &failed {
            // Back in line, and nobody is woken: they would only do the same.
            Attempt::Busy(busy) if !candidate.waiter.is_empty() => {
                if busy.partial {
                    let undo = self.script(
                        &scripts::ROLLBACK,
                        &[&candidate.waiter, &token, &candidate.ticket],
                    );
                    self.undo(&undo, &answers, false);
                }
            }
            Attempt::Interrupted(_) => {
                let undo = self.script(&scripts::LEAVE, &[&candidate.waiter, &token]);
                self.undo(&undo, &answers, true);
            }
            _ => {
                let undo = self.script(&scripts::LEAVE, &["", &token]);
                self.undo(&undo, &answers, false);
            }
        }
        failed
    }

    /// Whether so many nodes have it held, or so many fail, that the reason is known.
    fn told_why(&self, answers: &Answers) -> bool {
        let minority = self.nodes.len() - self.quorum();
        let refused = answers.count("held") + answers.count("foreign");
        refused > minority || answers.faults().count() > minority
    }

    /// A quorum has granted the lock. The others should have it too, in case one of the quorum is lost: gives them the
    /// moment that their request needs to be written, a part of what the quorum has taken.
    fn linger(&mut self, answers: &mut Answers, start: Boot) {
        let decided = Boot::now();
        let took = decided.since(start);
        let until = decided + (took / 4).max(Duration::from_millis(20));
        let moment = (took / 16).max(Duration::from_millis(1));
        while !answers.all() && !until.passed() {
            let round = answers.round;
            // Not before the script has been sent in full, where it is not known.
            let on_its_way = |locker: &Locker, node: usize| {
                locker.nodes[node].has_written(round)
                    && !locker.nodes.iter().any(Node::did_not_know)
            };
            let silent = (0..self.nodes.len()).filter(|&node| answers.got[node].is_none());
            if silent.clone().all(|node| on_its_way(self, node))
                && Boot::now().since(decided) >= moment
            {
                break;
            }
            self.take_more(answers, Boot::now() + moment, |_, _| true);
        }
    }

    /// Enough nodes have granted the lock. Makes sure that q of them stand at the lease's fencing token, and that the
    /// lease is still worth something.
    fn confirm(
        &mut self,
        token: &str,
        answers: &Answers,
        counts: impl Fn(&Reply) -> bool,
        request: &Request,
    ) -> Attempt {
        let granted: Vec<(usize, u64)> = answers
            .replies()
            .filter(|(_, _, reply)| counts(reply))
            .map(|(node, _, reply)| {
                (
                    node,
                    reply
                        .int(1)
                        .and_then(|fence| u64::try_from(fence).ok())
                        .unwrap_or(0),
                )
            })
            .collect();
        let fence = fencing::settle(&granted, self.nodes.len());
        if fence.needed > 0 {
            let call = self.script(&scripts::FENCE, &[token, &fence.token.to_string()]);
            let behind = (0..self.nodes.len())
                .map(|node| fence.behind.contains(&node))
                .collect();
            let deadline = self.deadline();
            let raised = self.ask(&call, behind, deadline, Order::InTurn, |raised| {
                raised.count("granted") >= fence.needed
            });
            if let Some(signal) = raised.interrupted {
                return Attempt::Interrupted(signal);
            }
            if raised.count("granted") < fence.needed {
                // One is ahead, because somebody else has had the lock there meanwhile: try again.
                return match raised.count("higher") + raised.count("gone") {
                    0 => Attempt::Faulty(self.no_quorum(&raised)),
                    _ => Attempt::Busy(Box::new(Busy {
                        held: Held {
                            name: self.name.clone(),
                            ..Held::default()
                        },
                        left: None,
                        rank: 0,
                        ticket: String::new(),
                        queued: Vec::new(),
                        partial: true,
                        split: true,
                    })),
                };
            }
        }
        let mut lease = Lease {
            token: token.to_owned(),
            fencing_token: fence.token,
            ttl: request.ttl,
            holds: 1,
            waited: Duration::ZERO,
            label: request.label.clone(),
            first_round: answers.round,
            deadlines: vec![None; self.nodes.len()],
        };
        for (node, sent, reply) in answers.replies().filter(|(_, _, reply)| counts(reply)) {
            lease.take_in(node, sent, reply);
        }
        if lease.valid_until().passed() {
            let ttl = humantime::format_duration(request.ttl);
            return Attempt::Faulty(Error::Unavailable(format!(
                "{:?}: the nodes took longer to grant it than it would have lasted ({ttl}); a longer --ttl helps",
                self.name
            )));
        }
        Attempt::Granted(lease)
    }

    /// Two addresses that lead to the same run of the same server would vote twice.
    fn same_node_twice(&self, answers: &Answers) -> Option<Error> {
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
    fn why_not(&self, answers: &Answers, quarantine: Duration) -> Attempt {
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
            let names: Vec<String> = young
                .iter()
                .map(|(node, _)| self.nodes[*node].address().to_string())
                .collect();
            let faults = match self.describe_faults(answers) {
                none if none.is_empty() => none,
                some => format!(" ({some})"),
            };
            return Attempt::Faulty(Error::Unavailable(format!(
                "{:?}: {} may have forgotten a lease in a restart, and votes again in {}{faults}; wait, or lower \
                 --quarantine if its data is safe",
                self.name,
                names.join(" and "),
                humantime::format_duration(Duration::from_secs(longest.as_secs())),
            )));
        }
        // Who has it: the value that most nodes name.
        let votes = |reply: &Reply| {
            let same =
                |other: &&&Reply| reply.text(0) == other.text(0) && reply.text(1) == other.text(1);
            refused.iter().filter(same).count()
        };
        let most = refused
            .iter()
            .max_by_key(|reply| (votes(reply), !reply.text(1).is_empty()));
        let split = most.is_none_or(|reply| votes(reply) < self.quorum());
        let mut held = most.map_or_else(Held::default, |reply| self.held(reply));
        // Not by its value: that of another library may be empty.
        held.reserved =
            most.is_some_and(|reply| reply.text(0) == "held" && reply.int(8) == Some(1));
        if held.reserved {
            held.holder = None::<Holder>;
        }
        let known = |at: usize| -> Vec<u64> {
            refused
                .iter()
                .filter_map(|reply| reply.int(at).and_then(|n| u64::try_from(n).ok()))
                .collect()
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

    /// Undoes what an attempt may have done on every node that has not said that it did nothing: over the same
    /// connection, so that it arrives behind a late request, and with a deadline of its own. A node that has not
    /// answered the attempt is not waited for as long again: a moment, since a server that is about to answer when we
    /// have gone would not read what else we have sent.
    pub(super) fn undo(&mut self, call: &Call, answers: &Answers, hurry: bool) {
        let did_nothing = |node: usize| matches!(&answers.got[node], Some((_, Ok(reply))) if matches!(reply.text(0), "held" | "foreign"));
        let silent = |node: usize| !matches!(&answers.got[node], Some((_, Ok(_))));
        // In a hurry there may be a place in line to give up too.
        let asked: Vec<bool> = (0..self.nodes.len())
            .map(|node| hurry || !did_nothing(node))
            .collect();
        if !asked.contains(&true) {
            return;
        }
        self.cleaning_up = true;
        let deadline = Boot::now()
            + if hurry {
                HURRY
            } else {
                self.node_timeout.max(HURRY)
            };
        let mut undone = self.ask(call, asked.clone(), deadline, Order::Undo, |_| true);
        let start = Boot::now();
        for node in &self.nodes {
            node.give_up_before(undone.round);
        }
        let done = |locker: &Locker, undone: &Answers, node: usize| {
            let sent =
                locker.nodes[node].has_written(undone.round) && Boot::now().since(start) >= HURRY;
            let nothing_to_undo = !locker.nodes[node].has_written(1);
            !asked[node] || undone.got[node].is_some() || silent(node) && (sent || nothing_to_undo)
        };
        while !deadline.passed() && !(0..self.nodes.len()).all(|node| done(self, &undone, node)) {
            self.take_more(
                &mut undone,
                Boot::now() + Duration::from_millis(1),
                |_, _| true,
            );
        }
        self.cleaning_up = false;
    }

    /// Enters a lease that an ancestor holds once more; none when it does not hold it any more.
    fn enter(&mut self, token: &str, request: &Request) -> Result<Option<Lease>, Error> {
        let (stem, _) = split_token(token);
        let hold = &Uuid::new_v4().simple().to_string()[..8];
        let call = self.script(
            &scripts::ENTER,
            &[stem, hold, &request.ttl.as_millis().to_string()],
        );
        let deadline = self.deadline();
        let answers = self.ask_all(&call, deadline, |answers| answers.decided("granted"));
        let granted = answers.tally(|reply| reply.text(0) == "granted");
        if granted.verdict() == Verdict::Yes {
            let mut lease = Lease {
                token: hold_token(stem, hold),
                fencing_token: 0,
                ttl: request.ttl,
                holds: 1,
                waited: Duration::ZERO,
                label: request.label.clone(),
                first_round: answers.round,
                deadlines: vec![None; self.nodes.len()],
            };
            // What the others say is about somebody else's lease.
            let granted = |(_, _, reply): &(usize, Boot, &Reply)| reply.text(0) == "granted";
            for (node, sent, reply) in answers.replies().filter(granted) {
                lease.take_in(node, sent, reply);
                let number = |at| {
                    reply
                        .int(at)
                        .and_then(|n| u64::try_from(n).ok())
                        .unwrap_or(0)
                };
                lease.fencing_token = lease.fencing_token.max(number(1));
                lease.holds = lease.holds.max(number(2));
            }
            return Ok(Some(lease));
        }
        // Undone hold by hold: the id is new, so this can hurt nobody.
        let undo = self.script(
            &scripts::RELEASE,
            &[&hold_token(stem, hold), stem, hold, "0"],
        );
        if granted.yes > 0 || answers.replies().count() < self.nodes.len() {
            self.undo(&undo, &answers, answers.interrupted.is_some());
        }
        if let Some(signal) = answers.interrupted {
            return Err(Error::Interrupted(signal));
        }
        let no = answers.count("gone") + answers.count("other");
        if no > self.nodes.len() - self.quorum() {
            Ok(None)
        } else {
            Err(self.no_quorum(&answers))
        }
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
fn young_for(reply: &Reply, quarantine: Duration) -> Duration {
    if quarantine.is_zero() {
        return Duration::ZERO;
    }
    match identity(reply).text(0).parse::<u64>() {
        Ok(uptime) => (quarantine + UPTIME_GRAIN).saturating_sub(Duration::from_secs(uptime)),
        Err(_) => Duration::ZERO,
    }
}
