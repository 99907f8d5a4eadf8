//! A connection that hears one channel, driven on some runtime.
//!
//! On the runtime of those who wait, news reaches them without a hop from another thread. Such a
//! runtime may end, or not be run for a while; whether it is alive is seen from the background, where
//! all of this is polled.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use redis::Msg;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;

use super::fault::Fault;
use super::line::Server;
use crate::error::StoreError;

pub(super) struct Subscription {
    sink: PubSubSink,
    channel: String,
    hearing: Task<()>,
}

/// How a subscription has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Closed,
    /// Its runtime is not run any more, or so it seems.
    Silent,
}

pub(super) type SignOfLife = Pin<Box<dyn Future<Output = bool> + Send>>;

impl Subscription {
    /// Subscribes; what is heard is told to `hear` on that runtime.
    pub(super) async fn on(
        runtime: &Handle,
        server: &Arc<Server>,
        channel: &str,
        hear: impl FnMut(Msg) + Send + 'static,
    ) -> Result<Self, StoreError> {
        let connecting = {
            let (server, channel) = (Arc::clone(server), channel.to_owned());
            async move {
                let (mut sink, stream) = server.target.pubsub().await?.split();
                sink.subscribe(&channel).await?;
                Ok((sink, Task(tokio::spawn(deliver(stream, hear)))))
            }
        };
        let connecting = Task(runtime.spawn(connecting));
        match timeout(server.connect_timeout, connecting).await {
            Ok(Ok(Ok((sink, hearing)))) => Ok(Self {
                sink,
                channel: channel.to_owned(),
                hearing,
            }),
            Ok(Ok(Err(error))) => {
                let error: redis::RedisError = error;
                Err(Fault::from(error).error)
            }
            Ok(Err(_)) => Err(StoreError::refused("the runtime has ended")),
            Err(_) => Err(StoreError::refused(format!(
                "no answer within {:?}",
                server.connect_timeout
            ))),
        }
    }

    /// Subscribes once more, which the server answers and which needs no further right.
    pub(super) fn sign_of_life(&self) -> SignOfLife {
        let (mut sink, channel) = (self.sink.clone(), self.channel.clone());
        Box::pin(async move { sink.subscribe(channel).await.is_ok() })
    }

    /// Waits for the end of the connection, or of its runtime.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let end = |heard: Result<(), JoinError>| heard.map_or(End::Silent, |()| End::Closed);
        Pin::new(&mut self.hearing).poll(cx).map(end)
    }
}

async fn deliver(mut stream: PubSubStream, mut hear: impl FnMut(Msg)) {
    while let Some(message) = poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await {
        hear(message);
    }
}

/// A task that ends when this is dropped.
struct Task<T>(JoinHandle<T>);

impl<T> Future for Task<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
