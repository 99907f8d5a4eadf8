//! Another owner in the place of a lease's own: `take_over.lua` compares and writes in one step.
//!
//! Where a connection fails, the request is repeated once on a new one: the script recognises what it has done.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use redis::{Cmd, Value};

use super::fault::Fault;
use super::reply::found;
use super::script::Form;
use super::timeouts::Deadline;
use super::{Redis, millis};
use crate::error::StoreError;
use crate::owner;
use crate::store::{Acquired, Claim, Found, Held, Renewal, relied_on_until};

impl Redis {
    pub(super) async fn take_lease_over(
        &self,
        lease: Held<'_>,
        new_owner: &str,
    ) -> Result<Renewal, StoreError> {
        let mut deadline = self.deadline_of_two();
        let taken = match self.take_over_once(lease, new_owner, &mut deadline).await {
            Err(fault) if fault.is_transient() => {
                let in_doubt = fault.error.is_in_doubt();
                let again = self.take_over_once(lease, new_owner, &mut deadline).await;
                again.map_err(|fault| fault.after(in_doubt))
            }
            answer => answer,
        };
        taken.map_err(Fault::told)
    }

    /// Once, and with as many replicas as a grant needs.
    pub(super) async fn take_over_once(
        &self,
        lease: Held<'_>,
        new_owner: &str,
        deadline: &mut Deadline<'_>,
    ) -> Result<Renewal, Fault> {
        let call = |form: Form<'_>| take_over_call(form, &lease, new_owner);
        let script = &self.scripts.take_over;
        let answer = script.run_for(new_owner, &self.connections, call, deadline);
        let (answer, sent) = answer.await?;
        let renewal = taken_over(&answer, &lease, sent);
        let renewal = renewal.ok_or_else(|| self.protocol_error(&answer))?;
        if let Renewal::Until(until) = renewal {
            let claim = Claim {
                owner: new_owner,
                ..lease.claim
            };
            let granted = Acquired::granted(lease.slot, until);
            self.acknowledged(claim, granted).await?;
        }
        Ok(renewal)
    }
}

fn take_over_call(form: Form<'_>, lease: &Held<'_>, new_owner: &str) -> Cmd {
    let Claim {
        owner, ttl, locks, ..
    } = lease.claim;
    let since = owner::since(owner).unwrap_or_else(SystemTime::now);
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut command = form.call(locks, &[]);
    command
        .arg(owner)
        .arg(new_owner)
        .arg(millis(ttl))
        .arg(since.as_millis().to_string());
    if !lease.claim.sharing().is_alone() {
        command.arg("shares");
    }
    command
}

fn taken_over(answer: &Value, lease: &Held<'_>, sent: Instant) -> Option<Renewal> {
    Some(match found(answer)? {
        Found::Ours => Renewal::Until(relied_on_until(sent, lease.claim.ttl)),
        Found::Nothing => Renewal::Gone,
        Found::Another => Renewal::Taken,
    })
}
