//! Releases a lease, or one hold of it. Nodes that do not answer get the request again, over new connections, so that a
//! restart at a job's end does no harm: the lock becomes free before the ttl ends, and the job counts as a success.

use crate::error::Error;
use crate::lock::history::run;
use crate::lock::history::run::{End, RunOutcome};
use crate::lock::lease::Lease;
use crate::lock::lease::traces::LONG_UNDO_TIMEOUT;
use crate::lock::terms::token;
use crate::lock::terms::token::BASE;
use crate::lock::votes::quorum::Verdict;
use crate::lock::wire::answer::{Answer, Outcome};
use crate::lock::wire::ask::straggler_wait;
use crate::lock::wire::fields::Args;
use crate::lock::{Lock, scripts};
use crate::redis::{Answers, Call, Fault, Reply};
use crate::sys::clock::Boot;
use crate::sys::wait::sleep_until;
use std::collections::BTreeMap;
use std::time::Duration;

/// A release is repeated for at most 5 s, or for one node timeout if that is longer.
const AGAIN_FOR: Duration = Duration::from_secs(5);
/// The least pause before a release is sent again.
const PAUSE: Duration = Duration::from_millis(50);

/// The records of a run's end that fewer than q nodes could write. A text names the first node that failed, and what it
/// said; none if q nodes could write the record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unwritten {
    /// The note of a success, for `--once-per`.
    pub(crate) once: Option<String>,
    /// The entry in the log.
    pub(crate) log: Option<String>,
}

#[derive(Clone, Copy)]
struct Release<'a> {
    /// The token as the caller gave it.
    token: &'a str,
    /// The lease's own token.
    stem: &'a str,
    /// The hold to release; None: the newest.
    hold: Option<&'a str>,
    lease: Option<&'a Lease>,
    end: Option<End<'a>>,
    /// The end of the lease's validity, after which a repetition is of no use; [`Boot::NEVER`] for a release by token.
    until: Boot,
}

impl Lock {
    /// Releases this process's hold of the lease, and reports how the run ended. Returns the number of holds left. Has
    /// a deadline of its own.
    ///
    /// # Errors
    /// [`Error::NotOurs`] if too many nodes lacked the lease, [`Error::NoQuorum`] if too few nodes answered.
    pub(crate) async fn release(&mut self, lease: &Lease, end: End<'_>) -> Result<u64, Error> {
        let release = Release {
            token: &lease.token,
            stem: lease.stem(),
            hold: Some(&lease.hold),
            lease: Some(lease),
            // A hold that re-entered the lease leaves nothing in the log.
            end: Some(end).filter(|_| lease.is_outermost()),
            until: lease.valid_until(),
        };
        self.release_by(release).await
    }

    /// Releases one hold of the lease: the one that `token` names, else the newest. Returns the number of holds left.
    /// `status`: the exit status of the work under the lease, for the history, if the caller reports one.
    ///
    /// # Errors
    /// [`Error::NotOurs`] and [`Error::NoQuorum`].
    pub(crate) async fn release_token(&mut self, token: &str, status: Option<u8>) -> Result<u64, Error> {
        let (stem, hold) = token::split(token);
        let newest = match hold {
            // A node that missed a hold would release an older one, so the request to all nodes names the hold.
            None if self.locks.nodes.len() > 1 => Some(self.newest_hold(token).await?),
            _ => None,
        };
        let hold = hold.or(newest.as_deref());
        let end =
            status.map(|status| End { outcome: Some(RunOutcome::Exited), code: Some(status.into()), ..End::UNUSED });
        let release = Release { token, stem, hold, lease: None, end, until: Boot::NEVER };
        self.release_by(release).await
    }

    pub(super) fn release_call(&self, stem: &str, hold: &str) -> Call {
        self.call(&scripts::RELEASE, Args::default().with("token", stem).with("hold", hold))
    }

    async fn release_by(&mut self, release: Release<'_>) -> Result<u64, Error> {
        let mut answers = self.send(&release).await;
        // A release to a single node may name no hold. If the lease has several holds, it ends none, and the node
        // answers with the newest, which the next release names.
        let newest = answers.replies().find(|answer| answer.outcome == Outcome::Newest);
        if let Some(hold) = newest.and_then(|answer| answer.text("hold")).map(str::to_owned) {
            let named = Release { stem: release.token, hold: Some(&hold), ..release };
            answers = self.send(&named).await;
        }
        let verdict = answers.verdict(is_done);
        let is_lost = answers.is_denied(is_done);
        let is_judged = verdict == Verdict::Yes || is_lost;
        let reported = match (release.lease, release.end) {
            (Some(lease), Some(end)) if is_judged => self.report_end(&release, lease, end, &answers, is_lost).await,
            _ => self.locks.nodes.unasked(),
        };
        let unwritten = |what| self.unwritten(&answers, &reported, what);
        self.unwritten = Unwritten { once: unwritten("unnoted"), log: unwritten("unwritten") };
        if verdict != Verdict::Yes {
            return Err(self.not_done(release.token, &answers, is_done));
        }
        // If a quorum has freed the lock, the holds on other nodes do not count. Otherwise the node with the most holds
        // is right: another node may have missed a hold.
        if answers.verdict(|answer| answer.outcome == Outcome::Released) == Verdict::Yes {
            return Ok(0);
        }
        Ok(answers.replies().map(|answer| answer.count("holds")).max().unwrap_or(0))
    }

