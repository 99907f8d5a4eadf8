//! The span of a locked call: its fields, what is inside it, and when it ends.

#![allow(missing_docs, reason = "the names of tests say what they show")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockattr::{Client, Error, Memory, distributed_lock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument, Level, Metadata, Subscriber, instrument};

/// A span, as a subscriber that keeps it has seen it.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    parent: Option<u64>,
    fields: BTreeMap<&'static str, String>,
    /// Messages of the events inside.
    told: Vec<String>,
    is_closed: bool,
    handles: usize,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

thread_local! {
    /// The spans that the thread is in, the innermost last.
    static INSIDE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone)]
struct Listener {
    spans: Arc<Mutex<Vec<Seen>>>,
    level: Level,
}

impl Listener {
    fn new(level: Level) -> Self {
        let spans = Arc::default();
        Self { spans, level }
    }

    fn change(&self, id: &Id, change: impl FnOnce(&mut Seen)) {
        let index = usize::try_from(id.into_u64()).unwrap() - 1;
        change(&mut self.spans.lock().unwrap()[index]);
    }

    /// The spans of calls, in the order in which they were begun.
    fn calls(&self) -> Vec<Seen> {
        let spans = self.spans.lock().unwrap();
        let calls = spans
            .iter()
            .filter(|span| span.fields.contains_key("holder"));
        calls.cloned().collect()
    }

    fn only(&self) -> Seen {
        let calls = self.calls();
        assert_eq!(calls.len(), 1, "{calls:#?}");
        calls[0].clone()
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= &self.level
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut seen = Seen {
            name: span.metadata().name(),
            parent: INSIDE.with_borrow(|inside| inside.last().copied()),
            handles: 1,
            ..Seen::default()
        };
        span.record(&mut seen);
        let mut spans = self.spans.lock().unwrap();
        spans.push(seen);
        Id::from_u64(u64::try_from(spans.len()).unwrap())
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.change(id, |seen| values.record(seen));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let Some(id) = INSIDE.with_borrow(|inside| inside.last().copied()) else {
            return;
        };
        let mut read = Seen::default();
        event.record(&mut read);
        let message = read.fields.remove("message").unwrap_or_default();
        self.change(&Id::from_u64(id), |seen| seen.told.push(message));
    }

    fn enter(&self, id: &Id) {
        INSIDE.with_borrow_mut(|inside| inside.push(id.into_u64()));
    }

    fn exit(&self, _: &Id) {
        INSIDE.with_borrow_mut(Vec::pop);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.change(id, |seen| seen.handles += 1);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut is_closed = false;
        self.change(&id, |seen| {
            seen.handles -= 1;
            is_closed = seen.handles == 0;
            seen.is_closed = is_closed;
        });
        is_closed
    }
}

type Answer = Result<(), Error>;

#[distributed_lock(key = "call:<id>", ttl = "5s", client = locks)]
async fn call(locks: &Client, id: u8, body: impl Future<Output = Answer> + Send) -> Answer {
    body.await
}

#[distributed_lock(key = "call:<id>", redact = true, bind = lease, client = locks)]
async fn with_a_token(locks: &Client, id: u8) -> Answer {
    lease.token().await.map(drop)
}

#[distributed_lock(key = "call:<id>", on_busy = skip, on_unavailable = run, client = locks)]
async fn unguarded(locks: &Client, id: u8) {}

#[distributed_lock(key = "call:<id>", once = "1h", client = locks)]
async fn once(locks: &Client, id: u8) -> Answer {
    Ok(())
}

#[instrument(skip_all, name = "above")]
#[distributed_lock(key = "call:<id>", client = locks)]
#[instrument(skip_all, name = "below")]
async fn between(locks: &Client, id: u8) -> Answer {
    tokio::task::yield_now().await;
    tracing::info!("in the body");
    Ok(())
}

struct Place {
    listener: Listener,
    _listening: tracing::subscriber::DefaultGuard,
    memory: Memory,
    locks: Client,
}

/// A client on a thread that listens.
fn place(level: Level) -> Place {
    let listener = Listener::new(level);
    let memory = Memory::new();
    Place {
        _listening: tracing::subscriber::set_default(listener.clone()),
        locks: Client::builder().store(memory.clone()).unwrap(),
        listener,
        memory,
    }
}

fn field<'a>(seen: &'a Seen, name: &str) -> &'a str {
    seen.fields.get(name).map_or("", String::as_str)
}

fn outcome(seen: &Seen) -> &str {
    assert!(seen.is_closed, "{seen:?}");
    field(seen, "outcome")
}

#[tokio::test]
async fn a_call_has_a_span_with_what_is_known_of_it() {
    let place = place(Level::DEBUG);
    let nap = tokio::time::sleep(Duration::from_millis(30));
    let body = async {
        nap.await;
        Ok(())
    };
    call(&place.locks, 1, body).await.unwrap();
    let seen = place.listener.only();
    assert_eq!(
        (seen.name, outcome(&seen)),
        ("distributed_lock", "acquired")
    );
    assert!(field(&seen, "function").ends_with("::call"), "{seen:?}");
    assert_eq!(field(&seen, "template"), "call:<id>");
    assert_eq!(field(&seen, "key"), "call:1");
    let ours = format!(":{}", std::process::id());
    assert!(field(&seen, "holder").ends_with(&ours), "{seen:?}");
    let millis = |name| field(&seen, name).parse::<u64>().unwrap();
    assert!(millis("held_ms") >= 30, "{seen:?}");
    assert!(millis("waited_ms") < 1_500, "{seen:?}");
    assert_eq!(field(&seen, "token"), "");
}

