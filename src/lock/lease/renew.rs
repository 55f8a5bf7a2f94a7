//! One round of renewal: asks all nodes, and re-creates the lease on nodes that have forgotten it (`recreate.rs`).

use crate::error::now_held_by;
use crate::lock::history::run;
use crate::lock::lease::{DEFAULT_TTL, Lease};
use crate::lock::terms::holder::Obstacle;
use crate::lock::votes::quorum::less_drift;
use crate::lock::votes::recreate;
use crate::lock::votes::recreate::{Judgement, NodeReport, Round};
use crate::lock::wire::answer::{Answer, Outcome};
use crate::lock::{Lock, scripts};
use crate::redis::{Answers, Call};
use crate::sys::clock::Boot;
use crate::text::safe;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

/// The time from the last confirmation of a lease to the next renewal, in `redlock run` and in a guard. The holder
/// hears of a revocation within that time, if the nodes answer.
pub(crate) fn renewal_interval(ttl: Duration) -> Duration {
    (ttl / 4).min(Duration::from_secs(10))
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Try {
    /// The end of the wait for answers. Then the lease is re-created where it was forgotten, which may take as long.
    pub(crate) give_up: Boot,
    /// After this time without an answer (later in a slow network), a node is asked over another connection, too.
    pub(crate) pause: Duration,
}

#[derive(Debug)]
pub(crate) enum Renewal {
    /// A quorum of nodes has extended the lease, or it was re-created there.
    Confirmed,
    /// No quorum extended the lease in time, and no loss is proven. `faults` has a text for each failing node
    /// ("10.0.0.1:6379 timed out"), or if no node failed, one that says that too few nodes have the lease. `silent`:
    /// the failing nodes have merely not answered yet. `soon`: the next try may follow after a shorter pause.
    Unconfirmed { faults: Vec<String>, advice: Option<Cow<'static, str>>, silent: bool, soon: bool },
    /// When the answers came, the lease could already have expired, so they do not count.
    TooLate,
    /// The text is the reason that a node gives: `it was revoked by …`.
    Lost(String),
    /// The lease was released by its token: a node has recorded it.
    Released,
}

impl Lock {
    /// Asks all nodes to extend the lease, and re-creates it on a node that has forgotten it, if that is safe
    /// (`recreate.rs`). `moved` is called as soon as the answers have moved the end of validity.
    ///
    /// May be dropped at any await: all confirmations so far are in the lease.
    pub(crate) async fn renew(&mut self, lease: &mut Lease, this: Try, moved: &mut dyn FnMut(&Lease)) -> Renewal {
        let start = Boot::now();
        let args = lease.args().with("hold", &lease.hold).flag("renew", true).time("default", DEFAULT_TTL);
        let call = self.call_noted(&scripts::EXTEND, lease.stem(), args).hedged(this.pause);
        let answers = self.locks.nodes.ask(&call, this.give_up, |new| count_restored(lease, new, moved)).await;
        if answers.replies().any(|answer| answer.outcome == Outcome::Released) {
            return Renewal::Released;
        }
        self.locks.cover(&answers);
        let judgement = self.judge_answers(lease, &answers, start, moved);
        let patience = this.give_up.since(start);
        let restored = self.restore(lease, &answers, &judgement, patience, moved).await;
        let lost = judgement.lost || self.judge_answers(lease, &restored, Boot::now(), moved).lost;
        // If no node says why the lease is lost, it has merely run out.
        if lost && let Some(what) = self.what_became(answers.iter().chain(restored.iter())) {
            return Renewal::Lost(what);
        }
        let extended =
            answers.iter().chain(restored.iter()).filter(|(_, _, answer)| answer.outcome == Outcome::Extended);
        if !lost && extended.map(|(node, ..)| node).collect::<BTreeSet<_>>().len() >= self.locks.quorum() {
            return Renewal::Confirmed;
        }
        let mut faults: Vec<String> =
            answers.faults().map(|(node, fault)| format!("{} {fault}", self.locks.nodes.name(node))).collect();
        let silent = !faults.is_empty() && answers.faults().all(|(_, fault)| fault.is_timeout());
        if faults.is_empty() && lost {
            return Renewal::TooLate;
        }
        if faults.is_empty() {
            faults.push("too few nodes have it".to_owned());
        }
        let soon = answers.faults().any(|(_, fault)| fault.heals_soon()) || !judgement.recreate.is_empty();
        let lasting = answers.faults().filter(|(_, fault)| fault.outlasts_leases());
        let advice = lasting.map(|(_, fault)| fault.advice()).max().map(|(_, advice)| advice);
        Renewal::Unconfirmed { faults, advice, silent, soon }
    }

    /// Judges the answers of a round together. Calls `moved` if the lease is not lost, but its validity has changed.
    fn judge_answers(
        &self,
        lease: &mut Lease,
        answers: &Answers<Answer>,
        start: Boot,
        moved: &mut dyn FnMut(&Lease),
    ) -> Judgement<String> {
        let mut reports = vec![NodeReport::Silent; answers.nodes()];
        for (node, sent, answer) in answers.iter() {
            reports[node] = self.node_report(answer, sent + less_drift(lease.ttl));
        }
        // A slow node's answer may belong to a request of an earlier round: then `sent` is the time of that request.
        let sent = answers.iter().map(|(_, sent, _)| sent).min().unwrap_or(start);
        let before = lease.valid_until();
        let judgement = recreate::judge(&mut lease.backing, &reports, Round { sent, now: Boot::now() });
        if !judgement.lost && lease.valid_until() != before {
            moved(lease);
        }
        judgement
    }

    /// For [`recreate::judge`]. `until`: the moment until which the node backs the lease, if it has extended it.
    fn node_report(&self, answer: &Answer, until: Boot) -> NodeReport<Boot, String> {
        let run = answer.run_id.clone();
        match answer.outcome {
            Outcome::Extended => NodeReport::Confirmed { until, run },
            Outcome::Gone => {
                NodeReport::Lost { run, quarantined: !self.locks.quarantine.left(answer.uptime).is_zero() }
            }
            Outcome::Revoked => NodeReport::Revoked,
            Outcome::Other | Outcome::Higher => NodeReport::Another,
            _ => NodeReport::Silent,
        }
    }

    /// Re-creates the lease on each node that the judgement names, if it has not restarted since its answer. If the
    /// lease is not lost, enters the hold again on nodes that have forgotten only the hold. Both requests must arrive
    /// before the release.
    async fn restore(
        &mut self,
        lease: &mut Lease,
        answers: &Answers<Answer>,
        judgement: &Judgement<String>,
        patience: Duration,
        moved: &mut dyn FnMut(&Lease),
    ) -> Answers<Answer> {
        let mut calls = vec![None; answers.nodes()];
        for (node, _, answer) in answers.iter().filter(|_| !judgement.lost) {
            if answer.fields.has("forgotten") {
                let args = lease.args().with("hold", &lease.hold).time("default", DEFAULT_TTL);
                calls[node] = Some(self.call(&scripts::ENTER, args).in_order());
            }
        }
        for (node, run) in &judgement.recreate {
            calls[*node] = Some(self.recreate_call(lease, *node, run.as_deref()));
        }
        let deadline = Boot::now() + patience;
        self.locks.nodes.ask_apart(|node| calls[node].as_ref(), deadline, |new| count_restored(lease, new, moved)).await
    }

    /// `run_id`: what the server reported, none if INFO is refused. If the server has another run_id by now, it
    /// refuses.
    fn recreate_call(&self, lease: &Lease, node: usize, run_id: Option<&str>) -> Call {
        let owner = lease.owner.add_to(lease.args());
        let args = owner
            .with("hold", &lease.hold)
            .with("fence", lease.fencing_token)
            .with_some("run_id", run_id)
            .flag("alone", self.locks.nodes.len() == 1)
            .time("held", lease.since.elapsed())
            .with_some("began", lease.began(node))
            .flag("once", lease.is_once)
            .flag("labelled", lease.has_label)
            .flag("tries", lease.is_counted)
            .with_some("entry", lease.entry.as_ref().map(run::json))
            .with_some("newest", lease.newest);
        self.call(&scripts::RECREATE, args).in_order()
    }

    /// The fate of a lost lease, from the most informative answer; none if no answer reports it.
    fn what_became<'a>(&self, answers: impl Iterator<Item = (usize, Boot, &'a Answer)>) -> Option<String> {
        let fates = answers.filter_map(|(node, _, answer)| fate(&self.locks.nodes.name(node), answer));
        fates.min_by_key(|(rank, _)| *rank).map(|(_, what)| what)
    }
}

