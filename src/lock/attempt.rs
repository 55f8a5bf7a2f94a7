//! One try to get a lock on all nodes: the conditions under which it counts, and the way to undo it.
//!
//! A try may be dropped at any await: a signal, the end of the wait. What it has sent stays sent. Its caller then calls
//! [`Lock::withdraw`] with the same [`Footprint`], whose requests arrive behind it on the same connections.

use super::answer::{
    Done, ExtendAnswer, FenceAnswer, Identity, LeaseAnswer, Place, ReleaseAnswer, TakeAnswer, TakeOutcome,
};
use super::ask::linger;
use super::fencing;
use super::fields::Args;
use super::holder::{Blocker, most_named};
use super::lease::Lease;
use super::log::Run;
use super::quorum::{Verdict, middle, quorum};
use super::token::{self, BASE};
use super::{Claim, Lock, Request, scripts};
use crate::error::{Error, HeldLock};
use crate::redis::{Answers, Call, Fault, FromReply};
use crate::sys::clock::{Boot, unix_time};
use crate::sys::random::below;
use std::time::Duration;

/// The patience with a node when a try is undone: a signal ends the wait within 100 ms. The request is on its way at
/// once, but a server that is about to answer a closed connection does not read what else was sent over it.
pub(crate) const FAREWELL: Duration = Duration::from_millis(80);

/// The number of free places that each node tells.
const FREE_PLACES: u32 = 32;
/// The patience with nodes that granted another place than the quorum.
const GATHERING: Duration = Duration::from_millis(20);
/// The place in line on a node that has none for this waiter.
const NOT_IN_LINE: Place = Place { rank: None, ticket: None, just_queued: false };

/// The result of one try.
pub(super) enum Attempt {
    Granted(Lease),
    /// Others have it, or part of it.
    Busy(Box<Busy>),
    /// Too few nodes can answer.
    Failure(Error),
}

/// The answers of the nodes that have not granted the lock, together.
#[derive(Clone, Debug, Default)]
pub(super) struct Busy {
    pub(super) by: Blocker,
    /// The identity of the node, where there is only one.
    pub(super) node: Identity,
    /// The time until the lock may become free, unless it is extended.
    pub(super) left: Option<Duration>,
    /// The number of waiters ahead of this one.
    pub(super) rank: Option<u64>,
    /// Its place in line.
    pub(super) ticket: Option<String>,
    /// Nodes where it had not been in line.
    pub(super) queued: Vec<usize>,
    /// No rival has a quorum: several took it at the same time, and each got a part.
    pub(super) split: bool,
}

/// The possible remains of a try on the nodes.
#[derive(Debug, Default)]
pub(super) struct Footprint {
    /// The token of the latest try. Each try has its own, so that a late answer to one cannot be taken for another's.
    token: Option<String>,
    /// The name in the queue, of a caller that queues.
    pub(super) waiter: Option<String>,
    /// The place in the queue, once there is one.
    pub(super) ticket: Option<String>,
    /// The place at which the next try begins to look for a free one, if the lock has slots.
    start: Option<u32>,
    /// The nodes that may have granted the latest try.
    may_have_it: Vec<bool>,
    /// The hold with which a lease was entered, as the token of the lease and the id of the hold.
    pub(super) hold: Option<(String, String)>,
    /// The time at which the first try began.
    began: Option<Boot>,
}

/// The lease that a waiter saw on a single server, for the case that the server restarts without its memory.
#[derive(Clone, Debug)]
pub(super) struct LastSeenLease {
    pub(super) token: Vec<u8>,
    pub(super) run_id: String,
    pub(super) fencing_token: u64,
    pub(super) claim: Claim,
    pub(super) slot: Option<u32>,
    /// The latest end of that lease.
    pub(super) until: Boot,
    /// The longest time that it may last, until that is counted from the end of the connection.
    pub(super) longest: Option<Duration>,
}

impl Footprint {
    pub(super) fn new() -> Footprint {
        Footprint { began: Some(Boot::now()), ..Footprint::default() }
    }

    fn add_to(&self, args: Args) -> Args {
        let Footprint { token, waiter, ticket, .. } = self;
        args.with("token", token.as_deref()).with("waiter", waiter.as_deref()).with("ticket", ticket.as_deref())
    }
}

