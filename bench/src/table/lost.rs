//! From a key's deletion to the end of the body.

use std::thread;
use std::time::Duration;

use bench_roles::now;

use super::{Effort, cell, label, words};
use crate::arena::Arena;
use crate::child::{ANY, Child};
use crate::number::{self, Spread};
use crate::report::{Section, Table};
use crate::subject::{ATTRIBUTE, Language, Subject, all};

const KEYS: u64 = 12;
const TTL: Duration = Duration::from_secs(4);

pub(super) fn measure(_: Effort) -> Section {
    let mut section = Section::new(
        "A key that is deleted",
        "nothing pinned, a server for each library, all at the same time",
        "Bodies hold 12 keys with a ttl of 4 s, renewed as each library does; all keys are deleted at once, at \
         some moment between renewals. Time until the holder hears of it. Libraries that renew only when \
         told to, and so never tell, are not listed.",
    );
    let subjects: Vec<(Subject, &str)> = all()
        .into_iter()
        .filter(|subject| subject.language == Language::Rust)
        .filter_map(|subject| Some((subject, subject.renews?.notice?)))
        .collect();
    let times: Vec<Option<Vec<f64>>> = thread::scope(|scope| {
        let runs: Vec<_> = subjects
            .iter()
            .map(|(subject, _)| scope.spawn(|| delays(*subject)))
            .collect();
        let runs = runs.into_iter().map(|run| run.join().ok().flatten());
        runs.collect()
    });
    let mut table = Table::new("", &["library", "how", "time until then", "heard"]);
    for ((subject, notice), times) in subjects.iter().zip(&times) {
        let spread = times.as_deref().and_then(Spread::of);
        table.row(vec![
            label(*subject),
            (*notice).to_owned(),
            cell(spread, Spread::time),
            cell(times.as_ref(), |times| format!("{} of {KEYS}", times.len())),
        ]);
        if subject.id == ATTRIBUTE.id {
            // What the machine adds to an interval when it is busy.
            let most = TTL.as_secs_f64() / 3.0 + 0.05;
            let found = spread.map(|spread| (number::time(spread.max), spread.max <= most));
            let aim = "attribute: one renewal interval at most, a third of the ttl";
            section.aim(aim, found);
        }
    }
    section.tables.push(table);
    section
}

fn delays(subject: Subject) -> Option<Vec<f64>> {
    let arena = Arena::anywhere();
    let words = words(&[&KEYS, &TTL.as_millis()]);
    let mut child = Child::start(subject, "lost", &arena.url(), &words, ANY)?;
    child.go("");
    thread::sleep(Duration::from_millis(700));
    let deleted = now().as_secs_f64();
    arena.clear();
    let findings = child.finish()?;
    let keys = (0..KEYS).filter_map(|key| Some(findings.rows(&key.to_string()).first()?[0]));
    Some(keys.map(|told| told - deleted).collect())
}
