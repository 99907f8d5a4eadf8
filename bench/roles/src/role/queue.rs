//! Tasks that wait for one key, and when each asked for it, was granted it, and gave it back.
//!
//! Words: the key, the number of clients, of tasks of each, the milliseconds of a body, `at-once` or
//! `after-another` for when a task comes back, and a file that all processes of the run share.
//! The start names the moment at which the run ends, on the clock that all processes share.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::LocalSet;

use super::{TTL, Words, ready, say};
use crate::{Locks, now};

/// How often a task looks whether another has had its turn.
const LOOK: Duration = Duration::from_millis(1);

#[derive(Clone)]
struct Run {
    key: String,
    body: Duration,
    at_once: bool,
    /// The last entry of any process.
    last: Rc<File>,
    findings: Rc<RefCell<Vec<String>>>,
}

pub(super) async fn play<L: Locks>(url: &str, words: &Words) {
    let (clients, tasks) = (words.number(4), words.number(5));
    let file = File::options().read(true).write(true).open(words.text(8));
    let run = Run {
        key: words.text(3).to_owned(),
        body: Duration::from_millis(words.number(6)),
        at_once: words.text(7) == "at-once",
        last: Rc::new(file.expect("a file that the run shares")),
        findings: Rc::default(),
    };
    let mut locks = Vec::new();
    for _ in 0..clients {
        locks.push(L::connect(url, TTL).await);
    }
    let start = ready();
    let end = start.strip_prefix("go ").and_then(|end| end.parse().ok());
    let end = Duration::from_nanos(end.expect("the end of the run"));
    let set = LocalSet::new();
    for (client, locks) in locks.iter().enumerate() {
        for task in 0..tasks {
            let name = client as u64 * tasks + task;
            set.spawn_local(turns(locks.clone(), run.clone(), name));
        }
    }
    let patience = end.saturating_sub(now());
    // Whoever waits or holds at the end is dropped.
    drop(tokio::time::timeout(patience, set).await);
    for line in run.findings.borrow().iter() {
        say(line);
    }
}

async fn turns<L: Locks>(locks: L, run: Run, task: u64) {
    loop {
        let asked = now();
        let mut waiting = Waiting {
            run: &run,
            task,
            asked: Some(asked),
        };
        let held = locks.wait(&run.key).await;
        let entered = now();
        waiting.asked = None;
        let stamp = (entered.as_nanos() as u64).to_le_bytes();
        run.last.write_at(&stamp, 0).expect("the shared file");
        if run.body.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(run.body).await;
        }
        let left = now();
        // Told before the release: who is dropped in it has had its turn.
        let [asked, entered, left] = [asked, entered, left].map(|at| at.as_nanos());
        let line = format!("turn {task} {asked} {entered} {left}");
        run.findings.borrow_mut().push(line);
        locks.release(held).await;
        if run.at_once {
            continue;
        }
        loop {
            tokio::time::sleep(LOOK).await;
            let mut seen = [0; 8];
            run.last.read_at(&mut seen, 0).expect("the shared file");
            if seen != stamp {
                break;
            }
        }
    }
}

/// Tells at its end who still waits.
struct Waiting<'a> {
    run: &'a Run,
    task: u64,
    asked: Option<Duration>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(asked) = self.asked {
            let waited = now().saturating_sub(asked).as_nanos();
            let line = format!("waits {} {waited}", self.task);
            self.run.findings.borrow_mut().push(line);
        }
    }
}
