//! Opening a connection for a session, and the tasks that read and write on it.

use std::io;
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::mpsc::{
    UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel,
};
use tokio::task::AbortHandle;

use super::protocol::{SessionKey, greeted, greeting, login};
use super::session::Event;
use super::url::{Host, Login};
use crate::runtime::tcp::connect;
#[cfg(feature = "tls")]
use crate::store::redis::Tls;

/// The longest message that is read: what is listed of a lock for which very many wait.
const LONGEST_MESSAGE: usize = 64 << 20;

/// How servers are reached.
#[derive(Clone)]
pub(super) struct Transport {
    pub(super) login: Option<Login>,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Tls>,
}

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(super) type BoxedStream = Box<dyn Stream>;

/// What a connection is opened for.
#[derive(Clone, Copy)]
pub(super) struct Introduction {
    pub(super) session: SessionKey,
    pub(super) timeout_ms: i32,
    pub(super) last_zxid: i64,
}

/// A connection on which the server has answered.
pub(super) struct Opened {
    /// When the session was asked for.
    pub(super) asked: Instant,
    /// The session, and its timeout in milliseconds; `None` where it is over.
    pub(super) session: Option<(SessionKey, u32)>,
    stream: BoxedStream,
}

impl Transport {
    /// Connects, and asks for the session.
    pub(super) async fn open(&self, host: &Host, introduction: Introduction) -> io::Result<Opened> {
        let mut stream = self.stream(host).await?;
        let Introduction {
            session,
            timeout_ms,
            last_zxid,
        } = introduction;
        let asked = Instant::now();
        let mut first = greeting(session, timeout_ms, last_zxid);
        if let Some(Login { user, password }) = &self.login {
            // A server reads it when the session is there.
            first.extend(login(user, password));
        }
        stream.write_all(&first).await?;
        stream.flush().await?;
        let answer = read_message(&mut stream).await?;
        let session = greeted(&answer)
            .map_err(|_| io::Error::other("it does not answer as a ZooKeeper server does"))?;
        Ok(Opened {
            asked,
            session,
            stream,
        })
    }

    pub(super) async fn stream(&self, host: &Host) -> io::Result<BoxedStream> {
        let stream = connect(&host.name, host.port).await?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return Ok(Box::new(tls.encrypt(&host.name, stream).await?));
        }
        Ok(Box::new(stream))
    }
}

/// An open connection; closed when dropped.
pub(super) struct Connection {
    writer: UnboundedSender<Vec<u8>>,
    tasks: [AbortHandle; 2],
}

impl Connection {
    /// What is read is told as events of that number.
    pub(super) fn start(opened: Opened, number: u64, events: &WeakUnboundedSender<Event>) -> Self {
        let (reading, writing) = split(opened.stream);
        let (writer, frames) = unbounded_channel();
        let reading = tokio::spawn(read(reading, number, events.clone()));
        let writing = tokio::spawn(write(writing, frames));
        Self {
            writer,
            tasks: [reading.abort_handle(), writing.abort_handle()],
        }
    }

    pub(super) fn send(&self, frame: Vec<u8>) {
        // One that fails is told by the reader.
        let _ = self.writer.send(frame);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn read(mut stream: ReadHalf<BoxedStream>, number: u64, events: WeakUnboundedSender<Event>) {
    loop {
        let message = read_message(&mut stream).await;
        let is_over = message.is_err();
        let event = match message {
            Ok(message) => Event::Message(number, message),
            Err(error) => Event::Closed(number, error.to_string()),
        };
        let Some(events) = events.upgrade() else {
            return;
        };
        if events.send(event).is_err() || is_over {
            return;
        }
    }
}

async fn write(mut stream: WriteHalf<BoxedStream>, mut frames: UnboundedReceiver<Vec<u8>>) {
    while let Some(mut frame) = frames.recv().await {
        // What is sent together travels together.
        while let Ok(more) = frames.try_recv() {
            frame.extend(more);
        }
        if stream.write_all(&frame).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

async fn read_message(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let length = stream.read_i32().await?;
    let length = usize::try_from(length)
        .ok()
        .filter(|length| *length <= LONGEST_MESSAGE)
        .ok_or_else(|| io::Error::other("it does not answer as a ZooKeeper server does"))?;
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(message)
}
