//! Ten million short calls.

use super::{Effort, Play, alternate, at_most, cell, label, words};
use crate::arena::Arena;
use crate::child::ANY;
use crate::number;
use crate::report::{Section, Table};
use crate::subject::{ATTRIBUTE, RAW};

/// What a process may grow by and still be called flat: some buffers.
const FLAT: f64 = 1024.0 * 1024.0;

pub(super) fn measure(effort: Effort) -> Section {
    let calls: u64 = effort.pick(10_000_000, 200_000);
    let mut section = Section::new(
        "Ten million short calls",
        "nothing pinned",
        &format!(
            "{} calls by 64 tasks of one client, each on a key of its own, once: the memory of the process \
             when the first hundredth was done, after half, and at the end; and how long a call of the second half \
             took, beside one of the first.",
            number::digits(calls as f64)
        ),
    );
    let arena = Arena::anywhere();
    let columns = [
        "library",
        "before",
        "in the middle",
        "after",
        "calls a second",
        "second half",
    ];
    let mut table = Table::new("", &columns);
    let play = Play {
        arena: &arena,
        role: "calls",
        words: words(&[&calls]),
        cores: ANY,
    };
    let subjects = [ATTRIBUTE, RAW];
    // Memory does not vary as times do: one round.
    for (subject, found) in subjects
        .iter()
        .zip(alternate(&subjects, 1, |subject| play.once(subject)))
    {
        let found = found.first();
        let memory = |name: &str| {
            cell(found, |found| {
                format!("{} MiB", number::digits(found.one(name) / 1024.0 / 1024.0))
            })
        };
        table.row(vec![
            label(*subject),
            memory("before"),
            memory("middle"),
            memory("after"),
            cell(found, |found| {
                number::digits(calls as f64 / found.one("time"))
            }),
            cell(found, |found| {
                format!("{} ×", number::digits(found.one("drift")))
            }),
        ]);
        if subject.id == ATTRIBUTE.id {
            let grown = found.map(|found| found.one("after") - found.one("middle"));
            let show = |grown: f64| {
                let text = format!(
                    "{} KiB more in the second half",
                    number::digits(grown / 1024.0)
                );
                (text, grown < FLAT)
            };
            section.aim("attribute: memory flat", grown.map(show));
            let drift = found.map(|found| found.one("drift"));
            section.aim("attribute: no drift", at_most(drift, 1.1, "×"));
        }
    }
    section.tables.push(table);
    section
}
