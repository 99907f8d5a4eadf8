//! Measures lockattr beside the raw commands and its peers; see `README.md`.

mod arena;
mod child;
mod crates;
mod load;
mod number;
mod peers;
mod report;
mod subject;
mod svg;
mod table;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use bench_roles::Words;
use table::{Effort, TABLES};

const USAGE: &str = "cargo run --release --manifest-path bench/Cargo.toml --";

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "--role") {
        subject::play(&Words(words[1..].to_vec()));
        return ExitCode::SUCCESS;
    }
    let names = TABLES.map(|(name, _)| name);
    let (flags, wanted): (Vec<_>, Vec<_>) = words.iter().partition(|word| word.starts_with('-'));
    let known = flags
        .iter()
        .all(|flag| ["--quick", "--write"].contains(&flag.as_str()))
        && wanted.iter().all(|name| names.contains(&name.as_str()));
    if !known {
        eprintln!(
            "{USAGE} [--quick] [--write] [table …]\ntables: {}",
            names.join(", ")
        );
        return ExitCode::FAILURE;
    }
    let has = |name: &str| flags.iter().any(|flag| *flag == name);
    let effort = Effort {
        quick: has("--quick"),
    };
    for (name, measure) in TABLES {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| *wanted == name) {
            continue;
        }
        let start = Instant::now();
        let busy = load::remark();
        let mut section = measure(effort);
        section.remarks.extend(busy);
        section.command = format!(
            "{USAGE} {name}{}",
            if effort.quick { " --quick" } else { "" }
        );
        println!("{}", section.markdown());
        eprintln!("== {name}: {:.0} s", start.elapsed().as_secs_f64());
        if has("--write") {
            section.save(name);
        }
    }
    if has("--write") {
        report::render(&names);
    }
    ExitCode::SUCCESS
}

/// The directory of this package, in the sources.
fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}
