//! What an expansion answers when its body did not run, or not to its end.
#![expect(
    clippy::needless_pass_by_value,
    reason = "an expansion hands its error over, whether or not the answer keeps it"
)]

use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::ended::CallError;
use super::guarded::Guarded;
use super::policy::{
    OnBusyError, OnBusyRerun, OnBusySkip, OnDoneError, OnDoneSkip, OnLostCancel,
    OnUnavailableError, OnUnavailableSkip,
};

/// `on_busy = skip`.
#[must_use]
pub fn busy_skip<R: OnBusySkip>(ended: CallError) -> R {
    ended.tell_busy();
    R::answer()
}

/// `on_busy = error`.
#[must_use]
pub fn busy_error<R: OnBusyError>(ended: CallError) -> R {
    ended.tell_busy();
    R::answer(ended.error)
}

/// `on_busy = rerun`, where another call waits.
#[must_use]
pub fn busy_rerun<R: OnBusyRerun>(ended: CallError) -> R {
    ended.tell_busy();
    R::answer()
}

/// `on_busy = return …`.
pub fn busy_return(ended: CallError) {
    ended.tell_busy();
}

/// `on_done = skip`.
#[must_use]
pub fn done_skip<R: OnDoneSkip>(ended: CallError) -> R {
    ended.tell_done();
    R::answer()
}

/// `on_done = error`.
#[must_use]
pub fn done_error<R: OnDoneError>(ended: CallError) -> R {
    ended.tell_done();
    R::answer(ended.error)
}

/// `on_done = return …`.
pub fn done_return(ended: CallError) {
    ended.tell_done();
}

/// `on_unavailable = skip`.
#[must_use]
pub fn down_skip<R: OnUnavailableSkip>(ended: CallError) -> R {
    ended.tell_down(false);
    R::answer()
}

/// `on_unavailable = error`.
#[must_use]
pub fn down_error<R: OnUnavailableError>(ended: CallError) -> R {
    ended.tell_down(R::CARRIES);
    R::answer(ended.error)
}

/// `on_unavailable = return …`.
pub fn down_return(ended: CallError) {
    ended.tell_down(false);
}

/// `on_lost = cancel`.
#[must_use]
pub fn lost_cancel<R: OnLostCancel>(ended: CallError) -> R {
    ended.tell_lost(R::CARRIES);
    R::answer(ended.error)
}

/// `on_lost = return …`.
pub fn lost_return(ended: CallError) {
    ended.tell_lost(false);
}

/// `on_lost = continue`.
pub fn lost_continue<R>((value, lost): (R, Option<CallError>)) -> R {
    if let Some(lost) = lost {
        lost.tell_went_on();
    }
    value
}

/// Runs a body that may end in a loss, and answers with its value or that of the loss.
pub fn unless_lost<R, F: Future<Output = Result<R, CallError>>>(
    run: Pin<&mut F>,
    lost: fn(CallError) -> R,
) -> impl Future<Output = R> {
    let answer = move |ended: Result<R, CallError>| ended.unwrap_or_else(lost);
    Answered { run, answer }
}

/// Runs a body, and makes the answer of what it ends in.
pub fn answered<R, F: Future>(
    run: Pin<&mut F>,
    answer: fn(F::Output) -> R,
) -> impl Future<Output = R> {
    Answered { run, answer }
}

struct Answered<'a, F, A> {
    run: Pin<&'a mut F>,
    answer: A,
}

impl<R, F: Future, A: Fn(F::Output) -> R + Unpin> Future for Answered<'_, F, A> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        self.run.as_mut().poll(cx).map(&self.answer)
    }
}

/// How a body came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With what it was called for: `Ok`, `Some`, and every value of other types. It leaves the mark
    /// of `once`, and is answered as lost where the lease ended before.
    Success,
    /// With `None`: no mark.
    Nothing,
    /// With `Err`: no mark, and the error stands where the lease ended before.
    Failure,
}

impl End {
    /// Leaves the mark.
    pub(super) fn success(lease: &Guarded) -> Self {
        lease.succeed(None);
        Self::Success
    }
}

/// Which end a body's value is. What that leaves is said to the lease.
pub type Judge<T> = fn(&T, &Guarded) -> End;

/// How values of a type end their body: `Verdict::<T>::new().__lockattr_judge()`.
///
/// The inherent method of a `Result`'s or `Option`'s verdict is found first, and that of every other
/// type through `Deref`, whatever traits are in scope.
#[derive(Debug)]
pub struct Verdict<T> {
    plain: Plain<T>,
}

/// The verdict of what is neither a `Result` nor an `Option`.
#[derive(Debug)]
pub struct Plain<T>(PhantomData<fn(T)>);

impl<T> Verdict<T> {
    pub(crate) const fn new() -> Self {
        Self {
            plain: Plain(PhantomData),
        }
    }
}

#[expect(clippy::unused_self, reason = "it is what method look-up chooses by")]
impl<T, E> Verdict<Result<T, E>> {
    /// The end that a value is.
    #[must_use]
    pub fn __lockattr_judge(&self) -> Judge<Result<T, E>> {
        |value, lease| match value {
            Ok(_) => End::success(lease),
            Err(_) => End::Failure,
        }
    }

    /// Whether a value is a failure.
    #[must_use]
    pub fn __lockattr_fails(&self) -> fn(&Result<T, E>) -> bool {
        Result::is_err
    }
}

#[expect(clippy::unused_self, reason = "it is what method look-up chooses by")]
impl<T> Verdict<Option<T>> {
    /// The end that a value is.
    #[must_use]
    pub fn __lockattr_judge(&self) -> Judge<Option<T>> {
        |value, lease| match value {
            Some(_) => End::success(lease),
            None => End::Nothing,
        }
    }
}

impl<T> Deref for Verdict<T> {
    type Target = Plain<T>;

    fn deref(&self) -> &Plain<T> {
        &self.plain
    }
}

#[expect(clippy::unused_self, reason = "it is what method look-up chooses by")]
impl<T> Plain<T> {
    /// A success, each of them.
    #[must_use]
    pub fn __lockattr_judge(&self) -> Judge<T> {
        |_, lease| End::success(lease)
    }

    /// None is a failure.
    #[must_use]
    pub fn __lockattr_fails(&self) -> fn(&T) -> bool {
        |_| false
    }
}
