//! Compares what people see of the history with `redlock log --format json`, which memory.rs has judged: each line of
//! the log, each row and bar of the page, each line of the chart, and the last runs in `status`.

use super::Place;
use super::contender::redlock;
use regex_lite::Regex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Stdio;

/// Returns what is untrue. `reported`: the runs, as objects of JSON, the oldest first.
pub(super) fn judge(place: &Place, reported: &[Value]) -> Vec<String> {
    let outputs = [
        "log -n 100000",
        "log --format html --since 1h",
        "log --format chart --since 1h",
        "status -a --format json",
        "status -a",
    ];
    let mut untrue = Vec::new();
    let mut texts = Vec::new();
    for line in outputs {
        let mut call = redlock(&line.split(' ').collect::<Vec<_>>());
        call.env_clear().envs(place.environment(0)).env("TZ", "UTC").env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        let output = call.output().unwrap();
        if !output.status.success() {
            untrue.push(format!("shown: {line}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
        }
        texts.push(String::from_utf8(output.stdout).unwrap());
    }
    let [log, page, chart, list, table] = &texts[..] else { unreachable!() };
    untrue.extend(lines(reported, log));
    untrue.extend(rows(reported, page));
    untrue.extend(bars(reported, chart));
    untrue.extend(last_runs(reported, list, table));
    untrue
}

fn text<'a>(run: &'a Value, field: &str) -> &'a str {
    run[field].as_str().unwrap_or_default()
}

/// How the run ended, in the words of the log.
fn result(run: &Value) -> String {
    let signals = [(1, "SIGHUP"), (2, "SIGINT"), (3, "SIGQUIT"), (9, "SIGKILL"), (15, "SIGTERM")];
    match text(run, "outcome") {
        "exited" => format!("exit {}", run["status"]),
        "signaled" => {
            signals.iter().find(|one| Some(one.0) == run["signal"].as_i64()).map_or("?", |one| one.1).to_owned()
        }
        "lost" => "lease lost".to_owned(),
        "too-long" => "--max-run".to_owned(),
        "revoked" => format!("revoked by {}", text(run, "revoked_by")),
        "expired" => "lease ran out".to_owned(),
        other => other.to_owned(),
    }
}

fn went_wrong(run: &Value) -> bool {
    !["exited", "released"].contains(&text(run, "outcome")) || run["status"].as_i64().is_some_and(|status| status != 0)
}

/// `2026-11-29 01:28:24 +0000`
fn began(run: &Value) -> String {
    text(run, "began_at").get(..19).map_or("-".to_owned(), |time| time.replace('T', " ") + " +0000")
}

/// `2026-11-29 01:28:24`: the zone is in the title of the page.
fn without_zone(run: &Value) -> String {
    began(run).trim_end_matches(" +0000").to_owned()
}

fn differs(what: &str, runs: Vec<String>, shown: Vec<String>) -> Vec<String> {
    let count = |runs: &[String], run: &String| runs.iter().filter(|one| *one == run).count();
    let only = |one: &[String], other: &[String], word: &str| -> Vec<String> {
        let missing = one.iter().filter(|run| count(other, run) < count(one, run));
        missing.map(|run| format!("shown: {word} {what}: {run}")).collect()
    };
    [only(&runs, &shown, "missing from"), only(&shown, &runs, "only in")].concat()
}

/// The lines of the log have the same runs.
fn lines(reported: &[Value], log: &str) -> Vec<String> {
    let cells = Regex::new(r"^(\S+ \S+ \S+) +(\S+) +(\S+) +(\S+(?: \(.*?\))?) {2,}(?:slot \d+, )?(.*)$").unwrap();
    let read = |line: &str| match cells.captures(line) {
        Some(cell) => format!("{} {} {}", &cell[1], &cell[2], &cell[5]),
        None => line.to_owned(),
    };
    let runs = reported.iter().map(|run| format!("{} {} {}", began(run), text(run, "name"), result(run)));
    differs("the log", runs.collect(), log.lines().map(read).collect())
}

