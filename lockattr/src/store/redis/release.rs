//! Releasing: `release.lua`, a compare-and-delete that leaves marks and passes a free key on to the next
//! waiter.
//!
//! Where a connection fails, the request is repeated once on a new one. The first request may have been
//! carried out, so a lease that is not found by the second counts as released by the first. Of a claim
//! that was never answered nothing is known, and what the second request finds is the answer. Further
//! repetitions are left to the caller.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use super::connections::{Answer, Connections};
use super::fault::Fault;
use super::names::Names;
use super::reply::found;
use super::script::{Form, Lua};
use super::timeouts::Deadline;
use super::wakeups::UnclaimedGrant;
use super::{Redis, millis};
use crate::error::StoreError;
use crate::runtime::background::Background;
use crate::store::{Claim, Found, Leave, Release};

impl Redis {
    pub(super) async fn release_locks(
        &self,
        claim: Claim<'_>,
        release: Release<'_>,
    ) -> Result<Found, StoreError> {
        let mut deadline = self.deadline();
        let released = match self.release_once(claim, release, &mut deadline).await {
            Err(fault) if fault.is_transient() => {
                let again = Box::pin(self.release_once(claim, release, &mut deadline));
                after_failed(&fault, &release, again.await)
            }
            answer => answer,
        };
        released.map_err(Fault::told)
    }

    pub(super) async fn release_once(
        &self,
        claim: Claim<'_>,
        release: Release<'_>,
        deadline: &mut Deadline<'_>,
    ) -> Result<Found, Fault> {
        if release.may_queue {
            self.subscriber.withdraw(claim.owner);
        }
        let call = self.release_call(self.scripts.release.by_hash(), &claim, &release);
        let answer = self.connections.ask(call, deadline).await;
        let released = match answer.as_ref().ok().and_then(|(answer, _)| found(answer)) {
            Some(found) => Ok(found),
            None => Box::pin(self.release_on(claim, release, answer, deadline)).await,
        };
        if released.is_ok() {
            if release.may_queue {
                self.subscriber.left_queue(claim.owner);
            }
            if let Some(recent) = &self.recent_releases {
                recent.add(&claim, &release);
            }
        }
        released
    }

    /// Goes on where the call by hash has not told what was found.
    async fn release_on(
        &self,
        claim: Claim<'_>,
        release: Release<'_>,
        first: Answer,
        deadline: &mut Deadline<'_>,
    ) -> Result<Found, Fault> {
        let call = |form: Form<'_>| self.release_call(form, &claim, &release);
        let script = &self.scripts.release;
        let (answer, _) = script
            .or_by_text(first, &self.connections, call, deadline)
            .await?;
        found(&answer).ok_or_else(|| self.protocol_error(&answer))
    }

    pub(super) fn release_call(
        &self,
        form: Form<'_>,
        claim: &Claim<'_>,
        release: &Release<'_>,
    ) -> Cmd {
        call(&self.names, self.without_queues, form, claim, release)
    }
}

/// The call of the script.
pub(super) fn call(
    names: &Names,
    without_queues: bool,
    form: Form<'_>,
    claim: &Claim<'_>,
    release: &Release<'_>,
) -> Cmd {
    let mut command = match claim.locks {
        locks if without_queues => form.call(locks, &[]),
        locks @ [lock] => form.call(locks, &[names.queue(lock)]),
        locks => form.call(locks, &names.queues(claim)),
    };
    command.arg(claim.owner);
    let is_short = claim.locks.len() == 1 && claim.sharing().is_alone();
    let may_queue = release.may_queue && !without_queues;
    if is_short && release.leave.is_empty() && !may_queue {
        return command;
    }
    command.arg(claim.locks.len());
    command.arg(if claim.sharing().is_alone() {
        ""
    } else {
        "shares"
    });
    let entry = may_queue.then(|| names.entry(claim));
    command.arg(entry.unwrap_or_default());
    command.arg(if release.keep_marks { "keep" } else { "" });
    for leave in release.leave {
        match leave {
            Leave::Nothing => command.arg("").arg(0),
            Leave::Closed(length) => command.arg("closed").arg(millis(*length)),
            Leave::Done(length) => command.arg("done").arg(millis(*length)),
            Leave::Replied(length, reply) => {
                command
                    .arg("done")
                    .arg(format!("{} {}", millis(*length), reply.as_str()))
            }
        };
    }
    command
}

/// What a release has found that was asked again after the first request had failed.
pub(super) fn after_failed(
    first: &Fault,
    release: &Release<'_>,
    again: Result<Found, Fault>,
) -> Result<Found, Fault> {
    let in_doubt = first.error.is_in_doubt();
    match again {
        // A lease that is not there any more may have been released by the first request.
        Ok(_) if in_doubt && release.slot.is_some() => Ok(Found::Ours),
        // The first request may still be on its way, so this is not the last word.
        Ok(_) if first.silent => Err(first.clone()),
        again => again.map_err(|fault| fault.after(in_doubt)),
    }
}

/// Gives back a grant to a claim that nobody waits for any more.
pub(super) fn give_back_unclaimed(
    background: &Background,
    connections: &Connections,
    release: &Arc<Lua>,
    bound: Duration,
) -> Box<dyn Fn(UnclaimedGrant) + Send + Sync> {
    let (background, connections) = (background.clone(), connections.clone());
    let release = Arc::clone(release);
    Box::new(move |unclaimed| {
        let (connections, release) = (connections.clone(), Arc::clone(&release));
        let telling = background.clone();
        background.spawn(async move {
            let UnclaimedGrant { key, queue, owner } = unclaimed;
            let keys = [key, queue];
            let call = |form: Form<'_>| {
                let mut command = form.call(&keys, &[]);
                command.arg(&owner);
                command
            };
            let mut deadline = connections.deadline(bound);
            let released = release.run(&connections, call, &mut deadline).await;
            // Without the key: whether its call is redacted is not known any more.
            if let Err(fault) = released {
                telling.tell(move || {
                    tracing::warn!(
                        target: "lockattr", error = %fault.error,
                        "a lock that came too late could not be given back; it ends with its ttl"
                    );
                });
            }
        });
    })
}
