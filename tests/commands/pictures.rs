//! `redlock log` as a picture: for a terminal, and as a page.

use super::memory::part;
use crate::support::{Redis, Terminal, Test, any, message, perhaps, redlock, when};
use regex_lite::Regex;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) const MINUTE: i64 = 60_000;
pub(crate) const HOUR: i64 = 60 * MINUTE;
/// Friday, 22 November 2030, 07:30 UTC, in ms.
pub(crate) const MORNING: i64 = 1_921_563_000_000;
/// Sunday, 27 October 2030, 07:30 UTC, in ms. In Berlin, daylight saving time ended in the night before.
const REPEATED_HOUR: i64 = 1_919_316_600_000;
const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

/// A server whose clock shows this time (ms).
pub(crate) fn at(time: i64) -> Redis {
    let redis = Redis::with_clock(&[], 0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    redis.clock().set(Duration::from_millis(time.try_into().unwrap()) - now);
    redis
}

/// A run as the scripts write it.
pub(crate) fn run(host: &str, label: &str, began: i64, lasted: i64, waited: i64, end: &Value) -> Value {
    let token = format!("{began:032x}");
    let mut run =
        json!({"t": token, "b": began.to_string(), "f": "1763607602118", "h": host, "u": "deploy", "l": label});
    run["w"] = waited.to_string().into();
    run["d"] = lasted.to_string().into();
    run["n"] = "1000".into(); // no log of these tests is full
    run.as_object_mut().unwrap().extend(end.as_object().unwrap().clone());
    run
}

/// Writes the log of a lock; `runs` begins with the run that ended first.
pub(crate) fn log(redis: &Redis, name: &str, runs: &[Value]) {
    for page in runs.chunks(500) {
        let lines: Vec<String> = page.iter().map(Value::to_string).collect();
        let mut command = vec!["LPUSH".to_owned(), part(name, "log")];
        command.extend(lines);
        redis.command(&command.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

pub(crate) fn ok() -> Value {
    json!({"x": "0"})
}

pub(crate) fn failed() -> Value {
    json!({"x": "1"})
}

/// A server on the morning after a night: `backup` failed on web-1, and then succeeded on web-2; the log of `mails` was
/// full; `vacuum` goes on.
pub(crate) fn night() -> Redis {
    let redis = at(MORNING);
    let three = MORNING - 270 * MINUTE;
    log(
        &redis,
        "backup",
        &[
            run("web-3", "nightly", three - 24 * HOUR + 285 * MINUTE, 130 * MINUTE, 0, &ok()),
            run("web-1", "nightly", three, 42 * MINUTE, 0, &failed()),
            run("web-2", "nightly", three + 42 * MINUTE, 100 * MINUTE, 42 * MINUTE, &ok()),
        ],
    );
    // The log of `mails` keeps six runs: older runs are gone.
    let mails = |at: i64| {
        let mut run = run(
            ["web-1", "web-2"][(at % 2) as usize],
            "mails",
            MORNING - at * 90 * MINUTE - 7 * MINUTE,
            2 * MINUTE,
            0,
            &ok(),
        );
        run["n"] = "6".into();
        run
    };
    log(&redis, "mails", &(1..7).rev().map(mails).collect::<Vec<_>>());
    // The run of `vacuum` has not ended.
    let vacuum = run("web-3", "vacuum", MORNING - 70 * MINUTE, 0, 0, &json!({}));
    let token = vacuum["t"].as_str().unwrap();
    let line = vacuum.to_string().replace(r#""d":"0","#, "");
    redis.command(&["SET", "redlock:vacuum", token]);
    redis.command(&["LPUSH", &part("vacuum", "log"), &line]);
    redis
}

fn chart(redis: &Redis, arguments: &str) -> Test {
    let words = arguments.split(' ').filter(|word| !word.is_empty());
    Test::new(redis)
        .args(["log", "--format", "chart"])
        .args(words)
        .env("TZ", "UTC")
        .env("LC_ALL", "C.UTF-8")
        .stderr(any())
}

#[test]
fn a_chart_is_as_wide_as_its_terminal() {
    let redis = night();
    for columns in [40, 80, 200] {
        let terminal = Terminal::bash(&redis);
        terminal.resize(30, columns);
        terminal.enters("LC_ALL=C.UTF-8 TZ=UTC NO_COLOR=1 redlock log --format chart; echo end");
        terminal.shows("echo end");
        let shown = terminal.shows("\r\nend");
        let lines: Vec<&str> = shown.lines().filter(|line| line.contains("web-") || line.contains('|')).collect();
        let width = |line: &&str| line.chars().count();
        assert_eq!(lines.len(), 7, "{shown}");
        assert!(lines.iter().all(|line| width(line) <= usize::from(columns)), "{shown}");
        // The axis shows noon, and the midnight that follows.
        assert!(shown.contains("|12:00") && shown.contains("|00:00"), "{shown}");
        // The run `vacuum` has not ended: its bar reaches the right edge, which is now.
        let going = lines.iter().find(|line| line.contains("vacuum")).unwrap();
        assert!(width(going) == usize::from(columns) && going.ends_with('▒'), "{shown}");
        // The marks of a run, a failure, a wait, forgotten runs, and a time.
        for mark in ["█", "✗", "·", "?", "|"] {
            assert!(shown.contains(mark), "{mark}: {shown}");
        }
    }
}

#[test]
fn a_chart_shows_what_is_short_and_a_failure_before_all_else() {
    let redis = at(MORNING);
    let begun = MORNING - 2 * HOUR + MINUTE; // in the middle of a column, as the clock goes on
    log(
        &redis,
        "short",
        &[
            run("web-1", "x", begun, 5, 0, &ok()),
            run("web-1", "x", begun + 1_000, 5, 0, &failed()),
            run("web-1", "x", begun + 2_000, 5, 0, &ok()),
            run("web-1", "x", begun + HOUR, 1, 0, &ok()),
        ],
    );
    // The chart has 73 columns, of two minutes each.
    let line = format!("web-1  {}✗{}█\n", " ".repeat(13), " ".repeat(29));
    let shown = when("both, and the time", move |text| text.starts_with(&line) && text.contains("|05:30  "));
    chart(&redis, "short --since 146m").stdout(shown).run();
    chart(&redis, "short --since 30m").stdout("").stderr(message(["no such run"])).run();
    chart(&redis, "--since 146m").stdout(when("its name", |text| text.starts_with("short  web-1  "))).run();
}

#[test]
fn a_chart_without_utf_8_or_colors() {
    let redis = night();
    let plain = |test: Test| test.run().stdout;
    let ascii = plain(chart(&redis, "").env("LC_ALL", "C").stdout(any()));
    assert!(ascii.is_ascii() && ["#", "x", "=", "."].iter().all(|mark| ascii.contains(mark)), "{ascii}");
    let piped = plain(chart(&redis, "").stdout(any()));
    assert!(!piped.contains('\u{1b}') && piped.contains('✗'), "{piped}");
    let terminal = Terminal::bash(&redis);
    for (set, is_red) in [("", true), ("NO_COLOR=1 ", false)] {
        terminal.enters(&format!("{set}LC_ALL=en_US.utf8 redlock log --format chart; echo end"));
        terminal.shows("echo end");
        let shown = terminal.shows("\r\nend");
        assert_eq!(shown.contains("\u{1b}[31m✗"), is_red, "{shown:?}");
        assert!(shown.contains('✗'), "{shown}");
    }
}

#[test]
fn wide_names_leave_the_columns_where_they_are() {
    let redis = at(MORNING);
    for (name, host) in
        [("備份資料庫備份資料庫備份", "数据"), ("plain", "web-1"), ("a\u{301}", "x".repeat(60).as_str())]
    {
        log(&redis, name, &[run(host, "x", MORNING - HOUR, 5, 0, &failed())]);
    }
    let shown = chart(&redis, "").text();
    let before = |line: &str| unicode_width::UnicodeWidthStr::width(line.split('✗').next().unwrap());
    let widths: BTreeSet<usize> = shown.lines().take(3).map(before).collect();
    assert!(widths.len() == 1 && shown.lines().count() == 4, "{shown}");
}

#[test]
fn the_hour_that_is_repeated_has_its_columns() {
    let redis = at(REPEATED_HOUR);
    // The first run begins at half past two in summer time, the second an hour later: at half past two in winter time.
    let half_past = REPEATED_HOUR - 7 * HOUR + 2 * MINUTE;
    log(
        &redis,
        "x",
        &[run("web-1", "x", half_past, MINUTE, 0, &ok()), run("web-1", "x", half_past + HOUR, MINUTE, 0, &failed())],
    );
    // An hour has nine columns. The chart begins at half past one, in summer time.
    let shown = chart(&redis, "x --since 8h").env("TZ", BERLIN).text();
    let [runs, times] = &*shown.lines().collect::<Vec<_>>() else { panic!("{shown}") };
    let column = |line: &str, what: &str| line.split(what).next().unwrap().chars().count();
    assert_eq!(column(runs, "✗") - column(runs, "█"), 9, "{shown}");
    assert!(times.contains("|02:00   |02:00   |03:00"), "{shown}");
    assert!(
        column(times, "|02:00") < column(runs, "█") && column(runs, "█") < column(times, "|02:00   |03:00"),
        "{shown}"
    );
}

#[test]
fn a_picture_shows_all_runs_of_its_time() {
    let redis = Redis::start();
    for form in ["chart", "html"] {
        for line in ["-n 5", "--failed"] {
            let test = redlock(&redis, format!("log --format {form} {line}")).status(64);
            test.stderr(message(["a picture needs all runs", "leave out -n and --failed"])).run();
        }
        redlock(&redis, format!("status --format {form}")).fails(64, ["status has no --format"]).run();
    }
}

/// The names of the elements of a page, as a browser sees them.
fn elements(page: &str) -> BTreeSet<String> {
    let style = Regex::new("(?s)<style>.*?</style>").unwrap().replace_all(page, "").into_owned();
    let element = Regex::new("<(!?[^>\\s]*)").unwrap();
    element.captures_iter(&style).map(|found| found[1].to_owned()).collect()
}

fn page(redis: &Redis, arguments: &str) -> String {
    redlock(redis, format!("log --format html {arguments}")).env("TZ", "UTC").stdout(any()).stderr(any()).run().stdout
}

/// A server with runs whose names, hosts, labels and errors would be elements or scripts.
pub(crate) fn hostile() -> Redis {
    let redis = at(MORNING);
    let evil = "</title></svg><script>alert(1)</script>";
    let by = json!({"o": "revoked", "y": "\"'><b onload=x>me&amp;"});
    let broken = "<img src=x onerror=alert(1)>";
    let failure = run("<i>", evil, MORNING - HOUR, HOUR / 2, MINUTE, &failed());
    let mut with_errors = failure.clone();
    with_errors["e"] = "</pre><iframe src=x>\n\u{1b}[2J".into();
    redis.command(&["HSET", &part(broken, "runs"), "failure", &with_errors.to_string()]);
    log(&redis, broken, &[failure]);
    log(&redis, "' onclick='x", &[run("\"/><a href=x>", "\u{1b}[31m", MORNING - HOUR, HOUR / 2, 0, &by)]);
    redis
}

#[test]
fn a_page_needs_nothing_else_and_no_text_of_others_is_an_element() {
    let usual = page(&night(), "");
    let redis = hostile();
    let hostile = page(&redis, "-v");
    assert!(hostile.contains("exit 1<pre>&lt;/pre&gt;&lt;iframe src=x&gt;\n\\u{1b}[2J</pre>"), "{hostile}");
    let known = [
        "!doctype", "html", "meta", "title", "/title", "h1", "/h1", "svg", "/svg", "text", "/text", "g", "/g", "rect",
        "p", "b", "/b", "span", "/span", "div", "/div", "table", "/table", "thead", "tbody", "tr", "th", "td", "pre",
        "/pre", "/html", "",
    ];
    for page in [&usual, &hostile] {
        let unknown: Vec<String> = elements(page).into_iter().filter(|name| !known.contains(&name.as_str())).collect();
        assert!(unknown.is_empty(), "{unknown:?} in {page}");
        for outside in ["http:", "https:", "src=", "href=", "url(", "@import"] {
            let own = page.replace("src=x", "").replace("href=x", "");
            assert!(!own.contains(outside), "{outside}: {page}");
        }
    }
    assert!(hostile.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && !hostile.contains('\u{1b}'), "{hostile}");
    log(&redis, "bell", &[run("\u{1b}[2J", "x", MORNING - HOUR, HOUR / 2, 0, &ok())]);
    chart(&redis, "")
        .stdout(when("no control character", |text| text.contains("\\u{1b}[2J") && !text.contains('\u{1b}')))
        .run();
    // No tag contains text that a user has chosen, such as the name of a lock.
    let tag = Regex::new("<[^>]*>").unwrap();
    assert!(tag.find_iter(&hostile).all(|tag| !tag.as_str().contains("onclick")), "{hostile}");
    // The page has the tooltip of a bar, and rows of the table.
    let said = "<title>deploy@web-1 (nightly): exit 1, 2030-11-22 03:00:00, lasted 42m, waited 0s</title>";
    assert!(usual.contains(said), "{usual}");
    let row = "<tr><td>2030-11-22 03:42:00<td>backup<td>1h 40m<td>42m<td>deploy@web-2 (nightly)<td>exit 0\n";
    assert!(usual.contains(row), "{usual}");
    assert!(usual.contains("<td class=\"f\">✗ exit 1") && usual.contains("&quot;mails&quot;: runs before"), "{usual}");
    let none = redlock(&at(MORNING), "log --format html").stdout(any()).stderr(perhaps(["no such run"])).run().stdout;
    assert!(none.contains("<p>No run."), "{none}");
}

#[test]
fn thousands_of_runs_are_a_page_below_a_megabyte() {
    let redis = at(MORNING);
    for lock in 0..10 {
        let run = |number: i64| {
            let end = if number % 9 == 0 { failed() } else { ok() };
            run(
                &format!("web-{}", number % 3),
                "a label of twenty",
                MORNING - (number + 1) * 400_000,
                MINUTE,
                5_000,
                &end,
            )
        };
        log(&redis, &format!("job-{lock}"), &(0..200).rev().map(run).collect::<Vec<_>>());
    }
    let page = page(&redis, "");
    assert_eq!((page.matches("<tr><td>").count(), page.matches("<rect").count()), (2_000, 4_004));
    assert!(page.len() < 1_000_000, "{}", page.len());
    let shown = chart(&redis, "").text();
    assert_eq!(shown.lines().count(), 31, "{shown}");
}
