//! Processes that do what a test asks for: the program `worker` in one of its roles.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::process;
use crate::record::Record;
use crate::wait;

/// A running worker; killed when dropped.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    // A worker ends when this closes, so that none outlives a test that was itself killed.
    input: Option<ChildStdin>,
}

impl Worker {
    /// Starts a worker in a role, on the server at `url`, with the words that its role takes.
    pub fn start(role: &str, url: &str, record: &Record, words: &[&str]) -> Self {
        Self::start_program(&program(), role, url, record, words)
    }

    /// The same for another program that knows the roles.
    pub fn start_program(
        program: &Path,
        role: &str,
        url: &str,
        record: &Record,
        words: &[&str],
    ) -> Self {
        let mut child = Command::new(program)
            .args([role, url])
            .arg(record.path())
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|problem| panic!("{}: {problem}", program.display()));
        let output = child.stdout.take().expect("asked for");
        let input = child.stdin.take();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let read = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                read.lock().expect("no panic while reading").push(line);
            }
        });
        Self {
            child,
            lines,
            input,
        }
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the worker has printed so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("no panic while reading").clone()
    }

    /// Waits until the worker has printed a line that begins so, and returns it.
    pub fn says(&self, beginning: &str) -> String {
        let mut found = None;
        wait::block_until(&format!("the worker says {beginning:?}"), || {
            found = self
                .lines()
                .into_iter()
                .find(|line| line.starts_with(beginning));
            found.is_some()
        });
        found.unwrap_or_default()
    }

    /// Gives the worker a line to read.
    pub fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it is not closed");
        writeln!(input, "{line}").expect("a worker that reads");
    }

    /// Closes what the worker reads.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Freezes the process.
    pub fn freeze(&self) {
        process::freeze(&self.child);
    }

    /// Lets a frozen process go on.
    pub fn thaw(&self) {
        process::thaw(&self.child);
    }

    /// Ends the process as a power cut would.
    pub fn kill(&mut self) {
        process::end(&mut self.child);
    }

    /// Waits for the process to end by itself.
    pub fn finish(&mut self) -> ExitStatus {
        let mut status = None;
        wait::block_until("the worker ends", || {
            status = self.child.try_wait().expect("our own child");
            status.is_some()
        });
        status.expect("just seen")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        process::end(&mut self.child);
    }
}

/// The program `worker`, which stands beside this one or one directory above.
/// The program of the workers, which cargo builds beside the tests.
pub fn program() -> PathBuf {
    let mut path = env::current_exe().expect("a program has a path");
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    path.push("worker");
    path
}

/// Tells workers to stop, all of them before one is waited for, and waits until each has finished in order.
pub fn stop_all(workers: &mut [Worker]) {
    for worker in &mut *workers {
        worker.tell("stop");
    }
    for worker in workers {
        worker.says("finished");
        assert!(worker.finish().success());
    }
}
