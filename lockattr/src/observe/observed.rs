//! What is observed of one function, where a recorder is installed.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use metrics::{Gauge, IntoF64, Key, Label, with_recorder};

use super::handles::{HELD, Handles, Labels, last_success, register_gauge};
use super::{Count, Span};
use crate::error::LossCause;
use crate::runtime::clock::Clock;

/// The metrics of one function: registered once, when a call begins and finds a recorder.
#[derive(Debug)]
pub(crate) struct Observed {
    labels: Labels,
    handles: OnceLock<Box<Handles>>,
    last_success: OnceLock<Gauge>,
    /// By which a recorder is looked for.
    held: OnceLock<Key>,
}

impl Observed {
    pub(crate) const fn new(function: &'static str, template: &'static str) -> Self {
        Self {
            labels: [
                Label::from_static_parts("function", function),
                Label::from_static_parts("template", template),
            ],
            handles: OnceLock::new(),
            last_success: OnceLock::new(),
            held: OnceLock::new(),
        }
    }

    /// A call begins; the clock is that of its lease.
    pub(crate) fn waits(&'static self, clock: impl FnOnce() -> Clock) -> Waiting {
        let handles = self.handles().or_else(|| self.look_for_recorder());
        Waiting(handles.map(|handles| {
            handles.waiting.increment(1.0);
            let clock = clock();
            Waits {
                handles,
                clock,
                since: clock.now(),
            }
        }))
    }

    pub(crate) fn count(&self, count: Count) {
        if let Some(handles) = self.handles() {
            handles.count(count).increment(1);
        }
    }

    pub(crate) fn count_lost(&self, cause: LossCause) {
        if let Some(handles) = self.handles() {
            handles.lost(cause).increment(1);
        }
    }

    /// A lease begins; says whether its end is to be observed.
    pub(crate) fn hold_begins(&self) -> bool {
        let Some(handles) = self.handles() else {
            return false;
        };
        handles.held.increment(1.0);
        true
    }

    /// A lease ends whose beginning was observed.
    pub(crate) fn hold_ends(&self, span: impl FnOnce() -> Span) {
        if let Some(handles) = self.handles() {
            let span = span();
            handles.held.decrement(1.0);
            handles.hold.record(span.seconds);
            handles.ttl_used.record(span.of_ttl);
        }
    }

    /// The same for a process that was forked off, and has a copy of what its parent holds.
    pub(crate) fn hold_is_elsewhere(&self) {
        if let Some(handles) = self.handles() {
            handles.held.decrement(1.0);
        }
    }

    /// A renewal was confirmed, so much later than it was due.
    pub(crate) fn renewed(&self, span: impl FnOnce() -> Span) {
        if let Some(handles) = self.handles() {
            let span = span();
            handles.renewal_lag.record(span.seconds);
            handles.ttl_used.record(span.of_ttl);
        }
    }

    /// A body has come to a success.
    pub(crate) fn succeeded(&'static self) {
        if self.handles().is_none() {
            return;
        }
        let last = self
            .last_success
            .get_or_init(|| with_recorder(|recorder| last_success(recorder, &self.labels)));
        if let Ok(now) = SystemTime::UNIX_EPOCH.elapsed() {
            last.set(now.as_secs_f64());
        }
    }

    fn handles(&self) -> Option<&Handles> {
        self.handles.get().map(|handles| &**handles)
    }

    /// The handles of a recorder that was not there before. Where there is none, what it takes to find
    /// that out is all that a call costs.
    fn look_for_recorder(&'static self) -> Option<&'static Handles> {
        let key = self.held.get_or_init(|| HELD.key(&self.labels));
        with_recorder(|recorder| {
            let held = register_gauge(recorder, key);
            if !is_recorded(&held) {
                return None;
            }
            let registered = || Box::new(Handles::registered(recorder, &self.labels, held));
            Some(&**self.handles.get_or_init(registered))
        })
    }
}

/// Whether somebody is behind a gauge: a handle to nobody does not ask what the value is.
fn is_recorded(gauge: &Gauge) -> bool {
    struct Nought<'a>(&'a Cell<bool>);

    impl IntoF64 for Nought<'_> {
        fn into_f64(self) -> f64 {
            self.0.set(true);
            0.0
        }
    }

    let asked = Cell::new(false);
    gauge.increment(Nought(&asked));
    asked.get()
}

/// A call that is counted as waiting until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(Option<Waits>);

#[derive(Debug)]
struct Waits {
    handles: &'static Handles,
    clock: Clock,
    since: Instant,
}

impl Waiting {
    /// It has its lease, or is refused one.
    pub(crate) fn over(self) {
        if let Some(waits) = &self.0 {
            let waited = waits.clock.now().saturating_duration_since(waits.since);
            waits.handles.wait.record(waited);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(waits) = &self.0 {
            waits.handles.waiting.decrement(1.0);
        }
    }
}
