//! Requests for keys whose caller is gone before the answer came.
//!
//! The server may carry such a request out at any later time: when it resumes after it was frozen, or
//! when a runtime that was blocked writes what its connection was given. So the connection that carries
//! the request is kept until the late answer has come, after which the request cannot be carried out any
//! more. Where the connection ends before, the request may still be on its way, and only time tells.
//!
//! Giving back what such a request has acquired is left to the caller of
//! [`settled`](crate::store::Store::settled).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::batcher::Sending;
use crate::runtime::background::Background;

/// For how long at least a request may still arrive whose connection has ended: at its other end, or with
/// the runtime that drove it, so that it may not be written yet. Where it had been on its way for longer
/// than that, it may arrive for as long again: a network delivers what it has held back after pauses that
/// are no longer than the outage was.
const ENDED_BY_SERVER: Duration = Duration::from_secs(1);
const ENDED_WITH_RUNTIME: Duration = Duration::from_secs(10);

/// A runtime that ends drops its tasks in any order, within this time.
const RUNTIME_ENDS_WITHIN: Duration = Duration::from_millis(50);

/// The unanswered requests of one client, by owner.
pub(super) struct Unanswered {
    background: Background,
    requests: Mutex<HashMap<String, Outstanding>>,
}

/// The requests of one owner.
#[derive(Default)]
struct Outstanding {
    count: usize,
    /// For how long those may still be carried out whose connection has ended.
    may_come: Duration,
    settled: Arc<Notify>,
}

impl Unanswered {
    pub(super) fn new(background: &Background) -> Arc<Self> {
        Arc::new(Self {
            background: background.clone(),
            requests: Mutex::default(),
        })
    }

    /// Awaits the answer to a request of this owner in the background.
    pub(super) fn track(self: &Arc<Self>, owner: &str, sending: Sending, sent: Instant) {
        self.requests().entry(owner.to_owned()).or_default().count += 1;
        let (unanswered, owner) = (Arc::clone(self), owner.to_owned());
        self.background.spawn(async move {
            let batcher = Arc::clone(&sending.batcher);
            let answered = match sending.await {
                Ok(_) => true,
                Err(fault) => !fault.error.is_in_doubt(),
            };
            let mut may_come = Duration::ZERO;
            if !answered {
                tokio::time::sleep(RUNTIME_ENDS_WITHIN).await;
                let at_least = if batcher.has_ended() {
                    ENDED_WITH_RUNTIME
                } else {
                    ENDED_BY_SERVER
                };
                may_come = sent.elapsed().max(at_least);
            }
            unanswered.settle(&owner, may_come);
        });
    }

    fn settle(&self, owner: &str, may_come: Duration) {
        let mut requests = self.requests();
        let Some(outstanding) = requests.get_mut(owner) else {
            return;
        };
        outstanding.count -= 1;
        outstanding.may_come = outstanding.may_come.max(may_come);
        let settled = Arc::clone(&outstanding.settled);
        let is_over = outstanding.count == 0 && outstanding.may_come.is_zero();
        let over = is_over.then(|| requests.remove(owner));
        drop(requests);
        drop(over);
        settled.notify_waiters();
    }

    /// Waits until no request of this owner is tracked any more. The answer is for how long one of them
    /// may still be carried out.
    pub(super) async fn settled(&self, owner: &str) -> Duration {
        loop {
            let settled = {
                let mut requests = self.requests();
                let Some(outstanding) = requests.get(owner) else {
                    return Duration::ZERO;
                };
                let settled = Arc::clone(&outstanding.settled).notified_owned();
                if outstanding.count == 0 {
                    let may_come = outstanding.may_come;
                    requests.remove(owner);
                    return may_come;
                }
                settled
            };
            settled.await;
        }
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<String, Outstanding>> {
        // No panic happens under this lock.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is being sent. Dropped before its answer has come, it is tracked.
pub(super) struct SentRequest<'a> {
    sending: Option<Sending>,
    sent: Instant,
    tracked: Option<(&'a Arc<Unanswered>, &'a str)>,
}

impl<'a> SentRequest<'a> {
    /// `tracked` is where, and for which owner, if the request may acquire keys.
    pub(super) fn new(
        sending: Sending,
        sent: Instant,
        tracked: Option<(&'a Arc<Unanswered>, &'a str)>,
    ) -> Self {
        Self {
            sending: Some(sending),
            sent,
            tracked,
        }
    }

    pub(super) fn sending(&mut self) -> Option<&mut Sending> {
        self.sending.as_mut()
    }

    /// Its answer has come.
    pub(super) fn answered(&mut self) -> Option<Sending> {
        self.sending.take()
    }
}

impl Drop for SentRequest<'_> {
    fn drop(&mut self) {
        if let (Some(sending), Some((unanswered, owner))) = (self.sending.take(), self.tracked)
            && sending.is_sent()
        {
            unanswered.track(owner, sending, self.sent);
        }
    }
}
