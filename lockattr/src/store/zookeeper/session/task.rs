//! The task of a session: which server it asks, when it is heard of, and whose each answer is.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, WeakUnboundedSender};
use tokio::time::{timeout, timeout_at};

use super::super::claims::Due;
use super::super::connection::{Connection, Introduction, Opened, Transport};
use super::super::fault::Failure;
use super::super::protocol::{
    AUTH_XID, Code, Happened, Head, Request, SessionKey, WATCH_XID, head, watched,
};
use super::super::url::Host;
use super::{Answer, Asked, BEATS_IDLE, BEATS_IN_USE, Event, Life, SessionConfig, Shared, Whose};
use crate::runtime::jitter::{between, jittered};

/// The pauses between two rounds of trying all servers.
const FIRST_PAUSE: Duration = Duration::from_millis(30);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

enum Link {
    /// Until the next try.
    Down(Instant),
    Opening,
    Open(Connection),
    /// Open, and nothing is asked on it but that the session ends.
    Closing(#[allow(dead_code, reason = "it is there to be dropped")] Connection),
}

struct Sent {
    asked: Asked,
    xid: i32,
    at: Instant,
}

pub(super) struct Task {
    inbox: UnboundedReceiver<Event>,
    events: WeakUnboundedSender<Event>,
    shared: Arc<Shared>,
    config: SessionConfig,
    session: SessionKey,
    /// A server that has seen less does not take the session.
    last_zxid: i64,
    link: Link,
    /// How many connections there were: events of an earlier one are outdated.
    links: u64,
    next_host: usize,
    /// How many servers were tried in vain since one has answered.
    tried: usize,
    pause: Duration,
    xid: i32,
    /// In the order in which they are answered.
    sent: VecDeque<Sent>,
    waiting: VecDeque<Asked>,
    is_beating: bool,
    /// Why there is no connection.
    why: String,
}

impl Task {
    /// A task without a connection yet, which begins with a server by chance.
    pub(super) fn new(
        config: SessionConfig,
        inbox: UnboundedReceiver<Event>,
        events: WeakUnboundedSender<Event>,
        shared: Arc<Shared>,
    ) -> Self {
        let first = between(Duration::ZERO, Duration::from_secs(1)).as_micros();
        Self {
            inbox,
            events,
            shared,
            config,
            session: SessionKey::default(),
            last_zxid: 0,
            link: Link::Down(Instant::now()),
            links: 0,
            next_host: usize::try_from(first).unwrap_or(0),
            tried: 0,
            pause: FIRST_PAUSE,
            xid: 0,
            sent: VecDeque::new(),
            waiting: VecDeque::new(),
            is_beating: false,
            why: "no server has answered yet".to_owned(),
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let next = self.next_moment();
            match timeout_at(next.into(), self.inbox.recv()).await {
                Ok(Some(event)) => self.handle(event),
                Ok(None) => break,
                Err(_) => {}
            }
            self.on_time(Instant::now());
        }
        // The session ends sooner so, if the thread lives for long enough. What was handed off is to stay until it is
        // taken up, and goes with its session otherwise.
        if let Link::Open(connection) = &self.link
            && !self.shared.claims.holds_any()
        {
            connection.send(Request::close().frame(self.xid));
            let _ = timeout(self.config.reply_timeout, self.inbox.recv()).await;
        }
    }

    fn next_moment(&self) -> Instant {
        let far = Instant::now() + Duration::from_secs(3600);
        let mut moments = vec![
            self.waiting.iter().map(|asked| asked.deadline).min(),
            self.sent.front().map(|sent| self.answered_by(sent)),
            self.next_beat(),
        ];
        if let Link::Down(until) = self.link {
            moments.push(Some(until));
        }
        let next = moments.into_iter().flatten().min().unwrap_or(far);
        self.shared.claims.plan_look(next)
    }

    /// When a connection is taken for dead that has not answered this.
    fn answered_by(&self, sent: &Sent) -> Instant {
        let life = self.shared.life();
        let third = life.map_or(Duration::MAX, |life| life.timeout / 3);
        sent.at + self.config.reply_timeout.min(third)
    }

    fn next_beat(&self) -> Option<Instant> {
        if self.is_beating || !matches!(self.link, Link::Open(_)) {
            return None;
        }
        let life = (*self.shared.life())?;
        let beats = if self.shared.claims.is_empty() {
            BEATS_IDLE
        } else {
            BEATS_IN_USE
        };
        Some(life.proved + life.timeout / beats)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ask(asked) => self.ask(asked),
            Event::Opened(number, opened) if number == self.links => match opened {
                Ok(opened) => self.opened(opened),
                Err(why) => self.failed(why),
            },
            Event::Message(number, message) if self.is_open(number) => self.read(&message),
            Event::Closed(number, why) if self.is_open(number) => {
                self.broken(&format!("the connection has ended: {why}"));
            }
            Event::Look | Event::Opened(..) | Event::Message(..) | Event::Closed(..) => {}
        }
    }

