//! The forms that results share: lines of JSON, and tables.

use crate::text::unprintable;
use serde::Serialize;
use std::iter::zip;
use unicode_width::UnicodeWidthStr;

/// The greatest width of the column of names.
const COLUMN: usize = 40;

/// A cell without a value.
pub(super) const EMPTY: &str = "-";

/// The character between cells. No cell contains it, since other users' text is escaped.
const BETWEEN: &str = "\u{1f}";

/// A line of a list: its cells, or its object in JSON, as one text, since there may be very many lines.
#[derive(Debug)]
pub(crate) struct Row(Box<str>);

impl Row {
    pub(super) fn object(value: &impl Serialize) -> Row {
        Row(json(value).into())
    }

    pub(super) fn of(cells: &[String]) -> Row {
        Row(cells.join(BETWEEN).into())
    }

    /// The row must be an object.
    pub(super) fn json(&self) -> &str {
        &self.0
    }

    pub(super) fn cells(&self) -> impl Iterator<Item = &str> {
        self.0.split(BETWEEN)
    }
}

pub(super) fn json(of: &impl Serialize) -> String {
    value(of) + "\n"
}

/// A line of JSON: an object with these fields (name, value in JSON), in this order.
pub(super) fn object(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}\n", fields.join(","))
}

pub(super) fn value(of: impl Serialize) -> String {
    // Serializing never fails for redlock's types.
    unprintable_escaped(&serde_json::to_string(&of).unwrap_or_default())
}

/// Escapes all characters that a terminal obeys. JSON requires this only for the first 32 control characters. The
/// characters to escape occur only inside strings.
fn unprintable_escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match unprintable(c) {
            // Each of these characters has four hexadecimal digits at most.
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    out
}

/// The heads and rows as lines, with the cells in columns. `names` is the index of the column of names. This column is
/// at most [`COLUMN`] wide. A longer name is not cut: it shifts the rest of its row. If the table is wider than
/// `screen`, columns that have only `-` and `0` are left out. The column of names always stays.
pub(super) fn aligned(
    heads: Option<Row>,
    rows: &[Row],
    names: Option<usize>,
    screen: Option<usize>,
) -> impl Iterator<Item = String> {
    let mut widths = vec![0; heads.iter().chain(rows).next().map_or(0, |row| row.cells().count())];
    for row in heads.iter().chain(rows) {
        zip(&mut widths, row.cells()).for_each(|(width, cell)| *width = (*width).max(cell.width()));
    }
    if let Some(width) = names.and_then(|names| widths.get_mut(names)) {
        *width = (*width).min(COLUMN);
    }
    let is_too_wide = screen.is_some_and(|columns| widths.iter().map(|width| width + 2).sum::<usize>() > columns + 2);
    let is_empty = |at: usize| rows.iter().all(|row| matches!(row.cells().nth(at), Some(EMPTY | "0")));
    let is_left_out = |at: usize| is_too_wide && names != Some(at) && is_empty(at);
    let widths: Vec<Option<usize>> =
        widths.into_iter().enumerate().map(|(at, width)| Some(width).filter(|_| !is_left_out(at))).collect();
    let first = heads.as_ref().map(|heads| line(heads, &widths));
    first.into_iter().chain(rows.iter().map(move |row| line(row, &widths)))
}

/// The cells in columns of these widths; a column without a width is left out.
fn line(row: &Row, widths: &[Option<usize>]) -> String {
    let cells = zip(row.cells(), widths).filter_map(|(cell, width)| Some(padded(cell, (*width)?) + "  "));
    cells.collect::<String>().trim_end().to_owned() + "\n"
}

/// The text with spaces after it, up to this number of columns.
pub(super) fn padded(text: &str, columns: usize) -> String {
    format!("{text}{:1$}", "", columns.saturating_sub(text.width()))
}
