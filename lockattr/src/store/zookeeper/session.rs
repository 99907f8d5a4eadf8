//! The session of a client: one task on the client's thread, which keeps a connection to some server of the
//! ensemble, asks over it in order, and knows until when the session may be relied on.
//!
//! The servers end a session of which its leader has heard nothing for the negotiated timeout. So it lives
//! for that long from when a request was sent that the leader has answered; nothing is believed of it
//! after that, whoever says so. What is read is answered by the server that is asked, also while that is
//! cut off from the leader, and proves nothing; a heartbeat is a `sync` therefore, which the leader
//! answers. One that has not asked for half its time, because its process has stood still, connects anew: with that the
//! leader itself begins the session's time anew, unless its own deadline has passed.
//!
//! Requests of one session are carried out in the order in which they were sent, also over a connection
//! that was replaced: a server refuses what comes of a session that has moved on.

mod task;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::claims::Claims;
use super::connection::Opened;
use super::fault::Failure;
use super::protocol::Request;
use super::url::Ensemble;
use crate::runtime::background::Background;
use task::Task;

/// So often within its timeout a session says that it lives while something is held or waited for; and
/// else.
const BEATS_IN_USE: u32 = 40;
const BEATS_IDLE: u32 = 3;

/// Of the timeout this part is not relied on: clocks that differ in speed, and what the leader hears later
/// from the server that was asked.
const MARGIN_PER_TIMEOUT: u32 = 25;
const MARGIN: Duration = Duration::from_millis(2);

/// A handle to the session, whose task ends with the last one.
pub(super) struct Session {
    events: UnboundedSender<Event>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    life: Mutex<Option<Life>>,
    claims: Claims,
}

/// What is known of the session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    /// Its id.
    pub(super) session: i64,
    /// What it lives for when it is not heard of.
    pub(super) timeout: Duration,
    /// When the request was sent that has proved last that it lives.
    proved: Instant,
}

impl Life {
    /// Until when it may be relied on.
    pub(super) fn until(&self) -> Instant {
        let margin = self.timeout / MARGIN_PER_TIMEOUT + MARGIN;
        self.proved + self.timeout.saturating_sub(margin)
    }

    /// Whether the answer to a request that was sent then means that the session lives on. Who has asked another server
    /// than the leader, that learns up to half a tick later, and a session has two ticks at least: one that was silent
    /// for nearly all its time may be ended, though the leader has just answered for it.
    fn goes_on(&self, sent: Instant) -> bool {
        sent < self.proved + self.timeout / 2
    }

    /// Whether it was heard of as lately as it is where all is well.
    pub(super) fn is_fresh(&self) -> bool {
        self.proved.elapsed() < 3 * self.timeout / BEATS_IN_USE
    }
}

pub(super) struct SessionConfig {
    pub(super) ensemble: Ensemble,
    /// The timeout that is asked for.
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) reply_timeout: Duration,
}

pub(super) struct Answer {
    pub(super) body: Vec<u8>,
    /// The session in which it was asked, and when it was sent.
    pub(super) session: i64,
    pub(super) sent: Instant,
}

/// An answer that is on its way.
pub(super) struct Pending(oneshot::Receiver<Result<Answer, Failure>>);

impl Pending {
    pub(super) async fn answer(self) -> Result<Answer, Failure> {
        let ended = || Failure::InDoubt("the client's thread has ended".to_owned());
        self.0.await.unwrap_or_else(|_| Err(ended()))
    }
}

pub(super) enum Event {
    Ask(Asked),
    /// Something is due sooner than the task looks.
    Look,
    Opened(u64, Result<Opened, String>),
    Message(u64, Vec<u8>),
    Closed(u64, String),
}

pub(super) struct Asked {
    request: Request,
    /// After this it is not waited for, and not sent any more.
    deadline: Instant,
    whose: Whose,
}

/// What an answer is for.
enum Whose {
    Caller(oneshot::Sender<Result<Answer, Failure>>),
    Heartbeat,
    /// To watch a node of a lease.
    Watch(String),
    /// To delete a node whose time is over. Nobody ever makes another one of its name, or it is deleted only with one
    /// of which that is so.
    Delete,
    /// To end the session, of which nothing is believed any more.
    Close,
}

impl Session {
    pub(super) fn start(config: SessionConfig, background: &Background) -> Self {
        let (events, inbox) = unbounded_channel();
        let shared = Arc::<Shared>::default();
        shared.claims.set_task(events.downgrade());
        let task = Task::new(config, inbox, events.downgrade(), Arc::clone(&shared));
        background.spawn(task.run());
        Self { events, shared }
    }

    /// Asks, after everything that was asked before.
    pub(super) fn send(&self, request: Request, deadline: Instant) -> Pending {
        let (answer, pending) = oneshot::channel();
        let asked = Asked {
            request,
            deadline,
            whose: Whose::Caller(answer),
        };
        // Where nobody receives it, the other end of the answer is dropped with it.
        let _ = self.events.send(Event::Ask(asked));
        Pending(pending)
    }

    pub(super) fn claims(&self) -> &Claims {
        &self.shared.claims
    }

    /// What is known of the session, if there was one yet.
    pub(super) fn life(&self) -> Option<Life> {
        *self.shared.life()
    }
}

impl Shared {
    fn life(&self) -> MutexGuard<'_, Option<Life>> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, life: Option<Life>) {
        *self.life() = life;
    }

    /// A request that was sent then was answered by the leader.
    fn prove(&self, sent: Instant) {
        if let Some(life) = self.life().as_mut() {
            life.proved = life.proved.max(sent);
        }
    }
}

impl Asked {
    fn fail(self, failure: Failure) {
        if let Whose::Caller(answer) = self.whose {
            let _ = answer.send(Err(failure));
        }
    }

    fn is_unwanted(&self) -> bool {
        matches!(&self.whose, Whose::Caller(answer) if answer.is_closed())
    }
}
