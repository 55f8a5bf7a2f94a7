//! `redlock wait`: waits until the lock is free or the timeout is over, and takes nothing.

use super::{block_on, interrupted, lock_to_look_at, say_unseen, settings, signals, warn_of_default};
use crate::cli::{Common, Format, WaitArgs};
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::WaitReport;
use crate::output;
use crate::progress::ProgressLine;
use crate::sys::clock::Boot;
use crate::sys::signals::ending;
use std::cell::{Cell, RefCell};
use std::time::Duration;

pub(crate) fn run(args: &WaitArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    let name = args.lock.name().unwrap_or_default();
    let mut lock = lock_to_look_at(&settings, name)?;
    warn_of_default(&settings);
    let timeout = args.timeout.unwrap_or(Duration::MAX);
    let line = RefCell::new(ProgressLine::new(name, common.quiet, common.verbose, timeout, Boot::now()));
    let has_waited = Cell::new(false);
    let mut show = |waiting: &WaitReport| {
        has_waited.set(true);
        line.borrow_mut().show(waiting);
    };
    block_on(async {
        let signals = signals(ending())?;
        tokio::select! {
            biased;
            error = interrupted(&signals, &line) => Err(error),
            free = lock.wait_until_free(timeout, &mut show) => free,
        }?;
        // A misspelt name is free at once.
        if !has_waited.get()
            && !common.quiet
            && common.format != Format::Json
            && let Some(history) = lock.unseen().await
        {
            say_unseen(&mut lock.locks, &settings.prefix, name, &history.started).await?;
        }
        Ok::<_, Error>(())
    })?;
    if common.format == Format::Json {
        output::success(name, "free", None, None)?;
    }
    Ok(Exit::DONE)
}
