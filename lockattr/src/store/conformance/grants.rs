//! What is granted, to whom, and until when.

use super::promise::{
    CHECKED, GRANTS, MISMATCH, NEVER_CREATES, NEVER_SHORTENS, ONE_EACH, RECOGNISES, RELIED_ON,
    RENEWAL_GONE, RENEWAL_TAKEN, RENEWS, SHORTENS, SLOT,
};
use super::subject::{Subject, all};
use crate::store::{Acquired, Attempt, Release, Renewal, Store};

/// How many ask at once.
const CROWD: usize = 20;

/// A lock that is free is granted, for a time that may be relied on; also after
/// [`check`](Store::check).
pub async fn grants(store: &dyn Store) {
    let subject = Subject::new(store);
    let caller = subject.newcomer();
    subject.answer("check", store.check(caller.claim())).await;
    let next = subject.rival(&caller);
    let grant = subject
        .granted_as(&CHECKED, &next, Attempt::default())
        .await;
    SLOT.holds(
        grant.slot == 0,
        format!("slot {} of a lock that has one", grant.slot),
    );
    RELIED_ON.holds(
        grant.until > subject.now(),
        format!("a ttl of {:?} is over when it is granted", next.ttl),
    );
    subject.give_back(&next, grant.slot).await;

    let caller = subject.newcomer().ttl(subject.limits.shortest_ttl);
    subject.granted(&caller).await;
}

/// Nobody else is granted what an owner holds, and is told by whom it is held and for how long. Of many
/// who ask at once, one is granted it.
pub async fn excludes(store: &dyn Store) {
    let subject = Subject::new(store);
    let holder = subject.newcomer();
    let grant = subject.granted(&holder).await;
    for _ in 0..2 {
        let rival = subject.rival(&holder);
        subject.busy(&GRANTS, &rival, &holder, grant).await;
    }
    // One that was refused has changed nothing.
    subject.give_back(&holder, grant.slot).await;
    let next = subject.rival(&holder);
    let grant = subject.granted(&next).await;
    subject.busy(&GRANTS, &holder, &next, grant).await;
    subject.give_back(&next, grant.slot).await;

    let first = subject.newcomer();
    let crowd: Vec<_> = (0..CROWD).map(|_| subject.rival(&first)).collect();
    let asked = crowd.iter().map(|caller| {
        let reply = store.acquire(caller.claim(), Attempt::default());
        Box::pin(subject.answer("acquire", reply))
    });
    let answers = all(asked.collect()).await;
    let is_granted = |answer: &Acquired| matches!(answer, Acquired::Granted { .. });
    let granted = answers.iter().filter(|answer| is_granted(answer)).count();
    GRANTS.holds(
        granted == 1,
        format!("of {CROWD} who asked for one lock at once, {granted} were granted it"),
    );
    for caller in &crowd {
        subject.release(caller, Release::whatever(false)).await;
    }
}

/// An owner that asks again, as after an answer that never came, has what it had, for a ttl from then.
pub async fn recognises(store: &dyn Store) {
    let subject = Subject::new(store);
    let holder = subject.newcomer().ttl(subject.short_ttl());
    let first = subject.granted(&holder).await;
    subject.sleep_until(subject.now() + holder.ttl / 4).await;
    let again = subject
        .granted_as(&RECOGNISES, &holder, Attempt::again(holder.ttl))
        .await;
    RECOGNISES.holds(
        again.slot == first.slot && again.until > first.until,
        "the ttl of a grant that was asked for again did not start anew",
    );
    let next = subject.rival(&holder);
    let next_grant = subject.granted_after(&RECOGNISES, &next, again.until).await;
    subject.give_back(&next, next_grant.slot).await;
}

