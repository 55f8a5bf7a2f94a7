//! `redlock run`, from top to bottom: acquire, start, wait for the first of {job ended, lease lost}, release.
//!
//! Several locks are taken one after the other, and each lease is renewed from its grant on. There is one job and one
//! keeper; the lease that ends first sets the keeper's deadline.
//!
//! There are two waits: for a lock, and for the job. Each wait is one `select!`, whose first arm is a signal. Until the
//! keeper is ordered to start the command, a signal ends the wait: the request under way is dropped, and
//! `Lock::withdraw` undoes the traces of the request on the nodes. Afterwards signals go to the job, and the job's end
//! ends the wait. A signal does not interrupt the release, which has a deadline of its own.

mod ending;
mod grants;
pub(crate) mod guard;
mod loss;
mod messages;
mod renewal;
mod supervision;
mod supervisor;
pub(crate) mod timeline;
mod watchdog;

use crate::error::Error;
use crate::exit::Exit;
use crate::keeper::{self, Order};
use crate::lock::Lock;
use crate::sys::clock::Boot;
use crate::sys::inherited::Inheritance;
use crate::sys::signals::Signals;
use crate::sys::wait::{self, Readable};
use crate::sys::{process, stdio};
use grants::{Grant, acquire_all, release_all};
use messages::Messages;
use supervision::Supervision;
pub(crate) use supervisor::Job;
use supervisor::{Supervisor, can_see_processes, cannot_supervise, keeper_gone};

/// Acquires the locks in this order, runs the command under all of them, and releases them.
///
/// # Errors
/// The reason why the command was not started. After the start, the [`Exit`] tells how the run ended.
pub(crate) fn run(job: Job, mut locks: Vec<Lock>) -> Result<Exit, Error> {
    let mask = Supervisor::handled_signals();
    let inherited = Inheritance::take_over(&mask).map_err(cannot_supervise)?;
    process::adopt_orphans().map_err(cannot_supervise)?;
    can_see_processes()?;
    let terminal = stdio::has_terminal();
    // Forks before there is a runtime, because the keeper must not have the runtime's descriptors, and fork copies only
    // one thread.
    let keeper = keeper::fork(&job.task, inherited, terminal).map_err(cannot_supervise)?;
    let signals = Signals::open(&mask).map_err(cannot_supervise)?;
    wait::block_on(async {
        let supervisor = Supervisor {
            messages: Messages::new(locks.iter().map(|lock| lock.name.as_str()), job.quiet, job.verbose),
            signals: Readable::new(signals).map_err(Error::cannot_wait)?,
            keeper: Readable::new(keeper).map_err(Error::cannot_wait)?,
            terminal,
            job,
        };
        let ended = run_within_wait(&supervisor, &mut locks).await;
        // No lock is dropped: the end of this process closes the connections faster.
        std::mem::forget(locks);
        ended
    })
    .map_err(Error::cannot_wait)?
}

/// Runs the command under all locks. If a failure that may heal, such as a lost lease, comes before the start, takes
/// all locks again, within the wait.
async fn run_within_wait(supervisor: &Supervisor, locks: &mut [Lock]) -> Result<Exit, Error> {
    let begin = Boot::now();
    let end = begin + supervisor.job.request.wait;
    loop {
        match run_once(supervisor, locks, begin).await {
            Err(error) if error.can_heal() && !end.passed() => supervisor.messages.again(&error),
            ended => return ended,
        }
    }
}

/// Takes all locks, within the wait that began at `begin`, and runs the command under them.
async fn run_once(supervisor: &Supervisor, locks: &mut [Lock], begin: Boot) -> Result<Exit, Error> {
    let mut grants = Vec::new();
    let ended = async {
        acquire_all(supervisor, locks, &mut grants, begin).await?;
        let acquired_at = Boot::now();
        let supervision = Supervision::new(supervisor, &grants);
        order_start(supervisor, &supervision, &grants)?;
        let end = supervision.supervise(&mut grants).await?;
        Ok((supervision, acquired_at, end))
    };
    match ended.await {
        Ok((supervision, acquired_at, end)) => Ok(supervision.conclude(grants, acquired_at, end).await),
        Err(error) => {
            release_all(&mut grants, &error).await;
            Err(error)
        }
    }
}

/// Orders the keeper to start the command. Fails if a signal has come, if the last lease is already due for renewal, or
/// if the keeper has ended.
fn order_start(supervisor: &Supervisor, supervision: &Supervision<'_>, grants: &[Grant]) -> Result<(), Error> {
    if let Some(interrupted) = supervisor.pending_interruption() {
        return Err(interrupted);
    }
    supervision.send_deadline();
    let Grant { lease, .. } = &grants[grants.len() - 1];
    let not_after = supervision.renew_at(lease);
    let order = Order::Start { environment: environment(&supervisor.job.request.ancestors, grants), not_after };
    // redlock may have been frozen since the grant. After `not_after` the keeper would refuse the order, but the
    // watchdog may go off before the refusal arrives.
    if not_after.passed() {
        return Err(supervision.too_late());
    }
    supervisor.keeper.get().send(&order).map_err(|_| keeper_gone())
}

/// The variables that tell the job about its leases. REDLOCK_HELD has the tokens of all leases: first those of the
/// enclosing jobs, from the outermost job inwards, then the job's own. The other variables are about the last lease.
fn environment(ancestors: &[String], grants: &[Grant]) -> Vec<(String, Option<String>)> {
    let own = grants.iter().map(|grant| &grant.lease.token);
    let held = ancestors.iter().chain(own).map(String::as_str).collect::<Vec<_>>().join(" ");
    let Grant { lock, lease } = &grants[grants.len() - 1];
    [
        ("REDLOCK_NAME", Some(lock.name.clone())),
        ("REDLOCK_TOKEN", Some(lease.token.clone())),
        ("REDLOCK_FENCING_TOKEN", Some(lease.fencing_token.to_string())),
        // None removes the variable of an enclosing job.
        ("REDLOCK_SLOT", lease.slot.map(|slot| slot.to_string())),
        ("REDLOCK_HELD", Some(held)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
