//! The waiters of a lock. A waiter's name in the queue carries its owner, so no other key is written for it.

use super::claim::Claim;
use super::holder::ms;
use super::keys::SEPARATOR;
use super::owner::Owner;
use super::token;
use crate::redis::Reply;
use serde::Serialize;
use std::time::Duration;

/// One that waits in line. What its name does not tell is none.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Waiter {
    #[serde(flatten)]
    pub(crate) owner: Owner,
    /// By its ticket: the time, in µs, at which it came, by the clock of the only server, or by its own.
    #[serde(rename = "waited_ms", serialize_with = "ms")]
    pub(crate) waited: Option<Duration>,
}

/// A name for the queue that no waiter had before: the initial of the claim and a random identity, then host, pid, user and label.
/// Scripts look at the initial only.
pub(super) fn new_name(claim: Claim, owner: &Owner) -> String {
    let part =
        |text: &Option<String>, most| -> String { text.iter().flat_map(|text| text.chars()).take(most).collect() };
    let Owner { host, pid, user, label } = owner;
    let pid = pid.unwrap_or_default().to_string();
    let id = format!("{}{}", claim.initial(), token::new_token());
    [id, part(host, 60), pid, part(user, 32), part(label, 40)].join(&SEPARATOR.to_string())
}

impl Waiter {
    /// The first in line on one node.
    pub(super) fn read_all(answer: &Reply) -> Option<Vec<Waiter>> {
        let now = answer.get("clock").as_time();
        let read = |pair: &[Reply]| Waiter::read(pair[0].as_text().unwrap_or_default(), pair[1].as_text(), now);
        answer.has("waiters").then(|| answer.get("waiters").items().chunks_exact(2).map(read).collect())
    }

    fn read(name: &str, ticket: Option<&str>, now: Option<Duration>) -> Waiter {
        let mut parts = name.split(SEPARATOR).skip(1).map(str::to_owned);
        let came = ticket.and_then(|ticket| Duration::try_from_secs_f64(ticket.parse::<f64>().ok()? / 1e6).ok());
        let owner = Owner {
            host: parts.next(),
            pid: parts.next().and_then(|pid| pid.parse().ok()),
            user: parts.next(),
            label: parts.next().filter(|label| !label.is_empty()),
        };
        Waiter { owner, waited: now.zip(came).map(|(now, came)| now.saturating_sub(came)) }
    }
}
