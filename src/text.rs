//! Text for people: durations, dates, lists of names, and text from other users made safe for a terminal.

use std::fmt::Debug;
use std::time::{Duration, UNIX_EPOCH};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Another user's text in a message is cut after this many characters.
const SHOWN: usize = 60;
/// This many characters of a token are shown: enough to name the lease, too few to release it.
pub(crate) const SHOWN_OF_TOKEN: usize = 8;

/// A duration rounded to seconds; below one second, in whole milliseconds.
pub(crate) fn human(time: Duration) -> String {
    match time.as_secs() {
        0 => exact(Duration::from_millis(time.subsec_millis().into())),
        _ => seconds(time),
    }
}

/// A duration rounded to seconds.
pub(crate) fn seconds(time: Duration) -> String {
    exact(Duration::from_secs((time + Duration::from_millis(500)).as_secs()))
}

/// A duration in full. The largest unit is the day, since redlock's options refuse months and years.
pub(crate) fn exact(time: Duration) -> String {
    const DAY: u64 = 86_400;
    let rest = humantime::format_duration(Duration::new(time.as_secs() % DAY, time.subsec_nanos()));
    match (time.as_secs() / DAY, time.as_nanos() % (u128::from(DAY) * 1_000_000_000)) {
        (0, _) => rest.to_string(),
        (days, 0) => format!("{days}d"),
        (days, _) => format!("{days}d {rest}"),
    }
}

/// A time since 1970 as a date in UTC, to the millisecond: `2026-11-21T03:00:02.374Z`. None after the year 9999.
pub(crate) fn rfc3339(since: Duration) -> Option<String> {
    let date = || humantime::format_rfc3339_millis(UNIX_EPOCH + since).to_string();
    (since.as_secs() < 253_402_300_800).then(date)
}

/// True for a character that a terminal or browser obeys instead of showing: control characters, all characters with
/// Unicode's property Bidi_Control (they change the writing direction), and the separators U+2028 and U+2029. Every
/// output escapes these characters.
pub(crate) fn unprintable(c: char) -> bool {
    let direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || direction || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Another user's text, cut after `most` characters, with everything escaped that a terminal obeys.
pub(crate) fn escaped(text: &str, most: usize) -> String {
    escaped_where(text, most, unprintable)
}

/// As [`escaped`], but line feeds stay: for redlock's own text, which may quote others.
pub(crate) fn printable(text: &str, most: usize) -> String {
    escaped_where(text, most, |c| unprintable(c) && c != '\n')
}

fn escaped_where(text: &str, most: usize, is_escaped: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for (count, c) in text.chars().enumerate() {
        match c {
            _ if count == most => {
                out.push('…');
                break;
            }
            c if is_escaped(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// A word for bash and zsh, ready to paste: in `$'…'`, with hex escapes for characters that a terminal obeys.
pub(crate) fn shell_quoted(word: &str) -> String {
    let mut quoted = "$'".to_owned();
    for c in word.chars() {
        match c {
            '\'' | '\\' => quoted.extend(['\\', c]),
            c if unprintable(c) => quoted.extend(c.to_string().bytes().map(|byte| format!("\\x{byte:02x}"))),
            c => quoted.push(c),
        }
    }
    quoted + "'"
}

/// The text as a single word for a POSIX shell. Plain words stay as they are, for readers other than a shell:
/// `$GITHUB_ENV`, dotenv files.
pub(crate) fn shell_word(text: &str) -> String {
    match text.chars().all(|c| c.is_alphanumeric() || "_-./:@%+,".contains(c)) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// Another user's text in a message: safe for a terminal, and not too long.
pub(crate) fn safe(text: &str) -> String {
    escaped(text, SHOWN)
}

/// `names`, each in quotes, joined by `between`: `"a" and "b"`.
pub(crate) fn quoted(names: impl IntoIterator<Item = impl Debug>, between: &str) -> String {
    names.into_iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(between)
}

/// The first `most` names, and the number of the others: `a, b and 3 more`. `all`: the number of all names.
pub(crate) fn first_of(names: impl IntoIterator<Item = impl ToString>, most: usize, all: u64) -> String {
    let first: Vec<String> = names.into_iter().take(most).map(|name| name.to_string()).collect();
    match all.saturating_sub(first.len() as u64) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// The system's text for an error, without its number, and with a small first letter for the middle of a sentence.
pub(crate) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// The text cut to this many terminal columns, with an ellipsis.
pub(crate) fn cut(text: &str, columns: usize) -> String {
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
    fn times_are_written_as_people_do() {
        let hours = |hours: u64| exact(Duration::from_secs(hours * 3600));
        assert_eq!([hours(168), hours(25), hours(2)], ["7d", "1d 1h", "2h"]);
        assert_eq!([hours(32 * 24), hours(400 * 24 + 3), hours(0)], ["32d", "400d 3h", "0s"]);
        assert_eq!(exact(Duration::from_millis(90_500)), "1m 30s 500ms");
        assert_eq!(human(Duration::from_millis(90_500)), "1m 31s");
        assert_eq!(human(Duration::from_millis(494)), "494ms");
        assert_eq!(seconds(Duration::from_millis(494)), "0s");
    }

    #[test]
    fn a_line_is_cut_to_its_columns() {
        assert_eq!(cut("waiting", 7), "waiting");
        assert_eq!(cut("waiting", 6), "waiti…");
        assert_eq!(cut("waiting", 1), "…");
        // A wide letter takes two columns, and cannot be cut in half.
        assert_eq!(cut("備份備份", 8), "備份備份");
        assert_eq!(cut("備份備份", 7), "備份備…");
        assert_eq!(cut("備份備份", 6), "備份…");
        // A combining accent takes no column.
        assert_eq!(cut("e\u{301}te\u{301}", 3), "e\u{301}te\u{301}");
    }
}
