//! What an expansion calls: take the lease, poll the body within it, give it back.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use crate::client::{Client, Settings};
use crate::error::Error;
use crate::key::{Key, KeyError};
use crate::lease::Lease;

/// How a call begins.
#[derive(Debug)]
pub enum Entered {
    /// With its lease.
    Held(Lease),
    /// With the key held elsewhere.
    Busy(Error),
    /// With neither: the store could not be asked, or the call could not be made.
    Down(Error),
}

/// The client that an attribute's `client = …` names.
#[must_use]
pub fn client<C: AsRef<Client> + ?Sized>(client: &C) -> Client {
    client.as_ref().clone()
}

/// Takes the lease of a call.
pub async fn enter(
    client: Option<Client>,
    key: Result<Key, KeyError>,
    settings: Settings,
) -> Entered {
    let client = match client.map_or_else(Client::current, Ok) {
        Ok(client) => client,
        Err(error) => return Entered::Down(error),
    };
    match client.acquire(key.map_err(Error::Key), &settings).await {
        Ok(lease) => {
            lease.guard();
            Entered::Held(lease)
        }
        Err(error @ Error::Busy { .. }) => Entered::Busy(error),
        Err(error) => Entered::Down(error),
    }
}

/// How a body ended.
#[derive(Debug)]
pub enum Outcome<T> {
    /// By itself, and whether its lease is known to have ended before.
    Done(T, Option<Error>),
    /// It is not polled any more: its lease was lost.
    Lost(Error),
}

/// How a body is run and its lease given back, by what its value allows.
///
/// A value that is `Send` waits until the store has confirmed the release. One that is not would
/// make the future of the whole call not `Send` by waiting, so its lease is given back in the
/// background, and its end is only known where it is by then.
///
/// The choice is made by method lookup: the methods below exist for values that are `Send`, and
/// lookup goes on to [`InBackground`] for the others.
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
}

impl<T> Deref for Ending<T> {
    type Target = InBackground;

    fn deref(&self) -> &InBackground {
        &self.in_background
    }
}

impl<T: Send> Ending<T> {
    /// Stops polling the body once the lease has ended.
    pub fn __lockattr_within<'a, F: Future<Output = T>>(
        &self,
        lease: &'a Lease,
        body: Pin<&'a mut F>,
    ) -> impl Future<Output = Outcome<T>> + use<'a, T, F> {
        async move {
            match (Guarded { lease, body }).await {
                Ok(value) => Outcome::Done(value, lease.give_back().await.err()),
                Err(error) => Outcome::Lost(error),
            }
        }
    }

    /// Polls the body to its end, lease or not: `on_lost = continue`.
    pub fn __lockattr_to_the_end<'a, F: Future<Output = T>>(
        &self,
        lease: &'a Lease,
        body: Pin<&'a mut F>,
    ) -> impl Future<Output = (T, Option<Error>)> + use<'a, T, F> {
        async move { (body.await, lease.give_back().await.err()) }
    }
}

#[expect(clippy::unused_self, reason = "it is what method look-up chooses by")]
impl InBackground {
    /// Stops polling the body once the lease has ended.
    pub fn __lockattr_within<'a, F: Future>(
        &self,
        lease: &'a Lease,
        body: Pin<&'a mut F>,
    ) -> impl Future<Output = Outcome<F::Output>> + use<'a, F> {
        async move {
            match (Guarded { lease, body }).await {
                Ok(value) => Outcome::Done(value, lease.check().err()),
                Err(error) => Outcome::Lost(error),
            }
        }
    }

    /// Polls the body to its end, lease or not: `on_lost = continue`.
    pub fn __lockattr_to_the_end<'a, F: Future>(
        &self,
        lease: &'a Lease,
        body: Pin<&'a mut F>,
    ) -> impl Future<Output = (F::Output, Option<Error>)> + use<'a, F> {
        async move { (body.await, lease.check().err()) }
    }
}

/// Polls a body for as long as its lease runs.
///
/// The lease is looked at before every poll, so that a process that was frozen past its deadline
/// does not get to run one line more.
struct Guarded<'a, F> {
    lease: &'a Lease,
    body: Pin<&'a mut F>,
}

impl<F: Future> Future for Guarded<'_, F> {
    type Output = Result<F::Output, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(error) = self.lease.poll_lost(cx.waker()) {
            return Poll::Ready(Err(error));
        }
        self.body.as_mut().poll(cx).map(Ok)
    }
}

/// What a block that never waits has to give.
///
/// # Panics
/// Where it waits, which an expansion's own block does not.
#[must_use]
pub fn at_once<M: Future>(making: M) -> M::Output {
    match pin!(making).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(made) => made,
        Poll::Pending => unreachable!("a function that is not async cannot wait"),
    }
}
