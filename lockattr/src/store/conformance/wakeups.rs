//! Those who wait.

use std::future::poll_fn;
use std::time::Duration;

use tokio::time::timeout;

use super::promise::{DONE, FOUND, GRANTS, LEAVES_QUEUE, PLACE, ZERO_WAIT};
use super::subject::{Claimant, HeldSlot, SLACK, Subject};
use crate::store::{Acquired, Attempt, Found, Leave, Release, Store, WakeUp, WakeUps};

const WAIT: Duration = Duration::from_secs(60);

/// Those who wait are granted the lock in the order in which they came, or told to look again; those who
/// wait no more are passed over. Asked of stores that say at which [place](Acquired::Busy::place) one
/// stands.
pub async fn wakeups(store: &dyn Store) {
    let subject = Subject::new(store);
    let holder = subject.newcomer();
    let grant = subject.granted(&holder).await;
    let callers = [(); 3].map(|()| subject.rival(&holder));
    let mut waiters = Vec::new();
    for (place, caller) in callers.iter().enumerate() {
        match WaitingClaim::queue(&subject, caller).await {
            Some(waiter) => {
                stands(place, waiter.place);
                waiters.push(waiter);
            }
            None if place == 0 => return,
            None => PLACE.broken("one that waits behind another stands nowhere"),
        }
    }
    // To ask again keeps the place.
    let place = asks_again(&subject, &callers[1], WAIT).await;
    PLACE.holds(
        place == Some(1),
        format!("the second waiter asked again, and stands at {place:?}"),
    );
    subject.give_back(&holder, grant.slot).await;
    for (index, mut waiter) in waiters.into_iter().enumerate() {
        let turn = waiter.turn(&subject).await;
        if let Some(next) = callers.get(index + 1) {
            subject
                .busy_for(&PLACE, next, WAIT, waiter.caller, turn)
                .await;
        }
        subject.give_back(waiter.caller, turn.slot).await;
    }
    let grant = subject.granted(&holder).await;
    subject.give_back(&holder, grant.slot).await;

    gone(&subject).await;
    done(&subject).await;
    if subject.limits.several_locks {
        several(&subject).await;
    }
    if subject.limits.permits {
        slots(&subject).await;
    }
}

pub(super) struct WaitingClaim<'a> {
    caller: &'a Claimant,
    wakeups: Box<dyn WakeUps + 'a>,
    place: u64,
}

impl<'a> WaitingClaim<'a> {
    /// Waits for what is held, if the store has a queue.
    pub(super) async fn queue(subject: &Subject<'a>, caller: &'a Claimant) -> Option<Self> {
        let wakeups = subject.store.wakeups(caller.claim());
        match subject.acquire(caller, Attempt::first(WAIT)).await {
            Acquired::Busy { place, .. } => place.map(|place| Self {
                caller,
                wakeups,
                place,
            }),
            other => GRANTS.broken(format!(
                "what another owner holds was answered as {other:?}"
            )),
        }
    }

    /// What it is told next.
    async fn told(&mut self, subject: &Subject<'_>) -> WakeUp {
        let bound = subject.limits.longest_answer + SLACK;
        let next = poll_fn(|cx| self.wakeups.poll_next(cx));
        match timeout(bound, next).await {
            Ok(wakeup) => wakeup,
            Err(_) => PLACE.broken(format!(
                "the first in the queue was told nothing for {bound:?} after a release"
            )),
        }
    }

    /// Its grant, now that it is the first and the lock was given back.
    pub(super) async fn turn(&mut self, subject: &Subject<'_>) -> HeldSlot {
        loop {
            match self.told(subject).await {
                WakeUp::Granted { slot, until } => {
                    return subject.relied_on(self.caller, slot, until);
                }
                WakeUp::First { .. } => {}
                WakeUp::Look => match subject.acquire(self.caller, Attempt::again(WAIT)).await {
                    Acquired::Granted { slot, until, .. } => {
                        return subject.relied_on(self.caller, slot, until);
                    }
                    Acquired::Busy { .. } => {}
                    other => PLACE.broken(format!("the first in the queue was answered {other:?}")),
                },
            }
        }
    }
}

fn stands(place: usize, told: u64) {
    PLACE.holds(
        u64::try_from(place) == Ok(told),
        format!("{place} stand before it, not {told}"),
    );
}

