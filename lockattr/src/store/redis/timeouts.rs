//! The deadlines of everybody who waits for a reply, kept by one coarse timer.
//!
//! A timer for each command would cost more than the command: one thread sets it, and another thread
//! fires it. Instead one task ticks a few times within the reply timeout and wakes those who have waited
//! for longer than a tick; each then looks at the clock itself. Most replies come within a tick, so that
//! nobody is woken. Nothing ticks while nothing is asked.
//!
//! A deadline is therefore noticed up to a tick late. What to do when it has passed is left to the caller.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use slab::Slab;
use tokio::sync::Notify;

use crate::runtime::background::Background;
use crate::runtime::waker;

/// How many ticks there are within the time that a reply may take, and the bounds of a tick's length.
const TICKS_PER_REPLY: u32 = 4;
const SHORTEST_TICK: Duration = Duration::from_millis(5);
const LONGEST_TICK: Duration = Duration::from_millis(250);

/// Wakes those who wait, in real time.
pub(super) struct Timeouts {
    tick: Duration,
    watched: Mutex<Watched>,
    begin: Notify,
}

/// Those who wait.
#[derive(Default)]
struct Watched {
    entries: Slab<WatchedEntry>,
    /// How many ticks there have been.
    ticks: u64,
    is_ticking: bool,
    /// Whether anybody has waited since the last tick.
    used: bool,
}

struct WatchedEntry {
    waker: Option<Waker>,
    /// The tick after which the wait began.
    since: u64,
}

impl Timeouts {
    pub(super) fn start(background: &Background, reply_timeout: Duration) -> Arc<Self> {
        let timeouts = Arc::new(Self {
            tick: (reply_timeout / TICKS_PER_REPLY).clamp(SHORTEST_TICK, LONGEST_TICK),
            watched: Mutex::default(),
            begin: Notify::new(),
        });
        background.spawn(tick(Arc::clone(&timeouts)));
        timeouts
    }

    /// A deadline that far from now.
    pub(super) fn deadline(&self, left: Duration) -> Deadline<'_> {
        Deadline {
            timeouts: self,
            entry: None,
            looked: None,
            just_looked: false,
            left,
        }
    }

    fn enter(&self, waker: &Waker) -> usize {
        let mut watched = self.watched();
        watched.used = true;
        let entry = WatchedEntry {
            waker: Some(waker.clone()),
            since: watched.ticks,
        };
        let index = watched.entries.insert(entry);
        let was_ticking = mem::replace(&mut watched.is_ticking, true);
        drop(watched);
        if !was_ticking {
            self.begin.notify_one();
        }
        index
    }

    fn stay(&self, index: usize, now: &Waker) {
        let mut watched = self.watched();
        let before = waker::replace(&mut watched.entries[index].waker, now);
        drop(watched);
        drop(before);
    }

    fn leave(&self, index: usize) {
        let mut watched = self.watched();
        let left = watched.entries.remove(index);
        drop(watched);
        // A waker may be the last handle of a task, whose drop may lock this again.
        drop(left);
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        // No panic happens under this lock.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    /// Counts a tick. The answer is whom to wake, or `None` where nobody has waited since the last one.
    fn next(&mut self) -> Option<Vec<Waker>> {
        self.ticks += 1;
        let ticks = self.ticks;
        let anybody = mem::take(&mut self.used) || !self.entries.is_empty();
        let mut late = Vec::new();
        for (_, WatchedEntry { waker, since }) in &self.entries {
            // A wait that has just begun has no reason to look.
            if ticks - since > 1 {
                late.extend(waker.clone());
            }
        }
        self.is_ticking = anybody;
        anybody.then_some(late)
    }
}

async fn tick(timeouts: Arc<Timeouts>) {
    loop {
        timeouts.begin.notified().await;
        loop {
            tokio::time::sleep(timeouts.tick).await;
            let Some(late) = timeouts.watched().next() else {
                break;
            };
            late.into_iter().for_each(Waker::wake);
        }
    }
}

/// The deadline of one step of a caller, which may wait for one reply or several.
///
/// Time counts only as far as the caller is seen to wait. A caller that is not polled for long, because
/// its runtime was blocked, may not blame the server: its runtime could not read the reply.
pub(super) struct Deadline<'a> {
    timeouts: &'a Timeouts,
    entry: Option<usize>,
    looked: Option<Instant>,
    /// Whether the clock was read just now, so that it need not be read again.
    just_looked: bool,
    left: Duration,
}

