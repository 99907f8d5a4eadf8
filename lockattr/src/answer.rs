//! What an expansion answers when its body did not run, or not to its end, and what the log is told.
#![expect(
    clippy::needless_pass_by_value,
    reason = "an expansion hands its error over, whether or not the answer keeps it"
)]

use std::ops::Deref;

use crate::error::Error;
use crate::policy::{OnBusyError, OnBusySkip, OnLostCancel, OnUnavailableError, OnUnavailableSkip};

/// `on_busy = skip`.
#[must_use]
pub fn busy_skip<R: OnBusySkip>(error: Error) -> R {
    tell_busy(&error);
    R::answer()
}

/// `on_busy = error`.
#[must_use]
pub fn busy_error<R: OnBusyError>(error: Error) -> R {
    tell_busy(&error);
    R::answer(error)
}

/// `on_busy = return …`.
pub fn busy_return(error: Error) {
    tell_busy(&error);
}

/// `on_unavailable = skip`.
#[must_use]
pub fn down_skip<R: OnUnavailableSkip>(error: Error) -> R {
    tell_down(&error);
    R::answer()
}

/// `on_unavailable = error`.
#[must_use]
pub fn down_error<R: OnUnavailableError>(error: Error) -> R {
    if R::CARRIES {
        tracing::warn!(%error, "{NOT_RUN}");
    } else {
        tell_down(&error);
    }
    R::answer(error)
}

/// `on_unavailable = return …`.
pub fn down_return(error: Error) {
    tell_down(&error);
}

/// `on_lost = cancel`.
#[must_use]
pub fn lost_cancel<R: OnLostCancel>(error: Error) -> R {
    if R::CARRIES {
        tracing::warn!(%error, "{STOPPED}");
    } else {
        tell_lost(&error);
    }
    R::answer(error)
}

/// `on_lost = return …`.
pub fn lost_return(error: Error) {
    tell_lost(&error);
}

/// `on_lost = continue`.
pub fn lost_continue(error: Error) {
    tracing::warn!(%error, "a locked function went on after its lease had ended");
}

const NOT_RUN: &str = "a locked function did not run";
const STOPPED: &str = "a locked function was stopped: its lease had ended";

fn tell_busy(error: &Error) {
    tracing::debug!(%error, "a locked function did not run: its key is busy");
}

/// For answers that do not tell the caller: the log is the only place that does.
fn tell_down(error: &Error) {
    tracing::error!(%error, "{NOT_RUN}");
}

/// For answers that do not tell the caller: the log is the only place that does.
fn tell_lost(error: &Error) {
    tracing::error!(%error, "{STOPPED}");
}

/// Whether a body's value is an error: `Verdict(&value).__lockattr_is_err()`.
///
/// The inherent method of a `Result`'s verdict is found first, and that of every other type
/// through `Deref`, whatever traits are in scope.
#[derive(Debug)]
pub struct Verdict<'a, T: ?Sized>(pub &'a T);

/// The verdict of what is not a `Result`.
#[derive(Debug)]
pub struct NoError;

impl<T, E> Verdict<'_, Result<T, E>> {
    /// Whether it is an error.
    #[must_use]
    pub fn __lockattr_is_err(&self) -> bool {
        self.0.is_err()
    }
}

impl<T: ?Sized> Deref for Verdict<'_, T> {
    type Target = NoError;

    fn deref(&self) -> &NoError {
        &NoError
    }
}

impl NoError {
    /// It is none.
    #[must_use]
    #[expect(
        clippy::unused_self,
        reason = "called as the method of a `Result`'s verdict is"
    )]
    pub fn __lockattr_is_err(&self) -> bool {
        false
    }
}
