//! `redlock log` as a picture: for a terminal, and as a page.

use super::history::part;
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
    set(&redis, time);
    redis
}

/// Sets the server's clock to this time (ms).
pub(crate) fn set(redis: &Redis, time: i64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    redis.clock().set(Duration::from_millis(time.try_into().unwrap()) - now);
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
    // The log of `mails` keeps only six runs.
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

/// Hosts call this daily lock since spring, the last time this long (ms) ago. `runs` begins with the run that ended first.
pub(crate) fn daily(redis: &Redis, name: &str, hosts: &[&str], ago: i64, runs: &[Value]) {
    log(redis, name, runs);
    let success = runs.iter().rev().find(|run| run["x"] == "0").map(Value::to_string);
    let expected = format!("86400000 86400000 {}", MORNING - 200 * 24 * HOUR);
    redis.command(&["HSET", &part(name, "runs"), "expected", &expected]);
    redis.command(&["HSET", &part(name, "runs"), "success", &success.unwrap()]);
    for (place, host) in (0..).zip(hosts) {
        let visit = format!("{}1", MORNING - ago - place);
        redis.command(&["ZADD", &part(name, "visits"), &visit, host]);
    }
}

/// A server of which `check` finds much. What it finds lies outside the last day, but for what goes on.
pub(crate) fn incidents() -> Redis {
    let redis = at(MORNING);
    // A success of four minutes on each of five days, the last this long ago.
    let runs = |host: &str, label: &str, ago: i64| {
        let days = (0..5).rev().map(|day| MORNING - ago - day * 24 * HOUR);
        days.map(|began| run(host, label, began, 4 * MINUTE, 0, &ok())).collect::<Vec<_>>()
    };
    daily(&redis, "dump", &["db-1"], 53 * HOUR, &runs("db-1", "dump", 53 * HOUR));
    for name in ["backup-2", "backup-10"] {
        daily(&redis, name, &["web-2", "web-3"], 4 * HOUR, &runs("web-3", "backup", 4 * HOUR));
    }
    // This run takes longer than the usual four minutes, which are known only from earlier days.
    let index = run("web-1", "index", MORNING - 7 * HOUR, 0, 0, &json!({}));
    daily(&redis, "index", &["web-1"], 7 * HOUR, &runs("web-1", "index", 25 * HOUR));
    redis.command(&["SET", "redlock:index", index["t"].as_str().unwrap(), "PX", "600000"]);
    redis.command(&["LPUSH", &part("index", "log"), &index.to_string().replace(r#""d":"0","#, "")]);
    // A failure, and after it a lease of `acquire`, which is no run.
    let mut mails = runs("web-2", "mails", 25 * HOUR + 30 * MINUTE);
    mails.push(run("web-9", "mails", MORNING - 25 * HOUR, MINUTE, 0, &json!({"x": "2"})));
    mails.push(run(
        "ci-7",
        "by hand",
        MORNING - 25 * HOUR + 2 * MINUTE,
        MINUTE,
        0,
        &json!({"o": "released", "a": "1"}),
    ));
    daily(&redis, "mails", &["web-9", "web-2"], 3 * HOUR, &mails);
    redlock(&redis, "acquire -q deploy --ttl 10m").on_host("ci-7").stdout(any()).run();
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
        let is_drawn = |line: &&str| line.contains("web-") || line.contains('|') || line.contains(" ran ");
        let lines: Vec<&str> = shown.lines().filter(is_drawn).collect();
        let width = |line: &&str| line.chars().count();
        assert_eq!(lines.len(), 8, "{shown}");
        assert!(lines.iter().all(|line| width(line) <= usize::from(columns)), "{shown}");
        // The axis shows noon, and the date of the day that follows.
        assert!(shown.contains("|12:00") && shown.contains("|11-22"), "{shown}");
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
    assert!(widths.len() == 1 && shown.lines().count() == 5, "{shown}");
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
    let [runs, times, _] = &*shown.lines().collect::<Vec<_>>() else { panic!("{shown}") };
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
        "!doctype", "html", "meta", "title", "/title", "h1", "/h1", "h2", "/h2", "svg", "/svg", "text", "/text", "g",
        "/g", "rect", "p", "b", "/b", "span", "/span", "div", "/div", "table", "/table", "thead", "tbody", "tr", "th",
        "td", "pre", "/pre", "/html", "",
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
    assert_eq!(shown.lines().count(), 32, "{shown}");
}

/// The text of a page, without its elements.
fn text(page: &str) -> String {
    let text = page.split("</style>").nth(1).unwrap();
    let text = Regex::new("<title>[^<]*</title>|<[^>]*>").unwrap().replace_all(text, " ").into_owned();
    text.replace("&quot;", "\"").replace("&amp;", "&")
}

/// Asserts that these texts stand in the page one after the other.
#[track_caller]
fn in_this_order(page: &str, texts: &[&str]) {
    texts
        .iter()
        .fold(0, |at, text| at + page[at..].find(text).unwrap_or_else(|| panic!("{text}: {page}")) + text.len());
}

#[test]
fn a_page_begins_with_what_check_finds_and_what_is_held() {
    let redis = incidents();
    let (page, checked) = (page(&redis, ""), redlock(&redis, "check").status(1).stdout(any()).run().stdout);
    let shown = text(&page);
    // Seconds go by between the two.
    let steady = |text: &str| Regex::new(" for 7h[ 0-9s]*").unwrap().replace_all(text, " for 7h ").into_owned();
    let lines: Vec<&str> = checked.lines().collect();
    assert_eq!(lines.len(), 4, "{checked}");
    for line in &lines {
        assert!(steady(&shown).contains(&steady(line)), "{line}: {shown}");
    }
    for found in ["dump: no success since", "mails: failed on web-9", "(usually 4m)", "2 locks in order"] {
        assert!(checked.contains(found), "{found}: {checked}");
    }
    in_this_order(&shown, &["Runs of the last 1d", "2 locks in order", "Held now", "index", "deploy", "ci-7", "Began"]);
    // The worst first, then as people count. The failure lies before the window.
    let rows = page.split("</table>").nth(1).unwrap();
    let names =
        ["dump", "mails", "index", "deploy", "backup-2", "backup-10"].map(|name| format!("<span>{name}</span>"));
    in_this_order(rows, &names.each_ref().map(String::as_str));
    assert!(rows.contains("<div class=\"f\">✗ last success 2d 4h 56m"), "{rows}");
    assert!(rows.contains("<div>last success 1d 1h 26m"), "{rows}");
    // The newest run comes first.
    in_this_order(page.rsplit("<table").next().unwrap(), &["deploy", "backup", "index"]);
    for (redis, said) in [(at(MORNING), "Nothing is held"), (night(), "Nothing to check: for no lock have calls")] {
        assert!(self::page(&redis, "").contains(said));
    }
}

#[test]
fn a_chart_shows_what_has_not_run_and_what_its_marks_mean() {
    let redis = incidents();
    let shown = chart(&redis, "").text();
    let lines: Vec<&str> = shown.lines().collect();
    in_this_order(
        &shown,
        &["dump ", "✗ last success 2d 4h 56m", "mails ", "last success 1d 1h 26m", "index ", "deploy "],
    );
    in_this_order(&shown, &["deploy ", "backup-2 ", "backup-10 ", "|"]);
    assert!(!lines[1].contains('✗') && lines.len() == 8, "{shown}");
    assert_eq!(lines[7], "█ ran  ✗ failed  ▒ goes on  · waited  ? forgotten");
    let ascii = chart(&redis, "").env("LC_ALL", "C").text();
    assert!(ascii.is_ascii() && ascii.contains("x last success 2d"), "{ascii}");
    assert!(ascii.ends_with("# ran  x failed  = goes on  . waited  ? forgotten\n"), "{ascii}");
    // A chart of one lock that has not run, on a narrow terminal.
    let terminal = Terminal::bash(&redis);
    terminal.resize(30, 30);
    terminal.enters("LC_ALL=C.UTF-8 redlock log dump --format chart; echo end");
    terminal.shows("echo end");
    let narrow = terminal.shows("\r\nend");
    assert!(narrow.contains("\u{1b}[31m✗ last success 2d 4h") && narrow.contains("█ ran  ✗ failed"), "{narrow}");
}
