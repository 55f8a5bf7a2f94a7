//! The screen of `status --watch`: a page cut to the terminal's size, on the alternate screen, so that the previous
//! content comes back afterwards.

use crate::error::Error;
use crate::output;
use crate::sys::keyboard::Keyboard;
use crate::sys::{inherited, signals, streams};
use crate::text::cut;
use nix::libc;
use std::io::{IsTerminal, stdout};

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Clears the rest of a line.
const EMPTY_REST: &str = "\x1b[K";
/// Clears everything below the last line.
const EMPTY_BELOW: &str = "\x1b[J";

/// The terminal's alternate screen; dropping this leaves the screen.
#[derive(Debug)]
pub(crate) struct Screen {
    keys: Option<Keyboard>,
}

impl Screen {
    /// Enters the alternate screen. None if standard output is no terminal, if TERM is not set, or if TERM is `dumb`.
    /// Ctrl-C leaves the screen and ends redlock, unless SIGINT was ignored at start (`&` in a script).
    pub(crate) fn open() -> anyhow::Result<Option<Screen>> {
        let has_one = stdout().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        if !has_one {
            return Ok(None);
        }
        output::show(ENTER)?;
        let screen = Screen { keys: Keyboard::open() };
        // The ctrlc crate runs the closure on a thread, where writing is safe, as it is not in a signal handler.
        if !inherited::is_ignored(libc::SIGINT) {
            let keys = screen.keys.as_ref().map(Keyboard::handle);
            ctrlc::set_handler(move || {
                leave(keys.as_ref());
                signals::end_by(libc::SIGINT);
            })?;
        }
        Ok(Some(screen))
    }

    /// The keyboard in front of the screen, if its keys can be read.
    pub(crate) fn keys(&self) -> Option<&Keyboard> {
        self.keys.as_ref()
    }

    pub(crate) fn columns() -> usize {
        streams::size(1).1
    }

    /// Shows a page, cut to the present size.
    pub(crate) fn show(&self, page: &str) -> Result<(), Error> {
        let (rows, columns) = streams::size(1);
        let lines = fitted(page, rows, columns);
        output::show(&format!("\x1b[H{}{EMPTY_REST}{EMPTY_BELOW}", lines.join(&format!("{EMPTY_REST}\n"))))
    }

    /// Gives the terminal back while `pause` runs.
    pub(crate) fn without(&self, pause: impl FnOnce()) -> Result<(), Error> {
        leave(self.keys());
        pause();
        self.keys.iter().for_each(Keyboard::take);
        output::show(ENTER)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave(self.keys());
    }
}

fn leave(keys: Option<&Keyboard>) {
    keys.into_iter().for_each(Keyboard::give_back);
    let _ = output::show(LEAVE);
}

/// The page cut to the screen. If some lines do not fit, the last line says how many.
fn fitted(page: &str, rows: usize, columns: usize) -> Vec<String> {
    let lines: Vec<&str> = page.lines().collect();
    let shown = if lines.len() > rows { rows.saturating_sub(1) } else { lines.len() };
    let mut fitted: Vec<String> = lines[..shown].iter().map(|line| cut(line, columns)).collect();
    if shown < lines.len() {
        fitted.push(cut(&format!("… {} more", lines.len() - shown), columns));
    }
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_cut_to_its_size() {
        assert_eq!(fitted("a\nb\nc\n", 3, 80), ["a", "b", "c"]);
        assert_eq!(fitted("a\nb\nc\nd\n", 3, 80), ["a", "b", "… 2 more"]);
        assert_eq!(fitted("abcdef\nb\nc\n", 2, 4), ["abc…", "… 2…"]);
        assert_eq!(fitted("a\nb\n", 1, 80), ["… 2 more"]);
    }
}
