//! The leases of a client, as a store sees them that learns by itself that some may have ended.

use std::fmt;
use std::sync::Arc;

use super::Claim;
use crate::error::LossCause;

/// The leases that a client holds at a [`Store`](super::Store); see [`Store::tell_ended`](super::Store::tell_ended).
///
/// They are the client's, which may be gone: then there are none.
#[derive(Clone)]
pub struct HeldLeases(Arc<dyn LeaseTable>);

/// Where a client keeps its leases.
pub(crate) trait LeaseTable: Send + Sync {
    /// Whether there is one of which this is true.
    fn holds(&self, is: &dyn Fn(Claim<'_>) -> bool) -> bool;

    /// Has those renewed at once of which this is true.
    fn renew(&self, is: &dyn Fn(Claim<'_>) -> bool);

    /// Ends the lease of this owner as lost; of a part of a store, which does not decide that, has it renewed.
    fn lose(&self, owner: &str, cause: LossCause) {
        let _ = cause;
        self.renew(&|claim| claim.owner == owner);
    }
}

impl HeldLeases {
    pub(crate) fn new(table: impl LeaseTable + 'static) -> Self {
        Self(Arc::new(table))
    }

    /// Whether any is held of whose claim this is true.
    pub fn any(&self, is: impl Fn(Claim<'_>) -> bool) -> bool {
        self.0.holds(&is)
    }

    /// Has those renewed at once of whose claims this is true: the answer to that says what has become of
    /// each. A lease that the keeper does not renew is asked for as long as it runs yet, so that nothing
    /// of it changes. Does not wait for it, and may be called under no lock.
    pub fn renew(&self, is: impl Fn(Claim<'_>) -> bool) {
        self.0.renew(&is);
    }

    /// Ends the lease of an owner as lost, here and now, for a store that has ended it itself.
    pub(super) fn lose(&self, owner: &str, cause: LossCause) {
        self.0.lose(owner, cause);
    }
}

impl fmt::Debug for HeldLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldLeases").finish_non_exhaustive()
    }
}
