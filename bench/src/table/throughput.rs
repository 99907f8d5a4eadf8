//! Many tasks of one client, each with a key of its own.

use super::{Effort, Play, cell, label, ratio, words};
use crate::arena::Arena;
use crate::child::{FIRST, SECOND};
use crate::number::{self, Spread};
use crate::peers;
use crate::report::{Section, Table};
use crate::subject::{DIST_LOCK, LOCKATTR, RAW, all};

pub(super) fn measure(effort: Effort) -> Section {
    let mut section = Section::new(
        "Many keys at once",
        "server on core 0, client with all its threads on core 1",
        "Tasks of one client take and give back keys of their own; pairs per second of all together.",
    );
    let arena = Arena::on(FIRST);
    let all: Vec<_> = all()
        .into_iter()
        .filter(|subject| subject.id != DIST_LOCK.id)
        .collect();
    let (subjects, absent) = peers::present(&all);
    section.remarks = absent;
    section.remarks.push(format!(
        "{} makes a connection for each command and was left out.",
        DIST_LOCK.name
    ));
    for tasks in [64, 1_000] {
        let play = Play {
            arena: &arena,
            role: "throughput",
            words: words(&[&tasks, &effort.pick(500, 250)]),
            cores: SECOND,
        };
        let rates = play.rounds(&subjects, effort.rounds(), "rate");
        let of = |id| {
            let at = subjects.iter().position(|subject| subject.id == id);
            at.map_or(&[][..], |at| &rates[at])
        };
        let raw = of(RAW.id);
        let mut table = Table::new(
            &format!("{tasks} tasks:"),
            &["library", "pairs a second", "× raw"],
        );
        for (subject, rates) in subjects.iter().zip(&rates) {
            table.row(vec![
                label(*subject),
                cell(Spread::of(rates), Spread::plain),
                cell(ratio(rates, raw), number::digits),
            ]);
        }
        section.tables.push(table);
        let found = ratio(of(LOCKATTR.id), raw);
        section.aim(
            &format!("{tasks} tasks, by hand: at least 0.9 × raw"),
            found.map(|found| (format!("{} ×", number::digits(found)), found >= 0.9)),
        );
    }
    section
}
