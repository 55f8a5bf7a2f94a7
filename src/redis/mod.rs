//! The nodes: asked side by side, answers collected until a deadline or until they suffice. The only folder that names
//! the `redis` crate.

pub(crate) mod address;
mod cluster;
mod connect;
mod fault;
mod listen;
mod local;
mod node;
mod reply;
mod rotated;
mod route;
mod script;
mod sentinel;
pub(crate) mod tls;

pub(crate) use address::{Access, Address, Place};
pub(crate) use fault::Fault;
pub(crate) use listen::{Heard, Listeners};
pub(crate) use local::Local;
pub(crate) use node::{Got, Node};
pub(crate) use reply::{FromReply, Reply};
pub(crate) use rotated::{Rotated, read};
pub(crate) use script::{Call, Script, sha1};

use crate::sys::clock::Boot;
use futures_util::StreamExt;
use futures_util::future::{join_all, select_all};
use futures_util::stream::FuturesUnordered;
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::timeout;

/// All configured nodes.
#[derive(Debug)]
pub(crate) struct Nodes {
    nodes: Vec<Node>,
    /// How long one node may take for one request: look-up, connecting, AUTH and reply together.
    pub(crate) timeout: Duration,
}

/// What one question has brought: for each node what came of it; none for a node that was not asked, or, while the
/// answers are being collected, has not answered yet.
#[derive(Debug)]
pub(crate) struct Answers<A>(pub(crate) Vec<Option<Got<A>>>);

/// Waits for `future` until the deadline; none when it has not come by then.
pub(crate) async fn within<T>(deadline: Boot, future: impl Future<Output = T>) -> Option<T> {
    timeout(deadline.left(), future).await.ok()
}

impl Nodes {
    /// Nodes that are contacted when they are first asked something.
    pub(crate) fn new(addresses: &[Address], timeout: Duration) -> Nodes {
        Nodes { nodes: addresses.iter().cloned().map(Node::new).collect(), timeout }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// What messages call a node.
    pub(crate) fn name(&self, node: usize) -> String {
        self.nodes[node].address().to_string()
    }

    /// A fresh deadline for one request.
    pub(crate) fn deadline(&self) -> Boot {
        Boot::now() + self.timeout
    }

    /// Asks the nodes that `whom` picks the same, at the same time. `patience` is called after each answer, and says
    /// until when to wait for the others; `deadline` ends it in any case. A node that has not answered by then has
    /// [`Fault::TimedOut`], or, when it was not waited for until the deadline, [`Fault::Slower`].
    ///
    /// When the future is dropped, what has been sent stays sent.
    pub(crate) async fn ask<A: FromReply>(
        &mut self,
        call: &Call,
        whom: impl Fn(usize) -> bool,
        deadline: Boot,
        mut patience: impl FnMut(&Answers<A>) -> Boot,
    ) -> Answers<A> {
        let start = Boot::now();
        let mut answers = Answers(self.nodes.iter().map(|_| None).collect());
        let asked = self.nodes.iter_mut().enumerate().filter(|(node, _)| whom(*node));
        let mut pending: FuturesUnordered<_> =
            asked.map(|(at, node)| async move { (at, node.ask(call, deadline).await) }).collect();
        let mut until = deadline;
        while let Some(Some((node, got))) = within(until, pending.next()).await {
            answers.0[node] = Some(got);
            until = patience(&answers).min(deadline);
        }
        drop(pending);
        let silent = if deadline.passed() { Fault::TimedOut } else { Fault::Slower };
        for (node, got) in answers.0.iter_mut().enumerate().filter(|(node, got)| whom(*node) && got.is_none()) {
            *got = Some(Got { sent: start, answer: Err(self.nodes[node].suspecting_tls(silent.clone())) });
        }
        answers
    }

    /// Asks every node, and waits until all have answered or the deadline is over.
    pub(crate) async fn ask_all<A: FromReply>(&mut self, call: &Call, deadline: Boot) -> Answers<A> {
        self.ask(call, |_| true, deadline, |_| deadline).await
    }

    /// Runs one script for many locks on every node, in one round trip each.
    pub(crate) async fn ask_many<A: FromReply>(&mut self, calls: &[Call], deadline: Boot) -> Answers<Vec<A>> {
        let silent = || Got { sent: Boot::now(), answer: Err(Fault::TimedOut) };
        let asked = self.nodes.iter_mut().map(|node| async { within(deadline, node.ask_many(calls)).await });
        Answers(join_all(asked).await.into_iter().map(|got| Some(got.unwrap_or_else(silent))).collect())
    }

    /// Every key that matches the pattern on each node, or why a node could not be looked through. Each page has a
    /// deadline of its own.
    pub(crate) async fn scan(&mut self, pattern: &str) -> Vec<Result<BTreeSet<String>, Fault>> {
        let patience = self.timeout;
        let asked = self.nodes.iter_mut().map(|node| async move {
            let mut found = BTreeSet::new();
            let masters = within(Boot::now() + patience, node.masters()).await;
            for master in masters.unwrap_or(Err(Fault::TimedOut))? {
                node.turn_to(master);
                let mut cursor = "0".to_owned();
                loop {
                    let page = within(Boot::now() + patience, node.scan(pattern, &cursor)).await;
                    let (next, keys) = page.unwrap_or_else(|| Err(node.suspecting_tls(Fault::TimedOut)))?;
                    found.extend(keys);
                    match next.as_str() {
                        "0" => break,
                        _ => cursor = next,
                    }
                }
            }
            Ok(found)
        });
        join_all(asked).await
    }

    /// Whether a request may have reached the node.
    pub(crate) fn is_touched(&self, node: usize) -> bool {
        self.nodes[node].is_touched()
    }

    /// Closes the connection to a node that has not answered.
    pub(crate) fn disconnect(&mut self, node: usize) {
        self.nodes[node].disconnect();
    }

    /// Comes back once a node that had closed its connection can be reached again.
    pub(crate) async fn reconnected(&mut self) {
        // With one node everything hangs on it.
        let eagerly = self.nodes.len() == 1;
        let patience = self.timeout;
        let all = self
            .nodes
            .iter_mut()
            .map(|node| Box::pin(node.reconnected(patience, eagerly)) as Pin<Box<dyn Future<Output = ()>>>);
        select_all(all).await;
    }

    /// Subscribes to a channel on every node, over connections of its own.
    pub(crate) fn listen(&self, channel: &str) -> Listeners {
        Listeners::new(self.nodes.iter().map(|node| node.route().clone()), channel, self.timeout)
    }
}

impl<A> Answers<A> {
    /// The answers that came: node, when it was asked, what it said.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, Boot, &A)> + Clone {
        self.0.iter().enumerate().filter_map(|(node, got)| match got {
            Some(Got { sent, answer: Ok(answer) }) => Some((node, *sent, answer)),
            _ => None,
        })
    }

    /// What was answered, without by whom.
    pub(crate) fn said(&self) -> impl Iterator<Item = &A> + Clone {
        self.iter().map(|(_, _, answer)| answer)
    }

    pub(crate) fn faults(&self) -> impl Iterator<Item = (usize, &Fault)> {
        self.0.iter().enumerate().filter_map(|(node, got)| match got {
            Some(Got { answer: Err(fault), .. }) => Some((node, fault)),
            _ => None,
        })
    }

    /// How many nodes say what `is` accepts.
    pub(crate) fn count(&self, is: impl Fn(&A) -> bool) -> usize {
        self.said().filter(|answer| is(answer)).count()
    }
}