    /// The first node that could not write a record of the run's end, with the reason; none if a quorum wrote it.
    /// `reported`: the answers of the nodes that lacked the lease, and got the end afterwards. `what`: the field of an
    /// answer in which a node gives the reason.
    fn unwritten(&self, answers: &Answers<Answer>, reported: &Answers<Answer>, what: &str) -> Option<String> {
        let all = || answers.iter().chain(reported.iter());
        let (node, words) = all().find_map(|(node, _, answer)| Some((node, answer.text(what)?)))?;
        let is_written = |answer: &Answer| !answer.fields.has(what);
        let written = answers.count(|answer| is_done(answer) && is_written(answer)) + reported.count(is_written);
        (written < self.locks.quorum()).then(|| format!("{} could not note it ({words})", self.locks.nodes.name(node)))
    }

    /// Sends the release to all nodes, and again to each that fails or does not answer, until the answers decide, or
    /// the time is over. A node that has forgotten the lease in a restart counts as one that released it.
    async fn send(&mut self, release: &Release<'_>) -> Answers<Answer> {
        let (start, quorum, count) = (Boot::now(), self.locks.quorum(), self.locks.nodes.len());
        let until = release.until.min(start + AGAIN_FOR).max(self.locks.nodes.deadline());
        let pause = (self.locks.nodes.timeout / 3).max(PAUSE);
        let cold = (0..count).any(|node| !self.locks.nodes.may_have_been_sent(node));
        let mut answers = self.locks.nodes.unasked();
        let mut faults = vec![None; count];
        let (mut enough, mut is_repeated) = (None, false);
        loop {
            let round = Boot::now();
            let pause = if enough.is_some() { PAUSE } else { pause };
            let is_open = |node| answers.of(node).is_none_or(|answer| answer.is_err());
            let calls = (0..count).map(|node| is_open(node).then(|| self.call_for(release, node).hedged(pause)));
            let calls: Vec<Option<Call>> = calls.collect();
            let patience = |answers: &Answers<Answer>| {
                let done =
                    answers.iter().filter(|(node, _, answer)| release.is_done(*node, answer, is_repeated)).count();
                let denied = answers.replies().count() - done;
                if done < quorum && denied + quorum <= count {
                    return Boot::NEVER;
                }
                *enough.get_or_insert_with(|| {
                    Boot::now() + straggler_wait(start, cold || answers.faults().next().is_some())
                })
            };
            let deadline = until.min(round + pause);
            self.locks.nodes.ask_more(&mut answers, |node| calls[node].as_ref(), deadline, patience).await;
            for (node, fault) in answers.faults() {
                faults[node] = Some(fault.clone());
            }
            let is_silent = answers.faults().any(|(_, fault)| fault.is_timeout() || *fault == Fault::Slower);
            let hopeless = answers.faults().filter(|(_, fault)| fault.is_final()).count() + quorum > count;
            // A node whose connection has broken gets the release once more, even if the others have decided.
            let is_cut = is_silent || answers.faults().any(|(_, fault)| *fault == Fault::Closed);
            let is_enough = |enough: Boot| (is_repeated || !is_cut) && (enough.passed() || !is_silent);
            if until.passed() || hopeless || enough.is_some_and(is_enough) {
                break;
            }
            is_repeated = true;
            sleep_until(until.min(round + PAUSE)).await;
        }
        for (node, answer) in answers.iter_mut() {
            if release.is_done(node, answer, is_repeated) && answer.outcome != Outcome::StillHeld {
                answer.outcome = Outcome::Released;
            }
        }
        let unknown = |node, answer: &Answer| is_repeated && release.may_have_been_done_before(node, answer);
        let answers = answers.discard_by_node(|node, answer| faults[node].clone().filter(|_| unknown(node, answer)));
        self.locks.without_quarantined(answers)
    }

    fn call_for(&self, release: &Release<'_>, node: usize) -> Call {
        let &Release { stem, hold, lease, end, .. } = release;
        let args = Args::default().with("token", stem).with_some("hold", hold);
        let Some(lease) = lease else {
            let run = end.map(|end| run::json(&end.fields()));
            return self.call_noted(&scripts::RELEASE, stem, args.with_some("run", run));
        };
        // If redlock already knows that the lease is lost, the release says so, because a second request might not
        // arrive.
        let is_lost = end.is_some_and(|end| end.outcome == Some(RunOutcome::Lost));
        self.call(&scripts::RELEASE, lease.add_end_to(args, node, end).flag("final", is_lost))
    }

