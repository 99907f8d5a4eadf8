//! Requests to several nodes at the same time.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use crate::error::StoreError;

/// What is asked of one node. It is nobody's: it can go on when its caller is gone.
pub(super) struct Request<T> {
    pub(super) answer: Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>,
    /// Whether the node was asked: a node that is known to be silent is not, before it answers again.
    sent: Sent,
}

/// Set when a request goes to its node.
#[derive(Clone, Default)]
pub(super) struct Sent(Arc<AtomicBool>);

impl Sent {
    pub(super) fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<T> Request<T> {
    pub(super) fn new<F>(ask: impl FnOnce(Sent) -> F) -> Self
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let sent = Sent::default();
        Self {
            answer: Box::pin(ask(sent.clone())),
            sent,
        }
    }

    pub(super) fn is_sent(&self) -> bool {
        self.sent.0.load(Ordering::Relaxed)
    }
}

/// Those of a step, each with the index of its node.
pub(super) struct Requests<T> {
    pending: Vec<(usize, Request<T>)>,
    answered: VecDeque<(usize, Result<T, StoreError>)>,
}

impl<T> Requests<T> {
    pub(super) fn new(requests: impl Iterator<Item = (usize, Request<T>)>) -> Self {
        Self {
            pending: requests.collect(),
            answered: VecDeque::new(),
        }
    }

    /// The next answer; `None` where there is none to come. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<(usize, Result<T, StoreError>)> {
        poll_fn(|cx| {
            if self.answered.is_empty() {
                let answered = &mut self.answered;
                // All of them: each is sent when it is polled first.
                self.pending.retain_mut(|(node, request)| {
                    let polled = request.answer.as_mut().poll(cx);
                    if let Poll::Ready(answer) = polled {
                        answered.push_back((*node, answer));
                        return false;
                    }
                    true
                });
            }
            match self.answered.pop_front() {
                Some(answer) => Poll::Ready(Some(answer)),
                None if self.pending.is_empty() => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Whether an answer is on its way: nodes that are known to be silent are not asked.
    pub(super) fn are_sent(&self) -> bool {
        !self.answered.is_empty() || self.pending.iter().any(|(_, request)| request.is_sent())
    }

    /// What has been answered by now beside what was told.
    pub(super) fn answered(&mut self) -> impl Iterator<Item = (usize, Result<T, StoreError>)> {
        self.answered.drain(..)
    }

    /// What is not answered yet.
    pub(super) fn into_pending(self) -> Vec<(usize, Request<T>)> {
        self.pending
    }
}
