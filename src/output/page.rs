//! A page of HTML that shows runs, and needs no other file. It has a picture (SVG), and below that a table of the same
//! runs, for screen readers. Every text of other users goes through [`text`].

use super::check::{Verdict, in_order};
use super::form::Row;
use super::log::{self, result};
use super::picture::{LEGEND, Mark, Part, Picture, Seen};
use super::table::HEADS;
use crate::lock::Run;
use crate::sys::clock::local_date;
use crate::text::{escaped, exact, seconds};
use std::ptr;

/// The time axis has at most this many labels: a phone has no room for more.
const TIMES: u64 = 9;
/// The least width of a bar, in percent of the picture's width.
const THINNEST: f64 = 0.3;

/// Colour is not the only sign of a failure or a wait: the bar of a failed run has a cross, and a wait is thin.
const STYLE: &str = "
:root{color-scheme:light dark;--ran:#3f7d5a;--failed:#c62f2f;--on:#3f6fb5;--dim:#666;--line:#ddd;--text:#222;--page:#fff}
@media(prefers-color-scheme:dark){:root{--ran:#6fc08f;--failed:#ff7b72;--on:#7ab0ff;--dim:#999;--line:#3a3a3a;--text:#ddd;--page:#161616}}
@media print{:root{--ran:#3f7d5a;--failed:#c62f2f;--on:#3f6fb5;--dim:#666;--line:#ccc;--text:#000;--page:#fff}*{print-color-adjust:exact}}
body{font:14px/1.4 system-ui,sans-serif;margin:1.5em auto;padding:0 1.5em;max-width:1400px;color:var(--text);background:var(--page)}
h1{font-size:1.3em}h2{font-size:1em;margin:1.5em 0 .3em}p{color:var(--dim);overflow-wrap:anywhere}svg{display:block;width:100%;height:22px;overflow:visible}
.l{display:grid;grid-template-columns:14em 1fr;gap:0 1em;font-size:12px;line-height:22px;break-inside:avoid}
.l+.l{border-top:1px solid var(--line)}.l span{display:block;overflow-wrap:anywhere;line-height:1.4;padding:3px 0}
.t text{font-size:12px;fill:var(--dim);text-anchor:middle}
.r{fill:var(--ran)}.f{fill:var(--failed);color:var(--failed)}.g{fill:var(--on)}.w{fill:var(--dim)}.q{fill:var(--line)}
.f text{fill:var(--page);stroke:var(--failed);stroke-width:4px;paint-order:stroke;text-anchor:middle;font:bold 13px sans-serif}
p span{white-space:nowrap;margin-right:1em}p svg{display:inline-block;width:10px;height:10px}
table{border-collapse:collapse;margin-top:1.5em;font-variant-numeric:tabular-nums}tr{break-inside:avoid}td.f{font-weight:bold}
th,td{text-align:left;padding:.2em 1em .2em 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
th,td:first-child,td:nth-child(3),td:nth-child(4){white-space:nowrap}td:nth-child(2),td:nth-child(5),td:last-child{min-width:6em}
.h{margin:0 0 1em}.h td:nth-child(n){white-space:normal;min-width:4em}.h th{text-transform:lowercase}.h th::first-letter{text-transform:uppercase}
pre{margin:.2em 0;font-size:12px;font-weight:normal;color:var(--text);white-space:pre-wrap}
@media(max-width:600px){body{padding:0 1em}.l{display:block}th,td{padding-right:.6em;font-size:13px}
td:first-child{white-space:normal;min-width:6em}:is(th,td):nth-child(5),table:not(.h)>*>*>:nth-child(4),.h>*>*>:nth-child(6){display:none}}
@media print{table,pre{font-size:10px}.l{grid-template-columns:11em 1fr;font-size:10px}}
";

/// The page, in parts.
pub(crate) fn page(picture: &Picture<'_>, verdicts: &[Verdict]) -> Vec<String> {
    let until = local_date(picture.to).unwrap_or_default();
    let title = format!("Runs of the last {}, until {until}", exact(picture.to - picture.from));
    let place = |(time, shown)| (format!("{:.2}%", 100.0 * picture.place(time)), shown);
    let times: Vec<(String, String)> = picture.round_times(TIMES).into_iter().map(place).collect();
    let rule = |(place, _): &(String, String)| format!("linear-gradient(var(--line) 0 0) {place} 0/1px 100% no-repeat");
    let rules = times.iter().map(rule).collect::<Vec<_>>().join(",");
    let mut parts = vec![format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\"><title>redlock: {title}</title>\n<style>{STYLE}.b{{background:{rules}}}</style>\n\
         <h1>{title}</h1>\n",
    )];
    let findings = verdicts.iter().flat_map(|verdict| &verdict.lines);
    parts.extend(findings.map(|line| format!("<p class=\"f\">✗ {}\n", text(line))));
    let nothing = "Nothing to check: for no lock have calls with --once-per come for half a period";
    let in_order = if verdicts.is_empty() { Some(nothing.to_owned()) } else { in_order(verdicts) };
    parts.extend(in_order.map(|line| format!("<p>{line}.\n")));
    parts.push(held(picture));
    if !picture.lines.is_empty() {
        drawing(picture, &times, &mut parts);
    }
    let lost = |Seen { status, .. }: &Seen| {
        let (before, kept) = status.history.forgotten?;
        Some(format!("<p>{}\n", text(&log::forgotten(&status.name, before, kept))))
    };
    parts.extend(picture.locks.iter().filter_map(lost));
    let runs = picture.runs();
    parts.push(match runs.is_empty() {
        true => "<p>No run.\n".to_owned(),
        false => "<table><thead><tr><th>Began<th>Lock<th>Lasted<th>Waited<th>By<th>End\n<tbody>\n".to_owned(),
    });
    parts.extend(runs.iter().rev().map(|(name, run)| table_row(name, run)));
    parts.push("</table></html>\n".to_owned());
    parts
}

/// What is held now: the rows of the list of locks.
fn held(picture: &Picture<'_>) -> String {
    let cells = |row: Row| row.cells().map(|cell| format!("<td>{}", text(cell))).collect::<String>();
    let taken = picture.locks.iter().filter(|lock| lock.facts.is_taken);
    let rows: String =
        taken.map(|lock| format!("<tr>{}\n", cells(Row::of_lock(&lock.status, &lock.facts, false, None)))).collect();
    let heads = HEADS.join("<th>");
    match rows.is_empty() {
        true => "<p>Nothing is held.\n".to_owned(),
        false => format!("<h2>Held now</h2><table class=\"h\"><thead><tr><th>{heads}\n<tbody>\n{rows}</table>\n"),
    }
}

/// The picture: the times, a line for each lock, the times again, and what the marks mean.
fn drawing(picture: &Picture<'_>, times: &[(String, String)], parts: &mut Vec<String>) {
    let shown = |(place, shown): &(String, String)| format!("<text x=\"{place}\" y=\"15\">{shown}</text>");
    let times: String = times.iter().map(shown).collect();
    let times = format!("<div class=\"l\"><span></span><svg class=\"t\" aria-hidden=\"true\">{times}</svg></div>\n");
    parts.push(times.clone());
    for lines in picture.lines.chunk_by(|one, other| ptr::eq(one.0, other.0)) {
        let lock = lines[0].0;
        parts.push(format!("<div class=\"l\"><span>{}</span>", text(&lock.status.name)));
        let mut of_lock: Vec<&Part<'_>> = lines.iter().flat_map(|(_, _, parts)| parts).collect();
        if of_lock.is_empty() {
            let (absence, is_overdue) = lock.absence('✗');
            let class = if is_overdue { " class=\"f\"" } else { "" };
            parts.push(format!("<div{class}>{absence}</div></div>\n"));
            continue;
        }
        // The most important part is drawn last, above the others.
        of_lock.sort_by_key(|part| part.mark);
        parts.push("<div class=\"b\"><svg aria-hidden=\"true\">\n".to_owned());
        parts.extend(of_lock.iter().map(|part| bar(picture, part, &lock.status.name)));
        parts.push("</svg></div></div>\n".to_owned());
    }
    let meanings = LEGEND.map(|(mark, meaning)| match mark {
        Mark::Failed => format!("<span><b class=\"f\">✗</b> {meaning}</span>"),
        mark => {
            format!("<span><svg class=\"{}\"><rect width=\"10\" height=\"10\"/></svg> {meaning}</span>", class(mark))
        }
    });
    parts.push(format!("{times}<p>{}\n", meanings.join(" ")));
}

fn class(mark: Mark) -> &'static str {
    match mark {
        Mark::Failed => "f",
        Mark::GoesOn => "g",
        Mark::Waited => "w",
        Mark::Forgotten => "q",
        Mark::Ran | Mark::Nothing => "r",
    }
}

/// A bar. Its title has the facts about the run, or is "forgotten"; a wait has no title.
fn bar(picture: &Picture<'_>, part: &Part<'_>, name: &str) -> String {
    let (from, to) = (100.0 * picture.place(part.from), 100.0 * picture.place(part.to));
    let width = (to - from).max(THINNEST);
    let from = from.min(100.0 - width);
    let (class, inset) = (class(part.mark), if part.mark == Mark::Waited { 5 } else { 0 });
    let title = match part.run {
        _ if part.mark == Mark::Waited => String::new(),
        Some(run) => {
            let [began, _, lasted, waited, by, end] = cells(name, run);
            format!("<title>{by}: {end}, {began}, lasted {lasted}, waited {waited}</title>")
        }
        None => "<title>forgotten</title>".to_owned(),
    };
    let cross = match part.mark {
        Mark::Failed => format!("<text x=\"{:.2}%\" y=\"16\">✗</text>", from + width / 2.0),
        _ => String::new(),
    };
    let (y, height) = (4 + inset, 14 - 2 * inset);
    let rect = format!("<rect x=\"{from:.2}%\" y=\"{y}\" width=\"{width:.2}%\" height=\"{height}\"/>");
    // Nobody knows when a job ended whose lease ran out: a cross stands where it began.
    let has_end = part.run.is_none_or(|run| part.mark == Mark::Waited || run.duration.is_some());
    let rect = if has_end { rect } else { String::new() };
    format!("<g class=\"{class}\">{title}{rect}{cross}</g>\n")
}

fn table_row(name: &str, run: &Run) -> String {
    let [began, name, lasted, waited, by, end] = cells(name, run);
    let (class, cross) = if run.went_wrong() { (" class=\"f\"", "✗ ") } else { ("", "") };
    let errors = log::errors(run).map(|line| text(&line)).collect::<Vec<_>>().join("\n");
    let errors = if errors.is_empty() { errors } else { format!("<pre>{errors}</pre>") };
    format!("<tr><td>{began}<td>{name}<td>{lasted}<td>{waited}<td>{by}<td{class}>{cross}{end}{errors}\n")
}

/// The facts about a run, as text of the page.
fn cells(name: &str, run: &Run) -> [String; 6] {
    let unknown = || "-".to_owned();
    let slot = run.slot.map_or_else(String::new, |slot| format!("slot {slot}, "));
    [
        // The zone is in the title of the page.
        run.began.and_then(local_date).and_then(|date| Some(date.get(..19)?.to_owned())).unwrap_or_else(unknown),
        name.to_owned(),
        run.duration.map_or_else(unknown, seconds),
        run.waited.map_or_else(unknown, seconds),
        run.owner.who(false).unwrap_or_else(unknown),
        format!("{slot}{}", result(run)),
    ]
    .map(|cell| text(&cell))
}

/// Other users' text, escaped so that it can neither begin a tag nor end an attribute.
fn text(text: &str) -> String {
    let text = escaped(text, super::LINE).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}
