//! What the library told through `tracing`, on any of its threads.

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

mod documented;

pub use documented::documented;

/// One event.
#[derive(Debug, Clone)]
pub struct Told {
    /// How serious.
    pub level: Level,
    /// Which module.
    pub target: String,
    /// What is the same in all such events.
    pub message: String,
    /// The names of its fields.
    pub fields: Vec<&'static str>,
    /// The message and every field, as `name=value`.
    pub text: String,
}

static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());
static LISTEN: Once = Once::new();

/// Listens from now on, for the whole process.
pub fn listen() {
    LISTEN.call_once(|| {
        tracing::subscriber::set_global_default(Listener).expect("nobody else listens");
    });
}

/// Everything told so far whose text contains `part`, such as a key that only one test uses. Events of the
/// library are as its documentation has them.
pub fn about(part: &str) -> Vec<Told> {
    let all = TOLD.lock().expect("no panic while listening");
    let about = all.iter().filter(|told| told.text.contains(part)).cloned();
    let about: Vec<_> = about.collect();
    drop(all);
    for told in about.iter().filter(|told| told.target == "lockattr") {
        if let Some(problem) = documented::undocumented(told) {
            panic!("{problem}");
        }
    }
    about
}

/// A listener that stands still at some events, as one that writes into a full pipe; it goes on when
/// this is dropped.
#[derive(Debug)]
pub struct Blocked {
    part: Arc<str>,
    standing: Arc<AtomicUsize>,
}

static BLOCKED: Mutex<Vec<(Arc<str>, Arc<AtomicUsize>)>> = Mutex::new(Vec::new());
static UNBLOCKED: Condvar = Condvar::new();

/// Listens from now on, and stands still at every event whose text contains `part`.
pub fn block(part: &str) -> Blocked {
    listen();
    let blocked = Blocked {
        part: part.into(),
        standing: Arc::default(),
    };
    let known = (Arc::clone(&blocked.part), Arc::clone(&blocked.standing));
    BLOCKED.lock().expect("no panic while blocked").push(known);
    blocked
}

impl Blocked {
    /// How many threads have come to such an event so far.
    pub fn threads(&self) -> usize {
        self.standing.load(Ordering::Acquire)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let mut blocked = BLOCKED.lock().expect("no panic while blocked");
        blocked.retain(|(_, standing)| !Arc::ptr_eq(standing, &self.standing));
        UNBLOCKED.notify_all();
    }
}

fn stand_still_if_blocked(text: &str) {
    let mut blocked = BLOCKED.lock().expect("no panic while blocked");
    let of = |(part, _): &&(Arc<str>, Arc<AtomicUsize>)| text.contains(&**part);
    if let Some((_, standing)) = blocked.iter().find(of) {
        standing.fetch_add(1, Ordering::AcqRel);
    }
    while blocked.iter().any(|known| of(&known)) {
        blocked = UNBLOCKED.wait(blocked).expect("no panic while blocked");
    }
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut read = Read::default();
        event.record(&mut read);
        stand_still_if_blocked(&read.text);
        let metadata = event.metadata();
        TOLD.lock().expect("no panic while listening").push(Told {
            level: *metadata.level(),
            target: metadata.target().to_owned(),
            message: read.message,
            fields: read.fields,
            text: read.text,
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Read {
    message: String,
    fields: Vec<&'static str>,
    text: String,
}

impl Visit for Read {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.fields.push(field.name());
        }
        // A String takes everything.
        let _ = write!(self.text, "{}={value:?} ", field.name());
    }
}
