//! The memory of runs, in the model of a lock. The head of end.lua says what the letters of a run mean.

use super::model::{Model, RUN_ID, Scores, in_order};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Token → a run without a known end: the run goes on, or its lease has expired without a release.
    pub(super) open: BTreeMap<String, Json>,
    pub(super) ends: Scores,
    /// The run that ended last is in front.
    pub(super) log: Vec<Json>,
    /// The runs that the last call has cut off the model's log, since the log was full. If several runs ended in the
    /// same millisecond, the script may have kept one of these runs, and cut off another run.
    pub(super) cut: Vec<Json>,
    pub(super) runs: BTreeMap<&'static str, Json>,
    /// Host → ten times the ms of the host's last call, plus a digit for the call's result.
    pub(super) visits: Scores,
    /// The newest error is in front.
    pub(super) errors: Vec<Json>,
}

fn number(run: &Json, name: &str) -> i64 {
    run[name].as_str().map_or(0, |text| text.parse().unwrap())
}

pub(super) fn began_at(run: &Json) -> i64 {
    number(run, "b")
}

pub(super) fn ended_at(run: &Json) -> i64 {
    began_at(run) + number(run, "d")
}

/// Whether the end of a run counts as a success or as a failure; None: as neither.
fn result_of(run: &Json) -> Option<&'static str> {
    match (run["o"].as_str(), run["x"].as_str()) {
        (Some("released" | "expired"), _) => None,
        (_, Some("0")) => Some("success"),
        _ => Some("failure"),
    }
}

fn has_outcome(run: &Json) -> bool {
    ["x", "s", "o"].iter().any(|name| run[name].is_string())
}

/// True if a release has told how the run ended. The outcomes lost, revoked and expired do not count as told.
fn is_told(run: &Json) -> bool {
    run["o"].as_str().map_or(has_outcome(run), |word| ["too-long", "released"].contains(&word))
}

fn outcome_of(word: &str, code: Option<&str>, by: Option<&str>) -> Json {
    let mut outcome = match word {
        "exited" => json!({"x": code}),
        "signaled" => json!({"s": code}),
        _ => json!({"o": word}),
    };
    outcome["y"] = json!(by);
    outcome
}

/// The run with this end (ms since 1970) and this outcome. They replace the end and outcome that the run had.
fn with_end(mut run: Json, ended: i64, outcome: &Json) -> Json {
    let fields = run.as_object_mut().unwrap();
    fields.retain(|name, _| !["d", "x", "s", "o", "y"].contains(&name.as_str()));
    let told = outcome.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    fields.extend(told.map(|(name, value)| (name.clone(), value.clone())));
    run["d"] = json!((ended - began_at(&run)).max(0).to_string());
    run
}

impl Model {
    /// The run that the RELEASE tells in its arguments; None: the RELEASE tells no run.
    fn told_run(&self) -> Option<Json> {
        let mut run: Json = serde_json::from_str(&self.arg("entry")?).unwrap();
        run["b"] = json!((self.ms() - self.int("began")?).to_string());
        Some(run)
    }

    fn new_run(&self, began: i64, fence: &str, slot: Option<String>) -> Option<Json> {
        let mut run: Json = serde_json::from_str(&self.arg("entry")?).unwrap();
        for (name, value) in [("t", self.token()), ("b", began.to_string()), ("f", fence.to_owned())] {
            run[name] = json!(value);
        }
        if let Some(slot) = slot {
            run["i"] = json!(slot);
        }
        Some(run)
    }

    pub(super) fn remember_begin(&mut self, fence: &str, slot: Option<String>) {
        let began = self.ms() - self.int("held").unwrap_or(0);
        let Some(run) = self.new_run(began, fence, slot) else { return };
        self.memory.open.insert(self.token(), run);
        self.memory.ends.insert(self.token(), self.ms() + self.int("ttl").unwrap());
    }

    pub(super) fn remember_deadline(&mut self, token: &str, ttl: i64) {
        let ends = self.ms() + ttl;
        self.memory.ends.entry(token.to_owned()).and_modify(|deadline| *deadline = ends);
    }

    pub(super) fn take_open(&mut self, token: &str) -> Option<Json> {
        self.memory.ends.remove(token);
        self.memory.open.remove(token)
    }

    /// If `--force` ended this run: the time (ms), and the outcome with the user's name. None: the run had no lease
    /// when `--force` freed the lock. `deadline`: the end of the run's lease (ms); None: unknown.
    fn forced_end(&self, run: &Json, deadline: Option<i64>) -> Option<(i64, Json)> {
        let forced = self.memory.runs.get("forced")?;
        let at = number(forced, "b");
        let is_meant = began_at(run) <= at && deadline.is_none_or(|deadline| deadline >= at);
        is_meant.then(|| (at, outcome_of("revoked", None, forced["y"].as_str())))
    }

