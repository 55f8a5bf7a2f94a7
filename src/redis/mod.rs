//! Asks all nodes in parallel, and collects answers until they suffice or a deadline has passed. No other folder of
//! src/ names the `redis` crate.

mod address;
mod cluster;
mod connect;
mod connection;
mod distrust;
mod fault;
mod file_value;
mod listen;
mod local;
mod look_up;
mod node;
mod reply;
mod route;
mod script;
mod sentinel;
mod stream;
pub(crate) mod tls;
pub(crate) mod url;

pub(crate) use address::{Access, Address};
pub(crate) use fault::Fault;
pub(crate) use file_value::{Cause, FileValue, Unusable, read};
pub(crate) use listen::{Listeners, SubscriptionEvent};
pub(crate) use local::Local;
pub(crate) use node::Node;
use node::RequestOutcome;
pub(crate) use reply::{FromReply, Reply};
pub(crate) use script::{Call, Script};
pub(crate) use sentinel::{SentinelView, views as sentinel_views};
pub(crate) use url::Deployment;

use crate::sys::clock::Boot;
use crate::sys::wait::within;
use futures_util::StreamExt;
use futures_util::future::{join_all, select_all};
use futures_util::stream::FuturesUnordered;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time limit for the list of a node's keys, in request timeouts: a server may send keys for ever.
const LISTING: u32 = 20;
/// The most memory that the names from one node may take, in bytes. README gives the same limit as a number of names.
const LISTED: usize = 24 << 20;
/// The memory that a listed name takes besides its text, in bytes.
const LISTED_NAME: usize = 64;

/// The pause between attempts to reach a lost node.
const RECONNECT: Duration = Duration::from_millis(100);
const RECONNECT_ONE_OF_SEVERAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Nodes {
    nodes: Vec<Node>,
    /// The timeout of one request to one node: look-up, connecting, AUTH and reply together.
    pub(crate) timeout: Duration,
}

/// The answers and faults after one question, by node: none for a node that was not asked, or has not answered yet.
#[derive(Debug)]
pub(crate) struct Answers<A>(Vec<Option<RequestOutcome<A>>>);

impl Nodes {
    /// The first request to a node opens its connection.
    pub(crate) fn new(addresses: &[Address], timeout: Duration) -> Nodes {
        Nodes { nodes: addresses.iter().cloned().map(|address| Node::new(address, timeout)).collect(), timeout }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if no option, variable or file has named the nodes.
    pub(crate) fn are_default(&self) -> bool {
        self.nodes.iter().any(|node| node.address().is_default())
    }

    /// True if the only node is a server of `local:` that was never started, and so has no locks.
    pub(crate) fn are_unused(&self) -> bool {
        matches!(self.nodes.as_slice(), [node] if node.address().local().is_some_and(|local| local.is_unused()))
    }

    /// True if the only node is a server of `local:`, which loses nothing in a restart.
    pub(crate) fn are_local(&self) -> bool {
        matches!(self.nodes.as_slice(), [node] if matches!(node.address().deployment(), Deployment::Local(_)))
    }

    pub(crate) fn name(&self, node: usize) -> String {
        self.nodes[node].address().to_string()
    }

    /// The name of a node, with the server in use if the node has several.
    pub(crate) fn asked(&self, node: usize) -> String {
        match self.nodes[node].route().server() {
            Some(server) => format!("{} ({server})", self.name(node)),
            None => self.name(node),
        }
    }

    pub(crate) fn deadline(&self) -> Boot {
        Boot::now() + self.timeout
    }

    /// Sends one call to all nodes in parallel. After each answer or fault, `patience` says how long to wait for the
    /// other nodes, but never past `deadline`. A node that has not answered by then gets [`Fault::Slower`], or a
    /// timeout if the deadline has passed. Dropping the future does not take back requests that were sent.
    pub(crate) async fn ask<A: FromReply>(
        &mut self,
        call: &Call,
        deadline: Boot,
        patience: impl FnMut(&Answers<A>) -> Boot,
    ) -> Answers<A> {
        self.ask_apart(|_| Some(call), deadline, patience).await
    }

    /// Sends each node its own call; a node without a call is not asked.
    pub(crate) async fn ask_apart<'a, A: FromReply>(
        &mut self,
        call: impl Fn(usize) -> Option<&'a Call>,
        deadline: Boot,
        patience: impl FnMut(&Answers<A>) -> Boot,
    ) -> Answers<A> {
        let mut answers = self.unasked();
        self.ask_more(&mut answers, call, deadline, patience).await;
        answers
    }