impl Lock {
    /// One try on all nodes, with a token of its own, and not after `until`.
    pub(super) async fn attempt(
        &mut self,
        footprint: &mut Footprint,
        request: &Request,
        seen: Option<&LastSeenLease>,
        until: Boot,
    ) -> Attempt {
        let token = if request.noted { token::new_noted() } else { token::new_token() };
        footprint.token = Some(token.clone());
        footprint.may_have_it = vec![true; self.locks.nodes.len()];
        let start = Boot::now();
        let call = self.take_call(footprint, request, seen);
        let deadline = self.locks.nodes.deadline().min(until);
        let mut decided = None;
        let patience = |answers: &Answers<TakeAnswer>| {
            let patience = match verdict(answers) {
                _ if ran(answers).is_some() => Duration::ZERO,
                // Any of the others may know of a success.
                Verdict::Yes if request.once_per.is_some() => return Boot::NEVER,
                // The others should have the lock too, in case one of the quorum is lost.
                Verdict::Yes => (start.elapsed() / 8).max(Duration::from_millis(2)),
                Verdict::No if is_explained(answers) => linger(start, answers.faults().next().is_some()),
                _ => return Boot::NEVER,
            };
            *decided.get_or_insert_with(|| Boot::now() + patience)
        };
        let answers = self.locks.nodes.ask(&call, |_| true, deadline, patience).await;
        for (node, _, take) in answers.iter() {
            footprint.may_have_it[node] = take.is_granted();
        }
        if let Some(error) = self.same_node_twice(&answers) {
            return Attempt::Failure(error);
        }
        if let (Some(run), Some(once_per)) = (ran(&answers), request.once_per) {
            let run = Box::new(run.clone());
            return Attempt::Failure(Error::Ran { name: self.name.clone(), run, once_per });
        }
        let answers = self.without_ageless(answers);
        // Also one that has granted it has no vote, if a longer lease that another shows makes the quarantine longer.
        let answers = self.locks.without_young(answers);
        footprint.start = free_on_most(&answers);
        let attempt = match verdict(&answers) {
            Verdict::Yes => self.confirm(token, &answers, request).await,
            _ => self.why_not(&answers),
        };
        if !matches!(attempt, Attempt::Granted(_)) && footprint.waiter.is_some() {
            self.roll_back(footprint).await;
        }
        attempt
    }

    /// The answers; such of nodes that refuse INFO, and so cannot be put into quarantine, count as none.
    fn without_ageless(&self, answers: Answers<TakeAnswer>) -> Answers<TakeAnswer> {
        let is_off = self.locks.quarantine.is_off();
        answers.discard(|take| (take.node.uptime.is_none() && !is_off).then(Fault::without_uptime))
    }

    fn take_call(&self, footprint: &Footprint, request: &Request, seen: Option<&LastSeenLease>) -> Call {
        let quarantine = Some(self.locks.quarantine.seconds()).filter(|&seconds| seconds > 0);
        // The clock is the same number on all nodes, so that they agree on the fencing token at once.
        let args = request
            .owner
            .add_to(footprint.add_to(Args::default()))
            .with("ttl", request.ttl)
            .with("now", unix_time())
            .with("quarantine", quarantine)
            .with("start", self.limit().map(|limit| footprint.start.unwrap_or_else(|| self.any_place(limit))))
            .with("list", self.limit().filter(|_| self.locks.nodes.len() > 1).map(|_| FREE_PLACES))
            .with("once", request.once_per)
            .with("log", Some(request.log).filter(|&runs| runs > 0))
            .with("waited", footprint.began.map(Boot::elapsed))
            .with("seen", seen.map(|seen| seen.token.as_slice()))
            .with("seen_run", seen.map(|seen| seen.run_id.as_str()))
            .with("seen_left", seen.map(|seen| seen.until.left()))
            .with("seen_fence", seen.map(|seen| seen.fencing_token))
            .with("seen_claim", seen.map(|seen| seen.claim.word()).as_deref())
            .with("seen_slot", seen.and_then(|seen| seen.slot));
        self.call(&scripts::TAKE, args)
    }

