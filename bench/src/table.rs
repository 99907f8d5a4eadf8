//! The tables, each a file, and what they share.

use crate::arena::{Arena, Asked};
use crate::child::{Child, Findings};
use crate::number::{self, Spread};
use crate::report::Section;
use crate::subject::Subject;

mod build;
mod calls;
mod contest;
mod cost;
mod expansion;
mod fairness;
mod handover;
mod hold;
mod inside;
mod list;
mod lost;
mod observe;
mod peers;
mod refused;
mod throughput;
mod topologies;
mod zookeeper;

/// How much of everything is done.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub quick: bool,
}

impl Effort {
    /// One number of a complete run, another of a quick one.
    pub fn pick<T>(self, complete: T, quick: T) -> T {
        if self.quick { quick } else { complete }
    }

    pub fn rounds(self) -> usize {
        self.pick(5, 3)
    }
}

/// A table's name on the command line and in `results/`, and how it is made.
pub type Entry = (&'static str, fn(Effort) -> Section);

pub const TABLES: [Entry; 16] = [
    ("peers", peers::measure),
    ("cost", cost::measure),
    ("throughput", throughput::measure),
    ("handover", handover::measure),
    ("inside", inside::measure),
    ("fairness", fairness::measure),
    ("refused", refused::measure),
    ("hold", hold::measure),
    ("calls", calls::measure),
    ("lost", lost::measure),
    ("topologies", topologies::measure),
    ("observe", observe::measure),
    ("list", list::measure),
    ("zookeeper", zookeeper::measure),
    ("expansion", expansion::measure),
    ("build", build::measure),
];

/// A role to be played by several libraries.
struct Play<'a> {
    arena: &'a Arena,
    role: &'static str,
    words: Vec<String>,
    cores: &'static str,
}

impl Play<'_> {
    /// Once.
    fn once(&self, subject: Subject) -> Option<Findings> {
        self.arena.clear();
        let url = self.arena.url();
        let mut child = Child::start(subject, self.role, &url, &self.words, self.cores)?;
        child.go("");
        child.finish()
    }

    /// Once more, while commands are counted instead of time taken: those of each time.
    fn counted(&self, subject: Subject) -> Option<Asked> {
        self.arena.clear();
        let mut count = self.arena.count();
        let url = self.arena.url();
        let mut child = Child::start(subject, self.role, &url, &self.words, self.cores)?;
        count.asked();
        child.go("");
        let times = child.finish()?.one("times");
        Some(count.asked().per(times))
    }

    /// In rounds that alternate; the numbers of one name, for each library.
    fn rounds(&self, subjects: &[Subject], rounds: usize, name: &str) -> Vec<Vec<f64>> {
        alternate(subjects, rounds, |subject| {
            self.once(subject).map(|findings| findings.one(name))
        })
    }
}

/// Every subject once in each round, in an order that turns from round to round.
fn alternate<T>(
    subjects: &[Subject],
    rounds: usize,
    mut run: impl FnMut(Subject) -> Option<T>,
) -> Vec<Vec<T>> {
    let mut results: Vec<Vec<T>> = subjects.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for step in 0..subjects.len() {
            let at = (round + step) % subjects.len();
            results[at].extend(run(subjects[at]));
        }
    }
    results
}

fn words(words: &[&dyn ToString]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

/// A library with its version.
fn label(subject: Subject) -> String {
    let version = crate::peers::version(subject).unwrap_or_default();
    let runtime = if subject.multi_thread {
        ", multi-thread"
    } else {
        ""
    };
    format!("{} {version}{runtime}", subject.name)
}

/// A cell, or a dash where there is no result.
fn cell<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), show)
}

fn asked(asked: Option<Asked>) -> [String; 2] {
    [
        cell(asked, |asked| number::digits(asked.sent)),
        cell(asked, |asked| number::digits(asked.by_scripts)),
    ]
}

/// The medians of one library's rounds against another's.
fn ratio(of: &[f64], to: &[f64]) -> Option<f64> {
    Some(Spread::of(of)?.median / Spread::of(to)?.median)
}

/// A ratio beside an aim that it is not to pass.
fn at_most(ratio: Option<f64>, most: f64, unit: &str) -> Option<(String, bool)> {
    ratio.map(|ratio| (format!("{} {unit}", number::digits(ratio)), ratio <= most))
}
