//! `redlock acquire`: takes the lock, prints the token, and with `--while-pid` hands the lease over to a guard.

use super::{block_on, claim, interrupted, lock, request, settings, signals, warn_of_default};
use crate::cli::{AcquireArgs, Common, Format, OnLost};
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::{End, Lease, Lock, Request, WaitReport};
use crate::output;
use crate::progress::ProgressLine;
use crate::run::guard::{self, Guard};
use crate::sys::clock::Boot;
use crate::sys::signals::{Signals, ending};
use crate::sys::wait::sleep_until;
use futures_util::future::OptionFuture;
use std::cell::RefCell;
use std::os::unix::process::parent_id;

pub(crate) fn run(args: &AcquireArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    let taking = &args.taking;
    let name = taking.names.concat();
    let watched = args.while_pid.map(guard::watched).transpose()?;
    let mut lock = lock(&settings, &name, taking.ttl)?.with_claim(claim(taking));
    // The lease outlives this process, so its owner is the process of --while-pid, or the calling script.
    let pid = args.while_pid.map_or_else(parent_id, i32::unsigned_abs);
    let label = settings.label.clone().unwrap_or_default();
    let mut request = request(taking, watched.is_none(), args.wait, &settings, pid, label);
    request.noted = watched.is_some();
    request.is_acquired = true;
    // The guard is forked before there is a runtime, because it must not share the runtime's descriptors.
    let continue_when_lost = args.on_lost == Some(OnLost::Continue);
    let task = |watched| guard::GuardTask { watched, continue_when_lost, quiet: common.quiet, verbose: common.verbose };
    let guard = watched.map(|watched| guard::fork(task(watched), &mut lock)).transpose()?;
    warn_of_default(&settings);
    let line = ProgressLine::new(&name, common.quiet, common.verbose, request.wait, Boot::now());
    block_on(acquire_and_print(lock, &request, line, guard, common))?;
    Ok(Exit::DONE)
}

async fn acquire_and_print(
    mut lock: Lock,
    request: &Request,
    line: ProgressLine,
    guard: Option<Guard>,
    common: &Common,
) -> Result<(), Error> {
    let signals = signals(ending())?;
    let start = Boot::now();
    let line = RefCell::new(line);
    let mut show = |waiting: &WaitReport| line.borrow_mut().show(waiting);
    let interrupted = async {
        tokio::select! {
            biased;
            error = interrupted(&signals, &line) => error,
            Some(error) = OptionFuture::from(guard.as_ref().map(Guard::ends)) => error,
        }
    };
    if let Some(guard) = &guard {
        tokio::select! {
            biased;
            error = super::interrupted(&signals, &line) => return Err(error),
            ready = guard.ready() => ready?,
        }
    }
    let lease = lock.acquire(request, &mut show, interrupted).await?;
    let waited = line.borrow().waited();
    drop(line);
    let text = match common.format {
        Format::Text | Format::Prometheus | Format::Nagios | Format::Chart | Format::Html => {
            format!("{}\n", lease.token)
        }
        Format::Env => output::lease_env(&lock.name, &lease),
        Format::Json => output::lease_json(&lock, &lease, start.elapsed()),
    };
    let handed_over = tokio::select! {
        biased;
        arrived = signals.next(Signals::next) => Err(Error::Interrupted(arrived.signal)),
        handed_over = hand_over(&lease, &text, &lock.name, guard) => handed_over,
    };
    if let Err(error) = handed_over {
        return Err(give_back(&mut lock, &lease, error).await);
    }
    output::may_have_forgotten(&lock, &lease).iter().for_each(|why| output::say(why));
    if common.verbose {
        let acquired = output::acquired(&lock, &lease, waited);
        output::say(&format!("{acquired}, fencing token {}", lease.fencing_token));
    }
    Ok(())
}

/// Prints the lease, and hands it over to the guard if there is one. If the lease runs out meanwhile, returns an error,
/// and kills the guard.
async fn hand_over(lease: &Lease, text: &str, name: &str, guard: Option<Guard>) -> Result<(), Error> {
    let print_and_hand_over = async {
        output::print_when_read(text).await?;
        match &guard {
            Some(guard) => guard.hand_over(lease).await,
            None => Ok(()),
        }
    };
    tokio::select! {
        done = print_and_hand_over => done?,
        () = sleep_until(lease.valid_until()) => {}
    }
    // The lease may have run out: the reader or the guard was slow, or the machine slept.
    if lease.valid_until().passed() {
        return Err(Error::GrantedTooLate { name: name.to_owned(), ttl: lease.ttl });
    }
    if let Some(guard) = guard {
        guard.detach();
    }
    Ok(())
}

/// Releases a lease that the caller cannot use: the token was not printed in time, the guard failed, or a signal came.
/// Returns `error`; an [`Error::Output`] also says whether the lease was released.
async fn give_back(lock: &mut Lock, lease: &Lease, error: Error) -> Error {
    let released = lock.release(lease, End::UNUSED).await;
    match (error, released) {
        (Error::Output(why), Ok(_)) => Error::Output(format!("{why}; {:?} was released", lock.name)),
        (Error::Output(why), Err(_)) => Error::Output(format!("{why}; {:?} is free when its lease ends", lock.name)),
        (error, _) => error,
    }
}
