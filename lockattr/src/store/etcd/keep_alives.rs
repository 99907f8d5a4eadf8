//! Keep-alives: one stream for all leases of a client, on the client's own thread.
//!
//! An answer alone says little: a leader that was cut off, or frozen, and replaced meanwhile answers for a lease
//! that it has no say in any more. It counts once a later request of the same leader's term was agreed upon by a
//! majority: the leader of that term was the only one then, and its successor lets every lease run anew.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_core::Stream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;
use tonic::client::Grpc;
use tonic::transport::Uri;
use tonic::{Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::fault::Fault;
use super::members::{Found, KEEP_ALIVE, Members};
use super::proto::{Header, KeptAlive, LeaseId};
use crate::error::StoreError;

/// How long a place is kept for an answer that nobody waits for.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// The answer to a keep-alive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) sent: Instant,
    /// For how long the lease runs, from a moment after it was sent; zero where there is no such lease.
    pub(super) ttl: Duration,
    /// The term of the leader that has answered.
    pub(super) term: u64,
}

pub(super) struct KeepAlives {
    members: Members,
    /// Where asks go while a stream is open.
    open: Mutex<Option<mpsc::UnboundedSender<Ask>>>,
}

struct Ask {
    id: i64,
    sent: Instant,
    /// When it is answered no more.
    by: Instant,
    tell: oneshot::Sender<Result<Kept, Fault>>,
}

impl KeepAlives {
    pub(super) fn new(members: &Members) -> Self {
        Self {
            members: members.clone(),
            open: Mutex::default(),
        }
    }

    /// Has a lease run anew. It is on its way when this returns.
    pub(super) fn ask(
        &self,
        id: i64,
        by: Instant,
    ) -> impl Future<Output = Result<Kept, Fault>> + Send + use<> {
        let (tell, told) = oneshot::channel();
        let sent = Instant::now();
        self.send(Ask { id, sent, by, tell });
        async move {
            told.await.unwrap_or_else(|_| {
                let ended = StoreError::in_doubt("the client's thread has ended");
                Err(Fault::last(ended))
            })
        }
    }

    fn send(&self, ask: Ask) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let ask = match &*open {
            Some(asks) => match asks.send(ask) {
                Ok(()) => return,
                Err(mpsc::error::SendError(ask)) => ask,
            },
            None => ask,
        };
        let (asks, asked) = mpsc::unbounded_channel();
        // Nobody else has the other end.
        let _ = asks.send(ask);
        let members = self.members.clone();
        self.members.background().spawn(serve(members, asked));
        *open = Some(asks);
    }
}

/// Carries keep-alives over one stream, until that fails or nobody is there who could ask.
async fn serve(members: Members, mut asked: mpsc::UnboundedReceiver<Ask>) {
    let mut pending = Pending::default();
    let fault = carry(&members, &mut asked, &mut pending).await;
    asked.close();
    while let Ok(ask) = asked.try_recv() {
        pending.add(ask);
    }
    let Some(fault) = fault else {
        return;
    };
    for ask in pending.asks.into_values().flatten() {
        // Whoever has asked may be gone.
        let _ = ask.tell.send(Err(fault.clone()));
    }
}

async fn carry(
    members: &Members,
    asked: &mut mpsc::UnboundedReceiver<Ask>,
    pending: &mut Pending,
) -> Option<Fault> {
    let member = members.current();
    let (out, outgoing) = mpsc::unbounded_channel();
    let opening = open(members, &member, outgoing);
    let mut opening = std::pin::pin!(opening);
    let mut stream: Option<Streaming<KeptAlive>> = None;
    let mut heard: Option<Instant> = None;
    loop {
        let due = pending.due;
        tokio::select! {
            biased;
            ask = asked.recv() => {
                let ask = ask?;
                // The stream's end is told where it is read.
                let _ = out.send(LeaseId { id: ask.id });
                pending.add(ask);
            }
            opened = &mut opening, if stream.is_none() => match opened {
                Ok(opened) => stream = Some(opened),
                Err(fault) => {
                    members.leave(&member);
                    return Some(fault);
                }
            },
            message = next(&mut stream), if stream.is_some() => match message {
                Ok(Some(kept)) => {
                    heard = Some(Instant::now());
                    pending.answer(&kept);
                }
                Ok(None) => {
                    members.leave(&member);
                    let ended = format!("etcd at {} has ended the keep-alives", member.name);
                    return Some(Fault::of(&Status::unavailable(ended), &member.name));
                }
                Err(status) => {
                    members.leave(&member);
                    return Some(Fault::of(&status, &member.name));
                }
            },
            () = sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => {
                // While others are answered, it is on its way.
                if let Some((sent, by)) = pending.over(Instant::now())
                    && heard.is_none_or(|heard| heard <= sent)
                {
                    members.silent(&member);
                    members.leave(&member);
                    return Some(Fault::silent(&member.name, by - sent));
                }
            }
        }
    }
}

