//! A page of HTML that shows runs, and needs no other file. The page has a picture (SVG), and below the picture a table
//! of the same runs, for screen readers. Every text of other users goes through [`text`].

use super::log::{self, result};
use super::picture::{Mark, Part, Picture};
use crate::lock::Run;
use crate::sys::clock::local_date;
use crate::text::{as_counted, escaped, exact, seconds};
use std::collections::BTreeMap;
use std::time::Duration;

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
h1{font-size:1.3em}p{color:var(--dim);overflow-wrap:anywhere}svg{display:block;width:100%;height:22px;overflow:visible}
.l{display:grid;grid-template-columns:14em 1fr;gap:0 1em;font-size:12px;line-height:22px;break-inside:avoid}
.l+.l{border-top:1px solid var(--line)}.l span{display:block;overflow-wrap:anywhere;line-height:1.4;padding:3px 0}
.t text{font-size:12px;fill:var(--dim);text-anchor:middle}
.r{fill:var(--ran)}.f{fill:var(--failed);color:var(--failed)}.g{fill:var(--on)}.w{fill:var(--dim)}.q{fill:var(--line)}
.f text{fill:var(--page);stroke:var(--failed);stroke-width:4px;paint-order:stroke;text-anchor:middle;font:bold 13px sans-serif}
p span{white-space:nowrap;margin-right:1em}p svg{display:inline-block;width:10px;height:10px}
table{border-collapse:collapse;margin-top:1.5em;font-variant-numeric:tabular-nums}tr{break-inside:avoid}td.f{font-weight:bold}
th,td{text-align:left;padding:.2em 1em .2em 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
th,td:first-child,td:nth-child(3),td:nth-child(4){white-space:nowrap}td:nth-child(2),td:nth-child(5),td:last-child{min-width:6em}
pre{margin:.2em 0;font-size:12px;font-weight:normal;color:var(--text);white-space:pre-wrap}
@media(max-width:600px){body{padding:0 1em}.l{display:block}th,td{padding-right:.6em;font-size:13px}
td:first-child{white-space:normal;min-width:6em}:is(th,td):is(:nth-child(4),:nth-child(5)){display:none}}
@media print{table,pre{font-size:10px}.l{grid-template-columns:11em 1fr;font-size:10px}}
";

/// The page, in parts. `runs` are the runs in the picture. `forgotten` has arguments for [`log::forgotten`].
pub(crate) fn page(
    picture: &Picture<'_>,
    runs: &[(String, Run)],
    forgotten: &[(String, Duration, u64)],
    span: Duration,
) -> Vec<String> {
    let until = local_date(picture.end()).unwrap_or_default();
    let title = format!("Runs of the last {}, until {until}", exact(span));
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
    if runs.is_empty() {
        parts.push("<p>No run.\n".to_owned());
        return parts;
    }
    drawing(picture, runs, &times, &mut parts);
    let meanings = [("r", "ran"), ("f", "failed"), ("g", "goes on"), ("w", "waited"), ("q", "forgotten")];
    let meanings = meanings.map(|(class, meaning)| match class {
        "f" => format!("<span><b class=\"f\">✗</b> {meaning}</span>"),
        class => format!("<span><svg class=\"{class}\"><rect width=\"10\" height=\"10\"/></svg> {meaning}</span>"),
    });
    parts.push(format!("<p>{}\n", meanings.join(" ")));
    let lost = |(name, before, kept): &(String, Duration, u64)| {
        format!("<p>{}\n", text(&log::forgotten(name, *before, *kept)))
    };
    parts.extend(forgotten.iter().map(lost));
    parts.push("<table><thead><tr><th>Began<th>Lock<th>Lasted<th>Waited<th>By<th>End\n<tbody>\n".to_owned());
    parts.extend(runs.iter().rev().map(|(name, run)| table_row(name, run)));
    parts.push("</table></html>\n".to_owned());
    parts
}

/// The picture: the times, a line for each lock, and the times again.
fn drawing(picture: &Picture<'_>, runs: &[(String, Run)], times: &[(String, String)], parts: &mut Vec<String>) {
    let shown = |(place, shown): &(String, String)| format!("<text x=\"{place}\" y=\"15\">{shown}</text>");
    let times: String = times.iter().map(shown).collect();
    let times = format!("<div class=\"l\"><span></span><svg class=\"t\">{times}</svg></div>\n");
    parts.push(format!("<div role=\"img\" aria-label=\"The runs of the table below\">\n{times}"));
    for (name, mut of_line) in by_lock(picture, runs) {
        parts.push(format!("<div class=\"l\"><span>{}</span><div class=\"b\"><svg>\n", text(name)));
        // The most important part is drawn last, above the others.
        of_line.sort_by_key(|part| part.mark);
        parts.extend(of_line.iter().map(|part| bar(picture, part, part.run.map(|run| &runs[run]))));
        parts.push("</svg></div></div>\n".to_owned());
    }
    parts.push(format!("{times}</div>\n"));
}

/// The parts of each lock, on all hosts. The locks whose last run went wrong come first; then the order is that of
/// people, who count.
fn by_lock<'a>(picture: &'a Picture<'_>, runs: &[(String, Run)]) -> Vec<(&'a str, Vec<&'a Part>)> {
    let mut locks: BTreeMap<&str, Vec<&Part>> = BTreeMap::new();
    for ((name, _), of_host) in &picture.lines {
        locks.entry(name).or_default().extend(of_host);
    }
    let went_wrong = |parts: &[&Part]| {
        let last = parts.iter().filter(|part| part.mark != Mark::Waited).max_by_key(|part| part.from);
        last.and_then(|part| part.run).is_some_and(|run| runs[run].1.went_wrong())
    };
    let mut locks: Vec<_> = locks.into_iter().collect();
    locks.sort_by_cached_key(|(name, parts)| (!went_wrong(parts), as_counted(name)));
    locks
}

/// A bar. Its title has the facts about the run, or is "forgotten"; a wait has no title.
fn bar(picture: &Picture<'_>, part: &Part, run: Option<&(String, Run)>) -> String {
    let (from, to) = (100.0 * picture.place(part.from), 100.0 * picture.place(part.to));
    let width = (to - from).max(THINNEST);
    let from = from.min(100.0 - width);
    let (class, inset) = match part.mark {
        Mark::Failed => ("f", 0),
        Mark::GoesOn => ("g", 0),
        Mark::Waited => ("w", 5),
        Mark::Forgotten => ("q", 0),
        Mark::Ran | Mark::Nothing => ("r", 0),
    };
    let title = match run {
        _ if part.mark == Mark::Waited => String::new(),
        Some((name, run)) => {
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
    let has_end = run.is_none_or(|(_, run)| part.mark == Mark::Waited || run.duration.is_some());
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
