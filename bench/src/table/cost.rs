//! Acquire and release, with nobody else about.

use super::{Effort, Play, asked, at_most, cell, label, ratio, words};
use crate::arena::Arena;
use crate::child::FIRST;
use crate::number::{self, Spread};
use crate::peers;
use crate::report::{Section, Table};
use crate::subject::{ATTRIBUTE, LOCKATTR, RAW, RSLOCK, Subject, all};

/// Those that are measured on the multi-thread runtime too.
const OF_BOTH: [Subject; 4] = [LOCKATTR, ATTRIBUTE, RAW, RSLOCK];

fn ours(subject: &Subject) -> bool {
    [LOCKATTR.id, ATTRIBUTE.id].contains(&subject.id)
}

pub(super) fn measure(effort: Effort) -> Section {
    let mut section = Section::new(
        "Acquire and release",
        "server and client on core 0",
        "One task takes a free key and gives it back; time per pair. Commands are counted in a run of \
         their own: what the client sent, and what its scripts called within the server.",
    );
    let arena = Arena::on(FIRST);
    let (mut subjects, absent) = peers::present(&all());
    subjects.extend(OF_BOTH.map(Subject::multi_thread));
    section.remarks = absent;
    let play = Play {
        arena: &arena,
        role: "pair",
        words: words(&[&effort.pick(300, 150)]),
        cores: FIRST,
    };
    let times = play.rounds(&subjects, effort.rounds(), "time");
    let of = |wanted: Subject| {
        let at = subjects.iter().position(|subject| subject.is(&wanted));
        at.map_or(&[][..], |at| &times[at])
    };
    let raw = |runtime_of: Subject| {
        of(Subject {
            multi_thread: runtime_of.multi_thread,
            ..RAW
        })
    };
    let mut table = Table::new(
        "",
        &[
            "library",
            "time per pair",
            "× raw",
            "commands sent",
            "called by scripts",
        ],
    );
    for (subject, times) in subjects.iter().zip(&times) {
        let counted = play.counted(*subject);
        let [sent, by_scripts] = asked(counted);
        table.row(vec![
            label(*subject),
            cell(Spread::of(times), Spread::time),
            cell(ratio(times, raw(*subject)), number::digits),
            sent,
            by_scripts,
        ]);
        if subject.is(&LOCKATTR) {
            let sent = counted.map(|asked| asked.sent);
            section.aim("2 commands", at_most(sent, 2.0, "by hand"));
        }
    }
    for subject in subjects.iter().filter(|subject| ours(subject)) {
        let found = at_most(ratio(of(*subject), raw(*subject)), 1.05, "×");
        section.aim(&format!("{}: at most 1.05 × raw", label(*subject)), found);
    }
    section.tables.push(table);
    section
}
