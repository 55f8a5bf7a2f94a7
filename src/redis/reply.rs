//! The reply of a server.

use super::fault::Fault;
use redis::Value;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reply {
    #[default]
    Nil,
    Int(i64),
    Text(String),
    /// Bytes that are not text, and a form of them that can be shown.
    Binary(Vec<u8>, String),
    List(Vec<Reply>),
}

pub(crate) trait FromReply: Sized {
    /// The parsed reply; none for a reply that no script gives.
    fn from_reply(reply: &Reply) -> Option<Self>;

    /// True if a lease rests on this reply, so that replicas have to confirm the write (`--replicas`).
    fn is_confirmation(&self) -> bool {
        false
    }
}

impl Reply {
    pub(super) fn of(value: Value) -> Result<Reply, Fault> {
        Ok(match value {
            Value::Nil => Reply::Nil,
            Value::Int(n) => Reply::Int(n),
            Value::BulkString(bytes) => String::from_utf8(bytes).map_or_else(
                |error| {
                    let shown = String::from_utf8_lossy(error.as_bytes()).into_owned();
                    Reply::Binary(error.into_bytes(), shown)
                },
                Reply::Text,
            ),
            Value::SimpleString(text) => Reply::Text(text),
            Value::Okay => Reply::Text("OK".to_owned()),
            Value::Array(items) => Reply::List(items.into_iter().map(Reply::of).collect::<Result<_, _>>()?),
            Value::ServerError(error) => return Err(Fault::of(&error.into())),
            _ => return Err(Fault::Garbage("an unexpected type")),
        })
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Reply::Text(text) | Reply::Binary(_, text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Reply::Text(text) => Some(text.as_bytes()),
            Reply::Binary(bytes, _) => Some(bytes),
            _ => None,
        }
    }

    /// The number, from an integer or from digits; none for a negative number, and for any other reply.
    pub(crate) fn as_count(&self) -> Option<u64> {
        match self {
            Reply::Int(n) => u64::try_from(*n).ok(),
            Reply::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// The text at this index of a list; empty if there is no text.
    pub(crate) fn text(&self, at: usize) -> &str {
        self.at(at).as_text().unwrap_or_default()
    }

    pub(crate) fn count(&self, at: usize) -> Option<u64> {
        self.at(at).as_count()
    }

    /// The item at this index of a list; nil if there is none.
    pub(crate) fn at(&self, at: usize) -> &Reply {
        self.items().get(at).unwrap_or(&Reply::Nil)
    }

    /// The items of a list; empty for any other reply.
    pub(crate) fn items(&self) -> &[Reply] {
        match self {
            Reply::List(items) => items,
            _ => &[],
        }
    }
}