/// The fate of a lost lease as this node reports it, and a rank: 0 is the most informative. None: no loss.
fn fate(node: &str, answer: &Answer) -> Option<(u8, String)> {
    Some(match (answer.outcome, &answer.by) {
        (Outcome::Revoked, _) => {
            (0, format!("it was revoked by {} ({node})", safe(answer.text("by").unwrap_or_default())))
        }
        (Outcome::Other, Some(Obstacle::Leases(leases))) => (1, format!("{} ({node})", now_held_by(leases))),
        (Outcome::Other, _) => (1, format!("another program now holds it ({node})")),
        (Outcome::Gone, _) => (2, format!("it was released or deleted on {node}")),
        _ => return None,
    })
}

/// Records which nodes have extended or re-created the lease: they back it for the ttl less drift, from the moment at
/// which the request was sent. Returns [`Boot::NEVER`], because the caller waits for all answers.
fn count_restored(lease: &mut Lease, answers: &Answers<Answer>, moved: &mut dyn FnMut(&Lease)) -> Boot {
    let before = lease.valid_until();
    for (node, sent, by) in answers.iter().filter(|(_, _, answer)| answer.outcome == Outcome::Extended) {
        recreate::confirm(&mut lease.backing, node, sent + less_drift(lease.ttl), by.run_id.clone(), Boot::now());
    }
    if lease.valid_until() != before {
        moved(lease);
    }
    Boot::NEVER
}
