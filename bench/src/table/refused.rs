//! Tries for a key that is held.

use super::{Effort, Play, alternate, asked, cell, label, ratio, words};
use crate::arena::{Arena, Asked, Count};
use crate::child::{Child, FIRST};
use crate::number::{self, Spread};
use crate::peers;
use crate::report::{Section, Table};
use crate::subject::{LOCKATTR, LOCKS, RAW, Subject};

const KEY: &str = "refused";
const STORM: u64 = 1_000;

pub(super) fn measure(effort: Effort) -> Section {
    let mut section = Section::new(
        "Refused tries",
        "server and client on core 0",
        "Tries that do not wait, for a key that is held: by another process, 1,000 tasks of one client at \
         once; by the process itself, one after another.",
    );
    let arena = Arena::on(FIRST);
    let (subjects, absent) = peers::present(&LOCKS);
    section.remarks = absent;
    let length = effort.pick(300, 100);
    let times = alternate(&subjects, effort.rounds(), |subject| {
        storm(subject, &arena, length, None).map(|found| found.0)
    });
    let columns = [
        "library",
        "time per try",
        "× raw",
        "commands sent",
        "called by scripts",
    ];
    let mut table = Table::new("Held by another process, a storm of 1,000:", &columns);
    let of = |times: &[Vec<f64>], id| {
        let at = subjects.iter().position(|subject| subject.id == id);
        at.map(|at| times[at].clone()).unwrap_or_default()
    };
    let raw = of(&times, RAW.id);
    for (subject, times) in subjects.iter().zip(&times) {
        let count = Some(arena.count());
        let counted = storm(*subject, &arena, length, count).and_then(|found| found.1);
        let [sent, by_scripts] = asked(counted);
        table.row(vec![
            label(*subject),
            cell(Spread::of(times), Spread::time),
            cell(ratio(times, &raw), number::digits),
            sent,
            by_scripts,
        ]);
        if subject.id == LOCKATTR.id {
            let sent = counted.map(|asked| asked.sent);
            let found = sent.map(|sent| (number::digits(sent), sent <= 2.0));
            section.aim("held by another process: at most 2 commands", found);
        }
    }
    section.tables.push(table);

    let own = Play {
        arena: &arena,
        role: "own",
        words: words(&[&KEY, &length]),
        cores: FIRST,
    };
    let times = own.rounds(&subjects, effort.rounds(), "time");
    let raw = of(&times, RAW.id);
    let mut table = Table::new("Held by this process:", &columns);
    for (subject, times) in subjects.iter().zip(&times) {
        let counted = own.counted(*subject);
        let [sent, by_scripts] = asked(counted);
        let time = Spread::of(times);
        table.row(vec![
            label(*subject),
            cell(time, Spread::time),
            cell(ratio(times, &raw), number::digits),
            sent,
            by_scripts,
        ]);
        if subject.id == LOCKATTR.id {
            let found = time.map(|time| (number::time(time.median), time.median < 1e-6));
            section.aim("held by this process: under 1 µs", found);
            let sent = counted.map(|asked| asked.sent);
            let found = sent.map(|sent| (number::digits(sent), sent < 0.01));
            section.aim("held by this process: no command", found);
        }
    }
    section.tables.push(table);
    section
}

/// Time per try, and commands per try where they are counted, which another process refuses.
fn storm(
    subject: Subject,
    arena: &Arena,
    length: u64,
    count: Option<Count>,
) -> Option<(f64, Option<Asked>)> {
    arena.clear();
    let url = arena.url();
    let _holder = Child::start(subject, "own", &url, &words(&[&KEY, &0]), FIRST)?;
    let words = words(&[&KEY, &length, &STORM]);
    let mut child = Child::start(subject, "storm", &url, &words, FIRST)?;
    let mut count = count;
    if let Some(count) = &mut count {
        count.asked();
    }
    child.go("");
    let findings = child.finish()?;
    let tries = findings.one("times") * STORM as f64;
    let asked = count.map(|mut count| count.asked().per(tries));
    Some((findings.one("time") / STORM as f64, asked))
}
