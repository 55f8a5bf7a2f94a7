//! Runs as a page of HTML that needs nothing else: the picture as SVG, and under it the same runs as a table, which a screen
//! reader reads. Every text that is not from this file goes through [`text`].

use super::log::{self, result};
use super::picture::{Mark, Part, Picture};
use crate::cli::values::LONGEST_NAME;
use crate::lock::Run;
use crate::sys::clock::local_date;
use crate::text::{escaped, exact, seconds};
use std::time::Duration;

/// The height of a line of the picture, and where its bars begin: its label stands above them.
const LINE: usize = 36;
const BARS: usize = 18;
/// The most times at the edge: so many have room on a phone.
const TIMES: u64 = 7;
/// What is shorter is drawn so wide, in percent.
const THINNEST: f64 = 0.3;

/// No colour alone says anything: each bar that failed has a cross, and what waited is thin.
const STYLE: &str = "
:root{color-scheme:light dark;--ran:#3f7d5a;--failed:#c62f2f;--on:#3f6fb5;--dim:#777;--line:#ddd;--text:#222;--page:#fff}
@media(prefers-color-scheme:dark){:root{--ran:#6fc08f;--failed:#ff7b72;--on:#7ab0ff;--dim:#999;--line:#3a3a3a;--text:#ddd;--page:#161616}}
@media print{:root{--ran:#3f7d5a;--failed:#c62f2f;--on:#3f6fb5;--dim:#666;--line:#ccc;--text:#000;--page:#fff}*{print-color-adjust:exact}}
body{font:14px/1.4 system-ui,sans-serif;margin:1.5em auto;padding:0 1.5em;max-width:1400px;color:var(--text);background:var(--page)}
h1{font-size:1.3em}p{color:var(--dim)}svg{display:block;width:100%;overflow:visible}
text{font-size:12px;fill:var(--text)}.t{fill:var(--dim);text-anchor:middle}line{stroke:var(--line)}
.r{fill:var(--ran);color:var(--ran)}.f{fill:var(--failed);color:var(--failed)}.g{fill:var(--on);color:var(--on)}
.w{fill:var(--dim);color:var(--dim)}.q{fill:var(--line);color:var(--line)}
.f text{fill:var(--failed);text-anchor:middle;stroke:var(--page);stroke-width:2px;paint-order:stroke;font-weight:bold}.scroll{overflow-x:auto}
table{border-collapse:collapse;margin-top:1.5em;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.2em 1em .2em 0;border-bottom:1px solid var(--line);vertical-align:top}
th,td:first-child,td:nth-child(3),td:nth-child(4){white-space:nowrap}tr{break-inside:avoid}td.f{font-weight:bold}
@media(max-width:600px){td:first-child{white-space:normal;min-width:6em}}
@media print{.scroll{overflow:visible}table{font-size:11px}td:first-child{white-space:normal}}
";

/// The page, in parts. `runs` are those of the picture.
pub(crate) fn page(
    picture: &Picture<'_>,
    runs: &[(String, Run)],
    forgotten: &[(String, Duration, u64)],
    span: Duration,
) -> Vec<String> {
    let until = local_date(picture.end()).unwrap_or_default();
    let title = format!("Runs of the last {}, until {until}", exact(span));
    let mut parts = vec![format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\"><title>redlock: {title}</title>\n<style>{STYLE}</style>\n\
         <h1>{title}</h1>\n",
    )];
    if runs.is_empty() {
        parts.push("<p>No run.\n".to_owned());
        return parts;
    }
    drawing(picture, runs, &mut parts);
    let meanings =
        [("r", "■", "ran"), ("f", "✗", "failed"), ("g", "■", "goes on"), ("w", "▬", "waited"), ("q", "■", "forgotten")];
    let meanings =
        meanings.map(|(class, mark, meaning)| format!("<span class=\"{class}\">{mark}</span>&nbsp;{meaning}"));
    parts.push(format!("<p>{}\n", meanings.join(" &nbsp; ")));
    let lost = |(name, before, kept): &(String, Duration, u64)| {
        format!("<p>{}\n", text(&log::forgotten(name, *before, *kept)))
    };
    parts.extend(forgotten.iter().map(lost));
    parts.push(
        "<div class=\"scroll\"><table><thead><tr><th>Began<th>Lock<th>Lasted<th>Waited<th>By<th>End<th>Fencing token\n<tbody>\n"
            .to_owned(),
    );
    parts.extend(runs.iter().map(|(name, run)| table_row(name, run)));
    parts.push("</table></div></html>\n".to_owned());
    parts
}

/// The picture: its lines, and the times below.
fn drawing(picture: &Picture<'_>, runs: &[(String, Run)], parts: &mut Vec<String>) {
    let height = picture.lines.len() * LINE;
    parts.push(format!("<svg height=\"{}\" role=\"img\" aria-label=\"The runs of the table below\">\n", height + 24));
    for (time, shown) in picture.round_times(TIMES) {
        let x = percent(picture.place(time));
        parts.push(format!(
            "<line x1=\"{x}%\" x2=\"{x}%\" y2=\"{height}\"/><text class=\"t\" x=\"{x}%\" y=\"{}\">{shown}</text>\n",
            height + 16
        ));
    }
    for (at, ((name, host), of_line)) in picture.lines.iter().enumerate() {
        let top = at * LINE;
        parts.push(format!("<text y=\"{}\">{} · {}</text>\n", top + 13, text(name), text(host)));
        // What is shown before all else is drawn last.
        let mut of_line: Vec<&Part> = of_line.iter().collect();
        of_line.sort_by_key(|part| part.mark);
        let bar = |part: &&Part| bar(picture, part, top + BARS, part.run.map(|run| &runs[run]));
        parts.extend(of_line.iter().map(bar));
    }
    parts.push("</svg>\n".to_owned());
}

/// A bar, with what is known of its run as its title.
fn bar(picture: &Picture<'_>, part: &Part, top: usize, run: Option<&(String, Run)>) -> String {
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
            let [began, _, lasted, waited, by, end, fence] = cells(name, run);
            format!("<title>{by}: {end}, {began}, lasted {lasted}, waited {waited}, fencing token {fence}</title>")
        }
        None => "<title>forgotten</title>".to_owned(),
    };
    let cross = match part.mark {
        Mark::Failed => format!("<text x=\"{:.2}%\" y=\"{}\">✗</text>", from + width / 2.0, top + 11),
        _ => String::new(),
    };
    let (y, height) = (top + inset, 14 - 2 * inset);
    format!(
        "<g class=\"{class}\">{title}<rect x=\"{from:.2}%\" y=\"{y}\" width=\"{width:.2}%\" height=\"{height}\"/>{cross}</g>\n"
    )
}

fn percent(place: f64) -> String {
    format!("{:.2}", 100.0 * place)
}

fn table_row(name: &str, run: &Run) -> String {
    let [began, name, lasted, waited, by, end, fence] = cells(name, run);
    let (class, cross) = if run.went_wrong() { (" class=\"f\"", "✗ ") } else { ("", "") };
    format!("<tr><td>{began}<td>{name}<td>{lasted}<td>{waited}<td>{by}<td{class}>{cross}{end}<td>{fence}\n")
}

/// What is known of a run, as text of the page.
fn cells(name: &str, run: &Run) -> [String; 7] {
    let unknown = || "-".to_owned();
    let slot = run.slot.map_or_else(String::new, |slot| format!("slot {slot}, "));
    [
        run.began.and_then(local_date).unwrap_or_else(unknown),
        name.to_owned(),
        run.duration.map_or_else(unknown, seconds),
        run.waited.map_or_else(unknown, seconds),
        run.owner.who(false).unwrap_or_else(unknown),
        format!("{slot}{}", result(run)),
        run.fencing_token.map_or_else(unknown, |fence| fence.to_string()),
    ]
    .map(|cell| text(&cell))
}

/// What others wrote as text of the page, where it is a part of neither an element nor an attribute.
fn text(text: &str) -> String {
    let text = escaped(text, LONGEST_NAME).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}
