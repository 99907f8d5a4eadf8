//! A long run of random faults: `tests/soak [MINUTES] [TOPOLOGY]`, with `LOCKATTR_SEED` to repeat one.

use std::process::{self, ExitCode};
use std::time::Duration;
use std::{env, fs};

use tests::chaos::{self, Plan, Topology};

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    // It is its own worker, so that nothing else has to be built.
    if words.len() > 2 {
        tests::roles::play();
        return ExitCode::SUCCESS;
    }
    let (minutes, topology) = match understood(&words) {
        Ok(understood) => understood,
        Err(problem) => {
            eprintln!("{problem}\nusage: soak [MINUTES] [TOPOLOGY]");
            return ExitCode::FAILURE;
        }
    };
    let plan = Plan {
        length: Duration::from_secs(60 * minutes),
        history: Duration::from_secs(20),
        topology,
        workers: 4,
        keys: 4,
        program: env::current_exe().ok(),
        ..Plan::short()
    };
    let report = chaos::run(&plan);
    println!("{report}");
    for violation in &report.findings.violations {
        println!("  {violation}");
    }
    if report.findings.violations.is_empty() {
        return ExitCode::SUCCESS;
    }
    let path = env::temp_dir().join(format!("soak-{}.txt", process::id()));
    let lines: Vec<String> = report
        .entries
        .iter()
        .map(|entry| format!("{entry:?}"))
        .collect();
    if fs::write(&path, lines.join("\n")).is_ok() {
        println!("the whole record: {}", path.display());
    }
    ExitCode::FAILURE
}

/// For how many minutes, and on what.
fn understood(words: &[String]) -> Result<(u64, Topology), String> {
    let minutes = words.first().map_or(Ok(5), |word| {
        let minutes = word.parse::<u64>();
        minutes.map_err(|problem| format!("{word}: {problem}"))
    })?;
    let topology = words
        .get(1)
        .map_or(Ok(Topology::Single), |word| word.parse())?;
    Ok((minutes, topology))
}
