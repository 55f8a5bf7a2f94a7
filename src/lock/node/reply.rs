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

impl Reply {
    pub(super) fn of(value: Value) -> Result<Reply, Fault> {
        Ok(match value {
            Value::Nil => Reply::Nil,
            Value::Int(n) => Reply::Int(n),
            Value::BulkString(bytes) => Reply::Text(String::from_utf8_lossy(&bytes).into_owned()),
            Value::SimpleString(text) => Reply::Text(text),
            Value::Okay => Reply::Text("OK".to_owned()),
            Value::Array(items) => Reply::List(items.into_iter().map(Reply::of).collect::<Result<_, _>>()?),
            _ => {
                return Err(Fault::garbage("an answer of a kind that scripts do not give"));
            }
        })
    }

    /// The text at this place of a list; of a number its digits; otherwise nothing.
    pub(crate) fn text(&self, at: usize) -> &str {
        match self.at(at) {
            Reply::Text(text) => text,
            _ => "",
        }
    }

    /// The number at this place of a list, given as such or as digits.
    pub(crate) fn int(&self, at: usize) -> Option<i64> {
        match self.at(at) {
            Reply::Int(n) => Some(*n),
            Reply::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// What is at this place of a list.
    pub(crate) fn at(&self, at: usize) -> &Reply {
        match self {
            Reply::List(items) => items.get(at).unwrap_or(&Reply::Nil),
            _ => &Reply::Nil,
        }
    }

    /// The items of a list.
    pub(crate) fn items(&self) -> &[Reply] {
        match self {
            Reply::List(items) => items,
            _ => &[],
        }
    }
}
