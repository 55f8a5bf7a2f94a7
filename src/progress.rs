//! What a waiter says on standard error: on a terminal one live line, elsewhere a line at once and one every minute.

use crate::cli::Wait;
use crate::error::{Held, SHARES};
use crate::lock::Waiting;
use crate::lock::answer::{Blocker, Holder};
use crate::sys::clock::Boot;
use crate::sys::streams;
use crate::text::{escaped, human};
use std::cell::RefCell;
use std::io::{IsTerminal, stderr};
use std::time::Duration;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How often the live line is brought up to date.
const TICK: Duration = Duration::from_secs(1);
/// How often a line is repeated where it cannot be redrawn.
const REPEAT: Duration = Duration::from_secs(60);
/// How much of a host, user or label that others wrote is shown.
const SHOWN: usize = 60;
const USUAL_COLUMNS: usize = 80;

/// The line of a waiter; it is cleared when dropped.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    name: String,
    quiet: bool,
    verbose: bool,
    wait: Wait,
    /// Standard error is a terminal that can take back what it has shown.
    redraws: bool,
    start: Boot,
    /// What is waited for, and since when that is known.
    known: Option<(Waiting, Boot)>,
    /// When it was last shown.
    shown: Option<Boot>,
    /// The nodes could not be asked the last time.
    in_trouble: bool,
    /// When that was last said.
    trouble_said: Option<Boot>,
}

impl ProgressLine {
    /// A line that says nothing yet.
    pub(crate) fn new(name: &str, quiet: bool, verbose: bool, wait: Wait) -> ProgressLine {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        ProgressLine {
            name: name.to_owned(),
            quiet,
            verbose,
            wait,
            redraws: stderr().is_terminal() && !dumb,
            start: Boot::now(),
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

    /// How long until the line may be out of date: a thousand waiters of cron wake up once a minute, not once a second.
    fn until_due(&self) -> Duration {
        match self.redraws {
            true => TICK,
            false => {
                REPEAT.saturating_sub(self.shown.map_or(Duration::ZERO, |shown| Boot::now().since(shown))).max(TICK)
            }
        }
    }

    /// Shows what is known now.
    pub(crate) fn show(&mut self, waiting: &Waiting) {
        if self.quiet {
            return;
        }
        let now = Boot::now();
        let was_in_trouble = std::mem::replace(&mut self.in_trouble, waiting.trouble.is_some());
        match (&waiting.trouble, &waiting.news) {
            // A node that comes and goes is not news each time.
            (Some(trouble), _) if !was_in_trouble && (self.verbose || self.trouble_is_news(now)) => {
                self.say(&format!("{trouble}; trying again"));
                self.trouble_said = Some(now);
                // Who has the lock is not known yet, and this line says what there is to say.
                self.shown.get_or_insert(now);
            }
            (None, Some(news)) if self.verbose => self.say(news),
            _ => {}
        }
        self.known = Some((waiting.clone(), now));
        self.tick();
    }

    fn trouble_is_news(&self, now: Boot) -> bool {
        self.trouble_said.is_none_or(|said| now.since(said) >= REPEAT)
    }

    /// Brings the line up to date.
    fn tick(&mut self) {
        let Some((waiting, then)) = &self.known else { return };
        let now = Boot::now();
        let text = format!("redlock: {}", self.text(waiting, now.since(*then)));
        if self.redraws && streams::is_foreground() {
            // With room for the ^C that the terminal echoes: a line that wraps cannot be taken back.
            streams::draw(&cut(&text, streams::columns().unwrap_or(USUAL_COLUMNS).saturating_sub(3)));
        } else if self.shown.is_none_or(|shown| !self.redraws && now.since(shown) >= REPEAT) {
            streams::say(&text);
        } else {
            return;
        }
        self.shown = Some(now);
    }

    /// Takes the live line away.
    fn clear(&mut self) {
        self.known = None;
        streams::draw("");
    }

    fn say(&self, text: &str) {
        streams::say(&format!("redlock: {:?}: {text}", self.name));
    }

    /// How long, for what, the place in line, who has it, and last what matters least.
    fn text(&self, waiting: &Waiting, ago: Duration) -> String {
        let waited = Duration::from_secs(Boot::now().since(self.start).as_secs());
        let time = match (waited, self.wait) {
            (Duration::ZERO, Wait::For(limit)) => format!("up to {} ", human(limit)),
            (Duration::ZERO, _) => String::new(),
            (waited, Wait::For(limit)) => format!("{} of {} ", human(waited), human(limit)),
            (waited, _) => format!("{} ", human(waited)),
        };
        let mut text = format!("waiting {time}for {:?}", self.name);
        if let Some(rank) = waiting.rank {
            text.push_str(&format!(", {} in line", ordinal(rank + 1)));
        }
        // While no node answers, there may be no more to say than that.
        if waiting.trouble.is_none() || !matches!(waiting.held.by, Blocker::Unknown) {
            text.push_str(&format!("; {}", situation(&waiting.held, ago)));
        }
        if waiting.held.by_this_job {
            text.push_str(&format!("; {SHARES}"));
        }
        if let Some(trouble) = &waiting.trouble {
            text.push_str(&format!("; {trouble}"));
        }
        text
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Who has it, shorter than in a message that stays.
fn situation(held: &Held, ago: Duration) -> String {
    match held.by.holder() {
        Some(Holder { user: Some(user), host: Some(host), label, kept: None, .. }) => {
            let whose = if held.by_this_job { "the enclosing job, " } else { "" };
            let label = label.as_ref().filter(|label| !label.is_empty());
            let label = label.map_or_else(String::new, |label| format!(" ({})", escaped(label, SHOWN)));
            format!("held by {whose}{}@{}{label}", escaped(user, SHOWN), escaped(host, SHOWN))
        }
        _ => {
            let situation = held.situation(ago);
            situation.strip_prefix("is ").map(str::to_owned).unwrap_or(situation)
        }
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

/// As much of the text as fits into so many columns, with an ellipsis where it is cut.
fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let (mut kept, mut width) = (String::new(), 0);
    for letter in text.chars() {
        width += letter.width().unwrap_or(0);
        if width >= columns {
            break;
        }
        kept.push(letter);
    }
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_to_its_columns() {
        assert_eq!(cut("waiting", 7), "waiting");
        assert_eq!(cut("waiting", 6), "waiti…");
        assert_eq!(cut("waiting", 1), "…");
        // Wide letters take two columns; half of one does not fit.
        assert_eq!(cut("備份備份", 8), "備份備份");
        assert_eq!(cut("備份備份", 7), "備份備…");
        assert_eq!(cut("備份備份", 6), "備份…");
        // An accent of its own takes none.
        assert_eq!(cut("e\u{301}te\u{301}", 3), "e\u{301}te\u{301}");
    }

    #[test]
    fn places_are_counted_as_people_do() {
        let ordinals = [1, 2, 3, 4, 10, 11, 12, 13, 21, 22, 103, 111, 112].map(ordinal);
        let places = ordinals.join(" ");
        assert_eq!(places, "1st 2nd 3rd 4th 10th 11th 12th 13th 21st 22nd 103rd 111th 112th");
    }
}
