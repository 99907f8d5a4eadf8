//! What an expansion of the attribute calls: take the lease of a call, poll the body within it, answer
//! by the function's return type.
//!
//! Everything in here is called by generated code alone, by the names in `__private`.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{self, Poll, Waker};

use crate::acquire::rerun::InTurn;
use crate::acquire::span::CallSpan;
use crate::acquire::{CallOptions, Context, Nesting};
use crate::client::Client;
use crate::error::Error;
use crate::key::{KeyError, Keys};

use ended::CallError;
use guarded::Guarded;

pub(crate) mod answer;
pub(crate) mod blocking;
pub(crate) mod client_argument;
pub(crate) mod ended;
pub(crate) mod guarded;
pub(crate) mod policy;
pub(crate) mod replay;
pub(crate) mod stream;
pub(crate) mod within;

/// How a call begins.
#[derive(Debug)]
pub enum Entered {
    /// With its lease.
    Held(Guarded),
    /// With the key held elsewhere.
    Busy(CallError),
    /// With the work done already.
    Done(CallError),
    /// With none of these: the store could not be asked, or the call could not be made.
    Down(CallError),
}

/// Takes the lease of a call.
pub fn enter<K: Into<Keys>>(
    client: Option<Client>,
    key: Result<K, KeyError>,
    options: CallOptions,
) -> impl Future<Output = Entered> + Send {
    enter_keys(client, key.map(K::into), options)
}

/// An `async fn` would have room for its arguments twice, here and below.
fn enter_keys(
    client: Option<Client>,
    keys: Result<Keys, KeyError>,
    options: CallOptions,
) -> impl Future<Output = Entered> + Send {
    let client = client.map_or_else(Client::current, Ok);
    async move {
        let site = options.site();
        let client = match client {
            Ok(client) => client,
            Err(error) => return Entered::Down(CallError::new(error, site, CallSpan::default())),
        };
        let context = &client.0;
        let span = CallSpan::of_call(context, &keys, &options);
        if options.reruns() {
            return enter_in_turn(context, keys, &options, span).await;
        }
        let acquiring = pin!(context.acquire(keys, &options, Nesting::Joins));
        let answer = span.around(acquiring).await;
        span.answered(context, &answer);
        match answer {
            Ok(lease) => Entered::Held(Guarded::new(lease, span)),
            Err(error @ Error::Busy { .. }) => Entered::Busy(CallError::new(error, site, span)),
            Err(error @ Error::Done { .. }) => Entered::Done(CallError::new(error, site, span)),
            Err(error) => Entered::Down(CallError::new(error, site, span)),
        }
    }
}

/// `on_busy = rerun`: only a call in whose stead another one runs is answered as busy.
fn enter_in_turn<'a>(
    context: &'a Context,
    keys: Result<Keys, KeyError>,
    options: &'a CallOptions,
    span: CallSpan,
) -> Pin<Box<dyn Future<Output = Entered> + Send + 'a>> {
    Box::pin(async move {
        let site = options.site();
        let acquiring = pin!(context.acquire_in_turn(keys, options));
        let (answer, skipped) = match span.around(acquiring).await {
            Ok(InTurn::Held(lease)) => (Ok(lease), false),
            Ok(InTurn::Skipped(busy)) => (Err(busy), true),
            Err(error) => (Err(error), false),
        };
        span.answered(context, &answer);
        match answer {
            Ok(lease) => Entered::Held(Guarded::new(lease, span)),
            Err(busy) if skipped => Entered::Busy(CallError::new(busy, site, span)),
            Err(error) => Entered::Down(CallError::new(error, site, span)),
        }
    })
}

/// What a block that never waits has to give.
///
/// # Panics
/// Where it waits, which an expansion's own block does not.
#[must_use]
pub fn at_once<M: Future>(making: M) -> M::Output {
    match pin!(making).poll(&mut task::Context::from_waker(Waker::noop())) {
        Poll::Ready(made) => made,
        Poll::Pending => unreachable!("a function that is not async cannot wait"),
    }
}