    pub(super) fn close_runs(&mut self) {
        let (token, now, has_members) = (self.token(), self.ms(), self.held_claim().is_some());
        let over = in_order(&self.memory.ends);
        let over = over.into_iter().filter(|(other, ends)| *other != token && (!has_members || *ends <= now));
        let asked = self.arg("entry").map(|entry| number(&serde_json::from_str(&entry).unwrap(), "n"));
        let mut closed = Vec::new();
        for (token, ends) in over {
            let Some(run) = self.take_open(&token) else { continue };
            let ended = ends.min(now);
            let (at, outcome) = self.forced_end(&run, Some(ended)).unwrap_or((ended, json!({})));
            let run = with_end(run, at, &outcome);
            closed.push(run);
        }
        if let Some(last) = closed.last() {
            let most = asked.unwrap_or(number(last, "n"));
            self.push(closed, Some(most));
        }
    }

    /// Puts these runs into the log, and sorts the log by the ends of the runs. Cuts the log to the newest `most` runs
    /// (None: cuts nothing).
    fn push(&mut self, runs: Vec<Json>, most: Option<i64>) {
        let log = &mut self.memory.log;
        log.splice(0..0, runs.into_iter().rev());
        log.sort_by_key(|run| -ended_at(run));
        let most = most.map_or(log.len(), |most| usize::try_from(most).unwrap().min(log.len()));
        let cut = log.split_off(most);
        if !cut.is_empty() {
            self.memory.runs.insert("cut", json!("1"));
        }
        self.memory.cut.extend(cut);
    }

    /// Keeps this run as the last run with this result (`success` or `failure`), unless such a run ended later.
    fn keep_last(&mut self, run: &Json, result: &'static str) {
        let runs = &mut self.memory.runs;
        if runs.get(result).map_or(0, ended_at) <= ended_at(run) {
            runs.insert(result, run.clone());
        }
    }

    /// Notes that a run with `--once-per` has succeeded, or has lost its lease. Keeps the notes of the two runs with
    /// the largest fencing tokens.
    fn note_once(&mut self) {
        let Some(run) = self.told_run().filter(|_| self.args.contains_key("once")) else { return };
        let (is_loss, code) = (self.arg("gone").as_deref() == Some("lost"), self.arg("code"));
        let outcome = outcome_of(if is_loss { "lost" } else { "exited" }, code.as_deref(), None);
        let run = with_end(run.clone(), self.end_of(&run), &outcome);
        let known = ["once", "once_before"].map(|field| (field, self.memory.runs.get(field).cloned()));
        let is_this = |(_, known): &&(&str, Option<Json>)| known.as_ref().is_some_and(|known| known["t"] == run["t"]);
        let fence_of = |known: &Option<Json>| known.as_ref().map_or(0, |known| number(known, "f"));
        let (fence, runs) = (number(&run, "f"), &mut self.memory.runs);
        if let Some((field, _)) = known.iter().find(is_this) {
            if is_loss {
                runs.insert(field, run);
            }
        } else if fence > fence_of(&known[0].1) {
            runs.extend(known[0].1.clone().map(|known| ("once_before", known)));
            runs.insert("once", run);
        } else if fence > fence_of(&known[1].1) {
            runs.insert("once_before", run);
        }
    }

    fn count(&mut self, result: &str, more: i64) {
        let field = if result == "success" { "succeeded" } else { "failed" };
        let count = self.memory.runs.get(field).map_or(0, |count| count.as_str().unwrap().parse().unwrap());
        self.memory.runs.insert(field, json!((count + more).to_string()));
    }

    fn count_end(&mut self, run: &Json) {
        if let Some(result) = result_of(run) {
            self.keep_last(run, result);
            self.count(result, 1);
        }
    }

    /// Writes a run with its end into the log. `logged`: the position of this run in the log, whose old entry is
    /// removed; None: the log does not have this run yet.
    fn log_end(&mut self, run: Json, ended: i64, outcome: &Json, logged: Option<usize>) {
        let most = if logged.is_some() { None } else { Some(number(&run, "n")) };
        if let Some(at) = logged {
            self.memory.log.remove(at);
        }
        let run = with_end(run, ended, outcome);
        self.count_end(&run);
        self.push(vec![run], most);
    }

    fn end_of(&self, run: &Json) -> i64 {
        let ended = self.int("ended").unwrap_or(0);
        self.int("began").map_or(self.ms() - ended, |began| began_at(run) + (began - ended).max(0))
    }

    pub(super) fn remember_end(&mut self, token: &str, word: &str, code: Option<&str>, by: Option<&str>) {
        if let Some(run) = self.take_open(token).filter(|_| word != "unused") {
            self.log_end(run.clone(), self.end_of(&run), &outcome_of(word, code, by), None);
        }
    }

    /// Notes the release of a lease that the node has.
    pub(super) fn remember_release(&mut self, token: &str) {
        let is_unsure = self.arg("outcome").as_deref() == Some("lost") || !self.args.contains_key("began");
        self.note_once();
        let by = self.record(token).filter(|_| is_unsure).and_then(|record| self.revoked_by(record));
        let told = self.arg("gone").or(self.arg("outcome")).unwrap_or("released".to_owned());
        let (word, code) = (if by.is_some() { "revoked" } else { &told }, self.arg("code"));
        if self.args.contains_key("gone") {
            self.correct_end(token, word, code.as_deref(), by.as_deref(), false);
        } else {
            self.remember_end(token, word, code.as_deref(), by.as_deref());
        }
        self.keep_errors();
    }

