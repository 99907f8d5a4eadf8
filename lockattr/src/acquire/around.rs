//! Which leases the running code stands under: those of the locked functions that it is called from.
//!
//! A lease is in here only while its body is being polled, so a task that the body spawns is not
//! under it, and futures that the body polls side by side are.

use std::cell::RefCell;

use crate::lease::Lease;

thread_local! {
    /// From the outermost call to the innermost.
    static UNDER: RefCell<Vec<Lease>> = const { RefCell::new(Vec::new()) };
}

/// While this lives, the thread runs under the lease that it was made with.
pub(crate) struct Under(());

impl Under {
    pub(crate) fn new(lease: &Lease) -> Self {
        // A thread that ends has no callers left to tell.
        let _ = UNDER.try_with(|under| under.borrow_mut().push(lease.share()));
        Self(())
    }
}

impl Drop for Under {
    fn drop(&mut self) {
        let left = UNDER.try_with(|under| under.borrow_mut().pop());
        // Dropped here, where the list is not borrowed.
        drop(left);
    }
}

/// The lease of the innermost locked function that this code is called from, as a handle that may be
/// kept: the key is held for as long as any handle is.
///
/// `None` outside of every locked function, and in tasks that one has spawned.
///
/// ```
/// # use lockattr::{Client, Error, distributed_lock};
/// #[distributed_lock(key = "book:<account>")]
/// async fn book(account: u64) -> Result<u64, Error> {
///     write().await
/// }
///
/// async fn write() -> Result<u64, Error> {
///     let lease = lockattr::current().expect("called from a locked function");
///     lease.token().await
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
/// # let client = Client::connect("memory:").await?;
/// # client.scope(book(7)).await?;
/// # assert!(lockattr::current().is_none());
/// # Ok(()) }
/// ```
#[must_use]
pub fn current() -> Option<Lease> {
    all().pop()
}

/// All leases that this code stands under, from the outermost to the innermost.
pub(crate) fn all() -> Vec<Lease> {
    UNDER
        .try_with(|under| under.borrow().iter().map(Lease::share).collect())
        .unwrap_or_default()
}
