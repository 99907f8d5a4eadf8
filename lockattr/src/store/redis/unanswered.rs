//! Requests for keys that nobody waits for any more, and that were not answered.
//!
//! The server may carry such a request out at any later time: when it goes on after it was frozen, or
//! when a runtime that was blocked writes what its connection was given. So the connection that carries
//! the request is kept until the late answer has come: nothing of the request can come after that.
//! Where the connection ends before, what is on its way may still arrive, and only time tells.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::desk::Sending;
use crate::runtime::background::Background;

/// How long at least something is looked for whose connection has ended: at its other end, or here,
/// with the runtime that drove it, so that it may be on its way yet. It is looked for as long as it had
/// been on its way where that is longer: what a network has held back, it sends again after pauses that
/// are no longer than the outage was.
const ENDED_THERE: Duration = Duration::from_secs(1);
const ENDED_HERE: Duration = Duration::from_secs(10);

/// A runtime that ends drops what it drives in any order, within this time.
const ENDS_WITHIN: Duration = Duration::from_millis(50);

pub(super) struct Unanswered {
    background: Background,
    requests: Mutex<HashMap<String, Outstanding>>,
}

/// The requests of one owner.
#[derive(Default)]
struct Outstanding {
    count: usize,
    /// For how long something may come of those whose connection has ended.
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

    /// Listens for the answer to a request of this owner.
    pub(super) fn listen(self: &Arc<Self>, owner: &str, sending: Sending, sent: Instant) {
        self.requests().entry(owner.to_owned()).or_default().count += 1;
        let (unanswered, owner) = (Arc::clone(self), owner.to_owned());
        self.background.spawn(async move {
            let desk = Arc::clone(&sending.desk);
            let answered = match sending.await {
                Ok(_) => true,
                Err(fault) => !fault.error.is_in_doubt(),
            };
            let mut may_come = Duration::ZERO;
            if !answered {
                tokio::time::sleep(ENDS_WITHIN).await;
                let ended_here = desk.has_ended_here();
                let at_least = if ended_here { ENDED_HERE } else { ENDED_THERE };
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

    /// Waits until no request of this owner is outstanding. The answer is for how long something may
    /// come all the same.
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
        // Nothing in here panics half-way.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request on its way: dropped before its answer has come, it is listened for.
pub(super) struct OnItsWay<'a> {
    sending: Option<Sending>,
    sent: Instant,
    of: Option<(&'a Arc<Unanswered>, &'a str)>,
}

impl<'a> OnItsWay<'a> {
    /// `of` is who asks for keys by it; other commands are not listened for.
    pub(super) fn new(
        sending: Sending,
        sent: Instant,
        of: Option<(&'a Arc<Unanswered>, &'a str)>,
    ) -> Self {
        Self {
            sending: Some(sending),
            sent,
            of,
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

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        if let (Some(sending), Some((unanswered, owner))) = (self.sending.take(), self.of)
            && sending.is_out()
        {
            unanswered.listen(owner, sending, self.sent);
        }
    }
}
