//! Which fallback a call runs on, as it was told in the log.
//!
//! A body that ran on a fallback without a word would be checked as one that holds the key.

use std::cell::Cell;
use std::fmt::{Debug, Write};
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The note of a body without any lock.
pub const RUN: &str = "run";

/// The note of a body under a lock of its process alone.
pub const LOCAL: &str = "local";

const TOLD: [(&str, &str); 2] = [
    ("runs without a lock", RUN),
    ("runs on a lock of this process alone", LOCAL),
];

tokio::task_local! {
    static OF_CALL: Cell<Option<&'static str>>;
}

/// Listens to warnings, of whichever call its thread is polling.
#[derive(Debug, Clone, Copy)]
pub struct Listener;

/// Listens from now on, for the whole process.
pub fn listen() {
    static LISTEN: Once = Once::new();
    LISTEN.call_once(|| {
        tracing::subscriber::set_global_default(Listener).expect("nobody else listens");
    });
}

/// Makes a call that may ask for [`told`].
pub async fn observed<F: Future>(call: F) -> F::Output {
    OF_CALL.scope(Cell::new(None), call).await
}

/// What the innermost call around this was told so far.
pub fn told() -> Option<&'static str> {
    OF_CALL.try_with(Cell::get).ok().flatten()
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let told = TOLD.iter().find(|(part, _)| text.0.contains(part));
        if let Some((_, fallback)) = told {
            // Outside of an observed call nobody reads it.
            let _ = OF_CALL.try_with(|of_call| of_call.set(Some(fallback)));
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message alone.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            // A String takes everything.
            let _ = write!(self.0, "{value:?}");
        }
    }
}