    /// The number of places that it is asked for with, if it has places.
    fn limit(&self) -> Option<u32> {
        self.claim.and_then(Claim::limit)
    }

    /// The place at which a first try begins to look for a free one: with one node the first; over several, contenders that
    /// all began there would get a part each.
    fn any_place(&self, limit: u32) -> u32 {
        if self.locks.nodes.len() == 1 { 0 } else { below(limit) }
    }

    /// Enough nodes have granted the lock. Makes sure that a quorum of them stands at the lease's fencing token, and that the
    /// lease is still worth something.
    async fn confirm(&mut self, token: String, answers: &Answers<TakeAnswer>, request: &Request) -> Attempt {
        let place = most_granted(answers);
        let grants = answers.iter().filter_map(|(node, sent, take)| match take.outcome {
            TakeOutcome::Granted(fence, at) if at == place => Some((node, sent, fence, &take.node)),
            _ => None,
        });
        let counters: Vec<(usize, u64)> = grants.clone().map(|(node, _, fence, _)| (node, fence)).collect();
        let fence = fencing::settle(&counters, answers.nodes());
        if fence.needed > 0
            && let Err(attempt) = self.raise(&token, place, &fence).await
        {
            return attempt;
        }
        let mut lease = Lease::new(token, BASE.to_owned(), request, answers.nodes());
        lease.place = place;
        lease.fencing_token = fence.token;
        // A node that was merely slower than the others has no fault.
        let faults = answers.faults().filter(|(_, fault)| **fault != Fault::Slower);
        lease.faults = faults.map(|(node, fault)| (node, fault.clone())).collect();
        for (node, sent, _, by) in grants {
            lease.granted(node, sent, request.ttl, by);
        }
        if lease.valid_until().passed() {
            return Attempt::Failure(Error::GrantedTooLate { name: self.name.clone(), ttl: request.ttl });
        }
        let elsewhere = answers.iter().filter(|(_, _, take)| take.is_granted() && !take.is_granted_at(place));
        self.gather(&mut lease, elsewhere.map(|(node, _, take)| (node, &take.node))).await;
        Attempt::Granted(lease)
    }

