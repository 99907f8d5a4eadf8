//! Those of this client who wait, and what they are told.
//!
//! Whoever grants a lock to one that waits says so on the channel of that one's client. A message is
//! believed if it names an owner that waits: nobody else knows it but who may read the tables.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::runtime::waker;
use crate::store::answer::relied_on;
use crate::store::clock_anchor::ClockAnchor;
use crate::store::{WakeUp, WakeUps};

#[derive(Debug)]
pub(super) struct WakeUpRegistry {
    pub(super) channel: String,
    registered: Mutex<Registered>,
}

#[derive(Debug, Default)]
struct Registered {
    listeners: HashMap<String, Listener>,
    /// Who waits for a message of its own.
    probes: HashMap<String, oneshot::Sender<()>>,
}

#[derive(Debug)]
struct Listener {
    ttl: Duration,
    pending: Option<Pending>,
    waker: Option<Waker>,
    /// Whether the server was asked since it waits: if not, it cannot have missed a message.
    asked: bool,
    anchor: Option<ClockAnchor>,
}

/// What one is told next.
#[derive(Clone, Copy, Debug)]
enum Pending {
    /// At that time of the server's clock, in microseconds; heard of at that time of ours.
    Granted {
        slot: usize,
        at: u64,
        heard: Instant,
    },
    Look,
}

/// A message on the channel.
#[derive(Debug, PartialEq, Eq)]
enum Message<'a> {
    Granted {
        slot: usize,
        at: u64,
        owner: &'a str,
    },
    Look {
        owner: &'a str,
    },
    Probe {
        id: &'a str,
    },
}

impl<'a> Message<'a> {
    /// `granted SLOT MICROS OWNER`, `look OWNER` or `probe ID`.
    fn of(payload: &'a str) -> Option<Self> {
        let (kind, rest) = payload.split_once(' ')?;
        match kind {
            "granted" => {
                let (slot, rest) = rest.split_once(' ')?;
                let (at, owner) = rest.split_once(' ')?;
                Some(Self::Granted {
                    slot: slot.parse().ok()?,
                    at: at.parse().ok()?,
                    owner,
                })
            }
            "look" => Some(Self::Look { owner: rest }),
            "probe" => Some(Self::Probe { id: rest }),
            _ => None,
        }
    }
}

impl WakeUpRegistry {
    pub(super) fn new(channel: String) -> Self {
        Self {
            channel,
            registered: Mutex::default(),
        }
    }

    /// Delivers to an owner until it is forgotten.
    pub(super) fn listen(self: &Arc<Self>, owner: &str, ttl: Duration) -> OfOwner {
        let listener = Listener {
            ttl,
            pending: None,
            waker: None,
            asked: false,
            anchor: None,
        };
        let before = self
            .registered()
            .listeners
            .insert(owner.to_owned(), listener);
        // Not under the lock: its waker may be the last handle of a task.
        drop(before);
        OfOwner {
            registry: Arc::clone(self),
            owner: owner.to_owned(),
        }
    }

    pub(super) fn is_waiting(&self, owner: &str) -> bool {
        self.registered().listeners.contains_key(owner)
    }

    pub(super) fn nobody_waits(&self) -> bool {
        let registered = self.registered();
        registered.listeners.is_empty() && registered.probes.is_empty()
    }

    /// An owner is about to ask: from now on it may miss a message.
    pub(super) fn asks(&self, owner: &str) {
        if let Some(listener) = self.registered().listeners.get_mut(owner) {
            listener.asked = true;
        }
    }

    /// The server has answered a request that was sent then, at this time of its clock.
    pub(super) fn answered(&self, owner: &str, sent: Instant, server_micros: u64) {
        if let Some(listener) = self.registered().listeners.get_mut(owner) {
            listener.anchor = Some(ClockAnchor::new(sent, server_micros));
        }
    }

    /// Messages are received from now on. Whoever has asked before may have missed one.
    pub(super) fn subscribed(&self) {
        let mut wakers = Vec::new();
        let mut registered = self.registered();
        for listener in registered.listeners.values_mut().filter(|one| one.asked) {
            listener.pending.get_or_insert(Pending::Look);
            // It may be another server, with another clock.
            listener.anchor = None;
            wakers.extend(listener.waker.take());
        }
        drop(registered);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ready once a message `probe ID` has come.
    pub(super) fn probe(&self, id: &str) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        self.registered().probes.insert(id.to_owned(), tell);
        told
    }

