//! A run of a lock, and the end of a run as a release reports it. log.lua describes the text of a run.

use crate::lock::Request;
use crate::lock::terms::holder::{date, ms};
use crate::lock::terms::owner::Owner;
use crate::lock::terms::token;
use crate::sys::clock::Boot;
use crate::sys::signals;
use crate::text::safe;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// If a run or a visit lies further in the future than this, the server's clock was set back after it.
pub(super) const FUTURE: Duration = Duration::from_secs(60);

/// The number of runs that a log keeps, unless a run asks for another number.
pub(in crate::lock) const KEPT: u64 = 20;

/// The text of a run, or a part of it: letters and their values. log.lua explains each letter.
pub(in crate::lock) type Entry = BTreeMap<String, String>;

/// See [`Run::age`].
pub(in crate::lock) type Age = (bool, Reverse<Option<Duration>>);

/// One use of a lock, from its grant to its release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Run {
    /// The whole token, or an unreadable run's stored text.
    #[serde(skip)]
    pub(in crate::lock) token: String,
    pub(crate) token_prefix: Option<String>,
    #[serde(flatten)]
    pub(crate) owner: Owner,
    pub(crate) slot: Option<u32>,
    /// Time since 1970 by the server's clock, like `ended` and `now`.
    #[serde(rename = "began_at", serialize_with = "date")]
    pub(crate) began: Option<Duration>,
    /// None if the run goes on, or its end is not known: nobody knows when a job ended whose lease ran out.
    #[serde(rename = "ended_at", serialize_with = "date")]
    pub(crate) ended: Option<Duration>,
    /// How long the run waited for the lock; none if the run cannot be read.
    #[serde(rename = "waited_ms", serialize_with = "ms")]
    pub(crate) waited: Option<Duration>,
    /// The duration so far if the run goes on; none if it is not known.
    #[serde(rename = "duration_ms", serialize_with = "ms")]
    pub(crate) duration: Option<Duration>,
    pub(crate) outcome: RunOutcome,
    pub(crate) status: Option<u8>,
    pub(crate) signal: Option<u8>,
    /// Who revoked the lease: `deploy@web-3`.
    pub(crate) revoked_by: Option<String>,
    pub(crate) fencing_token: Option<u64>,
    /// The last lines of the job's standard error, if they were kept and asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) errors: Option<String>,
    /// The server's clock when the server answered.
    #[serde(skip)]
    pub(crate) now: Option<Duration>,
    /// The number of runs that the log keeps, as this run says.
    #[serde(skip)]
    pub(super) kept: u64,
    /// `acquire` took the lease. Its release by token does not know whether the lease had run out, so the nodes decide
    /// how the run ended.
    #[serde(skip)]
    pub(super) is_acquired: bool,
    /// The caller's number of `--newest`.
    #[serde(skip)]
    pub(super) newest: Option<u64>,
    /// True if the call with `--once-per` named its label.
    #[serde(skip)]
    pub(in crate::lock) has_label: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RunOutcome {
    Exited,
    Signaled,
    /// The lease was lost while the command ran.
    Lost,
    TooLong,
    Revoked,
    /// The lease was released without a status: by its token, say.
    Released,
    /// The lease ran out before an end was reported.
    Expired,
    Running,
    /// This version cannot read the run, or does not know its outcome.
    #[serde(other)]
    Unreadable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End<'a> {
    /// None if no command was started under the lease: the run leaves nothing in the log.
    pub(crate) outcome: Option<RunOutcome>,
    /// The exit status, or the signal; None for other outcomes.
    pub(crate) code: Option<u32>,
    /// When the job ended; [`Boot::NEVER`] if no job is known.
    pub(crate) at: Boot,
    /// The job ended in time, but the lease may have run out afterwards. Then it is no loss that nodes lack the lease.
    pub(crate) has_run_out: bool,
    /// The last lines that the job wrote to its standard error, to be kept unless the run has succeeded.
    pub(crate) errors: Option<&'a str>,
}

