//! The span of a call, where somebody listens to it.
//!
//! It is one pointer, and nothing where nobody listens: every locked function has room for it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tracing::Span;
use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
pub(crate) use tracing::span::Entered as Inside;

use super::{CallOptions, Context};
use crate::error::Error;
use crate::key::{KeyError, Keys};
use crate::lease::Lease;
use crate::runtime::clock::{Clock, millis};

/// The span of one call, recorded in full when its last handle is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallSpan(Option<Arc<Listened>>);

#[derive(Debug)]
struct Listened {
    span: Span,
    clock: Clock,
    begun: Instant,
    granted: OnceLock<Granted>,
    outcome: OnceLock<&'static str>,
}

#[derive(Debug)]
struct Granted {
    at: Instant,
    /// What it is told as where the body comes to its end.
    outcome: &'static str,
}

/// Fields whose values are known later, or not in every call, are declared all the same.
///
/// Where a dependency of the application turns on the feature `log` of `tracing` and there is no
/// subscriber, `tracing` would evaluate the fields of every span: hence the look before.
macro_rules! span {
    ($name:literal, $context:expr, $keys:expr, $options:expr) => {{
        if LevelFilter::current() < LevelFilter::DEBUG {
            return Self(None);
        }
        let span = tracing::debug_span!(
            target: "lockattr",
            $name,
            function = $options.site().told_function(),
            template = $options.site().told_template(),
            key = shown($context, $keys, $options),
            holder = %$context.keeper.origin().shown(),
            outcome = Empty,
            waited_ms = Empty,
            held_ms = Empty,
            token = Empty,
        );
        CallSpan::listened_to(span, $context)
    }};
}

impl CallSpan {
    /// The span of a locked function's call: until it ends.
    pub(crate) fn of_call(
        context: &Context,
        keys: &Result<Keys, KeyError>,
        options: &CallOptions,
    ) -> Self {
        span!("distributed_lock", context, keys, options)
    }

    /// The span of a request by hand: until it is answered.
    pub(crate) fn of_request(
        context: &Context,
        keys: &Result<Keys, KeyError>,
        options: &CallOptions,
    ) -> Self {
        span!("lock_request", context, keys, options)
    }

    fn listened_to(span: Span, context: &Context) -> Self {
        if span.is_disabled() {
            return Self(None);
        }
        let clock = context.keeper.clock_of_caller();
        Self(Some(Arc::new(Listened {
            span,
            clock,
            begun: clock.now(),
            granted: OnceLock::new(),
            outcome: OnceLock::new(),
        })))
    }

    /// While this is kept, the thread is inside the span.
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        Some(self.0.as_ref()?.span.enter())
    }

    /// Polls something inside the span.
    pub(crate) fn around<T>(
        &self,
        mut future: Pin<&mut impl Future<Output = T>>,
    ) -> impl Future<Output = T> {
        poll_fn(move |cx| {
            let _inside = self.enter();
            future.as_mut().poll(cx)
        })
    }

    /// How the call was answered.
    pub(crate) fn answered(&self, context: &Context, answer: &Result<Lease, Error>) {
        let Some(listened) = &self.0 else {
            return;
        };
        let outcome = match answer {
            Ok(lease) => {
                let outcome = if context.is_guarded(lease) {
                    "acquired"
                } else {
                    "unguarded"
                };
                let at = listened.clock.now();
                let _ = listened.granted.set(Granted { at, outcome });
                return;
            }
            Err(Error::Busy { .. }) => "busy",
            Err(Error::Done { .. }) => "done",
            Err(_) => "unavailable",
        };
        let _ = listened.outcome.set(outcome);
    }

    /// The body has come to its end, or the request has its lease.
    pub(crate) fn ended(&self) {
        if let Some(listened) = &self.0
            && let Some(granted) = listened.granted.get()
        {
            let _ = listened.outcome.set(granted.outcome);
        }
    }

    /// The lease had ended before the body did.
    pub(crate) fn lost(&self) {
        if let Some(listened) = &self.0 {
            let _ = listened.outcome.set("lost");
        }
    }

    /// What is known once the lease is about to be given back.
    pub(crate) fn leave(&self, lease: &Lease) {
        let Some(listened) = &self.0 else {
            return;
        };
        if let Some(granted) = listened.granted.get() {
            let held = listened.clock.now().saturating_duration_since(granted.at);
            listened.span.record("held_ms", millis(held));
        }
        if let Some(token) = lease.drawn_token() {
            listened.span.record("token", token);
        }
    }
}

impl Drop for Listened {
    fn drop(&mut self) {
        let until = self
            .granted
            .get()
            .map_or_else(|| self.clock.now(), |granted| granted.at);
        let waited = until.saturating_duration_since(self.begun);
        self.span.record("waited_ms", millis(waited));
        let outcome = self.outcome.get().unwrap_or(&"cancelled");
        self.span.record("outcome", outcome);
    }
}

fn shown(
    context: &Context,
    keys: &Result<Keys, KeyError>,
    options: &CallOptions,
) -> Option<String> {
    let keys = keys.as_ref().ok()?;
    Some(context.shown(keys.clone(), options))
}
