//! `status --watch`: repeats the status. On a terminal the page has a screen of its own; elsewhere each line of text
//! begins with the time.

use super::signals;
use crate::error::Error;
use crate::exit::Exit;
use crate::output;
use crate::screen::Screen;
use crate::sys::clock::{local_date, unix_time};
use crate::sys::signals::{Signals, ending};
use crate::sys::wait::Readable;
use crate::text::exact;
use futures_util::future::OptionFuture;
use nix::libc;
use nix::sys::signal::{Signal, raise};
use std::time::Duration;

/// The signals that end the watch; SIGWINCH for a new terminal size; SIGTSTP for Ctrl-Z. The screen handles Ctrl-C.
fn read() -> impl Iterator<Item = i32> {
    ending().filter(|&signal| signal != libc::SIGINT).chain([libc::SIGWINCH, libc::SIGTSTP])
}

/// Calls `look` and shows the page, again and again at the interval `every`. A signal or the key q ends the watch.
/// `look` gets the width of the screen in columns; None if standard output is a dumb terminal or no terminal.
///
/// # Errors
/// An error of `look`, unless Redis may come back. An error of standard output. The signal that ended the watch.
pub(super) async fn watch(
    every: Duration,
    is_json: bool,
    mut look: impl AsyncFnMut(Option<usize>) -> anyhow::Result<String>,
) -> anyhow::Result<Exit> {
    let signals = signals(read())?;
    let screen = Screen::open()?;
    let keys = screen.as_ref().and_then(Screen::keys).map(Readable::new).transpose().map_err(Error::cannot_wait)?;
    loop {
        let refreshed = async {
            let page = match look(screen.as_ref().map(|_| Screen::columns())).await {
                // A Redis that is away may come back.
                Err(error) if Exit::of(&error) == Exit::UNAVAILABLE => Err(format!("{error:#}")),
                page => Ok(page?),
            };
            show(page, every, is_json, screen.as_ref())?;
            tokio::time::sleep(every).await;
            Ok::<_, anyhow::Error>(())
        };
        let quit = keys.as_ref().map(|keys| keys.next(|keys| keys.has(b'q').then_some(())));
        tokio::select! {
            biased;
            arrived = signals.next(Signals::next) => match (arrived.signal, &screen) {
                // The next page has the new size, and comes at once.
                (libc::SIGWINCH, _) => {}
                (libc::SIGTSTP, Some(screen)) => screen.without(stop)?,
                (libc::SIGTSTP, None) => stop(),
                (signal, _) => return Err(Error::Interrupted(signal).into()),
            },
            Some(()) = OptionFuture::from(quit) => return Ok(Exit::DONE),
            refreshed = refreshed => refreshed?,
        }
    }
}

/// Shows a page, or why there is none.
fn show(page: Result<String, String>, every: Duration, is_json: bool, screen: Option<&Screen>) -> Result<(), Error> {
    let now = local_date(unix_time()).unwrap_or_default();
    match (screen, page) {
        (Some(screen), page) => {
            let page = page.unwrap_or_else(|error| output::line(&error));
            let key = if screen.keys().is_some() { "q" } else { "Ctrl-C" };
            screen.show(&format!("redlock status, every {}, {key} quits: {now}\n\n{page}", exact(every)))
        }
        (None, Ok(page)) if is_json => output::show(&page),
        (None, Ok(page)) => output::show(&page.lines().map(|line| format!("{now}  {line}\n")).collect::<String>()),
        (None, Err(error)) => {
            output::say(&error);
            Ok(())
        }
    }
}

fn stop() {
    let _ = raise(Signal::SIGSTOP);
}
