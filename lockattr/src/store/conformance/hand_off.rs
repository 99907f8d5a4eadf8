//! Owners that take over from others.

use super::promise::{MISMATCH, TAKES_OVER};
use super::subject::{Claimant, Subject};
use crate::store::{Acquired, Attempt, Found, Limits, Release, Renewal, Store};

/// An owner takes over from the holder, in one step for all locks and once: of two the second one has nothing. What
/// was taken over is the new owner's alone.
pub async fn hand_off(store: &dyn Store) {
    let subject = Subject::new(store);
    if !subject.limits.hand_off {
        return;
    }
    let Limits {
        weights, shared, ..
    } = subject.limits;
    let newcomer = subject.newcomer();
    let heavy = weights.then(|| subject.newcomer().permits(3).weight(2));
    let reader = shared.then(|| subject.newcomer().shared());
    for holder in [Some(newcomer), heavy, reader].into_iter().flatten() {
        hands_off(&subject, &holder).await;
    }
}

async fn hands_off(subject: &Subject<'_>, holder: &Claimant) {
    // Whom it lets hold the lock beside it has taken nothing from it.
    let (taken, another) = if holder.claim().sharing().is_alone() {
        (Renewal::Taken, Found::Another)
    } else {
        (Renewal::Gone, Found::Nothing)
    };
    let (heir, late) = (subject.rival(holder), subject.rival(holder));
    told(subject, holder, 0, &heir, "of nothing", Renewal::Gone).await;
    let grant = subject.granted(holder).await;
    // A second one is what is asked again where the first answer never came.
    for what in ["of a lease", "that was done before"] {
        match taken_over(subject, holder, grant.slot, &heir).await {
            Renewal::Until(until) => subject.relied_on(&heir, grant.slot, until),
            other => TAKES_OVER.broken(format!("a take-over {what} was answered {other:?}")),
        };
    }
    told(subject, holder, grant.slot, &late, "by a second one", taken).await;
    let renewed = [holder, &heir].map(|owner| owner.held(grant.slot));
    let renewed = subject.renew(&renewed).await;
    TAKES_OVER.holds(
        matches!(renewed[..], [before, Renewal::Until(_)] if before == taken),
        format!("the owners before and after a take-over were renewed as {renewed:?}"),
    );
    let found = subject
        .release(holder, Release::held(grant.slot, &[]))
        .await;
    MISMATCH.holds(
        found == another,
        format!("the owner before a take-over gave back what was answered as {found:?}"),
    );
    // It has all that the owner before had, and no more.
    let alone = subject.rival(&holder.clone().alone());
    let (heavy, light) = (
        subject.rival(holder),
        subject.rival(&holder.clone().weight(1)),
    );
    let is_permits = holder.claim().permits > 1;
    for refused in [Some(&alone), is_permits.then_some(&heavy)]
        .into_iter()
        .flatten()
    {
        let answer = subject.acquire(refused, Attempt::default()).await;
        TAKES_OVER.holds(
            matches!(answer, Acquired::Busy { .. }),
            format!("what was taken over left room for {answer:?}"),
        );
    }
    if is_permits {
        let beside = subject.granted(&light).await;
        TAKES_OVER.holds(
            beside.slot != grant.slot,
            format!(
                "the slot {} that was taken over was granted again",
                grant.slot
            ),
        );
        subject.give_back(&light, beside.slot).await;
    }
    subject.give_back(&heir, grant.slot).await;
    let whole = subject.granted(&alone).await;
    subject.give_back(&alone, whole.slot).await;
}

async fn told(
    subject: &Subject<'_>,
    holder: &Claimant,
    slot: usize,
    heir: &Claimant,
    what: &str,
    expected: Renewal,
) {
    let answer = taken_over(subject, holder, slot, heir).await;
    TAKES_OVER.holds(
        answer == expected,
        format!("a take-over {what} was answered {answer:?}, and not {expected:?}"),
    );
}

async fn taken_over(
    subject: &Subject<'_>,
    holder: &Claimant,
    slot: usize,
    heir: &Claimant,
) -> Renewal {
    let reply = subject.store.take_over(holder.held(slot), &heir.owner);
    subject.answer("take_over", reply).await
}
