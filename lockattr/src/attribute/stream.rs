//! Functions that return a stream: the lease is taken when the stream is polled first, and held until it ends or
//! is dropped.
//!
//! An expansion runs the stream as the body of a future, as it runs any other body. What the body yields goes
//! through a slot to whoever polls, past everything that is around it.

use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_core::Stream;

use super::answer::{End, Judge, Verdict};
use super::ended::CallError;
use super::policy::{
    Fail, OnBusyErrorItem, OnDoneErrorItem, OnLostCancelItem, OnUnavailableErrorItem, Skip,
};

/// The item that was yielded and has not been taken.
#[derive(Debug)]
pub struct Slot<T>(Arc<Mutex<Option<T>>>);

impl<T> Slot<T> {
    /// A slot for the items of a stream.
    #[must_use]
    pub fn of<S: Stream<Item = T>>(_: &S) -> Self {
        Self(Arc::default())
    }

    /// Puts an item there, and has whoever polls take it.
    fn put(&self, item: T) {
        let before = self.change(|slot| slot.replace(item));
        drop(before);
    }

    fn take(&self) -> Option<T> {
        self.change(Option::take)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Option<T>) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// What a stream's body comes to.
#[derive(Debug)]
pub struct Ended<T> {
    /// What is yielded before the end.
    last: Option<T>,
    /// Whether the body has yielded an error.
    has_failed: bool,
}

impl<T> Ended<T> {
    /// With an item, and no body.
    pub fn with(item: T) -> Self {
        Self {
            last: Some(item),
            has_failed: false,
        }
    }
}

/// An empty stream.
impl<T> Skip for Ended<T> {
    fn skip() -> Self {
        Self {
            last: None,
            has_failed: false,
        }
    }
}

#[expect(clippy::unused_self, reason = "it is what method look-up chooses by")]
impl<T> Verdict<Ended<T>> {
    /// The end that a value is.
    #[must_use]
    pub fn __lockattr_judge(&self) -> Judge<Ended<T>> {
        |ended, lease| {
            if ended.has_failed {
                End::Failure
            } else {
                End::success(lease)
            }
        }
    }
}

/// A stream of items of this type.
pub fn stream_of<T, S: Stream<Item = T>>(stream: S) -> impl Stream<Item = T> {
    stream
}

/// Yields all items of a stream.
pub async fn pass_on<S: Stream>(
    stream: S,
    slot: Slot<S::Item>,
    fails: fn(&S::Item) -> bool,
) -> Ended<S::Item> {
    let mut stream = pin!(stream);
    let mut has_failed = false;
    poll_fn(|cx| match stream.as_mut().poll_next(cx) {
        Poll::Ready(Some(item)) => {
            has_failed |= fails(&item);
            slot.put(item);
            // Who polls finds it in the slot, and polls again for the next one.
            Poll::Pending
        }
        Poll::Ready(None) => Poll::Ready(()),
        Poll::Pending => Poll::Pending,
    })
    .await;
    Ended {
        last: None,
        has_failed,
    }
}

/// The stream of what a call's future yields.
pub fn locked_stream<T, F: Future<Output = Ended<T>>>(
    slot: Slot<T>,
    call: F,
) -> LockedStream<T, F> {
    LockedStream {
        call: Some(Box::pin(call)),
        slot,
    }
}

/// A stream under its lock.
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct LockedStream<T, F> {
    /// Until it has ended.
    call: Option<Pin<Box<F>>>,
    slot: Slot<T>,
}

/// The items are not pinned by it.
impl<T, F> Unpin for LockedStream<T, F> {}

impl<T, F: Future<Output = Ended<T>>> Stream for LockedStream<T, F> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let Some(call) = &mut self.call else {
            return Poll::Ready(None);
        };
        match call.as_mut().poll(cx) {
            Poll::Ready(ended) => {
                self.call = None;
                Poll::Ready(ended.last)
            }
            Poll::Pending => self
                .slot
                .take()
                .map_or(Poll::Pending, |item| Poll::Ready(Some(item))),
        }
    }
}

