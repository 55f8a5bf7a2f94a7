//! `redlock wait`: comes back when the lock is free, and takes nothing.

use super::Watch;
use crate::exit::Exit;
use crate::lock::{Locker, Wait};
use crate::plan::{Await, default_ttl};
use crate::waiting::Line;

pub(crate) fn run(plan: Await) -> anyhow::Result<Exit> {
    let mut locker = Locker::new(&plan.settings, &plan.name, default_ttl())?;
    let interrupter = locker.interrupter();
    Watch::on_interrupt(move |signal| interrupter.interrupt(signal))?;
    let timeout = plan.timeout.map_or(Wait::Forever, Wait::For);
    let mut line = Line::new(&plan.name, plan.manner.quiet, plan.manner.verbose);
    locker.wait_until_free(timeout, &mut |waiting| line.show(waiting))?;
    Ok(Exit::Done)
}
