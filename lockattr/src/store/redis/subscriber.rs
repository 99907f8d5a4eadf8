//! The connection on which a client hears that something it waits for was given to it.
//!
//! A release names the next owner inside the server and publishes it on the channel of that owner's
//! client. One connection hears for every key that the client waits for; it is made when a caller
//! waits for the first time, and kept. What is believed of it is in `message.rs`. Where all who wait are on one runtime it is driven there, as
//! the connection over which they ask; on the background otherwise, so that no runtime that is blocked
//! keeps the news from another's callers.
//!
//! A lost message would be a lost wake-up, so the connection is known to be whole: while somebody
//! waits and nothing comes in it subscribes again, which the server answers, and when it was lost
//! and made anew, all who wait are told to look for themselves.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use redis::Msg;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};

use super::line::Server;
use super::link::Link;
use super::message::{Message, What, ticket};
use super::subscription::{End, SignOfLife, Subscription};
use crate::error::StoreError;
use crate::runtime::jitter::jittered;
use crate::runtime::waker;
use crate::store::{Claim, WakeUp, WakeUps, relied_on};

/// After so long without a message the connection is asked for a sign of life, and after as long
/// again without one it is taken for dead, or twice as long as it took to be made where that is longer.
/// Together they bound what a silent connection costs a waiter. Those far back in a queue are in less
/// of a hurry, so that a crowd of clients does not keep the server busy with signs of life.
const SILENCE: Duration = Duration::from_millis(350);

/// How much longer the silence may last for each place that the foremost of the client's requests
/// stands from the first.
const SILENCE_A_PLACE: Duration = Duration::from_millis(100);

/// For so long a caller waits at most for the client's first subscription before it asks to be put
/// into a queue: one that nobody can tell would have to ask again.
const FIRST_SUBSCRIPTION: Duration = Duration::from_millis(250);

/// The first pause before an attempt to connect again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// After so long a queue has forgotten a request that does not come to look again.
const FORGOTTEN: Duration = Duration::from_secs(310);

/// For so long what is given to a request that the server has taken out of its queue is given back at
/// once.
const COMES_LATE: Duration = Duration::from_secs(10);

/// For how long a server's clock is trusted to run like ours, from the moment that both were read.
const CLOCKS_AGREE: Duration = Duration::from_secs(10);

/// What hears for one client.
#[derive(Clone)]
pub(super) struct Subscriber(Arc<Shared>);

struct Shared {
    server: Arc<Server>,
    channel: String,
    /// Gives back what was given to a request that nobody waits for any more.
    give_back: Box<dyn Fn(Unclaimed) + Send + Sync>,
    requests: Mutex<Requests>,
    /// What is known of the channel has changed.
    channel_told: Notify,
    /// Whether it was told that the channel cannot be heard.
    told: AtomicBool,
    /// Whether the task that hears runs.
    started: AtomicBool,
    /// Somebody waits again.
    wanted: Arc<Notify>,
    /// Somebody waits who is in more of a hurry than the others.
    sooner: Arc<Notify>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Channel {
    /// Nobody has waited yet, or nobody since it was lost.
    #[default]
    Untried,
    Heard,
    Lost,
}

/// Requests by their tickets.
#[derive(Default)]
struct Requests {
    waiting: HashMap<String, Waiting>,
    channel: Channel,
    /// When something was heard last.
    heard: Option<Instant>,
    /// When the connection is looked after next.
    tick: Option<Instant>,
    place: Place,
    /// Those that wait no more, for as long as the server may not know it.
    gone: HashMap<String, Gone>,
    /// How many of them there were after the last time that those were removed whose time is over.
    gone_before: usize,
}

/// Where the connection is to be driven.
#[derive(Default)]
enum Place {
    /// That depends on who waits first.
    #[default]
    Open,
    /// On the runtime of all who wait.
    Away(Handle),
    /// On the background.
    Home,
}

/// One request that waits no more.
struct Gone {
    owner: String,
    /// Until when something may be given to it.
    until: Instant,
}

/// One request that waits.
#[derive(Default)]
struct Waiting {
    owner: String,
    /// The ttl of what it may be granted.
    ttl: Duration,
    news: Option<News>,
    waker: Option<Waker>,
    /// Whether the server was asked since it waits: if not, it cannot have missed anything.
    asked: bool,
    /// How many stood before it when that was told last.
    place: u64,
    /// A moment of our clock, and what the server's clock, in microseconds, said after it.
    tie: Option<(Instant, u64)>,
    /// From when on, by the server's clock, a word and a grant are news: what was made before was
    /// heard, or is known from the answer to a later request.
    words_from: u64,
    grants_from: u64,
}

#[derive(Clone, Copy)]
enum News {
    /// Given at that time of the server's clock, in microseconds; heard of at that time of ours.
    Granted {
        index: usize,
        at: u64,
        heard: Instant,
    },
    First {
        remaining: Duration,
    },
    Look,
}

/// A lock that was given to a request that nobody waits for.
pub(super) struct Unclaimed {
    pub(super) lock: String,
    pub(super) queue: String,
    pub(super) owner: String,
    pub(super) index: usize,
}

impl Subscriber {
    pub(super) fn new(
        server: Arc<Server>,
        channel: String,
        give_back: Box<dyn Fn(Unclaimed) + Send + Sync>,
    ) -> Self {
        Self(Arc::new(Shared {
            server,
            channel,
            give_back,
            requests: Mutex::default(),
            channel_told: Notify::new(),
            told: AtomicBool::new(false),
            started: AtomicBool::new(false),
            wanted: Arc::default(),
            sooner: Arc::default(),
        }))
    }