#[tokio::test]
async fn its_key_is_redacted_where_its_call_is_and_its_token_is_the_one_drawn() {
    let place = place(Level::DEBUG);
    with_a_token(&place.locks, 1).await.unwrap();
    let seen = place.listener.only();
    assert_eq!(field(&seen, "key"), place.locks.redacted("call:1"));
    assert!(field(&seen, "token").parse::<u64>().is_ok(), "{seen:?}");
}

#[tokio::test]
async fn each_end_of_a_call_closes_its_span_and_is_its_outcome() {
    let place = place(Level::DEBUG);
    let Place {
        locks,
        listener,
        memory,
        ..
    } = &place;
    let last = || listener.calls().pop().unwrap();

    let held = locks.lock("call:1").acquire().await.unwrap();
    assert_eq!(
        (last().name, outcome(&last())),
        ("lock_request", "acquired")
    );
    call(locks, 1, async { Ok(()) }).await.unwrap_err();
    assert_eq!(outcome(&last()), "busy");
    assert!(last().told[0].contains("its key is busy"), "{:?}", last());
    locks.lock("call:1").acquire().await.unwrap_err();
    assert_eq!(outcome(&last()), "busy");
    drop(held);

    once(locks, 2).await.unwrap();
    once(locks, 2).await.unwrap();
    assert_eq!(outcome(&last()), "done");

    call(locks, 3, async { Err(Error::NotInstalled) })
        .await
        .unwrap_err();
    assert_eq!(outcome(&last()), "acquired");

    let lose = async {
        memory.expire("lock:call:4");
        pending().await
    };
    call(locks, 4, lose).await.unwrap_err();
    assert_eq!(outcome(&last()), "lost");
    assert!(last().told[0].contains("was stopped"), "{:?}", last());

    let dropped = call(locks, 5, pending());
    tokio::time::timeout(Duration::from_millis(50), dropped)
        .await
        .unwrap_err();
    assert_eq!(outcome(&last()), "cancelled");

    let held = locks.lock("call:6").acquire().await.unwrap();
    let waits = locks.lock("call:6").wait(Duration::from_secs(60)).acquire();
    tokio::time::timeout(Duration::from_millis(50), waits)
        .await
        .unwrap_err();
    assert_eq!(outcome(&last()), "cancelled");
    drop(held);

    let joined = tokio::spawn({
        let locks = locks.clone();
        async move { call(&locks, 7, async { panic!("as a body may") }).await }
    });
    joined.await.unwrap_err();
    assert_eq!(outcome(&last()), "cancelled");

    memory.refuse(Some("out of order"));
    call(locks, 8, async { Ok(()) }).await.unwrap_err();
    assert_eq!(outcome(&last()), "unavailable");
    unguarded(locks, 8).await;
    assert_eq!(outcome(&last()), "unguarded");
    assert!(last().told[0].contains("without a lock"), "{:?}", last());
}

#[tokio::test]
async fn it_stands_between_the_spans_above_and_below() {
    let place = place(Level::DEBUG);
    let caller = tracing::info_span!("caller");
    between(&place.locks, 1).instrument(caller).await.unwrap();
    let spans = place.listener.spans.lock().unwrap().clone();
    let names: Vec<_> = spans.iter().map(|span| span.name).collect();
    // The attribute above is expanded first, and so is next to the body.
    assert_eq!(names, ["caller", "below", "distributed_lock", "above"]);
    let parents: Vec<_> = spans.iter().map(|span| span.parent).collect();
    assert_eq!(parents, [None, Some(1), Some(2), Some(3)]);
    assert_eq!(spans[3].told, ["in the body"]);
    assert!(spans.iter().all(|span| span.is_closed), "{spans:#?}");
}

#[instrument(skip_all, name = "above")]
#[distributed_lock(key = "call:<id>", client = locks, blocking)]
#[instrument(skip_all, name = "below")]
fn on_a_thread(locks: &Client, id: u8) -> Answer {
    tracing::info!("in the body");
    Ok(())
}

#[test]
fn a_call_that_blocks_has_one_too() {
    let place = place(Level::DEBUG);
    on_a_thread(&place.locks, 1).unwrap();
    let spans = place.listener.spans.lock().unwrap().clone();
    let names: Vec<_> = spans.iter().map(|span| span.name).collect();
    assert_eq!(names, ["below", "distributed_lock", "above"]);
    let parents: Vec<_> = spans.iter().map(|span| span.parent).collect();
    assert_eq!(parents, [None, Some(1), Some(2)]);
    assert_eq!(spans[2].told, ["in the body"]);
    assert_eq!(outcome(&spans[1]), "acquired");
    assert!(spans.iter().all(|span| span.is_closed), "{spans:#?}");
    // A busy one.
    let _held = place.locks.lock("call:2").acquire_blocking().unwrap();
    on_a_thread(&place.locks, 2).unwrap_err();
    assert_eq!(outcome(place.listener.calls().last().unwrap()), "busy");
}

#[tokio::test]
async fn nobody_who_listens_to_less_has_a_span() {
    let place = place(Level::INFO);
    call(&place.locks, 1, async { Ok(()) }).await.unwrap();
    assert!(place.listener.calls().is_empty());
}
