//! What a library brings along.

use super::{Effort, cell, label};
use crate::crates::{self, Workspace};
use crate::report::{Section, Table};
use crate::subject::{ASYNC_REDIS_LOCK, DIST_LOCK, DISTRIBUTED_LOCK_REDIS, LOCKATTR, RAW, RSLOCK};

pub(super) fn measure(effort: Effort) -> Section {
    let mut section = Section::new(
        "Crates, and a clean build",
        "nothing pinned",
        "A program that does nothing and depends on the library with its default features, where it \
         needs one to run on tokio with that, and on tokio with `macros` and `rt-multi-thread`: the \
         crates it needs, and a debug build of all of them.",
    );
    let programs = [
        (LOCKATTR, crates::lockattr()),
        (
            RAW,
            "redis = { version = \"1\", default-features = false, features = [\"script\", \"tokio-comp\"] }"
                .to_owned(),
        ),
        (RSLOCK, "rslock = { version = \"0.10\", features = [\"tokio-comp\"] }".to_owned()),
        (DISTRIBUTED_LOCK_REDIS, "distributed-lock-redis = \"0.2\"".to_owned()),
        (
            DIST_LOCK,
            "dist_lock = { version = \"0.0.1\", features = [\"redis_tokio\"] }".to_owned(),
        ),
        (ASYNC_REDIS_LOCK, "async-redis-lock = \"0.4\"".to_owned()),
    ];
    let mut table = Table::new("", &["library", "crates", "clean build"]);
    for (subject, dependency) in programs {
        // A workspace each: features of one program are not to be those of another.
        let workspace = Workspace::new("build", &["program"]);
        let tokio = "tokio = { version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }";
        workspace.program(
            "program",
            &format!("{dependency}\n{tokio}"),
            "fn main() {}\n",
        );
        let crates = workspace.crates("program");
        let time = if effort.quick {
            None
        } else {
            workspace.build(&[])
        };
        table.row(vec![
            label(subject),
            cell(crates, |crates| crates.to_string()),
            cell(time, |took| took.to_string()),
        ]);
    }
    if effort.quick {
        section
            .remarks
            .push("Builds were not timed in this quick run.".to_owned());
    }
    section.tables.push(table);
    section
}
