//! Getting a lock: one try on all nodes, what has to be true for it to count, and how it is undone.
//!
//! A try may be dropped at any await: a signal, the end of the wait. What it has sent stays sent. [`Lock::acquire`] then calls
//! [`Lock::withdraw`] with the same [`Claim`], whose requests arrive behind it on the same connections.

use super::answer::{Blocker, HoldsLeft, Identity, Left, OfLease, Raised, Standing, Take};
use super::fencing;
use super::lease::Lease;
use super::quorum::{Verdict, middle};
use super::token::{self, BASE};
use super::{Claim, Lock, Request, scripts};
use crate::error::{Error, Held};
use crate::redis::{Answers, Call, Fault, FromReply};
use crate::sys::clock::{Boot, unix_time};
use std::time::Duration;

/// How long a node is waited for when a try is undone: a signal is to end the wait within 100 ms. The request is on its way at
/// once; but a server that is about to answer a closed connection does not read what else was sent over it.
pub(crate) const FAREWELL: Duration = Duration::from_millis(80);

/// How one try went.
pub(super) enum Attempt {
    Granted(Lease),
    /// Others have it, or part of it.
    Busy(Box<Busy>),
    /// Too few nodes can answer.
    Faulty(Error),
}

/// What the nodes said that have not granted the lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Busy {
    pub(super) by: Blocker,
    /// Which run of the server says so, where there is only one.
    pub(super) from: Identity,
    /// Until the lock may become free, unless it is extended.
    pub(super) left: Option<Duration>,
    /// How many are before us in line.
    pub(super) rank: u64,
    /// The place that we have in line.
    pub(super) ticket: String,
    /// Nodes where we had not been in line.
    pub(super) queued: Vec<usize>,
    /// No rival has a quorum: several took it at the same time, and each got a part.
    pub(super) split: bool,
}

/// The lease that a waiter saw on a single server, for the case that the server restarts without its memory.
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    pub(super) token: String,
    pub(super) run_id: String,
    pub(super) fencing_token: u64,
    /// Until when that lease may last.
    pub(super) until: Boot,
    /// How long it may last at the most, until that has been counted from the end of the connection.
    pub(super) longest: Option<Duration>,
}

impl Lock {
    /// One try on all nodes, with a token of its own, and not after `until`.
    pub(super) async fn attempt(
        &mut self,
        claim: &mut Claim,
        request: &Request,
        remembered: Option<&Remembered>,
        until: Boot,
    ) -> Attempt {
        claim.token = token::new_token();
        claim.may_have_it = vec![true; self.nodes.len()];
        let start = Boot::now();
        let call = self.take(claim, request, remembered);
        let deadline = self.nodes.deadline().min(until);
        let mut decided = None;
        let patience = |answers: &Answers<Take>| {
            let linger = match answers.verdict(|take| matches!(take, Take::Granted { .. })) {
                // The others should have the lock too, in case one of the quorum is lost.
                Verdict::Yes => (start.elapsed() / 8).max(Duration::from_millis(2)),
                Verdict::No if told_why(answers) => {
                    // With a node down there is no hurry, and slow nodes should not be blamed too.
                    let least = if answers.faults().next().is_some() { 200 } else { 20 };
                    start.elapsed() * 2 + Duration::from_millis(least)
                }
                _ => return Boot::NEVER,
            };
            *decided.get_or_insert_with(|| Boot::now() + linger)
        };
        let answers = self.nodes.ask(&call, |_| true, deadline, patience).await;
        for (node, _, take) in answers.iter() {
            claim.may_have_it[node] = matches!(take, Take::Granted { .. });
        }
        if let Some(error) = self.same_node_twice(&answers) {
            return Attempt::Faulty(error);
        }
        // Also one that has granted it has no vote, if a longer lease that another shows makes the quarantine longer.
        let answers = self.without_young(answers);
        let grants: Vec<(usize, u64)> = answers
            .iter()
            .filter_map(|(node, _, take)| match take {
                Take::Granted { counter, .. } => Some((node, *counter)),
                _ => None,
            })
            .collect();
        let attempt = match grants.len() >= self.quorum() {
            true => self.confirm(claim, &grants, &answers, request).await,
            false => self.why_not(&answers),
        };
        if !matches!(attempt, Attempt::Granted(_)) && !claim.waiter.is_empty() {
            self.roll_back(claim).await;
        }
        attempt
    }

