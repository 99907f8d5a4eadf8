//! Fencing tokens: drawn by a script that checks every key of the lease first.

use std::time::Duration;

use redis::Cmd;

use super::pulse::Wait;
use super::reply::token;
use super::script::Form;
use super::{Redis, millis};
use crate::error::StoreError;
use crate::store::{Held, Token};

/// How long a token counter outlives the last token drawn. Without the counter the server's clock
/// alone makes tokens grow, so it has to last longer than any step back that this clock may make.
const COUNTER_TTL: Duration = Duration::from_secs(24 * 60 * 60);

impl Redis {
    pub(super) async fn draw_token(&self, lease: Held<'_>) -> Result<Token, StoreError> {
        let mut step = self.two_steps();
        let draw = async |step: &mut Wait<'_>| {
            let call = |form: Form<'_>| self.token_call(form, &lease);
            self.scripts.token.run(&self.calls, call, step).await
        };
        let answer = match draw(&mut step).await {
            // A token drawn twice is merely a larger one.
            Err(fault) if fault.is_transient() => draw(&mut step).await,
            answer => answer,
        };
        let (answer, _) = answer.map_err(|fault| fault.error)?;
        token(&answer).ok_or_else(|| self.nonsense(&answer).error)
    }

    pub(super) fn token_call(&self, form: Form<'_>, lease: &Held<'_>) -> Cmd {
        let held = self.names.held(lease);
        let locks = lease.claim.locks.iter();
        let counters = locks.map(|lock| self.names.counter(lock));
        let keys: Vec<_> = held.iter().cloned().chain(counters).collect();
        let mut command = form.call(&keys, &[]);
        command
            .arg(lease.claim.owner)
            .arg(millis(COUNTER_TTL))
            .arg(held.len());
        command
    }
}
