//! Parsers for the values on the command line: names, tokens, whole numbers and durations.

use nix::libc;
use nix::sys::signal::Signal;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

/// The shortest ttl of a lease, and the shortest interval of `--watch`.
const SHORTEST: Duration = Duration::from_millis(100);
/// The shortest ttl of `run` and `--while-pid`: a shorter one has no room for three renewals and a grace.
pub(crate) const SHORTEST_TTL_OF_RUN: Duration = Duration::from_millis(500);
/// The longest lease, and the longest quarantine.
pub(crate) const LONGEST_TTL: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a history is sure to last; LOG_MS in keys.lua is a day longer.
const REMEMBERED: Duration = Duration::from_secs(100 * 24 * 3600);
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);
/// The longest name, in bytes.
pub(crate) const LONGEST_NAME: usize = 512;
/// The largest number of `--newest`: up to this number, Lua counts exactly.
pub(crate) const LARGEST_NUMBER: u64 = (1 << 53) - 1;
/// The longest label, in bytes.
pub(crate) const LONGEST_LABEL: usize = 256;

/// The name of one lock, which is no pattern.
pub(crate) fn lock_name(text: &str) -> Result<String, String> {
    match text.contains('*') {
        true => Err("a * makes a pattern, which only status, log and check take".to_owned()),
        false => pattern(text),
    }
}

pub(crate) fn pattern(text: &str) -> Result<String, String> {
    match text {
        "" => Err("the name is empty".to_owned()),
        _ if text.len() > LONGEST_NAME => Err(format!("the name is longer than {LONGEST_NAME} bytes")),
        _ if text.chars().any(char::is_control) => Err("the name has a control character in it".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// A token, without the ellipsis that `status` shows. An empty token mostly means that a script went on after a failed
/// `acquire`.
pub(crate) fn token(text: &str) -> Result<String, String> {
    match text {
        "" => Err("empty token: did acquire fail?".to_owned()),
        _ if text.contains(char::is_whitespace) => Err("a token has no whitespace in it".to_owned()),
        _ => Ok(text.trim_end_matches('…').to_owned()),
    }
}

/// The length of a lease, in whole milliseconds as Redis counts.
pub(crate) fn ttl(text: &str) -> Result<Duration, String> {
    match hold_time(text)? {
        ttl if ttl < SHORTEST => Err("the shortest is 100ms, for run and --while-pid 500ms".to_owned()),
        ttl => Ok(Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))),
    }
}

pub(crate) fn hold_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time > LONGEST_TTL => Err("the longest is 30 days".to_owned()),
        time => Ok(time),
    }
}

/// The period of `--once-per`, a duration or a word. Zero switches the option off.
pub(crate) fn period(text: &str) -> Result<Duration, String> {
    let words = [("hour", 3600), ("day", 86_400), ("week", 7 * 86_400), ("month", 30 * 86_400)];
    if let Some((_, seconds)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(Duration::from_secs(*seconds));
    }
    let what = "P is hour, day, week, month, or a duration from 1s to 100d";
    match duration(text).map_err(|why| format!("{why}; {what}"))? {
        time if time.is_zero() || (SHORTEST_PERIOD..=REMEMBERED).contains(&time) => Ok(time),
        _ => Err(what.to_owned()),
    }
}

/// How far to look back for runs: at most as long as a history lasts.
pub(crate) fn remembered(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time > REMEMBERED => Err("runs are remembered for 100 days".to_owned()),
        time => Ok(time),
    }
}

/// `--wait` without a duration.
pub(crate) const FOREVER: &str = "forever";

/// If the value of `--wait [D]` is no duration, it may be the command, the name, or a word for forever.
pub(crate) fn wait_time(text: &str) -> Result<Duration, String> {
    if text == FOREVER {
        return Ok(Duration::MAX);
    }
    duration(text).map_err(|why| match text.starts_with(|c: char| c.is_ascii_digit()) {
        true => why,
        false => format!("{why}; to wait forever: NAME --wait [-- COMMAND]"),
    })
}

/// If the value of `status --watch [D]` is no duration, it is probably the name.
pub(crate) fn watch(text: &str) -> Result<Duration, String> {
    match duration(text) {
        Ok(time) if time < SHORTEST => Err("the shortest is 100ms".to_owned()),
        every => every.map_err(|why| format!("{why}; the default: [NAME] --watch")),
    }
}

/// humantime's units for months and years, and other words for them.
const MONTHS_AND_YEARS: [&str; 10] = ["M", "mo", "mos", "month", "months", "y", "yr", "yrs", "year", "years"];

