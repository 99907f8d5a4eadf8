//! What a failed request means: whether it may have been done, and what helps.

use std::error::Error as StdError;

use tonic::{Code, ConnectError, Status};

use crate::error::StoreError;

/// A request that failed.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) error: StoreError,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The member was not reached, or says that it cannot serve now: another one may.
    Away,
    /// The login's token has ended, or was made before users or roles were changed.
    LoggedOut,
    /// The server knows no such lease (any more).
    NoLease,
    /// The member has answered, and another one would answer the same.
    Refused,
}

impl Fault {
    pub(super) fn of(status: &Status, member: &str) -> Self {
        let (code, text) = (status.code(), status.message());
        let new = |error, kind| Self { error, kind };
        if let Some(source) = not_connected(status) {
            let text = format!("etcd at {member} cannot be reached: {source}");
            return new(StoreError::unreachable(text), Kind::Away);
        }
        let below = status.source().map(|below| format!(": {}", deepest(below)));
        let told = format!("etcd at {member}: {text}{}", below.unwrap_or_default());
        match code {
            Code::Unauthenticated => new(StoreError::refused(told), Kind::LoggedOut),
            Code::InvalidArgument
                if text.contains("revision") && text.contains("is old")
                    || text.contains("user name is empty") =>
            {
                new(StoreError::refused(told), Kind::LoggedOut)
            }
            Code::NotFound if text.contains("lease") => {
                new(StoreError::refused(told), Kind::NoLease)
            }
            Code::PermissionDenied => {
                let told = format!(
                    "{told}: the user needs the right to read and write the keys under the client's prefix, by \
                     `etcdctl role grant-permission ROLE readwrite --prefix=true PREFIX`"
                );
                new(StoreError::refused(told), Kind::Refused)
            }
            Code::ResourceExhausted if text.contains("space") => {
                let told = format!(
                    "{told}: free space by compaction and `etcdctl defrag`, or raise the quota, and then \
                     `etcdctl alarm disarm`"
                );
                new(StoreError::refused(told), Kind::Refused)
            }
            Code::InvalidArgument if text.contains("too many operations") => {
                let told = format!("{told}: ask for fewer keys at once, or raise `--max-txn-ops`");
                new(StoreError::invalid(told), Kind::Refused)
            }
            Code::InvalidArgument
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::NotFound
            | Code::AlreadyExists
            | Code::OutOfRange
            | Code::Unimplemented => new(StoreError::refused(told), Kind::Refused),
            _ => new(StoreError::in_doubt(told), Kind::Away),
        }
    }

    pub(super) fn silent(member: &str, patience: std::time::Duration) -> Self {
        let told = format!("etcd at {member} has not answered within {patience:?}");
        Self {
            error: StoreError::in_doubt(told),
            kind: Kind::Away,
        }
    }

    /// What is wrong is known, and asking again does not help.
    pub(super) fn last(error: StoreError) -> Self {
        let kind = Kind::Refused;
        Self { error, kind }
    }

    /// An answer that makes no sense.
    pub(super) fn nonsense(what: &str) -> Self {
        Self::last(StoreError::in_doubt(format!(
            "etcd has answered what its protocol does not have: {what}; is this an etcd server?"
        )))
    }

    /// The same of a request that was asked before, and may have been done then.
    pub(super) fn after(self, in_doubt: bool) -> Self {
        if !in_doubt || self.error.is_in_doubt() {
            return self;
        }
        let error = StoreError::in_doubt(self.error.to_string());
        Self { error, ..self }
    }

    pub(super) fn told(self) -> StoreError {
        self.error
    }
}

/// Why there was no connection, where that is what failed.
fn not_connected(status: &Status) -> Option<String> {
    let mut source: Option<&(dyn StdError + 'static)> = status.source();
    while let Some(error) = source {
        if let Some(ConnectError(why)) = error.downcast_ref() {
            return Some(deepest(why.as_ref()));
        }
        source = error.source();
    }
    None
}

fn deepest(error: &(dyn StdError + 'static)) -> String {
    let mut deepest = error;
    while let Some(below) = deepest.source() {
        deepest = below;
    }
    deepest.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(status: &Status) -> Fault {
        Fault::of(status, "h:2379")
    }

    #[test]
    fn only_what_was_answered_is_known_not_to_be_done() {
        for (status, in_doubt, kind) in [
            (
                Status::unavailable("etcdserver: leader changed"),
                true,
                Kind::Away,
            ),
            (
                Status::unauthenticated("etcdserver: invalid auth token"),
                false,
                Kind::LoggedOut,
            ),
            (
                Status::invalid_argument("etcdserver: revision of auth store is old"),
                false,
                Kind::LoggedOut,
            ),
            (
                Status::not_found("etcdserver: requested lease not found"),
                false,
                Kind::NoLease,
            ),
            (
                Status::permission_denied("etcdserver: permission denied"),
                false,
                Kind::Refused,
            ),
            (
                Status::resource_exhausted("etcdserver: mvcc: database space exceeded"),
                false,
                Kind::Refused,
            ),
            (Status::unknown("h2 protocol error"), true, Kind::Away),
        ] {
            let fault = fault(&status);
            assert_eq!(fault.error.is_in_doubt(), in_doubt, "{status:?}");
            assert_eq!(fault.kind, kind, "{status:?}");
        }
    }

    #[test]
    fn refusals_say_what_to_do() {
        let denied = fault(&Status::permission_denied("etcdserver: permission denied"));
        assert!(denied.error.to_string().contains("grant-permission"));
        let full = fault(&Status::resource_exhausted(
            "etcdserver: mvcc: database space exceeded",
        ));
        assert!(full.error.to_string().contains("alarm disarm"));
    }

    #[test]
    fn what_failed_after_a_doubt_stays_in_doubt() {
        let refused = Fault::last(StoreError::refused("no"));
        assert!(!refused.clone().after(false).error.is_in_doubt());
        assert!(refused.after(true).error.is_in_doubt());
    }
}