/// The table of the page has the same runs, and the picture has a bar or a cross for each.
fn rows(reported: &[Value], page: &str) -> Vec<String> {
    let row = Regex::new(
        r#"<tr><td>([^<]*)<td>([^<]*)<td>([^<]*)<td>[^<]*<td>[^<]*<td( class="f")?>(?:✗ )?(?:slot \d+, )?([^<\n]*)"#,
    )
    .unwrap();
    let shown = row
        .captures_iter(page)
        .map(|row| format!("{} {} {} {} {}", &row[1], &row[2], &row[3] == "-", row.get(4).is_some(), &row[5]));
    let runs = reported.iter().map(|run| {
        let (name, began) = (text(run, "name"), without_zone(run));
        format!("{began} {name} {} {} {}", run["duration_ms"].is_null(), went_wrong(run), result(run))
    });
    let untrue = differs("the page", runs.collect(), shown.collect());
    let bar =
        Regex::new(r#"<g class="(.)"><title>[^<]*: (?:slot \d+, )?([^<:]*?), (\S+ \S+), lasted [^<]*</title>(<rect)?"#)
            .unwrap();
    let drawn =
        bar.captures_iter(page).map(|bar| format!("{} {} {} {}", &bar[1], &bar[2], &bar[3], bar.get(4).is_some()));
    let runs = reported.iter().map(|run| {
        let class = if went_wrong(run) { "f" } else { "r" };
        format!("{class} {} {} {}", result(run), without_zone(run), !run["duration_ms"].is_null())
    });
    [untrue, differs("the picture", runs.collect(), drawn.collect())].concat()
}

/// A line of the chart has a cross only if a run of its lock went wrong, and a bar only if one did not; no run goes on.
fn bars(reported: &[Value], chart: &str) -> Vec<String> {
    let mut untrue = Vec::new();
    let mut runs: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    reported.iter().for_each(|run| runs.entry(text(run, "name")).or_default().push(run));
    let lines: BTreeMap<&str, &str> = chart.lines().filter_map(|line| Some((line.split(' ').next()?, line))).collect();
    for (name, runs) in runs {
        let line = lines.get(name).copied().unwrap_or_default();
        let wrong = runs.iter().any(|run| went_wrong(run));
        let (has_cross, has_bar) = (line.contains('✗'), line.contains('█'));
        if has_cross != wrong
            || !wrong && !has_bar
            || has_bar && runs.iter().all(|run| went_wrong(run))
            || line.contains('▒')
        {
            untrue.push(format!("shown: the chart of {name}, with {} runs: {line}", runs.len()));
        }
    }
    untrue
}

/// When the run ended; if nobody knows that, when it began.
fn last_known(run: &Value) -> &str {
    let ended = text(run, "ended_at");
    if ended.is_empty() { text(run, "began_at") } else { ended }
}

/// `status` has the runs that ended last, and nobody holds anything.
fn last_runs(reported: &[Value], list: &str, table: &str) -> Vec<String> {
    let mut untrue = Vec::new();
    let list: Value = serde_json::from_str(list).unwrap_or_default();
    let is_of_kind = |run: &Value, kind: &str| match kind {
        "last_success" => text(run, "outcome") == "exited" && !went_wrong(run),
        "last_failure" => went_wrong(run) && text(run, "outcome") != "expired",
        _ => true,
    };
    for lock in list["locks"].as_array().into_iter().flatten() {
        let name = text(lock, "name");
        let of_lock = || reported.iter().filter(|run| text(run, "name") == name);
        for kind in ["last", "last_success", "last_failure"] {
            let shown = &lock[kind];
            let newest = of_lock().filter(|run| is_of_kind(run, kind)).max_by_key(|run| last_known(run));
            let same = of_lock().find(|run| run["token_prefix"] == shown["token_prefix"]);
            let has_end = |run: &Value| !run["ended_at"].is_null();
            let is_true = same.is_none_or(|run| result(run) == result(shown) && has_end(run) == has_end(shown));
            // Of runs beside each other, the one whose end is reported last counts. (Each master has its own clock, too.)
            let is_newest = newest.is_none_or(|run| !shown.is_null() && text(run, "began_at") <= last_known(shown));
            if !shown.is_null() && !is_of_kind(shown, kind) || !is_true || !is_newest {
                untrue.push(format!("shown: {kind} of {name} in status: {shown}; in the log: {newest:?}"));
            }
        }
        if lock["state"] != "free" {
            untrue.push(format!("shown: {lock}"));
        }
        let row = table.lines().find(|line| line.split(' ').next() == Some(name)).unwrap_or_default();
        if !lock["last"].is_null() && !row.contains(&result(&lock["last"])) {
            untrue.push(format!("shown: the table's last run of {name}: {row}; in JSON: {}", lock["last"]));
        }
    }
    let listed =
        |name: &str| list["locks"].as_array().is_some_and(|locks| locks.iter().any(|lock| text(lock, "name") == name));
    untrue.extend(
        reported
            .iter()
            .map(|run| text(run, "name"))
            .filter(|name| !listed(name))
            .map(|name| format!("shown: {name} is missing from status")),
    );
    untrue
}

mod tests {
    use super::{bars, last_runs, lines, rows};
    use serde_json::{Value, json};

    fn reported() -> Vec<Value> {
        let run = |token: &str, outcome: &str, status: Value, second: &str| {
            let ended = (outcome != "expired").then(|| format!("2026-11-29T01:28:{second}.633Z"));
            let began = format!("2026-11-29T01:28:{second}.332Z");
            json!({"name": "a", "token_prefix": token, "began_at": began, "ended_at": ended, "outcome": outcome,
                "status": status, "duration_ms": ended.as_ref().map(|_| 301), "fencing_token": 7})
        };
        vec![run("11111111", "exited", json!(0), "24"), run("22222222", "expired", Value::Null, "25")]
    }

    const LOG: &str = "2026-11-29 01:28:24 +0000  a  0s  root@vm (x)  exit 0\n2026-11-29 01:28:25 +0000  a  -   root@vm      lease ran out\n";
    const PAGE: &str =
        "<g class=\"r\"><title>root@vm (x): exit 0, 2026-11-29 01:28:24, lasted 0s, waited 0s</title><rect/>
<g class=\"f\"><title>root@vm: lease ran out, 2026-11-29 01:28:25, lasted -, waited 0s</title><text>
<tr><td>2026-11-29 01:28:24<td>a<td>0s<td>0s<td>root@vm (x)<td>exit 0
<tr><td>2026-11-29 01:28:25<td>a<td>-<td>0s<td>root@vm<td class=\"f\">✗ lease ran out\n";
    const CHART: &str = "a  vm      █✗\n           |03:00\n";
    const TABLE: &str = "NAME  STATE\na     free   -  lease ran out, 1s ago\n";

    fn list() -> Value {
        let reported = reported();
        json!({"locks": [{"name": "a", "state": "free", "last": reported[1], "last_success": reported[0], "last_failure": null}]})
    }

    #[test]
    fn what_is_true_is_acquitted() {
        let untrue = [lines(&reported(), LOG), rows(&reported(), PAGE), bars(&reported(), CHART)].concat();
        assert_eq!(untrue, Vec::<String>::new());
        assert_eq!(last_runs(&reported(), &list().to_string(), TABLE), Vec::<String>::new());
    }

    #[test]
    fn what_is_not_is_found() {
        for (from, to) in [("exit 0", "exit 1"), ("01:28:25", "01:28:26"), ("a  -", "b  -")] {
            assert!(!lines(&reported(), &LOG.replace(from, to)).is_empty(), "{to}");
        }
        for (from, to) in [
            ("<td>exit 0", "<td>SIGTERM"),
            ("class=\"r\"", "class=\"g\""),
            ("<text>", "<rect/>"),
            ("<td>-", "<td>1s"),
            ("✗ ", ""),
        ] {
            let page = PAGE.replace(from, to);
            let page = if to.is_empty() { page.replace("<td class=\"f\">", "<td>") } else { page };
            assert!(!rows(&reported(), &page).is_empty(), "{to}");
        }
        for chart in ["a  vm      █\n", "a  vm      █▒✗\n", ""] {
            assert!(!bars(&reported(), chart).is_empty(), "{chart}");
        }
        for (field, value) in [
            ("last", reported()[0].clone()),
            ("last_success", Value::Null),
            ("last_failure", reported()[1].clone()),
            ("state", json!("held")),
        ] {
            let mut list = list();
            list["locks"][0][field] = value;
            assert!(!last_runs(&reported(), &list.to_string(), TABLE).is_empty(), "{field}");
        }
        assert!(!last_runs(&reported(), &list().to_string(), "a  free  -  exit 0\n").is_empty());
        assert!(!last_runs(&reported(), "{\"locks\":[]}", TABLE).is_empty());
    }
}
