//! The table of events that the library's documentation has.

use std::sync::LazyLock;

use tracing::Level;

use super::Told;

/// One event, as the table has it.
struct Row {
    level: Level,
    message: &'static str,
    /// Those that it always has.
    fields: Vec<&'static str>,
    /// Those that stand where they are known.
    more: Vec<&'static str>,
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let text = include_str!("../../../lockattr/src/events.md");
    text.lines().filter_map(row).collect()
});

/// Input:  "| WARN | a message | `key` \[`function`\] | when |"
fn row(line: &'static str) -> Option<Row> {
    let cells: Vec<_> = line.split('|').map(str::trim).collect();
    let ["", level, message, fields, _, ""] = cells[..] else {
        return None;
    };
    let level = level.parse().ok()?;
    let (mut always, mut more) = (Vec::new(), Vec::new());
    for field in fields.split_whitespace() {
        let name = field.trim_matches(['`', '\\', '[', ']']);
        let list = if field.starts_with('`') {
            &mut always
        } else {
            &mut more
        };
        list.push(name);
    }
    Some(Row {
        level,
        message,
        fields: always,
        more,
    })
}

/// What the table does not say of an event of the library's.
pub(super) fn undocumented(told: &Told) -> Option<String> {
    let is_of = |row: &&Row| row.level == told.level && row.message == told.message;
    let Some(row) = ROWS.iter().find(is_of) else {
        return Some(format!("events.md has no such event: {told:?}"));
    };
    let missing = row.fields.iter().find(|name| !told.fields.contains(name));
    if let Some(name) = missing {
        return Some(format!("events.md promises `{name}`: {told:?}"));
    }
    let unknown = |name: &&&str| !row.fields.contains(*name) && !row.more.contains(*name);
    let more = told.fields.iter().find(unknown)?;
    Some(format!("events.md has no `{more}`: {told:?}"))
}

/// Levels and messages of all events in the table.
pub fn documented() -> impl Iterator<Item = (Level, &'static str)> {
    ROWS.iter().map(|row| (row.level, row.message))
}
