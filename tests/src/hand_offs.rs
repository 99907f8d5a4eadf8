//! Leases that one process hands off and another takes up, on whichever store.

use lockattr::{Client, Error, Lease, LossCause};

use crate::record::Record;
use crate::worker::Worker;

/// A call was told that its lease is lost, and why.
#[track_caller]
pub fn is_lost<T: std::fmt::Debug>(told: Result<T, Error>, expected: LossCause) {
    match told {
        Err(Error::Lost { cause, .. }) => assert_eq!(cause, expected),
        told => panic!("{told:?}"),
    }
}

/// A process that has taken up what another one had, which is killed by now.
pub struct Heir {
    child: Worker,
    _record: Record,
}

impl Heir {
    /// Of a lease of the key `heritage`, with its token. Before the first one is killed, `meanwhile` may look.
    pub fn of_a_killed_parent(url: &str, ttl_ms: u64, meanwhile: impl FnOnce()) -> Self {
        let record = Record::new();
        let ttl = format!("ttl={ttl_ms}");
        let words = [ttl.as_str()];
        let mut parent = Worker::start("parent", url, &record, &words);
        let token = parent.says("token ");
        let text = parent.says("text ");
        meanwhile();
        let mut child = Worker::start("heir", url, &record, &words);
        child.says("ready");
        child.tell(text.trim_start_matches("text "));
        assert_eq!(child.says("token "), token);
        parent.kill();
        Self {
            child,
            _record: record,
        }
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Gives it back.
    pub fn release(mut self) {
        self.child.tell("release");
        assert_eq!(self.child.says("released "), "released true");
        assert!(self.child.finish().success());
    }
}

/// All take it up at the same time, one has it, and the others are told this cause.
pub async fn taken_up_by_one(text: &str, heirs: &[Client], cause: LossCause) -> Lease {
    let calls = heirs.iter().map(|heir| {
        let (heir, text) = (heir.clone(), text.to_owned());
        tokio::spawn(async move { heir.take_up(text).await })
    });
    let mut leases = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        match call.await.expect("no panic") {
            Ok(lease) => leases.push(lease),
            told => is_lost(told, cause),
        }
    }
    assert_eq!(leases.len(), 1);
    leases.remove(0)
}
