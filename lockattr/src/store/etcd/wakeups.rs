//! Who waits, for the change of which keys, and what it was told.
//!
//! A claim that is the first in its queue waits for the lock, and every other one for the place before it: what is
//! given back wakes one claim, however many wait.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::proto::Range;
use crate::runtime::waker;
use crate::store::{WakeUp, WakeUps};

/// For so long a claim that waits and does not ask again is taken to be polled: longer than any caller waits
/// before it looks by itself.
const ASKS_WITHIN: Duration = Duration::from_secs(130);

#[derive(Clone)]
pub(super) struct Waiting {
    watched: Watched,
    /// To the task that watches, which ends with the last of these.
    orders: mpsc::UnboundedSender<Order>,
}

/// The side of the task that watches.
#[derive(Clone, Default)]
pub(super) struct Watched(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    inboxes: HashMap<String, Inbox>,
    watches: HashMap<i64, Watch>,
    last_id: i64,
}

/// Where an owner's wake-ups go.
struct Inbox {
    next: Option<WakeUp>,
    waker: Option<Waker>,
    watches: Vec<i64>,
    /// When it has asked last, and was not told anything since.
    asked: Option<Instant>,
    is_kept: bool,
}

/// One range of keys that a claim waits for.
#[derive(Clone)]
pub(super) struct Watch {
    owner: String,
    pub(super) range: Range,
    /// From which revision on nothing is known.
    pub(super) from: i64,
}

/// What the task is to do.
pub(super) enum Order {
    Watch(i64),
    Cancel(i64),
}

impl Waiting {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Order>) {
        let (orders, ordered) = mpsc::unbounded_channel();
        let watched = Watched::default();
        (Self { watched, orders }, ordered)
    }

    pub(super) fn watched(&self) -> Watched {
        self.watched.clone()
    }

    /// The wake-ups of an owner, until they are dropped.
    pub(super) fn listen(&self, owner: &str) -> OfOwner {
        let inbox = Inbox {
            next: None,
            waker: None,
            watches: Vec::new(),
            asked: None,
            is_kept: false,
        };
        let before = self.state().inboxes.insert(owner.to_owned(), inbox);
        self.drop_inbox(before);
        OfOwner {
            waiting: self.clone(),
            owner: owner.to_owned(),
        }
    }

    pub(super) fn is_listening(&self, owner: &str) -> bool {
        self.state().inboxes.contains_key(owner)
    }

    /// Whether an owner that waits was told anything since it has asked last.
    pub(super) fn was_told(&self, owner: &str) -> bool {
        let state = self.state();
        let inbox = state.inboxes.get(owner);
        inbox.is_some_and(|inbox| inbox.asked.is_none())
    }

    /// An owner stands in a queue, and is told of every change of these keys from this revision on.
    /// Answers whether somebody has to see to it that its place stays.
    pub(super) fn queued(&self, owner: &str, ranges: Vec<Range>, from: i64) -> bool {
        let mut orders = Vec::new();
        let mut state = self.state();
        let State {
            inboxes,
            watches,
            last_id,
        } = &mut *state;
        let Some(inbox) = inboxes.get_mut(owner) else {
            return false;
        };
        inbox.asked = Some(Instant::now());
        let is_same = |id: &i64| watches.get(id).map(|watch| &watch.range);
        if !inbox
            .watches
            .iter()
            .map(is_same)
            .eq(ranges.iter().map(Some))
        {
            for id in mem::take(&mut inbox.watches) {
                watches.remove(&id);
                orders.push(Order::Cancel(id));
            }
            for range in ranges {
                *last_id += 1;
                let owner = owner.to_owned();
                watches.insert(*last_id, Watch { owner, range, from });
                inbox.watches.push(*last_id);
                orders.push(Order::Watch(*last_id));
            }
        }
        let is_new = !mem::replace(&mut inbox.is_kept, true);
        drop(state);
        self.order(orders);
        is_new
    }

    /// Whether the place of an owner is to stay: it waits, is polled as far as is known, and was not told to do
    /// anything that it has not done yet.
    pub(super) fn is_to_stay(&self, owner: &str) -> bool {
        let mut state = self.state();
        let Some(inbox) = state.inboxes.get_mut(owner) else {
            return false;
        };
        inbox.is_kept = inbox
            .asked
            .is_some_and(|asked| asked.elapsed() < ASKS_WITHIN);
        inbox.is_kept
    }

    fn forget(&self, owner: &str) {
        let inbox = self.state().inboxes.remove(owner);
        self.drop_inbox(inbox);
    }

    /// Its waker may be the last handle of a task, whose end may come back here.
    fn drop_inbox(&self, inbox: Option<Inbox>) {
        let Some(inbox) = inbox else {
            return;
        };
        let mut state = self.state();
        let ids = inbox.watches.iter();
        let known: Vec<_> = ids
            .filter(|id| state.watches.remove(id).is_some())
            .collect();
        drop(state);
        self.order(known.into_iter().map(|id| Order::Cancel(*id)));
    }

    fn order(&self, orders: impl IntoIterator<Item = Order>) {
        for order in orders {
            // The task has ended where the client's thread has.
            let _ = self.orders.send(order);
        }
    }

    /// Nobody sees to the place of an owner any more.
    pub(super) fn stays_no_more(&self, owner: &str) {
        if let Some(inbox) = self.state().inboxes.get_mut(owner) {
            inbox.is_kept = false;
        }
    }

    /// An owner had better look.
    pub(super) fn tell(&self, owner: &str) {
        self.watched.tell(owner);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.watched.state()
    }
}

