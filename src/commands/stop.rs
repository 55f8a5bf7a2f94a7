//! `redlock stop`: ends the jobs of others, and closes the lock.

use super::{DEFAULT_TTL, block_on, lock, say_unseen, settings, signals, warn_of_default};
use crate::cli::{Common, Format, StopArgs};
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::{Lock, StopNews, Stopped};
use crate::output::{self, say};
use crate::sys::signals::{Signals, ending};
use std::time::Duration;

pub(crate) fn run(args: &StopArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    let name = args.lock.name().unwrap_or_default();
    let mut lock = lock(&settings, name, DEFAULT_TTL)?;
    warn_of_default(&settings);
    let mut standing = Vec::new();
    let stopped = block_on(async {
        let signals = signals(ending())?;
        tokio::select! {
            biased;
            arrived = signals.next(Signals::next) => Err(Error::Interrupted(arrived.signal)),
            stopped = stop_or_open(args, &mut lock, common.quiet, &mut standing) => stopped,
        }
    });
    // The wait did not come to its end, but what was done stands.
    if stopped.is_err() {
        standing.iter().for_each(|line| say(line));
    }
    let (stopped, opened) = stopped?;
    output::left_running(name, &stopped).iter().for_each(|line| say(line));
    let is_json = common.format == Format::Json;
    if is_json || !common.quiet {
        output::show(&output::stopped(name, &stopped, opened, is_json))?;
    }
    // A misspelt name is free, too.
    if !opened && stopped.now.is_unseen() && !is_json && !common.quiet {
        let started = &stopped.now.memory.started;
        block_on(say_unseen(&mut lock.locks, &settings.prefix, name, started))?;
    }
    Ok(Exit::DONE)
}

/// Stops the jobs, or opens the lock: then the second value is true. Each line in `standing` says what stands even if
/// this call ends early.
async fn stop_or_open(
    args: &StopArgs,
    lock: &mut Lock,
    quiet: bool,
    standing: &mut Vec<String>,
) -> Result<(Stopped, bool), Error> {
    let name = lock.name.clone();
    if args.closes == Some(Duration::ZERO) {
        lock.close(Duration::ZERO).await?;
        let now = lock.settled().await?;
        return Ok((Stopped { over: Vec::new(), ran_out: Vec::new(), took: Duration::ZERO, now }, true));
    }
    let mut news = |news: StopNews<'_>| match news {
        StopNews::Closed(time) => standing.push(output::closed(&name, time)),
        StopNews::Asked(holders, left) => {
            let asked = output::asked(&name, holders, left);
            if !quiet {
                say(&format!("asked {asked}"));
            }
            standing.push(format!("the request stands: {asked}"));
        }
    };
    Ok((lock.stop(args.token.as_deref(), args.closes, &mut news).await?, false))
}
