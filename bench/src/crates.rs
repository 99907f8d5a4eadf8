//! Programs that are made to be built.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// A workspace in a directory that goes away with it.
pub struct Workspace(PathBuf);

impl Workspace {
    /// An empty one whose versions are those of our own lock file.
    pub fn new(name: &str, members: &[&str]) -> Self {
        let path = env::temp_dir().join(format!("lockattr-bench-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).expect("a directory under the temporary one");
        let this = Self(path);
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
        let path = self.0.join(name);
        let directory = path.parent().expect("a file in a directory");
        fs::create_dir_all(directory).expect("our own directory");
        fs::write(path, text).expect("our own directory");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Builds into a directory `target` of ours; seconds, or nothing where it fails.
    pub fn build(&self, target: &str, words: &[&str]) -> Option<f64> {
        let start = Instant::now();
        let status = self.cargo(target).arg("build").args(words).status().ok()?;
        status.success().then(|| start.elapsed().as_secs_f64())
    }

    /// The crates that a program needs, itself left out.
    pub fn crates(&self, program: &str) -> Option<usize> {
        let output = self
            .cargo("target")
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

    fn cargo(&self, target: &str) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .current_dir(&self.0)
            .env("CARGO_TARGET_DIR", self.path(target))
            .env_remove("RUSTFLAGS")
            // What a first build costs, not what another one saves.
            .env("CARGO_INCREMENTAL", "0")
            .stderr(Stdio::null())
            .arg("--quiet");
        command
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
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
