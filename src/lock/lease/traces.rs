//! The traces that a try to get a lock may have left on the nodes, and how they are undone.
//!
//! A failed try is undone by a request, but this request may be lost with its connection. So redlock keeps the try for
//! each node until the node confirms the undo. The next request that takes the lock or leaves the line has the token of
//! the failed try, and undoes it (take.lua, undo.lua).

use crate::lock::wire::answer::{Answer, Outcome};
use crate::lock::wire::fields::Args;
use crate::lock::{Lock, scripts};
use crate::redis::{Answers, Call, Fault, Nodes};
use crate::sys::clock::Boot;
use crate::sys::wait::sleep_until;
use std::time::Duration;

/// How long redlock waits for nodes that undo a try. A signal has to end redlock within 100 ms. redlock must not close
/// a connection at once: a server that cannot send the answer to a try does not read the request that undoes the try.
pub(crate) const UNDO_TIMEOUT: Duration = Duration::from_millis(80);
/// The longest wait for nodes to undo a failed try, or to note a run's end: a node that hangs delays the caller by up
/// to 1 s, or after a signal by up to [`UNDO_TIMEOUT`].
pub(super) const LONG_UNDO_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before a request is sent again to a node that refuses connections.
const REFUSED: Duration = Duration::from_millis(400);
/// The most tries to keep for one node: a request has the tokens of them all, and should stay short.
const MOST_EARLIER: usize = 8;
/// How long [`Lock::step_out`] waits for the answers that it does not need.
const STEP_OUT: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(in crate::lock) struct Traces {
    /// The token of the latest try. Each has its own, so that a late answer cannot be taken for another's.
    token: Option<String>,
    /// The name in the queue, if the caller queues.
    pub(in crate::lock) waiter: Option<String>,
    pub(in crate::lock) ticket: Option<String>,
    /// The slot for which the next try asks; None: a random slot, or no slot if the lock has none.
    pub(super) slot: Option<u32>,
    /// For each node, whether it may have granted the latest try.
    may_have_it: Vec<bool>,
    /// For each node, the tokens of earlier tries that it may have granted, the latest last.
    earlier: Vec<Vec<String>>,
    /// The hold that was added to a lease: the token of the lease, and the id of the hold.
    pub(super) hold: Option<(String, String)>,
    /// True if a try that was granted may have been counted for `--tries`.
    counted: bool,
    /// The time at which the first try began.
    began: Option<Boot>,
}

impl Traces {
    pub(super) fn new(nodes: usize, counted: bool) -> Traces {
        let (may_have_it, earlier) = (vec![false; nodes], vec![Vec::new(); nodes]);
        Traces { may_have_it, earlier, counted, began: Some(Boot::now()), ..Traces::default() }
    }

    pub(super) fn waited(&self) -> Duration {
        self.began.map(Boot::elapsed).unwrap_or_default()
    }

    pub(super) fn begin(&mut self, token: String, nodes: &Nodes) {
        if let Some(last) = self.token.replace(token) {
            for (node, earlier) in self.earlier.iter_mut().enumerate() {
                if self.may_have_it[node] && nodes.may_have_been_sent(node) {
                    if earlier.len() == MOST_EARLIER {
                        earlier.remove(0);
                    }
                    earlier.push(last.clone());
                }
            }
        }
        self.may_have_it.fill(true);
    }

    pub(super) fn take_in(&mut self, answers: &Answers<Answer>) {
        for (node, _, take) in answers.iter() {
            self.may_have_it[node] = take.outcome == Outcome::Granted;
            // The node has executed the latest request, which also undoes the earlier tries.
            self.earlier[node].clear();
        }
        for (node, _) in answers.faults().filter(|(_, fault)| fault.is_before_execution()) {
            self.may_have_it[node] = false;
        }
    }

    pub(super) fn add_to(&self, args: Args) -> Args {
        let Traces { token, waiter, ticket, .. } = self;
        args.with_some("token", token.as_ref())
            .with_some("waiter", waiter.as_ref())
            .with_some("ticket", ticket.as_ref())
    }

    fn undo_args(&self) -> Args {
        self.add_to(Args::default()).flag("tries", self.counted)
    }

    pub(super) fn add_earlier_to(&self, args: Args, node: usize) -> Args {
        args.with_some("earlier", Some(self.earlier[node].join(" ")).filter(|tokens| !tokens.is_empty()))
    }

