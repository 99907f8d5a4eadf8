//! Several locks of one holder, and several holders of one lock.

use std::slice;
use std::time::Duration;

use super::promise::{
    CLOSED, DONE, ENDS, GRANTS, MISMATCH, RECOGNISES, RENEWAL_GONE, RENEWAL_TAKEN, RENEWS, SLOT,
};
use super::subject::{Claimant, HeldSlot, Subject, all};
use super::tokens::{drawn, not_drawn};
use crate::store::{Acquired, Attempt, Found, Leave, Release, Renewal, Store};

/// Several locks are granted all or none, and are a lease only while all are held. Asked of stores whose
/// limits say that they can.
pub async fn several_locks(store: &dyn Store) {
    let subject = Subject::new(store);
    if !subject.limits.several_locks {
        return;
    }
    let locks = [(); 3].map(|()| subject.lock());
    let [a, b, c] = &locks;
    let all_three = subject.caller(&locks);

    // One of them is held.
    let holder = subject.caller(slice::from_ref(b));
    let grant = subject.granted(&holder).await;
    let mut token = 0;
    for _ in 0..3 {
        token = drawn(&subject, &holder, grant.slot, token).await;
    }
    subject
        .busy_at(&GRANTS, &all_three, 1, &holder, grant)
        .await;
    for free in [a, c] {
        passes(&subject, free).await;
    }
    subject.give_back(&holder, grant.slot).await;

    // All of them are.
    let grant = subject.granted(&all_three).await;
    for lock in &locks {
        let rival = subject.caller(slice::from_ref(lock));
        subject.busy(&GRANTS, &rival, &all_three, grant).await;
    }
    let rival = subject.caller(&[subject.lock(), c.clone()]);
    subject.busy_at(&GRANTS, &rival, 1, &all_three, grant).await;
    passes(&subject, &rival.locks[0]).await;
    subject
        .granted_as(&RECOGNISES, &all_three, Attempt::again(Duration::ZERO))
        .await;
    let renewed = subject.renew(&[all_three.held(0)]).await;
    RENEWS.holds(
        matches!(renewed[..], [Renewal::Until(_)]),
        format!("a lease of several locks was answered as {renewed:?}"),
    );
    let token = drawn(&subject, &all_three, 0, token).await;

    // One of them is lost: gone first, and then another's.
    subject
        .give_back(&all_three.only(slice::from_ref(b)), 0)
        .await;
    let renewed = subject.renew(&[all_three.held(0)]).await;
    RENEWAL_GONE.holds(
        renewed == [Renewal::Gone],
        format!("several locks of which one is gone were answered as {renewed:?}"),
    );
    not_drawn(&subject, &all_three, 0, Found::Nothing).await;
    let other = subject.caller(slice::from_ref(b));
    let grant = subject.granted(&other).await;
    let renewed = subject.renew(&[all_three.held(0)]).await;
    RENEWAL_TAKEN.holds(
        renewed == [Renewal::Taken],
        format!("several locks of which one is another's were answered as {renewed:?}"),
    );
    not_drawn(&subject, &all_three, 0, Found::Another).await;
    drawn(&subject, &other, grant.slot, token).await;
    let found = subject.release(&all_three, Release::held(0, &[])).await;
    ENDS.holds(
        found == Found::Another,
        format!("the release of several locks of which one is another's was answered as {found:?}"),
    );
    subject
        .busy(
            &MISMATCH,
            &all_three.only(slice::from_ref(b)),
            &other,
            grant,
        )
        .await;
    for free in [a, c] {
        passes(&subject, free).await;
    }
    subject.give_back(&other, grant.slot).await;

    leaves_each(&subject).await;
    at_once(&subject).await;
}

/// Is free, and stays so.
async fn passes(subject: &Subject<'_>, lock: &String) {
    let caller = subject.caller(slice::from_ref(lock));
    let grant = subject.granted(&caller).await;
    subject.give_back(&caller, grant.slot).await;
}

/// Each lock of a release is left as it says.
async fn leaves_each(subject: &Subject<'_>) {
    let locks = [(); 3].map(|()| subject.lock());
    let holder = subject.caller(&locks);
    subject.granted(&holder).await;
    let length = subject.short_ttl() + subject.limits.longest_answer;
    let leave = [Leave::Nothing, Leave::Closed(length), Leave::Done(length)];
    let found = subject.release(&holder, Release::held(0, &leave)).await;
    ENDS.holds(
        found == Found::Ours,
        format!("the release of several locks was answered as {found:?}"),
    );
    let [free, closed, done] = locks;
    passes(subject, &free).await;
    let answer = subject
        .acquire(&subject.caller(&[closed]), Attempt::default())
        .await;
    CLOSED.holds(
        matches!(answer, Acquired::Busy { .. }),
        format!("the second of three locks, closed, was answered as {answer:?}"),
    );
    let answer = subject
        .acquire(&subject.caller(&[done]), Attempt::default())
        .await;
    DONE.holds(
        matches!(answer, Acquired::Done { .. }),
        format!("the third of three locks, done, was answered as {answer:?}"),
    );
}

