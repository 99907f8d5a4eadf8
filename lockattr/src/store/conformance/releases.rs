//! How a hold ends, and what it leaves.

use std::time::{Duration, Instant, SystemTime};

use super::promise::{CLOSED, DONE, ENDS, FOUND, KEEP_MARKS, MISMATCH, Promise, REPLIED, SINCE};
use super::subject::{CLOCKS_DIFFER, Claimant, Subject, apart};
use crate::store::{
    Acquired, Attempt, Found, KeptReply, Leave, Release, Renewal, Store, relied_on_until,
};

/// A release frees what its owner holds, and nothing that anybody else holds; it says what it found.
pub async fn releases(store: &dyn Store) {
    let subject = Subject::new(store);
    for known in [true, false] {
        let holder = subject.newcomer();
        let of = |slot| {
            if known {
                Release::held(slot, &[])
            } else {
                Release::whatever(false)
            }
        };
        found(
            &subject,
            &holder,
            of(0),
            Found::Nothing,
            "was never granted",
        )
        .await;

        let grant = subject.granted(&holder).await;
        found(&subject, &holder, of(grant.slot), Found::Ours, "is held").await;
        found(
            &subject,
            &holder,
            of(grant.slot),
            Found::Nothing,
            "was given back",
        )
        .await;

        let next = subject.rival(&holder);
        let next_grant = subject.granted_as(&ENDS, &next, Attempt::default()).await;
        found(
            &subject,
            &holder,
            of(grant.slot),
            Found::Another,
            "is another owner's",
        )
        .await;
        subject.busy(&MISMATCH, &holder, &next, next_grant).await;
        let renewed = subject.renew(&[next.held(next_grant.slot)]).await;
        MISMATCH.holds(
            matches!(renewed[..], [Renewal::Until(_)]),
            format!("after a release by another owner a lease was answered as {renewed:?}"),
        );
        subject.give_back(&next, next_grant.slot).await;
    }
}

async fn found(
    subject: &Subject<'_>,
    caller: &Claimant,
    release: Release<'_>,
    is: Found,
    what: &str,
) {
    let found = subject.release(caller, release).await;
    FOUND.holds(
        found == is,
        format!("the release of what {what} was answered as {found:?}, not as {is:?}"),
    );
}

/// A lock that is left closed is nobody's, also not its last owner's, and opens when its time is over.
pub async fn closes(store: &dyn Store) {
    let subject = Subject::new(store);
    let holder = subject.newcomer();
    let grant = subject.granted(&holder).await;
    let length = subject.short_ttl();
    let closed_at = subject.now();
    let leave = [Leave::Closed(length)];
    let closed = Release::held(grant.slot, &leave);
    found(&subject, &holder, closed, Found::Ours, "is held").await;

    let next = subject.rival(&holder);
    for caller in [&next, &holder] {
        let answer = subject.acquire(caller, Attempt::default()).await;
        let is_closed = matches!(
            &answer,
            Acquired::Busy { owner, remaining, .. }
                if *owner != holder.owner && *remaining <= length
        );
        let over = relied_on_until(closed_at, length) < subject.now();
        CLOSED.holds(
            is_closed || over,
            format!("a lock that is closed for {length:?} was answered as {answer:?}"),
        );
        if over {
            subject.release(caller, Release::whatever(false)).await;
        }
    }
    nobodys(&subject, &CLOSED, &holder, grant.slot).await;
    let open = relied_on_until(closed_at, length);
    let next_grant = subject.granted_after(&CLOSED, &next, open).await;
    subject.give_back(&next, next_grant.slot).await;
}

/// What its last owner cannot have back.
async fn nobodys(subject: &Subject<'_>, promise: &Promise, last: &Claimant, slot: usize) {
    let renewed = subject.renew(&[last.held(slot)]).await;
    promise.holds(
        !matches!(renewed[..], [Renewal::Until(_)]),
        "its last owner has renewed it",
    );
    let found = subject.release(last, Release::held(slot, &[])).await;
    promise.holds(
        found != Found::Ours,
        "its last owner has given it back once more",
    );
}

/// Work that is done is marked for its time: nobody is granted the lock, however long it would be waited
/// for. With [`keep_marks`](Release::keep_marks) a mark is written also where nothing is left.
pub async fn marks(store: &dyn Store) {
    let subject = Subject::new(store);
    let length = subject.short_ttl();
    let leave = [Leave::Done(length)];
    let done = Release::held(0, &leave);

    let holder = subject.newcomer();
    subject.granted(&holder).await;
    let done_at = subject.now();
    found(&subject, &holder, done, Found::Ours, "is held").await;
    marked(&subject, &DONE, &holder, length, done_at).await;

    // As long as the longest that is kept, but for what a request may have beside it; every character may be in it.
    let longest = subject.limits.longest_reply.min(64 * 1024);
    let reply = KeptReply::new(format!("json \"{}\"", "ä'\\\" ".repeat(longest / 16)));
    let leave = [Leave::Replied(length, reply.clone())];
    let holder = subject.newcomer();
    subject.granted(&holder).await;
    let replied = Release::held(0, &leave);
    let done_at = subject.now();
    found(&subject, &holder, replied, Found::Ours, "is held").await;
    let next = subject.rival(&holder);
    let answer = subject.acquire(&next, Attempt::default()).await;
    let over = relied_on_until(done_at, length);
    let is_given = matches!(&answer, Acquired::Done { reply: Some(given), .. } if *given == reply);
    REPLIED.holds(
        is_given || over < subject.now(),
        format!("work that was left with a reply was answered as {answer:?}"),
    );
    if matches!(answer, Acquired::Granted { .. }) {
        subject.release(&next, Release::whatever(true)).await;
    }

    let late = subject.newcomer();
    found(&subject, &late, done, Found::Nothing, "is gone").await;
    let next = subject.rival(&late);
    let grant = subject
        .granted_as(&KEEP_MARKS, &next, Attempt::default())
        .await;
    let kept = done.keeping_marks();
    found(&subject, &late, kept, Found::Another, "is another owner's").await;
    subject.busy(&MISMATCH, &late, &next, grant).await;
    subject.give_back(&next, grant.slot).await;
    let done_at = subject.now();
    subject.release(&late, kept).await;
    marked(&subject, &KEEP_MARKS, &late, length, done_at).await;
}

async fn marked(
    subject: &Subject<'_>,
    promise: &Promise,
    last: &Claimant,
    length: Duration,
    done_at: Instant,
) {
    let next = subject.rival(last);
    let over = relied_on_until(done_at, length);
    for (caller, wait) in [(&next, Duration::ZERO), (last, length), (&next, length)] {
        let answer = subject.acquire(caller, Attempt::again(wait)).await;
        let is_marked = matches!(answer, Acquired::Done { lock: 0, .. });
        if let Acquired::Done { since, .. } = answer {
            let now = SystemTime::now();
            let off = apart(since, now);
            SINCE.holds(
                off < CLOCKS_DIFFER + length,
                format!("what was done just now was told as done at {since:?}, and it is {now:?}"),
            );
        }
        promise.holds(
            is_marked || over < subject.now(),
            format!("work that is done for {length:?} was answered as {answer:?}"),
        );
        if !is_marked {
            subject.release(caller, Release::whatever(true)).await;
        }
    }
    nobodys(subject, promise, last, 0).await;
    let grant = subject.granted_after(promise, &next, over).await;
    subject.give_back(&next, grant.slot).await;
}
