//! Streams under a lock: their lease lasts for as long as they do, and what its end says to whoever polls them.

use std::fmt::Debug;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use lockattr::{Client, Error, LossCause, distributed_lock};
use tests::server::Server;
use tests::wait;

use crate::support::{is_done, nap, nothing_left, pair};

/// The future of each item, in order.
type Steps<T> = Vec<Pin<Box<dyn Future<Output = T> + Send>>>;

/// Yields what its steps come to.
struct Stepped<T> {
    steps: Steps<T>,
    dropped: Option<Arc<AtomicBool>>,
}

impl<T> Stream for Stepped<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let Some(step) = self.steps.first_mut() else {
            return Poll::Ready(None);
        };
        let Poll::Ready(item) = step.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        drop(self.steps.remove(0));
        Poll::Ready(Some(item))
    }
}

impl<T> Drop for Stepped<T> {
    fn drop(&mut self) {
        if let Some(dropped) = &self.dropped {
            dropped.store(true, Ordering::SeqCst);
        }
    }
}

fn stepped<T>(steps: Steps<T>) -> Stepped<T> {
    Stepped {
        steps,
        dropped: None,
    }
}

/// A step that is at its end at once.
fn step<T: Send + 'static>(item: T) -> Pin<Box<dyn Future<Output = T> + Send>> {
    Box::pin(async { item })
}

async fn next<S: Stream>(stream: &mut Pin<&mut S>) -> Option<S::Item> {
    poll_fn(|cx| stream.as_mut().poll_next(cx)).await
}

async fn all<S: Stream>(stream: S) -> Vec<S::Item> {
    let mut stream = pin!(stream);
    let mut items = Vec::new();
    while let Some(item) = next(&mut stream).await {
        items.push(item);
    }
    items
}

type Row = Result<u8, Error>;

#[distributed_lock(key = "rows", ttl = "600ms", client = locks)]
fn rows(locks: &Client, stream: Stepped<Row>) -> impl Stream<Item = Row> + use<> {
    stream
}

#[distributed_lock(key = "rows", ttl = "600ms", wait = "20s", client = locks)]
fn waiting_rows(locks: &Client, stream: Stepped<Row>) -> impl Stream<Item = Row> + use<> {
    stream
}

async fn lose(server: &Server, locks: &Client) {
    let lost = locks.stats().lost;
    let _: u64 = server.ask("DEL lock:rows");
    wait::until("the loss is known", || locks.stats().lost > lost).await;
}