    /// The channel cannot be heard: told once, until it can.
    pub(super) fn tell_unheard(&self, error: &StoreError) {
        self.0.tell_unheard(error);
    }

    /// Nothing can be said on a channel. Whether that has changed is not known from what is heard.
    pub(super) fn tell_mute(&self, error: &StoreError) {
        tracing::warn!(
            target: "lockattr", channel = self.0.channel, error = %error,
            "callers that wait for what this client gives back cannot be woken, and look again every \
             now and then"
        );
    }

    /// Subscribes once, and hears nothing.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.0);
        let background = &self.0.server.background;
        let checked = background.spawn(async move {
            let Shared {
                server, channel, ..
            } = &*shared;
            let home = server.background.runtime();
            Subscription::on(home, server, channel, drop)
                .await
                .map(drop)
        });
        checked
            .await
            .unwrap_or_else(|_| Err(StoreError::refused("the client's thread has ended")))
    }

    /// Hears for a claim until the answer is dropped.
    pub(super) fn hear(&self, claim: &Claim<'_>) -> Heard<'_> {
        let ticket = ticket(claim.owner);
        let mut requests = self.0.requests();
        let is_first = requests.waiting.is_empty();
        let waiting = Waiting {
            owner: claim.owner.to_owned(),
            ttl: claim.ttl,
            ..Waiting::default()
        };
        let before = requests.waiting.insert(ticket.clone(), waiting);
        drop(requests);
        drop(before);
        if is_first {
            self.0.wanted.notify_one();
        }
        Heard {
            subscriber: &self.0,
            ticket,
        }
    }

    /// Whether a request that is about to be asked would be told. Where the channel is not heard, it is
    /// going to be, and all who wait are told to look then.
    pub(super) async fn hears(&self, owner: &str, left: Duration, calls: &Link) -> bool {
        let ticket = ticket(owner);
        if !self.0.requests().waiting.contains_key(&ticket) {
            return false;
        }
        self.0.find_place(calls);
        if !self.0.started.swap(true, Ordering::AcqRel) {
            let task = listen(Arc::downgrade(&self.0), Arc::clone(&self.0.wanted));
            self.0.server.background.spawn(task);
        }
        if self.0.requests().channel != Channel::Heard {
            self.0.wanted.notify_one();
            let until = Instant::now() + left.min(FIRST_SUBSCRIPTION);
            // It is asked all the same.
            let _ = self.0.server.background.until(until, self.0.tried()).await;
        }
        let mut requests = self.0.requests();
        if let Some(waiting) = requests.waiting.get_mut(&ticket) {
            waiting.asked = true;
        }
        requests.channel == Channel::Heard
    }

    /// A request stands in a queue, with so many before it.
    pub(super) fn queued(&self, owner: &str, place: u64) {
        let mut requests = self.0.requests();
        if let Some(waiting) = requests.waiting.get_mut(&ticket(owner)) {
            waiting.place = place;
        }
        let by = Instant::now() + silence(place);
        let is_sooner = requests.tick.is_some_and(|tick| by < tick);
        drop(requests);
        if is_sooner {
            self.0.sooner.notify_one();
        }
    }

    /// The request was answered when the server's clock, in microseconds, said `server`, some time
    /// after `sent`. Whether a grant alone is a lease, that counts from then.
    pub(super) fn answered(&self, owner: &str, sent: Instant, server: u64, counts: bool) {
        if let Some(waiting) = self.0.requests().waiting.get_mut(&ticket(owner)) {
            waiting.tie = counts.then_some((sent, server));
            waiting.words_from = server;
            waiting.grants_from = server;
        }
    }

    /// Nobody waits with this owner any more, nor has a lease under it: what is given to it from now
    /// on goes back, until the server is known to have [`forgotten`](Self::forgotten) it.
    pub(super) fn gone(&self, owner: &str) {
        let gone = Gone {
            owner: owner.to_owned(),
            until: Instant::now() + FORGOTTEN,
        };
        let mut requests = self.0.requests();
        requests.remove_forgotten();
        requests.gone.insert(ticket(owner), gone);
    }

    /// The server has taken it out of its queue; only a request that comes late puts it there again.
    pub(super) fn forgotten(&self, owner: &str) {
        if let Some(gone) = self.0.requests().gone.get_mut(&ticket(owner)) {
            gone.until = Instant::now() + COMES_LATE;
        }
    }
}

/// News for one owner.
pub(super) struct Heard<'a> {
    subscriber: &'a Shared,
    ticket: String,
}

