//! A held lease: its validity, renewal, extension and release; and entering it once more, with a hold that has a token of its own.

use super::answer::{Blocker, Entered, Extend, HoldsLeft, Identity, Newest, OfLease};
use super::owner::Owner;
use super::quorum::{Verdict, surely, validity};
use super::recreate::{self, Round, Said};
use super::token::{self, BASE, NEWEST};
use super::{Claim, Lock, Reenter, Request, scripts};
use crate::error::{Error, Held};
use crate::redis::{Answers, Call, Fault, Got};
use crate::sys::clock::Boot;
use crate::text::escaped;
use std::time::Duration;

/// The ttl of a lease that has no record of it.
const UNKNOWN_TTL_MS: &str = "30000";

/// One grant of a lock, limited in time.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    /// The random identity of the lease, with the suffix of our hold if the lease is shared.
    pub(crate) token: String,
    /// Our hold: [`BASE`], or the id of the one with which the lease was entered.
    pub(super) hold: String,
    /// Larger than that of every earlier lease on this lock.
    pub(crate) fencing_token: u64,
    pub(crate) ttl: Duration,
    /// How many holds the lease has, ours included.
    pub(crate) holds: u64,
    pub(super) owner: Owner,
    /// What each node has confirmed.
    pub(super) backing: Vec<Backing>,
    /// The nodes that were given it again and have not answered: the release must come behind that.
    pub(super) recreating: Vec<bool>,
}

/// What one node has confirmed of a lease: until when it backs it, and which run of the server does.
pub(super) type Backing = recreate::Backing<Boot, String>;

/// How long one try to renew may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Try {
    /// When it has failed. Giving the lease again to a node that has forgotten it may take as long once more.
    pub(crate) give_up: Boot,
    /// There is no time for another one: the connections stay open, for the release to come behind what is under way.
    pub(crate) last: bool,
}

/// What one try to renew has brought.
#[derive(Debug)]
pub(crate) enum Renewal {
    /// A quorum has extended the lease.
    Confirmed,
    /// No quorum answered in time; the lease is what it was. What each failing node did ("10.0.0.1:6379 timed out"); with
    /// `soon` the next try may start at once.
    Unconfirmed { faults: Vec<String>, soon: bool },
    /// So many nodes do not have our lease that no quorum can be left. Continues "lost "backup": it …".
    Lost(String),
}

/// What became of a lease that was to be extended or given up.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    /// It surely lasts this much longer; so many holds.
    Extended {
        validity: Duration,
        holds: u64,
    },
    Released,
    /// One hold less, so many left.
    StillHeld(u64),
    /// No quorum has the lease, nor anything else.
    NotHeld,
    HeldByOther(Box<Held>),
    /// It was ended by this user, and cannot be extended.
    Revoked(String),
}

impl Lease {
    /// A lease that no node has confirmed yet, and of which nothing is known but what was asked for.
    pub(super) fn new(token: String, hold: String, request: &Request, nodes: usize) -> Lease {
        Lease {
            token,
            hold,
            fencing_token: 0,
            ttl: request.ttl,
            holds: 1,
            owner: request.owner.clone(),
            backing: vec![Backing::default(); nodes],
            recreating: vec![false; nodes],
        }
    }

    /// A node has granted it for this long from the moment at which it was asked.
    pub(super) fn granted(&mut self, node: usize, sent: Boot, ttl: Duration, from: &Identity) {
        self.backing[node] = Backing { until: Some(sent + surely(ttl)), run: from.run_id.clone(), removed: false };
    }

    /// The end of validity: before this moment a quorum of nodes surely has our key. Long past when there is none left.
    pub(crate) fn valid_until(&self) -> Boot {
        recreate::valid_until(&self.backing).unwrap_or(Boot::at(Duration::ZERO))
    }

    /// When the request that the validity counts from was sent: the last confirmed one.
    pub(crate) fn confirmed_at(&self) -> Boot {
        self.valid_until() - surely(self.ttl)
    }

    fn stem(&self) -> &str {
        token::split(&self.token).0
    }
}

