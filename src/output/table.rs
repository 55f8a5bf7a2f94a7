//! Lists of locks and runs, as text and JSON.

use super::form::{EMPTY, Row, aligned};
use super::log::led;
use super::{lease_news, log, state};
use crate::cli::values::LONGEST_NAME;
use crate::lock::{Facts, Holder, Run, State, Status};
use crate::sys::clock::local_minute;
use crate::text::{cut, escaped, first_of, human, seconds};
use serde::Serialize;
use std::borrow::Cow;
use std::iter::once;

pub(super) const HEADS: [&str; 7] = ["NAME", "STATE", "HELD BY", "FOR", "LEASE", "WAIT", "LAST RUN"];

#[derive(Serialize)]
struct NamedRun<'a> {
    name: &'a str,
    #[serde(flatten)]
    run: &'a Run,
}

impl Row {
    /// A lock's row. `columns` is the width of the screen, if the table has to fit one.
    pub(crate) fn of_lock(status: &Status, facts: &Facts, is_json: bool, columns: Option<usize>) -> Row {
        if is_json { Row::object(status) } else { Row::of(&lock_cells(status, facts, columns)) }
    }

    /// A run's row. The row has a cell for the name of the lock, unless all rows are of one lock (`of_one`).
    pub(crate) fn of_run(name: &str, run: &Run, is_json: bool, of_one: bool, verbose: bool) -> Row {
        match is_json {
            true => Row::object(&NamedRun { name, run }),
            false => Row::of(&log::cells(Some(name).filter(|_| !of_one), run, verbose)),
        }
    }
}

/// The locks as a table or as one object, in parts. `columns` is the width of the screen, if the table has to fit one.
pub(crate) fn locks(
    rows: &[Row],
    is_json: bool,
    columns: Option<usize>,
) -> Box<dyn Iterator<Item = Cow<'_, str>> + '_> {
    if !is_json {
        let heads = Row::of(&HEADS.map(str::to_owned));
        return Box::new(aligned(Some(heads), rows, Some(0), columns).map(Cow::from));
    }
    let objects = rows.iter().enumerate().flat_map(|(at, row)| [if at > 0 { "," } else { "" }, row.json().trim_end()]);
    Box::new(once(r#"{"locks":["#).chain(objects).chain(once("]}\n")).map(Cow::from))
}

/// An object or a row for each run. The second cell of a row is a name, unless all runs are of one lock (`of_one`).
pub(crate) fn runs(rows: &[Row], is_json: bool, of_one: bool) -> Box<dyn Iterator<Item = Cow<'_, str>> + '_> {
    match is_json {
        true => Box::new(rows.iter().map(|row| Cow::from(row.json()))),
        false => Box::new(aligned(None, rows, Some(1).filter(|_| !of_one), None).map(Cow::from)),
    }
}

fn lock_cells(status: &Status, facts: &Facts, columns: Option<usize>) -> [String; 7] {
    let none = || EMPTY.to_owned();
    let fitted = |text: String, part| columns.map_or_else(|| text.clone(), |columns| cut(&text, columns / part));
    let holders: Vec<&Holder> = status.holders().iter().filter(|holder| holder.has_record()).collect();
    let by: Vec<String> = holders.iter().map(|holder| holder.owner.at()).collect();
    let usual = led(" ", status.history.usual.map(|usual| format!("({})", first_units(&human(usual), 1))));
    let found = facts.news();
    let news = found.iter().map(|finding| finding.word().to_owned());
    let news = news
        .chain(holders.iter().find_map(|holder| lease_news(holder)))
        .chain(closed(status))
        .chain(log::last_cell(status));
    let news: Vec<String> = news.collect();
    [
        // Names are cut only for a screen: elsewhere no two locks may look alike.
        fitted(escaped(&status.name, LONGEST_NAME), 3),
        state(status),
        fitted(if by.is_empty() { none() } else { first_of(by, 1, status.holder_count) }, 4),
        holders
            .iter()
            .filter_map(|holder| holder.held)
            .max()
            .map_or_else(none, |held| first_units(&seconds(held), 2) + &usual),
        match (status.lease(), status.state) {
            (None, State::Held | State::Revoked | State::Foreign) => "never".to_owned(),
            (lease, _) => lease.map_or_else(none, |lease| first_units(&human(lease), 1)),
        },
        status.waiting.map_or_else(none, |waiting| waiting.to_string()),
        if news.is_empty() { none() } else { news.join("; ") },
    ]
}

fn closed(status: &Status) -> Option<String> {
    Some(format!("closed until {}", local_minute(status.closed_until?)?))
}

/// A duration in fewer units: a table has no room for all.
fn first_units(time: &str, most: usize) -> String {
    time.split(' ').take(most).collect::<Vec<_>>().join(" ")
}