impl Deadline<'_> {
    /// A command is about to be sent. The answer is the moment, which lies before the sending.
    pub(super) fn start(&mut self) -> Instant {
        let now = Instant::now();
        self.looked = Some(now);
        self.just_looked = true;
        now
    }

    /// Has the task woken to look again. The answer is how much time counts since the last look.
    pub(super) fn look(&mut self, cx: &Context<'_>) -> Duration {
        match self.entry {
            None => self.entry = Some(self.timeouts.enter(cx.waker())),
            Some(entry) => self.timeouts.stay(entry, cx.waker()),
        }
        if mem::take(&mut self.just_looked) {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let passed = self.looked.map_or(Duration::ZERO, |looked| {
            let passed = now.saturating_duration_since(looked);
            passed.min(2 * self.timeouts.tick)
        });
        self.looked = Some(now);
        self.left = self.left.saturating_sub(passed);
        passed
    }

    /// The caller has waited that long for something else than a reply.
    pub(super) fn spend(&mut self, waited: Duration) {
        self.left = self.left.saturating_sub(waited);
        self.looked = None;
    }

    pub(super) fn left(&self) -> Duration {
        self.left
    }

    pub(super) fn has_passed(&self) -> bool {
        self.left.is_zero()
    }
}

impl Drop for Deadline<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            self.timeouts.leave(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct CountedWakes(AtomicUsize);

    impl Wake for CountedWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn timeouts() -> Timeouts {
        Timeouts {
            tick: Duration::from_secs(60),
            watched: Mutex::default(),
            begin: Notify::new(),
        }
    }

    /// One tick, and whether another one follows.
    fn tick(timeouts: &Timeouts) -> bool {
        let late = timeouts.watched().next();
        let goes_on = late.is_some();
        late.into_iter().flatten().for_each(Waker::wake);
        goes_on
    }

    #[test]
    fn those_are_woken_who_wait_from_one_tick_to_the_next() {
        let timeouts = timeouts();
        let counted = Arc::new(CountedWakes::default());
        let waker = Waker::from(Arc::clone(&counted));
        let mut deadline = timeouts.deadline(Duration::from_secs(1));
        deadline.look(&Context::from_waker(&waker));
        assert!(tick(&timeouts));
        assert_eq!(counted.0.load(Ordering::Relaxed), 0);
        for times in 1..4 {
            assert!(tick(&timeouts));
            assert_eq!(counted.0.load(Ordering::Relaxed), times);
        }
        drop(deadline);
        assert!(!tick(&timeouts));
        assert_eq!(counted.0.load(Ordering::Relaxed), 3);
        // Nothing is kept of it.
        drop(waker);
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    fn a_steady_flow_of_short_waits_keeps_the_timer_going_and_wakes_nobody() {
        let timeouts = timeouts();
        let counted = Arc::new(CountedWakes::default());
        let waker = Waker::from(Arc::clone(&counted));
        for _ in 0..10 {
            for _ in 0..3 {
                timeouts
                    .deadline(Duration::from_secs(1))
                    .look(&Context::from_waker(&waker));
            }
            assert!(tick(&timeouts));
        }
        assert_eq!(counted.0.load(Ordering::Relaxed), 0);
        // They have used one entry, one after the other.
        assert_eq!(timeouts.watched().entries.len(), 0);
        assert_eq!(timeouts.watched().entries.vacant_key(), 0);
        assert!(!tick(&timeouts));
        assert!(!timeouts.watched().is_ticking);
    }

    #[test]
    fn a_long_gap_between_looks_counts_as_two_ticks() {
        let timeouts = Timeouts {
            tick: Duration::from_millis(1),
            ..timeouts()
        };
        let cx = Context::from_waker(Waker::noop());
        let mut deadline = timeouts.deadline(Duration::from_millis(3));
        deadline.start();
        assert_eq!(deadline.look(&cx), Duration::ZERO);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(deadline.look(&cx), Duration::from_millis(2));
        assert!(!deadline.has_passed());
        std::thread::sleep(Duration::from_millis(20));
        deadline.look(&cx);
        assert!(deadline.has_passed());
    }
}
