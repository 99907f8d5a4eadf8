//! Locks as the rows of a table.

use std::time::SystemTime;

use anstyle::{AnsiColor, Style};
use lockattr::store::inspect::Listed;

use crate::gather::oldest;
use crate::table::{Align, Cell, Table};
use crate::words;

/// The table of some locks.
pub(crate) fn table<'a>(locks: impl IntoIterator<Item = &'a Listed>, now: SystemTime) -> Table {
    let mut table = Table::new([
        ("KEY", Align::Left),
        ("STATE", Align::Left),
        ("HOLDER", Align::Left),
        ("SINCE", Align::Right),
        ("REMAINING", Align::Right),
        ("WAITERS", Align::Right),
        ("PERMITS", Align::Right),
    ]);
    for listed in locks {
        table.row(row(listed, now));
    }
    table
}

fn row(listed: &Listed, now: SystemTime) -> [Cell; 7] {
    let state = words::state(listed);
    let since = oldest(listed).map(|since| words::length(words::age(since, now)));
    let remaining = listed
        .entries
        .iter()
        .filter_map(|entry| entry.remaining)
        .min();
    let waiters = match listed.waiters {
        0 => Cell::from("-"),
        waiters => Cell::styled(waiters.to_string(), Style::new().bold()),
    };
    [
        words::one_line(&listed.lock).into(),
        Cell::styled(state, style(state)),
        holders(listed).into(),
        since.unwrap_or_else(dash).into(),
        remaining.map_or_else(dash, words::length).into(),
        waiters,
        permits(listed).into(),
    ]
}

/// The first who holds it or has left it closed, and how many more there are: holders first.
fn holders(listed: &Listed) -> String {
    let (held, others): (Vec<_>, Vec<_>) = listed
        .entries
        .iter()
        .partition(|entry| words::is_held(entry));
    let mut holders = held
        .into_iter()
        .chain(others)
        .filter_map(|entry| words::holder(&entry.kind));
    match (holders.next(), holders.count()) {
        (Some(first), 0) => words::one_line(first),
        (Some(first), more) => format!("{} +{more}", words::one_line(first)),
        (None, _) => dash(),
    }
}

/// How many are taken of how many; of readers, how many there are.
fn permits(listed: &Listed) -> String {
    match (listed.permits, listed.entries.len()) {
        (Some(permits), _) => format!("{}/{permits}", words::taken(listed)),
        (None, readers) if listed.shared => format!("{readers} shared"),
        (None, 0 | 1) => dash(),
        (None, taken) => taken.to_string(),
    }
}

fn dash() -> String {
    "-".to_owned()
}

/// The colour of a state.
pub(crate) fn style(state: &str) -> Style {
    let colour = match state {
        "held" => AnsiColor::Green,
        "closed" | "waiting" => AnsiColor::Yellow,
        "done" => AnsiColor::Cyan,
        _ => AnsiColor::Red,
    };
    colour.on_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockattr::store::inspect::{Entry, EntryKind};

    use super::*;

    #[test]
    fn a_row_says_what_an_operator_asks() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let held = |slot, host: &str, ago| {
            let kind = EntryKind::Held {
                owner: format!("0190aabb@{host}"),
                since: Some(now - Duration::from_secs(ago)),
            };
            Entry::new(slot, kind, Some(Duration::from_secs(12 + ago)))
        };
        let entries = vec![held(0, "web-1:7", 63), held(2, "web-2:8", 5)];
        let geo = Listed::new("geo", entries, 4).permits(Some(3));
        let heavy = vec![held(0, "web-1:7", 63).weight(4), held(1, "web-2:8", 5)];
        let units = Listed::new("units", heavy, 0).permits(Some(1_000_000));
        let readers = vec![held(0, "web-1:7", 63), held(0, "web-2:8", 5)];
        let doc = Listed::new("doc", readers, 1).shared(true);
        let only_waited_for = Listed::new("odd\nkey", Vec::new(), 1);
        let lines = table([&geo, &units, &doc, &only_waited_for], now).lines(None);
        let plain = |line: &String| anstream::adapter::strip_str(line).to_string();
        assert_eq!(
            lines.iter().map(plain).collect::<Vec<_>>(),
            [
                "KEY       STATE    HOLDER      SINCE  REMAINING  WAITERS    PERMITS",
                "geo       held     web-1:7 +1  1m 3s        17s        4        2/3",
                "units     held     web-1:7 +1  1m 3s        17s        -  5/1000000",
                "doc       held     web-1:7 +1  1m 3s        17s        1   2 shared",
                "odd\\nkey  waiting  -               -          -        1          -",
            ]
        );
    }
}