impl End<'_> {
    pub(crate) const UNUSED: End<'static> =
        End { outcome: None, code: None, at: Boot::NEVER, has_run_out: false, errors: None };

    /// The end of a run that ends now, without a status.
    pub(crate) fn now(outcome: RunOutcome) -> End<'static> {
        End { outcome: Some(outcome), at: Boot::now(), ..End::UNUSED }
    }

    pub(in crate::lock) fn fields(self) -> Entry {
        let code = self.code.map(|code| code.to_string());
        let word = match self.outcome {
            Some(RunOutcome::Exited) => code.map(|code| ("x", code)),
            Some(RunOutcome::Signaled) => code.map(|code| ("s", code)),
            outcome => outcome.map(|outcome| ("o", outcome.to_string())),
        };
        let errors = self.errors.filter(|_| !self.has_succeeded()).map(|errors| ("e", errors.to_owned()));
        word.into_iter().chain(errors).map(|(letter, text)| (letter.to_owned(), text)).collect()
    }

    pub(in crate::lock) fn has_succeeded(self) -> bool {
        self.outcome == Some(RunOutcome::Exited) && self.code == Some(0)
    }

    /// True if this end turns into a loss when a quorum of the nodes has lost the lease.
    pub(in crate::lock) fn is_loss_if_gone(self) -> bool {
        self.outcome.is_some_and(|outcome| outcome != RunOutcome::Lost) && !self.has_run_out
    }
}

/// The name of the outcome in the scripts and in JSON.
impl fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl RunOutcome {
    /// The weight of this outcome if nodes disagree on a run. A reported end outweighs a loss, because a node that has
    /// forgotten the lease takes the end for a loss. A loss outweighs an expiry.
    pub(super) fn weight(self) -> u8 {
        match self {
            RunOutcome::Running | RunOutcome::Unreadable => 0,
            RunOutcome::Expired => 1,
            RunOutcome::Lost => 2,
            _ => 3,
        }
    }
}

fn short(text: &Option<String>, most: usize) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    text.iter().flat_map(|text| text.chars()).take(most).map(shown).collect()
}

pub(in crate::lock) fn kept_label(label: &Option<String>) -> String {
    short(label, 40)
}

/// What redlock knows of a run when it requests the lease. The server adds the rest, and the release adds the end.
/// None if the request asks for no trace in the log (`log` is zero).
pub(in crate::lock) fn entry(request: &Request, waited: Duration) -> Option<Entry> {
    let Request { owner, once_per, has_label, newest, log, is_acquired, .. } = request;
    let some = |is_so: bool, text: u128| if is_so { text.to_string() } else { String::new() };
    let fields = [
        ("h", short(&owner.host, 60)),
        ("p", owner.pid.map_or_else(String::new, |pid| pid.to_string())),
        ("u", short(&owner.user, 32)),
        ("l", kept_label(&owner.label)),
        ("w", some(waited.as_millis() > 0, waited.as_millis())),
        ("q", some(once_per.is_some(), 1)),
        ("g", some(once_per.is_some() && *has_label, 1)),
        ("a", some(*is_acquired, 1)),
        ("v", newest.map_or_else(String::new, |number| number.to_string())),
        ("n", some(*log != KEPT, (*log).into())),
    ];
    let known = fields.into_iter().filter(|(_, text)| !text.is_empty());
    (*log > 0).then(|| known.map(|(letter, text)| (letter.to_owned(), text)).collect())
}

/// The name of a revoker for the history: at most 100 characters, and `?` for a control character.
pub(in crate::lock) fn signature(by: &str) -> String {
    by.chars().take(100).map(|c| if c.is_control() { '?' } else { c }).collect()
}

pub(in crate::lock) fn json(entry: &Entry) -> String {
    serde_json::to_string(entry).unwrap_or_default()
}

