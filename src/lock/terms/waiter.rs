//! The waiters of a lock. A waiter's name in the queue contains the facts about its owner, which are in no other key.

use crate::lock::terms::claim::Claim;
use crate::lock::terms::holder::ms;
use crate::lock::terms::owner::Owner;
use crate::lock::terms::token;
use crate::lock::wire::keys::SEPARATOR;
use crate::redis::Reply;
use serde::Serialize;
use std::time::Duration;

/// A field is none if neither the waiter's name nor the server reports it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Waiter {
    #[serde(skip)]
    name: String,
    #[serde(flatten)]
    pub(crate) owner: Owner,
    /// The time since the waiter came. Its ticket has the moment (µs): by the server's clock if there is a single node,
    /// else by the waiter's.
    #[serde(rename = "waited_ms", serialize_with = "ms")]
    pub(crate) waited: Option<Duration>,
    /// True if the waiter can be called; false if it is dead or cut off.
    pub(crate) listening: Option<bool>,
}

/// A new, unique name for the queue: the letter of the claim, a random identity, host, pid, user and label. The scripts
/// read only the letter.
pub(in crate::lock) fn new_name(claim: Claim, owner: &Owner) -> String {
    let part =
        |text: &Option<String>, most| -> String { text.iter().flat_map(|text| text.chars()).take(most).collect() };
    let Owner { host, pid, user, label } = owner;
    let pid = pid.unwrap_or_default().to_string();
    let id = format!("{}{}", claim.initial(), token::new_token());
    [id, part(host, 60), pid, part(user, 32), part(label, 40)].join(&SEPARATOR.to_string())
}

impl Waiter {
    /// The first waiters in line on one node; none if the call did not ask for waiters.
    pub(in crate::lock) fn read_all(answer: &Reply) -> Option<Vec<Waiter>> {
        let (now, listening) = (answer.get("clock").as_time(), answer.get("listening"));
        let read = |(at, pair): (usize, &[Reply])| {
            let waiter = Waiter::read(pair[0].as_text().unwrap_or_default(), pair[1].as_text(), now);
            Waiter { listening: listening.count(at).map(|count| count > 0), ..waiter }
        };
        let pairs = answer.get("waiters").items().chunks_exact(2).enumerate();
        answer.has("waiters").then(|| pairs.map(read).collect())
    }

    /// Whether the waiter listens on any of these nodes; none if no node knows.
    pub(in crate::lock) fn listens_on_any(&self, nodes: &[Vec<Waiter>]) -> Option<bool> {
        let same = nodes.iter().flatten().filter(|waiter| waiter.name == self.name);
        same.filter_map(|waiter| waiter.listening).max()
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
        let waited = now.zip(came).map(|(now, came)| now.saturating_sub(came));
        Waiter { name: name.to_owned(), owner, waited, listening: None }
    }
}
