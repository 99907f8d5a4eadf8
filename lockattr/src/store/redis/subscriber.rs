//! The subscription to the channel on which a client is told of what it waits for.
//!
//! A release grants the key to the next waiter inside the server, and publishes that on the channel of
//! the waiter's client. One connection receives the messages for every key that the client waits for. It
//! is made when a caller waits for the first time, and kept.
//!
//! A lost message would be a lost wake-up, so the subscription is known to be alive or to have failed.
//! While somebody waits and no message comes, the task sends a heartbeat. When the connection was lost and
//! made again, all who wait are told to look for themselves. Which messages are genuine is left to
//! `message`, and who is told what to `wakeups`.
//!
//! The connection is driven on the runtime of those who wait, where they share one, so that a wake-up
//! needs no hop from another thread. Otherwise it is driven on the background runtime, so that a runtime
//! that is blocked does not delay the wake-ups of another's callers.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use redis::Msg;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::connections::Connections;
use super::message::{Message, waiter_id};
use super::server::Server;
use super::subscription::Subscription;
use super::wakeups::{ChannelState, UnclaimedGrant, WakeUpRegistry};
use crate::error::StoreError;
use crate::store::clock_anchor::ClockAnchor;
use crate::store::{WakeUp, WakeUps};

mod task;

/// After so long without a message the connection is asked for a heartbeat, and after as long again
/// without one it counts as failed, or after twice the time that it took to connect where that is longer.
/// Together they bound what a silent connection costs a waiter.
const SILENCE: Duration = Duration::from_millis(350);

/// How much longer the silence may last for each place of the client's foremost claim: claims far back in
/// a queue are in less of a hurry, and many clients that wait do not keep the server busy with
/// heartbeats.
const SILENCE_PER_PLACE: Duration = Duration::from_millis(100);

/// How long a caller waits at most for the client's first subscription before it joins a queue: a claim
/// that cannot be told would have to ask again.
const FIRST_SUBSCRIPTION: Duration = Duration::from_millis(250);

/// Keeps one client subscribed to its channel.
#[derive(Clone)]
pub(super) struct Subscriber(Arc<SubscriberInner>);

struct SubscriberInner {
    server: Arc<Server>,
    channel: String,
    /// Gives back what was granted to a claim that nobody waits for any more.
    give_back: Box<dyn Fn(UnclaimedGrant) + Send + Sync>,
    registry: WakeUpRegistry,
    /// Locked before the registry, where both are.
    liveness: Mutex<Liveness>,
    placement: Mutex<Placement>,
    /// Notified when the channel's state changes.
    channel_changed: Notify,
    /// Whether a warning was logged that the channel cannot be subscribed to.
    warned: AtomicBool,
    /// Whether the task runs.
    started: AtomicBool,
    /// Notified when somebody waits again.
    wanted: Arc<Notify>,
    /// Notified when a claim is in more of a hurry than the others, or on another runtime.
    sooner: Arc<Notify>,
}

/// The wake-ups of one claim.
pub(super) struct WakeUpStream {
    subscriber: Subscriber,
    id: String,
}

impl WakeUps for WakeUpStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<WakeUp> {
        self.subscriber.0.registry.poll_next(&self.id, cx)
    }
}

impl Drop for WakeUpStream {
    fn drop(&mut self) {
        self.subscriber.0.registry.forget(&self.id);
    }
}

/// What is known of the connection.
#[derive(Default)]
struct Liveness {
    last_message: Option<Instant>,
    /// When the connection is looked after next.
    next_tick: Option<Instant>,
}

/// Where the connection is driven.
#[derive(Default)]
enum Placement {
    /// That depends on who waits first.
    #[default]
    Undecided,
    /// On the runtime of all who wait.
    OnRuntime(Handle),
    InBackground,
}

impl Subscriber {
    pub(super) fn new(
        server: Arc<Server>,
        channel: String,
        give_back: Box<dyn Fn(UnclaimedGrant) + Send + Sync>,
    ) -> Self {
        Self(Arc::new(SubscriberInner {
            server,
            channel,
            give_back,
            registry: WakeUpRegistry::default(),
            liveness: Mutex::default(),
            placement: Mutex::default(),
            channel_changed: Notify::new(),
            warned: AtomicBool::new(false),
            started: AtomicBool::new(false),
            wanted: Arc::default(),
            sooner: Arc::default(),
        }))
    }

