//! What a table has found, as it is kept in `results/` and shown in `BENCHMARKS.md`.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::svg;

/// The findings of one table, with all that has to be known to judge them.
#[derive(Debug, Serialize, Deserialize)]
pub struct Section {
    pub title: String,
    pub date: String,
    pub command: String,
    pub machine: String,
    /// What ran on which core.
    pub pinned: String,
    /// What is measured, and how.
    pub how: String,
    pub tables: Vec<Table>,
    pub aims: Vec<Aim>,
    /// A line for each that was left out, or that did not do what was asked.
    pub remarks: Vec<String>,
    /// For the picture.
    pub points: Vec<Point>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Table {
    pub caption: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(caption: &str, columns: &[&str]) -> Self {
        Self {
            caption: caption.to_owned(),
            columns: columns.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

/// What was aimed at, beside what was found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Aim {
    pub what: String,
    pub found: String,
    pub met: bool,
}

/// A place in the picture.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    pub name: String,
    pub waiters: u32,
    pub seconds: f64,
}

impl Section {
    /// An empty one of today, on this machine.
    pub fn new(title: &str, pinned: &str, how: &str) -> Self {
        Self {
            title: title.to_owned(),
            date: say("date", &["-u", "+%F"]),
            command: String::new(),
            machine: machine(),
            pinned: pinned.to_owned(),
            how: how.to_owned(),
            tables: Vec::new(),
            aims: Vec::new(),
            remarks: Vec::new(),
            points: Vec::new(),
        }
    }

    /// Sets an aim beside what was found, which is nothing where the run has failed.
    pub fn aim(&mut self, aim: &str, found: Option<(String, bool)>) {
        let (found, met) = found.unwrap_or_else(|| ("no result".to_owned(), false));
        self.aims.push(Aim {
            what: aim.to_owned(),
            found,
            met,
        });
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("## {}\n\n{}\n", self.title, self.how);
        for table in &self.tables {
            text.push('\n');
            if !table.caption.is_empty() {
                let _ = writeln!(text, "{}\n", table.caption);
            }
            line(&mut text, &table.columns);
            let _ = writeln!(text, "|---{}|", "|--:".repeat(table.columns.len() - 1));
            for row in &table.rows {
                line(&mut text, row);
            }
        }
        if !self.aims.is_empty() {
            text.push_str("\n| aim | found | |\n|---|---|---|\n");
            for aim in &self.aims {
                let met = if aim.met { "met" } else { "**not met**" };
                let _ = writeln!(text, "| {} | {} | {met} |", aim.what, aim.found);
            }
        }
        for remark in &self.remarks {
            let _ = write!(text, "\n- {remark}");
        }
        if !self.remarks.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "\n{}; {}; {}.\n`{}`",
            self.date, self.machine, self.pinned, self.command
        );
        text
    }

    /// Keeps it.
    pub fn save(&self, name: &str) {
        let text = serde_json::to_string_pretty(self).expect("plain data");
        let path = crate::directory().join(format!("results/{name}.json"));
        fs::write(path, text + "\n").expect("a directory of our own");
    }

    /// What was kept, if ever it was.
    pub fn load(name: &str) -> Option<Self> {
        let path = crate::directory().join(format!("results/{name}.json"));
        serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
    }
}

/// Writes `BENCHMARKS.md` and the picture from what is kept.
pub fn render(names: &[&str]) {
    let sections: Vec<Section> = names
        .iter()
        .filter_map(|name| Section::load(name))
        .collect();
    let points: Vec<Point> = sections
        .iter()
        .flat_map(|section| section.points.clone())
        .collect();
    let directory = crate::directory();
    let mut text = include_str!("head.md").to_owned();
    if !points.is_empty() {
        fs::write(directory.join("handover.svg"), svg::draw(&points)).expect("our directory");
        text.push_str("\n![Hand-over latency against waiters](bench/handover.svg)\n");
    }
    for section in &sections {
        text.push('\n');
        text.push_str(&section.markdown());
    }
    // What was counted beside, and what the tests of other stores have counted and measured.
    text.push_str(include_str!("spans.md"));
    text.push_str(include_str!("tracked.md"));
    text.push_str(include_str!("forms.md"));
    text.push_str(include_str!("etcd.md"));
    text.push('\n');
    text.push_str(include_str!("postgres.md"));
    fs::write(directory.join("../BENCHMARKS.md"), text).expect("the repository's directory");
}

fn line(text: &mut String, cells: &[String]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

/// The processor, its cores, the kernel, the server and the compiler.
fn machine() -> String {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let server = say("redis-server", &["--version"]);
    let server = server
        .split(' ')
        .find_map(|word| word.strip_prefix("v="))
        .unwrap_or("of unknown version");
    let compiler = say("rustc", &["--version"]);
    let compiler = compiler.split(" (").next().unwrap_or_default();
    format!(
        "{model}, {cores} cores, Linux {}, Redis {server}, {compiler}",
        kernel.trim()
    )
}

fn say(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    let output = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}
