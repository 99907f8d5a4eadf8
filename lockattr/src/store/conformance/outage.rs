//! A store that cannot be reached.

use std::fmt::Debug;

use tokio::time::timeout;

use super::promise::{BOUND, UNKNOWN};
use super::subject::Subject;
use crate::store::{Attempt, Release, Reply, Store};

/// Of a store whose place cannot be reached, every step answers an error, and in time: it is never taken
/// to be busy, free or lost. No part of [`check`](super::check), since only its implementer can make
/// such a store.
pub async fn outage(store: &dyn Store) {
    let subject = Subject::new(store);
    let caller = subject.newcomer();
    let claim = caller.claim();
    fails(
        &subject,
        "acquire",
        store.acquire(claim, Attempt::default()),
    )
    .await;
    let release = Release::held(0, &[]);
    fails(&subject, "release", store.release(claim, release)).await;
    fails(&subject, "token", store.token(claim.held(0))).await;

    let leases = [claim.held(0)];
    let renewals = store.renew(&leases, subject.limits.longest_answer);
    let each: Reply<'_, _> = Box::pin(async {
        let answers = renewals.await?;
        answers.into_iter().collect::<Result<Vec<_>, _>>()
    });
    fails(&subject, "renew", each).await;
}

async fn fails<T: Debug>(subject: &Subject<'_>, step: &str, reply: Reply<'_, T>) {
    let longest = subject.limits.longest_answer;
    match timeout(longest, reply).await {
        Ok(Err(_)) => {}
        Ok(Ok(answer)) => UNKNOWN.broken(format!(
            "`{step}` of a store that cannot be reached has answered {answer:?}"
        )),
        Err(_) => BOUND.broken(format!("`{step}` has not answered after {longest:?}")),
    }
}
