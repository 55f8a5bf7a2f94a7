//! The history of runs, in the model of a lock. The head of log.lua says what the letters of a run mean.

use super::model::{Model, RUN_ID, Scores, in_order, node};
use redlock::lock::history::periods::is_within;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct History {
    /// The run that began last is in front.
    pub(super) log: Vec<Json>,
    pub(super) runs: BTreeMap<&'static str, Json>,
    /// Host → ten times the ms of its last call, plus a digit for the call's result.
    pub(super) visits: Scores,
    /// Token → beginning (ms) of the runs that count for `--tries`.
    pub(super) tries: Scores,
}

pub(super) fn number(run: &Json, name: &str) -> i64 {
    run[name].as_str().map_or(0, |text| text.parse().unwrap())
}

fn most(run: &Json) -> usize {
    run["n"].as_str().map_or(20, |most| most.parse().unwrap())
}

fn has_end(run: &Json) -> bool {
    ["x", "s", "o"].iter().any(|name| run[name].is_string())
}

/// Whether the end of a run counts as a success or as a failure; None: as neither.
fn result_of(run: &Json) -> Option<&'static str> {
    match (run["o"].as_str(), run["x"].as_str()) {
        (Some("released" | "expired"), _) => None,
        (None, Some("0")) => Some("success"),
        _ => Some("failure"),
    }
}

/// Adds to one of the two numbers of ended runs.
fn add(runs: &mut BTreeMap<&'static str, Json>, field: &'static str, more: i64) {
    let count = runs.get(field).map_or(0, |count| count.as_str().unwrap().parse().unwrap());
    runs.insert(field, json!((count + more).to_string()));
}

/// The grant and the undoing of a run.
impl Model {
    /// The grant puts the run in front of the log, and cuts the log only far above the number of runs that it keeps.
    pub(super) fn begin_run(&mut self, began: i64, fence: i64, slot: Option<i64>) {
        let Some(entry) = self.arg("entry") else { return };
        let mut run: Json = serde_json::from_str(&entry).unwrap();
        for (name, value) in [("t", self.token()), ("b", began.to_string()), ("f", fence.to_string())] {
            run[name] = json!(value);
        }
        if let Some(slot) = slot {
            run["i"] = json!(slot.to_string());
        }
        self.history.log.insert(0, run.clone());
        self.history.log.truncate((most(&run) + 20).max(40));
    }

    /// Deletes a run that never ran.
    pub(super) fn delete_run(&mut self, token: &str) {
        if self.args.contains_key("tries") {
            self.history.tries.remove(token);
        }
        let at = self.history.log.iter().position(|run| run["t"] == token);
        at.map(|at| self.history.log.remove(at));
    }
}

/// The ends of runs.
impl Model {
    /// Writes the end of this token's run. The first end stays; but a loss takes a success back, and errors are added.
    pub(super) fn end_run(&mut self, token: &str, mut end: Json) {
        let errors = end.as_object_mut().unwrap().remove("e");
        let (is_lost, now) = (end["o"] == "lost", self.ms());
        let History { log, runs, .. } = &mut self.history;
        if is_lost {
            runs.retain(|field, run| !["success", "once"].contains(field) || run["t"] != token);
        }
        let at = log.iter().position(|run| run["t"] == token);
        // An exit or a signal, reported with the beginning that the log has, replaces the text.
        let replaces = |run: &Json| !has_end(run) && run["b"] == end["b"] && end["o"].is_null() && errors.is_none();
        let mut run = at.map(|at| log[at].clone()).filter(|run| !replaces(run)).unwrap_or(end.clone());
        if at.is_some_and(|at| has_end(&log[at])) {
            if !is_lost || result_of(&run) != Some("success") {
                let failure = runs.get_mut("failure").filter(|run| run["t"] == token && run["e"].is_null());
                failure.zip(errors).into_iter().for_each(|(failure, errors)| failure["e"] = errors);
                return;
            }
            run["x"].take();
            add(runs, "succeeded", -1);
        }
        for (name, value) in end.as_object().unwrap() {
            if run[name].is_null() {
                run[name] = value.clone();
            }
        }
        if run["b"].is_null() {
            return;
        }
        if run["d"].is_null() && run["o"] != "expired" {
            run["d"] = json!((now - number(&run, "b")).max(0).to_string());
        }
        run.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        match at {
            Some(at) => log[at] = run.clone(),
            None => log.insert(0, run.clone()),
        }
        log.truncate(most(&run));
        let Some(result) = result_of(&run) else { return };
        let is_newest = |once: &Json| number(once, "f") <= number(&run, "f");
        if result == "success" && run["q"] == "1" && runs.get("once").is_none_or(is_newest) {
            runs.insert("once", run.clone());
        }
        add(runs, if result == "success" { "succeeded" } else { "failed" }, 1);
        // The run that began last counts as the last to end, too. A run that ended in the future ended before a clock
        // was set back.
        let ended = |run: &Json| number(run, "b") + number(run, "d");
        let known = runs.get(result).map_or(0, ended);
        if at == Some(0) || known <= ended(&run) || known > now {
            run["e"] = errors.filter(|_| result == "failure").unwrap_or_default();
            run.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            runs.insert(result, run);
        }
    }

    /// The end that a release reports.
    fn reported_end(&self) -> Json {
        self.arg("run").map_or(json!({"o": "released"}), |run| serde_json::from_str(&run).unwrap())
    }

