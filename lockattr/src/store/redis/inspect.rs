//! What a server's locks look like to people, and how they are ended.
//!
//! The names of all locks that are asked for are gathered first, by SCAN, and then what each of them is, some
//! at a time: the keys of a lock are met in any order and more than once, and a lock is listed once. So the
//! names are all in memory for a while. What is asked of one lock goes by a [`Route`], which in a cluster leads
//! to the node that keeps it.
//!
//! # Rights
//! Beside those of a client: `+scan` to list locks. To end something needs none.

use std::time::Duration;

use redis::{Cmd, Value};

use super::Redis;
use super::fault::Fault;
use super::script::Form;
use super::timeouts::Deadline;
use crate::error::StoreError;
use crate::store::inspect::{Ended, Entry, Finding, Inspect, Listing, Shown};
use crate::store::{Claim, Found, Release, Reply, Store};

mod doctor;
mod entry;
mod pattern;
mod read;
mod scan;

pub(super) use pattern::Filter;
pub(super) use read::{Reading, shown_by_parts};
use scan::ScannedLocks;
pub(super) use scan::{MetLocks, Scan};

/// So many of those who wait are shown.
const MOST_SHOWN: usize = 1000;

/// What to do where a right is missing, beside what every client needs.
const RIGHTS: &str = " (and +scan to list locks, on a cluster also +cluster|nodes)";

/// How servers begin to say that a right is missing, to a command or within a script.
const REFUSALS: [&str; 3] = [
    "NOPERM",
    "user executing the script can't",
    "ACL failure in script",
];

/// A fault with the rights that tools need.
pub(super) fn with_rights(fault: Fault) -> Fault {
    match refusal(&fault) {
        Some(words) => fault.advised(words, RIGHTS),
        None => fault,
    }
}

/// Whether a right is missing.
fn lacks_right(fault: &Fault) -> bool {
    refusal(fault).is_some()
}

fn refusal(fault: &Fault) -> Option<&'static str> {
    let said = fault.error.to_string();
    REFUSALS.into_iter().find(|words| said.contains(words))
}

/// Where commands about a lock go.
pub(super) trait Route: Sync {
    /// The answer to a command about this lock.
    fn ask(
        &self,
        lock: &str,
        command: &Cmd,
    ) -> impl Future<Output = Result<Value, StoreError>> + Send;
}

impl Route for Redis {
    async fn ask(&self, _: &str, command: &Cmd) -> Result<Value, StoreError> {
        let mut deadline = self.deadline_of_two();
        let asked = self.ask_again(command, &mut deadline).await;
        asked.map_err(|fault| with_rights(fault).told())
    }
}

impl Redis {
    /// The answer to a command that may be asked twice.
    async fn ask_again(&self, command: &Cmd, deadline: &mut Deadline<'_>) -> Result<Value, Fault> {
        let asked = match self.connections.ask(command.clone(), deadline).await {
            Err(fault) if fault.is_transient() => {
                self.connections.ask(command.clone(), deadline).await
            }
            answer => answer,
        };
        asked.map(|(answer, _)| answer)
    }

    /// What stands under a lock in this moment.
    pub(super) async fn show_once(
        &self,
        lock: &str,
        deadline: &mut Deadline<'_>,
    ) -> Result<Shown, Fault> {
        let call = |form: Form<'_>| {
            let mut command = form.call(&[lock], &[self.names.queue(lock)]);
            command.arg(MOST_SHOWN - 1);
            command
        };
        let script = &self.scripts.inspect;
        let (answer, _) = script.run(&self.connections, call, deadline).await?;
        entry::shown(lock, &answer).ok_or_else(|| self.protocol_error(&answer))
    }
}

impl Inspect for Redis {
    fn part(&self) -> String {
        self.address()
    }

    fn list<'a>(&'a self, prefix: &'a str, pattern: &'a str) -> Box<dyn Listing + 'a> {
        Box::new(ScannedLocks::new(self, Filter::new(prefix, pattern)))
    }

    fn show<'a>(&'a self, lock: &'a str) -> Reply<'a, Shown> {
        Box::pin(async move {
            let mut deadline = self.deadline_of_two();
            let shown = match self.show_once(lock, &mut deadline).await {
                Err(fault) if fault.is_transient() => self.show_once(lock, &mut deadline).await,
                shown => shown,
            };
            shown.map_err(|fault| with_rights(fault).told())
        })
    }

    fn end<'a>(&'a self, lock: &'a str, entry: &'a Entry) -> Reply<'a, Ended> {
        Box::pin(end(self, lock, entry))
    }

    fn diagnose(&self) -> Reply<'_, Vec<Finding>> {
        Box::pin(async move {
            let lock = self.own_lock();
            self.diagnosed(&lock).await.map_err(Fault::told)
        })
    }
}

/// Ends what was shown, by the release of whatever is stored there: it compares that in the server, and grants
/// the key to the next waiter in the same step.
pub(super) async fn end(
    store: &impl Store,
    lock: &str,
    entry: &Entry,
) -> Result<Ended, StoreError> {
    let Some(stored) = entry::stored(&entry.kind) else {
        return Err(StoreError::invalid(
            "what is not a lock's is not ended: delete it by its key",
        ));
    };
    let locks = [lock.to_owned()];
    // Nothing is waited for as long as that. It is found with whomever it shares the lock.
    let claim = Claim::new(&locks, &stored, Duration::from_secs(1));
    Ok(
        match store.release(claim, Release::held(entry.slot, &[])).await? {
            Found::Ours => Ended::Ended,
            Found::Nothing => Ended::Gone,
            Found::Another => Ended::Changed,
        },
    )
}