fn is_lost<T: Debug>(item: Option<Result<T, Error>>, wanted: LossCause) {
    match item {
        Some(Err(Error::Lost { cause, .. })) if cause == wanted => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_loss_is_the_last_item_and_the_stream_is_gone_by_then() {
    let (server, locks) = pair().await;
    let dropped = Arc::new(AtomicBool::new(false));
    let endless = Stepped {
        steps: vec![step(Ok(1)), Box::pin(pending()), step(Ok(3))],
        dropped: Some(Arc::clone(&dropped)),
    };
    let mut stream = pin!(rows(&locks, endless));
    assert_eq!(next(&mut stream).await.unwrap().unwrap(), 1);
    assert!(!dropped.load(Ordering::SeqCst));
    let (item, ()) = tokio::join!(next(&mut stream), lose(&server, &locks));
    assert!(dropped.load(Ordering::SeqCst));
    is_lost(item, LossCause::Deleted);
    assert!(next(&mut stream).await.is_none());
    // One that was not polled meanwhile yields nothing more.
    let mut stream = pin!(rows(&locks, stepped(vec![step(Ok(1)), step(Ok(2))])));
    assert_eq!(next(&mut stream).await.unwrap().unwrap(), 1);
    lose(&server, &locks).await;
    is_lost(next(&mut stream).await, LossCause::Deleted);
    assert!(next(&mut stream).await.is_none());
}

#[tokio::test]
async fn a_loss_that_the_release_finds_is_told_unless_the_stream_has_failed() {
    let (server, locks) = pair().await;
    let server = Arc::new(server);
    let delete = |item: Row| {
        let server = Arc::clone(&server);
        let step = async move {
            let _: u64 = server.ask("DEL lock:rows");
            item
        };
        Box::pin(step) as Pin<Box<dyn Future<Output = Row> + Send>>
    };
    let items = all(rows(&locks, stepped(vec![delete(Ok(1))]))).await;
    assert_eq!(items.len(), 2, "{items:?}");
    is_lost(items.into_iter().last(), LossCause::Deleted);
    let failed = delete(Err(Error::NotInstalled));
    let items = all(rows(&locks, stepped(vec![failed]))).await;
    assert!(matches!(items[..], [Err(Error::NotInstalled)]), "{items:?}");
}

#[tokio::test]
async fn what_else_a_loss_is_answered_by() {
    #[distributed_lock(key = "rows", ttl = "600ms", on_lost = continue, client = locks)]
    fn continued(locks: &Client, stream: Stepped<Row>) -> impl Stream<Item = Row> + use<> {
        stream
    }
    #[distributed_lock(key = "rows", ttl = "600ms", on_busy = skip, on_lost = return 100, client = locks)]
    fn returned(locks: &Client, stream: Stepped<u8>) -> impl Stream<Item = u8> + use<> {
        stream
    }
    #[distributed_lock(key = "rows", ttl = "600ms", on_busy = skip, client = locks)]
    fn plain(locks: &Client, stream: Stepped<u8>) -> impl Stream<Item = u8> + use<> {
        stream
    }
    let (server, locks) = pair().await;
    let mut stream = pin!(continued(&locks, stepped(vec![step(Ok(1)), step(Ok(2))])));
    assert_eq!(next(&mut stream).await.unwrap().unwrap(), 1);
    lose(&server, &locks).await;
    assert_eq!(next(&mut stream).await.unwrap().unwrap(), 2);
    assert!(next(&mut stream).await.is_none());
    let numbers = || stepped(vec![step(1), step(2)]);
    let mut stream = pin!(returned(&locks, numbers()));
    assert_eq!(next(&mut stream).await, Some(1));
    lose(&server, &locks).await;
    assert_eq!(next(&mut stream).await, Some(100));
    assert_eq!(next(&mut stream).await, None);
    let mut stream = pin!(plain(&locks, numbers()));
    assert_eq!(next(&mut stream).await, Some(1));
    lose(&server, &locks).await;
    assert_eq!(next(&mut stream).await, None);
}

#[tokio::test]
async fn a_grace_lets_a_stream_go_on_for_so_long() {
    #[distributed_lock(key = "rows", on_lost = cancel("500ms"), client = locks)]
    fn graced(locks: &Client, stream: Stepped<Row>) -> impl Stream<Item = Row> + use<> {
        stream
    }
    let (_server, locks) = pair().await;
    let endless: Steps<Row> = vec![step(Ok(1)), step(Ok(2)), Box::pin(pending())];
    let mut stream = pin!(graced(&locks, stepped(endless)));
    assert_eq!(next(&mut stream).await.unwrap().unwrap(), 1);
    let shutdown = locks.shutdown();
    let rest = async {
        wait::until("it is shut down", || locks.stats().lost > 0).await;
        let second = next(&mut stream).await;
        assert_eq!(second.unwrap().unwrap(), 2);
        is_lost(next(&mut stream).await, LossCause::Shutdown);
    };
    tokio::join!(shutdown, rest);
}

#[tokio::test]
async fn a_stream_keeps_its_lease_while_nobody_polls_it() {
    let (server, locks) = pair().await;
    let mut stream = pin!(rows(&locks, stepped(vec![step(Ok(1)), step(Ok(2))])));
    assert_eq!(server.size(), 0, "nothing is taken before it is polled");
    next(&mut stream).await.unwrap().unwrap();
    nap(1_500).await;
    let busy = all(rows(&locks, stepped(vec![]))).await;
    assert!(matches!(busy[..], [Err(Error::Busy { .. })]), "{busy:?}");
    assert_eq!(next(&mut stream).await.unwrap().unwrap(), 2);
    assert!(next(&mut stream).await.is_none());
    assert_eq!(locks.stats().lost, 0);
    // It was given back with the end, and what follows need not wait.
    let free = all(rows(&locks, stepped(vec![step(Ok(1))]))).await;
    assert!(matches!(free[..], [Ok(1)]), "{free:?}");
}

#[tokio::test]
async fn the_end_and_the_drop_of_one_let_the_next_begin() {
    let (server, locks) = pair().await;
    let other = Client::connect(server.url()).await.unwrap();
    let holder = Box::pin(rows(&locks, stepped(vec![step(Ok(1)), step(Ok(2))])));
    let mut holder = holder;
    let first = poll_fn(|cx| holder.as_mut().poll_next(cx)).await;
    assert_eq!(first.unwrap().unwrap(), 1);
    let waiters = [&locks, &other].map(|locks| {
        let stream = waiting_rows(locks, stepped(vec![step(Ok(1)), step(Ok(2))]));
        tokio::spawn(all(stream))
    });
    wait::until("one of them is queued", || server.waiters("lock:rows") == 1).await;
    drop(holder);
    for waiter in waiters {
        let items = waiter.await.unwrap();
        assert!(matches!(items[..], [Ok(1), Ok(2)]), "{items:?}");
    }
    nothing_left(&server).await;
}

#[tokio::test]
async fn an_outage_is_the_only_item() {
    let (server, locks) = pair().await;
    server.freeze();
    let items = all(rows(&locks, stepped(vec![step(Ok(1))]))).await;
    server.thaw();
    assert!(
        matches!(items[..], [Err(Error::Unavailable { .. })]),
        "{items:?}"
    );
}

#[tokio::test]
async fn a_stream_that_came_to_its_end_is_done() {
    #[distributed_lock(key = "rows", once = "1h", max_hold = "1m", client = locks)]
    fn once(locks: &Client, stream: Stepped<Row>) -> impl Stream<Item = Row> + use<> {
        stream
    }
    let (server, locks) = pair().await;
    // Not one that was dropped, nor one with an error.
    let mut stream = Box::pin(once(&locks, stepped(vec![step(Ok(1)), step(Ok(2))])));
    assert!(poll_fn(|cx| stream.as_mut().poll_next(cx)).await.is_some());
    drop(stream);
    nothing_left(&server).await;
    let failed = vec![step(Err(Error::NotInstalled)), step(Ok(2))];
    assert_eq!(all(once(&locks, stepped(failed))).await.len(), 2);
    assert!(!is_done(&server, "lock:rows"));
    assert_eq!(all(once(&locks, stepped(vec![step(Ok(1))]))).await.len(), 1);
    assert!(is_done(&server, "lock:rows"));
    assert!(
        all(once(&locks, stepped(vec![step(Ok(1))])))
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn a_stream_ends_with_its_maximum_hold() {
    #[distributed_lock(key = "rows", max_hold = "200ms", client = locks)]
    fn held(locks: &Client, stream: Stepped<Row>) -> impl Stream<Item = Row> + use<> {
        stream
    }
    let (server, locks) = pair().await;
    let endless: Steps<Row> = vec![step(Ok(1)), Box::pin(pending())];
    let mut items = all(held(&locks, stepped(endless))).await;
    assert_eq!(items.len(), 2, "{items:?}");
    is_lost(items.pop(), LossCause::HeldTooLong);
    nothing_left(&server).await;
}

#[tokio::test]
async fn calls_inside_join_its_lease() {
    #[distributed_lock(key = "rows", client = locks)]
    async fn inside(locks: &Client) -> Row {
        assert_eq!(lockattr::current().unwrap().key(), "rows");
        Ok(7)
    }
    let (_server, locks) = pair().await;
    let its = locks.clone();
    let steps: Steps<Row> = vec![Box::pin(async move { inside(&its).await })];
    let items = all(rows(&locks, stepped(steps))).await;
    assert!(matches!(items[..], [Ok(7)]), "{items:?}");
    assert!(lockattr::current().is_none());
}

#[tokio::test]
async fn a_shutdown_ends_a_stream() {
    let (_server, locks) = pair().await;
    let endless: Steps<Row> = vec![step(Ok(1)), Box::pin(pending())];
    let mut stream = pin!(rows(&locks, stepped(endless)));
    next(&mut stream).await.unwrap().unwrap();
    let (item, ()) = tokio::join!(next(&mut stream), locks.shutdown());
    is_lost(item, LossCause::Shutdown);
    let items = all(rows(&locks, stepped(vec![]))).await;
    assert!(
        matches!(items[..], [Err(Error::Unavailable { .. })]),
        "{items:?}"
    );
}
