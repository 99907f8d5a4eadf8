//! The watch stream: one for all claims of a client that wait, on the client's own thread.
//!
//! Where it breaks it is opened again, at the next member, and goes on at the revision that it has come to, so that
//! nothing is missed. Where that is compacted by then, the claim is told to look. A stream that is silent is asked
//! for its progress; one that stays silent is given up. A member without a leader ends the stream by itself.

use std::collections::HashSet;
use std::future::pending;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout};
use tonic::{Status, Streaming};

use super::fault::Fault;
use super::keep_alives::streaming;
use super::members::{Members, WATCH};
use super::proto::{
    Header, Nothing, Range, WatchAnswer, WatchAsk, WatchCancel, WatchCreate, WatchRequest,
};
use super::wakeups::{Order, Watch, Watched};
use super::wire::Stored;

/// After so long without a message a stream is asked for its progress, and after as long again it is given up.
const SILENCE: Duration = Duration::from_millis(500);

/// Before a stream is opened again that has failed at once.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// For how long a stream is kept on which nobody waits.
const KEPT: Duration = Duration::from_secs(10);

/// A deletion, as events have it.
const DELETED: i32 = 1;

/// Watches for all who wait, until there is nobody who could.
pub(super) async fn run(
    members: Members,
    waiting: Watched,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        // Only this end is left once the client is gone.
        while waiting.watches().is_empty() {
            if orders.recv().await.is_none() {
                return;
            }
        }
        let opened = Instant::now();
        match carry(&members, &waiting, &mut orders).await {
            End::Gone => return,
            End::Idle => {}
            End::Failed => {
                if opened.elapsed() > Duration::from_secs(1) {
                    pause = FIRST_PAUSE;
                }
                sleep_until((Instant::now() + pause).into()).await;
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
    }
}

enum End {
    /// Nobody waits.
    Idle,
    Failed,
    /// The client is gone.
    Gone,
}

async fn carry(
    members: &Members,
    waiting: &Watched,
    orders: &mut mpsc::UnboundedReceiver<Order>,
) -> End {
    let member = members.current();
    let (out, outgoing) = mpsc::unbounded_channel();
    let send = |ask| {
        // The stream's end is told where it is read.
        let _ = out.send(WatchRequest { ask: Some(ask) });
    };
    let mut created = HashSet::new();
    let mut watch = |id| {
        // An order may be older than the stream, which was opened with all that are watched for.
        if let Some(watch) = waiting.watch(id)
            && created.insert(id)
        {
            send(create(id, watch));
        }
    };
    waiting.watches().into_iter().for_each(&mut watch);
    let mut opening = std::pin::pin!(streaming(members, &member, WATCH, outgoing));
    let mut stream: Option<Streaming<WatchAnswer>> = None;
    let mut heard = Instant::now();
    let mut asked = false;
    let mut idle: Option<Instant> = None;
    let bound = members.timeouts().connect + members.timeouts().reply;
    loop {
        let silence = if stream.is_some() { SILENCE } else { bound };
        tokio::select! {
            biased;
            order = orders.recv() => match order {
                None => return End::Gone,
                Some(Order::Watch(id)) => {
                    idle = None;
                    watch(id);
                }
                Some(Order::Cancel(watch_id)) => {
                    send(WatchAsk::Cancel(WatchCancel { watch_id }));
                }
            },
            opened = &mut opening, if stream.is_none() => {
                let Ok(opened) = opened else {
                    members.leave(&member);
                    return End::Failed;
                };
                stream = Some(opened);
                heard = Instant::now();
            }
            message = next(&mut stream) => {
                let Ok(Some(answer)) = message else {
                    members.leave(&member);
                    return End::Failed;
                };
                heard = Instant::now();
                asked = false;
                if !take(waiting, &answer) {
                    members.log_in_anew();
                    return End::Failed;
                }
            }
            () = sleep_until((heard + silence).into()) => {
                if waiting.watches().is_empty() && stream.is_some() {
                    heard = Instant::now();
                    asked = false;
                    if idle.get_or_insert(heard).elapsed() > KEPT {
                        return End::Idle;
                    }
                    continue;
                }
                if asked || stream.is_none() {
                    members.silent(&member);
                    members.leave(&member);
                    return End::Failed;
                }
                asked = true;
                heard = Instant::now();
                send(WatchAsk::Progress(Nothing {}));
            }
        }
    }
}

async fn next(stream: &mut Option<Streaming<WatchAnswer>>) -> Result<Option<WatchAnswer>, Status> {
    match stream {
        Some(stream) => stream.message().await,
        None => pending().await,
    }
}

fn create(watch_id: i64, watch: Watch) -> WatchAsk {
    let Range { key, range_end } = watch.range;
    WatchAsk::Create(WatchCreate {
        key,
        range_end,
        start_revision: watch.from,
        watch_id,
    })
}

/// Tells those whom an answer concerns. Answers whether the stream is of any use: a login that has ended shows
/// as a missing right.
fn take(waiting: &Watched, answer: &WatchAnswer) -> bool {
    let id = answer.watch_id;
    if answer.canceled {
        if answer.compact_revision == 0 && waiting.watch(id).is_some() {
            waiting.changed(id);
            return false;
        }
        waiting.ended(id);
        return true;
    }
    let frees = answer.events.iter().any(|event| {
        let is_mark = |kv| matches!(Stored::read(kv), Stored::Done { .. });
        event.kind == DELETED || event.kv.as_ref().is_some_and(is_mark)
    });
    if frees {
        waiting.changed(id);
    }
    if let Some(Header { revision, .. }) = answer.header
        && !answer.events.is_empty()
    {
        waiting.seen(id, revision + 1);
    }
    true
}

/// Watches a range once, for the check of a cluster.
pub(super) async fn check(members: &Members, range: Range) -> Result<(), Fault> {
    let member = members.current();
    let (out, outgoing) = mpsc::unbounded_channel();
    let Range { key, range_end } = range;
    let ask = WatchAsk::Create(WatchCreate {
        key,
        range_end,
        start_revision: 0,
        watch_id: 1,
    });
    let ask = Some(ask);
    // This function has the other end.
    let _ = out.send(WatchRequest { ask });
    let bound = members.timeouts().reply;
    let watched = timeout(bound, async {
        let mut stream = streaming(members, &member, WATCH, outgoing).await?;
        let first: Result<Option<WatchAnswer>, _> = stream.message().await;
        match first {
            Ok(Some(answer)) if answer.canceled => {
                let reason = Status::permission_denied(answer.cancel_reason);
                Err(Fault::of(&reason, &member.name))
            }
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(Fault::nonsense("a watch that ends at once")),
            Err(status) => Err(Fault::of(&status, &member.name)),
        }
    });
    let watched = watched.await;
    drop(out);
    watched.unwrap_or_else(|_| {
        members.silent(&member);
        members.leave(&member);
        Err(Fault::silent(&member.name, bound))
    })
}
