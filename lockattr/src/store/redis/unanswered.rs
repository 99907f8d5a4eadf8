//! Requests for keys whose caller is gone before the answer came, or whose connection has ended before.
//!
//! The server may carry such a request out at any later time: when it resumes after it was frozen, or
//! when a runtime that was blocked writes what its connection was given. So the connection that carries
//! the request is kept until the late answer has come, after which the request cannot be carried out any
//! more. Where the connection ends before, the request may still be on its way, and only time tells. So it
//! is with a connection that stays silent while the server answers on others: it is closed, since it may
//! have been lost without a word.
//!
//! Giving back what such a request has acquired is left to the caller of
//! [`settled`](crate::store::Store::settled).

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::batcher::{Batcher, Sending};
use super::fault::Fault;
use super::server::Server;

/// For how long at least a request may still arrive whose connection has ended: at its other end, or with
/// the runtime that drove it, so that it may not be written yet. Where it had been on its way for longer
/// than that, it may arrive for as long again: a network delivers what it has held back after pauses that
/// are no longer than the outage was.
const ENDED_BY_SERVER: Duration = Duration::from_secs(1);
const ENDED_WITH_RUNTIME: Duration = Duration::from_secs(10);

/// How long a connection is silent before it is looked at whether the server answers on others, and then
/// for how long again.
const SILENT: Duration = Duration::from_secs(10);

/// A runtime that ends drops its tasks in any order, within this time.
const RUNTIME_ENDS_WITHIN: Duration = Duration::from_millis(50);

/// The unanswered requests of one client, by owner.
pub(super) struct Unanswered {
    server: Arc<Server>,
    requests: Mutex<HashMap<String, Outstanding>>,
}

/// The requests of one owner. They are forgotten when none can be carried out any more, and not before:
/// several may ask for them, an extend and a release for example.
#[derive(Default)]
struct Outstanding {
    count: usize,
    /// Until when those may still be carried out whose connection has ended.
    may_come_until: Option<Instant>,
    settled: Arc<Notify>,
}

impl Outstanding {
    /// For how long a request may still be carried out, once none is tracked any more.
    fn may_come(&self) -> Duration {
        let until = self.may_come_until;
        until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        })
    }
}

impl Unanswered {
    pub(super) fn new(server: &Arc<Server>) -> Arc<Self> {
        Arc::new(Self {
            server: Arc::clone(server),
            requests: Mutex::default(),
        })
    }

    /// Awaits the answer to a request of this owner in the background.
    fn track(self: &Arc<Self>, owner: &str, sending: Sending, sent: Instant) {
        self.begin(owner);
        let (unanswered, owner) = (Arc::clone(self), owner.to_owned());
        self.server.background.spawn(async move {
            let batcher = Arc::clone(&sending.batcher);
            if unanswered.is_answered(sending).await {
                unanswered.settle(&owner, None);
            } else {
                unanswered.ended(&owner, batcher, sent).await;
            }
        });
    }

    /// Whether the answer has come, once it has or cannot be hoped for any more.
    async fn is_answered(&self, mut sending: Sending) -> bool {
        let answered = |reply: Result<Value, Fault>| match reply {
            Err(fault) => !fault.error.is_in_doubt(),
            Ok(_) => true,
        };
        if let Ok(reply) = timeout(SILENT, &mut sending).await {
            return answered(reply);
        }
        // A server that answers nobody may do so yet on every connection. One that answers later
        // requests has read the earlier ones, or cannot be reached on this connection. What a runtime
        // that is not run has yet to write is not written once its reply is not awaited.
        let answers = self.server.answers();
        loop {
            if let Ok(reply) = timeout(SILENT, &mut sending).await {
                return answered(reply);
            }
            if self.server.answers() != answers {
                return false;
            }
        }
    }

