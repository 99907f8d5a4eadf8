//! The processes that are measured: this program in a role, or a script of `peers/`.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio};

use crate::peers;
use crate::subject::{Language, Subject};

/// The core of the server, and of everything where one core is the subject.
pub const FIRST: &str = "0";

/// The core of the clients where two are.
pub const SECOND: &str = "1";

/// Every core.
pub const ANY: &str = "0-";

/// What a child has said, by name, in its order.
#[derive(Debug, Default)]
pub struct Findings(BTreeMap<String, Vec<Vec<f64>>>);

impl Findings {
    /// The single number of a name.
    pub fn one(&self, name: &str) -> f64 {
        self.rows(name)[0][0]
    }

    /// Every number of a name.
    pub fn all(&self, name: &str) -> Vec<f64> {
        self.rows(name).iter().map(|row| row[0]).collect()
    }

    /// Every line of a name.
    pub fn rows(&self, name: &str) -> &[Vec<f64>] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    fn add(&mut self, line: &str) {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default().to_owned();
        let numbers = words.map(|word| word.parse().expect("a number")).collect();
        self.0.entry(name).or_default().push(numbers);
    }
}

/// A process in a role; ended when dropped.
pub struct Child {
    process: Process,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    name: String,
}

impl Child {
    /// Starts it on some cores, and waits until it is ready. Nothing where it fails, which it says
    /// itself.
    pub fn start(
        subject: Subject,
        role: &str,
        url: &str,
        words: &[String],
        cores: &str,
    ) -> Option<Self> {
        let mut command = Command::new("taskset");
        command.args(["-c", &cores_of(cores)]);
        match subject.language {
            Language::Rust => command
                .arg(env::current_exe().expect("a program has a path"))
                .arg("--role"),
            Language::Python => command.arg(peers::python()).arg(script("redis_py.py")),
            Language::Node => command.arg("node").arg(script("redlock.js")),
        };
        command.args([role, subject.id, url]).args(words);
        if subject.multi_thread {
            command.env(bench_roles::WORKERS, "2");
        }
        // A panic of a measured library is a finding; where it came from does not matter here.
        command.env("RUST_BACKTRACE", "0");
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("taskset is in the PATH");
        let mut child = Self {
            input: process.stdin.take(),
            output: BufReader::new(process.stdout.take().expect("asked for")),
            process,
            name: format!("{} {role}", subject.id),
        };
        match child.line().as_deref() {
            Some("ready") => Some(child),
            _ => child.failed(),
        }
    }

    /// Lets it begin; what it is told is for the role.
    pub fn go(&mut self, told: &str) {
        let input = self.input.as_mut().expect("not closed yet");
        // One that has failed is found when it is asked for its findings.
        drop(writeln!(input, "go {told}"));
    }

    /// What it has found, when it is done.
    pub fn finish(mut self) -> Option<Findings> {
        let mut findings = Findings::default();
        loop {
            match self.line().as_deref() {
                Some("done") => return Some(findings),
                Some(line) => findings.add(line),
                None => return self.failed(),
            }
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(length) if length > 0 => Some(line.trim().to_owned()),
            _ => None,
        }
    }

    fn failed<T>(&self) -> Option<T> {
        eprintln!("   {} has failed", self.name);
        None
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.input = None;
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn script(name: &str) -> PathBuf {
    crate::directory().join("peers").join(name)
}

/// Where a machine has one core, there is no second one to pin to.
fn cores_of(cores: &str) -> String {
    let last = std::thread::available_parallelism().map_or(1, usize::from) - 1;
    match cores {
        ANY => format!("0-{last}"),
        SECOND if last == 0 => FIRST.to_owned(),
        cores => cores.to_owned(),
    }
}
