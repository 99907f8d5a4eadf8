//! From a release to the next body of the same process.

use std::time::Duration;

use super::contest::Contest;
use super::{Effort, alternate, asked, cell, label};
use crate::arena::Arena;
use crate::child::FIRST;
use crate::number::{self, Spread, quantile};
use crate::peers;
use crate::report::{Section, Table};
use crate::subject::{LOCKATTR, waiting};

const TASKS: usize = 64;

pub(super) fn measure(effort: Effort) -> Section {
    let mut section = Section::new(
        "Hand-over inside a process",
        "server on core 0, all client processes on core 1",
        "64 tasks want one key and come back at once; a body yields once. They are tasks of one client, and \
         then of two clients in two processes. Hand-overs are those to a task that was waiting.",
    );
    let arena = Arena::on(FIRST);
    let (subjects, absent) = peers::present(&waiting());
    section.remarks = absent;
    for processes in [1, 2] {
        let contest = Contest {
            processes,
            clients: 1,
            tasks: TASKS / processes,
            body: 0,
            at_once: true,
            warm_up: Duration::from_millis(50),
            length: Duration::from_millis(effort.pick(500, 300)),
        };
        let caption = match processes {
            1 => "One process:",
            _ => "Two processes, 32 tasks each:",
        };
        let columns = [
            "library",
            "hand-over",
            "a section",
            "commands sent",
            "called by scripts",
        ];
        let mut table = Table::new(caption, &columns);
        let rounds = alternate(&subjects, effort.rounds(), |subject| {
            let outcome = contest.run(subject, &arena)?;
            Some((quantile(&outcome.handovers(), 0.5), outcome.section()))
        });
        for (subject, rounds) in subjects.iter().zip(&rounds) {
            let handovers: Vec<f64> = rounds.iter().filter_map(|round| round.0).collect();
            let sections: Vec<f64> = rounds.iter().filter_map(|round| round.1).collect();
            let counted = contest.counted(*subject, &arena);
            let handover = Spread::of(&handovers);
            let [sent, by_scripts] = asked(counted);
            table.row(vec![
                label(*subject),
                cell(handover, Spread::time),
                cell(Spread::of(&sections), Spread::time),
                sent,
                by_scripts,
            ]);
            if subject.id == LOCKATTR.id && processes == 1 {
                let found =
                    handover.map(|found| (number::time(found.median), found.median < 10e-6));
                section.aim("one process: a hand-over under 10 µs", found);
                let sent = counted.map(|asked| asked.sent);
                section.aim(
                    "one process: no command at a hand-over, so under half a command a section",
                    sent.map(|sent| (number::digits(sent), sent < 0.5)),
                );
            }
        }
        section.tables.push(table);
    }
    section
}
