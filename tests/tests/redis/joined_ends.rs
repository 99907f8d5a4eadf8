//! A call that has joined another's lease and has an end of its own: what it is told is of itself.

use std::sync::Mutex;
use std::time::Duration;

use lockattr::{Client, Error, Lease, LossCause, distributed_lock};

use crate::support::{nap, pair};

const SECOND: Duration = Duration::from_secs(1);

#[distributed_lock(key = ["order:1", "stock:1"], client = locks)]
async fn around<F: Future<Output: Send>>(locks: &Client, inside: F) -> Result<F::Output, Error> {
    nap(1_500).await;
    Ok(inside.await)
}

#[tokio::test]
async fn the_loss_of_a_joined_call_names_its_own_key_and_its_own_time() {
    #[distributed_lock(key = "order:1", max_hold = "500ms", client = locks)]
    async fn inner(locks: &Client) -> Result<(), Error> {
        nap(60_000).await;
        Ok(())
    }
    let (_server, locks) = pair().await;
    match around(&locks, inner(&locks)).await.unwrap() {
        Err(Error::Lost { key, cause, held }) => {
            assert_eq!(cause, LossCause::HeldTooLong);
            assert_eq!(key, "order:1");
            assert!(held < SECOND, "{held:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// Work that a joined call has handed its lease to is told that the call was stopped.
#[tokio::test]
async fn a_handle_of_a_joined_call_is_lost_when_the_call_has_been_held_too_long() {
    #[distributed_lock(key = "order:1", max_hold = "500ms", bind = lease, client = locks)]
    async fn inner(locks: &Client, kept: &Mutex<Option<Lease>>) -> Result<(), Error> {
        *kept.lock().unwrap() = Some(lease.share());
        nap(60_000).await;
        Ok(())
    }
    let (_server, locks) = pair().await;
    let kept = Mutex::new(None);
    let inside = async {
        let ended = inner(&locks, &kept).await;
        assert!(matches!(ended, Err(Error::Lost { .. })), "{ended:?}");
        let lease: Lease = kept.lock().unwrap().take().unwrap();
        tokio::time::timeout(SECOND, lease.lost()).await.is_ok()
    };
    assert!(around(&locks, inside).await.unwrap(), "it is not told");
}

#[tokio::test]
async fn a_joined_call_knows_how_much_time_it_has() {
    #[distributed_lock(key = "order:1", max_hold = "500ms", bind = lease, client = locks)]
    async fn inner(locks: &Client) -> Result<Duration, Error> {
        Ok(lease.remaining())
    }
    let (_server, locks) = pair().await;
    let left = around(&locks, inner(&locks)).await.unwrap().unwrap();
    assert!(left <= SECOND / 2, "{left:?} of 500ms");
}
