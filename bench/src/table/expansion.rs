//! What the attribute costs the compiler, and what code it adds.

use std::fmt::Write;

use super::{Effort, cell};
use crate::crates::{self, Workspace};
use crate::number;
use crate::report::{Section, Table};

/// A program that is built for what it depends on.
const DEPENDENCIES: &str = "dependencies";

/// Programs that differ by one line before each function, or before the trait that has them all.
const VARIANTS: [(&str, &str, &str); 4] = [
    ("plain", "no attribute", ""),
    (
        IN_A_TRAIT,
        "`#[async_trait]`",
        "#[async_trait::async_trait]",
    ),
    (
        "instrumented",
        "`#[tracing::instrument]`",
        "#[tracing::instrument]",
    ),
    (
        "locked",
        "`#[distributed_lock(key = \"job:<id>\")]`",
        "#[lockattr::distributed_lock(key = \"job:<id>\")]",
    ),
];

/// Its attribute is one of a trait.
const IN_A_TRAIT: &str = "boxed";

pub(super) fn measure(effort: Effort) -> Section {
    let functions = effort.pick(500, 50);
    let mut section = Section::new(
        "The attribute: compiling, and code",
        "nothing pinned",
        &format!(
            "Programs of {functions} async functions that differ in the attribute alone, built once, \
             not incrementally, when all that they depend on was built before. Code is the section `.text` \
             of the release build, less that of a program with one function, for each of the others, and \
             less the same of the program without attributes. `#[async_trait]` stands before one trait that has all \
             functions, and boxes the future of each."
        ),
    );
    let singles = VARIANTS.map(|variant| single(variant.0));
    let mut members = vec![DEPENDENCIES];
    members.extend(VARIANTS.map(|variant| variant.0));
    members.extend(singles.iter().map(String::as_str));
    let workspace = Workspace::lasting("expansion", &members);
    let dependencies = format!(
        "{}\nasync-trait = \"0.1\"\ntokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }}\n\
         tracing = {{ version = \"0.1\", features = [\"attributes\"] }}",
        crates::lockattr()
    );
    for (name, _, attribute) in VARIANTS {
        let source = |functions| {
            if name == IN_A_TRAIT {
                source_with_trait(attribute, functions)
            } else {
                source(attribute, functions)
            }
        };
        workspace.program(name, &dependencies, &source(functions));
        workspace.program(&single(name), &dependencies, &source(1));
    }
    workspace.program(DEPENDENCIES, &dependencies, "fn main() {}\n");
    let build = |name: &str, release: bool| {
        let words = ["-p", name, "--release"];
        workspace.build(if release { &words } else { &words[..2] })
    };
    for release in [false, true] {
        build(DEPENDENCIES, release);
    }
    let columns = ["with", "debug build", "release build", "code a function"];
    let mut table = Table::new("", &columns);
    let mut before = None;
    for (name, shown, _) in VARIANTS {
        let took = [false, true].map(|release| build(name, release));
        let code = |name: &str| {
            let program = workspace.path(&format!("target/release/{name}"));
            crates::code(&program)
        };
        let one = build(&single(name), true).and_then(|_| code(&single(name)));
        let all = took[1].and_then(|_| code(name));
        let each = all
            .zip(one)
            .map(|(all, one)| (all - one) / f64::from(functions - 1));
        let added = each.zip(before).map(|(each, before)| each - before);
        table.row(vec![
            shown.to_owned(),
            cell(took[0], |took| took.to_string()),
            cell(took[1], |took| took.to_string()),
            cell(added, |added: f64| {
                format!("{} bytes", number::digits(added))
            }),
        ]);
        before = before.or(each);
    }
    section.tables.push(table);
    section
}

/// The program with one function.
fn single(name: &str) -> String {
    format!("{name}-one")
}

fn source(attribute: &str, functions: u32) -> String {
    let mut text = head();
    for function in 0..functions {
        let _ = writeln!(text, "{attribute}\n{}", job(function, "id: u64"));
    }
    text.push_str(&tail(functions, ""));
    text
}

/// The same functions in a trait, and its implementation for `()`.
fn source_with_trait(attribute: &str, functions: u32) -> String {
    let mut text = head();
    let _ = writeln!(text, "{attribute}\ntrait Jobs {{");
    for function in 0..functions {
        let _ = writeln!(text, "{}", job(function, "&self, id: u64"));
    }
    text.push_str("}\n\nimpl Jobs for () {}\n\n");
    text.push_str(&tail(functions, "()."));
    text
}

fn head() -> String {
    "use std::future::Future;\nuse std::pin::Pin;\n\n\
     type Job = fn(u64) -> Pin<Box<dyn Future<Output = Result<u64, lockattr::Error>> + Send>>;\n\n"
        .to_owned()
}

fn job(function: u32, arguments: &str) -> String {
    format!(
        "async fn job_{function}({arguments}) -> Result<u64, lockattr::Error> {{\n    \
         tokio::task::yield_now().await;\n    Ok(id + {function})\n}}\n"
    )
}

/// Calls each function, of `receiver` where that has them.
fn tail(functions: u32, receiver: &str) -> String {
    let mut text = format!("static JOBS: [Job; {functions}] = [\n");
    for function in 0..functions {
        let _ = writeln!(text, "    |id| Box::pin({receiver}job_{function}(id)),");
    }
    text.push_str(
        "];\n\n#[tokio::main]\nasync fn main() {\n    let mut sum = 0;\n    for job in JOBS {\n        \
         sum += job(std::env::args().count() as u64).await.unwrap_or(0);\n    }\n    \
         println!(\"{sum}\");\n}\n",
    );
    text
}
