//! The leases of a run before its job: takes them one after the other, renews those already taken, and releases all if
//! no job starts.

use super::ending::{JobEnd, end_for_log};
use super::loss::Loss;
use super::messages;
use super::supervisor::{Job, Supervisor};
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::{End, Lease, Lock, Request, UNDO_TIMEOUT, WaitReport};
use crate::progress::ProgressLine;
use crate::sys::clock::Boot;
use crate::sys::wait::within;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use std::cell::RefCell;
use std::time::Duration;

pub(super) struct Grant<'a> {
    pub(super) lock: &'a mut Lock,
    pub(super) lease: Lease,
}

/// Takes the locks one after the other. The request's wait limits the time for all of them together.
pub(super) async fn acquire_all<'a>(
    supervisor: &Supervisor,
    locks: &'a mut [Lock],
    grants: &mut Vec<Grant<'a>>,
    begin: Boot,
) -> Result<(), Error> {
    let mut places: Vec<Option<Grant<'a>>> = locks.iter().map(|_| None).collect();
    let acquired = acquire_each(supervisor, locks, &mut places, begin).await;
    grants.extend(places.into_iter().flatten());
    acquired
}

/// Takes the locks, and puts the grants into `places`. The renewal of a lease goes on while further locks are taken: if
/// each further lock restarted all renewals, a hundred names would set five thousand timers.
async fn acquire_each<'a>(
    supervisor: &Supervisor,
    locks: &'a mut [Lock],
    places: &mut [Option<Grant<'a>>],
    begin: Boot,
) -> Result<(), Error> {
    let mut renewals = FuturesUnordered::new();
    for (lock, place) in locks.iter_mut().zip(places) {
        let lease = acquire(supervisor, lock, begin, &mut renewals).await.map_err(|mut error| {
            if let Error::Held(held) = &mut error {
                held.waited = held.waited.map(|_| begin.elapsed());
            }
            error
        })?;
        renewals.push(renew(supervisor, place.insert(Grant { lock, lease })));
    }
    Ok(())
}

/// Takes one more lock, within the rest of the wait that began at `begin`, and reports it as acquired. `renewals`:
/// those of the leases that the run holds already. The first loss of such a lease ends the wait.
async fn acquire(
    supervisor: &Supervisor,
    lock: &mut Lock,
    begin: Boot,
    renewals: &mut FuturesUnordered<impl Future<Output = Error>>,
) -> Result<Lease, Error> {
    let Job { request, quiet, verbose, .. } = &supervisor.job;
    let longest = request.once_per.map_or(request.wait, |once| once.waits(true));
    let line = RefCell::new(ProgressLine::new(&lock.name, *quiet, *verbose, longest, begin));
    // Of the hosts of a crontab, only the first in line reports a lock that never expires.
    let is_mute =
        |waiting: &WaitReport| *quiet && request.once_per.is_some() && waiting.rank.is_none_or(|rank| rank > 0);
    let mut show = |waiting: &WaitReport| {
        if !is_mute(waiting) {
            line.borrow_mut().show(waiting);
        }
    };
    let interrupted = async {
        tokio::select! {
            biased;
            error = supervisor.interrupted() => error,
            error = first_loss(renewals) => error,
            () = ProgressLine::tick_on(&line) => unreachable!("it has no end"),
        }
    };
    let wait = match request.wait {
        wait @ (Duration::ZERO | Duration::MAX) => wait,
        // A wait of zero would mean a single try.
        wait => wait.saturating_sub(begin.elapsed()).max(Duration::from_millis(1)),
    };
    let request = Request { wait, ..request.clone() };
    let lease = lock.acquire(&request, &mut show, interrupted).await?;
    supervisor.messages_of(lock).acquired(lock, &lease, line.borrow().waited());
    Ok(lease)
}

async fn renew(supervisor: &Supervisor, Grant { lock, lease }: &mut Grant<'_>) -> Error {
    let loss = supervisor.renewer(lock, lease, true).renew(lock, lease, &|| {}).await;
    lost_before_start(&lock.name, &loss)
}

/// The first loss among these renewals. Without renewals, waits for ever.
async fn first_loss(renewals: &mut FuturesUnordered<impl Future<Output = Error>>) -> Error {
    match renewals.next().await {
        Some(error) => error,
        None => std::future::pending().await,
    }
}

/// Releases the leases of a run whose job was not started because of `error`. After a signal, the release has a short
/// deadline.
pub(super) async fn release_all(grants: &mut [Grant<'_>], error: &Error) {
    let end = match Exit::of_error(error) {
        exit @ (Exit::NOT_FOUND | Exit::CANNOT_EXECUTE) => end_for_log(JobEnd { exit, at: Boot::now() }, false, None),
        _ => End::UNUSED,
    };
    let releases = join_all(grants.iter_mut().map(|grant| grant.lock.release(&grant.lease, end)));
    match error {
        Error::Interrupted(_) => drop(within(Boot::now() + UNDO_TIMEOUT, releases).await),
        _ => drop(releases.await),
    }
}

pub(super) fn lost_before_start(name: &str, loss: &Loss) -> Error {
    Error::LostBeforeStart { name: name.to_owned(), why: messages::text(loss), taken: matches!(loss, Loss::Proof(_)) }
}
