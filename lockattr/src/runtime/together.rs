//! Futures that run at the same time.

use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// A future among others.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs all, each begun before the next one, so that their commands are sent in this order. The outputs
/// are in it as well.
pub(crate) async fn all<T>(futures: Vec<Boxed<'_, T>>) -> Vec<T> {
    let outputs = all_until(futures, pending()).await;
    outputs.into_iter().flatten().collect()
}

/// The same until `over`, with the outputs of those that are done by then.
pub(crate) async fn all_until<T>(
    mut futures: Vec<Boxed<'_, T>>,
    over: impl Future<Output = ()>,
) -> Vec<Option<T>> {
    let mut over = pin!(over);
    let mut outputs: Vec<_> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(done) = future.as_mut().poll(cx)
            {
                *output = Some(done);
            }
        }
        if outputs.iter().all(Option::is_some) {
            return Poll::Ready(());
        }
        over.as_mut().poll(cx)
    })
    .await;
    outputs
}

/// Runs two, the first one begun before the other.
#[cfg(feature = "inspect")]
pub(crate) async fn both<A, B>(
    first: impl Future<Output = A>,
    second: impl Future<Output = B>,
) -> (A, B) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut of_first, mut of_second) = (None, None);
    poll_fn(|cx| {
        if of_first.is_none()
            && let Poll::Ready(output) = first.as_mut().poll(cx)
        {
            of_first = Some(output);
        }
        if of_second.is_none()
            && let Poll::Ready(output) = second.as_mut().poll(cx)
        {
            of_second = Some(output);
        }
        match (of_first.take(), of_second.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            waiting => {
                (of_first, of_second) = waiting;
                Poll::Pending
            }
        }
    })
    .await
}
