//! Processes whose tasks all want one key, and what came of it.

use std::collections::HashSet;
use std::fs::File;
use std::thread;
use std::time::Duration;

use bench_roles::now;

use super::words;
use crate::arena::{Arena, Asked};
use crate::child::{Child, SECOND};
use crate::subject::Subject;

/// Who wants the key, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contest {
    pub(super) processes: usize,
    /// Of each process.
    pub(super) clients: usize,
    /// Of each client.
    pub(super) tasks: usize,
    /// How long a body lasts, in milliseconds.
    pub(super) body: u64,
    /// Whether a task asks again at once, or after another has had its turn.
    pub(super) at_once: bool,
    /// How long it lasts before it counts: until everybody has asked once.
    pub(super) warm_up: Duration,
    pub(super) length: Duration,
}

/// One task's turn; times in seconds on the clock of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) process: usize,
    pub(super) task: u64,
    pub(super) asked: f64,
    pub(super) entered: f64,
    pub(super) left: f64,
}

/// What came of a contest.
#[derive(Debug)]
pub(super) struct Outcome {
    /// By their entry.
    pub(super) turns: Vec<Turn>,
    /// How long those had waited who had no turn before the end.
    pub(super) unserved: Vec<f64>,
}

impl Outcome {
    /// From each release to the next body, where that one's task was waiting by then.
    pub(super) fn handovers(&self) -> Vec<f64> {
        let pairs = self.turns.windows(2);
        let waited = pairs.filter(|pair| pair[1].asked < pair[0].left);
        waited.map(|pair| pair[1].entered - pair[0].left).collect()
    }

    /// Bodies that began before the one before had ended.
    pub(super) fn overlaps(&self) -> usize {
        let pairs = self.turns.windows(2);
        pairs.filter(|pair| pair[1].entered < pair[0].left).count()
    }

    /// From one body's begin to the next one's.
    pub(super) fn section(&self) -> Option<f64> {
        let (first, last) = (self.turns.first()?, self.turns.last()?);
        let sections = self.turns.len().checked_sub(1).filter(|many| *many > 0)?;
        Some((last.entered - first.entered) / sections as f64)
    }

    /// How many turns in a row went to one of something.
    pub(super) fn longest_run<K: PartialEq>(&self, of: impl Fn(&Turn) -> K) -> usize {
        let runs = self.turns.chunk_by(|one, next| of(one) == of(next));
        runs.map(<[Turn]>::len).max().unwrap_or(0)
    }

    /// How many of so many tasks never had the key.
    pub(super) fn without_turn(&self, tasks: usize) -> usize {
        let served: HashSet<_> = self
            .turns
            .iter()
            .map(|turn| (turn.process, turn.task))
            .collect();
        tasks - served.len()
    }

    pub(super) fn longest_wait(&self) -> f64 {
        let served = self.turns.iter().map(|turn| turn.entered - turn.asked);
        let all = served.chain(self.unserved.iter().copied());
        all.fold(0.0, f64::max)
    }
}

impl Contest {
    /// Plays it on the second core.
    pub(super) fn run(&self, subject: Subject, arena: &Arena) -> Option<Outcome> {
        arena.clear();
        let mut children = self.start(subject, arena)?;
        let begin = self.play(&mut children);
        thread::sleep(self.warm_up + self.length);
        outcome(children, begin)
    }

    /// The same while commands are counted: for each turn. Not to the very end, when all who wait leave
    /// their queue.
    pub(super) fn counted(&self, subject: Subject, arena: &Arena) -> Option<Asked> {
        arena.clear();
        let mut count = arena.count();
        let mut children = self.start(subject, arena)?;
        let begin = self.play(&mut children);
        let end = begin + self.length * 19 / 20;
        thread::sleep(begin.saturating_sub(now()));
        count.asked();
        let begin = now();
        thread::sleep(end.saturating_sub(now()));
        let asked = count.asked();
        let end = now().as_secs_f64();
        let turns = outcome(children, begin)?.turns;
        let counted = turns.iter().filter(|turn| turn.entered < end);
        Some(asked.per(counted.count() as f64))
    }

    fn start(&self, subject: Subject, arena: &Arena) -> Option<Vec<Child>> {
        // Through it the processes of a run see whether another has had its turn.
        let file = arena.server.directory().join("last-entry");
        File::create(&file).and_then(|file| file.set_len(8)).ok()?;
        let pace = if self.at_once {
            "at-once"
        } else {
            "after-another"
        };
        let (clients, tasks, body) = (self.clients, self.tasks, self.body);
        let words = words(&[&"contest", &clients, &tasks, &body, &pace, &file.display()]);
        let child = |_| Child::start(subject, "queue", &arena.url(), &words, SECOND);
        (0..self.processes).map(child).collect()
    }

    /// Lets them go; the moment from which on it counts.
    fn play(&self, children: &mut [Child]) -> Duration {
        let begin = now() + self.warm_up;
        let end = (begin + self.length).as_nanos().to_string();
        for child in children {
            child.go(&end);
        }
        begin
    }
}

/// What was entered from a moment on.
fn outcome(children: Vec<Child>, begin: Duration) -> Option<Outcome> {
    let mut outcome = Outcome {
        turns: Vec::new(),
        unserved: Vec::new(),
    };
    for (process, child) in children.into_iter().enumerate() {
        let findings = child.finish()?;
        let turns = findings.rows("turn").iter().map(|row| Turn {
            process,
            task: row[0] as u64,
            asked: row[1] / 1e9,
            entered: row[2] / 1e9,
            left: row[3] / 1e9,
        });
        let counts = turns.filter(|turn| turn.entered >= begin.as_secs_f64());
        outcome.turns.extend(counts);
        let unserved = findings.rows("waits").iter();
        outcome.unserved.extend(unserved.map(|row| row[1] / 1e9));
    }
    let turns = &mut outcome.turns;
    turns.sort_by(|one, other| one.entered.total_cmp(&other.entered));
    Some(outcome)
}
