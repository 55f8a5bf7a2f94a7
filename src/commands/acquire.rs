//! `redlock acquire`: takes the lock and prints its token.

use super::talk;
use crate::cli::Format;
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::{Alarm, Lease, Locker};
use crate::output;
use crate::plan::Acquire;
use crate::sys::interrupt::Ending;
use crate::sys::signals::{Arrivals, Arrived, Signals};
use crate::waiting::Line;
use std::os::fd::AsFd;
use std::sync::Arc;

fn line(plan: &Acquire) -> Line {
    Line::new(&plan.name, plan.manner.quiet, plan.manner.verbose)
}

/// Acquires it with this thread, which looks for signals itself.
fn acquire_by_itself(plan: &Acquire, locker: &mut Locker, signals: Signals) -> anyhow::Result<Lease> {
    let signals = Arc::new(Arrivals::of(signals));
    let seen = Arc::clone(&signals);
    let descriptor = signals.as_fd().try_clone_to_owned()?;
    let alarm = Alarm::new(descriptor, move || seen.any(|_| true, || {}));
    let mut line = line(plan);
    let acquired = locker.acquire_here(&plan.request, &alarm, &mut |waiting| line.show(waiting));
    let Some(Arrived { signal, .. }) = signals.next() else {
        return Ok(acquired?);
    };
    if let Ok(lease) = acquired {
        // It came before anybody knows of the token.
        let _ = locker.release(&lease, None);
    }
    Err(Error::Interrupted(signal).into())
}

pub(crate) fn run(plan: Acquire) -> anyhow::Result<Exit> {
    let ending = Ending::keep_back();
    let mut locker = Locker::new(&plan.settings, &plan.name, plan.request.ttl)?;
    let lease = match ending.open().filter(|_| locker.asks_by_itself()) {
        Some(signals) => acquire_by_itself(&plan, &mut locker, signals)?,
        None => {
            let interrupter = locker.interrupter();
            ending.tell(move |signal| interrupter.interrupt(signal));
            let mut line = line(&plan);
            locker.acquire(&plan.request, &mut |waiting| line.show(waiting))?
        }
    };
    let printed = match plan.manner.format {
        Format::Text => output::token(&lease),
        Format::Env => output::lease_env(&plan.name, &lease),
        Format::Json => output::lease_json(&plan.name, locker.key(), &lease),
    };
    if let Err(error) = printed {
        // Nobody knows the token: nobody could release it.
        return Err(match locker.release(&lease, None) {
            Ok(_) => anyhow::Error::from(error).context(format!("{:?} was released again", plan.name)),
            Err(_) => anyhow::Error::from(error).context(format!("{:?} stays taken until its lease ends", plan.name)),
        });
    }
    if plan.manner.verbose {
        talk(&format!("acquired {:?} on {}, fencing token {}", plan.name, locker.nodes(), lease.fencing_token));
    }
    Ok(Exit::Done)
}
