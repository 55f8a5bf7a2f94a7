//! What a script answered, in the few shapes that ours have.

use super::fault::Fault;
use redis::Value;

/// What a script answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Text(String),
    List(Vec<Reply>),
}

/// A type that one script's answers are read into.
pub(crate) trait FromReply: Sized {
    /// None when the script never answers so.
    fn from_reply(reply: &Reply) -> Option<Self>;

    /// Whether a lease rests on it, so that as many replicas have to know of it as the options ask for.
    fn is_confirmation(&self) -> bool {
        false
    }
}

impl Reply {
    pub(super) fn of(value: Value) -> Result<Reply, Fault> {
        Ok(match value {
            Value::Nil => Reply::Nil,
            Value::Int(n) => Reply::Int(n),
            Value::BulkString(bytes) => Reply::Text(String::from_utf8_lossy(&bytes).into_owned()),
            Value::SimpleString(text) => Reply::Text(text),
            Value::Okay => Reply::Text("OK".to_owned()),
            Value::Array(items) => Reply::List(items.into_iter().map(Reply::of).collect::<Result<_, _>>()?),
            Value::ServerError(error) => return Err(Fault::of(&error.into())),
            _ => return Err(Fault::Garbage("of an unexpected type")),
        })
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Reply::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The text at this place of a list; otherwise nothing.
    pub(crate) fn text(&self, at: usize) -> &str {
        self.at(at).as_text().unwrap_or_default()
    }

    /// The number at this place of a list, given as such or as digits.
    pub(crate) fn int(&self, at: usize) -> Option<i64> {
        match self.at(at) {
            Reply::Int(n) => Some(*n),
            Reply::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// The number at this place, unless it is negative.
    pub(crate) fn count(&self, at: usize) -> Option<u64> {
        self.int(at).and_then(|n| u64::try_from(n).ok())
    }

    /// What is at this place of a list.
    pub(crate) fn at(&self, at: usize) -> &Reply {
        self.items().get(at).unwrap_or(&Reply::Nil)
    }

    /// The items of a list.
    pub(crate) fn items(&self) -> &[Reply] {
        match self {
            Reply::List(items) => items,
            _ => &[],
        }
    }
}