impl WakeUps for Heard<'_> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<WakeUp> {
        let mut requests = self.subscriber.requests();
        let Some(waiting) = requests.waiting.get_mut(&self.ticket) else {
            return Poll::Pending;
        };
        let Some(news) = waiting.news.take() else {
            let before = waker::replace(&mut waiting.waker, cx.waker());
            drop(requests);
            drop(before);
            return Poll::Pending;
        };
        Poll::Ready(waiting.judge(news))
    }
}

impl Drop for Heard<'_> {
    fn drop(&mut self) {
        let mut requests = self.subscriber.requests();
        let left = requests.waiting.remove(&self.ticket);
        drop(requests);
        // Its waker may be the last handle of a task, whose end may come back here.
        drop(left);
    }
}

impl Requests {
    /// Removes those that are gone for good, as often as they have doubled.
    fn remove_forgotten(&mut self) {
        if self.gone.len() >= 2 * self.gone_before.max(32) {
            let now = Instant::now();
            self.gone.retain(|_, gone| now < gone.until);
            self.gone_before = self.gone.len();
        }
    }

    /// When the connection, which was alive at that moment, has shown that last.
    fn alive(&self, at: Instant) -> Instant {
        self.heard.map_or(at, |heard| heard.max(at))
    }

    /// The place of the one that waits with the fewest before it.
    fn foremost(&self) -> Option<u64> {
        let waiting = self.waiting.values();
        let waiting = waiting.filter(|one| !matches!(one.news, Some(News::Granted { .. })));
        waiting.map(|one| one.place).min()
    }
}

impl Waiting {
    /// Takes in what is proved and new, and answers whether it was.
    fn deliver(&mut self, message: &Message<'_>, heard: Instant) -> bool {
        let at = message.at;
        let from = match message.what {
            What::Granted(_) => &mut self.grants_from,
            What::First { .. } | What::Look => &mut self.words_from,
        };
        if at < *from || !message.proves(&self.owner) {
            return false;
        }
        *from = at.saturating_add(1);
        self.hear(match &message.what {
            What::Granted(grant) => News::Granted {
                index: grant.index,
                at,
                heard,
            },
            What::First { remaining } => News::First {
                remaining: *remaining,
            },
            What::Look => News::Look,
        });
        true
    }

    /// A grant that was heard of stays one; what had been told before it counts no more.
    fn hear(&mut self, news: News) {
        let known = match self.news {
            Some(News::Granted { .. }) => return,
            Some(News::Look) => !matches!(news, News::Granted { .. }),
            Some(News::First { .. }) | None => false,
        };
        if matches!(news, News::First { .. }) {
            self.place = 0;
        }
        if !known {
            self.news = Some(news);
        }
    }

