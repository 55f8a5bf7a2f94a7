//! Stops the jobs of others, and closes a lock.

use crate::error::{Error, NamedObstacle};
use crate::lock::history::run::signature;
use crate::lock::terms::holder::{Holder, Leases, Obstacle};
use crate::lock::terms::owner::user_at_host;
use crate::lock::view::status::{State, Status};
use crate::lock::votes::quorum::Verdict;
use crate::lock::wire::answer::{Answer, Outcome};
use crate::lock::wire::fields::Args;
use crate::lock::{Lock, scripts};
use crate::redis::Answers;
use crate::sys::clock::Boot;
use crate::sys::wait::sleep_until;
use std::time::Duration;

/// `--token all`: all holders.
const ALL: &str = "all";
/// The pause between two looks at leases whose jobs were asked to stop.
const LOOKS: Duration = Duration::from_millis(100);
/// How long to wait for the waiter that was called: as long as the lock is kept for it.
const CALLED: Duration = Duration::from_secs(1);

/// What has been done, and stands even if the caller does not wait for the rest.
#[derive(Debug)]
pub(crate) enum StopNews<'a> {
    /// The lock is being closed for this time.
    Closing(Duration),
    Closed(Duration),
    /// These holders were asked to stop their jobs; their leases end after this time at the latest.
    Asked(&'a [Holder], Option<Duration>),
}

#[derive(Debug)]
pub(crate) struct Stopped {
    /// The holders whose jobs are over.
    pub(crate) over: Vec<Holder>,
    /// The holders that have not released their leases, which have run out: only a job with `--on-lost continue`, or one
    /// whose host is cut off, may still run.
    pub(crate) ran_out: Vec<Holder>,
    /// The holders that nobody can ask to stop: leases of `acquire` that nothing renews, beside those of `over`.
    pub(crate) unasked: Vec<Holder>,
    pub(crate) took: Duration,
    pub(crate) now: Status,
    /// `--for 0`: true if a master was closed.
    pub(crate) was_closed: bool,
    /// `--for 0`: the masters that may stay closed, and why.
    pub(crate) away: Vec<String>,
}

/// What closing or opening the lock has met.
struct Closing {
    /// True if a master has a lease: a take that began before may still get a quorum.
    takes: bool,
    was_closed: bool,
    away: Vec<String>,
}

impl Stopped {
    /// The result if nobody was asked to stop.
    fn nobody(now: Status) -> Stopped {
        let (over, ran_out, unasked, away) = Default::default();
        Stopped { over, ran_out, unasked, took: Duration::ZERO, now, was_closed: false, away }
    }
}

/// The holders to ask, and the token to name; no token: all holders.
struct Plan {
    status: Status,
    holders: Vec<Holder>,
    token: Option<Vec<u8>>,
}

/// A holder whose job was asked to stop, and the earliest end of its lease if nobody releases it.
struct Pending {
    holder: Holder,
    until: Boot,
}