/// Two locks, asked for in both orders at once.
async fn at_once(subject: &Subject<'_>) {
    let (a, b) = (subject.lock(), subject.lock());
    let orders = [[a.clone(), b.clone()], [b, a]];
    let crowd: Vec<_> = (0..10).map(|n| subject.caller(&orders[n % 2])).collect();
    let granted = granted_at_once(subject, &crowd).await;
    GRANTS.holds(
        granted.len() == 1,
        format!(
            "of ten who asked for two locks at once, {} were granted them",
            granted.len()
        ),
    );
    for (caller, grant) in granted {
        subject.give_back(caller, grant.slot).await;
    }
}

async fn granted_at_once<'a>(
    subject: &Subject<'_>,
    crowd: &'a [Claimant],
) -> Vec<(&'a Claimant, HeldSlot)> {
    let asked = crowd.iter().map(|caller| {
        Box::pin(async move {
            match subject.acquire(caller, Attempt::default()).await {
                Acquired::Granted { slot, until, .. } => {
                    Some((caller, subject.relied_on(caller, slot, until)))
                }
                _ => None,
            }
        })
    });
    all(asked.collect()).await.into_iter().flatten().collect()
}

/// A lock with permits has as many holders of one at a time, each in a slot of its own. Asked of stores whose
/// limits say that they can.
pub async fn permits(store: &dyn Store) {
    const PERMITS: usize = 3;
    let subject = Subject::new(store);
    if !subject.limits.permits {
        return;
    }
    let first = subject.newcomer().permits(3);
    let crowd: Vec<_> = (0..10).map(|_| subject.rival(&first)).collect();
    let mut holders = granted_at_once(&subject, &crowd).await;
    holders.sort_by_key(|(_, grant)| grant.slot);
    let slots: Vec<_> = holders.iter().map(|(_, grant)| grant.slot).collect();
    GRANTS.holds(
        slots == [0, 1, 2],
        format!("of ten who asked for {PERMITS} slots at once, the slots {slots:?} were granted"),
    );
    full(&subject, &first, &holders).await;

    let mut last = 0;
    for (holder, grant) in &holders {
        let again = Attempt::again(Duration::ZERO);
        let again = subject.granted_as(&RECOGNISES, holder, again).await;
        SLOT.holds(
            again.slot == grant.slot,
            format!(
                "slot {} was granted again as slot {}",
                grant.slot, again.slot
            ),
        );
        let renewed = subject.renew(&[holder.held(grant.slot)]).await;
        RENEWS.holds(
            matches!(renewed[..], [Renewal::Until(_)]),
            format!(
                "slot {} that is held was answered as {renewed:?}",
                grant.slot
            ),
        );
        last = drawn(&subject, holder, grant.slot, last).await;
    }
    let [(one, _), (two, _), (three, _)] = holders[..] else {
        unreachable!("there are three slots");
    };
    // Somebody else's slot.
    let stranger = subject.rival(&first);
    let found = subject.release(&stranger, Release::held(1, &[])).await;
    MISMATCH.holds(
        found != Found::Ours,
        format!("the release of another owner's slot was answered as {found:?}"),
    );
    full(&subject, &first, &holders).await;

    subject.give_back(two, 1).await;
    let next = subject.rival(&first);
    let grant = subject.granted(&next).await;
    SLOT.holds(
        grant.slot == 1,
        format!("slot 1 is the free one, not {}", grant.slot),
    );
    for holder in [one, &next, three] {
        let found = subject.release(holder, Release::whatever(false)).await;
        ENDS.holds(
            found == Found::Ours,
            format!("the release of whatever an owner of a slot holds was answered as {found:?}"),
        );
    }
    let crowd: Vec<_> = (0..10).map(|_| subject.rival(&first)).collect();
    let holders = granted_at_once(&subject, &crowd).await;
    ENDS.holds(
        holders.len() == PERMITS,
        format!(
            "{} slots of {PERMITS} are free when all were given back",
            holders.len()
        ),
    );
    for (holder, grant) in holders {
        subject.give_back(holder, grant.slot).await;
    }
    slots_stay_closed(&subject).await;
}

/// A slot stays closed that its holder has left so.
async fn slots_stay_closed(subject: &Subject<'_>) {
    let length = subject.short_ttl() + subject.limits.longest_answer;
    let one = subject.newcomer().permits(2);
    let two = subject.rival(&one);
    let grants = [subject.granted(&one).await, subject.granted(&two).await];
    let leave = [Leave::Closed(length)];
    for (holder, grant) in [&one, &two].into_iter().zip(grants) {
        let found = subject
            .release(holder, Release::held(grant.slot, &leave))
            .await;
        ENDS.holds(
            found == Found::Ours,
            format!("the release of a slot was answered as {found:?}"),
        );
    }
    let answer = subject
        .acquire(&subject.rival(&one), Attempt::default())
        .await;
    CLOSED.holds(
        matches!(answer, Acquired::Busy { lock: 0, .. }),
        format!("a lock that is closed in both slots was answered as {answer:?}"),
    );
}

/// No slot is free, and one of the holders is named.
async fn full(subject: &Subject<'_>, first: &Claimant, holders: &[(&Claimant, HeldSlot)]) {
    let answer = subject
        .acquire(&subject.rival(first), Attempt::default())
        .await;
    let is_named = |name: &str| holders.iter().any(|(holder, _)| holder.owner == name);
    let is_full = matches!(&answer, Acquired::Busy { lock: 0, owner, .. } if is_named(owner));
    GRANTS.holds(
        is_full,
        format!("a lock whose slots are all held was answered as {answer:?}"),
    );
}