impl Watched {
    fn tell(&self, owner: &str) {
        let waker = self.state().inboxes.get_mut(owner).and_then(|inbox| {
            inbox.next = Some(WakeUp::Look);
            inbox.asked = None;
            inbox.waker.take()
        });
        // Not under the lock, since a waker may come back here.
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Something has happened to the keys of a watch.
    pub(super) fn changed(&self, id: i64) {
        let owner = self
            .state()
            .watches
            .get(&id)
            .map(|watch| watch.owner.clone());
        if let Some(owner) = owner {
            self.tell(&owner);
        }
    }

    /// A watch is not served any more: its owner has to look, and is watched for from then on.
    pub(super) fn ended(&self, id: i64) {
        self.changed(id);
        let mut state = self.state();
        if let Some(watch) = state.watches.remove(&id)
            && let Some(inbox) = state.inboxes.get_mut(&watch.owner)
        {
            inbox.watches.retain(|other| *other != id);
        }
    }

    /// All that happened before this revision is known of a watch.
    pub(super) fn seen(&self, id: i64, from: i64) {
        if let Some(watch) = self.state().watches.get_mut(&id) {
            watch.from = watch.from.max(from);
        }
    }

    pub(super) fn watch(&self, id: i64) -> Option<Watch> {
        self.state().watches.get(&id).cloned()
    }

    pub(super) fn watches(&self) -> Vec<i64> {
        self.state().watches.keys().copied().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wake-ups of one owner.
pub(super) struct OfOwner {
    waiting: Waiting,
    owner: String,
}

impl WakeUps for OfOwner {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<WakeUp> {
        let mut state = self.waiting.state();
        let Some(inbox) = state.inboxes.get_mut(&self.owner) else {
            return Poll::Pending;
        };
        if let Some(wakeup) = inbox.next.take() {
            return Poll::Ready(wakeup);
        }
        let before = waker::replace(&mut inbox.waker, cx.waker());
        drop(state);
        // Not under the lock: it may be the last handle of a task.
        drop(before);
        Poll::Pending
    }
}

impl Drop for OfOwner {
    fn drop(&mut self) {
        self.waiting.forget(&self.owner);
    }
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        f.debug_struct("Waiting")
            .field("claims", &state.inboxes.len())
            .field("watches", &state.watches.len())
            .finish()
    }
}
