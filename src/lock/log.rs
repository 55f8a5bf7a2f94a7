//! The last runs of a lock: the lines that the scripts have written (journal.lua), and the words of all nodes together.

use super::fields::Args;
use super::holder::{date, ms};
use crate::redis::Reply;
use serde::Serialize;
use std::time::Duration;

/// Between the parts of a run.
const SEPARATOR: char = '\u{1f}';

/// One use of a lock, from its grant to its release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Run {
    pub(crate) token_prefix: String,
    pub(crate) host: String,
    pub(crate) pid: Option<u64>,
    pub(crate) user: String,
    pub(crate) label: Option<String>,
    /// By the server's clock, as all its times: time since 1970.
    #[serde(rename = "began_at", serialize_with = "date")]
    pub(crate) began: Option<Duration>,
    /// None where its end is not known.
    #[serde(rename = "ended_at", serialize_with = "date")]
    pub(crate) ended: Option<Duration>,
    /// The time in line before it.
    #[serde(rename = "waited_ms", serialize_with = "ms")]
    pub(crate) waited: Option<Duration>,
    /// So far, if it goes on.
    #[serde(rename = "duration_ms", serialize_with = "ms")]
    pub(crate) duration: Option<Duration>,
    pub(crate) outcome: Outcome,
    /// The exit status of the command.
    pub(crate) status: Option<u8>,
    /// The signal that ended it.
    pub(crate) signal: Option<u8>,
    /// The signature of the revocation.
    pub(crate) revoked_by: Option<String>,
    pub(crate) fencing_token: Option<u64>,
    /// The time since its end, or since it began if that is all that is known.
    #[serde(skip)]
    pub(crate) ago: Option<Duration>,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    Exited,
    Signaled,
    /// The lease was lost while the command ran.
    Lost,
    /// `--max-run`
    TooLong,
    Revoked,
    /// By its token, so without a status.
    Released,
    /// The lease ran out, and nothing else was heard.
    Expired,
    Running,
}

/// The end of a run, as it is told with the release of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// None if no command was started under the lease: it leaves nothing.
    pub(crate) outcome: Option<Outcome>,
    /// The exit status, or the signal.
    pub(crate) code: Option<u32>,
    /// The lease can have run out since, after a job that ended in time. Otherwise a lease that is gone was lost.
    pub(crate) has_run_out: bool,
}

/// The part of the log that a look at a lock tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogPart {
    None,
    /// The last run, and the last success, if the log can be read.
    LastRun,
    /// The same, or the fault of the node.
    LastRunOrFault,
    /// All runs, or the fault of the node.
    AllOrFault,
}

impl LogPart {
    pub(super) fn add_to(self, args: Args) -> Args {
        let (runs, must): (Option<u32>, bool) = match self {
            LogPart::None => (None, false),
            LogPart::LastRun => (Some(1), false),
            LogPart::LastRunOrFault => (Some(1), true),
            LogPart::AllOrFault => (Some(u32::MAX), true),
        };
        args.given("log", runs).flag("must", must)
    }
}

impl End {
    pub(crate) const UNUSED: End = End { outcome: None, code: None, has_run_out: false };
    pub(crate) const LOST: End = End { outcome: Some(Outcome::Lost), ..End::UNUSED };
    pub(crate) const RELEASED: End = End { outcome: Some(Outcome::Released), ..End::UNUSED };

    /// Its name in the scripts.
    pub(super) fn word(self) -> &'static str {
        let name = |outcome| Outcome::ENDS.iter().find(|(_, known)| *known == outcome).map(|(name, _)| *name);
        self.outcome.and_then(name).unwrap_or("unused")
    }

    /// The same for a node where the lease is gone.
    pub(super) fn word_if_gone(self) -> &'static str {
        let is_loss = self.outcome.is_some() && !self.has_run_out;
        if is_loss { End { outcome: Some(Outcome::Lost), ..self }.word() } else { self.word() }
    }
}

impl Outcome {
    const ENDS: [(&str, Outcome); 6] = [
        ("exited", Outcome::Exited),
        ("signaled", Outcome::Signaled),
        ("lost", Outcome::Lost),
        ("too-long", Outcome::TooLong),
        ("revoked", Outcome::Revoked),
        ("released", Outcome::Released),
    ];

    /// Its name in the scripts.
    fn of(word: &str) -> Option<Outcome> {
        Outcome::ENDS.iter().find(|(name, _)| *name == word).map(|&(_, outcome)| outcome)
    }

    /// True if the run has said how it ended.
    fn is_told(self) -> bool {
        !matches!(self, Outcome::Expired | Outcome::Running)
    }
}

impl Run {
    /// The runs that one node knows of.
    pub(super) fn read_all(answer: &Reply) -> Vec<Run> {
        let now = answer.get("clock").as_time().filter(|now| !now.is_zero());
        let untold = [("runs", Outcome::Expired), ("expired", Outcome::Expired), ("running", Outcome::Running)];
        let each = untold.iter().flat_map(|&(name, outcome)| {
            let text = answer.get(name).as_text().unwrap_or_default();
            text.lines().filter_map(move |line| Run::read(line, outcome, now))
        });
        each.collect()
    }

