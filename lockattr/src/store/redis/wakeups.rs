//! Who waits, and what each is told.
//!
//! A message is delivered to the claim that it names, where it proves to be genuine and is newer than
//! what the claim knows. A grant to a claim that waits no more is handed out to be given back. Messages
//! are at most once: whether one may have been lost is known to the `subscriber`, which has all who wait
//! look for themselves then.
//!
//! No waker is woken or dropped under the lock.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::message::{Message, MessageKind, waiter_id};
use crate::runtime::waker;
use crate::store::clock_anchor::ClockAnchor;
use crate::store::{WakeUp, relied_on};

/// For how long something may be granted to a claim that waits no more, where it may still be in a queue
/// of the server: longer than `LONGEST` in `queue.lua`, after which a queue in which nobody looks is gone.
const MAY_BE_QUEUED: Duration = Duration::from_secs(310);

/// The same where the server has taken the claim out of its queue, and only a request that arrives late, or
/// a replica that takes the server's place and lacks the last moments, may put it there again.
const MAY_COME_LATE: Duration = Duration::from_secs(10);

/// The claims that wait, by the ids that messages name them with.
#[derive(Default)]
pub(super) struct WakeUpRegistry(Mutex<Registered>);

#[derive(Default)]
struct Registered {
    listeners: HashMap<String, Listener>,
    channel: ChannelState,
    /// Those that wait no more, for as long as the server may not know it.
    withdrawn: HashMap<String, Withdrawn>,
    /// How many were left when the outdated ones were removed last.
    withdrawn_before: usize,
}

/// Whether messages are received.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ChannelState {
    /// Nobody has waited yet, or nobody since the subscription was lost.
    #[default]
    Untried,
    Subscribed,
    Lost,
}

/// A claim that waits no more.
struct Withdrawn {
    owner: String,
    /// Until when something may be granted to it.
    until: Instant,
}

/// A claim that waits.
#[derive(Default)]
struct Listener {
    owner: String,
    /// The ttl of what it may be granted.
    ttl: Duration,
    pending: Option<PendingWakeUp>,
    waker: Option<Waker>,
    /// Whether the server was asked since it waits: if not, it cannot have missed a message.
    asked: bool,
    /// How many were before it when that was told last.
    place: u64,
    anchor: Option<ClockAnchor>,
    /// From when on, by the server's clock, words and grants are new: earlier ones were heard, or are
    /// known from the answer to a later request.
    words_from: u64,
    grants_from: u64,
}

/// What a claim is told next.
#[derive(Clone, Copy)]
enum PendingWakeUp {
    /// Granted at that time of the server's clock, in microseconds; heard of at that time of ours.
    Granted {
        slot: usize,
        at: u64,
        heard: Instant,
    },
    First {
        remaining: Duration,
    },
    Look,
}

/// A key that was granted to a claim that waits no more.
pub(super) struct UnclaimedGrant {
    pub(super) key: String,
    pub(super) queue: String,
    pub(super) owner: String,
}

impl WakeUpRegistry {
    /// Delivers to a claim until it is [forgotten](Self::forget). The answer is its id, and whether it is
    /// the only one.
    pub(super) fn listen(&self, owner: &str, ttl: Duration) -> (String, bool) {
        let id = waiter_id(owner);
        let listener = Listener {
            owner: owner.to_owned(),
            ttl,
            ..Listener::default()
        };
        let mut registered = self.registered();
        let is_first = registered.listeners.is_empty();
        let before = registered.listeners.insert(id.clone(), listener);
        // It may be a claim that had ended its waiting, and is asked for anew.
        registered.withdrawn.remove(&id);
        drop(registered);
        drop(before);
        (id, is_first)
    }

    pub(super) fn poll_next(&self, id: &str, cx: &mut Context<'_>) -> Poll<WakeUp> {
        let mut registered = self.registered();
        let Some(listener) = registered.listeners.get_mut(id) else {
            return Poll::Pending;
        };
        let Some(pending) = listener.pending.take() else {
            let before = waker::replace(&mut listener.waker, cx.waker());
            drop(registered);
            drop(before);
            return Poll::Pending;
        };
        Poll::Ready(listener.resolve(pending))
    }

    /// Nobody listens to this claim any more.
    pub(super) fn forget(&self, id: &str) {
        let mut registered = self.registered();
        let left = registered.listeners.remove(id);
        drop(registered);
        // Its waker may be the last handle of a task, whose drop may lock this again.
        drop(left);
    }

