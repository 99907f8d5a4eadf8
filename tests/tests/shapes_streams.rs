//! Functions that return a stream, whose lease lasts for as long as it does.
#![deny(warnings, clippy::pedantic, clippy::nursery)]
#![deny(unused, future_incompatible, let_underscore_drop)]
#![allow(
    clippy::missing_errors_doc,
    clippy::future_not_send,
    reason = "what the code below does as its author, and not the expansion"
)]

use std::collections::VecDeque;
use std::fmt::Debug;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use lockattr::{Client, Error, Fail, Memory, distributed_lock};

type BoxStream<'a, T> = Pin<Box<dyn Stream<Item = T> + Send + 'a>>;

/// Yields what it has, and says so when it is dropped.
struct Listed<'a, T> {
    items: VecDeque<T>,
    dropped: Option<&'a AtomicUsize>,
    not_send: PhantomData<()>,
}

impl<T: Unpin> Stream for Listed<'_, T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if self.items.len() % 2 == 1 {
            cx.waker().wake_by_ref();
        }
        Poll::Ready(self.items.pop_front())
    }
}

impl<T> Drop for Listed<'_, T> {
    fn drop(&mut self) {
        if let Some(dropped) = self.dropped {
            dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn listed<T>(items: impl IntoIterator<Item = T>) -> Listed<'static, T> {
    Listed {
        items: items.into_iter().collect(),
        dropped: None,
        not_send: PhantomData,
    }
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await
}

async fn all<S: Stream + Unpin>(mut stream: S) -> Vec<S::Item> {
    let mut items = Vec::new();
    while let Some(item) = next(&mut stream).await {
        items.push(item);
    }
    // It stays at its end.
    assert!(next(&mut stream).await.is_none());
    items
}

#[distributed_lock(key = "rows:<id>")]
fn rows(id: u8) -> impl Stream<Item = Result<u8, Error>> {
    listed([Ok(id), Ok(id + 1)])
}

#[distributed_lock(key = "send:<id>")]
fn is_send(id: u8) -> impl Stream<Item = Result<u8, Error>> + Send + 'static {
    listed([Ok(id)])
}

#[distributed_lock(key = "boxed:<id>")]
fn boxed(id: u8) -> Pin<Box<dyn Stream<Item = Result<u8, Error>> + Send>> {
    if id == 0 {
        return Box::pin(listed([]));
    }
    Box::pin(listed([Ok(id)]))
}

#[distributed_lock(key = "alias:<text>")]
fn alias(text: &str) -> BoxStream<'_, Result<&str, Error>> {
    Box::pin(listed([Ok(text), Ok(&text[1..])]))
}

#[distributed_lock(key = "local:<id>")]
fn local(id: Rc<u8>) -> Pin<Box<dyn Stream<Item = Result<Rc<u8>, Error>>>> {
    Box::pin(listed([Ok(id)]))
}

#[distributed_lock(key = "plain:<id>", on_busy = skip)]
fn plain(id: u8) -> impl Stream<Item = u8> {
    listed([id, id])
}

#[distributed_lock(
    key = "every:<id>",
    ttl = "5s",
    wait = "1ms",
    on_busy = return 100,
    on_unavailable = return 101,
    on_lost = return 102,
    once = "1h",
    on_done = return id,
    redact = false,
)]
fn every_argument<T: Send + 'static>(id: u8, rest: T) -> impl Stream<Item = u8> {
    drop(rest);
    listed([id])
}

#[distributed_lock(key = "outer:<id>")]
#[distributed_lock(key = "inner:<id>", on_busy = skip, on_lost = continue)]
fn two_locks(id: u8) -> impl Stream<Item = anyhow::Result<u8>> {
    listed([Ok(id)])
}

#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Row(u8),
    Locked(String),
}

impl Fail for Reply {
    fn fail(error: Error) -> Self {
        Self::Locked(error.to_string())
    }
}

#[distributed_lock(key = "reply:<id>")]
fn replies(id: u8) -> impl Stream<Item = Reply> {
    listed([Reply::Row(id)])
}

struct Service {
    name: String,
}

impl Service {
    #[distributed_lock(key = "detached:<self.name>")]
    fn detached(&self) -> impl Stream<Item = Result<String, Error>> + use<> {
        listed([Ok(self.name.clone())])
    }

    #[distributed_lock(key = "borrowed:<self.name>")]
    fn borrowed<'a>(&'a mut self, and: &'a str) -> BoxStream<'a, Result<&'a str, Error>> {
        self.name.push('!');
        Box::pin(listed([Ok(&*self.name), Ok(and)]))
    }
}

trait Source {
    fn id(&self) -> u8;

    #[distributed_lock(key = "source:<self.id()>")]
    fn open(&self) -> BoxStream<'_, Result<u8, Error>> {
        Box::pin(listed([Ok(self.id())]))
    }
}