    /// When a grant was made, by the server's clock: the lease counts from a moment of our own clock
    /// that cannot be later. The reply that put the request into the queue ties both clocks
    /// together. A message that comes late changes nothing in this; a server's clock that was set in
    /// between would, which is why an old tie counts for nothing, and one that gives a moment which
    /// is yet to come: who waits asks the server then, and counts from the asking.
    fn judge(&self, news: News) -> WakeUp {
        let (index, at, heard) = match news {
            News::Granted { index, at, heard } => (index, at, heard),
            News::First { remaining } => return WakeUp::First { remaining },
            News::Look => return WakeUp::Look,
        };
        let since = || {
            let (sent, server) = self.tie?;
            let passed = Duration::from_micros(at.checked_sub(server)?);
            // A clock that runs faster than ours by a hundredth is still told apart from one that
            // was set.
            let since = sent + passed * 99 / 100;
            (passed <= CLOCKS_AGREE && since <= heard).then_some(since)
        };
        since().map_or(WakeUp::Look, |since| WakeUp::Granted {
            slot: index,
            until: since + relied_on(self.ttl),
        })
    }
}

impl Shared {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        // Every change is one map operation, so a panic elsewhere leaves nothing half done.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nobody_waits(&self) -> bool {
        self.requests().waiting.is_empty()
    }

    /// Waits until it is known whether the channel is heard.
    async fn tried(&self) {
        loop {
            let told = self.channel_told.notified();
            if self.requests().channel != Channel::Untried {
                return;
            }
            told.await;
        }
    }

    fn set_channel(&self, channel: Channel) {
        self.requests().channel = channel;
        self.channel_told.notify_waiters();
    }

    /// Whether the connection, which was alive at that moment, has been silent for too long; `None`
    /// while nobody waits.
    fn is_overdue(&self, alive: Instant) -> Option<bool> {
        let requests = self.requests();
        let silence = silence(requests.foremost()?);
        Some(requests.alive(alive).elapsed() >= silence)
    }

    /// When the connection is to be looked after next: it was alive at that moment, or later.
    fn next_tick(&self, alive: Instant) -> Instant {
        let mut requests = self.requests();
        let tick = match requests.foremost() {
            Some(place) => requests.alive(alive) + silence(place),
            None => Instant::now() + SILENCE,
        };
        requests.tick = Some(tick);
        tick
    }

    /// A runtime drives the connection for its own callers alone.
    fn find_place(&self, calls: &Link) {
        let here = Handle::try_current().ok().map(|here| here.id());
        let mut requests = self.requests();
        match &requests.place {
            Place::Home => {}
            Place::Away(runtime) if here == Some(runtime.id()) => {}
            Place::Away(_) => {
                let before = mem::replace(&mut requests.place, Place::Home);
                drop(requests);
                drop(before);
                self.sooner.notify_one();
            }
            Place::Open => {
                drop(requests);
                if let Some(runtime) = calls.runtime() {
                    self.set_place(Place::Away(runtime));
                }
            }
        }
    }

    /// What kept the connection from its callers' runtime may be over.
    fn leave_home(&self) {
        let mut requests = self.requests();
        if matches!(requests.place, Place::Home) {
            requests.place = Place::Open;
        }
    }

    fn set_place(&self, place: Place) {
        let before = mem::replace(&mut self.requests().place, place);
        // It may be the last handle of a runtime.
        drop(before);
    }

    /// The runtime other than the background's that the connection is to be driven on.
    fn away(&self) -> Option<Handle> {
        match &self.requests().place {
            Place::Away(runtime) => Some(runtime.clone()),
            Place::Open | Place::Home => None,
        }
    }

    async fn subscribe(
        self: &Arc<Self>,
        away: Option<&Handle>,
    ) -> Result<Subscription, StoreError> {
        let home = self.server.background.runtime();
        let shared = Arc::downgrade(self);
        let hear = move |message: Msg| {
            if let Some(subscriber) = shared.upgrade() {
                subscriber.deliver(&message);
            }
        };
        Subscription::on(away.unwrap_or(home), &self.server, &self.channel, hear).await
    }

    /// The channel is heard from now on, or not: all who wait had better look for themselves.
    fn tell_all(&self, channel: Channel) {
        let mut wakers = Vec::new();
        // In one step: whoever asks before it is told to look, and whoever asks later is heard.
        let mut requests = self.requests();
        requests.channel = channel;
        for waiting in requests
            .waiting
            .values_mut()
            .filter(|waiting| waiting.asked)
        {
            waiting.hear(News::Look);
            // It may be another server's clock from now on.
            waiting.tie = None;
            wakers.extend(waiting.waker.take());
        }
        drop(requests);
        self.channel_told.notify_waiters();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn deliver(&self, message: &Msg) {
        let heard = Instant::now();
        let text = std::str::from_utf8(message.get_payload_bytes());
        let message = text.ok().and_then(Message::read);
        let mut requests = self.requests();
        // Whoever it is that speaks, the connection is alive.
        requests.heard = Some(heard);
        let Some(message) = message else {
            return;
        };
        if let Some(waiting) = requests.waiting.get_mut(message.ticket) {
            let believed = waiting.deliver(&message, heard);
            let waker = believed.then(|| waiting.waker.take()).flatten();
            drop(requests);
            waker.into_iter().for_each(Waker::wake);
            return;
        }
        let What::Granted(grant) = &message.what else {
            return;
        };
        let is_it = |gone: &Gone| message.proves(&gone.owner);
        if !requests.gone.get(message.ticket).is_some_and(is_it) {
            return;
        }
        let gone = requests.gone.remove(message.ticket);
        drop(requests);
        if let Some(Gone { owner, .. }) = gone {
            (self.give_back)(Unclaimed {
                lock: grant.lock.to_owned(),
                queue: grant.queue.to_owned(),
                owner,
                index: grant.index,
            });
        }
    }

    fn tell_unheard(&self, error: &StoreError) {
        if !self.told.swap(true, Ordering::Relaxed) {
            let (channel, error) = (self.channel.clone(), error.clone());
            self.server.background.tell(move || {
                tracing::warn!(
                    target: "lockattr", channel, error = %error,
                    "callers that wait for a lock cannot be woken, and look again every now and then"
                );
            });
        }
    }
}