    /// A run whose end, if it is not told, is this. `now` is the node's clock.
    fn read(line: &str, untold: Outcome, now: Option<Duration>) -> Option<Run> {
        let parts: Vec<&str> = line.split(SEPARATOR).collect();
        let part = |at: usize| parts.get(at).copied().filter(|part| !part.is_empty());
        let number = |at| part(at)?.parse::<u64>().ok();
        // Zero is a server that refuses TIME.
        let time = |at| number(at).filter(|&ms| ms > 0).map(Duration::from_millis);
        let outcome = part(10).map_or(Some(untold), Outcome::of)?;
        let (began, ended) = (time(6), time(9));
        let until = if outcome == Outcome::Running { now } else { ended };
        let code = part(11).and_then(|code| code.parse().ok());
        Some(Run {
            token_prefix: part(1)?.to_owned(),
            host: part(2).unwrap_or_default().to_owned(),
            pid: number(3),
            user: part(4).unwrap_or_default().to_owned(),
            label: part(5).map(str::to_owned),
            began,
            ended,
            waited: number(7).map(Duration::from_millis),
            duration: until.zip(began).map(|(until, began)| until.saturating_sub(began)),
            outcome,
            status: code.filter(|_| outcome == Outcome::Exited),
            signal: code.filter(|_| outcome == Outcome::Signaled),
            revoked_by: part(12).map(str::to_owned),
            fencing_token: number(8),
            ago: now.zip(ended.or(began)).map(|(now, then)| now.saturating_sub(then)),
        })
    }

    /// The time since it began.
    pub(crate) fn began_ago(&self) -> Option<Duration> {
        let since_end = self.ended.and(self.duration).unwrap_or_default();
        self.ago.map(|ago| ago + since_end)
    }

    /// True if its command has exited with status 0.
    pub(crate) fn succeeded(&self) -> bool {
        self.status == Some(0)
    }
}

/// What all nodes know, the oldest run first. A run whose end was told to any node has ended so. Of another one, a take that
/// got no quorum may have left traces: it counts if `needed` nodes know it.
pub(super) fn merge(nodes: &[&[Run]], needed: usize) -> Vec<Run> {
    let mut runs: Vec<(Vec<&Run>, Run)> = Vec::new();
    for run in nodes.iter().copied().flatten() {
        match runs.iter_mut().find(|(_, merged)| merged.token_prefix == run.token_prefix) {
            Some((same, _)) => same.push(run),
            None => runs.push((vec![run], run.clone())),
        }
    }
    let merged = runs.into_iter().filter_map(|(same, _)| agreed(&same, needed));
    let mut merged: Vec<Run> = merged.collect();
    merged.sort_by_key(|run| (run.began, run.fencing_token));
    merged
}

/// One run from the words of several nodes.
fn agreed(same: &[&Run], needed: usize) -> Option<Run> {
    let running = same.iter().filter(|run| run.outcome == Outcome::Running).count();
    let word = match same.iter().find(|run| run.outcome.is_told()) {
        Some(told) => told,
        None if same.len() < needed => return None,
        None => same.iter().find(|run| (run.outcome == Outcome::Running) == (running >= needed))?,
    };
    Some(Run {
        began: same.iter().filter_map(|run| run.began).min(),
        fencing_token: same.iter().filter_map(|run| run.fencing_token).max(),
        ..(*word).clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGUN: &str = "20␟aaaaaaaa␟web-3␟42␟deploy␟nightly␟1763715123004␟40␟7";

    fn run(line: &str, untold: Outcome) -> Run {
        let now = Some(Duration::from_millis(1_763_715_200_000));
        Run::read(&line.replace('␟', "\u{1f}"), untold, now).expect("a run")
    }

    #[test]
    fn lines_are_read() {
        let ended = run(&format!("{BEGUN}␟1763715124004␟exited␟3␟"), Outcome::Expired);
        assert_eq!((ended.outcome, ended.status, ended.signal), (Outcome::Exited, Some(3), None));
        assert_eq!((ended.duration, ended.waited), (Some(Duration::from_secs(1)), Some(Duration::from_millis(40))));
        let killed = run(&format!("{BEGUN}␟1763715124004␟signaled␟9␟"), Outcome::Expired);
        assert_eq!((killed.outcome, killed.status, killed.signal), (Outcome::Signaled, None, Some(9)));
        assert_eq!(run(BEGUN, Outcome::Expired).duration, None);
        assert_eq!(run(BEGUN, Outcome::Running).duration, Some(Duration::from_millis(76_996)));
        // A server that refuses TIME; a line of a later version.
        assert_eq!(run("20␟aaaaaaaa␟h␟1␟u␟␟0␟0␟7␟0␟exited␟0␟", Outcome::Expired).ended, None);
        assert!(run(&format!("{BEGUN}␟1763715124004␟exited␟0␟␟more"), Outcome::Expired).succeeded());
        assert!(Run::read("", Outcome::Expired, None).is_none());
    }

    #[test]
    fn nodes_are_heard_together() {
        let (open, gone) = (run(BEGUN, Outcome::Running), run(BEGUN, Outcome::Expired));
        let ended = run(&format!("{BEGUN}␟1763715124004␟exited␟0␟"), Outcome::Expired);
        let outcome = |nodes: &[&Run]| {
            let nodes: Vec<&[Run]> = nodes.iter().map(|run| std::slice::from_ref(*run)).collect();
            merge(&nodes, 2).first().map(|run| run.outcome)
        };
        // A minority may have been left over from a take that got no quorum.
        assert_eq!((outcome(&[&open]), outcome(&[&gone])), (None, None));
        assert_eq!(outcome(&[&open, &open]), Some(Outcome::Running));
        assert_eq!(outcome(&[&open, &gone]), Some(Outcome::Expired));
        assert_eq!(outcome(&[&gone, &open, &open]), Some(Outcome::Running));
        assert_eq!(outcome(&[&ended]), Some(Outcome::Exited));
        assert_eq!(outcome(&[&open, &gone, &ended]), Some(Outcome::Exited));
        let earlier = Run { began: Some(Duration::from_secs(1)), fencing_token: Some(9), ..ended.clone() };
        let both = merge(&[&[earlier], &[ended]], 2);
        assert_eq!((both[0].began, both[0].fencing_token, both.len()), (Some(Duration::from_secs(1)), Some(9), 1));
    }
}
