//! What programs print that people run.

use std::process::Command;
use std::thread;

/// The lines that an example prints, which looks for a server by itself.
///
/// # Panics
/// Where it fails.
#[track_caller]
pub fn lines(example: &mut Command) -> Vec<String> {
    let output = example.env_remove("REDIS_URL").output();
    let output = output.expect("a program");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{example:?}: {}\n{text}{errors}",
        output.status
    );
    text.lines().map(ToOwned::to_owned).collect()
}

/// The same for each place where it may keep its locks, at the same time: on a server that it starts, and in memory.
///
/// # Panics
/// Where it fails.
#[must_use]
pub fn everywhere(path: &str) -> [Vec<String>; 2] {
    let program = || Command::new(path);
    thread::scope(|scope| {
        let in_memory = scope.spawn(|| lines(program().env("PATH", "")));
        let on_a_server = lines(&mut program());
        [on_a_server, in_memory.join().expect("it has not failed")]
    })
}
