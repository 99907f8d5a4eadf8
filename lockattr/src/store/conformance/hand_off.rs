//! Owners that take over from others.

use super::promise::{MISMATCH, TAKES_OVER};
use super::subject::{Claimant, Subject};
use crate::store::{Found, Release, Renewal, Store};

/// An owner takes over from the holder, in one step for all locks and once: of two the second one has nothing. What
/// was taken over is the new owner's alone.
pub async fn hand_off(store: &dyn Store) {
    let subject = Subject::new(store);
    if !subject.limits.hand_off {
        return;
    }
    let holder = subject.newcomer();
    let (heir, late) = (subject.rival(&holder), subject.rival(&holder));
    told(&subject, &holder, 0, &heir, "of nothing", Renewal::Gone).await;
    let grant = subject.granted(&holder).await;
    // A second one is what is asked again where the first answer never came.
    for what in ["of a lease", "that was done before"] {
        match taken_over(&subject, &holder, grant.slot, &heir).await {
            Renewal::Until(until) => subject.relied_on(&heir, grant.slot, until),
            other => TAKES_OVER.broken(format!("a take-over {what} was answered {other:?}")),
        };
    }
    let taken = Renewal::Taken;
    told(
        &subject,
        &holder,
        grant.slot,
        &late,
        "by a second one",
        taken,
    )
    .await;
    let renewed = [&holder, &heir].map(|owner| owner.held(grant.slot));
    let renewed = subject.renew(&renewed).await;
    TAKES_OVER.holds(
        matches!(renewed[..], [Renewal::Taken, Renewal::Until(_)]),
        format!("the owners before and after a take-over were renewed as {renewed:?}"),
    );
    let found = subject
        .release(&holder, Release::held(grant.slot, &[]))
        .await;
    MISMATCH.holds(
        found == Found::Another,
        format!("the owner before a take-over gave back what was answered as {found:?}"),
    );
    subject.give_back(&heir, grant.slot).await;
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