async fn next(stream: &mut Option<Streaming<KeptAlive>>) -> Result<Option<KeptAlive>, Status> {
    match stream {
        Some(stream) => stream.message().await,
        None => pending().await,
    }
}

async fn open(
    members: &Members,
    member: &Found,
    outgoing: mpsc::UnboundedReceiver<LeaseId>,
) -> Result<Streaming<KeptAlive>, Fault> {
    streaming(members, member, KEEP_ALIVE, outgoing).await
}

/// Opens a stream in both directions. The server answers to its first message, and not before.
pub(super) async fn streaming<M, R>(
    members: &Members,
    member: &Found,
    path: &'static str,
    outgoing: mpsc::UnboundedReceiver<M>,
) -> Result<Streaming<R>, Fault>
where
    M: prost::Message + 'static,
    R: prost::Message + Default + 'static,
{
    let (request, token) = members.signed(member, Outgoing(outgoing)).await?;
    let mut grpc = Grpc::new(member.channel.clone());
    let opened = match grpc.ready().await {
        Ok(()) => {
            let path = Uri::from_static(path).into_parts().path_and_query;
            let path = path.ok_or_else(|| Fault::nonsense("no path"))?;
            let codec = ProstCodec::<M, R>::default();
            grpc.streaming(request, path, codec).await
        }
        Err(error) => Err(Status::from_error(error.into())),
    };
    opened.map(Response::into_inner).map_err(|status| {
        let fault = Fault::of(&status, &member.name);
        if fault.kind == super::fault::Kind::LoggedOut {
            members.logged_out(token.as_deref());
        }
        fault
    })
}

/// What is to be sent.
struct Outgoing<M>(mpsc::UnboundedReceiver<M>);

impl<M> Stream for Outgoing<M> {
    type Item = M;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<M>> {
        self.0.poll_recv(cx)
    }
}

/// What was sent and not answered yet.
#[derive(Default)]
struct Pending {
    /// Answers for a lease come in the order of the asks.
    asks: HashMap<i64, VecDeque<Ask>>,
    /// Not after the first of them is answered no more.
    due: Option<Instant>,
}

impl Pending {
    fn add(&mut self, ask: Ask) {
        self.due = Some(self.due.map_or(ask.by, |due| due.min(ask.by)));
        self.asks.entry(ask.id).or_default().push_back(ask);
    }

    fn answer(&mut self, kept: &KeptAlive) {
        let Some(asks) = self.asks.get_mut(&kept.id) else {
            return;
        };
        let ask = asks.pop_front();
        if asks.is_empty() {
            self.asks.remove(&kept.id);
        }
        if let Some(Ask { sent, tell, .. }) = ask {
            let header = kept.header.as_ref();
            let term = header.map_or(0, |Header { raft_term, .. }| *raft_term);
            let ttl = Duration::from_secs(u64::try_from(kept.ttl).unwrap_or(0));
            // Whoever has asked may be gone.
            let _ = tell.send(Ok(Kept { sent, ttl, term }));
        }
    }

    /// Tells those whose time is over. Answers when the last of them was sent, and its time.
    fn over(&mut self, now: Instant) -> Option<(Instant, Instant)> {
        let mut last: Option<(Instant, Instant)> = None;
        for asks in self.asks.values_mut() {
            for ask in asks.iter_mut().filter(|ask| ask.by <= now) {
                let this = (ask.sent, ask.by);
                last = Some(last.map_or(this, |last| last.max(this)));
                // Its answer may come yet, and is for nobody then.
                let (told, _) = oneshot::channel();
                let tell = std::mem::replace(&mut ask.tell, told);
                let late = StoreError::in_doubt("a keep-alive was not answered in time");
                let _ = tell.send(Err(Fault::last(late)));
                ask.by = now + FORGOTTEN;
            }
        }
        self.due = self.asks.values().flatten().map(|ask| ask.by).min();
        last
    }
}

impl std::fmt::Debug for KeepAlives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeepAlives").finish_non_exhaustive()
    }
}