impl Source for u8 {
    fn id(&self) -> u8 {
        *self
    }
}

/// Calls while the key is free, while it is held, and once more.
async fn check<T: PartialEq + Debug, S: Stream<Item = Result<T, Error>> + Unpin>(
    key: &str,
    values: impl IntoIterator<Item = T>,
    call: impl Fn() -> S,
) {
    let values: Vec<T> = values.into_iter().collect();
    let locks = Client::connect("memory:").await.unwrap();
    let run = async || {
        let items = locks.scope(async { all(call()).await }).await;
        items.into_iter().collect::<Result<Vec<T>, Error>>()
    };
    assert_eq!(run().await.unwrap(), values);
    let held = locks.lock(key).acquire().await.unwrap();
    match run().await {
        Err(Error::Busy { .. }) => {}
        other => panic!("{key} is held, and the stream is {other:?}"),
    }
    held.release().await.unwrap();
    assert_eq!(run().await.unwrap(), values);
}

#[tokio::test]
async fn every_form() {
    fn takes_send<T: Send>(_: T) {}
    check("rows:1", [1, 2], || rows(1)).await;
    check("send:1", [1], || is_send(1)).await;
    check("boxed:1", [1], || boxed(1)).await;
    check("alias:xy", ["xy", "y"], || alias("xy")).await;
    check("local:1", [Rc::new(1)], || local(Rc::new(1))).await;
    let service = Service { name: "s".into() };
    check("detached:s", ["s".to_owned()], || service.detached()).await;
    check("source:1", [1], || 1_u8.open()).await;
    takes_send(rows(1));
    let locks = Client::connect("memory:").await.unwrap();
    let mut service = Service { name: "s".into() };
    let stream = service.borrowed("t");
    let items = locks.scope(async { all(stream).await }).await;
    let items: Vec<_> = items.into_iter().map(Result::unwrap).collect();
    assert_eq!(items, ["s!", "t"]);
    let items = locks.scope(async { all(two_locks(1)).await }).await;
    assert_eq!(
        items.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
        [1]
    );
    let _inner = locks.lock("inner:1").acquire().await.unwrap();
    let items = locks.scope(async { all(two_locks(1)).await }).await;
    assert!(items.is_empty());
}

#[tokio::test]
async fn items_of_other_types() {
    let locks = Client::connect("memory:").await.unwrap();
    assert_eq!(locks.scope(async { all(plain(1)).await }).await, [1, 1]);
    let held = locks.lock("plain:1").acquire().await.unwrap();
    assert!(locks.scope(async { all(plain(1)).await }).await.is_empty());
    drop(held);
    // Nobody can be told, but the log.
    assert!(all(plain(1)).await.is_empty());
    assert_eq!(
        locks.scope(async { all(replies(1)).await }).await,
        [Reply::Row(1)]
    );
    let held = locks.lock("reply:1").acquire().await.unwrap();
    let is_busy =
        |reply: &Reply| matches!(reply, Reply::Locked(told) if told.contains("`reply:1` is busy"));
    let told = locks.scope(async { all(replies(1)).await }).await;
    assert!(told.len() == 1 && is_busy(&told[0]), "{told:?}");
    drop(held);
    let held = locks.lock("every:1").acquire().await.unwrap();
    assert_eq!(
        locks
            .scope(async { all(every_argument(1, ())).await })
            .await,
        [100]
    );
    held.release().await.unwrap();
    for _ in 0..2 {
        // The second time it is done.
        assert_eq!(
            locks
                .scope(async { all(every_argument(1, ())).await })
                .await,
            [1]
        );
    }
    assert_eq!(locks.stats().done, 1);
    assert_eq!(all(every_argument(1, ())).await, [101]);
}

#[distributed_lock(key = "lost", client = locks)]
fn watched<'a>(locks: &Client, dropped: &'a AtomicUsize) -> BoxStream<'a, Result<u8, Error>> {
    Box::pin(Listed {
        items: (0..10).map(Ok).collect(),
        dropped: Some(dropped),
        not_send: PhantomData,
    })
}

#[tokio::test]
async fn the_lease_lasts_as_long_as_the_stream() {
    let memory = Memory::new();
    let locks = Client::builder().store(memory.clone()).unwrap();
    let busy = async || locks.lock("lost").acquire().await.is_err();
    let dropped = AtomicUsize::new(0);
    let mut stream = watched(&locks, &dropped);
    assert!(!busy().await, "nothing is taken before it is polled");
    assert_eq!(next(&mut stream).await.unwrap().unwrap(), 0);
    assert!(busy().await);
    drop(stream);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    let wait = std::time::Duration::from_secs(20);
    let again = locks.lock("lost").wait(wait).acquire().await.unwrap();
    again.release().await.unwrap();
    // It ends with its last item, and by then the key is given back.
    assert_eq!(all(watched(&locks, &dropped)).await.len(), 10);
    assert!(!busy().await);
}