    pub(super) fn is_listening(&self, id: &str) -> bool {
        self.registered().listeners.contains_key(id)
    }

    pub(super) fn nobody_listens(&self) -> bool {
        self.registered().listeners.is_empty()
    }

    pub(super) fn channel(&self) -> ChannelState {
        self.registered().channel
    }

    pub(super) fn set_channel(&self, channel: ChannelState) {
        self.registered().channel = channel;
    }

    /// A claim is about to be asked for. The answer is whether its messages are received from now on;
    /// where they are not yet, [`tell_all`](Self::tell_all) reaches it.
    pub(super) fn asks(&self, id: &str) -> bool {
        let mut registered = self.registered();
        if let Some(listener) = registered.listeners.get_mut(id) {
            listener.asked = true;
        }
        registered.channel == ChannelState::Subscribed
    }

    /// A claim is in a queue, with so many before it.
    pub(super) fn queued(&self, owner: &str, place: u64) {
        let mut registered = self.registered();
        if let Some(listener) = registered.listeners.get_mut(&waiter_id(owner)) {
            listener.place = place;
        }
    }

    /// A request was answered at this time of the server's clock: what was told before is outdated.
    pub(super) fn answered(&self, owner: &str, server_micros: u64, anchor: Option<ClockAnchor>) {
        let mut registered = self.registered();
        if let Some(listener) = registered.listeners.get_mut(&waiter_id(owner)) {
            listener.anchor = anchor;
            listener.words_from = server_micros;
            listener.grants_from = server_micros;
        }
    }

    /// Nobody waits with this owner any more, nor holds a lease under it. What is granted to it is to be
    /// given back.
    pub(super) fn withdraw(&self, owner: &str) {
        let withdrawn = Withdrawn {
            owner: owner.to_owned(),
            until: Instant::now() + MAY_BE_QUEUED,
        };
        let mut registered = self.registered();
        registered.remove_outdated();
        registered.withdrawn.insert(waiter_id(owner), withdrawn);
    }

    /// The server has taken the withdrawn owner out of its queue.
    pub(super) fn left_queue(&self, owner: &str) {
        if let Some(withdrawn) = self.registered().withdrawn.get_mut(&waiter_id(owner)) {
            withdrawn.until = Instant::now() + MAY_COME_LATE;
        }
    }

    /// The place of the claim with the fewest before it; `None` where nobody waits.
    pub(super) fn foremost(&self) -> Option<u64> {
        let registered = self.registered();
        let listeners = registered.listeners.values();
        let waits = |one: &&Listener| !matches!(one.pending, Some(PendingWakeUp::Granted { .. }));
        listeners.filter(waits).map(|one| one.place).min()
    }

    /// Delivers a message. The answer is what nobody has claimed.
    pub(super) fn deliver(&self, message: &Message<'_>, heard: Instant) -> Option<UnclaimedGrant> {
        let mut registered = self.registered();
        if let Some(listener) = registered.listeners.get_mut(message.waiter_id) {
            let believed = listener.deliver(message, heard);
            let waker = believed.then(|| listener.waker.take()).flatten();
            drop(registered);
            waker.into_iter().for_each(Waker::wake);
            return None;
        }
        let MessageKind::Granted(grant) = &message.kind else {
            return None;
        };
        let is_genuine = |withdrawn: &Withdrawn| message.proves(&withdrawn.owner);
        let known = registered.withdrawn.get(message.waiter_id);
        if !known.is_some_and(is_genuine) {
            return None;
        }
        let withdrawn = registered.withdrawn.remove(message.waiter_id);
        drop(registered);
        withdrawn.map(|Withdrawn { owner, .. }| UnclaimedGrant {
            key: grant.key.to_owned(),
            queue: grant.queue.to_owned(),
            owner,
        })
    }