    fn take(&self, claim: &Claim, request: &Request, remembered: Option<&Remembered>) -> Call {
        let millis = |time: Duration| time.as_millis().to_string();
        // The same number on all nodes, so that they agree on the fencing token at once.
        let now = millis(unix_time());
        let quarantine = self.quarantine.length.as_millis().div_ceil(1000).to_string();
        let [host, pid, user, label] = request.owner.fields();
        let (seen, run_id, left, fence) = remembered.map_or_else(Default::default, |seen| {
            (seen.token.as_str(), seen.run_id.as_str(), millis(seen.until.left()), seen.fencing_token.to_string())
        });
        let ttl = millis(request.ttl);
        self.call(
            &scripts::TAKE,
            &[
                &claim.waiter,
                &claim.token,
                &ttl,
                &claim.ticket,
                &now,
                "",
                host,
                pid,
                user,
                label,
                &quarantine,
                seen,
                run_id,
                &left,
                &fence,
            ],
        )
    }

    /// Enough nodes have granted the lock. Makes sure that a quorum of them stands at the lease's fencing token, and that the
    /// lease is still worth something.
    async fn confirm(
        &mut self,
        claim: &Claim,
        grants: &[(usize, u64)],
        answers: &Answers<Take>,
        request: &Request,
    ) -> Attempt {
        let fence = fencing::settle(grants, self.nodes.len());
        if fence.needed > 0 {
            let call = self.call(&scripts::FENCE, &[&claim.token, &fence.token.to_string()]);
            let raised = |answers: &Answers<Raised>| answers.count(|&Raised(raised)| raised);
            let enough = |answers: &Answers<Raised>| {
                if raised(answers) >= fence.needed { Boot::now() } else { Boot::NEVER }
            };
            let deadline = self.nodes.deadline();
            let answers = self.nodes.ask(&call, |node| fence.behind.contains(&node), deadline, enough).await;
            if raised(&answers) < fence.needed {
                // Where one is ahead another holder has been there meanwhile: try again.
                return match answers.count(|&Raised(raised)| !raised) {
                    0 => Attempt::Faulty(self.no_quorum(&answers)),
                    _ => Attempt::Busy(Box::new(Busy { split: true, ..Busy::default() })),
                };
            }
        }
        let mut lease = Lease::new(claim.token.clone(), BASE.to_owned(), request, self.nodes.len());
        lease.fencing_token = fence.token;
        for (node, sent, take) in answers.iter() {
            if let Take::Granted { from, .. } = take {
                lease.granted(node, sent, request.ttl, from);
            }
        }
        if lease.valid_until().passed() {
            let took = lease.confirmed_at().elapsed();
            return Attempt::Faulty(Error::GrantedTooLate { name: self.name.clone(), took, ttl: request.ttl });
        }
        Attempt::Granted(lease)
    }

    /// Undoes a partial grant and keeps the place in line. Sends no wake-up: the woken waiter would only get a part too.
    async fn roll_back(&mut self, claim: &mut Claim) {
        if !claim.may_have_it.contains(&true) {
            return;
        }
        let call = self.call(&scripts::ROLLBACK, &[&claim.waiter, &claim.token, &claim.ticket]).in_full();
        let answers: Answers<Left> = self.undo(&call, |node| claim.may_have_it[node]).await;
        for (node, _, Left) in answers.iter() {
            claim.may_have_it[node] = false;
        }
    }

    /// Takes back all that the claim may have left on the nodes: a grant, a place in line, a hold. Ends within 80 ms.
    pub(super) async fn withdraw(&mut self, claim: &Claim) {
        if let Some((stem, hold)) = &claim.hold {
            let call = self.give_up_call(stem, hold, None).in_full();
            let _: Answers<OfLease<HoldsLeft>> = self.undo(&call, |_| true).await;
        }
        if claim.token.is_empty() && claim.waiter.is_empty() {
            return;
        }
        let call = self.call(&scripts::LEAVE, &[&claim.waiter, &claim.token]).in_full();
        let _: Answers<Left> = self.undo(&call, |node| !claim.waiter.is_empty() || claim.may_have_it[node]).await;
    }

