//! Tries for a key that is held.

use super::{Effort, Play, asked, cell, label, ratio, words};
use crate::arena::{Arena, Asked};
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
    let storms = effort.pick(10, 4);
    let mut times = vec![Vec::new(); subjects.len()];
    for round in 0..effort.rounds() {
        for step in 0..subjects.len() {
            let at = (round + step) % subjects.len();
            times[at].extend(storm(subjects[at], &arena, storms).map(|found| found.0));
        }
    }
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
        let counted = storm(*subject, &arena, 1).map(|found| found.1);
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

    let own = |tries: u64| Play {
        arena: &arena,
        role: "own",
        words: words(&[&KEY, &tries]),
        cores: FIRST,
    };
    let tries = effort.pick(5_000, 2_000);
    let times = own(tries).rounds(&subjects, effort.rounds(), "time");
    let raw = of(&times, RAW.id);
    let mut table = Table::new("Held by this process:", &columns);
    for (subject, times) in subjects.iter().zip(&times) {
        const COUNTED: u64 = 500;
        let counted = own(COUNTED).counted(*subject);
        let counted = counted.map(|asked| asked.per(COUNTED as f64));
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

/// Time per try, and commands per try, which another client of the library refuses.
fn storm(subject: Subject, arena: &Arena, storms: u64) -> Option<(f64, Asked)> {
    arena.clear();
    let url = arena.url();
    let _holder = Child::start(subject, "own", &url, &words(&[&KEY, &0]), FIRST)?;
    let mut count = (storms == 1).then(|| arena.count());
    let words = words(&[&KEY, &STORM, &storms]);
    let mut child = Child::start(subject, "storm", &url, &words, FIRST)?;
    if let Some(count) = &mut count {
        count.asked();
    }
    child.go("");
    let time = child.finish()?.one("time");
    let asked = count.map_or(Asked::NONE, |mut count| count.asked());
    Some((time, asked.per((STORM * storms) as f64)))
}