impl Run {
    /// Reads a run from this text. A run without an outcome goes on if its token is one of `going`, the tokens that hold
    /// the lock on this node; otherwise its lease ran out. `now` is the node's clock.
    pub(in crate::lock) fn read(text: &str, going: &[&str], now: Option<Duration>) -> Run {
        let entry: BTreeMap<&str, Value> = serde_json::from_str(text).unwrap_or_default();
        let part = |letter: &str| entry.get(letter).and_then(Value::as_str);
        let owned = |letter: &str| part(letter).map(str::to_owned);
        let number = |letter: &str| part(letter)?.parse::<u64>().ok();
        let code = |letter: &str| part(letter)?.parse::<u8>().ok();
        let time = |letter: &str| number(letter).map(Duration::from_millis);
        let Some(token) = owned("t") else { return Run::unreadable(text) };
        let outcome = match (entry.get("o"), part("x"), part("s")) {
            (Some(word), ..) => RunOutcome::deserialize(word).unwrap_or(RunOutcome::Unreadable),
            (None, Some(_), _) => RunOutcome::Exited,
            (None, None, Some(_)) => RunOutcome::Signaled,
            (None, None, None) if going.contains(&token.as_str()) => RunOutcome::Running,
            (None, None, None) => RunOutcome::Expired,
        };
        let began = time("b");
        let ended = began.zip(time("d")).map(|(began, duration)| began.saturating_add(duration));
        let mut run = Run {
            token_prefix: Some(token::shown(&token)),
            token,
            owner: Owner { host: owned("h"), pid: number("p"), user: owned("u"), label: owned("l") },
            slot: part("i").and_then(|slot| slot.parse().ok()),
            began,
            ended: None,
            waited: time("w").or(Some(Duration::ZERO)),
            duration: None,
            outcome,
            status: code("x"),
            signal: code("s"),
            revoked_by: owned("y"),
            fencing_token: number("f"),
            errors: owned("e"),
            now,
            kept: number("n").unwrap_or(KEPT),
            is_acquired: part("a").is_some(),
            newest: number("v"),
            has_label: part("g").is_some(),
        };
        run.duration = run.began_ago().filter(|_| outcome == RunOutcome::Running);
        if let Some(ended) = ended {
            run.ended = Some(ended);
            run.duration = time("d");
        }
        run
    }

