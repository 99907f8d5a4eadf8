//! What is measured, and whether it is a lock at all.

use super::{Effort, Play, label};
use crate::arena::Arena;
use crate::child::ANY;
use crate::peers;
use crate::report::{Section, Table};
use crate::subject::{DIST_LOCK, LOCKS, Language};

pub(super) fn measure(_: Effort) -> Section {
    let mut section = Section::new(
        "What is measured",
        "nothing pinned",
        "Each library takes a key, a second client of it tries the same key, then something else is put \
         under the key and the first gives back what it had. A lock refuses the second and leaves what \
         is not its own.",
    );
    let arena = Arena::anywhere();
    let (present, absent) = peers::present(&LOCKS);
    section.remarks = absent;
    let mut table = Table::new(
        "",
        &[
            "library",
            "refuses a second",
            "leaves another's key",
            "waits for a busy key",
            "renews",
        ],
    );
    for subject in present {
        let play = Play {
            arena: &arena,
            role: "probe",
            words: Vec::new(),
            cores: ANY,
        };
        let found = play.once(subject);
        let show = |name: &str| {
            super::cell(found.as_ref(), |found| {
                let cell = if found.one(name) > 0.0 {
                    "yes"
                } else {
                    "**no**"
                };
                cell.to_owned()
            })
        };
        let waits = if subject.waits {
            "yes"
        } else {
            "no, fails at once"
        };
        let renews = match (subject.language, subject.renews) {
            (_, None) => "no",
            (Language::Rust, Some(_)) if subject.id == "raw" => "by a task written here",
            _ => "yes",
        };
        table.row(vec![
            label(subject),
            show("refuses"),
            show("spares"),
            waits.to_owned(),
            renews.to_owned(),
        ]);
    }
    section.tables.push(table);
    let play = Play {
        arena: &arena,
        role: "attribute",
        words: Vec::new(),
        cores: ANY,
    };
    if let Some(found) = play.once(DIST_LOCK) {
        let ran = found.one("ran") > 0.0;
        section.remarks.push(format!(
            "The attribute of {} {} its body while another holds the key{}.",
            DIST_LOCK.name,
            if ran { "runs" } else { "does not run" },
            if ran { ": it does not exclude" } else { "" },
        ));
    }
    section
}