    pub(super) fn has_earlier(&self, node: usize) -> bool {
        !self.earlier[node].is_empty()
    }
}

impl Lock {
    /// Undoes a grant by fewer than q nodes, and keeps the position in line. Calls no waiter, because it would get no
    /// quorum.
    pub(super) async fn roll_back(&mut self, traces: &mut Traces) {
        let call = self.call(&scripts::UNDO, traces.undo_args().flag("stay", true)).on_same_connection();
        let calls = traces.may_have_it.iter().map(|&may| may.then(|| call.clone())).collect();
        let answers = self.undo(calls, Boot::now() + UNDO_TIMEOUT).await;
        for (node, ..) in answers.iter() {
            traces.may_have_it[node] = false;
        }
    }

    /// Undoes all traces: a grant, a position in line, a hold. Until `until`, repeats the requests to nodes that have
    /// not answered. Afterwards the waiter must not use the same name in the queue again.
    pub(in crate::lock) async fn withdraw(&mut self, traces: &mut Traces, until: Boot) {
        let nodes = self.locks.nodes.len();
        if let Some((stem, hold)) = &traces.hold {
            let call = self.release_call(stem, hold).on_same_connection();
            self.undo(vec![Some(call); nodes], until).await;
        }
        if traces.token.is_none() && traces.waiter.is_none() {
            return;
        }
        let concerns = |node: usize| traces.waiter.is_some() || traces.may_have_it[node] || traces.has_earlier(node);
        let args = |node| traces.add_earlier_to(traces.undo_args(), node);
        let calls =
            (0..nodes).map(|node| concerns(node).then(|| self.call(&scripts::UNDO, args(node)).on_same_connection()));
        let calls = calls.collect();
        let answers = self.undo(calls, until).await;
        for (node, ..) in answers.iter() {
            traces.may_have_it[node] = false;
            traces.earlier[node].clear();
        }
    }

    /// After a grant by a quorum, leaves the line, and undoes earlier tries on the nodes that may still have them.
    pub(in crate::lock) async fn step_out(&mut self, traces: &Traces) {
        let nodes = self.locks.nodes.len();
        let waits = traces.waiter.is_some() && nodes > 1;
        let args = |node| {
            let args = Args::default().with_some("waiter", traces.waiter.as_ref()).flag("tries", traces.counted);
            (waits || traces.has_earlier(node)).then(|| traces.add_earlier_to(args, node))
        };
        let calls = (0..nodes).map(|node| Some(self.keys.call(&scripts::UNDO, args(node)?).on_same_connection()));
        let calls: Vec<Option<Call>> = calls.collect();
        let asked = calls.iter().flatten().count();
        if asked == 0 {
            return;
        }
        let enough = asked.min(self.locks.quorum());
        let (soon, deadline) = (Boot::now() + STEP_OUT, self.locks.nodes.deadline());
        let deadline = if waits { deadline } else { soon };
        let patience = |left: &Answers<Answer>| if left.replies().count() >= enough { soon } else { Boot::NEVER };
        let _: Answers<Answer> = self.locks.nodes.ask_apart(|node| calls[node].as_ref(), deadline, patience).await;
    }

    /// Sends each node its call, if an earlier request may have reached it. Repeats the call over new connections until
    /// the node answers, or until `until`.
    async fn undo(&mut self, mut calls: Vec<Option<Call>>, until: Boot) -> Answers<Answer> {
        let nodes = &mut self.locks.nodes;
        for (node, call) in calls.iter_mut().enumerate() {
            call.take_if(|_| !nodes.may_have_been_sent(node));
        }
        let mut answers = nodes.unasked();
        loop {
            let again = until.min(Boot::now() + UNDO_TIMEOUT);
            nodes.ask_more(&mut answers, |node| calls[node].as_ref(), again, |_| Boot::NEVER).await;
            for (node, call) in calls.iter_mut().enumerate() {
                let is_answered =
                    answers.of(node).is_some_and(|answer| answer.map_or_else(|fault| !fault.leaves_open(), |_| true));
                *call = call.take().filter(|_| !is_answered).map(|call| call.hedged(UNDO_TIMEOUT));
            }
            if again == until || calls.iter().all(Option::is_none) {
                return answers;
            }
            let is_refused = answers.faults().any(|(_, fault)| matches!(fault, Fault::Unreachable(_)));
            sleep_until(until.min(if is_refused { again + REFUSED } else { again })).await;
        }
    }
}
