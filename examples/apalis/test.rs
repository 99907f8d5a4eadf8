//! The program as people run it, with and without a server.

use std::collections::{BTreeMap, BTreeSet};

use tests::printed;

#[test]
fn jobs_of_one_user_run_one_after_the_other() {
    for lines in printed::everywhere(env!("CARGO_BIN_EXE_with-apalis")) {
        let (mut running, mut done) = (BTreeMap::new(), BTreeSet::new());
        let mut workers = BTreeSet::new();
        for line in &lines[1..] {
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["job", job, "begins:", "user", user, "at", "worker", worker] => {
                    let other = running.insert(user, job);
                    assert_eq!(other, None, "{line}\n{lines:#?}");
                    workers.insert(worker);
                }
                ["job", job, "ends:", "user", user] => {
                    assert_eq!(running.remove(user), Some(job), "{line}\n{lines:#?}");
                    done.insert(job);
                }
                _ => panic!("{line}\n{lines:#?}"),
            }
        }
        assert_eq!((done.len(), workers.len()), (8, 2), "{lines:#?}");
    }
}
