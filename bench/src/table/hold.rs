//! Ten thousand leases at once.

use std::thread;
use std::time::Duration;

use super::{Effort, cell, label, words};
use crate::arena::Arena;
use crate::child::{ANY, Child};
use crate::number;
use crate::report::{Section, Table};
use crate::subject::{LOCKATTR, LOCKS, Language, Renewal, Subject};

const LEASES: u64 = 10_000;

/// What one library has come to.
struct Found {
    bytes: f64,
    tasks: f64,
    /// In one interval of its own, where that was waited for.
    commands: Option<f64>,
}

pub(super) fn measure(effort: Effort) -> Section {
    let mut section = Section::new(
        "Ten thousand leases held",
        "nothing pinned, a server for each library, all at the same time",
        "10,000 leases of 30 s, taken one after another and renewed. Commands are those that the client \
         sends during one of its own renewal intervals. Tasks are those of the runtime that took the \
         leases. Bytes are the growth of the process, less the bytes of the keys.",
    );
    let subjects: Vec<(Subject, Renewal)> = LOCKS
        .into_iter()
        .filter(|subject| subject.language == Language::Rust)
        .filter_map(|subject| Some((subject, subject.renews?)))
        .collect();
    let longest = effort.pick(Duration::from_secs(30), Duration::from_secs(10));
    let found: Vec<Option<Found>> = thread::scope(|scope| {
        let runs: Vec<_> = subjects
            .iter()
            .map(|(subject, renewal)| scope.spawn(|| hold(*subject, *renewal, longest)))
            .collect();
        let runs = runs.into_iter().map(|run| run.join().ok().flatten());
        runs.collect()
    });
    let columns = [
        "library",
        "renews every",
        "commands an interval",
        "tasks a lease",
        "bytes a lease",
    ];
    let mut table = Table::new("", &columns);
    for ((subject, renewal), found) in subjects.iter().zip(&found) {
        let found = found.as_ref();
        let tasks = found.map(|found| found.tasks / LEASES as f64);
        table.row(vec![
            label(*subject),
            number::time(renewal.every.as_secs_f64()),
            cell(found.and_then(|found| found.commands), number::digits),
            cell(tasks, number::digits),
            cell(found.map(|found| found.bytes), number::digits),
        ]);
        if subject.id == LOCKATTR.id {
            let show = |value: Option<f64>, most: f64| {
                value.map(|value| (number::digits(value), value <= most))
            };
            let commands = found.and_then(|found| found.commands);
            section.aim("at most 60 commands an interval", show(commands, 60.0));
            section.aim("no task a lease", show(tasks, 0.0));
            let bytes = found.map(|found| found.bytes);
            section.aim("under 300 bytes a lease over its key", show(bytes, 299.5));
        }
    }
    section.tables.push(table);
    section
}

fn hold(subject: Subject, renewal: Renewal, longest: Duration) -> Option<Found> {
    let arena = Arena::anywhere();
    let words = words(&[&LEASES]);
    // It says what it has grown by when it begins to hold.
    let mut child = Child::start(subject, "hold", &arena.url(), &words, ANY)?;
    let commands = (renewal.every <= longest).then(|| {
        let mut count = arena.count();
        thread::sleep(renewal.every);
        count.asked().sent
    });
    child.go("");
    let findings = child.finish()?;
    Some(Found {
        bytes: findings.one("bytes"),
        tasks: findings.one("tasks"),
        commands,
    })
}
