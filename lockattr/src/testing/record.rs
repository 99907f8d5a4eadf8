//! What became of the calls of a client, in order.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, LossCause};
use crate::lease::Lease;

/// What has happened to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The key, without the client's prefix. Of several, all of them as an error names them.
    pub key: String,
    /// What has happened to it.
    pub what: What,
}

/// One thing that happens to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum What {
    /// A call got its lease.
    Locked,
    /// A call went on within the lease of a call around it, for all of its keys or some.
    Joined,
    /// A call found it busy, after its wait.
    Busy,
    /// A call found its work done, by `once`.
    Done,
    /// A call was answered in another way: the store failed, or the key or a setting was refused.
    Unavailable,
    /// A lease was given back by its call. A loss that is found out then is told after it.
    Released,
    /// A lease was lost.
    Lost(LossCause),
}

/// Kept from the moment on that somebody wants it.
#[derive(Debug, Default)]
pub(crate) struct Record(Mutex<Option<Vec<Event>>>);

impl Record {
    pub(super) fn begin(&self) {
        self.events_now().get_or_insert_default();
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.events_now().clone().unwrap_or_default()
    }

    /// A call was answered.
    pub(crate) fn answered(&self, outcome: Result<&Lease, &Error>) {
        match outcome {
            Ok(lease) if lease.has_joined() => self.happened(lease.key(), What::Joined),
            Ok(lease) => self.happened(lease.key(), What::Locked),
            Err(Error::Busy { key, .. }) => self.happened(key, What::Busy),
            Err(Error::Done { key, .. }) => self.happened(key, What::Done),
            // Where there is none yet, or no more, of no key.
            Err(error) => self.happened(error.key().unwrap_or_default(), What::Unavailable),
        }
    }

    pub(crate) fn happened(&self, key: &str, what: What) {
        if let Some(events) = &mut *self.events_now() {
            let key = key.to_owned();
            events.push(Event { key, what });
        }
    }

    fn events_now(&self) -> MutexGuard<'_, Option<Vec<Event>>> {
        // No change can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has happened to a key, or to which keys anything has.
pub(super) fn told(events: &[Event], of_key: &[What]) -> String {
    if !of_key.is_empty() {
        let of_key: Vec<String> = of_key.iter().map(|what| format!("{what:?}")).collect();
        return format!("it was {}", of_key.join(", "));
    }
    let mut keys: Vec<&str> = events.iter().map(|event| event.key.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    if keys.is_empty() {
        "no call came".to_owned()
    } else {
        format!("nothing happened to it, but to `{}`", keys.join("`, `"))
    }
}
