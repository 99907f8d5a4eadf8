//! The thread that tells the application's `tracing` subscriber what happens on the background.
//!
//! A subscriber may block, as one does that writes into a full pipe. The background renews leases and does
//! not wait for it: its events go through a bounded queue to a thread of their own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;

/// As many events wait at most; what comes while a subscriber is that far behind is dropped and
/// counted.
const CAPACITY: usize = 256;

type Emit = Box<dyn FnOnce() + Send>;

/// The queue to the thread, which starts with the first event and ends once this is dropped and
/// everything in the queue is told.
#[derive(Default)]
pub(crate) struct Events {
    queue: OnceLock<SyncSender<Emit>>,
    dropped: Arc<AtomicU64>,
}

impl Events {
    /// Has an event told soon. Never blocks.
    pub(crate) fn send(&self, event: impl FnOnce() + Send + 'static) {
        let queue = self.queue.get_or_init(|| start(Arc::clone(&self.dropped)));
        if queue.try_send(Box::new(event)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has `then` called when everything sent so far is told; not at all where there is nothing to wait
    /// for, or a subscriber so far behind that waiting for it is in vain.
    pub(crate) fn when_told(&self, then: impl FnOnce() + Send + 'static) {
        if let Some(queue) = self.queue.get() {
            // `then` is dropped where the queue is full.
            let _ = queue.try_send(Box::new(then));
        }
    }
}

fn start(dropped: Arc<AtomicU64>) -> SyncSender<Emit> {
    let (queue, events) = sync_channel(CAPACITY);
    // Where there is no thread to be had the queue is closed, and every event is dropped.
    let _ = thread::Builder::new()
        .name("lockattr-events".to_owned())
        .spawn(move || tell(&events, &dropped));
    queue
}

fn tell(events: &Receiver<Emit>, dropped: &AtomicU64) {
    for event in events {
        // A subscriber that panics has its say in the panic's message, and hears the next event.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            event();
            let dropped = dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                tracing::warn!(
                    target: "lockattr", dropped,
                    "events were dropped, since the tracing subscriber did not keep up"
                );
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn events_are_told_in_order_and_none_is_lost_when_the_queue_is_dropped() {
        let (told, telling) = mpsc::channel();
        let events = Events::default();
        for number in 0..CAPACITY {
            let told = told.clone();
            events.send(move || told.send(number).unwrap());
        }
        drop((events, told));
        let heard: Vec<_> = telling.iter().collect();
        assert_eq!(heard, (0..CAPACITY).collect::<Vec<_>>());
    }

    #[test]
    fn a_subscriber_that_panics_hears_the_next_event() {
        let events = Events::default();
        events.send(|| panic!("as a subscriber may"));
        let (told, hears) = mpsc::channel();
        events.when_told(move || told.send(()).unwrap());
        hears.recv_timeout(LONG).unwrap();
    }

    #[test]
    fn nobody_waits_for_a_subscriber_that_is_far_behind() {
        let events = Events::default();
        let (go_on, blocked) = mpsc::channel::<()>();
        events.send(move || {
            let _ = blocked.recv();
        });
        for _ in 0..2 * CAPACITY {
            events.send(|| {});
        }
        assert!(events.dropped.load(Ordering::Relaxed) >= u64::try_from(CAPACITY - 1).unwrap());
        let (told, hears) = mpsc::channel::<()>();
        events.when_told(move || told.send(()).unwrap());
        assert!(
            hears
                .recv_timeout(LONG)
                .is_err_and(|error| error == mpsc::RecvTimeoutError::Disconnected)
        );
        drop(go_on);
    }
}