    fn unreadable(text: &str) -> Run {
        let run = Run::read(r#"{"t":""}"#, &[], None);
        let outcome = RunOutcome::Unreadable;
        Run { token: text.to_owned(), token_prefix: None, waited: None, outcome, ..run }
    }

    /// The same run, with its times by the clock of the node that reports it as `other`.
    pub(super) fn by_clock_of(mut self, other: &Run) -> Run {
        (self.began, self.now) = (other.began, other.now);
        self.ended = self.ended.and(self.began.zip(self.duration)).map(|(began, duration)| began + duration);
        self
    }

    /// When the run ended; if that is not known, when it began.
    pub(crate) fn last_known(&self) -> Option<Duration> {
        self.ended.or(self.began)
    }

    /// The sort key of runs: first the runs that go on, then the ended runs, each from the newest to the oldest.
    pub(in crate::lock) fn age(&self) -> Age {
        (self.outcome != RunOutcome::Running, Reverse(self.last_known()))
    }

    /// How long ago the run ended; if that is not known, how long ago it began.
    pub(crate) fn ago(&self) -> Option<Duration> {
        Some(self.now?.saturating_sub(self.last_known()?))
    }

    pub(crate) fn began_ago(&self) -> Option<Duration> {
        Some(self.now?.saturating_sub(self.began?))
    }

    /// True if the run began or ended in the future, by more than [`FUTURE`].
    pub(crate) fn is_ahead(&self) -> bool {
        self.now.zip(self.last_known()).is_some_and(|(now, known)| known > now + FUTURE)
    }

    pub(crate) fn result(&self) -> String {
        match (self.outcome, self.status, self.signal) {
            (RunOutcome::Exited, Some(status), _) => format!("exit {status}"),
            (RunOutcome::Signaled, _, Some(signal)) => signals::name(signal.into()),
            (RunOutcome::Exited | RunOutcome::Signaled, ..) => "ended".to_owned(),
            (RunOutcome::Lost, ..) => "lease lost".to_owned(),
            (RunOutcome::TooLong, ..) => "--max-run".to_owned(),
            (RunOutcome::Revoked, ..) => match &self.revoked_by {
                Some(by) => format!("revoked by {}", safe(by)),
                None => "revoked".to_owned(),
            },
            (RunOutcome::Released, ..) => "released".to_owned(),
            (RunOutcome::Expired, ..) => "lease ran out".to_owned(),
            (RunOutcome::Running, ..) => "running".to_owned(),
            (RunOutcome::Unreadable, ..) => "cannot be read".to_owned(),
        }
    }

    pub(crate) fn succeeded(&self) -> bool {
        self.outcome == RunOutcome::Exited && self.status == Some(0)
    }

    /// A release without a status, or an expiry, shows no failure.
    pub(in crate::lock) fn failed(&self) -> bool {
        self.outcome.weight() > 1 && self.outcome != RunOutcome::Released && !self.succeeded()
    }

    pub(crate) fn went_wrong(&self) -> bool {
        self.failed() || matches!(self.outcome, RunOutcome::Expired | RunOutcome::Unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Reenter;
    use crate::lock::history::periods::OncePer;

    fn run(end: &str) -> Run {
        let begun = r#""t":"aaaaaaaa77","h":"web-3","p":"42","u":"deploy","l":"nightly","b":"1763715123004","f":"7""#;
        let now = Some(Duration::from_millis(1_763_715_200_000));
        Run::read(&format!("{{{begun}{end}}}"), &[], now)
    }

    #[test]
    fn an_entry_has_what_redlock_knows_of_its_run() {
        let owner =
            Owner { host: Some("h".repeat(70)), pid: Some(42), user: Some("a\u{7}\"b".to_owned()), label: None };
        let ttl = Duration::from_secs(1);
        let request = |log, once_per| Request {
            ttl,
            wait: ttl,
            owner: owner.clone(),
            ancestors: Vec::new(),
            reenter: Reenter::No,
            noted: false,
            is_acquired: false,
            called: Boot::now(),
            once_per,
            has_label: true,
            newest: None,
            log,
        };
        let host = "h".repeat(60);
        let text = |request: &Request, waited| entry(request, waited).map(|entry| json(&entry));
        let usual = text(&request(KEPT, None), Duration::ZERO);
        assert_eq!(usual, Some(format!(r#"{{"h":"{host}","p":"42","u":"a?\"b"}}"#)));
        let once = OncePer { period: ttl, wait: None, tries: None, due: None };
        let rare = text(&request(5, Some(once)), Duration::from_millis(7));
        assert_eq!(rare, Some(format!(r#"{{"g":"1","h":"{host}","n":"5","p":"42","q":"1","u":"a?\"b","w":"7"}}"#)));
        let acquired = text(&Request { is_acquired: true, ..request(KEPT, None) }, Duration::ZERO);
        assert_eq!(acquired, Some(format!(r#"{{"a":"1","h":"{host}","p":"42","u":"a?\"b"}}"#)));
        assert_eq!(text(&request(0, None), Duration::ZERO), None);
    }

    #[test]
    fn entries_are_read() {
        let ended = run(r#","w":"40","d":"1000","x":"3","later":{"a":[1]}"#);
        assert_eq!((ended.outcome, ended.status, ended.signal), (RunOutcome::Exited, Some(3), None));
        assert_eq!((ended.duration, ended.waited), (Some(Duration::from_secs(1)), Some(Duration::from_millis(40))));
        assert_eq!((ended.token_prefix.as_deref(), ended.owner.host.as_deref()), (Some("aaaaaaaa"), Some("web-3")));
        let killed = run(r#","d":"1000","s":"9""#);
        assert_eq!((killed.outcome, killed.status, killed.signal), (RunOutcome::Signaled, None, Some(9)));
        assert_eq!((run("").outcome, run("").duration, run("").ended), (RunOutcome::Expired, None, None));
        // The release reported a status after the expiry.
        let late = run(r#","x":"0","o":"expired""#);
        assert_eq!((late.outcome, late.status, late.succeeded()), (RunOutcome::Expired, Some(0), false));
        assert!(run(r#","d":"1000","x":"0""#).succeeded());
        assert_eq!((run(r#","b":1"#).began, run(r#","o":"later""#).outcome), (None, RunOutcome::Unreadable));
        for text in ["", "x", "{}", "[]", r#"{"t":7}"#, "null"] {
            assert_eq!(Run::read(text, &[], None).outcome, RunOutcome::Unreadable, "{text}");
        }
    }
}