/// Where one stands that asks again.
async fn asks_again(subject: &Subject<'_>, caller: &Claimant, wait: Duration) -> Option<u64> {
    match subject.acquire(caller, Attempt::again(wait)).await {
        Acquired::Busy { place, .. } => place,
        other => GRANTS.broken(format!(
            "what another owner holds was answered as {other:?}"
        )),
    }
}

/// Two who wait no more, in the two ways in which one says so.
async fn gone(subject: &Subject<'_>) {
    let holder = subject.newcomer();
    let grant = subject.granted(&holder).await;
    let callers = [(); 2].map(|()| subject.rival(&holder));
    let [released, impatient] = &callers;
    let waits = WaitingClaim::queue(subject, released).await;
    drop(waits.map(|waiter| waiter.wakeups));
    // Its wake-ups are kept, so that it could be granted the lock.
    let _kept = WaitingClaim::queue(subject, impatient).await;

    let found = subject.release(released, Release::whatever(true)).await;
    FOUND.holds(
        found == Found::Ours,
        format!("the release of one that stood in the queue was answered as {found:?}"),
    );
    let found = subject.release(released, Release::whatever(true)).await;
    LEAVES_QUEUE.holds(
        found == Found::Another,
        format!("one that had left the queue left it again: {found:?}"),
    );
    let place = asks_again(subject, impatient, Duration::ZERO).await;
    ZERO_WAIT.holds(place.is_none(), format!("it stands at {place:?}"));
    subject.give_back(&holder, grant.slot).await;
    let next = subject.rival(&holder);
    let grant = subject
        .granted_as(&LEAVES_QUEUE, &next, Attempt::default())
        .await;
    subject.give_back(&next, grant.slot).await;
}

/// What is done is waited for by nobody.
async fn done(subject: &Subject<'_>) {
    let holder = subject.newcomer();
    let grant = subject.granted(&holder).await;
    let caller = subject.rival(&holder);
    let Some(mut waiter) = WaitingClaim::queue(subject, &caller).await else {
        return;
    };
    let leave = [Leave::Done(subject.limits.longest_answer + SLACK)];
    subject
        .release(&holder, Release::held(grant.slot, &leave))
        .await;
    loop {
        match waiter.told(subject).await {
            WakeUp::First { .. } => {}
            WakeUp::Look => break,
            WakeUp::Granted { .. } => DONE.broken("one that waited was granted it"),
        }
    }
    let answer = subject.acquire(&caller, Attempt::again(WAIT)).await;
    DONE.holds(
        matches!(answer, Acquired::Done { .. }),
        format!("one that waited was answered {answer:?}"),
    );
}

/// One that waits for two locks.
async fn several(subject: &Subject<'_>) {
    let locks = [(); 2].map(|()| subject.lock());
    let holder = subject.caller(&locks[1..]);
    let grant = subject.granted(&holder).await;
    let caller = subject.caller(&locks);
    let Some(mut waiter) = WaitingClaim::queue(subject, &caller).await else {
        return;
    };
    subject.give_back(&holder, grant.slot).await;
    let turn = waiter.turn(subject).await;
    for lock in locks {
        let rival = subject.caller(&[lock]);
        subject.busy(&GRANTS, &rival, &caller, turn).await;
    }
    subject.give_back(&caller, turn.slot).await;
}

/// One that waits for either of two slots.
async fn slots(subject: &Subject<'_>) {
    let first = subject.newcomer().permits(2);
    let second = subject.rival(&first);
    for holder in [&first, &second] {
        subject.granted(holder).await;
    }
    let caller = subject.rival(&first);
    let Some(mut waiter) = WaitingClaim::queue(subject, &caller).await else {
        return;
    };
    let found = subject.release(&second, Release::whatever(false)).await;
    FOUND.holds(
        found == Found::Ours,
        format!("whatever an owner of a slot holds was answered as {found:?}"),
    );
    let turn = waiter.turn(subject).await;
    subject.give_back(&caller, turn.slot).await;
    let found = subject.release(&first, Release::whatever(false)).await;
    FOUND.holds(
        found == Found::Ours,
        format!("whatever an owner of a slot holds was answered as {found:?}"),
    );
}
