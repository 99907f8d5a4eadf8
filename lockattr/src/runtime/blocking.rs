//! Waiting on a thread that may be blocked: the future is polled there, and the thread sleeps in between.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::Handle;
use tokio::task::{coop, yield_now};

/// More steps than tokio lets a task make before it has to yield, which are 128.
const MORE_THAN_A_BUDGET: usize = 256;

thread_local! {
    /// What wakes this thread, while nobody waits with it.
    static PARKER: Cell<Option<Arc<Parker>>> = const { Cell::new(None) };
}

/// Wakes one thread.
struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Parker {
    fn of_this_thread() -> Arc<Self> {
        let known = PARKER.try_with(Cell::take).ok().flatten();
        known.unwrap_or_else(|| {
            Arc::new(Self {
                thread: thread::current(),
                woken: AtomicBool::new(false),
            })
        })
    }

    fn wait(&self) {
        // Whoever else parks this thread may have taken the token of `unpark`, or left one.
        while !self.woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

/// Polls a future on this thread until it is ready.
///
/// It starts no thread and no runtime: what it waits for has to be driven elsewhere.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let parker = Parker::of_this_thread();
    let waker = Waker::from(Arc::clone(&parker));
    let mut cx = Context::from_waker(&waker);
    let output = loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => break output,
            Poll::Pending => parker.wait(),
        }
    };
    // One who waits inside of that has a parker of its own, so that it takes no wake-up of this one.
    let _ = PARKER.try_with(|known| known.set(Some(parker)));
    output
}

/// Begins what goes on elsewhere, and waits for nothing.
pub(crate) fn begin<F: Future>(future: F) {
    let _ = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
}

/// Why a thread may not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// What is thread-local is gone.
    ThreadIsEnding,
    /// It runs tasks.
    IsOfRuntime,
}

impl Refusal {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::ThreadIsEnding => "the thread that asks is ending, and cannot wait",
            Self::IsOfRuntime => {
                "waiting would block a thread of a tokio runtime, which runs other tasks as well: call this in \
                 `tokio::task::spawn_blocking`, or use the form that is `async`"
            }
        }
    }
}

/// Why this thread may not wait just now.
pub(crate) fn refusal() -> Option<Refusal> {
    if is_thread_ending() {
        return Some(Refusal::ThreadIsEnding);
    }
    (Handle::try_current().is_ok() && is_in_async_context()).then_some(Refusal::IsOfRuntime)
}

/// Whether what tokio keeps of this thread is gone already.
pub(crate) fn is_thread_ending() -> bool {
    Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
}

/// Whether the code that runs is polled by a tokio runtime: in a task, or in what `block_on` runs, and
/// not in `spawn_blocking`, in `block_in_place`, or on a thread that is merely within `Handle::enter`.
///
/// Tokio tells by panicking alone. What is polled can be told from the rest by two things that it has:
/// a budget of steps, which comes to its end, and a scheduler, which takes the wake-ups of those who
/// yield. `unconstrained` takes the first away, and what `block_on` of a runtime with many threads runs
/// has not the second.
fn is_in_async_context() -> bool {
    takes_wakeups_of_yielding() || has_budget()
}

fn takes_wakeups_of_yielding() -> bool {
    let parker = Parker::of_this_thread();
    parker.woken.store(false, Ordering::Release);
    let waker = Waker::from(Arc::clone(&parker));
    let _ = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
    if parker.woken.swap(false, Ordering::Acquire) {
        let _ = PARKER.try_with(|known| known.set(Some(parker)));
        return false;
    }
    true
}

/// What is polled has less of its budget afterwards, which has it yield soon.
fn has_budget() -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    (0..MORE_THAN_A_BUDGET).any(|_| pin!(coop::consume_budget()).poll(&mut cx).is_pending())
}