    fn is_open(&self, number: u64) -> bool {
        number == self.links && matches!(self.link, Link::Open(_) | Link::Closing(_))
    }

    fn on_time(&mut self, now: Instant) {
        let late = self.sent.front().map(|sent| self.answered_by(sent));
        if late.is_some_and(|late| late <= now) {
            self.broken("the server does not answer");
        }
        if matches!(self.link, Link::Down(until) if until <= now) {
            self.open();
        }
        for due in self.shared.claims.take_due(now) {
            let (request, whose) = match due {
                Due::Watch(node) => (Request::get(&node, true), Whose::Watch(node)),
                Due::Delete(nodes) => {
                    let deletes: Vec<_> = nodes.iter().map(|node| Request::delete(node)).collect();
                    let request = match &deletes[..] {
                        [delete] => delete.clone(),
                        deletes => Request::multi(deletes),
                    };
                    (request, Whose::Delete)
                }
            };
            self.ask_for_itself(request, whose);
        }
        if self.next_beat().is_some_and(|beat| beat <= now) {
            self.is_beating = true;
            self.ask_for_itself(Request::sync(), Whose::Heartbeat);
        }
        let over = |asked: &Asked| asked.deadline <= now || asked.is_unwanted();
        if self.waiting.iter().any(over) {
            let (late, waiting): (Vec<_>, _) = self.waiting.drain(..).partition(over);
            self.waiting = waiting.into();
            for asked in late {
                asked.fail(Failure::Unreachable(self.why.clone()));
            }
        }
    }

    fn ask_for_itself(&mut self, request: Request, whose: Whose) {
        // It is done with when the session is.
        let deadline = Instant::now() + Duration::from_secs(366 * 24 * 3600);
        self.ask(Asked {
            request,
            deadline,
            whose,
        });
    }

    fn ask(&mut self, asked: Asked) {
        match &self.link {
            Link::Open(connection) => {
                if asked.is_unwanted() {
                    return;
                }
                self.xid = self.xid.checked_add(1).unwrap_or(1);
                connection.send(asked.request.frame(self.xid));
                self.sent.push_back(Sent {
                    asked,
                    xid: self.xid,
                    at: Instant::now(),
                });
            }
            _ => self.waiting.push_back(asked),
        }
    }

    fn host(&self) -> &Host {
        let hosts = &self.config.ensemble.hosts;
        &hosts[self.next_host % hosts.len()]
    }

    fn open(&mut self) {
        self.links += 1;
        self.link = Link::Opening;
        let (number, events) = (self.links, self.events.clone());
        let host = self.host().clone();
        let timeout_ms = i32::try_from(self.config.timeout.as_millis()).unwrap_or(i32::MAX);
        let life = *self.shared.life();
        let is_believed = life.is_some_and(|life| Instant::now() < life.until());
        let introduction = Introduction {
            session: self.session,
            timeout_ms,
            // Servers that have lost their data have seen less for ever.
            last_zxid: if is_believed { self.last_zxid } else { 0 },
        };
        let transport = self.config.ensemble.transport.clone();
        let opening = opened(transport, host, introduction, self.config.connect_timeout);
        tokio::spawn(async move {
            let opened = opening.await;
            if let Some(events) = events.upgrade() {
                let _ = events.send(Event::Opened(number, opened));
            }
        });
    }

    /// A server could not be reached: the next one may be, and after the last one all are given time.
    fn failed(&mut self, why: String) {
        self.why = why;
        self.next_host = self.next_host.wrapping_add(1);
        self.tried += 1;
        let mut next = Instant::now();
        if self.tried.is_multiple_of(self.config.ensemble.hosts.len()) {
            // A session whose time runs out is reached for more often.
            let life = (*self.shared.life()).map_or(Duration::MAX, |life| life.timeout / 60);
            next += jittered(self.pause.min(life));
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        }
        self.link = Link::Down(next);
    }

    fn opened(&mut self, opened: Opened) {
        let Some((session, timeout_ms)) = opened.session else {
            self.session_is_lost();
            self.link = Link::Down(Instant::now());
            return;
        };
        (self.tried, self.pause) = (0, FIRST_PAUSE);
        let asked = opened.asked;
        let timeout = Duration::from_millis(timeout_ms.into());
        let connection = Connection::start(opened, self.links, &self.events);
        let before = *self.shared.life();
        // What was granted counts on the timeout that the session had.
        let is_believed =
            |before: Life| Instant::now() < before.until() && before.timeout <= timeout;
        self.session = session;
        if before.is_some_and(|before| !is_believed(before)) {
            self.xid = self.xid.checked_add(1).unwrap_or(1);
            connection.send(Request::close().frame(self.xid));
            self.link = Link::Closing(connection);
            let asked = Asked {
                request: Request::close(),
                deadline: Instant::now(),
                whose: Whose::Close,
            };
            self.sent.push_back(Sent {
                asked,
                xid: self.xid,
                at: Instant::now(),
            });
            return;
        }
        self.shared.set(Some(Life {
            session: session.id,
            timeout,
            proved: asked,
        }));
        self.link = Link::Open(connection);
        self.is_beating = false;
        self.shared.claims.watches_are_lost();
        for asked in mem::take(&mut self.waiting) {
            self.ask(asked);
        }
    }

