//! Names and values: the form of the arguments and the answers of the scripts. The one place that knows the layout:
//! name, value, name, value. The other side is in prelude.lua.

use crate::redis::Reply;
use std::time::Duration;

/// The arguments of a script, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Args(Vec<Vec<u8>>);

impl Args {
    /// Adds a value; none is not sent.
    pub(super) fn with(mut self, name: &str, value: impl Value) -> Args {
        if let Some(value) = value.bytes() {
            self.0.extend([name.into(), value]);
        }
        self
    }

    pub(super) fn into_list(self) -> Vec<Vec<u8>> {
        self.0
    }
}

/// An argument of a script: text, bytes, a number, a time in milliseconds, or a flag.
pub(super) trait Value {
    fn bytes(&self) -> Option<Vec<u8>>;
}

macro_rules! value {
    ($type:ty, $value:ident => $bytes:expr) => {
        impl Value for $type {
            fn bytes(&self) -> Option<Vec<u8>> {
                let $value = self;
                $bytes
            }
        }
    };
}

value!(str, text => Some(text.into()));
value!([u8], bytes => Some(bytes.to_vec()));
value!(u32, number => Some(number.to_string().into()));
value!(u64, number => Some(number.to_string().into()));
value!(Duration, time => Some(time.as_millis().to_string().into()));
value!(bool, is_so => is_so.then(|| b"1".to_vec()));

impl<T: Value + ?Sized> Value for &T {
    fn bytes(&self) -> Option<Vec<u8>> {
        (**self).bytes()
    }
}

impl<T: Value> Value for Option<T> {
    fn bytes(&self) -> Option<Vec<u8>> {
        self.as_ref()?.bytes()
    }
}

/// The answer of a script, by name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(&'a [Reply]);

impl<'a> Fields<'a> {
    pub(super) fn of(reply: &'a Reply) -> Fields<'a> {
        Fields(reply.items())
    }

    fn get(self, name: &str) -> Option<&'a Reply> {
        self.0.chunks_exact(2).find(|pair| pair[0].as_text() == Some(name)).map(|pair| &pair[1])
    }

    /// The value as text.
    pub(super) fn text(self, name: &str) -> Option<&'a str> {
        self.get(name)?.as_text()
    }

    /// To the last byte.
    pub(super) fn bytes(self, name: &str) -> Option<&'a [u8]> {
        self.get(name)?.as_bytes()
    }

    /// A number that is not negative.
    pub(super) fn count(self, name: &str) -> Option<u64> {
        self.get(name)?.as_count()
    }

    /// A list of any values.
    pub(super) fn list(self, name: &str) -> &'a [Reply] {
        self.get(name).map_or(&[], Reply::items)
    }

    /// A list of small numbers.
    pub(super) fn numbers(self, name: &str) -> Vec<u32> {
        self.list(name).iter().filter_map(|item| u32::try_from(item.as_count()?).ok()).collect()
    }

    /// The rest of a life, in milliseconds; none when it has no end.
    pub(super) fn time(self, name: &str) -> Option<Duration> {
        self.count(name).map(Duration::from_millis)
    }

    pub(super) fn has(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Names and values within.
    pub(super) fn inner(self, name: &str) -> Fields<'a> {
        self.get(name).map_or(Fields(&[]), Fields::of)
    }

    /// A list of names and values.
    pub(super) fn each(self, name: &str) -> impl Iterator<Item = Fields<'a>> {
        self.list(name).iter().map(Fields::of)
    }
}
