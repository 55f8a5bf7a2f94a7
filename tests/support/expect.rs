//! Patterns for output: exact text, text with holes, a regular expression or a predicate.

use regex_lite::{Regex, escape};
use std::fmt;

pub(crate) enum Pattern {
    Exact(String),
    Regex(String, Regex),
    When(String, Box<dyn Fn(&str) -> bool>),
}

impl From<&str> for Pattern {
    fn from(text: &str) -> Pattern {
        Pattern::Exact(text.to_owned())
    }
}

impl From<String> for Pattern {
    fn from(text: String) -> Pattern {
        Pattern::Exact(text)
    }
}

/// The whole text must be `template`, in which a hole stands for what differs from run to run: `<token>`, `<prefix>` (a
/// token's first eight characters), `<n>` (a number), `<word>`, `<duration>`, `<node>`, `<user>`, `<host>`, `<time>`
/// (RFC 3339), `<date>` (in local time), `<any>` (anything on one line), `<lines>` (anything at all).
pub(crate) fn like(template: impl AsRef<str>) -> Pattern {
    let holes = [
        ("<token>", r"[0-9A-Za-z][0-9A-Za-z._:~+-]{15,127}"),
        ("<prefix>", r"[0-9A-Za-z-]{8}"),
        ("<n>", r"[0-9]+"),
        ("<word>", r"\S+"),
        ("<duration>", r"[0-9]+(?:ms|us|ns|s|m|h|d)(?: [0-9]+(?:ms|us|ns|s|m|h|d))*"),
        ("<node>", r"[^\s,]+"),
        ("<user>", r"[^\s@,]+"),
        ("<host>", r"[^\s@,]+"),
        ("<time>", r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z"),
        ("<date>", r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} [+-][0-9]{4}"),
        ("<any>", r"[^\n]*"),
        ("<lines>", r"[\s\S]*"),
    ];
    let mut pattern = escape(template.as_ref());
    for (hole, class) in holes {
        pattern = pattern.replace(&escape(hole), class);
    }
    Pattern::Regex(template.as_ref().to_owned(), Regex::new(&format!(r"\A(?:{pattern})\z")).unwrap())
}

/// The whole text must match this regular expression.
pub(crate) fn regex(expression: &str) -> Pattern {
    Pattern::Regex(expression.to_owned(), Regex::new(&format!(r"\A(?:{expression})\z")).unwrap())
}

/// The text must satisfy a condition, which is called `what` if the test fails.
pub(crate) fn when(what: impl Into<String>, condition: impl Fn(&str) -> bool + 'static) -> Pattern {
    Pattern::When(what.into(), Box::new(condition))
}

/// For output that this test need not check.
pub(crate) fn any() -> Pattern {
    when("anything", |_| true)
}

impl Pattern {
    pub(crate) fn matches(&self, text: &str) -> bool {
        match self {
            Pattern::Exact(expected) => text == expected,
            Pattern::Regex(_, regex) => regex.is_match(text),
            Pattern::When(_, condition) => condition(text),
        }
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Exact(text) => write!(f, "{text:?}"),
            Pattern::Regex(text, _) => write!(f, "like {text:?}"),
            Pattern::When(what, _) => write!(f, "{what}"),
        }
    }
}
