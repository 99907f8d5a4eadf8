//! Fencing tokens: `token.lua` draws one after it has found the owner under every key of the lease.
//!
//! Where a connection fails, the token is drawn once more: it is merely larger. Remembering a token is
//! left to the caller.

use std::time::Duration;

use redis::Cmd;

use super::fault::Fault;
use super::reply::token;
use super::script::Form;
use super::timeouts::Deadline;
use super::{Redis, millis};
use crate::store::{Held, Token};

/// How long a token counter outlives the last token. Without the counter, tokens grow by the server's
/// clock alone, so it has to last longer than that clock may be set back.
const COUNTER_TTL: Duration = Duration::from_secs(24 * 60 * 60);

impl Redis {
    pub(super) async fn draw_token(&self, lease: Held<'_>) -> Result<Token, Fault> {
        let mut deadline = self.deadline_of_two();
        match self.draw_once(lease, &mut deadline).await {
            Err(fault) if fault.is_transient() => self.draw_once(lease, &mut deadline).await,
            answer => answer,
        }
    }

    pub(super) async fn draw_once(
        &self,
        lease: Held<'_>,
        deadline: &mut Deadline<'_>,
    ) -> Result<Token, Fault> {
        let call = |form: Form<'_>| self.token_call(form, &lease);
        let script = &self.scripts.token;
        let (answer, _) = script.run(&self.connections, call, deadline).await?;
        token(&answer).ok_or_else(|| self.protocol_error(&answer))
    }

    pub(super) fn token_call(&self, form: Form<'_>, lease: &Held<'_>) -> Cmd {
        let locks = lease.claim.locks;
        let counters = locks.iter().map(|lock| self.names.counter(lock));
        let keys: Vec<_> = locks.iter().cloned().chain(counters).collect();
        let mut command = form.call(&keys, &[]);
        command
            .arg(lease.claim.owner)
            .arg(millis(COUNTER_TTL))
            .arg(locks.len());
        let shares = !lease.claim.sharing().is_alone();
        if lease.at_least > 0 || shares {
            command.arg(lease.at_least);
        }
        if shares {
            command.arg("shares");
        }
        command
    }
}