    pub(super) fn forget_probe(&self, id: &str) {
        self.registered().probes.remove(id);
    }

    pub(super) fn deliver(&self, channel: &str, payload: &str) {
        if channel != self.channel {
            return;
        }
        let heard = Instant::now();
        let (owner, told) = match Message::of(payload) {
            Some(Message::Granted { slot, at, owner }) => {
                (owner, Pending::Granted { slot, at, heard })
            }
            Some(Message::Look { owner }) => (owner, Pending::Look),
            Some(Message::Probe { id }) => {
                let probe = self.registered().probes.remove(id);
                // Whoever has asked may have gone.
                probe.map(|tell| tell.send(()));
                return;
            }
            None => return,
        };
        let mut registered = self.registered();
        let waker = registered.listeners.get_mut(owner).and_then(|listener| {
            if matches!(told, Pending::Granted { .. }) {
                listener.pending = Some(told);
            } else {
                listener.pending.get_or_insert(told);
            }
            listener.waker.take()
        });
        drop(registered);
        waker.into_iter().for_each(Waker::wake);
    }

    fn registered(&self) -> MutexGuard<'_, Registered> {
        // Every change is one map operation, so a panic elsewhere leaves nothing half done.
        self.registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener {
    /// A grant of which it is not known from when it counts is none: the claim asks, and its lease
    /// counts from the asking.
    fn resolve(&self, pending: Pending) -> WakeUp {
        let Pending::Granted { slot, at, heard } = pending else {
            return WakeUp::Look;
        };
        let since = self
            .anchor
            .and_then(|anchor| anchor.not_later_than(at, heard));
        since.map_or(WakeUp::Look, |since| {
            WakeUp::granted(slot, since + relied_on(self.ttl))
        })
    }
}

/// Wake-ups of one owner.
pub(super) struct OfOwner {
    registry: Arc<WakeUpRegistry>,
    owner: String,
}

impl WakeUps for OfOwner {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<WakeUp> {
        let mut registered = self.registry.registered();
        let Some(listener) = registered.listeners.get_mut(&self.owner) else {
            return Poll::Pending;
        };
        if let Some(pending) = listener.pending.take() {
            return Poll::Ready(listener.resolve(pending));
        }
        let before = waker::replace(&mut listener.waker, cx.waker());
        drop(registered);
        drop(before);
        Poll::Pending
    }
}

impl Drop for OfOwner {
    fn drop(&mut self) {
        let listener = self.registry.registered().listeners.remove(&self.owner);
        // Its waker may be the last handle of a task, whose end may come back here.
        drop(listener);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_these() {
        let of = Message::of;
        let (slot, at, owner) = (2, 5_000_000, "id@host:7");
        assert_eq!(
            of("granted 2 5000000 id@host:7"),
            Some(Message::Granted { slot, at, owner })
        );
        assert_eq!(of("look id@host:7"), Some(Message::Look { owner }));
        assert_eq!(of("probe 1"), Some(Message::Probe { id: "1" }));
        for nonsense in [
            "",
            "look",
            "granted",
            "granted 1",
            "granted 1 2",
            "granted x 2 o",
            "wake o",
        ] {
            assert_eq!(of(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_grant_counts_from_when_it_was_made_or_has_to_be_asked_for() {
        let registry = Arc::new(WakeUpRegistry::new("c".to_owned()));
        let ttl = Duration::from_secs(30);
        let mut wakeups = registry.listen("o", ttl);
        let mut next = || wakeups.poll_next(&mut Context::from_waker(Waker::noop()));

        assert!(next().is_pending());
        registry.deliver("c", "granted 1 5000000 o");
        assert_eq!(next(), Poll::Ready(WakeUp::Look));
        let sent = Instant::now();
        registry.answered("o", sent, 4_999_999);
        registry.deliver("d", "granted 1 5000000 o");
        assert!(next().is_pending());
        registry.deliver("c", "look o");
        registry.deliver("c", "granted 1 5000000 o");
        registry.deliver("c", "look o");
        assert!(matches!(
            next(),
            Poll::Ready(WakeUp::Granted { slot: 1, until }) if until <= Instant::now() + ttl
        ));
    }
}
