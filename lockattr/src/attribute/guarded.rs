//! What a body runs under: its call's lease, and its span.

use std::ops::Deref;

use super::ended::CallError;
use crate::acquire::span::{CallSpan, Inside};
use crate::error::Error;
use crate::lease::Lease;

/// The lease of a locked function's call.
#[derive(Debug)]
pub struct Guarded {
    lease: Lease,
    pub(super) span: CallSpan,
}

impl Guarded {
    pub(super) fn new(lease: Lease, span: CallSpan) -> Self {
        Self {
            lease: lease.guarded(),
            span,
        }
    }

    /// The lease itself.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// While this is kept, the thread is inside the call's span.
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        self.span.enter()
    }

    /// The call ends in this, in which its lease was lost.
    pub(super) fn lost(&self, error: Error) -> CallError {
        self.span.lost();
        CallError::new(error, self.lease.site(), self.span.clone())
    }
}

impl Deref for Guarded {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.span.leave(&self.lease);
    }
}