impl Lock {
    /// Asks all nodes to extend the lease. `moved` is called as soon as the answers have moved the
    /// end of validity. A node that has lost its memory is given the lease again where that is safe (`recreate.rs`).
    ///
    /// May be dropped at any await: what was confirmed is in the lease.
    pub(crate) async fn renew(&mut self, lease: &mut Lease, this: Try, moved: &mut dyn FnMut(&Lease)) -> Renewal {
        let sent = Boot::now();
        let until = sent + surely(lease.ttl);
        let ttl = lease.ttl.as_millis().to_string();
        let call = self.call(&scripts::EXTEND, &[lease.stem(), lease.stem(), &ttl, UNKNOWN_TTL_MS, &lease.hold]);
        let patience = |answers: &Answers<OfLease<Extend>>| {
            let before = lease.valid_until();
            for (node, _, answer) in answers.iter() {
                if let OfLease::Known(Extend::Extended { from, .. }) = answer {
                    recreate::confirm(&mut lease.backing, node, until, from.run_id.clone(), Boot::now());
                }
            }
            if lease.valid_until() != before {
                moved(lease);
            }
            Boot::NEVER
        };
        let answers = self.nodes.ask(&call, |_| true, this.give_up, patience).await;
        for (node, fault) in answers.faults() {
            if *fault == Fault::TimedOut && !this.last && !lease.recreating[node] {
                // Half-open, or a primary of yesterday: its answer would come too late to count.
                self.nodes.disconnect(node);
            }
        }
        let said: Vec<Said<String>> = answers.0.iter().map(|got| self.said(got.as_ref())).collect();
        let before = lease.valid_until();
        let judgement = recreate::judge(&mut lease.backing, &said, Round { sent, until, now: Boot::now() });
        let mut confirmed = said.iter().filter(|said| matches!(said, Said::Confirmed { .. })).count();
        let mut lost = judgement.lost;
        if !judgement.recreate.is_empty() {
            let slot = this.give_up.since(sent);
            let (recreated, higher) = self.recreate(lease, &judgement.recreate, slot, moved).await;
            confirmed += recreated;
            lost |= higher;
        }
        // A lease that has only run out, without a node that says so, is not lost by what a node did.
        let denied = said.iter().any(|said| matches!(said, Said::Gone { .. } | Said::Another | Said::Revoked));
        if lost && denied {
            return Renewal::Lost(self.what_became(&answers));
        }
        if !lost && lease.valid_until() != before {
            moved(lease);
        }
        if confirmed >= self.quorum() {
            return Renewal::Confirmed;
        }
        let mut faults: Vec<String> =
            answers.faults().map(|(node, fault)| format!("{} {fault}", self.nodes.name(node))).collect();
        if faults.is_empty() {
            faults.push("too few nodes have it".to_owned());
        }
        Renewal::Unconfirmed {
            faults,
            soon: answers.faults().any(|(_, fault)| fault.heals_soon()) || !judgement.recreate.is_empty(),
        }
    }

    /// One node's answer to a renewal, as the rule for re-creation sees it.
    fn said(&self, got: Option<&Got<OfLease<Extend>>>) -> Said<String> {
        match got.map(|got| &got.answer) {
            Some(Ok(OfLease::Known(answer))) => match answer {
                Extend::Extended { from, .. } => Said::Confirmed { run: from.run_id.clone() },
                Extend::Revoked { .. } => Said::Revoked,
                Extend::NoHold => Said::Another,
                Extend::Restarted | Extend::Higher => Said::Silent,
            },
            Some(Ok(OfLease::Gone(from))) => {
                Said::Gone { run: from.run_id.clone(), young: !self.quarantine.left(from.uptime).is_zero() }
            }
            Some(Ok(OfLease::Other(_))) => Said::Another,
            Some(Err(_)) | None => Said::Silent,
        }
    }

    /// Gives the lease again to nodes that have forgotten it, each on the run that said so. Returns how many have it now, and
    /// whether a later holder has been there.
    async fn recreate(
        &mut self,
        lease: &mut Lease,
        on: &[(usize, Option<String>)],
        slot: Duration,
        moved: &mut dyn FnMut(&Lease),
    ) -> (usize, bool) {
        let ttl = lease.ttl.as_millis().to_string();
        let fence = lease.fencing_token.to_string();
        let alone = if self.nodes.len() == 1 { "1" } else { "0" };
        let (mut recreated, mut higher) = (0, false);
        for (node, run) in on {
            let [host, pid, user, label] = lease.owner.fields();
            let run = run.as_deref().unwrap_or_default();
            let args = [lease.stem(), &ttl, &fence, host, pid, user, label, run, alone, &lease.hold];
            let call = self.call(&scripts::RECREATE, &args);
            let until = Boot::now() + surely(lease.ttl);
            let deadline = Boot::now() + slot;
            lease.recreating[*node] = true;
            let answers: Answers<OfLease<Extend>> =
                self.nodes.ask(&call, |at| at == *node, deadline, |_| Boot::NEVER).await;
            let answer = answers.0[*node].as_ref().map(|got| &got.answer);
            lease.recreating[*node] = !matches!(answer, Some(Ok(_)));
            match answer {
                Some(Ok(OfLease::Known(Extend::Extended { from, .. }))) => {
                    let run = from.run_id.clone();
                    let counts = recreate::confirm(&mut lease.backing, *node, until, run, Boot::now());
                    recreated += usize::from(counts);
                    moved(lease);
                }
                Some(Ok(OfLease::Known(Extend::Higher))) => higher = true,
                _ => {}
            }
        }
        (recreated, higher)
    }