    /// The release of a lease that the node has. `by`: who has revoked it.
    pub(super) fn end_released(&mut self, by: Option<String>) {
        let (token, mut end) = (self.token(), self.reported_end());
        if self.args.contains_key("unused") {
            return self.delete_run(&token);
        }
        if let Some(by) = by.filter(|_| end["o"] == "lost" || end["b"].is_null()) {
            end.as_object_mut().unwrap().retain(|name, _| !["x", "s", "o"].contains(&name.as_str()));
            (end["o"], end["y"]) = (json!("revoked"), json!(by));
        }
        self.end_run(&token, end);
    }

    /// The release of a lease that the node does not have. Returns what the history knows of the run.
    pub(super) fn end_without_lease(&mut self) -> Option<&'static str> {
        let (token, has_room) = (self.token(), self.is_vacant());
        let text = self.history.log.iter().find(|run| run["t"] == token);
        let is_open = text.is_some_and(|run| !has_end(run));
        let is_reported =
            |run: &Json| has_end(run) && !["lost", "revoked", "expired"].iter().any(|word| run["o"] == *word);
        let known = text.map(|run| if is_reported(run) { "ended" } else { "known" });
        let forgot = self.arg("run_id").is_none_or(|run_id| run_id != RUN_ID);
        let end = self.reported_end();
        if self.args.contains_key("unused") {
            self.delete_run(&token);
        } else if self.args.contains_key("final") || known.is_none() && forgot && has_room && end["b"].is_string() {
            self.end_run(&token, end);
        } else if is_open && end["b"].is_null() && end["x"].is_string() {
            self.end_run(&token, json!({"o": "expired", "x": end["x"]}));
        }
        known
    }
}

/// The visits of hosts, and the last success.
impl Model {
    /// Notes the time and the result of the host's TAKE. `met`: the digit for the result (see note_visit in take.lua).
    pub(super) fn note_visit(&mut self, met: i64) {
        if self.args.contains_key("entry") {
            self.history.visits.insert(self.args["host"].clone(), self.ms() * 10 + met);
        }
    }

    /// The answer `ran` to a TAKE with `--once-per`, if the last success is recent. None: this TAKE may be granted.
    pub(super) fn recent_success(&self) -> Option<Json> {
        let run = self.history.runs.get("once")?;
        let ran = json!({"outcome": "ran", "success": run, "clock": self.ms().to_string()});
        self.is_within(number(run, "b")).then_some(ran)
    }

    /// The answer `tried` to a TAKE with `--tries`, if enough runs have begun lately. None: this TAKE may be granted.
    pub(super) fn tried_enough(&self) -> Option<Json> {
        let recent = in_order(&self.history.tries).into_iter().filter(|(_, began)| self.is_within(*began));
        let recent: Vec<(String, i64)> = recent.collect();
        let count = i64::try_from(recent.len()).unwrap();
        (count >= self.int("tries")?).then(|| {
            let of_last = |run: &&Json| recent.last().is_some_and(|(token, _)| run["t"] == json!(token));
            let (last, going) = (self.history.log.iter().find(of_last), self.value());
            let (first, clock) = (recent.first().map(|(_, began)| began.to_string()), self.ms().to_string());
            json!({"outcome": "tried", "tries": count, "first": first, "last": last, "going": going, "clock": clock})
        })
    }

    /// True if a run that began then (ms) counts for the call with `--once-per`.
    fn is_within(&self, began: i64) -> bool {
        let [reach, now, began] =
            [self.int("once").unwrap_or(0), self.ms(), began].map(|ms| Duration::from_millis(ms.max(0) as u64));
        is_within(reach, now, began)
    }

    /// Counts the run of the call's token.
    pub(super) fn count_try(&mut self, began: i64) {
        let token = self.token();
        self.history.tries.insert(token, began);
    }

    /// The answer of runs.lua.
    pub(super) fn report_runs(&self) -> Json {
        let (History { log, runs, visits, .. }, is_held) = (&self.history, self.held_claim().is_some());
        let members = is_held.then_some(self.members.value.len());
        let most = usize::try_from(self.int("most").unwrap()).unwrap() + members.unwrap_or(1);
        let texts = &log[..most.min(log.len())];
        let holding = texts.iter().map(|run| &run["t"]).filter(|token| is_held && self.has(token.as_str().unwrap()));
        let value = self.lock.as_ref().map_or(Some(Json::Null), |lock| lock.value.as_ref().map(|value| json!(value)));
        let going: Vec<_> = value.into_iter().chain(holding.cloned()).collect();
        let newest = self.arg("newest").and(self.newest.as_deref());
        let visits = self
            .arg("hosts")
            .or(newest.map(str::to_owned))
            .map(|_| in_order(visits).into_iter().flat_map(|(host, at)| [host, at.to_string()]));
        let mut answer = json!({"outcome": "runs", "clock": self.ms().to_string(), "members": members, "going": going});
        (answer["texts"], answer["more"]) = (json!(texts), json!((texts.len() == most).then_some(1)));
        answer["visits"] = visits.map_or(Json::Null, Iterator::collect);
        for field in ["success", "failure", "succeeded", "failed"] {
            answer[field] = json!(runs.get(field));
        }
        let is_known = !log.is_empty() || ["success", "failure"].iter().any(|field| runs.contains_key(field));
        if !is_known {
            (answer["node"], answer["counters"]) = (node(), json!(self.kinds_of_counters()));
        }
        answer["newest"] = json!(newest);
        answer
    }
}