    /// Warns that the channel cannot be subscribed to: once, until it can.
    pub(super) fn warn_not_woken(&self, error: &StoreError) {
        self.0.warn_not_woken(error);
    }

    /// Warns that nothing can be published. The task does not find out whether that has changed.
    pub(super) fn warn_cannot_wake(&self, error: &StoreError) {
        tracing::warn!(
            target: "lockattr", channel = self.0.channel, %error,
            "callers that wait for what this client gives back cannot be woken, and look again every \
             now and then"
        );
    }

    /// Subscribes once, for the check of a server.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        let inner = Arc::clone(&self.0);
        let checked = self.0.server.background.spawn(async move {
            let SubscriberInner {
                server, channel, ..
            } = &*inner;
            let background = server.background.runtime();
            Subscription::on(background, server, channel, drop)
                .await
                .map(drop)
        });
        checked
            .await
            .unwrap_or_else(|_| Err(StoreError::refused("the client's thread has ended")))
    }

    /// The wake-ups of a claim with this owner and ttl, until they are dropped.
    pub(super) fn wakeups(&self, owner: &str, ttl: Duration) -> WakeUpStream {
        let (id, is_first) = self.0.registry.listen(owner, ttl);
        if is_first {
            self.0.wanted.notify_one();
        }
        let subscriber = self.clone();
        WakeUpStream { subscriber, id }
    }

    /// Whether a claim that is about to be asked for will be told. Where the channel is not subscribed
    /// to, it is going to be, and all who wait are told to look then.
    pub(super) async fn will_be_told(
        &self,
        owner: &str,
        left: Duration,
        connections: &Connections,
    ) -> bool {
        let id = waiter_id(owner);
        let registry = &self.0.registry;
        if !registry.is_listening(&id) {
            return false;
        }
        self.0.place(connections);
        if !self.0.started.swap(true, Ordering::AcqRel) {
            let task = task::run(Arc::downgrade(&self.0), Arc::clone(&self.0.wanted));
            self.0.server.background.spawn(task);
        }
        if registry.channel() != ChannelState::Subscribed {
            self.0.wanted.notify_one();
            let until = Instant::now() + left.min(FIRST_SUBSCRIPTION);
            // The claim is asked for whether or not the state is known by then.
            let background = &self.0.server.background;
            let _ = background.until(until, self.0.channel_known()).await;
        }
        registry.asks(&id)
    }

    /// A claim is in a queue, with so many before it.
    pub(super) fn queued(&self, owner: &str, place: u64) {
        self.0.registry.queued(owner, place);
        let by = Instant::now() + silence(place);
        let is_sooner = self.0.liveness().next_tick.is_some_and(|tick| by < tick);
        if is_sooner {
            self.0.sooner.notify_one();
        }
    }

    /// A request was answered at this time of the server's clock. A lease may count from a message where
    /// it is known when the request was `sent`.
    pub(super) fn answered(&self, owner: &str, server_micros: u64, sent: Option<Instant>) {
        let anchor = sent.map(|sent| ClockAnchor::new(sent, server_micros));
        self.0.registry.answered(owner, server_micros, anchor);
    }

    /// Nobody waits with this owner any more, nor holds a lease under it. What is granted to it is given
    /// back, until the server is known to have [taken it out](Self::left_queue) of its queue.
    pub(super) fn withdraw(&self, owner: &str) {
        self.0.registry.withdraw(owner);
    }

    /// The server has taken the owner out of its queue; only a request that arrives late puts it back.
    pub(super) fn left_queue(&self, owner: &str) {
        self.0.registry.left_queue(owner);
    }
}

impl SubscriberInner {
    fn liveness(&self) -> MutexGuard<'_, Liveness> {
        self.liveness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn placement(&self) -> MutexGuard<'_, Placement> {
        self.placement
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is known whether the channel can be subscribed to.
    async fn channel_known(&self) {
        loop {
            let changed = self.channel_changed.notified();
            if self.registry.channel() != ChannelState::Untried {
                return;
            }
            changed.await;
        }
    }

    fn set_channel(&self, channel: ChannelState) {
        self.registry.set_channel(channel);
        self.channel_changed.notify_waiters();
    }