impl Lock {
    /// Asks the holders to stop their jobs, and waits until the jobs are over. `token`: the beginning of one holder's
    /// token, or [`ALL`]; None: the only holder. `closes`: first closes the lock for this time; zero opens it, and asks
    /// nobody to stop.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is not clear who is meant; [`Error::NotOurs`] if no holder has this token;
    /// [`Error::CannotEnd`] if redlock can stop none of them; [`Error::NoQuorum`].
    pub(crate) async fn stop(
        &mut self,
        token: Option<&str>,
        closes: Option<Duration>,
        news: &mut dyn FnMut(StopNews<'_>),
    ) -> Result<Stopped, Error> {
        if closes == Some(Duration::ZERO) {
            let Closing { was_closed, away, .. } = self.close(Duration::ZERO).await?;
            let status = self.settled(false).await?;
            if status.state == State::Foreign && status.holders().is_empty() {
                return Err(Error::CannotEnd(Box::new(status.held())));
            }
            return Ok(Stopped { was_closed, away, ..Stopped::nobody(status) });
        }
        let status = self.look_at_holders(None).await?;
        let mut plan = self.plan(token, status).await;
        if let (Some(time), Ok(_) | Err(Error::CannotEnd(_))) = (closes, &plan) {
            news(StopNews::Closing(time));
            let takes = self.close(time).await?.takes;
            news(StopNews::Closed(time));
            // Another may have taken the lock, or a part of the nodes, before it was closed.
            let status = self.settled(takes).await?;
            plan = self.plan(token, status).await;
        }
        let Plan { status, holders, token } = plan?;
        if holders.is_empty() {
            return Ok(Stopped::nobody(status));
        }
        let start = Boot::now();
        let (holders, unasked): (Vec<Holder>, Vec<Holder>) = match token.is_some() || status.is_cut() {
            true => (holders, Vec::new()),
            false => holders.into_iter().partition(|holder| !holder.cannot_be_stopped()),
        };
        // Where all are known, each is asked by its token, so that a lease of `acquire` stays what it is.
        let each: Vec<Option<Vec<u8>>> = match &token {
            None if !status.is_cut() => holders.iter().map(|holder| Some(holder.token.clone())).collect(),
            one => vec![one.clone()],
        };
        let mut left = None;
        for token in each {
            let answers = self.revoke(Args::default(), token.as_deref(), Outcome::Revoked).await?;
            let revoked = answers.replies().filter(|answer| answer.outcome == Outcome::Revoked);
            let leases = revoked.filter_map(|answer| answer.by.as_ref()).flat_map(Obstacle::holders);
            left = left.max(leases.filter_map(|holder| holder.lease).max());
        }
        news(StopNews::Asked(&holders, left.or_else(|| status.lease())));
        let until = |holder: &Holder| start + holder.lease.unwrap_or_default();
        let pending = holders.into_iter().map(|holder| Pending { until: until(&holder), holder });
        Ok(Stopped { unasked, ..self.until_over(pending.collect(), token, start).await? })
    }

    /// Closes the lock for this time: no master grants it. Zero opens it, and calls the next waiter.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] if too few masters confirm: some may have closed the lock all the same.
    async fn close(&mut self, time: Duration) -> Result<Closing, Error> {
        let ttl = Some(time).filter(|time| !time.is_zero());
        let args = Args::default().with("by", signature(&user_at_host())).time("ttl", ttl);
        let call = self.call(&scripts::CLOSE, args);
        let verdict = |answers: &Answers<Answer>| answers.verdict(|answer| answer.outcome == Outcome::Done);
        let answers = self.locks.ask_each(&call, |answers| verdict(answers) != Verdict::Open).await;
        match verdict(&answers) {
            Verdict::Yes => {
                let any = |field| answers.replies().any(|answer| answer.fields.has(field));
                let away = answers.faults().map(|(node, fault)| format!("{} {fault}", self.locks.nodes.name(node)));
                Ok(Closing { takes: any("held"), was_closed: any("opened"), away: away.collect() })
            }
            _ => Err(self.no_quorum(&answers)),
        }
    }

    /// The lock once no take is under way. A waiter that was called takes the lock within a moment, and so may a client
    /// whose take began before (`takes`).
    ///
    /// # Errors
    /// [`Error::NoQuorum`].
    async fn settled(&mut self, takes: bool) -> Result<Status, Error> {
        let end = Boot::now() + CALLED;
        loop {
            let status = self.look_at_holders(None).await?;
            let is_under_way = status.state == State::Reserved || takes && status.holders().is_empty();
            if !is_under_way || end.passed() {
                return Ok(status);
            }
            sleep_until(Boot::now() + LOOKS).await;
        }
    }

    /// Whom to ask to stop; nobody if the lock is free.
    async fn plan(&mut self, token: Option<&str>, mut status: Status) -> Result<Plan, Error> {
        if matches!(status.state, State::Free | State::Reserved | State::Closed) {
            return Ok(Plan { status, holders: Vec::new(), token: None });
        }
        let one = match token {
            Some(ALL) => None,
            prefix => self.token_to_revoke(prefix.unwrap_or_default(), &status).await?,
        };
        if one.is_none() && token.is_none() && !status.holders().is_empty() {
            return Err(Error::Usage(status.several()));
        }
        if one.is_some() && status.is_cut() {
            status = self.look_at_holders(one.as_deref()).await?;
        }
        let is_meant = |holder: &&Holder| one.as_ref().is_none_or(|token| holder.token == *token);
        let holders: Vec<Holder> = status.holders().iter().filter(is_meant).cloned().collect();
        // Of very many holders only the first are known: all are asked.
        let is_known = one.is_some() || !status.is_cut();
        if is_known && holders.iter().all(Holder::cannot_be_stopped) {
            return Err(match holders.is_empty() {
                true => Error::CannotEnd(Box::new(status.held())),
                false => self.nobody_stops(holders, status.holder_count),
            });
        }
        Ok(Plan { status, holders, token: one })
    }

    /// Why not all holders were asked; None if all were.
    pub(crate) fn cannot_stop(&self, stopped: &Stopped) -> Option<Error> {
        let holders = stopped.unasked.clone();
        (!holders.is_empty()).then(|| self.nobody_stops(holders, stopped.now.holder_count.max(2)))
    }

    /// `count`: how many hold the lock, with others.
    fn nobody_stops(&self, holders: Vec<Holder>, count: u64) -> Error {
        let by = Obstacle::Leases(Leases { holders, count, next: None });
        Error::CannotEnd(Box::new(NamedObstacle::of(&self.name, by)))
    }

    /// Waits until all revoked leases have ended. A lease that ends before its time was released, so its job is over.
    async fn until_over(
        &mut self,
        mut pending: Vec<Pending>,
        token: Option<Vec<u8>>,
        start: Boot,
    ) -> Result<Stopped, Error> {
        let (mut over, mut ran_out) = (Vec::new(), Vec::new());
        let is_asked = |holder: &&Holder| match &token {
            Some(token) => holder.token == *token,
            None => holder.revoked.is_some() && !holder.cannot_be_stopped(),
        };
        loop {
            let sent = Boot::now();
            let status = match self.look_at_holders(token.as_deref()).await {
                Err(error) if error.can_heal() && !pending.iter().all(|one| one.until.passed()) => {
                    sleep_until(Boot::now() + LOOKS).await;
                    continue;
                }
                status => status?,
            };
            for holder in status.holders().iter().filter(is_asked) {
                let until = sent + holder.lease.unwrap_or(Duration::MAX);
                match pending.iter_mut().find(|one| one.holder.token == holder.token) {
                    Some(known) => known.until = until,
                    None => pending.push(Pending { holder: holder.clone(), until }),
                }
            }
            let is_left = |one: &Pending| status.holders().iter().any(|holder| holder.token == one.holder.token);
            let (left, ended): (Vec<_>, Vec<_>) = pending.into_iter().partition(is_left);
            for Pending { holder, until } in ended {
                let ends = if until.passed() { &mut ran_out } else { &mut over };
                ends.push(holder);
            }
            pending = left;
            if !status.holders().iter().any(|holder| is_asked(&holder)) {
                let took = start.elapsed();
                return Ok(Stopped { over, ran_out, took, ..Stopped::nobody(self.settled(false).await?) });
            }
            sleep_until(Boot::now() + LOOKS).await;
        }
    }
}
