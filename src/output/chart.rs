//! A picture of runs for a terminal.

use super::form::padded;
use super::picture::{LEGEND, Mark, Part, Picture};
use crate::cli::values::LONGEST_NAME;
use crate::sys::streams;
use crate::text::{cut, escaped};
use std::env;
use std::io::{IsTerminal, stdout};
use unicode_width::UnicodeWidthStr;

/// Each time below the chart has this many columns: `|`, five for the time, and space.
const TIME: usize = 8;
/// Names may take a fifth of the columns, and hosts another fifth.
const NAMES: usize = 5;
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// What standard output can show.
struct Medium {
    columns: usize,
    has_colors: bool,
    is_ascii: bool,
}

impl Medium {
    fn of_stdout() -> Medium {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default().to_lowercase();
        Medium {
            columns: streams::size(1).1,
            has_colors: stdout().is_terminal() && set("NO_COLOR").is_none(),
            is_ascii: !locale.contains("utf-8") && !locale.contains("utf8"),
        }
    }

    fn letter(&self, mark: Mark) -> char {
        match (mark, self.is_ascii) {
            (Mark::Nothing, _) => ' ',
            (Mark::Forgotten, _) => '?',
            (Mark::Waited, false) => '·',
            (Mark::Waited, true) => '.',
            (Mark::Ran, false) => '█',
            (Mark::Ran, true) => '#',
            (Mark::GoesOn, false) => '▒',
            (Mark::GoesOn, true) => '=',
            (Mark::Failed, false) => '✗',
            (Mark::Failed, true) => 'x',
        }
    }

    fn letters(&self, marks: &[Mark]) -> String {
        let text: String = marks.iter().map(|&mark| self.letter(mark)).collect();
        self.colored(text, marks[0] == Mark::Failed)
    }

    fn colored(&self, text: String, is_red: bool) -> String {
        if self.has_colors && is_red { format!("{RED}{text}{PLAIN}") } else { text }
    }
}

/// The picture as lines for standard output, without names if all runs are of one lock (`of_one`).
pub(crate) fn chart(picture: &Picture<'_>, of_one: bool) -> Vec<String> {
    let medium = Medium::of_stdout();
    let short = |text: &str| cut(&escaped(text, LONGEST_NAME), medium.columns / NAMES);
    let labels: Vec<(String, String)> = picture
        .lines
        .iter()
        .map(|(lock, host, _)| (if of_one { String::new() } else { short(&lock.status.name) }, short(host)))
        .collect();
    let names = labels.iter().map(|(name, _)| name.width() + 2).max().filter(|_| !of_one).unwrap_or(0);
    let hosts = labels.iter().map(|(_, host)| host.width() + 2).max().unwrap_or(0);
    let width = medium.columns.saturating_sub(names + hosts).max(TIME);
    let lines = labels.iter().zip(&picture.lines).map(|((name, host), (lock, _, parts))| {
        let (marks, (absence, is_overdue)) = (marks(picture, parts, width), lock.absence(medium.letter(Mark::Failed)));
        let drawn = match parts.is_empty() {
            true => medium.colored(cut(&absence, width), is_overdue),
            false => marks.chunk_by(|one, other| one == other).map(|alike| medium.letters(alike)).collect(),
        };
        format!("{}{}{}\n", padded(name, names), padded(host, hosts), drawn.trim_end())
    });
    let mut times = String::new();
    for (time, shown) in picture.round_times((width / TIME) as u64 + 1) {
        let at = column(picture.place(time), width);
        if at >= times.len() && at + TIME <= width + 2 {
            times = padded(&times, at) + &format!("|{shown} ");
        }
    }
    let times = format!("{}{}\n", padded("", names + hosts), times.trim_end());
    let meanings = LEGEND.map(|(mark, meaning)| format!("{} {meaning}", medium.letter(mark))).join("  ");
    let legend = cut(&meanings, medium.columns) + "\n";
    lines.chain([times, legend].into_iter().filter(|_| !labels.is_empty())).collect()
}

/// The mark in each column of a line. A run that is shorter than a column is shown, too.
fn marks(picture: &Picture<'_>, parts: &[Part<'_>], width: usize) -> Vec<Mark> {
    let mut marks = vec![Mark::Nothing; width];
    for part in parts {
        let first = column(picture.place(part.from), width);
        let last = (picture.place(part.to) * width as f64).ceil() as usize;
        for mark in &mut marks[first..last.clamp(first + 1, width)] {
            *mark = part.mark.max(*mark);
        }
    }
    marks
}

fn column(place: f64, width: usize) -> usize {
    ((place * width as f64) as usize).min(width - 1)
}
