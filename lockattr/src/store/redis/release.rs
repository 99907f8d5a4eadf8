//! Releasing: one script that compares the owner, leaves what is to be left and passes a free key on to
//! whoever has waited longest.
//!
//! A release that was sent may have been carried out also where its answer never came, so what a
//! repetition finds says something else of a lease than of a claim of which nothing is known.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use super::link::{Answer, Link};
use super::names::has_slots;
use super::pulse::Wait;
use super::reply::found;
use super::script::{Form, Lua};
use super::subscriber::Unclaimed;
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
        if release.may_queue {
            self.subscriber.gone(claim.owner);
        }
        let mut step = self.step();
        let call = self.release_call(self.scripts.release.by_hash(), &claim, &release);
        let answer = self.calls.ask(call, &mut step).await;
        let released = match answer.as_ref().ok().and_then(|(answer, _)| found(answer)) {
            Some(found) => Ok(found),
            None => Box::pin(self.release_on(claim, release, answer, &mut step)).await,
        };
        if release.may_queue && released.is_ok() {
            self.subscriber.forgotten(claim.owner);
        }
        released
    }

    /// Goes on where a first call has not said what was found.
    async fn release_on(
        &self,
        claim: Claim<'_>,
        release: Release<'_>,
        first: Answer,
        step: &mut Wait<'_>,
    ) -> Result<Found, StoreError> {
        let (calls, script) = (&self.calls, &self.scripts.release);
        let call = |form: Form<'_>| self.release_call(form, &claim, &release);
        let found = |answer: Answer| {
            let (answer, _) = answer?;
            found(&answer).ok_or_else(|| self.nonsense(&answer))
        };
        let released = match found(script.or_by_text(first, calls, call, step).await) {
            Err(fault) if fault.is_transient() => {
                let in_doubt = fault.error.is_in_doubt();
                match found(script.run(calls, call, step).await) {
                    // What was granted and is no longer there may have been removed by the first
                    // request.
                    Ok(_) if in_doubt && release.slot.is_some() => Ok(Found::Ours),
                    // What was not may yet be, by a request on the connection before.
                    Ok(_) if fault.silent => Err(fault),
                    again => again,
                }
            }
            answer => answer,
        };
        released.map_err(|fault| fault.error)
    }

    pub(super) fn release_call(
        &self,
        form: Form<'_>,
        claim: &Claim<'_>,
        release: &Release<'_>,
    ) -> Cmd {
        let keys = match release.slot {
            Some(slot) => self.names.held(&claim.held(slot)),
            None => self.names.wanted(claim),
        };
        let index = match release.slot {
            Some(slot) if has_slots(claim) => slot,
            _ => 0,
        };
        let mut command = match claim.locks {
            [lock] => form.call(&keys, &[self.names.queue(lock)]),
            _ => form.call(&keys, &self.names.queues(claim)),
        };
        command.arg(claim.owner);
        let is_first = keys.len() == 1 && index == 0;
        if is_first && release.leave.is_empty() && !release.may_queue {
            return command;
        }
        command.arg(keys.len()).arg(index);
        let entry = release.may_queue.then(|| self.names.entry(claim));
        command.arg(entry.unwrap_or_default());
        command.arg(if release.keep_marks { "keep" } else { "" });
        for leave in release.leave {
            match leave {
                Leave::Nothing => command.arg("").arg(0),
                Leave::Closed(length) => command.arg("closed").arg(millis(*length)),
                Leave::Done(length) => command.arg("done").arg(millis(*length)),
            };
        }
        command
    }
}

/// Gives back what was granted to a claim that nobody waits for any more.
pub(super) fn give_back_unclaimed(
    background: &Background,
    calls: &Link,
    release: &Arc<Lua>,
    bound: Duration,
) -> Box<dyn Fn(Unclaimed) + Send + Sync> {
    let (background, calls, release) = (background.clone(), calls.clone(), Arc::clone(release));
    Box::new(move |unclaimed| {
        let (calls, release) = (calls.clone(), Arc::clone(&release));
        let telling = background.clone();
        background.spawn(async move {
            let Unclaimed {
                lock,
                queue,
                owner,
                index,
            } = unclaimed;
            let keys = [lock, queue];
            let call = |form: Form<'_>| {
                let mut command = form.call(&keys, &[]);
                command.arg(&owner).arg(1).arg(index);
                command
            };
            let mut step = calls.step(bound);
            let released = release.run(&calls, call, &mut step).await;
            if let Err(fault) = released {
                let [lock, _] = keys;
                telling.tell(move || {
                    tracing::warn!(
                        target: "lockattr", lock, error = %fault.error,
                        "a lock that came too late could not be given back; it ends with its ttl"
                    );
                });
            }
        });
    })
}
