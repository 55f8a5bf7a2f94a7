//! `redlock wait`: comes back when the lock is free, and takes nothing.

use super::{DEFAULT_TTL, block_on, lock, settings};
use crate::cli::{Common, Wait, WaitArgs};
use crate::exit::Exit;
use crate::lock::Waiting;
use crate::progress::ProgressLine;
use std::cell::RefCell;
use std::time::Duration;

pub(crate) fn run(args: &WaitArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    let (name, _) = settings.name_and_token(args.named.name(), None)?;
    let mut lock = lock(&settings, &name, DEFAULT_TTL)?;
    let wait = args.timeout.map_or(Wait::Forever, Wait::For);
    let line = RefCell::new(ProgressLine::new(&name, common.quiet, common.verbose, wait));
    let timeout = args.timeout.unwrap_or(Duration::MAX);
    let mut show = |waiting: &Waiting| line.borrow_mut().show(waiting);
    block_on(async {
        tokio::select! {
            () = ProgressLine::tick_on(&line) => unreachable!("it has no end"),
            free = lock.wait_until_free(timeout, &mut show) => free,
        }
    })?;
    Ok(Exit::Done)
}
