//! A connection that is subscribed to one channel, driven on a given runtime.
//!
//! Messages are received on that runtime. It may end, or not be run for a while, so whether the
//! subscription is alive is observed from the background runtime, where everything else here is polled.
//! What to do about that is left to `subscriber`.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_core::Stream;
use redis::Msg;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;

use super::fault::Fault;
use super::server::Server;
use crate::error::StoreError;

/// Ended when dropped.
pub(super) struct Subscription {
    sink: PubSubSink,
    channel: String,
    receiving: Task<()>,
    /// Ready when the server has moved since the subscription was made.
    move_of_server: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// How a subscription has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SubscriptionEnd {
    Closed,
    /// Nobody runs its runtime any more, as far as is known.
    Silent,
}

/// Whether the server has answered.
pub(super) type Heartbeat = Pin<Box<dyn Future<Output = bool> + Send>>;

impl Subscription {
    /// Subscribes. Messages are handed to `receive` on that runtime.
    pub(super) async fn on(
        runtime: &Handle,
        server: &Arc<Server>,
        channel: &str,
        receive: impl FnMut(Msg) + Send + 'static,
    ) -> Result<Self, StoreError> {
        let within = Instant::now() + server.connect_timeout;
        let connecting = {
            let (server, channel) = (Arc::clone(server), channel.to_owned());
            async move {
                let (pubsub, moves) = server.pubsub(within).await?;
                let (mut sink, stream) = pubsub.split();
                let subscribed = sink.subscribe(&channel).await;
                subscribed.map_err(|error| Fault::from(error).error)?;
                Ok((sink, Task(tokio::spawn(deliver(stream, receive))), moves))
            }
        };
        let connecting = Task(runtime.spawn(connecting));
        match timeout(server.connect_timeout, connecting).await {
            Ok(Ok(Ok((sink, receiving, moves)))) => Ok(Self {
                sink,
                channel: channel.to_owned(),
                receiving,
                move_of_server: Box::pin(next_move(server.moves_to_come(), moves)),
            }),
            Ok(Ok(Err(error))) => Err(error),
            Ok(Err(_)) => Err(StoreError::refused("the runtime has ended")),
            Err(_) => Err(StoreError::refused(format!(
                "no answer within {:?}",
                server.connect_timeout
            ))),
        }
    }

    /// Subscribes once more: the server answers that, and it needs no further right.
    pub(super) fn heartbeat(&self) -> Heartbeat {
        let (mut sink, channel) = (self.sink.clone(), self.channel.clone());
        Box::pin(async move { sink.subscribe(channel).await.is_ok() })
    }

    /// Waits for the end of the connection, or of its runtime, or for a move of the server.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<SubscriptionEnd> {
        if self.move_of_server.as_mut().poll(cx).is_ready() {
            return Poll::Ready(SubscriptionEnd::Closed);
        }
        let end = |ended: Result<(), JoinError>| match ended {
            Ok(()) => SubscriptionEnd::Closed,
            Err(_) => SubscriptionEnd::Silent,
        };
        Pin::new(&mut self.receiving).poll(cx).map(end)
    }
}

async fn next_move(mut moves: watch::Receiver<u64>, made_after: u64) {
    if moves.wait_for(|moves| *moves != made_after).await.is_err() {
        // The client is gone, and its tasks with it.
        pending::<()>().await;
    }
}

async fn deliver(mut stream: PubSubStream, mut receive: impl FnMut(Msg)) {
    while let Some(message) = poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await {
        receive(message);
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
