//! One try to get a lock on all nodes, and the conditions under which the try succeeds. traces.rs undoes failed tries.
//!
//! A signal, or the end of the wait, may drop a try at any await, perhaps after its requests were sent. The caller then
//! calls [`Lock::withdraw`] with the same [`Traces`]: the requests that undo the try follow on the same connections.

use crate::error::{Error, Reason};
use crate::lock::history::newest::Newest;
use crate::lock::history::run;
use crate::lock::history::run::Run;
use crate::lock::lease::traces::Traces;
use crate::lock::lease::{FRESH, Lease};
use crate::lock::terms::claim::Claim;
use crate::lock::terms::holder::{Holder, Obstacle, most_named};
use crate::lock::terms::token;
use crate::lock::terms::token::BASE;
use crate::lock::votes::fencing;
use crate::lock::votes::quorum::{Verdict, middle, quorum};
use crate::lock::wire::answer::{Answer, Outcome};
use crate::lock::wire::ask::straggler_wait;
use crate::lock::wire::fields::Args;
use crate::lock::{Lock, Request, scripts};
use crate::redis::{Answers, Call, Fault, Reply};
use crate::sys::clock::{Boot, unix_time};
use crate::sys::random::{below, one_of};
use std::time::Duration;

/// If the slot for which a try has asked is taken, another try follows at once, this many at most.
const AGAIN: u32 = 5;

pub(in crate::lock) enum Attempt {
    Granted(Box<Lease>),
    /// Others stand in the way: holders, waiters, or rivals that try at the same time.
    Denied(Box<Denial>),
    /// For example: too few nodes can answer, a recent run has succeeded, the holders have another claim.
    Failure(Error),
}

impl Attempt {
    fn split() -> Attempt {
        Attempt::Denied(Box::new(Denial { split: true, ..Denial::default() }))
    }
}

/// The combined answers of the nodes that refuse the lock because of holders or waiters. If there is no such node, only
/// `split` may be set.
#[derive(Clone, Debug, Default)]
pub(in crate::lock) struct Denial {
    pub(in crate::lock) by: Obstacle,
    /// The run_id of the first node that refused; of use only if there is a single node.
    pub(in crate::lock) run_id: Option<String>,
    /// The time until the lock may become free, unless a lease is extended. None if no node reports it.
    pub(in crate::lock) left: Option<Duration>,
    /// The number of waiters ahead. None if no node has this waiter in line.
    pub(in crate::lock) rank: Option<u64>,
    /// Decides this waiter's position in line. None if no node has this waiter in line.
    pub(in crate::lock) ticket: Option<String>,
    /// The nodes on which this try has put the waiter into the line.
    pub(in crate::lock) queued: Vec<usize>,
    /// The next try follows soon: rivals have each got fewer than q nodes, or a node has refused to raise its counter.
    pub(in crate::lock) split: bool,
}

/// The lease that a waiter has seen, if there is a single server. If it restarts empty, the waiter reserves the lock
/// for the holder of this lease.
#[derive(Clone, Debug)]
pub(in crate::lock) struct LastSeenLease {
    pub(in crate::lock) holder: Holder,
    pub(in crate::lock) run_id: Option<String>,
    /// The latest possible end of the lease.
    pub(in crate::lock) until: Boot,
    /// The longest time that the lease may last after an extension. When the connection ends, `until` becomes now plus
    /// this time, and this field becomes None.
    pub(in crate::lock) longest: Option<Duration>,
}

impl Lock {
    /// One try on all nodes, which waits for answers until `until` at the latest. If its slot is taken and others are
    /// free, another try asks for another slot. `seen`: the last lease that this waiter has seen, with a single node.
    pub(in crate::lock) async fn attempt(
        &mut self,
        traces: &mut Traces,
        request: &Request,
        seen: Option<&LastSeenLease>,
        until: Boot,
    ) -> Attempt {
        let mut again = AGAIN;
        loop {
            let attempt = self.try_once(traces, request, seen, until).await;
            let is_granted = matches!(attempt, Attempt::Granted(_));
            if is_granted || traces.slot.is_none() || again == 0 || until.passed() {
                if !is_granted && traces.waiter.is_some() {
                    self.roll_back(traces).await;
                }
                return attempt;
            }
            // The next try undoes this failed try.
            again -= 1;
        }
    }

