//! A connection while it lasts, driven on the client's own thread.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures_core::Stream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, Client, Connection, SimpleQueryMessage, SimpleQueryRow};
use tokio_util::sync::CancellationToken;

use super::Fault;
use super::unanswered::Session;
use super::wakeups::WakeUpRegistry;
use crate::error::StoreError;

#[derive(Debug)]
pub(super) struct Live {
    client: Client,
    task: AbortHandle,
    ended: CancellationToken,
    is_discarded: AtomicBool,
    heard: Mutex<Instant>,
    /// As far as is known; that of a pooler's is anybody's.
    pub(super) session: Option<Session>,
}

/// The rows of the last statement of a message, and when that was sent.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) rows: Vec<SimpleQueryRow>,
    pub(super) sent: Instant,
}

impl Live {
    pub(super) fn new(client: Client, task: AbortHandle, ended: CancellationToken) -> Self {
        Self {
            client,
            task,
            ended,
            is_discarded: AtomicBool::new(false),
            heard: Mutex::new(Instant::now()),
            session: None,
        }
    }

    /// Sends one message, and waits for as long as the answer takes. To be polled on the client's thread:
    /// an answer that nobody takes holds up all that come after it.
    pub(super) async fn asked(&self, message: &str) -> Result<Answer, Fault> {
        let sent = Instant::now();
        let answers = self.client.simple_query_raw(message).await;
        let answers = answers.map_err(|error| Fault::of_request(&error, false))?;
        let mut answers = pin!(answers);
        let mut rows = Vec::new();
        while let Some(answer) = poll_fn(|cx| answers.as_mut().poll_next(cx)).await {
            let answer = answer.map_err(|error| Fault::of_request(&error, true));
            if !matches!(answer, Err(Fault::Lost(_))) {
                *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            }
            match answer? {
                SimpleQueryMessage::RowDescription(_) => rows.clear(),
                SimpleQueryMessage::Row(row) => rows.push(row),
                _ => {}
            }
        }
        Ok(Answer { rows, sent })
    }

    /// When the server was heard last.
    pub(super) fn heard(&self) -> Instant {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_discarded.load(Ordering::Relaxed) || self.client.is_closed()
    }

    /// Waits for its end.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Ends it without waiting for what is on its way.
    pub(super) fn discard(&self) {
        self.is_discarded.store(true, Ordering::Relaxed);
        self.task.abort();
    }
}

impl Answer {
    /// A value of the first row; empty where it is null.
    pub(super) fn text(&self, column: usize) -> Result<&str, StoreError> {
        let row = self.rows.first().ok_or_else(|| unexpected("no row"))?;
        value(row, column)
    }
}

/// A value; empty where it is null.
pub(super) fn value(row: &SimpleQueryRow, column: usize) -> Result<&str, StoreError> {
    let value = row.try_get(column);
    Ok(value
        .map_err(|_| unexpected("too few columns"))?
        .unwrap_or_default())
}

/// The functions in the database are not those that are asked for.
pub(super) fn unexpected(what: &str) -> StoreError {
    StoreError::in_doubt(format!(
        "the database has answered with {what}: the functions in the schema `lockattr` are not those of \
         `lockattr::POSTGRES_SCHEMA`; run it"
    ))
}

/// Moves bytes until the connection ends, and delivers messages.
pub(super) async fn drive<S, T>(
    mut connection: Connection<S, T>,
    registry: Option<Arc<WakeUpRegistry>>,
    ended: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let _ended = ended.drop_guard();
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let (AsyncMessage::Notification(notification), Some(registry)) = (message, &registry) {
            registry.deliver(notification.channel(), notification.payload());
        }
    }
}
