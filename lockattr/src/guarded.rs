//! What an expansion calls: take the lease, poll the body within it, give it back.

use std::future::Future;
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
    /// By itself.
    Done(T),
    /// It is not polled any more: its lease was lost.
    Lost(Error),
}

/// Polls a body for as long as its lease runs.
///
/// The lease is looked at before every poll, so that a process that was frozen past its deadline
/// does not get to run one line more.
#[derive(Debug)]
#[must_use = "a body runs only while it is polled"]
pub struct Guarded<'a, F> {
    lease: &'a Lease,
    body: Pin<&'a mut F>,
}

impl<'a, F: Future> Guarded<'a, F> {
    /// Stops polling the body once the lease has ended.
    pub fn new(lease: &'a Lease, body: Pin<&'a mut F>) -> Self {
        Self { lease, body }
    }
}

impl<F: Future> Future for Guarded<'_, F> {
    type Output = Outcome<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(error) = self.lease.poll_lost(cx.waker()) {
            return Poll::Ready(Outcome::Lost(error));
        }
        self.body.as_mut().poll(cx).map(Outcome::Done)
    }
}

/// Gives the lease of a finished body back; the error says that it had ended before the body did.
pub async fn leave(lease: Lease) -> Option<Error> {
    lease.release().await.err()
}

/// Polls a body to its end, lease or not: `on_lost = continue`.
#[derive(Debug)]
#[must_use = "a body runs only while it is polled"]
pub struct ToTheEnd<'a, F>(Pin<&'a mut F>);

impl<'a, F: Future> ToTheEnd<'a, F> {
    /// The lease is given back after the body in any case.
    pub fn new(_: &'a Lease, body: Pin<&'a mut F>) -> Self {
        Self(body)
    }
}

impl<F: Future> Future for ToTheEnd<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.0.as_mut().poll(cx)
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