    /// Gives the lease its place on the nodes that have granted another one. Does not wait long for them: the lease has its quorum.
    async fn gather<'a>(&mut self, lease: &mut Lease, nodes: impl Iterator<Item = (usize, &'a Identity)>) {
        let mut calls = vec![None; self.locks.nodes.len()];
        for (node, by) in nodes {
            calls[node] = Some(self.recreate_call(lease, by.run_id.as_deref()));
        }
        if calls.iter().all(Option::is_none) {
            return;
        }
        let soon = (Boot::now() + GATHERING).min(self.locks.nodes.deadline());
        let answers: Answers<LeaseAnswer<ExtendAnswer>> =
            self.locks.nodes.ask_apart(|node| calls[node].as_ref(), soon, |_| Boot::NEVER).await;
        for (node, sent, answer) in answers.iter() {
            if let Some(by) = answer.extended() {
                lease.granted(node, sent, lease.ttl, &by.node);
            }
        }
    }

    /// Raises the nodes that are behind to the fencing token of the lease.
    async fn raise(&mut self, token: &str, place: Option<u32>, fence: &fencing::Settlement) -> Result<(), Attempt> {
        let args = Args::default().with("token", token).with("place", place).with("fence", fence.token);
        let call = self.call(&scripts::FENCE, args);
        let raised = |answers: &Answers<FenceAnswer>| answers.count(|&FenceAnswer(raised)| raised);
        let enough = |answers: &Answers<FenceAnswer>| match raised(answers) >= fence.needed {
            true => Boot::now(),
            false => Boot::NEVER,
        };
        let deadline = self.locks.nodes.deadline();
        let answers = self.locks.nodes.ask(&call, |node| fence.behind.contains(&node), deadline, enough).await;
        match (raised(&answers), answers.said().count()) {
            (raised, _) if raised >= fence.needed => Ok(()),
            // A node that is ahead has had another holder meanwhile: try again.
            (raised, said) if said > raised => Err(Attempt::Busy(Box::new(Busy { split: true, ..Busy::default() }))),
            _ => Err(Attempt::Failure(self.no_quorum(&answers))),
        }
    }

    /// Undoes a partial grant and keeps the place in line. Sends no wake-up: the woken waiter would only get a part too.
    async fn roll_back(&mut self, footprint: &mut Footprint) {
        if !footprint.may_have_it.contains(&true) {
            return;
        }
        let call = self.call(&scripts::ROLLBACK, footprint.add_to(Args::default())).behind();
        let answers: Answers<Done> = self.undo(&call, |node| footprint.may_have_it[node]).await;
        for (node, _, Done) in answers.iter() {
            footprint.may_have_it[node] = false;
        }
    }

    /// Takes back all that the footprint names: a grant, a place in line, a hold. Ends within 80 ms.
    pub(super) async fn withdraw(&mut self, footprint: &Footprint) {
        if let Some((stem, hold)) = &footprint.hold {
            let call = self.release_call(stem, hold, None, None).behind();
            let _: Answers<LeaseAnswer<ReleaseAnswer>> = self.undo(&call, |_| true).await;
        }
        let Footprint { waiter, token, may_have_it, .. } = footprint;
        if token.is_none() && waiter.is_none() {
            return;
        }
        let call = self.call(&scripts::LEAVE, footprint.add_to(Args::default())).behind();
        let _: Answers<Done> = self.undo(&call, |node| waiter.is_some() || may_have_it[node]).await;
    }

    /// Sends what undoes a request to every node that the request may have reached.
    async fn undo<A: FromReply>(&mut self, call: &Call, whom: impl Fn(usize) -> bool) -> Answers<A> {
        let nodes = &mut self.locks.nodes;
        let touched: Vec<bool> = (0..nodes.len()).map(|node| whom(node) && nodes.is_touched(node)).collect();
        nodes.ask(call, |node| touched[node], Boot::now() + FAREWELL, |_| Boot::NEVER).await
    }

    /// True if nodes refuse a password or certificate that comes from a file.
    pub(super) fn may_be_rotated(&self, error: &Error) -> bool {
        let Error::NoQuorum { faults, .. } = error else { return false };
        self.locks.nodes.log_in_by_file()
            && !error.can_heal()
            && faults.iter().all(|(_, fault)| !fault.is_final() || fault.is_login())
    }

    /// Two addresses that lead to the same run of the same server would vote twice.
    fn same_node_twice(&self, answers: &Answers<TakeAnswer>) -> Option<Error> {
        let mut runs: Vec<(&str, usize)> = Vec::new();
        for (node, _, take) in answers.iter() {
            let Some(run_id) = &take.node.run_id else { continue };
            if let Some(&(_, other)) = runs.iter().find(|(other, _)| other == run_id) {
                return Some(Error::SameNode(self.locks.nodes.name(other), self.locks.nodes.name(node)));
            }
            runs.push((run_id, node));
        }
        None
    }

    /// Tells apart "others have it" from "too few nodes can answer".
    fn why_not(&self, answers: &Answers<TakeAnswer>) -> Attempt {
        let nodes = answers.nodes();
        if let Some(error) = self.other_shape(answers) {
            return Attempt::Failure(error);
        }
        let refusals: Vec<(usize, &Blocker, &Identity, &Place)> = answers
            .iter()
            .filter_map(|(node, _, take)| match &take.outcome {
                TakeOutcome::Held(by, place) => Some((node, by, &take.node, place)),
                TakeOutcome::OtherShape(by) => Some((node, by, &take.node, &NOT_IN_LINE)),
                _ => None,
            })
            .collect();
        let enough = answers.verdict(|_| true) == Verdict::Yes
            || answers.is_denied(|take| !is_obstacle(take, most_granted(answers)));
        let most = most_named(&refusals.iter().map(|&(_, by, ..)| by).collect::<Vec<_>>());
        let Some((at, votes)) = most.filter(|_| enough) else {
            return match enough && answers.count(TakeAnswer::is_granted) > 0 {
                // Each node has granted another place.
                true => Attempt::Busy(Box::new(Busy { split: true, ..Busy::default() })),
                false => Attempt::Failure(self.no_quorum(answers)),
            };
        };
        // A node that has said nothing may stand behind it too.
        let silent = answers.faults().filter(|(_, fault)| !matches!(fault, Fault::Young { .. })).count();
        let (_, by, node, _) = refusals[at];
        let places = || refusals.iter().map(|&(node, .., place)| (node, place));
        Attempt::Busy(Box::new(Busy {
            by: by.clone(),
            node: node.clone(),
            left: middle(refusals.iter().filter_map(|(_, by, ..)| by.left()).collect(), nodes),
            rank: middle(places().filter_map(|(_, place)| place.rank).collect(), nodes),
            ticket: places().find_map(|(_, place)| place.ticket.clone()),
            queued: places().filter(|(_, place)| place.just_queued).map(|(node, _)| node).collect(),
            split: votes + silent < self.locks.quorum(),
        }))
    }

    /// The error for a lock of which a quorum says that it is in use in another way.
    fn other_shape(&self, answers: &Answers<TakeAnswer>) -> Option<Error> {
        let others = answers.said().filter_map(|take| match &take.outcome {
            TakeOutcome::OtherShape(by) => Some(by),
            _ => None,
        });
        let others: Vec<&Blocker> = others.collect();
        let (at, _) = most_named(&others).filter(|_| others.len() >= self.locks.quorum())?;
        Some(Error::OtherShape(Box::new(self.held_by(others[at].clone())), self.claim.unwrap_or_default()))
    }

    /// The error for a lock that others have.
    pub(super) fn held_error(&self, by: &Blocker, request: &Request, waited: Option<Duration>) -> Error {
        Error::Held(Box::new(HeldLock { waited, ..self.held(by, request) }))
    }

    pub(super) fn held(&self, by: &Blocker, request: &Request) -> HeldLock {
        let by_this_job =
            by.holders().iter().any(|holder| request.ancestors.iter().any(|token| token.as_bytes() == holder.token));
        HeldLock { by_this_job, ..self.held_by(by.clone()) }
    }
}

