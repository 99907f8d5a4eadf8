//! Acquire and release, with nobody else about.

use super::{Effort, Play, asked, at_most, cell, label, ratio, words};
use crate::arena::Arena;
use crate::child::FIRST;
use crate::number::{self, Spread};
use crate::peers;
use crate::report::{Section, Table};
use crate::subject::{ATTRIBUTE, LOCKATTR, RAW, all};

pub(super) fn measure(effort: Effort) -> Section {
    let mut section = Section::new(
        "Acquire and release",
        "server and client on core 0",
        "One task takes a free key and gives it back; time per pair. Commands are counted in a run of \
         their own: what the client sent, and what its scripts called within the server.",
    );
    let arena = Arena::on(FIRST);
    let (subjects, absent) = peers::present(&all());
    section.remarks = absent;
    let play = Play {
        arena: &arena,
        role: "pair",
        words: words(&[&effort.pick(300, 150)]),
        cores: FIRST,
    };
    let times = play.rounds(&subjects, effort.rounds(), "time");
    let at = |id| subjects.iter().position(|subject| subject.id == id);
    let of = |id| at(id).map_or(&[][..], |at| &times[at]);
    let raw = of(RAW.id);
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
            cell(ratio(times, raw), number::digits),
            sent,
            by_scripts,
        ]);
        if subject.id == LOCKATTR.id {
            let sent = counted.map(|asked| asked.sent);
            section.aim("2 commands", at_most(sent, 2.0, "by hand"));
        }
    }
    for subject in [LOCKATTR, ATTRIBUTE] {
        let found = at_most(ratio(of(subject.id), raw), 1.1, "×");
        section.aim(&format!("{}: at most 1.10 × raw", subject.name), found);
    }
    section.tables.push(table);
    section
}
