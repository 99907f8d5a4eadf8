//! From a release in one process to the next body in another.

use std::time::Duration;

use super::contest::{Contest, Outcome};
use super::{Effort, Play, alternate, asked, cell, label, words};
use crate::arena::{Arena, Asked};
use crate::child::{FIRST, SECOND};
use crate::number::{self, Spread, quantile};
use crate::peers;
use crate::report::{Point, Section, Table};
use crate::subject::{LOCKATTR, RAW, Subject, waiting};

/// Longer than it takes the last holder to queue again.
const BODY: u64 = 4;

const SIZES: [(u32, usize); 3] = [(2, 2), (50, 2), (500, 4)];

/// Times of every round.
struct Times(Vec<Vec<f64>>);

impl Times {
    /// Of the medians of the rounds.
    fn median(&self) -> Option<Spread> {
        let rounds = self.0.iter();
        let medians: Vec<f64> = rounds.filter_map(|round| quantile(round, 0.5)).collect();
        Spread::of(&medians)
    }

    /// Of all rounds together, which alone are too short for it.
    fn worst(&self) -> Option<f64> {
        quantile(&self.0.concat(), 0.99)
    }

    fn row(&self, name: String, asked: [String; 2]) -> Vec<String> {
        let mut row = vec![
            name,
            cell(self.median(), Spread::time),
            cell(self.worst(), number::time),
            number::digits(self.0.concat().len() as f64),
        ];
        row.extend(asked);
        row
    }
}

pub(super) fn measure(effort: Effort) -> Section {
    let mut section = Section::new(
        "Hand-over between processes",
        "server on core 0, all client processes on core 1",
        "Waiters, each with a client of its own and spread over several processes, take turns at one key. \
         A body lasts 4 ms, and who has left comes back when another has entered, so that all others wait \
         at each release. Measured from just before the release is asked for to the first line of the \
         next body, on the clock that processes share. A round trip is one `PING`, after a pause of 4 ms \
         as cores sleep in one, in the same rounds.",
    );
    let arena = Arena::on(FIRST);
    let (mut subjects, absent) = peers::present(&waiting());
    subjects.push(LOCKATTR.multi_thread());
    section.remarks = absent;
    let mut pings = Pings::new(&arena);
    for (waiters, processes) in SIZES {
        let contest = Contest {
            processes,
            clients: waiters as usize / processes,
            tasks: 1,
            body: BODY,
            at_once: false,
            warm_up: Duration::from_millis(600),
            length: Duration::from_millis(effort.pick(2_000, 700)),
        };
        compare(
            &mut section,
            &contest,
            &arena,
            &subjects,
            &mut pings,
            effort.rounds(),
        );
    }
    section.remarks.extend(pings.remark());
    section
}

/// All libraries with one number of waiters.
fn compare(
    section: &mut Section,
    contest: &Contest,
    arena: &Arena,
    subjects: &[Subject],
    pings: &mut Pings,
    rounds: usize,
) {
    let waiters = contest.processes * contest.clients;
    let point = |name: &str, seconds: f64| Point {
        name: name.to_owned(),
        waiters: waiters as u32,
        seconds,
    };
    // The round trip comes first in each round.
    let mut turn = vec![RAW];
    turn.extend(subjects);
    let mut overlaps = Vec::new();
    let mut times = alternate(&turn, rounds, |subject| {
        if subject.id == RAW.id {
            return pings.round();
        }
        let outcome = contest.run(subject, arena)?;
        overlaps.push((subject, outcome.overlaps()));
        Some(Outcome::handovers(&outcome))
    })
    .into_iter()
    .map(Times);
    let mut table = Table::new(
        &format!("{waiters} waiters in {} processes:", contest.processes),
        &[
            "library",
            "median",
            "99th of 100",
            "times",
            "commands sent",
            "called by scripts",
        ],
    );
    let round_trips = times.next().unwrap_or(Times(Vec::new()));
    let name = "one round trip (PING)";
    table.row(round_trips.row(name.to_owned(), asked(None)));
    let round_trip = round_trips.median().map(|spread| spread.median);
    section
        .points
        .extend(round_trip.map(|time| point(name, time)));
    for (subject, times) in subjects.iter().zip(times) {
        let counted = contest.counted(*subject, arena);
        table.row(times.row(label(*subject), asked(counted)));
        let median = times.median().map(|spread| spread.median);
        if !subject.multi_thread {
            let points = median.map(|time| point(subject.name, time));
            section.points.extend(points);
        }
        if subject.id == LOCKATTR.id {
            let who = format!("{waiters} waiters, {}", label(*subject));
            aims(section, &who, &times, round_trip, counted);
        }
    }
    section.tables.push(table);
    for (subject, overlaps) in overlaps.into_iter().filter(|(_, overlaps)| *overlaps > 0) {
        section.remarks.push(format!(
            "{}, {waiters} waiters: {overlaps} bodies of a round overlapped another.",
            subject.name
        ));
    }
}

fn aims(
    section: &mut Section,
    who: &str,
    times: &Times,
    round_trip: Option<f64>,
    counted: Option<Asked>,
) {
    let against = |time: Option<f64>, most: f64| {
        let ratio = time? / round_trip?;
        Some((format!("{} ×", number::digits(ratio)), ratio <= most))
    };
    let median = times.median().map(|spread| spread.median);
    section.aim(
        &format!("{who}: median at most 1.5 × a round trip"),
        against(median, 1.5),
    );
    section.aim(
        &format!("{who}: 99th of 100 at most 3 × a round trip"),
        against(times.worst(), 3.0),
    );
    let sent = counted.map(|asked| asked.sent);
    section.aim(
        &format!("{who}: 2 commands a section"),
        // A few more where the run begins and ends.
        sent.map(|sent| (number::digits(sent), sent < 2.05)),
    );
}

/// Round trips to compare with.
struct Pings<'a> {
    play: Play<'a>,
    paused: Vec<f64>,
    at_once: Vec<f64>,
}

impl<'a> Pings<'a> {
    fn new(arena: &'a Arena) -> Self {
        Self {
            play: Play {
                arena,
                role: "ping",
                words: words(&[&500, &BODY]),
                cores: SECOND,
            },
            paused: Vec::new(),
            at_once: Vec::new(),
        }
    }

    fn round(&mut self) -> Option<Vec<f64>> {
        let found = self.play.once(RAW)?;
        self.at_once.extend(found.all("at-once"));
        self.paused.extend(found.all("paused"));
        Some(found.all("paused"))
    }

    fn remark(&self) -> Option<String> {
        let at_once = quantile(&self.at_once, 0.5)?;
        let paused = quantile(&self.paused, 0.5)?;
        Some(format!(
            "A `PING` right after another takes {}, one after a pause {}: the difference is what waking \
             an idle core costs on this machine.",
            number::time(at_once),
            number::time(paused)
        ))
    }
}
