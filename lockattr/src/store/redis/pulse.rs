//! One clock for everybody who waits for a reply.
//!
//! A timer for each command would cost more than the command: it is set on the background's thread and
//! by another one. Instead those who wait are woken together, a few times within the reply timeout,
//! and look for themselves how long they have waited. Most replies come sooner and nobody is woken
//! at all; while nothing is asked there are no pulses either.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use slab::Slab;
use tokio::sync::Notify;

use crate::runtime::background::Background;
use crate::runtime::waker;

/// How often they are woken within the time that a reply may take.
const PER_REPLY: u32 = 4;
const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(250);

/// Wakes those who wait, in real time.
pub(super) struct Pulse {
    every: Duration,
    table: Mutex<Table>,
    begin: Notify,
}

#[derive(Default)]
struct Table {
    places: Slab<Place>,
    /// How many pulses there have been.
    beat: u64,
    beating: bool,
    /// Whether anybody has waited since the last pulse.
    used: bool,
}

struct Place {
    waker: Option<Waker>,
    /// The pulse after which the wait began.
    since: u64,
}

impl Pulse {
    pub(super) fn start(background: &Background, reply_timeout: Duration) -> Arc<Self> {
        let pulse = Arc::new(Self {
            every: (reply_timeout / PER_REPLY).clamp(SHORTEST, LONGEST),
            table: Mutex::default(),
            begin: Notify::new(),
        });
        background.spawn(beat(Arc::clone(&pulse)));
        pulse
    }

    /// A wait that begins now and may last that long.
    pub(super) fn wait(&self, left: Duration) -> Wait<'_> {
        Wait {
            pulse: self,
            place: None,
            looked: None,
            fresh: false,
            left,
        }
    }

    fn enter(&self, waker: &Waker) -> usize {
        let mut table = self.table();
        table.used = true;
        let place = Place {
            waker: Some(waker.clone()),
            since: table.beat,
        };
        let index = table.places.insert(place);
        let rests = !std::mem::replace(&mut table.beating, true);
        drop(table);
        if rests {
            self.begin.notify_one();
        }
        index
    }

    fn stay(&self, index: usize, now: &Waker) {
        let mut table = self.table();
        let before = waker::replace(&mut table.places[index].waker, now);
        drop(table);
        drop(before);
    }

    fn leave(&self, index: usize) {
        let mut table = self.table();
        let left = table.places.remove(index);
        drop(table);
        // A waker may be the last handle of a task, whose end may come back here.
        drop(left);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in here panics half-way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// One more pulse: whom to wake, or `None` where nobody has waited since the last one.
    fn next(&mut self) -> Option<Vec<Waker>> {
        self.beat += 1;
        let beat = self.beat;
        let anybody = std::mem::take(&mut self.used) || !self.places.is_empty();
        let mut late = Vec::new();
        for (_, Place { waker, since }) in &self.places {
            // Whoever has just begun has no reason to look.
            if beat - since > 1 {
                late.extend(waker.clone());
            }
        }
        self.beating = anybody;
        anybody.then_some(late)
    }
}

async fn beat(pulse: Arc<Pulse>) {
    loop {
        pulse.begin.notified().await;
        loop {
            tokio::time::sleep(pulse.every).await;
            let Some(late) = pulse.table().next() else {
                break;
            };
            late.into_iter().for_each(Waker::wake);
        }
    }
}

/// Somebody's wait, over one or several replies.
///
/// Time counts as it is seen to pass: whoever is not polled for long, because his runtime was
/// blocked, may not blame the server, whose reply his runtime has had no chance to read.
pub(super) struct Wait<'a> {
    pulse: &'a Pulse,
    place: Option<usize>,
    looked: Option<Instant>,
    /// Whether the last look at the clock was just now.
    fresh: bool,
    left: Duration,
}

impl Wait<'_> {
    /// A reply is waited for from now on, which is the answer.
    pub(super) fn begin(&mut self) -> Instant {
        let now = Instant::now();
        self.looked = Some(now);
        self.fresh = true;
        now
    }

    /// Looks at the clock: the task is woken to look again, and the answer is how much time counts
    /// since the last look.
    pub(super) fn look(&mut self, cx: &Context<'_>) -> Duration {
        match self.place {
            None => self.place = Some(self.pulse.enter(cx.waker())),
            Some(place) => self.pulse.stay(place, cx.waker()),
        }
        if std::mem::take(&mut self.fresh) {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let passed = self.looked.map_or(Duration::ZERO, |looked| {
            let passed = now.saturating_duration_since(looked);
            passed.min(2 * self.pulse.every)
        });
        self.looked = Some(now);
        self.left = self.left.saturating_sub(passed);
        passed
    }

    /// Whether it has lasted for as long as it may.
    pub(super) fn is_over(&self) -> bool {
        self.left.is_zero()
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.pulse.leave(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn pulse() -> Pulse {
        Pulse {
            every: Duration::from_secs(60),
            table: Mutex::default(),
            begin: Notify::new(),
        }
    }

    fn beats(pulse: &Pulse) -> bool {
        let late = pulse.table().next();
        let goes_on = late.is_some();
        late.into_iter().flatten().for_each(Waker::wake);
        goes_on
    }

    #[test]
    fn those_are_woken_who_wait_from_one_pulse_to_the_next() {
        let pulse = pulse();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut wait = pulse.wait(Duration::from_secs(1));
        wait.look(&Context::from_waker(&waker));
        assert!(beats(&pulse));
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        for times in 1..4 {
            assert!(beats(&pulse));
            assert_eq!(woken.0.load(Ordering::Relaxed), times);
        }
        drop(wait);
        assert!(!beats(&pulse));
        assert_eq!(woken.0.load(Ordering::Relaxed), 3);
        // Nothing is kept of it.
        drop(waker);
        assert_eq!(Arc::strong_count(&woken), 1);
    }

    #[test]
    fn a_steady_flow_of_short_waits_keeps_the_pulse_going_and_wakes_nobody() {
        let pulse = pulse();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        for _ in 0..10 {
            for _ in 0..3 {
                pulse
                    .wait(Duration::from_secs(1))
                    .look(&Context::from_waker(&waker));
            }
            assert!(beats(&pulse));
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        // They have had one place, one after the other.
        assert_eq!(pulse.table().places.len(), 0);
        assert_eq!(pulse.table().places.vacant_key(), 0);
        assert!(!beats(&pulse));
        assert!(!pulse.table().beating);
    }

    #[test]
    fn a_long_gap_between_looks_counts_as_two_pulses() {
        let pulse = Pulse {
            every: Duration::from_millis(1),
            ..pulse()
        };
        let cx = Context::from_waker(Waker::noop());
        let mut wait = pulse.wait(Duration::from_millis(3));
        wait.begin();
        assert_eq!(wait.look(&cx), Duration::ZERO);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(wait.look(&cx), Duration::from_millis(2));
        assert!(!wait.is_over());
        std::thread::sleep(Duration::from_millis(20));
        wait.look(&cx);
        assert!(wait.is_over());
    }
}
