//! Many tasks of one client, each with a key of its own.

use super::{Effort, Play, cell, label, ratio, words};
use crate::arena::Arena;
use crate::child::{FIRST, SECOND};
use crate::number::{self, Spread};
use crate::peers;
use crate::report::{Section, Table};
use crate::subject::{ATTRIBUTE, DIST_LOCK, LOCKATTR, RAW, RSLOCK, Subject, all};

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
    let on_both: Vec<_> = [LOCKATTR, ATTRIBUTE, RAW, RSLOCK]
        .map(Subject::multi_thread)
        .to_vec();
    section.remarks = absent;
    section.remarks.push(format!(
        "{} makes a connection for each command and was left out.",
        DIST_LOCK.name
    ));
    for tasks in [16, 64, 256, 1_000] {
        for of_runtime in [&subjects, &on_both] {
            compare(&mut section, &arena, effort, tasks, of_runtime);
        }
    }
    section
}

/// Subjects on one runtime, with one number of tasks.
fn compare(section: &mut Section, arena: &Arena, effort: Effort, tasks: u32, subjects: &[Subject]) {
    let [one, two] = [FIRST, SECOND].map(|cores| {
        let play = Play {
            arena,
            role: "throughput",
            words: words(&[&tasks, &effort.pick(400, 200)]),
            cores,
        };
        play.rounds(subjects, effort.rounds(), "rate")
    });
    let raw = subjects.iter().position(|subject| subject.id == RAW.id);
    let against_raw = |rates: &[Vec<f64>], of: usize| ratio(&rates[of], &rates[raw?]);
    let runtime = if subjects.iter().any(|subject| subject.multi_thread) {
        "multi-thread runtime with two workers"
    } else {
        "current-thread runtime"
    };
    let mut table = Table::new(
        &format!("{tasks} tasks on a {runtime}, pairs a second:"),
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
    for (at, subject) in subjects.iter().enumerate() {
        if ![LOCKATTR.id, ATTRIBUTE.id].contains(&subject.id) {
            continue;
        }
        for (cores, rates) in [("one core", &one), ("two cores", &two)] {
            let found = against_raw(rates, at);
            section.aim(
                &format!(
                    "{tasks} tasks, {}, {cores}: at least 0.95 × raw",
                    label(*subject)
                ),
                found.map(|found| (format!("{} ×", number::digits(found)), found >= 0.95)),
            );
        }
    }
}
