//! Tables in columns that are as wide as what stands in them.

use std::fmt::Write as _;

use anstyle::Style;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under a line of headings.
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<Cell>>,
}

/// What stands in a column of a row.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Self {
        let text = text.into();
        Self { text, style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::new())
    }
}

impl Table {
    pub(crate) fn new(columns: impl IntoIterator<Item = (&'static str, Align)>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines, which fit into `width` where that is possible: the first column, which has the keys,
    /// is cut in the middle then, since keys differ at their ends.
    pub(crate) fn lines(&self, width: Option<usize>) -> Vec<String> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(name, _)| name.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.text.width().max(*width);
            }
        }
        if let (Some(width), Some((first, rest))) = (width, widths.split_first_mut()) {
            let others: usize = rest.iter().map(|width| width + GAP.len()).sum();
            *first = width
                .saturating_sub(others)
                .clamp(SHORTEST.min(*first), *first);
        }
        let bold = Style::new().bold();
        let heading = self
            .columns
            .iter()
            .map(|(name, _)| Cell::styled(*name, bold));
        let heading = self.line(&heading.collect::<Vec<_>>(), &widths);
        let rows = self.rows.iter().map(|row| self.line(row, &widths));
        std::iter::once(heading).chain(rows).collect()
    }

    fn line(&self, row: &[Cell], widths: &[usize]) -> String {
        let mut line = String::new();
        let last = row.len().saturating_sub(1);
        for (at, ((cell, width), (_, align))) in
            row.iter().zip(widths).zip(&self.columns).enumerate()
        {
            let text = cut(&cell.text, *width);
            let room = " ".repeat(width.saturating_sub(text.width()));
            let (before, after) = match align {
                Align::Left if at == last => ("", ""),
                Align::Left => ("", room.as_str()),
                Align::Right => (room.as_str(), ""),
            };
            let gap = if at == 0 { "" } else { GAP };
            let style = cell.style;
            // It goes into memory, which does not fail.
            let _ = write!(line, "{gap}{before}{style}{text}{style:#}{after}");
        }
        line
    }
}

const GAP: &str = "  ";

/// Keys are not cut to less than this.
const SHORTEST: usize = 12;

/// A text without its middle where it is too wide.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let head = taken(text.chars(), room / 2);
    let tail: String = taken(text.chars().rev(), room - room / 2);
    let tail: String = tail.chars().rev().collect();
    format!("{head}…{tail}")
}

fn taken(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut left = width;
    chars
        .take_while(|c| {
            let width = c.width().unwrap_or(0);
            let fits = width <= left;
            left = left.saturating_sub(width);
            fits
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([("KEY", Align::Left), ("WAITERS", Align::Right)]);
        table.row(["sync:42".into(), "2".into()]);
        table.row(["report:2026-11-30:long".into(), "10".into()]);
        table
    }

    fn plain(lines: &[String]) -> Vec<String> {
        lines
            .iter()
            .map(|line| anstream::adapter::strip_str(line).to_string())
            .collect()
    }

    #[test]
    fn columns_are_as_wide_as_what_stands_in_them() {
        assert_eq!(
            plain(&table().lines(None)),
            [
                "KEY                     WAITERS",
                "sync:42                       2",
                "report:2026-11-30:long       10",
            ]
        );
    }

    #[test]
    fn keys_are_cut_in_the_middle_where_a_line_is_too_narrow() {
        assert_eq!(
            plain(&table().lines(Some(24))),
            [
                "KEY              WAITERS",
                "sync:42                2",
                "report:…30:long       10",
            ]
        );
        // Not to nothing.
        assert_eq!(plain(&table().lines(Some(1)))[2], "repor…0:long       10");
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(cut("鍵鍵鍵鍵", 5), "鍵…鍵");
    }
}