    /// The same of a request whose connection has ended while its answer was awaited.
    fn track_ended(self: &Arc<Self>, owner: &str, batcher: Arc<Batcher>, sent: Instant) {
        self.begin(owner);
        let (unanswered, owner) = (Arc::clone(self), owner.to_owned());
        let background = &self.server.background;
        background.spawn(async move { unanswered.ended(&owner, batcher, sent).await });
    }

    fn begin(&self, owner: &str) {
        self.requests().entry(owner.to_owned()).or_default().count += 1;
    }

    /// The connection of a request has ended. It is remembered for as long as it may still be carried out.
    async fn ended(&self, owner: &str, batcher: Arc<Batcher>, sent: Instant) {
        tokio::time::sleep(RUNTIME_ENDS_WITHIN).await;
        let at_least = if batcher.has_ended() {
            ENDED_WITH_RUNTIME
        } else {
            ENDED_BY_SERVER
        };
        drop(batcher);
        let until = Instant::now() + sent.elapsed().max(at_least);
        self.settle(owner, Some(until));
        tokio::time::sleep_until(until.into()).await;
        self.forget_if_over(owner);
    }

    fn settle(&self, owner: &str, may_come_until: Option<Instant>) {
        let mut requests = self.requests();
        let Some(outstanding) = requests.get_mut(owner) else {
            return;
        };
        outstanding.count -= 1;
        outstanding.may_come_until = outstanding.may_come_until.max(may_come_until);
        let settled = Arc::clone(&outstanding.settled);
        drop(requests);
        settled.notify_waiters();
        self.forget_if_over(owner);
    }

    fn forget_if_over(&self, owner: &str) {
        let mut requests = self.requests();
        let over =
            |outstanding: &Outstanding| outstanding.count == 0 && outstanding.may_come().is_zero();
        let is_over = requests.get(owner).is_some_and(over);
        let forgotten = is_over.then(|| requests.remove(owner));
        drop(requests);
        drop(forgotten);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests().is_empty()
    }

    /// Waits until no request of this owner is tracked any more. The answer is for how long one of them
    /// may still be carried out, and the same for everybody who asks.
    pub(super) async fn settled(&self, owner: &str) -> Duration {
        loop {
            let settled = {
                let requests = self.requests();
                match requests.get(owner) {
                    None => return Duration::ZERO,
                    Some(outstanding) if outstanding.count == 0 => return outstanding.may_come(),
                    Some(outstanding) => Arc::clone(&outstanding.settled).notified_owned(),
                }
            };
            settled.await;
        }
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<String, Outstanding>> {
        // No panic happens under this lock.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is being sent. It is tracked where it is dropped before its answer has come, and where
/// its connection ends before.
pub(super) struct SentRequest<'a> {
    pub(super) sending: Sending,
    /// A moment before it was sent.
    pub(super) sent: Instant,
    tracked: Option<(&'a Arc<Unanswered>, &'a str)>,
}

impl<'a> SentRequest<'a> {
    /// `tracked` is where, and for which owner, if the request may acquire keys.
    pub(super) fn new(
        (sending, sent): (Sending, Instant),
        tracked: Option<(&'a Arc<Unanswered>, &'a str)>,
    ) -> Self {
        Self {
            sending,
            sent,
            tracked,
        }
    }

    /// Polls for the reply, until it has come.
    pub(super) fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Result<Value, Fault>> {
        let answer = ready!(Pin::new(&mut self.sending).poll(cx));
        if let (Err(fault), Some((unanswered, owner))) = (&answer, self.tracked)
            && fault.error.is_in_doubt()
        {
            let batcher = Arc::clone(&self.sending.batcher);
            unanswered.track_ended(owner, batcher, self.sent);
        }
        Poll::Ready(answer)
    }
}

impl Drop for SentRequest<'_> {
    fn drop(&mut self) {
        if let Some((unanswered, owner)) = self.tracked
            && self.sending.is_sent()
        {
            unanswered.track(owner, self.sending.take(), self.sent);
        }
    }
}