/// A duration in humantime's syntax, or a bare number of seconds.
///
/// # Errors
/// Months and years (`5M` is hardly ever intended), and everything that humantime does not understand.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.starts_with('-') {
        return Err("a duration cannot be negative".to_owned());
    }
    // humantime panics when the sum of the units overflows by exactly one second. Short numbers never overflow.
    if text.len() > 40 || text.split(|c: char| !c.is_ascii_digit()).any(|number| number.len() > 12) {
        return Err("too long".to_owned());
    }
    if let Some(number) = text.strip_suffix('M').map(str::trim_end)
        && duration(&format!("{number}m")).is_ok()
    {
        return Err(format!("{text} is {number} months; {number}m?"));
    }
    let mut units = text.split(|c: char| !c.is_alphabetic());
    if text.starts_with(|c: char| c.is_ascii_digit()) && units.any(|unit| MONTHS_AND_YEARS.contains(&unit)) {
        return Err("months and years vary in length; write days, as in 30d".to_owned());
    }
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let text = match text {
        text if is_number => format!("0{text}s"),
        text if text.starts_with('.') => format!("0{text}"), // as for timeout(1)
        text => text.to_owned(),
    };
    humantime::parse_duration(&text).map_err(|_| "a duration is written 500ms, 30s or 1m 30s".to_owned())
}

/// A signal as timeout(1) takes it: a name with or without SIG, `RTMIN+3`, or a number.
pub(crate) fn signal(text: &str) -> Result<i32, String> {
    let upper = text.to_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let from = |first: i32, more: &str| match more {
        "" => Some(first),
        more => more.parse::<i8>().ok().map(|more| first + i32::from(more)),
    };
    let number = match name.find(['+', '-']).map_or((name, ""), |at| name.split_at(at)) {
        ("RTMIN", more) => from(libc::SIGRTMIN(), more),
        ("RTMAX", more) => from(libc::SIGRTMAX(), more),
        _ => text.parse().ok().or_else(|| Some(format!("SIG{name}").parse::<Signal>().ok()? as i32)),
    };
    let is_signal = |number: &i32| (1..=libc::SIGRTMAX()).contains(number);
    number.filter(is_signal).ok_or_else(|| "no signal; one is written TERM, SIGINT or 15".to_owned())
}

pub(crate) fn whole<T>(least: T, most: T) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Copy,
{
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("not a whole number from {least} to {most}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_those_of_timeout() {
        for (text, number) in [("TERM", 15), ("SIGINT", 2), ("int", 2), ("sigusr1", 10), ("9", 9), ("64", 64)] {
            assert_eq!(signal(text), Ok(number), "{text}");
        }
        let (first, last) = (libc::SIGRTMIN(), libc::SIGRTMAX());
        for (text, number) in [("RTMIN", first), ("SIGRTMIN+3", first + 3), ("RTMAX-12", last - 12)] {
            assert_eq!(signal(text), Ok(number), "{text}");
        }
        for text in ["", "0", "65", "-1", "SIG", "SIG15", "NOPE", "RTMIN+", "RTMIN3", "RTMIN+x", "RTMAX+1", "SIGSIGINT"]
        {
            assert!(signal(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations() {
        let is = |text, time| assert_eq!(duration(text), Ok(time), "{text}");
        is("0", Duration::ZERO);
        is("10", Duration::from_secs(10));
        is("0.25", Duration::from_millis(250));
        is(" 500ms ", Duration::from_millis(500));
        is("1m 30s", Duration::from_secs(90));
        is("1.5s", Duration::from_millis(1500));
        is(".5s", Duration::from_millis(500));
        is("2weeks", Duration::from_secs(14 * 86_400));
        let is = |text, why: &str| assert_eq!(duration(text), Err(why.to_owned()), "{text}");
        is("5M", "5M is 5 months; 5m?");
        is("1h 40M", "1h 40M is 1h 40 months; 1h 40m?");
        is("1y", "months and years vary in length; write days, as in 30d");
        is("", "a duration is written 500ms, 30s or 1m 30s");
        is("18446744073709551615s 1000ms", "too long");
        for bad in [
            "-5s",
            "s",
            "5 5",
            "1h30",
            "1m 30",
            "3 parsecs",
            "0.00000000001s",
            "1e3s",
            "٣s",
            "5s,",
            "\u{0}",
            "5µ",
            "5.s",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