    pub(crate) fn unasked<A>(&self) -> Answers<A> {
        Answers(self.nodes.iter().map(|_| None).collect())
    }

    /// The same as [`Nodes::ask_apart`], but adds the answers to `answers`.
    pub(crate) async fn ask_more<'a, A: FromReply>(
        &mut self,
        answers: &mut Answers<A>,
        call: impl Fn(usize) -> Option<&'a Call>,
        deadline: Boot,
        mut patience: impl FnMut(&Answers<A>) -> Boot,
    ) {
        let start = Boot::now();
        let look_ups: Vec<_> = self.nodes.iter().map(Node::look_ups).collect();
        let asked = self.nodes.iter_mut().enumerate().filter_map(|(at, node)| Some((at, node, call(at)?)));
        let mut pending: FuturesUnordered<_> =
            asked.map(|(at, node, call)| async move { (at, node.ask(call, deadline).await) }).collect();
        let mut until = deadline;
        while let Some(Some((node, got))) = within(until, pending.next()).await {
            answers.0[node] = Some(got);
            until = patience(answers).min(deadline);
        }
        let is_late = deadline.passed();
        for (node, got) in answers.0.iter_mut().enumerate().filter(|(node, _)| call(*node).is_some()) {
            let silent = || if is_late { look_ups[node].timed_out() } else { Fault::Slower };
            got.get_or_insert_with(|| RequestOutcome { sent: start, answer: Err(silent()) });
        }
    }

    /// Runs one script for many locks on the nodes that `whom` picks, usually in two round trips. A fault that may
    /// concern one lock only is the result of that lock's call. Any other fault is the result of all calls to the node.
    pub(crate) async fn ask_many<A: FromReply>(
        &mut self,
        calls: &[Call],
        whom: impl Fn(usize) -> bool,
        deadline: Boot,
    ) -> Answers<Vec<Result<A, Fault>>> {
        let silent = |fault| RequestOutcome { sent: Boot::now(), answer: Err(fault) };
        let whom = &whom;
        let asked = self.nodes.iter_mut().enumerate().map(|(at, node)| async move {
            if !whom(at) {
                return None;
            }
            let look_ups = node.look_ups();
            let answered = look_ups.within(deadline, async { Ok(node.ask_many(calls).await) }).await;
            Some(answered.unwrap_or_else(silent))
        });
        Answers(join_all(asked).await)
    }

    /// Lists the names that `name_of` finds in each node's keys that match the pattern. A node in `failed` that has
    /// timed out is not asked again. Each page of keys has a deadline, and so has the whole list.
    pub(crate) async fn scan(
        &mut self,
        pattern: &str,
        failed: &BTreeMap<usize, Fault>,
        name_of: impl Fn(String) -> Option<String>,
    ) -> Vec<Result<BTreeSet<String>, Fault>> {
        let (patience, name_of) = (self.timeout, &name_of);
        let asked = self.nodes.iter_mut().enumerate().map(|(at, node)| async move {
            if let Some(fault) = failed.get(&at).filter(|fault| fault.is_timeout()) {
                return Err(fault.clone());
            }
            let (mut found, mut size) = (BTreeSet::new(), 0);
            let end = Boot::now() + patience * LISTING;
            for master in node.masters().await? {
                node.turn_to(master);
                let mut cursor = "0".to_owned();
                loop {
                    let (next, keys) = node.scan(pattern, &cursor).await?;
                    let new = keys.into_iter().filter_map(name_of).filter_map(|name| {
                        let length = name.len();
                        found.insert(name).then_some(length + LISTED_NAME)
                    });
                    size += new.sum::<usize>();
                    if size > LISTED || end.passed() {
                        return Err(Fault::too_many_keys());
                    }
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

    pub(crate) fn may_have_been_sent(&self, node: usize) -> bool {
        self.nodes[node].may_have_been_sent()
    }

    /// Returns as soon as one of the lost nodes is connected again: see [`Node::reconnected`].
    pub(crate) async fn reconnected(&mut self) {
        // A single node gets a short pause: if it has forgotten the lease, whoever asks first gets the lock.
        let pause = if self.nodes.len() == 1 { RECONNECT } else { RECONNECT_ONE_OF_SEVERAL };
        let all = self.nodes.iter_mut().map(|node| Box::pin(node.reconnected(pause)));
        select_all(all).await;
    }

    /// Subscribes to a channel on every node, over separate connections.
    pub(crate) fn listen(&self, channel: &str) -> Listeners {
        Listeners::new(self.nodes.iter().map(|node| node.route().clone()), channel, self.timeout)
    }
}

impl<A> Answers<A> {
    /// The answers so far: node, time of the request, answer.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, Boot, &A)> + Clone {
        self.0.iter().enumerate().filter_map(|(node, got)| match got {
            Some(RequestOutcome { sent, answer: Ok(answer) }) => Some((node, *sent, answer)),
            _ => None,
        })
    }

    pub(crate) fn into_answers(self) -> impl Iterator<Item = (usize, A)> {
        self.0.into_iter().enumerate().filter_map(|(node, got)| Some((node, got?.answer.ok()?)))
    }

    pub(crate) fn replies(&self) -> impl Iterator<Item = &A> + Clone {
        self.iter().map(|(_, _, answer)| answer)
    }

    pub(crate) fn faults(&self) -> impl Iterator<Item = (usize, &Fault)> {
        self.0.iter().enumerate().filter_map(|(node, got)| match got {
            Some(RequestOutcome { answer: Err(fault), .. }) => Some((node, fault)),
            _ => None,
        })
    }

    /// The number of nodes, asked or not.
    pub(crate) fn nodes(&self) -> usize {
        self.0.len()
    }

    /// The answer or the fault of one node; none if the node was not asked, or has not answered yet.
    pub(crate) fn of(&self, node: usize) -> Option<Result<&A, &Fault>> {
        self.0[node].as_ref().map(|got| got.answer.as_ref())
    }

    /// The number of nodes that have answered or failed.
    pub(crate) fn finished(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Replaces an answer by a fault if `reason` returns a fault for the answer.
    pub(crate) fn discard(self, reason: impl Fn(&A) -> Option<Fault>) -> Answers<A> {
        self.discard_by_node(|_, answer| reason(answer))
    }

    /// The same as [`Answers::discard`], with a reason that depends on the node.
    pub(crate) fn discard_by_node(mut self, reason: impl Fn(usize, &A) -> Option<Fault>) -> Answers<A> {
        for (node, got) in self.0.iter_mut().enumerate().filter_map(|(node, got)| Some((node, got.as_mut()?))) {
            if let Some(fault) = got.answer.as_ref().ok().and_then(|answer| reason(node, answer)) {
                got.answer = Err(fault);
            }
        }
        self
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut A)> {
        self.0.iter_mut().enumerate().filter_map(|(node, got)| Some((node, got.as_mut()?.answer.as_mut().ok()?)))
    }

    pub(crate) fn count(&self, is: impl Fn(&A) -> bool) -> usize {
        self.replies().filter(|answer| is(answer)).count()
    }
}
