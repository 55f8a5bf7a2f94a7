//! The form of the scripts' arguments and answers: name, value, name, value. In Rust only this file knows the form.

use crate::redis::Reply;
use std::fmt::Display;
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub(in crate::lock) struct Args(Vec<Vec<u8>>);

impl Args {
    pub(in crate::lock) fn with(self, name: &str, value: impl Display) -> Args {
        self.with_bytes(name, value.to_string().as_bytes())
    }

    pub(in crate::lock) fn with_some(self, name: &str, value: Option<impl Display>) -> Args {
        if let Some(value) = value { self.with(name, value) } else { self }
    }

    /// Adds a time in milliseconds, if there is one.
    pub(in crate::lock) fn time(self, name: &str, time: impl Into<Option<Duration>>) -> Args {
        self.with_some(name, time.into().map(|time| time.as_millis()))
    }

    pub(in crate::lock) fn flag(self, name: &str, is_so: bool) -> Args {
        self.with_some(name, is_so.then_some(1))
    }

    pub(in crate::lock) fn with_bytes(mut self, name: &str, value: &[u8]) -> Args {
        self.0.extend([name.into(), value.into()]);
        self
    }

    pub(super) fn into_list(self) -> Vec<Vec<u8>> {
        self.0
    }
}

/// These methods stand here because `redis/` does not know what is in an answer.
impl Reply {
    /// The value of this name; nil if there is none.
    pub(in crate::lock) fn get(&self, name: &str) -> &Reply {
        let pair = self.items().chunks_exact(2).find(|pair| pair[0].as_text() == Some(name));
        pair.map_or(&Reply::Nil, |pair| &pair[1])
    }

    /// The uptime (s) and the run_id of the server, from the field `node`. Both are empty without it, or if INFO is
    /// refused.
    pub(in crate::lock) fn node(&self) -> (&str, &str) {
        self.get("node").as_text().and_then(|node| node.split_once(' ')).unwrap_or_default()
    }

    pub(in crate::lock) fn has(&self, name: &str) -> bool {
        *self.get(name) != Reply::Nil
    }

    /// Reads a time in milliseconds; none for nil, and for -1: PTTL answers -1 if the key never expires.
    pub(in crate::lock) fn as_time(&self) -> Option<Duration> {
        self.as_count().map(Duration::from_millis)
    }

    pub(in crate::lock) fn as_small_count(&self) -> Option<u32> {
        self.as_count().and_then(|count| u32::try_from(count).ok())
    }
}
