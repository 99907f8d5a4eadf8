//! What the gauges of a recorder show in a process that was forked off, which has a copy of them.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use metrics::{
    Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tokio::runtime::Runtime;

use super::{connect, fork, take, wait_for};

/// The gauges by their names. A test has few, and forks while nobody looks at them.
#[derive(Clone, Default)]
struct Gauges(Arc<Mutex<HashMap<String, f64>>>);

struct One(Gauges, String);

impl Gauges {
    fn all_are(&self, value: f64) {
        for name in ["lockattr_held", "lockattr_waiting"] {
            let found = self.0.lock().expect("nobody panics").get(name).copied();
            assert_eq!(found, Some(value), "{name}");
        }
    }
}

impl One {
    fn change(&self, by: f64) {
        let mut all = self.0.0.lock().expect("nobody panics");
        *all.entry(self.1.clone()).or_default() += by;
    }
}

impl GaugeFn for One {
    fn increment(&self, value: f64) {
        self.change(value);
    }

    fn decrement(&self, value: f64) {
        self.change(-value);
    }

    fn set(&self, _: f64) {}
}

impl Recorder for Gauges {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(One(self.clone(), key.name().to_owned())))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// A child that drops its copies of a lease and of a waiting call has none, and the parent has them still.
pub(super) fn play(runtime: &Runtime, url: &str) {
    let gauges = Gauges::default();
    let installed = metrics::set_global_recorder(gauges.clone());
    assert!(installed.is_ok(), "nobody else records");
    let client = runtime.block_on(connect(url));
    let lease = runtime.block_on(take(&client, "sync:1"));
    let lease = lease.expect("it is free");
    let waits = client.lock("sync:1").wait(Duration::from_secs(60));
    let mut waits = Box::pin(waits.acquire());
    {
        let _within = runtime.enter();
        let polled = pin!(&mut waits).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
    gauges.all_are(1.0);
    let child = fork();
    if child.is_some() {
        gauges.all_are(1.0);
    }
    drop(waits);
    drop(lease);
    gauges.all_are(0.0);
    match child {
        None => std::process::exit(0),
        Some(child) => wait_for(child),
    }
}
