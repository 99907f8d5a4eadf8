//! What the files say: rows for each tick, and who was skipped.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::path::PathBuf;

use crate::TICKS;
use crate::crew::Skips;

pub(crate) const HEADER: &str = "tick,worker,started,ended\n";

/// The record of ten ticks.
pub(crate) struct Shift {
    file: PathBuf,
    rows: BTreeMap<u32, Vec<usize>>,
    skipped: BTreeMap<u32, Vec<usize>>,
}

impl Shift {
    pub(crate) fn read(file: PathBuf, skips: Skips) -> Result<Self, Box<dyn Error>> {
        let mut rows: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for row in std::fs::read_to_string(&file)?.lines().skip(1) {
            let mut cells = row.split(',');
            let mut cell = || cells.next().ok_or("a row is too short");
            rows.entry(cell()?.parse()?)
                .or_default()
                .push(cell()?.parse()?);
        }
        let mut skipped: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (tick, worker) in skips {
            skipped.entry(tick).or_default().push(worker);
        }
        Ok(Self {
            file,
            rows,
            skipped,
        })
    }

    fn count(&self, tick: u32) -> usize {
        self.rows.get(&tick).map_or(0, Vec::len)
    }
}

pub(crate) fn draw(without: &Shift, with: &Shift) -> String {
    let names = |workers: Option<&Vec<usize>>| {
        let names: Vec<_> = workers
            .into_iter()
            .flatten()
            .map(ToString::to_string)
            .collect();
        names.join(" ")
    };
    let mut text =
        String::from("\n        rows written\ntick    no lock   lock    ran by   skipped\n");
    for tick in 1..=TICKS {
        let _ = writeln!(
            text,
            "{tick:>4}    {:>7}   {:>4}    {:>6}   {}",
            without.count(tick),
            with.count(tick),
            names(with.rows.get(&tick)),
            names(with.skipped.get(&tick)),
        );
    }
    let total = |shift: &Shift| (1..=TICKS).map(|tick| shift.count(tick)).sum::<usize>();
    let _ = writeln!(text, " all    {:>7}   {:>4}", total(without), total(with));
    let _ = writeln!(
        text,
        "\n{}\n{}",
        without.file.display(),
        with.file.display()
    );
    text
}
