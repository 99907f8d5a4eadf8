//! Programs that are made to be built.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::number;

/// A workspace of such programs.
pub struct Workspace {
    path: PathBuf,
    /// Whether what was built is there for the next run.
    stays: bool,
}

impl Workspace {
    /// An empty one in a directory that goes away with it.
    pub fn new(name: &str, members: &[&str]) -> Self {
        let path = env::temp_dir().join(format!("lockattr-bench-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        Self::at(path, false, members)
    }

    /// One beside this program, where what was built before is not built again. Programs are, as
    /// their sources are written anew.
    pub fn lasting(name: &str, members: &[&str]) -> Self {
        let program = env::current_exe().expect("a program has a path");
        let path = program.with_file_name(format!("programs-{name}"));
        Self::at(path, true, members)
    }

    /// Its versions are those of our own lock file.
    fn at(path: PathBuf, stays: bool, members: &[&str]) -> Self {
        let this = Self { path, stays };
        let members: Vec<String> = members.iter().map(|name| format!("\"{name}\"")).collect();
        let members = members.join(", ");
        this.write(
            "Cargo.toml",
            &format!("[workspace]\nresolver = \"3\"\nmembers = [{members}]\n"),
        );
        this.write("Cargo.lock", include_str!("../Cargo.lock"));
        this
    }

    /// Adds a program with the lines of its dependencies.
    pub fn program(&self, name: &str, dependencies: &str, source: &str) {
        let manifest = format!(
            "[package]\nname = \"{name}\"\nedition = \"2024\"\n\n[dependencies]\n{dependencies}\n"
        );
        self.write(&format!("{name}/Cargo.toml"), &manifest);
        self.write(&format!("{name}/src/main.rs"), source);
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path.join(name);
        let directory = path.parent().expect("a file in a directory");
        fs::create_dir_all(directory).expect("our own directory");
        fs::write(path, text).expect("our own directory");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Builds, and says what that took; nothing where it fails.
    pub fn build(&self, words: &[&str]) -> Option<Took> {
        let (start, before) = (Instant::now(), used()?);
        let status = self.cargo().arg("build").args(words).status().ok()?;
        status.success().then_some(Took {
            time: start.elapsed().as_secs_f64(),
            processor: used()? - before,
        })
    }

    /// The crates that a program needs, itself left out.
    pub fn crates(&self, program: &str) -> Option<usize> {
        let output = self
            .cargo()
            .args([
                "tree", "-e", "normal", "--prefix", "none", "-f", "{p}", "-p", program,
            ])
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut crates: Vec<&str> = text
            .lines()
            .map(|line| line.trim_end_matches(" (*)"))
            .collect();
        crates.sort_unstable();
        crates.dedup();
        let own = format!("{program} v");
        crates.retain(|line| !line.starts_with(&own));
        output.status.success().then_some(crates.len())
    }

    fn cargo(&self) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .current_dir(&self.path)
            .env("CARGO_TARGET_DIR", self.path("target"))
            .env_remove("RUSTFLAGS")
            // What a first build costs, not what another one saves.
            .env("CARGO_INCREMENTAL", "0")
            .stderr(Stdio::null())
            .arg("--quiet");
        command
    }
}

/// What a build took, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    time: f64,
    /// Of all cores together; says more where others use them as well.
    processor: f64,
}

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [time, processor] = [self.time, self.processor].map(number::time);
        write!(f, "{time} ({processor} of processors)")
    }
}

/// The processor time of all processes that we started and that have ended.
fn used() -> Option<f64> {
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let ticks: Vec<f64> = rest
        .split(' ')
        .skip(13)
        .take(2)
        .flat_map(str::parse)
        .collect();
    Some(ticks.iter().sum::<f64>() / TICKS_A_SECOND)
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if !self.stays {
            drop(fs::remove_dir_all(&self.path));
        }
    }
}

/// The line by which a generated program depends on this library.
pub fn lockattr() -> String {
    let path = crate::directory().join("../lockattr");
    format!("lockattr = {{ path = \"{}\" }}", path.display())
}

/// The bytes of a program's machine code.
pub fn code(program: &Path) -> Option<f64> {
    let output = Command::new("size").arg("-A").arg(program).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with(".text"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
