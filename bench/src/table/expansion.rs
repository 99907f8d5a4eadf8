//! What the attribute costs the compiler, and what code it adds.

use std::fmt::Write;

use super::{Effort, cell};
use crate::crates::{self, Workspace};
use crate::number::{self, Spread};
use crate::report::{Section, Table};

const FUNCTIONS: usize = 500;

/// A program that is built for what it depends on.
const DEPENDENCIES: &str = "dependencies";

/// Programs that differ by one line before each function.
const VARIANTS: [(&str, &str, &str); 3] = [
    ("plain", "no attribute", ""),
    (
        "instrumented",
        "`#[tracing::instrument]`",
        "#[tracing::instrument]",
    ),
    (
        "locked",
        "`#[distributed_lock(…)]`",
        "#[lockattr::distributed_lock(key = \"job:<id>\")]",
    ),
];

pub(super) fn measure(effort: Effort) -> Section {
    let mut section = Section::new(
        "The attribute: compiling, and code",
        "nothing pinned",
        "Three programs of 500 async functions that differ in the attribute alone, built again with \
         their dependencies built before. Code is the section `.text` of the release build, less that of \
         the program without attributes, for each function.",
    );
    let names = VARIANTS.map(|variant| variant.0);
    let workspace = Workspace::new("expansion", &[names[0], names[1], names[2], DEPENDENCIES]);
    let dependencies = format!(
        "{}\ntokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }}\n\
         tracing = {{ version = \"0.1\", features = [\"attributes\"] }}",
        crates::lockattr()
    );
    for (name, _, attribute) in VARIANTS {
        workspace.program(name, &dependencies, &source(attribute, 0));
    }
    workspace.program(DEPENDENCIES, &dependencies, "fn main() {}\n");
    let mut times = [
        [Vec::new(), Vec::new()],
        [Vec::new(), Vec::new()],
        [Vec::new(), Vec::new()],
    ];
    let first = ["-p", DEPENDENCIES, "--release"];
    for words in [&first[..2], &first] {
        if workspace.build("target", words).is_none() {
            section
                .remarks
                .push("What they depend on does not compile.".to_owned());
            return section;
        }
    }
    for round in 1..=effort.pick(3, 1) {
        for (at, (name, _, attribute)) in VARIANTS.into_iter().enumerate() {
            workspace.write(&format!("{name}/src/main.rs"), &source(attribute, round));
            for (profile, words) in [&["-p", name][..], &["-p", name, "--release"]]
                .into_iter()
                .enumerate()
            {
                times[at][profile].extend(workspace.build("target", words));
            }
        }
    }
    let code = names.map(|name| crates::code(&workspace.path(&format!("target/release/{name}"))));
    let columns = [
        "500 functions with",
        "debug build",
        "release build",
        "code a function",
    ];
    let mut table = Table::new("", &columns);
    for (at, (_, shown, _)) in VARIANTS.into_iter().enumerate() {
        let added = code[at]
            .zip(code[0])
            .map(|(code, plain)| (code - plain) / FUNCTIONS as f64);
        table.row(vec![
            shown.to_owned(),
            cell(Spread::of(&times[at][0]), Spread::time),
            cell(Spread::of(&times[at][1]), Spread::time),
            cell(added.filter(|_| at > 0), |bytes| {
                format!("{} bytes", number::digits(bytes))
            }),
        ]);
    }
    section.tables.push(table);
    section
}

/// The program; a number in it makes each round's another one.
fn source(attribute: &str, round: usize) -> String {
    let mut text = String::from(
        "use std::future::Future;\nuse std::pin::Pin;\n\n\
         type Job = fn(u64) -> Pin<Box<dyn Future<Output = Result<u64, lockattr::Error>> + Send>>;\n\n",
    );
    for function in 0..FUNCTIONS {
        let _ = write!(
            text,
            "{attribute}\nasync fn job_{function}(id: u64) -> Result<u64, lockattr::Error> {{\n    \
             tokio::task::yield_now().await;\n    Ok(id + {function} + {round})\n}}\n\n"
        );
    }
    let _ = writeln!(text, "static JOBS: [Job; {FUNCTIONS}] = [");
    for function in 0..FUNCTIONS {
        let _ = writeln!(text, "    |id| Box::pin(job_{function}(id)),");
    }
    text.push_str(
        "];\n\n#[tokio::main]\nasync fn main() {\n    let mut sum = 0;\n    for job in JOBS {\n        \
         sum += job(std::env::args().count() as u64).await.unwrap_or(0);\n    }\n    \
         println!(\"{sum}\");\n}\n",
    );
    text
}