/// The success that any node knows, for a request that it turns away.
fn ran(answers: &Answers<TakeAnswer>) -> Option<&Run> {
    answers.said().find_map(|take| match &take.outcome {
        TakeOutcome::Ran(run) => Some(&**run),
        _ => None,
    })
}

/// True if so many nodes have it held, or so many fail, that the reason for the refusal is known.
fn is_explained(answers: &Answers<TakeAnswer>) -> bool {
    let cannot = answers.faults().count() + answers.count(|take| matches!(take.outcome, TakeOutcome::Young));
    let place = most_granted(answers);
    answers.is_denied(|take| !is_obstacle(take, place)) || cannot + quorum(answers.nodes()) > answers.nodes()
}

/// True if the node does not count for a lease at this place: others have the lock there, or it has granted another place.
fn is_obstacle(take: &TakeAnswer, place: Option<u32>) -> bool {
    take.is_held() || take.is_granted() && !take.is_granted_at(place)
}

/// The place that most nodes have granted; none for a lock without places.
fn most_granted(answers: &Answers<TakeAnswer>) -> Option<u32> {
    let places = answers.said().filter_map(|take| match take.outcome {
        TakeOutcome::Granted(_, place) => place,
        _ => None,
    });
    places.clone().max_by_key(|place| places.clone().filter(|other| other == place).count())
}

/// Whether a quorum has granted the lock, all at one place.
fn verdict(answers: &Answers<TakeAnswer>) -> Verdict {
    let place = most_granted(answers);
    answers.verdict(|take| take.is_granted_at(place))
}

/// A place, by chance, that a quorum of nodes has free.
fn free_on_most(answers: &Answers<TakeAnswer>) -> Option<u32> {
    let mut free: Vec<u32> = answers.said().flat_map(|take| take.free.iter().copied()).collect();
    free.sort_unstable();
    let of_most = free.chunk_by(|a, b| a == b).filter(|same| same.len() >= quorum(answers.nodes())).map(|same| same[0]);
    let of_most: Vec<u32> = of_most.collect();
    let count = u32::try_from(of_most.len()).ok().filter(|&count| count > 0)?;
    of_most.get(below(count) as usize).copied()
}
