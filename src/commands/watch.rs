//! `status --watch`: repeats the status. On a terminal the page has a screen of its own; elsewhere each line carries the
//! time.

use crate::error::Error;
use crate::exit::Exit;
use crate::output;
use crate::screen::Screen;
use crate::sys::clock::unix_time;
use crate::sys::signals::{Signals, not_ignored};
use crate::sys::wait::Readable;
use crate::text::{exact, rfc3339};
use nix::libc;
use nix::sys::signal::{Signal, raise};
use std::time::Duration;

/// The signals that end the watch, and those of a terminal for a new size and for Ctrl-Z. The screen handles Ctrl-C.
const READ: [Signal; 5] = [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGWINCH, Signal::SIGTSTP];

/// Shows the page of `look` at this interval, until a signal ends it. `look` gets the columns of a screen, to fit its page.
///
/// # Errors
/// The errors of `look`, unless Redis may come back; those of standard output; the signal.
pub(super) async fn watch(
    every: Duration,
    is_json: bool,
    mut look: impl AsyncFnMut(Option<usize>) -> anyhow::Result<String>,
) -> anyhow::Result<Exit> {
    let signals = Signals::block(&not_ignored(&READ)).map_err(|error| Error::Internal(error.desc().to_lowercase()))?;
    let signals = Readable::new(signals).map_err(Error::cannot_wait)?;
    let mut screen = Screen::open()?;
    loop {
        let columns = screen.as_ref().map(|_| Screen::columns());
        let page = tokio::select! {
            biased;
            ending = ending(&signals, screen.as_ref()) => return Err(ending?.into()),
            page = look(columns) => page,
        };
        let page = match page {
            // A Redis that is away may come back.
            Err(error) if Exit::of(&error) == Exit::Unavailable => Err(format!("{error:#}")),
            page => Ok(page?),
        };
        let now = rfc3339(unix_time()).unwrap_or_default();
        match (&mut screen, page) {
            (Some(screen), page) => {
                let page = page.unwrap_or_else(|error| output::line(&error));
                screen.show(format!("redlock status, every {}: {now}\n\n{page}", exact(every)))?;
            }
            (None, Ok(page)) if is_json => output::show(&page)?,
            (None, Ok(page)) => {
                output::show(&page.lines().map(|line| format!("{now}  {line}\n")).collect::<String>())?;
            }
            (None, Err(error)) => output::say(&error),
        }
        tokio::select! {
            biased;
            ending = ending(&signals, screen.as_ref()) => return Err(ending?.into()),
            () = tokio::time::sleep(every) => {}
        }
    }
}

/// Handles the signals of the screen, and returns at a signal that ends the watch.
async fn ending(signals: &Readable<Signals>, screen: Option<&Screen>) -> Result<Error, Error> {
    loop {
        let signal = signals.next(Signals::next).await.signal;
        match (signal, screen) {
            (libc::SIGWINCH, None) => {}
            (libc::SIGWINCH, Some(screen)) => screen.redraw()?,
            (libc::SIGTSTP, None) => stop(),
            (libc::SIGTSTP, Some(screen)) => screen.without(stop)?,
            _ => return Ok(Error::Interrupted(signal)),
        }
    }
}

/// Stops this process until it is continued.
fn stop() {
    let _ = raise(Signal::SIGSTOP);
}
