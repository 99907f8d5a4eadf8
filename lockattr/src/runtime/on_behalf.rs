//! Polling on behalf of a caller that is gone.
//!
//! What is dropped is given back where it is dropped: on any thread, within a runtime or without one,
//! while a panic unwinds. The work goes on elsewhere, so its first poll, here, must not tie it to a
//! runtime that may end before, nor need one where there is none.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use tokio::runtime::Handle;

thread_local! {
    /// The runtime of the caller on whose behalf this thread polls something just now.
    static CALLER: RefCell<Option<CallersRuntime>> = const { RefCell::new(None) };
}

#[derive(Clone)]
enum CallersRuntime {
    Within(Handle),
    WithoutRuntime,
}

/// The runtime that asks: the one that polls, or that of the caller on whose behalf it polls.
pub(crate) fn caller() -> Option<Handle> {
    let on_behalf = CALLER.try_with(|caller| caller.borrow().clone());
    match on_behalf.ok().flatten() {
        Some(CallersRuntime::Within(runtime)) => Some(runtime),
        Some(CallersRuntime::WithoutRuntime) => None,
        // A thread that ends has no runtime any more.
        None => Handle::try_current().ok(),
    }
}

/// Polls something in the context of the caller's own runtime, if it has one. `None` where this thread
/// is past polling anything.
pub(crate) fn poll_here(poll: impl FnOnce() -> Poll<()>) -> Option<Poll<()>> {
    may_poll().then(|| guarded(poll))
}

/// Polls something in the context of this runtime, which is going to poll it further.
pub(crate) fn poll_within(runtime: &Handle, poll: impl FnOnce() -> Poll<()>) -> Option<Poll<()>> {
    if !may_poll() {
        return None;
    }
    let caller = match Handle::try_current() {
        Ok(runtime) => CallersRuntime::Within(runtime),
        Err(_) => CallersRuntime::WithoutRuntime,
    };
    let before = CALLER
        .try_with(|known| known.borrow_mut().replace(caller))
        .ok()?;
    let polled = {
        let _context = runtime.enter();
        guarded(poll)
    };
    let _ = CALLER.try_with(|known| *known.borrow_mut() = before);
    Some(polled)
}

/// A thread that ends may drop something when what tokio keeps of the thread is gone already.
fn may_poll() -> bool {
    !Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
}

/// A panic of a store's is none of whoever drops a lease, and would end the program while another
/// panic unwinds.
fn guarded(poll: impl FnOnce() -> Poll<()>) -> Poll<()> {
    catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|_| {
        tracing::error!(target: "lockattr", "the store panicked as a lock was given back; the key ends with its ttl");
        Poll::Ready(())
    })
}