    /// In whose hands a lost lease is now: what the node says that knows most.
    fn what_became(&self, answers: &Answers<OfLease<Extend>>) -> String {
        let said = answers.iter().filter_map(|(node, _, answer)| {
            let node = self.nodes.name(node);
            Some(match answer {
                OfLease::Known(Extend::Revoked { by }) => {
                    (0, format!("it was revoked by {} ({node})", escaped(by, 80)))
                }
                OfLease::Other(Blocker::Lease(holder)) => (1, format!("{holder} now has it ({node})")),
                OfLease::Other(_) => (1, format!("something that is not redlock now has it ({node})")),
                OfLease::Gone(_) => (2, format!("it was released or deleted on {node}")),
                OfLease::Known(_) => return None,
            })
        });
        let telling = said.min_by_key(|(rank, _)| *rank);
        telling.map_or_else(|| "too few nodes have it".to_owned(), |(_, what)| what)
    }
}

impl Lock {
    /// Enters a lease that an ancestor holds once more; none when it does not hold it any more.
    pub(super) async fn enter(
        &mut self,
        claim: &mut Claim,
        ancestor: &str,
        request: &Request,
    ) -> Result<Option<Lease>, Error> {
        let (stem, hold) = (token::split(ancestor).0.to_owned(), token::new_hold());
        claim.hold = Some((stem.clone(), hold.clone()));
        // A job keeps the length of the lease that it shares; a token that is asked for is to last.
        let ttl = match request.reenter {
            Reenter::Must => request.ttl.as_millis().to_string(),
            _ => "0".to_owned(),
        };
        let call = self.call(&scripts::ENTER, &[&stem, &hold, &ttl, UNKNOWN_TTL_MS]);
        let done = |answer: &OfLease<Entered>| answer.known().is_some();
        let answers = self.ask_each(&call, |answers| answers.verdict(done) != Verdict::Open).await;
        let entered = answers.count(done);
        if entered < self.quorum() {
            if entered > 0 || answers.faults().next().is_some() {
                // The id of the hold is new, so that taking it back can hurt no other.
                self.withdraw(claim).await;
            }
            claim.hold = None;
            let not_held = answers.count(|answer| !done(answer)) > self.minority();
            return if not_held { Ok(None) } else { Err(self.no_quorum(&answers)) };
        }
        let mut lease = Lease::new(token::of_hold(&stem, &hold), hold, request, self.nodes.len());
        for entered in answers.said().filter_map(OfLease::known) {
            lease.fencing_token = lease.fencing_token.max(entered.fencing_token);
            lease.holds = lease.holds.max(entered.holds);
            // Renewal works with the ttl that the lease has.
            lease.ttl = entered.ttl.filter(|_| request.reenter != Reenter::Must).unwrap_or(lease.ttl);
        }
        for (node, sent, answer) in answers.iter() {
            if let OfLease::Known(Entered { lasts, from, .. }) = answer {
                lease.granted(node, sent, lasts.unwrap_or(lease.ttl).min(lease.ttl), from);
            }
        }
        Ok(Some(lease))
    }

    /// Gives our hold of the lease up; with `keep`, the lock stays taken for that long. Returns how many holds are left. Has a
    /// deadline of its own.
    ///
    /// # Errors
    /// [`Error::NotHeld`] and [`Error::HeldByOther`] when no quorum can have had the lease, [`Error::NoQuorum`] when too few
    /// nodes answered.
    pub(crate) async fn release(&mut self, lease: &Lease, keep: Option<Duration>) -> Result<u64, Error> {
        match self.give_up_hold(lease.stem(), &lease.hold, keep).await? {
            Given::Released => Ok(0),
            Given::StillHeld(left) => Ok(left),
            Given::HeldByOther(held) => {
                let by = held.by.holder().map_or_else(|| "another".to_owned(), ToString::to_string);
                Err(Error::HeldByOther(format!("{by} now has it"), held))
            }
            _ => Err(Error::NotHeld("it was released or deleted while in use".to_owned())),
        }
    }

    /// Gives up one hold of the lease that `token` names: the hold whose token it is, else the newest.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] and [`Error::Young`].
    pub(crate) async fn release_token(&mut self, token: &str) -> Result<Given, Error> {
        if let (stem, Some(id)) = token::split(token) {
            return self.give_up_hold(stem, id, None).await;
        }
        // A node that missed a hold would give up an older one: all have to be asked for the same.
        let hold = if self.nodes.len() > 1 { self.newest_hold(token).await? } else { NEWEST.to_owned() };
        self.give_up_hold(token, &hold, None).await
    }

