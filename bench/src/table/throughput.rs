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
        "server on core 0, and client with all its threads there as well, or on core 1",
        "Tasks of one client take and give back keys of their own; pairs per second of all together. On one \
         core with the server that tells what all costs together, on two also what waits for the other.",
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
        let [one, two] = [FIRST, SECOND].map(|cores| {
            let play = Play {
                arena: &arena,
                role: "throughput",
                words: words(&[&tasks, &effort.pick(500, 250)]),
                cores,
            };
            play.rounds(&subjects, effort.rounds(), "rate")
        });
        let position = |id| subjects.iter().position(|subject| subject.id == id);
        let against_raw =
            |rates: &[Vec<f64>], of: usize| ratio(&rates[of], &rates[position(RAW.id)?]);
        let mut table = Table::new(
            &format!("{tasks} tasks, pairs a second:"),
            &["library", "one core", "× raw", "two cores", "× raw"],
        );
        for (at, subject) in subjects.iter().enumerate() {
            table.row(vec![
                label(*subject),
                cell(Spread::of(&one[at]), Spread::plain),
                cell(against_raw(&one, at), number::digits),
                cell(Spread::of(&two[at]), Spread::plain),
                cell(against_raw(&two, at), number::digits),
            ]);
        }
        section.tables.push(table);
        for (cores, rates) in [("one core", &one), ("two cores", &two)] {
            let found = position(LOCKATTR.id).and_then(|at| against_raw(rates, at));
            section.aim(
                &format!("{tasks} tasks, by hand, {cores}: at least 0.9 × raw"),
                found.map(|found| (format!("{} ×", number::digits(found)), found >= 0.9)),
            );
        }
    }
    section
}
