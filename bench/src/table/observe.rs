//! What it costs a call that others may look at it.

use std::path::Path;
use std::process::Command;

use super::{Effort, cell};
use crate::crates::{self, Workspace};
use crate::number;
use crate::report::{Section, Table};

/// A program for each row: its name, what is shown of it, the features, and whether a recorder is installed.
const VARIANTS: [(&str, &str, &str, bool); 3] = [
    ("unobserved", "nothing", "", false),
    (
        "unheard",
        "feature `metrics`, no recorder",
        "\"metrics\"",
        false,
    ),
    (
        "recorded",
        "feature `metrics`, a recorder that keeps numbers",
        "\"metrics\"",
        true,
    ),
];

/// What is called, a word of the programs.
const CALLS: [&str; 2] = ["attribute", "hand"];

pub(super) fn measure(effort: Effort) -> Section {
    let calls = effort.pick(4_000, 1_000);
    let mut section = Section::new(
        "A call that is observed",
        "nothing pinned",
        &format!(
            "Instructions of a call on `memory:`, counted by `valgrind --tool=callgrind`: those of {} calls \
             less those of {calls}, divided by {calls}. The store in memory is where all of them are the \
             library's own.",
            2 * calls
        ),
    );
    let workspace = Workspace::lasting("observe", &VARIANTS.map(|variant| variant.0));
    let mut table = Table::new("", &["observed by", "by attribute", "by hand"]);
    for (name, shown, features, recorded) in VARIANTS {
        let lockattr = crates::lockattr().replace(" }", &format!(", features = [{features}] }}"));
        let dependencies = format!(
            "{lockattr}\nmetrics = \"0.24\"\n\
             tokio = {{ version = \"1\", features = [\"macros\", \"rt\", \"time\"] }}"
        );
        let recorder = if recorded {
            RECORDER
        } else {
            "fn install() {}\n"
        };
        workspace.program(name, &dependencies, &format!("{SOURCE}{recorder}"));
        let built = workspace.build(&["--release", "-p", name]);
        let program = workspace.path(&format!("target/release/{name}"));
        let each = CALLS.map(|call| {
            let _ = built?;
            let counted = |calls: u32| instructions(&program, call, calls);
            Some((counted(2 * calls)? - counted(calls)?) / f64::from(calls))
        });
        let [attribute, hand] = each.map(|each| cell(each, number::digits));
        table.row(vec![shown.to_owned(), attribute, hand]);
    }
    section.tables.push(table);
    section
}

fn instructions(program: &Path, call: &str, calls: u32) -> Option<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([call, &calls.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let counted = text
        .lines()
        .find_map(|line| line.split_once("Collected : "))?;
    counted.1.trim().parse().ok()
}

const SOURCE: &str = r#"
use lockattr::{Client, Error, distributed_lock};

#[distributed_lock(key = "sync:<id>", client = locks)]
async fn locked(locks: &Client, id: u64) -> Result<(), Error> {
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    install();
    let locks = Client::connect("memory:").await.unwrap();
    let words: Vec<String> = std::env::args().collect();
    for _ in 0..words[2].parse().unwrap() {
        if words[1] == "hand" {
            let lease = locks.lock("sync:42").acquire().await.unwrap();
            lease.release().await.unwrap();
        } else {
            locked(&locks, 42).await.unwrap();
        }
    }
}
"#;

const RECORDER: &str = r"
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

#[derive(Default)]
struct Number(AtomicU64);

impl Number {
    fn add(&self, value: f64) {
        let added = |bits| Some((f64::from_bits(bits) + value).to_bits());
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added);
    }
}

impl CounterFn for Number {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Number {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }
}

impl HistogramFn for Number {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

impl Recorder for Number {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(Self::default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(Self::default()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Self::default()))
    }
}

fn install() {
    let _ = metrics::set_global_recorder(Number::default());
}
";