/// How long the connection may be silent for a request with so many before it.
fn silence(place: u64) -> Duration {
    let places = u32::try_from(place).unwrap_or(u32::MAX);
    SILENCE.saturating_add(SILENCE_A_PLACE.saturating_mul(places))
}

/// Sees to it, for as long as the client lives, that the channel is heard. Runs on the background.
async fn listen(shared: Weak<Shared>, wanted: Arc<Notify>) {
    let mut pause = FIRST_PAUSE;
    let mut lost = false;
    loop {
        let Some(subscriber) = shared.upgrade() else {
            return;
        };
        if subscriber.nobody_waits() {
            subscriber.set_channel(Channel::Untried);
            subscriber.leave_home();
            lost = false;
            drop(subscriber);
            wanted.notified().await;
            continue;
        }
        let begun = Instant::now();
        let away = subscriber.away();
        match subscriber.subscribe(away.as_ref()).await {
            Ok(subscription) => {
                let kept = Kept {
                    subscription,
                    away: away.is_some(),
                    patience: SILENCE.max(2 * begun.elapsed()),
                };
                if subscriber.told.swap(false, Ordering::Relaxed) {
                    let (background, channel) =
                        (&subscriber.server.background, subscriber.channel.clone());
                    background.tell(move || {
                        tracing::info!(target: "lockattr", channel, "callers that wait for a lock are woken again");
                    });
                }
                pause = FIRST_PAUSE;
                lost = false;
                subscriber.tell_all(Channel::Heard);
                let sooner = Arc::clone(&subscriber.sooner);
                drop(subscriber);
                let end = kept.look_after(&shared, &wanted, &sooner).await;
                let Some(subscriber) = shared.upgrade() else {
                    return;
                };
                subscriber.set_channel(Channel::Lost);
                if end == End::Silent {
                    subscriber.set_place(Place::Home);
                }
            }
            Err(_) if away.is_some() => {
                subscriber.set_place(Place::Home);
                continue;
            }
            Err(error) => {
                subscriber.tell_unheard(&error);
                if !mem::replace(&mut lost, true) {
                    subscriber.tell_all(Channel::Lost);
                }
            }
        }
        // Many clients may have lost the same server.
        sleep(jittered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// A subscription, and how it is looked after.
struct Kept {
    subscription: Subscription,
    /// Whether another runtime than the background's drives it.
    away: bool,
    /// How long a sign of life may take.
    patience: Duration,
}

impl Kept {
    /// Until the connection is lost, has been silent for too long, or belongs elsewhere.
    async fn look_after(mut self, shared: &Weak<Shared>, wanted: &Notify, sooner: &Notify) -> End {
        let mut tick = pin!(sleep(SILENCE));
        let mut alive = Instant::now();
        let mut sign: Option<SignOfLife> = None;
        loop {
            let mut hurry = pin!(sooner.notified());
            let event = poll_fn(|cx| {
                let event = self.poll_event(cx, &mut sign, tick.as_mut());
                if event.is_pending() {
                    return hurry.as_mut().poll(cx).map(|()| Event::Sooner);
                }
                event
            });
            let event = event.await;
            let Some(subscriber) = shared.upgrade() else {
                return End::Closed;
            };
            match event {
                Event::End(end) => return end,
                Event::Answered(false) => return End::Closed,
                Event::Tick if sign.is_some() => {
                    if subscriber.requests().alive(alive).elapsed() >= self.patience {
                        return End::Silent;
                    }
                }
                Event::Answered(true) => {
                    sign = None;
                    alive = Instant::now();
                }
                Event::Sooner if self.away && subscriber.away().is_none() => return End::Closed,
                Event::Sooner => {}
                Event::Tick => match subscriber.is_overdue(alive) {
                    Some(true) => sign = Some(self.subscription.sign_of_life()),
                    Some(false) => {}
                    None => {
                        drop(subscriber);
                        // Nothing has to be known of it before somebody waits.
                        if let Some(end) = self.rest(wanted).await {
                            return end;
                        }
                        alive = Instant::now();
                    }
                },
            }
            let next = if sign.is_some() {
                Instant::now() + self.patience
            } else if let Some(subscriber) = shared.upgrade() {
                subscriber.next_tick(alive)
            } else {
                return End::Closed;
            };
            tick.as_mut().reset(next.into());
        }
    }

    fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        sign: &mut Option<SignOfLife>,
        tick: Pin<&mut Sleep>,
    ) -> Poll<Event> {
        if let Poll::Ready(end) = self.subscription.poll_end(cx) {
            return Poll::Ready(Event::End(end));
        }
        if let Some(sign) = sign
            && let Poll::Ready(answered) = sign.as_mut().poll(cx)
        {
            return Poll::Ready(Event::Answered(answered));
        }
        tick.poll(cx).map(|()| Event::Tick)
    }

    /// Waits until somebody waits, or for the end.
    async fn rest(&mut self, wanted: &Notify) -> Option<End> {
        let mut somebody = pin!(wanted.notified());
        poll_fn(|cx| {
            if let Poll::Ready(end) = self.subscription.poll_end(cx) {
                return Poll::Ready(Some(end));
            }
            somebody.as_mut().poll(cx).map(|()| None)
        })
        .await
    }
}

enum Event {
    End(End),
    /// A sign of life was asked for, and came or did not.
    Answered(bool),
    /// Somebody waits for whom the next tick would be too late, or in another place.
    Sooner,
    Tick,
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn granted(tie: Option<(Instant, u64)>, at: u64, heard: Instant) -> WakeUp {
        let waiting = Waiting {
            tie,
            ttl: TTL,
            ..Waiting::default()
        };
        waiting.judge(News::Granted {
            index: 2,
            at,
            heard,
        })
    }

    #[test]
    fn a_grant_counts_from_the_servers_clock() {
        let sent = Instant::now();
        let later = |ms| sent + Duration::from_millis(ms);
        // A second passed on the server, and the message took three more.
        let tie = Some((sent, 5_000_000));
        assert_eq!(
            granted(tie, 6_000_000, later(4_000)),
            WakeUp::Granted {
                slot: 2,
                until: later(990) + relied_on(TTL)
            }
        );
    }

    #[test]
    fn a_clock_that_cannot_be_relied_on_is_not() {
        let sent = Instant::now();
        let later = |ms| sent + Duration::from_millis(ms);
        let tie = Some((sent, 5_000_000));
        // Nothing to compare with.
        assert_eq!(granted(None, 6_000_000, later(4_000)), WakeUp::Look);
        // Set back.
        assert_eq!(granted(tie, 4_999_999, later(4_000)), WakeUp::Look);
        // Set forward: the grant would be yet to come.
        assert_eq!(granted(tie, 9_000_000, later(3_000)), WakeUp::Look);
        // Too long ago.
        assert_eq!(granted(tie, 15_000_001, later(11_000)), WakeUp::Look);
        assert_eq!(
            granted(tie, 15_000_000, later(11_000)),
            WakeUp::Granted {
                slot: 2,
                until: later(9_900) + relied_on(TTL)
            }
        );
    }
}
