//! Streams that cannot be locked so.
use std::pin::Pin;

use futures_core::Stream;
use lockattr::{Error, distributed_lock};

fn empty<T>() -> impl Stream<Item = T> + Send {
    struct Empty<T>(std::marker::PhantomData<fn() -> T>);
    impl<T> Stream for Empty<T> {
        type Item = T;
        fn poll_next(
            self: Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<T>> {
            std::task::Poll::Ready(None)
        }
    }
    Empty(std::marker::PhantomData)
}

#[distributed_lock(key = "a")]
fn busy_cannot_be_told() -> impl Stream<Item = u8> {
    empty()
}

#[distributed_lock(key = "b", on_busy = skip, once = "1h", on_done = error)]
fn nor_that_it_is_done() -> Pin<Box<dyn Stream<Item = u8> + Send>> {
    Box::pin(empty())
}

#[distributed_lock(key = "c", on_busy = skip)]
fn nor_an_outage_or_a_loss() -> impl Stream<Item = Result<u8, String>> {
    empty()
}

#[distributed_lock(key = "d", on_busy = return "busy", on_unavailable = skip)]
fn no_item() -> impl Stream<Item = Result<u8, Error>> {
    empty()
}

#[distributed_lock(key = "e")]
fn other_items() -> impl Stream<Item = Result<u8, Error>> {
    empty::<u8>()
}

fn main() {}
