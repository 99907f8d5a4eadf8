//! The body of a locked function: polled while its lease runs, and the lease given back after it.

use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use super::answer::{End, Judge, Verdict};
use super::ended::CallError;
use super::guarded::Guarded;
use crate::acquire::around::Under;
use crate::error::{Error, LossCause};
use crate::lease::Lease;

/// How a body is run and its lease given back, by what its value allows.
///
/// A value that is `Send` waits until the store has confirmed the release. One that is not would
/// make the future of the whole call not `Send` by waiting, so its lease is given back in the
/// background, and its end is only known where it is by then.
///
/// The choice is made by method lookup: the methods below exist for values that are `Send`, and
/// lookup goes on to `InBackground` for the others.
#[derive(Debug)]
pub struct Ending<T> {
    in_background: InBackground,
    /// Not of the value itself: this lives while the body is awaited.
    value: PhantomData<fn() -> T>,
}

/// The way of values that are not `Send`.
#[derive(Debug)]
pub struct InBackground;

impl<T> Ending<T> {
    /// The ending of a body.
    #[must_use]
    pub fn of<F: Future<Output = T>>(_: &Pin<&mut F>) -> Self {
        Self {
            in_background: InBackground,
            value: PhantomData,
        }
    }

    /// What says which end a value is.
    #[must_use]
    pub fn verdict(&self) -> Verdict<T> {
        Verdict::new()
    }
}

impl<T> Deref for Ending<T> {
    type Target = InBackground;

    fn deref(&self) -> &InBackground {
        &self.in_background
    }
}

impl<T: Send> Ending<T> {
    /// Stops polling the body once the lease has ended. `judge` says what its value is.
    pub fn __lockattr_within<'a, F: Future<Output = T>, L: Leaving>(
        &self,
        lease: &'a Guarded,
        body: Pin<&'a mut F>,
        leaving: Pin<&'a mut L>,
        judge: Judge<T>,
    ) -> impl Future<Output = Result<T, CallError>> + use<'a, T, F, L> {
        Within {
            body,
            watch: Some(Watch::new(lease)),
            rest: Rest::new(lease, leaving, judge),
        }
    }

    /// Polls the body to its end, lease or not: `on_lost = continue`.
    pub fn __lockattr_to_the_end<'a, F: Future<Output = T>, L: Leaving>(
        &self,
        lease: &'a Guarded,
        body: Pin<&'a mut F>,
        leaving: Pin<&'a mut L>,
        judge: Judge<T>,
    ) -> impl Future<Output = (T, Option<CallError>)> + use<'a, T, F, L> {
        ToTheEnd {
            body,
            rest: Rest::new(lease, leaving, judge),
        }
    }
}

#[expect(clippy::unused_self, reason = "it is what method look-up chooses by")]
impl InBackground {
    /// Stops polling the body once the lease has ended. `judge` says what its value is.
    pub fn __lockattr_within<'a, F: Future, L: Leaving>(
        &self,
        lease: &'a Guarded,
        mut body: Pin<&'a mut F>,
        _: Pin<&'a mut L>,
        judge: Judge<F::Output>,
    ) -> impl Future<Output = Result<F::Output, CallError>> + use<'a, F, L> {
        let watch = Watch::new(lease);
        async move {
            let mut watch = watch;
            let polled = |cx: &mut Context<'_>| {
                let _inside = lease.enter();
                watch.poll_body(body.as_mut(), cx)
            };
            let value = poll_fn(polled).await?;
            match begin_to_leave(lease, judge(&value, lease)) {
                None => Ok(value),
                Some(lost) => Err(lost),
            }
        }
    }

    /// Polls the body to its end, lease or not: `on_lost = continue`.
    pub fn __lockattr_to_the_end<'a, F: Future, L: Leaving>(
        &self,
        lease: &'a Guarded,
        mut body: Pin<&'a mut F>,
        _: Pin<&'a mut L>,
        judge: Judge<F::Output>,
    ) -> impl Future<Output = (F::Output, Option<CallError>)> + use<'a, F, L> {
        async move {
            let polled = |cx: &mut Context<'_>| {
                let _inside = lease.enter();
                poll_under(lease, body.as_mut(), cx)
            };
            let value = poll_fn(polled).await;
            let lost = begin_to_leave(lease, judge(&value, lease));
            (value, lost)
        }
    }
}

/// The release of a call's lease, which waits until the store has confirmed it.
pub trait Leaving: Future<Output = Result<(), Error>> {}

impl<L: Future<Output = Result<(), Error>>> Leaving for L {}

/// Gives the lease of a body back, once it is polled.
///
/// Made before the body runs, and kept beside it, so that what waits for both can be moved.
#[must_use = "a lease that is dropped is given back in the background"]
pub fn leave(lease: &Lease) -> impl Leaving + Send {
    lease.give_back()
}

/// The end of a body whose lease is given back when it is dropped, right after; the error says that
/// it had ended before the body did.
fn begin_to_leave(lease: &Guarded, end: End) -> Option<CallError> {
    weigh(lease, lease.check_loss(), end)
}

/// What a body and the end of its lease come to together. The body's own error stands, and the loss is only
/// told to the log then.
pub(super) fn weigh(lease: &Guarded, left: Result<(), Error>, end: End) -> Option<CallError> {
    let Err(lost) = left else {
        if end == End::Success {
            lease.site().observed.succeeded();
        }
        lease.span.ended();
        return None;
    };
    let lost = lease.lost(lost);
    if end == End::Failure {
        lost.tell_failed();
        return None;
    }
    Some(lost)
}

