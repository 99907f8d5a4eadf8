//! The task that subscribes to the channel and looks after the subscription.
//!
//! It runs on the background runtime for as long as the client lives, and holds only weak references, so
//! that it does not keep the client alive. Attempts to subscribe again are made after pauses that double,
//! with jitter. While nobody waits there are none, and no heartbeats.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};

use super::{Placement, SILENCE, SubscriberInner};
use crate::runtime::jitter::jittered;
use crate::store::redis::subscription::{Heartbeat, Subscription, SubscriptionEnd};
use crate::store::redis::wakeups::ChannelState;

/// The first pause before an attempt to subscribe again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Keeps the channel subscribed to.
pub(super) async fn run(inner: Weak<SubscriberInner>, wanted: Arc<Notify>) {
    let mut pause = FIRST_PAUSE;
    let mut is_lost = false;
    loop {
        let Some(subscriber) = inner.upgrade() else {
            return;
        };
        if subscriber.registry.nobody_listens() {
            subscriber.set_channel(ChannelState::Untried);
            subscriber.reset_placement();
            is_lost = false;
            drop(subscriber);
            wanted.notified().await;
            continue;
        }
        let begun = Instant::now();
        let runtime = subscriber.runtime();
        match subscriber.subscribe(runtime.as_ref()).await {
            Ok(subscription) => {
                let kept = KeptSubscription {
                    subscription,
                    is_on_runtime: runtime.is_some(),
                    patience: SILENCE.max(2 * begun.elapsed()),
                };
                subscriber.tell_woken_again();
                pause = FIRST_PAUSE;
                is_lost = false;
                subscriber.tell_all(ChannelState::Subscribed);
                let sooner = Arc::clone(&subscriber.sooner);
                drop(subscriber);
                let end = kept.until_end(&inner, &wanted, &sooner).await;
                let Some(subscriber) = inner.upgrade() else {
                    return;
                };
                subscriber.set_channel(ChannelState::Lost);
                if end == SubscriptionEnd::Silent {
                    subscriber.set_placement(Placement::InBackground);
                }
            }
            Err(_) if runtime.is_some() => {
                subscriber.set_placement(Placement::InBackground);
                continue;
            }
            Err(error) => {
                subscriber.warn_not_woken(&error);
                if !mem::replace(&mut is_lost, true) {
                    subscriber.tell_all(ChannelState::Lost);
                }
            }
        }
        // Many clients may have lost the same server: without jitter they would come back at once.
        sleep(jittered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl SubscriberInner {
    /// Takes back the warning, if there was one.
    fn tell_woken_again(&self) {
        if self.warned.swap(false, Ordering::Relaxed) {
            let channel = self.channel.clone();
            self.server.background.tell(move || {
                tracing::info!(target: "lockattr", channel, "callers that wait for a lock are woken again");
            });
        }
    }
}

/// A subscription that is looked after.
struct KeptSubscription {
    subscription: Subscription,
    /// Whether another runtime than the background drives it.
    is_on_runtime: bool,
    /// How long a heartbeat may take.
    patience: Duration,
}

/// What has happened to a subscription.
enum SubscriptionEvent {
    Ended(SubscriptionEnd),
    /// The heartbeat was answered, or has failed.
    Heartbeat(bool),
    /// Somebody waits for whom the next tick would be too late, or on another runtime.
    Sooner,
    Tick,
}

impl KeptSubscription {
    /// Waits until the connection is lost, has been silent for too long, or is to be driven elsewhere.
    async fn until_end(
        mut self,
        inner: &Weak<SubscriberInner>,
        wanted: &Notify,
        sooner: &Notify,
    ) -> SubscriptionEnd {
        let mut tick = pin!(sleep(SILENCE));
        let mut alive = Instant::now();
        let mut heartbeat: Option<Heartbeat> = None;
        loop {
            let mut hurry = pin!(sooner.notified());
            let event = poll_fn(|cx| {
                let event = self.poll_event(cx, &mut heartbeat, tick.as_mut());
                if event.is_pending() {
                    return hurry.as_mut().poll(cx).map(|()| SubscriptionEvent::Sooner);
                }
                event
            });
            let event = event.await;
            let Some(subscriber) = inner.upgrade() else {
                return SubscriptionEnd::Closed;
            };
            match event {
                SubscriptionEvent::Ended(end) => return end,
                SubscriptionEvent::Heartbeat(false) => return SubscriptionEnd::Closed,
                SubscriptionEvent::Tick if heartbeat.is_some() => {
                    if subscriber.last_alive(alive).elapsed() >= self.patience {
                        return SubscriptionEnd::Silent;
                    }
                }
                SubscriptionEvent::Heartbeat(true) => {
                    heartbeat = None;
                    alive = Instant::now();
                }
                SubscriptionEvent::Sooner
                    if self.is_on_runtime && subscriber.runtime().is_none() =>
                {
                    return SubscriptionEnd::Closed;
                }
                SubscriptionEvent::Sooner => {}
                SubscriptionEvent::Tick => match subscriber.is_overdue(alive) {
                    Some(true) => heartbeat = Some(self.subscription.heartbeat()),
                    Some(false) => {}
                    None => {
                        drop(subscriber);
                        // Whether it is alive does not matter before somebody waits.
                        if let Some(end) = self.until_wanted(wanted).await {
                            return end;
                        }
                        alive = Instant::now();
                    }
                },
            }
            let next = if heartbeat.is_some() {
                Instant::now() + self.patience
            } else if let Some(subscriber) = inner.upgrade() {
                subscriber.next_tick(alive)
            } else {
                return SubscriptionEnd::Closed;
            };
            tick.as_mut().reset(next.into());
        }
    }

    fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        heartbeat: &mut Option<Heartbeat>,
        tick: Pin<&mut Sleep>,
    ) -> Poll<SubscriptionEvent> {
        if let Poll::Ready(end) = self.subscription.poll_end(cx) {
            return Poll::Ready(SubscriptionEvent::Ended(end));
        }
        if let Some(heartbeat) = heartbeat
            && let Poll::Ready(answered) = heartbeat.as_mut().poll(cx)
        {
            return Poll::Ready(SubscriptionEvent::Heartbeat(answered));
        }
        tick.poll(cx).map(|()| SubscriptionEvent::Tick)
    }

    /// Waits until somebody waits, or for the end.
    async fn until_wanted(&mut self, wanted: &Notify) -> Option<SubscriptionEnd> {
        let mut wanted = pin!(wanted.notified());
        poll_fn(|cx| {
            if let Poll::Ready(end) = self.subscription.poll_end(cx) {
                return Poll::Ready(Some(end));
            }
            wanted.as_mut().poll(cx).map(|()| None)
        })
        .await
    }
}
