//! Who goes by a desk: sends what lies on it, and hands out the replies.

use std::collections::VecDeque;
use std::iter;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisResult, Value};
use tokio_util::sync::ReusableBoxFuture;

use super::{Fault, Shared, State, in_place_of};
use crate::runtime::waker;

/// As many pieces at most are on their way; others wait on the desk.
const ON_THE_WAY: usize = 32;

/// Sends what lies on the desk, and hands out the replies.
pub(super) struct Driver {
    shared: Arc<Shared>,
    redis: MultiplexedConnection,
    on_the_way: VecDeque<Piece>,
    /// What is left of pieces that were answered, and used again.
    spare: Vec<Spare>,
    /// Empty but while replies are handed out.
    wakers: Vec<Waker>,
}

/// Commands that were sent together. Their replies come in the same order.
struct Piece {
    reply: Reply,
    replied: Option<Replied>,
    places: Vec<usize>,
}

type Reply = ReusableBoxFuture<'static, Replied>;

/// The replies, and what it took to get them.
type Replied = (RedisResult<Vec<Value>>, Pipeline, MultiplexedConnection);

struct Spare {
    reply: Option<Reply>,
    redis: MultiplexedConnection,
    pipeline: Pipeline,
    places: Vec<usize>,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, redis: MultiplexedConnection) -> Self {
        Self {
            shared,
            redis,
            on_the_way: VecDeque::new(),
            spare: Vec::new(),
            wakers: Vec::new(),
        }
    }

    /// Sends what may be sent, unless nobody is there any more.
    fn send(&mut self, cx: &mut Context<'_>) -> State {
        loop {
            let mut table = self.shared.table();
            let all_sent = table.waiting.is_empty() || self.on_the_way.len() >= ON_THE_WAY;
            if table.state != State::Open || all_sent {
                let before = waker::replace(&mut table.driver, cx.waker());
                let state = table.state;
                drop(table);
                drop(before);
                return state;
            }
            let mut spare = self.spare.pop().unwrap_or_else(|| Spare {
                reply: None,
                redis: self.redis.clone(),
                pipeline: Pipeline::new(),
                places: Vec::new(),
            });
            table.take(&mut spare.pipeline, &mut spare.places);
            if spare.places.is_empty() {
                drop(table);
                self.spare.push(spare);
                continue;
            }
            table.pieces += 1;
            drop(table);
            let mut piece = spare.sent();
            // Now, so that the next one comes after it.
            let _ = piece.poll(cx);
            self.on_the_way.push_back(piece);
        }
    }

    /// Hands out the replies to the first piece, if they have come.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(first) = self.on_the_way.front_mut()
            && first.poll(cx).is_ready()
            && let Some(Piece {
                reply,
                replied: Some((replies, mut pipeline, redis)),
                mut places,
            }) = self.on_the_way.pop_front()
        {
            self.hand_out(&places, replies);
            pipeline.clear();
            places.clear();
            self.spare.push(Spare {
                reply: Some(reply),
                redis,
                pipeline,
                places,
            });
            return true;
        }
        false
    }

    fn hand_out(&mut self, places: &[usize], replies: RedisResult<Vec<Value>>) {
        let replies = replies.map_err(Fault::from).and_then(|replies| {
            if replies.len() == places.len() {
                Ok(replies)
            } else {
                Err(Fault::nonsense(&Value::Array(replies)))
            }
        });
        match replies {
            Ok(replies) => self.answer(places, replies.into_iter().map(Ok)),
            Err(fault) => self.answer(places, iter::repeat_with(|| Err(fault.clone()))),
        }
    }

    fn answer(&mut self, places: &[usize], answers: impl Iterator<Item = Result<Value, Fault>>) {
        let mut table = self.shared.table();
        table.pieces = self.on_the_way.len();
        for (place, answer) in places.iter().zip(answers) {
            self.wakers.extend(table.answer(*place, answer));
        }
        drop(table);
        let count = u64::try_from(places.len()).unwrap_or(u64::MAX);
        self.shared.replies.fetch_add(count, Ordering::Relaxed);
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let received = self.receive(cx);
        if self.send(cx) == State::Closed {
            // Whoever needs an answer keeps the connection open.
            return Poll::Ready(());
        }
        // Whoever was answered goes on, and what that leads to is sent, before the next are answered:
        // the server and its callers work at the same time.
        let next = self.on_the_way.front();
        if next.is_some_and(|next| received || next.replied.is_some()) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// A runtime that ends drops its tasks: nobody will be answered any more.
impl Drop for Driver {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        table.state = State::Over;
        let waiting = mem::take(&mut table.waiting);
        drop(table);
        let waiting = waiting.into_iter().map(|(_, place)| place);
        let sent = mem::take(&mut self.on_the_way);
        let sent = sent.into_iter().flat_map(|piece| piece.places);
        let places: Vec<_> = sent.chain(waiting).collect();
        self.answer(&places, iter::repeat_with(|| Err(Fault::closed())));
    }
}

impl Spare {
    /// The commands in the pipeline, on their way once this is polled.
    fn sent(self) -> Piece {
        let Self {
            reply,
            mut redis,
            pipeline,
            places,
        } = self;
        let count = places.len();
        let sending = async move {
            let replies = redis.send_packed_commands(&pipeline, 0, count).await;
            (replies, pipeline, redis)
        };
        Piece {
            reply: in_place_of(reply, sending),
            replied: None,
            places,
        }
    }
}

impl Piece {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.replied.is_none() {
            self.replied = Some(ready!(self.reply.poll(cx)));
        }
        Poll::Ready(())
    }
}
