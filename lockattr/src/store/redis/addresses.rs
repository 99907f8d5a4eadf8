//! Addresses of servers, and what becomes of those that servers announce.
//!
//! Sentinels and nodes of a cluster tell the addresses by which they reach each other. Clients may be
//! elsewhere, or need a name where an IP is told: a certificate is for names. So the application may say
//! where each of them is for its own clients.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A host, by name or by IP, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As long as a host's name may be.
        let host: String = self.host.chars().take(255).collect();
        if host.contains(':') {
            write!(f, "[{host}]:{}", self.port)
        } else {
            write!(f, "{host}:{}", self.port)
        }
    }
}

/// Where clients reach what is announced at an address; `None` where it is reached there.
#[derive(Clone)]
pub(crate) struct AddressMap(Arc<MapAddress>);

type MapAddress = dyn Fn(&str, u16) -> Option<(String, u16)> + Send + Sync;

impl AddressMap {
    pub(crate) fn new(
        map: impl Fn(&str, u16) -> Option<(String, u16)> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(map))
    }

    pub(super) fn apply(&self, announced: Address) -> Address {
        let Address { host, port } = &announced;
        // The application's own; what it panics with is told by the panic's hook.
        match catch_unwind(AssertUnwindSafe(|| (self.0)(host, *port))) {
            Ok(Some((host, port))) => Address { host, port },
            Ok(None) | Err(_) => announced,
        }
    }
}

impl fmt::Debug for AddressMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressMap").finish_non_exhaustive()
    }
}