    async fn try_once(
        &mut self,
        traces: &mut Traces,
        request: &Request,
        seen: Option<&LastSeenLease>,
        until: Boot,
    ) -> Attempt {
        let token = if request.noted { token::new_noted() } else { token::new_token() };
        traces.begin(token.clone(), &self.locks.nodes);
        let slot = self.slot_to_ask_for(traces.slot.take());
        let args = self.take_args(traces, request, seen).with_some("slot", slot);
        let answers = self.ask_to_take(traces, args, request.once_per.is_some(), until).await;
        traces.take_in(&answers);
        if let Some(error) = self.same_node_twice(&answers) {
            return Attempt::Failure(error);
        }
        if let Some(reason) = not_needed(&answers) {
            let unlike = match &reason {
                Reason::Ran(run) => request.unlike(&run.owner.label, run.has_label),
                _ => None,
            };
            return Attempt::Failure(Error::NotNeeded { name: self.name.clone(), by: Box::new(reason), unlike });
        }
        let superseded = Newest::largest(&answers);
        let votes = self.votes(answers);
        if votes.verdict(is_granted) == Verdict::Yes {
            return self.complete(token, &votes, request, traces.waited()).await;
        }
        // One node that knows a larger number of --newest is enough for a refusal.
        if let Some(by) = superseded {
            return Attempt::Failure(Error::Superseded { name: self.name.clone(), by: Box::new(by) });
        }
        traces.slot = one_of(&free_on_most(&votes));
        self.why_not(&votes)
    }

    /// Sends each node these arguments, and the tokens of the earlier tries that it still has to undo. Waits as long as
    /// further answers matter, but not beyond `until`. `is_once`: the call has `--once-per`.
    async fn ask_to_take(&mut self, traces: &Traces, args: Args, is_once: bool, until: Boot) -> Answers<Answer> {
        let start = Boot::now();
        let calls = (0..self.locks.nodes.len())
            .map(|node| self.call(&scripts::TAKE, traces.add_earlier_to(args.clone(), node)));
        let calls: Vec<Call> = calls.collect();
        let mut decided = None;
        let patience = |answers: &Answers<Answer>| match wait_for_others(start, answers, is_once) {
            Some(wait) => *decided.get_or_insert_with(|| Boot::now() + wait),
            None => Boot::NEVER,
        };
        let deadline = self.locks.nodes.deadline().min(until);
        self.locks.nodes.ask_apart(|node| calls.get(node), deadline, patience).await
    }

    fn votes(&mut self, answers: Answers<Answer>) -> Answers<Answer> {
        // A node that refuses INFO has no vote, because the end of its quarantine is not known.
        let is_off = self.locks.quarantine.is_off();
        let known = answers.discard(|take| (take.uptime.is_none() && !is_off).then(Fault::without_uptime));
        // Even a node that has granted the lock may lose its vote here, because another node may show a lease that
        // makes the quarantine longer.
        self.locks.without_quarantined(known)
    }

    /// The slot for which the next try asks all nodes: `known`, else a random one. None if the lock has no slots, or if
    /// a single node chooses.
    fn slot_to_ask_for(&self, known: Option<u32>) -> Option<u32> {
        let limit = self.claim().limit().filter(|_| self.locks.nodes.len() > 1)?;
        Some(known.unwrap_or_else(|| below(limit)))
    }

