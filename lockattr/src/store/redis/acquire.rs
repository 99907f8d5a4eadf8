//! Acquiring: `SET … NX PX` where one lock may be free that is wanted alone, `share.lua` for a lock that others may
//! hold beside the claim, and `contend.lua` for everything else.
//!
//! Where a connection fails, the request is repeated once on a new one: the script recognises a grant to
//! the same owner whose answer never came. A request that was not answered is tracked by `unanswered`;
//! giving back what it may still acquire is left to the caller.

use std::time::SystemTime;

use redis::{Cmd, Value};

use super::fault::Fault;
use super::names::{lock, wish};
use super::reply::{Outcome, outcome};
use super::script::Form;
use super::timeouts::Deadline;
use super::{Redis, millis, stored};
use crate::error::StoreError;
use crate::store::{Acquired, Attempt, Claim, relied_on_until};

impl Redis {
    pub(super) async fn acquire_locks(
        &self,
        claim: Claim<'_>,
        attempt: Attempt,
    ) -> Result<Acquired, StoreError> {
        let mut deadline = self.deadline_of_two();
        if self.acknowledgements.is_none() {
            return match self.acquire_once(claim, attempt, &mut deadline).await {
                Ok(acquired) => Ok(acquired),
                Err(fault) => {
                    let again = self.acquire_again(claim, attempt, fault, &mut deadline);
                    Box::pin(again).await.map_err(Fault::told)
                }
            };
        }
        let acknowledged = Box::pin(async {
            self.check_ttl(&claim)?;
            let acquired = match self.acquire_once(claim, attempt, &mut deadline).await {
                Ok(acquired) => acquired,
                Err(fault) => {
                    self.acquire_again(claim, attempt, fault, &mut deadline)
                        .await?
                }
            };
            self.acknowledged(claim, acquired).await
        });
        acknowledged.await.map_err(Fault::told)
    }

    /// Refuses a claim that would have ended before its grant counts.
    fn check_ttl(&self, claim: &Claim<'_>) -> Result<(), Fault> {
        match &self.acknowledgements {
            Some(acknowledgements) => acknowledgements
                .refuse_short(claim.ttl)
                .map_err(Fault::last),
            None => Ok(()),
        }
    }

    /// Passes an answer on once enough replicas have what it grants.
    pub(super) async fn acknowledged(
        &self,
        claim: Claim<'_>,
        acquired: Acquired,
    ) -> Result<Acquired, Fault> {
        if let (Some(acknowledgements), Acquired::Granted { slot, .. }) =
            (&self.acknowledgements, &acquired)
        {
            let held = claim.held(*slot);
            let asking = self.is_asking();
            let acknowledged = acknowledgements.acknowledge(&held, asking);
            Box::pin(acknowledged).await?;
        }
        Ok(acquired)
    }

    /// Goes on after a fault, on a new connection where that may help.
    async fn acquire_again(
        &self,
        claim: Claim<'_>,
        attempt: Attempt,
        fault: Fault,
        deadline: &mut Deadline<'_>,
    ) -> Result<Acquired, Fault> {
        if !fault.is_transient() {
            return Err(fault);
        }
        let in_doubt = fault.error.is_in_doubt();
        let answer = self.contend(claim, attempt, in_doubt, deadline).await;
        answer.map_err(|fault| fault.after(in_doubt))
    }

    pub(super) async fn acquire_once(
        &self,
        claim: Claim<'_>,
        attempt: Attempt,
        deadline: &mut Deadline<'_>,
    ) -> Result<Acquired, Fault> {
        // `SET` takes one key. Several locks need the script.
        if !attempt.again && claim.locks.len() == 1 && claim.sharing().is_alone() {
            let command = Self::set_call(&claim);
            let asked = self.connections.ask_for(claim.owner, command, deadline);
            match asked.await? {
                (Value::Okay, sent) => {
                    return Ok(Acquired::Granted {
                        slot: 0,
                        until: relied_on_until(sent, claim.ttl),
                        in_doubt: false,
                    });
                }
                (Value::Nil, _) => {}
                (other, _) => return Err(self.protocol_error(&other)),
            }
        }
        Box::pin(self.contend(claim, attempt, false, deadline)).await
    }

    /// Asks by the script, which may put the claim into a queue.
    pub(super) async fn contend(
        &self,
        claim: Claim<'_>,
        attempt: Attempt,
        in_doubt: bool,
        deadline: &mut Deadline<'_>,
    ) -> Result<Acquired, Fault> {
        let will_be_told = !attempt.wait.is_zero()
            && !self.without_queues
            && self
                .subscriber
                .will_be_told(claim.owner, attempt.wait, &self.connections)
                .await;
        let call = |form: Form<'_>| self.contend_call(form, &claim, attempt);
        let script = if claim.sharing().is_alone() {
            &self.scripts.contend
        } else {
            &self.scripts.share
        };
        let (answer, sent) = script
            .run_for(claim.owner, &self.connections, call, deadline)
            .await?;
        let Outcome {
            mut acquired,
            server_micros,
        } = outcome(&answer, &claim, sent, in_doubt).ok_or_else(|| self.protocol_error(&answer))?;
        if let Some(server_micros) = server_micros {
            // Several locks are passed on one at a time. One of them is not the grant of the claim, so
            // that the claim has to ask, and no lease counts from the message. No more does one that
            // replicas have not acknowledged.
            let counts = claim.locks.len() == 1 && self.acknowledgements.is_none();
            let sent = counts.then_some(sent);
            self.subscriber.answered(claim.owner, server_micros, sent);
        }
        if let Acquired::Busy { place, .. } = &mut acquired {
            if attempt.again && attempt.wait.is_zero() {
                // It is out of the queue now, but for a replica that lacks this and takes the server's place.
                self.subscriber.withdraw(claim.owner);
                self.subscriber.left_queue(claim.owner);
            }
            match place {
                Some(place) if will_be_told => self.subscriber.queued(claim.owner, *place),
                // A claim that cannot be told is passed over when its turn comes.
                _ => *place = None,
            }
        }
        Ok(acquired)
    }

    /// Takes a lock that is free, alone.
    pub(super) fn set_call(claim: &Claim<'_>) -> Cmd {
        let key = lock(claim);
        let value = stored::uncontended(claim, SystemTime::now());
        let mut command = Cmd::with_capacity(6, key.len() + value.len() + 32);
        command
            .arg("SET")
            .arg(key)
            .arg(&*value)
            .arg("NX")
            .arg("PX")
            .arg(millis(claim.ttl));
        command
    }

    pub(super) fn contend_call(&self, form: Form<'_>, claim: &Claim<'_>, attempt: Attempt) -> Cmd {
        let queues = if self.without_queues {
            Vec::new()
        } else {
            self.names.queues(claim)
        };
        let mut command = form.call(claim.locks, &queues);
        command.arg(claim.owner).arg(millis(claim.ttl));
        if !claim.sharing().is_alone() {
            command.arg(&*wish(claim));
        }
        if self.without_queues {
            return command;
        }
        // A claim that has never waited is in no queue.
        if !attempt.wait.is_zero() || attempt.again {
            command.arg(self.names.entry(claim));
            command.arg(millis(attempt.wait));
        }
        command
    }
}
