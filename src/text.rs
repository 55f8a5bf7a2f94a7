//! Text fit for people: times, and what others wrote.

use std::time::Duration;

/// A time for people: to the second, or to the millisecond when it is shorter.
pub(crate) fn human(time: Duration) -> String {
    let rounded = match time {
        t if t < Duration::from_secs(1) => Duration::from_millis(u64::try_from(t.as_millis()).unwrap_or(0)),
        t => Duration::from_secs((t + Duration::from_millis(500)).as_secs()),
    };
    humantime::format_duration(rounded).to_string()
}

/// What a terminal obeys instead of showing it: control characters and marks of writing direction.
pub(crate) fn unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// What others wrote, fit for a terminal: control characters escaped, cut after `most` characters.
pub(crate) fn escaped(text: &str, most: usize) -> String {
    let mut out = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == most {
            out.push('…');
            break;
        }
        if unprintable(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// What the system says about a failed call, as it reads within a sentence.
pub(crate) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}