    fn take_args(&self, traces: &Traces, request: &Request, seen: Option<&LastSeenLease>) -> Args {
        let quarantine = Some(self.locks.quarantine.seconds()).filter(|&seconds| seconds > 0);
        // All nodes get the same clock, so that they agree on the fencing token at once. Over several nodes a shared
        // lease sends no clock: its fencing token is the last writer's, which q nodes have in their counters.
        let seeds = self.claim() != Claim::Shared || self.locks.nodes.len() == 1;
        let mut args = request
            .owner
            .add_to(traces.add_to(Args::default()))
            .time("ttl", request.ttl)
            .time("renewal", request.is_renewed_by_none().then_some(Duration::ZERO))
            .time("now", seeds.then(unix_time))
            .with_some("quarantine", quarantine)
            .time("once", request.looks_back())
            .with_some("expected", request.promises())
            .flag("labelled", request.has_label)
            .with_some("tries", request.tries())
            .with_some("newest", request.newest)
            .with_some("entry", run::entry(request, traces.waited()).as_ref().map(run::json));
        if let Some(LastSeenLease { holder, run_id, until, .. }) = seen {
            args = args
                .with_bytes("seen", &holder.token)
                .with_some("seen_run_id", run_id.as_ref())
                .time("seen_left", until.left())
                .with_some("seen_fence", holder.fencing_token)
                .with("seen_claim", holder.claim.word())
                .with_some("seen_slot", holder.slot);
        }
        args
    }

    /// Completes a try that a quorum has granted: raises counters until a quorum has the lease's fencing token as its
    /// counter, and checks that the lease is still valid.
    async fn complete(
        &mut self,
        token: String,
        answers: &Answers<Answer>,
        request: &Request,
        waited: Duration,
    ) -> Attempt {
        let grants = answers.iter().filter(|(_, _, take)| is_granted(take));
        let slot = grants.clone().find_map(|(_, _, take)| take.get("slot").as_small_count());
        let counters: Vec<(usize, u64)> = grants.clone().map(|(node, _, take)| (node, take.fence())).collect();
        let fence = fencing::vote(&counters, answers.nodes(), u64::try_from(unix_time().as_millis()).unwrap_or(0));
        if fence.needed > 0
            && let Err(attempt) = self.raise(&token, slot, &fence).await
        {
            return attempt;
        }
        if request.tries().is_some()
            && let Err(attempt) = self.count_try(&token).await
        {
            return attempt;
        }
        let mut lease = Lease::new(token, BASE.to_owned(), request, answers.nodes());
        lease.slot = slot;
        lease.entry = run::entry(request, waited);
        lease.fencing_token = fence.token;
        if request.newest.is_some() && !self.locks.nodes.are_local() {
            lease.fresh = freshly_started(grants.clone().map(|(.., take)| take), answers.nodes());
        }
        // A node that was only slower than the others has no fault.
        let faults = answers.faults().filter(|(_, fault)| **fault != Fault::Slower);
        lease.faults = faults.map(|(node, fault)| (node, fault.clone())).collect();
        for (node, sent, by) in grants {
            lease.granted(node, sent, request.ttl, by);
        }
        if lease.valid_until().passed() {
            return Attempt::Failure(Error::GrantedTooLate { name: self.name.clone(), ttl: request.ttl });
        }
        Attempt::Granted(Box::new(lease))
    }

    /// Raises the counters of the nodes in `fence.behind` to the fencing token of the lease. `slot`: the slot whose
    /// counters are raised; none: the lock has no slots. Returns once enough nodes have raised theirs.
    ///
    /// # Errors
    /// The result of the try, if too few nodes raise their counters.
    async fn raise(&mut self, token: &str, slot: Option<u32>, fence: &fencing::FenceVote) -> Result<(), Attempt> {
        let args = Args::default().with("token", token).with_some("slot", slot).with("fence", fence.token);
        let call = self.call(&scripts::FENCE, args);
        let raised = |answers: &Answers<Answer>| answers.count(|answer| answer.outcome == Outcome::Raised);
        let enough =
            |answers: &Answers<Answer>| if raised(answers) >= fence.needed { Boot::now() } else { Boot::NEVER };
        let deadline = self.locks.nodes.deadline();
        let answers =
            self.locks.nodes.ask_apart(|node| fence.behind.contains(&node).then_some(&call), deadline, enough).await;
        match (raised(&answers), answers.replies().count()) {
            (raised, _) if raised >= fence.needed => Ok(()),
            // A node has refused: its counter is larger than the fencing token, or it no longer has the lease. The
            // caller tries again.
            (raised, said) if said > raised => Err(Attempt::split()),
            _ => Err(Attempt::Failure(self.no_quorum(&answers))),
        }
    }