    /// The same, and all who wait are told to look for themselves.
    fn tell_all(&self, channel: ChannelState) {
        self.registry.tell_all(channel);
        self.channel_changed.notify_waiters();
    }

    /// Whether the connection, which was alive at that moment, has been silent for too long; `None`
    /// while nobody waits.
    fn is_overdue(&self, alive: Instant) -> Option<bool> {
        let silence = silence(self.registry.foremost()?);
        Some(self.last_alive(alive).elapsed() >= silence)
    }

    /// When the connection, which was alive at that moment, has shown that last.
    fn last_alive(&self, alive: Instant) -> Instant {
        self.liveness().last_alive(alive)
    }

    /// When the connection, which was alive at that moment, is to be looked after next.
    fn next_tick(&self, alive: Instant) -> Instant {
        // Locked across the look at who waits, so that a claim that is queued meanwhile finds the tick.
        let mut liveness = self.liveness();
        let tick = match self.registry.foremost() {
            Some(place) => liveness.last_alive(alive) + silence(place),
            None => Instant::now() + SILENCE,
        };
        liveness.next_tick = Some(tick);
        tick
    }

    /// Decides where the connection is driven: on a runtime only for that runtime's callers.
    fn place(&self, connections: &Connections) {
        let here = Handle::try_current().ok().map(|here| here.id());
        let mut placement = self.placement();
        match &*placement {
            Placement::InBackground => {}
            Placement::OnRuntime(runtime) if here == Some(runtime.id()) => {}
            Placement::OnRuntime(_) => {
                let before = mem::replace(&mut *placement, Placement::InBackground);
                drop(placement);
                drop(before);
                self.sooner.notify_one();
            }
            Placement::Undecided => {
                drop(placement);
                if let Some(runtime) = connections.callers_runtime() {
                    self.set_placement(Placement::OnRuntime(runtime));
                }
            }
        }
    }

    /// Decides anew: what has brought the connection to the background may be over.
    fn reset_placement(&self) {
        let mut placement = self.placement();
        if matches!(*placement, Placement::InBackground) {
            *placement = Placement::Undecided;
        }
    }

    fn set_placement(&self, placement: Placement) {
        let before = mem::replace(&mut *self.placement(), placement);
        // It may be the last handle of a runtime.
        drop(before);
    }

    /// The runtime that the connection is to be driven on, other than the background.
    fn runtime(&self) -> Option<Handle> {
        match &*self.placement() {
            Placement::OnRuntime(runtime) => Some(runtime.clone()),
            Placement::Undecided | Placement::InBackground => None,
        }
    }

    async fn subscribe(
        self: &Arc<Self>,
        runtime: Option<&Handle>,
    ) -> Result<Subscription, StoreError> {
        let background = self.server.background.runtime();
        let inner = Arc::downgrade(self);
        let receive = move |message: Msg| {
            if let Some(inner) = inner.upgrade() {
                inner.receive(&message);
            }
        };
        let runtime = runtime.unwrap_or(background);
        Subscription::on(runtime, &self.server, &self.channel, receive).await
    }

    fn receive(&self, message: &Msg) {
        let heard = Instant::now();
        // Whoever has published it, the connection is alive.
        self.liveness().last_message = Some(heard);
        let text = std::str::from_utf8(message.get_payload_bytes());
        let message = text.ok().and_then(Message::read);
        if let Some(message) = message
            && let Some(unclaimed) = self.registry.deliver(&message, heard)
        {
            (self.give_back)(unclaimed);
        }
    }

    fn warn_not_woken(&self, error: &StoreError) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            let (channel, error) = (self.channel.clone(), error.clone());
            self.server.background.tell(move || {
                tracing::warn!(
                    target: "lockattr", channel, %error,
                    "callers that wait for a lock cannot be woken, and look again every now and then"
                );
            });
        }
    }
}

impl Liveness {
    fn last_alive(&self, alive: Instant) -> Instant {
        self.last_message
            .map_or(alive, |message| message.max(alive))
    }
}

/// How long the connection may be silent for a claim with so many before it.
fn silence(place: u64) -> Duration {
    let places = u32::try_from(place).unwrap_or(u32::MAX);
    SILENCE.saturating_add(SILENCE_PER_PLACE.saturating_mul(places))
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").finish_non_exhaustive()
    }
}
