//! Who waits how long where everybody comes back at once.

use std::time::Duration;

use super::contest::{Contest, Outcome};
use super::{Effort, alternate, at_most, cell, label};
use crate::arena::Arena;
use crate::child::FIRST;
use crate::number::{Spread, quantile};
use crate::peers;
use crate::report::{Section, Table};
use crate::subject::{LOCKATTR, waiting};

const PROCESSES: usize = 2;
const TASKS: usize = 25;

pub(super) fn measure(effort: Effort) -> Section {
    let mut section = Section::new(
        "Fairness",
        "server on core 0, both client processes on core 1",
        "50 tasks, 25 of one client in each of two processes, want one key for 1 ms and come back at once. \
         The fair share is 50 sections of the mean length; a task that has waited since before the end \
         counts with what it had waited by then. Runs are turns in a row of one task, and of one process.",
    );
    let arena = Arena::on(FIRST);
    let (subjects, absent) = peers::present(&waiting());
    section.remarks = absent;
    let contest = Contest {
        processes: PROCESSES,
        clients: 1,
        tasks: TASKS,
        body: 1,
        at_once: true,
        warm_up: Duration::ZERO,
        length: Duration::from_millis(effort.pick(2_500, 1_500)),
    };
    let mut table = Table::new(
        "",
        &[
            "library",
            "longest wait",
            "a section",
            "longest wait ÷ fair share",
            "run of a task",
            "run of a process",
            "tasks without a turn",
        ],
    );
    let rounds = alternate(&subjects, effort.rounds(), |subject| {
        contest.run(subject, &arena)
    });
    for (subject, rounds) in subjects.iter().zip(&rounds) {
        let of = |number: &dyn Fn(&Outcome) -> Option<f64>| {
            let numbers: Vec<f64> = rounds.iter().filter_map(number).collect();
            Spread::of(&numbers)
        };
        let share = (PROCESSES * TASKS) as f64;
        let against = of(&|outcome| Some(outcome.longest_wait() / (share * outcome.section()?)));
        let runs = |run: &dyn Fn(&Outcome) -> usize| {
            let runs: Vec<f64> = rounds.iter().map(|round| run(round) as f64).collect();
            cell(quantile(&runs, 1.0), |run| format!("{run}"))
        };
        table.row(vec![
            label(*subject),
            cell(of(&|outcome| Some(outcome.longest_wait())), Spread::time),
            cell(of(&|outcome| outcome.section()), Spread::time),
            cell(against, Spread::plain),
            runs(&|outcome| outcome.longest_run(|turn| (turn.process, turn.task))),
            runs(&|outcome| outcome.longest_run(|turn| turn.process)),
            runs(&|outcome| outcome.without_turn(PROCESSES * TASKS)),
        ]);
        let overlaps: usize = rounds.iter().map(Outcome::overlaps).sum();
        if overlaps > 0 {
            let name = subject.name;
            section
                .remarks
                .push(format!("{name}: {overlaps} bodies overlapped another."));
        }
        if subject.id == LOCKATTR.id {
            let found = at_most(against.map(|found| found.median), 1.1, "×");
            section.aim("longest wait at most 1.1 × the fair share", found);
        }
    }
    section.tables.push(table);
    section
}
