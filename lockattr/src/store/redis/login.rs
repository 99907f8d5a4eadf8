//! The login on a new connection, which is the redis client's.
//!
//! The client keeps the stream that it is given. It is given a handle, and what is behind it is taken back
//! when the login is over: nothing is in its buffers then, since a server says nothing unasked.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::transport::Stream;

/// The stream of a connection that has logged in.
pub(super) async fn logged_in(stream: Stream, login: &RedisConnectionInfo) -> RedisResult<Stream> {
    let lent = Lent(Arc::new(Mutex::new(Some(stream))));
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let connecting = MultiplexedConnection::new_with_config(login, lent.clone(), config);
    drop(connecting.await?);
    let stream = lent.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected).into())
}

/// A handle of a stream.
#[derive(Clone)]
struct Lent(Arc<Mutex<Option<Stream>>>);

impl Lent {
    fn with<T>(
        &self,
        poll: impl FnOnce(Pin<&mut Stream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(stream) => poll(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncRead for Lent {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Lent {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(cx))
    }

    /// Not passed on: the stream goes on.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