    /// Counts the run for `--tries`, before its command starts. Returns once a quorum has noted it.
    ///
    /// # Errors
    /// The result of the try, if too few nodes note the run. Then the try is undone, and counts for nothing.
    async fn count_try(&mut self, token: &str) -> Result<(), Attempt> {
        let (call, quorum) = (self.call(&scripts::TRY, Args::default().with("token", token)), self.locks.quorum());
        let counted = |answers: &Answers<Answer>| answers.count(|answer| answer.outcome == Outcome::Counted);
        let enough = |answers: &Answers<Answer>| if counted(answers) >= quorum { Boot::now() } else { Boot::NEVER };
        let answers = self.locks.nodes.ask_apart(|_| Some(&call), self.locks.nodes.deadline(), enough).await;
        match counted(&answers) {
            counted if counted >= quorum => Ok(()),
            // The lease is lost already. The caller tries again.
            _ if answers.is_denied(|answer| answer.outcome == Outcome::Counted) => Err(Attempt::split()),
            _ => Err(Attempt::Failure(self.no_quorum(&answers))),
        }
    }

    /// The error if two addresses lead to the same server, which would vote twice.
    fn same_node_twice(&self, answers: &Answers<Answer>) -> Option<Error> {
        let runs: Vec<(usize, &String)> =
            answers.iter().filter_map(|(node, _, take)| Some((node, take.run_id.as_ref()?))).collect();
        let same = |(node, run): &(usize, &String)| {
            let (other, _) = runs.iter().find(|(other, same)| other > node && same == run)?;
            let (one, other) = (self.locks.nodes.name(*node), self.locks.nodes.name(*other));
            Some(Error::Usage(format!("{one} and {other} are the same Redis server; list each server once")))
        };
        runs.iter().find_map(same)
    }

    /// Decides between "others hold the lock" and "too few nodes can answer".
    fn why_not(&self, answers: &Answers<Answer>) -> Attempt {
        let nodes = answers.nodes();
        let refusals: Vec<(usize, &Answer)> =
            answers.iter().map(|(node, _, take)| (node, take)).filter(|(_, take)| is_held(take)).collect();
        let obstacles: Vec<&Obstacle> = refusals.iter().filter_map(|(_, take)| take.by.as_ref()).collect();
        let enough = answers.verdict(|_| true) == Verdict::Yes || answers.is_denied(|take| !is_held(take));
        if !enough {
            return Attempt::Failure(self.no_quorum(answers));
        }
        let Some((at, votes)) = most_named(&obstacles) else {
            // No node names an obstacle. Either rivals have each got some of the nodes, or none has said anything of
            // it.
            return match answers.count(|take| is_granted(take) || is_held(take)) {
                0 => Attempt::Failure(self.no_quorum(answers)),
                _ => Attempt::split(),
            };
        };
        let by = obstacles[at].clone();
        if answers.verdict(|take| take.outcome == Outcome::OtherClaim) == Verdict::Yes {
            return Attempt::Failure(Error::OtherClaim(Box::new(self.held_by(by)), self.claim()));
        }
        // A node that has not answered may have granted the lock to the same holder.
        let silent = answers.faults().filter(|(_, fault)| !matches!(fault, Fault::Quarantined { .. })).count();
        Attempt::Denied(Box::new(Denial {
            by,
            run_id: refusals[0].1.run_id.clone(),
            left: middle(obstacles.iter().filter_map(|by| by.left()).collect(), nodes),
            rank: middle(refusals.iter().filter_map(|(_, take)| take.get("rank").as_count()).collect(), nodes),
            ticket: refusals.iter().find_map(|(_, take)| take.text("ticket")).map(str::to_owned),
            queued: refusals.iter().filter(|(_, take)| take.fields.has("queued")).map(|(node, _)| *node).collect(),
            split: votes + silent < self.locks.quorum(),
        }))
    }
}

/// The time since the last start of a node that granted the lease, if too few others did: q nodes knew each number of
/// `--newest`, so among q that have not been started since, one knows it and grants no smaller one.
fn freshly_started<'a>(grants: impl Iterator<Item = &'a Answer>, nodes: usize) -> Option<Duration> {
    let (fresh, old): (Vec<_>, Vec<_>) = grants.map(|take| take.uptime).partition(|up| up.is_some_and(|up| up < FRESH));
    if old.len() < quorum(nodes) { fresh.into_iter().flatten().min() } else { None }
}

