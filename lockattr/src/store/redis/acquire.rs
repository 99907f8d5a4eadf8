//! Acquiring: `SET … NX PX` where one key may be free, and a script for all else.
//!
//! The script recognises a grant of the same owner whose answer never came, so a request is sent once
//! more where a connection has failed. What an unanswered request may still do is left to
//! [`settled`](crate::store::Store::settled).

use redis::{Cmd, Value};

use super::fault::Fault;
use super::link::Answer;
use super::names::{has_slots, lock};
use super::pulse::Wait;
use super::reply::{Verdict, verdict};
use super::script::Form;
use super::{Redis, millis};
use crate::error::StoreError;
use crate::store::{Acquired, Attempt, Claim, relied_on_until};

impl Redis {
    pub(super) async fn acquire_locks(
        &self,
        claim: Claim<'_>,
        attempt: Attempt,
    ) -> Result<Acquired, StoreError> {
        let mut step = self.two_steps();
        let mut first = None;
        // Several locks take a script; the first of several slots does not.
        if !attempt.again && claim.locks.len() == 1 {
            let command = Self::set_call(&claim);
            let asked = self.calls.ask_for(claim.owner, command, &mut step);
            match asked.await {
                Ok((Value::Okay, sent)) => {
                    return Ok(Acquired::Granted {
                        slot: 0,
                        until: relied_on_until(sent, claim.ttl),
                        in_doubt: false,
                    });
                }
                answer => first = Some(answer),
            }
        }
        Box::pin(self.ask_on(claim, attempt, first, &mut step)).await
    }

    /// Goes on where the first command was not granted, or there was none.
    async fn ask_on(
        &self,
        claim: Claim<'_>,
        attempt: Attempt,
        first: Option<Answer>,
        step: &mut Wait<'_>,
    ) -> Result<Acquired, StoreError> {
        let first = match first {
            None | Some(Ok((Value::Nil, _))) => self.contend(claim, attempt, false, step).await,
            Some(Ok((other, _))) => Err(self.nonsense(&other)),
            Some(Err(fault)) => Err(fault),
        };
        let answer = match first {
            Err(fault) if fault.is_transient() => {
                let in_doubt = fault.error.is_in_doubt();
                self.contend(claim, attempt, in_doubt, step)
                    .await
                    .map_err(|fault| fault.after(in_doubt))
            }
            answer => answer,
        };
        answer.map_err(|fault| fault.error)
    }

    async fn contend(
        &self,
        claim: Claim<'_>,
        attempt: Attempt,
        in_doubt: bool,
        step: &mut Wait<'_>,
    ) -> Result<Acquired, Fault> {
        let heard = !attempt.wait.is_zero()
            && self
                .subscriber
                .hears(claim.owner, attempt.wait, &self.calls)
                .await;
        let call = |form: Form<'_>| self.contend_call(form, &claim, attempt);
        let contend = &self.scripts.contend;
        let (answer, sent) = contend
            .run_for(claim.owner, &self.calls, call, step)
            .await?;
        let Verdict {
            mut acquired,
            server,
        } = verdict(&answer, &claim, sent, in_doubt).ok_or_else(|| self.nonsense(&answer))?;
        // Of several locks one is given at a time, which is no grant yet: the owner has to look.
        let one_is_all = claim.locks.len() == 1;
        if let Some(server) = server {
            self.subscriber
                .answered(claim.owner, sent, server, one_is_all);
        }
        if let Acquired::Busy { place, .. } = &mut acquired {
            match place {
                Some(place) if heard => self.subscriber.queued(claim.owner, *place),
                // It stands in the queue, but would be passed over.
                _ => *place = None,
            }
        }
        Ok(acquired)
    }

    /// What takes a lock that is free, or the first of its slots.
    pub(super) fn set_call(claim: &Claim<'_>) -> Cmd {
        let key = lock(claim);
        let mut command = Cmd::with_capacity(6, key.len() + claim.owner.len() + 32);
        command
            .arg("SET")
            .arg(key)
            .arg(claim.owner)
            .arg("NX")
            .arg("PX")
            .arg(millis(claim.ttl));
        command
    }

    pub(super) fn contend_call(&self, form: Form<'_>, claim: &Claim<'_>, attempt: Attempt) -> Cmd {
        let mut command = form.call(&self.names.wanted(claim), &self.names.queues(claim));
        command.arg(claim.owner).arg(millis(claim.ttl));
        command.arg(if has_slots(claim) { "any" } else { "all" });
        // One that has never waited stands in no queue.
        if !attempt.wait.is_zero() || attempt.again {
            command.arg(self.names.entry(claim));
            command.arg(millis(attempt.wait));
        }
        command
    }
}
