//! Functions that are not async: their thread waits for the lease, runs the body, and waits until the lease is
//! given back.
//!
//! A body cannot be stopped here. It does not begin once its lease has ended; a loss that comes later is
//! answered after it.

use super::answer::{End, Judge, Verdict};
use super::ended::CallError;
use super::guarded::Guarded;
use super::within::weigh;
use super::{Entered, enter_keys};
use crate::acquire::CallOptions;
use crate::acquire::around::Under;
use crate::acquire::span::CallSpan;
use crate::client::Client;
use crate::key::{KeyError, Keys};

/// Takes the lease of a call on this thread.
pub fn enter_blocking<K: Into<Keys>>(
    client: Option<Client>,
    key: Result<K, KeyError>,
    options: CallOptions,
) -> Entered {
    enter_keys_blocking(client, key.map(K::into), options.blocking())
}

fn enter_keys_blocking(
    client: Option<Client>,
    keys: Result<Keys, KeyError>,
    options: CallOptions,
) -> Entered {
    match client.map_or_else(Client::current, Ok) {
        Ok(client) => {
            let keeper = &client.0.keeper.clone();
            keeper.block_on(enter_keys(Some(client), keys, options))
        }
        Err(error) => Entered::Down(CallError::new(error, options.site(), CallSpan::default())),
    }
}

/// A body that has not begun.
#[derive(Debug)]
pub struct Body<F>(F);

impl<T, F: FnOnce() -> T> Body<F> {
    /// As an argument the closure is known to run once: only such a one may return what it borrows through
    /// what it has captured.
    pub fn of(body: F) -> Self {
        Self(body)
    }

    /// What says which end its value is.
    pub fn verdict(&self) -> Verdict<T> {
        Verdict::new()
    }

    /// Runs a body that may end in a loss.
    ///
    /// # Errors
    /// The loss.
    pub fn run_within(self, lease: &Guarded, judge: Judge<T>) -> Result<T, CallError> {
        lease.check_loss().map_err(|lost| lease.lost(lost))?;
        match self.run_to_the_end(lease, judge) {
            (value, None) => Ok(value),
            (_, Some(lost)) => Err(lost),
        }
    }

    /// Runs a body, lease or not: `on_lost = continue`.
    pub fn run_to_the_end(self, lease: &Guarded, judge: Judge<T>) -> (T, Option<CallError>) {
        let _inside = lease.enter();
        let value = {
            let _under = Under::new(lease);
            (self.0)()
        };
        let lost = leave_blocking(lease, judge(&value, lease));
        (value, lost)
    }
}

/// Gives the lease of a body back, and waits until the store has confirmed that. The answer is a loss that is to
/// be answered in the place of the body's value.
fn leave_blocking(lease: &Guarded, end: End) -> Option<CallError> {
    if lease.is_past_own_end() {
        lease.count_own_end();
    }
    weigh(lease, lease.give_back_blocking(), end)
}

/// Runs a body, and answers with its value or that of a loss.
pub fn unless_lost_blocking<T, F: FnOnce() -> T>(
    body: Body<F>,
    lease: &Guarded,
    judge: Judge<T>,
    lost: fn(CallError) -> T,
) -> T {
    body.run_within(lease, judge).unwrap_or_else(lost)
}
