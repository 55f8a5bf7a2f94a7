//! What a waiter writes to standard error. On a terminal: one live line. Elsewhere: a line at once, and every minute.

use crate::lock::{Obstacle, WaitReport};
use crate::output;
use crate::sys::clock::Boot;
use crate::sys::streams;
use crate::text::{cut, human};
use std::cell::RefCell;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

/// The interval at which the live line is brought up to date.
const TICK: Duration = Duration::from_secs(1);
/// The interval at which a line that cannot be redrawn is repeated.
const REPEAT: Duration = Duration::from_secs(60);

/// The live line of text that a waiter sees. Dropping this clears the line.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    name: String,
    quiet: bool,
    verbose: bool,
    /// The longest wait; [`Duration::MAX`] means for ever.
    wait: Duration,
    /// True if standard error is a terminal that can redraw a line.
    redraws: bool,
    start: Boot,
    /// The last report about the wait, and its time.
    known: Option<(WaitReport, Boot)>,
    shown: Option<Boot>,
    /// True if the last request to the nodes failed; always false with `quiet`.
    in_trouble: bool,
    trouble_said: Option<Boot>,
}

impl ProgressLine {
    pub(crate) fn new(name: &str, quiet: bool, verbose: bool, wait: Duration, start: Boot) -> ProgressLine {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        ProgressLine {
            name: name.to_owned(),
            quiet,
            verbose,
            wait,
            redraws: stderr().is_terminal() && !dumb,
            start,
            known: None,
            shown: None,
            in_trouble: false,
            trouble_said: None,
        }
    }

    /// Keeps the line up to date, without end.
    pub(crate) async fn tick_on(line: &RefCell<ProgressLine>) {
        loop {
            let pause = line.borrow().until_due();
            tokio::time::sleep(pause).await;
            line.borrow_mut().tick();
        }
    }

    /// The time until the next line is due. Without a terminal this is a minute, so that the waiter seldom wakes up.
    fn until_due(&self) -> Duration {
        let pause = if self.redraws { TICK } else { REPEAT };
        pause.saturating_sub(self.shown.map_or(Duration::ZERO, Boot::elapsed)).max(TICK)
    }

    pub(crate) fn show(&mut self, waiting: &WaitReport) {
        let now = Boot::now();
        self.known = Some((waiting.clone(), now));
        if self.quiet {
            // A lock that never expires is trouble, which --quiet does not hide.
            if waiting.held.by.never_ends() && self.shown.replace(now).is_none() {
                output::say(&self.text(waiting, Duration::ZERO));
            }
            return;
        }
        let was_in_trouble = std::mem::replace(&mut self.in_trouble, waiting.trouble.is_some());
        match (&waiting.trouble, &waiting.news) {
            // A node may fail again and again: one failure a minute is reported, or every failure with --verbose.
            (Some(trouble), _)
                if !was_in_trouble
                    && (self.verbose || self.trouble_said.is_none_or(|said| now.since(said) >= REPEAT)) =>
            {
                self.say(&format!("{trouble}; trying again"));
                self.trouble_said = Some(now);
                // If no line has been shown yet, this message takes the place of the first line.
                self.shown.get_or_insert(now);
            }
            (None, Some(news)) if self.verbose => self.say(news),
            _ => {}
        }
        self.tick();
    }

    /// How long the caller has waited. None before the first report, or if the last report has no position in line.
    pub(crate) fn waited(&self) -> Option<Duration> {
        self.known.as_ref().filter(|(waiting, _)| waiting.rank.is_some()).map(|_| self.start.elapsed())
    }

    /// Redraws the line, or prints it again when that is due if it cannot be redrawn.
    fn tick(&mut self) {
        let Some((waiting, then)) = self.known.as_ref().filter(|_| !self.quiet) else { return };
        let now = Boot::now();
        let text = self.text(waiting, now.since(*then));
        if self.redraws && streams::is_foreground() {
            // Three columns stay free for the ^C that the terminal echoes: a line that wraps cannot be redrawn.
            streams::draw(&cut(&output::line(&text), streams::size(2).1.saturating_sub(3)));
        } else if self.is_due(now) {
            output::say(&text);
        } else {
            return;
        }
        self.shown = Some(now);
    }

    /// True if the line is to be printed now, without redrawing: the first time at once, then every minute, but not on
    /// a terminal that can redraw lines.
    fn is_due(&self, now: Boot) -> bool {
        self.shown.is_none_or(|shown| !self.redraws && now.since(shown) >= REPEAT)
    }

    fn say(&self, text: &str) {
        output::say(&format!("{:?}: {text}", self.name));
    }

    /// The text of the line: the time, the name, the number of `--newest`, the position in line, the holder, the
    /// trouble. The end may be cut, so the least important parts come last.
    fn text(&self, waiting: &WaitReport, ago: Duration) -> String {
        let waited = Duration::from_secs(Boot::now().since(self.start).as_secs());
        let time = match (waited, self.wait) {
            (Duration::ZERO, Duration::MAX) => String::new(),
            (Duration::ZERO, limit) => format!("up to {} ", human(limit)),
            (waited, Duration::MAX) => format!("{} ", human(waited)),
            (waited, limit) => format!("{} of {} ", human(waited), human(limit)),
        };
        let number = waiting.number.map_or_else(String::new, |number| format!(" with number {number}"));
        let mut text = format!("waiting {time}for {:?}{number}", self.name);
        if let Some(rank) = waiting.rank {
            text.push_str(&format!(", {} in line", ordinal(rank + 1)));
        }
        // While no node answers, the holder may not be known.
        if waiting.trouble.is_none() || !matches!(waiting.held.by, Obstacle::Unknown) {
            text.push_str(&format!("; {}", waiting.held.situation_in_short(ago)));
        }
        if let Some(trouble) = &waiting.trouble {
            text.push_str(&format!("; {trouble}"));
        }
        text
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        streams::draw("");
    }
}

/// `1st`, `2nd`, `3rd`, `4th`
fn ordinal(number: u64) -> String {
    let ending = match (number % 10, number % 100) {
        (1..=3, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_terminal_the_line_is_printed_at_once_and_every_minute() {
        let now = Boot::now();
        let mut line = ProgressLine::new("backup", false, false, Duration::MAX, now);
        for (redraws, ago, is_due, pause) in [
            (false, None, true, REPEAT),
            (false, Some(REPEAT - TICK * 2), false, TICK * 2),
            (false, Some(REPEAT), true, TICK),
            // In the background of a terminal, the line is not repeated.
            (true, Some(REPEAT), false, TICK),
        ] {
            (line.redraws, line.shown) = (redraws, ago.map(|ago| now - ago));
            assert_eq!(line.is_due(now), is_due, "{redraws} {ago:?}");
            assert!((TICK..=pause).contains(&line.until_due()), "{redraws} {ago:?}");
        }
    }

    #[test]
    fn places_are_counted_as_people_do() {
        let ordinals = [1, 2, 3, 4, 10, 11, 12, 13, 21, 22, 103, 111, 112].map(ordinal);
        let places = ordinals.join(" ");
        assert_eq!(places, "1st 2nd 3rd 4th 10th 11th 12th 13th 21st 22nd 103rd 111th 112th");
    }
}
