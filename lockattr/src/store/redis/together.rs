//! Several futures that are polled at the same time.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Polls them until all are done, each of them before the next one: what they send is sent in this order.
pub(super) async fn all<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut outputs: Vec<_> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(done) = Pin::new(future).poll(cx)
            {
                *output = Some(done);
            }
        }
        if outputs.iter().all(Option::is_some) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