/// How a stream of such items tells what its lock ended in, chosen by method look-up as a `Verdict` is.
///
/// A `Result` that cannot carry the error does not compile. Other types that can, do so; and for the rest
/// the stream ends.
#[derive(Debug)]
pub struct Items<T> {
    carrying: Carrying<T>,
}

/// Items that are no `Result`.
#[derive(Debug)]
pub struct Carrying<T> {
    plain: PlainItems<T>,
}

/// Items that carry no error.
#[derive(Debug)]
pub struct PlainItems<T>(PhantomData<fn(T)>);

impl<T> Items<T> {
    /// Those of a stream.
    #[must_use]
    pub fn of<S: Stream<Item = T>>(_: &S) -> Self {
        let plain = PlainItems(PhantomData);
        let carrying = Carrying { plain };
        Self { carrying }
    }

    /// No value, of the type that a body comes to.
    #[must_use]
    pub fn none(self) -> Option<Ended<T>> {
        None
    }

    /// What says whether an item is an error.
    #[must_use]
    pub fn verdict(self) -> Verdict<T> {
        Verdict::new()
    }
}

impl<T> Clone for Items<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Items<T> {}

impl<T> Clone for Carrying<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Carrying<T> {}

impl<T> Clone for PlainItems<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for PlainItems<T> {}

impl<T> Deref for Items<T> {
    type Target = Carrying<T>;

    fn deref(&self) -> &Carrying<T> {
        &self.carrying
    }
}

impl<T> Deref for Carrying<T> {
    type Target = PlainItems<T>;

    fn deref(&self) -> &PlainItems<T> {
        &self.plain
    }
}

impl<T, E> Items<Result<T, E>> {
    /// `on_unavailable = error`.
    #[must_use]
    pub fn __lockattr_down(self) -> fn(CallError) -> Ended<Result<T, E>>
    where
        Result<T, E>: OnUnavailableErrorItem,
    {
        down_error_item
    }

    /// `on_lost = cancel`.
    #[must_use]
    pub fn __lockattr_lost(self) -> fn(CallError) -> Ended<Result<T, E>>
    where
        Result<T, E>: OnLostCancelItem,
    {
        lost_cancel_item
    }
}

#[expect(clippy::unused_self, reason = "it is what method look-up chooses by")]
impl<T: Fail> Carrying<T> {
    /// `on_unavailable = error`.
    #[must_use]
    pub fn __lockattr_down(self) -> fn(CallError) -> Ended<T> {
        down_error_item
    }

    /// `on_lost = cancel`.
    #[must_use]
    pub fn __lockattr_lost(self) -> fn(CallError) -> Ended<T> {
        lost_cancel_item
    }
}

#[expect(clippy::unused_self, reason = "it is what method look-up chooses by")]
impl<T> PlainItems<T> {
    /// `on_unavailable = error`.
    #[must_use]
    pub fn __lockattr_down(self) -> fn(CallError) -> Ended<T> {
        |ended| {
            ended.tell_down(false);
            Ended::skip()
        }
    }

    /// `on_lost = cancel`.
    #[must_use]
    pub fn __lockattr_lost(self) -> fn(CallError) -> Ended<T> {
        |ended| {
            ended.tell_lost(false);
            Ended::skip()
        }
    }
}

fn down_error_item<T: OnUnavailableErrorItem>(ended: CallError) -> Ended<T> {
    ended.tell_down(true);
    Ended::with(T::item(ended.error))
}

fn lost_cancel_item<T: OnLostCancelItem>(ended: CallError) -> Ended<T> {
    ended.tell_lost(true);
    Ended::with(T::item(ended.error))
}

/// `on_busy = error`.
#[must_use]
pub fn busy_error_item<T: OnBusyErrorItem>(ended: CallError) -> Ended<T> {
    ended.tell_busy();
    Ended::with(T::item(ended.error))
}

/// `on_done = error`.
#[must_use]
pub fn done_error_item<T: OnDoneErrorItem>(ended: CallError) -> Ended<T> {
    ended.tell_done();
    Ended::with(T::item(ended.error))
}
