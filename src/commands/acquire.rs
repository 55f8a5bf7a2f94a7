//! `redlock acquire`: takes the lock and prints its token.

use super::{block_on, claim, interrupted, lock, request, settings_in_time, signals};
use crate::cli::{AcquireArgs, Common, Format};
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::{Lease, Lock, Request, WaitReport};
use crate::output;
use crate::progress::ProgressLine;
use crate::sys::clock::Boot;
use crate::sys::signals::Signals;
use crate::sys::wait::Readable;
use std::cell::RefCell;

pub(crate) fn run(args: &AcquireArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings_in_time(common, args.wait())?;
    let taking = &args.taking;
    let name = taking.names.concat();
    let lock = lock(&settings, &name, taking.ttl)?.with_claim(claim(taking)?);
    // This process ends before the lease does; the calling script has the token.
    let pid = std::os::unix::process::parent_id();
    let request = request(taking, args.wait(), &settings, pid, settings.label.clone().unwrap_or_default());
    let line = ProgressLine::new(&name, common.quiet, common.verbose, request.wait);
    let signals = signals()?;
    block_on(acquire_and_print(lock, &request, line, signals, common))?;
    Ok(Exit::Done)
}

async fn acquire_and_print(
    mut lock: Lock,
    request: &Request,
    line: ProgressLine,
    signals: Signals,
    common: &Common,
) -> Result<(), Error> {
    let signals = Readable::new(signals).map_err(Error::cannot_wait)?;
    let start = Boot::now();
    let line = RefCell::new(line);
    let mut show = |waiting: &WaitReport| line.borrow_mut().show(waiting);
    let lease = lock.acquire(request, &mut show, interrupted(&signals, &line)).await?;
    let waited = line.borrow().waited();
    drop(line);
    let text = match common.format {
        Format::Text => output::token(&lease),
        Format::Env => output::lease_env(&lock.name, &lease),
        Format::Json => output::lease_json(&lock, &lease, start.elapsed()),
    };
    let printed = tokio::select! {
        biased;
        arrived = signals.next(Signals::next) => Err(Error::Interrupted(arrived.signal)),
        printed = output::print_when_read(&text) => printed,
    };
    if let Err(error) = printed {
        return Err(give_back(&mut lock, &lease, error).await);
    }
    if common.verbose {
        let (name, nodes) = (&lock.name, lock.where_it_holds(&lease));
        let waited = output::after_waiting(waited);
        output::say(&format!("acquired {name:?} on {nodes}{waited}, fencing token {}", lease.fencing_token));
    }
    Ok(())
}

/// Releases a lease whose token could not be printed: the caller cannot release it.
async fn give_back(lock: &mut Lock, lease: &Lease, error: Error) -> Error {
    let released = lock.release(lease, None).await;
    match (error, released) {
        (Error::Output(why), Ok(_)) => Error::Output(format!("{why}; {:?} was released again", lock.name)),
        (Error::Output(why), Err(_)) => Error::Output(format!("{why}; {:?} is free when its lease ends", lock.name)),
        (error, _) => error,
    }
}