    /// The connection is over: what was asked on it may have been done, and is asked again only where it
    /// changes nothing.
    fn broken(&mut self, why: &str) {
        self.is_beating = false;
        let was_closing = matches!(self.link, Link::Closing(_));
        let host = self.host();
        let why = format!("{host}: {why}");
        let mut waiting = VecDeque::new();
        for Sent { asked, .. } in mem::take(&mut self.sent) {
            match asked.whose {
                // It is deleted for as long as the session lives.
                Whose::Delete => waiting.push_back(asked),
                Whose::Caller(_) if asked.request.only_reads() => waiting.push_back(asked),
                Whose::Caller(_) => asked.fail(Failure::InDoubt(why.clone())),
                // What is watched is known to be lost, and the next connection proves that it lives.
                Whose::Watch(_) | Whose::Heartbeat | Whose::Close => {}
            }
        }
        // In the order in which they were asked.
        waiting.append(&mut self.waiting);
        self.waiting = waiting;
        if was_closing {
            // It may be over or not: the next connection finds out.
            self.link = Link::Down(Instant::now());
        } else {
            self.failed(why);
        }
    }

    fn session_is_lost(&mut self) {
        self.session = SessionKey::default();
        self.shared.set(None);
        // What its nodes were deleted for is over with them.
        self.waiting
            .retain(|asked| matches!(asked.whose, Whose::Caller(_)));
        self.shared.claims.session_is_lost();
    }

    fn read(&mut self, message: &[u8]) {
        let Ok((head, body)) = head(message) else {
            self.broken("it does not answer as a ZooKeeper server does");
            return;
        };
        self.last_zxid = self.last_zxid.max(head.zxid);
        match head.xid {
            WATCH_XID => {
                if let Ok((what, node)) = watched(body) {
                    self.shared.claims.happened(&node, what);
                }
            }
            AUTH_XID => {
                if head.code == Code::AUTH_FAILED {
                    self.broken("the login was refused: its user or password is wrong");
                }
            }
            _ => self.answered(&head, body),
        }
    }

    fn answered(&mut self, head: &Head, body: &[u8]) {
        let (asked, at) = match self.sent.pop_front() {
            Some(Sent { asked, xid, at }) if xid == head.xid => (asked, at),
            other => {
                self.sent.extend(other);
                self.broken("it has answered what it was not asked");
                return;
            }
        };
        match head.code {
            Code::SESSION_EXPIRED => {
                asked.fail(Failure::InDoubt("the session has expired".to_owned()));
                self.session_is_lost();
                self.broken("the session has expired");
                return;
            }
            Code::SESSION_MOVED => {
                asked.fail(Failure::InDoubt("the session has moved".to_owned()));
                self.broken("the session has moved to another connection");
                return;
            }
            Code(0) if asked.request.proves_life() => {
                let life = *self.shared.life();
                if life.is_some_and(|life| !life.goes_on(at)) {
                    self.sent.push_front(Sent {
                        asked,
                        xid: head.xid,
                        at,
                    });
                    self.broken("the session was not kept for half of its timeout");
                    return;
                }
                self.shared.prove(at);
            }
            _ => {}
        }
        let session = self.session.id;
        match asked.whose {
            Whose::Caller(answer) => {
                let body = body.to_vec();
                let outcome = match head.code {
                    Code(0) => Ok(Answer {
                        body,
                        session,
                        sent: at,
                    }),
                    code => Err(Failure::Refused(code, asked.request.what)),
                };
                // Whoever has asked may be gone.
                let _ = answer.send(outcome);
            }
            Whose::Heartbeat => self.is_beating = false,
            Whose::Watch(node) if head.code == Code::NO_NODE => {
                self.shared.claims.happened(&node, Happened::Deleted);
            }
            Whose::Watch(_) | Whose::Delete => {}
            Whose::Close => {
                self.session_is_lost();
                self.link = Link::Down(Instant::now());
            }
        }
    }
}

/// A connection, if it is there in time.
async fn opened(
    transport: Transport,
    host: Host,
    introduction: Introduction,
    bound: Duration,
) -> Result<Opened, String> {
    match timeout(bound, transport.open(&host, introduction)).await {
        Ok(Ok(opened)) => Ok(opened),
        Ok(Err(error)) => Err(format!("{host}: {error}")),
        Err(_) => Err(format!("{host} has not answered within {bound:?}")),
    }
}
