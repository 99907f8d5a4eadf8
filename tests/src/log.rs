//! What the library told through `tracing`, on any of its threads.

use std::fmt::{Debug, Write};
use std::sync::{Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// One event.
#[derive(Debug, Clone)]
pub struct Told {
    /// How serious.
    pub level: Level,
    /// Which module.
    pub target: String,
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

/// Everything told so far whose text contains `part`, such as a key that only one test uses.
pub fn about(part: &str) -> Vec<Told> {
    let told = TOLD.lock().expect("no panic while listening");
    told.iter()
        .filter(|told| told.text.contains(part))
        .cloned()
        .collect()
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
        let mut text = Text(String::new());
        event.record(&mut text);
        let metadata = event.metadata();
        TOLD.lock().expect("no panic while listening").push(Told {
            level: *metadata.level(),
            target: metadata.target().to_owned(),
            text: text.0,
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // A String takes everything.
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}
