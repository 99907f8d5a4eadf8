//! Which libraries are there, in which version.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::subject::{Language, Subject};

/// The crates whose versions the lock file states.
const LOCK: &str = include_str!("../Cargo.lock");

/// A Python with redis-py: that of `peers/install`, or the one of the PATH.
pub fn python() -> PathBuf {
    let own = crate::directory().join("peers/.venv/bin/python");
    if own.exists() { own } else { "python3".into() }
}

/// The version that is measured, or nothing where it is not installed.
pub fn version(subject: Subject) -> Option<String> {
    match subject.language {
        Language::Rust => {
            let name = match subject.id {
                "raw" | "majority" => "redis",
                "attribute" => "lockattr",
                id => id,
            };
            Some(locked(name))
        }
        Language::Python => {
            static VERSION: OnceLock<Option<String>> = OnceLock::new();
            let ask = || {
                let mut command = Command::new(python());
                command.args(["-c", "import redis; print(redis.__version__)"]);
                answer(&mut command)
            };
            VERSION.get_or_init(ask).clone()
        }
        Language::Node => {
            static VERSION: OnceLock<Option<String>> = OnceLock::new();
            let ask = || {
                let mut command = Command::new("node");
                let peers = crate::directory().join("peers");
                command.current_dir(peers).args([
                    "-p",
                    "require('ioredis'); require('redlock/package.json').version",
                ]);
                answer(&mut command)
            };
            VERSION.get_or_init(ask).clone()
        }
    }
}

/// Those of a list that are installed, and a line for each that is not.
pub fn present(subjects: &[Subject]) -> (Vec<Subject>, Vec<String>) {
    let (present, absent): (Vec<Subject>, Vec<Subject>) = subjects
        .iter()
        .partition(|subject| version(**subject).is_some());
    let absent = absent
        .iter()
        .map(|subject| format!("{} is not installed here and was left out.", subject.name));
    (present, absent.collect())
}

fn answer(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// The newest version of a crate in the lock file.
fn locked(name: &str) -> String {
    let line = format!("name = \"{name}\"");
    let mut lines = LOCK.lines();
    let mut found = String::new();
    while let Some(at) = lines.next() {
        if at == line {
            let version = lines.next().unwrap_or_default();
            version
                .trim_start_matches("version = ")
                .trim_matches('"')
                .clone_into(&mut found);
        }
    }
    found
}