    /// Sends what undoes a request to every node that the request may have reached.
    async fn undo<A: FromReply>(&mut self, call: &Call, whom: impl Fn(usize) -> bool) -> Answers<A> {
        let touched: Vec<bool> = (0..self.nodes.len()).map(|node| whom(node) && self.nodes.is_touched(node)).collect();
        self.nodes.ask(call, |node| touched[node], Boot::now() + FAREWELL, |_| Boot::NEVER).await
    }

    /// Two addresses that lead to the same run of the same server would vote twice.
    fn same_node_twice(&self, answers: &Answers<Take>) -> Option<Error> {
        let mut seen: Vec<(&str, usize)> = Vec::new();
        for (node, _, take) in answers.iter() {
            let Some(run_id) = &take.from().run_id else { continue };
            if let Some(&(_, other)) = seen.iter().find(|(other, _)| other == run_id) {
                return Some(Error::SameNode(self.nodes.name(other), self.nodes.name(node)));
            }
            seen.push((run_id, node));
        }
        None
    }

    /// Tells apart "others have it" from "too few nodes can answer".
    fn why_not(&self, answers: &Answers<Take>) -> Attempt {
        let nodes = self.nodes.len();
        let refusals: Vec<(usize, &Blocker, &Identity, &Standing)> = answers
            .iter()
            .filter_map(|(node, _, take)| match take {
                Take::Held { by, from, standing } => Some((node, by, from, standing)),
                _ => None,
            })
            .collect();
        let told_why = answers.said().count() >= self.quorum() || refusals.len() > self.minority();
        // Who has it: what most nodes name, be it a token or what another library wrote.
        let token = |by: &Blocker| by.holder().map(|holder| holder.token.clone());
        let votes = |by: &Blocker| refusals.iter().filter(|(_, other, ..)| token(other) == token(by)).count();
        let most =
            refusals.iter().max_by_key(|(_, by, ..)| (votes(by), token(by).is_some_and(|token| !token.is_empty())));
        let Some((_, by, from, _)) = most.filter(|_| told_why) else {
            return Attempt::Faulty(self.no_quorum(answers));
        };
        // A node that has said nothing may stand behind it too.
        let silent = answers.faults().filter(|(_, fault)| !matches!(fault, Fault::Young { .. })).count();
        let standings = || refusals.iter().map(|&(node, .., standing)| (node, standing));
        let ticket = standings().map(|(_, at)| at.ticket.as_str()).find(|ticket| !ticket.is_empty());
        Attempt::Busy(Box::new(Busy {
            by: (*by).clone(),
            from: (*from).clone(),
            left: middle(refusals.iter().filter_map(|(_, by, ..)| by.left()).collect(), nodes),
            rank: middle(standings().filter_map(|(_, at)| at.rank).collect(), nodes).unwrap_or(0),
            ticket: ticket.unwrap_or_default().to_owned(),
            queued: standings().filter(|(_, at)| at.just_queued).map(|(node, _)| node).collect(),
            split: votes(by) + silent < self.quorum(),
        }))
    }

    /// The error for a lock that others have.
    pub(super) fn is_held(&self, by: &Blocker, request: &Request, waited: Option<Duration>) -> Error {
        Error::Held(Box::new(Held { waited, ..self.held(by, request) }))
    }

    pub(super) fn held(&self, by: &Blocker, request: &Request) -> Held {
        let by_this_job = by.holder().is_some_and(|holder| request.ancestors.contains(&holder.token));
        Held { by_this_job, ..self.held_by(by.clone()) }
    }
}

/// Whether so many nodes have it held, or so many fail, that the reason is known.
fn told_why(answers: &Answers<Take>) -> bool {
    let minority = (answers.0.len() - 1) / 2;
    let cannot = answers.faults().count() + answers.count(|take| matches!(take, Take::Young { .. }));
    answers.count(|take| matches!(take, Take::Held { .. })) > minority || cannot > minority
}

/// Whether what went wrong can heal during a wait.
pub(super) fn can_heal(error: &Error) -> bool {
    match error {
        Error::Young { .. } | Error::GrantedTooLate { .. } => true,
        Error::NoQuorum { nodes, faults, .. } => {
            let minority = (nodes - 1) / 2;
            faults.iter().filter(|(_, fault)| Fault::is_final(fault)).count() <= minority
        }
        _ => false,
    }
}
