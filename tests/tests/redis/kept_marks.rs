//! Work that was done in time stays done, whatever becomes of its lease afterwards.

use std::sync::Mutex;
use std::time::Duration;

use lockattr::{Client, Error, Lease, distributed_lock};
use tests::server::Server;
use tests::wait;

use crate::support::{is_done, nap, pair};

const SECOND: Duration = Duration::from_secs(1);

#[distributed_lock(key = "order:<id>", once = "24h", client = locks)]
async fn ship(locks: &Client, id: u32) -> Result<Option<()>, Error> {
    Ok(Some(()))
}

/// The inner call has answered `Ok` when the outer one is stopped: what it did would be done again.
async fn shipped_within<F: Future<Output: Send>>(
    locks: &Client,
    server: &Server,
    after: F,
) -> Result<(), Error> {
    #[distributed_lock(key = ["order:<id>", "stock:<id>"], max_hold = "1s", client = locks)]
    async fn around<F: Future<Output: Send>>(
        locks: &Client,
        id: u32,
        after: F,
    ) -> Result<(), Error> {
        assert_eq!(ship(locks, id).await.unwrap(), Some(()));
        after.await;
        Ok(())
    }
    let ended = around(locks, 1, after).await;
    let marked = || is_done(server, "lock:order:1");
    wait::within("the order is marked as done", 2 * SECOND, marked).await;
    ended
}

#[tokio::test]
async fn a_joined_success_is_marked_where_the_call_around_is_held_too_long() {
    let (server, locks) = pair().await;
    let ended = shipped_within(&locks, &server, nap(60_000)).await;
    assert!(matches!(ended, Err(Error::Lost { .. })), "{ended:?}");
    assert_eq!(ship(&locks, 1).await.unwrap(), None);
}

#[tokio::test]
async fn a_joined_success_is_marked_where_the_call_around_is_shut_down() {
    let (server, locks) = pair().await;
    let ended = shipped_within(&locks, &server, async {
        let locks = locks.clone();
        tokio::spawn(async move { locks.shutdown().await });
        nap(60_000).await;
    });
    let ended = ended.await;
    assert!(matches!(ended, Err(Error::Lost { .. })), "{ended:?}");
}

/// A handle that outlives the call: the call has answered `Ok` long before the lease ends.
#[distributed_lock(key = "sync:42", once = "24h", max_hold = "1s", bind = lease, client = locks)]
async fn handing_out(locks: &Client, kept: &Mutex<Option<Lease>>) -> Result<Option<()>, Error> {
    *kept.lock().unwrap() = Some(lease.share());
    Ok(Some(()))
}

#[tokio::test]
async fn a_success_is_marked_where_a_handle_of_its_lease_outlives_the_lease() {
    let (server, locks) = pair().await;
    let kept = Mutex::new(None);
    assert_eq!(handing_out(&locks, &kept).await.unwrap(), Some(()));
    let lease = kept.lock().unwrap().take().unwrap();
    lease.lost().await;
    drop(lease);
    let marked = || is_done(&server, "lock:sync:42");
    wait::within("the work is marked as done", 2 * SECOND, marked).await;
    assert_eq!(handing_out(&locks, &kept).await.unwrap(), None);
}

#[tokio::test]
async fn a_success_is_marked_where_a_handle_of_its_lease_outlives_its_client() {
    let (server, locks) = pair().await;
    let kept = Mutex::new(None);
    assert_eq!(handing_out(&locks, &kept).await.unwrap(), Some(()));
    locks.shutdown().await;
    drop(kept);
    let marked = || is_done(&server, "lock:sync:42");
    wait::within("the work is marked as done", 2 * SECOND, marked).await;
}

/// Nothing is left to be stopped once the call has ended: its key goes back at once.
#[tokio::test]
async fn a_shutdown_gives_back_what_is_held_by_a_handle_that_outlives_its_call() {
    #[distributed_lock(key = "sync:42", ttl = "10s", bind = lease, client = locks)]
    async fn handing_out(locks: &Client, kept: &Mutex<Option<Lease>>) -> Result<(), Error> {
        *kept.lock().unwrap() = Some(lease.share());
        Ok(())
    }
    let (server, locks) = pair().await;
    let kept = Mutex::new(None);
    handing_out(&locks, &kept).await.unwrap();
    let ended = tokio::time::timeout(3 * SECOND, locks.shutdown()).await;
    assert!(ended.is_ok(), "it waits for a handle that nobody polls");
    assert_eq!(server.size(), 0);
}
