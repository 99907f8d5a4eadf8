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
use crate::engine::Engine;

/// How long at least something is looked for whose connection has ended. It is looked for as long as
/// it had been on its way where that is longer: what a network has held back, it sends again after
/// pauses that are no longer than the outage was.
const LOOKED_FOR: Duration = Duration::from_secs(1);

pub(super) struct Unanswered {
    engine: Engine,
    requests: Mutex<HashMap<String, Outstanding>>,
}

/// The requests of one owner.
#[derive(Default)]
struct Outstanding {
    count: usize,
    /// When the first was sent of those whose connection has ended.
    cut_off: Option<Instant>,
    settled: Arc<Notify>,
}

impl Unanswered {
    pub(super) fn new(engine: &Engine) -> Arc<Self> {
        Arc::new(Self {
            engine: engine.clone(),
            requests: Mutex::default(),
        })
    }

    /// Listens for the answer to a request of this owner.
    pub(super) fn listen(self: &Arc<Self>, owner: &str, sending: Sending, sent: Instant) {
        self.requests().entry(owner.to_owned()).or_default().count += 1;
        let (unanswered, owner) = (Arc::clone(self), owner.to_owned());
        self.engine.spawn(async move {
            let answer = sending.await;
            let answered = answer
                .as_ref()
                .map_or_else(|fault| !fault.error.is_in_doubt(), |_| true);
            unanswered.settle(&owner, (!answered).then_some(sent));
        });
    }

    fn settle(&self, owner: &str, cut_off: Option<Instant>) {
        let mut requests = self.requests();
        let Some(outstanding) = requests.get_mut(owner) else {
            return;
        };
        outstanding.count -= 1;
        outstanding.cut_off = match (outstanding.cut_off, cut_off) {
            (Some(known), Some(sent)) => Some(known.min(sent)),
            (known, sent) => known.or(sent),
        };
        let settled = Arc::clone(&outstanding.settled);
        if outstanding.count == 0 && outstanding.cut_off.is_none() {
            requests.remove(owner);
        }
        drop(requests);
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
                    let cut_off = outstanding.cut_off;
                    requests.remove(owner);
                    let on_its_way = cut_off.map_or(Duration::ZERO, |sent| sent.elapsed());
                    return on_its_way.max(LOOKED_FOR);
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
