//! What a call ended in that has no value of its body's, and what the log is told of it.

use std::sync::Once;

use crate::acquire::span::CallSpan;
use crate::call_site::CallSite;
use crate::error::Error;
use crate::reply::ReplyError;
use crate::runtime::clock::millis;
use crate::runtime::stderr;

/// Why a call has no value of its body's, or should have none.
#[derive(Debug)]
pub struct CallError {
    pub(super) error: Error,
    site: &'static CallSite,
    /// What is told is told inside it.
    span: CallSpan,
}

/// Tells of a call; the fields are those of its error.
macro_rules! tell {
    ($level:ident, $call:expr, $message:expr) => {{
        let CallError { error, site, span } = $call;
        let _inside = span.enter();
        tracing::$level!(
            target: "lockattr",
            function = site.told_function(),
            template = site.told_template(),
            key = error.key(),
            holder = error.holder(),
            remaining_ms = error.remaining().map(millis),
            cause = error.cause().map(tracing::field::debug),
            held_ms = error.held().map(millis),
            %error,
            $message
        );
    }};
}

impl CallError {
    pub(super) fn new(error: Error, site: &'static CallSite, span: CallSpan) -> Self {
        Self { error, site, span }
    }

    /// The same of work that is done, and has no reply.
    pub(super) fn without_reply(mut self, cause: ReplyError) -> Self {
        if let Error::Done { key, since, .. } = self.error {
            self.error = Error::NoReply { key, since, cause };
        }
        self
    }

    pub(super) fn tell_busy(&self) {
        tell!(
            debug,
            self,
            "a locked function did not run: its key is busy"
        );
    }

    pub(super) fn tell_done(&self) {
        tell!(
            debug,
            self,
            "a locked function did not run: its work is done"
        );
    }

    /// Its work is done, and has no reply.
    pub(super) fn tell_no_reply(&self, caller_is_told: bool) {
        if caller_is_told {
            tell!(
                warn,
                self,
                "a locked function did not run: its work is done, and there is no reply of it"
            );
        } else {
            tell!(
                error,
                self,
                "a locked function did not run: its work is done, and there is no reply of it"
            );
        }
    }

    /// The log is the only place that tells where the caller gets no error.
    pub(super) fn tell_down(&self, caller_is_told: bool) {
        static WITHOUT_CLIENT: Once = Once::new();
        static FAILED: Once = Once::new();
        if caller_is_told {
            tell!(warn, self, "a locked function did not run");
            return;
        }
        tell!(error, self, "a locked function did not run");
        // Once of each: this is no log, and hints that one is missing.
        let (once, rest) = if matches!(self.error, Error::NotInstalled) {
            (&WITHOUT_CLIENT, "")
        } else {
            (
                &FAILED,
                "; what fails from now on is told to `tracing` alone, which has no subscriber",
            )
        };
        once.call_once(|| {
            let error = &self.error;
            stderr::tell_unless_logged(&format!("a locked function did not run: {error}{rest}"));
        });
    }

    pub(super) fn tell_lost(&self, caller_is_told: bool) {
        if caller_is_told {
            tell!(
                warn,
                self,
                "a locked function was stopped: its lease had ended"
            );
        } else {
            tell!(
                error,
                self,
                "a locked function was stopped: its lease had ended"
            );
        }
    }

    pub(super) fn tell_went_on(&self) {
        tell!(
            warn,
            self,
            "a locked function went on after its lease had ended"
        );
    }

    pub(super) fn tell_failed(&self) {
        tell!(
            warn,
            self,
            "the lease of a locked function that failed had ended before"
        );
    }
}
