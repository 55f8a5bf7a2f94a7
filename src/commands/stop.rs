//! `redlock stop`: ends the jobs of others, and closes the lock.

use super::{DEFAULT_TTL, block_on, lock, say_unseen, settings, signals, warn_of_default};
use crate::cli::{Common, Format, StopArgs};
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::StopNews;
use crate::output::{self, say};
use crate::sys::signals::{Signals, ending};
use std::time::Duration;

pub(crate) fn run(args: &StopArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    let name = args.lock.name().unwrap_or_default();
    let mut lock = lock(&settings, name, DEFAULT_TTL)?;
    warn_of_default(&settings);
    let mut standing = Vec::new();
    let mut news = |news: StopNews<'_>| match news {
        StopNews::Closing(time) => standing.push(output::closed(name, "may be", time)),
        StopNews::Closed(time) => standing = vec![output::closed(name, "is", time)],
        StopNews::Asked(holders, left) => {
            let asked = format!("asked {}", output::asked(name, holders, left));
            if !common.quiet {
                say(&asked);
            }
            standing.push(format!("the request stands: {asked}"));
        }
    };
    let stopped = block_on(async {
        let signals = signals(ending())?;
        tokio::select! {
            biased;
            arrived = signals.next(Signals::next) => Err(Error::Interrupted(arrived.signal)),
            stopped = lock.stop(args.token.as_deref(), args.closes, &mut news) => stopped,
        }
    });
    // The wait was cut short, but what was done stands.
    if stopped.is_err() {
        standing.iter().for_each(|line| say(line));
    }
    let (stopped, opens) = (stopped?, args.closes == Some(Duration::ZERO));
    match (common.format, common.quiet) {
        (Format::Json, _) => output::show(&output::stopped_json(name, &stopped, opens))?,
        (_, false) => output::show(&(output::line(&output::stopped(name, &stopped, opens)) + "\n"))?,
        (_, true) if stopped.ran_out.is_empty() => {}
        (_, true) => say(&output::stopped(name, &stopped, opens)),
    }
    if !stopped.away.is_empty() {
        say(&format!("{name:?}: some nodes may stay closed ({}); run the command again", stopped.away.join(", ")));
    }
    // A misspelt name is free, too.
    if !(opens && stopped.was_closed) && stopped.now.is_unseen() && common.format != Format::Json && !common.quiet {
        let started = &stopped.now.history.started;
        block_on(say_unseen(&mut lock.locks, &settings.prefix, name, started))?;
    }
    if let Some(left) = lock.cannot_stop(&stopped) {
        say(&left.to_string());
        return Ok(Exit::HELD);
    }
    Ok(Exit::DONE)
}