/// Polls a body for as long as its lease runs, and gives the lease back.
///
/// This is compiled once for each body, and what it calls once for each type of value: hence the
/// body behind a `dyn`.
struct Within<'a, F: Future, L> {
    body: Pin<&'a mut F>,
    /// Until the body has ended.
    watch: Option<Watch<'a>>,
    rest: Rest<'a, F::Output, L>,
}

/// Nothing in it is pinned by it.
impl<F: Future, L> Unpin for Within<'_, F, L> {}

impl<F: Future, L: Leaving> Future for Within<'_, F, L> {
    type Output = Result<F::Output, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let _inside = this.rest.lease.enter();
        this.rest
            .poll_within(&mut this.watch, this.body.as_mut(), cx)
    }
}

/// Polls a body to its end, lease or not, and gives the lease back.
struct ToTheEnd<'a, F: Future, L> {
    body: Pin<&'a mut F>,
    rest: Rest<'a, F::Output, L>,
}

/// Nothing in it is pinned by it.
impl<F: Future, L> Unpin for ToTheEnd<'_, F, L> {}

impl<F: Future, L: Leaving> Future for ToTheEnd<'_, F, L> {
    type Output = (F::Output, Option<CallError>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let _inside = this.rest.lease.enter();
        this.rest.poll_to_the_end(this.body.as_mut(), cx)
    }
}

/// What comes after a body.
struct Rest<'a, T, L> {
    lease: &'a Guarded,
    leaving: Pin<&'a mut L>,
    judge: Judge<T>,
    /// The body's value, once it has ended.
    ended: Option<(T, End)>,
}

impl<'a, T, L: Leaving> Rest<'a, T, L> {
    fn new(lease: &'a Guarded, leaving: Pin<&'a mut L>, judge: Judge<T>) -> Self {
        Self {
            lease,
            leaving,
            judge,
            ended: None,
        }
    }

    fn poll_within(
        &mut self,
        watch: &mut Option<Watch<'_>>,
        body: Pin<&mut dyn Future<Output = T>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, CallError>> {
        if let Some(watched) = watch {
            let value = ready!(watched.poll_body(body, cx))?;
            *watch = None;
            self.begin(value);
        }
        let (value, lost) = ready!(self.poll_leave(cx));
        Poll::Ready(match lost {
            None => Ok(value),
            Some(lost) => Err(lost),
        })
    }

    fn poll_to_the_end(
        &mut self,
        body: Pin<&mut dyn Future<Output = T>>,
        cx: &mut Context<'_>,
    ) -> Poll<(T, Option<CallError>)> {
        if self.ended.is_none() {
            let value = ready!(poll_under(self.lease, body, cx));
            self.begin(value);
        }
        self.poll_leave(cx)
    }

    fn begin(&mut self, value: T) {
        let end = (self.judge)(&value, self.lease);
        self.ended = Some((value, end));
    }

    /// The value, and the loss that is to be answered in its place: but not in that of an error.
    fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<(T, Option<CallError>)> {
        let left = ready!(self.leaving.as_mut().poll(cx));
        let Some((value, end)) = self.ended.take() else {
            unreachable!("a future is not polled after its end");
        };
        let lost = weigh(self.lease, left, end);
        Poll::Ready((value, lost))
    }
}

fn poll_under<T>(
    lease: &Guarded,
    body: Pin<&mut dyn Future<Output = T>>,
    cx: &mut Context<'_>,
) -> Poll<T> {
    let _under = Under::new(lease);
    body.poll(cx)
}

/// Looks at a lease before every poll of its body, so that a process that was frozen past its
/// deadline does not get to run one line more.
struct Watch<'a> {
    lease: &'a Guarded,
    ticket: Option<usize>,
    /// The end of a call that may not run for as long as the lease that it has joined.
    own_end: Option<(Instant, Timer)>,
    /// A loss that the body is winding down after, and the timer of its end.
    winding_down: Option<(LossCause, Instant, Timer)>,
}

type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<'a> Watch<'a> {
    fn new(lease: &'a Guarded) -> Self {
        let own_end = lease.own_end();
        Self {
            lease,
            ticket: None,
            own_end: own_end.map(|end| (end, Box::pin(lease.sleep_until(end)) as Timer)),
            winding_down: None,
        }
    }

    fn poll_body<T>(
        &mut self,
        body: Pin<&mut dyn Future<Output = T>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, CallError>> {
        match self.poll_end(cx) {
            Some(error) => Poll::Ready(Err(self.lease.lost(error))),
            None => poll_under(self.lease, body, cx).map(Ok),
        }
    }

    /// The loss after which the body is not to be polled any more.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Option<Error> {
        if self.winding_down.is_none() {
            let lost = self.lease.poll_lost(&mut self.ticket, cx.waker());
            let cause = lost.or_else(|| self.poll_own_end(cx))?;
            let end = self.lease.end_of_grace();
            self.winding_down = Some((cause, end, Box::pin(self.lease.sleep_until(end))));
        }
        let (cause, end, timer) = self.winding_down.as_mut()?;
        let over = self.lease.now() >= *end || timer.as_mut().poll(cx).is_ready();
        over.then(|| self.lease.error(*cause))
    }

    fn poll_own_end(&mut self, cx: &mut Context<'_>) -> Option<LossCause> {
        let (end, timer) = self.own_end.as_mut()?;
        if self.lease.now() < *end && timer.as_mut().poll(cx).is_pending() {
            return None;
        }
        self.lease.count_own_end();
        Some(LossCause::HeldTooLong)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.lease.hand_in(ticket);
        }
    }
}