    /// Messages are received from now on, or no more: all who have asked have to look for themselves.
    pub(super) fn tell_all(&self, channel: ChannelState) {
        let mut wakers = Vec::new();
        // In one step: whoever asks before it is told to look, and whoever asks after it knows the state.
        let mut registered = self.registered();
        registered.channel = channel;
        let listeners = registered.listeners.values_mut();
        for listener in listeners.filter(|listener| listener.asked) {
            listener.tell(PendingWakeUp::Look);
            // It may be another server from now on, with another clock.
            listener.anchor = None;
            wakers.extend(listener.waker.take());
        }
        drop(registered);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn registered(&self) -> MutexGuard<'_, Registered> {
        // Every change is one map operation, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registered {
    /// Removes what is outdated, each time that the number has doubled.
    fn remove_outdated(&mut self) {
        if self.withdrawn.len() >= 2 * self.withdrawn_before.max(32) {
            let now = Instant::now();
            self.withdrawn.retain(|_, withdrawn| now < withdrawn.until);
            self.withdrawn_before = self.withdrawn.len();
        }
    }
}

impl Listener {
    /// Takes in a message that is genuine and new, and says whether it was.
    fn deliver(&mut self, message: &Message<'_>, heard: Instant) -> bool {
        let at = message.at;
        let from = match message.kind {
            MessageKind::Granted(_) => &mut self.grants_from,
            MessageKind::First { .. } | MessageKind::Look => &mut self.words_from,
        };
        if at < *from || !message.proves(&self.owner) {
            return false;
        }
        *from = at.saturating_add(1);
        self.tell(match &message.kind {
            MessageKind::Granted(grant) => PendingWakeUp::Granted {
                slot: grant.slot,
                at,
                heard,
            },
            MessageKind::First { remaining } => PendingWakeUp::First {
                remaining: *remaining,
            },
            MessageKind::Look => PendingWakeUp::Look,
        });
        true
    }

    /// A grant replaces everything and is replaced by nothing; `Look` is not replaced by `First`.
    fn tell(&mut self, wake_up: PendingWakeUp) {
        let is_known = match self.pending {
            Some(PendingWakeUp::Granted { .. }) => return,
            Some(PendingWakeUp::Look) => !matches!(wake_up, PendingWakeUp::Granted { .. }),
            Some(PendingWakeUp::First { .. }) | None => false,
        };
        if matches!(wake_up, PendingWakeUp::First { .. }) {
            self.place = 0;
        }
        if !is_known {
            self.pending = Some(wake_up);
        }
    }

    /// A grant of which it is not known from when it counts is none: the claim asks, and its lease
    /// counts from the asking.
    fn resolve(&self, pending: PendingWakeUp) -> WakeUp {
        let (slot, at, heard) = match pending {
            PendingWakeUp::Granted { slot, at, heard } => (slot, at, heard),
            PendingWakeUp::First { remaining } => return WakeUp::First { remaining },
            PendingWakeUp::Look => return WakeUp::Look,
        };
        let anchor = self.anchor;
        let since = anchor.and_then(|anchor| anchor.not_later_than(at, heard));
        since.map_or(WakeUp::Look, |since| WakeUp::Granted {
            slot,
            until: since + relied_on(self.ttl),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn granted(anchor: Option<ClockAnchor>, at: u64, heard: Instant) -> WakeUp {
        let listener = Listener {
            ttl: TTL,
            anchor,
            ..Listener::default()
        };
        listener.resolve(PendingWakeUp::Granted { slot: 2, at, heard })
    }

    #[test]
    fn a_grant_counts_from_when_it_was_made_or_has_to_be_asked_for() {
        let sent = Instant::now();
        let later = |ms| sent + Duration::from_millis(ms);
        let anchor = Some(ClockAnchor::new(sent, 5_000_000));
        // A second passed on the server, and the message took three more.
        let until = later(990) + relied_on(TTL);
        assert_eq!(
            granted(anchor, 6_000_000, later(4_000)),
            WakeUp::Granted { slot: 2, until }
        );
        assert_eq!(granted(None, 6_000_000, later(4_000)), WakeUp::Look);
        assert_eq!(granted(anchor, 4_999_999, later(4_000)), WakeUp::Look);
    }

    #[test]
    fn a_grant_is_told_before_everything_else() {
        let (slot, at, heard) = (0, 7, Instant::now());
        let grant = PendingWakeUp::Granted { slot, at, heard };
        let first = PendingWakeUp::First {
            remaining: Duration::ZERO,
        };
        let look = PendingWakeUp::Look;
        for (before, after, is_grant) in [
            (look, grant, true),
            (grant, look, true),
            (first, grant, true),
            (grant, first, true),
            (look, first, false),
            (first, look, false),
        ] {
            let mut listener = Listener::default();
            listener.tell(before);
            listener.tell(after);
            match listener.pending {
                Some(PendingWakeUp::Granted { .. }) => assert!(is_grant),
                Some(PendingWakeUp::Look) => assert!(!is_grant),
                _ => panic!("what is the first is to look"),
            }
        }
    }
}
