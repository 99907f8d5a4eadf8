//! Futures that run at the same time.

use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// A future among others.
pub(super) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs all, each begun before the next one, so that their commands are sent in this order. The outputs
/// are in it as well.
pub(super) async fn all<T>(futures: Vec<Boxed<'_, T>>) -> Vec<T> {
    let outputs = all_until(futures, pending()).await;
    outputs.into_iter().flatten().collect()
}

/// The same until `over`, with the outputs of those that are done by then.
pub(super) async fn all_until<T>(
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