    /// The request to give up a hold of a lease.
    pub(super) fn give_up_call(&self, stem: &str, hold: &str, keep: Option<Duration>) -> Call {
        let token = match hold {
            BASE | NEWEST => stem.to_owned(),
            id => token::of_hold(stem, id),
        };
        let keep = keep.unwrap_or_default().as_millis().to_string();
        self.call(&scripts::RELEASE, &[&token, stem, hold, &keep])
    }

    async fn give_up_hold(&mut self, stem: &str, hold: &str, keep: Option<Duration>) -> Result<Given, Error> {
        let call = self.give_up_call(stem, hold, keep);
        let done = |answer: &OfLease<HoldsLeft>| answer.known().is_some();
        let answers = self.ask_each(&call, |answers| answers.verdict(done) != Verdict::Open).await;
        let left = answers.said().filter_map(OfLease::known).map(|&HoldsLeft(left)| left);
        if left.clone().count() >= self.quorum() {
            // A hold counts where a quorum knows of it; the nodes that missed it have fewer.
            let released = left.clone().filter(|&left| left == 0).count();
            return Ok(match left.max() {
                Some(left) if released < self.quorum() => Given::StillHeld(left),
                _ => Given::Released,
            });
        }
        self.not_ours(&answers, done)
    }

    /// The newest hold that any node knows of the lease.
    async fn newest_hold(&mut self, token: &str) -> Result<String, Error> {
        let call = self.call(&scripts::HOLDS, &[token]);
        let quorum = self.quorum();
        let answers: Answers<OfLease<Newest>> = self.ask_each(&call, |answers| answers.said().count() >= quorum).await;
        if answers.said().count() < quorum {
            return Err(self.no_quorum(&answers));
        }
        let newest = answers.said().filter_map(OfLease::known).max_by_key(|newest| newest.entered);
        Ok(newest.map_or(BASE, |newest| &newest.hold).to_owned())
    }

    /// Extends the lease that `token` names to at least `ttl` from now; none: the ttl it was taken with.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] and [`Error::Young`].
    pub(crate) async fn extend_token(&mut self, token: &str, ttl: Option<Duration>) -> Result<Given, Error> {
        let (stem, _) = token::split(token);
        let ttl = ttl.map_or(0, |ttl| ttl.as_millis()).to_string();
        let call = self.call(&scripts::EXTEND, &[token, stem, &ttl, UNKNOWN_TTL_MS, ""]);
        let done = |answer: &OfLease<Extend>| matches!(answer, OfLease::Known(Extend::Extended { .. }));
        let answers = self.ask_each(&call, |answers| answers.verdict(done) != Verdict::Open).await;
        let mut deadlines = vec![None; self.nodes.len()];
        let mut most_holds = 1;
        for (node, sent, answer) in answers.iter() {
            if let OfLease::Known(Extend::Extended { lasts, holds, .. }) = answer {
                // Without an expiry it lasts for ever, or as long as JSON can say.
                let lasts = lasts.unwrap_or(Duration::from_millis(u64::from(u32::MAX)));
                deadlines[node] = Some(sent + surely(lasts));
                most_holds = most_holds.max(*holds);
            }
        }
        if let Some(until) = validity(&deadlines) {
            return Ok(Given::Extended { validity: until.left(), holds: most_holds });
        }
        match answers.said().filter_map(OfLease::known).find(|answer| matches!(answer, Extend::Revoked { .. })) {
            Some(Extend::Revoked { by }) => Ok(Given::Revoked(by.clone())),
            _ => self.not_ours(&answers, done),
        }
    }

    /// What it means that no quorum did what was asked. Every answer that is not `done` says that the lease is not there.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] and [`Error::Young`] when too few nodes say so.
    fn not_ours<A>(&self, answers: &Answers<OfLease<A>>, done: impl Fn(&OfLease<A>) -> bool) -> Result<Given, Error> {
        if answers.count(|answer| !done(answer)) <= self.minority() {
            return Err(self.no_quorum(answers));
        }
        let other = answers.said().find_map(|answer| match answer {
            OfLease::Other(by) => Some(by.clone()),
            _ => None,
        });
        Ok(other.map_or(Given::NotHeld, |by| Given::HeldByOther(Box::new(self.held_by(by)))))
    }

    /// A lock that another one has.
    pub(super) fn held_by(&self, by: Blocker) -> Held {
        Held { name: self.name.clone(), by, waited: None, by_this_job: false }
    }
}