    /// Reports the end of the run to each node that lacks the lease, and returns the answers. Such a node cannot know
    /// whether the lease is lost, because other nodes may have it. `is_lost`: so many nodes lack the lease that no
    /// quorum had it. If so, and if nodes may have noted a success, all get the report.
    async fn report_end(
        &mut self,
        release: &Release<'_>,
        lease: &Lease,
        end: End<'_>,
        answers: &Answers<Answer>,
        is_lost: bool,
    ) -> Answers<Answer> {
        let is_loss = is_lost && end.is_loss_if_gone();
        let takes_back = is_loss && end.has_succeeded();
        let end = if is_loss { End { outcome: Some(RunOutcome::Lost), ..end } } else { end };
        let args = Args::default().with("token", release.stem).with_some("hold", release.hold).flag("final", true);
        let call = |node| self.call(&scripts::RELEASE, lease.add_end_to(args.clone(), node, Some(end)));
        let hears = |answer: &Answer| lease.entry.is_some() && (takes_back || !is_done(answer));
        let calls: BTreeMap<usize, Call> =
            answers.iter().filter(|(_, _, answer)| hears(answer)).map(|(node, ..)| (node, call(node))).collect();
        let mut reported = self.locks.nodes.unasked();
        if !calls.is_empty() {
            let soon = Boot::now() + LONG_UNDO_TIMEOUT;
            self.locks.nodes.ask_more(&mut reported, |node| calls.get(&node), soon, |_| Boot::NEVER).await;
        }
        reported
    }

    /// The newest hold of the lease, by the votes of the nodes; if none names one, the hold that took the lease.
    ///
    /// # Errors
    /// [`Error::NoQuorum`].
    async fn newest_hold(&mut self, token: &str) -> Result<String, Error> {
        let call = self.call(&scripts::HOLDS, Args::default().with("token", token));
        let answers = self.locks.ask_each(&call, |answers| answers.verdict(|_| true) == Verdict::Yes).await;
        if answers.verdict(|_| true) != Verdict::Yes {
            return Err(self.no_quorum(&answers));
        }
        // A hold is entered on a quorum, so most nodes name the newest hold. `entered` only breaks ties: each server
        // takes this time from its own clock.
        let named = answers.replies().filter(|answer| answer.outcome == Outcome::Newest);
        let votes = |hold: &Reply| answers.count(|other| other.get("hold") == hold);
        let newest = named.max_by_key(|newest| (votes(newest.get("hold")), newest.count("entered")));
        Ok(newest.and_then(|newest| newest.text("hold")).unwrap_or(BASE).to_owned())
    }
}

impl Release<'_> {
    /// True if the node has carried out the release, or has forgotten the lease. `is_repeated`: the release was sent
    /// more than once, so the node may have carried out an earlier copy than the one that it answers.
    fn is_done(&self, node: usize, answer: &Answer, is_repeated: bool) -> bool {
        match answer.outcome {
            Outcome::Gone if self.is_forgotten(node, answer) => true,
            // Another process may have released the lease by its token, and reported an end, which the log keeps.
            Outcome::Gone | Outcome::Other => (is_repeated || token::is_noted(self.stem)) && knows_end(answer),
            _ => is_done(answer),
        }
    }

    /// True if the node lacks the lease, and its log does not show why: it was cut, or never had the run. An earlier
    /// copy of this release may have ended the lease.
    fn may_have_been_done_before(&self, node: usize, answer: &Answer) -> bool {
        !is_done(answer) && answer.outcome != Outcome::Newest && !knows_run(answer) && !self.has_restarted(node, answer)
    }

    /// True if the node has restarted empty since it confirmed the lease, and the job ended within the lease. Such a
    /// restart costs the job nothing.
    fn is_forgotten(&self, node: usize, answer: &Answer) -> bool {
        let in_time = !self.until.passed() || self.end.is_some_and(|end| end.has_run_out);
        in_time && !knows_run(answer) && self.has_restarted(node, answer)
    }

    /// True if the node has restarted since it last confirmed the lease.
    fn has_restarted(&self, node: usize, answer: &Answer) -> bool {
        let confirmed = self.lease.and_then(|lease| lease.backing[node].run.as_ref());
        confirmed.is_some() && answer.run_id.is_some() && confirmed != answer.run_id.as_ref()
    }
}

fn is_done(answer: &Answer) -> bool {
    matches!(answer.outcome, Outcome::Released | Outcome::StillHeld)
}

/// The node lacks the lease, but its log has the lease's run.
fn knows_run(answer: &Answer) -> bool {
    answer.fields.has("known")
}

/// A release has reported the end of the lease's run, and the log has this end.
fn knows_end(answer: &Answer) -> bool {
    answer.text("known") == Some("ended")
}