/// How long a try waits for further answers after these; none: until all nodes have answered.
fn wait_for_others(start: Boot, answers: &Answers<Answer>, is_once: bool) -> Option<Duration> {
    match answers.verdict(is_granted) {
        _ if not_needed(answers).is_some() => Some(Duration::ZERO),
        // With --once-per, wait for all nodes: any may know of a success, or of a run that counts for --tries.
        Verdict::Yes if is_once => None,
        Verdict::Yes => Some(straggler_wait_once_granted(start, answers)),
        _ if Newest::largest(answers).is_some() => Some(Duration::ZERO),
        Verdict::No if !free_on_most(answers).is_empty() => Some(Duration::ZERO),
        Verdict::No if is_explained(answers) => Some(straggler_wait(start, answers.faults().next().is_some())),
        _ => None,
    }
}

/// The recent success, or the number of runs, because of which a node refuses this take. One node is enough.
fn not_needed(answers: &Answers<Answer>) -> Option<Reason> {
    let refusal = |is: Outcome| answers.replies().find(|take| take.outcome == is);
    if let Some(take) = refusal(Outcome::Ran) {
        return Some(Reason::Ran(Run::read(take.text("success")?, &[], take.get("clock").as_time())));
    }
    let take = refusal(Outcome::Tried)?;
    let clock = take.get("clock").as_time();
    let ago = clock.zip(take.get("first").as_time()).map(|(clock, first)| clock.saturating_sub(first));
    let last = take.text("last").map(|text| Run::read(text, take.text("going").as_slice(), clock));
    Some(Reason::Tried { times: take.count("tries"), ago, last })
}

/// True if the answers explain why no quorum is left: too many nodes refuse because of others, or too many have failed
/// or are in quarantine.
fn is_explained(answers: &Answers<Answer>) -> bool {
    let cannot = answers.faults().count() + answers.count(|take| take.outcome == Outcome::Quarantined);
    answers.is_denied(|take| !is_held(take)) || cannot + quorum(answers.nodes()) > answers.nodes()
}

/// True if the node refuses because of others: holders, waiters, or whoever has closed the lock.
fn is_held(take: &Answer) -> bool {
    use Outcome::{Closed, Held, OtherClaim, Reserved, Taken};
    matches!(take.outcome, Held | Reserved | OtherClaim | Taken | Closed)
}

fn is_granted(take: &Answer) -> bool {
    take.outcome == Outcome::Granted
}

/// How long to wait for slower nodes once a quorum has granted the lock, because a lease on more nodes survives the
/// failure of more nodes. The wait is longer if a granting node has a counter of fencing tokens, but fewer than q nodes
/// have: the slower nodes may have counters.
fn straggler_wait_once_granted(start: Boot, answers: &Answers<Answer>) -> Duration {
    let counted = answers.count(|take| is_granted(take) && take.fence() > 0);
    if counted > 0 && counted < quorum(answers.nodes()) {
        return straggler_wait(start, answers.faults().next().is_some());
    }
    (start.elapsed() / 8).max(Duration::from_millis(2))
}

/// The slots for which the next try may ask, if the slot of this one is taken: those that are free on the most nodes.
/// Empty if no quorum can grant one.
fn free_on_most(answers: &Answers<Answer>) -> Vec<u32> {
    let mut free: Vec<u32> =
        answers.replies().flat_map(|take| take.get("free").items()).filter_map(Reply::as_small_count).collect();
    free.sort_unstable();
    let slots: Vec<&[u32]> = free.chunk_by(|a, b| a == b).collect();
    let most = slots.iter().map(|nodes| nodes.len()).max().unwrap_or(0);
    // A node that has granted this try names no free slots, but may grant another slot, too.
    let is_enough = most > 0 && most + answers.count(is_granted) >= quorum(answers.nodes());
    slots.iter().filter(|nodes| is_enough && nodes.len() == most).map(|nodes| nodes[0]).collect()
}