/// Leases are renewed where they are held, and nowhere else; each has an answer of its own.
pub async fn renews(store: &dyn Store) {
    let subject = Subject::new(store);
    let holder = subject.newcomer().ttl(subject.short_ttl());
    let mut grant = subject.granted(&holder).await;
    for _ in 0..4 {
        subject.sleep_until(subject.now() + holder.ttl / 3).await;
        let renewed = subject.renew(&[holder.held(grant.slot)]).await;
        match renewed[..] {
            [Renewal::Until(until)] => {
                RENEWS.holds(until > grant.until, "a renewed lease runs no longer");
                grant = subject.relied_on(&holder, grant.slot, until);
            }
            // It was not renewed in time, on a machine with much to do.
            _ if subject.now() > grant.until => break,
            ref other => RENEWS.broken(format!("a lease that is held was answered as {other:?}")),
        }
    }
    let next = subject.caller(&holder.locks);
    let taken = subject.granted_after(&RENEWS, &next, grant.until).await;

    // Between two that are held: one of which nothing is there, and one that is another's.
    let (one, gone, two) = (subject.newcomer(), subject.newcomer(), subject.newcomer());
    subject.granted(&one).await;
    subject.granted(&two).await;
    let leases = [one.held(0), gone.held(0), holder.held(0), two.held(0)];
    let renewed = subject.renew(&leases).await;
    let [Renewal::Until(_), second, third, Renewal::Until(_)] = renewed[..] else {
        ONE_EACH.broken(format!(
            "the first and the last of four leases are held, and were answered as {renewed:?}"
        ));
    };
    RENEWAL_GONE.holds(
        second == Renewal::Gone,
        format!("a lease of which nothing is there was answered as {second:?}"),
    );
    RENEWAL_TAKEN.holds(
        third == Renewal::Taken,
        format!("a lease whose key another owner holds was answered as {third:?}"),
    );
    let finder = subject.rival(&gone);
    let found = subject.acquire(&finder, Attempt::default()).await;
    NEVER_CREATES.holds(
        matches!(found, Acquired::Granted { .. }),
        format!("after a renewal of nothing the lock was answered as {found:?}"),
    );
    subject.busy(&MISMATCH, &holder, &next, taken).await;
    for (held, slot) in [(&one, 0), (&two, 0), (&finder, 0), (&next, taken.slot)] {
        subject.give_back(held, slot).await;
    }
}

/// A lease that is not renewed ends with its ttl, not before and not much later.
pub async fn expires(store: &dyn Store) {
    let subject = Subject::new(store);
    for ttl in [subject.limits.shortest_ttl, subject.short_ttl()] {
        let holder = subject.newcomer().ttl(ttl);
        let grant = subject.granted(&holder).await;
        let next = subject.caller(&holder.locks);
        let next_grant = subject.granted_after(&GRANTS, &next, grant.until).await;
        // What is over is over also for its owner.
        let renewed = subject.renew(&[holder.held(grant.slot)]).await;
        RENEWAL_TAKEN.holds(
            renewed == [Renewal::Taken],
            format!("a lease that is over, and whose key another owner holds, was answered as {renewed:?}"),
        );
        subject.busy(&MISMATCH, &holder, &next, next_grant).await;
        subject.give_back(&next, next_grant.slot).await;
    }
}

/// A renewal shortens what is left of a lease where it is asked to, and only there.
pub async fn shortens(store: &dyn Store) {
    let subject = Subject::new(store);
    let holder = subject.newcomer();
    let grant = subject.granted(&holder).await;
    let shorter = holder.clone().ttl(subject.short_ttl());
    let renewed = subject.renew(&[shorter.held(grant.slot)]).await;
    NEVER_SHORTENS.holds(
        matches!(renewed[..], [Renewal::Until(_)]),
        format!("a renewal for less than is left was answered as {renewed:?}"),
    );
    subject.sleep_until(subject.now() + shorter.ttl).await;
    let next = subject.rival(&holder);
    subject.busy(&NEVER_SHORTENS, &next, &holder, grant).await;

    let asked = subject.now();
    let renewed = subject
        .renew(&[shorter.held(grant.slot).shortening()])
        .await;
    let until = match renewed[..] {
        [Renewal::Until(until)] => subject.relied_on(&shorter, grant.slot, until).until,
        ref other => SHORTENS.broken(format!("a lease that is held was answered as {other:?}")),
    };
    SHORTENS.holds(
        asked < until,
        format!("a ttl of {:?} was over when it began", shorter.ttl),
    );
    let grant = subject.granted_after(&SHORTENS, &next, until).await;
    subject.give_back(&next, grant.slot).await;
}
