//! Holders of several permits, and readers: who holds a lock beside whom, and who waits for it.

use super::promise::{FOUND, ORDER, Promise, RENEWS, TOGETHER, TOKEN};
use super::subject::{Claimant, HeldSlot, Subject};
use super::wakeups::WaitingClaim;
use crate::store::{Acquired, Attempt, Found, Release, Renewal, Store, Token};

/// Holders have no more permits together than there are, and those who want many have their turn. Asked of
/// stores whose limits say that they can.
pub async fn weights(store: &dyn Store) {
    let subject = Subject::new(store);
    if !subject.limits.weights {
        return;
    }
    let newcomer = subject.newcomer().permits(10);
    let with = |weight| subject.rival(&newcomer).weight(weight);
    let [four, three, other_three] = [with(4), with(3), with(3)];
    let mut slots = Vec::new();
    for holder in [&four, &three, &other_three] {
        slots.push(subject.granted(holder).await.slot);
    }
    TOGETHER.holds(
        slots == [0, 1, 2],
        format!("three holders of ten permits have the slots {slots:?}"),
    );
    refused(&subject, &TOGETHER, &with(1)).await;
    // By the number that the claim counts.
    let one_of_eleven = subject.rival(&newcomer).permits(11);
    let grant = subject.granted(&one_of_eleven).await;
    subject.give_back(&one_of_eleven, grant.slot).await;
    for alone in [newcomer.clone().permits(1), newcomer.clone().shared()] {
        refused(&subject, &TOGETHER, &subject.rival(&alone)).await;
    }
    subject.give_back(&three, 1).await;
    refused(&subject, &TOGETHER, &with(4)).await;
    let two = with(2);
    let grant = subject.granted(&two).await;
    TOGETHER.holds(
        grant.slot == 1,
        format!("slot 1 is the lowest free one, not {}", grant.slot),
    );

    // One permit is left, and nine are waited for.
    let nine = with(9);
    if let Some(mut waiter) = WaitingClaim::queue(&subject, &nine).await {
        refused(&subject, &ORDER, &with(1)).await;
        subject.give_back(&four, 0).await;
        refused(&subject, &ORDER, &with(1)).await;
        subject.give_back(&two, grant.slot).await;
        subject.give_back(&other_three, 2).await;
        let turn = waiter.turn(&subject).await;
        refused(&subject, &TOGETHER, &with(2)).await;
        subject.give_back(&nine, turn.slot).await;
    }
}

/// Readers hold a lock beside one another, and whoever is alone has its turn among them. Asked of stores whose
/// limits say that they can.
pub async fn readers(store: &dyn Store) {
    let subject = Subject::new(store);
    if !subject.limits.shared {
        return;
    }
    let writer = subject.newcomer();
    let reader = || subject.rival(&writer).shared();
    let held = subject.granted(&writer).await;
    refused(&subject, &TOGETHER, &reader()).await;
    subject.give_back(&writer, held.slot).await;

    let [one, two] = [reader(), reader()];
    let grants = [subject.granted(&one).await, subject.granted(&two).await];
    refused(&subject, &TOGETHER, &writer).await;
    let renewed = subject.renew(&[one.held(0), two.held(0)]).await;
    RENEWS.holds(
        matches!(renewed[..], [Renewal::Until(_), Renewal::Until(_)]),
        format!("two readers were renewed as {renewed:?}"),
    );
    let mut last = 0;
    for holder in [&one, &two, &one] {
        match subject.token(holder, 0).await {
            Token::Drawn(token) if token > last => last = token,
            other => TOKEN.broken(format!("a reader was given {other:?} after {last}")),
        }
    }
    let found = subject.release(&reader(), Release::held(0, &[])).await;
    FOUND.holds(
        found != Found::Ours,
        format!("the release of who holds nothing was answered as {found:?}"),
    );
    give_back_all(&subject, [(&one, grants[0])]).await;
    refused(&subject, &TOGETHER, &writer).await;

    // A writer waits, and readers come behind it.
    let [behind, last_one] = [reader(), reader()];
    if let Some(mut waiter) = WaitingClaim::queue(&subject, &writer).await {
        refused(&subject, &ORDER, &reader()).await;
        let mut readers = Vec::new();
        for reader in [&behind, &last_one] {
            readers.extend(WaitingClaim::queue(&subject, reader).await);
        }
        subject.give_back(&two, grants[1].slot).await;
        let turn = waiter.turn(&subject).await;
        refused(&subject, &TOGETHER, &reader()).await;
        subject.give_back(&writer, turn.slot).await;
        let mut turns = Vec::new();
        for waiter in &mut readers {
            turns.push(waiter.turn(&subject).await);
        }
        give_back_all(&subject, [&behind, &last_one].into_iter().zip(turns)).await;
    }

    // Whoever waits no more is in nobody's way.
    let held = subject.granted(&one).await;
    if let Some(waiter) = WaitingClaim::queue(&subject, &writer).await {
        let found = subject.release(&writer, Release::whatever(true)).await;
        FOUND.holds(
            found == Found::Ours,
            format!("the release of a waiter was answered as {found:?}"),
        );
        drop(waiter);
        let beside = reader();
        let grant = subject.granted(&beside).await;
        subject.give_back(&beside, grant.slot).await;
    }
    subject.give_back(&one, held.slot).await;
    let held = subject.granted(&writer).await;
    subject.give_back(&writer, held.slot).await;
}

async fn give_back_all(
    subject: &Subject<'_>,
    held: impl IntoIterator<Item = (&Claimant, HeldSlot)>,
) {
    for (holder, grant) in held {
        subject.give_back(holder, grant.slot).await;
    }
}

async fn refused(subject: &Subject<'_>, promise: &Promise, caller: &Claimant) {
    let answer = subject.acquire(caller, Attempt::default()).await;
    promise.holds(
        matches!(answer, Acquired::Busy { lock: 0, .. }),
        format!("what there is no room for was answered as {answer:?}"),
    );
}
