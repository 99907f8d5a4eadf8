//! Whether a [`Store`] keeps its promises: for the tests of whoever implements one.
//!
//! ```
//! use lockattr::Memory;
//! use lockattr::store::conformance;
//!
//! # /*
//! #[tokio::test]
//! # */
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn the_store_keeps_its_promises() {
//!     conformance::check(async || Memory::new()).await;
//! }
//! # the_store_keeps_its_promises()
//! ```
//!
//! [`check`] runs everything, each step on a store of its own; every step can be run alone as well. What
//! the store's [`Limits`](super::Limits) rule out is not asked. A step panics where a promise is broken,
//! and says which, in the words of the trait.
//!
//! Lock keys start with `lock:conformance:` and are never used twice, so that the store may be one that
//! others use. They are given back, or end with their ttl.
//!
//! Time passes as it is, unless leases of the store live [in their callers'
//! time](Store::in_callers_time): such a store can be checked under a paused clock.

use super::Store;

mod beside;
mod drops;
mod grants;
mod many;
mod outage;
mod promise;
mod releases;
mod subject;
mod tokens;
mod wakeups;

#[cfg(test)]
pub(crate) mod servers;
#[cfg(test)]
mod tests;

pub use beside::{readers, weights};
pub use drops::drops;
pub use grants::{excludes, expires, grants, recognises, renews, shortens};
pub use many::{permits, several_locks};
pub use outage::outage;
pub use releases::{closes, marks, releases};
pub use tokens::tokens;
pub use wakeups::wakeups;

/// Every promise of a store that is in order. `make` makes one for each step, or hands out the same
/// one again.
pub async fn check<S: Store>(make: impl AsyncFn() -> S) {
    grants(&make().await).await;
    excludes(&make().await).await;
    recognises(&make().await).await;
    renews(&make().await).await;
    shortens(&make().await).await;
    expires(&make().await).await;
    releases(&make().await).await;
    closes(&make().await).await;
    marks(&make().await).await;
    tokens(&make().await).await;
    several_locks(&make().await).await;
    permits(&make().await).await;
    weights(&make().await).await;
    readers(&make().await).await;
    wakeups(&make().await).await;
    drops(&make().await).await;
}