    /// Adds the errors that the RELEASE sends, unless errors of this run are there already. Keeps the newest ten.
    fn keep_errors(&mut self) {
        let Some(given) = self.arg("errors") else { return };
        let (given, errors) = (serde_json::from_str::<Json>(&given).unwrap(), &mut self.memory.errors);
        if errors.iter().all(|kept| kept["t"] != given["t"]) {
            errors.insert(0, given);
            errors.truncate(10);
        }
    }

    /// Notes the release of a lease that the node does not have. Returns what the memory knows about the run; None: the
    /// memory knows nothing.
    pub(super) fn remember_late(&mut self) -> Option<&'static str> {
        let (token, code, gone) = (self.token(), self.arg("code"), self.arg("gone"));
        let known = self.told_end(&token);
        self.note_once();
        let has_restarted = self.arg("run_id").is_some_and(|run_id| run_id != RUN_ID);
        if known.is_none() && has_restarted && (gone.is_some() || self.is_vacant()) {
            let word = gone.or(self.arg("outcome")).filter(|word| word != "unused");
            if let (Some(word), Some(run)) = (word, self.told_run()) {
                self.log_end(run.clone(), self.end_of(&run), &outcome_of(&word, code.as_deref(), None), None);
            }
            self.keep_errors();
        } else if let Some(gone) = gone {
            self.correct_end(&token, &gone, code.as_deref(), None, false);
            self.keep_errors();
        } else if code.is_some() && !self.args.contains_key("began") {
            self.correct_end(&token, "expired", code.as_deref(), None, true);
        }
        known
    }

    fn told_end(&self, token: &str) -> Option<&'static str> {
        if self.memory.open.contains_key(token) {
            return Some("known");
        }
        if let Some(run) = self.memory.log.iter().find(|run| run["t"] == token) {
            return Some(if is_told(run) { "ended" } else { "known" });
        }
        let oldest = self.memory.log.last().filter(|_| self.memory.runs.contains_key("cut"))?;
        (ended_at(oldest) > self.ms() - self.int("ended").unwrap_or(0) - 5000).then_some("unsure")
    }

    /// Writes the end of a run whose lease was lost, or is not on this node. Changes nothing if the log has an outcome
    /// of the run. `by`: the user who revoked the lease; None: nobody. `late`: the lease expired before the release.
    fn correct_end(&mut self, token: &str, word: &str, code: Option<&str>, by: Option<&str>, late: bool) {
        let deadline = self.memory.ends.get(token).copied();
        let (mut run, mut logged) = (self.take_open(token), None);
        if word == "unused" {
            return;
        }
        if run.is_none() {
            logged = self.memory.log.iter().position(|run| run["t"] == token);
            run = logged.map(|at| self.memory.log[at].clone());
            run = run.filter(|run| !has_outcome(run));
        }
        let Some(run) = run else { return };
        let mut end = (self.end_of(&run), outcome_of(word, code, by));
        if late {
            end = (deadline.unwrap_or(i64::MAX).min(self.ms()), json!({"o": "expired", "x": code}));
            end.0 = logged.map_or(end.0, |_| ended_at(&run));
        } else if let Some(forced) = self.forced_end(&run, deadline) {
            end = forced;
        }
        self.log_end(run, end.0, &end.1, logged);
    }

    pub(super) fn remember_force(&mut self) {
        if !self.memory.open.is_empty() {
            let forced = json!({"t": "", "b": self.ms().to_string(), "y": self.arg("by")});
            self.memory.runs.insert("forced", forced);
        }
    }

    /// Notes the time and the result of the host's TAKE. `met`: the digit for the result (see note_visit in take.lua).
    pub(super) fn note_visit(&mut self, met: i64) {
        if self.args.contains_key("entry") {
            self.memory.visits.insert(self.args["host"].clone(), self.ms() * 10 + met);
        }
    }

    /// The ms since the host's previous TAKE; None if no previous TAKE is known, or if the client is a waiter.
    pub(super) fn came_before(&self) -> Option<i64> {
        let last = self.memory.visits.get(&self.args["host"]).filter(|_| !self.args.contains_key("waiter"));
        last.map(|last| self.ms() - last / 10)
    }

    /// The answer `ran` to a TAKE with `--once-per`, if the last success is recent. None: this TAKE may be granted.
    pub(super) fn recent_success(&self) -> Option<Json> {
        let once = self.int("once")?;
        let known = ["once", "once_before"].into_iter().filter_map(|field| self.memory.runs.get(field));
        let run = known.clone().find(|run| run["o"] != "lost")?;
        let is_recent = (self.ms() - number(run, "b")).abs() < once;
        let (clock, came) = (self.ms().to_string(), self.came_before());
        is_recent.then(|| json!({"outcome": "ran", "success": run, "clock": clock, "came": came}))
    }
}
