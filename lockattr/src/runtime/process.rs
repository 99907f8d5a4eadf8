//! Which process something belongs to.
//!
//! A process that is forked off has a copy of everything and none of the threads: a mutex that one of
//! them held at that moment is held for ever. What would lock one when it is dropped is left alone there.
//!
//! A fork is known by the C library's `pthread_atfork`. A process that is made around that, by a `clone` of
//! the system's own or by `_Fork`, is taken for its parent.

use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use forkguard::Guard;

/// The process that asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

thread_local! {
    /// What this thread knows of its process: asked for once, and after each fork, since every lock looks
    /// at it several times.
    static HERE: RefCell<Known> = RefCell::new(Known {
        guard: forkguard::new(),
        process: Process::ask(),
    });
}

struct Known {
    /// Sees forks by a handler that the C library calls in the child.
    guard: Guard,
    process: Process,
}

impl Process {
    pub(crate) fn here() -> Self {
        let known = HERE.try_with(|here| {
            let Known { guard, process } = &mut *here.borrow_mut();
            if guard.detected_fork() {
                *process = Self::ask();
            }
            *process
        });
        known.unwrap_or_else(|_| Self::ask())
    }

    fn ask() -> Self {
        Self(std::process::id())
    }

    pub(crate) fn is_here(self) -> bool {
        self == Self::here()
    }

    pub(crate) fn id(self) -> u32 {
        self.0
    }
}

/// What only the process drops that made it.
#[derive(Debug)]
pub(crate) struct DroppedAtHome<T> {
    value: Option<T>,
    process: Process,
}

impl<T> DroppedAtHome<T> {
    pub(crate) fn new(value: T, process: Process) -> Self {
        Self {
            value: Some(value),
            process,
        }
    }

    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.value.as_mut()
    }
}

impl<F: Future + Unpin> Future for DroppedAtHome<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(future) = &mut self.value else {
            return Poll::Pending;
        };
        let polled = Pin::new(future).poll(cx);
        if polled.is_ready() {
            self.value = None;
        }
        polled
    }
}

impl<T> Drop for DroppedAtHome<T> {
    fn drop(&mut self) {
        if self.value.is_some() && !self.process.is_here() {
            mem::forget(self.value.take());
        }
    }
}
